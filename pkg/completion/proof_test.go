package completion_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/launch"
)

// process is one life of a Poller: it ends at its nth call, to the API server or the sink, and from then on every
// call fails at once, unsent. With lost, the nth call is done, and only its answer does not come.
type process struct {
	calls  atomic.Int64
	dies   int64 // 0: never
	lost   bool
	events completion.Sender
	// expired tells whether a page is answered 410.
	expired func() bool
	// between, if not nil, is done before each call.
	between func()
	api     http.RoundTripper
}

// call does one call. dead stands for an answer that nobody waits for.
func (p *process) call(do func(), dead func()) {
	if p.between != nil {
		p.between()
	}
	n := p.calls.Add(1)
	switch {
	case p.dies == 0 || n < p.dies:
		do()
	case n == p.dies && p.lost:
		do()
		dead()
	default:
		dead()
	}
}

func (p *process) RoundTrip(r *http.Request) (response *http.Response, err error) {
	p.call(func() {
		if r.URL.Query().Get("continue") != "" && p.expired != nil && p.expired() {
			response = refuse(r, http.StatusGone, string(metav1.StatusReasonExpired)) //nolint:bodyclose // the caller's, or drained below
			return
		}
		response, err = p.api.RoundTrip(r) //nolint:bodyclose // the caller's, or drained below
	}, func() {
		if response != nil {
			drain(response, err)
		}
		response, err = nil, errDead
	})
	return response, err
}

func (p *process) Send(ctx context.Context, e event.Event) (err error) {
	p.call(func() { err = p.events.Send(ctx, e) }, func() { err = errDead })
	return err
}

// ledger is a sink that keeps to itself what it acknowledged, and what it should get in the end.
type ledger struct {
	mu   sync.Mutex
	want map[string]string // id to type and reason
	// deleted is the same for those that others have deleted: what may be told of them too, or was to be told of nothing else.
	deleted  map[string]string
	deleting sync.Mutex // one deletion at a time
	got      map[string]string
	count    map[string]int
	wrong    []string
	fault    func(ctx context.Context) error // before the event is taken
	after    func(ctx context.Context) error // after that, in place of an answer
}

func (l *ledger) Send(ctx context.Context, e event.Event) error {
	if l.fault != nil {
		if err := l.fault(ctx); err != nil {
			return err
		}
	}
	l.mu.Lock()
	what := ""
	if d, err := reasonOf(e); err != nil {
		l.wrong = append(l.wrong, err.Error())
	} else {
		what = e.Type() + " " + d
	}
	if before, again := l.got[e.ID()]; again && before != what {
		l.wrong = append(l.wrong, fmt.Sprintf("%s is %q, then %q", e.ID(), before, what))
	}
	l.got[e.ID()] = what
	l.count[e.ID()]++
	l.mu.Unlock()
	if l.after != nil {
		return l.after(ctx)
	}
	return nil
}

func reasonOf(e event.Event) (string, error) {
	if err := valid(e); err != nil {
		return "", fmt.Errorf("%s is not as its schema says: %w", e.ID(), err)
	}
	var d struct{ Reason string }
	return d.Reason, errors.Join(e.DataAs(&d), func() error {
		if d.Reason == "" {
			return errors.New("no reason")
		}
		return nil
	}())
}

// populate launches n workloads of every kind and end, and gives what should be told of them.
func (g ground) populate(tb testing.TB, ns string, n int) *ledger {
	tb.Helper()
	l := &ledger{want: map[string]string{}, deleted: map[string]string{}, got: map[string]string{}, count: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			id, what := g.populateOne(tb, ns, i)
			mu.Lock()
			defer mu.Unlock()
			if id != "" {
				l.want[id] = what
			}
		})
	}
	wg.Wait()
	return l
}

