//go:build e2e && serving && linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"flint.dev/flint/pkg/api"
)

// coldPod is when something of a pod was first seen.
type coldPod struct{ created, addressed, ready time.Time }

// coldStarts takes the function to zero a dozen times, and asks it what the operator asks first. Without a retention, to have it there sooner.
func (s *serving) coldStarts(ctx context.Context, t *testing.T) {
	const starts = 12
	revision := s.deploy(ctx, t, map[string]string{"scale-to-zero-pod-retention-period": "0s"}, nil)
	pods, err := client.CoreV1().Pods(function).Watch(ctx, metav1.ListOptions{LabelSelector: "serving.knative.dev/revision=" + revision})
	if err != nil {
		t.Fatal(err)
	}
	defer pods.Stop()
	seen := &watched{pods: map[string]*coldPod{}}
	go seen.follow(pods)
	phases := []*phase{
		{name: "request to pod created: gateway, activator, autoscaler, Deployment"},
		{name: "to the function's process started: scheduler, kubelet, containerd, runc"},
		{name: "to queue-proxy's process started: the kubelet starts one container after the other"},
		{name: "to the pod's address in the API: the kubelet looks at its containers each second"},
		{name: "to the answer: endpoints, the activator's probe, the request"},
		{name: "together, from the request to the answer"},
		{name: "beside them: the function's process started to its being ready"},
		{name: "beside them: pod created to its condition Ready"},
	}
	for range starts {
		atZero(ctx, t)
		asked := time.Now()
		got, err := ask(ctx, http.MethodGet, api.SubmitPath, nil, nil)
		answered := time.Now()
		if err != nil || got.status != http.StatusMethodNotAllowed {
			t.Fatalf("HTTP %d, %v", got.status, err)
		}
		pod, at, err := seen.ready(ctx, asked)
		if err != nil {
			t.Fatal(err)
		}
		began, err := processes(pod)
		if err != nil || began["flint"].IsZero() || began["queue"].IsZero() {
			t.Fatalf("processes of %s: %v, %v", pod.Name, began, err)
		}
		ready, err := logged(ctx, pod, "flint is ready")
		if err != nil {
			t.Fatal(err)
		}
		for i, took := range []time.Duration{
			at.created.Sub(asked), began["flint"].Sub(at.created), began["queue"].Sub(began["flint"]), at.addressed.Sub(began["queue"]),
			answered.Sub(at.addressed), answered.Sub(asked), ready.Sub(began["flint"]), at.ready.Sub(at.created),
		} {
			phases[i].took = append(phases[i].took, took)
		}
	}
	t.Logf("SEEN %d cold starts, p50, and fastest to slowest:", starts)
	for _, p := range phases {
		slices.Sort(p.took)
		t.Logf("SEEN | %s | %.2fs | %.2fs to %.2fs |", p.name, p.took[len(p.took)/2].Seconds(), p.took[0].Seconds(), p.took[len(p.took)-1].Seconds())
	}
}

type phase struct {
	name string
	took []time.Duration
}

// watched are the pods of a watch.
type watched struct {
	mu   sync.Mutex
	pods map[string]*coldPod
	last *corev1.Pod
}

func (w *watched) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		now := time.Now()
		w.mu.Lock()
		at := w.pods[pod.Name]
		if at == nil {
			at = &coldPod{created: now}
			w.pods[pod.Name] = at
		}
		if at.addressed.IsZero() && pod.Status.PodIP != "" {
			at.addressed = now
		}
		if at.ready.IsZero() && Ready(pod) {
			at.ready = now
			w.last = pod
		}
		w.mu.Unlock()
	}
}

// ready waits for a pod that was created and is ready since then.
func (w *watched) ready(ctx context.Context, since time.Time) (pod *corev1.Pod, at coldPod, err error) {
	err = until(ctx, "the pod to be ready", func() (bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.last == nil || w.pods[w.last.Name].created.Before(since) {
			return false, errors.New("none is")
		}
		pod, at = w.last, *w.pods[w.last.Name]
		return true, nil
	})
	return pod, at, err
}

// processes is when the processes of a pod began, by their names. The kernel tells it in hundredths of a second.
func processes(pod *corev1.Pod) (map[string]time.Time, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return nil, err
	}
	boot := time.Now().Add(-time.Duration(since.Nano()))
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	began := map[string]time.Time{}
	for _, group := range groups {
		text, err := os.ReadFile(group)
		if err != nil || !strings.Contains(string(text), string(pod.UID)) {
			continue // it has ended, or is not of the pod
		}
		folder := filepath.Dir(group)
		name, err := os.ReadFile(filepath.Join(folder, "comm"))
		if err != nil {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			return nil, err
		}
		ticks, err := startTime(pid)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			return nil, err
		}
		began[strings.TrimPrefix(strings.TrimSpace(string(name)), "e2e-")] = boot.Add(time.Duration(n) * 10 * time.Millisecond)
	}
	return began, nil
}

// logged is when the function wrote a line with that text, as its container's runtime noted it.
func logged(ctx context.Context, pod *corev1.Pod, text string) (time.Time, error) {
	log, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "flint", Timestamps: true}).DoRaw(ctx)
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(log)) {
		if at, rest, _ := strings.Cut(line, " "); strings.Contains(rest, text) {
			return time.Parse(time.RFC3339Nano, at)
		}
	}
	return time.Time{}, fmt.Errorf("pod %s has written no line with %q: %s", pod.Name, text, log)
}
