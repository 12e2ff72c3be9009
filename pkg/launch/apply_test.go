package launch_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

func TestNoDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.applier.Apply(context.Background(), newPlan(t, small()))
	if !matches(err, api.InternalServerError, []string{"deadline"}) {
		t.Errorf("launch: %v", err)
	}
	_, err = w.applier.DryRun(context.Background(), newPlan(t, small()))
	if !matches(err, api.InternalServerError, []string{"deadline"}) {
		t.Errorf("dry run: %v", err)
	}
	if calls := w.wire.taken(); len(calls) > 0 {
		t.Errorf("calls %v", calls)
	}
}

// TestContextEnds: what was spent is said, and nothing is attempted any more.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	for n, c := range []call{postPod, postCM, patch} {
		for name, fault := range map[string]string{"unsent": "hangs unsent", "unanswered": "hangs unanswered"} {
			t.Run(c+"/"+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				w.wire.act = on(c, faults[fault](cancel))
				_, err := w.applier.Apply(ctx, newPlan(t, small()))
				if !matches(err, api.SubmitterOverloaded, []string{"the time for this request was spent at: ", "may be repeated"}) {
					t.Errorf("error %v", err)
				}
				if calls := w.wire.taken(); len(calls) != n+1 {
					t.Errorf("calls %v", calls)
				}
			})
		}
	}
}

// TestWithdrawOutlivesTheCaller: what was refused is taken away though the caller has hung up.
func TestWithdrawOutlivesTheCaller(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w.wire.act = on(postCM, refuseAfter(cancel))
	if _, err := w.applier.Apply(ctx, newPlan(t, small())); !matches(err, api.Forbidden, nil) {
		t.Errorf("error %v", err)
	}
	if w.pod() != nil {
		t.Error("the workload is still there")
	}
}

// TestForeignGates: gates of the template stay, before and after the release.
func TestForeignGates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	draft := small()
	mine := object{"name": "example.com/mine"}
	draft.Workload.Object["spec"].(object)["schedulingGates"] = []any{mine}
	gates := func() any { return w.pod().Object["spec"].(object)["schedulingGates"] }
	w.wire.act = on(patch, first(func() {
		if diff := cmp.Diff([]any{mine, object{"name": launch.Gate}}, gates()); diff != "" {
			t.Errorf("gates before the release (-want +got):\n%s", diff)
		}
	}))
	if _, err := w.apply(newPlan(t, draft)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{mine}, gates()); diff != "" {
		t.Errorf("gates after the release (-want +got):\n%s", diff)
	}
}

