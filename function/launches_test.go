package function_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

// job launches a file job by the way of all launches.
func (i *instance) job(t *testing.T, submissionID string, support ...launch.Support) *unstructured.Unstructured {
	t.Helper()
	client, err := kube.NewClient(i.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	plan, err := launch.NewPlan(launch.Plan{
		Kind: launch.File, Namespace: "default", SubmissionID: submissionID, Hash: "1", Support: support,
		Workload: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "job-" + submissionID},
			"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
				"restartPolicy": "Never", "containers": []any{map[string]any{"name": "agent", "image": "agent"}},
			}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	result, err := (&launch.Applier{Client: client}).Apply(ctx, plan)
	if err != nil {
		t.Fatal(err)
	}
	return result.Workload
}

func launchPath(submissionID string, more ...string) string {
	return api.LaunchesPath + "/default/" + launch.ID("default", submissionID) + strings.Join(more, "")
}

func decode[T any](t *testing.T, a answer, status int) (body T) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil || a.status != status {
		t.Fatalf("HTTP %d, want %d: %v\n%s", a.status, status, err, a.body)
	}
	return body
}

func (i *instance) launch(t *testing.T, submissionID string) api.Launch {
	t.Helper()
	return decode[api.Launch](t, i.do(t, http.MethodGet, launchPath(submissionID), ""), http.StatusOK)
}

// until waits until the launch is in the state.
func (i *instance) until(t *testing.T, submissionID string, state api.State) api.Launch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var l api.Launch
	if err := i.api.Until(ctx, func() bool { l = i.launch(t, submissionID); return l.State == state }); err != nil {
		t.Fatalf("%v: %+v", err, l)
	}
	return l
}

func TestLaunchPages(t *testing.T) {
	i := serve(t, setup{settings: func(s *config.Settings) { s.Namespaces = []string{"default", "other"} }})
	for _, id := range []string{"one", "two", "three"} {
		i.submit(t, submission(id)).accepted(t)
	}
	i.job(t, "four")
	// What is no launch: a pod of somebody else, an object with a launch's labels, a launch without bookkeeping.
	for name, labels := range map[string]map[string]string{
		"stranger": nil,
		"child":    {launch.LabelID: launch.ID("default", "four"), launch.LabelKind: "file"},
		"copy":     {launch.LabelID: launch.ID("default", "one"), launch.LabelKind: "spark", launch.LabelCompletion: "pending"},
	} {
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "default"}}}
		pod.SetLabels(labels)
		if _, err := i.api.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	walk := func(t *testing.T, query string) (ids []string, pages int) {
		t.Helper()
		token := ""
		for {
			list := decode[api.LaunchList](t, i.do(t, http.MethodGet, api.LaunchesPath+"?namespace=default"+query+token, ""), http.StatusOK)
			if list.Items == nil {
				t.Error("items is null")
			}
			for _, l := range list.Items {
				ids = append(ids, l.SubmissionID)
			}
			if pages++; list.Continue == "" || pages > 20 {
				slices.Sort(ids)
				return ids, pages
			}
			token = "&continue=" + list.Continue
		}
	}
	for query, want := range map[string]struct {
		ids   string
		pages int
	}{
		"":                       {"[four one three two]", 1},
		"&limit=1":               {"[four one three two]", 5}, // one of the pods has no bookkeeping
		"&limit=2":               {"[four one three two]", 3},
		"&limit=4":               {"[four one three two]", 2}, // the pods fill it, and the job has the next
		"&limit=5":               {"[four one three two]", 1},
		"&limit=1&kind=spark":    {"[one three two]", 5},
		"&kind=file":             {"[four]", 1},
		"&kind=runner":           {"[]", 1},
		"&limit=1&state=running": {"[]", 5},
		"&state=pending":         {"[four one three two]", 1},
		"&state=held":            {"[]", 1},
	} {
		t.Run(query, func(t *testing.T) {
			if ids, pages := walk(t, query); fmt.Sprint(ids) != want.ids || pages != want.pages {
				t.Errorf("%v on %d pages, want %s on %d", ids, pages, want.ids, want.pages)
			}
		})
	}

	first := decode[api.LaunchList](t, i.do(t, http.MethodGet, api.LaunchesPath+"?namespace=default&limit=1", ""), http.StatusOK)
	foreign := base64.RawURLEncoding.EncodeToString([]byte(`{"r":0,"n":"default","c":"%%%"}`))
	for name, tc := range map[string]struct {
		query, field, message string
		status                int
	}{
		"no namespace":                {"", "namespace", "required", 400},
		"an empty namespace":          {"?namespace=", "namespace", "one value", 400},
		"two namespaces":              {"?namespace=default&namespace=other", "namespace", "once", 400},
		"another namespace":           {"?namespace=kube-system", "", "kube-system", 403},
		"a path for a namespace":      {"?namespace=..%2Fkube-system", "", "kube-system", 403},
		"an unknown kind":             {"?namespace=default&kind=Pod", "kind", "runner", 400},
		"a selector for a kind":       {"?namespace=default&kind=spark,a%3Db", "kind", "runner", 400},
		"an unknown state":            {"?namespace=default&state=done", "state", "succeeded", 400},
		"limit 0":                     {"?namespace=default&limit=0", "limit", "1 to 100", 400},
		"limit 101":                   {"?namespace=default&limit=101", "limit", "1 to 100", 400},
		"a limit that is none":        {"?namespace=default&limit=x", "limit", "1 to 100", 400},
		"an unknown parameter":        {"?namespace=default&labelSelector=a", "query", `"labelSelector"`, 400},
		"a broken query":              {"?namespace=default;x=1", "query", "malformed", 400},
		"a made-up continue":          {"?namespace=default&continue=abc", "continue", "page before", 400},
		"another's continue":          {"?namespace=other&continue=" + first.Continue, "continue", "another namespace", 400},
		"continue of another kind":    {"?namespace=default&kind=file&continue=" + first.Continue, "continue", "kind", 400},
		"the API server's own, wrong": {"?namespace=default&continue=" + foreign, "continue", "page before", 400},
	} {
		t.Run(name, func(t *testing.T) {
			a := i.do(t, http.MethodGet, api.LaunchesPath+tc.query, "")
			if body := a.refusal(t); a.status != tc.status || body.Field != tc.field || !strings.Contains(body.Message, tc.message) {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
		})
	}
}