func (g ground) populateOne(tb testing.TB, ns string, i int) (id, what string) {
	tb.Helper()
	name := fmt.Sprintf("w-%04d", i)
	kinds := []launch.Kind{launch.Spark, launch.Runner}
	kind := kinds[i/8%2]
	end := func(status, outcome, reason string) (string, string) {
		o := g.launch(tb, draft(ns, name, kind))
		g.status(tb, o, status)
		return string(o.GetUID()) + "." + outcome, "dev.flint." + string(kind) + "." + outcome + ".v1 " + reason
	}
	switch i % 8 {
	case 0:
		return end(podEnded("Succeeded", "0", "Completed"), "succeeded", "Completed")
	case 1:
		return end(podEnded("Failed", "1", "Error"), "failed", "Error")
	case 2:
		return end(podEnded("Failed", "137", "OOMKilled"), "failed", "OOMKilled")
	case 3:
		kind = launch.File
		return end(jobComplete, "failed", "Unknown")
	case 4:
		kind = launch.File
		return end(jobDeadline, "failed", "DeadlineExceeded")
	case 5:
		return end(`"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","lastTransitionTime":"2026-03-01T10:00:00Z"}]`, "failed", "Unschedulable")
	case 6:
		kind = []launch.Kind{launch.Spark, launch.File}[i/8%2]
		o := g.abandon(tb, ns, name, kind)
		return string(o.GetUID()) + ".failed", "dev.flint." + string(kind) + ".failed.v1 Deleted"
	}
	g.status(tb, g.launch(tb, draft(ns, name, kind)), `"phase":"Running",`+statuses(driverRuns))
	return "", ""
}

// start makes a Poller that lives in the process.
func (g ground) start(tb testing.TB, ns string, p *process, clock *clocktesting.FakeClock) *completion.Poller {
	tb.Helper()
	client := g.client(tb, func(next http.RoundTripper) http.RoundTripper {
		p.api = next
		return p
	})
	return &completion.Poller{
		Client: client, Sender: p, Clock: clock, Source: source, Namespaces: []string{ns},
		Settings: completion.Settings{
			TellDeleted: g.tell, Bounds: completion.Bounds{Unschedulable: time.Minute}, JobTTL: time.Hour,
			PageSize: 7, SendTimeout: 20 * time.Millisecond, Concurrency: 4,
		},
	}
}

// check checks what holds at any moment: what is marked as sent was taken by the sink, and what was taken is
// right, and the same each time.
func (g ground) check(tb testing.TB, ns string, l *ledger) (pending int) {
	tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, text := range l.wrong {
		tb.Error(text)
	}
	for id, what := range l.got {
		if l.want[id] != what && l.deleted[id] != what {
			tb.Errorf("%s: %q was told, want %q", id, what, l.want[id])
		}
	}
	for _, gvr := range []schema.GroupVersionResource{pods, jobs} {
		list, err := g.objects(tb, gvr, ns).List(context.Background(), metav1.ListOptions{LabelSelector: launch.LabelID})
		if err != nil {
			tb.Fatal(err)
		}
		for _, o := range list.Items {
			uid := string(o.GetUID())
			switch label(&o) {
			case "sent":
				if l.got[uid+".succeeded"] == "" && l.got[uid+".failed"] == "" {
					tb.Errorf("%s is marked as sent, and was not", o.GetName())
				}
			case "pending":
				if l.want[uid+".succeeded"] != "" || l.want[uid+".failed"] != "" || l.deleted[uid+".failed"] != "" {
					pending++
				}
			default:
				tb.Errorf("%s: label %q", o.GetName(), label(&o))
			}
		}
	}
	return pending
}

