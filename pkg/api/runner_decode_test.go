package api

import (
	stdcmp "cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
)

// Terms of FLAME up to 0.1 (a tuple of 3) and since 0.2 (a map of 8), as their first bytes are.
const (
	g2gD     = "g2gDWAAAAAA="
	g3QAAAAI = "g3QAAAAIZAAD"
)

func TestDecodeRunner(t *testing.T) {
	const parent = `"parent":{"namespace":"n","name":"p"}`
	// with is the least request with changes.
	with := func(change func(*RunnerRequest)) *RunnerRequest {
		request := RunnerRequest{Parent: RunnerParent{Namespace: "n", Name: "p"}}.Complete()
		change(&request)
		return &request
	}
	cases := map[string]struct {
		body, key string
		want      *RunnerRequest
	}{
		"least": {body: `{` + parent + `}`, want: &RunnerRequest{
			Parent: RunnerParent{Namespace: "n", Name: "p"}, Wait: "ip", OnBootTimeout: "delete", Owner: "parent", BootTimeoutMS: 30_000,
			Inherit: ptr.To([]string{"resources", "scheduling", "securityContext", "imagePull"}), ShutdownTimeoutMS: ptr.To[int64](30_000), TTLSecondsAfterFinished: ptr.To[int64](300),
		}},
		"all": {
			body: `{"submission_id":"s","parent":{"namespace":"n","name":"p.q","uid":"u","container":"c"},"flame_parent":"` + g2gD + `",
				"env":{"A":"1"},"secret_env":{"B":"2"},"expand_env":true,"inherit":["env"],"volumes":["v"],"template":{"spec":{"later":[1,1.5]}},
				"wait":"ready","boot_timeout_ms":1000,"on_boot_timeout":"keep","owner":"none","max_lifetime_seconds":1,"ttl_seconds_after_finished":0,
				"shutdown_timeout_ms":0,"labels":{"l":"1"},"annotations":{"Example.com/a":"any text"}}`,
			want: &RunnerRequest{
				SubmissionID: "s", Parent: RunnerParent{Namespace: "n", Name: "p.q", UID: "u", Container: "c"}, FlameParent: g2gD,
				Env: map[string]string{"A": "1"}, SecretEnv: map[string]string{"B": "2"}, ExpandEnv: true, Inherit: &[]string{"env"}, Volumes: []string{"v"},
				Template: map[string]any{"spec": map[string]any{"later": []any{int64(1), 1.5}}}, Wait: "ready", BootTimeoutMS: 1000,
				OnBootTimeout: "keep", Owner: "none", MaxLifetimeSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int64](0), ShutdownTimeoutMS: ptr.To[int64](0),
				Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"Example.com/a": "any text"},
			},
		},
		"nothing is inherited":       {body: `{"inherit":[],` + parent + `}`, want: with(func(r *RunnerRequest) { r.Inherit = &[]string{} })},
		"the key stands in":          {body: `{` + parent + `}`, key: "event-1", want: with(func(r *RunnerRequest) { r.SubmissionID = "event-1" })},
		"the body's id beats others": {body: `{"submission_id":"s","flame_parent":"` + g2gD + `",` + parent + `}`, key: "event-1", want: with(func(r *RunnerRequest) { r.SubmissionID, r.FlameParent = "s", g2gD })},
		"R10 flame_parent of a tuple": {body: `{"flame_parent":"` + g2gD + `",` + parent + `}`, want: with(func(r *RunnerRequest) {
			r.SubmissionID, r.FlameParent = "flame-843d3aa176381a9c9dcf2571488ba6580628378939d38f6398f3ff7ef08603a0", g2gD
		})},
		"R10 flame_parent beats the event's key": {body: `{"flame_parent":"` + g3QAAAAI + `",` + parent + `}`, key: "event-1", want: with(func(r *RunnerRequest) {
			r.SubmissionID, r.FlameParent = FlameKey(g3QAAAAI), g3QAAAAI
		})},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeRunner([]byte(tc.body), tc.key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodeRunnerRefuses(t *testing.T) {
	manyEnv := map[string]string{}
	for i := range MaxEnv + 1 {
		manyEnv[fmt.Sprintf("V%d", i)] = ""
	}
	largeEnv := map[string]string{}
	for i := range 5 {
		largeEnv[fmt.Sprintf("V%d", i)] = strings.Repeat("x", MaxEnvEntry-10)
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	cases := map[string]struct {
		body           string // without parent and submission_id, unless it begins with a brace
		code           Code   // BAD_REQUEST if empty
		status         int    // 400 if zero
		field, message string
		noID           bool
	}{
		"nothing":              {body: `{`, message: "malformed JSON", noID: true},
		"not UTF-8":            {body: "{\"submission_id\":\"\xff\"}", message: "not UTF-8", noID: true},
		"unknown field":        {body: `"wiat":"ip"`, field: "wiat", message: `unknown field "wiat"`},
		"unknown parent field": {body: `{"submission_id":"s","parent":{"namespace":"n","name":"p","id":1}}`, field: "parent.id", message: "unknown field"},
		"a field twice":        {body: `"wait":"ip","wait":"none"`, field: "wait", message: "duplicate field"},
		"a template's twice":   {body: `"template":{"spec":{"a":1,"a":2}}`, field: "template.spec.a", message: "duplicate field"},
		"template is text":     {body: `"template":"x"`, message: "malformed JSON"},
		"no parent":            {body: `{"submission_id":"s"}`, field: "parent.namespace", message: "required"},
		"no parent's name":     {body: `{"submission_id":"s","parent":{"namespace":"n"}}`, field: "parent.name", message: "required"},
		"namespace is a path":  {body: `{"submission_id":"s","parent":{"namespace":"../x","name":"p"}}`, field: "parent.namespace", message: `"../x"`},
		"name is a path":       {body: `{"submission_id":"s","parent":{"namespace":"n","name":"a/b"}}`, field: "parent.name", message: `"a/b"`},
		"container":            {body: `{"submission_id":"s","parent":{"namespace":"n","name":"p","container":"A B"}}`, field: "parent.container", message: `"A B"`},
		"parent's uid too long": {
			body: `{"submission_id":"s","parent":{"namespace":"n","name":"p","uid":"` + strings.Repeat("x", 129) + `"}}`, field: "parent.uid", message: "129 bytes",
		},
		"id too long": {body: `{"submission_id":"` + strings.Repeat("x", 254) + `","parent":{"namespace":"n","name":"p"}}`, field: "submission_id", message: "254 bytes", noID: true},

		"R10 spaces":              {body: `"flame_parent":" ` + g2gD + `"`, code: InvalidFlameParent, field: "flame_parent", message: "base64"},
		"R10 line break":          {body: `"flame_parent":"` + g2gD + `\n"`, code: InvalidFlameParent, field: "flame_parent", message: "line break"},
		"R10 only a line break":   {body: `"flame_parent":"\n"`, code: InvalidFlameParent, field: "flame_parent", message: "line break"},
		"R10 no padding":          {body: `"flame_parent":"g2gDWAAAAAA"`, code: InvalidFlameParent, field: "flame_parent", message: "base64"},
		"R10 URL alphabet":        {body: `"flame_parent":"g2gD_-AA"`, code: InvalidFlameParent, field: "flame_parent", message: "base64"},
		"R10 loose bits":          {body: `"flame_parent":"g2h="`, code: InvalidFlameParent, field: "flame_parent", message: "base64"},
		"R10 another first byte":  {body: `"flame_parent":"aGVsbG8="`, code: InvalidFlameParent, field: "flame_parent", message: "byte 104"},
		"R10 1 MiB":               {body: `"flame_parent":"` + strings.Repeat("g2gD", 1<<18) + `"`, code: InvalidFlameParent, field: "flame_parent", message: "1048576 characters"},
		"R10 four beyond 16 KiB":  {body: `"flame_parent":"` + strings.Repeat("g2gD", 4097) + `"`, code: InvalidFlameParent, field: "flame_parent", message: "16388 characters"},
		"R09 env name":            {body: `"env":{"A B":"secret"}`, status: 422, field: "env.A B", message: `"A B"`},
		"R09 empty env name":      {body: `"env":{"":"x"}`, status: 422, field: "env.", message: `""`},
		"R09 env name with =":     {body: `"secret_env":{"A=B":"secret"}`, status: 422, field: "secret_env.A=B", message: `"A=B"`},
		"R09 huge value":          {body: `"env":{"A":"` + strings.Repeat("x", MaxEnvEntry-1) + `"}`, status: 422, field: "env.A", message: "131072 bytes"},
		"R09 huge secret":         {body: `"secret_env":{"A":"` + strings.Repeat("x", MaxEnvEntry-1) + `"}`, status: 422, field: "secret_env.A", message: "131072 bytes"},
		"R09 too many":            {body: `"env":` + text(manyEnv), status: 422, field: "env", message: "1001 variables"},
		"R09 too much":            {body: `"env":` + text(largeEnv), status: 422, field: "env", message: "more than 524288"},
		"NUL in a value":          {body: `"env":{"A":"secret\u0000"}`, status: 422, field: "env.A", message: "NUL"},
		"in env and secret_env":   {body: `"env":{"A":"1"},"secret_env":{"A":"2"}`, status: 422, field: "secret_env.A", message: "in env and in secret_env"},
		"a value is a number":     {body: `"env":{"A":1}`, message: "malformed JSON"},
		"wait":                    {body: `"wait":"forever"`, field: "wait", message: `"forever"`},
		"on_boot_timeout":         {body: `"on_boot_timeout":"stop"`, field: "on_boot_timeout", message: "delete, keep"},
		"owner":                   {body: `"owner":"me"`, field: "owner", message: "parent, controller, none"},
		"inherit":                 {body: `"inherit":["env","hostNetwork"]`, field: "inherit[1]", message: `"hostNetwork"`},
		"volumes":                 {body: `"volumes":["../x"]`, field: "volumes[0]", message: `"../x"`},
		"boot_timeout_ms of 0":    {body: `"boot_timeout_ms":0`, field: "boot_timeout_ms", message: "is 0"},
		"boot_timeout_ms too low": {body: `"boot_timeout_ms":999`, field: "boot_timeout_ms", message: "between 1000 and 600000"},
		"boot_timeout_ms too big": {body: `"boot_timeout_ms":600001`, field: "boot_timeout_ms", message: "is 600001"},
		"shutdown_timeout_ms":     {body: `"shutdown_timeout_ms":-1`, field: "shutdown_timeout_ms", message: "is -1"},
		"shutdown_timeout_ms big": {body: `"shutdown_timeout_ms":3600001`, field: "shutdown_timeout_ms", message: "is 3600001"},
		"max_lifetime_seconds":    {body: `"max_lifetime_seconds":0`, field: "max_lifetime_seconds", message: "is 0"},
		"max_lifetime_seconds 2³¹": {
			body: `"max_lifetime_seconds":2147483648`, field: "max_lifetime_seconds", message: "is 2147483648",
		},
		"ttl":              {body: `"ttl_seconds_after_finished":-1`, field: "ttl_seconds_after_finished", message: "is -1"},
		"ttl too long":     {body: `"ttl_seconds_after_finished":604801`, field: "ttl_seconds_after_finished", message: "is 604801"},
		"label key":        {body: `"labels":{"a b":"x"}`, field: "labels.a b", message: `"a b"`},
		"label value":      {body: `"labels":{"a":"x y"}`, field: "labels.a", message: "no value of a label"},
		"label of ours":    {body: `"labels":{"flint.dev/id":"x"}`, field: "labels.flint.dev/id", message: "reserved"},
		"annotation key":   {body: `"annotations":{"/a":"x"}`, field: "annotations./a", message: `"/a"`},
		"annotation ours":  {body: `"annotations":{"flint.dev/hash":"x"}`, field: "annotations.flint.dev/hash", message: "reserved"},
		"a beyond measure": {body: strings.Repeat(`{"a":`, 20000), message: "malformed JSON", noID: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			body := tc.body
			if !strings.HasPrefix(body, "{") {
				body = `{"submission_id":"s","parent":{"namespace":"n","name":"p"},` + body + `}`
			}
			request, err := DecodeRunner([]byte(body), "")
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatalf("error = %v, want an *Error", err)
			}
			code, status := stdcmp.Or(tc.code, BadRequest), stdcmp.Or(tc.status, http.StatusBadRequest)
			if refused.Code != code || refused.Status() != status {
				t.Errorf("%s, %d; want %s, %d (%v)", refused.Code, refused.Status(), code, status, err)
			}
			if refused.Field != tc.field || !strings.Contains(refused.Message, tc.message) {
				t.Errorf("field %q, message %q; want %q, %q", refused.Field, refused.Message, tc.field, tc.message)
			}
			if len(refused.Message) > 600 || strings.Contains(refused.Message, "secret\"") {
				t.Errorf("message repeats the body: %.800q", refused.Message)
			}
			if wantID := map[bool]string{false: "s", true: ""}[tc.noID]; request.SubmissionID != wantID {
				t.Errorf("submission id %q, want %q", request.SubmissionID, wantID)
			}
		})
	}
}

