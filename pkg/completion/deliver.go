package completion

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// tell sends the event of an ended workload and notes on the object that it was acknowledged. It reports
// whether that was done, by this pass or another. What another has told meanwhile counts as repeated, and is not told twice to
// log and metrics.
func (p *pass) tell(ctx context.Context, object *unstructured.Unstructured, o Outcome) bool {
	subject := SubjectOf(object)
	if !p.acknowledged(subject.UID) {
		if !p.deliver(ctx, subject, o, func() { p.guarded(ctx, object) }) {
			return false
		}
		p.state.mu.Lock()
		p.state.acked[subject.UID] = true
		p.state.mu.Unlock()
	} else if !p.due(subject.UID) {
		p.count(func(s *Stats) { s.Deferred++ })
		return false
	}
	byAnother := false
	err := p.remove(ctx, object, o)
	if err == nil {
		byAnother, err = p.mark(ctx, object)
	}
	if err != nil {
		p.count(func(s *Stats) { s.Unmarked++ })
		p.postpone(subject.UID)
		p.fail(err)
		return false
	}
	p.state.mu.Lock()
	p.state.told.add(subject.UID)
	p.state.mu.Unlock()
	if byAnother {
		p.count(func(s *Stats) { s.Repeated++ })
		return true
	}
	p.sent(subject, o)
	return true
}

// remove deletes what was given up: it would still run, some day, for nobody, after its failure was told.
func (p *pass) remove(ctx context.Context, object *unstructured.Unstructured, o Outcome) error {
	if !o.GivenUp || object.GetDeletionTimestamp() != nil {
		return nil
	}
	ref := kube.RefOf(object.GetNamespace(), object)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.settings.CallTimeout)
	defer cancel()
	if err := p.Client.Delete(ctx, ref, object.GetUID()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %w", named(err, ref))
	}
	return nil
}

// mark patches the label to Sent, and a Job's time to live, in one write. It holds for the version that was read;
// a conflict is read again: gone, or sent by another, is as good. It reports whether another had told of the end before.
func (p *pass) mark(ctx context.Context, object *unstructured.Unstructured) (byAnother bool, err error) {
	for range maxAttempts {
		patch := map[string]any{"metadata": p.sentMetadata(object)}
		if ttl := p.ttl(object); ttl != nil {
			patch["spec"] = map[string]any{"ttlSecondsAfterFinished": *ttl}
		}
		var marked *unstructured.Unstructured
		if marked, err = p.write(ctx, object, patch); err == nil {
			return marked == nil && kept(object), nil
		}
		// A patch with the uid of an earlier incarnation is 422, and a change by another 409.
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return false, err
		}
		ref := kube.RefOf(object.GetNamespace(), object)
		found, failed := p.get(context.WithoutCancel(ctx), ref)
		switch {
		case apierrors.IsNotFound(failed) || failed == nil && found.GetUID() != object.GetUID():
			return kept(object), nil
		case failed != nil:
			return false, fmt.Errorf("look at %w", named(failed, ref))
		case !pending(found) && !left(found):
			return found.GetLabels()[launch.LabelCompletion] == Sent, nil
		}
		object = found
	}
	return false, err
}

func (p *pass) sentMetadata(object *unstructured.Unstructured) map[string]any {
	metadata := map[string]any{"labels": map[string]any{launch.LabelCompletion: Sent}}
	releaseFrom(object, metadata)
	return metadata
}

// ttl is the time to live in seconds that a Job gets, or nil.
func (p *pass) ttl(object *unstructured.Unstructured) *int64 {
	if object.GetKind() != "Job" || p.settings.JobTTL <= 0 || object.GetDeletionTimestamp() != nil {
		return nil
	}
	if _, own, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "ttlSecondsAfterFinished"); own {
		return nil
	}
	seconds := min(int64(math.Ceil(p.settings.JobTTL.Seconds())), math.MaxInt32)
	return &seconds
}

// deliver sends the event once, and reports whether it was acknowledged. It does not try while the event, or the sink,
// is being left alone; again does what led to this call once more.
func (p *pass) deliver(ctx context.Context, subject Subject, o Outcome, again func()) bool {
	now := p.clock().Now()
	if !p.due(subject.UID) || !p.sinkAllows(now, subject.UID, again) {
		p.count(func(s *Stats) { s.Deferred++ })
		return false
	}
	refused, err := p.send(ctx, subject, o, now)
	if err == nil {
		p.state.mu.Lock()
		delete(p.state.retries, subject.UID)
		p.state.mu.Unlock()
		return true
	}
	p.postpone(subject.UID)
	p.count(func(s *Stats) { s.Unsent++ })
	p.log().Warn("completion event not delivered", "id", subject.EventID(o.Outcome),
		"namespace", subject.Ref.Namespace, "name", subject.Ref.Name, "refused", refused, "error", err.Error())
	return false
}

