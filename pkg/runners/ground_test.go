package runners_test

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
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runners"
	"flint.dev/flint/pkg/startup"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// ground is a namespace of a real API server with a parent in it, and one instance of Flint's runners there. What no controller
// and no node does here, the test does: see node.
type ground struct {
	*testing.T
	cp        *controlplane.ControlPlane
	namespace string
	wire      *wire
	front     *wire // of the function that serve starts; nil disturbs nothing
	client    kube.Client
	runners   *runners.Runners
	poller    *completion.Poller
	events    events
	parent    *corev1.Pod
}

// option changes an instance.
type option func(*runners.Runners)

func withClock(c clock.Clock) option { return func(r *runners.Runners) { r.Clock = c } }

func withSettings(change func(*runners.Settings)) option {
	return func(r *runners.Runners) { change(&r.Settings) }
}

func newGround(t *testing.T, options ...option) *ground {
	t.Helper()
	cp := controlplane.Shared(t)
	g := &ground{T: t, cp: cp, namespace: cp.NewNamespace(t)}
	g.parent = g.pod("app-7d4b9", nil)
	g.wire = &wire{}
	g.runners, g.client = g.instance(g.wire, options...)
	g.poller = &completion.Poller{
		Client: g.client, Sender: &g.events, Source: "/flint", Namespaces: []string{g.namespace}, Tend: g.runners.Tend, Clock: g.runners.Clock,
	}
	return g
}

// instance is another one, over a wire of its own.
func (g *ground) instance(w *wire, options ...option) (*runners.Runners, kube.Client) {
	g.Helper()
	cfg := g.cp.Config()
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	client, err := kube.NewClient(cfg)
	if err != nil {
		g.Fatal(err)
	}
	r := &runners.Runners{
		Client:   client,
		Follower: &follow.Follower{Client: client, Interval: 20 * time.Millisecond},
		Settings: runners.Settings{Graces: startup.Graces{ScaleUp: time.Minute}, OrphanGrace: time.Minute},
	}
	for _, o := range options {
		o(r)
	}
	applier := &launch.Applier{Client: client, Clock: r.Clock}
	r.Apply = applier.Apply
	return r, client
}

func (g *ground) context() context.Context {
	ctx, cancel := context.WithTimeout(g.Context(), time.Minute)
	g.Cleanup(cancel)
	return ctx
}

// pod creates a pod that could be a parent, and runs.
func (g *ground) pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	g.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", "pod-template-hash": "7d4b9"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "registry.example/app:1", Env: []corev1.EnvVar{{Name: "MIX_ENV", Value: "prod"}},
		}}},
	}
	if change != nil {
		change(pod)
	}
	pod, err := g.cp.Client().CoreV1().Pods(g.namespace).Create(g.context(), pod, metav1.CreateOptions{})
	if err != nil {
		g.Fatal(err)
	}
	return pod
}

func (g *ground) request(key string) *api.RunnerRequest {
	request := (&api.RunnerRequest{
		SubmissionID:  key,
		Parent:        api.RunnerParent{Namespace: g.namespace, Name: g.parent.Name},
		SecretEnv:     map[string]string{"RELEASE_COOKIE": "sEcr3t-c00kie"},
		Wait:          api.WaitRunning,
		BootTimeoutMS: 30_000,
	}).Complete()
	return &request
}

func everybody(context.Context, kube.Ref, *unstructured.Unstructured) error { return nil }

// boot launches and waits, as a request does.
func (g *ground) boot(request *api.RunnerRequest) (*api.Runner, bool, error) {
	return bootBy(g.context(), g.runners, request)
}

func bootBy(ctx context.Context, r *runners.Runners, request *api.RunnerRequest) (*api.Runner, bool, error) {
	l, err := r.Launch(ctx, request, "", everybody)
	if err != nil {
		return nil, false, err
	}
	return r.Wait(ctx, l, request.Wait)
}

