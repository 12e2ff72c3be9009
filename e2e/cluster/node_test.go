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

// A driver on a node that never answers, which is a Node object and nothing else: when it is deleted, nobody ends it.
func TestNodeLost(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: run + "-ghost"}, Spec: corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	submission := run + "-node-lost"
	request := driver{does: []string{"sleep=5m"}, shape: corev1.PodSpec{NodeName: node.Name}}.request(submission)
	if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, request, http.StatusCreated, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	pod := podOf(ctx, t, submission)
	t.Cleanup(func() { remove(t, pod) })
	began := time.Now()
	if err := client.CoreV1().Pods(jobs).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil {
		t.Fatal(err)
	}
	got, err := received.await(ctx, submission)
	if err != nil {
		t.Fatal(err)
	}
	end{api.ReasonNodeLost, nil, "its node"}.check(t, "spark", got)
	t.Logf("SEEN %s, %q, after %.1fs", got.Reason, got.Message, got.at.Sub(began).Seconds())
}
