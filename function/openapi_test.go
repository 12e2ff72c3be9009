package function_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/operator"
)

// conforms tells what of the JSON is not as the JSON Schema says.
func conforms(t *testing.T, schema, data []byte) error {
	t.Helper()
	s := &spec.Schema{}
	if err := json.Unmarshal(schema, s); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	return validate.NewSchemaValidator(s, nil, "", strfmt.Default).Validate(value).AsError()
}

func readCloser(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

type object = map[string]any

// described is the description of calls, with every $ref in its place.
type described struct{ root object }

func describe(t *testing.T, text []byte) described {
	t.Helper()
	converted, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var root object
	if err := json.Unmarshal(converted, &root); err != nil {
		t.Fatal(err)
	}
	return described{resolve(t, root, root).(object)}
}

func resolve(t *testing.T, root object, node any) any {
	t.Helper()
	switch node := node.(type) {
	case object:
		if ref, found := node["$ref"].(string); found {
			var target any = root
			for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
				parent, _ := target.(object)
				target = parent[name]
			}
			if target == nil || len(node) != 1 {
				t.Fatalf("%s leads nowhere", ref)
			}
			return resolve(t, root, target)
		}
		whole := object{}
		for name, value := range node {
			whole[name] = resolve(t, root, value)
		}
		return whole
	case []any:
		whole := make([]any, len(node))
		for i, value := range node {
			whole[i] = resolve(t, root, value)
		}
		return whole
	}
	return node
}

// at goes down into nested objects. It gives an empty one for what is not there.
func at(node object, names ...string) object {
	for _, name := range names {
		node, _ = node[name].(object)
	}
	return node
}

// operation finds what answers the method on the path, where {x} stands for any one part.
func (d described) operation(method, path string) object {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	for template := range at(d.root, "paths") {
		names := strings.Split(template, "/")
		matches := len(names) == len(parts)
		for i := 0; matches && i < len(names); i++ {
			matches = names[i] == parts[i] || strings.HasPrefix(names[i], "{")
		}
		if matches {
			return at(d.root, "paths", template, strings.ToLower(method))
		}
	}
	return nil
}

// content checks a body by its media type.
func content(t *testing.T, described object, mediaType string, body []byte) error {
	t.Helper()
	media, _, _ := mime.ParseMediaType(mediaType)
	of, found := described[media].(object)
	switch {
	case len(described) == 0 && len(body) == 0:
		return nil
	case !found:
		return fmt.Errorf("%q is not described, with %d bytes; only %v", mediaType, len(body), slices.Collect(maps.Keys(described)))
	case !strings.HasSuffix(media, "json"):
		return nil
	}
	schema, err := json.Marshal(of["schema"])
	if err != nil {
		t.Fatal(err)
	}
	return conforms(t, schema, body)
}

