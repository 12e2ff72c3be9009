package runners_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// refusedElsewhere checks that a request of another shape, which no back-off refuses, is one of a key that was given up.
func (g *ground) refusedElsewhere(request *api.RunnerRequest) {
	g.Helper()
	request.ShutdownTimeoutMS = ptr.To[int64](1000)
	_, _, err := g.boot(request)
	g.refused(err, api.Gone)
}

// G4: a boot that failed gives up its flame_parent with its submission id: no later pod is told of that parent.
func TestG4BothKeysAreGivenUp(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(waits("InvalidImageName", "couldn't parse image name")))
	request := func(key string) *api.RunnerRequest {
		r := g.request(key)
		r.FlameParent = "g3QAAAAI"
		return r
	}
	_, _, err := g.boot(request("one"))
	g.refused(err, api.ImagePull)
	g.until("its end is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
	g.gone()
	for _, key := range []string{"one", "two", api.FlameKey("g3QAAAAI")} {
		g.refusedElsewhere(request(key))
	}
	g.gone()
}

// G4: a pod that somebody deletes by hand is an end like others: a request of its key that is late starts nothing.
func TestG4DeletedByHand(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var deleted atomic.Bool
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if pod.Spec.NodeName != "" && !deleted.Swap(true) {
			if err := g.cp.Client().CoreV1().Pods(g.namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	_, _, err := g.boot(g.request("one"))
	g.refused(err, api.RunnerGone)
	g.gone()
	_, _, err = g.boot(g.request("one"))
	g.refused(err, api.Gone)
}

// G4: nor does it when a runner that failed had no time to live.
func TestG4NoTimeToLive(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(ends(1, "Error")))
	request := g.request("one")
	request.TTLSecondsAfterFinished = ptr.To[int64](0)
	_, _, err := g.boot(request)
	g.refused(err, api.RunnerExited)
	g.until("its end is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
	if swept, err := g.runners.Sweep(g.context(), []string{g.namespace}); err != nil || swept.Finished != 1 {
		t.Fatalf("%+v, %v", swept, err)
	}
	g.gone()
	g.refusedElsewhere(request)
}

// G4: a DELETE that looks before the launch's pod is there, and makes its tombstone after the launch has made its mark, finds
// the pod when it looks again.
func TestG4DeleteBesideLaunch(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	g.front = &wire{}
	s := g.serve(nil)
	marked, answered, launched := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var released, looked atomic.Bool
	g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if name == "PATCH pods" && !released.Swap(true) {
			close(marked)
			<-answered
		}
		return send()
	})
	g.front.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		response, err := send()
		if name == "LIST pods" && strings.Contains(request.URL.Query().Get("labelSelector"), launch.ID(g.namespace, "one")) && !looked.Swap(true) {
			go func() {
				_, _, err := g.boot(g.request("one"))
				launched <- err
			}()
			<-marked
		}
		return response, err
	})
	status, body, _ := s.call(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil)
	close(answered)
	if err := <-launched; err == nil {
		t.Error("the launch came to a runner, after its DELETE")
	}
	if status != http.StatusAccepted {
		t.Errorf("HTTP %d: %s", status, body)
	}
	g.gone()
}

// Whoever gave a key up was killed before it came to the pod, whose container starts right then: it does not live on.
func TestGivenUpAndRuns(t *testing.T) {
	for name, finish := range map[string]func(*ground, *api.RunnerRequest){
		"a sweep ends it": func(g *ground, _ *api.RunnerRequest) {
			if swept, err := g.runners.Sweep(g.context(), []string{g.namespace}); err != nil || swept.Leases != 0 {
				g.Errorf("%+v, %v", swept, err)
			}
		},
		"a repeat ends it": func(g *ground, request *api.RunnerRequest) {
			_, _, err := g.boot(request)
			g.refused(err, api.Gone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t)
			var killed atomic.Bool
			g.node(func(pod *corev1.Pod) *corev1.PodStatus {
				if killed.Load() {
					return once(runs)(pod)
				}
				return nil
			})
			g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
				if killed.Load() {
					return nil, errors.New("killed")
				}
				response, err := send()
				if name == "PATCH leases key" {
					killed.Store(true)
				}
				return response, err
			})
			request := g.request("one")
			request.BootTimeoutMS = 1000
			_, _, err := g.boot(request)
			g.refused(err, api.BootTimeout)
			g.until("it runs", func() bool { return g.runnerPods()[0].Status.Phase == corev1.PodRunning })
			g.wire.disturb(nil)
			finish(g, request)
			g.until("its end is told", func() bool { g.pass(); return len(g.events.told(t)) == 1 })
			if told := g.events.told(t)[0]; told.Reason != api.ReasonDeadlineExceeded || !strings.Contains(told.Message, "BOOT_TIMEOUT at ") {
				t.Errorf("told %+v", told)
			}
			g.gone()
		})
	}
}

// A runner that runs by right is not ended for the tombstone of another key, nor for that of a key of its name.
func TestSweepLeavesOthers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	if _, _, err := g.boot(g.request("one")); err != nil {
		t.Fatal(err)
	}
	if err := g.runners.GiveUpKey(g.context(), g.namespace, launch.ID(g.namespace, "two"), api.Cancelled, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := g.runners.Sweep(g.context(), []string{g.namespace}); err != nil {
		t.Error(err)
	}
	if pods := g.runnerPods(); len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		t.Error("it was ended")
	}
}

// G5: an API server that hangs while a launch has the turn of its shape holds no answer up.
func TestG5TurnIsGivenBackInTime(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	g := newGround(t, withClock(clock))
	g.node(once(waits("InvalidImageName", "couldn't parse image name")))
	_, _, err := g.boot(g.request("one"))
	g.refused(err, api.ImagePull)
	clock.Step(time.Minute)
	var hangs atomic.Bool
	g.wire.disturb(func(name string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if name == "POST pods" || hangs.Load() {
			hangs.Store(true)
			<-request.Context().Done()
			return nil, request.Context().Err()
		}
		return send()
	})
	ctx, cancel := context.WithTimeout(g.context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, _, err = bootBy(ctx, g.runners, g.request("two"))
	g.refused(err, api.SubmitterOverloaded)
	if took := time.Since(began); took > 2500*time.Millisecond {
		t.Errorf("told after %v", took)
	}
}

// A repeat that does not know the secrets of its runner does not learn them from its log.
func TestRepeatWithOtherSecrets(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(ends(1, "Error")))
	g.wire.disturb(func(_ string, request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		if !strings.HasSuffix(request.URL.Path, "/log") { // no kubelet is there to ask
			return send()
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("cookie is sEcr3t-c00kie\n")), Request: request}, nil
	})
	_, _, err := g.boot(g.request("one"))
	g.refused(err, api.RunnerExited)
	request := g.request("one")
	request.SecretEnv = map[string]string{"RELEASE_COOKIE": "a guess"}
	_, _, err = g.boot(request)
	if _, details := g.refused(err, api.RunnerExited); details.LogTail != "cookie is [...]" {
		t.Errorf("log tail %q", details.LogTail)
	}
	if err := g.cp.Client().CoreV1().Secrets(g.namespace).Delete(g.context(), g.runnerPods()[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, _, err = g.boot(request)
	if _, details := g.refused(err, api.RunnerExited); details.LogTail != "" {
		t.Errorf("log tail %q", details.LogTail)
	}
}
