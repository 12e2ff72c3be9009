//go:build e2e && linux

package cluster

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// What ends while no instance is up, by itself or deleted by others, is told by the next one, and nothing of it that was deleted is left.
func TestEndAtZero(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	type launched struct {
		submission, kind string
		pod              *corev1.Pod
		then             func() error // while no instance is up
		ended            func(pod *corev1.Pod) bool
		want             end
	}
	deletePod := func(name string, options metav1.DeleteOptions) error {
		return client.CoreV1().Pods(jobs).Delete(ctx, name, options)
	}
	lingers := func(pod *corev1.Pod) bool {
		return pod.DeletionTimestamp != nil && *pod.DeletionGracePeriodSeconds == 0
	}
	at := map[string]*launched{
		"a driver ends": {kind: "spark", ended: func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed },
			want: end{api.ReasonError, ptr.To[int32](6), ""}},
		"a driver is deleted":          {kind: "spark", ended: lingers, want: end{api.ReasonDeleted, ptr.To[int32](143), ""}},
		"a driver is deleted by force": {kind: "spark", ended: lingers, want: end{api.ReasonDeleted, nil, ""}},
		"a runner's parent is deleted": {kind: "runner", ended: lingers, want: end{api.ReasonDeleted, ptr.To[int32](143), ""}},
		"a file job is deleted":        {kind: "file", ended: func(*corev1.Pod) bool { return true }, want: end{api.ReasonDeleted, nil, ""}},
	}
	for name, does := range map[string][]string{"a driver ends": {"sleep=15s", "exit=6"}, "a driver is deleted": {"sleep=5m"}, "a driver is deleted by force": {"sleep=5m"}} {
		l := at[name]
		l.submission = run + "-" + strings.ReplaceAll(name, " ", "-")
		if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, driver{does: does}.request(l.submission), http.StatusCreated, http.StatusOK); err != nil {
			t.Fatal(err)
		}
		l.pod = podOf(ctx, t, l.submission)
		l.then = func() error { return nil }
	}
	at["a driver is deleted"].then = func() error { return deletePod(at["a driver is deleted"].pod.Name, metav1.DeleteOptions{}) }
	at["a driver is deleted by force"].then = func() error {
		return deletePod(at["a driver is deleted by force"].pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}

	parent := newParent(ctx, t, "zero", app("sleep=10m"))
	l := at["a runner's parent is deleted"]
	l.submission = run + "-zero-runner"
	_, err := post[api.Runner](ctx, api.RunnerPath, api.RunnerRequest{
		SubmissionID: l.submission, Parent: api.RunnerParent{Namespace: jobs, Name: parent.Name, UID: string(parent.UID)}, Template: template("sleep=10m"),
	}, http.StatusCreated)
	if err != nil {
		t.Fatal(err)
	}
	l.pod = podOf(ctx, t, l.submission)
	l.then = func() error { return deletePod(parent.Name, metav1.DeleteOptions{}) }

	newClaim(ctx, t, "zero", "zero", corev1.ReadWriteOnce)
	serve(t, stallAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1048576")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	l = at["a file job is deleted"]
	l.submission = run + "-zero-file"
	job, err := post[api.FileJob](ctx, api.FilePath, api.FileRequest{
		SubmissionID: l.submission, Target: api.FileTarget{Namespace: jobs, Claim: run + "-zero"}, WaitSeconds: new(int),
		Operation: api.FileOperation{Op: api.OpUpload, Path: "file", Source: &api.FileSource{URL: "http://" + stallAddress, Size: 1 << 20, SHA256: digest(nil)}},
	}, http.StatusAccepted)
	if err != nil {
		t.Fatal(err)
	}
	err = until(ctx, "the pod of "+job.Job, func() (bool, error) {
		pods, err := client.CoreV1().Pods(jobs).List(ctx, metav1.ListOptions{LabelSelector: "flint.dev/id=" + job.ID})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		l.pod = &pods.Items[0]
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.then = func() error {
		return client.BatchV1().Jobs(jobs).Delete(ctx, job.Job, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	}

	for _, l := range at {
		t.Cleanup(func() { remove(t, l.pod) })
		running(ctx, t, l.pod)
	}
	t.Cleanup(func() { scale(context.Background(), t, 1) })
	scale(ctx, t, 0)
	err = until(ctx, "no instance to be up", func() (bool, error) {
		pods, err := client.CoreV1().Pods("flint").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			// Its process first: without its pod it would go on for as long as the kubelet takes.
			if pod := &pods.Items[i]; pod.DeletionTimestamp != nil && killContainer(ctx, pod, "flint") == nil {
				remove(t, pod)
			}
		}
		return len(pods.Items) == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range at {
		if err := l.then(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for name, l := range at {
		err = until(ctx, name, func() (bool, error) {
			now, err := client.CoreV1().Pods(jobs).Get(ctx, l.pod.Name, metav1.GetOptions{})
			return err == nil && l.ended(now), err
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
		}
		if events, _ := received.of(l.submission); len(events) > 0 {
			t.Fatalf("%s: told while no instance was up: %+v", name, events)
		}
	}
	began := time.Now()
	scale(ctx, t, 1)
	for name, l := range at {
		t.Run(name, func(t *testing.T) {
			got, err := received.await(ctx, l.submission)
			if err != nil {
				t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
			}
			l.want.check(t, l.kind, got)
			if name != "a driver ends" {
				isDeleted(ctx, t, l.pod)
			}
			oneEnd(t, l.submission)
			t.Logf("SEEN %s, exit code %s, told %.1fs after an instance was asked for", got.Reason, show(got.ExitCode), got.at.Sub(began).Seconds())
		})
	}
	if _, err := client.BatchV1().Jobs(jobs).Get(ctx, job.Job, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Job is left: %v", err)
	}
}
