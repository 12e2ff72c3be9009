package function

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"flint.dev/flint/pkg/api"
)

// bodyMemory is what all bodies of an instance may take together, in bytes.
type bodyMemory struct{ left atomic.Int64 }

func newBodyMemory(bytes int64) *bodyMemory {
	m := &bodyMemory{}
	m.left.Store(bytes)
	return m
}

// body is one request's part of the memory. It grows with what has arrived, so that
// a client that promises much and sends nothing holds nothing.
type body struct {
	memory *bodyMemory
	taken  int64
}

func (m *bodyMemory) body() *body { return &body{memory: m} }

// release gives the part back, when nothing of the request is needed any more.
func (b *body) release() {
	b.memory.left.Add(b.taken)
	b.taken = 0
}

var errBodyMemory = errors.New("no memory for bodies left")

// accounted takes memory for what it reads.
type accounted struct {
	io.Reader
	body *body
}

func (r accounted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.body.taken += int64(n)
	if r.body.memory.left.Add(-int64(n)) < 0 {
		return n, errBodyMemory
	}
	return n, err
}

// read reads a body of at most limit bytes within the time. A client that sends
// slowly, or nothing, or for ever, holds its own connection and what it has sent.
func (b *body) read(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, api.Errorf(api.UnsupportedMediaType, "Content-Encoding is %q; send the body as it is", encoding)
	}
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return nil, api.Errorf(api.PayloadTooLarge, "the body has %d bytes, more than %d", r.ContentLength, limit)
	}
	control := http.NewResponseController(w)
	// A writer without a connection, as in a test, has no deadline to set.
	if err := control.SetReadDeadline(time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("set the deadline of the body: %w", err)
	}
	text, err := io.ReadAll(accounted{http.MaxBytesReader(w, r.Body, limit), b})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, api.Errorf(api.PayloadTooLarge, "the body has more than %d bytes", limit)
	case errors.Is(err, errBodyMemory):
		w.Header().Set("Connection", "close")
		return nil, overloaded("the bodies of other requests take all the memory that there is for them")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, overloaded(fmt.Sprintf("the body did not arrive within %v", within))
	case err != nil:
		return nil, &api.Error{Code: api.BadRequest, Message: "the body ended early", Cause: err}
	}
	return text, nil
}
