package completion_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/launch"
)

// onNode is a pod that runs, of a launch that is kept: on a node of nobody's, so that its end is the test's to write.
func onNode(ns string, kind launch.Kind) launch.Plan {
	d := draft(ns, "pi", kind)
	d.Workload.Object["spec"].(object)["nodeName"] = "n1"
	return d
}

// delete is what kubectl does, or the collector, or the end of a namespace.
func (g ground) delete(t *testing.T, o *unstructured.Unstructured, options metav1.DeleteOptions) {
	t.Helper()
	background := metav1.DeletePropagationBackground
	options.PropagationPolicy = &background
	if err := g.objects(t, resourceOf(o), o.GetNamespace()).Delete(context.Background(), o.GetName(), options); err != nil {
		t.Error(err)
	}
}

func resourceOf(o *unstructured.Unstructured) schema.GroupVersionResource {
	if o.GetKind() == "Job" {
		return jobs
	}
	return pods
}

// end is the kubelet's last word: how the containers ended, and no more grace.
func (g ground) end(t *testing.T, o *unstructured.Unstructured, status string) {
	t.Helper()
	if status != "" {
		g.status(t, o, status)
	}
	g.delete(t, o, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

func (g ground) isGone(t *testing.T, o *unstructured.Unstructured) bool {
	t.Helper()
	found, err := g.objects(t, resourceOf(o), o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil || found.GetUID() != o.GetUID()
}

// told are the outcomes and reasons of the events about the workload.
func (s *sink) told(t *testing.T, o *unstructured.Unstructured) (told []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.got {
		d := data(t, e)
		if d.UID == string(o.GetUID()) {
			told = append(told, d.Outcome+" "+string(d.Reason))
		}
	}
	return told
}

// TestDeletedUnseen: what others delete while no instance is up is told by the next one as it ended, once, and then is gone. While
// the sink is down it waits.
func TestDeletedUnseen(t *testing.T) {
	t.Parallel()
	none := metav1.DeleteOptions{}
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		for name, c := range map[string]struct {
			draft func(ns string) launch.Plan
			then  func(t *testing.T, o *unstructured.Unstructured) // while no instance is up
			want  string
		}{
			"a driver that obeys": {
				func(ns string) launch.Plan { return onNode(ns, launch.Spark) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.delete(t, o, none)
					g.end(t, o, podEnded("Failed", "143", "Error"))
				}, "failed Deleted",
			},
			"a driver that ends in its grace": {
				func(ns string) launch.Plan { return onNode(ns, launch.Spark) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.delete(t, o, none)
					g.end(t, o, podEnded("Succeeded", "0", "Completed"))
				}, "succeeded Completed",
			},
			"a driver that had ended": {
				func(ns string) launch.Plan { return draft(ns, "pi", launch.Spark) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.status(t, o, podEnded("Failed", "3", "Error"))
					g.delete(t, o, none)
				}, "failed Error",
			},
			"a driver that no node had": {
				func(ns string) launch.Plan { return draft(ns, "pi", launch.Spark) },
				func(t *testing.T, o *unstructured.Unstructured) { g.delete(t, o, none) }, "failed Deleted",
			},
			"a driver, by force": {
				func(ns string) launch.Plan { return onNode(ns, launch.Spark) },
				func(t *testing.T, o *unstructured.Unstructured) { g.end(t, o, "") }, "failed Deleted",
			},
			"a runner, since its parent is gone": {
				func(ns string) launch.Plan { return onNode(ns, launch.Runner) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.delete(t, o, none)
					g.end(t, o, podEnded("Failed", "137", "Error"))
				}, "failed Deleted",
			},
			"a file job that runs": {
				func(ns string) launch.Plan { return draft(ns, "pi", launch.File) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.status(t, o, `"startTime":"2026-03-01T10:00:00Z","active":1,"ready":1`)
					g.delete(t, o, none)
				}, "failed Deleted",
			},
			"a file job that has failed, by its time to live": {
				func(ns string) launch.Plan { return draft(ns, "pi", launch.File) },
				func(t *testing.T, o *unstructured.Unstructured) {
					g.status(t, o, jobDeadline)
					g.delete(t, o, none)
				}, "failed DeadlineExceeded",
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				o := g.launch(t, c.draft(ns))
				c.then(t, o)
				s := &sink{}
				s.become(func(context.Context, event.Event) error { return errSink })
				p, clock := g.poller(t, s, ns)
				if stats := pass(t, p); stats.Pending != 1 || g.isGone(t, o) {
					t.Errorf("while the sink is down: %+v", stats)
				}
				s.become(nil)
				for _, p := range []*completion.Poller{p, func() *completion.Poller { p, _ := g.poller(t, s, ns); return p }()} { // and another instance
					clock.Step(time.Minute)
					pass(t, p)
				}
				if diff := cmp.Diff([]string{c.want}, s.told(t, o)); diff != "" || !g.isGone(t, o) {
					t.Errorf("gone %t, told (-want +got):\n%s", g.isGone(t, o), diff)
				}
			})
		}
	})
}

