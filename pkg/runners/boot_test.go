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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runners"
)

func TestL01_create_wait_ip_and_running(t *testing.T) {
	for wait, want := range map[string]api.RunnerState{api.WaitIP: api.RunnerStarting, api.WaitRunning: api.RunnerRunning, api.WaitReady: api.RunnerReady} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.node(once(func(pod *corev1.Pod) *corev1.PodStatus {
				if wait == api.WaitIP {
					return waits("ContainerCreating", "")(pod)
				}
				status := runs(pod)
				status.ContainerStatuses[0].Ready = wait == api.WaitReady
				return status
			}))
			request := g.request("one")
			request.Wait = wait
			answer, arrived, err := g.boot(request)
			if err != nil || !arrived {
				t.Fatal(arrived, err)
			}
			pod := g.runnerPods()[0]
			if answer.State != want || answer.Name != pod.Name || answer.UID != string(pod.UID) || answer.ID != launch.ID(g.namespace, "one") ||
				answer.IP != "10.1.2.3" || len(answer.IPs) != 1 || answer.Node != "node-1" || answer.DuplicateSubmission || !answer.CreatedAt.Equal(pod.CreationTimestamp.Time) {
				t.Errorf("answer %+v", answer)
			}
			timings := answer.Timings
			if timings.ScheduledMS == nil || timings.IPMS == nil || (timings.RunningMS == nil) != (wait == api.WaitIP) {
				t.Errorf("timings %+v", timings)
			}
		})
	}
}

func TestL02_retry_same_key(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	// The answer to the release is lost: the caller cannot know whether there is a runner.
	g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		response, err := send()
		if name == "PATCH pods" && err == nil {
			_ = response.Body.Close()
			return nil, io.ErrUnexpectedEOF
		}
		return response, err
	})
	_, _, err := g.boot(g.request("one"))
	g.refused(err, api.SubmitterOverloaded)
	g.wire.disturb(nil)
	first, arrived, err := g.boot(g.request("one"))
	if err != nil || !arrived || !first.DuplicateSubmission {
		t.Fatal(first, arrived, err)
	}
	again, arrived, err := g.boot(g.request("one"))
	if err != nil || !arrived || !again.DuplicateSubmission || again.UID != first.UID {
		t.Errorf("%+v, %t, %v", again, arrived, err)
	}
	if n := len(g.runnerPods()); n != 1 || g.secrets() != 1 {
		t.Errorf("%d pods, %d Secrets", n, g.secrets())
	}
}

func TestL03_concurrent_same_key_x20(t *testing.T) {
	t.Parallel()
	g := newGround(t, withSettings(func(s *runners.Settings) { s.MaxPerParent = 1 }))
	other, _ := g.instance(&wire{}, withSettings(func(s *runners.Settings) { s.MaxPerParent = 1 }))
	g.node(once(runs))
	var created, duplicates atomic.Int32
	var uids sync.Map
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			answer, arrived, err := bootBy(g.context(), []*runners.Runners{g.runners, other}[i%2], g.request("one"))
			if err != nil || !arrived {
				t.Error(arrived, err)
				return
			}
			uids.Store(answer.UID, true)
			if answer.DuplicateSubmission {
				duplicates.Add(1)
			} else {
				created.Add(1)
			}
		})
	}
	all.Wait()
	different := 0
	uids.Range(func(any, any) bool { different++; return true })
	if created.Load() != 1 || duplicates.Load() != 19 || different != 1 || len(g.runnerPods()) != 1 || g.secrets() != 1 {
		t.Errorf("%d created, %d duplicates, %d uids; %d pods, %d Secrets are there", created.Load(), duplicates.Load(), different, len(g.runnerPods()), g.secrets())
	}
}

// The same key for another content is refused; for another parent too, whose runner would have another name.
func TestL04_same_key_other_body(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	if _, _, err := g.boot(g.request("one")); err != nil {
		t.Fatal(err)
	}
	other := g.request("one")
	other.FlameParent = "g2gD"
	_, _, err := g.boot(other)
	g.refused(err, api.IdempotencyConflict)
	g.pod("another", nil)
	other = g.request("one")
	other.Parent.Name = "another"
	_, _, err = g.boot(other)
	g.refused(err, api.IdempotencyConflict)
	if pods := g.runnerPods(); len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
		t.Errorf("%d pods", len(pods))
	}
}

