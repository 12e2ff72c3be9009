package completion

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

const (
	// AnnotationOutcome holds an outcome that the object's state does not hold, from before it is sent.
	AnnotationOutcome = "flint.dev/outcome"
	// Finalizer keeps a workload until its event is acknowledged: there would be nothing left to be pending. With
	// Settings.TellDeleted it is on all from their birth on. Without, it goes on what Flint withdraws or cancels, right
	// before the deletion, and a pass takes it off what lives.
	Finalizer = launch.Finalizer
)

// record is the value of AnnotationOutcome.
type record struct {
	// UID is the workload's: an annotation from a template or of an earlier incarnation is none.
	UID        types.UID  `json:"uid"`
	Outcome    string     `json:"outcome"`
	Reason     api.Reason `json:"reason"`
	Message    string     `json:"message,omitempty"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Withdrawal is true for an abandoned workload: it counts once the workload is being deleted.
	Withdrawal bool `json:"withdrawal,omitempty"`
}

// recordOf is the outcome that was recorded on the object, or nil.
func recordOf(object *unstructured.Unstructured) (outcome *Outcome, withdrawal bool) {
	text, found := object.GetAnnotations()[AnnotationOutcome]
	if !found {
		return nil, false
	}
	var r record
	if json.Unmarshal([]byte(text), &r) != nil || r.UID != object.GetUID() || !r.canBe() {
		return nil, false
	}
	o := Outcome{Outcome: r.Outcome, Reason: r.Reason, Message: brief(r.Message), GivenUp: !r.Withdrawal}
	if r.StartedAt != nil {
		o.StartedAt = *r.StartedAt
	}
	if r.FinishedAt != nil {
		o.FinishedAt = *r.FinishedAt
	}
	return &o, r.Withdrawal
}

// canBe tells whether Flint may have written the record: whoever may patch the workload may write anything there.
func (r *record) canBe() bool {
	is := func(t *time.Time) bool { return t == nil || Time(*t) != nil }
	return r.Outcome == api.Failed && r.Reason != api.ReasonCompleted && slices.Contains(api.Reasons(), r.Reason) && is(r.StartedAt) && is(r.FinishedAt)
}

// record writes the outcome onto the object, if nobody has changed it since it was read, and with a withdrawal
// the finalizer. It gives the object as it is then: nil if it is gone or another has told of it.
func (p *pass) record(ctx context.Context, object *unstructured.Unstructured, o Outcome, withdrawal bool) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(record{
		UID: object.GetUID(), Outcome: o.Outcome, Reason: o.Reason, Message: o.Message,
		StartedAt: Time(o.StartedAt), FinishedAt: Time(o.FinishedAt), Withdrawal: withdrawal,
	})
	if err != nil {
		return object, fmt.Errorf("write the outcome of %s: %w", kube.RefOf(object.GetNamespace(), object), err)
	}
	metadata := map[string]any{"annotations": map[string]any{AnnotationOutcome: string(text)}}
	if withdrawal {
		metadata["finalizers"] = withFinalizer(object)
	}
	return p.write(ctx, object, map[string]any{"metadata": metadata})
}

// kept tells whether our finalizer is on the object. Once it is gone, whoever took it off has told of its end.
func kept(object *unstructured.Unstructured) bool {
	return slices.Contains(object.GetFinalizers(), Finalizer)
}

func withFinalizer(object *unstructured.Unstructured) []string {
	finalizers := slices.Clone(object.GetFinalizers())
	if kept(object) {
		return finalizers
	}
	return append(finalizers, Finalizer)
}

// Keep is the merge patch that goes before the deletion of a workload, or nil where none is needed: its end was told, it
// is being deleted, or kept. With the finalizer on it, what a deletion leaves of the workload stays
// until its event was acknowledged, and its state then tells its end: nothing is lost if whoever deleted it is. The
// patch holds for the workload as it was read.
func Keep(workload *unstructured.Unstructured) []byte {
	if !pending(workload) || kept(workload) || workload.GetDeletionTimestamp() != nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": workload.GetUID(), "resourceVersion": workload.GetResourceVersion(), "finalizers": withFinalizer(workload),
	}})
	if err != nil { // strings always marshal
		panic(err)
	}
	return patch
}

// settle makes a workload that nobody deletes what it is to be: without the record of a withdrawal, for its launch came back; and with
// the finalizer, or without, as the settings say: they may have changed, another instance may have others, and whoever was to delete
// it may have been stopped. What is held is its launch's to withdraw, and gets none here; what has ended keeps what it has until
// that was told. An instance of other settings would undo it: so it is done once in IntervalMax, and not in every look.
// It gives the object as it is then. A change by another meanwhile is IsConflict.
func (p *pass) settle(ctx context.Context, object *unstructured.Unstructured, ended bool) (*unstructured.Unstructured, error) {
	_, withdrawal := recordOf(object)
	may := p.maySettle(object.GetUID())
	put := p.settings.TellDeleted && !kept(object) && !launch.Held(object) && may
	take := !p.settings.TellDeleted && kept(object) && !ended && may
	if object.GetDeletionTimestamp() != nil || !withdrawal && !put && !take {
		return object, nil
	}
	metadata := map[string]any{}
	if withdrawal {
		metadata["annotations"] = map[string]any{AnnotationOutcome: nil}
	}
	if put {
		metadata["finalizers"] = withFinalizer(object)
	}
	if take {
		releaseFrom(object, metadata)
	}
	settled, err := p.write(ctx, object, map[string]any{"metadata": metadata})
	if settled == nil || err != nil { // gone: the next look sees to what that means
		return object, err
	}
	if put || take {
		p.state.mu.Lock()
		p.state.settled[object.GetUID()] = p.clock().Now()
		p.state.mu.Unlock()
	}
	return settled, nil
}

func (p *pass) maySettle(uid types.UID) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	last, settled := p.state.settled[uid]
	return !settled || p.clock().Since(last) >= p.settings.IntervalMax
}

// left tells whether the finalizer is on what its label says was told. Whoever takes it off writes both at once: somebody else has
// written the label, and nobody would see the workload again.
func left(object *unstructured.Unstructured) bool {
	return launch.Ours(object) && object.GetLabels()[launch.LabelCompletion] == Sent && kept(object)
}

// letGo takes the finalizer off such a workload: nobody tells of it any more.
func (p *pass) letGo(ctx context.Context, object *unstructured.Unstructured) {
	if !left(object) {
		return
	}
	if _, err := p.mark(ctx, object); err != nil {
		p.fail(err)
	}
}

// releaseFrom adds to a patch's metadata that our finalizer goes. A merge patch has the whole list; the version
// that goes with it sees to it that nobody else's is lost.
func releaseFrom(object *unstructured.Unstructured, metadata map[string]any) {
	if kept(object) {
		metadata["finalizers"] = slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool { return f == Finalizer })
	}
}

// write sends a merge patch that holds for the object as it was read: a change by another since then is
// IsConflict. The answer is nil, without an error, if the object is gone, or another has its name.
func (p *pass) write(ctx context.Context, object *unstructured.Unstructured, patch map[string]any) (*unstructured.Unstructured, error) {
	metadata, _ := patch["metadata"].(map[string]any)
	metadata["uid"], metadata["resourceVersion"] = object.GetUID(), object.GetResourceVersion()
	ref := kube.RefOf(object.GetNamespace(), object)
	body, err := json.Marshal(patch)
	if err != nil {
		return object, fmt.Errorf("patch %w", named(err, ref))
	}
	// What was begun is finished: a kill is the only thing that should leave it undone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.settings.CallTimeout)
	defer cancel()
	patched, err := p.Client.Patch(ctx, ref, types.MergePatchType, body)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return object, fmt.Errorf("patch %w", named(err, ref))
	}
	// The answer is metadata; spec and status are what they were in that version.
	whole := &unstructured.Unstructured{Object: map[string]any{}}
	for field, value := range object.Object {
		whole.Object[field] = value
	}
	whole.Object["metadata"] = patched.Object["metadata"]
	return whole, nil
}

// withdraw takes an abandoned workload away and gives its outcome, once it is sure that it does not run. The
// finalizer goes on first, so that a kill, or a sink that is down, leaves something to go on from; when
// the workload was released meanwhile, nothing is told.
func (p *pass) withdraw(ctx context.Context, object *unstructured.Unstructured, recorded *Outcome) (*Outcome, *unstructured.Unstructured, error) {
	if recorded == nil {
		o := Outcome{
			Outcome: api.Failed, Reason: api.ReasonDeleted, FinishedAt: p.clock().Now().UTC(),
			Message: "its launch was never completed, and nobody has taken it up again: it was withdrawn before it ran",
		}
		marked, err := p.record(ctx, object, o, true)
		if apierrors.IsConflict(err) {
			return nil, object, nil // it changed: the next pass looks again
		}
		if marked == nil || err != nil {
			return nil, marked, err
		}
		recorded, object = &o, marked
	}
	ref := kube.RefOf(object.GetNamespace(), object)
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.settings.CallTimeout)
	defer cancel()
	gone, err := p.applier().Withdraw(limited, object.GetNamespace(), object)
	if err != nil {
		return nil, object, fmt.Errorf("withdraw %w", named(err, ref))
	}
	found, err := p.get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err) || err == nil && found.GetUID() != object.GetUID():
		return nil, nil, nil // whoever took the finalizer has told of it
	case err != nil:
		return nil, object, fmt.Errorf("look at %w", named(err, ref))
	case !gone:
		found, err = p.settle(ctx, found, false)
		if apierrors.IsConflict(err) {
			return nil, found, nil
		}
		return nil, found, err
	}
	p.count(func(s *Stats) { s.Withdrawn++ })
	p.log().Info("abandoned launch withdrawn", "kind", ref.Kind, "namespace", ref.Namespace, "name", ref.Name, "uid", object.GetUID())
	return recorded, found, nil
}
