// Package completion tells when a workload that Flint launched has ended: it looks for
// what is pending, decides how it ended, sends one CloudEvent about it and notes that it was sent.
//
// The state of the objects is the truth. A workload is born with the label
// flint.dev/completion=pending; only when a sink has acknowledged its event is the label patched to
// "sent". Nothing else is needed to go on: what ended while no instance ran is found by the next
// pass, and what has been told is never listed again, so that a pass costs what is pending and not what has ever run.
//
// Delivery is at least once. An event may come twice, after a lost answer, or a kill between
// acknowledgement and note, or from two instances at once; every repeat has the same id, the workload's
// uid and its outcome. There is no lease: two instances overlap whenever Knative drains
// one, a lease does not end that (its holder may hang amid a send), and the worst of two passes at once is a repeat.
//
// An outcome does not change its mind. Where the object's own state is not final (a bound of the
// policy has passed, or an abandoned launch is withdrawn), the outcome is written into the annotation
// flint.dev/outcome before it is sent, and holds for every later pass.
//
// What is gone cannot be listed. So what Flint itself deletes before its end was told, by a cancel or a withdrawal, is kept
// by a finalizer until it was; with Settings.TellDeleted, all that was launched is. Without, a workload that others deleted before its
// event was sent is told as failed, never as succeeded unless it was seen to succeed, by what is left of it: see One, and Pass.
package completion

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/startup"
)

// Sent is the value of the label flint.dev/completion once the workload's event was acknowledged.
const Sent = "sent"

// Sender delivers one event. Nil means that it was acknowledged. It ends with the context, and may be
// called by several goroutines at once.
type Sender interface {
	Send(ctx context.Context, e event.Event) error
}

// Settings of a Poller. The zero value is good.
type Settings struct {
	// Bounds end what does not end by itself.
	Bounds Bounds
	// TellDeleted keeps what was launched, with the Finalizer, until its end was told, whoever deletes it. Whoever launches is to
	// have it too (launch.Applier): what is born without is kept from the next look on.
	TellDeleted bool
	// JobTTL becomes the ttlSecondsAfterFinished of a Job whose event was acknowledged, if it has none of its
	// own. Zero leaves Jobs as they are.
	JobTTL time.Duration
	// PageSize is the most objects of one list. Zero means 500.
	PageSize int64
	// Concurrency is how many objects of a page are worked on at once. Zero means 8.
	Concurrency int
	// SendTimeout bounds one delivery with all its retries, CallTimeout one call to the API server. Zero means 30 s and 10 s.
	SendTimeout, CallTimeout time.Duration
	// MaxFailures in a row, and the sink is left alone for a while. Zero means 5.
	MaxFailures int
	// RetryMin is how long the sink, or one event, is left alone at first; it doubles, up to RetryMax for an event and
	// to IntervalMax for the sink. Zero means 1 s and 2 min.
	RetryMin, RetryMax time.Duration
	// IntervalMin is from one pass to the next while anything is pending; it doubles up to IntervalMax while
	// nothing is, or a list fails. Zero means 2 s and 30 s.
	IntervalMin, IntervalMax time.Duration
}

// fill puts the defaults in.
func (s Settings) fill() Settings {
	s.PageSize = or(s.PageSize, 500)
	s.Concurrency = or(s.Concurrency, 8)
	s.SendTimeout = or(s.SendTimeout, 30*time.Second)
	s.CallTimeout = or(s.CallTimeout, 10*time.Second)
	s.MaxFailures = or(s.MaxFailures, 5)
	s.RetryMin = or(s.RetryMin, time.Second)
	s.RetryMax = or(s.RetryMax, 2*time.Minute)
	s.IntervalMin = or(s.IntervalMin, 2*time.Second)
	s.IntervalMax = or(s.IntervalMax, 30*time.Second)
	return s
}

func or[T int | int64 | time.Duration](value, standard T) T {
	if value > 0 {
		return value
	}
	return standard
}