// TestDeletedBetweenLooks: an instance that has seen it alive, and then not at all, tells it once too.
func TestDeletedBetweenLooks(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		ns := g.namespace(t)
		o := g.launch(t, onNode(ns, launch.Spark))
		s := &sink{}
		p, _ := g.poller(t, s, ns)
		if stats := pass(t, p); stats.Pending != 1 {
			t.Errorf("alive: %+v", stats)
		}
		g.delete(t, o, metav1.DeleteOptions{})
		if stats := pass(t, p); stats.Pending != 1 || len(s.got) > 0 {
			t.Errorf("it still runs: %+v", stats)
		}
		g.end(t, o, podEnded("Failed", "143", "Error"))
		for range 2 {
			if _, err := p.One(t.Context(), podRef(ns), nil); err != nil {
				t.Error(err)
			}
			if stats := pass(t, p); stats.Vanished+stats.Pending > 0 {
				t.Errorf("%+v", stats)
			}
		}
		if diff := cmp.Diff([]string{"failed Deleted"}, s.told(t, o)); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// TestPodsOfKeptJobs: pods of a Job that is deleted and kept end, though the sink is down, but not those that have ended, and not those
// that are to outlive it.
func TestPodsOfKeptJobs(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		for name, c := range map[string]struct {
			status string // of the pod
			owned  bool
			orphan bool
			ends   bool
		}{
			"runs":                      {`"phase":"Running"`, true, false, true},
			"has ended":                 {`"phase":"Succeeded"`, true, false, false},
			"runs, and is to outlive":   {`"phase":"Running"`, true, true, false},
			"runs, and is nobody's now": {`"phase":"Running"`, false, false, false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				job := g.launch(t, draft(ns, "copy", launch.File))
				pod := &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Pod", "spec": object{
					"nodeName": "n1", "automountServiceAccountToken": false, "containers": []any{object{"name": "agent", "image": "i"}},
				}}}
				pod.SetName("copy-1")
				pod.SetLabels(map[string]string{"batch.kubernetes.io/controller-uid": string(job.GetUID())})
				if c.owned {
					yes := true
					pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.GetName(), UID: job.GetUID(), Controller: &yes}})
				}
				pod, err := g.objects(t, pods, ns).Create(t.Context(), pod, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				g.status(t, pod, c.status)
				if c.orphan { // as the API server puts it on with that policy, which a Job's deletion has if it names none
					patch := `{"metadata":{"finalizers":["` + metav1.FinalizerOrphanDependents + `","` + completion.Finalizer + `"]}}`
					if _, err := g.objects(t, jobs, ns).Patch(t.Context(), "copy", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				if !c.orphan {
					g.delete(t, job, metav1.DeleteOptions{})
				} else if err := g.objects(t, jobs, ns).Delete(t.Context(), job.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				s := &sink{}
				s.become(func(context.Context, event.Event) error { return errSink })
				p, _ := g.poller(t, s, ns)
				if stats := pass(t, p); stats.Unsent != 1 {
					t.Errorf("%+v", stats)
				}
				if left := g.get(t, pods, ns, "copy-1"); (left.GetDeletionTimestamp() != nil) != c.ends {
					t.Errorf("the pod: %v", left.Object["metadata"])
				}
			})
		}
	})
}

