package launches

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
)

// workload is a launch's, as JSON, with more in its metadata and behind it.
func workload(t *testing.T, apiVersion, kind, metadata, more string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	text := `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"w","namespace":"jobs","uid":"u","creationTimestamp":"2026-11-30T08:30:00Z",
		"labels":{"flint.dev/id":"0123456789abcdef0123456789abcdef","flint.dev/kind":"file","flint.dev/completion":"pending","spark-app-selector":"spark-1"}` + metadata + `}` + more + `}`
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

// forged is an outcome as anybody may write it who may patch the workload.
func forged(record string) string {
	text, err := json.Marshal(`{"uid":"u",` + record + `}`)
	if err != nil {
		panic(err)
	}
	return `,"annotations":{"flint.dev/submission-id":"one","flint.dev/hash":"h","flint.dev/outcome":` + string(text) + `}`
}

const noted = `,"annotations":{"flint.dev/submission-id":"one","flint.dev/hash":"h"}`

func TestStates(t *testing.T) {
	container := func(state string) string {
		return noted + `}, "spec":{"restartPolicy":"OnFailure","containers":[{"name":"c"},{"name":"main"}]},"status":{"containerStatuses":[{"name":"c","state":{"running":{}}},{"name":"main",` + state + `}]`
	}
	cases := map[string]struct {
		apiVersion, kind, more string
		want                   api.State
		reason                 api.Reason
	}{
		"a held pod":                 {"v1", "Pod", noted + `},"spec":{"schedulingGates":[{"name":"flint.dev/support"}]`, api.StateHeld, ""},
		"another's gate":             {"v1", "Pod", noted + `},"spec":{"schedulingGates":[{"name":"queue"}]`, api.StatePending, ""},
		"a new pod":                  {"v1", "Pod", noted, api.StatePending, ""},
		"a sidecar runs":             {"v1", "Pod", container(`"state":{"waiting":{}}`), api.StatePending, ""},
		"it runs":                    {"v1", "Pod", container(`"state":{"running":{}}`), api.StateRunning, ""},
		"it will be started again":   {"v1", "Pod", container(`"state":{"waiting":{}},"lastState":{"terminated":{"exitCode":1}}`), api.StateRunning, ""},
		"it succeeded":               {"v1", "Pod", container(`"state":{"terminated":{"exitCode":0}}`), api.StateSucceeded, "Completed"},
		"the pod failed":             {"v1", "Pod", noted + `},"status":{"phase":"Failed","reason":"Evicted"`, api.StateFailed, "Evicted"},
		"deleted before a node":      {"v1", "Pod", `,"deletionTimestamp":"2026-11-30T08:31:00Z"` + noted, api.StateFailed, "Deleted"},
		"deleted, and runs":          {"v1", "Pod", `,"deletionTimestamp":"2026-11-30T08:31:00Z"` + noted + `},"spec":{"nodeName":"n","containers":[{"name":"main"}]},"status":{"containerStatuses":[{"name":"main","state":{"running":{}}}]`, api.StateRunning, ""},
		"given up":                   {"v1", "Pod", `,"annotations":{"flint.dev/submission-id":"one","flint.dev/outcome":"{\"uid\":\"u\",\"outcome\":\"failed\",\"reason\":\"NodeLost\"}"}`, api.StateFailed, "NodeLost"},
		"given up in another life":   {"v1", "Pod", `,"annotations":{"flint.dev/submission-id":"one","flint.dev/outcome":"{\"uid\":\"v\",\"outcome\":\"failed\",\"reason\":\"NodeLost\"}"}`, api.StatePending, ""},
		"given up by nobody we know": {"v1", "Pod", forged(`"outcome":"failed","reason":"Bored"`), api.StatePending, ""},
		"given up, and succeeded":    {"v1", "Pod", forged(`"outcome":"succeeded","reason":"Completed"`), api.StatePending, ""},
		"given up, and completed":    {"v1", "Pod", forged(`"outcome":"failed","reason":"Completed"`), api.StatePending, ""},
		"given up in the year 10000": {"v1", "Pod", forged(`"outcome":"failed","reason":"NodeLost","finished_at":"9999-12-31T23:59:59-23:59"`), api.StatePending, ""},
		"given up before Christ":     {"v1", "Pod", forged(`"outcome":"failed","reason":"NodeLost","started_at":"0000-01-01T00:00:00Z"`), api.StatePending, ""},
		"ended in the year 10000":    {"v1", "Pod", container(`"state":{"terminated":{"exitCode":0,"startedAt":"2026-11-30T08:30:00Z","finishedAt":"9999-12-31T23:59:59-23:59"}}`), api.StateSucceeded, "Completed"},
		"created in the year 10000":  {"v1", "Pod", `,"creationTimestamp":"9999-12-31T23:59:59-23:59"` + noted, api.StatePending, ""},
		"to be withdrawn, and lives": {"v1", "Pod", `,"annotations":{"flint.dev/submission-id":"one","flint.dev/outcome":"{\"uid\":\"u\",\"outcome\":\"failed\",\"reason\":\"Deleted\",\"withdrawal\":true}"}`, api.StatePending, ""},
		"a held job":                 {"batch/v1", "Job", `,"annotations":{"flint.dev/submission-id":"one","flint.dev/held":"true"}},"spec":{"suspend":true`, api.StateHeld, ""},
		"a suspended job":            {"batch/v1", "Job", noted + `},"spec":{"suspend":true`, api.StatePending, ""},
		"a job's pod waits":          {"batch/v1", "Job", noted + `},"status":{"active":1,"ready":0`, api.StatePending, ""},
		"a job's pod runs":           {"batch/v1", "Job", noted + `},"status":{"active":1,"ready":1`, api.StateRunning, ""},
		"a job's second pod waits":   {"batch/v1", "Job", noted + `},"status":{"active":1,"failed":1`, api.StateRunning, ""},
		"a job's pod is uncounted":   {"batch/v1", "Job", noted + `},"status":{"uncountedTerminatedPods":{"succeeded":["p"]}`, api.StateRunning, ""},
		"a job is about to end":      {"batch/v1", "Job", noted + `},"status":{"conditions":[{"type":"FailureTarget","status":"True"}]`, api.StateRunning, ""},
		"complete, its pod is gone":  {"batch/v1", "Job", noted + `},"status":{"conditions":[{"type":"Complete","status":"True"}]`, api.StateFailed, "Unknown"},
		"a job failed":               {"batch/v1", "Job", noted + `},"status":{"conditions":[{"type":"Failed","status":"True"}]`, api.StateFailed, "Error"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Of(workload(t, c.apiVersion, c.kind, c.more, ""), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != c.want || got.Reason != c.reason || (got.Outcome != "") != (c.reason != "") || got.SubmissionID != "one" {
				t.Errorf("launch %+v", got)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Errorf("it cannot be told: %v", err)
			}
		})
	}
}

// TestOfWhole pins all that is told of one that ended.
func TestOfWhole(t *testing.T) {
	job := workload(t, "batch/v1", "Job", noted, `,"status":{"conditions":[{"type":"Failed","status":"True","reason":"BackoffLimitExceeded"}]}`)
	var pods []corev1.Pod
	err := json.Unmarshal([]byte(`[{"metadata":{"name":"p","uid":"p-1","creationTimestamp":"2026-11-30T08:30:01Z","ownerReferences":[{"uid":"u","controller":true}]},"spec":{"containers":[{"name":"c"}]},
		"status":{"phase":"Failed","containerStatuses":[{"name":"c","state":{"terminated":{"exitCode":3,"message":"flint-file/1 p-1 result {\"op\":\"write\",\"code\":\"VOLUME_FULL\",\"message\":\"no room\"}","startedAt":"2026-11-30T08:30:02Z","finishedAt":"2026-11-30T08:30:03Z"}}}]}},
		{"metadata":{"name":"stranger","creationTimestamp":"2026-11-30T08:30:09Z"}}]`), &pods)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Of(job, pods)
	if err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Date(2026, 11, 30, 8, 30, second, 0, time.UTC) }
	code, started, finished := int32(3), at(2), at(3)
	want := api.Launch{
		ID: "0123456789abcdef0123456789abcdef", Namespace: "jobs", Kind: "file", SubmissionID: "one", Name: "w", UID: "u", State: api.StateFailed,
		CreatedAt: at(0), SparkAppID: "spark-1", Outcome: "failed", Reason: "Error", ExitCode: &code, Message: got.Message,
		StartedAt: &started, FinishedAt: &finished, Result: json.RawMessage(`{"op":"write","code":"VOLUME_FULL","message":"no room"}`),
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Message == "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if pod := newest(job, pods); pod == nil || pod.Name != "p" || pod.Labels["flint.dev/kind"] != "file" {
		t.Errorf("newest %v", pod)
	}
}

