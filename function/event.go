package function

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/metrics"
)

// isEvent tells a CloudEvent, whole or broken, from a plain request: by the
// SDK's reading of its headers, or by a header that only events have.
func isEvent(r *http.Request) bool {
	if encodingOf(r.Header) != binding.EncodingUnknown {
		return true
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "Ce-") {
			return true
		}
	}
	return false
}

func encodingOf(header http.Header) binding.Encoding {
	return cehttp.NewMessage(header, http.NoBody).ReadEncoding()
}

// event answers a CloudEvent. A broker decides by the answer: a 2xx with a body
// that is no event makes it send the event again, so success has no body, or an event; 404 and
// 409 are retried, so what can never work is 400, 413, 415 or 422.
func (f *Function) event(w http.ResponseWriter, r *http.Request) {
	started := f.options.clock.Now()
	run, err := f.work(r)
	if err != nil {
		e := toAPIError(err)
		f.countRefusal(metrics.Unread, e)
		f.answerEventError(w, "", e)
		return
	}
	body := run.bodies.body()
	defer body.release()
	submissionID, kind := "", metrics.Unread
	event, err := readEvent(w, r, run, body)
	switch {
	case err != nil:
	case asksForLook(event.Type()):
		kind = looking
		err = f.look(w, r, run, event)
	default:
		kind, submissionID, err = f.launchEvent(w, r, run, event, started)
	}
	if err != nil {
		e := f.logRefusal(run, kind, submissionID, started, err)
		f.countRefusal(kind, e)
		f.answerEventError(w, submissionID, e)
	}
}

// eventLaunch is what the data of events of one type asks for.
type eventLaunch struct {
	kind launch.Kind
	// launch launches it. The key stands for a submission_id that the data has not. The submission id is
	// there whenever it is known, for the error's own body.
	launch func(f *Function, ctx context.Context, run *running, data []byte, key, traceparent string) (submissionID string, l *launched, err error)
}

// eventLaunchOf is what events of the type ask for.
func eventLaunchOf(eventType string) (eventLaunch, bool) {
	switch eventType {
	case api.SubmitEventType:
		return eventLaunch{launch.Spark, (*Function).sparkEvent}, true
	case api.FileEventType:
		return eventLaunch{launch.File, (*Function).fileEvent}, true
	case api.RunnerEventType:
		return eventLaunch{launch.Runner, (*Function).runnerEvent}, true
	default:
		return eventLaunch{kind: metrics.Unread}, false
	}
}

// launchEvent launches what the event asks for. It answers, unless there is an error.
func (f *Function) launchEvent(w http.ResponseWriter, r *http.Request, run *running, event *cloudevents.Event, started time.Time) (kind launch.Kind, submissionID string, err error) {
	asked, key, err := readLaunch(event)
	if err != nil {
		return asked.kind, "", err
	}
	extendWrite(w, run.settings.LaunchTimeout)
	submissionID, l, err := asked.launch(f, r.Context(), run, event.Data(), key, traceparentOf(r, event))
	if err != nil {
		return asked.kind, submissionID, err
	}
	f.logLaunch(r.Context(), run, l, started)
	answerAccepted(w, r, run, l)
	return asked.kind, submissionID, nil
}

// sparkEvent launches a driver.
func (f *Function) sparkEvent(ctx context.Context, run *running, data []byte, key, traceparent string) (string, *launched, error) {
	request, err := api.DecodeSubmit(data, key)
	if err != nil {
		return request.SubmissionID, nil, err
	}
	l, err := f.launchSpark(ctx, run, request, traceparent)
	return request.SubmissionID, l, err
}

// readEvent reads an event.
func readEvent(w http.ResponseWriter, r *http.Request, run *running, body *body) (*cloudevents.Event, error) {
	if r.URL.RawQuery != "" {
		return nil, api.FieldErrorf(api.BadRequest, "query", "an event is sent without a query; there is no dry run of events")
	}
	header, err := attributes(r.Header)
	if err != nil {
		return nil, err
	}
	switch encodingOf(header) {
	case binding.EncodingUnknown:
		return nil, api.FieldErrorf(api.BadRequest, "specversion", "the request has Ce- headers but no specversion that is known (1.0, 0.3)")
	case binding.EncodingBatch:
		return nil, api.Errorf(api.UnsupportedMediaType, "batches of events are not taken; send one event a request")
	default:
	}
	text, err := body.read(w, r, run.settings.MaxEventBytes, run.settings.BodyTimeout)
	if err != nil {
		return nil, err
	}
	event, err := binding.ToEvent(r.Context(), cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(text))))
	if err != nil {
		return nil, api.Errorf(api.BadRequest, "malformed event: its attributes or its JSON cannot be read") // the SDK's error quotes the body
	}
	if err := event.Validate(); err != nil {
		return nil, api.Errorf(api.BadRequest, "invalid event: %v", err)
	}
	return event, nil
}

// readLaunch reads what of the event tells what it asks for, and its key.
func readLaunch(event *cloudevents.Event) (asked eventLaunch, key string, err error) {
	asked, known := eventLaunchOf(event.Type())
	if !known {
		return asked, "", api.FieldErrorf(api.UnsupportedMediaType, "type", "no use for events of type %q; known: %s, %s, %s, %s, %s*",
			event.Type(), api.SubmitEventType, api.FileEventType, api.RunnerEventType, pingEvent, apiServerEvents)
	}
	if media := event.DataMediaType(); media != "" && media != "application/json" && !strings.HasSuffix(media, "+json") {
		return asked, "", api.FieldErrorf(api.UnsupportedMediaType, "datacontenttype", "the event's data is %q, not application/json", media)
	}
	key, err = eventKey(event)
	return asked, key, err
}

// eventKey is the submission id of an event whose data has none. A key that is
// there and cannot be used is refused: with another one in its place, the same
// key would give two drivers.
func eventKey(event *cloudevents.Event) (string, error) {
	const extension = "idempotencykey"
	value, given := event.Extensions()[extension]
	if !given {
		return api.EventKey(event.Source(), event.ID()), nil
	}
	key, err := types.Format(value)
	if err != nil || key == "" {
		return "", api.FieldErrorf(api.BadRequest, extension, "the extension %s is empty or no text", extension)
	}
	return key, nil
}

func traceparentOf(r *http.Request, event *cloudevents.Event) string {
	if header := r.Header.Get("Traceparent"); header != "" {
		return header
	}
	extension, _ := event.Extensions()["traceparent"].(string)
	return extension
}

// eventBodyLimit keeps an error's body within the 1,024 characters of it that a
// dead-lettered event carries, in base64.
const eventBodyLimit = 700

func (f *Function) answerEventError(w http.ResponseWriter, submissionID string, e *api.Error) {
	code := e.Status()
	switch final := code == http.StatusConflict || code == http.StatusNotFound; {
	case final && e.Retryable(): // a claim that is busy
		code = http.StatusServiceUnavailable
	case final:
		code = http.StatusUnprocessableEntity
	}
	f.errorHeader(w, e)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(e.BodyWithin(eventBodyLimit, code, submissionID, f.options.clock.Now())) //nolint:gosec // G705: JSON, and said to be
}

// notAnEvent answers a POST to / that is no event at all.
func (f *Function) notAnEvent(w http.ResponseWriter, _ *http.Request) {
	f.answerError(w, "", api.Errorf(api.UnsupportedMediaType,
		"a POST to / must be a CloudEvent, binary or structured; submissions go to POST %s", api.SubmitPath))
}
