package function

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/files"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/launches"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/spark/conf"
)

// fileRetry is the advice where an operation has not ended.
const fileRetry = 2 * time.Second

// fileJobs is what the file jobs of an instance have in common.
type fileJobs struct {
	follower *follow.Follower
	waiters  chan struct{} // one token for each answer that waits
}

func newFileJobs(client kube.Client, waiters int) *fileJobs {
	return &fileJobs{follower: &follow.Follower{Client: client}, waiters: make(chan struct{}, waiters)}
}

func (f *Function) filesOf(run *running) *files.Files {
	return &files.Files{
		Client:   run.applier.Client,
		Follower: run.files.follower,
		Apply: func(ctx context.Context, plan *launch.Plan) (*launch.Result, error) {
			if err := run.policy.Account(plan.Workload); err != nil {
				return nil, err
			}
			return run.apply(ctx, plan, conf.Redaction{})
		},
		Settings: files.Settings{Job: run.settings.File.Job, ClaimLabel: run.settings.File.ClaimLabel, Unbound: run.settings.File.Unbound},
		Cancel: func(ctx context.Context, job *unstructured.Unstructured, why *api.Error) error {
			return f.giveUp(ctx, run, job, why)
		},
		Clock: f.options.clock,
	}
}

// fileJobPaths answers what is below api.FilePath: the operation and the list there, and each job beneath it.
func (f *Function) fileJobPaths(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimPrefix(r.URL.EscapedPath(), api.FilePath)
	if rest == "" {
		if r.Method == http.MethodPost {
			f.submitFile(w, r)
			return
		}
		f.reads(f.listFiles, http.MethodPost)(w, r)
		return
	}
	parts := strings.Split(rest, "/")[1:]
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil {
			text = ""
		}
		parts[i] = text
	}
	if len(parts) != 2 || parts[0] == "" || parts[1] == "" {
		f.answerError(w, "", api.Errorf(api.NotFound, "no such path: operations go to POST %[1]s, and one of them is at %[1]s/NAMESPACE/ID", api.FilePath))
		return
	}
	name := launches.Name{Namespace: parts[0], ID: parts[1], Kind: launch.File}
	if r.Method == http.MethodDelete {
		f.cancelLaunch(w, r, name)
		return
	}
	if r.Method == http.MethodGet { // not by reads, whose places and time are not for those who wait
		f.getFile(w, r, name)
		return
	}
	f.reads(nil, http.MethodDelete)(w, r)
}

// submitFile answers POST /api/v1/file-jobs.
func (f *Function) submitFile(w http.ResponseWriter, r *http.Request) {
	started := f.options.clock.Now()
	run, err := f.work(r)
	if err != nil {
		e := toAPIError(err)
		f.countRefusal(launch.File, e)
		f.answerError(w, "", e)
		return
	}
	body := run.bodies.body()
	defer body.release()
	request, mode, err := readRequest(w, r, run, body, api.DecodeFile)
	refuse := func(err error) { f.refuse(w, run, launch.File, request.SubmissionID, started, err) }
	if err != nil {
		refuse(err)
		return
	}
	if request.SubmissionID == "" { // such a request cannot be repeated
		request.SubmissionID = "file-" + strings.ToLower(rand.Text())
	}
	wait := run.waitFor(request)
	extendWrite(w, 2*run.settings.LaunchTimeout+wait)
	if mode != dryRunNone {
		objects, err := f.dryRunFile(r.Context(), run, request, mode)
		if err != nil {
			refuse(err)
			return
		}
		run.metrics.DryRun(launch.File)
		answerJSON(w, http.StatusOK, launch.List(objects))
		return
	}
	l, err := f.launchFile(r.Context(), run, request, r.Header.Get("Traceparent"))
	if err != nil {
		refuse(err)
		return
	}
	f.logLaunch(r.Context(), run, l, started)
	// The content is in the cluster now, and the wait may be long: of the launch only the answer is kept.
	request.Operation = api.FileOperation{}
	body.release()
	f.answerFile(w, r, run, l.answer.(*api.FileJob), wait)
}

// waitFor is how long the answer to the request waits: as it says, within the settings.
func (run *running) waitFor(request *api.FileRequest) time.Duration {
	s := run.settings.File
	switch {
	case request.WaitSeconds != nil:
		return waitWithin(int64(*request.WaitSeconds), s.WaitLimit)
	case request.Operation.Long():
		return 0
	}
	return s.Wait
}

func waitWithin(seconds int64, most time.Duration) time.Duration {
	return time.Duration(min(seconds, int64(most/time.Second))) * time.Second
}

// launchFile is the way of one operation to its Job, over HTTP and by event alike.
func (f *Function) launchFile(ctx context.Context, run *running, request *api.FileRequest, traceparent string) (*launched, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), run.settings.LaunchTimeout)
	defer cancel()
	if err := run.mayFile(ctx, request); err != nil {
		return nil, err
	}
	l, err := f.filesOf(run).Launch(ctx, request, api.Traceparent(traceparent))
	if err != nil {
		return nil, err
	}
	run.completions.poller.Wake()
	return &launched{plan: l.Plan, result: l.Result, answer: l.Job}, nil
}

