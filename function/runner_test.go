package function_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/test/embedded"
)

// runnerGround is an instance on an embedded cluster with a parent, whose runners run for the time and end.
func runnerGround(t *testing.T, runFor time.Duration, change func(*config.Settings)) *instance {
	t.Helper()
	cluster, err := embedded.Start(embedded.Options{RunFor: runFor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if _, err := cluster.Add(&unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "app", "namespace": "default", "annotations": object{embedded.AnnotationRunFor: "1h"}},
		"spec": object{"containers": []any{object{"name": "app", "image": "app:1"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	return serve(t, setup{cluster: cluster, settings: func(s *config.Settings) {
		s.Runner = config.Runner{Waiters: 8, WaitLimit: 20 * time.Second, MaxPerParent: 3}
		if change != nil {
			change(s)
		}
	}})
}

func runnerBody(key, more string) string {
	return fmt.Sprintf(`{"submission_id":%q,"parent":{"namespace":"default","name":"app"},"wait":"running","secret_env":{"TOKEN":"geheim"}%s}`, key, more)
}

// Every answer about a runner is as it is described, and every status that the description has is seen, but for those
// of a pod that does not start, which a simulated node has none of.
func TestOpenAPIOfRunners(t *testing.T) {
	d := describe(t, api.OpenAPI)
	i := runnerGround(t, time.Hour, func(s *config.Settings) { s.MaxBodyBytes = 5000 })
	seen := map[int]bool{}
	post := func(path, body string, want int, code api.Code) answer {
		t.Helper()
		a := i.do(t, http.MethodPost, path, body, "Content-Type", "application/json")
		seen[a.status] = true
		if err := d.answered(t, http.MethodPost, path, a); err != nil {
			t.Errorf("%.80s: %v: %s", body, err, a.body)
		}
		if a.status != want || code != "" && a.refusal(t).ErrorCode != code {
			t.Errorf("%.80s: HTTP %d, want %d %s: %s", body, a.status, want, code, a.body)
		}
		return a
	}
	const path = api.RunnerPath
	requests := at(d.operation(http.MethodPost, path), "requestBody", "content")
	for _, body := range []string{runnerBody("one", ""), runnerBody("one", `,"labels":{"a":"b"},"template":{"spec":{}},"inherit":["env"],"boot_timeout_ms":1000`)} {
		if err := content(t, requests, "application/json", []byte(body)); err != nil {
			t.Error(err)
		}
		if err := conforms(t, api.RunnerSchema, []byte(body)); err != nil {
			t.Error(err)
		}
	}
	for _, mode := range []string{"client", "All"} {
		if a := post(path+"?dryRun="+mode, runnerBody("one", ""), http.StatusOK, ""); strings.Contains(a.body, "geheim") || strings.Contains(a.body, "Z2VoZWlt") {
			t.Errorf("a dry run shows the secret: %s", a.body)
		}
	}
	post(path, runnerBody("one", ""), http.StatusCreated, "")
	post(path, runnerBody("one", ""), http.StatusOK, "")
	post(path, strings.Replace(runnerBody("two", ""), "running", "none", 1), http.StatusAccepted, "")
	post(path, runnerBody("one", `,"env":{"A":"b"}`), http.StatusConflict, api.IdempotencyConflict)
	post(path, runnerBody("three", ""), http.StatusCreated, "")
	post(path, runnerBody("four", ""), http.StatusTooManyRequests, api.TooManyRunners)
	post(path, "{", http.StatusBadRequest, api.BadRequest)
	post(path, runnerBody("x", `,"flame_parent":"?"`), http.StatusBadRequest, api.InvalidFlameParent)
	post(path, runnerBody("x", `,"template":{"spec":{"hostNetwork":true}}`), http.StatusForbidden, api.PolicyDenied)
	post(path, strings.Replace(runnerBody("x", ""), `"default"`, `"kube-system"`, 1), http.StatusForbidden, api.Forbidden)
	post(path, strings.Replace(runnerBody("x", ""), `"app"`, `"nobody"`, 1), http.StatusNotFound, api.ParentNotFound)
	post(path, strings.Replace(runnerBody("x", ""), `"name":"app"`, `"name":"app","uid":"0"`, 1), http.StatusConflict, api.ParentUIDMismatch)
	post(path, strings.Replace(runnerBody("x", ""), `"name":"app"`, `"name":"app","container":"other"`, 1), http.StatusUnprocessableEntity, api.ContainerNotFound)
	post(path, runnerBody("x", `,"annotations":{"a":"`+strings.Repeat("x", 6000)+`"}`), http.StatusRequestEntityTooLarge, api.PayloadTooLarge)
	id := launch.ID("default", "gone")
	if a := i.do(t, http.MethodDelete, api.LaunchesPath+"/default/"+id+"?kind=runner", ""); a.status != http.StatusNotFound {
		t.Errorf("HTTP %d", a.status)
	}
	post(path, runnerBody("gone", ""), http.StatusGone, api.Gone)
	a := i.do(t, http.MethodPost, path, "x")
	if err := d.answered(t, http.MethodPost, path, a); err != nil || a.status != http.StatusUnsupportedMediaType {
		t.Errorf("HTTP %d: %v", a.status, err)
	}
	for _, status := range []int{200, 201, 202, 400, 403, 404, 409, 410, 413, 422, 429} {
		if !seen[status] {
			t.Errorf("no answer %d was seen", status)
		}
	}
	list := i.do(t, http.MethodGet, api.LaunchesPath+"?parent=app", "")
	var page api.LaunchList
	if err := json.Unmarshal([]byte(list.body), &page); err != nil || len(page.Items) != 3 {
		t.Errorf("HTTP %d: %s", list.status, list.body)
	}
	if err := d.answered(t, http.MethodGet, api.LaunchesPath, list); err != nil {
		t.Error(err)
	}
}

// A runner that fails has its exit code in the details, as they are described; so has one that ends well and was never ready.
func TestOpenAPIOfRunnersThatFail(t *testing.T) {
	d := describe(t, api.OpenAPI)
	i := runnerGround(t, time.Millisecond, nil)
	exits := func(key, wait, more string) api.RunnerDetails {
		t.Helper()
		body := func(wait string) string { return strings.Replace(runnerBody(key, more), "running", wait, 1) }
		created := i.do(t, http.MethodPost, api.RunnerPath, body("none"), "Content-Type", "application/json")
		var answer api.Runner
		if err := json.Unmarshal([]byte(created.body), &answer); err != nil || created.status != http.StatusAccepted {
			t.Fatalf("HTTP %d: %s", created.status, created.body)
		}
		within, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := i.api.Until(within, func() bool {
			phase, _, _ := unstructured.NestedString(i.api.Object(pods, "default", answer.Name).Object, "status", "phase")
			return phase == "Failed" || phase == "Succeeded"
		}); err != nil {
			t.Fatal(err)
		}
		a := i.do(t, http.MethodPost, api.RunnerPath, body(wait), "Content-Type", "application/json")
		if err := d.answered(t, http.MethodPost, api.RunnerPath, a); err != nil {
			t.Error(err)
		}
		if a.status != http.StatusBadGateway || a.refusal(t).ErrorCode != api.RunnerExited {
			t.Fatalf("HTTP %d: %s", a.status, a.body)
		}
		var refusal struct{ Details api.RunnerDetails }
		if err := json.Unmarshal([]byte(a.body), &refusal); err != nil {
			t.Fatal(err)
		}
		return refusal.Details
	}
	failed := exits("one", "running", `,"annotations":{"`+embedded.AnnotationExitCode+`":"3"}`)
	if failed.ExitCode == nil || *failed.ExitCode != 3 || failed.Deleted || failed.UID == "" {
		t.Errorf("%+v", failed)
	}
	never := exits("two", "ready", "")
	if never.ExitCode == nil || *never.ExitCode != 0 {
		t.Errorf("%+v", never)
	}
}

// An event that starts a runner is answered with one, if both sides want it.
func TestRunnerReply(t *testing.T) {
	i := runnerGround(t, time.Hour, func(s *config.Settings) { s.EventReply = true })
	body := `{"parent":{"namespace":"default","name":"app"}}`
	a := i.do(t, http.MethodPost, "/", body, binaryEvent("1", api.RunnerEventType, "Prefer", "reply")...)
	if err := conforms(t, api.AcceptedSchema, []byte(a.body)); err != nil || a.status != http.StatusOK || a.header.Get("Ce-Type") != api.AcceptedEventType {
		t.Errorf("HTTP %d, %v: %s", a.status, err, a.body)
	}
	var answer api.Runner
	if err := json.Unmarshal([]byte(a.body), &answer); err != nil || answer.ID != launch.ID("default", answer.SubmissionID) {
		t.Errorf("%+v, %v", answer, err)
	}
	again := i.do(t, http.MethodPost, "/", body, binaryEvent("1", api.RunnerEventType)...)
	if again.status != http.StatusAccepted || again.body != "" {
		t.Errorf("HTTP %d: %s", again.status, again.body)
	}
	if pod := i.api.Object(pods, "default", answer.Name); pod == nil || pod.GetLabels()[runner.LabelParentUID] == "" {
		t.Error("no runner")
	}
}
