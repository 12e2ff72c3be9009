package launch_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// bothGrounds runs the test where launches are kept until their end was told, on the embedded API and on a real one.
func bothGrounds(t *testing.T, test func(t *testing.T, g ground)) {
	t.Run("embedded", func(t *testing.T) { t.Parallel(); test(t, embeddedGround(t).telling()) })
	t.Run("API server", func(t *testing.T) { t.Parallel(); test(t, realGround(t).telling()) })
}

func alone(draft func(string) launch.Plan) func(string) launch.Plan {
	return func(namespace string) launch.Plan {
		d := draft(namespace)
		d.Support = nil
		return d
	}
}

// TestBornKept: the Finalizer costs no write, those of the template and of others stay, and the plan is not changed by it.
func TestBornKept(t *testing.T) {
	t.Parallel()
	const theirs, webhooks = "example.com/template", "example.com/webhook"
	bothGrounds(t, func(t *testing.T, g ground) {
		for name, c := range map[string]struct {
			draft func(string) launch.Plan
			calls int
		}{
			"a driver":                  {sparkDraft, len(sparkCalls)},
			"a Job":                     {jobDraft, len(jobCalls)},
			"a runner":                  {runnerDraft, len(runnerCalls)},
			"a pod without support":     {alone(sparkDraft), 1},
			"a Job without support":     {alone(jobDraft), 1},
			"a pod that names its node": {func(ns string) launch.Plan { return onNode(sparkDraft(ns)) }, 2 * len(sparkCalls[1:])},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				draft := c.draft(g.namespace(t))
				draft.Workload.SetFinalizers([]string{theirs})
				plan := newPlan(t, draft)
				before := plan.Workload.DeepCopy()
				// While the support is created, somebody else adds one of theirs.
				touch := func(cancel context.CancelFunc) func(call, int) action {
					return once("POST "+supportOf(plan), first(func() { g.change(t, plan, `{"metadata":{"finalizers":["`+webhooks+`"]}}`) }))
				}
				_, calls, err := g.applyOver(t, plan, touch)
				if err != nil {
					t.Fatal(err)
				}
				want := []string{theirs, launch.Finalizer}
				if len(plan.Support) > 0 {
					want = append(want, webhooks)
				}
				got := slices.Sorted(slices.Values(g.state(t, plan.Namespace)[0].GetFinalizers()))
				if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" || len(calls) != c.calls {
					t.Errorf("%d calls, finalizers (-want +got):\n%s", len(calls), diff)
				}
				if diff := cmp.Diff(before, plan.Workload); diff != "" {
					t.Errorf("the plan was changed (-before +after):\n%s", diff)
				}
			})
		}
	})
}

// supportOf names the plan's last support object as calls do.
func supportOf(plan *launch.Plan) string {
	if len(plan.Support) == 0 {
		return ""
	}
	o := plan.Support[len(plan.Support)-1].Object
	return strings.ToLower(o.GetKind()) + "s " + o.GetName()
}

// change adds to the workload what a strategic merge patch says.
func (g ground) change(t *testing.T, plan *launch.Plan, patch string) {
	t.Helper()
	ref := kube.RefOf(plan.Namespace, plan.Workload)
	if _, err := (&wire{}).client(t, g.config).Patch(t.Context(), ref, types.StrategicMergePatchType, []byte(patch)); err != nil {
		t.Error(err)
	}
}

