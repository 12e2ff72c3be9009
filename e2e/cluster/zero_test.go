//go:build e2e && linux

package cluster

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// A driver that ends while no instance is up is told by the next one.
func TestEndAtZero(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	submission := run + "-at-zero"
	request := driver{does: []string{"sleep=8s", "exit=6"}}.request(submission)
	if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, request, http.StatusCreated, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	pod := podOf(ctx, t, submission)
	t.Cleanup(func() { remove(t, pod) })
	t.Cleanup(func() { scale(context.Background(), t, 1) })
	scale(ctx, t, 0)
	err := until(ctx, "no instance to be up", func() (bool, error) {
		pods, err := client.CoreV1().Pods("flint").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			remove(t, &pods.Items[i])
		}
		return len(pods.Items) == 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = until(ctx, "the driver's end", func() (bool, error) {
		now, err := client.CoreV1().Pods(jobs).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodFailed, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if events, _ := received.of(submission); len(events) > 0 {
		t.Fatalf("told while no instance was up: %+v", events)
	}
	began := time.Now()
	scale(ctx, t, 1)
	got, err := received.await(ctx, submission)
	if err != nil {
		t.Fatal(err)
	}
	end{api.ReasonError, ptr.To[int32](6), ""}.check(t, "spark", got)
	t.Logf("SEEN %s, exit code %s, told %.1fs after an instance was asked for", got.Reason, show(got.ExitCode), got.at.Sub(began).Seconds())
}
