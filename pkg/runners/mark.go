package runners

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
)

const (
	leaseVersion = "coordination.k8s.io/v1"
	leaseKind    = "Lease"

	// LabelLease is on the Leases that nobody owns: leaseTombstone or leaseBackoff.
	LabelLease     = "flint.dev/lease"
	leaseTombstone = "tombstone"
	leaseBackoff   = "backoff"
	// AnnotationExpires is when such a Lease is nobody's any more (RFC 3339).
	AnnotationExpires = "flint.dev/expires"

	// minTombstone is how long a tombstone stays at least: longer than any request for its key can be on its way.
	minTombstone = 10 * time.Minute
	// maxStones is how many tombstones of its own a parent has at once: it needs no right to make them.
	maxStones = 100
)

func leaseRef(namespace, name string) kube.Ref {
	return kube.Ref{APIVersion: leaseVersion, Kind: leaseKind, Namespace: namespace, Name: name}
}

// GiveUpKey makes the tombstone of a key: no launch of it that comes later, or is on its way and has not been released,
// starts anything, for as long as a request for it may be on its way. The id is launch.ID of the key; whether the key was ever used
// does not matter. It says nothing of a pod that is there.
func (r *Runners) GiveUpKey(ctx context.Context, namespace, id string, why api.Code, bootTimeout time.Duration) error {
	ref := leaseRef(namespace, runner.MarkName(id))
	labels, annotations := r.tombstone(id, why, bootTimeout)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations, "ownerReferences": nil}})
	if err != nil { // texts always marshal
		panic(err)
	}
	stone := leaseOf(ref.Name, labels, annotations)
	for range maxAttempts {
		_, err = r.Client.Patch(ctx, ref, types.MergePatchType, patch)
		if !apierrors.IsNotFound(err) {
			return asError(kube.Translate(err, "give up", ref))
		}
		_, err = r.Client.Create(ctx, namespace, stone, false)
		if !apierrors.IsAlreadyExists(err) {
			return asError(kube.Translate(err, "create", ref))
		}
	}
	return asError(kube.Translate(err, "give up", ref))
}

// tombstone is what a Lease has that is one.
func (r *Runners) tombstone(id string, why api.Code, bootTimeout time.Duration) (labels, annotations map[string]any) {
	now := r.now().UTC()
	return map[string]any{
			launch.LabelManagedBy: launch.ManagedBy, launch.LabelKind: string(launch.Runner), launch.LabelID: id, LabelLease: leaseTombstone,
		}, map[string]any{
			launch.AnnotationGivenUp: fmt.Sprintf("%s at %s", why, now.Format(time.RFC3339)),
			AnnotationExpires:        now.Add(max(bootTimeout, minTombstone)).Format(time.RFC3339),
		}
}

func leaseOf(name string, labels, annotations map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leaseVersion, "kind": leaseKind,
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": annotations},
		"spec":     map[string]any{},
	}}
}

// stoneOf is the name of a parent's own tombstone of a key.
func stoneOf(parent types.UID, id string) string { return runner.MarkName(id) + "-" + string(parent) }

// GiveUpKeyOf is GiveUpKey for the runners of one parent: a parent without rights may give up a key that it has used, and takes
// it from nobody. The tombstone is beside the key's mark, which may be of another parent's launch, and a launch of this parent
// looks for it before its release. SUBMITTER_OVERLOADED is the answer to a parent that has maxStones of them.
func (r *Runners) GiveUpKeyOf(ctx context.Context, parent types.UID, namespace, id string, why api.Code) error {
	of := leaseRef(namespace, "")
	page, err := r.Client.List(ctx, of, kube.ListOptions{LabelSelector: LabelLease + "=" + leaseTombstone + "," + runner.LabelParentUID + "=" + string(parent), Limit: maxStones})
	if err != nil {
		return kube.Translate(err, "list", of)
	}
	if len(page.Items) >= maxStones {
		e := api.Errorf(api.SubmitterOverloaded, "the key could not be given up: %d keys without a launch were, for runners of the pod with the uid %s; ask again later", maxStones, parent)
		e.RetryAfter = minTombstone / maxStones
		return e
	}
	labels, annotations := r.tombstone(id, why, 0)
	labels[runner.LabelParentUID] = string(parent)
	ref := leaseRef(namespace, stoneOf(parent, id))
	_, err = r.Client.Create(ctx, namespace, leaseOf(ref.Name, labels, annotations), false)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return asError(kube.Translate(err, "create", ref))
}

