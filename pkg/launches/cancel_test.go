package launches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/embedded"
)

var errDead = errors.New("this process is dead")

// process is one life of a Flint that cancels: it ends at its nth call, to the API server or the sink. With lost, that
// call is done, and only its answer does not come.
type process struct {
	mu    sync.Mutex
	calls int
	dies  int // 0: never
	lost  bool
	api   http.RoundTripper
	sink  *ledger
}

func (p *process) call() (done, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	alive := p.dies == 0 || p.calls < p.dies
	return alive || p.calls == p.dies && p.lost, alive
}

func (p *process) RoundTrip(r *http.Request) (*http.Response, error) {
	done, answered := p.call()
	if !done {
		return nil, errDead
	}
	response, err := p.api.RoundTrip(r)
	if !answered && err == nil {
		_ = response.Body.Close()
		return nil, errDead
	}
	return response, err
}

func (p *process) Send(ctx context.Context, e event.Event) error {
	done, answered := p.call()
	if done {
		if err := p.sink.Send(ctx, e); err != nil {
			return err
		}
	}
	if !answered {
		return errDead
	}
	return nil
}

// ledger is a sink that keeps what it acknowledged.
type ledger struct {
	mu   sync.Mutex
	down bool
	told []string // outcome, reason and exit code
}

func (l *ledger) Send(_ context.Context, e event.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return errors.New("the sink is down")
	}
	var c api.Completion
	if err := json.Unmarshal(e.Data(), &c); err != nil {
		return err
	}
	text := c.Outcome + " " + string(c.Reason)
	if c.ExitCode != nil {
		text += fmt.Sprint(" ", *c.ExitCode)
	}
	l.told = append(l.told, text)
	return nil
}

// cluster is where the cancels are: the embedded API, or a real API server. Nothing runs on either.
type cluster struct {
	config    *rest.Config
	namespace func(tb testing.TB) string
}

func onBoth(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		e, err := embedded.Start(embedded.Options{Idle: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		var mu sync.Mutex
		made := 0
		test(t, cluster{e.Config(), func(tb testing.TB) string {
			tb.Helper()
			mu.Lock()
			defer mu.Unlock()
			made++
			name := fmt.Sprintf("case-%d", made)
			if err := e.AddNamespace(name); err != nil {
				tb.Fatal(err)
			}
			return name
		}})
	})
	t.Run("API server", func(t *testing.T) {
		t.Parallel()
		cp := controlplane.Shared(t)
		test(t, cluster{cp.Config(), cp.NewNamespace})
	})
}

func (c cluster) client(t *testing.T, p *process) kube.Client {
	t.Helper()
	cfg := rest.CopyConfig(c.config)
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	if p != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { p.api = next; return p })
	}
	client, err := kube.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var (
	podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	jobsResource = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

func (c cluster) objects(t *testing.T, namespace, kind string) dynamic.ResourceInterface {
	t.Helper()
	cfg := rest.CopyConfig(c.config)
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if kind == "Job" {
		return client.Resource(jobsResource).Namespace(namespace)
	}
	return client.Resource(podsResource).Namespace(namespace)
}

// launch launches a pod, on the node if one is named, or a Job.
func (c cluster) launch(t *testing.T, namespace, kind, node string) *unstructured.Unstructured {
	t.Helper()
	spec := map[string]any{
		"restartPolicy": "Never", "automountServiceAccountToken": false,
		"containers": []any{map[string]any{"name": "c", "image": "i"}},
	}
	if node != "" {
		spec["nodeName"] = node
	}
	of := launch.Runner
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
	if kind == "Job" {
		of = launch.File
		o.Object = map[string]any{"apiVersion": "batch/v1", "kind": "Job", "spec": map[string]any{"template": map[string]any{"spec": spec}}}
	}
	o.SetName("w")
	plan, err := launch.NewPlan(launch.Plan{Kind: of, Namespace: namespace, SubmissionID: "one", Hash: "1", Workload: o})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := (&launch.Applier{Client: c.client(t, nil)}).Apply(ctx, plan); err != nil {
		t.Fatal(err)
	}
	return c.found(t, namespace, kind)
}

// found is the workload, or nil.
func (c cluster) found(t *testing.T, namespace, kind string) *unstructured.Unstructured {
	t.Helper()
	list, err := c.objects(t, namespace, kind).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].GetName() == "w" {
			return &list.Items[i]
		}
	}
	return nil
}

