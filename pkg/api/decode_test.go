package api

import (
	"errors"
	"strings"
	"testing"
	"testing/quick"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeSubmit(t *testing.T) {
	const ok = `"submission_id":"s","spark_submit_args":["--master","k8s://h"]`
	cases := map[string]struct {
		body string
		key  string
		want *SubmitRequest
	}{
		"least": {
			body: `{` + ok + `}`,
			want: &SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"--master", "k8s://h"}},
		},
		"unknown fields are ignored": {
			body: `{` + ok + `,"later":{"a":1}}`,
			want: &SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"--master", "k8s://h"}},
		},
		"templates and version": {
			body: `{` + ok + `,"driver_pod_template":{"spec":{"priority":7,"future":1.5}},"executor_pod_template":{ "a" : 1 },"spark_version":"4.2.0"}`,
			want: &SubmitRequest{
				SubmissionID: "s", SparkSubmitArgs: []string{"--master", "k8s://h"}, SparkVersion: "4.2.0",
				DriverPodTemplate:   map[string]any{"spec": map[string]any{"priority": int64(7), "future": 1.5}},
				ExecutorPodTemplate: []byte(`{ "a" : 1 }`),
			},
		},
		"null templates are absent": {
			body: `{` + ok + `,"driver_pod_template":null,"executor_pod_template":null,"spark_version":null}`,
			want: &SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"--master", "k8s://h"}},
		},
		"the key stands in": {
			body: `{"spark_submit_args":["a"]}`, key: "event-1",
			want: &SubmitRequest{SubmissionID: "event-1", SparkSubmitArgs: []string{"a"}},
		},
		"the body's id beats the key": {
			body: `{"submission_id":"s","spark_submit_args":["a"]}`, key: "event-1",
			want: &SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"a"}},
		},
		"arguments are data": {
			body: `{"submission_id":"s","spark_submit_args":["a b","*","$(HOME)","","\u00e9\n"]}`,
			want: &SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"a b", "*", "$(HOME)", "", "é\n"}},
		},
		"the longest id": {
			body: `{"submission_id":"` + strings.Repeat("x", 253) + `","spark_submit_args":["a"]}`,
			want: &SubmitRequest{SubmissionID: strings.Repeat("x", 253), SparkSubmitArgs: []string{"a"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeSubmit([]byte(tc.body), tc.key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodeSubmitRefuses(t *testing.T) {
	cases := map[string]struct {
		body, field, message string
		id                   string // of the error's own body
	}{
		"nothing":                  {body: ``, message: "malformed JSON"},
		"no JSON":                  {body: `{`, message: "malformed JSON"},
		"an array":                 {body: `[]`, message: "malformed JSON"},
		"two values":               {body: `{"submission_id":"s","spark_submit_args":["a"]} {}`, message: "malformed JSON"},
		"not UTF-8":                {body: "{\"submission_id\":\"\xff\"}", message: "not UTF-8"},
		"a name twice":             {body: `{"submission_id":"s","submission_id":"t","spark_submit_args":["a"]}`, message: "duplicate field", id: "t"},
		"a name twice, deep":       {body: `{"submission_id":"s","spark_submit_args":["a"],"driver_pod_template":{"spec":{"a":1,"a":2}}}`, message: "duplicate field", id: "s"},
		"no id":                    {body: `{"spark_submit_args":["a"]}`, field: "submission_id", message: "required"},
		"another case of the name": {body: `{"Submission_ID":"s","spark_submit_args":["a"]}`, field: "submission_id", message: "required"},
		"empty id":                 {body: `{"submission_id":"","spark_submit_args":["a"]}`, field: "submission_id", message: "required"},
		"id too long":              {body: `{"submission_id":"` + strings.Repeat("x", 254) + `","spark_submit_args":["a"]}`, field: "submission_id", message: "254 bytes"},
		"id with a newline":        {body: `{"submission_id":"a\nb","spark_submit_args":["a"]}`, field: "submission_id", message: "control character"},
		"id is a number":           {body: `{"submission_id":1,"spark_submit_args":["a"]}`, message: "malformed JSON"},
		"no arguments":             {body: `{"submission_id":"s"}`, field: "spark_submit_args", message: "required", id: "s"},
		"empty arguments":          {body: `{"submission_id":"s","spark_submit_args":[]}`, field: "spark_submit_args", message: "required", id: "s"},
		"arguments are a string":   {body: `{"submission_id":"s","spark_submit_args":"a"}`, message: "malformed JSON", id: "s"},
		"a null argument":          {body: `{"submission_id":"s","spark_submit_args":["a",null]}`, field: "spark_submit_args[1]", message: "not null", id: "s"},
		"a NUL in an argument":     {body: `{"submission_id":"s","spark_submit_args":["a\u0000"]}`, field: "spark_submit_args[0]", message: "NUL", id: "s"},
		"driver template is text":  {body: `{"submission_id":"s","spark_submit_args":["a"],"driver_pod_template":"x"}`, message: "malformed JSON", id: "s"},
		"executor template array":  {body: `{"submission_id":"s","spark_submit_args":["a"],"executor_pod_template":[]}`, field: "executor_pod_template", message: "JSON object", id: "s"},
		"nested beyond measure":    {body: strings.Repeat(`{"a":`, 20000), message: "malformed JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request, err := DecodeSubmit([]byte(tc.body), "")
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != BadRequest {
				t.Fatalf("error = %v, want BAD_REQUEST", err)
			}
			if refused.Field != tc.field || !strings.Contains(refused.Message, tc.message) {
				t.Errorf("field %q, message %q; want %q, %q", refused.Field, refused.Message, tc.field, tc.message)
			}
			if len(refused.Message) > 300 {
				t.Errorf("message of %d bytes repeats the body", len(refused.Message))
			}
			if request.SubmissionID != tc.id {
				t.Errorf("submission id %q, want %q", request.SubmissionID, tc.id)
			}
		})
	}
}

func FuzzDecodeSubmit(f *testing.F) {
	f.Add([]byte(`{"submission_id":"s","spark_submit_args":["a"],"driver_pod_template":{"spec":{"a":1}},"executor_pod_template":{}}`))
	f.Add([]byte(`{"submission_id":null,"spark_submit_args":[null]}`))
	f.Add([]byte(`{"submission_id":"s","submission_id":"t"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := DecodeSubmit(body, "")
		if err == nil {
			if request.SubmissionID == "" || len(request.SparkSubmitArgs) == 0 {
				t.Fatalf("accepted without key or arguments: %+v", request)
			}
			return
		}
		var refused *Error
		if !errors.As(err, &refused) || refused.Message == "" || request == nil {
			t.Fatalf("error %v, request %v", err, request)
		}
	})
}

func TestEventKeyKeepsPairsApart(t *testing.T) {
	if EventKey("/a", "bc") == EventKey("/ab", "c") {
		t.Error("two events share a key")
	}
	one := func(source, id, source2, id2 string) bool {
		same := source == source2 && id == id2
		return (EventKey(source, id) == EventKey(source2, id2)) == same
	}
	if err := quick.Check(one, nil); err != nil {
		t.Error(err)
	}
}
