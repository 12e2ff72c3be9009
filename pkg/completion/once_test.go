package completion_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

func podRef(ns string) kube.Ref {
	return kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "pi"}
}

// TestOldCopies: what one look has told, another that read the object before does not tell again.
func TestOldCopies(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		ns := g.namespace(t)
		o := g.launch(t, draft(ns, "pi", launch.Spark))
		g.status(t, o, podEnded("Succeeded", "0", "Completed"))
		s := &sink{}
		p, _ := g.poller(t, s, ns)
		var observed atomic.Int64
		p.Observe = func(completion.Subject, completion.Outcome) { observed.Add(1) }
		var once sync.Once
		p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
			return trip(func(r *http.Request) (*http.Response, error) {
				response, err := next.RoundTrip(r)
				if strings.HasSuffix(r.URL.Path, "/pods") { // the list has been read: now an event of the API server comes
					once.Do(func() {
						if stats, err := p.One(t.Context(), podRef(ns), nil); err != nil || stats.Sent != 1 {
							t.Errorf("the look amid the pass: %+v, %v", stats, err)
						}
					})
				}
				return response, err
			})
		})
		if stats := pass(t, p); stats.Listed != 1 || stats.Sent != 0 || stats.Pending != 0 {
			t.Errorf("the pass: %+v", stats)
		}
		if diff := cmp.Diff(map[string]int{string(o.GetUID()) + ".succeeded": 1}, s.ids()); diff != "" || observed.Load() != 1 {
			t.Errorf("observed %d times, events (-want +got):\n%s", observed.Load(), diff)
		}
	})
}

// TestOneWaitsForOlderCopies: a look at one workload is not lost since a pass has an older copy of it in hand.
func TestOneWaitsForOlderCopies(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ns := g.namespace(t)
	d := draft(ns, "pi", launch.File) // of a Job that may be stuck the pass asks for the pods: it has it in hand
	o := g.launch(t, d)
	s := &sink{}
	p, _ := g.poller(t, s, ns)
	p.Settings.Bounds.ImagePull = time.Hour
	inHand, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/pods") && strings.Contains(r.URL.RawQuery, "controller-uid") {
				once.Do(func() { close(inHand); <-goOn })
			}
			return next.RoundTrip(r)
		})
	})
	var wg sync.WaitGroup
	wg.Go(func() { pass(t, p) })
	<-inHand
	g.status(t, o, jobComplete)
	looked := make(chan completion.Stats)
	got := make(chan struct{})
	healthy := p.Client
	p.Client = seen{healthy, got}
	go func() {
		stats, _ := p.One(t.Context(), kube.RefOf(ns, o), nil)
		looked <- stats
	}()
	<-got // it has read the end
	close(goOn)
	if stats := <-looked; stats.Sent != 1 || stats.Pending != 0 {
		t.Errorf("the look: %+v", stats)
	}
	wg.Wait()
	if len(s.ids()) != 1 {
		t.Errorf("events %v", s.ids())
	}
}

// TestPassesAreShared: whoever asks for a pass while one runs gets the next, and all who do get the same.
func TestPassesAreShared(t *testing.T) {
	t.Parallel()
	g, cluster := embeddedGround(t)
	ns := g.namespace(t)
	g.status(t, g.launch(t, draft(ns, "first", launch.Spark)), podEnded("Succeeded", "0", "Completed"))
	s := &sink{}
	sending, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.become(func(context.Context, event.Event) error {
		once.Do(func() { close(sending); <-goOn })
		return nil
	})
	p, _ := g.poller(t, s, ns)
	var passes atomic.Int64
	p.Passed = func(completion.Stats, time.Duration, error) { passes.Add(1) }
	var first sync.WaitGroup
	first.Go(func() { pass(t, p) })
	<-sending
	// This one ends after the first pass has listed: only the next one sees it.
	g.status(t, g.launch(t, draft(ns, "second", launch.Spark)), podEnded("Failed", "1", "Error"))
	cluster.ResetRequests()
	const callers = 64
	var rest sync.WaitGroup
	var told, asked atomic.Int64
	for range callers {
		rest.Go(func() {
			asked.Add(1)
			stats := pass(t, p)
			told.Add(int64(stats.Sent))
		})
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Pass(impatient); err == nil {
		t.Error("one who could not wait got something")
	}
	awaitCount(t, &asked, callers)
	close(goOn)
	first.Wait()
	rest.Wait()
	// Callers who came after the second pass began, though there is nothing to hold it, share a third.
	if n := passes.Load(); n < 2 || n > 4 {
		t.Errorf("%d passes for %d callers", n, callers+1)
	}
	if n := told.Load(); n < 1 || len(s.ids()) != 2 {
		t.Errorf("the second end was seen by %d, events %v", n, s.ids())
	}
}

func awaitCount(t *testing.T, n *atomic.Int64, want int64) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); n.Load() < want; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d", n.Load(), want)
		}
	}
}

