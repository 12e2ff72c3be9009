//go:build e2e && linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
)

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// podOf is the pod that a submission has made.
func podOf(ctx context.Context, t *testing.T, submission string) *corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods(jobs).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=flint"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if pods.Items[i].Annotations["flint.dev/submission-id"] == submission {
			return &pods.Items[i]
		}
	}
	t.Fatalf("submission %s has no pod", submission)
	return nil
}

// running waits until the first container of a pod runs.
func running(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	err := until(ctx, "pod "+pod.Name+" to run", func() (bool, error) {
		now, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		states := now.Status.ContainerStatuses
		return len(states) > 0 && states[0].State.Running != nil, fmt.Errorf("%s", now.Status.Phase)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// isDeleted waits until a pod is gone.
func isDeleted(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	err := until(ctx, "pod "+pod.Name+" to go", func() (bool, error) {
		_, err := client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
	if err != nil {
		t.Error(err)
	}
}

// remove deletes a pod at once, so that it takes nothing from the tests after it.
func remove(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	now := int64(0)
	err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// logHas looks for a text in the log that the function answers with.
func logHas(text string) func(context.Context, *testing.T, *corev1.Pod) {
	return func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
		t.Helper()
		got, err := call(ctx, http.MethodGet, api.LaunchesPath+"/"+pod.Namespace+"/"+pod.Labels["flint.dev/id"]+"/log", nil, nil)
		if err != nil || got.status != http.StatusOK || !strings.Contains(string(got.body), text) {
			t.Errorf("log: HTTP %d, %v, no %q in %.2000s", got.status, err, text, got.body)
		}
	}
}