func TestL05_name_taken_by_stranger(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	planned, err := g.runners.Plan(g.context(), g.request("one"), "", everybody)
	if err != nil {
		t.Fatal(err)
	}
	stranger := g.pod(planned.Plan.Workload.GetName(), nil)
	_, _, err = g.boot(g.request("one"))
	known, ok := errors.AsType[*api.Error](err)
	if !ok || known.Status() != http.StatusConflict || !strings.Contains(known.Message, "was not created by Flint") {
		t.Errorf("refused with %v", err)
	}
	now, err := g.cp.Client().CoreV1().Pods(g.namespace).Get(g.context(), stranger.Name, metav1.GetOptions{})
	if err != nil || now.ResourceVersion != stranger.ResourceVersion {
		t.Errorf("the stranger was touched: %v", err)
	}
}

// Each trouble is told as soon as its grace is over, long before the boot's time, and what was created goes with it.
func TestFailsFast(t *testing.T) {
	for name, c := range map[string]struct {
		script script
		code   api.Code
		says   string
		reason api.Reason
	}{
		"L06_image_pull_fast_fail": {
			once(waits("ErrImagePull", "manifest unknown")), api.ImagePull, "manifest unknown", api.ReasonImagePull,
		},
		"L06_invalid_image_name": {
			once(waits("InvalidImageName", "couldn't parse image name")), api.ImagePull, "registry.example/app:1", api.ReasonImagePull,
		},
		"L10_missing_configmap_key": {
			once(waits("CreateContainerConfigError", "couldn't find key FOO in ConfigMap ns/app")), api.ConfigError, "couldn't find key FOO", api.ReasonError,
		},
		"container_rejected": {
			once(waits("CreateContainerError", `error executing "x"`)), api.PodRejected, "CreateContainerError", api.ReasonError,
		},
		"L09_unschedulable_without_scale_up": {
			unschedulable, api.Unschedulable, "0/3 nodes are available", api.ReasonUnschedulable,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.node(c.script)
			began := time.Now()
			_, _, err := g.boot(g.request("one"))
			e, details := g.refused(err, c.code)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("told after %v", took)
			}
			if !strings.Contains(e.Message, c.says) || !strings.Contains(e.Message, details.Name) || details.UID == "" || !details.Deleted {
				t.Errorf("%v, %+v", e, details)
			}
			g.pass()
			g.gone()
			if told := g.events.told(t); len(told) != 1 || told[0].Outcome != api.Failed || told[0].Reason != c.reason || told[0].UID != details.UID || !strings.Contains(told[0].Message, c.says) {
				t.Errorf("told %+v", told)
			}
			if l := g.leases(); len(l["tombstone"]) != 1 || len(l["backoff"]) != 1 {
				t.Errorf("leases %v", l)
			}
			// And nothing of that key comes any more.
			_, _, err = g.boot(g.request("one"))
			g.refused(err, api.Backoff)
		})
	}
}

func unschedulable(pod *corev1.Pod) *corev1.PodStatus {
	for _, c := range pod.Status.Conditions {
		if c.Reason == corev1.PodReasonUnschedulable {
			return &pod.Status
		}
	}
	return &corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		condition(corev1.PodScheduled, corev1.ConditionFalse, corev1.PodReasonUnschedulable, "0/3 nodes are available", time.Now()),
	}}
}

// A registry that limits its rate will give the image later.
func TestL07_rate_limited_pull_waits(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var looks atomic.Int32
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		switch {
		case pod.Spec.NodeName == "":
			return nil
		case looks.Add(1) < 50: // half a second and more
			return waits("ErrImagePull", "toomanyrequests: You have reached your pull rate limit")(pod)
		}
		return runs(pod)
	})
	answer, arrived, err := g.boot(g.request("one"))
	if err != nil || !arrived || answer.State != api.RunnerRunning {
		t.Errorf("%+v, %t, %v", answer, arrived, err)
	}
}

