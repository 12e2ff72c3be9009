package function

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/launches"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/runners"
	"flint.dev/flint/pkg/spark/conf"
)

const (
	// runnerRetry is the advice where a boot goes on.
	runnerRetry = time.Second
	// bootMargin is what a runner's launch may take beyond its boot time: whoever waits for the answer has a bound.
	bootMargin = 500 * time.Millisecond
)

// newRunners makes what sees to the runners of an instance.
func (f *Function) newRunners(run *running) *runners.Runners {
	s := run.settings.Runner
	return &runners.Runners{
		Client:   run.applier.Client,
		Follower: run.files.follower,
		Apply: func(ctx context.Context, plan *launch.Plan) (*launch.Result, error) {
			if err := run.policy.Account(plan.Workload); err != nil {
				return nil, err
			}
			result, err := run.applier.Apply(ctx, plan)
			return result, without(plan, conf.Redaction{}, err)
		},
		Settings: runners.Settings{
			Runner: s.Plan, MaxPerParent: s.MaxPerParent, MaxPerNamespace: s.MaxPerNamespace, OrphanGrace: s.OrphanGrace, Graces: s.Graces,
		},
		Clock: f.options.clock,
		Log:   run.log,
	}
}

// submitRunner answers POST /api/v1/runners.
func (f *Function) submitRunner(w http.ResponseWriter, r *http.Request) {
	started := f.options.clock.Now()
	run, err := f.work(r)
	if err != nil {
		e := toAPIError(err)
		f.countRefusal(launch.Runner, e)
		f.answerError(w, "", e)
		return
	}
	body := run.bodies.body()
	defer body.release()
	request, mode, err := readRequest(w, r, run, body, api.DecodeRunner)
	refuse := func(err error) { f.refuse(w, run, launch.Runner, request.SubmissionID, started, err) }
	if err != nil {
		refuse(err)
		return
	}
	if request.SubmissionID == "" { // such a request cannot be repeated
		request.SubmissionID = "runner-" + strings.ToLower(rand.Text())
	}
	extendWrite(w, 2*run.settings.LaunchTimeout+run.settings.Runner.WaitLimit)
	if mode != dryRunNone {
		objects, err := f.dryRunRunner(r.Context(), run, request, mode)
		if err != nil {
			refuse(err)
			return
		}
		run.metrics.DryRun(launch.Runner)
		answerJSON(w, http.StatusOK, launch.List(objects))
		return
	}
	l, err := f.launchRunner(r.Context(), run, request, r.Header.Get("Traceparent"))
	if err != nil {
		refuse(err)
		return
	}
	f.logLaunch(r.Context(), run, launchedRunner(l), started)
	body.release()
	answer, arrived, err := f.awaitBoot(r.Context(), run, l, request.Wait)
	if err != nil {
		refuse(err)
		return
	}
	f.answerRunner(w, answer, arrived)
}

// launchRunner is the way of one runner to its pod, over HTTP and by event alike. It goes on when the caller hangs up, and
// ends with the boot's own time: nobody waits for longer.
func (f *Function) launchRunner(ctx context.Context, run *running, request *api.RunnerRequest, traceparent string) (*runners.Launched, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := run.policy.Namespace(request.Parent.Namespace); err != nil {
		return nil, err
	}
	limit := min(run.settings.LaunchTimeout, time.Duration(request.BootTimeoutMS)*time.Millisecond+bootMargin)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	l, err := run.runners.Launch(ctx, request, api.Traceparent(traceparent), run.mayHaveRunners(request))
	if err != nil {
		return nil, err
	}
	run.completions.poller.Wake()
	return l, nil
}

func launchedRunner(l *runners.Launched) *launched {
	return &launched{plan: l.Plan, result: l.Result, warnings: l.Runner.Warnings, answer: l.Answer()}
}

func (f *Function) dryRunRunner(ctx context.Context, run *running, request *api.RunnerRequest, mode string) ([]*unstructured.Unstructured, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	if err := run.policy.Namespace(request.Parent.Namespace); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, run.settings.LaunchTimeout)
	defer cancel()
	planned, err := run.runners.Plan(ctx, request, "", run.mayHaveRunners(request))
	if err != nil {
		return nil, err
	}
	if err := run.policy.Account(planned.Plan.Workload); err != nil {
		return nil, err
	}
	if mode == dryRunClient {
		return redact.Objects(launch.Render(planned.Plan), conf.Redaction{}), nil
	}
	objects, err := run.applier.DryRun(ctx, planned.Plan)
	return redact.Objects(objects, conf.Redaction{}), without(planned.Plan, conf.Redaction{}, err)
}

// awaitBoot waits as far as the request says, unless as many answers wait as may. The wait ends with the caller, and with the
// instance; the boot does not.
func (f *Function) awaitBoot(ctx context.Context, run *running, l *runners.Launched, wait string) (answer *api.Runner, arrived bool, err error) {
	select {
	case run.waitingRunners <- struct{}{}:
	default:
		return l.Answer(), false, nil
	}
	defer func() { <-run.waitingRunners }()
	defer run.completions.poller.Wake() // to what was given up, or goes on without this wait
	ctx, cancel := context.WithTimeout(ctx, run.settings.Runner.WaitLimit)
	defer cancel()
	defer context.AfterFunc(f.stopping, cancel)() //nolint:contextcheck // the end of the instance, which is nobody's request
	return run.runners.Wait(ctx, l, wait)
}

