package function

import (
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark"
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
func accepted(source string, s *spark.Submission, result *launch.Result) (*cloudevents.Event, error) {
	e := cloudevents.New(cloudevents.CloudEventsVersionV1)
	e.SetID(s.Plan.ID + ".accepted")
	e.SetSource(source)
	e.SetType(api.AcceptedEventType)
	e.SetSubject(s.Plan.Namespace + "/" + result.Workload.GetName())
	e.SetTime(result.CreatedAt.UTC())
	e.SetExtension("launchid", s.Plan.ID)
	if s.Plan.Traceparent != "" {
		e.SetExtension("traceparent", s.Plan.Traceparent)
	}
	if err := e.SetData(cloudevents.ApplicationJSON, submitResponse(s, result)); err != nil {
		return nil, err
	}
	return &e, e.Validate()
}

// answerAccepted answers an event that launched: without a body, or with an event where both sides want one.
func answerAccepted(w http.ResponseWriter, r *http.Request, run *running, s *spark.Submission, result *launch.Result) {
	if run.settings.EventReply && prefersReply(r) {
		e, err := accepted(run.settings.EventSource, s, result)
		if err == nil {
			// A sender that has gone asks again.
			_ = cehttp.WriteResponseWriter(binding.WithForceBinary(r.Context()), binding.ToMessage(e), http.StatusOK, w)
			return
		}
		run.log.Warn("no reply", "submission_id", s.Plan.SubmissionID, "error", err.Error())
	}
	w.WriteHeader(http.StatusAccepted)
}