// wait=ip was answered when the image turns out not to come: a poller ends it and tells.
func TestL08_ip_present_but_image_fails(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var broken atomic.Bool
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		switch {
		case pod.Spec.NodeName == "":
			return nil
		case broken.Load():
			return waits("ImagePullBackOff", "Back-off pulling image: ErrImagePull: not found")(pod)
		}
		return waits("ContainerCreating", "")(pod)
	})
	request := g.request("one")
	request.Wait = api.WaitIP
	answer, arrived, err := g.boot(request)
	if err != nil || !arrived || answer.State != api.RunnerStarting || answer.IP == "" {
		t.Fatalf("%+v, %t, %v", answer, arrived, err)
	}
	if g.pass(); len(g.events.told(t)) != 0 {
		t.Error("told before its time")
	}
	broken.Store(true)
	g.until("the poller tells", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
	if told := g.events.told(t)[0]; told.Kind != "runner" || told.UID != answer.UID || told.Outcome != api.Failed || told.Reason != api.ReasonImagePull || !strings.Contains(told.Message, "IMAGE_PULL") {
		t.Errorf("told %+v", told)
	}
	g.gone()
	if l := g.leases(); len(l["tombstone"]) != 1 || len(l["backoff"]) != 1 {
		t.Errorf("leases %v", l)
	}
}

// With a node on its way, a pod that no node takes yet has the other grace.
func TestL09_unschedulable_with_scale_up(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var mu sync.Mutex
	var told bool
	var since time.Time
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		mu.Lock()
		defer mu.Unlock()
		if !told {
			event := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{GenerateName: "scale-up-", Namespace: g.namespace},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: g.namespace, Name: pod.Name, UID: pod.UID},
				Reason:         "TriggeredScaleUp", Message: "pod triggered scale-up: [{pool 1->2 (max: 5)}]", LastTimestamp: metav1.Now(),
			}
			if _, err := g.cp.Client().CoreV1().Events(g.namespace).Create(context.Background(), event, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			told, since = true, time.Now()
		}
		switch {
		case time.Since(since) < 2*time.Second:
			return unschedulable(pod)
		case pod.Spec.NodeName == "":
			return nil // the node came
		}
		return runs(pod)
	})
	answer, arrived, err := g.boot(g.request("one"))
	if err != nil || !arrived || answer.State != api.RunnerRunning {
		t.Errorf("%+v, %t, %v", answer, arrived, err)
	}
	if g.wire.count("LIST events") == 0 {
		t.Error("the events were not asked for")
	}
}

func TestL11_exits_before_connect(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(ends(1, "Error")))
	log := "starting\n** (MatchError) no match of right hand side value: \"sEcr3t-c00kie\"\nRELEASE_COOKIE=sEcr3t-c00kie\n" + strings.Repeat("x", 3000) + "\nlast words"
	g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if !strings.HasSuffix(request.URL.Path, "/log") { // no kubelet is there to ask
			return send()
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(log)), Request: request}, nil
	})
	_, _, err := g.boot(g.request("one"))
	e, details := g.refused(err, api.RunnerExited)
	if details.ExitCode == nil || *details.ExitCode != 1 || details.Deleted || !strings.Contains(e.Message, "exit code 1") {
		t.Errorf("%v, %+v", e, details)
	}
	if len(details.LogTail) > 2<<10 || !strings.HasSuffix(details.LogTail, "last words") {
		t.Errorf("log tail of %d bytes: %q", len(details.LogTail), details.LogTail)
	}
	log = "cookie is sEcr3t-c00kie, in base64 c0VjcjN0LWMwMGtpZQ==\n"
	_, _, err = g.boot(g.request("one")) // a repeat tells the same
	if _, details = g.refused(err, api.RunnerExited); details.LogTail != "cookie is [...], in base64 [...]" {
		t.Errorf("log tail %q", details.LogTail)
	}
	// Its pod has its time to live, and its event.
	g.pass()
	if told := g.events.told(t); len(told) != 1 || told[0].Reason != api.ReasonError || *told[0].ExitCode != 1 {
		t.Errorf("told %+v", told)
	}
	if len(g.runnerPods()) != 1 {
		t.Error("the pod is gone")
	}
}

