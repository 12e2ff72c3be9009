package completion_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// TestEveryReason produces each reason once, from statuses as nodes and controllers write them.
func TestEveryReason(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		ns := g.namespace(t)
		s := &sink{}
		p, clock := g.poller(t, s, ns)
		p.Settings = completion.Settings{
			Bounds: completion.Bounds{ImagePull: time.Hour, Unschedulable: time.Hour, NodeLost: time.Hour},
			JobTTL: 5 * time.Minute,
		}
		want := map[string]string{} // id to type and reason
		expect := func(o *unstructured.Unstructured, kind, outcome, reason string) {
			want[string(o.GetUID())+"."+outcome] = "dev.flint." + kind + "." + outcome + ".v1 " + reason
		}
		pod := func(name string, kind launch.Kind) *unstructured.Unstructured {
			return g.launch(t, draft(ns, name, kind))
		}

		completed := pod("completed", launch.Spark)
		g.status(t, completed, podEnded("Succeeded", "0", "Completed"))
		expect(completed, "spark", "succeeded", "Completed")
		failed := pod("failed", launch.Runner)
		g.status(t, failed, podEnded("Failed", "1", "Error"))
		expect(failed, "runner", "failed", "Error")
		memory := pod("memory", launch.Spark)
		g.status(t, memory, podEnded("Failed", "137", "OOMKilled"))
		expect(memory, "spark", "failed", "OOMKilled")
		evicted := pod("evicted", launch.Spark)
		g.status(t, evicted, `"phase":"Failed","reason":"Evicted","message":"low on memory"`)
		expect(evicted, "spark", "failed", "Evicted")
		deadline := pod("deadline", launch.File)
		g.status(t, deadline, jobDeadline)
		expect(deadline, "file", "failed", "DeadlineExceeded")
		copied := pod("copied", launch.File)
		g.status(t, copied, jobComplete)
		expect(copied, "file", "failed", "Unknown") // nobody has its agent's word

		placed := draft(ns, "lost", launch.Spark)
		placed.Workload.Object["spec"].(object)["nodeName"] = "n1"
		lost := g.launch(t, placed)
		g.status(t, lost, `"phase":"Running",`+statuses(driverRuns))
		if err := g.objects(t, pods, ns).Delete(t.Context(), "lost", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(lost, "spark", "failed", "NodeLost")
		image := pod("image", launch.Spark)
		now := time.Now().UTC().Format(time.RFC3339)
		g.status(t, image, `"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True","lastTransitionTime":"`+now+`"}],`+
			statuses(`{"name":"spark-kubernetes-driver","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off"}}}`))
		expect(image, "spark", "failed", "ImagePull")
		unschedulable := pod("unschedulable", launch.Spark)
		g.status(t, unschedulable, `"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes","lastTransitionTime":"`+now+`"}]`)
		expect(unschedulable, "spark", "failed", "Unschedulable")
		abandonedPod := g.abandon(t, ns, "abandoned", launch.Spark)
		expect(abandonedPod, "spark", "failed", "Deleted")
		abandonedJob := g.abandon(t, ns, "abandoned-job", launch.File)
		expect(abandonedJob, "file", "failed", "Deleted")
		runs := pod("runs", launch.Spark)
		g.status(t, runs, `"phase":"Running",`+statuses(driverRuns))
		vanished := pod("vanished", launch.Runner)
		expect(vanished, "runner", "failed", "Unknown")

		// Within every bound: what has ended is told, and the rest left alone.
		stats := pass(t, p)
		if diff := cmp.Diff(completion.Stats{Listed: 13, Pending: 7, Sent: 6}, stats, cmpopts.IgnoreFields(completion.Stats{}, "Outcomes")); diff != "" {
			t.Errorf("the first pass (-want +got):\n%s", diff)
		}
		if err := g.objects(t, pods, ns).Delete(t.Context(), "vanished", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		stats, err := p.One(t.Context(), kube.RefOf(ns, vanished), vanished)
		if err != nil || stats.Sent != 1 {
			t.Errorf("the one that vanished: %+v, %v", stats, err)
		}
		clock.Step(3 * time.Hour)
		stats = pass(t, p)
		if stats.Sent != 5 || stats.Withdrawn != 2 || stats.Pending != 1 {
			t.Errorf("the third pass: %+v", stats)
		}
		stats = pass(t, p)
		if stats.Listed != 1 || stats.Sent != 0 || stats.Pending != 1 {
			t.Errorf("the fourth pass: %+v", stats)
		}

		got := map[string]string{}
		for id, events := range s.events() {
			d := data(t, events[0])
			got[id] = events[0].Type() + " " + string(d.Reason)
			if len(events) != 1 || d.UID+"."+d.Outcome != id || d.SubmissionID != "sub-"+d.Name || (d.SparkAppID == "spark-0011") != (d.Kind == "spark") {
				t.Errorf("%d of %s: %+v", len(events), id, d)
			}
			if extensions := events[0].Extensions(); extensions["launchid"] != launch.ID(ns, d.SubmissionID) || extensions["outcome"] != d.Outcome ||
				extensions["traceparent"] != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
				t.Errorf("extensions of %s: %v", id, extensions)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		// What is left: finished workloads, marked; a live one; nothing that was given up or abandoned.
		left := map[string]string{}
		list, err := g.objects(t, pods, ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			left[o.GetName()] = label(&o)
		}
		list, err = g.objects(t, jobs, ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			ttl, _, _ := unstructured.NestedInt64(o.Object, "spec", "ttlSecondsAfterFinished")
			left[o.GetName()] = fmt.Sprint(label(&o), " ", ttl)
		}
		wantLeft := map[string]string{
			"completed": "sent", "failed": "sent", "memory": "sent", "evicted": "sent", "lost": "sent", "runs": "pending",
			"deadline": "sent 300", "copied": "sent 300",
		}
		if diff := cmp.Diff(wantLeft, left); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	})
}

// TestFinishedCostNothing: a pass costs what is pending, not what has ever run.
func TestFinishedCostNothing(t *testing.T) {
	t.Parallel()
	g, cluster := embeddedGround(t)
	ns := g.namespace(t)
	for i := range 10_050 {
		plan, err := launch.NewPlan(draft(ns, fmt.Sprintf("p-%05d", i), launch.Spark))
		if err != nil {
			t.Fatal(err)
		}
		if i%201 != 0 { // 50 of them stay pending
			plan.Workload.SetLabels(merged(plan.Workload.GetLabels(), launch.LabelCompletion, completion.Sent))
		}
		if _, err := cluster.Add(plan.Workload); err != nil {
			t.Fatal(err)
		}
	}
	cluster.ResetRequests()
	p, clock := g.poller(t, &sink{}, ns)
	stats := pass(t, p)
	if stats.Listed != 50 || stats.Pending != 50 {
		t.Errorf("the pass: %+v", stats)
	}
	if requests := cluster.Requests(); len(requests) != 2 {
		t.Errorf("%d requests: %v", len(requests), requests)
	}
	for i := 0; i < 10_050; i += 201 {
		g.status(t, g.get(t, pods, ns, fmt.Sprintf("p-%05d", i)), podEnded("Succeeded", "0", "Completed"))
	}
	if stats := pass(t, p); stats.Sent != 50 || stats.Pending != 0 {
		t.Errorf("the second pass: %+v", stats)
	}
	cluster.ResetRequests()
	clock.Step(time.Second)
	if stats := pass(t, p); stats.Listed != 0 || len(cluster.Requests()) != 2 {
		t.Errorf("the third pass: %+v, requests %v", stats, cluster.Requests())
	}
}

func merged(m map[string]string, key, value string) map[string]string {
	m[key] = value
	return m
}

// TestForeign: what is not Flint's is left alone, whatever its labels say.
func TestForeign(t *testing.T) {
	t.Parallel()
	g, cluster := embeddedGround(t)
	ns := g.namespace(t)
	for name, change := range map[string]func(o *unstructured.Unstructured){
		"no-hash": func(o *unstructured.Unstructured) { o.SetAnnotations(nil) },
		"no-id":   func(o *unstructured.Unstructured) { o.SetLabels(merged(o.GetLabels(), launch.LabelID, "")) },
		"no-kind": func(o *unstructured.Unstructured) { o.SetLabels(merged(o.GetLabels(), launch.LabelKind, "other")) },
	} {
		plan, err := launch.NewPlan(draft(ns, name, launch.Spark))
		if err != nil {
			t.Fatal(err)
		}
		change(plan.Workload)
		added, err := cluster.Add(plan.Workload)
		if err != nil {
			t.Fatal(err)
		}
		g.status(t, added, podEnded("Succeeded", "0", "Completed"))
	}
	s := &sink{}
	p, _ := g.poller(t, s, ns)
	if stats := pass(t, p); stats.Foreign != 3 || stats.Pending != 0 || len(s.got) != 0 {
		t.Errorf("%+v, %d events", stats, len(s.got))
	}
	// An outcome in a template's annotation is not one: it has no uid.
	d := draft(ns, "forged", launch.Spark)
	d.Workload.SetAnnotations(map[string]string{completion.AnnotationOutcome: `{"uid":"","outcome":"failed","reason":"Error"}`})
	g.launch(t, d)
	if stats := pass(t, p); stats.Pending != 1 || len(s.got) != 0 {
		t.Errorf("%+v, %d events", stats, len(s.got))
	}
}

// TestOneBadNamespace does not keep the others from being looked at.
func TestOneBadNamespace(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ns, other := g.namespace(t), g.namespace(t)
	for _, n := range []string{ns, other} {
		g.status(t, g.launch(t, draft(n, "pi", launch.Spark)), podEnded("Succeeded", "0", "Completed"))
	}
	s := &sink{}
	p, _ := g.poller(t, s, ns, other)
	p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/namespaces/"+ns+"/") {
				return refuse(r, http.StatusForbidden, "Forbidden"), nil
			}
			return next.RoundTrip(r)
		})
	})
	stats, err := p.Pass(t.Context())
	if err == nil || !strings.Contains(err.Error(), "list pending Pod in "+ns) || stats.Sent != 1 || !stats.Incomplete || !p.Complete().IsZero() {
		t.Errorf("%+v, %v", stats, err)
	}
	everywhere, clock := g.poller(t, s, "*")
	if stats := pass(t, everywhere); stats.Listed != 1 || stats.Sent != 1 || !everywhere.Complete().Equal(clock.Now()) {
		t.Errorf("everywhere: %+v", stats)
	}
}

