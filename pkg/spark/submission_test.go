package spark

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark/version"
	"flint.dev/flint/test/operator"
)

var now = time.UnixMilli(1796010969000).UTC()

func defaults(t testing.TB) Defaults {
	t.Helper()
	v, err := version.Parse("4.2.0")
	if err != nil {
		t.Fatal(err)
	}
	return Defaults{Version: v, User: "spark"}
}

func request(more ...string) *api.SubmitRequest {
	arguments := []string{
		"--master", "k8s://h", "--deploy-mode", "cluster", "--class", "Main", "--name", "app",
		"--conf", "spark.kubernetes.container.image=i", "--conf", "spark.kubernetes.namespace=jobs",
	}
	return &api.SubmitRequest{SubmissionID: "s", SparkSubmitArgs: append(append(arguments, more...), "local:///a.jar")}
}

func plan(t testing.TB, r *api.SubmitRequest) *Submission {
	t.Helper()
	s, err := Plan(r, defaults(t), "", now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The hash tells what is asked for, not how it is written.
func TestHash(t *testing.T) {
	with := func(change func(*api.SubmitRequest)) *api.SubmitRequest {
		r := request("--conf", "spark.a=1", "--conf", "spark.b=2")
		r.DriverPodTemplate = map[string]any{"spec": map[string]any{"priority": int64(1), "containers": []any{map[string]any{"name": "spark-kubernetes-driver"}}}}
		r.ExecutorPodTemplate = []byte(`{"a":1,"b":[2]}`)
		change(r)
		return r
	}
	base := plan(t, with(func(*api.SubmitRequest) {})).Plan.Hash
	same := map[string]func(*api.SubmitRequest){
		"confs in another order": func(r *api.SubmitRequest) {
			i := slices.Index(r.SparkSubmitArgs, "spark.a=1")
			r.SparkSubmitArgs[i], r.SparkSubmitArgs[i+2] = r.SparkSubmitArgs[i+2], r.SparkSubmitArgs[i]
		},
		"the form --conf=k=v": func(r *api.SubmitRequest) {
			i := slices.Index(r.SparkSubmitArgs, "spark.a=1")
			r.SparkSubmitArgs = slices.Replace(r.SparkSubmitArgs, i-1, i+1, "--conf=spark.a=1")
		},
		"another layout of the executor template": func(r *api.SubmitRequest) { r.ExecutorPodTemplate = []byte(`{ "b": [2], "a": 1 }`) },
		"another submission id":                   func(r *api.SubmitRequest) { r.SubmissionID = "t" },
	}
	for name, change := range same {
		t.Run("same: "+name, func(t *testing.T) {
			if got := plan(t, with(change)).Plan.Hash; got != base {
				t.Error("another hash")
			}
		})
	}
	other := map[string]func(*api.SubmitRequest){
		"another conf": func(r *api.SubmitRequest) {
			r.SparkSubmitArgs[slices.Index(r.SparkSubmitArgs, "spark.a=1")] = "spark.a=3"
		},
		"another argument":          func(r *api.SubmitRequest) { r.SparkSubmitArgs = append(r.SparkSubmitArgs, "x") },
		"another driver template":   func(r *api.SubmitRequest) { r.DriverPodTemplate["spec"].(map[string]any)["priority"] = int64(2) },
		"another executor template": func(r *api.SubmitRequest) { r.ExecutorPodTemplate = []byte(`{"a":1,"b":[3]}`) },
		"no executor template":      func(r *api.SubmitRequest) { r.ExecutorPodTemplate = nil },
		"another Spark version":     func(r *api.SubmitRequest) { r.SparkVersion = "4.3.0" },
		"a whole number that a float cannot tell": func(r *api.SubmitRequest) {
			r.ExecutorPodTemplate = []byte(`{"a":9007199254740993,"b":[2]}`)
		},
	}
	seen := map[string]string{base: "the request itself"}
	for name, change := range other {
		got := plan(t, with(change)).Plan.Hash
		if twin, ok := seen[got]; ok {
			t.Errorf("%s has the hash of %s", name, twin)
		}
		seen[got] = name
	}
}

// The same request gives the same plan, on every instance, at any time: only the
// submit time in the properties is the clock's.
func TestPlanIsDeterministic(t *testing.T) {
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range requests {
		t.Run(name, func(t *testing.T) {
			var rendered [2]string
			for i := range rendered {
				decoded, err := api.DecodeSubmit(body, "")
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(launch.List(launch.Render(plan(t, decoded).Plan)))
				if err != nil {
					t.Fatal(err)
				}
				rendered[i] = string(text)
			}
			if diff := cmp.Diff(rendered[0], rendered[1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlanDoesNotChangeTheRequest(t *testing.T) {
	r := request()
	r.DriverPodTemplate = map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "spark-kubernetes-driver"}}}}
	before, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	plan(t, r)
	after, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Error(diff)
	}
}

func TestPlanNamesWhatIsWhose(t *testing.T) {
	s := plan(t, request("--conf", "spark.kubernetes.driver.pod.name=mine"))
	if s.AppName != "app" || !strings.HasPrefix(s.AppID, "spark-") || s.Plan.Namespace != "jobs" || s.Plan.SubmissionID != "s" || s.Plan.Kind != launch.Spark || s.Plan.Workload.GetName() != "mine" {
		t.Errorf("%+v, plan %+v", s, s.Plan)
	}
	if got := s.Plan.Workload.GetLabels()["spark-app-selector"]; got != s.AppID {
		t.Errorf("selector %s, answered %s", got, s.AppID)
	}
}

// A claim that the caller named may be there already; one made for this driver may not.
func TestClaims(t *testing.T) {
	claim := func(volume, name string) []string {
		prefix := "spark.kubernetes.driver.volumes.persistentVolumeClaim." + volume + "."
		return []string{
			"--conf", prefix + "mount.path=/" + volume, "--conf", prefix + "options.claimName=" + name,
			"--conf", prefix + "options.storageClass=standard", "--conf", prefix + "options.sizeLimit=1Gi",
		}
	}
	s := plan(t, request(slices.Concat(claim("a", "OnDemand"), claim("b", "shared"))...))
	reuse := map[string]bool{}
	for _, support := range s.Plan.Support {
		if support.Object.GetKind() == "PersistentVolumeClaim" {
			reuse[support.Object.GetName()] = support.Reuse
		} else if support.Reuse {
			t.Errorf("%s %s may be anybody's", support.Object.GetKind(), support.Object.GetName())
		}
	}
	if len(reuse) != 2 || !reuse["shared"] {
		t.Errorf("claims, and whether they may be there: %v", reuse)
	}
	// The same claim under two paths is one object.
	twice := plan(t, request(slices.Concat(claim("a", "shared"), claim("b", "shared"))...))
	claims := 0
	for _, support := range twice.Plan.Support {
		if support.Object.GetKind() == "PersistentVolumeClaim" {
			claims++
		}
	}
	if claims != 1 {
		t.Errorf("%d claims, want 1", claims)
	}
}

// The Service selects the pod, whatever labels the caller gives it.
func TestSelectorMatchesThePod(t *testing.T) {
	s := plan(t, request("--conf", "spark.kubernetes.driver.label.app.kubernetes.io/managed-by=helm", "--conf", "spark.kubernetes.driver.label.team=a"))
	labels := s.Plan.Workload.GetLabels()
	selector, _, err := unstructured.NestedStringMap(s.Plan.Support[0].Object.Object, "spec", "selector")
	if err != nil || selector["team"] != "a" {
		t.Fatalf("selector %v, %v", selector, err)
	}
	for key, value := range selector {
		if labels[key] != value {
			t.Errorf("selector has %s=%s, the pod %q", key, value, labels[key])
		}
	}
}

func TestErrors(t *testing.T) {
	cases := map[string]struct {
		request *api.SubmitRequest
		code    api.Code
		field   string
		message string
	}{
		"an option":             {request("--driver-cores", "0"), api.InvalidSparkSubmitArgs, "spark_submit_args", "--driver-cores"},
		"a conf":                {request("--conf", "spark.ui.port=x"), api.InvalidSparkSubmitArgs, "spark_submit_args", "spark.ui.port"},
		"a namespace":           {request("--conf", "spark.kubernetes.namespace=${spark.kubernetes.namespace}"), api.InvalidSparkSubmitArgs, "spark_submit_args", "ircular"},
		"a Spark version":       {&api.SubmitRequest{SubmissionID: "s", SparkSubmitArgs: []string{"x"}, SparkVersion: "2"}, api.BadRequest, "spark_version", `"2"`},
		"a template":            {&api.SubmitRequest{SubmissionID: "s", SparkSubmitArgs: request().SparkSubmitArgs, DriverPodTemplate: map[string]any{"spec": map[string]any{"containers": []any{}}}}, api.InvalidPodTemplate, "driver_pod_template.spec.containers", "spark-kubernetes-driver"},
		"an executor template":  {&api.SubmitRequest{SubmissionID: "s", SparkSubmitArgs: request().SparkSubmitArgs, ExecutorPodTemplate: []byte("{")}, api.BadRequest, "executor_pod_template", "not JSON"},
		"an illegal namespace":  {request("--conf", "spark.kubernetes.namespace=a/b"), api.InvalidSparkSubmitArgs, "spark_submit_args", "a/b"},
		"a label of ours":       {request("--conf", "spark.kubernetes.driver.label.flint.dev/id=x"), api.InvalidSparkSubmitArgs, "spark_submit_args", "spark.kubernetes.driver.label.flint.dev/id"},
		"an empty namespace":    {request("--conf", "spark.kubernetes.namespace="), api.InvalidSparkSubmitArgs, "spark_submit_args", "spark.kubernetes.namespace"},
		"a name with a newline": {request("--conf", "spark.kubernetes.driver.pod.name=a\nb"), api.InvalidSparkSubmitArgs, "spark_submit_args", "spark.kubernetes.driver.pod.name"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(tc.request, defaults(t), "", now)
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != tc.code || refused.Field != tc.field || !strings.Contains(refused.Message, tc.message) {
				t.Errorf("error %+v", err)
			}
		})
	}
}

func BenchmarkPlan(b *testing.B) {
	requests, err := operator.Requests()
	if err != nil {
		b.Fatal(err)
	}
	d := defaults(b)
	for b.Loop() {
		decoded, err := api.DecodeSubmit(requests["spark-pi-pod-template"], "")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Plan(decoded, d, "", now); err != nil {
			b.Fatal(err)
		}
	}
}

// What may be a secret is not repeated in a refusal.
func TestRefusalsHideSecrets(t *testing.T) {
	const canary = "Canary-7f3a"
	secret := []string{"--conf", "spark.my.password=" + canary}
	cases := map[string][]string{
		"java options":          {"--conf", "spark.driver.extraJavaOptions=-Xmx4g,-Djavax.net.ssl.trustStorePassword=" + canary},
		"an expanded reference": append(secret, "--conf", "spark.kubernetes.driver.pod.name=${spark.my.password}"),
		"an expanded namespace": append(secret, "--conf", "spark.kubernetes.namespace=${spark.my.password}"),
		"an expanded image":     append(secret, "--conf", "spark.kubernetes.container.image= ${spark.my.password}"),
		"an env name":           {"--conf", "spark.kubernetes.driverEnv.DB PASS\u00e9=" + canary},
		"an annotation name":    {"--conf", "spark.kubernetes.driver.annotation.a b=" + canary},
		"a label name":          {"--conf", "spark.kubernetes.driver.label.a b=" + canary},
		"a master":              {"--master", "k8s://ftp://user:" + canary + "@h"},
		"a dependency":          {"--jars", "https://u:" + canary + "@h/a b.jar?sig=" + canary},
		"a token of the driver": {"--conf", "spark.kubernetes.authenticate.submission.oauthToken=" + canary},
	}
	for name, arguments := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(request(arguments...), defaults(t), "", now)
			if err == nil {
				t.Fatal("not refused")
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A small request cannot ask for unbounded work.
func TestBounds(t *testing.T) {
	many := func(n int, each func(int) string) []string {
		var arguments []string
		for i := range n {
			arguments = append(arguments, "--conf", each(i))
		}
		return arguments
	}
	list := func(n int, each string) string { return strings.TrimSuffix(strings.Repeat(each+",", n), ",") }
	volume := func(option string) func(int) string {
		return func(i int) string {
			return "spark.kubernetes.driver.volumes.persistentVolumeClaim.v" + strconv.Itoa(i) + "." + strings.ReplaceAll(option, "#", strconv.Itoa(i))
		}
	}
	claims := slices.Concat(many(101, volume("mount.path=/m#")), many(101, volume("options.claimName=OnDemand")),
		many(101, volume("options.storageClass=s")), many(101, volume("options.sizeLimit=1Gi")))
	files := make([]string, 60_000)
	for i := range files {
		files[i] = "/f" + strconv.Itoa(i)
	}
	cases := map[string]struct {
		arguments []string
		message   string
	}{
		"local directories": {[]string{"--conf", "spark.local.dir=" + list(1001, "/d")}, "more than the 1000"},
		"volumes":           {many(1001, volume("mount.path=/m#")), "more than the 1000"},
		"claims":            {claims, "more than 100 claims"},
		// Named in part, and in time that grows with their number and not with its square.
		"local files": {[]string{"--jars", strings.Join(files, ",")}, "and 59990 more"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(request(tc.arguments...), defaults(t), "", now)
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != api.InvalidSparkSubmitArgs || !strings.Contains(refused.Message, tc.message) || len(refused.Message) > 2000 {
				t.Errorf("error %.3000v", err)
			}
		})
	}
}