// answered checks an answer, its headers too.
func (d described) answered(t *testing.T, method, path string, a answer) error {
	t.Helper()
	operation := d.operation(method, path)
	if operation == nil {
		return fmt.Errorf("%s %s is not described", method, path)
	}
	response := at(operation, "responses", strconv.Itoa(a.status))
	if response == nil {
		return fmt.Errorf("%s %s: answer %d is not described", method, path, a.status)
	}
	for name, header := range at(response, "headers") {
		header, _ := header.(object)
		value := a.header.Get(name)
		if value == "" {
			if header["required"] == true {
				return fmt.Errorf("answer %d lacks %s", a.status, name)
			}
			continue
		}
		schema, text := marshal(t, header["schema"]), marshal(t, value)
		if err := conforms(t, schema, text); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return content(t, at(response, "content"), a.header.Get("Content-Type"), []byte(a.body))
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestOpenAPIIsServed(t *testing.T) {
	i := serve(t, setup{stopped: true})
	a := i.do(t, http.MethodGet, "/openapi.yaml", "")
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/yaml" || !bytes.Equal([]byte(a.body), api.OpenAPI) {
		t.Errorf("HTTP %d, %v", a.status, a.header)
	}
	d := describe(t, []byte(a.body))
	if d.root["openapi"] != "3.0.3" {
		t.Errorf("openapi %v", d.root["openapi"])
	}
	operations := map[string]bool{}
	for path, item := range at(d.root, "paths") {
		for method := range item.(object) {
			if method == "parameters" {
				continue
			}
			id, _ := at(d.root, "paths", path, method)["operationId"].(string)
			if id == "" || operations[id] {
				t.Errorf("%s %s: operationId %q", method, path, id)
			}
			operations[id] = true
			for name := range strings.SplitSeq(path, "/") {
				if name, isParameter := strings.CutPrefix(name, "{"); isParameter && !strings.Contains(string(marshal(t, item)), `"name":"`+strings.TrimSuffix(name, "}")+`"`) {
					t.Errorf("%s: parameter %s is not described", path, name)
				}
			}
		}
	}
}

// Every error code has its status at one of the submissions, and the enumeration has every code.
func TestOpenAPIHasEveryCode(t *testing.T) {
	d := describe(t, api.OpenAPI)
	var named []api.Code
	for _, code := range at(d.root, "components", "schemas", "Error", "properties", "error_code")["enum"].([]any) {
		named = append(named, api.Code(code.(string)))
	}
	all := api.Codes()
	slices.Sort(named)
	if !slices.Equal(all, named) {
		t.Errorf("codes %v, described %v", all, named)
	}
	for _, code := range all {
		status := strconv.Itoa((&api.Error{Code: code}).Status())
		method := http.MethodPost
		if code == api.MethodNotAllowed {
			method = http.MethodGet
		}
		described := code == api.NotFound
		for _, path := range []string{api.SubmitPath, api.FilePath, api.RunnerPath} {
			text, _ := at(d.operation(method, path), "responses", status)["description"].(string)
			described = described || slices.Contains(strings.FieldsFunc(text, isNoCode), string(code))
		}
		if !described {
			t.Errorf("%s (%s) is not described", code, status)
		}
	}
}

// isNoCode tells what stands between codes in a text.
func isNoCode(r rune) bool { return (r < 'A' || r > 'Z') && r != '_' }

// What the operator sends, and what it gets, is as it is described.
func TestOpenAPIOfSubmissions(t *testing.T) {
	d := describe(t, api.OpenAPI)
	requests, err := operator.Requests()
	if err != nil || len(requests) < 5 {
		t.Fatalf("%d requests, %v", len(requests), err)
	}
	body := at(d.operation(http.MethodPost, api.SubmitPath), "requestBody", "content")
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			if err := content(t, body, "application/json", request); err != nil {
				t.Errorf("the request: %v", err)
			}
			i := serve(t, setup{})
			for _, path := range []string{api.SubmitPath + "?dryRun=client", api.SubmitPath + "?dryRun=All", api.SubmitPath, api.SubmitPath} {
				a := i.do(t, http.MethodPost, path, string(request), "Content-Type", "application/json")
				if a.status >= 400 && name != "fail-submission" {
					t.Errorf("%s: HTTP %d: %s", path, a.status, a.body)
				}
				if err := d.answered(t, http.MethodPost, path, a); err != nil {
					t.Errorf("%s: %v: %s", path, err, a.body)
				}
			}
		})
	}
}