// confirm has the last word on a runner that is held: its parent has not given it up, and it is not one too many.
func (r *Runners) confirm(planned *runner.Runner) (func(context.Context, kube.Client, *unstructured.Unstructured) *api.Error, error) {
	pod, err := podOf(planned.Plan.Workload)
	if err != nil {
		return nil, err
	}
	parent, quota := types.UID(planned.Terms.ParentUID), r.quota(planned.Terms)
	return func(ctx context.Context, client kube.Client, own *unstructured.Unstructured) *api.Error {
		for _, id := range runner.Keys(pod) {
			ref := leaseRef(pod.Namespace, stoneOf(parent, id))
			stone, err := client.Get(ctx, ref)
			switch {
			case err == nil:
				return api.Errorf(api.Gone, "submission_id %s was given up, and starts nothing any more: %s; use a new one",
					planned.Plan.SubmissionID, stone.GetAnnotations()[launch.AnnotationGivenUp])
			case !apierrors.IsNotFound(err):
				return kube.Translate(err, "get", ref)
			}
		}
		if quota == nil {
			return nil
		}
		return quota(ctx, client, own)
	}, nil
}

// GiveUp makes the tombstones of all keys that a runner's pod, read whole, has used up.
func (r *Runners) GiveUp(ctx context.Context, workload *unstructured.Unstructured, why api.Code) error {
	pod, err := podOf(workload)
	if err != nil {
		return err
	}
	return r.giveUpKeys(ctx, pod, why)
}

func (r *Runners) giveUpKeys(ctx context.Context, pod *corev1.Pod, why api.Code) error {
	for _, id := range runner.Keys(pod) {
		if err := r.GiveUpKey(ctx, pod.Namespace, id, why, runner.TermsOf(pod).BootTimeout); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the pod of a tombstone, if whoever made it did not come to that: a pod whose key is given up does not live by having
// been quick. left is true while there is such a pod, in whatever state; one that is held will meet the tombstone.
func (r *Runners) finish(ctx context.Context, stone *unstructured.Unstructured) (left bool, err error) {
	holder, _, _ := unstructured.NestedString(stone.Object, "spec", "holderIdentity")
	if holder == "" { // the key had no launch
		return false, nil
	}
	ref := podRef(stone.GetNamespace(), holder)
	found, err := r.Client.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, kube.Translate(err, "get", ref)
	case !launch.Ours(found) || found.GetLabels()[launch.LabelID] != stone.GetLabels()[launch.LabelID]:
		return false, nil
	}
	pod, err := podOf(found)
	if err != nil {
		return true, err
	}
	if _, ended := completion.OfPod(pod, completion.Bounds{}, r.now()); ended || launch.Held(found) || pod.DeletionTimestamp != nil {
		return true, nil
	}
	why := stone.GetAnnotations()[launch.AnnotationGivenUp]
	code, _, _ := strings.Cut(why, " ")
	reason := cmp.Or(reasons[api.Code(code)], api.ReasonError)
	if api.Code(code) == api.Cancelled {
		reason = api.ReasonDeleted
	}
	_, err = r.end(ctx, ref, pod.UID, completion.Outcome{Outcome: api.Failed, Reason: reason, FinishedAt: r.now().UTC(), Message: "its key was given up: " + why})
	return true, err
}

// asError is the error, and a nil without a type for nil.
func asError(e *api.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// expired tells whether a Lease that nobody owns has had its time. One that does not say until when has.
func expired(lease *unstructured.Unstructured, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, cmp.Or(lease.GetAnnotations()[AnnotationExpires], "?"))
	return err != nil || !now.Before(at)
}
