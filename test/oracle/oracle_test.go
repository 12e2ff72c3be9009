package main

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecorder(t *testing.T) {
	r := newRecorder()
	defer r.close()
	call := func(method, path, contentType, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, r.plain.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", contentType)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		var text bytes.Buffer
		if _, err := text.ReadFrom(response.Body); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, text.String()
	}
	const apply = "application/apply-patch+yaml; charset=utf-8"
	if status, text := call("POST", "/api/v1/namespaces/n/pods", "application/json", `{"kind":"Pod","metadata":{"name":"p"}}`); status != 201 || !strings.Contains(text, `"uid":`) {
		t.Errorf("create: %d %s", status, text)
	}
	if status, text := call("PATCH", "/api/v1/namespaces/n/services/s?fieldManager=x&force=true", apply, `{"kind":"Service","metadata":{"name":"s"}}`); status != 200 || !strings.Contains(text, `"namespace":"n"`) {
		t.Errorf("apply: %d %s", status, text)
	}
	if status, _ := call("GET", "/api/v1/namespaces/n/pods/p", "", ""); status != 404 {
		t.Errorf("get: %d", status)
	}
	writes, err := r.take()
	if err != nil {
		t.Fatal(err)
	}
	got, err := objects(writes)
	want := []map[string]any{
		{"kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "n"}},
		{"kind": "Service", "metadata": map[string]any{"name": "s", "namespace": "n"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want,+got):\n%s", err, diff)
	}
	for name, unexpected := range map[string][4]string{
		"delete":           {"DELETE", "/api/v1/namespaces/n/pods/p", "", ""},
		"apply unforced":   {"PATCH", "/api/v1/namespaces/n/services/s", apply, "{}"},
		"patch":            {"PATCH", "/api/v1/namespaces/n/services/s?force=true", "application/json-patch+json", "[]"},
		"create a service": {"POST", "/api/v1/namespaces/n/services", "application/json", "{}"},
		"no JSON":          {"POST", "/api/v1/namespaces/n/pods", "application/json", "{"},
	} {
		call(unexpected[0], unexpected[1], unexpected[2], unexpected[3])
		if _, err := r.take(); err == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}

func TestObjects(t *testing.T) {
	object := func(kind, name, more string) map[string]any {
		return map[string]any{"kind": kind, "metadata": map[string]any{"name": name}, "more": more}
	}
	pod := write{"POST", "/api/v1/namespaces/n/pods", object("Pod", "p", "")}
	group := func(more string) write {
		return write{"PATCH", "/apis/x/v1/namespaces/n/podgroups/g", object("PodGroup", "g", more)}
	}
	got, err := objects([]write{group("first"), pod, group("second")})
	if err != nil || len(got) != 2 || got[0]["more"] != "second" || got[1]["kind"] != "Pod" {
		t.Errorf("an object that is applied twice: %v, %v", got, err)
	}
	other := object("Service", "s", "")
	other["metadata"].(map[string]any)["namespace"] = "m"
	for name, w := range map[string]write{
		"pod applied":       {"PATCH", "/api/v1/namespaces/n/pods/p", object("Pod", "p", "")},
		"another name":      {"PATCH", "/api/v1/namespaces/n/services/t", object("Service", "s", "")},
		"another namespace": {"PATCH", "/api/v1/namespaces/n/services/s", other},
	} {
		if got, err := objects([]write{w}); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
}

func TestSameError(t *testing.T) {
	cases := []struct {
		inside, process string
		want            bool
	}{
		{"", "anything", true},
		{"SparkException: no: image | Cause: x", "Exception in thread \"main\" org.apache.spark.SparkException: no: image\n\tat x", true},
		{"launcher: Unrecognized option: --x", "Error: Unrecognized option: --x\n\nUsage", true},
		{"launcher: Unrecognized option: --x", "Error: Unrecognized option: --y", false},
		{"SparkException: no image", "Exception: no memory", false},
	}
	for _, tc := range cases {
		if got := sameError(tc.inside, tc.process); got != tc.want {
			t.Errorf("sameError(%q, %q) = %v", tc.inside, tc.process, got)
		}
	}
}
