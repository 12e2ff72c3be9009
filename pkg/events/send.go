package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"flint.dev/flint/pkg/api"
)

// maxAnswer is how much of an answer's body is read, so that its connection can serve again.
const maxAnswer = 64 << 10

// Error says that an event was not delivered.
type Error struct {
	// ID is the event's.
	ID string
	// Status is the last answer's; 0 when there was none.
	Status int
	// Attempts is how often the event was tried.
	Attempts int
	// Final is true when the same event would be refused again: by what it is, or by a sink that says so.
	Final bool
	// RetryAfter is how long the sink asked to wait, unbounded; 0 when it did not.
	RetryAfter time.Duration
	// cause is why there was no answer; ended is the error of a context that ended first.
	cause, ended error
}

func (e *Error) Error() string {
	text := "event " + e.ID + " was not delivered"
	switch {
	case e.Status != 0:
		text += ": the sink answered " + strings.TrimSpace(strconv.Itoa(e.Status)+" "+http.StatusText(e.Status))
	case e.cause != nil:
		text += ": " + e.cause.Error()
	}
	if e.Attempts > 1 {
		text += fmt.Sprintf(" (attempt %d)", e.Attempts)
	}
	if e.ended != nil {
		text += "; then its time was over: " + e.ended.Error()
	}
	return text
}

// Unwrap gives why there was no answer, and the error of a context that ended.
func (e *Error) Unwrap() []error {
	var all []error
	for _, err := range []error{e.cause, e.ended} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Send delivers the event: nil means that the sink has acknowledged it, or, without a
// sink, that it was logged. Else the error is an *Error. The event itself is not changed. Send ends with the context.
func (s *Sink) Send(ctx context.Context, e event.Event) error {
	if e.Context == nil {
		return &Error{Final: true, cause: errors.New("not a valid CloudEvent: it has no attributes")}
	}
	e = e.Clone()
	for name, value := range s.extensions {
		e.SetExtension(name, value)
	}
	if err := check(ctx, &e); err != nil {
		return &Error{ID: e.ID(), Final: true, cause: err}
	}
	if s.transport == nil {
		outcome, _ := e.Extensions()["outcome"].(string)
		s.config.Log.Info("event without a sink", "type", e.Type(), "id", e.ID(), "subject", e.Subject(), "outcome", outcome)
		return nil
	}
	delay := s.config.Backoff.DelayFunc()
	failed := &Error{ID: e.ID()}
	for {
		if err := ctx.Err(); err != nil {
			failed.ended = err
			return failed
		}
		attempts := failed.Attempts + 1
		failed = s.attempt(ctx, &e)
		if failed == nil {
			return nil
		}
		failed.Attempts = attempts
		if failed.Final || attempts == s.config.Attempts {
			return failed
		}
		pause := max(delay(), min(failed.RetryAfter, s.config.MaxRetryAfter))
		s.config.Log.Debug("event is sent again", "id", e.ID(), "status", failed.Status, "attempt", attempts, "pause", pause)
		timer := s.config.Clock.NewTimer(pause)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// attempt sends the event once.
func (s *Sink) attempt(parent context.Context, e *event.Event) *Error {
	ctx, cancel := context.WithTimeout(parent, s.config.Timeout)
	defer cancel()
	failed := &Error{ID: e.ID()}
	request, err := s.request(ctx, e)
	if err != nil {
		failed.cause = err
		return failed
	}
	began := s.config.Clock.Now()
	response, err := s.transport.RoundTrip(request)
	if s.config.Attempted != nil {
		status := 0
		if err == nil {
			status = response.StatusCode
		}
		s.config.Attempted(status, s.config.Clock.Since(began))
	}
	if err != nil {
		failed.cause = err
		if ctx.Err() != nil && parent.Err() == nil { // the parent's own end is the caller's to tell
			failed.cause = fmt.Errorf("no answer within %v", s.config.Timeout)
		}
		return failed
	}
	defer func() { _ = response.Body.Close() }() // ends the connection, if there is more in it
	// The status has said it all. What cannot be read costs the connection, no more.
	_, _ = io.CopyN(io.Discard, response.Body, maxAnswer)

	failed.Status = response.StatusCode
	switch {
	case response.StatusCode/100 == 2:
		return nil
	case repeatable(response.StatusCode):
		failed.RetryAfter = retryAfter(response.Header.Get("Retry-After"), s.config.Clock.Now())
	default:
		failed.Final = true
	}
	return failed
}

// repeatable has Knative's rule for senders: eventing docs, delivery, and pkg/kncloudevents SelectiveRetry.
func repeatable(status int) bool {
	switch status {
	case http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// request is the event in binary mode, with the token of the moment. Its trace context is in the header of W3C Trace
// Context too: tracing proxies and SDKs look nowhere else (CloudEvents, extensions/distributed-tracing.md).
func (s *Sink) request(ctx context.Context, e *event.Event) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.SinkURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	if err := cehttp.WriteRequest(binding.WithForceBinary(ctx), binding.ToMessage(e), request); err != nil {
		return nil, err
	}
	extension, _ := e.Extensions()["traceparent"].(string)
	if context := api.Traceparent(extension); context != "" {
		request.Header.Set("Traceparent", context)
	}
	token, err := readToken(s.config.TokenFile)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return request, nil
}

// check refuses an event that no sink can take: net/http has no header for it, or CloudEvents forbids it.
func check(ctx context.Context, e *event.Event) error {
	if err := e.Validate(); err != nil {
		return fmt.Errorf("not a valid CloudEvent: %w", err)
	}
	probe := &http.Request{Header: http.Header{}}
	if err := cehttp.WriteRequest(binding.WithForceBinary(ctx), binding.ToMessage(e), probe); err != nil {
		return fmt.Errorf("not a valid CloudEvent: %w", err)
	}
	for name, values := range probe.Header {
		for _, value := range values {
			if !printable(value) {
				return fmt.Errorf("not a valid CloudEvent: %s has control characters", strings.ToLower(name))
			}
		}
	}
	return nil
}

// readToken gives the bearer token, or nothing where there is no file. A file that is being
// written is worth another attempt.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	content, err := os.ReadFile(path) //nolint:gosec // G304: the file that the operator of Flint names
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(content))
	if token == "" || !printable(token) {
		return "", fmt.Errorf("read the token: %s has none in it", path)
	}
	return token, nil
}

// retryAfter reads the header: seconds, or a date. 0 is no advice.
func retryAfter(header string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(header, 10, 32); err == nil {
		return max(time.Duration(seconds)*time.Second, 0)
	}
	if date, err := http.ParseTime(header); err == nil {
		return max(date.Sub(now), 0)
	}
	return 0
}