const (
	// maxRestarts is how often one list starts anew in one pass, when its pages expire.
	maxRestarts = 5
	// maxAttempts is how often one pass tries to note a delivery on an object that others change.
	maxAttempts = 5
	// maxTold is of how many workloads it is remembered at least that their end was told: far more than are told
	// while the oldest copy of one is in some pass's hands.
	maxTold = 10_000
	// allNamespaces among Namespaces stands for every one.
	allNamespaces = "*"
)

// Poller looks for ended workloads and has their events sent. Its methods may be called at the
// same time, and so may those of other Pollers on the same cluster.
type Poller struct {
	Client kube.Client
	Sender Sender
	// Applier takes abandoned workloads away. Nil means one of Client and Clock.
	Applier *launch.Applier
	// Clock is for ages and waits. Nil means the real one. The deadlines of calls are the context's own.
	Clock clock.Clock
	// Source of the events: the same URI in every instance, for ever.
	Source string
	// Namespaces that are looked at; "*" is every one, with two lists in all.
	Namespaces []string
	Settings   Settings
	// Result gives the whole result of a file job of which the pod's status has a part; nil where it is too long for an
	// event. Nil means that the part is sent.
	Result func(ctx context.Context, of Subject, partial api.FilePartial) (json.RawMessage, error)
	// Tend, if not nil, is shown each pending workload before it is judged, and gives it as it is then, or nil if it is
	// gone: it may have given it up. An error leaves the workload for the next pass.
	Tend func(ctx context.Context, workload *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Refused tells an error of Sender by which the sink, alive, will not take this one event from one that
	// says something of the sink. Nil means that no error is such.
	Refused func(error) bool
	// Log gets a line for each completion. Nil means none.
	Log *slog.Logger
	// Observe, if not nil, is told of each acknowledged event, Passed of each pass. They must not block.
	Observe func(Subject, Outcome)
	Passed  func(stats Stats, took time.Duration, err error)

	state state
}

// state is what a Poller remembers. All of it may be lost with the process: an event is then sent
// again, or sooner.
type state struct {
	once sync.Once
	wake chan struct{}

	passes Flight[Stats]

	mu       sync.Mutex
	busy     map[types.UID]chan struct{} // some goroutine works on it, until the channel is closed
	acked    map[types.UID]bool          // acknowledged, and not noted yet
	told     told
	retries  map[types.UID]retry     // what failed
	settled  map[types.UID]time.Time // when the finalizer went on, or off, by the settings
	memories map[types.UID]memory    // what was pending when it was last seen
	sink     breaker                 // the sink's health
	complete time.Time               // when the last pass that saw everything began
	lost     map[types.UID]farewell  // events of what is gone, not acknowledged yet
}

// told has the workloads that were told last, maxTold to twice as many: a copy of one that was read before is old.
type told struct{ new, old map[types.UID]bool }

func (t *told) has(uid types.UID) bool { return t.new[uid] || t.old[uid] }

func (t *told) add(uid types.UID) {
	if len(t.new) >= maxTold {
		t.new, t.old = nil, t.new
	}
	if t.new == nil {
		t.new = map[types.UID]bool{}
	}
	t.new[uid] = true
}

// retry is when something that failed is tried again.
type retry struct {
	at    time.Time
	delay time.Duration
}

// memory is of a workload that is pending.
type memory struct {
	subject Subject
	seen    time.Time
	doomed  *Outcome // of one that was being deleted: how it ends if no more is seen of it
	kept    bool     // our finalizer was on it
	outcome *Outcome // of one that has ended, and whose event is not acknowledged
}

// farewell is an event about what is gone: it has no object to be pending on.
type farewell struct {
	subject Subject
	outcome Outcome
}

// Stats of a pass.
type Stats struct {
	Listed    int // objects in the pages
	Foreign   int // of these, not Flint's, or not in order
	Pending   int // of Flint's, those left pending: running, or their event not acknowledged
	Sent      int // events acknowledged, and noted
	Repeated  int // events acknowledged, of what another had told meanwhile
	Unsent    int // deliveries that failed
	Deferred  int // events not tried, since they or the sink failed of late
	Unmarked  int // acknowledged events whose note failed
	Withdrawn int // abandoned workloads taken away
	Vanished  int // workloads that were pending and are gone
	Restarts  int // lists that started anew after 410
	Outcomes  map[api.Reason]int
	// Incomplete is true when a list failed: there may be more.
	Incomplete bool
}

func (p *Poller) init() {
	p.state.once.Do(func() {
		s := &p.state
		s.wake = make(chan struct{}, 1)
		s.busy, s.acked = map[types.UID]chan struct{}{}, map[types.UID]bool{}
		s.retries, s.memories, s.lost = map[types.UID]retry{}, map[types.UID]memory{}, map[types.UID]farewell{}
		s.settled = map[types.UID]time.Time{}
	})
}

func (p *Poller) clock() clock.Clock {
	if p.Clock == nil {
		return clock.RealClock{}
	}
	return p.Clock
}

func (p *Poller) applier() *launch.Applier {
	if p.Applier == nil {
		return &launch.Applier{Client: p.Client, Clock: p.clock()}
	}
	return p.Applier
}

func (p *Poller) log() *slog.Logger {
	if p.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return p.Log
}

// Run makes one pass after the other until the context ends: the next one after IntervalMin while anything is
// pending, later and later while nothing is or a list fails. A pass that fails is not the last, nor one in which the sender or an
// object makes it panic.
func (p *Poller) Run(ctx context.Context) {
	p.init()
	settings := p.Settings.fill()
	interval := settings.IntervalMin
	for ctx.Err() == nil {
		stats, err := p.Pass(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.log().Warn("a pass over pending launches failed", "error", err.Error())
		}
		if stats.Pending > 0 && !stats.Incomplete {
			interval = settings.IntervalMin
		}
		timer := p.clock().NewTimer(interval)
		interval = min(2*interval, settings.IntervalMax)
		select {
		case <-ctx.Done():
		case <-timer.C():
		case <-p.state.wake:
			interval = settings.IntervalMin
		}
		timer.Stop()
	}
}

// Wake makes Run look at once, and often: after a launch. It does not block.
func (p *Poller) Wake() {
	p.init()
	select {
	case p.state.wake <- struct{}{}:
	default:
	}
}

// Complete is when the last pass that saw everything began, for a health report; zero before the first.
func (p *Poller) Complete() time.Time {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.complete
}

// pass is one call of Pass or One.
type pass struct {
	*Poller
	settings Settings
	began    time.Time

	mu     sync.Mutex
	stats  Stats
	errs   []error
	looked map[types.UID]bool

	waits candidate // guarded by state.mu
	last  bool      // nothing else comes in this pass
}

func (p *Poller) begin() *pass {
	p.init()
	return &pass{
		Poller: p, settings: p.Settings.fill(), began: p.clock().Now(),
		stats: Stats{Outcomes: map[api.Reason]int{}}, looked: map[types.UID]bool{},
	}
}

func (p *pass) end() (Stats, error) {
	return p.stats, errors.Join(p.errs...)
}

// count changes the statistics.
func (p *pass) count(change func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.stats)
}

