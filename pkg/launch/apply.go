package launch

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

const (
	// DefaultHoldLimit is three times what a launch may take.
	DefaultHoldLimit = 60 * time.Second
	// maxAttempts bounds how often one call meets a name that is taken and free again.
	maxAttempts = 3
	// withdrawLimit is the time to take a held workload away, beside the caller's own.
	withdrawLimit = 5 * time.Second
	// retrySoon is the advice where another's work of a moment is in the way.
	retrySoon = time.Second
)

// Applier brings plans to the cluster. Its methods may be called at the same time, and
// so may those of other Appliers on the same cluster.
type Applier struct {
	Client kube.Client
	// Clock tells the age of a workload against its creationTimestamp. Nil means the real one.
	Clock clock.PassiveClock
	// HoldLimit is how long a held workload belongs to the launch that created it. It must be longer
	// than any Apply's context, plus what this clock and the API server's may differ.
	// Zero means DefaultHoldLimit.
	HoldLimit time.Duration
	// TellDeleted gives each workload the Finalizer from its birth on.
	TellDeleted bool
	// Abandon, if not nil, takes an abandoned workload away in place of Withdraw, and tells whoever waits for its
	// end. It may leave it being deleted, until that was told: its name is free only then.
	Abandon func(ctx context.Context, abandoned kube.Ref) error
}

func (a *Applier) clock() clock.PassiveClock {
	if a.Clock == nil {
		return clock.RealClock{}
	}
	return a.Clock
}

func (a *Applier) holdLimit() time.Duration {
	if a.HoldLimit == 0 {
		return DefaultHoldLimit
	}
	return a.HoldLimit
}

// Apply creates what the plan has and the cluster has not, and releases the workload. Its
// error is an *api.Error. After one that is Retryable the same plan may be applied again, at
// once or years later: it goes on where this call stopped. After any other this call leaves nothing of
// its own behind, except where the message says so.
//
// The context needs a deadline: an API server that does not answer would hold the caller
// for ever. When it ends, nothing more is attempted and the answer is SUBMITTER_OVERLOADED.
func (a *Applier) Apply(ctx context.Context, plan *Plan) (*Result, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, api.Errorf(api.InternalServerError, "a launch needs a deadline")
	}
	result, err := a.apply(ctx, plan)
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (a *Applier) apply(ctx context.Context, plan *Plan) (*Result, *api.Error) {
	object, err := plan.born(a.TellDeleted)
	if err != nil {
		return nil, api.Errorf(api.InternalServerError, "%v", err)
	}
	ref := kube.RefOf(plan.Namespace, object)
	if !plan.holdable() && len(plan.Support) > 0 {
		if refusal := a.vacant(ctx, plan, ref); refusal != nil {
			return nil, refusal
		}
	}
	replaced := false
	for range maxAttempts {
		created, err := a.Client.Create(ctx, plan.Namespace, object, false)
		if err == nil {
			l := &launching{Applier: a, plan: plan, ref: ref, workload: created, fresh: true, held: plan.holdable()}
			result, failed := l.complete(ctx)
			if failed != nil {
				return nil, failed
			}
			result.Replaced = replaced
			return result, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, kube.Translate(err, "create", ref)
		}
		existing, err := a.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			continue // gone in between: the name is free
		}
		if err != nil {
			return nil, kube.Translate(err, "get", ref)
		}
		if same, refusal := a.judge(plan, ref, existing); same {
			l := &launching{Applier: a, plan: plan, ref: ref, workload: existing, held: Held(existing)}
			return l.resume(ctx)
		} else if !a.Abandoned(existing) {
			return nil, refusal
		}
		if err := a.remove(ctx, ref, existing); err != nil {
			return nil, kube.Translate(err, "delete the abandoned", ref)
		}
		replaced = true
	}
	return nil, retryable("%s came and went %d times while this launch tried to create it; the same submission may be repeated", ref, maxAttempts)
}

// vacant looks, before a workload that cannot be held is created, whether its support's
// names are free: it would run at once, beside the one that the key has already. Held
// workloads need no look, since whose the key is shows while they wait.
func (a *Applier) vacant(ctx context.Context, plan *Plan, ref kube.Ref) *api.Error {
	if _, err := a.Client.Get(ctx, ref); !apierrors.IsNotFound(err) {
		return nil // whose it is shows when it is created
	}
	l := &launching{Applier: a, plan: plan, ref: ref, workload: plan.Workload}
	for _, s := range plan.Support {
		existing, err := a.Client.Get(ctx, kube.RefOf(plan.Namespace, s.Object))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return kube.Translate(err, "get", kube.RefOf(plan.Namespace, s.Object))
		}
		o := l.meet(ctx, s, kube.RefOf(plan.Namespace, s.Object), existing)
		if o == nil {
			continue
		}
		// Or the same submission, at the same time, has created its workload since the first look, and this support for it.
		if _, err := a.Client.Get(ctx, ref); err == nil {
			return nil
		}
		return o.err
	}
	return nil
}

