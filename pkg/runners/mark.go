package runners

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
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
)

func leaseRef(namespace, name string) kube.Ref {
	return kube.Ref{APIVersion: leaseVersion, Kind: leaseKind, Namespace: namespace, Name: name}
}

// GiveUpKey makes the tombstone of a key: no launch of it that comes later, or is on its way and has not been released,
// starts anything, for as long as a request for it may be on its way. The id is launch.ID of the key; whether the key was ever used
// does not matter. It says nothing of a pod that is there.
func (r *Runners) GiveUpKey(ctx context.Context, namespace, id string, why api.Code, bootTimeout time.Duration) error {
	now := r.now().UTC()
	ref := leaseRef(namespace, runner.MarkName(id))
	labels := map[string]any{
		launch.LabelManagedBy: launch.ManagedBy, launch.LabelKind: string(launch.Runner), launch.LabelID: id, LabelLease: leaseTombstone,
	}
	annotations := map[string]any{
		launch.AnnotationGivenUp: fmt.Sprintf("%s at %s", why, now.Format(time.RFC3339)),
		AnnotationExpires:        now.Add(max(bootTimeout, minTombstone)).Format(time.RFC3339),
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations, "ownerReferences": nil}})
	if err != nil { // texts always marshal
		panic(err)
	}
	stone := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leaseVersion, "kind": leaseKind,
		"metadata": map[string]any{"name": ref.Name, "labels": labels, "annotations": annotations},
		"spec":     map[string]any{},
	}}
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
