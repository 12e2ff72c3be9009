// Package spark turns one submission into the plan of its launch: it parses the
// arguments (package args), builds what Spark would create (package driver) and
// adds what Flint needs to launch it once (package launch). It is pure.
package spark

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/driver"
	"flint.dev/flint/pkg/spark/version"
)

// Defaults are what a submission gets that it does not say itself.
type Defaults struct {
	// Version is the Spark release to follow.
	Version version.Version
	// User is the value of SPARK_USER.
	User string
}

// Submission is a request that was understood.
type Submission struct {
	Plan *launch.Plan
	// AppName is spark.app.name.
	AppName string
	// Namespace is the plan's, as the conf writes it: what a reference in it stands for may be secret.
	Namespace string
	// AppID is the application id, "spark-" and 32 hexadecimal digits.
	AppID string
	// Warnings are what spark-submit would log and go on.
	Warnings []string
	// Redaction tells what of it may be secret.
	Redaction conf.Redaction
}

// Plan understands a request. The error is an *api.Error: INVALID_SPARK_SUBMIT_ARGS
// where an argument or a conf is at fault, INVALID_POD_TEMPLATE where the driver
// template is, BAD_REQUEST for an unknown spark_version. The traceparent may be empty.
func Plan(request *api.SubmitRequest, defaults Defaults, traceparent string, now time.Time) (*Submission, error) {
	v := defaults.Version
	if request.SparkVersion != "" {
		var err error
		if v, err = version.Parse(request.SparkVersion); err != nil {
			return nil, api.FieldErrorf(api.BadRequest, "spark_version", "%v", err)
		}
	}
	redaction := conf.RedactionOf(request.SparkSubmitArgs)
	arguments, err := args.Parse(request.SparkSubmitArgs, v)
	if err != nil {
		return nil, translate(err, redaction)
	}
	if err := checkLabels(arguments.Conf); err != nil {
		return nil, translate(err, redaction)
	}
	namespace, err := driver.Namespace(arguments)
	if refused := (*conf.Error)(nil); errors.As(err, &refused) {
		return nil, translate(refused.AsWritten(arguments.Conf), redaction)
	}
	ids := driver.DeriveIDs(namespace, request.SubmissionID)
	objects, err := driver.Build(driver.Request{
		Arguments:        arguments,
		Version:          v,
		IDs:              ids,
		User:             defaults.User,
		SubmitTime:       now,
		DriverTemplate:   request.DriverPodTemplate,
		ExecutorTemplate: request.ExecutorPodTemplate,
	})
	if err != nil {
		return nil, translate(err, redaction)
	}
	hash, err := contentHash(request, arguments)
	if err != nil {
		return nil, err
	}
	support := make([]launch.Support, len(objects.Resources))
	for i, object := range objects.Resources {
		named := object.GetKind() == "PersistentVolumeClaim" && slices.Contains(objects.CallerNamed, object.GetName())
		support[i] = launch.Support{Object: object, Reuse: named}
	}
	plan, err := launch.NewPlan(launch.Plan{
		Kind:         launch.Spark,
		Namespace:    namespace,
		SubmissionID: request.SubmissionID,
		Hash:         hash,
		Traceparent:  traceparent,
		Workload:     objects.Pod,
		Support:      support,
	})
	if err != nil {
		return nil, fmt.Errorf("plan the submission: %w", err)
	}
	return &Submission{
		Plan:      plan,
		Namespace: cmp.Or(arguments.Conf["spark.kubernetes.namespace"], namespace),
		AppName:   arguments.Conf["spark.app.name"],
		AppID:     ids.App,
		Warnings:  append(arguments.Warnings, objects.Warnings...),
		Redaction: redaction,
	}, nil
}

// checkLabels refuses labels under keys of Flint's bookkeeping. They are in the
// Service's selector, as all labels of the conf are, and would select no pod once
// the pod has Flint's own values. (Labels of a template are in no selector.)
func checkLabels(c conf.Conf) error {
	const prefix, reserved = "spark.kubernetes.driver.label.", "flint.dev/"
	for _, label := range c.WithPrefix(prefix + reserved) {
		return conf.RefuseName(prefix+reserved+label.Key, "labels under %s are reserved for Flint's bookkeeping", reserved)
	}
	return nil
}

// contentHash is the same for requests that ask for the same: the operator
// draws the order of its --conf options anew for every attempt, so the hash is
// of what the arguments mean and not of how they are written.
func contentHash(request *api.SubmitRequest, a *args.Arguments) (string, error) {
	var executor any
	if request.ExecutorPodTemplate != nil {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(request.ExecutorPodTemplate, &executor); err != nil {
			return "", api.FieldErrorf(api.BadRequest, "executor_pod_template", "executor_pod_template is not JSON: %v", err)
		}
	}
	canonical, err := json.Marshal(struct {
		Conf      conf.Conf
		Language  args.Language
		Resource  string
		MainClass string
		AppArgs   []string
		ProxyUser string
		Driver    map[string]any
		Executor  any
		Version   string
	}{a.Conf, a.Language, a.Resource, a.MainClass, a.AppArgs, a.ProxyUser, request.DriverPodTemplate, executor, request.SparkVersion})
	if err != nil {
		return "", fmt.Errorf("hash the request: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

func translate(err error, redaction conf.Redaction) error {
	var refused *conf.Error
	var template *driver.TemplateError
	switch {
	case errors.As(err, &refused):
		return api.FieldErrorf(api.InvalidSparkSubmitArgs, "spark_submit_args", "%s", redaction.Hide(refused).Error())
	case errors.As(err, &template):
		field := "driver_pod_template"
		if template.Field != "" {
			field += "." + template.Field
		}
		return api.FieldErrorf(api.InvalidPodTemplate, field, "%s", template.Error())
	default:
		return fmt.Errorf("plan the submission: %w", err)
	}
}
