//go:build !linux

package claims

import (
	"context"
	"errors"
	"io"

	"flint.dev/flint/pkg/fileagent/protocol"
)

const invalid = 2

func runAgent(context.Context, *protocol.Environment, io.Writer) (code int, message []byte, err error) {
	return 1, nil, errors.New("the agent runs on Linux only")
}
