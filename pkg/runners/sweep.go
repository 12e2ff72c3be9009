package runners

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
	// SweepInterval is from one sweep to the next.
	SweepInterval = 30 * time.Second
	// annotationOrphaned is on a runner that has no owner and whose parent is gone: since when that is known (RFC 3339).
	annotationOrphaned = "flint.dev/orphaned-at"
	// allNamespaces among namespaces stands for every one.
	allNamespaces = "*"
)

// Swept is what one sweep took away.
type Swept struct{ Finished, Orphans, Leases int }

// Sweep takes away what nobody else does, in each of the namespaces, "*" for all: runners that have ended, whose event was sent and
// whose time to live is over; runners of nobody whose parent is gone; Leases that have expired. It lists these alone, and
// goes on where something fails. The errors are joined.
func (r *Runners) Sweep(ctx context.Context, namespaces []string) (Swept, error) {
	s := &sweep{Runners: r, now: r.now()}
	for _, namespace := range namespaces {
		if namespace == allNamespaces {
			namespace = ""
		}
		s.finished(ctx, namespace)
		s.orphans(ctx, namespace)
		s.leases(ctx, namespace)
	}
	return s.swept, errors.Join(s.errs...)
}

// Run sweeps until the context ends, at first at once.
func (r *Runners) Run(ctx context.Context, namespaces []string) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, SweepInterval)
		_, err := r.Sweep(limited, namespaces)
		cancel()
		if err != nil && ctx.Err() == nil {
			r.log().Warn("a sweep of runners failed", "error", err.Error())
		}
		timer := r.clock().NewTimer(SweepInterval)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

type sweep struct {
	*Runners
	now   time.Time
	swept Swept
	errs  []error
}

func (s *sweep) list(ctx context.Context, of kube.Ref, options kube.ListOptions, do func(*unstructured.Unstructured)) {
	if err := each(ctx, s.Client, of, options, do); err != nil {
		s.errs = append(s.errs, err)
	}
}

// count counts what was taken away. That it was gone already is no error.
func (s *sweep) count(n *int, err error, of *unstructured.Unstructured) {
	switch {
	case err == nil:
		*n++
	case !isLost(err):
		s.errs = append(s.errs, kube.Translate(err, "sweep", kube.RefOf(of.GetNamespace(), of)))
	}
}

// finished takes runners whose time to live is over.
func (s *sweep) finished(ctx context.Context, namespace string) {
	selector := launch.LabelKind + "=" + string(launch.Runner) + "," + launch.LabelCompletion + "=" + completion.Sent
	s.list(ctx, podRef(namespace, ""), kube.ListOptions{LabelSelector: selector}, func(object *unstructured.Unstructured) {
		pod, err := podOf(object)
		if err != nil {
			s.errs = append(s.errs, err)
			return
		}
		o, ended := completion.OfPod(pod, completion.Bounds{}, s.now)
		if !launch.Ours(object) || !ended || pod.DeletionTimestamp != nil || s.now.Before(o.FinishedAt.Add(runner.TermsOf(pod).TTL)) {
			return
		}
		if o.Outcome == api.Failed { // who was told so may have a request on its way still
			if err := s.giveUpKeys(ctx, pod, api.RunnerExited); err != nil {
				s.errs = append(s.errs, err)
				return
			}
		}
		s.count(&s.swept.Finished, s.Client.Delete(ctx, kube.RefOf(pod.Namespace, object), pod.UID), object)
	})
}

// orphans ends runners of nobody whose parent has been gone for longer than the grace. When that was first seen is noted on them.
func (s *sweep) orphans(ctx context.Context, namespace string) {
	selector := launch.LabelKind + "=" + string(launch.Runner) + "," + launch.LabelCompletion + "=" + launch.CompletionPending + "," + runner.LabelOwner + "=" + api.OwnerNone
	gone := map[types.UID]bool{} // parents
	s.list(ctx, podRef(namespace, ""), kube.ListOptions{LabelSelector: selector, MetadataOnly: true}, func(object *unstructured.Unstructured) {
		if !launch.Ours(object) || object.GetDeletionTimestamp() != nil {
			return
		}
		name, uid := object.GetAnnotations()[runner.AnnotationParent], types.UID(object.GetLabels()[runner.LabelParentUID])
		isGone, known := gone[uid]
		if !known {
			found, err := s.Client.Get(ctx, podRef(object.GetNamespace(), name))
			if err != nil && !apierrors.IsNotFound(err) {
				s.errs = append(s.errs, kube.Translate(err, "get", podRef(object.GetNamespace(), name)))
				return
			}
			isGone = err != nil || found.GetUID() != uid
			gone[uid] = isGone
		}
		if isGone {
			s.orphan(ctx, object, name)
		}
	})
}

func (s *sweep) orphan(ctx context.Context, object *unstructured.Unstructured, parent string) {
	ref := kube.RefOf(object.GetNamespace(), object)
	since, err := time.Parse(time.RFC3339, object.GetAnnotations()[annotationOrphaned])
	if err != nil {
		since = s.now
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": object.GetUID(), "annotations": map[string]any{annotationOrphaned: s.now.UTC().Format(time.RFC3339)},
		}})
		if err != nil { // texts always marshal
			panic(err)
		}
		if _, err := s.Client.Patch(ctx, ref, types.MergePatchType, patch); err != nil {
			s.count(new(int), err, object)
			return
		}
	}
	if s.now.Before(since.Add(s.Settings.OrphanGrace)) {
		return
	}
	deleted, err := s.end(ctx, ref, object.GetUID(), completion.Outcome{
		Outcome: api.Failed, Reason: api.ReasonDeleted, FinishedAt: s.now.UTC(),
		Message: fmt.Sprintf("its parent, pod %s, is gone, and nothing owns it", parent),
	})
	if err != nil || deleted {
		s.count(&s.swept.Orphans, err, object)
	}
}

// leases takes tombstones and back-offs that have expired; a tombstone stays for as long as its pod, which it ends.
func (s *sweep) leases(ctx context.Context, namespace string) {
	s.list(ctx, leaseRef(namespace, ""), kube.ListOptions{LabelSelector: LabelLease}, func(lease *unstructured.Unstructured) {
		if lease.GetLabels()[LabelLease] == leaseTombstone {
			left, err := s.finish(ctx, lease)
			if err != nil {
				s.errs = append(s.errs, err)
			}
			if left || err != nil {
				return
			}
		}
		if expired(lease, s.now) {
			s.count(&s.swept.Leases, s.Client.DeleteUnchanged(ctx, kube.RefOf(lease.GetNamespace(), lease), lease.GetUID(), lease.GetResourceVersion()), lease)
		}
	})
}