// seen tells when an object was read.
type seen struct {
	kube.Client
	got chan struct{}
}

func (s seen) Get(ctx context.Context, ref kube.Ref) (*unstructured.Unstructured, error) {
	o, err := s.Client.Get(ctx, ref)
	close(s.got)
	return o, err
}

// TestKeptAndGone: what had the finalizer and is gone was told by whoever took it off: this process says nothing of its
// own, which might be another end.
func TestKeptAndGone(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		ns := g.namespace(t)
		d := draft(ns, "pi", launch.Spark)
		d.Workload.Object["spec"].(object)["nodeName"] = "n1"
		o := g.launch(t, d)
		g.patch(t, ns, "pi", string(completion.Keep(o)))
		if err := g.objects(t, pods, ns).Delete(t.Context(), "pi", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		mine, theirs := &sink{}, &sink{}
		p, clock := g.poller(t, mine, ns)
		if stats := pass(t, p); stats.Pending != 1 {
			t.Errorf("%+v", stats)
		}
		last := g.get(t, pods, ns, "pi")
		g.status(t, o, podEnded("Succeeded", "0", "Completed"))
		g.purge(t, ns)
		another, _ := g.poller(t, theirs, ns)
		if stats := pass(t, another); stats.Sent != 1 {
			t.Errorf("the other: %+v", stats)
		}
		clock.Step(time.Minute)
		if stats := pass(t, p); stats.Vanished != 0 || stats.Pending != 0 {
			t.Errorf("%+v", stats)
		}
		if _, err := p.One(t.Context(), podRef(ns), last); err != nil {
			t.Error(err)
		}
		if len(mine.got) > 0 || len(theirs.got) != 1 || data(t, theirs.got[0]).Reason != api.ReasonCompleted {
			t.Errorf("told %v, and by the other %v", mine.ids(), theirs.ids())
		}
	})
}

// TestReplaced: a launch that takes the name of an abandoned one has its end told, and has the name once it was.
func TestReplaced(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		for _, down := range []bool{false, true} {
			ns := g.namespace(t)
			o := g.abandon(t, ns, "pi", launch.Spark)
			s := &sink{}
			p, clock := g.poller(t, s, ns)
			clock.Step(time.Hour)
			p.Applier = &launch.Applier{Client: p.Client, Clock: clock}
			p.Applier.Abandon = func(ctx context.Context, abandoned kube.Ref) error {
				_, err := p.One(ctx, abandoned, nil)
				return err
			}
			next := draft(ns, "pi", launch.Spark)
			next.SubmissionID = "another"
			plan, err := launch.NewPlan(next)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if down {
				s.become(func(context.Context, event.Event) error { return errSink })
				if result, err := p.Applier.Apply(ctx, plan); err == nil || !strings.Contains(err.Error(), "is being deleted") || !isRetryable(err) {
					t.Errorf("while the sink is down: %+v, %v", result, err)
				}
				s.become(nil)
				clock.Step(time.Minute)
				if stats := pass(t, p); stats.Sent != 1 {
					t.Errorf("%+v", stats)
				}
			}
			result, err := p.Applier.Apply(ctx, plan)
			if err != nil || result.Workload.GetUID() == o.GetUID() || result.Replaced == down {
				t.Fatalf("%+v, %v", result, err)
			}
			if diff := cmp.Diff(map[string]int{string(o.GetUID()) + ".failed": 1}, s.ids()); diff != "" || data(t, s.got[0]).Reason != api.ReasonDeleted {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		}
	})
}

func isRetryable(err error) bool {
	e, ok := err.(*api.Error) //nolint:errorlint // Apply's error is one
	return ok && e.Retryable()
}
