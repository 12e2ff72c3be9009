package function_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark/version"
	"flint.dev/flint/test/embedded"
)

var (
	pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	services   = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	policies   = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}
)

// instance is one function behind func-go's own routes, on an API of its own.
type instance struct {
	url string
	f   *function.Function
	api *embedded.Cluster
	log *lines
}

type setup struct {
	settings  func(*config.Settings)
	api       func(http.Handler) http.Handler
	transport func(http.RoundTripper) http.RoundTripper
	cluster   *embedded.Cluster
	stopped   bool // leave it without Start
	node      bool // let pods run, and end at once
}

func settings(t testing.TB) *config.Settings {
	t.Helper()
	v, err := version.Parse("4.2.0")
	if err != nil {
		t.Fatal(err)
	}
	return &config.Settings{
		SparkVersion: v, SparkUser: "spark", Namespaces: []string{"default"}, MaxInFlight: 64,
		LaunchTimeout: 10 * time.Second, BodyTimeout: 10 * time.Second, MaxBodyBytes: 4 << 20, MaxEventBytes: 1 << 20, BodyMemory: 32 << 20, KubeQPS: -1,
		EventSource: "/flint",
	}
}

func serve(t *testing.T, s setup) *instance {
	t.Helper()
	cluster := s.cluster
	if cluster == nil {
		var err error
		if cluster, err = embedded.Start(embedded.Options{Idle: !s.node, Middleware: s.api}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
	}
	chosen := settings(t)
	if s.settings != nil {
		s.settings(chosen)
	}
	cfg := rest.CopyConfig(cluster.Config())
	cfg.QPS = -1
	if s.transport != nil {
		cfg.Wrap(s.transport)
	}
	log := &lines{}
	f := function.New(function.WithSettings(chosen), function.WithCluster(cfg),
		function.WithLog(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if !s.stopped {
		if err := f.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	// func-go's own mux and timeouts, on a listener of the test.
	service := fhttp.New(f)
	server := httptest.NewUnstartedServer(service.Handler)
	server.Config.ReadTimeout, server.Config.WriteTimeout, server.Config.IdleTimeout = service.ReadTimeout, service.WriteTimeout, service.IdleTimeout
	server.Start()
	t.Cleanup(server.Close)
	return &instance{url: server.URL, f: f, api: cluster, log: log}
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) refusal(t *testing.T) api.ErrorBody {
	t.Helper()
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatalf("HTTP %d, no error body: %v\n%s", a.status, err, a.body)
	}
	if body.Message == "" || body.Timestamp == "" {
		t.Errorf("error body lacks message or timestamp: %s", a.body)
	}
	return body
}

func (a answer) accepted(t *testing.T) api.SubmitResponse {
	t.Helper()
	var body api.SubmitResponse
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.DriverPodUID == "" {
		t.Fatalf("HTTP %d, not accepted: %v\n%s", a.status, err, a.body)
	}
	return body
}

func (i *instance) do(t *testing.T, method, path, body string, header ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, i.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < len(header); n += 2 {
		request.Header.Set(header[n], header[n+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

func (i *instance) submit(t *testing.T, body string, header ...string) answer {
	t.Helper()
	return i.do(t, http.MethodPost, api.SubmitPath, body, append([]string{"Content-Type", "application/json"}, header...)...)
}

// submission is a request with the id and more arguments before the resource.
func submission(id string, more ...string) string {
	arguments := []string{
		"--master", "k8s://https://10.0.0.1:6443", "--deploy-mode", "cluster", "--name", "Spark Pi", "--class", "org.apache.spark.examples.SparkPi",
		"--conf", "spark.kubernetes.container.image=apache/spark:4.2.0",
	}
	arguments = append(append(arguments, more...), "local:///opt/spark/examples/jars/spark-examples.jar", "1000")
	body, err := json.Marshal(map[string]any{"submission_id": id, "spark_submit_args": arguments})
	if err != nil {
		panic(err)
	}
	return string(body)
}

func TestSubmitAndReplay(t *testing.T) {
	i := serve(t, setup{})
	first := i.submit(t, submission("one"), "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if first.status != http.StatusCreated {
		t.Fatalf("HTTP %d: %s", first.status, first.body)
	}
	created := first.accepted(t)
	if created.SubmissionID != "one" || created.AppName != "Spark Pi" || created.Namespace != "default" || created.DuplicateSubmission ||
		!strings.HasPrefix(created.SparkAppID, "spark-") || !strings.HasPrefix(created.DriverPodName, "spark-pi-") || created.SubmittedAt == "" {
		t.Errorf("answer %+v", created)
	}
	pod := i.api.Object(pods, "default", created.DriverPodName)
	if pod == nil || string(pod.GetUID()) != created.DriverPodUID || launch.Held(pod) {
		t.Fatalf("stored pod %v, answered uid %s", pod, created.DriverPodUID)
	}
	if got := pod.GetAnnotations()[launch.AnnotationTraceparent]; got != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
		t.Errorf("traceparent %q", got)
	}

	// A fresh submission reads nothing, and costs support + 2 writes.
	var calls []string
	for _, r := range i.api.Requests() {
		calls = append(calls, r.Method)
	}
	if len(calls) != 5 || calls[0] != http.MethodPost || calls[4] != http.MethodPatch || strings.Count(strings.Join(calls, " "), http.MethodPost) != 4 {
		t.Errorf("calls %v, want POST of the pod, 3 of its support, PATCH", calls)
	}

	again := i.submit(t, submission("one"))
	want := created
	want.DuplicateSubmission, want.Message = true, again.accepted(t).Message
	if diff := cmp.Diff(want, again.accepted(t)); again.status != http.StatusOK || diff != "" {
		t.Errorf("replay: HTTP %d (-first +replay)\n%s", again.status, diff)
	}
	if got := len(i.api.Objects(pods, services, configMaps, policies)); got != 4 {
		t.Errorf("%d objects, want 4", got)
	}
	if got := i.log.all(); len(got) != 3 { // ready, launch, launch
		t.Errorf("%d log lines:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// The operator draws the order of its --conf options anew for every attempt.
func TestReplayInAnotherOrderOfConf(t *testing.T) {
	i := serve(t, setup{})
	first := i.submit(t, submission("one", "--conf", "spark.a=1", "--conf", "spark.b=2")).accepted(t)
	again := i.submit(t, submission("one", "--conf", "spark.b=2", "--conf", "spark.a=1"))
	if again.status != http.StatusOK || again.accepted(t).DriverPodUID != first.DriverPodUID {
		t.Errorf("HTTP %d: %s", again.status, again.body)
	}
}

func TestConflicts(t *testing.T) {
	const name = "--conf=spark.kubernetes.driver.pod.name="
	i := serve(t, setup{})
	if a := i.submit(t, submission("one", name+"mine")); a.status != http.StatusCreated {
		t.Fatalf("HTTP %d: %s", a.status, a.body)
	}
	cases := map[string]struct{ body, message string }{
		"the name belongs to another submission":     {submission("two", name+"mine"), "submission_id one"},
		"the key was used with another content":      {submission("one", name+"mine", "--driver-memory", "2g"), "content"},
		"the key was used for another driver's name": {submission("one", name+"other"), "mine"},
	}
	for what, tc := range cases {
		t.Run(what, func(t *testing.T) {
			a := i.submit(t, tc.body)
			body := a.refusal(t)
			if a.status != http.StatusConflict || body.ErrorCode != api.DriverPodAlreadyExists || !strings.Contains(body.Message, tc.message) {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
			if got := i.api.Objects(pods); len(got) != 1 || got[0].GetName() != "mine" {
				t.Errorf("pods %v", got)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	i := serve(t, setup{})
	withTemplate := func(template string) string {
		return strings.TrimSuffix(submission("s"), "}") + `,"driver_pod_template":` + template + `}`
	}
	cases := map[string]struct {
		method, path, body, media string
		status                    int
		code                      api.Code
		field, message            string
	}{
		"GET":                        {method: "GET", status: 405, code: api.MethodNotAllowed, message: "only POST"},
		"DELETE":                     {method: "DELETE", status: 405, code: api.MethodNotAllowed, message: "only POST"},
		"no media type":              {media: "-", body: submission("s"), status: 415, code: api.UnsupportedMediaType, message: "application/json"},
		"another media type":         {media: "text/plain", body: submission("s"), status: 415, code: api.UnsupportedMediaType, message: "text/plain"},
		"bad JSON":                   {body: "{", status: 400, code: api.BadRequest, message: "malformed JSON"},
		"no submission id":           {body: `{"spark_submit_args":["x"]}`, status: 400, code: api.BadRequest, field: "submission_id", message: "required"},
		"unknown option":             {body: submission("s", "--foo", "1"), status: 400, code: api.InvalidSparkSubmitArgs, field: "spark_submit_args", message: "--foo"},
		"bad memory":                 {body: submission("s", "--driver-memory", "1.5g"), status: 400, code: api.InvalidSparkSubmitArgs, field: "spark_submit_args", message: `"1.5g"`},
		"client mode":                {body: strings.Replace(submission("s"), `"cluster"`, `"client"`, 1), status: 400, code: api.InvalidSparkSubmitArgs, message: "client"},
		"another namespace":          {body: submission("s", "--conf", "spark.kubernetes.namespace=kube-system"), status: 403, code: api.Forbidden, message: "kube-system"},
		"template, no container":     {body: withTemplate(`{"spec":{"containers":[{"name":"x"}]}}`), status: 422, code: api.InvalidPodTemplate, field: "driver_pod_template.spec.containers", message: "spark-kubernetes-driver"},
		"template, no spec":          {body: withTemplate(`{"metadata":{}}`), status: 422, code: api.InvalidPodTemplate, field: "driver_pod_template.spec", message: "spec"},
		"unknown Spark version":      {body: strings.TrimSuffix(submission("s"), "}") + `,"spark_version":"1.6.0"}`, status: 400, code: api.BadRequest, field: "spark_version", message: "1.6.0"},
		"an empty dry run":           {path: api.SubmitPath + "?dryRun=", body: submission("s"), status: 400, code: api.BadRequest, field: "dryRun", message: "must be All or client"},
		"two dry runs":               {path: api.SubmitPath + "?dryRun=All&dryRun=All", body: submission("s"), status: 400, code: api.BadRequest, field: "dryRun", message: "once"},
		"a misspelt dry run":         {path: api.SubmitPath + "?dryrun=All", body: submission("s"), status: 400, code: api.BadRequest, field: "query", message: `"dryrun"`},
		"a broken query":             {path: api.SubmitPath + "?dryRun=All;x=1", body: submission("s"), status: 400, code: api.BadRequest, message: "malformed query"},
		"a template of another kind": {body: withTemplate(`{"kind":"Deployment","spec":{"containers":[{"name":"spark-kubernetes-driver"}]}}`), status: 422, code: api.InvalidPodTemplate, field: "driver_pod_template.kind", message: "Deployment"},
		"gates that are no list":     {body: withTemplate(`{"spec":{"schedulingGates":"x","containers":[{"name":"spark-kubernetes-driver"}]}}`), status: 422, code: api.InvalidPodTemplate, field: "driver_pod_template.spec.schedulingGates", message: "list"},
		"a resource version":         {body: withTemplate(`{"metadata":{"resourceVersion":"5"},"spec":{"containers":[{"name":"spark-kubernetes-driver"}]}}`), status: 422, code: api.InvalidPodTemplate, field: "driver_pod_template.metadata.resourceVersion", message: "resourceVersion"},
		"a name twice, executor":     {body: strings.TrimSuffix(submission("s"), "}") + `,"executor_pod_template":{"a":1,"a":2}}`, status: 400, code: api.BadRequest, message: "duplicate field"},
		"an id that is no text":      {body: `{"submission_id":"\ud800","spark_submit_args":["x"]}`, status: 400, code: api.BadRequest, field: "submission_id", message: "U+FFFD"},
		"a version with many zeros":  {body: strings.TrimSuffix(submission("s"), "}") + `,"spark_version":"4.2.` + strings.Repeat("0", 100) + `"}`, status: 400, code: api.BadRequest, field: "spark_version", message: "4.2.0"},
		"unknown dry run":            {path: api.SubmitPath + "?dryRun=yes", body: submission("s"), status: 400, code: api.BadRequest, field: "dryRun", message: `"yes"`},
		"unknown path":               {path: "/api/v2/spark-submit", body: submission("s"), status: 404, code: api.NotFound, message: api.SubmitPath},
		"JSON to the event path":     {path: "/", body: submission("s"), status: 415, code: api.UnsupportedMediaType, message: "CloudEvent"},
		"a GET on the event path":    {method: "GET", path: "/", status: 405, code: api.MethodNotAllowed, message: "only POST"},
		"a compressed body":          {media: "gzip", body: submission("s"), status: 415, code: api.UnsupportedMediaType, message: "Content-Encoding"},
		"Ce- headers, no version":    {media: "ce", body: submission("s"), status: 400, code: api.BadRequest, field: "specversion", message: "specversion"},
		"an NFC of a control text":   {body: submission("a\tb"), status: 400, code: api.BadRequest, field: "submission_id", message: "control"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			method, path := tc.method, tc.path
			if method == "" {
				method = http.MethodPost
			}
			if path == "" {
				path = api.SubmitPath
			}
			header := []string{"Content-Type", "application/json; charset=utf-8"}
			switch tc.media {
			case "":
			case "-":
				header = nil
			case "gzip":
				header = append(header, "Content-Encoding", "gzip")
			case "ce":
				header = append(header, "Ce-Id", "1")
			default:
				header = []string{"Content-Type", tc.media}
			}
			a := i.do(t, method, path, tc.body, header...)
			body := a.refusal(t)
			if a.status != tc.status || body.Status != tc.status || body.ErrorCode != tc.code || (tc.field != "" && body.Field != tc.field) || !strings.Contains(body.Message, tc.message) {
				t.Errorf("HTTP %d, want %d %s field %q message %q:\n%s", a.status, tc.status, tc.code, tc.field, tc.message, a.body)
			}
			if tc.status == http.StatusMethodNotAllowed && a.header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
	if got := i.api.Requests(); len(got) != 0 {
		t.Errorf("refusals cost calls to the API server: %v", got)
	}
}

func TestOptions(t *testing.T) {
	a := serve(t, setup{}).do(t, http.MethodOptions, api.SubmitPath, "")
	if a.status != http.StatusOK || a.header.Get("Allow") != "POST, OPTIONS" {
		t.Errorf("HTTP %d, Allow %q", a.status, a.header.Get("Allow"))
	}
}

func TestDryRuns(t *testing.T) {
	i := serve(t, setup{})
	for mode, calls := range map[string]int{"client": 0, "All": 4} {
		t.Run(mode, func(t *testing.T) {
			i.api.ResetRequests()
			a := i.do(t, http.MethodPost, api.SubmitPath+"?dryRun="+mode, submission("dry"), "Content-Type", "application/json")
			var list struct {
				Kind  string
				Items []struct{ Kind string }
			}
			if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK {
				t.Fatalf("HTTP %d: %v\n%s", a.status, err, a.body)
			}
			var kinds []string
			for _, item := range list.Items {
				kinds = append(kinds, item.Kind)
			}
			if diff := cmp.Diff([]string{"Pod", "Service", "NetworkPolicy", "ConfigMap"}, kinds); list.Kind != "List" || diff != "" {
				t.Errorf("kind %s (-want +got)\n%s", list.Kind, diff)
			}
			if got := len(i.api.Requests()); got != calls {
				t.Errorf("%d calls, want %d", got, calls)
			}
			if got := i.api.Objects(pods, services, configMaps, policies); len(got) != 0 {
				t.Errorf("stored %d objects", len(got))
			}
		})
	}
}

func TestBeforeStartAndAfterStop(t *testing.T) {
	i := serve(t, setup{stopped: true})
	ready := func() bool {
		ok, err := i.f.Ready(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	refused := func() {
		t.Helper()
		a := i.submit(t, submission("s"))
		if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") == "" {
			t.Errorf("HTTP %d: %s", a.status, a.body)
		}
	}
	if ready() || i.do(t, http.MethodGet, "/health/readiness", "").status != http.StatusServiceUnavailable {
		t.Error("ready before Start")
	}
	refused()
	if a := i.do(t, http.MethodGet, api.SubmitPath, ""); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET before Start: HTTP %d", a.status)
	}
	if err := i.f.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !ready() || i.do(t, http.MethodGet, "/health/readiness", "").status != http.StatusOK {
		t.Error("not ready after Start")
	}
	if err := i.f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ready() {
		t.Error("ready after Stop")
	}
	refused()
	if a := i.do(t, http.MethodGet, "/health/liveness", ""); a.status != http.StatusOK {
		t.Errorf("not alive after Stop: HTTP %d", a.status)
	}
	if got := i.api.Requests(); len(got) != 0 {
		t.Errorf("health and refusals cost calls to the API server: %v", got)
	}
}

// block lets a test hold the API server's calls, and say when it goes on.
type block struct {
	arrived chan struct{}
	release chan struct{}
	active  atomic.Bool
}

func newBlock() *block {
	b := &block{arrived: make(chan struct{}, 100), release: make(chan struct{})}
	b.active.Store(true)
	return b
}

func (b *block) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b.active.Load() {
			b.arrived <- struct{}{}
			select {
			case <-b.release:
			case <-r.Context().Done():
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func TestLimitOfLaunchesInFlight(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.MaxInFlight = 1 }})
	first := make(chan answer, 1)
	go func() { first <- i.submit(t, submission("first")) }()
	<-b.arrived
	a := i.submit(t, submission("second"))
	if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") != "1" {
		t.Errorf("HTTP %d, Retry-After %q: %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	b.active.Store(false)
	close(b.release)
	if a := <-first; a.status != http.StatusCreated {
		t.Errorf("first: HTTP %d: %s", a.status, a.body)
	}
	if a := i.submit(t, submission("second")); a.status != http.StatusCreated {
		t.Errorf("second, later: HTTP %d: %s", a.status, a.body)
	}
}

func TestStopWaitsForWhatIsInFlight(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap})
	first := make(chan answer, 1)
	go func() { first <- i.submit(t, submission("first")) }()
	<-b.arrived
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := i.f.Stop(ended); err == nil {
		t.Error("Stop returned with a launch in flight")
	}
	b.active.Store(false)
	close(b.release)
	if a := <-first; a.status != http.StatusCreated {
		t.Errorf("the launch in flight: HTTP %d: %s", a.status, a.body)
	}
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 2 { // the second finds nothing to do
		if err := i.f.Stop(within); err != nil {
			t.Error(err)
		}
	}
}

func TestHangingAPIServer(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.LaunchTimeout = 50 * time.Millisecond }})
	a := i.submit(t, submission("s"))
	if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	b.active.Store(false)
	if a := i.submit(t, submission("s")); a.status != http.StatusCreated {
		t.Errorf("after it recovered: HTTP %d: %s", a.status, a.body)
	}
}

// A caller that hangs up does not leave half a launch.
func TestCallerHangsUp(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap})
	ctx, hangUp := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url+api.SubmitPath, strings.NewReader(submission("s")))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-b.arrived
	hangUp()
	<-gone
	b.active.Store(false)
	close(b.release)
	within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = i.api.Until(within, func() bool {
		stored := i.api.Objects(pods)
		return len(stored) == 1 && !launch.Held(stored[0])
	})
	if err != nil {
		t.Errorf("the launch was not finished: %v", err)
	}
}

func TestAPIServerErrors(t *testing.T) {
	cases := map[string]struct {
		status     int
		retryAfter string
		want       string
	}{
		"429 with Retry-After": {http.StatusTooManyRequests, "7", "7"},
		"429 without":          {http.StatusTooManyRequests, "", "1"},
		"500":                  {http.StatusInternalServerError, "", "1"},
		"503":                  {http.StatusServiceUnavailable, "", "1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			i := serve(t, setup{api: func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					calls.Add(1)
					if tc.retryAfter != "" {
						w.Header().Set("Retry-After", tc.retryAfter)
					}
					w.WriteHeader(tc.status)
				})
			}})
			a := i.submit(t, submission("s"))
			if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") != tc.want {
				t.Errorf("HTTP %d, Retry-After %q, want 503 and %q: %s", a.status, a.header.Get("Retry-After"), tc.want, a.body)
			}
			if calls.Load() != 1 {
				t.Errorf("%d calls to an API server in trouble, want 1", calls.Load())
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	i := serve(t, setup{settings: func(s *config.Settings) { s.MaxBodyBytes = 2000 }})
	big := submission("s", "--conf", "spark.x="+strings.Repeat("x", 3000))
	for name, body := range map[string]io.Reader{
		"length told": strings.NewReader(big),
		"in chunks":   io.MultiReader(strings.NewReader(big)),
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.url+api.SubmitPath, body)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != http.StatusRequestEntityTooLarge || !bytes.Contains(text, []byte(api.PayloadTooLarge)) {
				t.Errorf("HTTP %d: %s", response.StatusCode, text)
			}
		})
	}
	if a := i.submit(t, submission("s")); a.status != http.StatusCreated {
		t.Errorf("a small body afterwards: HTTP %d: %s", a.status, a.body)
	}
}

// Clients that send slowly, stop, or hang up hold nothing but their own connection.
func TestSlowAndHalfOpenClients(t *testing.T) {
	i := serve(t, setup{settings: func(s *config.Settings) { s.BodyTimeout, s.MaxInFlight = 100*time.Millisecond, 1 }})
	address := strings.TrimPrefix(i.url, "http://")
	dial := func(text string) net.Conn {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(connection, text); err != nil {
			t.Fatal(err)
		}
		return connection
	}
	head := "POST " + api.SubmitPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	for range 20 {
		silent := dial(head)
		defer func() { _ = silent.Close() }()
		gone := dial(head)
		_ = gone.Close()
	}
	slow := dial(head)
	defer func() { _ = slow.Close() }()
	// With one slot and 21 bodies under way, a whole request is served at once.
	if a := i.submit(t, submission("s")); a.status != http.StatusCreated {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	text, err := io.ReadAll(slow)
	if err != nil || !bytes.Contains(text, []byte("503 Service Unavailable")) || !bytes.Contains(text, []byte("did not arrive within")) {
		t.Errorf("the silent client was told %q, %v", text, err)
	}
}

type panicking struct {
	http.RoundTripper
	method string
	nth    atomic.Int32
}

func (p *panicking) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == p.method && p.nth.Add(-1) == 0 {
		panic("canary of a panic")
	}
	return p.RoundTripper.RoundTrip(r)
}

// A panic answers its own request, wherever it is; the process and the next request live.
func TestPanics(t *testing.T) {
	cases := map[string]struct {
		method string
		nth    int32
	}{
		"while the pod is created":     {http.MethodPost, 1},
		"while its support is created": {http.MethodPost, 3},
		"while it is released":         {http.MethodPatch, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := &panicking{method: tc.method}
			p.nth.Store(tc.nth)
			i := serve(t, setup{transport: func(next http.RoundTripper) http.RoundTripper { p.RoundTripper = next; return p }})
			a := i.submit(t, submission("s"))
			if a.status != http.StatusInternalServerError || a.refusal(t).ErrorCode != api.InternalServerError || strings.Contains(a.body, "canary") {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
			if text := strings.Join(i.log.all(), "\n"); !strings.Contains(text, "canary of a panic") || !strings.Contains(text, "stack") {
				t.Errorf("log:\n%s", text)
			}
			if a := i.submit(t, submission("s")); a.status != http.StatusCreated && a.status != http.StatusOK {
				t.Errorf("afterwards: HTTP %d: %s", a.status, a.body)
			}
			if ok, _ := i.f.Ready(t.Context()); !ok {
				t.Error("not ready afterwards")
			}
		})
	}
}

// 20 replays at once, through two instances, give one driver.
func TestReplaysAtOnceThroughTwoInstances(t *testing.T) {
	one := serve(t, setup{})
	two := serve(t, setup{cluster: one.api})
	answers := make([]answer, 20)
	var wait sync.WaitGroup
	for n := range answers {
		wait.Go(func() { answers[n] = []*instance{one, two}[n%2].submit(t, submission("s")) })
	}
	wait.Wait()
	created, uids := 0, map[string]bool{}
	for _, a := range answers {
		if a.status == http.StatusCreated {
			created++
		}
		uids[a.accepted(t).DriverPodUID] = true
	}
	if created != 1 || len(uids) != 1 {
		t.Errorf("%d created, uids %v", created, uids)
	}
	if got := one.api.Objects(pods, services, configMaps, policies); len(got) != 4 {
		t.Errorf("%d objects, want 4", len(got))
	}
	if got := one.api.Stranded(); len(got) != 0 {
		t.Errorf("released without what they mount: %v", got)
	}
}

// Secrets in a request reach no log line.
func TestLogHoldsNoArguments(t *testing.T) {
	const canary = "canary-7f3a"
	i := serve(t, setup{})
	body := strings.TrimSuffix(submission("s",
		"--conf", "spark.hadoop.fs.s3a.secret.key="+canary,
		"--conf", "spark.kubernetes.driverEnv.PLAIN="+canary,
		"--conf", "spark.kubernetes.authenticate.driver.oauthToken="+canary,
		"--conf", "spark.kubernetes.driver.annotation.note="+canary,
	), "}") + `,"driver_pod_template":{"spec":{"containers":[{"name":"spark-kubernetes-driver","env":[{"name":"A","value":"` + canary + `"}]}]}}}`
	if a := i.submit(t, body); a.status != http.StatusCreated || strings.Contains(a.body, canary) {
		t.Fatalf("HTTP %d: %s", a.status, a.body)
	}
	refused := i.submit(t, submission("t", "--conf", "spark.kubernetes.driver.memoryOverheadFactor.token=x", "--conf", "spark.ui.port="+"x",
		"--conf", "spark.kubernetes.driverEnv.PLAIN="+canary))
	if refused.status != http.StatusBadRequest || strings.Contains(refused.body, canary) {
		t.Errorf("HTTP %d: %s", refused.status, refused.body)
	}
	for name, body := range map[string]string{
		"the namespace": submission("u", "--conf", "spark.my.password="+canary, "--conf", "spark.kubernetes.namespace=${spark.my.password}"),
		"a dependency":  submission("v", "--conf", "spark.my.password="+canary, "--conf", "spark.jars=${spark.my.password}"),
		"a resource":    strings.Replace(submission("w"), "local:///opt/spark/examples/jars/spark-examples.jar", "file://AKIA:ab/"+canary+"@b/x.jar?tok="+canary+"\\nz", 1),
		"a master":      strings.Replace(submission("x"), "k8s://https://10.0.0.1:6443", "yarn?token="+canary, 1),
	} {
		if a := i.submit(t, body); a.status < 400 || strings.Contains(a.body, canary) {
			t.Errorf("%s: HTTP %d: %s", name, a.status, a.body)
		}
	}
	for name, body := range map[string]string{
		"an attribute": `{"specversion":"1.0","id":3,"source":"/t","type":"t","data":"` + canary + `"}`,
		"an object":    `{"specversion":"1.0","id":"3","source":"/t","type":"t","password":{"x":"` + canary + `"}}`,
	} {
		a := i.do(t, http.MethodPost, "/", body, "Content-Type", "application/cloudevents+json")
		if a.status != http.StatusBadRequest || strings.Contains(a.body, canary) {
			t.Errorf("%s: HTTP %d: %s", name, a.status, a.body)
		}
	}
	if text := strings.Join(i.log.all(), "\n"); strings.Contains(text, canary) {
		t.Errorf("the log has it:\n%s", text)
	}
}

func TestEvents(t *testing.T) {
	i := serve(t, setup{})
	binary := func(id, kind string) []string {
		return []string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", "/test", "Ce-Type", kind}
	}
	structured := func(data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"s1","source":"/test","type":%q,"datacontenttype":"application/json","data":%s}`, api.SubmitEventType, data)
	}
	withoutID := strings.Replace(submission(""), `"submission_id":"",`, "", 1)
	if withoutID == submission("") {
		withoutID = strings.Replace(submission(""), `"submission_id":""`, `"unused":""`, 1)
	}
	cases := []struct {
		name, body string
		header     []string
		status     int
		code       api.Code
	}{
		{"binary", submission("b"), binary("1", api.SubmitEventType), 202, ""},
		{"binary, again", submission("b"), binary("2", api.SubmitEventType), 202, ""},
		{"structured", structured(submission("c")), []string{"Content-Type", "application/cloudevents+json; charset=utf-8"}, 202, ""},
		{"keyed by source and id", withoutID, binary("3", api.SubmitEventType), 202, ""},
		{"the same event again", withoutID, binary("3", api.SubmitEventType), 202, ""},
		{"conflict is 422, since brokers retry 409", submission("b", "--driver-memory", "2g"), binary("4", api.SubmitEventType), 422, api.DriverPodAlreadyExists},
		{"batch", "[]", []string{"Content-Type", "application/cloudevents-batch+json"}, 415, api.UnsupportedMediaType},
		{"unknown type", submission("d"), binary("5", "com.example.other"), 415, api.UnsupportedMediaType},
		{"no id", submission("d"), binary("", api.SubmitEventType), 400, api.BadRequest},
		{"bad arguments", submission("d", "--foo"), binary("6", api.SubmitEventType), 400, api.InvalidSparkSubmitArgs},
		{"not JSON", "{", binary("7", api.SubmitEventType), 400, api.BadRequest},
		{"structured, not JSON", "{", []string{"Content-Type", "application/cloudevents+json"}, 400, api.BadRequest},
		{"data that is no JSON by its type", submission("d"), []string{"Content-Type", "application/xml", "Ce-Specversion", "1.0", "Ce-Id", "10", "Ce-Source", "/t", "Ce-Type", api.SubmitEventType}, 415, api.UnsupportedMediaType},
		{"compressed", submission("d"), append(binary("11", api.SubmitEventType), "Content-Encoding", "gzip"), 415, api.UnsupportedMediaType},
		{"a long message", submission("d", "--"+strings.Repeat("<", 5000)), binary("13", api.SubmitEventType), 400, api.InvalidSparkSubmitArgs},
		{"too large", strings.Repeat("x", 1<<20+1), binary("8", api.SubmitEventType), 413, api.PayloadTooLarge},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			a := i.do(t, http.MethodPost, "/", tc.body, tc.header...)
			switch {
			case a.status != tc.status:
				t.Errorf("HTTP %d, want %d: %s", a.status, tc.status, a.body)
			case tc.status == http.StatusAccepted && a.body != "":
				t.Errorf("a body that is no event makes a broker send again: %s", a.body)
			case tc.status != http.StatusAccepted && (a.refusal(t).ErrorCode != tc.code || a.refusal(t).Status != tc.status || len(a.body) > 700):
				t.Errorf("body %s", a.body)
			}
		})
	}
	if got := len(i.api.Objects(pods)); got != 3 {
		t.Errorf("%d drivers, want 3", got)
	}
}

func TestTemplateFieldsSurvive(t *testing.T) {
	i := serve(t, setup{})
	body := strings.TrimSuffix(submission("s"), "}") + `,"driver_pod_template":{"metadata":{"finalizers":["x/y"]},"spec":{"futureField":{"a":[1,2.5]},"containers":[{"name":"log","image":"l"},{"name":"spark-kubernetes-driver","futureToo":true}]}}}`
	created := i.submit(t, body).accepted(t)
	stored := i.api.Object(pods, "default", created.DriverPodName)
	spec, _ := stored.Object["spec"].(map[string]any)
	if diff := cmp.Diff(map[string]any{"a": []any{int64(1), 2.5}}, spec["futureField"]); diff != "" {
		t.Errorf("futureField (-want +got)\n%s", diff)
	}
	containers, _ := spec["containers"].([]any)
	if len(containers) != 2 {
		t.Fatalf("containers %v", containers)
	}
	driver, _ := containers[1].(map[string]any)
	if driver["name"] != "spark-kubernetes-driver" || driver["futureToo"] != true {
		t.Errorf("driver container %v", driver)
	}
	if got := stored.GetFinalizers(); len(got) != 1 {
		t.Errorf("finalizers %v", got)
	}
	if phase, _ := stored.Object["status"].(map[string]any); phase != nil && phase["phase"] == string(corev1.PodFailed) {
		t.Errorf("status %v", phase)
	}
}

func TestEventsHaveNoDryRun(t *testing.T) {
	i := serve(t, setup{})
	for _, query := range []string{"?dryRun=All", "?dryRun=client", "?x"} {
		a := i.do(t, http.MethodPost, "/"+query, submission("d"), "Content-Type", "application/json",
			"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/test", "Ce-Type", api.SubmitEventType)
		if a.status != http.StatusBadRequest || a.refusal(t).Field != "query" {
			t.Errorf("%s: HTTP %d: %s", query, a.status, a.body)
		}
	}
	if got := i.api.Objects(pods); len(got) != 0 {
		t.Errorf("a dry run created %v", got)
	}
}

// One idempotency key is one driver, in whatever form the key comes.
func TestEventKeys(t *testing.T) {
	data := strings.Replace(submission("x"), `"submission_id":"x"`, `"unused":"x"`, 1)
	structured := func(id, key string) (string, []string) {
		return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/test","type":%q,"idempotencykey":%s,"data":%s}`, id, api.SubmitEventType, key, data),
			[]string{"Content-Type", "application/cloudevents+json"}
	}
	i := serve(t, setup{})
	for n, key := range []string{"5", `"5"`, "5"} {
		body, header := structured(strconv.Itoa(n), key)
		if a := i.do(t, http.MethodPost, "/", body, header...); a.status != http.StatusAccepted {
			t.Errorf("key %s: HTTP %d: %s", key, a.status, a.body)
		}
	}
	a := i.do(t, http.MethodPost, "/", data, "Content-Type", "application/json",
		"Ce-Specversion", "1.0", "Ce-Id", "9", "Ce-Source", "/test", "Ce-Type", api.SubmitEventType, "Ce-Idempotencykey", "5")
	if a.status != http.StatusAccepted {
		t.Errorf("binary: HTTP %d: %s", a.status, a.body)
	}
	if got := i.api.Objects(pods); len(got) != 1 {
		t.Errorf("%d drivers, want 1", len(got))
	}
	body, header := structured("e", `""`)
	if a := i.do(t, http.MethodPost, "/", body, header...); a.status != http.StatusBadRequest {
		t.Errorf("an empty key: HTTP %d: %s", a.status, a.body)
	}
}

