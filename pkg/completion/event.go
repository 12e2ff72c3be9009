package completion

import (
	"fmt"
	"regexp"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// sparkAppLabel is on the pods of a Spark application (org.apache.spark.deploy.k8s.Constants.SPARK_APP_ID_LABEL).
const sparkAppLabel = "spark-app-selector"

// Subject is the workload that an event is about: what its metadata tells.
type Subject struct {
	Ref          kube.Ref
	UID          types.UID
	Kind         launch.Kind
	LaunchID     string
	SubmissionID string
	SparkAppID   string
	Traceparent  string
}

// SubjectOf reads the workload's metadata.
func SubjectOf(workload *unstructured.Unstructured) Subject {
	labels, annotations := workload.GetLabels(), workload.GetAnnotations()
	return Subject{
		Ref:          kube.RefOf(workload.GetNamespace(), workload),
		UID:          workload.GetUID(),
		Kind:         launch.Kind(labels[launch.LabelKind]),
		LaunchID:     labels[launch.LabelID],
		SubmissionID: annotations[launch.AnnotationSubmissionID],
		SparkAppID:   labels[sparkAppLabel],
		Traceparent:  annotations[launch.AnnotationTraceparent],
	}
}

// EventID is the id of the event: the same for every repeat, by any instance, for ever. Together
// with the source it is what a receiver tells repeats by; all else may differ from one to the next.
func (s Subject) EventID(outcome string) string { return string(s.UID) + "." + outcome }

// traceparent is the header's form in W3C Trace Context, version 00 and later.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)

// NewEvent is the event that the workload has ended so. The time is that of the end, or now where nobody
// knows it.
func NewEvent(source string, s Subject, o Outcome, now time.Time) (event.Event, error) {
	e := event.New(event.CloudEventsVersionV1)
	e.SetID(s.EventID(o.Outcome))
	e.SetSource(source)
	e.SetType(api.CompletionEventType(string(s.Kind), o.Outcome))
	e.SetSubject(s.Ref.Namespace + "/" + s.Ref.Name)
	e.SetTime(now.UTC())
	if finished := Time(o.FinishedAt); finished != nil {
		e.SetTime(*finished)
	}
	e.SetExtension("launchid", s.LaunchID)
	e.SetExtension("outcome", o.Outcome)
	if traceparent.MatchString(s.Traceparent) {
		e.SetExtension("traceparent", s.Traceparent)
	}
	err := e.SetData(event.ApplicationJSON, api.Completion{
		Kind: string(s.Kind), Namespace: s.Ref.Namespace, Name: s.Ref.Name, UID: string(s.UID),
		SubmissionID: s.SubmissionID, SparkAppID: s.SparkAppID,
		Outcome: o.Outcome, Reason: o.Reason, ExitCode: o.ExitCode, Message: brief(o.Message),
		StartedAt: Time(o.StartedAt), FinishedAt: Time(o.FinishedAt),
		Result: o.Result,
	})
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return event.Event{}, fmt.Errorf("make the completion event of %s: %w", s.Ref, err)
	}
	return e, nil
}

// Time is the time in UTC, or nil where nobody knows it, or it has no form in RFC 3339, as JSON and CloudEvents have
// times: statuses and annotations are others' to write.
func Time(t time.Time) *time.Time {
	t = t.UTC()
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return nil
	}
	return &t
}
