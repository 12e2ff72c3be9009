package function

import (
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"flint.dev/flint/pkg/api"
)

// prefersReply tells whether the sender takes an event for an answer (RFC 7240, Knative's `Prefer: reply`).
func prefersReply(r *http.Request) bool {
	for _, line := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(preference, ";")
			if strings.EqualFold(strings.TrimSpace(name), "reply") {
				return true
			}
		}
	}
	return false
}

// accepted is the event that answers an event that launched. A repeat of the submission gives the same id.
func accepted(source string, l *launched) (*cloudevents.Event, error) {
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(l.plan.ID + ".accepted")
	e.SetSource(source)
	e.SetType(api.AcceptedEventType)
	e.SetSubject(l.plan.Namespace + "/" + l.result.Workload.GetName())
	e.SetTime(l.result.CreatedAt.UTC())
	e.SetExtension("launchid", l.plan.ID)
	if l.plan.Traceparent != "" {
		e.SetExtension("traceparent", l.plan.Traceparent)
	}
	if err := e.SetData(cloudevents.ApplicationJSON, l.answer); err != nil {
		return nil, err
	}
	return &e, e.Validate()
}

// answerAccepted answers an event that launched: without a body, or with an event where both sides want one.
func answerAccepted(w http.ResponseWriter, r *http.Request, run *running, l *launched) {
	if run.settings.EventReply && prefersReply(r) {
		e, err := accepted(run.settings.EventSource, l)
		if err == nil {
			// A sender that has gone asks again.
			_ = cehttp.WriteResponseWriter(binding.WithForceBinary(r.Context()), binding.ToMessage(e), http.StatusOK, w)
			return
		}
		run.log.Warn("no reply", "submission_id", l.plan.SubmissionID, "error", err.Error())
	}
	w.WriteHeader(http.StatusAccepted)
}
