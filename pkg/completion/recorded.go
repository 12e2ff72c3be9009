package completion

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
)

// Recorded is the outcome that was written on the workload, if it holds: that of an abandoned launch holds
// once the workload is being deleted. It comes before what the state of the workload says.
func Recorded(workload *unstructured.Unstructured) (Outcome, bool) {
	o, withdrawal := recordOf(workload)
	if o == nil || withdrawal && workload.GetDeletionTimestamp() == nil {
		return Outcome{}, false
	}
	return *o, true
}

// Recording is the merge patch that writes onto a workload that it has failed so: whatever becomes of it, that is what is told
// of its end. It goes before the deletion of one that cannot start.
func Recording(workload *unstructured.Unstructured, o Outcome) []byte {
	text, err := json.Marshal(record{
		UID: workload.GetUID(), Outcome: api.Failed, Reason: o.Reason, Message: brief(o.Message),
		StartedAt: Time(o.StartedAt), FinishedAt: Time(o.FinishedAt),
	})
	if err != nil { // texts and times that can be written always marshal
		panic(err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": workload.GetUID(), "annotations": map[string]any{AnnotationOutcome: string(text)},
	}})
	if err != nil { // texts always marshal
		panic(err)
	}
	return patch
}