// TestSinks: a sink that does not acknowledge leaves its event pending, and no event stands before another.
func TestSinks(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(ctx context.Context, e event.Event) error{
		"refuses": func(context.Context, event.Event) error { return errSink },
		"hangs": func(ctx context.Context, _ event.Event) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"panics": func(context.Context, event.Event) error { panic("oops") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, _ := embeddedGround(t)
			ns := g.namespace(t)
			const n = 20
			bad := map[string]bool{}
			for i := range n {
				o := g.launch(t, draft(ns, fmt.Sprintf("p-%02d", i), launch.Spark))
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
				bad[string(o.GetUID())+".succeeded"] = i < 9 // the first of the list
			}
			s := &sink{}
			s.become(func(ctx context.Context, e event.Event) error {
				if bad[e.ID()] {
					return answer(ctx, e)
				}
				return nil
			})
			p, clock := g.poller(t, s, ns)
			p.Settings = completion.Settings{SendTimeout: 10 * time.Millisecond, Concurrency: 2, MaxFailures: 3}
			for range 120 {
				pass(t, p)
				clock.Step(2 * time.Second)
			}
			for id, isBad := range bad {
				if s.acked[id] == isBad {
					t.Errorf("%s: bad %t, acknowledged %t", id, isBad, s.acked[id])
				}
			}
			s.become(nil)
			clock.Step(time.Hour)
			stats := pass(t, p)
			for range 10 { // after a failure one event tries the sink, and the rest waits for its answer
				if stats.Pending > 0 {
					stats = pass(t, p)
				}
			}
			if got := s.ids(); stats.Pending != 0 || len(got) != n {
				t.Errorf("%+v, %d events", stats, len(got))
			}
		})
	}
}

