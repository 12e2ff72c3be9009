package launch_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

// world is one embedded cluster with one applier on it, on one clock.
type world struct {
	*testing.T
	cluster *embedded.Cluster
	clock   *clocktesting.FakeClock
	wire    *wire
	applier *launch.Applier
	// free is a client whose calls are neither recorded nor disturbed.
	free kube.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)), wire: &wire{}}
	var err error
	if w.cluster, err = embedded.Start(embedded.Options{Idle: true, Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	w.applier = &launch.Applier{Client: w.wire.client(t, w.cluster.Config()), Clock: w.clock}
	w.free = (&wire{}).client(t, w.cluster.Config())
	return w
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	w.Cleanup(cancel)
	return ctx
}

func (w *world) apply(plan *launch.Plan) (*launch.Result, error) {
	return w.applier.Apply(w.context(), plan)
}

// earlier launches a draft undisturbed, before what the test is about.
func (w *world) earlier(draft launch.Plan) *launch.Result {
	w.Helper()
	result, err := (&launch.Applier{Client: w.free, Clock: w.clock}).Apply(w.context(), newPlan(w, draft))
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// killed launches a draft up to the first support object: its workload stays held.
func (w *world) killed(draft launch.Plan) {
	w.Helper()
	dying := &wire{act: func(_ call, n int) action {
		if n == 1 {
			return nil
		}
		return faults["connection fails"](nil)
	}}
	client := dying.client(w, w.cluster.Config())
	if _, err := (&launch.Applier{Client: client, Clock: w.clock}).Apply(w.context(), newPlan(w, draft)); err == nil {
		w.Fatal("the killed launch succeeded")
	}
	if !launch.Held(w.workload()) {
		w.Fatal("the killed launch left no held workload")
	}
}

func (w *world) add(o *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	added, err := w.cluster.Add(o)
	if err != nil {
		w.Fatal(err)
	}
	return added
}

// delete starts an object's end. With a finalizer it stays, terminating.
func (w *world) delete(o *unstructured.Unstructured) {
	w.Helper()
	if err := w.free.Delete(w.context(), kube.RefOf("default", o), o.GetUID()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) patch(o *unstructured.Unstructured, patch string) {
	w.Helper()
	if _, err := w.free.Patch(w.context(), kube.RefOf("default", o), types.MergePatchType, []byte(patch)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) pod() *unstructured.Unstructured {
	return w.cluster.Object(embedded.Pods, "default", "pi-driver")
}

func (w *world) workload() *unstructured.Unstructured {
	for _, gvr := range []schema.GroupVersionResource{embedded.Pods, embedded.Jobs} {
		if all := w.cluster.Objects(gvr); len(all) > 0 {
			return all[0]
		}
	}
	return nil
}

func with(o *unstructured.Unstructured, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o = o.DeepCopy()
	o.SetNamespace("default")
	change(o)
	return o
}

func ownedBy(kind, name string, uid types.UID) func(*unstructured.Unstructured) {
	version := map[string]string{"Pod": "v1", "Job": "batch/v1", "Deployment": "apps/v1"}[kind]
	return func(o *unstructured.Unstructured) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid}})
	}
}

func finalized(o *unstructured.Unstructured) { o.SetFinalizers([]string{"test.example/stay"}) }

func spark() launch.Plan { return sparkDraft("default") }

// small is a Spark plan with its ConfigMap as the only support.
func small() launch.Plan {
	draft := spark()
	draft.Support = draft.Support[4:]
	return draft
}

func otherHash(draft launch.Plan) launch.Plan { draft.Hash = "h2"; return draft }
func otherKey(draft launch.Plan) launch.Plan  { draft.SubmissionID = "sub-2"; return draft }

// renamed is the same key's plan for a pod of another name: what its objects are named by the key alone, meets.
func renamed(draft launch.Plan) launch.Plan {
	draft.Hash = "h2"
	draft.Workload = draft.Workload.DeepCopy()
	draft.Workload.SetName("other-driver")
	return draft
}

func onNode(draft launch.Plan) launch.Plan {
	draft.Workload = draft.Workload.DeepCopy()
	draft.Workload.Object["spec"].(object)["nodeName"] = "node-1"
	return draft
}