// Where there is only one namespace, it need not be said.
func TestLaunchesOfTheOnlyNamespace(t *testing.T) {
	i := serve(t, setup{})
	i.submit(t, submission("one")).accepted(t)
	lines := len(i.log.all())
	if list := decode[api.LaunchList](t, i.do(t, http.MethodGet, api.LaunchesPath, ""), http.StatusOK); len(list.Items) != 1 || list.Continue != "" {
		t.Errorf("list %+v", list)
	}
	if got := i.log.all(); len(got) != lines {
		t.Errorf("a GET is logged: %s", got[lines:])
	}
	i = serve(t, setup{settings: func(s *config.Settings) { s.Namespaces = []string{"*"} }})
	if a := i.do(t, http.MethodGet, api.LaunchesPath, ""); a.status != http.StatusBadRequest || a.refusal(t).Field != "namespace" {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	if a := i.do(t, http.MethodGet, api.LaunchesPath+"?namespace=a%2Fb", ""); a.status != http.StatusBadRequest {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

func TestLaunchPaths(t *testing.T) {
	i := serve(t, setup{settings: func(s *config.Settings) { s.Namespaces = []string{"default", "a/b", ".."} }})
	id := launch.ID("default", "one")
	i.submit(t, submission("one")).accepted(t)
	i.api.ResetRequests()
	long := strings.Repeat("a", 10_000)
	for name, tc := range map[string]struct {
		method, path string
		status       int
		code         api.Code
	}{
		"another namespace":       {"GET", "/other/" + id, 403, api.Forbidden},
		"another, to delete":      {"DELETE", "/other/" + id, 403, api.Forbidden},
		"another's log":           {"GET", "/other/" + id + "/log", 403, api.Forbidden},
		"a namespace of two":      {"GET", "/a%2Fb/" + id, 404, api.NotFound},
		"a namespace above":       {"DELETE", "/%2E%2E%2F/" + id, 403, api.Forbidden},
		"an id of two":            {"GET", "/default/" + id + "%2Flog", 404, api.NotFound},
		"an id with a selector":   {"DELETE", "/default/" + id + ",a", 404, api.NotFound},
		"no hexadecimal id":       {"GET", "/default/" + strings.Repeat("g", 32), 404, api.NotFound},
		"an id in capitals":       {"GET", "/default/" + strings.ToUpper(id), 404, api.NotFound},
		"a submission id":         {"GET", "/default/one", 404, api.NotFound},
		"a long id":               {"DELETE", "/default/" + long, 404, api.NotFound},
		"a long namespace":        {"GET", "/" + long + "/" + id, 403, api.Forbidden},
		"no namespace":            {"GET", "/%20/" + id, 403, api.Forbidden},
		"a namespace alone":       {"GET", "/default", 404, api.NotFound},
		"nothing":                 {"GET", "/", 404, api.NotFound},
		"a slash behind":          {"GET", "/default/" + id + "/", 404, api.NotFound},
		"below the log":           {"GET", "/default/" + id + "/log/x", 404, api.NotFound},
		"no log":                  {"GET", "/default/" + id + "/logs", 404, api.NotFound},
		"POST to all":             {"POST", "", 405, api.MethodNotAllowed},
		"DELETE of all":           {"DELETE", "", 405, api.MethodNotAllowed},
		"PUT":                     {"PUT", "/default/" + id, 405, api.MethodNotAllowed},
		"DELETE of the log":       {"DELETE", "/default/" + id + "/log", 405, api.MethodNotAllowed},
		"a parameter of the list": {"GET", "/default/" + id + "?limit=1", 400, api.BadRequest},
		"a parameter, to delete":  {"DELETE", "/default/" + id + "?gracePeriodSeconds=0", 400, api.BadRequest},
		"a broken query":          {"DELETE", "/default/" + id + "?a;b", 400, api.BadRequest},
		"follow":                  {"GET", "/default/" + id + "/log?follow=true", 400, api.BadRequest},
		"no lines":                {"GET", "/default/" + id + "/log?tailLines=0", 400, api.BadRequest},
		"too many bytes":          {"GET", "/default/" + id + "/log?limitBytes=10485761", 400, api.BadRequest},
		"neither API nor here":    {"GET", "x", 404, api.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			a := i.do(t, tc.method, api.LaunchesPath+tc.path, "")
			if body := a.refusal(t); a.status != tc.status || body.ErrorCode != tc.code || len(a.body) > 6000 {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
		})
	}
	if got := i.api.Requests(); len(got) > 0 {
		t.Errorf("the API server was asked: %v", got)
	}
	for path, allow := range map[string]string{"": "GET, OPTIONS", "/default/" + id: "GET, DELETE, OPTIONS", "/default/" + id + "/log": "GET, OPTIONS"} {
		for method, status := range map[string]int{"OPTIONS": 200, "PATCH": 405} {
			if a := i.do(t, method, api.LaunchesPath+path, ""); a.status != status || a.header.Get("Allow") != allow {
				t.Errorf("%s %s: HTTP %d, Allow %q", method, path, a.status, a.header.Get("Allow"))
			}
		}
	}
	if a := i.do(t, http.MethodGet, launchPath("none"), ""); a.status != http.StatusNotFound {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// runs serves on a cluster whose pods write and run until they are told to end.
func runs(t *testing.T, text string, s setup) (i *instance, end chan embedded.Exit) {
	t.Helper()
	end = make(chan embedded.Exit)
	cluster, err := embedded.Start(embedded.Options{Run: func(ctx context.Context, _ *corev1.Pod, log io.Writer) (embedded.Exit, bool) {
		_, _ = io.WriteString(log, text)
		select {
		case exit := <-end:
			return exit, true
		case <-ctx.Done():
			return embedded.Exit{Code: 143}, true
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s.cluster = cluster
	return serve(t, s), end
}

func TestLaunchFromStartToEnd(t *testing.T) {
	i, end := runs(t, "one\ntwo\nthree\n", setup{})
	created := i.submit(t, submission("one")).accepted(t)
	got := i.until(t, "one", api.StateRunning)
	if got.ID != launch.ID("default", "one") || got.Namespace != "default" || got.Kind != "spark" || got.SubmissionID != "one" || got.Name != created.DriverPodName ||
		got.UID != created.DriverPodUID || got.SparkAppID != created.SparkAppID || got.CreatedAt.Format(time.RFC3339) != created.SubmittedAt || got.Outcome != "" || got.FinishedAt != nil {
		t.Errorf("launch %+v, created %+v", got, created)
	}
	for query, want := range map[string]string{"": "one\ntwo\nthree\n", "?tailLines=1": "three\n", "?tailLines=2&limitBytes=5": "two\nt", "?limitBytes=1": "o", "?kind=spark": "one\ntwo\nthree\n"} {
		if a := i.do(t, http.MethodGet, launchPath("one", "/log", query), ""); a.status != http.StatusOK || a.body != want || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("log%s: HTTP %d, %q, %v", query, a.status, a.body, a.header)
		}
	}
	last := i.api.Requests()
	wants := "container=spark-kubernetes-driver&limitBytes=1048576&tailLines=1000"
	if !slices.ContainsFunc(last, func(r embedded.Request) bool { return r.Query == wants }) {
		t.Errorf("no log was asked for with %s", wants)
	}
	end <- embedded.Exit{Code: 3, Message: "no more"}
	got = i.until(t, "one", api.StateFailed)
	if got.Outcome != api.Failed || got.Reason != api.ReasonError || got.ExitCode == nil || *got.ExitCode != 3 || got.Message != "no more" || got.StartedAt == nil || got.FinishedAt == nil {
		t.Errorf("launch %+v", got)
	}
	if a := i.do(t, http.MethodGet, launchPath("one", "/log"), ""); a.body != "one\ntwo\nthree\n" {
		t.Errorf("log at the end: HTTP %d, %q", a.status, a.body)
	}
}

func TestLaunchOfAJob(t *testing.T) {
	i, end := runs(t, "hello\n", setup{})
	i.job(t, "one")
	i.until(t, "one", api.StateRunning)
	if a := i.do(t, http.MethodGet, launchPath("one", "/log"), ""); a.status != http.StatusOK || a.body != "hello\n" {
		t.Errorf("log: HTTP %d, %q", a.status, a.body)
	}
	uid := string(i.api.Objects(pods)[0].GetUID())
	end <- embedded.Exit{Message: protocol.Prefix + " " + uid + ` result {"op":"stat","files": 2}`}
	got := i.until(t, "one", api.StateSucceeded)
	if got.Kind != "file" || got.Name != "job-one" || got.Reason != api.ReasonCompleted || got.ExitCode == nil || *got.ExitCode != 0 || string(got.Result) != `{"op":"stat","files":2}` {
		t.Errorf("launch %+v", got)
	}
	list := decode[api.LaunchList](t, i.do(t, http.MethodGet, api.LaunchesPath+"?state=succeeded", ""), http.StatusOK)
	if len(list.Items) != 1 || list.Items[0].ExitCode == nil || list.Items[0].FinishedAt == nil {
		t.Errorf("list %+v", list)
	}
}

// A log that is not there yet is worth another try; one that will never be is not.
func TestLogsThatAreNot(t *testing.T) {
	i := serve(t, setup{})
	i.submit(t, submission("one")).accepted(t)
	i.job(t, "two")
	for _, id := range []string{"one", "two"} {
		a := i.do(t, http.MethodGet, launchPath(id, "/log"), "")
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "2" || !strings.Contains(a.refusal(t).Message, "pending") {
			t.Errorf("HTTP %d: %s", a.status, a.body)
		}
	}
	pod := i.api.Objects(pods)[0]
	pod.SetName("evicted")
	pod.SetUID("")
	pod.SetResourceVersion("")
	labels := pod.GetLabels()
	labels[launch.LabelID] = launch.ID("default", "evicted")
	pod.SetLabels(labels)
	if _, err := i.api.Add(pod); err != nil {
		t.Fatal(err)
	}
	i.setStatus(t, "evicted", `{"phase":"Failed","reason":"Evicted"}`)
	if a := i.do(t, http.MethodGet, launchPath("evicted", "/log"), ""); a.status != http.StatusNotFound || !strings.Contains(a.refusal(t).Message, "Evicted") {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// setStatus writes a pod's status, as a kubelet does.
func (i *instance) setStatus(t *testing.T, name, status string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, i.api.URL()+"/api/v1/namespaces/default/pods/"+name+"/status", strings.NewReader(`{"status":`+status+`}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v: HTTP %d: %s", err, response.StatusCode, text)
	}
}

// A log that breaks off is not a whole one.
func TestLogThatBreaksOff(t *testing.T) {
	var begun atomic.Bool
	i, _ := runs(t, "", setup{transport: func(next http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/log") {
				text := ""
				if begun.Load() {
					text = "begun"
				}
				_ = response.Body.Close()
				response.Body = io.NopCloser(io.MultiReader(strings.NewReader(text), brokenOff{}))
			}
			return response, err
		})
	}})
	i.submit(t, submission("one")).accepted(t)
	i.until(t, "one", api.StateRunning)
	if a := i.do(t, http.MethodGet, launchPath("one", "/log"), ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	begun.Store(true)
	response, err := http.Get(i.url + launchPath("one", "/log"))
	if err == nil {
		var text []byte
		text, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil {
			t.Errorf("HTTP %d, and whole: %q", response.StatusCode, text)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, errors.New("broken off") }

// told checks that the event says that the launch was deleted.
func told(t *testing.T, received chan cloudevents.Event, l api.Launch) api.Completion {
	t.Helper()
	e := next(t, received)
	var data api.Completion
	if err := json.Unmarshal(e.Data(), &data); err != nil {
		t.Fatal(err)
	}
	if e.ID() != l.UID+".failed" || e.Type() != "dev.flint."+l.Kind+".failed.v1" || data.Reason != api.ReasonDeleted || data.SubmissionID != l.SubmissionID {
		t.Errorf("event %v", e)
	}
	return data
}

// What goes at once is told at once, and only once.
func TestCancelOfWhatGoesAtOnce(t *testing.T) {
	url, received := sink(t)
	i := serve(t, setup{settings: func(s *config.Settings) { s.Sink = url }})
	i.submit(t, submission("one")).accepted(t)
	i.job(t, "two")
	for _, id := range []string{"one", "two"} {
		before := i.launch(t, id)
		lines := len(i.log.all())
		got := decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath(id), ""), http.StatusAccepted)
		if got.UID != before.UID || !got.Deleting || got.State != api.StateFailed || got.Reason != api.ReasonDeleted {
			t.Errorf("cancelled %+v", got)
		}
		told(t, received, before)
		cancels := 0
		for _, line := range i.log.all()[lines:] {
			if strings.Contains(line, `"msg":"cancel"`) && strings.Contains(line, before.UID) {
				cancels++
			}
		}
		if cancels != 1 {
			t.Errorf("%d lines of the cancel: %s", cancels, i.log.all()[lines:])
		}
		for _, method := range []string{http.MethodDelete, http.MethodGet} {
			if a := i.do(t, method, launchPath(id), ""); a.status != http.StatusNotFound || a.refusal(t).ErrorCode != api.NotFound {
				t.Errorf("%s again: HTTP %d: %s", method, a.status, a.body)
			}
		}
	}
	if len(received) > 0 {
		t.Errorf("%d more events", len(received))
	}
}

// What runs has time to end in; its cancel may be repeated meanwhile, and it is told as deleted when it has ended.
func TestCancelOfWhatRuns(t *testing.T) {
	url, received := sink(t)
	i := serve(t, setup{settings: func(s *config.Settings) { s.Sink = url }})
	created := i.submit(t, submission("one")).accepted(t)
	i.place(t, created.DriverPodName)
	i.setStatus(t, created.DriverPodName, `{"phase":"Running","containerStatuses":[{"name":"spark-kubernetes-driver","state":{"running":{"startedAt":"2026-11-30T08:30:00Z"}}}]}`)
	before := i.launch(t, "one")
	if before.State != api.StateRunning {
		t.Fatalf("launch %+v", before)
	}
	i.api.ResetRequests()
	for range 2 {
		got := decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath("one"), ""), http.StatusAccepted)
		if got.UID != before.UID || !got.Deleting || got.State != api.StateRunning {
			t.Errorf("cancelled %+v", got)
		}
	}
	deletes := slices.DeleteFunc(i.api.Requests(), func(r embedded.Request) bool { return r.Method != http.MethodDelete })
	if len(deletes) != 1 || len(received) > 0 {
		t.Errorf("%d deletes, %d events", len(deletes), len(received))
	}
	i.setStatus(t, created.DriverPodName, `{"phase":"Failed","containerStatuses":[{"name":"spark-kubernetes-driver","state":{"terminated":{"exitCode":143,"reason":"Error","finishedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}}}]}`)
	i.event(t, "dev.knative.sources.ping", `{}`)
	if data := told(t, received, before); data.ExitCode == nil || *data.ExitCode != 143 {
		t.Errorf("completion %+v", data)
	}
}

// place puts a pod on a node past the API's scheduler.
func (i *instance) place(t *testing.T, name string) {
	t.Helper()
	client, err := kube.NewClient(i.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ref := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name}
	if _, err := client.Patch(ctx, ref, "application/merge-patch+json", []byte(`{"spec":{"nodeName":"n"}}`)); err != nil {
		t.Fatal(err)
	}
}

// The poller, while it runs, remembers what is being deleted, and tells of it when it is gone.
func TestCancelIsRemembered(t *testing.T) {
	url, received := sink(t)
	i, _ := runs(t, "", setup{settings: func(s *config.Settings) { s.Sink, s.PollInterval = url, 20*time.Millisecond }})
	i.submit(t, submission("one")).accepted(t)
	before := i.until(t, "one", api.StateRunning)
	decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath("one"), ""), http.StatusAccepted)
	told(t, received, before)
}

// An end that was told is not told again as a deletion, and one that was not is told as what it was.
func TestCancelOfWhatHasEnded(t *testing.T) {
	for name, toldBefore := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			url, received := sink(t)
			i, end := runs(t, "", setup{settings: func(s *config.Settings) { s.Sink = url }})
			created := i.submit(t, submission("one")).accepted(t)
			end <- embedded.Exit{}
			i.until(t, "one", api.StateSucceeded)
			if toldBefore {
				i.event(t, "dev.knative.sources.ping", `{}`)
				ended(t, next(t, received), created)
			}
			got := decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath("one"), ""), http.StatusAccepted)
			if got.State != api.StateSucceeded || !got.Deleting {
				t.Errorf("cancelled %+v", got)
			}
			if !toldBefore {
				ended(t, next(t, received), created)
			}
			if len(received) > 0 {
				t.Errorf("%d more events", len(received))
			}
		})
	}
}

// A workload that changes amid its cancel is read again; an answer that is lost is found out.
func TestCancelInTrouble(t *testing.T) {
	for name, trouble := range map[string]func(t *testing.T, i *instance, next http.RoundTripper, r *http.Request, n int64) (*http.Response, error){
		"changed once": func(t *testing.T, i *instance, next http.RoundTripper, r *http.Request, n int64) (*http.Response, error) {
			if n == 1 {
				i.setStatus(t, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], `{"message":"changed"}`)
			}
			return next.RoundTrip(r)
		},
		"answer lost": func(_ *testing.T, _ *instance, next http.RoundTripper, r *http.Request, _ int64) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil {
				_ = response.Body.Close()
			}
			return nil, errors.New("connection lost")
		},
		"request lost": func(_ *testing.T, _ *instance, next http.RoundTripper, r *http.Request, n int64) (*http.Response, error) {
			if n == 1 {
				return nil, errors.New("connection lost")
			}
			return next.RoundTrip(r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, received := sink(t)
			var i *instance
			var n atomic.Int64
			i = serve(t, setup{
				settings: func(s *config.Settings) { s.Sink = url },
				transport: func(next http.RoundTripper) http.RoundTripper {
					return transport(func(r *http.Request) (*http.Response, error) {
						if r.Method == http.MethodDelete {
							return trouble(t, i, next, r, n.Add(1))
						}
						return next.RoundTrip(r)
					})
				},
			})
			i.submit(t, submission("one")).accepted(t)
			before := i.launch(t, "one")
			decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath("one"), ""), http.StatusAccepted)
			told(t, received, before)
			if len(received) > 0 || i.api.Object(pods, "default", before.Name) != nil {
				t.Errorf("%d more events", len(received))
			}
		})
	}
	for name, tc := range map[string]struct {
		delete func(w http.ResponseWriter)
		status int
		code   api.Code
	}{
		"refused":         {func(w http.ResponseWriter) { refuse(w, 403, "Forbidden") }, 403, api.Forbidden},
		"gone meanwhile":  {func(w http.ResponseWriter) { refuse(w, 404, "NotFound") }, 404, api.NotFound},
		"changes forever": {func(w http.ResponseWriter) { refuse(w, 409, "Conflict") }, 503, api.SubmitterOverloaded},
		"overloaded":      {func(w http.ResponseWriter) { refuse(w, 429, "TooManyRequests") }, 503, api.SubmitterOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			i := serve(t, setup{api: func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodDelete {
						tc.delete(w)
						return
					}
					next.ServeHTTP(w, r)
				})
			}})
			i.submit(t, submission("one")).accepted(t)
			lines := len(i.log.all())
			if a := i.do(t, http.MethodDelete, launchPath("one"), ""); a.status != tc.status || a.refusal(t).ErrorCode != tc.code {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
			if got := i.log.all()[lines:]; len(got) != 1 {
				t.Errorf("%d lines: %s", len(got), got)
			}
		})
	}
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":%q,"code":%d,"message":"no"}`, reason, code)
}

// The id of two kinds' launches is the same when their key is: a cancel never takes the wrong one.
func TestLaunchesOfOneID(t *testing.T) {
	i := serve(t, setup{})
	i.submit(t, submission("one")).accepted(t)
	i.job(t, "one")
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if a := i.do(t, method, launchPath("one"), ""); a.status != http.StatusBadRequest || a.refusal(t).Field != "kind" {
			t.Errorf("%s: HTTP %d: %s", method, a.status, a.body)
		}
	}
	for _, kind := range []string{"spark", "file"} {
		if got := decode[api.Launch](t, i.do(t, http.MethodGet, launchPath("one", "?kind=", kind), ""), http.StatusOK); got.Kind != kind {
			t.Errorf("launch %+v", got)
		}
	}
	for range 2 {
		i.do(t, http.MethodDelete, launchPath("one", "?kind=spark"), "")
	}
	if got := i.launch(t, "one"); got.Kind != "file" {
		t.Errorf("launch %+v", got)
	}
}

func TestHeldLaunch(t *testing.T) {
	var refusing atomic.Bool
	refusing.Store(true)
	i := serve(t, setup{api: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPatch && refusing.Load() {
				refuse(w, 503, "ServiceUnavailable")
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	i.submit(t, submission("one"))
	if got := i.launch(t, "one"); got.State != api.StateHeld {
		t.Errorf("launch %+v", got)
	}
	if list := decode[api.LaunchList](t, i.do(t, http.MethodGet, api.LaunchesPath+"?state=held", ""), http.StatusOK); len(list.Items) != 1 {
		t.Errorf("list %+v", list)
	}
	if a := i.do(t, http.MethodGet, launchPath("one", "/log"), ""); a.status != http.StatusServiceUnavailable || !strings.Contains(a.refusal(t).Message, "held") {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// The API server's trouble is the caller's to wait out; an instance that stops or starts takes nothing.
func TestLaunchesInTrouble(t *testing.T) {
	var code atomic.Int64
	i := serve(t, setup{api: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, int(code.Load()), map[int64]string{403: "Forbidden", 410: "Expired", 500: "InternalError", 401: "Unauthorized"}[code.Load()])
		})
	}})
	token := base64.RawURLEncoding.EncodeToString([]byte(`{"r":1,"n":"default","c":"old"}`))
	all := []string{api.LaunchesPath, launchPath("one"), launchPath("one", "/log")}
	for refused, status := range map[int64]int{403: 403, 500: 503, 401: 500} {
		code.Store(refused)
		for _, path := range all {
			lines := len(i.log.all())
			a := i.do(t, http.MethodGet, path, "")
			if a.refusal(t); a.status != status || (status == 503) != (a.header.Get("Retry-After") != "") {
				t.Errorf("%s: HTTP %d: %s", path, a.status, a.body)
			}
			if got := i.log.all()[lines:]; (len(got) == 1) != (status == 500) {
				t.Errorf("%s: lines %s", path, got)
			}
		}
	}
	code.Store(410)
	if a := i.do(t, http.MethodGet, api.LaunchesPath+"?continue="+token, ""); a.status != http.StatusBadRequest || a.refusal(t).Field != "continue" || !strings.Contains(a.body, "anew") {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	if err := i.f.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	starting := serve(t, setup{stopped: true})
	for _, instance := range []*instance{i, starting} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			if a := instance.do(t, method, launchPath("one"), ""); a.status != http.StatusServiceUnavailable {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
		}
	}
}

// A read ends with the time of a launch, whatever the API server does.
func TestLaunchesDeadline(t *testing.T) {
	i := serve(t, setup{
		settings: func(s *config.Settings) { s.LaunchTimeout = 50 * time.Millisecond },
		api: func(http.Handler) http.Handler {
			return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		},
	})
	for _, path := range []string{api.LaunchesPath, launchPath("one")} {
		if a := i.do(t, http.MethodGet, path, ""); a.status != http.StatusServiceUnavailable {
			t.Errorf("HTTP %d: %s", a.status, a.body)
		}
	}
	if a := i.do(t, http.MethodDelete, launchPath("one"), ""); a.status != http.StatusServiceUnavailable {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

// A sink that does not answer does not hold a cancel for ever.
func TestCancelWithSlowSink(t *testing.T) {
	release := make(chan struct{})
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	defer close(release)
	i := serve(t, setup{settings: func(s *config.Settings) { s.Sink, s.LaunchTimeout = server.URL, time.Second }})
	i.submit(t, submission("one")).accepted(t)
	decode[api.Launch](t, i.do(t, http.MethodDelete, launchPath("one"), ""), http.StatusAccepted)
	if asked.Load() == 0 {
		t.Error("the sink was not asked")
	}
}

// Reads are bounded by themselves: too many are refused, and launches go on.
func TestReadsAtOnce(t *testing.T) {
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	i := serve(t, setup{api: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				arrived <- struct{}{}
				<-release
			}
			next.ServeHTTP(w, r)
		})
	}})
	const most = 32
	answers := make(chan answer, most)
	for range most {
		go func() { answers <- i.do(t, http.MethodGet, api.LaunchesPath, "") }()
	}
	for range most {
		<-arrived
	}
	for _, path := range []string{api.LaunchesPath, launchPath("one"), launchPath("one", "/log")} {
		a := i.do(t, http.MethodGet, path, "")
		if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: HTTP %d: %s", path, a.status, a.body)
		}
	}
	i.submit(t, submission("one")).accepted(t)
	close(release)
	for range most {
		if a := <-answers; a.status != http.StatusOK {
			t.Errorf("HTTP %d: %s", a.status, a.body)
		}
	}
	if a := i.do(t, http.MethodGet, launchPath("one"), ""); a.status != http.StatusOK {
		t.Errorf("afterwards: HTTP %d: %s", a.status, a.body)
	}
}

