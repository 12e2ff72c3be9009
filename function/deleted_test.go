package function_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
)

// What others delete while no instance is up: with FLINT_TELL_DELETED the next look tells of it, by a ping, an event of the
// API server, or on its own, and without a sink it is gone too. Without the setting it is told by nobody.
func TestDeletedAtZero(t *testing.T) {
	for name, tc := range map[string]struct {
		tell, sink bool
		look       func(created api.SubmitResponse) (eventType, data string) // nil: the instance's own
	}{
		"a ping": {tell: true, sink: true, look: func(api.SubmitResponse) (string, string) { return pingType, `{}` }},
		"an event of the API server": {tell: true, sink: true, look: func(c api.SubmitResponse) (string, string) {
			return "dev.knative.apiserver.ref.update", fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","namespace":"default","name":%q}`, c.DriverPodName)
		}},
		"by itself":           {tell: true, sink: true},
		"without a sink":      {tell: true, look: func(api.SubmitResponse) (string, string) { return pingType, `{}` }},
		"without the setting": {sink: true, look: func(api.SubmitResponse) (string, string) { return pingType, `{}` }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, received := sink(t)
			change := func(s *config.Settings) {
				s.TellDeleted = tc.tell
				if tc.sink {
					s.Sink = url
				}
			}
			i := serve(t, setup{settings: change})
			created := i.submit(t, submission("one")).accepted(t)
			if kept := len(i.api.Object(pods, "default", created.DriverPodName).GetFinalizers()) > 0; kept != tc.tell {
				t.Fatalf("kept %t", kept)
			}
			stopping, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := i.f.Stop(stopping); err != nil {
				t.Fatal(err)
			}
			i.delete(t, created)

			another := serve(t, setup{cluster: i.api, settings: func(s *config.Settings) {
				change(s)
				if tc.look == nil {
					s.PollInterval = 20 * time.Millisecond
				}
			}})
			if tc.look != nil {
				for range 2 {
					if a := another.event(t, first(tc.look(created)), second(tc.look(created))); a.status != http.StatusAccepted || a.body != "" {
						t.Errorf("HTTP %d: %s", a.status, a.body)
					}
				}
			}
			if tc.tell && tc.sink {
				isDeleted(t, next(t, received).Data(), created)
			}
			if err := i.api.Until(stopping, func() bool { return i.api.Object(pods, "default", created.DriverPodName) == nil }); err != nil {
				t.Errorf("the driver is left: %v", err)
			}
			if len(received) != 0 {
				t.Errorf("%d events more", len(received))
			}
			lines := strings.Count(strings.Join(another.log.all(), "\n"), created.DriverPodUID+".failed")
			if told := lines > 0; told != (tc.tell && !tc.sink) {
				t.Errorf("%d lines of the log tell of it", lines)
			}
			if a := another.submit(t, submission("one")); tc.tell && a.accepted(t).DriverPodUID == created.DriverPodUID { // its name is free
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
		})
	}
}

// delete is what kubectl does.
func (i *instance) delete(t *testing.T, created api.SubmitResponse) {
	t.Helper()
	c, err := dynamic.NewForConfig(i.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Resource(pods).Namespace("default").Delete(t.Context(), created.DriverPodName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func isDeleted(t *testing.T, text []byte, created api.SubmitResponse) {
	t.Helper()
	var data api.Completion
	if err := json.Unmarshal(text, &data); err != nil {
		t.Fatal(err)
	}
	if data.Kind != string(launch.Spark) || data.UID != created.DriverPodUID || data.SubmissionID != created.SubmissionID || data.Outcome != api.Failed || data.Reason != api.ReasonDeleted {
		t.Errorf("told %s", text)
	}
}