// refused checks that an error has the code, and gives it with the pod that it names.
func (g *ground) refused(err error, code api.Code) (api.Error, api.RunnerDetails) {
	g.Helper()
	known, ok := errors.AsType[*api.Error](err)
	if !ok || known.Code != code {
		g.Fatalf("%v, want %s", err, code)
	}
	details, _ := known.Details.(api.RunnerDetails)
	return *known, details
}

// runnerPods are those there.
func (g *ground) runnerPods() []corev1.Pod {
	g.Helper()
	list, err := g.cp.Client().CoreV1().Pods(g.namespace).List(g.context(), metav1.ListOptions{LabelSelector: launch.LabelKind + "=runner"})
	if err != nil {
		g.Fatal(err)
	}
	return list.Items
}

func (g *ground) secrets() int {
	g.Helper()
	list, err := g.cp.Client().CoreV1().Secrets(g.namespace).List(g.context(), metav1.ListOptions{LabelSelector: launch.LabelKind + "=runner"})
	if err != nil {
		g.Fatal(err)
	}
	return len(list.Items)
}

// leases are the names of those there, by their label flint.dev/lease: "" for a mark.
func (g *ground) leases() map[string][]string {
	g.Helper()
	list, err := g.cp.Client().CoordinationV1().Leases(g.namespace).List(g.context(), metav1.ListOptions{})
	if err != nil {
		g.Fatal(err)
	}
	all := map[string][]string{}
	for _, l := range list.Items {
		all[l.Labels[runners.LabelLease]] = append(all[l.Labels[runners.LabelLease]], l.Name)
	}
	return all
}

// pass lets a poller look once.
func (g *ground) pass() completion.Stats {
	g.Helper()
	stats, err := g.poller.Pass(g.context())
	if err != nil {
		g.Error(err)
	}
	return stats
}

// gone waits until no runner's pod, Secret and mark is left: their collector needs a moment.
func (g *ground) gone() {
	g.Helper()
	g.until("nothing is left but tombstones and back-offs", func() bool {
		return len(g.runnerPods()) == 0 && g.secrets() == 0 && len(g.leases()[""]) == 0
	})
}

func (g *ground) until(what string, is func() bool) {
	g.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	ctx, cancel := context.WithTimeout(g.Context(), 30*time.Second)
	defer cancel()
	for !is() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			g.Fatalf("in vain: %s", what)
		}
	}
}

// script is what a node makes of a pod that it has: the new status, or nil for none.
type script func(pod *corev1.Pod) *corev1.PodStatus

// node is the scheduler, the kubelet and the garbage collector of the namespace until the test ends: released pods get a
// node, unless the script gives a status before; then the script's status; deleted ones end; what a pod that is gone owned goes.
func (g *ground) node(makes script) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := g.step(ctx, makes); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				g.Errorf("node: %v", err)
				return
			}
		}
	}()
	g.Cleanup(func() { cancel(); <-done })
}

func (g *ground) step(ctx context.Context, makes script) error {
	// What is owned is listed first: its owner was there then.
	secrets, err := g.cp.Client().CoreV1().Secrets(g.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	leases, err := g.cp.Client().CoordinationV1().Leases(g.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods := g.cp.Client().CoreV1().Pods(g.namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: launch.LabelKind + "=runner"})
	if err != nil {
		return err
	}
	alive := map[types.UID]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		alive[pod.UID] = true
		switch {
		case pod.DeletionTimestamp != nil && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) > 0:
			if err := pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID}}); err != nil {
				return err
			}
		case pod.DeletionTimestamp != nil, len(pod.Spec.SchedulingGates) > 0:
		default:
			status := makes(pod)
			if status != nil {
				if pod.Spec.NodeName == "" && status.Phase != corev1.PodPending {
					return fmt.Errorf("pod %s has no node", pod.Name)
				}
				pod.Status = *status
				if _, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
					return err
				}
			} else if pod.Spec.NodeName == "" {
				binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
				if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
		}
	}
	lost := func(owners []metav1.OwnerReference) bool {
		return len(owners) == 1 && owners[0].Kind == "Pod" && !alive[owners[0].UID]
	}
	for _, s := range secrets.Items {
		if lost(s.OwnerReferences) {
			if err := g.cp.Client().CoreV1().Secrets(g.namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
	}
	for _, l := range leases.Items {
		if lost(l.OwnerReferences) {
			options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion}}
			if err := g.cp.Client().CoordinationV1().Leases(g.namespace).Delete(ctx, l.Name, options); err != nil {
				return err
			}
		}
	}
	return nil
}