// complete checks that all was told, and that what lives on is as it was.
func (g ground) complete(tb testing.TB, ns string, l *ledger) {
	tb.Helper()
	if pending := g.check(tb, ns, l); pending > 0 {
		tb.Errorf("%d that ended are pending", pending)
	}
	want := maps.Clone(l.want)
	for id, what := range l.deleted {
		if want[id] == "" && want[strings.TrimSuffix(id, ".failed")+".succeeded"] == "" || l.got[id] == what {
			want[id] = what
		}
	}
	if diff := cmp.Diff(want, l.got); diff != "" {
		tb.Errorf("told (-want +got):\n%s", diff)
	}
	for _, gvr := range []schema.GroupVersionResource{pods, jobs} {
		list, err := g.objects(tb, gvr, ns).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			tb.Fatal(err)
		}
		for _, o := range list.Items {
			alive := label(&o) == "pending"
			if kept := len(o.GetFinalizers()) > 0; kept != (g.tell && alive) || o.GetDeletionTimestamp() != nil || o.GetAnnotations()[completion.AnnotationOutcome] != "" && alive {
				tb.Errorf("%s is left with finalizers %v, annotations %v", o.GetName(), o.GetFinalizers(), o.GetAnnotations())
			}
		}
	}
}

// TestKilledAtEveryCall kills the process at each call of a pass over one workload of each end, with and without the
// call's effect, and lets the next process go on.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) { g.killAtEveryCall(t) })
	t.Run("told when deleted", func(t *testing.T) {
		t.Parallel()
		realGround(t).telling().killAtEveryCall(t)
	})
}

func (g ground) killAtEveryCall(t *testing.T) {
	const workloads = 8
	count := func(ns string) int64 {
		p := &process{events: g.populate(t, ns, workloads)}
		clock := clocktesting.NewFakeClock(time.Now().Add(time.Hour))
		pass(t, g.start(t, ns, p, clock))
		return p.calls.Load()
	}
	calls := count(g.namespace(t))
	if calls < 20 {
		t.Fatalf("a pass has %d calls", calls)
	}
	t.Logf("killed at each of %d calls, twice", calls)
	for n := int64(1); n <= calls; n++ {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d/lost %t", n, lost), func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				l := g.populate(t, ns, workloads)
				clock := clocktesting.NewFakeClock(time.Now().Add(time.Hour))
				_, _ = g.start(t, ns, &process{events: l, dies: n, lost: lost}, clock).Pass(t.Context())
				g.check(t, ns, l)
				pass(t, g.start(t, ns, &process{events: l}, clock))
				g.complete(t, ns, l)
				for id, count := range l.count {
					if count > 2 {
						t.Errorf("%s was told %d times after one kill", id, count)
					}
				}
			})
		}
	}
}

// launches is how many launches the chaos is over: FLINT_COMPLETION_LAUNCHES, or 200.
func launches(tb testing.TB) int {
	tb.Helper()
	text := os.Getenv("FLINT_COMPLETION_LAUNCHES")
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestChaos is the promise of the package: two instances at once, killed at any call again and again, with a sink that
// refuses, hangs, and loses its answers, and lists whose pages expire. Nothing is lost, every repeat has the same id and
// content, and nothing is marked as sent that the sink has not taken.
func TestChaos(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) { g.chaos(t, 0) })
}

// TestChaosOfDeletions is the same with TellDeleted, while others delete workloads between any two calls, whether they run, have ended or
// are being withdrawn: nothing is lost either, and nothing of it is left.
func TestChaosOfDeletions(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) { g.telling().chaos(t, 3) })
}

// deleteOne deletes one of the workloads that are kept, if it is there and nobody else deletes it, and notes what may be told of it.
func (g ground) deleteOne(tb testing.TB, ns string, i int, l *ledger) {
	tb.Helper()
	l.deleting.Lock()
	defer l.deleting.Unlock()
	gvr := pods
	if i%8 == 3 || i%8 == 4 || i%16 == 14 {
		gvr = jobs
	}
	name := fmt.Sprintf("w-%04d", i)
	o, err := g.objects(tb, gvr, ns).Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (o.GetDeletionTimestamp() != nil || len(o.GetFinalizers()) == 0) {
		return
	}
	if err != nil {
		tb.Error(err)
		return
	}
	// Noted before: it may be told at once.
	kind := o.GetLabels()[launch.LabelKind]
	l.mu.Lock()
	l.deleted[string(o.GetUID())+".failed"] = "dev.flint." + kind + ".failed.v1 Deleted"
	l.mu.Unlock()
	uid, version, background := o.GetUID(), o.GetResourceVersion(), metav1.DeletePropagationBackground
	err = g.objects(tb, gvr, ns).Delete(context.Background(), name, metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	switch {
	case err == nil:
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.deleted, string(uid)+".failed")
	default:
		tb.Error(err)
	}
}