func (c cluster) status(t *testing.T, namespace, kind, status string) {
	t.Helper()
	if _, err := c.objects(t, namespace, kind).Patch(t.Context(), "w", types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// agent makes the Job's pod, whose agent has told that and ended with 0.
func (c cluster) agent(t *testing.T, namespace, told string) {
	t.Helper()
	job := c.found(t, namespace, "Job")
	pods := c.objects(t, namespace, "Pod")
	pod, err := pods.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": "w-agent", "labels": map[string]any{"batch.kubernetes.io/controller-uid": string(job.GetUID())},
			"ownerReferences": []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": "w", "uid": string(job.GetUID()), "controller": true}},
		},
		"spec": map[string]any{"restartPolicy": "Never", "nodeName": "n1", "automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	message, _ := json.Marshal(protocol.Prefix + " " + string(pod.GetUID()) + " result " + told)
	if _, err := pods.Patch(t.Context(), "w-agent", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded","containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":0,"message":`+string(message)+`,"finishedAt":"2026-03-01T10:00:05Z"}}}]}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// ended is what a kubelet does with a deleted pod: it writes how the pod ended, and leaves it no more time.
func (c cluster) ended(t *testing.T, namespace, code string) {
	t.Helper()
	phase := map[string]string{"0": "Succeeded"}[code]
	if phase == "" {
		phase = "Failed"
	}
	c.status(t, namespace, "Pod", `{"phase":"`+phase+`","containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":`+code+`,"finishedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}`)
	if err := c.objects(t, namespace, "Pod").Delete(t.Context(), "w", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}

// cancel cancels as the function does: the deletion, then one look.
func (c cluster) cancel(t *testing.T, namespace string, p *process) (*Cancelled, error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	client := c.client(t, p)
	cancelled, err := (&Launches{Client: client}).Cancel(ctx, Name{Namespace: namespace, ID: launch.ID(namespace, "one")})
	if err == nil {
		_, _ = c.poller(client, p, namespace).One(ctx, cancelled.Ref, cancelled.Last)
	}
	return cancelled, err
}

func (c cluster) poller(client kube.Client, sender completion.Sender, namespace string) *completion.Poller {
	return &completion.Poller{
		Client: client, Sender: sender, Source: "/flint", Namespaces: []string{namespace}, Clock: clocktesting.NewFakeClock(time.Now()),
	}
}

// next is the next process, which looks at all.
func (c cluster) next(t *testing.T, namespace string, sink *ledger) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := c.poller(c.client(t, nil), sink, namespace).Pass(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestCancelKilledAtEveryCall: whatever a cancel had come to when its process was killed, the next one finds either a
// launch that lives as before, or what is left of it, and tells its end.
func TestCancelKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		kind, node string
		before     string // its status
		agent      string // what the agent of its pod has told
		after      string // how its container ends once it is deleted: the exit code
		told       string
		alive      string // what is told if it was not deleted
	}{
		"without a node":   {kind: "Pod", told: "failed Deleted"},
		"a Job":            {kind: "Job", told: "failed Deleted"},
		"runs":             {kind: "Pod", node: "n1", before: `{"phase":"Running"}`, after: "143", told: "failed Deleted 143"},
		"ends well amid":   {kind: "Pod", node: "n1", before: `{"phase":"Running"}`, after: "0", told: "succeeded Completed 0"},
		"ended before":     {kind: "Pod", node: "n1", before: `{"phase":"Succeeded"}`, told: "succeeded Completed", alive: "succeeded Completed"},
		"a Job that ended": {kind: "Job", before: jobEnded, agent: `{"op":"mkdir"}`, told: "succeeded Completed 0", alive: "succeeded Completed 0"},
		"a Job that ended, refused": {
			kind: "Job", before: jobEnded, agent: `{"op":"mkdir","code":"FILE_EXISTS"}`, told: "failed Error 0", alive: "failed Error 0",
		},
	}
	onBoth(t, func(t *testing.T, c cluster) {
		for name, tc := range cases {
			stage := func(t *testing.T) string {
				t.Helper()
				namespace := c.namespace(t)
				c.launch(t, namespace, tc.kind, tc.node)
				if tc.before != "" {
					c.status(t, namespace, tc.kind, tc.before)
				}
				if tc.agent != "" {
					c.agent(t, namespace, tc.agent)
				}
				return namespace
			}
			namespace, whole := stage(t), &process{sink: &ledger{}}
			if _, err := c.cancel(t, namespace, whole); err != nil {
				t.Fatal(err)
			}
			for dies := 1; dies <= whole.calls; dies++ {
				for _, lost := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/call %d of %d/lost %t", name, dies, whole.calls, lost), func(t *testing.T) {
						t.Parallel()
						namespace, sink := stage(t), &ledger{}
						_, _ = c.cancel(t, namespace, &process{sink: sink, dies: dies, lost: lost})
						left := c.found(t, namespace, tc.kind)
						deleted := left == nil || left.GetDeletionTimestamp() != nil
						if deleted && tc.after != "" {
							if len(sink.told) > 0 || left == nil {
								t.Fatalf("told %v before its end, left %v", sink.told, left)
							}
							c.ended(t, namespace, tc.after)
						}
						c.next(t, namespace, sink)
						left = c.found(t, namespace, tc.kind)
						want := tc.told
						if !deleted {
							want = tc.alive
							if left == nil || len(left.GetFinalizers()) > 0 || left.GetAnnotations()[completion.AnnotationOutcome] != "" {
								t.Errorf("it was not deleted, and is left as %v", left)
							}
						} else if left != nil {
							t.Errorf("it was told, and is left with finalizers %v", left.GetFinalizers())
						}
						told := slices.Compact(slices.Clone(sink.told))
						if len(sink.told) > 2 || want == "" && told != nil || want != "" && !slices.Equal(told, []string{want}) {
							t.Errorf("told %q, want %q, deleted %t", sink.told, want, deleted)
						}
					})
				}
			}
		}
	})
}

const jobEnded = `{"startTime":"2026-03-01T10:00:00Z","completionTime":"2026-03-01T10:00:06Z","succeeded":1,"conditions":[
	{"type":"SuccessCriteriaMet","status":"True","lastTransitionTime":"2026-03-01T10:00:06Z"},
	{"type":"Complete","status":"True","lastTransitionTime":"2026-03-01T10:00:06Z"}]}`

// TestCancelWhileTheSinkIsDown: a Job's pods end all the same, a repeat changes nothing, and what is kept is told and let
// go by the next process.
func TestCancelWhileTheSinkIsDown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c cluster) {
		namespace, sink := c.namespace(t), &ledger{down: true}
		job := c.launch(t, namespace, "Job", "")
		child := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{
			"restartPolicy": "Never", "automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}},
		}}}
		child.SetName("w-1")
		child.SetLabels(map[string]string{"batch.kubernetes.io/controller-uid": string(job.GetUID())})
		yes := true
		child.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "w", UID: job.GetUID(), Controller: &yes}})
		if _, err := c.objects(t, namespace, "Pod").Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := c.cancel(t, namespace, &process{sink: sink})
			if err != nil || got.Launch.State != api.StateFailed || got.Launch.Reason != api.ReasonDeleted || !got.Launch.Deleting {
				t.Fatalf("cancelled %+v, %v", got, err)
			}
			left := c.found(t, namespace, "Job")
			if left == nil || !slices.Contains(left.GetFinalizers(), completion.Finalizer) {
				t.Fatalf("left %v", left)
			}
		}
		if list, err := c.objects(t, namespace, "Pod").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("%d pods run on, %v", len(list.Items), err)
		}
		sink.down = false
		c.next(t, namespace, sink)
		if diff := cmp.Diff([]string{"failed Deleted"}, sink.told); diff != "" || c.found(t, namespace, "Job") != nil {
			t.Errorf("left %v, told (-want +got):\n%s", c.found(t, namespace, "Job"), diff)
		}
	})
}

// TestCancelOfWhatWasTold: nothing keeps it, and nothing is told again.
func TestCancelOfWhatWasTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, c cluster) {
		namespace, sink := c.namespace(t), &ledger{}
		c.launch(t, namespace, "Pod", "n1")
		c.status(t, namespace, "Pod", `{"phase":"Failed"}`)
		c.next(t, namespace, sink)
		if _, err := c.cancel(t, namespace, &process{sink: sink}); err != nil {
			t.Fatal(err)
		}
		if left := c.found(t, namespace, "Pod"); left != nil || len(sink.told) != 1 {
			t.Errorf("told %v, left %v", sink.told, left)
		}
	})
}
