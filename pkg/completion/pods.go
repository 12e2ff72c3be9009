package completion

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/kube"
)

func (p *pass) endPods(ctx context.Context, object *unstructured.Unstructured) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.CallTimeout)
	defer cancel()
	EndPods(ctx, p.Client, object)
}

// EndPods deletes the pods of a Job that is being deleted and kept. The Job controller starts none for it any more, but ends none
// either (k8s.io/kubernetes/pkg/controller/job, syncJob), and the collector takes them only once the Job is gone. A pod that has
// ended stays until then: it may have to tell how. So do all if whoever deleted the Job wants them to outlive it. What
// fails is left to the next look, or to the collector.
func EndPods(ctx context.Context, client kube.Client, job *unstructured.Unstructured) {
	if job.GetKind() != "Job" || !kept(job) || job.GetDeletionTimestamp() == nil || slices.Contains(job.GetFinalizers(), metav1.FinalizerOrphanDependents) {
		return
	}
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: job.GetNamespace()}
	page, err := client.List(ctx, of, kube.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(job.GetUID())})
	if err != nil {
		return
	}
	for _, pod := range page.Items {
		owner := metav1.GetControllerOf(pod)
		phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
		ended := phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed)
		if owner != nil && owner.UID == job.GetUID() && !ended && pod.GetDeletionTimestamp() == nil {
			_ = client.Delete(ctx, kube.RefOf(of.Namespace, pod), pod.GetUID())
		}
	}
}
