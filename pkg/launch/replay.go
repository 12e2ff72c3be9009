package launch

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// conflict is the code of a name, or a key, that is used already: the operator's contract has one of its own for drivers.
func (p *Plan) conflict() api.Code {
	if p.Kind == Spark {
		return api.DriverPodAlreadyExists
	}
	return api.IdempotencyConflict
}

// judge decides what the existing workload of the plan's name is to the plan: same is true
// when it is the plan's own, from an earlier call. Else the refusal says whose it is.
func (a *Applier) judge(plan *Plan, ref kube.Ref, existing *unstructured.Unstructured) (same bool, refusal *api.Error) {
	switch ours := existing.GetLabels()[LabelID] == plan.ID; {
	case existing.GetDeletionTimestamp() != nil:
		return false, retryable("%s is being deleted (%s); the same submission may be repeated", ref, a.describe(existing))
	case !Ours(existing):
		return false, api.Errorf(plan.conflict(), "%s exists already and was not created by Flint (%s)", ref, a.describe(existing))
	case ours && existing.GetAnnotations()[AnnotationHash] == plan.Hash:
		return true, nil
	case ours:
		return false, api.Errorf(plan.conflict(), "submission_id %s was used before with another content: %s exists already (%s)",
			plan.SubmissionID, ref, a.describe(existing))
	}
	return false, api.Errorf(plan.conflict(), "%s exists already, created for submission_id %s (%s)",
		ref, existing.GetAnnotations()[AnnotationSubmissionID], a.describe(existing))
}

// resume answers a repeat of the plan whose workload exists. What is released is not
// touched: a repeat restarts nothing, whatever became of the workload.
func (l *launching) resume(ctx context.Context) (*Result, *api.Error) {
	// A pod that was never held may have lost its support to a kill; once it has ended, nothing needs it.
	ungated := len(l.plan.Support) > 0 && !l.plan.holdable() && !ended(l.workload)
	if !l.held && !ungated {
		return l.result(), nil
	}
	existing := l.workload
	result, refusal := l.complete(ctx)
	if refusal != nil {
		return nil, refusal
	}
	result.Healed = Held(existing) || l.created.Load() > 0
	return result, nil
}

// remove takes an abandoned workload away, so that its name is free. That it is gone
// already, is still going, or was released just now, is no error: the next attempt to create tells.
func (a *Applier) remove(ctx context.Context, ref kube.Ref, abandoned *unstructured.Unstructured) error {
	if a.Abandon != nil {
		return a.Abandon(ctx, ref)
	}
	_, err := a.withdraw(ctx, ref, abandoned, false)
	return err
}

// describe is the state of a workload for a message: "phase Running, age 3m0s, uid …".
func (a *Applier) describe(workload *unstructured.Unstructured) string {
	return fmt.Sprintf("phase %s, age %s, uid %s", phase(workload), max(a.age(workload), 0).Truncate(time.Second), workload.GetUID())
}

// phase is the phase of a Pod, and what would be the phase of a Job.
func phase(workload *unstructured.Unstructured) string {
	if Held(workload) {
		return "Held"
	}
	if isPod(workload) {
		if phase, _, _ := unstructured.NestedString(workload.Object, "status", "phase"); phase != "" {
			return phase
		}
		return "Unknown"
	}
	conditions, _, _ := unstructured.NestedSlice(workload.Object, "status", "conditions")
	state := "Running"
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "Failed":
			return "Failed"
		case "Complete":
			return "Succeeded"
		case "Suspended":
			state = "Suspended"
		}
	}
	return state
}

func ended(workload *unstructured.Unstructured) bool {
	p := phase(workload)
	return p == "Succeeded" || p == "Failed"
}