func TestOpenAPIOfRefusals(t *testing.T) {
	d := describe(t, api.OpenAPI)
	seen := map[int]bool{}
	check := func(i *instance, method, path, body string, header ...string) {
		t.Helper()
		a := i.do(t, method, path, body, header...)
		seen[a.status] = true
		if err := d.answered(t, method, path, a); err != nil {
			t.Errorf("%s %s %.60s: %v: %s", method, path, body, err, a.body)
		}
	}
	json := []string{"Content-Type", "application/json"}
	i := serve(t, setup{settings: func(s *config.Settings) { s.Namespaces, s.MaxBodyBytes = []string{"default", "nowhere"}, 5000 }})
	check(i, http.MethodGet, api.SubmitPath, "")
	for _, body := range []string{
		submission("s"), submission("s", "--driver-memory", "2g"), "{", "{}", submission("t", "--foo"), submission("t", "--conf", "spark.kubernetes.namespace=kube-system"),
		submission("t", "--conf", "spark.kubernetes.namespace=nowhere"), submission("t", "--x", strings.Repeat("x", 6000)),
		strings.TrimSuffix(submission("t"), "}") + `,"driver_pod_template":{"spec":{"containers":[{"name":"x"}]}}}`,
	} {
		check(i, http.MethodPost, api.SubmitPath, body, json...)
		check(i, http.MethodPost, "/", body, binaryEvent("1", api.SubmitEventType)...)
	}
	check(i, http.MethodPost, api.SubmitPath, submission("t"))
	check(i, http.MethodPost, api.SubmitPath+"?dryRun=x", submission("t"), json...)
	check(serve(t, setup{transport: func(http.RoundTripper) http.RoundTripper { return panics{} }}), http.MethodPost, api.SubmitPath, submission("t"), json...)
	starting := serve(t, setup{stopped: true})
	check(starting, http.MethodPost, api.SubmitPath, submission("t"), json...)
	for _, path := range []string{"/health/readiness", "/health/liveness", "/metrics", "/openapi.yaml"} {
		check(starting, http.MethodGet, path, "")
		check(i, http.MethodGet, path, "")
	}
	replying := serve(t, setup{settings: func(s *config.Settings) { s.EventReply = true }})
	check(replying, http.MethodPost, "/", submission("t"), binaryEvent("1", api.SubmitEventType, "Prefer", "reply")...)
	for _, status := range []int{200, 201, 202, 400, 403, 404, 405, 409, 413, 415, 422, 500, 503} {
		if !seen[status] {
			t.Errorf("no answer %d was seen", status)
		}
	}
}

