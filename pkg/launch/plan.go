package launch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/kube"
)

// idSpace keeps ids apart from any other hash of the same texts, and from a later derivation.
const idSpace = "flint.dev/launch/v1"

// ID derives the id of the submission in the namespace: the first 32 hexadecimal digits of a SHA-256. The
// same pair gives the same id, on every instance, for ever. It is a legal label value.
func ID(namespace, submissionID string) string {
	h := sha256.New()
	for _, part := range []string{idSpace, namespace, submissionID} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

// NewPlan completes the draft: it derives the ID, puts every object into the namespace
// and adds the bookkeeping. Labels go on all objects; the workload alone has the label
// flint.dev/completion and the annotations. The draft's objects are not changed, and selectors stay
// as they are. Values of the caller under flint.dev/ keys are replaced, and a gate of ours on the
// draft's Pod is dropped. The caller's own app.kubernetes.io/managed-by stays: a selector may have it.
//
// An error is a mistake of the builder, not of whoever sent the request: an unknown kind, a
// workload that is neither Pod nor Job, an object of a kind that kube does not know, without a name, of another
// namespace or named twice, or an empty SubmissionID or Hash.
func NewPlan(draft Plan) (*Plan, error) {
	switch {
	case !slices.Contains([]Kind{Spark, File, Runner}, draft.Kind):
		return nil, fmt.Errorf("plan: unknown kind %q", draft.Kind)
	case draft.Namespace == "":
		return nil, errors.New("plan: no namespace")
	case draft.SubmissionID == "":
		return nil, errors.New("plan: no submission id")
	case draft.Hash == "":
		return nil, errors.New("plan: no hash of the request")
	case draft.Workload == nil:
		return nil, errors.New("plan: no workload")
	case !isPod(draft.Workload) && !isJob(draft.Workload):
		return nil, fmt.Errorf("plan: the workload is a %s, not a Pod or a Job", draft.Workload.GetKind())
	}
	p := draft
	p.ID = ID(p.Namespace, p.SubmissionID)
	p.Workload = p.Workload.DeepCopy()
	p.Support = slices.Clone(p.Support)
	for i, s := range p.Support {
		if s.Object == nil {
			return nil, fmt.Errorf("plan: support %d has no object", i)
		}
		p.Support[i].Object = s.Object.DeepCopy()
	}

	labels := map[string]string{LabelKind: string(p.Kind), LabelID: p.ID}
	seen := map[kube.Ref]bool{}
	for _, object := range p.objects() {
		switch ref := kube.RefOf(p.Namespace, object); {
		case !kube.Known(ref.APIVersion, ref.Kind):
			return nil, fmt.Errorf("plan: kind %q in %q is not one that Flint writes", ref.Kind, ref.APIVersion)
		case ref.Name == "":
			return nil, fmt.Errorf("plan: a %s has no name", ref.Kind)
		case object.GetNamespace() != "" && object.GetNamespace() != p.Namespace:
			return nil, fmt.Errorf("plan: %s is of namespace %s", ref, object.GetNamespace())
		case seen[ref]:
			return nil, fmt.Errorf("plan: %s comes twice", ref)
		default:
			seen[ref] = true
		}
		object.SetNamespace(p.Namespace)
		if err := mark(object, "labels", labels); err != nil {
			return nil, err
		}
		if _, chosen := object.GetLabels()[LabelManagedBy]; !chosen {
			if err := mark(object, "labels", map[string]string{LabelManagedBy: ManagedBy}); err != nil {
				return nil, err
			}
		}
	}
	if err := mark(p.Workload, "labels", map[string]string{LabelCompletion: CompletionPending}); err != nil {
		return nil, err
	}
	annotations := map[string]string{AnnotationSubmissionID: p.SubmissionID, AnnotationHash: p.Hash}
	if p.Traceparent != "" {
		annotations[AnnotationTraceparent] = p.Traceparent
	}
	if err := mark(p.Workload, "annotations", annotations); err != nil {
		return nil, err
	}
	unhold(p.Workload)
	return &p, nil
}

// objects are all of the plan, the workload first.
func (p *Plan) objects() []*unstructured.Unstructured {
	objects := []*unstructured.Unstructured{p.Workload}
	for _, s := range p.Support {
		objects = append(objects, s.Object)
	}
	return objects
}

// mark adds entries to the object's labels or annotations. Unstructured's own setters start
// anew, and lose all entries, when one of them is not a string; here such an entry
// stays, for the API server to refuse.
func mark(object *unstructured.Unstructured, field string, entries map[string]string) error {
	metadata, ok := object.Object["metadata"].(map[string]any)
	if !ok { // it has a name, so it has metadata
		return fmt.Errorf("plan: %s %s: metadata is not an object", object.GetKind(), object.GetName())
	}
	if metadata[field] == nil {
		metadata[field] = map[string]any{}
	}
	existing, ok := metadata[field].(map[string]any)
	if !ok {
		return fmt.Errorf("plan: %s %s: metadata.%s is not an object", object.GetKind(), object.GetName(), field)
	}
	for key, value := range entries {
		existing[key] = value
	}
	return nil
}