// What is deleted is the pod that took too long, and no other of that name.
func TestL12_boot_timeout_deletes_by_uid(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(waits("ContainerCreating", "")))
	request := g.request("one")
	request.BootTimeoutMS = 1000
	var swapped atomic.Bool
	var after types.UID
	g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if name == "PATCH leases key" { // the tombstone: from now on the pod is to go
			if pods := g.runnerPods(); len(pods) == 1 && !swapped.Swap(true) {
				grace := int64(0)
				if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(context.Background(), pods[0].Name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
					t.Error(err)
				}
				after = g.pod(pods[0].Name, nil).UID
			}
		}
		return send()
	})
	began := time.Now()
	_, _, err := g.boot(request)
	_, details := g.refused(err, api.BootTimeout)
	if took := time.Since(began); took > 3*time.Second { // G5
		t.Errorf("told after %v", took)
	}
	if !swapped.Load() || !details.Deleted {
		t.Fatalf("swapped %t, %+v", swapped.Load(), details)
	}
	pod, err := g.cp.Client().CoreV1().Pods(g.namespace).Get(g.context(), details.Name, metav1.GetOptions{})
	if err != nil || pod.UID != after || pod.DeletionTimestamp != nil || string(pod.UID) == details.UID {
		t.Errorf("the new pod: %v, %v", pod.UID, err)
	}
}

func TestBootTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		keep, ready bool
		script      script
		says        string
	}{
		"deletes":        {script: once(waits("ContainerCreating", "")), says: "starting: its container waits: ContainerCreating"},
		"never ready":    {ready: true, script: once(runs), says: "running"},
		"keeps":          {keep: true, script: once(waits("ContainerCreating", "")), says: "its pod is kept"},
		"no node at all": {script: func(pod *corev1.Pod) *corev1.PodStatus { return &pod.Status }, says: "pending"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.node(c.script)
			request := g.request("one")
			request.BootTimeoutMS = 1000
			if c.keep {
				request.OnBootTimeout = api.OnTimeoutKeep
			}
			if c.ready {
				request.Wait = api.WaitReady
			}
			began := time.Now()
			_, _, err := g.boot(request)
			e, details := g.refused(err, api.BootTimeout)
			if took := time.Since(began); took < time.Second || took > 3*time.Second {
				t.Errorf("told after %v", took)
			}
			if !strings.Contains(e.Message, c.says) || details.Deleted == c.keep {
				t.Errorf("%v, %+v", e, details)
			}
			if c.keep {
				g.pass()
				if pods := g.runnerPods(); len(pods) != 1 || pods[0].DeletionTimestamp != nil || len(g.events.told(t)) > 0 {
					t.Error("it was not kept")
				}
				return
			}
			g.pass()
			g.gone()
			if told := g.events.told(t); len(told) != 1 || told[0].Reason != api.ReasonDeadlineExceeded {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// A launch that is slow meets the tombstone of its key, which was given up meanwhile: no second life.
func TestL13_late_success_after_delete(t *testing.T) {
	for name, c := range map[string]struct {
		at       string // the call during which the key is given up
		withPods int    // pods that are there by then
	}{
		"before its pod":         {"POST pods", 0},
		"before its mark":        {"POST leases key", 1},
		"while it waits to look": {"GET leases backoff", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			g.node(once(runs))
			var done atomic.Bool
			g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
				if name == c.at && !done.Swap(true) {
					if n := len(g.runnerPods()); n != c.withPods {
						t.Errorf("%d pods at %s", n, name)
					}
					if err := g.runners.GiveUpKey(context.WithoutCancel(g.context()), g.namespace, launch.ID(g.namespace, "one"), api.Cancelled, 0); err != nil {
						t.Error(err)
					}
				}
				return send()
			})
			_, _, err := g.boot(g.request("one"))
			e, _ := g.refused(err, api.Gone)
			if !strings.Contains(e.Message, "CANCELLED at ") || !done.Load() {
				t.Errorf("refused with %v", e)
			}
			g.gone()
			_, _, err = g.boot(g.request("one"))
			g.refused(err, api.Gone)
			if _, _, err := g.boot(g.request("two")); err != nil { // another key is another runner
				t.Error(err)
			}
		})
	}
}

// An API server that is away for a moment, and pages that have expired, end no wait.
func TestL14_watch_410_and_apiserver_blip(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var lists atomic.Int32
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Spec.NodeName == "" || lists.Load() < 4 {
			return nil
		}
		return runs(pod)
	})
	g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if name != "LIST pods" {
			return send()
		}
		switch lists.Add(1) {
		case 1:
			return nil, errors.New("connection refused")
		case 2:
			return status(request, http.StatusGone, "Expired"), nil
		case 3:
			return status(request, http.StatusInternalServerError, "InternalError"), nil
		}
		return send()
	})
	answer, arrived, err := g.boot(g.request("one"))
	if err != nil || !arrived || answer.State != api.RunnerRunning {
		t.Errorf("%+v, %t, %v", answer, arrived, err)
	}
}

