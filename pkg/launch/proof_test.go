package launch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// ground is a cluster to prove on: the embedded one, or a real API server.
type ground struct {
	config *rest.Config
	// namespace makes an empty namespace.
	namespace func(tb testing.TB) string
	// stranded names what could have started before its support was there; nil where nobody judges.
	stranded func() []string
	// tell is Applier.TellDeleted.
	tell bool
}

// telling is the ground with launches that are kept until their end was told.
func (g ground) telling() ground {
	g.tell = true
	return g
}

var watched = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Version: "v1", Resource: "services"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "secrets"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

// state is what the namespace has of Flint's, the workload first.
func (g ground) state(tb testing.TB, namespace string) []*unstructured.Unstructured {
	tb.Helper()
	cfg := rest.CopyConfig(g.config)
	cfg.QPS = -1
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, gvr := range watched {
		list, err := c.Resource(gvr).Namespace(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: launch.LabelManagedBy + "=flint"})
		if err != nil {
			tb.Fatal(err)
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all
}

// comparable is the state without what differs from one launch to the next.
func comparable(tb testing.TB, plan *launch.Plan, state []*unstructured.Unstructured) any {
	tb.Helper()
	var all []any
	for _, o := range state {
		o = o.DeepCopy()
		for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation"} {
			unstructured.RemoveNestedField(o.Object, "metadata", field)
		}
		delete(o.Object, "status")
		owners := o.GetOwnerReferences()
		for i := range owners {
			owners[i].UID = ""
		}
		o.SetOwnerReferences(owners)
		all = append(all, o.Object)
	}
	text, err := json.Marshal(all)
	if err != nil {
		tb.Fatal(err)
	}
	anonymous := string(text)
	if len(state) > 0 { // a Job's selector and its pod's labels have its uid
		anonymous = strings.NewReplacer(`"`+plan.Namespace+`"`, `"NS"`, plan.ID, "ID", string(state[0].GetUID()), "UID").Replace(anonymous)
	}
	var value any
	if err := json.Unmarshal([]byte(anonymous), &value); err != nil {
		tb.Fatal(err)
	}
	return value
}

// checkSafe checks what holds at any moment: nothing, or one workload that is held, or
// one that is complete; and nothing that the workload does not own.
func (g ground) checkSafe(tb testing.TB, plan *launch.Plan) {
	tb.Helper()
	state := g.state(tb, plan.Namespace)
	if len(state) == 0 {
		return
	}
	workload := state[0]
	if workload.GetKind() != plan.Workload.GetKind() {
		tb.Fatalf("%d objects without a workload, first a %s", len(state), workload.GetKind())
	}
	for _, o := range state[1:] {
		owners := o.GetOwnerReferences()
		if len(owners) != 1 || owners[0].UID != workload.GetUID() {
			tb.Errorf("%s %s: owners %v, want only %s", o.GetKind(), o.GetName(), owners, workload.GetUID())
		}
	}
	if !launch.Held(workload) && len(state) != 1+len(plan.Support) {
		tb.Errorf("released with %d of %d support objects", len(state)-1, len(plan.Support))
	}
	if g.stranded != nil {
		if s := g.stranded(); len(s) > 0 {
			tb.Errorf("stranded: %v", s)
		}
	}
}

// checkComplete checks that the launch is complete, and the same as an undisturbed one.
func (g ground) checkComplete(tb testing.TB, plan *launch.Plan, want any) {
	tb.Helper()
	g.checkSafe(tb, plan)
	state := g.state(tb, plan.Namespace)
	if len(state) > 0 && launch.Held(state[0]) {
		tb.Error("the workload is held")
	}
	if diff := cmp.Diff(want, comparable(tb, plan, state)); diff != "" {
		tb.Errorf("not what an undisturbed launch leaves (-want +got):\n%s", diff)
	}
}

// applyOver applies the plan with a client of its own, whose calls act disturbs.
func (g ground) applyOver(tb testing.TB, plan *launch.Plan, act func(cancel context.CancelFunc) func(call, int) action) (*launch.Result, []call, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w := &wire{}
	if act != nil {
		w.act = act(cancel)
	}
	result, err := (&launch.Applier{Client: w.client(tb, g.config), TellDeleted: g.tell}).Apply(ctx, plan)
	return result, w.taken(), err
}