// The schema of a submission's data takes what Flint takes, and refuses what it must.
func TestSubmitSchema(t *testing.T) {
	d := describe(t, api.OpenAPI)
	structured := at(d.operation(http.MethodPost, "/"), "requestBody", "content")
	i := serve(t, setup{})
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	delete(requests, "fail-submission")
	requests["no id"] = []byte(`{"spark_submit_args":` + string(marshal(t, strings.Fields("--master k8s://https://x --deploy-mode cluster --class C --conf spark.kubernetes.container.image=i local:///j"))) + `}`)
	requests["an empty id, and nulls"] = bytes.Replace(requests["no id"], []byte("{"), []byte(`{"submission_id":"","driver_pod_template":null,"executor_pod_template":null,"spark_version":null,"more":1,`), 1)
	for name, data := range requests {
		id := strings.ReplaceAll(name, " ", "-")
		changed := data
		if !strings.Contains(name, "id") || strings.HasPrefix(name, "spark") {
			if changed, err = operator.With(data, id, "", ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := conforms(t, api.SubmitSchema, changed); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		whole := fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/t","type":%q,"idempotencykey":%q,"data":%s}`, id, api.SubmitEventType, id, changed)
		if err := content(t, structured, "application/cloudevents+json", []byte(whole)); err != nil {
			t.Errorf("%s, structured: %v", name, err)
		}
		if a := i.do(t, http.MethodPost, "/", whole, "Content-Type", "application/cloudevents+json"); a.status != http.StatusAccepted && a.status != http.StatusUnprocessableEntity {
			t.Errorf("%s: HTTP %d: %s", name, a.status, a.body)
		}
	}
	for name, data := range map[string]string{
		"no arguments": `{"submission_id":"s"}`, "empty arguments": `{"spark_submit_args":[]}`, "arguments that are no list": `{"spark_submit_args":"x"}`,
		"an argument that is no text": `{"spark_submit_args":[1]}`, "an argument that is null": `{"spark_submit_args":[null]}`, "a number for an id": `{"submission_id":1,"spark_submit_args":["x"]}`,
		"a long id": `{"submission_id":"` + strings.Repeat("x", 254) + `","spark_submit_args":["x"]}`, "a template that is no object": `{"spark_submit_args":["x"],"driver_pod_template":[]}`,
		"an executor template that is no object": `{"spark_submit_args":["x"],"executor_pod_template":"x"}`, "no object": `[]`,
	} {
		if conforms(t, api.SubmitSchema, []byte(data)) == nil {
			t.Errorf("%s is as the schema says", name)
		}
		if a := i.do(t, http.MethodPost, "/", data, binaryEvent("1", api.SubmitEventType)...); a.status != http.StatusBadRequest {
			t.Errorf("%s: HTTP %d: %s", name, a.status, a.body)
		}
	}
}

// What is not as described is found: an unknown field, type, status, path, media type, and a header that is missing.
func TestOpenAPIFindsFaults(t *testing.T) {
	d := describe(t, api.OpenAPI)
	i := serve(t, setup{})
	good := i.submit(t, submission("s"))
	refused := i.submit(t, "{")
	overloaded := serve(t, setup{stopped: true}).submit(t, submission("s"))
	without := overloaded
	without.header = without.header.Clone()
	without.header.Del("Retry-After")
	for name, tc := range map[string]struct {
		path string
		a    answer
	}{
		"status":       {api.SubmitPath, answer{http.StatusTeapot, good.header, good.body}},
		"path":         {"/api/v2", good},
		"field":        {api.SubmitPath, answer{good.status, good.header, strings.Replace(good.body, "{", `{"more":1,`, 1)}},
		"type":         {api.SubmitPath, answer{good.status, good.header, strings.Replace(good.body, "false", `"no"`, 1)}},
		"missing":      {api.SubmitPath, answer{good.status, good.header, `{}`}},
		"code":         {api.SubmitPath, answer{refused.status, refused.header, strings.Replace(refused.body, "BAD_REQUEST", "BAD_LUCK", 1)}},
		"media type":   {api.SubmitPath, answer{good.status, http.Header{"Content-Type": {"text/html"}}, good.body}},
		"header":       {api.SubmitPath, without},
		"body of none": {"/", answer{http.StatusAccepted, good.header, good.body}},
	} {
		if d.answered(t, http.MethodPost, tc.path, tc.a) == nil {
			t.Errorf("%s: no fault found", name)
		}
	}
	for _, a := range []answer{good, refused, overloaded} {
		if err := d.answered(t, http.MethodPost, api.SubmitPath, a); err != nil {
			t.Error(err)
		}
	}
}

// Launches are answered as they are described, and a Launch has the fields that are described.
func TestOpenAPIOfLaunches(t *testing.T) {
	d := describe(t, api.OpenAPI)
	i := serve(t, setup{})
	created := i.submit(t, submission("one")).accepted(t)
	one := api.LaunchesPath + "/default/" + i.api.Object(pods, "default", created.DriverPodName).GetLabels()["flint.dev/id"]
	statuses := map[string]int{}
	for _, call := range [][2]string{
		{http.MethodGet, api.LaunchesPath}, {http.MethodGet, api.LaunchesPath + "?x=1"}, {http.MethodGet, api.LaunchesPath + "?namespace=other"},
		{http.MethodGet, one}, {http.MethodGet, one + "?kind=x"}, {http.MethodGet, one + "/log"}, {http.MethodGet, one + "/log?tailLines=0"},
		{http.MethodGet, api.LaunchesPath + "/default/" + strings.Repeat("0", 32)}, {http.MethodGet, api.LaunchesPath + "/other/" + strings.Repeat("0", 32)},
		{http.MethodDelete, one}, {http.MethodDelete, one}, {http.MethodDelete, one + "?x"},
	} {
		a := i.do(t, call[0], call[1], "")
		if err := d.answered(t, call[0], call[1], a); err != nil {
			t.Errorf("%s %s: %v: %s", call[0], call[1], err, a.body)
		}
		statuses[call[0]] = max(statuses[call[0]], 1000-a.status)
	}
	if statuses[http.MethodGet] != 800 || statuses[http.MethodDelete] != 798 {
		t.Errorf("no success: %v", statuses)
	}
	whole := map[string]object{
		"SubmitResponse": decoded(t, api.SubmitResponse{}),
		"Error":          decoded(t, api.ErrorBody{Field: "f"}),
		"LaunchList":     decoded(t, api.LaunchList{Continue: "c"}),
		"Launch": decoded(t, api.Launch{
			Deleting: true, SparkAppID: "a", Outcome: "failed", Reason: "Error", ExitCode: new(int32), Message: "m",
			StartedAt: new(time.Time), FinishedAt: new(time.Time), Result: json.RawMessage("{}"),
		}),
	}
	for name, schema := range whole {
		have := slices.Sorted(maps.Keys(schema))
		if described := slices.Sorted(maps.Keys(at(d.root, "components", "schemas", name, "properties"))); !slices.Equal(have, described) {
			t.Errorf("%s has %v, described %v", name, have, described)
		}
	}
}

func decoded(t *testing.T, value any) (fields object) {
	t.Helper()
	if err := json.Unmarshal(marshal(t, value), &fields); err != nil {
		t.Fatal(err)
	}
	return fields
}

// File jobs are answered as they are described, and what they take and give has the fields that are described.
func TestOpenAPIOfFileJobs(t *testing.T) {
	d := describe(t, api.OpenAPI)
	g := newFileGround(t, nil)
	i := g.serve(t)
	body := at(d.operation(http.MethodPost, api.FilePath), "requestBody", "content")
	seen := map[int]bool{}
	for n, text := range []string{
		operationBody("o1", `{"op":"write","path":"f","text":"x"}`), operationBody("o1", `{"op":"write","path":"f","text":"x"}`), operationBody("o1", `{"op":"list"}`),
		operationBody("o2", `{"op":"list"}`), operationBody("o3", `{"op":"stat","path":"f"}`), operationBody("o4", `{"op":"read","path":"nothing"}`),
		operationBody("o5", `{"op":"mkdir","path":"f"}`), operationBody("o6", `{"op":"copy","path":"f","to":"g"}`), operationBody("o7", `{"op":"checksum","path":"f"}`, `"wait_seconds":20`),
		operationBody("o8", `{"op":"batch","operations":[{"op":"stat","path":"f"},{"op":"stat","path":"nothing"}]}`), operationBody("o9", `{"op":"list"}`, `"timeout_seconds":99999`),
		operationBody("o10", `{"op":"read","path":"../x"}`), `{"target":{"namespace":"other","claim":"data"},"operation":{"op":"list"}}`,
	} {
		if err := content(t, body, "application/json", []byte(text)); err != nil {
			t.Errorf("request %d: %v", n, err)
		}
		for _, path := range []string{api.FilePath + "?dryRun=All", api.FilePath} {
			a := i.do(t, http.MethodPost, path, text, "Content-Type", "application/json")
			seen[a.status] = true
			if err := d.answered(t, http.MethodPost, path, a); err != nil {
				t.Errorf("%s %s: %v: %s", path, text, err, a.body)
			}
		}
	}
	without := g.serve(t, func(s *config.Settings) { s.File.Job.Image = "" })
	a := without.do(t, http.MethodPost, api.FilePath, operationBody("x", `{"op":"list"}`), "Content-Type", "application/json")
	seen[a.status] = true
	if err := d.answered(t, http.MethodPost, api.FilePath, a); err != nil {
		t.Errorf("%v: %s", err, a.body)
	}
	one := api.FilePath + "/default/" + launch.ID("default", "o1")
	for _, call := range [][2]string{
		{http.MethodGet, api.FilePath}, {http.MethodGet, api.FilePath + "?claim=data"}, {http.MethodGet, api.FilePath + "?claim=none"}, {http.MethodGet, api.FilePath + "?x=1"},
		{http.MethodGet, one}, {http.MethodGet, one + "?wait_seconds=1"}, {http.MethodGet, one + "?wait_seconds=-1"}, {http.MethodGet, api.FilePath + "/default/" + strings.Repeat("0", 32)},
		{http.MethodDelete, one}, {http.MethodDelete, api.FilePath + "/other/" + strings.Repeat("0", 32)},
	} {
		a := i.do(t, call[0], call[1], "")
		if err := d.answered(t, call[0], call[1], a); err != nil {
			t.Errorf("%s %s: %v: %s", call[0], call[1], err, a.body)
		}
	}
	for _, status := range []int{200, 202, 400, 403, 404, 409, 422, 503} {
		if !seen[status] {
			t.Errorf("no answer %d was seen", status)
		}
	}
	for name, of := range map[string]any{
		"FileRequest": api.FileRequest{}, "FileTarget": api.FileTarget{}, "FileOperation": api.FileOperation{}, "FileSource": api.FileSource{}, "FileSink": api.FileSink{},
		"FileEntry": api.FileEntry{}, "FileResult": api.FileResult{}, "FileJob": api.FileJob{}, "FileJobList": api.FileJobList{}, "FileJobDetails": api.FileJobDetails{}, "FileError": api.ErrorBody{},
	} {
		if described, have := slices.Sorted(maps.Keys(at(d.root, "components", "schemas", name, "properties"))), fieldsOf(reflect.TypeOf(of)); !slices.Equal(have, described) {
			t.Errorf("%s has %v, described %v", name, have, described)
		}
	}
}

// fieldsOf are the names in JSON of a type's fields, sorted.
func fieldsOf(of reflect.Type) (names []string) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The schema of a file event's data takes what Flint takes, and refuses what it must.
func TestFileSchema(t *testing.T) {
	const target = `"target":{"namespace":"default","claim":"data"}`
	for name, c := range map[string]struct {
		data string
		good bool
	}{
		"least":                       {`{` + target + `,"operation":{"op":"list"}}`, true},
		"all":                         {`{"submission_id":"s","target":{"namespace":"n","claim":"c","sub_path":"p","run_as_user":1,"run_as_group":1,"fs_group":1},"operation":{"op":"write","path":"a","text":"","sha256":"` + strings.Repeat("0", 64) + `","create_only":true},"wait_seconds":0,"timeout_seconds":1,"in_use":"allow"}`, true},
		"a batch":                     {`{` + target + `,"operation":{"op":"batch","operations":[{"op":"mkdir","path":"a"},{"op":"delete","path":"b","recursive":true}],"continue_on_error":true}}`, true},
		"an upload":                   {`{` + target + `,"operation":{"op":"upload","path":"a","source":{"url":"https://example.org","size":1,"sha256":"` + strings.Repeat("0", 64) + `","token":"t"}}}`, true},
		"a download":                  {`{` + target + `,"operation":{"op":"download","path":"","sink":{"url":"https://example.org","format":"zip"}}}`, true},
		"no target":                   {`{"operation":{"op":"list"}}`, false},
		"no operation":                {`{` + target + `}`, false},
		"an operation without a name": {`{` + target + `,"operation":{"path":"a"}}`, false},
		"an unknown operation":        {`{` + target + `,"operation":{"op":"chmod","path":"a"}}`, false},
		"an unknown field":            {`{` + target + `,"operation":{"op":"list"},"colour":"red"}`, false},
		"an unknown field inside":     {`{` + target + `,"operation":{"op":"list","colour":"red"}}`, false},
		"a digest that is none":       {`{` + target + `,"operation":{"op":"delete","path":"a","expect_sha256":"x"}}`, false},
		"an upload without a digest":  {`{` + target + `,"operation":{"op":"upload","path":"a","source":{"url":"https://example.org","size":1}}}`, false},
		"a batch within a batch":      {`{` + target + `,"operation":{"op":"batch","operations":[{"op":"batch","operations":[]}]}}`, false},
		"a text for a number":         {`{` + target + `,"operation":{"op":"list","limit":"1"}}`, false},
		"no object":                   {`[]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := api.DecodeFile([]byte(c.data), "")
			if (err == nil) != c.good {
				t.Errorf("decoded: %v", err)
			}
			if err := conforms(t, api.FileSchema, []byte(c.data)); (err == nil) != c.good {
				t.Errorf("by the schema: %v", err)
			}
		})
	}
	var schema object
	if err := json.Unmarshal(api.FileSchema, &schema); err != nil {
		t.Fatal(err)
	}
	for path, of := range map[string]any{"": api.FileRequest{}, "target": api.FileTarget{}, "operation": api.FileOperation{}, "operation.source": api.FileSource{}, "operation.sink": api.FileSink{}} {
		node := schema
		if path != "" {
			for name := range strings.SplitSeq(path, ".") {
				node = at(node, "properties", name)
			}
		}
		if described, have := slices.Sorted(maps.Keys(at(node, "properties"))), fieldsOf(reflect.TypeOf(of)); !slices.Equal(have, described) {
			t.Errorf("%q has %v, described %v", path, have, described)
		}
	}
}