func (f *Function) dryRunFile(ctx context.Context, run *running, request *api.FileRequest, mode string) ([]*unstructured.Unstructured, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, run.settings.LaunchTimeout)
	defer cancel()
	if mode == dryRunClient { // what is not looked up is not in it
		if err := run.policy.Namespace(request.Target.Namespace); err != nil {
			return nil, err
		}
		plan, err := filejob.Plan(request, filejob.Facts{}, run.settings.File.Job, "")
		if err != nil {
			return nil, err
		}
		return redact.Objects(launch.Render(plan), conf.Redaction{}), nil
	}
	if err := run.mayFile(ctx, request); err != nil {
		return nil, err
	}
	plan, err := f.filesOf(run).Plan(ctx, request, "")
	if err != nil {
		return nil, err
	}
	return run.dryRun(ctx, plan, conf.Redaction{})
}

// mayFile refuses an operation before anything of its claim is told: that there is one, and who uses it.
func (run *running) mayFile(ctx context.Context, request *api.FileRequest) error {
	namespace := request.Target.Namespace
	if err := run.policy.Namespace(namespace); err != nil {
		return err
	}
	return run.allow(ctx, access.RightOn("create", kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace}))
}

// mayReadFiles refuses what was read from claims to whoever could not read it in the pods' logs by hand.
func (run *running) mayReadFiles(ctx context.Context, verb string, job kube.Ref) error {
	logs := access.RightOn("get", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: job.Namespace})
	logs.Subresource = "log"
	return run.allow(ctx, access.RightOn(verb, job), logs)
}

// answerFile waits for the end of a launched operation and answers: 200 with its result, 202 where it has not ended, or
// the error that it ended with. Whoever hangs up ends the wait, and not the operation.
func (f *Function) answerFile(w http.ResponseWriter, r *http.Request, run *running, job *api.FileJob, wait time.Duration) {
	state, err := f.await(r.Context(), run, job.Namespace, job.ID, wait)
	if err == nil && state != nil {
		state.Job.DuplicateSubmission = job.DuplicateSubmission
		if e := state.Error(); e != nil {
			err = e
		}
	}
	if state != nil {
		job = &state.Job
	}
	run.log.Info("operation", "submission_id", job.SubmissionID, "namespace", job.Namespace, "name", job.Job, "op", string(job.Op),
		"state", string(job.State), "code", string(job.Code))
	switch {
	case err != nil:
		e := toAPIError(err)
		if e.Cause != nil {
			e = f.logRefusal(run, launch.File, job.SubmissionID, f.options.clock.Now(), err)
		}
		f.answerError(w, job.SubmissionID, e)
	case state != nil && state.Ended:
		answerJSON(w, http.StatusOK, job)
	default:
		w.Header().Set("Location", api.FilePath+"/"+job.Namespace+"/"+job.ID)
		w.Header().Set("Retry-After", strconv.Itoa(int(fileRetry.Seconds())))
		if f.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		answerJSON(w, http.StatusAccepted, job)
	}
}

// await waits for the end of a file job, unless as many answers wait as may; nil is one that was not looked at. The wait
// ends with the instance.
func (f *Function) await(ctx context.Context, run *running, namespace, id string, wait time.Duration) (*filejob.State, error) {
	if wait <= 0 {
		return nil, nil //nolint:nilnil // nothing was looked at, and nothing is wrong
	}
	select {
	case run.files.waiters <- struct{}{}:
	default:
		return nil, nil //nolint:nilnil // as above
	}
	defer func() { <-run.files.waiters }()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return f.filesOf(run).Wait(ctx, f.stopping.Done(), namespace, id)
}

// getFile answers GET /api/v1/file-jobs/{namespace}/{id}: what is known of the job is 200, whatever became of it.
func (f *Function) getFile(w http.ResponseWriter, r *http.Request, name launches.Name) {
	run, err := f.work(r)
	var job *api.FileJob
	if err == nil {
		job, err = f.lookAtFile(w, r, run, name)
	}
	if err != nil {
		e := toAPIError(err)
		if e.Code == api.InternalServerError { // its message says that the log has the cause
			e = f.logRefusal(run, launch.File, "", f.options.clock.Now(), err)
		}
		f.answerError(w, "", e)
		return
	}
	answerJSON(w, http.StatusOK, job)
}

