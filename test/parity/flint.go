package parity

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark"
	"flint.dev/flint/pkg/spark/version"
	"flint.dev/flint/test/operator"
)

// submissionID is that of every case.
const submissionID = "parity"

// flintOutcome is what Flint does with a case: objects as they would be created, or a refusal.
type flintOutcome struct {
	plan    *launch.Plan
	objects []object
	refusal *api.Error
	// failure is what no request should cause.
	failure error
}

// render sends a case the way of a request, from its JSON to the objects.
func render(c *Case, sparkVersion string) *flintOutcome {
	outcome, err := plan(c, sparkVersion)
	if err == nil {
		return outcome
	}
	var refusal *api.Error
	if errors.As(err, &refusal) {
		return &flintOutcome{refusal: refusal}
	}
	return &flintOutcome{failure: err}
}

func plan(c *Case, sparkVersion string) (*flintOutcome, error) {
	v, err := version.Parse(sparkVersion)
	if err != nil {
		return nil, err
	}
	request := operator.Request{SubmissionID: submissionID, SparkSubmitArgs: c.Args}
	if c.Driver != "" {
		request.DriverPodTemplate = json.RawMessage(c.Driver)
	}
	if c.Executor != "" {
		request.ExecutorPodTemplate = json.RawMessage(c.Executor)
	}
	body, err := encode(request)
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	decoded, err := api.DecodeSubmit(body, "")
	if err != nil {
		return nil, err
	}
	// The moment that the tests are at does not show: the submit time is normalised.
	submission, err := spark.Plan(decoded, spark.Defaults{Version: v, User: User}, "", time.UnixMilli(1796010969000))
	if err != nil {
		return nil, err
	}
	outcome := &flintOutcome{plan: submission.Plan}
	for _, o := range launch.Render(submission.Plan) {
		outcome.objects = append(outcome.objects, o.Object)
	}
	return outcome, nil
}

// encode is the request's JSON with the templates' text as it is, which json.Marshal would compact.
func encode(r operator.Request) ([]byte, error) {
	driver, executor := r.DriverPodTemplate, r.ExecutorPodTemplate
	r.DriverPodTemplate, r.ExecutorPodTemplate = nil, nil
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	body = body[:len(body)-1]
	for _, template := range []struct {
		field string
		text  json.RawMessage
	}{{"driver_pod_template", driver}, {"executor_pod_template", executor}} {
		if template.text != nil {
			body = fmt.Appendf(body, ",%q:%s", template.field, template.text)
		}
	}
	return append(body, '}'), nil
}