// TestRefusedIsNotKept: what was refused is gone, and waits for nobody to tell of it.
func TestRefusedIsNotKept(t *testing.T) {
	t.Parallel()
	bothGrounds(t, func(t *testing.T, g ground) {
		for name, draft := range map[string]func(string) launch.Plan{
			"a driver": sparkDraft, "a Job": jobDraft, "a pod that names its node": func(ns string) launch.Plan { return onNode(sparkDraft(ns)) },
		} {
			for how, meanwhile := range map[string]func(t *testing.T, plan *launch.Plan){
				"undisturbed":                       func(*testing.T, *launch.Plan) {},
				"after a controller has touched it": func(t *testing.T, plan *launch.Plan) { g.change(t, plan, `{"metadata":{"labels":{"touched":"yes"}}}`) },
			} {
				t.Run(name+"/"+how, func(t *testing.T) {
					t.Parallel()
					plan := newPlan(t, draft(g.namespace(t)))
					_, _, err := g.applyOver(t, plan, func(context.CancelFunc) func(call, int) action {
						return once("POST "+supportOf(plan), refuseAfter(func() { meanwhile(t, plan) }))
					})
					if !matches(err, api.Forbidden, []string{"no right"}) || matches(err, api.Forbidden, []string{"could not be taken away"}) {
						t.Errorf("error %v", err)
					}
					if left := g.workload(t, plan); left != nil && (left.GetDeletionTimestamp() == nil || len(left.GetFinalizers()) > 0) {
						t.Errorf("it is left: %v", left.Object["metadata"]) // on a node it ends in its time
					}
				})
			}
		}
		// A pod that names its node is not held: a look puts the finalizer back on what nobody deletes, and what runs must go in any case.
		for how, disturb := range map[string]func(t *testing.T, plan *launch.Plan) func(call, int) action{
			"before a look keeps it": func(t *testing.T, plan *launch.Plan) func(call, int) action {
				name := "pods " + plan.Workload.GetName()
				return once("DELETE "+name, first(func() { g.change(t, plan, `{"metadata":{"finalizers":["`+launch.Finalizer+`"]}}`) }))
			},
			"and cannot be let go, though it may run": func(_ *testing.T, plan *launch.Plan) func(call, int) action {
				return on("PATCH pods "+plan.Workload.GetName(), answer(500, "InternalError", "etcd is away"))
			},
		} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				plan := newPlan(t, onNode(sparkDraft(g.namespace(t))))
				_, _, err := g.applyOver(t, plan, func(context.CancelFunc) func(call, int) action {
					return either(once("POST "+supportOf(plan), answer(403, "Forbidden", "no right")), disturb(t, plan))
				})
				if !matches(err, api.Forbidden, []string{"no right"}) || matches(err, api.Forbidden, []string{"could not be taken away"}) {
					t.Errorf("error %v", err)
				}
				left := g.workload(t, plan)
				if left != nil && (left.GetDeletionTimestamp() == nil || how == "before a look keeps it" && len(left.GetFinalizers()) > 0) {
					t.Errorf("it is left: %v", left.Object["metadata"])
				}
			})
		}
		t.Run("and cannot be let go", func(t *testing.T) {
			t.Parallel()
			plan := newPlan(t, jobDraft(g.namespace(t)))
			_, _, err := g.applyOver(t, plan, func(context.CancelFunc) func(call, int) action {
				return either(once("POST "+supportOf(plan), answer(403, "Forbidden", "no right")), on("PATCH jobs copy", answer(500, "InternalError", "etcd is away")))
			})
			if !matches(err, api.Forbidden, []string{"could not be taken away", "etcd is away", "it stays, held"}) {
				t.Errorf("error %v", err)
			}
			if left := g.workload(t, plan); left == nil || !launch.Held(left) || left.GetDeletionTimestamp() != nil {
				t.Errorf("left: %v", left)
			}
		})
		t.Run("and was released by another call", func(t *testing.T) {
			t.Parallel()
			plan := newPlan(t, jobDraft(g.namespace(t)))
			_, _, err := g.applyOver(t, plan, func(context.CancelFunc) func(call, int) action {
				return once("POST "+supportOf(plan), refuseAfter(func() {
					if _, _, err := g.applyOver(t, plan, nil); err != nil {
						t.Error(err)
					}
				}))
			})
			if !matches(err, api.SubmitterOverloaded, []string{"another call of this submission released"}) {
				t.Errorf("error %v", err)
			}
			left := g.workload(t, plan)
			if left == nil || launch.Held(left) || !slices.Contains(left.GetFinalizers(), launch.Finalizer) {
				t.Errorf("left: %v", left)
			}
		})
	})
}

// TestDeletedAmidLaunch: what somebody deletes before its release is kept, and the launch does not say that it succeeded.
func TestDeletedAmidLaunch(t *testing.T) {
	t.Parallel()
	bothGrounds(t, func(t *testing.T, g ground) {
		for name, draft := range map[string]func(string) launch.Plan{"a driver": sparkDraft, "a Job": jobDraft} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				plan := newPlan(t, draft(g.namespace(t)))
				_, _, err := g.applyOver(t, plan, func(context.CancelFunc) func(call, int) action {
					return once("POST "+supportOf(plan), first(func() {
						workload := g.workload(t, plan)
						if err := (&wire{}).client(t, g.config).Delete(t.Context(), kube.RefOf(plan.Namespace, workload), workload.GetUID()); err != nil {
							t.Error(err)
						}
					}))
				})
				if !matches(err, api.SubmitterOverloaded, []string{"was deleted or changed"}) {
					t.Errorf("error %v", err)
				}
				left := g.workload(t, plan)
				if left == nil || left.GetDeletionTimestamp() == nil || !slices.Contains(left.GetFinalizers(), launch.Finalizer) {
					t.Errorf("left: %v", left)
				}
				if _, _, err = g.applyOver(t, plan, nil); !matches(err, api.SubmitterOverloaded, []string{"is being deleted"}) {
					t.Errorf("the repeat: %v", err)
				}
			})
		}
	})
}

// workload is the plan's, or nil where it is gone.
func (g ground) workload(t *testing.T, plan *launch.Plan) *unstructured.Unstructured {
	t.Helper()
	state := g.state(t, plan.Namespace)
	if len(state) == 0 || state[0].GetKind() != plan.Workload.GetKind() {
		return nil
	}
	return state[0]
}

// A dry run shows what is created.
func TestDryRunOfKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.applier.TellDeleted = true
	objects, err := w.applier.DryRun(w.context(), newPlan(t, small()))
	if err != nil || !slices.Contains(objects[0].GetFinalizers(), launch.Finalizer) {
		t.Errorf("%v, %v", objects, err)
	}
}