// TestSupportOwner: one owner, as Spark writes it, instead of what the object had.
func TestSupportOwner(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		draft launch.Plan
		kind  string
		api   string
	}{
		"Pod": {small(), "Pod", "v1"},
		"Job": {jobDraft("default"), "Job", "batch/v1"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ownedBy("Deployment", "web", "u-9")(c.draft.Support[0].Object)
			result, err := w.apply(newPlan(t, c.draft))
			if err != nil {
				t.Fatal(err)
			}
			metadata := w.cluster.Objects(embedded.ConfigMaps)[0].Object["metadata"].(object)
			want := []any{object{"apiVersion": c.api, "kind": c.kind, "name": result.Workload.GetName(), "uid": string(result.Workload.GetUID()), "controller": true}}
			if diff := cmp.Diff(want, metadata["ownerReferences"]); diff != "" {
				t.Errorf("owner (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJobSuspendedByAnother: a Job that was released and suspended again by someone is
// not ours to resume, and one that its builder wants suspended stays so.
func TestJobSuspendedByAnother(t *testing.T) {
	t.Parallel()
	t.Run("after its release", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		plan := newPlan(t, jobDraft("default"))
		if _, err := w.apply(plan); err != nil {
			t.Fatal(err)
		}
		w.patch(w.workload(), `{"spec":{"suspend":true}}`)
		result, err := w.apply(plan)
		if err != nil || !result.Duplicate || result.Healed {
			t.Fatalf("%+v, %v", result, err)
		}
		if suspended, _, _ := unstructured.NestedBool(w.workload().Object, "spec", "suspend"); !suspended {
			t.Error("the replay resumed it")
		}
	})
	t.Run("by its builder", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		draft := jobDraft("default")
		draft.Workload.Object["spec"].(object)["suspend"] = true
		if _, err := w.apply(newPlan(t, draft)); err != nil {
			t.Fatal(err)
		}
		if suspended, _, _ := unstructured.NestedBool(w.workload().Object, "spec", "suspend"); !suspended || launch.Held(w.workload()) {
			t.Errorf("suspended %t, held %t", suspended, launch.Held(w.workload()))
		}
	})
}

func TestJobConflict(t *testing.T) {
	t.Parallel()
	phases := map[string]struct{ status, says string }{
		"running":   {`{}`, "phase Running"},
		"succeeded": {`{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}`, "phase Succeeded"},
		"failed":    {`{"conditions":[{"type":"Complete","status":"False"},{"type":"Failed","status":"True"}]}`, "phase Failed"},
		"suspended": {`{"conditions":[{"type":"Suspended","status":"True"}]}`, "phase Suspended"},
	}
	for name, c := range phases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.earlier(jobDraft("default"))
			w.status(embedded.Jobs, "copy", c.status)
			_, err := w.apply(newPlan(t, otherHash(jobDraft("default"))))
			if !matches(err, api.IdempotencyConflict, []string{"Job default/copy", c.says}) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMalformedSpecs: what cannot be held is a builder's mistake, told before anything is sent.
func TestMalformedSpecs(t *testing.T) {
	t.Parallel()
	cases := map[string]func(spec object) any{
		"no spec":          func(object) any { return nil },
		"gates are a text": func(spec object) any { spec["schedulingGates"] = "x"; return spec },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			draft := small()
			draft.Workload.Object["spec"] = change(draft.Workload.Object["spec"].(object))
			plan := newPlan(t, draft)
			_, err := w.apply(plan)
			_, dry := w.applier.DryRun(w.context(), plan)
			for _, err := range []error{err, dry} {
				if !matches(err, api.InternalServerError, []string{"spec"}) {
					t.Errorf("error %v", err)
				}
			}
			if calls := w.wire.taken(); len(calls) > 0 {
				t.Errorf("calls %v", calls)
			}
		})
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	const dryPod, dryCM = "DRY pods pi-driver", "DRY configmaps conf-map"
	cases := map[string]struct {
		stage func(w *world)
		plan  launch.Plan
		act   func(call, int) action
		code  api.Code // empty: accepted
		says  []string
		calls []call
	}{
		"accepted":     {plan: small(), calls: []call{dryPod, dryCM}},
		"one's own":    {stage: func(w *world) { w.earlier(small()) }, plan: small(), code: api.DriverPodAlreadyExists, says: []string{"for this very submission", "phase Pending"}, calls: []call{dryPod, getPod}},
		"another's":    {stage: func(w *world) { w.earlier(small()) }, plan: otherKey(small()), code: api.DriverPodAlreadyExists, says: []string{"for submission_id sub-1"}, calls: []call{dryPod, getPod}},
		"refused":      {plan: small(), act: on(dryPod, answer(403, "Forbidden", "no right")), code: api.Forbidden, calls: []call{dryPod}},
		"unreadable":   {plan: small(), act: either(on(dryPod, answer(409, "AlreadyExists", "exists")), on(getPod, answer(500, "InternalError", "etcd is away"))), code: api.SubmitterOverloaded, calls: []call{dryPod, getPod}},
		"support":      {stage: func(w *world) { w.add(with(small().Support[0].Object, finalized)) }, plan: small(), code: api.DriverPodAlreadyExists, says: []string{"ConfigMap default/conf-map exists already"}, calls: []call{dryPod, dryCM}},
		"reusable":     {stage: func(w *world) { w.add(with(small().Support[0].Object, finalized)) }, plan: reusing(small()), calls: []call{dryPod, dryCM, getCM}},
		"reuse failed": {plan: reusing(small()), act: on(dryCM, answer(409, "AlreadyExists", "exists")), code: api.NotFound, calls: []call{dryPod, dryCM, getCM}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.stage != nil {
				c.stage(w)
			}
			before := w.cluster.Objects()
			w.wire.act = c.act
			objects, err := w.applier.DryRun(w.context(), newPlan(t, c.plan))
			if c.code == "" {
				if err != nil || len(objects) != 2 || !launch.Held(objects[0]) {
					t.Errorf("%v, %v", objects, err)
				}
			} else if !matches(err, c.code, c.says) {
				t.Errorf("error %v, want %s", err, c.code)
			}
			if diff := cmp.Diff(c.calls, w.wire.taken()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, w.cluster.Objects()); diff != "" {
				t.Errorf("the dry run changed something (-before +after):\n%s", diff)
			}
		})
	}
}

// TestHoldLimit: how long a held workload is its launcher's is a setting.
func TestHoldLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.applier.HoldLimit = time.Hour
	w.killed(small())
	w.clock.Step(time.Hour)
	if _, err := w.apply(newPlan(t, otherKey(small()))); !matches(err, api.DriverPodAlreadyExists, []string{"phase Held"}) {
		t.Errorf("at the limit: %v", err)
	}
	w.clock.Step(time.Second)
	if result, err := w.apply(newPlan(t, otherKey(small()))); err != nil || !result.Replaced {
		t.Errorf("after the limit: %+v, %v", result, err)
	}
}