// chaos is the proof. Others delete a workload before one in so many calls; 0 means never.
func (g ground) chaos(t *testing.T, oneIn int) {
	n := launches(t)
	began := time.Now()
	ns := g.namespace(t)
	l := g.populate(t, ns, n)
	seed := uint64(time.Now().UnixNano())
	t.Logf("%d launches, seed %d", n, seed)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	chance := func(oneIn int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(oneIn) == 0
	}
	l.fault = func(ctx context.Context) error {
		switch {
		case chance(8):
			return errSink
		case chance(30):
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	l.after = func(ctx context.Context) error {
		switch {
		case chance(10):
			return io.ErrUnexpectedEOF
		case chance(30):
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	clock := clocktesting.NewFakeClock(time.Now().Add(time.Hour))
	var lives, restarts atomic.Int64
	for round := 0; ; round++ {
		if round == 100*max(1, n/100) {
			t.Fatal("no end")
		}
		var wg sync.WaitGroup
		for range 2 {
			mu.Lock()
			p := &process{events: l, dies: 1 + random.Int64N(80), lost: random.IntN(2) == 0, expired: func() bool { return chance(6) }}
			mu.Unlock()
			if oneIn > 0 {
				p.between = func() {
					if !chance(oneIn) {
						return
					}
					mu.Lock()
					i := random.IntN(n)
					mu.Unlock()
					g.deleteOne(t, ns, i, l)
				}
			}
			poller := g.start(t, ns, p, clock)
			wg.Go(func() {
				lives.Add(1)
				for range 4 { // passes of one life
					stats, _ := poller.Pass(t.Context())
					restarts.Add(int64(stats.Restarts))
					if p.calls.Load() >= p.dies {
						return
					}
					clock.Step(time.Second)
				}
			})
		}
		wg.Wait()
		if g.check(t, ns, l) == 0 || t.Failed() {
			break
		}
		clock.Step(time.Minute)
	}
	g.complete(t, ns, l)
	repeats := 0
	for _, count := range l.count {
		repeats += count - 1
	}
	t.Logf("%d lives, %d lists started anew, %d deleted by others, %d events, %d repeats, %v",
		lives.Load(), restarts.Load(), len(l.deleted), len(l.count), repeats, time.Since(began).Round(time.Second))
}

// TestExpiredPages: a list that expires starts anew, and each object is looked at once in a pass, sent once, and none
// is left out; one that always expires ends the pass with an error, and what it has seen is told.
func TestExpiredPages(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		for _, failures := range []int{1, 3, 1000} {
			ns := g.namespace(t)
			l := g.populate(t, ns, 40)
			var asked atomic.Int64
			p := &process{events: l, expired: func() bool { n := asked.Add(1); return n > 1 && int(n) <= 1+failures }}
			poller := g.start(t, ns, p, clocktesting.NewFakeClock(time.Now().Add(time.Hour)))
			poller.Settings.PageSize = 3
			stats, err := poller.Pass(t.Context())
			if failures < 6 {
				if err != nil || stats.Restarts != failures || stats.Pending != 5 { // those that run, each counted once
					t.Errorf("%d failures: %+v, %v", failures, stats, err)
				}
			} else {
				if err == nil || stats.Sent < 10 {
					t.Errorf("always: %+v, %v", stats, err)
				}
				p.expired = nil
				pass(t, poller)
			}
			g.complete(t, ns, l)
			for id, count := range l.count {
				if count != 1 {
					t.Errorf("%d failures: %s was told %d times", failures, id, count)
				}
			}
		}
	})
}
