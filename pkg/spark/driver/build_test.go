package driver

import (
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// TestBuildIsPure: the same request gives the same objects, and is not changed by it.
func TestBuildIsPure(t *testing.T) {
	o := operatorRequests(t)["spark-pi-pod-template"]
	req, err := request(t, "4.2.0", o.Argv)
	if err != nil {
		t.Fatal(err)
	}
	req.DriverTemplate = o.Driver
	before, confBefore := runtime.DeepCopyJSON(o.Driver), maps.Clone(req.Arguments.Conf)
	first, err := Build(req)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Build(req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two builds differ:\n%s", diff)
	}
	if diff := cmp.Diff(before, req.DriverTemplate); diff != "" {
		t.Errorf("template changed:\n%s", diff)
	}
	if diff := cmp.Diff(confBefore, req.Arguments.Conf); diff != "" {
		t.Errorf("conf changed:\n%s", diff)
	}
	first.Pod.Object["spec"].(map[string]any)["tolerations"].([]any)[0].(map[string]any)["operator"] = "Equal"
	if diff := cmp.Diff(before, req.DriverTemplate); diff != "" {
		t.Errorf("pod and template share a value:\n%s", diff)
	}
}

// TestWithoutParse builds from confs that args.Parse never gives.
func TestWithoutParse(t *testing.T) {
	cases := map[string]struct {
		conf    conf.Conf
		refused string
		name    string
	}{
		"no_app_name":    {conf: conf.Conf{}, name: "spark-" + testPrefix + "-driver"},
		"driver_host":    {conf: conf.Conf{"spark.driver.host": "h"}, refused: "spark.driver.host"},
		"negative_cores": {conf: conf.Conf{"spark.driver.cores": "-1"}, refused: "spark.driver.cores"},
		"cores_text":     {conf: conf.Conf{"spark.driver.cores": "x"}, refused: "spark.driver.cores"},
		"memory_text":    {conf: conf.Conf{"spark.driver.memory": "x"}, refused: "spark.driver.memory"},
		"yarn_keytab":    {conf: conf.Conf{"spark.yarn.keytab": "/k", "spark.yarn.principal": "p"}, refused: "spark.kerberos.keytab"},
		"yarn_pair":      {conf: conf.Conf{"spark.yarn.keytab": "local:/k", "spark.kerberos.principal": "p"}, name: "spark-" + testPrefix + "-driver"},
		"keytab_file":    {conf: conf.Conf{"spark.kerberos.keytab": "/k", "spark.kerberos.principal": "p"}, refused: "spark.kerberos.keytab"},
		"keytab_cycle":   {conf: conf.Conf{"spark.kerberos.keytab": "${spark.x}", "spark.x": "${spark.x}"}, refused: "spark.kerberos.keytab"},
		"principal_cycle": {
			conf: conf.Conf{"spark.kerberos.keytab": "local:/k", "spark.kerberos.principal": "${spark.x}", "spark.x": "${spark.x}"}, refused: "spark.kerberos.principal",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, err := version.Parse("4.2.0")
			if err != nil {
				t.Fatal(err)
			}
			if _, set := tc.conf["spark.kubernetes.container.image"]; !set {
				tc.conf["spark.kubernetes.container.image"] = "i"
			}
			o, err := Build(Request{
				Arguments: &args.Arguments{Conf: tc.conf, Language: args.Java, MainClass: "C"},
				Version:   v, IDs: testIDs, User: "svc", SubmitTime: testTime,
			})
			if tc.refused != "" {
				checkRefusal(t, testCase{refused: tc.refused}, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := o.Pod.GetName(); got != tc.name {
				t.Errorf("pod name %q, want %q", got, tc.name)
			}
		})
	}
}

func TestTemplateErrorText(t *testing.T) {
	err := &TemplateError{Field: "spec.containers", Reason: "must be a list"}
	if got, want := err.Error(), "driver pod template: spec.containers: must be a list"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestTruncate(t *testing.T) {
	for f, want := range map[float64]int64{math.NaN(): 0, 102.9: 102, -1.5: -1, 1e300: 1<<31 - 1, -1e300: -1 << 31, 2147483646.5: 2147483646} {
		if got := truncate(f); got != want {
			t.Errorf("truncate(%v) = %d, want %d", f, got, want)
		}
	}
}

// FuzzBuild: no template makes Build panic, change its input, or fail in any other way than
// it says; what it builds has what every driver has.
func FuzzBuild(f *testing.F) {
	for _, o := range operatorRequests(f) {
		text, err := json.Marshal(o.Driver)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), false)
	}
	for _, text := range []string{
		`{}`, `{"spec": {"containers": [{"env": [{}], "name": "spark-kubernetes-driver"}]}}`, `{"spec": null}`, `{"spec": {"containers": [null]}}`, `{"spec": {}}`, one,
		`{"metadata": {"labels": {"a": 1}, "annotations": null}, "spec": {"volumes": [{"name": "x"}], "containers": [{"name": "spark-kubernetes-driver",
			"resources": {"limits": {"cpu": 1.5, "memory": []}}, "ports": [{"name": "x"}, {}], "volumeMounts": [{"name": "spark-local-dir-9"}, {}]}]}}`,
	} {
		f.Add(text, true)
	}
	plain, err := request(f, "4.2.0", base(c("K.driver.annotation.a=b", "K.driver.node.selector.a=b", "K.container.image.pullSecrets=s", "K.driver.secrets.s=/s")...))
	if err != nil {
		f.Fatal(err)
	}
	named, err := request(f, "4.2.0", base(c("K.driver.podTemplateContainerName=main")...))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, byName bool) {
		var template map[string]any
		if json.Unmarshal([]byte(text), &template) != nil || template == nil {
			t.Skip()
		}
		req := plain
		if byName {
			req = named
		}
		req.DriverTemplate = template
		before := runtime.DeepCopyJSON(template)
		o, err := Build(req)
		if diff := cmp.Diff(before, template); diff != "" {
			t.Fatalf("template changed:\n%s", diff)
		}
		var confErr *conf.Error
		var templateErr *TemplateError
		if err != nil {
			if !errors.As(err, &confErr) && !errors.As(err, &templateErr) {
				t.Fatalf("error is a %T: %v", err, err)
			}
			return
		}
		if _, err := json.Marshal(o.Pod.Object); err != nil {
			t.Fatal(err)
		}
		v := view(t, o)
		if got := at(v, "driver|image"); got != "img:1" {
			t.Errorf("image %v", got)
		}
		if got := at(v, "pod|spec|restartPolicy"); got != "Never" {
			t.Errorf("restartPolicy %v", got)
		}
		if !slices.Contains(v["mounts"].([]any), any(`spark-conf-volume-driver={"mountPath":"/opt/spark/conf"}`)) {
			t.Errorf("mounts %v", v["mounts"])
		}
	})
}

// BenchmarkBuild is one submission of the operator with pod templates: parse and build.
func BenchmarkBuild(b *testing.B) {
	o := operatorRequests(b)["spark-pi-pod-template"]
	executor, err := json.Marshal(o.Executor)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		req, err := request(b, "4.2.0", o.Argv)
		if err != nil {
			b.Fatal(err)
		}
		req.IDs = DeriveIDs("default", o.SubmissionID)
		req.DriverTemplate, req.ExecutorTemplate = o.Driver, executor
		if _, err := Build(req); err != nil {
			b.Fatal(err)
		}
	}
}
