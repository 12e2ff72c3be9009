package completion_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/embedded"
)

type object = map[string]any

// ground is a cluster to prove on: the embedded one, or a real API server. Nothing runs on either: what a node or
// a controller would write, the test writes.
type ground struct {
	config    *rest.Config
	namespace func(tb testing.TB) string
	// tell is the setting TellDeleted, of launches and of Pollers.
	tell bool
}

// telling is the ground where what is launched is kept until its end was told.
func (g ground) telling() ground {
	g.tell = true
	return g
}

func embeddedGround(tb testing.TB) (ground, *embedded.Cluster) {
	tb.Helper()
	cluster, err := embedded.Start(embedded.Options{Idle: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cluster.Close)
	var made atomic.Int64
	return ground{config: cluster.Config(), namespace: func(tb testing.TB) string {
		tb.Helper()
		name := fmt.Sprintf("case-%d", made.Add(1))
		if err := cluster.AddNamespace(name); err != nil {
			tb.Fatal(err)
		}
		return name
	}}, cluster
}

func realGround(tb testing.TB) ground {
	tb.Helper()
	cp := controlplane.Shared(tb)
	return ground{config: cp.Config(), namespace: cp.NewNamespace}
}

// both runs the test on the embedded API and on a real one.
func both(t *testing.T, test func(t *testing.T, g ground)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		g, _ := embeddedGround(t)
		test(t, g)
	})
	t.Run("API server", func(t *testing.T) {
		t.Parallel()
		test(t, realGround(t))
	})
}