func status(request *http.Request, code int, reason string) *http.Response {
	body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: request,
	}
}

// Whoever deletes a runner while somebody waits for its boot ends the wait.
func TestDeletedWhileItBoots(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var mu sync.Mutex
	deleted := false
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		mu.Lock()
		defer mu.Unlock()
		if pod.Spec.NodeName != "" && !deleted {
			deleted = true
			if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	_, _, err := g.boot(g.request("one"))
	if _, details := g.refused(err, api.RunnerGone); !details.Deleted {
		t.Errorf("%+v", details)
	}
}

// The API server is away when a boot is to be given up: the caller is told so in time, and a pass does it.
func TestGiveUpLater(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(waits("ContainerCreating", "")))
	g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasPrefix(name, "PATCH leases") {
			return nil, errors.New("connection refused")
		}
		return send()
	})
	request := g.request("one")
	request.BootTimeoutMS = 1000
	_, _, err := g.boot(request)
	e, details := g.refused(err, api.BootTimeout)
	if details.Deleted || !strings.Contains(e.Message, "could not be given up now") {
		t.Errorf("%v, %+v", e, details)
	}
	g.wire.disturb(nil)
	g.until("a pass gives it up", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
	g.gone()
	if len(g.leases()["tombstone"]) != 1 {
		t.Error("no tombstone")
	}
}

// An API server that answers no list any more does not keep the caller beyond the boot's time (G5).
func TestBlindWaitEnds(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if name == "LIST pods" {
			<-request.Context().Done()
			return nil, request.Context().Err()
		}
		return send()
	})
	request := g.request("one")
	request.BootTimeoutMS = 1000
	began := time.Now()
	_, _, err := g.boot(request)
	_, details := g.refused(err, api.BootTimeout)
	if took := time.Since(began); took > 3*time.Second || !details.Deleted {
		t.Errorf("told after %v: %+v", took, details)
	}
	g.wire.disturb(nil)
	g.pass()
	g.gone()
}

// Two keys for one flame_parent would be two nodes of one parent: the second is refused.
func TestOneRunnerForAFlameParent(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	first, second := g.request("one"), g.request("two")
	first.FlameParent, second.FlameParent = "g3QAAAAI", "g3QAAAAI"
	if _, _, err := g.boot(first); err != nil {
		t.Fatal(err)
	}
	_, _, err := g.boot(second)
	g.refused(err, api.IdempotencyConflict)
	if len(g.runnerPods()) != 1 {
		t.Errorf("%d pods", len(g.runnerPods()))
	}
}

// A repeat waits for more than its runner has come to, long after its boot: it ends nothing.
func TestRepeatEndsNothingThatRuns(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	request := g.request("one")
	request.BootTimeoutMS = 1000
	if _, _, err := g.boot(request); err != nil {
		t.Fatal(err)
	}
	request.Wait = api.WaitReady
	for range 2 {
		answer, arrived, err := g.boot(request)
		if err != nil || arrived || answer.State != api.RunnerRunning {
			t.Errorf("%+v, %t, %v", answer, arrived, err)
		}
	}
	g.pass()
	if pods := g.runnerPods(); len(pods) != 1 || pods[0].DeletionTimestamp != nil || len(g.leases()["tombstone"]) > 0 {
		t.Error("it was ended")
	}
}

// A runner whose init container fails has ended, though its own container never ran.
func TestInitContainerFails(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodFailed {
			return nil
		}
		s := waits("PodInitializing", "")(pod)
		s.Phase = corev1.PodFailed
		s.InitContainerStatuses = []corev1.ContainerStatus{{Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 9, Reason: "Error"}}}}
		return s
	})
	_, _, err := g.boot(g.request("one"))
	if e, details := g.refused(err, api.RunnerExited); details.Deleted || !strings.Contains(e.Message, "it ended (") {
		t.Errorf("%v, %+v", e, details)
	}
}