// send makes and sends the event. refused is true for an error that says nothing of the sink.
func (p *pass) send(ctx context.Context, subject Subject, o Outcome, now time.Time) (refused bool, err error) {
	answered := false
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
			p.log().Error("panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
		p.sinkAnswered(answered, ctx.Err() != nil)
	}()
	o.Result = p.whole(ctx, subject, o.Result)
	e, err := NewEvent(p.Source, subject, o, now)
	if err != nil {
		answered = true
		return true, err
	}
	sending, cancel := context.WithTimeout(ctx, p.settings.SendTimeout)
	defer cancel()
	err = p.Sender.Send(sending, e)
	refused = err != nil && p.Refused != nil && p.Refused(err)
	answered = err == nil || refused
	return refused, err
}

// whole is all of a file job's result where the pod's status has a part of it, if it can be had and is not too long.
func (p *pass) whole(ctx context.Context, subject Subject, told json.RawMessage) json.RawMessage {
	var part struct {
		Partial *api.FilePartial `json:"partial"`
	}
	if p.Result == nil || subject.Kind != launch.File || json.Unmarshal(told, &part) != nil || part.Partial == nil {
		return told
	}
	ctx, cancel := context.WithTimeout(ctx, p.settings.CallTimeout)
	defer cancel()
	whole, err := p.Result(ctx, subject, *part.Partial)
	if err != nil {
		p.log().Warn("a result is told in part", "namespace", subject.Ref.Namespace, "name", subject.Ref.Name, "error", err.Error())
	}
	if whole == nil {
		return told
	}
	return whole
}

// sent notes an acknowledged event.
func (p *pass) sent(subject Subject, o Outcome) {
	p.count(func(s *Stats) { s.Sent++; s.Outcomes[o.Reason]++ })
	p.log().Info("completion", "kind", string(subject.Kind), "namespace", subject.Ref.Namespace, "name", subject.Ref.Name,
		"uid", string(subject.UID), "submission_id", subject.SubmissionID, "outcome", o.Outcome, "reason", string(o.Reason))
	if p.Observe != nil {
		p.Observe(subject, o)
	}
}

func (p *Poller) acknowledged(uid types.UID) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.acked[uid]
}

// due tells whether the workload's event, or the note of it, may be tried.
func (p *Poller) due(uid types.UID) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return !p.clock().Now().Before(p.state.retries[uid].at)
}

// postpone leaves one event alone for a while, so that what cannot be sent does not stand before what can.
func (p *pass) postpone(uid types.UID) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.state.retries[uid] = p.state.retries[uid].next(p.clock().Now(), p.settings.RetryMin, p.settings.RetryMax)
}

func (r retry) next(now time.Time, least, most time.Duration) retry {
	r.delay = min(max(2*r.delay, least), most)
	r.at = now.Add(r.delay)
	return r
}

// breaker is the health of the sink: after some failures in a row it is left alone for a while, then tried with one
// event. That is one that has not failed yet, if a pass meets any, else the one that has waited longest: events that
// the sink will never take stand before no other, however many they are.
type breaker struct {
	failures int
	retry    retry
	trial    bool // an event is under way to find out
}

// candidate is the event to try the sink with when the pass has met none that has not failed.
type candidate struct {
	since time.Time
	again func()
}

func (p *pass) sinkAllows(now time.Time, uid types.UID, again func()) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	b := &p.state.sink
	if b.failures < p.settings.MaxFailures {
		return true
	}
	if b.trial || now.Before(b.retry.at) {
		return false
	}
	if failed, found := p.state.retries[uid]; found && !p.last {
		if p.waits.again == nil || failed.at.Before(p.waits.since) {
			p.waits = candidate{failed.at, again}
		}
		return false
	}
	b.trial = true
	return true
}

// tryWaiting tries the sink with the candidate, if nothing else has.
func (p *pass) tryWaiting() {
	p.last = true
	if p.waits.again == nil {
		return
	}
	p.count(func(s *Stats) { s.Deferred--; s.Pending-- }) // it is counted again
	p.waits.again()
}

// sinkAnswered notes that the sink did, or did not. What our own end has cut off tells nothing of it.
func (p *pass) sinkAnswered(well, stopped bool) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	b := &p.state.sink
	b.trial = false
	switch {
	case well:
		*b = breaker{}
	case !stopped:
		b.failures++
		if b.failures >= p.settings.MaxFailures {
			b.retry = b.retry.next(p.clock().Now(), p.settings.RetryMin, p.settings.IntervalMax)
		}
	}
}