// launching is one call of Apply whose workload exists.
type launching struct {
	*Applier
	plan     *Plan
	ref      kube.Ref
	workload *unstructured.Unstructured
	// fresh is true when this call created the workload.
	fresh bool
	// held is true when the workload waited when this call saw it.
	held bool
	// created counts the support objects that this call created.
	created atomic.Int32
}

// complete creates the support and releases the workload, if it is held.
func (l *launching) complete(ctx context.Context) (*Result, *api.Error) {
	if o := l.support(ctx); o != nil {
		return l.give(ctx, o)
	}
	if l.held && l.plan.Confirm != nil {
		if refusal := l.plan.Confirm(ctx, l.Client, l.workload); refusal != nil {
			return l.give(ctx, &obstacle{refusal, refusal.Code != api.SubmitterOverloaded})
		}
	}
	if l.held {
		kind, patch := l.plan.release(l.workload.GetUID())
		released, err := l.Client.Patch(ctx, l.ref, kind, patch)
		switch {
		case isGone(err), err == nil && released.GetDeletionTimestamp() != nil:
			refusal := retryable("%s was deleted or changed while its support was created; the same submission may be repeated", l.ref)
			refusal.Cause = err
			return nil, refusal
		case err != nil:
			refusal := kube.Translate(err, "release", l.ref)
			return l.give(ctx, &obstacle{refusal, !refusal.Retryable()})
		}
		l.workload = released
	}
	return l.result(), nil
}

func (l *launching) result() *Result {
	return &Result{Duplicate: !l.fresh, Workload: l.workload, CreatedAt: l.workload.GetCreationTimestamp().Time}
}

// give gives up at the obstacle. Where it will not go away, the workload does, so that
// nothing waits for what will not come.
func (l *launching) give(ctx context.Context, o *obstacle) (*Result, *api.Error) {
	if !o.withdraw || !l.held && !l.fresh {
		return nil, o.err
	}
	// The caller's time may be over; what is ours to clear away is still ours.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawLimit)
	defer cancel()
	var err error
	if l.held {
		var gone bool
		if gone, err = l.withdraw(ctx, l.ref, l.workload, false); err == nil && !gone {
			refusal := retryable("another call of this submission released %s while this one was refused (%s); the same submission may be repeated", l.ref, o.err.Message)
			refusal.Cause = o.err
			return nil, refusal
		}
	} else {
		// It may run, so it goes in any case; and a look puts the Finalizer back on what is not deleted. If that stays, its end is told.
		if err = l.Client.Delete(ctx, l.ref, l.workload.GetUID()); err == nil {
			_, _ = l.let(ctx, l.ref, l.workload, false)
		}
		if isGone(err) {
			err = nil
		}
	}
	if err != nil {
		stays := "it stays, held, until another launch or the poller takes it"
		if !l.held {
			stays = "it stays, and waits for what it mounts"
		}
		o.err.Message += "; and " + l.ref.String() + " could not be taken away (" + kube.Translate(err, "delete", l.ref).Message + "): " + stays
	}
	return nil, o.err
}

// Withdraw deletes the workload if it is still held: found so, changed by nobody since, and of
// that uid. It reports whether the workload is gone; false means that it was
// released and now lives by right. The workload needs its metadata, and is taken for
// held as it was given. With the Finalizer on it, it stays, being deleted, until its end was told.
func (a *Applier) Withdraw(ctx context.Context, namespace string, workload *unstructured.Unstructured) (gone bool, err error) {
	return a.withdraw(ctx, kube.RefOf(namespace, workload), workload, true)
}

// withdraw is Withdraw. With told false nobody is to be told: the Finalizer goes first.
func (a *Applier) withdraw(ctx context.Context, ref kube.Ref, workload *unstructured.Unstructured, told bool) (gone bool, err error) {
	uid := workload.GetUID()
	for range maxAttempts {
		var last *unstructured.Unstructured
		if last, err = workload, nil; !told {
			last, err = a.let(ctx, ref, workload, true)
		}
		if err == nil {
			err = a.Client.DeleteUnchanged(ctx, ref, uid, last.GetResourceVersion())
		}
		if err == nil || apierrors.IsNotFound(err) {
			return true, nil
		}
		if !isGone(err) {
			return false, err
		}
		// Another uid, or another version: a controller touched it, or it was released.
		found, failed := a.Client.Get(ctx, ref)
		switch {
		case apierrors.IsNotFound(failed):
			return true, nil
		case failed != nil:
			return false, failed
		case found.GetUID() != uid || found.GetDeletionTimestamp() != nil:
			return true, nil
		case !Held(found):
			return false, nil
		}
		workload = found
	}
	return false, err
}

// isGone tells whether a write with a uid failed since the object of that uid is there no more. A
// DELETE is refused with 409 then. A PATCH is not checked against a precondition: it is refused with 422,
// since it would change the uid of the object that has the name now.
func isGone(err error) bool {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field == "metadata.uid" })
}

// retryable is a refusal that time alone may lift.
func retryable(format string, args ...any) *api.Error {
	e := api.Errorf(api.SubmitterOverloaded, format, args...)
	e.RetryAfter = retrySoon
	return e
}