// answerRunner answers 201 for a runner that has come as far as it was to be waited for, 200 for one that was there before,
// and 202 where it has not come so far.
func (f *Function) answerRunner(w http.ResponseWriter, answer *api.Runner, arrived bool) {
	code := http.StatusCreated
	switch {
	case !arrived:
		code = http.StatusAccepted
		w.Header().Set("Retry-After", strconv.Itoa(int(runnerRetry.Seconds())))
	case answer.DuplicateSubmission:
		code = http.StatusOK
	}
	w.Header().Set("Location", api.LaunchesPath+"/"+answer.Namespace+"/"+answer.ID)
	if f.draining.Load() {
		w.Header().Set("Connection", "close")
	}
	answerJSON(w, code, answer)
}

// runnerEvent launches a runner. Nobody waits for its boot: how it ends comes with the completion event.
func (f *Function) runnerEvent(ctx context.Context, run *running, data []byte, key, traceparent string) (string, *launched, error) {
	request, err := api.DecodeRunner(data, key)
	if err != nil {
		return request.SubmissionID, nil, err
	}
	l, err := f.launchRunner(ctx, run, request, traceparent)
	if err != nil {
		return request.SubmissionID, nil, err
	}
	return request.SubmissionID, launchedRunner(l), nil
}

// mayHaveRunners lets a pod have runners of itself, whose token tells that it is the parent: they are never more than it is.
// Anybody else needs the rights to do the same by hand.
func (run *running) mayHaveRunners(request *api.RunnerRequest) runners.Allow {
	return func(ctx context.Context, parent kube.Ref, found *unstructured.Unstructured) error {
		if found != nil && found.GetUID() != "" && found.GetUID() == callingPod(ctx, parent.Namespace) {
			return nil
		}
		needs := []access.Right{access.RightOn("get", parent), access.RightOn("create", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: parent.Namespace})}
		if len(request.SecretEnv) > 0 {
			needs = append(needs, access.RightOn("create", kube.Ref{APIVersion: "v1", Kind: "Secret", Namespace: parent.Namespace}))
		}
		err := run.allow(ctx, needs...)
		if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.Forbidden {
			e.Code = api.ParentForbidden
		}
		return err
	}
}

// The extra attributes of a caller whose token is bound to a pod (k8s.io/apiserver/pkg/authentication/serviceaccount).
const podUIDKey = "authentication.kubernetes.io/pod-uid"

// callingPod is the uid of the pod of that namespace that the caller is, or empty.
func callingPod(ctx context.Context, namespace string) types.UID {
	place, _ := ctx.Value(callerKey{}).(*caller)
	if place == nil || place.who == nil || !strings.HasPrefix(place.who.Name, "system:serviceaccount:"+namespace+":") {
		return ""
	}
	if uids := place.who.Extra[podUIDKey]; len(uids) == 1 {
		return types.UID(uids[0])
	}
	return ""
}

// mayTouch is what launches asks about workloads: a pod may do with its own runners what it likes, and others what they could
// do by hand. Without a name it may ask for its own.
func (run *running) mayTouch(ctx context.Context, verb, subresource string, all ...kube.Ref) error {
	refusal := run.may(ctx, verb, subresource, all...)
	if refusal == nil {
		return nil
	}
	for _, of := range all {
		pod := callingPod(ctx, of.Namespace)
		if pod == "" || of.Kind != "Pod" {
			return refusal
		}
		if of.Name == "" {
			continue
		}
		found, err := run.applier.Client.Get(ctx, of)
		if err != nil || found.GetLabels()[launch.LabelKind] != string(launch.Runner) || found.GetLabels()[runner.LabelParentUID] != string(pod) {
			return refusal
		}
	}
	return nil
}

// giveUpRunner makes the tombstones of a runner's keys, before its pod is deleted on demand.
func (run *running) giveUpRunner(ctx context.Context, workload *unstructured.Unstructured) error {
	if workload.GetLabels()[launch.LabelKind] != string(launch.Runner) {
		return nil
	}
	return run.runners.GiveUp(ctx, workload, api.Cancelled)
}

// giveUpKey makes the tombstone of a key that has no launch, for whoever says that it is a runner's: its launch may be on its way
// still. Whoever may delete pods gives it up for all, and a pod for its own runners; others could end what they may not, and fill the
// namespace with tombstones. A launch that made its mark before the tombstone has its pod by now, which is cancelled. Else the
// error is the one that there is none. One that is there, and not for the caller to see, is left alone.
func (f *Function) giveUpKey(ctx context.Context, run *running, name launches.Name, notFound error) (*launches.Cancelled, error) {
	e, ok := errors.AsType[*api.Error](notFound)
	if !ok || e.Code != api.NotFound || e.Cause != nil || name.Kind != launch.Runner || !launches.IsID(name.ID) {
		return nil, notFound
	}
	var err error
	pod := callingPod(ctx, name.Namespace)
	switch {
	case run.may(ctx, "delete", "", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: name.Namespace}) == nil:
		err = run.runners.GiveUpKey(ctx, name.Namespace, name.ID, api.Cancelled, 0)
	case pod != "":
		err = run.runners.GiveUpKeyOf(ctx, pod, name.Namespace, name.ID, api.Cancelled)
	default:
		return nil, notFound
	}
	if err != nil {
		return nil, err
	}
	cancelled, err := f.launchesOf(run).Cancel(ctx, name)
	if e, ok = errors.AsType[*api.Error](err); ok && e.Code == api.NotFound {
		e.Message += "; its key is given up: no launch of it that is still on its way starts anything"
	}
	return cancelled, err
}
