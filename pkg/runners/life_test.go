package runners_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/runners"
)

// A client that tries each second for ten minutes, with a new key each time, costs one pod a step of the back-off.
func TestL15_retry_storm_backoff(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	g.node(once(waits("InvalidImageName", "couldn't parse image name")))
	other, _ := g.instance(&wire{}, withClock(clock))
	var advice, failures []time.Duration
	began, last := clock.Now(), time.Duration(0)
	for second := range 600 {
		_, _, err := bootBy(g.context(), []*runners.Runners{g.runners, other}[second%2], g.request(fmt.Sprintf("key-%d", second)))
		known, ok := errors.AsType[*api.Error](err)
		switch {
		case !ok:
			t.Fatalf("after %d s: %v", second, err)
		case known.Code == api.ImagePull:
			failures = append(failures, clock.Since(began))
			last = 0
		case known.Code == api.Backoff && known.Retryable():
			if last == 0 {
				advice = append(advice, known.RetryAfter.Round(time.Second))
			} else if known.RetryAfter >= last {
				t.Errorf("after %d s: wait %v, and a second before %v", second, known.RetryAfter, last)
			}
			last = known.RetryAfter
		default:
			t.Fatalf("after %d s: %v", second, err)
		}
		clock.Step(time.Second)
	}
	if got := fmt.Sprint(failures); got != "[0s 30s 1m30s 3m30s 7m30s]" {
		t.Errorf("pods at %s", got)
	}
	if got := fmt.Sprint(advice); got != "[29s 59s 1m59s 3m59s 4m59s]" { // a second after each failure
		t.Errorf("Retry-After %s", got)
	}
	// Other shapes are not held up.
	request := g.request("other-shape")
	request.ShutdownTimeoutMS = ptr.To[int64](77_000)
	_, _, err := g.boot(request)
	g.refused(err, api.ImagePull)
}

// Of those that come when the time is over, one tries. Its success lets all come.
func TestBackoffOneTries(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	var good atomic.Bool
	hold := make(chan struct{})
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		switch {
		case pod.Spec.NodeName == "" || len(pod.Status.ContainerStatuses) > 0:
			return nil
		case !good.Load():
			return waits("InvalidImageName", "couldn't parse image name")(pod)
		}
		select {
		case <-hold:
			return runs(pod)
		default:
			return nil
		}
	})
	_, _, err := g.boot(g.request("zero"))
	g.refused(err, api.ImagePull)
	good.Store(true)
	clock.Step(31 * time.Second)
	var tries, refused atomic.Int32
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			answer, _, err := g.boot(g.request(fmt.Sprintf("key-%d", i)))
			switch known, ok := errors.AsType[*api.Error](err); {
			case err == nil && answer.State == api.RunnerRunning:
				tries.Add(1)
			case ok && known.Code == api.Backoff && known.RetryAfter > 0:
				if refused.Add(1) == 9 {
					close(hold) // the one that tries may run
				}
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if tries.Load() != 1 || refused.Load() != 9 {
		t.Errorf("%d tried, %d were refused", tries.Load(), refused.Load())
	}
	if l := g.leases(); len(l["backoff"]) != 0 {
		t.Errorf("leases %v", l)
	}
	if _, _, err := g.boot(g.request("last")); err != nil {
		t.Error(err)
	}
}

// Failures of boots that began together are one step. A try that came to nothing for another reason gives its turn back.
func TestBackoffSteps(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	fail := make(chan struct{})
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Spec.NodeName == "" {
			return nil
		}
		select {
		case <-fail:
			return waits("InvalidImageName", "couldn't parse image name")(pod)
		default:
			return waits("ContainerCreating", "")(pod)
		}
	})
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			_, _, err := g.boot(g.request(fmt.Sprintf("key-%d", i)))
			if known, ok := errors.AsType[*api.Error](err); !ok || known.Code != api.ImagePull {
				t.Error(err)
			}
		})
	}
	g.until("all are there", func() bool { return len(g.runnerPods()) == 5 })
	close(fail)
	all.Wait()
	_, _, err := g.boot(g.request("next"))
	if e, _ := g.refused(err, api.Backoff); e.RetryAfter != 30*time.Second || !strings.Contains(e.Message, "1 times in a row, the last with IMAGE_PULL") {
		t.Errorf("%v after %v", e, e.RetryAfter)
	}
	clock.Step(31 * time.Second)
	if err := g.runners.GiveUpKey(g.context(), g.namespace, launch.ID(g.namespace, "gone"), api.Cancelled, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err = g.boot(g.request("gone"))
	g.refused(err, api.Gone)
	_, _, err = g.boot(g.request("next"))
	g.refused(err, api.ImagePull)
}