// TestSinkIsLeftAlone: after some failures in a row nothing is tried for a while, then one event.
func TestSinkIsLeftAlone(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ns := g.namespace(t)
	const n = 20
	for i := range n {
		g.status(t, g.launch(t, draft(ns, fmt.Sprintf("p-%02d", i), launch.Spark)), podEnded("Succeeded", "0", "Completed"))
	}
	tries := 0
	s := &sink{}
	s.become(func(context.Context, event.Event) error { tries++; return errSink })
	p, clock := g.poller(t, s, ns)
	p.Settings = completion.Settings{Concurrency: 1, MaxFailures: 4}
	for _, step := range []struct {
		after time.Duration
		tries int
	}{{0, 4}, {0, 4}, {900 * time.Millisecond, 4}, {100 * time.Millisecond, 5}, {time.Second, 5}, {time.Second, 6}} {
		clock.Step(step.after)
		if stats := pass(t, p); tries != step.tries || stats.Pending != n || stats.Sent != 0 {
			t.Errorf("%d tries, want %d; %+v", tries, step.tries, stats)
		}
	}
	// One that the sink refuses, alive, tells nothing of the sink.
	p, _ = g.poller(t, s, ns)
	p.Settings, p.Refused = completion.Settings{Concurrency: 1, MaxFailures: 4}, func(err error) bool { return err == errSink } //nolint:errorlint // the very error
	tries = 0
	if stats := pass(t, p); tries != n || stats.Unsent != n {
		t.Errorf("%d tries; %+v", tries, stats)
	}
	s.become(nil)
	p, _ = g.poller(t, s, ns)
	if stats := pass(t, p); stats.Sent != n || stats.Pending != 0 || stats.Outcomes[api.ReasonCompleted] != n {
		t.Errorf("%+v", stats)
	}
}

