//go:build e2e && linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"flint.dev/flint/pkg/api"
)

// completion is an event about an end, as it arrived.
type completion struct {
	id, kind string // of the event: its id and type
	at       time.Time
	api.Completion
}

// sink keeps what arrives, by the submission that it is about.
type sink struct {
	mu     sync.Mutex
	events map[string][]completion
	more   chan struct{} // closed when another one has arrived
}

func newSink() *sink { return &sink{events: map[string][]completion{}, more: make(chan struct{})} }

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	event, err := cloudevents.NewEventFromHTTPRequest(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c := completion{id: event.ID(), kind: event.Type(), at: time.Now()}
	if err := event.DataAs(&c.Completion); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[c.SubmissionID] = append(s.events[c.SubmissionID], c)
	close(s.more)
	s.more = make(chan struct{})
	w.WriteHeader(http.StatusAccepted)
}

// of is what has arrived about a submission.
func (s *sink) of(submission string) ([]completion, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events[submission], s.more
}

// await waits for the first event about a submission.
func (s *sink) await(ctx context.Context, submission string) (completion, error) {
	for {
		events, more := s.of(submission)
		if len(events) > 0 {
			return events[0], nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return completion{}, fmt.Errorf("no event about %s: %w", submission, ctx.Err())
		}
	}
}

// oneEnd fails unless all events about a submission tell the same end of the same workload.
func oneEnd(t *testing.T, submission string) (repeats int) {
	t.Helper()
	events, _ := received.of(submission)
	for _, event := range events[1:] {
		if event.id != events[0].id {
			t.Errorf("%s: two ends, %s (%s) and %s (%s)", submission, events[0].id, events[0].Reason, event.id, event.Reason)
		}
	}
	return len(events) - 1
}
