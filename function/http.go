package function

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"flint.dev/flint/pkg/api"
)

// route finds what answers a request. An event is known by its encoding and not by its path.
func (f *Function) route(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && isEvent(r) {
		f.event(w, r)
		return
	}
	switch r.URL.Path {
	case api.SubmitPath:
		f.only(http.MethodPost, f.submit)(w, r)
	case "/":
		f.only(http.MethodPost, f.notAnEvent)(w, r)
	default:
		f.answerError(w, "", api.Errorf(api.NotFound, "no such path: submissions go to POST %s, CloudEvents to POST /", api.SubmitPath))
	}
}

// only answers every other method: 405, or 200 to OPTIONS, both with Allow.
func (f *Function) only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method {
			next(w, r)
			return
		}
		w.Header().Set("Allow", method+", OPTIONS")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		f.answerError(w, "", api.Errorf(api.MethodNotAllowed, "%s is not allowed here, only %s", r.Method, method))
	}
}

// requireJSON refuses a body that does not say it is JSON.
func requireJSON(r *http.Request) error {
	text := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(text)
	if err != nil || media != "application/json" {
		return api.Errorf(api.UnsupportedMediaType, "Content-Type is %q, not application/json", text)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return api.Errorf(api.UnsupportedMediaType, "Content-Encoding is %q; send the body as it is", encoding)
	}
	return nil
}

// readBody reads a body of at most limit bytes within the time. A client that
// sends slowly, or nothing, or for ever, holds its own connection and nothing else.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, error) {
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close")
		return nil, api.Errorf(api.PayloadTooLarge, "the body has %d bytes, more than %d", r.ContentLength, limit)
	}
	control := http.NewResponseController(w)
	// A writer without a connection, as in a test, has no deadline to set.
	if err := control.SetReadDeadline(time.Now().Add(within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("set the deadline of the body: %w", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, api.Errorf(api.PayloadTooLarge, "the body has more than %d bytes", limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, api.Errorf(api.BadRequest, "the body did not arrive within %v", within)
	case err != nil:
		return nil, &api.Error{Code: api.BadRequest, Message: "the body ended early", Cause: err}
	}
	return body, nil
}

// writeMargin is the time beyond a launch's own limit in which its answer must have left.
const writeMargin = 5 * time.Second

// extendWrite gives the answer the time of a launch from now on; func-go's 30 s
// began when the request's header did, before its body was read.
func extendWrite(w http.ResponseWriter, launch time.Duration) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(launch + writeMargin))
}

func answerJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("answer %T: %v", value, err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that has gone asks again
}

func (f *Function) answerError(w http.ResponseWriter, submissionID string, e *api.Error) {
	f.errorHeader(w, e)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status())
	_, _ = w.Write(e.Body(e.Status(), submissionID, f.options.clock.Now())) //nolint:gosec // G705: JSON, and said to be
}

func (f *Function) errorHeader(w http.ResponseWriter, e *api.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if f.draining.Load() {
		w.Header().Set("Connection", "close")
	}
}
