package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/kube"
)

func isPod(o *unstructured.Unstructured) bool {
	return o.GetAPIVersion() == "v1" && o.GetKind() == "Pod"
}
func isJob(o *unstructured.Unstructured) bool {
	return o.GetAPIVersion() == "batch/v1" && o.GetKind() == "Job"
}

// Held tells whether the Pod or Job, read whole, still waits for its support.
func Held(workload *unstructured.Unstructured) bool {
	if isJob(workload) {
		suspended, _, _ := unstructured.NestedBool(workload.Object, "spec", "suspend")
		return suspended && workload.GetAnnotations()[AnnotationHeld] != ""
	}
	gates, _, _ := unstructured.NestedFieldNoCopy(workload.Object, "spec", "schedulingGates")
	list, _ := gates.([]any)
	return slices.ContainsFunc(list, isOurGate)
}

// Ours tells whether Flint created the workload.
func Ours(workload *unstructured.Unstructured) bool {
	return workload.GetLabels()[LabelID] != "" && workload.GetAnnotations()[AnnotationHash] != ""
}

func isOurGate(gate any) bool {
	m, _ := gate.(map[string]any)
	return m["name"] == Gate
}

// holdable tells whether the plan's workload waits for its support: not when there is none to
// wait for, and not a Pod that names its node, which the API server does not let wait.
func (p *Plan) holdable() bool {
	if len(p.Support) == 0 {
		return false
	}
	node, _, _ := unstructured.NestedString(p.Workload.Object, "spec", "nodeName")
	return isJob(p.Workload) || node == ""
}

// born is the workload as it is created: held, if it is to wait, and with the Finalizer, if it is to be kept. It shares with the plan's
// all that is not changed: a template may be large.
func (p *Plan) born(kept bool) (*unstructured.Unstructured, error) {
	w := &unstructured.Unstructured{Object: maps.Clone(p.Workload.Object)}
	if kept {
		finalize(w)
	}
	if !p.holdable() {
		return w, nil
	}
	spec, ok := w.Object["spec"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("plan: %s %s: spec is not an object", w.GetKind(), w.GetName())
	}
	spec = maps.Clone(spec)
	w.Object["spec"] = spec
	if isJob(w) {
		spec["suspend"] = true
		metadata := maps.Clone(w.Object["metadata"].(map[string]any))
		annotations, _ := metadata["annotations"].(map[string]any)
		metadata["annotations"] = maps.Clone(annotations)
		w.Object["metadata"] = metadata
		return w, mark(w, "annotations", map[string]string{AnnotationHeld: "true"})
	}
	// A template may have gates of its own: ours goes last, and is the only one that we take away.
	gates, ok := spec["schedulingGates"].([]any)
	if !ok && spec["schedulingGates"] != nil { // builders refuse it by name
		return nil, fmt.Errorf("plan: Pod %s: spec.schedulingGates is not a list", w.GetName())
	}
	spec["schedulingGates"] = append(slices.Clip(gates), map[string]any{"name": Gate})
	return w, nil
}

// unhold takes our gate, or our mark, off a workload that a builder took from elsewhere.
func unhold(w *unstructured.Unstructured) {
	unstructured.RemoveNestedField(w.Object, "metadata", "annotations", AnnotationHeld)
	spec, _ := w.Object["spec"].(map[string]any)
	gates, ok := spec["schedulingGates"].([]any)
	if !ok || !isPod(w) {
		return
	}
	if gates = slices.DeleteFunc(gates, isOurGate); len(gates) > 0 {
		spec["schedulingGates"] = gates
	} else {
		delete(spec, "schedulingGates")
	}
}

// finalize puts the Finalizer on a workload, after those of its template. What is no list there is the API server's to refuse.
func finalize(w *unstructured.Unstructured) {
	metadata := maps.Clone(w.Object["metadata"].(map[string]any))
	finalizers, ok := metadata["finalizers"].([]any)
	if (ok || metadata["finalizers"] == nil) && !slices.Contains(finalizers, any(Finalizer)) {
		metadata["finalizers"] = append(slices.Clip(finalizers), Finalizer)
		w.Object["metadata"] = metadata
	}
}

// release is the patch that lets the workload go, if it is the one of that uid: only our gate
// goes from a Pod, by its name, and gates of the template or of a webhook stay; a Job gets the
// plan's own suspend back. On a workload that is released already it changes nothing: it may have ended since, and its end been told.
func (p *Plan) release(uid types.UID) (types.PatchType, []byte) {
	kind := types.StrategicMergePatchType
	metadata := map[string]any{"uid": uid}
	spec := map[string]any{"schedulingGates": []any{map[string]any{"$patch": "delete", "name": Gate}}}
	if isJob(p.Workload) {
		kind = types.MergePatchType
		suspend, _, _ := unstructured.NestedBool(p.Workload.Object, "spec", "suspend")
		metadata["annotations"] = map[string]any{AnnotationHeld: nil}
		spec = map[string]any{"suspend": suspend}
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": spec})
	if err != nil { // strings, a bool and nil always marshal
		panic(err)
	}
	return kind, patch
}

// let takes the Finalizer, and no other, off the workload, if it has it: its launch was refused, so that nobody waits for its end, and
// its name is to be free at once. With unchanged it holds for the version that was read. It gives the workload's metadata as it is then.
func (a *Applier) let(ctx context.Context, ref kube.Ref, workload *unstructured.Unstructured, unchanged bool) (*unstructured.Unstructured, error) {
	if !slices.Contains(workload.GetFinalizers(), Finalizer) {
		return workload, nil
	}
	metadata := map[string]any{"uid": workload.GetUID(), "$deleteFromPrimitiveList/finalizers": []any{Finalizer}}
	if unchanged {
		metadata["resourceVersion"] = workload.GetResourceVersion()
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil { // strings always marshal
		panic(err)
	}
	return a.Client.Patch(ctx, ref, types.StrategicMergePatchType, patch)
}

// age is how long ago the API server created the object, by this instance's clock.
func (a *Applier) age(object *unstructured.Unstructured) time.Duration {
	return a.clock().Since(object.GetCreationTimestamp().Time)
}

// Abandoned tells whether the workload is ours, still held, and older than HoldLimit: no launch works
// on it any more, and whoever needs its name, or sweeps, may delete it with Withdraw.
func (a *Applier) Abandoned(workload *unstructured.Unstructured) bool {
	return Ours(workload) && Held(workload) && workload.GetDeletionTimestamp() == nil && a.age(workload) > a.holdLimit()
}