var (
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	jobs = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

func (g ground) objects(tb testing.TB, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	tb.Helper()
	cfg := rest.CopyConfig(g.config)
	cfg.QPS = -1
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c.Resource(gvr).Namespace(namespace)
}

func (g ground) get(tb testing.TB, gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	tb.Helper()
	o, err := g.objects(tb, gvr, namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// status writes a status, as a node or a controller does.
func (g ground) status(tb testing.TB, o *unstructured.Unstructured, status string) {
	tb.Helper()
	gvr := pods
	if o.GetKind() == "Job" {
		gvr = jobs
	}
	_, err := g.objects(tb, gvr, o.GetNamespace()).Patch(context.Background(), o.GetName(), types.MergePatchType,
		[]byte(`{"status":{`+status+`}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		tb.Fatal(err)
	}
}

func (g ground) client(tb testing.TB, wrap func(http.RoundTripper) http.RoundTripper) kube.Client {
	tb.Helper()
	cfg := rest.CopyConfig(g.config)
	cfg.QPS = -1
	if wrap != nil {
		cfg.Wrap(wrap)
	}
	c, err := kube.NewClient(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// draft is a launch without support: released from its first moment.
func draft(namespace, name string, kind launch.Kind) launch.Plan {
	container := object{"name": "spark-kubernetes-driver", "image": "i", "args": []any{"driver", "--properties-file", "f"}}
	spec := object{"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": []any{container}}
	w := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	if kind == launch.File {
		w.Object = object{"apiVersion": "batch/v1", "kind": "Job", "spec": object{"backoffLimit": int64(0), "template": object{"spec": spec}}}
	}
	w.SetName(name)
	if kind == launch.Spark {
		w.SetLabels(map[string]string{"spark-role": "driver", "spark-app-selector": "spark-0011"})
	}
	return launch.Plan{
		Kind: kind, Namespace: namespace, SubmissionID: "sub-" + name, Hash: "h", Workload: w,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
}

// launch brings the draft to the cluster, and gives the workload as it is then.
func (g ground) launch(tb testing.TB, d launch.Plan) *unstructured.Unstructured {
	tb.Helper()
	plan, err := launch.NewPlan(d)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	result, err := (&launch.Applier{Client: g.client(tb, nil), TellDeleted: g.tell}).Apply(ctx, plan)
	if err != nil {
		tb.Fatal(err)
	}
	gvr := pods
	if d.Kind == launch.File {
		gvr = jobs
	}
	return g.get(tb, gvr, d.Namespace, result.Workload.GetName())
}

// abandon leaves a launch as a process that is killed after its first write does.
func (g ground) abandon(tb testing.TB, namespace, name string, kind launch.Kind) *unstructured.Unstructured {
	tb.Helper()
	d := draft(namespace, name, kind)
	d.Support = []launch.Support{{Object: &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name + "-conf"}, "data": object{"a": "b"},
	}}}}
	plan, err := launch.NewPlan(d)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var calls atomic.Int64
	dying := g.client(tb, func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			if calls.Add(1) > 1 {
				return nil, errDead
			}
			return next.RoundTrip(r)
		})
	})
	if _, err := (&launch.Applier{Client: dying, TellDeleted: g.tell}).Apply(ctx, plan); err == nil {
		tb.Fatal("a launch that was killed succeeded")
	}
	gvr := pods
	if kind == launch.File {
		gvr = jobs
	}
	return g.get(tb, gvr, namespace, name)
}

// Statuses as a kubelet or the Job controller writes them.
const (
	jobComplete = `"startTime":"2026-03-01T10:00:00Z","completionTime":"2026-03-01T10:00:06Z","succeeded":1,"conditions":[
		{"type":"SuccessCriteriaMet","status":"True","reason":"CompletionsReached","lastTransitionTime":"2026-03-01T10:00:06Z"},
		{"type":"Complete","status":"True","reason":"CompletionsReached","lastTransitionTime":"2026-03-01T10:00:06Z"}]`
	jobDeadline = `"startTime":"2026-03-01T10:00:00Z","failed":1,"conditions":[
		{"type":"FailureTarget","status":"True","reason":"DeadlineExceeded","message":"Job was active longer than specified deadline","lastTransitionTime":"2026-03-01T10:00:06Z"},
		{"type":"Failed","status":"True","reason":"DeadlineExceeded","message":"Job was active longer than specified deadline","lastTransitionTime":"2026-03-01T10:00:06Z"}]`
)

func podEnded(phase, code, reason string) string {
	return `"phase":"` + phase + `",` + statuses(driverEnded(code, reason, "", "10:05:00"))
}

// trip is a RoundTripper.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errDead = errors.New("this process is dead")
	errSink = errors.New("the sink says no")
)

// refuse is an answer of an API server.
func refuse(r *http.Request, code int, reason string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"made up"}`, reason, code)
	return &http.Response{
		StatusCode: code, Status: reason, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// sink records what it gets. Its answer may be changed.
type sink struct {
	mu     sync.Mutex
	got    []event.Event
	acked  map[string]bool
	answer func(ctx context.Context, e event.Event) error // nil: acknowledge
	took   bool                                           // even what is not acknowledged was taken
}

func (s *sink) Send(ctx context.Context, e event.Event) error {
	s.mu.Lock()
	answer, took := s.answer, s.took
	if answer == nil || took {
		s.got = append(s.got, e)
	}
	s.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, e); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer != nil && !took {
		s.got = append(s.got, e)
	}
	if s.acked == nil {
		s.acked = map[string]bool{}
	}
	s.acked[e.ID()] = true
	return nil
}

func (s *sink) become(answer func(ctx context.Context, e event.Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// events are those it got, by id.
func (s *sink) events() map[string][]event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]event.Event{}
	for _, e := range s.got {
		all[e.ID()] = append(all[e.ID()], e)
	}
	return all
}

func (s *sink) ids() map[string]int {
	n := map[string]int{}
	for id, all := range s.events() {
		n[id] = len(all)
	}
	return n
}

func data(tb testing.TB, e event.Event) api.Completion {
	tb.Helper()
	var c api.Completion
	if err := json.Unmarshal(e.Data(), &c); err != nil {
		tb.Fatal(err)
	}
	if err := valid(e); err != nil {
		tb.Errorf("%s is not as its schema says: %v", e.ID(), err)
	}
	return c
}

// poller is a new process on the ground.
func (g ground) poller(tb testing.TB, s completion.Sender, namespaces ...string) (*completion.Poller, *clocktesting.FakeClock) {
	tb.Helper()
	clock := clocktesting.NewFakeClock(time.Now())
	return &completion.Poller{
		Client: g.client(tb, nil), Sender: s, Clock: clock, Source: source, Namespaces: namespaces,
		Settings: completion.Settings{TellDeleted: g.tell},
	}, clock
}

func pass(tb testing.TB, p *completion.Poller) completion.Stats {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stats, err := p.Pass(ctx)
	if err != nil {
		tb.Fatalf("the pass: %v", err)
	}
	return stats
}

func label(o *unstructured.Unstructured) string { return o.GetLabels()[launch.LabelCompletion] }

// drain reads the body, so that its connection can be used again.
func drain(response *http.Response, err error) {
	if err == nil {
		_, _ = io.Copy(&bytes.Buffer{}, response.Body)
		_ = response.Body.Close()
	}
}
