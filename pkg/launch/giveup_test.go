package launch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// tombstone is what is left behind for the key of the plan.
func tombstone(plan *launch.Plan) *unstructured.Unstructured {
	o := plan.Support[0].Object.DeepCopy()
	o.SetAnnotations(map[string]string{launch.AnnotationGivenUp: "BOOT_TIMEOUT at 2026-11-30T12:00:00Z"})
	return o
}

// isGivenUp checks that the key of the plan starts nothing: the workload is gone, the tombstone is as it was.
func (g ground) isGivenUp(tb testing.TB, plan *launch.Plan) {
	tb.Helper()
	for _, o := range g.state(tb, plan.Namespace) {
		switch {
		case o.GetKind() == "Pod":
			tb.Errorf("%s is left, held %t", o.GetName(), launch.Held(o))
		case o.GetKind() == "Lease" && (len(o.GetOwnerReferences()) > 0 || o.GetAnnotations()[launch.AnnotationGivenUp] == ""):
			tb.Errorf("the tombstone was changed: %v", o.Object["metadata"])
		}
	}
}

// L13: a launch that comes after its key was given up withdraws, whatever happens to any one of its calls: a
// workload of it is never released, and the next call of it leaves none.
func TestL13GivenUpKeyStartsNothing(t *testing.T) {
	calls := []call{"POST pods app-r-1", "POST leases flint-key", "GET leases flint-key", "POST secrets app-r-1", "DELETE pods app-r-1"}
	for where, makeGround := range map[string]func(testing.TB) ground{"embedded": embeddedGround, "API server": realGround} {
		g := makeGround(t)
		client := (&wire{}).client(t, g.config)
		start := func(t *testing.T) *launch.Plan {
			plan := newPlan(t, runnerDraft(g.namespace(t)))
			if _, err := client.Create(t.Context(), plan.Namespace, tombstone(plan), false); err != nil {
				t.Fatal(err)
			}
			return plan
		}
		refused := func(t *testing.T, err error) {
			t.Helper()
			if !matches(err, api.Gone, []string{"submission_id sub-1 was given up", "BOOT_TIMEOUT at 2026-11-30T12:00:00Z", "use a new one"}) {
				t.Errorf("refused with %v", err)
			}
		}
		t.Run(where, func(t *testing.T) {
			plan := start(t)
			_, taken, err := g.applyOver(t, plan, nil)
			refused(t, err)
			g.isGivenUp(t, plan)
			for _, c := range taken {
				if c == "LIST pods" || c == "PATCH pods app-r-1" {
					t.Errorf("a launch of a key that was given up came to %s", c)
				}
			}
		})
		for name, fault := range faults {
			for _, disturbed := range calls {
				t.Run(fmt.Sprintf("%s/%s/%s", where, name, disturbed), func(t *testing.T) {
					t.Parallel()
					plan := start(t)
					_, _, err := g.applyOver(t, plan, func(cancel context.CancelFunc) func(call, int) action { return on(disturbed, fault(cancel)) })
					if known := (*api.Error)(nil); !errors.As(err, &known) {
						t.Fatalf("the disturbed launch: %v", err)
					}
					for _, o := range g.state(t, plan.Namespace) {
						if o.GetKind() == "Pod" && !launch.Held(o) {
							t.Error("the pod was released")
						}
					}
					_, _, err = g.applyOver(t, plan, nil)
					// Without a collector, the Secret of a pod that was withdrawn stays, and is another's.
					if where == "embedded" || !matches(err, api.SubmitterOverloaded, nil) {
						refused(t, err)
					}
					g.isGivenUp(t, plan)
				})
			}
		}
	}
}

// A workload that Confirm refuses is withdrawn, and waits where Confirm could not find out.
func TestConfirm(t *testing.T) {
	g := embeddedGround(t)
	for name, c := range map[string]struct {
		refusal *api.Error
		left    int // workloads
	}{
		"refuses":          {api.Errorf(api.TooManyRunners, "one too many"), 0},
		"refuses for good": {api.Errorf(api.Forbidden, "never"), 0},
		"cannot tell":      {api.Errorf(api.SubmitterOverloaded, "the API server is away"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			draft := runnerDraft(g.namespace(t))
			draft.Confirm = func(_ context.Context, _ kube.Client, workload *unstructured.Unstructured) *api.Error {
				if workload.GetUID() == "" {
					t.Error("it is asked of no workload")
				}
				return c.refusal
			}
			plan := newPlan(t, draft)
			_, _, err := g.applyOver(t, plan, nil)
			if !errors.Is(err, c.refusal) {
				t.Errorf("refused with %v", err)
			}
			pods := 0
			for _, o := range g.state(t, plan.Namespace) {
				if o.GetKind() == "Pod" {
					pods++
					if !launch.Held(o) {
						t.Error("the pod was released")
					}
				}
			}
			if pods != c.left {
				t.Errorf("%d pods are left, want %d", pods, c.left)
			}
		})
	}
	t.Run("is not asked again about what was released", func(t *testing.T) {
		plan := newPlan(t, runnerDraft(g.namespace(t)))
		if _, _, err := g.applyOver(t, plan, nil); err != nil {
			t.Fatal(err)
		}
		plan.Confirm = func(context.Context, kube.Client, *unstructured.Unstructured) *api.Error {
			return api.Errorf(api.TooManyRunners, "asked")
		}
		if result, _, err := g.applyOver(t, plan, nil); err != nil || !result.Duplicate {
			t.Errorf("%+v, %v", result, err)
		}
	})
}