func reusing(draft launch.Plan) launch.Plan { draft.Support[0].Reuse = true; return draft }

const (
	postPod = "POST pods pi-driver"
	getPod  = "GET pods pi-driver"
	patch   = "PATCH pods pi-driver"
	delPod  = "DELETE pods pi-driver"
	postCM  = "POST configmaps conf-map"
	getCM   = "GET configmaps conf-map"
)

// TestDecisions has one case for each thing that a launch can meet.
func TestDecisions(t *testing.T) {
	type state = string
	const (
		none     state = "none"
		held     state = "held"
		released state = "released"
		ending   state = "ending"
		theirs   state = "theirs" // there, not ours, unchanged
	)
	cases := map[string]struct {
		stage func(w *world)
		plan  launch.Plan
		act   func(w *world) func(call, int) action
		want  *launch.Result // nil: an error
		code  api.Code
		says  []string
		calls []call // nil: not compared
		pod   state
	}{
		"fresh": {
			plan: small(), want: &launch.Result{}, calls: []call{postPod, postCM, patch}, pod: released,
		},
		"fresh, without support": {
			plan: func() launch.Plan { d := spark(); d.Support = nil; return d }(),
			want: &launch.Result{}, calls: []call{postPod}, pod: released,
		},
		"fresh, on a node": {
			plan: onNode(small()), want: &launch.Result{}, calls: []call{getPod, getCM, postPod, postCM}, pod: released,
		},
		"fresh, on a node, the key has another driver": {
			stage: func(w *world) { w.earlier(onNode(renamed(small()))) }, plan: onNode(small()),
			code: api.DriverPodAlreadyExists, says: []string{"other-driver", "another content"}, calls: []call{getPod, getCM, "GET pods other-driver", getPod}, pod: none,
		},
		"fresh, on a node, the same submission comes in between": {
			plan: onNode(small()),
			act: func(w *world) func(call, int) action {
				return once(getCM, first(func() { w.earlier(onNode(small())) }))
			},
			want: &launch.Result{Duplicate: true}, calls: []call{getPod, getCM, getPod, getPod, postPod, getPod, postCM, getCM}, pod: released,
		},
		"fresh, on a node, the look fails": {
			plan: onNode(small()),
			act:  func(*world) func(call, int) action { return on(getCM, answer(500, "InternalError", "etcd is away")) },
			code: api.SubmitterOverloaded, calls: []call{getPod, getCM}, pod: none,
		},
		"replay of a complete launch": {
			stage: func(w *world) { w.earlier(small()) }, plan: small(),
			want: &launch.Result{Duplicate: true}, calls: []call{postPod, getPod}, pod: released,
		},
		"replay of a launch that has ended": {
			stage: func(w *world) {
				w.earlier(small())
				w.patchStatus("Succeeded")
			},
			plan: small(), want: &launch.Result{Duplicate: true}, calls: []call{postPod, getPod}, pod: released,
		},
		"replay of a killed launch, years later": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(9000 * time.Hour) }, plan: small(),
			want: &launch.Result{Duplicate: true, Healed: true}, calls: []call{postPod, getPod, postCM, patch}, pod: released,
		},
		"replay on a node of a launch that lost its support": {
			stage: func(w *world) {
				w.earlier(onNode(small()))
				w.delete(w.cluster.Object(embedded.ConfigMaps, "default", "conf-map"))
			},
			plan: onNode(small()), want: &launch.Result{Duplicate: true, Healed: true}, calls: []call{getPod, postPod, getPod, postCM}, pod: released,
		},
		"replay on a node of a complete launch": {
			stage: func(w *world) { w.earlier(onNode(small())) },
			plan:  onNode(small()), want: &launch.Result{Duplicate: true}, calls: []call{getPod, postPod, getPod, postCM, getCM}, pod: released,
		},
		"replay on a node of a launch that has ended": {
			stage: func(w *world) { w.earlier(onNode(small())); w.patchStatus("Failed") },
			plan:  onNode(small()), want: &launch.Result{Duplicate: true}, calls: []call{getPod, postPod, getPod}, pod: released,
		},
		"replay on a node, support refused": {
			stage: func(w *world) {
				w.earlier(onNode(small()))
				w.delete(w.cluster.Object(embedded.ConfigMaps, "default", "conf-map"))
			},
			plan: onNode(small()),
			act: func(*world) func(call, int) action {
				return on(postCM, answer(403, "Forbidden", "no right to create configmaps"))
			},
			code: api.Forbidden, calls: []call{getPod, postPod, getPod, postCM}, pod: released,
		},
		"same key, other content": {
			stage: func(w *world) { w.earlier(small()); w.clock.Step(3 * time.Minute) }, plan: otherHash(small()),
			code: api.DriverPodAlreadyExists, says: []string{"submission_id sub-1 was used before with another content", "phase Pending", "age 3m0s", "uid "},
			calls: []call{postPod, getPod}, pod: released,
		},
		"other key": {
			stage: func(w *world) { w.earlier(small()); w.clock.Step(time.Hour) }, plan: otherKey(small()),
			code: api.DriverPodAlreadyExists, says: []string{"created for submission_id sub-1", "phase Pending", "age 1h0m0s", "uid "},
			calls: []call{postPod, getPod}, pod: released,
		},
		"other key, held a moment": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(60 * time.Second) }, plan: otherKey(small()),
			code: api.DriverPodAlreadyExists, says: []string{"submission_id sub-1", "phase Held"}, calls: []call{postPod, getPod}, pod: held,
		},
		"other key, abandoned": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(61 * time.Second) }, plan: otherKey(small()),
			want: &launch.Result{Replaced: true}, calls: []call{postPod, getPod, delPod, postPod, postCM, patch}, pod: released,
		},
		"other content, abandoned": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(61 * time.Second) }, plan: otherHash(small()),
			want: &launch.Result{Replaced: true}, pod: released,
		},
		"other key, abandoned, but released this moment": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(61 * time.Second) }, plan: otherKey(small()),
			act:  func(w *world) func(call, int) action { return on(delPod, first(func() { w.earlier(small()) })) },
			code: api.DriverPodAlreadyExists, says: []string{"submission_id sub-1"},
			calls: []call{postPod, getPod, delPod, getPod, postPod, getPod}, pod: released,
		},
		"other key, abandoned, touched by a controller": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(61 * time.Second) }, plan: otherKey(small()),
			act: func(w *world) func(call, int) action {
				return once(delPod, first(func() { w.patch(w.pod(), `{"metadata":{"labels":{"touched":"yes"}}}`) }))
			},
			want: &launch.Result{Replaced: true}, calls: []call{postPod, getPod, delPod, getPod, delPod, postPod, postCM, patch}, pod: released,
		},
		"other key, abandoned, with a finalizer": {
			stage: func(w *world) {
				w.killed(small())
				w.patch(w.pod(), `{"metadata":{"finalizers":["test.example/stay"]}}`)
				w.clock.Step(61 * time.Second)
			},
			plan: otherKey(small()), code: api.SubmitterOverloaded, says: []string{"is being deleted"},
			calls: []call{postPod, getPod, delPod, postPod, getPod}, pod: held,
		},
		"abandoned, but the API server will not delete": {
			stage: func(w *world) { w.killed(small()); w.clock.Step(61 * time.Second) }, plan: otherKey(small()),
			act: func(*world) func(call, int) action {
				return on(delPod, answer(403, "Forbidden", "no right to delete pods"))
			},
			code: api.Forbidden, says: []string{"no right to delete pods"}, pod: held,
		},
		"being deleted": {
			stage: func(w *world) {
				w.earlier(small())
				w.patch(w.pod(), `{"metadata":{"finalizers":["test.example/stay"]}}`)
				w.delete(w.pod())
			},
			plan: small(), code: api.SubmitterOverloaded, says: []string{"is being deleted"}, calls: []call{postPod, getPod}, pod: released,
		},
		"not Flint's": {
			stage: func(w *world) {
				w.add(with(spark().Workload, func(*unstructured.Unstructured) {}))
				w.clock.Step(time.Minute)
			},
			plan: small(), code: api.DriverPodAlreadyExists, says: []string{"was not created by Flint", "phase Pending", "age 1m0s"},
			calls: []call{postPod, getPod}, pod: theirs,
		},
		"not Flint's, with our gate": {
			stage: func(w *world) {
				w.add(with(spark().Workload, func(o *unstructured.Unstructured) {
					o.Object["spec"].(object)["schedulingGates"] = []any{object{"name": launch.Gate}}
				}))
				w.clock.Step(time.Hour)
			},
			plan: small(), code: api.DriverPodAlreadyExists, says: []string{"was not created by Flint"}, calls: []call{postPod, getPod}, pod: theirs,
		},
		"gone in between": {
			stage: func(w *world) { w.earlier(otherKey(small())) }, plan: small(),
			act:  func(w *world) func(call, int) action { return on(getPod, first(func() { w.delete(w.pod()) })) },
			want: &launch.Result{}, calls: []call{postPod, getPod, postPod, postCM, patch}, pod: released,
		},
		"comes and goes for ever": {
			plan: small(),
			act:  func(*world) func(call, int) action { return on(postPod, answer(409, "AlreadyExists", "exists")) },
			code: api.SubmitterOverloaded, says: []string{"came and went"},
			calls: []call{postPod, getPod, postPod, getPod, postPod, getPod}, pod: none,
		},
		"the workload refused": {
			plan: small(),
			act: func(*world) func(call, int) action {
				return on(postPod, answer(403, "Forbidden", "exceeded quota: q, requested: pods=1"))
			},
			code: api.QuotaExceeded, says: []string{"quota exceeded: create Pod default/pi-driver", "requested: pods=1"}, calls: []call{postPod}, pod: none,
		},
		"support refused": {
			plan: small(),
			act: func(*world) func(call, int) action {
				return on(postCM, answer(403, "Forbidden", "no right to create configmaps"))
			},
			code: api.Forbidden, says: []string{"forbidden: create ConfigMap default/conf-map", "no right"}, calls: []call{postPod, postCM, delPod}, pod: none,
		},
		"support refused on a node": {
			plan: onNode(small()),
			act: func(*world) func(call, int) action {
				return on(postCM, answer(403, "Forbidden", "no right to create configmaps"))
			},
			code: api.Forbidden, calls: []call{getPod, getCM, postPod, postCM, delPod}, pod: ending,
		},
		"support refused on a node, and the pod stays": {
			plan: onNode(small()),
			act: func(*world) func(call, int) action {
				return either(on(postCM, answer(403, "Forbidden", "no right to create configmaps")), on(delPod, answer(500, "InternalError", "etcd is away")))
			},
			code: api.Forbidden, says: []string{"it stays, and waits for what it mounts"}, pod: released,
		},
		"support refused on a node, and the pod is gone": {
			plan: onNode(small()),
			act: func(w *world) func(call, int) action {
				return on(postCM, refuseAfter(w.podGone))
			},
			code: api.Forbidden, pod: none,
		},
		"support refused on a replay": {
			stage: func(w *world) { w.killed(small()) }, plan: small(),
			act:  func(*world) func(call, int) action { return on(postCM, answer(422, "Invalid", "data: too long")) },
			code: api.BadRequest, calls: []call{postPod, getPod, postCM, delPod}, pod: none,
		},
		"support refused, while another call released": {
			plan: small(),
			act:  func(w *world) func(call, int) action { return on(postCM, refuseAfter(func() { w.earlier(small()) })) },
			code: api.SubmitterOverloaded, says: []string{"another call of this submission released"},
			calls: []call{postPod, postCM, delPod, getPod}, pod: released,
		},
		"support refused, while the workload was deleted": {
			plan: small(),
			act:  func(w *world) func(call, int) action { return on(postCM, refuseAfter(func() { w.delete(w.pod()) })) },
			code: api.Forbidden, calls: []call{postPod, postCM, delPod}, pod: none,
		},
		"support refused, while another deletes the workload": {
			plan: small(),
			act: func(w *world) func(call, int) action {
				return on(postCM, refuseAfter(func() {
					w.patch(w.pod(), `{"metadata":{"finalizers":["test.example/stay"]}}`)
					w.delete(w.pod())
				}))
			},
			code: api.Forbidden, calls: []call{postPod, postCM, delPod, getPod}, pod: held,
		},
		"support refused, and the workload stays": {
			plan: small(),
			act: func(*world) func(call, int) action {
				return either(on(postCM, answer(403, "Forbidden", "no right")), on(delPod, answer(500, "InternalError", "etcd is away")))
			},
			code: api.Forbidden, says: []string{"no right", "could not be taken away", "etcd is away", "it stays, held"}, calls: []call{postPod, postCM, delPod}, pod: held,
		},
		"support refused, and nobody knows of the workload": {
			plan: small(),
			act: func(w *world) func(call, int) action {
				return either(on(postCM, refuseAfter(func() { w.patch(w.pod(), `{"metadata":{"labels":{"touched":"yes"}}}`) })), on(getPod, answer(500, "InternalError", "etcd is away")))
			},
			code: api.Forbidden, says: []string{"could not be taken away"}, pod: held,
		},
		"support refused, and the workload changes all the time": {
			plan: small(),
			act: func(*world) func(call, int) action {
				return either(on(postCM, answer(403, "Forbidden", "no right")), on(delPod, answer(409, "Conflict", "modified")))
			},
			code: api.Forbidden, says: []string{"could not be taken away"}, calls: []call{postPod, postCM, delPod, getPod, delPod, getPod, delPod, getPod}, pod: held,
		},
		"two refusals and an overload: the first refusal decides": {
			plan: spark(),
			act: func(*world) func(call, int) action {
				return either(
					on("POST services pi-driver-svc", answer(503, "ServiceUnavailable", "not now")),
					on("POST persistentvolumeclaims pi-pvc-0", answer(403, "Forbidden", "no right to create claims")),
					on(postCM, answer(413, "RequestEntityTooLarge", "too large")))
			},
			code: api.Forbidden, says: []string{"PersistentVolumeClaim default/pi-pvc-0"}, pod: none,
		},
		"our credentials refused amid": {
			plan: small(),
			act:  func(*world) func(call, int) action { return on(postCM, answer(401, "Unauthorized", "Unauthorized")) },
			code: api.InternalServerError, calls: []call{postPod, postCM}, pod: held,
		},
		"release: the workload is gone": {
			plan: small(),
			act:  func(w *world) func(call, int) action { return on(patch, first(func() { w.delete(w.pod()) })) },
			code: api.SubmitterOverloaded, says: []string{"was deleted or changed"}, calls: []call{postPod, postCM, patch}, pod: none,
		},
		"release: another workload has the name": {
			plan: small(),
			act: func(w *world) func(call, int) action {
				return on(patch, first(func() { w.delete(w.pod()); w.killed(otherKey(small())) }))
			},
			code: api.SubmitterOverloaded, says: []string{"was deleted or changed"}, calls: []call{postPod, postCM, patch}, pod: held,
		},
		"release refused": {
			plan: small(),
			act: func(*world) func(call, int) action {
				return on(patch, answer(403, "Forbidden", "no right to patch pods"))
			},
			code: api.Forbidden, says: []string{"forbidden: release Pod default/pi-driver"}, calls: []call{postPod, postCM, patch, delPod}, pod: none,
		},
		"support of an earlier incarnation, owner gone": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, ownedBy("Pod", "gone", "u-1"))) }, plan: small(),
			code: api.SubmitterOverloaded, says: []string{"ConfigMap default/conf-map of an earlier launch is still to be collected"},
			calls: []call{postPod, postCM, getCM, "GET pods gone"}, pod: held,
		},
		"support of an earlier incarnation, same name": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, ownedBy("Pod", "pi-driver", "u-1"))) }, plan: small(),
			code: api.SubmitterOverloaded, says: []string{"earlier launch"}, calls: []call{postPod, postCM, getCM, getPod}, pod: held,
		},
		"support of an earlier incarnation, owner being deleted": {
			stage: func(w *world) {
				owner := w.add(with(renamed(small()).Workload, finalized))
				w.delete(owner)
				w.add(with(small().Support[0].Object, ownedBy("Pod", "other-driver", owner.GetUID())))
			},
			plan: small(), code: api.SubmitterOverloaded, says: []string{"earlier launch"}, pod: held,
		},
		"support of an earlier incarnation, reusable": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, ownedBy("Job", "gone", "u-1"))) }, plan: reusing(small()),
			code: api.SubmitterOverloaded, says: []string{"earlier launch"}, pod: held,
		},
		"support being deleted": {
			stage: func(w *world) { w.delete(w.add(with(small().Support[0].Object, finalized))) }, plan: small(),
			code: api.SubmitterOverloaded, says: []string{"being deleted"}, calls: []call{postPod, postCM, getCM}, pod: held,
		},
		"support comes and goes for ever": {
			plan: small(),
			act:  func(*world) func(call, int) action { return on(postCM, answer(409, "AlreadyExists", "exists")) },
			code: api.SubmitterOverloaded, says: []string{"came and went"}, calls: []call{postPod, postCM, getCM, postCM, getCM, postCM, getCM}, pod: held,
		},
		"support cannot be read": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, func(*unstructured.Unstructured) {})) }, plan: small(),
			act:  func(*world) func(call, int) action { return on(getCM, answer(500, "InternalError", "etcd is away")) },
			code: api.SubmitterOverloaded, calls: []call{postPod, postCM, getCM}, pod: held,
		},
		"support's owner cannot be read": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, ownedBy("Job", "gone", "u-1"))) }, plan: small(),
			act: func(*world) func(call, int) action {
				return on("GET jobs gone", answer(500, "InternalError", "etcd is away"))
			},
			code: api.SubmitterOverloaded, calls: []call{postPod, postCM, getCM, "GET jobs gone"}, pod: held,
		},
		"support is in the way": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, func(*unstructured.Unstructured) {})) }, plan: small(),
			code: api.DriverPodAlreadyExists, says: []string{"ConfigMap default/conf-map exists already and belongs to no launch", "in the way of Pod default/pi-driver"},
			calls: []call{postPod, postCM, getCM, delPod}, pod: none,
		},
		"support of a Deployment is in the way": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, ownedBy("Deployment", "web", "u-1"))) }, plan: small(),
			code: api.DriverPodAlreadyExists, says: []string{"belongs to no launch"}, pod: none,
		},
		"support may be reused": {
			stage: func(w *world) { w.add(with(small().Support[0].Object, func(*unstructured.Unstructured) {})) }, plan: reusing(small()),
			want: &launch.Result{}, calls: []call{postPod, postCM, getCM, patch}, pod: released,
		},
		"support of a live owner may be reused": {
			stage: func(w *world) { w.earlier(renamed(small())) }, plan: reusing(small()),
			want: &launch.Result{}, pod: released,
		},
		"one key, two pod names": {
			stage: func(w *world) { w.earlier(renamed(small())); w.clock.Step(time.Minute) }, plan: small(),
			code: api.DriverPodAlreadyExists, says: []string{"submission_id sub-1 was used before with another content", "Pod default/other-driver", "age 1m0s"},
			calls: []call{postPod, postCM, getCM, "GET pods other-driver", delPod}, pod: none,
		},
		"support of another submission's live pod": {
			stage: func(w *world) { w.earlier(otherKey(renamed(small()))) }, plan: small(),
			code: api.DriverPodAlreadyExists, says: []string{`belongs to Pod default/other-driver (submission_id "sub-2"`}, pod: none,
		},
		"support of a live pod that is not Flint's": {
			stage: func(w *world) {
				owner := w.add(with(renamed(small()).Workload, func(*unstructured.Unstructured) {}))
				w.add(with(small().Support[0].Object, ownedBy("Pod", "other-driver", owner.GetUID())))
			},
			plan: small(), code: api.DriverPodAlreadyExists, says: []string{"belongs to Pod default/other-driver"}, pod: none,
		},
		"one key, two pod names, at the same time": {
			stage: func(w *world) { w.heldWithSupport(renamed(small())) }, plan: small(),
			code: api.SubmitterOverloaded, says: []string{"is being launched at the same time with another content"},
			calls: []call{postPod, postCM, getCM, "GET pods other-driver", delPod}, pod: none,
		},
		"one key, two pod names, the other abandoned": {
			stage: func(w *world) { w.heldWithSupport(renamed(small())); w.clock.Step(61 * time.Second) }, plan: small(),
			code: api.SubmitterOverloaded, says: []string{"the abandoned Pod default/other-driver, which was deleted"},
			calls: []call{postPod, postCM, getCM, "GET pods other-driver", "DELETE pods other-driver"}, pod: held,
		},
		"one key, two pod names, the other abandoned and undeletable": {
			stage: func(w *world) { w.heldWithSupport(renamed(small())); w.clock.Step(61 * time.Second) }, plan: small(),
			act: func(*world) func(call, int) action {
				return on("DELETE pods other-driver", answer(500, "InternalError", "etcd is away"))
			},
			code: api.SubmitterOverloaded, says: []string{"etcd is away"}, pod: held,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.stage != nil {
				c.stage(w)
			}
			if c.act != nil {
				w.wire.act = c.act(w)
			}
			result, err := w.apply(newPlan(t, c.plan))
			if c.want != nil {
				if err != nil {
					t.Fatal(err)
				}
				got := launch.Result{Duplicate: result.Duplicate, Healed: result.Healed, Replaced: result.Replaced}
				if diff := cmp.Diff(*c.want, got); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				if uid := w.pod().GetUID(); result.Workload.GetUID() != uid || !result.CreatedAt.Equal(w.pod().GetCreationTimestamp().Time) {
					t.Errorf("result names %s of %s, not the pod %s", result.Workload.GetUID(), result.CreatedAt, uid)
				}
			} else {
				var known *api.Error
				if !errors.As(err, &known) {
					t.Fatalf("result %+v, error %v, want an *api.Error", result, err)
				}
				if known.Code != c.code {
					t.Errorf("code %s, want %s: %s", known.Code, c.code, known.Message)
				}
				for _, text := range c.says {
					if !strings.Contains(known.Message, text) {
						t.Errorf("message %q does not have %q", known.Message, text)
					}
				}
				if known.Code == api.SubmitterOverloaded && known.RetryAfter == 0 {
					t.Error("no RetryAfter")
				}
			}
			if c.calls != nil {
				if diff := cmp.Diff(c.calls, w.wire.taken()); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			}
			state := none
			if pod := w.pod(); pod != nil {
				switch {
				case !launch.Ours(pod):
					state = theirs
				case pod.GetDeletionTimestamp() != nil && len(pod.GetFinalizers()) == 0:
					state = ending
				case launch.Held(pod):
					state = held
				default:
					state = released
				}
			}
			if state != c.pod {
				t.Errorf("the pod is %s, want %s", state, c.pod)
			}
		})
	}
}

