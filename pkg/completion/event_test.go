package completion_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
)

const source = "/apis/flint.dev/test"

// valid tells what of the event's data is not as its schema says.
func valid(e event.Event) error {
	schema := &spec.Schema{}
	if err := json.Unmarshal(api.CompletionSchema, schema); err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(e.Data(), &data); err != nil {
		return err
	}
	return validate.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(data).AsError()
}

func workload(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	return o
}

const driverMetadata = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pi-driver","namespace":"jobs","uid":"u-1",
	"labels":{"flint.dev/kind":"spark","flint.dev/id":"0123456789abcdef0123456789abcdef","spark-app-selector":"spark-0011"},
	"annotations":{"flint.dev/submission-id":"sub-1","flint.dev/traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}}`

func TestNewEvent(t *testing.T) {
	t.Parallel()
	code := int32(0)
	now := at("12:00:00")
	cases := map[string]struct {
		workload string
		outcome  completion.Outcome
		want     map[string]any
		data     string
	}{
		"a driver that succeeded": {
			workload: driverMetadata,
			outcome:  completion.Outcome{Outcome: "succeeded", Reason: "Completed", ExitCode: &code, StartedAt: at("10:00:00"), FinishedAt: at("11:00:00")},
			want: map[string]any{
				"id": "u-1.succeeded", "type": "dev.flint.spark.succeeded.v1", "subject": "jobs/pi-driver", "time": at("11:00:00"),
				"launchid": "0123456789abcdef0123456789abcdef", "outcome": "succeeded", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			data: `{"kind":"spark","namespace":"jobs","name":"pi-driver","uid":"u-1","submission_id":"sub-1","spark_app_id":"spark-0011","outcome":"succeeded","reason":"Completed","exit_code":0,"started_at":"2026-03-01T10:00:00Z","finished_at":"2026-03-01T11:00:00Z"}`,
		},
		"a file job that failed": {
			workload: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"copy","namespace":"jobs","uid":"j-1","labels":{"flint.dev/kind":"file","flint.dev/id":"ab"},"annotations":{"flint.dev/submission-id":"sub-2"}}}`,
			outcome:  completion.Outcome{Outcome: "failed", Reason: "Error", Message: "no space", FinishedAt: at("11:00:00"), Result: json.RawMessage(`{"code":"no_space"}`)},
			want: map[string]any{
				"id": "j-1.failed", "type": "dev.flint.file.failed.v1", "subject": "jobs/copy", "time": at("11:00:00"), "launchid": "ab", "outcome": "failed",
			},
			data: `{"kind":"file","namespace":"jobs","name":"copy","uid":"j-1","submission_id":"sub-2","outcome":"failed","reason":"Error","message":"no space","finished_at":"2026-03-01T11:00:00Z","result":{"code":"no_space"}}`,
		},
		"a runner of which little is known": {
			workload: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"r","namespace":"jobs","uid":"r-1","labels":{"flint.dev/kind":"runner","flint.dev/id":"ab"},"annotations":{"flint.dev/submission-id":"sub-3","flint.dev/traceparent":"made up\r\nX: y"}}}`,
			outcome:  completion.Outcome{Outcome: "failed", Reason: "Unknown", Message: strings.Repeat("x", 5000)},
			want: map[string]any{
				"id": "r-1.failed", "type": "dev.flint.runner.failed.v1", "subject": "jobs/r", "time": now, "launchid": "ab", "outcome": "failed",
			},
			data: `{"kind":"runner","namespace":"jobs","name":"r","uid":"r-1","submission_id":"sub-3","outcome":"failed","reason":"Unknown","message":"` + strings.Repeat("x", 1021) + `..."}`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := completion.NewEvent(source, completion.SubjectOf(workload(t, c.workload)), c.outcome, now)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]any{"id": e.ID(), "type": e.Type(), "subject": e.Subject(), "time": e.Time().UTC()}
			for key, value := range e.Extensions() {
				got[key] = value
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if e.Source() != source || e.SpecVersion() != "1.0" || e.DataContentType() != "application/json" {
				t.Errorf("event %v", e)
			}
			if diff := cmp.Diff(c.data, string(e.Data())); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if err := valid(e); err != nil {
				t.Errorf("not as its schema says: %v", err)
			}
		})
	}
	t.Run("no source", func(t *testing.T) {
		t.Parallel()
		if _, err := completion.NewEvent("", completion.SubjectOf(workload(t, driverMetadata)), completion.Outcome{Outcome: "failed"}, time.Time{}); err == nil {
			t.Error("an event without a source")
		}
	})
}

// TestEventOfAnImpossibleTime: a time that has no form in an event is none, and keeps no event from being sent.
func TestEventOfAnImpossibleTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 8, 30, 0, 0, time.UTC)
	for _, year := range []int{-1, 0, 10_000, 292_277_026} {
		then := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		e, err := completion.NewEvent(source, completion.SubjectOf(workload(t, driverMetadata)), completion.Outcome{
			Outcome: api.Failed, Reason: api.ReasonError, StartedAt: then, FinishedAt: then,
		}, now)
		if err != nil || !e.Time().Equal(now) || valid(e) != nil {
			t.Errorf("year %d: %v, %v, %v", year, err, valid(e), e)
		}
	}
}

// TestSchema: the schema says what the struct has, and refuses what it must.
func TestSchema(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties map[string]struct {
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(api.CompletionSchema, &schema); err != nil {
		t.Fatal(err)
	}
	whole, err := json.Marshal(api.Completion{
		SparkAppID: "a", ExitCode: new(int32), Message: "m", StartedAt: &time.Time{}, FinishedAt: &time.Time{}, Result: json.RawMessage("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(whole, &fields); err != nil {
		t.Fatal(err)
	}
	var have, described []string
	for name := range fields {
		have = append(have, name)
	}
	for name := range schema.Properties {
		described = append(described, name)
	}
	slices.Sort(have)
	slices.Sort(described)
	if diff := cmp.Diff(have, described); diff != "" {
		t.Errorf("fields (-struct +schema):\n%s", diff)
	}
	want := []string{"Completed", "Error", "OOMKilled", "Evicted", "DeadlineExceeded", "ImagePull", "Unschedulable", "NodeLost", "Deleted", "Unknown"}
	if diff := cmp.Diff(want, schema.Properties["reason"].Enum); diff != "" {
		t.Errorf("reasons (-want +schema):\n%s", diff)
	}
	for name, change := range map[string]string{
		"another kind": `"kind":"pod"`, "another outcome": `"outcome":"ok"`, "another reason": `"reason":"Tired"`, "another field": `"env":"x"`,
		"no uid": `"uid":""`, "a long message": `"message":"` + strings.Repeat("x", 1025) + `"`, "a result that is no object": `"result":[1]`, "a time that is none": `"finished_at":"now"`,
	} {
		e := event.New()
		data := `{"kind":"spark","namespace":"n","name":"p","uid":"u","submission_id":"s","outcome":"failed","reason":"Error",` + change + `}`
		if err := e.SetData("application/json", json.RawMessage(data)); err != nil {
			t.Fatal(err)
		}
		if valid(e) == nil {
			t.Errorf("%s is valid", name)
		}
	}
}
