package function

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/spark"
)

// The values of the query parameter dryRun.
const (
	dryRunNone   = ""
	dryRunClient = "client" // render, without a call to the API server
	dryRunServer = "All"    // let the API server judge every object
)

// submit answers POST /api/v1/spark-submit.
func (f *Function) submit(w http.ResponseWriter, r *http.Request) {
	started := f.options.clock.Now()
	run, err := f.work(r)
	if err != nil {
		e := toAPIError(err)
		f.countRefusal(launch.Spark, e)
		f.answerError(w, "", e)
		return
	}
	body := run.bodies.body()
	defer body.release()
	request, mode, err := readRequest(w, r, run, body, api.DecodeSubmit)
	if err != nil {
		f.refuse(w, run, launch.Spark, request.SubmissionID, started, err)
		return
	}
	extendWrite(w, run.settings.LaunchTimeout)
	if mode != dryRunNone {
		objects, err := f.dryRunSpark(r.Context(), run, request, mode)
		if err != nil {
			f.refuse(w, run, launch.Spark, request.SubmissionID, started, err)
			return
		}
		run.metrics.DryRun(launch.Spark)
		answerJSON(w, http.StatusOK, launch.List(objects))
		return
	}
	l, err := f.launchSpark(r.Context(), run, request, r.Header.Get("Traceparent"))
	if err != nil {
		f.refuse(w, run, launch.Spark, request.SubmissionID, started, err)
		return
	}
	f.logLaunch(r.Context(), run, l, started)
	code := http.StatusCreated
	if l.result.Duplicate {
		code = http.StatusOK
	}
	answerJSON(w, code, l.answer)
}

// launched is a launch that was accepted, however it was asked for.
type launched struct {
	plan     *launch.Plan
	result   *launch.Result
	warnings []string
	// answer is what HTTP answers, and the data of the event that answers one.
	answer any
}

// readRequest reads the query and the body of a request for a launch. The request is never nil.
func readRequest[T any](w http.ResponseWriter, r *http.Request, run *running, body *body, decode func(text []byte, key string) (*T, error)) (request *T, mode string, err error) {
	request = new(T)
	if mode, err = dryRun(r); err != nil {
		return request, "", err
	}
	if err := requireJSON(r); err != nil {
		return request, "", err
	}
	text, err := body.read(w, r, run.settings.MaxBodyBytes, run.settings.BodyTimeout)
	if err != nil {
		return request, "", err
	}
	request, err = decode(text, "")
	return request, mode, err
}

// plan understands a request and checks where it wants to go.
func (f *Function) plan(run *running, request *api.SubmitRequest, traceparent string) (*spark.Submission, error) {
	defaults := spark.Defaults{Version: run.settings.SparkVersion, User: run.settings.SparkUser}
	submission, err := spark.Plan(request, defaults, api.Traceparent(traceparent), f.options.clock.Now())
	if err != nil {
		return nil, err
	}
	if err := run.policy.Namespace(submission.Plan.Namespace); err != nil {
		if submission.Namespace != submission.Plan.Namespace {
			err = api.Errorf(api.Forbidden, "spark.kubernetes.namespace is %q, which is not a namespace that this Flint launches into", submission.Namespace)
		}
		return nil, err
	}
	if err := run.policy.Account(submission.Plan.Workload); err != nil {
		return nil, err
	}
	return submission, nil
}

// launchSpark is the way of one submission, over HTTP and by event alike. It
// goes on when the caller hangs up: half a launch helps nobody.
func (f *Function) launchSpark(ctx context.Context, run *running, request *api.SubmitRequest, traceparent string) (*launched, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	submission, err := f.plan(run, request, traceparent)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), run.settings.LaunchTimeout)
	defer cancel()
	result, err := run.apply(ctx, submission.Plan, submission.Redaction)
	if err != nil {
		return nil, err
	}
	run.completions.poller.Wake()
	return &launched{submission.Plan, result, submission.Warnings, submitResponse(submission, result)}, nil
}

func (f *Function) dryRunSpark(ctx context.Context, run *running, request *api.SubmitRequest, mode string) ([]*unstructured.Unstructured, error) {
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	submission, err := f.plan(run, request, "")
	if err != nil {
		return nil, err
	}
	if mode == dryRunClient {
		return redact.Objects(launch.Render(submission.Plan), submission.Redaction), nil
	}
	ctx, cancel := context.WithTimeout(ctx, run.settings.LaunchTimeout)
	defer cancel()
	return run.dryRun(ctx, submission.Plan, submission.Redaction)
}

func submitResponse(s *spark.Submission, result *launch.Result) *api.SubmitResponse {
	message := "driver pod created"
	if result.Duplicate {
		message = "driver pod of this submission_id exists already"
	}
	return &api.SubmitResponse{
		SubmissionID:        s.Plan.SubmissionID,
		AppName:             s.AppName,
		Message:             message,
		SubmittedAt:         result.CreatedAt.UTC().Format(time.RFC3339),
		SparkAppID:          s.AppID,
		DriverPodName:       result.Workload.GetName(),
		DriverPodUID:        string(result.Workload.GetUID()),
		Namespace:           s.Plan.Namespace,
		DuplicateSubmission: result.Duplicate,
	}
}

// refuse answers an error and writes its one log line.
func (f *Function) refuse(w http.ResponseWriter, run *running, kind launch.Kind, submissionID string, started time.Time, err error) {
	e := f.logRefusal(run, kind, submissionID, started, err)
	f.countRefusal(kind, e)
	f.answerError(w, submissionID, e)
}

func (f *Function) logRefusal(run *running, kind launch.Kind, submissionID string, started time.Time, err error) *api.Error {
	e := toAPIError(err)
	attrs := []any{
		"kind", string(kind), "submission_id", submissionID, "status", e.Status(), "code", string(e.Code),
		"message", e.Message, "duration_ms", f.options.clock.Since(started).Milliseconds(),
	}
	// What the API server says is in the message, less the values that it quotes.
	if status := apierrors.APIStatus(nil); e.Cause != nil && !errors.As(e.Cause, &status) {
		attrs = append(attrs, "cause", e.Cause.Error())
	}
	if e.Retryable() {
		run.log.Warn("request refused", attrs...)
	} else {
		run.log.Info("request refused", attrs...)
	}
	return e
}

func (f *Function) logLaunch(ctx context.Context, run *running, l *launched, started time.Time) {
	plan, result := l.plan, l.result
	attrs := []any{
		"kind", string(plan.Kind), "submission_id", plan.SubmissionID, "namespace", plan.Namespace,
		"name", result.Workload.GetName(), "uid", string(result.Workload.GetUID()),
		"duplicate", result.Duplicate, "healed", result.Healed, "duration_ms", f.options.clock.Since(started).Milliseconds(),
	}
	if len(l.warnings) > 0 {
		attrs = append(attrs, "warnings", l.warnings)
	}
	run.log.Info("launch", append(attrs, callerAttrs(ctx)...)...)
	run.metrics.Accepted(plan.Kind, result.Duplicate, f.options.clock.Since(started))
}