// TestMark: the note of a delivery holds for what was read, and what others write meanwhile is kept.
func TestMark(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		cases := map[string]struct {
			meanwhile func(t *testing.T, ns string)
			check     func(t *testing.T, ns string)
			kind      launch.Kind
		}{
			"another label": {
				meanwhile: func(t *testing.T, ns string) { g.patch(t, ns, "pi", `{"metadata":{"labels":{"team":"a"}}}`) },
				check: func(t *testing.T, ns string) {
					if o := g.get(t, pods, ns, "pi"); label(o) != "sent" || o.GetLabels()["team"] != "a" {
						t.Errorf("labels %v", o.GetLabels())
					}
				},
			},
			"sent by another": {
				meanwhile: func(t *testing.T, ns string) {
					g.patch(t, ns, "pi", `{"metadata":{"labels":{"flint.dev/completion":"sent"}}}`)
				},
				check: func(t *testing.T, ns string) {
					if o := g.get(t, pods, ns, "pi"); label(o) != "sent" {
						t.Errorf("labels %v", o.GetLabels())
					}
				},
			},
			"gone": {meanwhile: g.purge, check: func(*testing.T, string) {}},
			"replaced": {meanwhile: func(t *testing.T, ns string) { g.purge(t, ns); g.launch(t, draft(ns, "pi", launch.Spark)) }, check: func(t *testing.T, ns string) {
				if o := g.get(t, pods, ns, "pi"); label(o) != "pending" {
					t.Errorf("the next of that name: %v", o.GetLabels())
				}
			}},
		}
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				g.status(t, g.launch(t, draft(ns, "pi", launch.Spark)), podEnded("Succeeded", "0", "Completed"))
				s := &sink{}
				s.become(func(context.Context, event.Event) error { c.meanwhile(t, ns); return nil })
				p, _ := g.poller(t, s, ns)
				want := 1 // by us
				if name == "sent by another" {
					want = 0
				}
				if stats := pass(t, p); stats.Sent != want || stats.Repeated != 1-want || stats.Pending != 0 || len(s.got) != 1 {
					t.Errorf("%+v, %d events", stats, len(s.got))
				}
				c.check(t, ns)
			})
		}
		t.Run("stopped amid the delivery", func(t *testing.T) { // what was acknowledged is noted all the same
			t.Parallel()
			ns := g.namespace(t)
			g.status(t, g.launch(t, draft(ns, "pi", launch.Spark)), podEnded("Succeeded", "0", "Completed"))
			ctx, cancel := context.WithCancel(t.Context())
			s := &sink{}
			s.become(func(context.Context, event.Event) error { cancel(); return nil })
			p, _ := g.poller(t, s, ns)
			if stats, _ := p.Pass(ctx); stats.Sent != 1 || label(g.get(t, pods, ns, "pi")) != "sent" {
				t.Errorf("%+v", stats)
			}
		})
		t.Run("a Job's own time to live", func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			d := draft(ns, "copy", launch.File)
			d.Workload.Object["spec"].(object)["ttlSecondsAfterFinished"] = int64(7)
			g.status(t, g.launch(t, d), jobComplete)
			p, _ := g.poller(t, &sink{}, ns)
			p.Settings.JobTTL = time.Hour
			pass(t, p)
			o := g.get(t, jobs, ns, "copy")
			if ttl, _, _ := unstructured.NestedInt64(o.Object, "spec", "ttlSecondsAfterFinished"); ttl != 7 || label(o) != "sent" {
				t.Errorf("ttl %d, label %s", ttl, label(o))
			}
		})
		t.Run("refused", func(t *testing.T) { // acknowledged once, it is not sent again by this process
			t.Parallel()
			ns := g.namespace(t)
			g.status(t, g.launch(t, draft(ns, "pi", launch.Spark)), podEnded("Succeeded", "0", "Completed"))
			s := &sink{}
			p, clock := g.poller(t, s, ns)
			healthy := p.Client
			p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
				return trip(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPatch {
						return refuse(r, http.StatusForbidden, "Forbidden"), nil
					}
					return next.RoundTrip(r)
				})
			})
			for range 3 {
				stats, _ := p.Pass(t.Context())
				if stats.Pending != 1 || stats.Sent != 0 {
					t.Errorf("%+v", stats)
				}
				clock.Step(time.Minute)
			}
			p.Client = healthy
			if stats := pass(t, p); stats.Sent != 1 || stats.Pending != 0 || len(s.got) != 1 {
				t.Errorf("%+v, %d events", stats, len(s.got))
			}
		})
	})
}

