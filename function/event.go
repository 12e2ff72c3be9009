package function

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// isEvent tells a CloudEvent, whole or broken, from a plain request: by the
// SDK's reading of its headers, or by a header that only events have.
func isEvent(r *http.Request) bool {
	if encodingOf(r) != binding.EncodingUnknown {
		return true
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Ce-") {
			return true
		}
	}
	return false
}

func encodingOf(r *http.Request) binding.Encoding {
	return cehttp.NewMessage(r.Header, http.NoBody).ReadEncoding()
}

// event answers a CloudEvent. A broker decides by the answer: a 2xx with a body
// that is no event makes it send the event again, so success has no body; 404 and
// 409 are retried, so what can never work is 400, 413, 415 or 422.
func (f *Function) event(w http.ResponseWriter, r *http.Request) {
	started := f.options.clock.Now()
	run, err := f.work()
	if err != nil {
		f.answerEventError(w, "", toAPIError(err))
		return
	}
	request, traceparent, err := readEvent(w, r, run)
	if err == nil {
		extendWrite(w, run.settings.LaunchTimeout)
		submission, result, launchErr := f.launchSpark(r.Context(), run, request, traceparent)
		if launchErr == nil {
			f.logLaunch(run, submission.Plan, result, submission.Warnings, started)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		err = launchErr
	}
	e := f.logRefusal(run, launch.Spark, request.SubmissionID, started, err)
	f.answerEventError(w, request.SubmissionID, e)
}

// readEvent reads and decodes an event. The request is never nil.
func readEvent(w http.ResponseWriter, r *http.Request, run *running) (*api.SubmitRequest, string, error) {
	none := &api.SubmitRequest{}
	switch encodingOf(r) {
	case binding.EncodingUnknown:
		return none, "", api.FieldErrorf(api.BadRequest, "specversion", "the request has Ce- headers but no specversion that is known (1.0, 0.3)")
	case binding.EncodingBatch:
		return none, "", api.Errorf(api.UnsupportedMediaType, "batches of events are not taken; send one event a request")
	default:
	}
	body, err := readBody(w, r, run.settings.MaxEventBytes, run.settings.BodyTimeout)
	if err != nil {
		return none, "", err
	}
	event, err := binding.ToEvent(r.Context(), cehttp.NewMessage(r.Header, io.NopCloser(bytes.NewReader(body))))
	if err != nil {
		return none, "", api.Errorf(api.BadRequest, "malformed event: %v", err)
	}
	if err := event.Validate(); err != nil {
		return none, "", api.Errorf(api.BadRequest, "invalid event: %v", err)
	}
	if event.Type() != api.SubmitEventType {
		return none, "", api.FieldErrorf(api.UnsupportedMediaType, "type", "no use for events of type %q; known: %s", event.Type(), api.SubmitEventType)
	}
	request, err := api.DecodeSubmit(event.Data(), eventKey(event))
	return request, traceparentOf(r, event), err
}

// eventKey is the submission id of an event whose data has none.
func eventKey(event *cloudevents.Event) string {
	if key, ok := event.Extensions()["idempotencykey"].(string); ok && key != "" {
		return key
	}
	return api.EventKey(event.Source(), event.ID())
}

func traceparentOf(r *http.Request, event *cloudevents.Event) string {
	if header := r.Header.Get("Traceparent"); header != "" {
		return header
	}
	extension, _ := event.Extensions()["traceparent"].(string)
	return extension
}

// eventMessageLimit keeps an error's body below the 1,024 characters of it that a
// dead-lettered event carries, in base64.
const eventMessageLimit = 400

func (f *Function) answerEventError(w http.ResponseWriter, submissionID string, e *api.Error) {
	code := e.Status()
	if code == http.StatusConflict || code == http.StatusNotFound {
		code = http.StatusUnprocessableEntity
	}
	short := *e
	if len(short.Message) > eventMessageLimit {
		short.Message = strings.ToValidUTF8(short.Message[:eventMessageLimit], "") + "..."
	}
	f.errorHeader(w, e)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(short.Body(code, submissionID, f.options.clock.Now()))
}

// notAnEvent answers a POST to / that is no event at all.
func (f *Function) notAnEvent(w http.ResponseWriter, _ *http.Request) {
	f.answerError(w, "", api.Errorf(api.UnsupportedMediaType,
		"a POST to / must be a CloudEvent, binary or structured; submissions go to POST %s", api.SubmitPath))
}