// undisturbed is the state that a fresh launch of the draft leaves.
func (g ground) undisturbed(tb testing.TB, draft func(string) launch.Plan, calls []call) any {
	tb.Helper()
	plan := newPlan(tb, draft(g.namespace(tb)))
	result, taken, err := g.applyOver(tb, plan, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if result.Duplicate || result.Healed || result.Workload.GetUID() == "" || result.CreatedAt.IsZero() {
		tb.Errorf("result of a fresh launch: %+v", result)
	}
	if diff := cmp.Diff(sorted(calls), sorted(taken)); diff != "" || taken[0] != calls[0] || taken[len(taken)-1] != calls[len(calls)-1] {
		tb.Errorf("calls of a fresh launch %v (-want +got):\n%s", taken, diff)
	}
	state := g.state(tb, plan.Namespace)
	created := slices.DeleteFunc(slices.Clone(calls), func(c call) bool { return !strings.HasPrefix(c, "POST ") })
	if len(state) != len(created) {
		tb.Fatalf("a fresh launch left %d objects", len(state))
	}
	if kept := slices.Contains(state[0].GetFinalizers(), launch.Finalizer); kept != g.tell {
		tb.Errorf("a fresh launch left finalizers %v", state[0].GetFinalizers())
	}
	return comparable(tb, plan, state)
}

func sorted(calls []call) []call { return slices.Sorted(slices.Values(calls)) }

// heal replays the plan until it is complete, at most twice, and once more.
func (g ground) heal(tb testing.TB, plan *launch.Plan, want any, calls []call) {
	tb.Helper()
	existed := len(g.state(tb, plan.Namespace)) > 0
	result, _, err := g.applyOver(tb, plan, nil)
	if err != nil {
		tb.Fatalf("the replay: %v", err)
	}
	if result.Duplicate != existed {
		tb.Errorf("the replay: duplicate %t, but the workload existed %t", result.Duplicate, existed)
	}
	g.checkComplete(tb, plan, want)
	again, taken, err := g.applyOver(tb, plan, nil)
	if err != nil {
		tb.Fatalf("the second replay: %v", err)
	}
	if !again.Duplicate || again.Healed || again.Workload.GetUID() != result.Workload.GetUID() {
		tb.Errorf("the second replay: %+v", again)
	}
	if diff := cmp.Diff([]call{calls[0], strings.Replace(calls[0], "POST", "GET", 1)}, taken); diff != "" {
		tb.Errorf("calls of the second replay (-want +got):\n%s", diff)
	}
	g.checkComplete(tb, plan, want)
}

// prove disturbs each call of a launch in each way, alone and with all that follow it, and checks what is
// left, and that a replay makes it whole. It counts the cases.
func (g ground) prove(t *testing.T, draft func(string) launch.Plan, calls []call) {
	want := g.undisturbed(t, draft, calls)
	var proven atomic.Int64
	t.Cleanup(func() { t.Logf("%d combinations of call and fault proven", proven.Load()) })
	check := func(t *testing.T, act func(cancel context.CancelFunc) func(call, int) action) {
		t.Parallel()
		plan := newPlan(t, draft(g.namespace(t)))
		_, _, err := g.applyOver(t, plan, act)
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.SubmitterOverloaded || known.Message == "" || known.RetryAfter == 0 {
			t.Fatalf("the disturbed launch: %v", err)
		}
		g.checkSafe(t, plan)
		g.heal(t, plan, want, calls)
		proven.Add(1)
	}
	for name, fault := range faults {
		for n, disturbed := range calls {
			t.Run(fmt.Sprintf("%s/%s", name, disturbed), func(t *testing.T) {
				check(t, func(cancel context.CancelFunc) func(call, int) action { return on(disturbed, fault(cancel)) })
			})
			// The launcher is killed at its nth call: that one ends so, and no later one is sent.
			t.Run(fmt.Sprintf("killed/%s/call %d", name, n+1), func(t *testing.T) {
				check(t, func(cancel context.CancelFunc) func(call, int) action {
					return func(_ call, sent int) action {
						switch {
						case sent == n+1:
							return fault(cancel)
						case sent > n+1:
							return faults["connection fails"](cancel)
						}
						return nil
					}
				})
			})
		}
	}
	// Killed amid the parallel phase: any subset of the support is stored.
	support := calls[1 : len(calls)-1]
	for subset := range 1 << len(support) {
		stored := map[call]bool{calls[0]: true}
		for i, c := range support {
			stored[c] = subset&(1<<i) != 0
		}
		for _, name := range []string{"connection fails", "answer lost"} {
			t.Run(fmt.Sprintf("killed amid support/%s/%0*b", name, len(support), subset), func(t *testing.T) {
				check(t, func(cancel context.CancelFunc) func(call, int) action {
					return func(c call, _ int) action {
						switch {
						case c == calls[0]:
							return nil
						case stored[c] && name == "answer lost":
							return faults[name](cancel)
						case stored[c]:
							return nil
						}
						return faults["connection fails"](cancel)
					}
				})
			})
		}
	}
}

// proveTwice disturbs a launch and then its replay, before the next replay makes it whole.
func (g ground) proveTwice(t *testing.T, draft func(string) launch.Plan, calls []call) {
	want := g.undisturbed(t, draft, calls)
	replays := slices.Concat(calls, []call{strings.Replace(calls[0], "POST", "GET", 1)})
	for _, c := range calls[1 : len(calls)-1] {
		replays = append(replays, strings.Replace(c, "POST", "GET", 1))
	}
	var proven atomic.Int64
	t.Cleanup(func() { t.Logf("%d combinations of two faults proven", proven.Load()) })
	for _, one := range []string{"connection fails", "answer lost"} {
		for _, two := range []string{"connection fails", "answer lost"} {
			for _, a := range calls {
				t.Run(one+"/"+two+"/"+a, func(t *testing.T) {
					t.Parallel()
					for _, b := range replays {
						plan := newPlan(t, draft(g.namespace(t)))
						_, _, err := g.applyOver(t, plan, func(cancel context.CancelFunc) func(call, int) action { return on(a, faults[one](cancel)) })
						if err == nil {
							t.Fatal("the disturbed launch succeeded")
						}
						_, _, err = g.applyOver(t, plan, func(cancel context.CancelFunc) func(call, int) action { return on(b, faults[two](cancel)) })
						var known *api.Error
						if err != nil && (!errors.As(err, &known) || known.Code != api.SubmitterOverloaded) {
							t.Fatalf("the disturbed replay: %v", err)
						}
						g.checkSafe(t, plan)
						g.heal(t, plan, want, calls)
						proven.Add(1)
					}
				})
			}
		}
	}
}

// proveConcurrent sends one plan many times at once, through two instances.
func (g ground) proveConcurrent(t *testing.T, draft func(string) launch.Plan, calls []call) {
	const replays = 20
	want := g.undisturbed(t, draft, calls)
	for round := range 5 {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			plan := newPlan(t, draft(g.namespace(t)))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			instances := []*launch.Applier{{Client: (&wire{}).client(t, g.config), TellDeleted: g.tell}, {Client: (&wire{}).client(t, g.config), TellDeleted: g.tell}}
			var created, duplicates, retried atomic.Int64
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range replays {
				wg.Go(func() {
					<-start
					result, err := instances[i%2].Apply(ctx, plan)
					if err != nil {
						retried.Add(1)
						t.Logf("repeated: %v", err)
						if result, err = instances[i%2].Apply(ctx, plan); err != nil {
							t.Error(err)
							return
						}
					}
					if result.Duplicate {
						duplicates.Add(1)
					} else {
						created.Add(1)
					}
				})
			}
			close(start)
			wg.Wait()
			if created.Load() != 1 || duplicates.Load() != replays-1 || retried.Load() > 0 {
				t.Errorf("%d created, %d duplicates, %d repeated, want 1, %d and none", created.Load(), duplicates.Load(), retried.Load(), replays-1)
			}
			g.checkComplete(t, plan, want)
		})
	}
}