func TestL16_parent_missing_terminating_uid_mismatch(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	request := g.request("one")
	request.Parent.Name = "nobody"
	_, _, err := g.boot(request)
	e, _ := g.refused(err, api.ParentNotFound)
	if e.Status() != http.StatusNotFound {
		t.Error(e.Status())
	}
	request = g.request("one")
	request.Parent.UID = "0815"
	_, _, err = g.boot(request)
	if e, _ = g.refused(err, api.ParentUIDMismatch); e.Status() != http.StatusConflict {
		t.Error(e.Status())
	}
	leaving := g.pod("leaving", func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/wait"} })
	if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(g.context(), leaving.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	request = g.request("one")
	request.Parent.Name = leaving.Name
	_, _, err = g.boot(request)
	if e, _ = g.refused(err, api.ParentTerminating); e.Status() != http.StatusConflict {
		t.Error(e.Status())
	}
	if len(g.runnerPods()) > 0 || len(g.leases()) > 0 {
		t.Error("something was created")
	}
}

// A parent that is asked about by somebody who may not have its runners is not told of.
func TestAllowIsAskedFirst(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for name, exists := range map[string]bool{g.parent.Name: true, "nobody": false} {
		request := g.request("one")
		request.Parent.Name = name
		_, err := g.runners.Launch(g.context(), request, "", func(_ context.Context, parent kube.Ref, found *unstructured.Unstructured) error {
			if parent.Name != name || (found != nil) != exists {
				t.Errorf("asked about %v, found %t", parent, found != nil)
			}
			return api.Errorf(api.ParentForbidden, "no")
		})
		g.refused(err, api.ParentForbidden)
	}
}

// Whose end is the runner's: the collector of Kubernetes acts on the owner references, the sweep on what has none.
func TestL17_parent_deleted(t *testing.T) {
	delete := func(g *ground) {
		g.Helper()
		if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(g.context(), g.parent.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			g.Fatal(err)
		}
	}
	owned := func(g *ground, owner string) *corev1.Pod {
		g.Helper()
		g.node(once(runs))
		request := g.request("one")
		request.Owner = owner
		if _, _, err := g.boot(request); err != nil {
			g.Fatal(err)
		}
		return &g.runnerPods()[0]
	}
	sweep := func(g *ground) runners.Swept {
		g.Helper()
		swept, err := g.runners.Sweep(g.context(), []string{g.namespace})
		if err != nil {
			g.Error(err)
		}
		return swept
	}
	t.Run("owner_parent", func(t *testing.T) {
		t.Parallel()
		g := newGround(t)
		pod := owned(g, api.OwnerParent)
		if o := metav1.GetControllerOf(pod); o == nil || o.UID != g.parent.UID || o.Kind != "Pod" || ptr.Deref(o.BlockOwnerDeletion, false) {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
		delete(g)
		if swept := sweep(g); swept != (runners.Swept{}) { // that is the collector's
			t.Errorf("swept %+v", swept)
		}
	})
	t.Run("owner_controller", func(t *testing.T) {
		t.Parallel()
		g := newGround(t)
		set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "app-7d4b9", UID: "11111111-2222-3333-4444-555555555555", Controller: ptr.To(true)}
		if _, err := g.cp.Client().CoreV1().Pods(g.namespace).Patch(g.context(), g.parent.Name, types.MergePatchType,
			[]byte(`{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"app-7d4b9","uid":"`+string(set.UID)+`","controller":true}]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		pod := owned(g, api.OwnerController)
		i := -1
		for n, o := range pod.OwnerReferences {
			if o.UID == set.UID {
				i = n
			}
		}
		// As its controller the set would count the pod among its own.
		if i < 0 || ptr.Deref(pod.OwnerReferences[i].Controller, false) || ptr.Deref(pod.OwnerReferences[i].BlockOwnerDeletion, false) {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
		delete(g)
		if swept := sweep(g); swept != (runners.Swept{}) || len(g.runnerPods()) != 1 {
			t.Errorf("swept %+v", swept)
		}
	})
	t.Run("owner_none", func(t *testing.T) {
		t.Parallel()
		clock := clocktesting.NewFakeClock(time.Now())
		g := newGround(t, withClock(clock))
		pod := owned(g, api.OwnerNone)
		if len(pod.OwnerReferences) > 0 {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
		sweep(g)
		clock.Step(time.Hour)
		if swept := sweep(g); swept.Orphans != 0 {
			t.Error("ended while its parent lived")
		}
		delete(g)
		g.pod(g.parent.Name, nil) // a new pod of that name is not its parent
		sweep(g)
		clock.Step(59 * time.Second)
		if swept := sweep(g); swept.Orphans != 0 || g.runnerPods()[0].DeletionTimestamp != nil {
			t.Error("ended before its grace")
		}
		// Another instance goes on with what the first one saw.
		clock.Step(2 * time.Second)
		other, _ := g.instance(&wire{}, withClock(clock))
		if swept, err := other.Sweep(g.context(), []string{g.namespace}); err != nil || swept.Orphans != 1 {
			t.Errorf("swept %+v, %v", swept, err)
		}
		g.until("its end is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
		if told := g.events.told(t)[0]; told.Reason != api.ReasonDeleted || !strings.Contains(told.Message, g.parent.Name+", is gone") {
			t.Errorf("told %+v", told)
		}
		g.gone()
	})
}

// Killed between the pod and its Secret there is a held pod and no Secret, and a pass takes it; the Secret is never
// there without its pod.
func TestL18_secret_orphan_sweep(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	g.node(once(runs))
	var dead atomic.Bool
	g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if dead.Load() {
			return nil, errors.New("killed")
		}
		response, err := send()
		if name == "POST pods" {
			dead.Store(true)
		}
		return response, err
	})
	_, _, err := g.boot(g.request("one"))
	g.refused(err, api.SubmitterOverloaded)
	if pods := g.runnerPods(); len(pods) != 1 || len(pods[0].Spec.SchedulingGates) == 0 || g.secrets() != 0 {
		t.Fatalf("%d pods, %d Secrets", len(pods), g.secrets())
	}
	g.wire.disturb(nil)
	clock.Step(launch.DefaultHoldLimit + 5*time.Second)
	g.until("a pass takes it", func() bool { g.pass(); return len(g.runnerPods()) == 0 })
	if told := g.events.told(t); len(told) != 1 || told[0].Outcome != api.Failed {
		t.Errorf("told %+v", told)
	}
}

func TestL19_secret_dies_with_runner(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	answer, _, err := g.boot(g.request("one"))
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := g.cp.Client().CoreV1().Secrets(g.namespace).List(g.context(), metav1.ListOptions{LabelSelector: launch.LabelID + "=" + answer.ID})
	if err != nil || len(secrets.Items) != 1 {
		t.Fatal(len(secrets.Items), err)
	}
	secret := secrets.Items[0]
	if owners := secret.OwnerReferences; len(owners) != 1 || string(owners[0].UID) != answer.UID || !ptr.Deref(secret.Immutable, false) {
		t.Errorf("owners %+v, immutable %v", owners, secret.Immutable)
	}
	if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(g.context(), answer.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.gone()
}

// As many as come at once, there are never more than the quota, and as many as that.
func TestL22_quota_per_parent(t *testing.T) {
	t.Parallel()
	limit := withSettings(func(s *runners.Settings) { s.MaxPerParent, s.MaxPerNamespace = 3, 4 })
	g := newGround(t, limit)
	instances := []*runners.Runners{g.runners}
	other, _ := g.instance(&wire{}, limit)
	instances = append(instances, other)
	g.node(once(runs))
	var good, refused atomic.Int32
	storm := func(prefix, parent string, n int) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				request := g.request(fmt.Sprintf("%s-%d", prefix, i))
				request.Parent.Name = parent
				_, _, err := bootBy(g.context(), instances[i%2], request)
				switch known, ok := errors.AsType[*api.Error](err); {
				case err == nil:
					good.Add(1)
				case ok && known.Code == api.TooManyRunners && known.RetryAfter > 0 && known.Status() == http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	storm("a", g.parent.Name, 12)
	if good.Load() != 3 || refused.Load() != 9 || len(g.runnerPods()) != 3 {
		t.Fatalf("%d of 3 passed, %d were refused, %d are there", good.Load(), refused.Load(), len(g.runnerPods()))
	}
	g.pod("second", nil)
	storm("b", "second", 5)
	if good.Load() != 4 || len(g.runnerPods()) != 4 {
		t.Errorf("%d of 4 in the namespace passed, %d are there", good.Load(), len(g.runnerPods()))
	}
	// One that has ended counts no more.
	pod := g.runnerPods()[0]
	pod.Status = *ends(0, "Completed")(&pod)
	if _, err := g.cp.Client().CoreV1().Pods(g.namespace).UpdateStatus(g.context(), &pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := g.request("c")
	request.Parent.Name = pod.Annotations[runner.AnnotationParent]
	if _, _, err := g.boot(request); err != nil {
		t.Error(err)
	}
}

func TestL23_finished_pod_event_then_ttl(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	g.node(once(ends(0, "Completed")))
	request := g.request("one")
	request.TTLSecondsAfterFinished = ptr.To[int64](120)
	answer, arrived, err := g.boot(request)
	if err != nil || !arrived || answer.State != api.RunnerSucceeded { // it ran, and that was waited for
		t.Fatalf("%+v, %t, %v", answer, arrived, err)
	}
	sweep := func() runners.Swept {
		swept, err := g.runners.Sweep(g.context(), []string{g.namespace})
		if err != nil {
			t.Error(err)
		}
		return swept
	}
	clock.Step(time.Hour)
	if swept := sweep(); swept.Finished != 0 {
		t.Error("taken before its event was sent")
	}
	clock.Step(-time.Hour)
	g.pass()
	g.pass()
	if told := g.events.told(t); len(told) != 1 || len(g.events.all) != 1 || told[0].Outcome != api.Succeeded || told[0].UID != answer.UID {
		t.Errorf("told %+v", told)
	}
	clock.Step(110 * time.Second)
	if swept := sweep(); swept.Finished != 0 {
		t.Error("taken before its time")
	}
	clock.Step(20 * time.Second)
	if swept := sweep(); swept.Finished != 1 {
		t.Errorf("swept %+v", swept)
	}
	g.gone()
}

func TestL24_evicted_node_lost_oom(t *testing.T) {
	for name, c := range map[string]struct {
		status func(*corev1.Pod) *corev1.PodStatus
		want   api.Reason
	}{
		"oom": {func(pod *corev1.Pod) *corev1.PodStatus { return ends(137, "OOMKilled")(pod) }, api.ReasonOOMKilled},
		"evicted": {func(*corev1.Pod) *corev1.PodStatus {
			return &corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."}
		}, api.ReasonEvicted},
		"node_lost": {func(pod *corev1.Pod) *corev1.PodStatus {
			s := ends(137, "Error")(pod)
			s.Conditions = append(s.Conditions, condition(corev1.DisruptionTarget, corev1.ConditionTrue, "DeletionByPodGC", "node is gone", time.Now().Add(-time.Second)))
			return s
		}, api.ReasonNodeLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			var over atomic.Bool
			g.node(func(pod *corev1.Pod) *corev1.PodStatus {
				switch {
				case pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed:
					return nil
				case over.Load():
					return c.status(pod)
				}
				return once(runs)(pod)
			})
			if _, _, err := g.boot(g.request("one")); err != nil {
				t.Fatal(err)
			}
			over.Store(true)
			g.until("it is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
			if told := g.events.told(t)[0]; told.Outcome != api.Failed || told.Reason != c.want {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// The caller hangs up, or the instance goes: the boot goes on, and whoever passes finishes it.
func TestL26_service_scaled_to_zero_during_boot(t *testing.T) {
	for name, c := range map[string]struct {
		makes func(*corev1.Pod) *corev1.PodStatus
		told  bool
	}{
		"it comes":       {runs, false},
		"it comes never": {waits("ErrImagePull", "not found"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			var after atomic.Bool
			g.node(func(pod *corev1.Pod) *corev1.PodStatus {
				if !after.Load() {
					return nil
				}
				return once(c.makes)(pod)
			})
			l, err := g.runners.Launch(g.context(), g.request("one"), "", everybody)
			if err != nil {
				t.Fatal(err)
			}
			ctx, hangUp := context.WithCancel(g.context())
			hangUp()
			answer, arrived, err := g.runners.Wait(ctx, l, api.WaitRunning)
			if err != nil || arrived || answer.UID == "" {
				t.Fatalf("%+v, %t, %v", answer, arrived, err)
			}
			after.Store(true)
			if c.told {
				g.until("a pass gives it up", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
				g.gone()
				return
			}
			g.until("it runs", func() bool { g.pass(); return g.runnerPods()[0].Status.Phase == corev1.PodRunning })
			g.pass()
			if len(g.events.told(t)) > 0 || g.runnerPods()[0].DeletionTimestamp != nil {
				t.Error("it was ended")
			}
		})
	}
}

func TestL28_grace_period_ge_shutdown_timeout(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for timeout, want := range map[int64]int64{30_000: 35, 0: 5, 1500: 7} {
		request := g.request("one")
		request.ShutdownTimeoutMS = &timeout
		planned, err := g.runners.Plan(g.context(), request, "", everybody)
		if err != nil {
			t.Fatal(err)
		}
		got, _, _ := unstructured.NestedInt64(planned.Plan.Workload.Object, "spec", "terminationGracePeriodSeconds")
		if got < want || got*1000 < timeout+5000 {
			t.Errorf("shut down within %d ms: grace %d s", timeout, got)
		}
	}
}

// Whatever happens to any one call of a boot that is given up: the pod goes, its end is told once, and its key starts nothing.
func TestEveryFaultOfGivingUp(t *testing.T) {
	faults := map[string]func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error){
		"fails": func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return nil, errors.New("connection refused")
		},
		"answer lost": func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if response, err := send(); err == nil {
				_ = response.Body.Close()
			}
			return nil, io.ErrUnexpectedEOF
		},
		"500": func(request *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			return status(request, http.StatusInternalServerError, "InternalError"), nil
		},
		"409": func(request *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			return status(request, http.StatusConflict, "Conflict"), nil
		},
	}
	calls := []string{"GET leases backoff", "POST leases backoff", "PATCH leases key", "GET pods", "PATCH pods", "DELETE pods"}
	for fault, do := range faults {
		for _, call := range calls {
			for _, killed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/killed %t", fault, call, killed), func(t *testing.T) {
					t.Parallel()
					g := newGround(t)
					g.node(once(waits("InvalidImageName", "couldn't parse image name")))
					l, err := g.runners.Launch(g.context(), g.request("one"), "", everybody)
					if err != nil {
						t.Fatal(err)
					}
					var hit, dead atomic.Bool
					g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
						switch {
						case dead.Load():
							return nil, errors.New("killed")
						case name == call && !hit.Swap(true):
							dead.Store(killed)
							return do(request, send)
						}
						return send()
					})
					// One that is killed waits no longer than its caller; one whose API server is away still has its verdict.
					_, _, err = g.runners.Wait(g.context(), l, api.WaitRunning)
					g.refused(err, api.ImagePull)
					if !hit.Load() {
						t.Fatalf("no call %s: %v", call, g.wire.sent)
					}
					g.wire.disturb(nil)
					g.until("it is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
					g.gone()
					if told := g.events.told(t); told[0].Reason != api.ReasonImagePull {
						t.Errorf("told %+v", told)
					}
					if len(g.leases()["tombstone"]) != 1 {
						t.Error("no tombstone")
					}
				})
			}
		}
	}
}

// Tombstones and back-offs go when they have expired, and marks never.
func TestSweepLeases(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Labels[launch.LabelID] == launch.ID(g.namespace, "good") {
			return once(runs)(pod)
		}
		return once(waits("InvalidImageName", "couldn't parse image name"))(pod)
	})
	if _, _, err := g.boot(g.request("good")); err != nil {
		t.Fatal(err)
	}
	bad := g.request("bad")
	bad.BootTimeoutMS = 600_000
	_, _, err := g.boot(bad)
	g.refused(err, api.ImagePull)
	g.until("its end is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 }) // a tombstone stays while its pod does
	longest := launch.ID(g.namespace, "longest")
	if err := g.runners.GiveUpKey(g.context(), g.namespace, longest, api.Cancelled, 15*time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		left  string
	}{
		{0, "1 marks, 2 tombstones, 1 back-offs"},
		{9*time.Minute + 50*time.Second, "1 marks, 2 tombstones, 1 back-offs"},
		{20 * time.Second, "1 marks, 1 tombstones, 1 back-offs"},
		{30 * time.Second, "1 marks, 1 tombstones, 0 back-offs"},
		{5 * time.Minute, "1 marks, 0 tombstones, 0 back-offs"},
	} {
		clock.Step(step.after)
		if _, err := g.runners.Sweep(g.context(), []string{g.namespace}); err != nil {
			t.Error(err)
		}
		g.until("the mark of what was given up is collected", func() bool { return len(g.leases()[""]) == 1 })
		l := g.leases()
		if got := fmt.Sprintf("%d marks, %d tombstones, %d back-offs", len(l[""]), len(l["tombstone"]), len(l["backoff"])); got != step.left {
			t.Errorf("after %v: %s, want %s", step.after, got, step.left)
		}
	}
}

// A Service that selects what the request calls the runner would send it requests, and a controller would adopt it.
func TestLabelsThatOthersSelect(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, ClusterIP: "None"}}
	if _, err := g.cp.Client().CoreV1().Services(g.namespace).Create(g.context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request := g.request("one")
	request.Labels = map[string]string{"app": "web"}
	_, err := g.runners.Plan(g.context(), request, "", everybody)
	known, ok := errors.AsType[*api.Error](err)
	if !ok || known.Field != "labels" || !strings.Contains(known.Message, "Service web") {
		t.Errorf("refused with %v", err)
	}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"node"}}}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "node"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		},
	}}
	if _, err := g.cp.Client().AppsV1().DaemonSets(g.namespace).Create(g.context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request.Labels = map[string]string{"tier": "node"}
	if _, err := g.runners.Plan(g.context(), request, "", everybody); err != nil { // it has a controller
		t.Error(err)
	}
	request.Owner = api.OwnerNone
	_, err = g.runners.Plan(g.context(), request, "", everybody)
	if known, ok := errors.AsType[*api.Error](err); !ok || known.Field != "labels" || !strings.Contains(known.Message, "DaemonSet agents") {
		t.Errorf("refused with %v", err)
	}
	request.Labels = map[string]string{"team": "a"}
	if _, err := g.runners.Plan(g.context(), request, "", everybody); err != nil {
		t.Error(err)
	}
	before := g.wire.count("LIST services")
	if _, err := g.runners.Plan(g.context(), g.request("two"), "", everybody); err != nil || g.wire.count("LIST services") != before {
		t.Errorf("without labels the Services were listed: %v", err)
	}
}

// A claim that one node has is refused where another pod has it.
func TestClaimInUse(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	claims := g.cp.Client().CoreV1().PersistentVolumeClaims(g.namespace)
	for name, mode := range map[string]corev1.PersistentVolumeAccessMode{"once": corev1.ReadWriteOncePod, "many": corev1.ReadWriteMany} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{mode}, StorageClassName: ptr.To("manual"),
		}}
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		if _, err := claims.Create(g.context(), claim, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		g.parent = g.pod("parent-"+name, func(pod *corev1.Pod) {
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		})
		request := g.request(name)
		request.Volumes = []string{"data"}
		_, err := g.runners.Plan(g.context(), request, "", everybody)
		known, ok := errors.AsType[*api.Error](err)
		if name == "many" && err != nil || name == "once" && (!ok || known.Code != api.ClaimUnusable || !strings.Contains(known.Message, "parent-once")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
