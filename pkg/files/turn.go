package files

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// Operations that change a claim take turns, whichever instance launches them. Whose turn it is, is the holder of a
// Lease that the claim owns, written by nobody who has not read it. A turn ends with the work and not with a write of its holder's: it
// is over when the holder's Job has no pod that could still write, and will have none.

const (
	// annotationJob is on the Lease once the holder's Job was there: if it is gone then, it has been.
	annotationJob = "flint.dev/job-uid"
	// reuseLimit is how old a turn may be that an earlier call of the same request has taken, and this one goes on with: what is left
	// of launch.DefaultHoldLimit has room for the longest launch and for clocks that differ by half a minute.
	reuseLimit = 5 * time.Second
	// maxTurns bounds how often one launch meets a Lease that another changes at the same time.
	maxTurns = 10
	// busyRetry is the advice where a claim is in use.
	busyRetry = 5 * time.Second
	// noteLimit is the time for a write after a launch, beside the caller's own.
	noteLimit = 5 * time.Second
)

// leaseName is the name of the Lease of the claim.
func leaseName(claim types.UID) string { return "flint-claim-" + string(claim) }

// turn is the Lease as this launch left it.
type turn struct {
	ref   kube.Ref
	lease *unstructured.Unstructured
	// fresh is true when this call took it, and false when an earlier call of the same request has.
	fresh bool
}

// takeTurn makes the plan's launch the holder, or refuses with VOLUME_BUSY. An earlier call of the same request may have made it
// that; what is left of its time must do for this call too, else the time begins anew: others may be about to find the turn
// over. Where its Job is gone, and a pod of it is not, the turn is not over for the same request either; and where its Job is being deleted,
// nothing can be launched yet, and no turn is taken.
func (f *Files) takeTurn(ctx context.Context, plan *launch.Plan, claim *corev1.PersistentVolumeClaim) (*turn, error) {
	ref := kube.Ref{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: claim.Namespace, Name: leaseName(claim.UID)}
	object, err := f.leaseOf(plan, claim, ref.Name)
	if err != nil {
		return nil, err
	}
	for range maxTurns {
		found, err := f.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) { // the first on this claim, or somebody has deleted the Lease
			created, err := f.Client.Create(ctx, ref.Namespace, object, false)
			switch {
			case apierrors.IsAlreadyExists(err):
				continue
			case err != nil:
				return nil, kube.Translate(err, "create", ref)
			}
			t := &turn{ref, created, true}
			other, err := f.unfinished(ctx, claim, plan.ID)
			if err == nil && other == "" {
				return t, nil
			}
			if failed := f.handOver(ctx, t, other); err == nil {
				err = failed
			}
			if err != nil {
				return nil, err
			}
			continue // to see whether that one has ended
		}
		if err != nil {
			return nil, kube.Translate(err, "get", ref)
		}
		lease := &coordinationv1.Lease{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, lease); err != nil {
			return nil, fmt.Errorf("read %s: %w", ref, err)
		}
		holder := holderOf(lease)
		switch holder {
		case "":
		case plan.ID:
			if err := f.nothingLeft(ctx, claim, holder); err != nil {
				return nil, err
			}
			if lease.Annotations[annotationJob] == "" && f.heldFor(lease) <= reuseLimit {
				return &turn{ref, found, false}, nil // an earlier call's, and there is time enough for this one
			}
		default:
			if err := f.hasEnded(ctx, claim, holder, lease); err != nil {
				return nil, err
			}
		}
		taken, err := f.patchLease(ctx, ref, found, map[string]any{
			"metadata": map[string]any{
				"labels":      map[string]any{filejob.LabelOp: object.GetLabels()[filejob.LabelOp]},
				"annotations": map[string]any{annotationJob: nil},
			},
			"spec": map[string]any{
				"holderIdentity":   plan.ID,
				"acquireTime":      f.now().UTC().Format(metav1.RFC3339Micro),
				"leaseTransitions": transitionsOf(lease) + 1,
			},
		})
		switch {
		case err == nil:
			return &turn{ref, taken, holder != plan.ID}, nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err):
			return nil, kube.Translate(err, "patch", ref)
		} // another was quicker: look again who has it
	}
	return nil, busy("claim %q is wanted by several operations at once", claim.Name)
}