// Bodies take no more memory than they may, and give it back.
func TestBodyMemory(t *testing.T) {
	b := newBlock()
	i := serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.BodyMemory = 3000 }})
	big := submission("first", "--conf", "spark.x="+strings.Repeat("x", 2000))
	first := make(chan answer, 1)
	go func() { first <- i.submit(t, big) }()
	<-b.arrived
	a := i.submit(t, submission("second", "--conf", "spark.x="+strings.Repeat("x", 2000)))
	if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") == "" {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	b.active.Store(false)
	close(b.release)
	if a := <-first; a.status != http.StatusCreated {
		t.Errorf("first: HTTP %d: %s", a.status, a.body)
	}
	for range 3 {
		if a := i.submit(t, big); a.status != http.StatusOK {
			t.Errorf("afterwards: HTTP %d: %s", a.status, a.body)
		}
	}
}

// What a refusal repeats of its request is bounded, in the answer and in the log.
func TestRefusalsAreBounded(t *testing.T) {
	i := serve(t, setup{})
	huge := strings.Repeat("y", 1<<20)
	requests := map[string]answer{
		"an option":       i.submit(t, submission("s", "--"+huge)),
		"a key":           i.submit(t, submission("s", "--conf", "spark."+huge+".x=1", "--conf", "spark.driver.resource."+huge+"=1")),
		"a Spark version": i.submit(t, strings.TrimSuffix(submission("s"), "}")+`,"spark_version":"`+huge+`"}`),
		"a bad id":        i.submit(t, `{"submission_id":"`+strings.Repeat(`\u0007`, 100_000)+`","spark_submit_args":1}`),
		"a media type":    i.do(t, http.MethodPost, api.SubmitPath, "{}", "Content-Type", "text/"+strings.Repeat("y", 100_000)),
	}
	for name, a := range requests {
		if a.status < 400 || len(a.body) > 30_000 {
			t.Errorf("%s: HTTP %d with %d bytes", name, a.status, len(a.body))
		}
		a.refusal(t)
	}
	for _, line := range i.log.all() {
		if len(line) > 30_000 {
			t.Errorf("a log line of %d bytes: %.200s", len(line), line)
		}
	}
}

// A broken trace context is no reason to refuse, and nothing to store.
func TestBrokenTraceparent(t *testing.T) {
	i := serve(t, setup{})
	a := i.submit(t, submission("s"), "Traceparent", strings.Repeat("x", 10_000))
	pod := i.api.Object(pods, "default", a.accepted(t).DriverPodName)
	if _, stored := pod.GetAnnotations()[launch.AnnotationTraceparent]; a.status != http.StatusCreated || stored {
		t.Errorf("HTTP %d, annotations %v", a.status, pod.GetAnnotations())
	}
}
