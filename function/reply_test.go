package function_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
)

func TestReply(t *testing.T) {
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	i := serve(t, setup{settings: func(s *config.Settings) { s.EventReply = true }})
	ids := map[string]bool{}
	for n, prefer := range []string{"reply", "respond-async, Reply;x=1"} {
		a := i.do(t, http.MethodPost, "/", submission("one"), binaryEvent(string(rune('1'+n)), api.SubmitEventType, "Prefer", prefer, "Traceparent", traceparent)...)
		message := cehttp.NewMessage(a.header, http.NoBody)
		message.BodyReader = readCloser(a.body)
		event, err := binding.ToEvent(t.Context(), message)
		if err != nil || a.status != http.StatusOK || message.ReadEncoding() != binding.EncodingBinary {
			t.Fatalf("HTTP %d, %v, %v: %s", a.status, err, a.header, a.body)
		}
		if err := event.Validate(); err != nil {
			t.Error(err)
		}
		pod := i.api.Objects(pods)[0]
		launchID := pod.GetLabels()["flint.dev/id"]
		if event.Type() != "dev.flint.launch.accepted.v1" || event.ID() != launchID+".accepted" || event.Source() != "/flint" || event.Subject() != "default/"+pod.GetName() ||
			!event.Time().Equal(pod.GetCreationTimestamp().Time) || event.Extensions()["launchid"] != launchID || event.Extensions()["traceparent"] != traceparent {
			t.Errorf("event %v", event)
		}
		var data api.SubmitResponse
		if err := json.Unmarshal(event.Data(), &data); err != nil || data.DriverPodUID != string(pod.GetUID()) || data.SubmissionID != "one" || data.DuplicateSubmission != (n > 0) {
			t.Errorf("%v: %+v", err, data)
		}
		if err := conforms(t, api.AcceptedSchema, event.Data()); err != nil {
			t.Errorf("not as its schema says: %v", err)
		}
		ids[event.ID()] = true
	}
	if len(ids) != 1 {
		t.Errorf("a repeat has another id: %v", ids)
	}
	for _, prefer := range []string{"", "respond-async", "no-reply", "reply=1"} {
		want := http.StatusAccepted
		if a := i.do(t, http.MethodPost, "/", submission("one"), binaryEvent("3", api.SubmitEventType, "Prefer", prefer)...); a.status != want || a.body != "" {
			t.Errorf("Prefer %q: HTTP %d: %s", prefer, a.status, a.body)
		}
	}
	if got := strings.Count(strings.Join(i.log.all(), "\n"), "no reply"); got != 0 {
		t.Errorf("%d replies failed", got)
	}
}
