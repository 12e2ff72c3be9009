package redact

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/spark/conf"
)

func TestObjects(t *testing.T) {
	const hidden = conf.Redacted
	cases := map[string]struct{ given, want string }{
		"env of every container": {
			`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"DB_PASSWORD","value":"x"},{"name":"A","value":"x"}]}],"initContainers":[{"env":[{"name":"TOKEN","value":{"no":"text"}}]}]}}`,
			`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"DB_PASSWORD","value":"` + hidden + `"},{"name":"A","value":"x"}]}],"initContainers":[{"env":[{"name":"TOKEN","value":"` + hidden + `"}]}]}}`,
		},
		"a reference to a Secret": {
			`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}}`,
			`{"kind":"Pod","spec":{"containers":[{"env":[{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}}`,
		},
		"a job's pods": {
			`{"kind":"Job","spec":{"template":{"metadata":{"annotations":{"my-token":"x"}},"spec":{"containers":[{"env":[{"name":"SECRET","value":"x"}]}]}}}}`,
			`{"kind":"Job","spec":{"template":{"metadata":{"annotations":{"my-token":"` + hidden + `"}},"spec":{"containers":[{"env":[{"name":"SECRET","value":"` + hidden + `"}]}]}}}}`,
		},
		"arguments": {
			`{"kind":"Pod","spec":{"containers":[{"command":["run","--token=x"],"args":["--password","x","y","--db-password","--next","z","-Dmy.secret=x","p","-c token=x"]}]}}`,
			`{"kind":"Pod","spec":{"containers":[{"command":["run","` + hidden + `"],"args":["--password","` + hidden + `","y","--db-password","--next","z","` + hidden + `","p","` + hidden + `"]}]}}`,
		},
		"probes and hooks": {
			`{"kind":"Pod","spec":{"containers":[{"livenessProbe":{"exec":{"command":["curl","--token=x"]}},"readinessProbe":{"httpGet":{"path":"/?token=x","port":1,"httpHeaders":[{"name":"X-Token","value":"x"},{"name":"A","value":"x"}]}},"lifecycle":{"preStop":{"exec":{"command":["--password","x"]}}}}]}}`,
			`{"kind":"Pod","spec":{"containers":[{"livenessProbe":{"exec":{"command":["curl","` + hidden + `"]}},"readinessProbe":{"httpGet":{"path":"` + hidden + `","port":1,"httpHeaders":[{"name":"X-Token","value":"` + hidden + `"},{"name":"A","value":"x"}]}},"lifecycle":{"preStop":{"exec":{"command":["--password","` + hidden + `"]}}}}]}}`,
		},
		"volumes of drivers": {
			`{"kind":"Pod","spec":{"volumes":[{"name":"a","csi":{"driver":"d","volumeAttributes":{"token":"x","b":"y"}}},{"name":"b","flexVolume":{"options":{"password":"x"}}},{"name":"c","secret":{"secretName":"my-secret"}},null]}}`,
			`{"kind":"Pod","spec":{"volumes":[{"name":"a","csi":{"driver":"d","volumeAttributes":{"token":"` + hidden + `","b":"y"}}},{"name":"b","flexVolume":{"options":{"password":"` + hidden + `"}}},{"name":"c","secret":{"secretName":"my-secret"}},null]}}`,
		},
		"annotations and labels": {
			`{"kind":"Service","metadata":{"annotations":{"a":"x","my/password":"x"},"labels":{"token":"x","b":"y"}}}`,
			`{"kind":"Service","metadata":{"annotations":{"a":"x","my/password":"` + hidden + `"},"labels":{"token":"` + hidden + `","b":"y"}}}`,
		},
		"a Secret": {
			`{"kind":"Secret","data":{"k":"eA=="},"stringData":{"l":"x"}}`,
			`{"kind":"Secret","data":{"k":"` + hidden + `"},"stringData":{"l":"` + hidden + `"}}`,
		},
		"properties": {
			`{"kind":"ConfigMap","data":{"spark.properties":"#password=no\nspark.a=b\nspark.my.password=x\nspark.b\\=token=x=y\nspark.c=my\\ secret\n"}}`,
			`{"kind":"ConfigMap","data":{"spark.properties":"#password=no\nspark.a=b\nspark.my.password=` + hidden + `\nspark.b\\=token=` + hidden + `\nspark.c=` + hidden + `\n"}}`,
		},
		"a template in a ConfigMap": {
			`{"kind":"ConfigMap","data":{"t":"{\"spec\":{\"containers\":[{\"env\":[{\"name\":\"TOKEN\",\"value\":\"x\"}]}]}}"}}`,
			`{"kind":"ConfigMap","data":{"t":"{\"spec\":{\"containers\":[{\"env\":[{\"name\":\"TOKEN\",\"value\":\"` + hidden + `\"}]}]}}"}}`,
		},
		"one without a secret stays as it is written": {
			`{"kind":"ConfigMap","data":{"t":"{ \"spec\": {} }","u":"text"}}`,
			`{"kind":"ConfigMap","data":{"t":"{ \"spec\": {} }","u":"text"}}`,
		},
		"another text": {
			`{"kind":"ConfigMap","data":{"core-site.xml":"<name>my.password</name><value>x</value>"}}`,
			`{"kind":"ConfigMap","data":{"core-site.xml":"` + hidden + `"}}`,
		},
		"what has no such shape": {
			`{"kind":"Pod","metadata":"m","spec":{"containers":[null,{"env":"e","args":[1,null]}],"template":7}}`,
			`{"kind":"Pod","metadata":"m","spec":{"containers":[null,{"env":"e","args":[1,null]}],"template":7}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			given, want := &unstructured.Unstructured{Object: read(t, tc.given)}, read(t, tc.want)
			got := Objects([]*unstructured.Unstructured{given}, conf.Redaction{})
			if diff := cmp.Diff(want, got[0].Object); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(read(t, tc.given), given.Object); diff != "" {
				t.Errorf("the given object was changed (-before +after)\n%s", diff)
			}
		})
	}
}

// A pattern of the submission's own meets the keys and values as they were before they became properties.
func TestEscapedProperties(t *testing.T) {
	for name, tc := range map[string]struct{ pattern, key, value string }{
		"a colon":            {"pw:", "spark.x", "pw:canary"},
		"a line break":       {`a\sb`, "spark.x", "a\nb canary"},
		"a space in front":   {"^ a", "spark.x", " a canary"},
		"a hash":             {"#a", "spark.x", "#a canary"},
		"a backslash":        {`a\\b`, "spark.x", `a\b canary`},
		"a backslash, n":     {`a\\n`, "spark.x", `a\n canary`},
		"a key with a sign":  {"a=b", "spark.a=b", "canary"},
		"a key with a slash": {`a\\b`, `spark.a\b`, "canary"},
		"a key with a space": {"a b", "spark.a b", "canary"},
	} {
		t.Run(name, func(t *testing.T) {
			text := conf.Conf{tc.key: tc.value, "spark.y": "kept"}.Properties()
			given := &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"spark.properties": text}}}
			got := Objects([]*unstructured.Unstructured{given}, conf.RedactionOf([]string{"--conf=spark.redaction.regex=" + tc.pattern}))
			shown, _, _ := unstructured.NestedString(got[0].Object, "data", "spark.properties")
			if strings.Contains(shown, "canary") || !strings.Contains(shown, "spark.y=kept") || !strings.Contains(shown, conf.Redacted) {
				t.Errorf("shown: %s", shown)
			}
		})
	}
}

func read(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestText(t *testing.T) {
	for name, c := range map[string]struct{ text, value, want string }{
		"as it is":              {"cookie=abc!", "abc", "cookie=[...]!"},
		"short":                 {"a.b.c", ".", "a[...]b[...]c"},
		"empty":                 {"abc", "", "abc"},
		"as JSON writes it":     {`"a\"b\nc<"`, "a\"b\nc<", `"[...]"`},
		"line by line":          {"1: BEGIN KEY\n2: c2VjcmV0\n", "BEGIN KEY\n c2VjcmV0 \n", "1: [...]\n2: [...]\n"},
		"in base64":             {"dG9wIHNlY3JldA== dG9wIHNlY3JldA", "top secret", "[...] [...]"},
		"in base64 of URLs":     {"_-8_", "\xff\xef\x3f", "[...]"},
		"one in another":        {"secret-2 secret", "secret", "[...]-2 [...]"},
		"what stands for it is": {"[...]", "[", "[...]...]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(c.text, []string{c.value}); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := Text("secret-2 secret", []string{"secret", "secret-2"}); got != "[...] [...]" {
		t.Errorf("the longest does not come first: %q", got)
	}
}

func TestError(t *testing.T) {
	objects := []*unstructured.Unstructured{
		{Object: map[string]any{"kind": "Pod", "metadata": map[string]any{"labels": map[string]any{"my-token": "s3cret-1", "team": "shop"}}, "spec": map[string]any{
			"nodeSelector": map[string]any{"the-password": "s3cret-2"},
			"containers":   []any{map[string]any{"args": []any{"--token=s3cret-3"}, "env": []any{map[string]any{"name": "A_SECRET", "value": "x y\n  z"}, map[string]any{"name": "PIN_TOKEN", "value": "1"}}}},
		}}},
		{Object: map[string]any{"kind": "Secret", "data": map[string]any{"k": "czNjcmV0LTQ="}}},
		{Object: map[string]any{"kind": "ConfigMap", "data": map[string]any{"spark.properties": "spark.my.password=s3cret-5\\=\n"}}},
	}
	refusal := func(message string) *api.Error {
		return &api.Error{Code: api.InvalidPodTemplate, Field: "spec.x", Message: message, RetryAfter: time.Second, Cause: errors.New(message)}
	}
	for name, tc := range map[string]struct{ said, want string }{
		"what is not secret":       {"team shop: 1 is no", "team shop: 1 is no"},
		"a label":                  {`Invalid value: "s3cret-1": no`, `Invalid value: "[...]": no`},
		"a node selector":          {`Invalid value: "s3cret-2": no`, `Invalid value: "[...]": no`},
		"an argument":              {"args --token=s3cret-3 and s3cret-3", "args [...] and [...]"},
		"a variable, on one line":  {"env x y z is no", "env [...] is no"},
		"a Secret's value":         {"data s3cret-4, czNjcmV0LTQ= is no", "data [...], [...] is no"},
		"a property":               {"conf s3cret-5= is no", "conf [...] is no"},
		"amid one":                 {"refused: s3cr (cut); it may be repeated", "refused: [...] (cut); it may be repeated"},
		"amid what looks like one": {"refused: x s3 (cut)", "refused: x s3 (cut)"},
	} {
		t.Run(name, func(t *testing.T) {
			given := refusal(tc.said)
			told, ok := errors.AsType[*api.Error](Error(fmt.Errorf("apply: %w", given), objects, conf.Redaction{}))
			if tc.said == tc.want {
				if !ok || told.Message != tc.want || told.Cause == nil {
					t.Errorf("%+v", told)
				}
				return
			}
			want := refusal(tc.want)
			want.Cause = nil
			if tc.want == "refused: [...] (cut); it may be repeated" { // its cause has nothing that is whole
				told.Cause = nil
			}
			if diff := cmp.Diff(want, told); diff != "" {
				t.Error(diff)
			}
			if given.Message != tc.said {
				t.Error("the error itself was changed")
			}
		})
	}
	own := errors.New("s3cret-1")
	if err := Error(own, objects, conf.Redaction{}); err != own { //nolint:errorlint // the very same
		t.Errorf("what is no api.Error became %v", err)
	}
	if err := Error(nil, objects, conf.Redaction{}); err != nil {
		t.Error(err)
	}
}