// TestSettingChanges: what lives is what the setting says, whatever it was when it was launched. What is held is its launch's, and
// what is being deleted is told.
func TestSettingChanges(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		const theirs = "example.com/theirs"
		stage := func(t *testing.T, g ground) (ns string, all map[string]*unstructured.Unstructured) {
			ns = g.namespace(t)
			all = map[string]*unstructured.Unstructured{}
			for _, kind := range []launch.Kind{launch.Spark, launch.File, launch.Runner} {
				d := draft(ns, string(kind), kind)
				d.Workload.SetFinalizers([]string{theirs})
				all[string(kind)] = g.launch(t, d)
			}
			all["held"] = g.abandon(t, ns, "held", launch.Spark)
			return ns, all
		}
		finalizers := func(t *testing.T, all map[string]*unstructured.Unstructured) map[string][]string {
			got := map[string][]string{}
			for name, o := range all {
				got[name] = g.get(t, resourceOf(o), o.GetNamespace(), o.GetName()).GetFinalizers()
			}
			return got
		}
		t.Run("turned on", func(t *testing.T) {
			t.Parallel()
			ns, all := stage(t, g)
			ended := g.launch(t, draft(ns, "ended", launch.Spark))
			g.status(t, ended, podEnded("Succeeded", "0", "Completed"))
			all["ended"] = ended
			all["given up"] = g.launch(t, draft(ns, "given-up", launch.Runner))
			g.patch(t, ns, "given-up", string(completion.Recording(all["given up"], completion.Outcome{Reason: api.ReasonImagePull})))
			s := &sink{}
			s.become(func(context.Context, event.Event) error { return errSink })
			p, clock := g.telling().poller(t, s, ns)
			for range 2 {
				pass(t, p)
			}
			want := map[string][]string{
				"spark": {theirs, completion.Finalizer}, "file": {theirs, completion.Finalizer}, "runner": {theirs, completion.Finalizer},
				"ended": {completion.Finalizer}, "given up": {completion.Finalizer}, "held": nil,
			}
			if diff := cmp.Diff(want, finalizers(t, all), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			g.delete(t, ended, metav1.DeleteOptions{})
			s.become(nil)
			clock.Step(time.Minute)
			pass(t, p)
			if diff := cmp.Diff([]string{"succeeded Completed"}, s.told(t, ended)); diff != "" || !g.isGone(t, ended) {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
		t.Run("turned off", func(t *testing.T) {
			t.Parallel()
			ns, all := stage(t, g.telling())
			deleted := g.telling().launch(t, draft(ns, "deleted", launch.Spark))
			g.delete(t, deleted, metav1.DeleteOptions{})
			s := &sink{}
			p, _ := g.poller(t, s, ns)
			for range 2 {
				pass(t, p)
			}
			want := map[string][]string{"spark": {theirs}, "file": {theirs}, "runner": {theirs}, "held": nil}
			if diff := cmp.Diff(want, finalizers(t, all), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("finalizers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"failed Deleted"}, s.told(t, deleted)); diff != "" || !g.isGone(t, deleted) || len(s.got) != 1 {
				t.Errorf("%d events, told (-want +got):\n%s", len(s.got), diff)
			}
		})
	})
}

// TestReleasedAtTheLastMomentIsKept: a withdrawal that a release overtakes leaves the workload kept, as the setting says.
func TestReleasedAtTheLastMomentIsKept(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		for _, before := range []string{http.MethodPatch, http.MethodDelete} {
			t.Run(before, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				o := g.abandon(t, ns, "pi", launch.Spark)
				s := &sink{}
				p, clock := g.poller(t, s, ns)
				once := false
				p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
					return trip(func(r *http.Request) (*http.Response, error) {
						if r.Method == before && !once {
							once = true
							g.patch(t, ns, "pi", `{"spec":{"schedulingGates":null}}`)
						}
						return next.RoundTrip(r)
					})
				})
				clock.Step(time.Hour)
				for range 2 {
					if stats := pass(t, p); stats.Pending != 1 || stats.Withdrawn != 0 {
						t.Errorf("%+v", stats)
					}
				}
				found := g.get(t, pods, ns, "pi")
				if diff := cmp.Diff([]string{completion.Finalizer}, found.GetFinalizers()); diff != "" || found.GetAnnotations()[completion.AnnotationOutcome] != "" {
					t.Errorf("annotations %v, finalizers (-want +got):\n%s", found.GetAnnotations(), diff)
				}
				g.delete(t, o, metav1.DeleteOptions{})
				pass(t, p)
				if diff := cmp.Diff([]string{"failed Deleted"}, s.told(t, o)); diff != "" || !g.isGone(t, o) {
					t.Errorf("told (-want +got):\n%s", diff)
				}
			})
		}
	})
}