func condition(kind corev1.PodConditionType, status corev1.ConditionStatus, reason, message string, at time.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at)}
}

// addressed is a pod with an address whose container is as it is.
func addressed(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) *corev1.PodStatus {
	past := time.Now().Add(-time.Second)
	return &corev1.PodStatus{
		Phase: phase, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}}, StartTime: ptr.To(metav1.NewTime(past)),
		Conditions: []corev1.PodCondition{
			condition(corev1.PodScheduled, corev1.ConditionTrue, "", "", past),
			condition(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", "", past),
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Image: pod.Spec.Containers[0].Image, State: state}},
	}
}

// once gives the status as soon as the pod has a node and an other status.
func once(status func(pod *corev1.Pod) *corev1.PodStatus) script {
	return func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Spec.NodeName == "" || len(pod.Status.ContainerStatuses) > 0 {
			return nil
		}
		return status(pod)
	}
}

func runs(pod *corev1.Pod) *corev1.PodStatus {
	return addressed(pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}})
}

func waits(reason, message string) func(pod *corev1.Pod) *corev1.PodStatus {
	return func(pod *corev1.Pod) *corev1.PodStatus {
		return addressed(pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
}

func ends(code int32, reason string) func(pod *corev1.Pod) *corev1.PodStatus {
	phase := corev1.PodFailed
	if code == 0 {
		phase = corev1.PodSucceeded
	}
	return func(pod *corev1.Pod) *corev1.PodStatus {
		now := metav1.Now()
		return addressed(pod, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: now, FinishedAt: now}})
	}
}

// events receive completion events.
type events struct {
	mu  sync.Mutex
	all []event.Event
}

func (e *events) Send(_ context.Context, sent event.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, sent)
	return nil
}

// told are the completions that were sent, one for each id.
func (e *events) told(t *testing.T) []api.Completion {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []api.Completion
	ids := map[string]bool{}
	for _, sent := range e.all {
		if ids[sent.ID()] {
			continue
		}
		ids[sent.ID()] = true
		var c api.Completion
		if err := json.Unmarshal(sent.Data(), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// wire is the way to the API server, which a test may disturb.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	act  func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error)
	sent map[string]int
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	name := nameOf(request)
	w.mu.Lock()
	if w.sent == nil {
		w.sent = map[string]int{}
	}
	w.sent[name]++
	act := w.act
	w.mu.Unlock()
	send := func() (*http.Response, error) { return w.next.RoundTrip(request) }
	if act == nil {
		return send()
	}
	return act(name, request, send)
}

func (w *wire) disturb(act func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.act = act
}

// count is how many calls have a name that begins so.
func (w *wire) count(prefix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for name, times := range w.sent {
		if strings.HasPrefix(name, prefix) {
			n += times
		}
	}
	return n
}

// nameOf is the verb and the resource, and the kind of Lease: "PATCH leases key", "LIST pods".
func nameOf(request *http.Request) string {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	i := 0
	for i < len(parts) && parts[i] != "namespaces" {
		i++
	}
	if i+2 >= len(parts) {
		return request.Method + " " + request.URL.Path
	}
	verb, resource, name := request.Method, parts[i+2], strings.Join(parts[i+3:], "/")
	if verb == http.MethodGet && name == "" {
		verb = "LIST"
	}
	if verb == http.MethodPost {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			panic(err)
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		var object struct {
			Metadata struct{ Name string } `json:"metadata"`
		}
		_ = json.Unmarshal(body, &object)
		name = object.Metadata.Name
	}
	text := verb + " " + resource
	switch {
	case strings.HasPrefix(name, "flint-key-"):
		text += " key"
	case strings.HasPrefix(name, "flint-backoff-"):
		text += " backoff"
	}
	return text
}
