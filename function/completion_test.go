package function_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
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

// hangingLook serves an instance for one launch at a time, whose lists of pods are noted and hang until release is closed.
func hangingLook(t *testing.T) (i *instance, listed chan struct{}, release chan struct{}) {
	t.Helper()
	listed, release = make(chan struct{}, 1000), make(chan struct{})
	return serve(t, setup{
		settings: func(s *config.Settings) { s.MaxInFlight = 1 },
		api: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") {
					listed <- struct{}{}
					<-release
				}
				next.ServeHTTP(w, r)
			})
		},
	}), listed, release
}

// ping sends a ping, tells when it was sent, and wants it accepted.
func (i *instance) ping(t *testing.T, sent func()) {
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }})
	request, err := http.NewRequestWithContext(trace, http.MethodPost, i.url, strings.NewReader("{}"))
	if err != nil {
		t.Error(err)
		return
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Id": "1", "Ce-Source": "/test", "Ce-Type": pingType} {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("a ping: HTTP %d", response.StatusCode)
	}
}

// Pings wait for one look together, and leave the slots of launches free.
func TestPingsAtOnce(t *testing.T) {
	const pings = 64
	i, listed, release := hangingLook(t)
	var sent, answered sync.WaitGroup
	sent.Add(pings)
	for range pings {
		answered.Go(func() { i.ping(t, sent.Done) })
	}
	sent.Wait()
	<-listed
	i.submit(t, submission("one")).accepted(t)
	close(release)
	answered.Wait()
	if n := len(listed) + 1; n > pings/4 {
		t.Errorf("%d looks for %d pings", n, pings)
	}
}

// Stop waits for a look that has begun.
func TestStopWaitsForLooks(t *testing.T) {
	i, listed, release := hangingLook(t)
	var answered sync.WaitGroup
	answered.Go(func() { i.ping(t, func() {}) })
	<-listed
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.f.Stop(ended); err == nil || !strings.Contains(err.Error(), "looks") {
		t.Errorf("Stop with a ping in flight: %v", err)
	}
	close(release)
	answered.Wait()
}

// What Flint may not read, it need not be asked to read again.
func TestLookWhereNothingMayBeRead(t *testing.T) {
	for status, want := range map[int]int{http.StatusForbidden: 403, http.StatusInternalServerError: 503} {
		i := serve(t, setup{
			settings: func(s *config.Settings) { s.Namespaces = []string{"*"} },
			api: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					refuse(w, status, map[int]string{403: "Forbidden", 500: "InternalError"}[status])
				})
			},
		})
		a := i.event(t, "dev.knative.apiserver.ref.update", `{"kind":"Pod","apiVersion":"v1","namespace":"other","name":"p"}`)
		if a.refusal(t); a.status != want || (a.header.Get("Retry-After") != "") != (want == 503) {
			t.Errorf("the API server's %d: HTTP %d: %s", status, a.status, a.body)
		}
	}
}

// An event has one key, in whatever mode it comes.
func TestEventKeysInBothModes(t *testing.T) {
	data := strings.Replace(submission("x"), `"submission_id":"x"`, `"unused":"x"`, 1)
	i := serve(t, setup{})
	launched := func(body string, header ...string) string {
		t.Helper()
		before := i.api.Objects(pods)
		if a := i.do(t, http.MethodPost, "/", body, header...); a.status != http.StatusAccepted {
			t.Fatalf("HTTP %d: %s", a.status, a.body)
		}
		for _, pod := range i.api.Objects(pods) {
			if !slices.ContainsFunc(before, func(o *unstructured.Unstructured) bool { return o.GetUID() == pod.GetUID() }) {
				return pod.GetAnnotations()[launch.AnnotationSubmissionID]
			}
		}
		return "" // one that was there
	}
	binary := func(source, id string, more ...string) []string {
		return append([]string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", source, "Ce-Type", api.SubmitEventType}, more...)
	}
	structured := func(source, id, more string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":%q,"type":%q%s,"data":%s}`, id, source, api.SubmitEventType, more, data)
	}
	const media = "application/cloudevents+json"
	if key := launched(data, binary("/a", "1", "Ce-Idempotencykey", "caf%C3%A9%205%25")...); key != "café 5%" {
		t.Errorf("key %q", key)
	}
	if key := launched(structured("/a", "2", `,"idempotencykey":"café 5%"`), "Content-Type", media); key != "" {
		t.Errorf("the structured form has another key, %q", key)
	}
	// A source is a URI, which is written in one way whatever the mode.
	if key := launched(data, binary("/caf%C3%A9", "%22one%22")...); key != api.EventKey("/caf%C3%A9", `"one"`) {
		t.Errorf("key %q", key)
	}
	if key := launched(structured("/café", `"one"`, ""), "Content-Type", media); key != "" {
		t.Errorf("the structured form has another key, %q", key)
	}
	// A null is no value (CloudEvents, JSON Event Format, 2.2): the extension is not there.
	if key := launched(structured("/a", "3", `,"idempotencykey":null`), "Content-Type", media); key != api.EventKey("/a", "3") {
		t.Errorf("key %q", key)
	}
	if key := launched(structured("/a", "3", ""), "Content-Type", media); key != "" {
		t.Errorf("without the null the key is another, %q", key)
	}
	if a := i.do(t, http.MethodPost, "/", data, binary("/a", "4", "Ce-Idempotencykey", "%C0%A0")...); a.status != http.StatusBadRequest || a.refusal(t).Field != "idempotencykey" {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// A launch in the place of an abandoned one has its end told.
func TestAbandonedIsTold(t *testing.T) {
	url, received := sink(t)
	cluster, err := embedded.Start(embedded.Options{Idle: true, Clock: clocktesting.NewFakeClock(time.Now().Add(-time.Hour))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	var killed atomic.Bool
	killed.Store(true)
	i := serve(t, setup{cluster: cluster, settings: func(s *config.Settings) { s.Sink = url }, transport: func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch && killed.Load() { // before the release
				return nil, errors.New("connection lost")
			}
			return next.RoundTrip(r)
		})
	}})
	const name = "--conf=spark.kubernetes.driver.pod.name=mine"
	i.submit(t, submission("one", name))
	abandoned := i.launch(t, "one")
	if abandoned.State != api.StateHeld {
		t.Fatalf("launch %+v", abandoned)
	}
	killed.Store(false)
	if a := i.submit(t, submission("two", name)); a.status != http.StatusCreated || a.accepted(t).DriverPodUID == abandoned.UID {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	told(t, received, abandoned)
}
