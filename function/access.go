package function

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/launches"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/spark/conf"
)

// callerKey is the caller's place in the context of a request, which holds a *caller.
type callerKey struct{}

// caller is empty until identify.
type caller struct {
	identified bool
	who        *access.Caller // nil where nobody is asked who they are
}

// withCaller gives the request a place for its caller.
func withCaller(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, &caller{}))
}

// identify finds out who sends the request, before anything else of it is read, and puts them into its place, for allow.
func (run *running) identify(r *http.Request) error {
	who, err := run.access.Identify(r.Context(), r)
	if err != nil {
		e := toAPIError(err)
		attrs := []any{"status", e.Status(), "code", string(e.Code), "message", e.Message}
		if e.Cause != nil {
			attrs = append(attrs, "cause", e.Cause.Error())
		}
		run.log.Info("caller refused", attrs...)
		return e
	}
	if place, ok := r.Context().Value(callerKey{}).(*caller); ok {
		*place = caller{identified: true, who: who}
	}
	return nil
}

// callerAttrs are what the log tells of who asked: the name, where there is one.
func callerAttrs(ctx context.Context) []any {
	if place, ok := ctx.Value(callerKey{}).(*caller); ok && place.who != nil {
		return []any{"caller", place.who.Name}
	}
	return nil
}

// allow refuses the request of the context what its caller could not do by hand.
func (run *running) allow(ctx context.Context, rights ...access.Right) error {
	place, ok := ctx.Value(callerKey{}).(*caller)
	if !ok || !place.identified {
		return errors.New("rights are asked for nobody: the request was not identified")
	}
	return run.access.Allow(ctx, place.who, rights...)
}

// mayLaunch refuses a plan of which the caller could not create every object by hand.
func (run *running) mayLaunch(ctx context.Context, plan *launch.Plan) error {
	of := kube.RefOf(plan.Namespace, plan.Workload)
	of.Name = "" // a create has none
	rights := []access.Right{access.RightOn("create", of)}
	known := map[access.Right]bool{rights[0]: true}
	for _, s := range plan.Support {
		of := kube.RefOf(plan.Namespace, s.Object)
		of.Name = ""
		if right := access.RightOn("create", of); !known[right] {
			known[right] = true
			rights = append(rights, right)
		}
	}
	return run.allow(ctx, rights...)
}

// apply is the only way to a launch: what the caller may not create, Flint does not create for them. What is said about the plan's
// objects by whoever refuses them has none of their secrets.
func (run *running) apply(ctx context.Context, plan *launch.Plan, r conf.Redaction) (*launch.Result, error) {
	if err := run.mayLaunch(ctx, plan); err != nil {
		return nil, err
	}
	result, err := run.applier.Apply(ctx, plan)
	return result, without(plan, r, err)
}

// without is the error about the plan without what may be secret in its objects.
func without(plan *launch.Plan, r conf.Redaction, err error) error {
	if err == nil {
		return nil
	}
	return redact.Error(err, launch.Render(plan), r)
}

// dryRun has the API server judge the plan, for a caller who may launch it. What may be secret is not shown.
func (run *running) dryRun(ctx context.Context, plan *launch.Plan, r conf.Redaction) ([]*unstructured.Unstructured, error) {
	if err := run.mayLaunch(ctx, plan); err != nil {
		return nil, err
	}
	objects, err := run.applier.DryRun(ctx, plan)
	if err != nil {
		return nil, without(plan, r, err)
	}
	for i, s := range plan.Support {
		if !s.Reuse {
			continue
		}
		// It may be one that is there already, of somebody else: then it is shown as it would be created.
		err := run.allow(ctx, access.RightOn("get", kube.RefOf(plan.Namespace, s.Object)))
		switch {
		case err == nil:
		case toAPIError(err).Code == api.Forbidden:
			objects[i+1] = s.Object
		default:
			return nil, err
		}
	}
	return redact.Objects(objects, r), nil
}

// mayList refuses a list of what the caller could not list by hand: pods, and jobs with the pods that tell their results.
func (run *running) mayList(ctx context.Context, q launches.Query) error {
	pods := access.RightOn("list", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: q.Namespace})
	jobs := access.RightOn("list", kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: q.Namespace})
	switch q.Kind {
	case launch.File, "":
		return run.allow(ctx, pods, jobs)
	default:
		return run.allow(ctx, pods)
	}
}

// may is what launches asks about workloads. Whoever gets a job is shown what its pods tell, the content of files not least.
func (run *running) may(ctx context.Context, verb, subresource string, all ...kube.Ref) error {
	var rights []access.Right
	for _, of := range all {
		right := access.RightOn(verb, of)
		right.Subresource = subresource
		rights = append(rights, right)
		if verb == "get" && of.Kind == "Job" {
			rights = append(rights, access.RightOn("list", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: of.Namespace}))
		}
	}
	return run.allow(ctx, rights...)
}
