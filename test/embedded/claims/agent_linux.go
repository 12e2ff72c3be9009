package claims

import (
	"context"
	"io"
	"time"

	"flint.dev/flint/pkg/fileagent"
	"flint.dev/flint/pkg/fileagent/protocol"
)

const invalid = fileagent.ExitInvalid

func runAgent(ctx context.Context, given *protocol.Environment, log io.Writer) (code int, message []byte, err error) {
	agent := &fileagent.Agent{
		Root: given.Root, Nonce: given.Nonce, Out: log, Errors: log, Now: time.Now,
		Termination: func(text []byte) error {
			message = text
			return nil
		},
	}
	return agent.Run(ctx, given.Request), message, nil
}