// TestGivenUpAndKept: what a bound has ended is told once, deleted and gone, whatever becomes of the note.
func TestGivenUpAndKept(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		ns := g.namespace(t)
		o := g.launch(t, draft(ns, "pi", launch.Spark))
		g.status(t, o, `"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","lastTransitionTime":"2026-03-01T10:00:00Z"}]`)
		s := &sink{}
		p, clock := g.poller(t, s, ns)
		p.Settings.Bounds.Unschedulable = time.Minute
		healthy := p.Client
		deleted := false
		p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
			return trip(func(r *http.Request) (*http.Response, error) {
				deleted = deleted || r.Method == http.MethodDelete
				if deleted && r.Method == http.MethodPatch {
					return refuse(r, http.StatusServiceUnavailable, string(metav1.StatusReasonServiceUnavailable)), nil
				}
				return next.RoundTrip(r)
			})
		})
		if stats, err := p.Pass(t.Context()); err == nil || stats.Unmarked != 1 || g.isGone(t, o) {
			t.Errorf("%+v, %v", stats, err)
		}
		p.Client = healthy
		clock.Step(time.Minute)
		if stats := pass(t, p); stats.Sent != 1 || stats.Pending != 0 {
			t.Errorf("%+v", stats)
		}
		if diff := cmp.Diff([]string{"failed Unschedulable"}, s.told(t, o)); diff != "" || !g.isGone(t, o) {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// TestLetGoByItsLaunch: a launch that is about to withdraw its workload has taken the finalizer off; a pass does not put it back.
func TestLetGoByItsLaunch(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		ns := g.namespace(t)
		o := g.abandon(t, ns, "pi", launch.Spark)
		if !slices.Contains(o.GetFinalizers(), completion.Finalizer) {
			t.Fatalf("born with %v", o.GetFinalizers())
		}
		if _, err := g.objects(t, pods, ns).Patch(t.Context(), "pi", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s := &sink{}
		p, clock := g.poller(t, s, ns)
		pass(t, p)
		if found := g.get(t, pods, ns, "pi"); len(found.GetFinalizers()) > 0 {
			t.Errorf("finalizers %v", found.GetFinalizers())
		}
		clock.Step(time.Hour) // the launch was killed
		pass(t, p)
		if diff := cmp.Diff([]string{"failed Deleted"}, s.told(t, o)); diff != "" || !g.isGone(t, o) {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// TestEndedAndNotToBeKept: that what has ended without the finalizer cannot be given it is no reason not to tell its end, which was seen
// now, and maybe not again.
func TestEndedAndNotToBeKept(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		for name, c := range map[string]struct {
			meanwhile func(t *testing.T, ns string) // before the first patch
			refused   bool
			pending   int
		}{
			"changed": {meanwhile: func(t *testing.T, ns string) { g.patch(t, ns, "pi", `{"metadata":{"labels":{"team":"a"}}}`) }},
			"replaced": {meanwhile: func(t *testing.T, ns string) {
				g.purge(t, ns)
				g.launch(t, draft(ns, "pi", launch.Spark))
			}, pending: 1},
			"gone":    {meanwhile: g.purge},
			"refused": {refused: true, pending: 1},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				o := g.launch(t, draft(ns, "pi", launch.Spark))
				g.status(t, o, podEnded("Succeeded", "0", "Completed"))
				s := &sink{}
				p, clock := g.telling().poller(t, s, ns)
				once := false
				p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
					return trip(func(r *http.Request) (*http.Response, error) {
						if r.Method == http.MethodPatch && c.refused {
							return refuse(r, http.StatusForbidden, "Forbidden"), nil
						}
						if r.Method == http.MethodPatch && !once {
							once = true
							c.meanwhile(t, ns)
						}
						return next.RoundTrip(r)
					})
				})
				var stats completion.Stats
				for range 3 {
					stats, _ = p.Pass(t.Context())
					clock.Step(time.Minute)
				}
				if diff := cmp.Diff([]string{"succeeded Completed"}, s.told(t, o)); diff != "" || stats.Pending != c.pending {
					t.Errorf("%+v, told (-want +got):\n%s", stats, diff)
				}
			})
		}
	})
}