// leaseOf is the Lease as the first operation on the claim creates it. It goes with the claim.
func (f *Files) leaseOf(plan *launch.Plan, claim *corev1.PersistentVolumeClaim, name string) (*unstructured.Unstructured, error) {
	now := metav1.NewMicroTime(f.now().UTC())
	seconds, transitions := int32(launch.DefaultHoldLimit.Seconds()), int32(0)
	lease := &coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				launch.LabelManagedBy: launch.ManagedBy, filejob.LabelClaim: string(claim.UID),
				filejob.LabelOp: plan.Workload.GetLabels()[filejob.LabelOp],
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &plan.ID, AcquireTime: &now, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lease)
	if err != nil {
		return nil, fmt.Errorf("make the Lease of claim %s: %w", claim.Name, err)
	}
	object := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	return object, nil
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// heldFor is for how long the holder has it, by this instance's clock: launch.DefaultHoldLimit has room for another's.
func (f *Files) heldFor(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.AcquireTime == nil {
		return math.MaxInt64
	}
	return max(f.now().Sub(lease.Spec.AcquireTime.Time), 0)
}

func transitionsOf(lease *coordinationv1.Lease) int32 {
	if lease.Spec.LeaseTransitions == nil {
		return 0
	}
	return *lease.Spec.LeaseTransitions
}

// hasEnded refuses as long as the holder's turn is not over. The pods decide: a Job may say that it has ended, or be gone, while
// its pod still writes, and the Job controller may be slow to say so of one whose pod has ended long ago. A Job that is being deleted
// may stay until its end was told, and the holder be launching another in its place.
func (f *Files) hasEnded(ctx context.Context, claim *corev1.PersistentVolumeClaim, holder string, lease *coordinationv1.Lease) error {
	age := f.heldFor(lease)
	wait := func(what string) error {
		return busy("claim %q is being changed: Job %s (%s) %s, for %s; operations that change a claim take turns",
			claim.Name, filejob.JobName(holder), lease.Labels[filejob.LabelOp], what, age.Truncate(time.Second))
	}
	if !idForm.MatchString(holder) {
		return busy("claim %q is held by %q, which is no launch of Flint's: whoever wrote that into Lease %s must take it back", claim.Name, holder, lease.Name)
	}
	job, err := f.job(ctx, claim.Namespace, holder)
	if err != nil && !isCode(err, api.NotFound) {
		return err
	}
	pods, err := f.pods(ctx, claim.Namespace, holder)
	if err != nil {
		return err
	}
	had := false
	for i := range pods {
		if !filejob.PodEnded(&pods[i]) {
			return wait("has a pod that has not ended")
		}
		owner := metav1.GetControllerOf(&pods[i])
		had = had || job != nil && owner != nil && owner.UID == job.GetUID() && !isSuspended(job)
	}
	switch deleted := job == nil || job.GetDeletionTimestamp() != nil; {
	case deleted && lease.Annotations[annotationJob] == "" && age <= launch.DefaultHoldLimit:
		return wait("is being launched")
	case deleted, had, isFinished(job):
		return nil
	}
	return wait("has no pod yet")
}

// nothingLeft refuses a repeat as long as its earlier Job is being deleted, or a pod of one that was has not ended: another Job of the same
// name would have a second one. With the Job still there the repeat is a duplicate, or a conflict, which its launch tells.
func (f *Files) nothingLeft(ctx context.Context, claim *corev1.PersistentVolumeClaim, id string) error {
	pods, err := f.pods(ctx, claim.Namespace, id)
	if err != nil {
		return err
	}
	job, err := f.job(ctx, claim.Namespace, id)
	if err != nil && !isCode(err, api.NotFound) {
		return err
	}
	if job != nil && job.GetDeletionTimestamp() != nil { // it may stay until its end was told, and would hold others up as often as it is asked for
		e := api.Errorf(api.SubmitterOverloaded, "Job %s is being deleted; the same submission may be repeated", filejob.JobName(id))
		e.RetryAfter = busyRetry
		return e
	}
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		if !filejob.PodEnded(&pods[i]) && (job == nil || owner == nil || owner.UID != job.GetUID()) {
			return busy("claim %q is being changed: Job %s was deleted, and its pod %s has not ended", claim.Name, filejob.JobName(id), pods[i].Name)
		}
	}
	return nil
}

