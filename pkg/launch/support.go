package launch

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// obstacle is why an object of the plan cannot be had.
type obstacle struct {
	err *api.Error
	// withdraw is true when this launch's workload must not go on waiting for it.
	withdraw bool
}

// support creates the support objects, all at the same time, and waits for all of them, so that
// no write of ours is on its way when it returns. Of several obstacles the first
// final one counts, then the first for which the workload must go, then the first.
// A panic of one of them goes on in the caller, with the stack that it had: left to its own
// goroutine it would end the process and every other launch in it.
func (l *launching) support(ctx context.Context) *obstacle {
	obstacles := make([]*obstacle, len(l.plan.Support))
	panics := make([]any, len(l.plan.Support))
	var wg sync.WaitGroup
	for i, s := range l.plan.Support {
		wg.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics[i] = fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			obstacles[i] = l.provide(ctx, s)
		})
	}
	wg.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}

	var decides *obstacle
	rank := func(o *obstacle) int {
		switch {
		case o == nil:
			return 0
		case !o.err.Retryable():
			return 3
		case o.withdraw:
			return 2
		}
		return 1
	}
	for _, o := range obstacles {
		if rank(o) > rank(decides) {
			decides = o
		}
	}
	return decides
}

// provide creates one support object, or finds that it is there.
func (l *launching) provide(ctx context.Context, s Support) *obstacle {
	object := owned(s.Object, l.workload)
	ref := kube.RefOf(l.plan.Namespace, object)
	for range maxAttempts {
		_, err := l.Client.Create(ctx, l.plan.Namespace, object, false)
		if err == nil {
			l.created.Add(1)
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return refusal(err, "create", ref)
		}
		existing, err := l.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			continue // gone in between: the name is free
		}
		if err != nil {
			return refusal(err, "get", ref)
		}
		return l.meet(ctx, s, ref, existing)
	}
	return &obstacle{err: retryable("%s came and went %d times while this launch tried to create it; the same submission may be repeated", ref, maxAttempts)}
}

// meet decides what the existing object of a support object's name is to this launch.
func (l *launching) meet(ctx context.Context, s Support, ref kube.Ref, existing *unstructured.Unstructured) *obstacle {
	// The key may be another of the plan's than its id.
	if why := existing.GetAnnotations()[AnnotationGivenUp]; why != "" && existing.GetLabels()[LabelID] != "" {
		what := "submission_id " + l.plan.SubmissionID
		if existing.GetLabels()[LabelID] != l.plan.ID {
			what = "another key of " + what
		}
		return &obstacle{err: api.Errorf(api.Gone, "%s was given up, and starts nothing any more: %s; use a new one", what, why), withdraw: true}
	}
	if existing.GetDeletionTimestamp() != nil {
		return &obstacle{err: retryable("%s of an earlier launch is being deleted; the same submission may be repeated", ref)}
	}
	owners := workloadsOwning(existing)
	for _, owner := range owners {
		if owner.UID == l.workload.GetUID() {
			return nil // an earlier call of this submission, or one at the same time
		}
	}
	for _, owner := range owners {
		if o, alive := l.meetOwner(ctx, s, ref, owner); alive || o != nil {
			return o
		}
	}
	switch {
	case len(owners) > 0:
		return &obstacle{err: retryable("%s of an earlier launch is still to be collected; the same submission may be repeated", ref)}
	case s.Reuse:
		return nil
	}
	return &obstacle{
		err:      api.Errorf(l.plan.conflict(), "%s exists already and belongs to no launch: it is in the way of %s", ref, l.ref),
		withdraw: true,
	}
}

// meetOwner looks at another workload that owns a support object of ours. It is alive when it is
// there with that uid and not being deleted; the object is its then, and the obstacle
// says so, unless the object may be used as it is.
func (l *launching) meetOwner(ctx context.Context, s Support, ref kube.Ref, owner metav1.OwnerReference) (o *obstacle, alive bool) {
	other := kube.Ref{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: ref.Namespace, Name: owner.Name}
	found, err := l.Client.Get(ctx, other)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false
	case err != nil:
		return refusal(err, "get", other), false
	case found.GetUID() != owner.UID || found.GetDeletionTimestamp() != nil:
		return nil, false
	case s.Reuse:
		return nil, true
	case l.Abandoned(found):
		if err := l.remove(ctx, other, found); err != nil {
			return refusal(err, "delete the abandoned", other), true
		}
		return &obstacle{err: retryable("%s belonged to the abandoned %s, which was deleted; the same submission may be repeated", ref, other)}, true
	case Ours(found) && Held(found):
		// Two launches of one key at the same time, of different content. Neither has won: this one steps
		// back and may come again, when the other is released or gone.
		return &obstacle{
			err:      retryable("submission_id %s is being launched at the same time with another content: %s holds %s (%s); it may be repeated", l.plan.SubmissionID, other, ref, l.describe(found)),
			withdraw: true,
		}, true
	case found.GetLabels()[LabelID] == l.plan.ID:
		return &obstacle{
			err:      api.Errorf(l.plan.conflict(), "submission_id %s was used before with another content: %s exists already (%s) and owns %s", l.plan.SubmissionID, other, l.describe(found), ref),
			withdraw: true,
		}, true
	}
	return &obstacle{
		err:      api.Errorf(l.plan.conflict(), "%s exists already and belongs to %s (submission_id %q, %s)", ref, other, found.GetAnnotations()[AnnotationSubmissionID], l.describe(found)),
		withdraw: true,
	}, true
}

// refusal is an obstacle that the API server put up. One that repeating will not lift
// leaves the workload waiting for nothing.
func refusal(err error, verb string, ref kube.Ref) *obstacle {
	e := kube.Translate(err, verb, ref)
	return &obstacle{err: e, withdraw: !e.Retryable()}
}

// workloadsOwning are the Pods and Jobs among an object's owners.
func workloadsOwning(object *unstructured.Unstructured) []metav1.OwnerReference {
	var owners []metav1.OwnerReference
	for _, owner := range object.GetOwnerReferences() {
		if owner.APIVersion == "v1" && owner.Kind == "Pod" || owner.APIVersion == "batch/v1" && owner.Kind == "Job" {
			owners = append(owners, owner)
		}
	}
	return owners
}

// owned is a copy of the support object with its one owner reference, as spark-submit writes it
// (org.apache.spark.deploy.k8s.submit.KubernetesClientUtils.addOwnerReference): the
// workload is its controller, blockOwnerDeletion is not set, and references that it had go.
func owned(object, workload *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	metadata, _ := object.Object["metadata"].(map[string]any)
	metadata["ownerReferences"] = []any{map[string]any{
		"apiVersion": workload.GetAPIVersion(),
		"kind":       workload.GetKind(),
		"name":       workload.GetName(),
		"uid":        string(workload.GetUID()),
		"controller": true,
	}}
	return object
}