func TestOfUnreadable(t *testing.T) {
	for kind, version := range map[string]string{"Pod": "v1", "Job": "batch/v1"} {
		if l, err := Of(workload(t, version, kind, noted, `,"spec":7`), nil); err == nil {
			t.Errorf("%s: %+v", kind, l)
		}
	}
}

func TestPositions(t *testing.T) {
	query := Query{Namespace: "jobs", Kind: "file", Limit: 1}
	for _, p := range []position{
		{Resource: firstResource, Namespace: "jobs", Kind: "file", Continue: "t/1="},
		{Resource: lastResource, Namespace: "jobs", Kind: "file"},
		{Resource: lastResource, Namespace: "jobs", Kind: "file", Continue: "x"},
	} {
		query.Continue = p.token()
		if got, err := positionOf(query); err != nil || got != p {
			t.Errorf("%+v: %+v, %v", p, got, err)
		}
	}
	for name, text := range map[string]string{
		"no base64":         "%%%",
		"padded":            position{Resource: lastResource, Namespace: "jobs", Kind: "file"}.token() + "=",
		"no JSON":           "YWJj",
		"no position":       position{Namespace: "jobs", Kind: "file"}.token(),
		"no such list":      position{Resource: 2, Namespace: "jobs", Kind: "file"}.token(),
		"below":             position{Resource: -1, Namespace: "jobs", Kind: "file"}.token(),
		"another namespace": position{Resource: lastResource, Namespace: "other", Kind: "file"}.token(),
		"another kind":      position{Resource: lastResource, Namespace: "jobs"}.token(),
		"unknown field":     "eyJyIjoxLCJuIjoiam9icyIsImsiOiJmaWxlIiwieCI6MX0",
		"endless":           position{Resource: lastResource, Namespace: "jobs", Kind: "file", Continue: string(make([]byte, maxContinue))}.token(),
	} {
		query.Continue = text
		if p, err := positionOf(query); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
