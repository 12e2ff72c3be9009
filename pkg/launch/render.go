package launch

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// Render gives the plan's objects as they will be once the workload is released, the workload
// first. Support has no owner reference: the workload has no uid yet. The workload has no Finalizer, which is
// the Applier's. It asks nobody.
func Render(plan *Plan) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for i, object := range plan.objects() {
		object = object.DeepCopy()
		if i > 0 {
			object.SetOwnerReferences(nil)
		}
		objects = append(objects, object)
	}
	return objects
}

// DryRun has the API server judge every object of the plan as Apply would create it, the workload
// first and held, support with its owner, and gives what it answered: defaults filled
// in, changed by admission. Nothing is stored. The API server refuses fields that it does not
// know. A name that is taken is refused as Apply refuses it, and so is the plan's own
// workload of an earlier call: it cannot be created again. An existing object that
// Support.Reuse allows is given as it is. The first object that is refused decides
// the error, an *api.Error. The context needs a deadline.
func (a *Applier) DryRun(ctx context.Context, plan *Plan) ([]*unstructured.Unstructured, error) {
	objects, err := a.dryRun(ctx, plan)
	if err != nil {
		return nil, err
	}
	return objects, nil
}

func (a *Applier) dryRun(ctx context.Context, plan *Plan) ([]*unstructured.Unstructured, *api.Error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, api.Errorf(api.InternalServerError, "a dry run needs a deadline")
	}
	object, err := plan.born(a.TellDeleted)
	if err != nil {
		return nil, api.Errorf(api.InternalServerError, "%v", err)
	}
	ref := kube.RefOf(plan.Namespace, object)
	workload, err := a.Client.Create(ctx, plan.Namespace, object, true)
	if apierrors.IsAlreadyExists(err) {
		return nil, a.taken(ctx, plan, ref)
	}
	if err != nil {
		return nil, kube.Translate(err, "create", ref)
	}
	answers := []*unstructured.Unstructured{workload}
	for _, s := range plan.Support {
		ref := kube.RefOf(plan.Namespace, s.Object)
		answer, err := a.Client.Create(ctx, plan.Namespace, owned(s.Object, workload), true)
		if apierrors.IsAlreadyExists(err) && s.Reuse {
			answer, err = a.Client.Get(ctx, ref)
		}
		if err != nil {
			return nil, kube.Translate(err, "create", ref)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// taken tells whose the workload of that name is.
func (a *Applier) taken(ctx context.Context, plan *Plan, ref kube.Ref) *api.Error {
	existing, err := a.Client.Get(ctx, ref)
	if err != nil {
		return kube.Translate(err, "get", ref)
	}
	same, refusal := a.judge(plan, ref, existing)
	if same {
		return api.Errorf(plan.conflict(), "%s exists already, created for this very submission (%s)", ref, a.describe(existing))
	}
	return refusal
}