// TestTwoSettings: two instances of different settings do not fight: each is right now and then.
func TestTwoSettings(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		ns := g.namespace(t)
		g.launch(t, draft(ns, "pi", launch.Spark))
		patches := 0
		one, clock := g.poller(t, &sink{}, ns)
		another, _ := g.telling().poller(t, &sink{}, ns)
		another.Clock = clock
		for _, p := range []*completion.Poller{one, another} {
			p.Client = g.client(t, func(next http.RoundTripper) http.RoundTripper {
				return trip(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodPatch {
						patches++
					}
					return next.RoundTrip(r)
				})
			})
		}
		const passes = 30 // two seconds apart
		for range passes {
			pass(t, another)
			pass(t, one)
			clock.Step(2 * time.Second)
		}
		if patches < 2 || patches > 5 {
			t.Errorf("%d patches in a minute", patches)
		}
		clock.Step(time.Minute)
		pass(t, another)
		if found := g.get(t, pods, ns, "pi"); !slices.Contains(found.GetFinalizers(), completion.Finalizer) {
			t.Error("it is not kept")
		}
	})
}

// TestSentAndKept: what somebody else has labelled as told is nobody's to tell, and is not kept either.
func TestSentAndKept(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, g ground) {
		g = g.telling()
		for when, want := range map[string]int{"before a look": 0, "amid the delivery": 1, "between two looks": 0} {
			t.Run(when, func(t *testing.T) {
				t.Parallel()
				ns := g.namespace(t)
				o := g.launch(t, draft(ns, "pi", launch.Spark))
				g.patch(t, ns, "pi", `{"metadata":{"finalizers":["example.com/theirs","`+completion.Finalizer+`"]}}`)
				s := &sink{}
				p, clock := g.poller(t, s, ns)
				look := func() {
					if _, err := p.One(t.Context(), podRef(ns), nil); err != nil {
						t.Error(err)
					}
				}
				label := func() { g.patch(t, ns, "pi", `{"metadata":{"labels":{"flint.dev/completion":"sent"}}}`) }
				switch when {
				case "before a look":
					label()
				case "amid the delivery":
					g.status(t, o, podEnded("Succeeded", "0", "Completed"))
					s.become(func(context.Context, event.Event) error { label(); return nil })
				default:
					pass(t, p)
					label()
					clock.Step(time.Minute)
					look = func() { pass(t, p) }
				}
				look()
				if diff := cmp.Diff([]string{"example.com/theirs"}, g.get(t, pods, ns, "pi").GetFinalizers()); diff != "" || len(s.got) != want {
					t.Errorf("%d events, finalizers (-want +got):\n%s", len(s.got), diff)
				}
			})
		}
	})
}
