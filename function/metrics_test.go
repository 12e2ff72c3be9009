package function_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
)

// scrape gives each sample of Flint's own by its name and labels, as they are written.
func (i *instance) scrape(t *testing.T) map[string]string {
	t.Helper()
	a := i.do(t, http.MethodGet, "/metrics", "")
	if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/plain") {
		t.Fatalf("HTTP %d, %s: %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	for _, want := range []string{"\ngo_goroutines ", "\nprocess_start_time_seconds "} {
		if !strings.Contains(a.body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	samples := map[string]string{}
	for line := range strings.SplitSeq(a.body, "\n") {
		if name, value, found := strings.Cut(line, " "); found && strings.HasPrefix(name, "flint_") {
			samples[name] = value
		}
	}
	return samples
}

func expect(t *testing.T, got map[string]string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %s", name, got[name], value)
		}
	}
	for name := range got {
		if _, wanted := want[name]; !wanted && strings.HasPrefix(name, "flint_launches_total") {
			t.Errorf("%s is %q, and not wanted", name, got[name])
		}
	}
}

func TestMetrics(t *testing.T) {
	i := serve(t, setup{})
	i.submit(t, submission("canary"))
	i.submit(t, submission("canary"))
	i.submit(t, submission("canary", "--driver-memory", "2g"))
	i.submit(t, submission("canary", "--canary"))
	i.do(t, http.MethodPost, "/", submission("canary"), binaryEvent("canary", api.SubmitEventType)...)
	i.do(t, http.MethodPost, "/", submission("canary"), binaryEvent("canary", "canary")...)
	i.do(t, http.MethodPost, "/", "[]", "Content-Type", "application/cloudevents-batch+json")
	i.event(t, pingType, "")
	i.event(t, "dev.knative.apiserver.ref.update", "[]")
	i.do(t, http.MethodPost, api.SubmitPath+"?dryRun=client", submission("canary"), "Content-Type", "application/json")
	got := i.scrape(t)
	expect(t, got, map[string]string{
		`flint_launches_total{code="CREATED",kind="spark"}`:                   "1",
		`flint_launches_total{code="DUPLICATE",kind="spark"}`:                 "2",
		`flint_launches_total{code="DRY_RUN",kind="spark"}`:                   "1",
		`flint_launches_total{code="DRIVER_POD_ALREADY_EXISTS",kind="spark"}`: "1",
		`flint_launches_total{code="INVALID_SPARK_SUBMIT_ARGS",kind="spark"}`: "1",
		`flint_launches_total{code="UNSUPPORTED_MEDIA_TYPE",kind="unread"}`:   "2",
		`flint_launch_seconds_count{kind="spark"}`:                            "3",
		`flint_launches_in_flight`:                                            "0",
		`flint_pending_launches`:                                              "1",
		`flint_poll_seconds_count`:                                            "1",
		`flint_poll_listed_objects`:                                           "1",
	})
	for name := range got {
		if strings.Contains(name, "canary") {
			t.Errorf("text of a user's in %s", name)
		}
	}
	// Another instance has a registry of its own.
	if other := serve(t, setup{cluster: i.api}).scrape(t); other["flint_poll_seconds_count"] != "0" {
		t.Errorf("another instance: %v", other)
	}
}

func TestMetricsOfCompletions(t *testing.T) {
	answers := []int{http.StatusServiceUnavailable, http.StatusAccepted}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answers[0]) // one delivery at a time: there is one driver
		answers = answers[1:]
	}))
	t.Cleanup(server.Close)
	i := serve(t, setup{node: true, settings: func(s *config.Settings) { s.Sink = server.URL }})
	created := i.submit(t, submission("one")).accepted(t)
	within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := i.api.Until(within, func() bool {
		status, _ := i.api.Object(pods, "default", created.DriverPodName).Object["status"].(map[string]any)
		return status["phase"] == "Succeeded"
	}); err != nil {
		t.Fatal(err)
	}
	if a := i.event(t, pingType, ""); a.status != http.StatusAccepted {
		t.Fatalf("HTTP %d: %s", a.status, a.body)
	}
	expect(t, i.scrape(t), map[string]string{
		`flint_launches_total{code="CREATED",kind="spark"}`:                            "1",
		`flint_completions_total{kind="spark",outcome="succeeded",reason="Completed"}`: "1",
		fmt.Sprintf(`flint_delivery_attempts_total{code="%d"}`, http.StatusAccepted):   "1",
		fmt.Sprintf(`flint_delivery_attempts_total{code="%d"}`, 503):                   "1",
		`flint_pending_launches`:    "0",
		`flint_poll_listed_objects`: "1",
	})
}

func TestMetricsInFlight(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.MaxInFlight = 1 }})
	first := make(chan answer, 1)
	go func() { first <- i.submit(t, submission("first")) }()
	<-b.arrived
	i.submit(t, submission("second"))
	expect(t, i.scrape(t), map[string]string{
		`flint_launches_in_flight`:                                       "1",
		`flint_launches_total{code="SUBMITTER_OVERLOADED",kind="spark"}`: "1",
	})
	b.active.Store(false)
	close(b.release)
	<-first
	if got := i.scrape(t); got["flint_launches_in_flight"] != "0" {
		t.Errorf("in flight afterwards: %s", got["flint_launches_in_flight"])
	}
}

func TestMetricsBeforeStart(t *testing.T) {
	i := serve(t, setup{stopped: true})
	if a := i.do(t, http.MethodGet, "/metrics", ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}
