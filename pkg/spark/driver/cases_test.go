package driver

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/magiconair/properties"
	"k8s.io/apimachinery/pkg/util/json"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// The values that worked examples of the specification have.
const (
	testPrefix = "a1b2c39d0f3a7c21"
	testApp    = "spark-00112233445566778899aabbccddeeff"
)

var testIDs = IDs{
	App:       testApp,
	Prefix:    testPrefix,
	ConfigMap: "ffeedd9d0f3a7c22",
	Service:   "0123459d0f3a7c23",
	LocalDir:  "U",
}

var testTime = time.Date(2026, 11, 30, 1, 23, 9, 45e6, time.UTC)

// base is BASE{x} of the case list, py and r likewise.
func base(x ...string) []string {
	argv := append([]string{
		"--master", "k8s://https://api:6443", "--deploy-mode", "cluster",
		"--conf", "spark.kubernetes.container.image=img:1", "--class", "C",
	}, x...)
	return append(argv, "local:///a.jar")
}

func script(resource string, x ...string) []string {
	argv := append([]string{
		"--master", "k8s://https://api:6443", "--deploy-mode", "cluster",
		"--conf", "spark.kubernetes.container.image=img:1",
	}, x...)
	return append(argv, resource)
}

func py(x ...string) []string { return script("local:///app.py", x...) }
func r(x ...string) []string  { return script("local:///app.R", x...) }

// c makes --conf options; "K." at the start of a key stands for "spark.kubernetes.".
func c(pairs ...string) []string {
	var argv []string
	for _, pair := range pairs {
		if rest, ok := strings.CutPrefix(pair, "K."); ok {
			pair = "spark.kubernetes." + rest
		} else {
			pair = "spark." + pair
		}
		argv = append(argv, "--conf", pair)
	}
	return argv
}

// volume makes the options of one driver volume.
func volume(id string, options ...string) []string {
	var pairs []string
	for _, o := range options {
		pairs = append(pairs, "K.driver.volumes."+id+"."+o)
	}
	return c(pairs...)
}

func join(argvs ...[]string) []string { return slices.Concat(argvs...) }

func decode(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func request(t testing.TB, release string, argv []string) (Request, error) {
	t.Helper()
	v, err := version.Parse(release)
	if err != nil {
		t.Fatal(err)
	}
	a, err := args.Parse(argv, v)
	return Request{Arguments: a, Version: v, IDs: testIDs, User: "svc", SubmitTime: testTime}, err
}

// view shows Objects under short names: pod, driver (the Spark container), env (as
// NAME=value), volumes and mounts (as name=content), kinds, properties (parsed), warnings,
// confmap, podspec, and each resource under its kind, or KIND/NAME.
func view(t testing.TB, o *Objects) map[string]any {
	t.Helper()
	pod := o.Pod.Object
	spec := pod["spec"].(map[string]any)
	containers := spec["containers"].([]any)
	driver := containers[len(containers)-1].(map[string]any)
	v := map[string]any{"pod": pod, "driver": driver}
	v["env"] = rendered(t, driver["env"], "name")
	v["volumes"] = rendered(t, spec["volumes"], "name")
	v["mounts"] = rendered(t, driver["volumeMounts"], "name")
	var kinds, warnings, callerNamed []any
	for _, r := range o.Resources {
		kinds = append(kinds, r.GetKind())
		v[r.GetKind()] = r.Object
		v[r.GetKind()+"/"+r.GetName()] = r.Object
		if strings.HasSuffix(r.GetName(), "podspec-conf-map") {
			v["podspec"] = r.Object
		}
	}
	for _, w := range o.Warnings {
		warnings = append(warnings, w)
	}
	for _, n := range o.CallerNamed {
		callerNamed = append(callerNamed, n)
	}
	v["kinds"], v["warnings"], v["callerNamed"] = kinds, warnings, callerNamed
	last := o.Resources[len(o.Resources)-1].Object
	v["confmap"] = last
	text := last["data"].(map[string]any)["spark.properties"].(string)
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]any{}
	for key, value := range p.Map() {
		parsed[key] = value
	}
	v["properties"] = parsed
	return v
}

// rendered shows a list of named objects as name=value, with JSON for what is no text.
func rendered(t testing.TB, items any, key string) []any {
	t.Helper()
	var all []any
	list, _ := items.([]any)
	for _, item := range list {
		rest := map[string]any{}
		for k, v := range item.(map[string]any) {
			if k != key {
				rest[k] = v
			}
		}
		text, ok := rest["value"].(string)
		if !ok {
			b, err := json.Marshal(rest)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		name, _ := item.(map[string]any)[key].(string)
		all = append(all, name+"="+text)
	}
	return all
}

// at follows a path with "|" between its parts; nil where it ends early.
func at(v any, path string) any {
	for _, part := range strings.Split(path, "|") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// testCase is one row of the case list. Either want, or refused or field, is set.
type testCase struct {
	argv     []string
	release  string // 4.2.0 if empty
	template string
	executor string
	ids      *IDs // testIDs if nil
	// want is what view shows: path to JSON value; nil means absent.
	want map[string]any
	// refused is the Name of a *conf.Error, field the Field of a *TemplateError, reason a part of either's text.
	refused, field, reason string
}

func (tc testCase) build(t *testing.T) (*Objects, error) {
	t.Helper()
	release := tc.release
	if release == "" {
		release = "4.2.0"
	}
	req, err := request(t, release, tc.argv)
	if err != nil {
		return nil, err
	}
	if tc.template != "" {
		req.DriverTemplate = decode(t, tc.template)
	}
	if tc.executor != "" {
		req.ExecutorTemplate = []byte(tc.executor)
	}
	if tc.ids != nil {
		req.IDs = *tc.ids
	}
	return Build(req)
}

func runCases(t *testing.T, cases map[string]testCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o, err := tc.build(t)
			if tc.refused != "" || tc.field != "" {
				checkRefusal(t, tc, err)
				return
			}
			if err != nil {
				t.Fatalf("Build: %v", err)
			}
			v := view(t, o)
			for path, want := range tc.want {
				if diff := cmp.Diff(want, at(v, path)); diff != "" {
					t.Errorf("%s (-want,+got):\n%s", path, diff)
				}
			}
		})
	}
}

func checkRefusal(t *testing.T, tc testCase, err error) {
	t.Helper()
	var confErr *conf.Error
	var templateErr *TemplateError
	switch {
	case err == nil:
		t.Fatal("Build succeeded, want a refusal")
	case errors.As(err, &confErr):
		if confErr.Name != tc.refused {
			t.Errorf("refused %q, want %q: %v", confErr.Name, tc.refused, err)
		}
	case errors.As(err, &templateErr):
		if templateErr.Field != tc.field {
			t.Errorf("refused field %q, want %q: %v", templateErr.Field, tc.field, err)
		}
	default:
		t.Fatalf("error is a %T: %v", err, err)
	}
	if !strings.Contains(err.Error(), tc.reason) {
		t.Errorf("error %q does not say %q", err, tc.reason)
	}
}
