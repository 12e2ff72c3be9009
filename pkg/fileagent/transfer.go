package fileagent

import (
	"context"
	"errors"
	"io"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/transfer"
)

// Transfer is what upload and download need of the network. The zero value is the network as the system has it.
type Transfer = transfer.Network

// dial prepares a transfer, within the policy of the request.
func (r *run) dial(url, token string) (*transfer.Client, error) {
	policy := transfer.Policy{Hosts: r.request.Limits.URLHosts, Private: r.request.Limits.URLPrivate}
	client, err := r.agent.Transfer.Dial(policy, url, token)
	return client, transferred(err)
}

// transferred makes a result's refusal of an error of the transfer. An error of here stays as it is.
func transferred(err error) error {
	var denied *transfer.PolicyError
	var failed *transfer.Error
	switch {
	case errors.As(err, &denied):
		return refuse(api.PolicyDenied, "%s", denied.Reason)
	case errors.As(err, &failed):
		return refuse(api.TransferFailed, "%s", failed.Reason)
	}
	return err
}

// exact gives exactly so many bytes. The last of them it holds back until nothing follows and check agrees, so that
// what changes on its way is cut short at the other end, and not taken for whole there.
type exact struct {
	from  io.Reader
	left  int64
	check func() error // nil agrees
	// changed is the error of what is shorter or longer.
	changed error
}

// Read reads.
func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.from.Read(p[:min(int64(len(p)), e.left)])
	if int64(n) < e.left {
		e.left -= int64(n)
		if errors.Is(err, io.EOF) {
			err = e.changed
		}
		return n, err
	}
	if err == nil {
		err = e.end()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if e.check != nil {
		if err := e.check(); err != nil {
			return 0, err
		}
	}
	e.left = 0
	return n, nil
}

// end is io.EOF if nothing follows.
func (e *exact) end() error {
	var more [1]byte
	n, err := io.ReadFull(e.from, more[:])
	if n > 0 {
		return e.changed
	}
	return err
}

// watched is a reader that ends with the context, and tells how much was read.
type watched struct {
	ctx  context.Context //nolint:containedctx // of one transfer, from its begin to its end
	from io.Reader
	told func(n int64)
}

// Read reads.
func (w *watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.from.Read(p)
	w.told(int64(n))
	return n, err
}