func (g ground) patch(tb testing.TB, ns, name, patch string) {
	tb.Helper()
	if _, err := g.objects(tb, pods, ns).Patch(context.Background(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		tb.Error(err)
	}
}

// purge removes the pod pi at once.
func (g ground) purge(t *testing.T, ns string) {
	t.Helper()
	if err := g.objects(t, pods, ns).Delete(context.Background(), "pi", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Error(err)
	}
}

// TestWithdrawn: an abandoned launch is told of only when it is sure that it does not run.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		gate := `{"spec":{"schedulingGates":null}}`
		t.Run("released at the last moment", func(t *testing.T) {
			t.Parallel()
			for _, before := range []string{"PATCH", "DELETE"} {
				ns := g.namespace(t)
				o := g.abandon(t, ns, "pi", launch.Spark)
				s := &sink{}
				p, clock := g.poller(t, s, ns)
				once := false
				p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
					return trip(func(r *http.Request) (*http.Response, error) {
						if r.Method == before && !once {
							once = true
							g.patch(t, ns, "pi", gate)
						}
						return next.RoundTrip(r)
					})
				})
				clock.Step(time.Hour)
				if stats := pass(t, p); stats.Pending != 1 || stats.Withdrawn != 0 {
					t.Errorf("before %s: %+v", before, stats)
				}
				found := g.get(t, pods, ns, "pi")
				if found.GetUID() != o.GetUID() || len(found.GetFinalizers()) > 0 || found.GetAnnotations()[completion.AnnotationOutcome] != "" || len(s.got) > 0 {
					t.Errorf("before %s: finalizers %v, %d events", before, found.GetFinalizers(), len(s.got))
				}
				g.status(t, found, podEnded("Succeeded", "0", "Completed"))
				if stats := pass(t, p); stats.Sent != 1 || stats.Outcomes[api.ReasonCompleted] != 1 {
					t.Errorf("before %s: at its end: %+v", before, stats)
				}
			}
		})
		t.Run("released after a kill", func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			o := g.abandon(t, ns, "pi", launch.Spark)
			s := &sink{}
			p, clock := g.poller(t, s, ns)
			clock.Step(time.Hour)
			p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
				return trip(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodDelete {
						return nil, errDead
					}
					return next.RoundTrip(r)
				})
			})
			if _, err := p.Pass(t.Context()); err == nil {
				t.Error("a pass that was killed succeeded")
			}
			if found := g.get(t, pods, ns, "pi"); len(found.GetFinalizers()) != 1 {
				t.Errorf("finalizers %v", found.GetFinalizers())
			}
			g.patch(t, ns, "pi", gate)
			p, _ = g.poller(t, s, ns)
			if stats := pass(t, p); stats.Pending != 1 {
				t.Errorf("%+v", stats)
			}
			found := g.get(t, pods, ns, "pi")
			if found.GetUID() != o.GetUID() || len(found.GetFinalizers()) > 0 || found.GetAnnotations()[completion.AnnotationOutcome] != "" || len(s.got) > 0 {
				t.Errorf("finalizers %v, %d events", found.GetFinalizers(), len(s.got))
			}
		})
		t.Run("the sink is down", func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			o := g.abandon(t, ns, "pi", launch.Spark)
			s := &sink{}
			s.become(func(context.Context, event.Event) error { return errSink })
			p, clock := g.poller(t, s, ns)
			clock.Step(time.Hour)
			if stats := pass(t, p); stats.Withdrawn != 1 || stats.Pending != 1 {
				t.Errorf("%+v", stats)
			}
			if found := g.get(t, pods, ns, "pi"); found.GetDeletionTimestamp() == nil || label(found) != "pending" {
				t.Errorf("withdrawn: %v", found.Object["metadata"])
			}
			// That process ends. The next one finds all that it needs.
			s.become(nil)
			p, _ = g.poller(t, s, ns)
			if stats := pass(t, p); stats.Sent != 1 || stats.Pending != 0 {
				t.Errorf("%+v", stats)
			}
			if diff := cmp.Diff(map[string]int{string(o.GetUID()) + ".failed": 1}, s.ids()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if list, err := g.objects(t, pods, ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
				t.Errorf("%d pods are left, %v", len(list.Items), err)
			}
		})
		t.Run("young", func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			g.abandon(t, ns, "pi", launch.Spark)
			p, _ := g.poller(t, &sink{}, ns)
			if stats := pass(t, p); stats.Pending != 1 || stats.Withdrawn != 0 {
				t.Errorf("%+v", stats)
			}
		})
	})
}