// isSuspended tells a Job that a queue or a person has stopped: it gets another pod when they let it go on.
func isSuspended(job *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return suspended
}

func isFinished(object *unstructured.Unstructured) bool {
	job := &batchv1.Job{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job) != nil {
		return false
	}
	for _, c := range job.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return true
		}
	}
	return false
}

// unfinished is the id of another operation that changes the claim and whose Job has not ended, or empty: the Jobs are the
// truth, and a Lease that was deleted says nothing of them. What only reads has the claim mounted so.
func (f *Files) unfinished(ctx context.Context, claim *corev1.PersistentVolumeClaim, id string) (string, error) {
	of := kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: claim.Namespace}
	options := kube.ListOptions{LabelSelector: filejob.LabelClaim + "=" + string(claim.UID), Limit: pageSize}
	for {
		page, err := f.Client.List(ctx, of, options)
		if err != nil {
			return "", kube.Translate(err, "list", of)
		}
		for _, item := range page.Items {
			job := &batchv1.Job{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, job); err != nil {
				return "", fmt.Errorf("read Job %s/%s: %w", claim.Namespace, item.GetName(), err)
			}
			other := job.Labels[launch.LabelID]
			if other != id && idForm.MatchString(other) && !isFinished(item) && writes(job, claim.Name) {
				return other, nil
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return "", nil
		}
	}
}

func writes(job *batchv1.Job, claim string) bool {
	return slices.ContainsFunc(job.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim && !v.PersistentVolumeClaim.ReadOnly
	})
}

// handOver makes another the holder of a turn that was just taken; nobody, if it is empty.
func (f *Files) handOver(ctx context.Context, t *turn, holder string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
	defer cancel()
	spec := map[string]any{"holderIdentity": nil}
	if holder != "" {
		spec["holderIdentity"] = holder
	}
	if _, err := f.patchLease(ctx, t.ref, t.lease, map[string]any{"metadata": map[string]any{}, "spec": spec}); err != nil && !apierrors.IsConflict(err) {
		return kube.Translate(err, "patch", t.ref)
	}
	return nil
}

// giveBack ends a turn whose launch was refused for good, so that nothing was left of it. After any other failure the Job may be
// there all the same, and the holder stays; and a Job of the same key and another content is one that may be running.
func (f *Files) giveBack(ctx context.Context, t *turn, err error) {
	if t == nil || !t.fresh || toAPI(err).Retryable() || isCode(err, api.IdempotencyConflict) {
		return
	}
	_ = f.handOver(ctx, t, "") // if it fails, others wait for launch.DefaultHoldLimit
}

// noteJob notes that the holder's Job is there, so that its absence tells that the turn is over.
func (f *Files) noteJob(ctx context.Context, t *turn, result *launch.Result) {
	if t == nil || t.lease.GetAnnotations()[annotationJob] != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
	defer cancel()
	// If it fails, a Job that is deleted holds others up for launch.DefaultHoldLimit.
	_, _ = f.patchLease(ctx, t.ref, t.lease, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{annotationJob: string(result.Workload.GetUID())},
	}})
}

// patchLease sends a merge patch that holds for the Lease as it was read.
func (f *Files) patchLease(ctx context.Context, ref kube.Ref, lease *unstructured.Unstructured, patch map[string]any) (*unstructured.Unstructured, error) {
	metadata, _ := patch["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = lease.GetUID(), lease.GetResourceVersion()
	body, err := json.Marshal(patch)
	if err != nil { // texts and numbers always marshal
		return nil, err
	}
	return f.Client.Patch(ctx, ref, types.MergePatchType, body)
}