func (p *pass) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

// Pass looks once at all that is pending, in every namespace, page by page, and sends what has
// ended. The error joins what the API server refused; the sink's failures are in Stats alone. Neither keeps
// the pass from what else there is: what was not seen or sent stays pending.
//
// A workload that this Poller has seen pending and that is gone is told too, if what was seen tells its end: as it had
// ended; or as failed, Deleted, if it was being deleted. If it was alive nothing is said: another instance may
// have told of its end before it went, and its label, which would say so, went with it. One has that label, in the
// last state that an ApiServerSource's event carries.
//
// There is one pass at a time. Whoever asks while one runs waits for the next, one for all who do.
func (p *Poller) Pass(ctx context.Context) (Stats, error) {
	p.init()
	return p.state.passes.Do(ctx, p.lookAtAll)
}

func (p *Poller) lookAtAll(ctx context.Context) (Stats, error) {
	pass := p.begin()
	pass.farewells(ctx)
	for _, namespace := range pass.places() {
		for _, kind := range []kube.Ref{
			{APIVersion: "v1", Kind: "Pod", Namespace: namespace},
			{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace},
		} {
			if err := pass.list(ctx, kind); err != nil {
				pass.fail(err)
				pass.count(func(s *Stats) { s.Incomplete = true })
				continue
			}
			pass.vanished(ctx, kind)
		}
	}
	pass.tryWaiting()
	stats, err := pass.end()
	if !stats.Incomplete {
		p.state.mu.Lock()
		p.state.complete = pass.began
		p.state.mu.Unlock()
	}
	if p.Passed != nil {
		p.Passed(stats, p.clock().Since(pass.began), err)
	}
	return stats, err
}