// TestGivenUpHolds: once a bound has ended a workload, it stays ended, though it begins to run meanwhile.
func TestGivenUpHolds(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		ns := g.namespace(t)
		o := g.launch(t, draft(ns, "pi", launch.Spark))
		g.status(t, o, `"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","lastTransitionTime":"2026-03-01T10:00:00Z"}]`)
		s := &sink{took: true}
		s.become(func(context.Context, event.Event) error { return errSink }) // taken, and the answer lost
		p, _ := g.poller(t, s, ns)
		p.Settings.Bounds.Unschedulable = time.Minute
		if stats := pass(t, p); stats.Unsent != 1 {
			t.Errorf("%+v", stats)
		}
		g.status(t, o, podEnded("Succeeded", "0", "Completed"))
		s.become(nil)
		p, _ = g.poller(t, s, ns) // another process, whose policy has no bound
		if stats := pass(t, p); stats.Sent != 1 || stats.Outcomes[api.ReasonUnschedulable] != 1 {
			t.Errorf("%+v", stats)
		}
		if diff := cmp.Diff(map[string]int{string(o.GetUID()) + ".failed": 2}, s.ids()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if list, err := g.objects(t, pods, ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
			t.Errorf("%d pods are left, %v", len(list.Items), err)
		}
	})
}