// The schema names the fields of the type, the pieces and the limits.
func TestRunnerSchema(t *testing.T) {
	type property struct {
		Properties       map[string]property
		Items            *property
		Enum             []any
		Minimum, Maximum *int64
		MaxLength        int
		MaxProperties    int
	}
	var schema property
	if err := json.Unmarshal(RunnerSchema, &schema); err != nil {
		t.Fatal(err)
	}
	names := func(v any) []string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(b, &fields); err != nil {
			t.Fatal(err)
		}
		return slices.Sorted(maps.Keys(fields))
	}
	full := RunnerRequest{
		SubmissionID: "s", FlameParent: "f", Env: map[string]string{"A": ""}, SecretEnv: map[string]string{"B": ""}, ExpandEnv: true, Volumes: []string{"v"},
		Template: map[string]any{"a": 1}, MaxLifetimeSeconds: ptr.To[int64](1), Labels: map[string]string{"a": ""}, Annotations: map[string]string{"a": ""},
	}.Complete()
	if diff := cmp.Diff(names(full), slices.Sorted(maps.Keys(schema.Properties))); diff != "" {
		t.Errorf("fields (-type +schema)\n%s", diff)
	}
	parent := RunnerParent{Namespace: "n", Name: "p", UID: "u", Container: "c"}
	if diff := cmp.Diff(names(parent), slices.Sorted(maps.Keys(schema.Properties["parent"].Properties))); diff != "" {
		t.Errorf("parent's fields (-type +schema)\n%s", diff)
	}
	var pieces []string
	for _, piece := range schema.Properties["inherit"].Items.Enum {
		pieces = append(pieces, piece.(string))
	}
	if diff := cmp.Diff(RunnerPieces(), pieces); diff != "" {
		t.Errorf("pieces (-type +schema)\n%s", diff)
	}
	for field, limits := range map[string][2]int64{
		"boot_timeout_ms": {minBootTimeoutMS, maxBootTimeoutMS}, "shutdown_timeout_ms": {0, maxShutdownTimeoutMS}, "ttl_seconds_after_finished": {0, maxTTLSeconds},
	} {
		if p := schema.Properties[field]; *p.Minimum != limits[0] || *p.Maximum != limits[1] {
			t.Errorf("%s: %d to %d, want %v", field, *p.Minimum, *p.Maximum, limits)
		}
	}
	if schema.Properties["flame_parent"].MaxLength != MaxFlameParent || schema.Properties["env"].MaxProperties != MaxEnv {
		t.Error("other limits than the code's")
	}
}

func FuzzDecodeRunner(f *testing.F) {
	f.Add([]byte(`{"submission_id":"s","parent":{"namespace":"n","name":"p"},"env":{"A":"$(B)"},"template":{"spec":{"containers":[null]}}}`))
	f.Add([]byte(`{"parent":{"namespace":"n","name":"p"},"flame_parent":"` + g2gD + `","inherit":[]}`))
	f.Add([]byte(`{"parent":null,"boot_timeout_ms":1e3}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := DecodeRunner(body, "")
		if err == nil {
			if request.Parent.Name == "" || request.Inherit == nil || request.FlameParent != "" && request.SubmissionID == "" {
				t.Fatalf("accepted incomplete: %+v", request)
			}
			return
		}
		var refused *Error
		if !errors.As(err, &refused) || refused.Message == "" || request == nil {
			t.Fatalf("error %v, request %v", err, request)
		}
	})
}