// places are the namespaces to list, or one that stands for all.
func (p *pass) places() []string {
	if slices.Contains(p.Namespaces, allNamespaces) {
		return []string{""}
	}
	return p.Namespaces
}

// list works on all pending objects of the kind. Pages are worked on as they come. When the rest of them has expired
// (410: the version they belong to was compacted away), the list starts anew; what was looked at in this pass is not
// looked at again.
func (p *pass) list(ctx context.Context, kind kube.Ref) error {
	options := kube.ListOptions{LabelSelector: launch.LabelCompletion + "=" + launch.CompletionPending, Limit: p.settings.PageSize}
	for restarts := 0; ; {
		page, err := p.read(ctx, kind, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Continue != "" && restarts < maxRestarts:
			restarts++
			options.Continue = ""
			p.count(func(s *Stats) { s.Restarts++ })
			continue
		case err != nil:
			return fmt.Errorf("list pending %w", named(err, kind))
		}
		p.each(ctx, page.Items)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("list pending %w", named(err, kind))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

func named(err error, ref kube.Ref) error { return fmt.Errorf("%s: %w", ref, err) }

func (p *pass) read(ctx context.Context, kind kube.Ref, options kube.ListOptions) (*kube.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.CallTimeout)
	defer cancel()
	return p.Client.List(ctx, kind, options)
}

// each looks at the objects, a few at a time.
func (p *pass) each(ctx context.Context, objects []*unstructured.Unstructured) {
	slots := make(chan struct{}, p.settings.Concurrency)
	var wg sync.WaitGroup
	for _, object := range objects {
		p.count(func(s *Stats) { s.Listed++ })
		if p.looked[object.GetUID()] {
			continue
		}
		p.looked[object.GetUID()] = true
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			p.guarded(ctx, object)
		})
	}
	wg.Wait()
}