func TestOne(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ref := func(ns string) kube.Ref { return kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "pi"} }
	deleting := func(o *unstructured.Unstructured) {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
	}
	cases := map[string]struct {
		stage func(t *testing.T, ns string, o *unstructured.Unstructured)
		last  func(o *unstructured.Unstructured) *unstructured.Unstructured
		place string // the Poller's namespace, if it is another
		want  []string
	}{
		"ended": {
			stage: func(t *testing.T, _ string, o *unstructured.Unstructured) {
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
			},
			want: []string{"succeeded Completed"},
		},
		"runs": {},
		"told before": {stage: func(t *testing.T, ns string, o *unstructured.Unstructured) {
			g.status(t, o, podEnded("Succeeded", "0", "Completed"))
			g.patch(t, ns, "pi", `{"metadata":{"labels":{"flint.dev/completion":"sent"}}}`)
		}},
		"of a namespace that is not looked at": {
			stage: func(t *testing.T, _ string, o *unstructured.Unstructured) {
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
			},
			place: "elsewhere",
		},
		"gone, and nothing is known": {stage: func(t *testing.T, ns string, _ *unstructured.Unstructured) { g.purge(t, ns) }},
		"gone after its end": {
			stage: func(t *testing.T, ns string, o *unstructured.Unstructured) {
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
				*o = *g.get(t, pods, ns, "pi")
				g.purge(t, ns)
			},
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured { return o },
			want: []string{"succeeded Completed"},
		},
		"gone while it ran": {
			stage: func(t *testing.T, ns string, _ *unstructured.Unstructured) { g.purge(t, ns) },
			last:  func(o *unstructured.Unstructured) *unstructured.Unstructured { return o },
			want:  []string{"failed Unknown"},
		},
		"deleted while it ran": {
			stage: func(t *testing.T, ns string, o *unstructured.Unstructured) { g.purge(t, ns); deleting(o) },
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured {
				unstructured.RemoveNestedField(o.Object, "metadata", "namespace") // the event's subject has it
				_ = unstructured.SetNestedField(o.Object, "n1", "spec", "nodeName")
				return o
			},
			want: []string{"failed Deleted"},
		},
		"gone, told before": {
			stage: func(t *testing.T, ns string, _ *unstructured.Unstructured) { g.purge(t, ns) },
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured {
				o.SetLabels(merged(o.GetLabels(), launch.LabelCompletion, completion.Sent))
				return o
			},
		},
		"gone, another has its name": {
			stage: func(t *testing.T, ns string, _ *unstructured.Unstructured) {
				g.purge(t, ns)
				g.status(t, g.launch(t, draft(ns, "pi", launch.Runner)), podEnded("Failed", "1", "Error"))
			},
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured { return o },
			want: []string{"failed Error", "failed Unknown"},
		},
		"gone, of another name": {
			stage: func(t *testing.T, ns string, _ *unstructured.Unstructured) { g.purge(t, ns) },
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured {
				o.SetName("other")
				return o
			},
		},
		"there, whatever the event says": {
			last: func(o *unstructured.Unstructured) *unstructured.Unstructured { deleting(o); return o },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			o := g.launch(t, draft(ns, "pi", launch.Spark))
			if c.stage != nil {
				c.stage(t, ns, o)
			}
			s := &sink{}
			p, _ := g.poller(t, s, ns)
			var last *unstructured.Unstructured
			if c.last != nil {
				last = c.last(o)
			}
			at := ref(ns)
			if c.place != "" {
				p.Namespaces = []string{c.place}
			}
			if _, err := p.One(t.Context(), at, last); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range s.got {
				d := data(t, e)
				got = append(got, d.Outcome+" "+string(d.Reason))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// TestVanished: what was pending and is gone is told as far as what was seen tells its end.
func TestVanished(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	cases := map[string]struct {
		terminating, drained, ended, sinkDown bool
		want                                  map[string]api.Reason
	}{
		"alive":                                {},
		"being deleted":                        {terminating: true, want: map[string]api.Reason{"failed": "Deleted"}},
		"being deleted, and the sink is down":  {terminating: true, sinkDown: true, want: map[string]api.Reason{"failed": "Deleted"}},
		"being drained from its node":          {terminating: true, drained: true, want: map[string]api.Reason{"failed": "Evicted"}},
		"ended, while the sink was down":       {ended: true, want: map[string]api.Reason{"succeeded": "Completed"}},
		"ended, and the sink is down for long": {ended: true, sinkDown: true, want: map[string]api.Reason{"succeeded": "Completed"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := g.namespace(t)
			d := draft(ns, "pi", launch.Spark)
			d.Workload.Object["spec"].(object)["nodeName"] = "n1"
			o := g.launch(t, d)
			if c.drained {
				g.status(t, o, `"phase":"Running","conditions":[{"type":"DisruptionTarget","status":"True","reason":"EvictionByEvictionAPI","message":"Eviction API: evicting"}]`)
			}
			if c.terminating {
				if err := g.objects(t, pods, ns).Delete(t.Context(), "pi", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if c.ended {
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
			}
			s := &sink{}
			s.become(func(context.Context, event.Event) error { return errSink })
			p, clock := g.poller(t, s, ns)
			if stats := pass(t, p); stats.Pending != 1 {
				t.Errorf("%+v", stats)
			}
			g.purge(t, ns)
			if !c.sinkDown {
				s.become(nil)
			}
			clock.Step(time.Minute)
			stats := pass(t, p)
			if stats.Vanished != 1 {
				t.Errorf("%+v", stats)
			}
			s.become(nil)
			for range 3 {
				clock.Step(time.Minute)
				if stats := pass(t, p); stats.Vanished != 0 || stats.Pending != 0 {
					t.Errorf("%+v", stats)
				}
			}
			var got map[string]api.Reason
			for _, e := range s.got {
				if got == nil {
					got = map[string]api.Reason{}
				}
				got[data(t, e).Outcome] = data(t, e).Reason
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(s.got) > 1 {
				t.Errorf("%d events (-want +got):\n%s", len(s.got), diff)
			}
		})
	}
	t.Run("deleted by us while the sink is down, and passes go on", func(t *testing.T) {
		t.Parallel()
		ns := g.namespace(t)
		o := g.launch(t, draft(ns, "pi", launch.Spark))
		s := &sink{}
		p, clock := g.poller(t, s, ns)
		pass(t, p) // remembers it alive
		s.become(func(context.Context, event.Event) error { return errSink })
		g.purge(t, ns)
		last := o.DeepCopy()
		now := metav1.Now()
		last.SetDeletionTimestamp(&now)
		if _, err := p.One(t.Context(), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: "pi"}, last); err != nil {
			t.Fatal(err)
		}
		clock.Step(100 * time.Millisecond) // the next try of the event is not due yet
		if stats := pass(t, p); stats.Vanished != 0 {
			t.Errorf("%+v", stats)
		}
		s.become(nil)
		clock.Step(time.Hour)
		pass(t, p)
		clock.Step(time.Hour)
		pass(t, p)
		if len(s.got) != 1 || data(t, s.got[0]).Reason != api.ReasonDeleted {
			t.Errorf("events %v", s.got)
		}
	})
	t.Run("told by another and deleted", func(t *testing.T) { // the label is the evidence, as long as it is there
		t.Parallel()
		ns := g.namespace(t)
		g.launch(t, draft(ns, "pi", launch.Spark))
		s := &sink{}
		p, clock := g.poller(t, s, ns)
		pass(t, p)
		g.patch(t, ns, "pi", `{"metadata":{"labels":{"flint.dev/completion":"sent"}}}`)
		clock.Step(2 * time.Second)
		pass(t, p)
		g.purge(t, ns)
		clock.Step(2 * time.Second)
		if stats := pass(t, p); stats.Vanished != 0 || len(s.got) > 0 {
			t.Errorf("%+v, %d events", stats, len(s.got))
		}
	})
}

// TestRun: the passes go on, often while anything is pending, seldom otherwise, and at once after Wake.
func TestRun(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ns := g.namespace(t)
	s := &sink{}
	p, clock := g.poller(t, s, ns)
	passed := make(chan completion.Stats)
	p.Passed = func(stats completion.Stats, _ time.Duration, _ error) { passed <- stats }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	next := func() completion.Stats {
		t.Helper()
		select {
		case stats := <-passed:
			return stats
		case <-time.After(30 * time.Second):
			t.Fatal("no pass")
			panic("unreachable")
		}
	}
	// interval waits for the next pass's timer and tells after how long, in steps of a second, it comes.
	interval := func() int {
		t.Helper()
		for n := 1; n <= 60; n++ {
			awaitWaiter(t, clock)
			clock.Step(time.Second)
			if !clock.HasWaiters() {
				next()
				return n
			}
		}
		t.Fatal("no timer fired")
		return 0
	}
	next()
	var idle []int
	for range 6 {
		idle = append(idle, interval())
	}
	if diff := cmp.Diff([]int{2, 4, 8, 16, 30, 30}, idle); diff != "" {
		t.Errorf("seconds between idle passes (-want +got):\n%s", diff)
	}
	o := g.launch(t, draft(ns, "pi", launch.Spark))
	p.Wake()
	if stats := next(); stats.Pending != 1 {
		t.Errorf("after Wake: %+v", stats)
	}
	for range 3 {
		if got := interval(); got != 2 {
			t.Errorf("%d seconds while something is pending", got)
		}
	}
	g.status(t, o, podEnded("Succeeded", "0", "Completed"))
	interval()
	if len(s.ids()) != 1 {
		t.Errorf("events %v", s.ids())
	}
	cancel()
	go func() {
		for range passed { // let a last pass end
			continue
		}
	}()
	<-ended
	close(passed)
}

// awaitWaiter waits until somebody waits for the clock.
func awaitWaiter(t *testing.T, clock *clocktesting.FakeClock) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !clock.HasWaiters(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
}

// What became of a file job is in its pod: as long as that cannot be read nothing is told.
func TestFileJobWaitsForItsPods(t *testing.T) {
	t.Parallel()
	g, _ := embeddedGround(t)
	ns := g.namespace(t)
	g.status(t, g.launch(t, draft(ns, "copy", launch.File)), jobComplete)
	s := &sink{}
	p, _ := g.poller(t, s, ns)
	var down atomic.Bool
	down.Store(true)
	p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			if down.Load() && strings.Contains(r.URL.RawQuery, "controller-uid") {
				return refuse(r, http.StatusServiceUnavailable, "ServiceUnavailable"), nil
			}
			return next.RoundTrip(r)
		})
	})
	if stats, err := p.Pass(t.Context()); err == nil || stats.Pending != 1 || stats.Sent != 0 || len(s.ids()) > 0 {
		t.Errorf("%+v, %v, told %v", stats, err, s.ids())
	}
	down.Store(false)
	if stats := pass(t, p); stats.Sent != 1 {
		t.Errorf("%+v", stats)
	}
}