// patchStatus gives the pod a phase.
func (w *world) patchStatus(phase string) {
	w.Helper()
	w.status(embedded.Pods, "pi-driver", `{"phase":"`+phase+`"}`)
}

func (w *world) status(gvr schema.GroupVersionResource, name, status string) {
	w.Helper()
	c, err := dynamic.NewForConfig(w.cluster.Config())
	if err != nil {
		w.Fatal(err)
	}
	_, err = c.Resource(gvr).Namespace("default").Patch(w.context(), name, types.MergePatchType,
		[]byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		w.Fatal(err)
	}
}

// podGone ends a pod on a node at once, as the node does that confirms its end.
func (w *world) podGone() {
	w.patchStatus("Failed")
	w.delete(w.pod())
}

// heldWithSupport launches a draft up to its release, which never comes.
func (w *world) heldWithSupport(draft launch.Plan) {
	w.Helper()
	dying := &wire{act: func(c call, _ int) action {
		if strings.HasPrefix(c, "PATCH") {
			return faults["connection fails"](nil)
		}
		return nil
	}}
	client := dying.client(w, w.cluster.Config())
	if _, err := (&launch.Applier{Client: client, Clock: w.clock}).Apply(w.context(), newPlan(w, draft)); err == nil {
		w.Fatal("the killed launch succeeded")
	}
}

// once acts on the first of the calls of that name.
func once(name call, do action) func(call, int) action {
	done := false
	return func(c call, _ int) action {
		if c != name || done {
			return nil
		}
		done = true
		return do
	}
}

// either acts as the first of several that has something to do.
func either(acts ...func(call, int) action) func(call, int) action {
	return func(c call, n int) action {
		for _, act := range acts {
			if do := act(c, n); do != nil {
				return do
			}
		}
		return nil
	}
}

// refuseAfter does something, then refuses the call.
func refuseAfter(do func()) action {
	return func(r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		do()
		return answer(http.StatusForbidden, "Forbidden", "no right")(r, send)
	}
}