// guarded is look, and outlives what one object may do to it.
func (p *pass) guarded(ctx context.Context, object *unstructured.Unstructured) {
	defer func() {
		if r := recover(); r != nil {
			p.fail(fmt.Errorf("look at %s: panic: %v", kube.RefOf(object.GetNamespace(), object), r))
			p.log().Error("panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
	}()
	p.look(ctx, object)
}

// pending tells whether the object is a workload of Flint's whose end is to be told.
func pending(object *unstructured.Unstructured) bool {
	known := slices.Contains([]launch.Kind{launch.Spark, launch.File, launch.Runner}, launch.Kind(object.GetLabels()[launch.LabelKind]))
	return known && launch.Ours(object) && object.GetLabels()[launch.LabelCompletion] == launch.CompletionPending
}

// look works on one object that was read whole.
func (p *pass) look(ctx context.Context, object *unstructured.Unstructured) {
	if !pending(object) {
		p.count(func(s *Stats) { s.Foreign++ })
		p.letGo(ctx, object)
		return
	}
	uid := object.GetUID()
	if !p.take(ctx, uid) {
		p.count(func(s *Stats) { s.Pending++ })
		return
	}
	defer p.release(uid)
	if p.wasTold(uid) { // the object is a copy from before
		return
	}
	seen := object
	outcome, object, err := p.decide(ctx, seen)
	if object != nil {
		seen = object
	}
	p.remember(seen, outcome)
	if err != nil {
		p.fail(err)
	}
	done := object == nil || outcome != nil && p.tell(ctx, object, *outcome)
	if done {
		p.forget(uid)
		return
	}
	p.count(func(s *Stats) { s.Pending++ })
}

// take makes this goroutine the only one of this process that works on the object. It waits for another that does, which
// may have an older copy of it: false means that the context has ended first.
func (p *Poller) take(ctx context.Context, uid types.UID) bool {
	for {
		p.state.mu.Lock()
		free, busy := p.state.busy[uid]
		if !busy {
			p.state.busy[uid] = make(chan struct{})
		}
		p.state.mu.Unlock()
		if !busy {
			return true
		}
		select {
		case <-free:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *Poller) release(uid types.UID) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	close(p.state.busy[uid])
	delete(p.state.busy, uid)
}

func (p *Poller) wasTold(uid types.UID) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.told.has(uid)
}

func (p *Poller) remember(object *unstructured.Unstructured, o *Outcome) {
	uid := object.GetUID()
	m := memory{subject: SubjectOf(object), seen: p.clock().Now(), kept: kept(object), outcome: o}
	if object.GetDeletionTimestamp() != nil {
		doomed := lostOutcome(object, m.seen)
		m.doomed = &doomed
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	if _, farewell := p.state.lost[uid]; farewell {
		return // it is gone, and this is an older copy of it
	}
	if before, ok := p.state.memories[uid]; ok { // a copy may be older than what is known: neither is ever taken back
		m.doomed = cmp.Or(m.doomed, before.doomed)
		if m.outcome == nil {
			m.outcome = before.outcome
		}
	}
	p.state.memories[uid] = m
}

func (p *Poller) forget(uid types.UID) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	delete(p.state.memories, uid)
	delete(p.state.retries, uid)
	delete(p.state.acked, uid)
	delete(p.state.settled, uid)
	delete(p.state.lost, uid)
}

// decide tells how the workload ended, or nil if it has not. The object is as it is after what decide wrote to
// it, or nil if another has told of it meanwhile.
func (p *pass) decide(ctx context.Context, object *unstructured.Unstructured) (*Outcome, *unstructured.Unstructured, error) {
	if p.Tend != nil {
		tended, err := p.Tend(ctx, object)
		switch {
		case err != nil:
			return nil, object, fmt.Errorf("tend %w", named(err, kube.RefOf(object.GetNamespace(), object)))
		case tended == nil:
			return nil, nil, nil
		}
		object = tended
	}
	if p.applier().Abandoned(object) {
		recorded, withdrawal := recordOf(object)
		if !withdrawal {
			recorded = nil
		}
		return p.withdraw(ctx, object, recorded)
	}
	p.endPods(ctx, object)
	outcome, recorded := Recorded(object)
	ended := recorded
	if !recorded {
		var err error
		if outcome, ended, err = p.outcome(ctx, object); err != nil {
			return nil, object, err
		}
	}
	settled, err := p.settle(ctx, object, ended)
	switch {
	case err == nil:
		object = settled
	case recorded, ended && !outcome.GivenUp: // that holds, whatever the object can be made
	case apierrors.IsConflict(err):
		return nil, object, nil // it changed: the next pass looks again
	default:
		return nil, object, err
	}
	if !ended {
		return nil, object, nil
	}
	if outcome.GivenUp && !recorded {
		noted, err := p.record(ctx, object, outcome, false)
		switch {
		case apierrors.IsConflict(err):
			return nil, object, nil // it changed: the next pass looks again
		case noted == nil || err != nil:
			return nil, noted, err
		}
		object = noted
	}
	return &outcome, object, nil
}

// outcome reads how the workload ended. A Job's pods are asked for when it has ended, or may be stuck.
func (p *pass) outcome(ctx context.Context, object *unstructured.Unstructured) (Outcome, bool, error) {
	now := p.clock().Now()
	if object.GetKind() == "Pod" {
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
			return Outcome{}, false, fmt.Errorf("read Pod %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
		outcome, ended := OfPod(pod, p.settings.Bounds, now)
		return outcome, ended, nil
	}
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job); err != nil {
		return Outcome{}, false, fmt.Errorf("read Job %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	outcome, ended := OfJob(job, nil, p.settings.Bounds, now)
	bounds := p.settings.Bounds
	bounded := bounds.ImagePull > 0 || bounds.ConfigError > 0 || bounds.Unschedulable > 0
	ready := job.Status.Ready != nil && *job.Status.Ready > 0 // no bound is for what runs
	if !ended && (!bounded || ready || launch.Held(object)) {
		return Outcome{}, false, nil
	}
	pods, err := p.podsOf(ctx, job)
	if err != nil {
		if ended && job.Labels[launch.LabelKind] != string(launch.File) { // the Job itself has said the most of it
			p.log().Warn("a Job's pods cannot be listed", "namespace", job.Namespace, "job", job.Name, "error", err.Error())
			return outcome, true, nil
		}
		return Outcome{}, false, err
	}
	outcome, ended = OfJob(job, pods, p.settings.Bounds, now)
	return outcome, ended, nil
}

func (p *pass) podsOf(ctx context.Context, job *batchv1.Job) ([]corev1.Pod, error) {
	kind := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: job.Namespace}
	options := kube.ListOptions{LabelSelector: batchv1.ControllerUidLabel + "=" + string(job.UID), Limit: p.settings.PageSize}
	page, err := p.read(ctx, kind, options) // a Job of Flint's has one pod, or a few: one page
	if err != nil {
		return nil, fmt.Errorf("list the pods of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	pods := make([]corev1.Pod, len(page.Items))
	for i, item := range page.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pods[i]); err != nil {
			return nil, fmt.Errorf("read Pod %s/%s: %w", item.GetNamespace(), item.GetName(), err)
		}
	}
	return pods, nil
}

// One looks at one workload, as an event of an ApiServerSource names it. last is its state in that event, or nil.
//
// While the object is there, its own state counts, and last is not looked at. When it is gone, or another has
// its name, last is the evidence, if its label says that its end was not told: how it ended, if it
// had ended; failed, Deleted, if it was being deleted; failed, Unknown, otherwise. With the finalizer on it, it was told before
// it went. Without last
// it is what this Poller remembers, by the rules of Pass, and otherwise nothing can be said: an id needs a uid, and a
// failure needs to know that no success was told.
// Of a namespace that is not the Poller's nothing is said. That the object is gone is asked of the API server; for the
// rest of last the caller answers.
func (p *Poller) One(ctx context.Context, ref kube.Ref, last *unstructured.Unstructured) (Stats, error) {
	pass := p.begin()
	pass.last = true
	if !slices.Contains(p.Namespaces, allNamespaces) && !slices.Contains(p.Namespaces, ref.Namespace) {
		return pass.end()
	}
	found, err := pass.get(ctx, ref)
	switch {
	case err == nil:
		pass.count(func(s *Stats) { s.Listed++ })
		pass.guarded(ctx, found)
	case !apierrors.IsNotFound(err):
		pass.fail(fmt.Errorf("look at %w", named(err, ref)))
		return pass.end()
	}
	if found != nil && (last == nil || last.GetUID() == found.GetUID()) {
		return pass.end()
	}
	if last == nil {
		pass.gone(ctx, func(m memory) bool { return m.subject.Ref == ref })
		return pass.end()
	}
	last = last.DeepCopy()
	last.SetNamespace(ref.Namespace)
	if pending(last) && !kept(last) && kube.RefOf(ref.Namespace, last) == ref {
		pass.bury(ctx, last)
	}
	return pass.end()
}

// bury tells of a workload that is gone, by its last state.
func (p *pass) bury(ctx context.Context, last *unstructured.Unstructured) {
	outcome, _ := recordOf(last)
	if outcome == nil {
		p.settings.Bounds = Bounds{}
		o, ended, err := p.outcome(ctx, last)
		if err != nil {
			p.fail(err)
			return
		}
		if !ended {
			o = lostOutcome(last, p.began)
		}
		outcome = &o
	}
	p.mourn(ctx, farewell{SubjectOf(last), *outcome})
}

// lostOutcome is that of a workload that is gone, by what was seen of it last. A drain evicts a pod by deleting it, and
// says so in its DisruptionTarget condition.
func lostOutcome(last *unstructured.Unstructured, now time.Time) Outcome {
	o := Outcome{Outcome: api.Failed, Reason: api.ReasonUnknown, Message: "gone before its end was seen", FinishedAt: now.UTC()}
	if last.GetDeletionTimestamp() == nil {
		return o
	}
	o.Reason, o.Message = api.ReasonDeleted, "deleted before its end was seen"
	pod := &corev1.Pod{}
	if last.GetKind() != "Pod" || runtime.DefaultUnstructuredConverter.FromUnstructured(last.Object, pod) != nil {
		return o
	}
	if why, found := cause(pod); found && why.reason != api.ReasonDeleted {
		o.Reason, o.Message = why.reason, brief(startup.Scrub(cmp.Or(why.message, o.Message), pod.Spec))
	}
	return o
}

// vanished tells of what was pending and, though all of the kind was listed, is not there.
func (p *pass) vanished(ctx context.Context, kind kube.Ref) {
	p.gone(ctx, func(m memory) bool {
		of := m.subject.Ref
		return of.Kind == kind.Kind && of.APIVersion == kind.APIVersion && (kind.Namespace == "" || kind.Namespace == of.Namespace)
	})
}

// gone goes through the memories of which and that this pass has not seen alive.
func (p *pass) gone(ctx context.Context, which func(memory) bool) {
	p.state.mu.Lock()
	var candidates []memory
	for uid, m := range p.state.memories {
		if _, told := p.state.lost[uid]; told {
			continue // its farewell is on its way
		}
		if _, busy := p.state.busy[uid]; !busy && !p.looked[uid] && m.seen.Before(p.began) && which(m) {
			candidates = append(candidates, m)
		}
	}
	p.state.mu.Unlock()
	for _, m := range candidates {
		found, err := p.get(ctx, m.subject.Ref)
		if err != nil && !apierrors.IsNotFound(err) {
			continue // the next pass asks again
		}
		if found != nil && found.GetUID() == m.subject.UID {
			if !pending(found) { // another instance has told of it
				p.letGo(ctx, found)
				p.forget(m.subject.UID)
			}
			continue
		}
		p.forget(m.subject.UID)
		if m.kept {
			continue // whoever took the finalizer off has told
		}
		p.count(func(s *Stats) { s.Vanished++ })
		switch {
		case m.outcome != nil:
			p.mourn(ctx, farewell{m.subject, *m.outcome})
		case m.doomed != nil:
			p.mourn(ctx, farewell{m.subject, *m.doomed})
		default:
			p.log().Warn("a pending launch is gone, and its end was not seen", "namespace", m.subject.Ref.Namespace, "name", m.subject.Ref.Name, "uid", string(m.subject.UID))
		}
	}
}

// farewells tries again what could not be told of what is gone.
func (p *pass) farewells(ctx context.Context) {
	p.state.mu.Lock()
	var all []farewell
	for _, f := range p.state.lost {
		all = append(all, f)
	}
	p.state.mu.Unlock()
	for _, f := range all {
		p.mourn(ctx, f)
	}
}

// mourn sends the event about what is gone. Until it is acknowledged it is kept in memory, the only place
// left for it, and stands for whatever else was remembered of that workload.
func (p *pass) mourn(ctx context.Context, f farewell) {
	uid := f.subject.UID
	p.state.mu.Lock()
	p.state.lost[uid] = f
	delete(p.state.memories, uid)
	p.state.mu.Unlock()
	if !p.take(ctx, uid) {
		return // the next pass sends what is left
	}
	defer p.release(uid)
	if p.wasTold(uid) {
		p.forget(uid)
		return
	}
	if p.deliver(ctx, f.subject, f.outcome, func() { p.mourn(ctx, f) }) {
		p.forget(uid)
		p.state.mu.Lock()
		p.state.told.add(uid)
		p.state.mu.Unlock()
		p.sent(f.subject, f.outcome)
		return
	}
	p.count(func(s *Stats) { s.Pending++ })
}

func (p *pass) get(ctx context.Context, ref kube.Ref) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, p.settings.CallTimeout)
	defer cancel()
	return p.Client.Get(ctx, ref)
}
