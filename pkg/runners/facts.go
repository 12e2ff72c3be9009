package runners

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/runner"
)

// facts asks the cluster for what the plan depends on: the parent, and the rest only where it matters.
func (r *Runners) facts(ctx context.Context, request *api.RunnerRequest, allow Allow) (facts runner.Facts, err error) {
	ref := podRef(request.Parent.Namespace, request.Parent.Name)
	facts.Parent, err = r.Client.Get(ctx, ref)
	if err != nil && !apierrors.IsNotFound(err) {
		return facts, kube.Translate(err, "get", ref)
	}
	if apierrors.IsNotFound(err) {
		facts.Parent = nil
	}
	if err := allow(ctx, ref, facts.Parent); err != nil {
		return facts, err
	}
	if facts.Parent == nil {
		return facts, api.FieldErrorf(api.ParentNotFound, "parent.name", "there is no pod %q in namespace %s", ref.Name, ref.Namespace)
	}
	if choosesLabels(request) {
		if facts.Selectors, err = r.selectors(ctx, ref.Namespace, request.Owner != api.OwnerParent); err != nil {
			return facts, err
		}
	}
	facts.InUse, err = r.inUse(ctx, ref.Namespace, runner.Claims(request, facts.Parent))
	return facts, err
}

// choosesLabels tells whether the runner gets labels that are not ours, which a selector could match.
func choosesLabels(request *api.RunnerRequest) bool {
	labels, _, _ := unstructured.NestedMap(request.Template, "metadata", "labels")
	return len(request.Labels) > 0 || len(labels) > 0
}

// selectors are those of the namespace's Services: a runner that one selects would get its requests. A runner that has no
// controller could also be adopted, by what adopts pods of any name; a StatefulSet and a Job do not.
func (r *Runners) selectors(ctx context.Context, namespace string, adoptable bool) ([]runner.Selector, error) {
	var all []runner.Selector
	err := each(ctx, r.Client, kube.Ref{APIVersion: "v1", Kind: "Service", Namespace: namespace}, kube.ListOptions{}, func(service *unstructured.Unstructured) {
		labels, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
		all = append(all, runner.Selector{Kind: "Service", Name: service.GetName(), Labels: metav1.LabelSelector{MatchLabels: labels}})
	})
	if err != nil || !adoptable {
		return all, asError(err)
	}
	for _, kind := range []string{"ReplicaSet", "DaemonSet"} {
		var unread error
		err := each(ctx, r.Client, kube.Ref{APIVersion: "apps/v1", Kind: kind, Namespace: namespace}, kube.ListOptions{}, func(controller *unstructured.Unstructured) {
			selector := runner.Selector{Kind: kind, Name: controller.GetName()}
			labels, _, _ := unstructured.NestedMap(controller.Object, "spec", "selector")
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(labels, &selector.Labels); err != nil {
				unread = fmt.Errorf("read the selector of %s %s: %w", kind, controller.GetName(), err)
			}
			all = append(all, selector)
		})
		if err != nil {
			return nil, err
		}
		if unread != nil {
			return nil, unread
		}
	}
	return all, nil
}

// inUse tells who uses the claims that only one node, or one pod, can use at a time. A claim that is not there is for the pod to wait for.
func (r *Runners) inUse(ctx context.Context, namespace string, claims []string) (map[string]runner.Use, error) {
	exclusive := map[string]bool{} // and whether it is for one pod only
	for _, name := range claims {
		ref := kube.Ref{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
		object, err := r.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, kube.Translate(err, "get", ref)
		}
		claim := &corev1.PersistentVolumeClaim{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, claim); err != nil {
			return nil, fmt.Errorf("read %s: %w", ref, err)
		}
		modes := claim.Status.AccessModes
		if len(modes) == 0 {
			modes = claim.Spec.AccessModes
		}
		if !slices.Contains(modes, corev1.ReadWriteMany) && !slices.Contains(modes, corev1.ReadOnlyMany) {
			exclusive[name] = slices.Contains(modes, corev1.ReadWriteOncePod)
		}
	}
	if len(exclusive) == 0 {
		return nil, nil
	}
	// The API server cannot select pods by their claims.
	uses := map[string]runner.Use{}
	var unread error
	err := each(ctx, r.Client, podRef(namespace, ""), kube.ListOptions{FieldSelector: living}, func(object *unstructured.Unstructured) {
		pod, err := podOf(object)
		if err != nil {
			unread = err
			return
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			name := v.PersistentVolumeClaim.ClaimName
			oncePod, matters := exclusive[name]
			if known := uses[name]; matters && (known.Pod == "" || known.Node == "") { // one that has a node says more
				uses[name] = runner.Use{Pod: pod.Name, Node: pod.Spec.NodeName, OncePod: oncePod}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return uses, unread
}
