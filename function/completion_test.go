package function_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
)

// sink receives events and acknowledges them.
func sink(t *testing.T) (url string, received chan cloudevents.Event) {
	t.Helper()
	received = make(chan cloudevents.Event, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event, err := cloudevents.NewEventFromHTTPRequest(r)
		if err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		received <- *event
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

func next(t *testing.T, received chan cloudevents.Event) cloudevents.Event {
	t.Helper()
	select {
	case e := <-received:
		return e
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		return cloudevents.Event{}
	}
}

func (i *instance) event(t *testing.T, eventType, data string) answer {
	t.Helper()
	return i.do(t, http.MethodPost, "/", data, "Content-Type", "application/json",
		"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/test", "Ce-Type", eventType)
}

const succeeded = "dev.flint.spark.succeeded.v1"

// ended checks that the event is about the end of the accepted driver.
func ended(t *testing.T, e cloudevents.Event, created api.SubmitResponse) {
	t.Helper()
	var data api.Completion
	if err := json.Unmarshal(e.Data(), &data); err != nil {
		t.Fatal(err)
	}
	if e.Type() != succeeded || e.ID() != created.DriverPodUID+".succeeded" || e.Source() != "/flint" ||
		data.SubmissionID != created.SubmissionID || data.SparkAppID != created.SparkAppID || data.Reason != "Completed" {
		t.Errorf("event %v, data %+v, submission %+v", e, data, created)
	}
}

// untilSucceeded waits for the end of the accepted driver.
func (i *instance) untilSucceeded(t *testing.T, created api.SubmitResponse) {
	t.Helper()
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := i.api.Until(within, func() bool {
		pod := i.api.Object(pods, "default", created.DriverPodName)
		status, _ := pod.Object["status"].(map[string]any)
		return status["phase"] == "Succeeded"
	})
	if err != nil {
		t.Fatal(err)
	}
}

// While the instance is up, it tells of an end by itself.
func TestCompletionIsTold(t *testing.T) {
	url, received := sink(t)
	i := serve(t, setup{node: true, settings: func(s *config.Settings) { s.Sink, s.PollInterval = url, 20*time.Millisecond }})
	created := i.submit(t, submission("one")).accepted(t)
	ended(t, next(t, received), created)
	stopping, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := i.f.Stop(stopping); err != nil {
		t.Error(err)
	}
}

// At zero, a ping or an event of the API server makes an instance that looks.
func TestLooksThatEventsAskFor(t *testing.T) {
	for name, ask := range map[string]func(api.SubmitResponse) (eventType, data string){
		"ping": func(api.SubmitResponse) (string, string) { return "dev.knative.sources.ping", `{}` },
		"reference": func(c api.SubmitResponse) (string, string) {
			return "dev.knative.apiserver.ref.update", fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","namespace":"default","name":%q}`, c.DriverPodName)
		},
		"object": func(c api.SubmitResponse) (string, string) {
			return "dev.knative.apiserver.resource.update", fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":%q}}`, c.DriverPodName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, received := sink(t)
			i := serve(t, setup{node: true, settings: func(s *config.Settings) { s.Sink = url }})
			created := i.submit(t, submission("one")).accepted(t)
			i.untilSucceeded(t, created)
			if len(received) != 0 {
				t.Error("told without being asked")
			}
			if a := i.event(t, first(ask(created)), second(ask(created))); a.status != http.StatusAccepted || a.body != "" {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
			ended(t, next(t, received), created)
			if a := i.event(t, first(ask(created)), second(ask(created))); a.status != http.StatusAccepted || len(received) != 0 {
				t.Errorf("again: HTTP %d, %d events", a.status, len(received))
			}
		})
	}
}

func first(a, _ string) string  { return a }
func second(_, b string) string { return b }

func TestLooksRefused(t *testing.T) {
	i := serve(t, setup{})
	for name, tc := range map[string]struct {
		eventType, data string
		status          int
	}{
		"another kind":   {"dev.knative.apiserver.ref.update", `{"kind":"Service","apiVersion":"v1","namespace":"default","name":"s"}`, 202},
		"nothing there":  {"dev.knative.apiserver.ref.delete", `{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"gone"}`, 202},
		"elsewhere":      {"dev.knative.apiserver.ref.update", `{"kind":"Pod","apiVersion":"v1","namespace":"other","name":"p"}`, 202},
		"no name":        {"dev.knative.apiserver.ref.update", `{"kind":"Pod","apiVersion":"v1","namespace":"default"}`, 400},
		"a path":         {"dev.knative.apiserver.ref.update", `{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"a/b"}`, 400},
		"no object":      {"dev.knative.apiserver.ref.update", `[]`, 400},
		"another source": {"dev.knative.sources.other", `{}`, 415},
	} {
		t.Run(name, func(t *testing.T) {
			if a := i.event(t, tc.eventType, tc.data); a.status != tc.status {
				t.Errorf("HTTP %d, want %d: %s", a.status, tc.status, a.body)
			}
		})
	}
}

// An API server that cannot be asked makes the ping come again.
func TestPingOfAnAPIServerInTrouble(t *testing.T) {
	i := serve(t, setup{api: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	}})
	if a := i.event(t, "dev.knative.sources.ping", `{}`); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// Without a sink an end is one log line, and is not told again.
func TestCompletionWithoutSink(t *testing.T) {
	i := serve(t, setup{node: true})
	created := i.submit(t, submission("one")).accepted(t)
	i.untilSucceeded(t, created)
	for range 2 {
		i.event(t, "dev.knative.sources.ping", `{}`)
	}
	if got := strings.Count(strings.Join(i.log.all(), "\n"), created.DriverPodUID+".succeeded"); got != 1 {
		t.Errorf("%d lines tell of it:\n%s", got, strings.Join(i.log.all(), "\n"))
	}
	if got := i.api.Object(pods, "default", created.DriverPodName).GetLabels()["flint.dev/completion"]; got != "sent" {
		t.Errorf("label %q", got)
	}
}

// A sink at fault ends the start, and says which setting.
func TestSinkAtFault(t *testing.T) {
	i := serve(t, setup{stopped: true, settings: func(s *config.Settings) { s.SinkOverrides = "{" }})
	if err := i.f.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "K_CE_OVERRIDES") {
		t.Errorf("error %v", err)
	}
}