// However much there is in the cluster, a page holds a part of it, and what nobody but Flint should write spoils none.
func TestPagesAreBounded(t *testing.T) {
	i := serve(t, setup{})
	const n = 50
	for k := range n {
		id := strconv.Itoa(k)
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p-" + id, "namespace": "default"}}}
		pod.SetLabels(map[string]string{launch.LabelID: launch.ID("default", id), launch.LabelKind: "spark", launch.LabelCompletion: "pending"})
		pod.SetAnnotations(map[string]string{launch.AnnotationHash: "1", launch.AnnotationSubmissionID: strings.Repeat("x", 100_000)})
		added, err := i.api.Add(pod)
		if err != nil {
			t.Fatal(err)
		}
		if k == 7 {
			forged := fmt.Sprintf(`{"uid":%q,"outcome":"failed","reason":"Deleted","finished_at":"9999-12-31T23:59:59-23:59"}`, added.GetUID())
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"flint.dev/outcome": forged}}})
			if err != nil {
				t.Fatal(err)
			}
			client, err := kube.NewClient(i.api.Config())
			if err != nil {
				t.Fatal(err)
			}
			ref := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: "p-7"}
			if _, err := client.Patch(t.Context(), ref, "application/merge-patch+json", patch); err != nil {
				t.Fatal(err)
			}
		}
	}
	i.api.ResetRequests()
	seen, token := map[string]bool{}, ""
	for pages := 0; ; pages++ {
		a := i.do(t, http.MethodGet, api.LaunchesPath+"?limit=100"+token, "")
		list := decode[api.LaunchList](t, a, http.StatusOK)
		if len(a.body) > 3<<20 || pages > n {
			t.Fatalf("a page of %d bytes, %d items, after %d pages", len(a.body), len(list.Items), pages)
		}
		for _, l := range list.Items {
			seen[l.ID] = true
			if l.State != api.StatePending {
				t.Errorf("launch %s is %s", l.Name, l.State)
			}
		}
		if token = "&continue=" + list.Continue; list.Continue == "" {
			break
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d launches", len(seen), n)
	}
	for _, r := range i.api.Requests() {
		if !strings.Contains(r.Query, "limit=20&") && !strings.HasSuffix(r.Query, "limit=20") {
			t.Errorf("a list of more: %s", r.Query)
		}
	}
}
