package completion

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Recorded is the outcome that was written on the workload, if it holds: that of an abandoned launch holds
// once the workload is being deleted. It comes before what the state of the workload says.
func Recorded(workload *unstructured.Unstructured) (Outcome, bool) {
	o, withdrawal := recordOf(workload)
	if o == nil || withdrawal && workload.GetDeletionTimestamp() == nil {
		return Outcome{}, false
	}
	return *o, true
}