func (f *Function) lookAtFile(w http.ResponseWriter, r *http.Request, run *running, name launches.Name) (*api.FileJob, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, api.FieldErrorf(api.BadRequest, "query", "malformed query: %v", err)
	}
	p := parameters{values: query}
	p.known("wait_seconds")
	var wait time.Duration
	if query.Get("wait_seconds") != "0" {
		wait = waitWithin(p.number("wait_seconds", 0, math.MaxInt32), run.settings.File.WaitLimit)
	}
	if err := errors.Join(p.err, run.policy.Namespace(name.Namespace)); err != nil {
		return nil, err
	}
	extendWrite(w, 2*run.settings.LaunchTimeout+wait)
	ctx, cancel := context.WithTimeout(r.Context(), run.settings.LaunchTimeout)
	defer cancel()
	job := kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: name.Namespace, Name: filejob.JobName(name.ID)}
	if err := run.mayReadFiles(ctx, "get", job); err != nil {
		return nil, err
	}
	state, err := f.fileNow(ctx, run, name)
	if err != nil {
		return nil, err
	}
	if !state.Ended { // what is not there, or has ended, is not waited for
		waited, err := f.await(r.Context(), run, name.Namespace, name.ID, wait)
		if err != nil {
			return nil, err
		}
		state = cmp.Or(waited, state)
	}
	return &state.Job, nil
}

func (f *Function) fileNow(ctx context.Context, run *running, name launches.Name) (*filejob.State, error) {
	release, err := f.take(run.reads)
	if err != nil {
		return nil, err
	}
	defer release()
	return f.filesOf(run).Get(ctx, name.Namespace, name.ID)
}

// listFiles answers GET /api/v1/file-jobs.
func (f *Function) listFiles(w http.ResponseWriter, r *http.Request, run *running, query url.Values) error {
	p := parameters{values: query}
	p.known("namespace", "claim")
	namespace, claim := p.one("namespace"), p.one("claim")
	if only := run.policy.Namespaces; namespace == "" && len(only) == 1 && only[0] != access.Everywhere {
		namespace = only[0]
	}
	if namespace == "" {
		p.fault("namespace", "namespace is required, since this Flint launches into more than one")
	}
	if err := errors.Join(p.err, run.policy.Namespace(namespace)); err != nil {
		return err
	}
	if err := run.mayReadFiles(r.Context(), "list", kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace}); err != nil {
		return err
	}
	list, err := f.filesOf(run).List(r.Context(), namespace, claim)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, list)
	return nil
}

// fileEvent launches an operation. Its result comes with the completion event.
func (f *Function) fileEvent(ctx context.Context, run *running, data []byte, key, traceparent string) (string, *launched, error) {
	request, err := api.DecodeFile(data, key)
	if err != nil {
		return request.SubmissionID, nil, err
	}
	l, err := f.launchFile(ctx, run, request, traceparent)
	return request.SubmissionID, l, err
}

// giveUp ends a job that cannot start, so that it does not run later, when nobody expects it. Its completion event says why.
func (f *Function) giveUp(ctx context.Context, run *running, job *unstructured.Unstructured, why *api.Error) error {
	reasons := map[api.Code]api.Reason{api.ImagePull: api.ReasonImagePull, api.Unschedulable: api.ReasonUnschedulable}
	ref := kube.RefOf(job.GetNamespace(), job)
	patch := completion.Recording(job, completion.Outcome{
		Outcome: api.Failed, Reason: cmp.Or(reasons[why.Code], api.ReasonError), Message: why.Message, FinishedAt: f.options.clock.Now(),
	})
	if _, err := run.applier.Client.Patch(ctx, ref, types.MergePatchType, patch); err != nil {
		return kube.Translate(err, "patch", ref)
	}
	// It is Flint that ends it, and not the caller, who may not be allowed to.
	own := &launches.Launches{Client: run.applier.Client, Clock: f.options.clock}
	cancelled, err := own.Cancel(ctx, launches.Name{Namespace: ref.Namespace, ID: job.GetLabels()[launch.LabelID], Kind: launch.File})
	if err != nil {
		return err
	}
	defer run.completions.poller.Wake()
	ctx, stop := context.WithTimeout(ctx, tellLimit)
	defer stop()
	if _, err := run.completions.poller.One(ctx, cancelled.Ref, cancelled.Last); err != nil {
		run.log.Warn("the end of a job that was given up could not be looked at", "namespace", ref.Namespace, "name", ref.Name, "error", err.Error())
	}
	return nil
}

// wholeResult gives the results that completion events carry whole: those of at most so many bytes.
func wholeResult(client kube.Client, most int64) func(context.Context, completion.Subject, api.FilePartial) (json.RawMessage, error) {
	jobs := &files.Files{Client: client}
	return func(ctx context.Context, of completion.Subject, partial api.FilePartial) (json.RawMessage, error) {
		if partial.Length > most {
			return nil, nil
		}
		state, err := jobs.Get(ctx, of.Ref.Namespace, of.LaunchID)
		switch {
		case err != nil:
			return nil, err
		case state.Failure != nil:
			return nil, state.Failure
		case state.Job.UID != string(of.UID) || state.Job.Result == nil || state.Job.Result.Partial != nil:
			return nil, errors.New("the pod's log is gone")
		}
		return json.Marshal(state.Job.Result)
	}
}
