package driver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/driver"
	"flint.dev/flint/pkg/spark/version"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/operator"
)

// What package driver refuses because the API server would refuse it, against a real API server.

func TestMain(m *testing.M) { controlplane.Main(m) }

type (
	object = map[string]any
	list   = []any
)

const (
	prefix     = "a1b2c39d0f3a7c21"
	stepPrefix = "org.apache.spark.deploy.k8s.features."
	volumes    = "spark.kubernetes.driver.volumes."
	spark      = `{"spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`
)

var ids = driver.IDs{
	App:       "spark-00112233445566778899aabbccddeeff",
	Prefix:    prefix,
	ConfigMap: "ffeedd9d0f3a7c22",
	Service:   "0123459d0f3a7c23",
	LocalDir:  "5f0c8f6e-0000-4000-8000-000000000001",
}

// submission is what a driver is built from.
type submission struct {
	release  string   // 4.2.0 if empty
	options  []string // besides those that every submission has
	resource string   // a JAR if empty
	template string
	executor string
}

// confs are --conf options.
func confs(pairs ...string) []string {
	var options []string
	for _, pair := range pairs {
		options = append(options, "--conf", pair)
	}
	return options
}

// volume are the --conf options of one driver volume.
func volume(id string, options ...string) []string {
	var pairs []string
	for _, option := range options {
		pairs = append(pairs, volumes+id+"."+option)
	}
	return confs(pairs...)
}

// onDemand is a claim that is made, with more options.
func onDemand(options ...string) []string {
	return volume("persistentVolumeClaim.v", append([]string{
		"mount.path=/v", "options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=1Gi",
	}, options...)...)
}

func (s submission) argv(namespace string) []string {
	resource := s.resource
	if resource == "" {
		resource = "local:///a.jar"
	}
	argv := []string{
		"--master", "k8s://https://api:6443", "--deploy-mode", "cluster",
		"--conf", "spark.kubernetes.container.image=img:1", "--conf", "spark.kubernetes.namespace=" + namespace,
	}
	if strings.HasSuffix(resource, ".jar") {
		argv = append(argv, "--class", "C")
	}
	return append(append(argv, s.options...), resource)
}

// built are the objects of one driver, the pod first.
type built struct {
	namespace string
	objects   []object
}

func build(t *testing.T, release string, argv []string, driverTemplate, executorTemplate []byte) (built, error) {
	t.Helper()
	if release == "" {
		release = "4.2.0"
	}
	v, err := version.Parse(release)
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := args.Parse(argv, v)
	if err != nil {
		return built{}, err
	}
	request := driver.Request{Arguments: arguments, Version: v, IDs: ids, User: "svc", SubmitTime: time.Unix(1796001789, 0)}
	if driverTemplate != nil {
		if err := kjson.Unmarshal(driverTemplate, &request.DriverTemplate); err != nil {
			t.Fatal(err)
		}
	}
	request.ExecutorTemplate = executorTemplate
	o, err := driver.Build(request)
	if err != nil {
		return built{}, err
	}
	b := built{objects: []object{o.Pod.Object}}
	for _, r := range o.Resources {
		b.objects = append(b.objects, r.Object)
	}
	b.namespace = o.Resources[len(o.Resources)-1].GetNamespace()
	return b, nil
}

// build puts v where the submission says "{v}".
func (s submission) build(t *testing.T, namespace, v string) (built, error) {
	t.Helper()
	bytesOf := func(text string) []byte {
		if text == "" {
			return nil
		}
		return []byte(fill(text, v))
	}
	argv := s.argv(namespace)
	for i, a := range argv {
		argv[i] = fill(a, v)
	}
	return build(t, s.release, argv, bytesOf(s.template), bytesOf(s.executor))
}

func fill(text, v string) string { return strings.ReplaceAll(text, "{v}", v) }

// kind is the first object of that kind.
func (b built) kind(t *testing.T, kind string) object {
	t.Helper()
	i := slices.IndexFunc(b.objects, func(o object) bool { return o["kind"] == kind })
	if i < 0 {
		t.Fatalf("no %s was built", kind)
	}
	return b.objects[i]
}

// server is the API server as one test sees it.
type server struct {
	*controlplane.ControlPlane
	ctx       context.Context
	namespace string
}

func newServer(t *testing.T) server {
	t.Helper()
	cp := controlplane.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return server{cp, ctx, cp.NewNamespace(t)}
}

var paths = map[string]string{
	"Pod":                   "/api/v1/namespaces/%s/pods",
	"Service":               "/api/v1/namespaces/%s/services",
	"Secret":                "/api/v1/namespaces/%s/secrets",
	"ConfigMap":             "/api/v1/namespaces/%s/configmaps",
	"PersistentVolumeClaim": "/api/v1/namespaces/%s/persistentvolumeclaims",
	"ServiceAccount":        "/api/v1/namespaces/%s/serviceaccounts",
	"NetworkPolicy":         "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies",
	"Namespace":             "/api/v1/namespaces",
}

// post sends the object as it is; unknown fields are dropped, as when Flint creates.
func (s server) post(t *testing.T, kind, namespace string, o object, parameters ...string) error {
	t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	path, known := paths[kind]
	if !known {
		t.Fatalf("no path for a %s", kind)
	}
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, namespace)
	}
	request := s.Client().CoreV1().RESTClient().Post().AbsPath(path).
		SetHeader("Content-Type", "application/json").Param("fieldValidation", metav1.FieldValidationIgnore).
		WarningHandler(rest.NoWarnings{}).Body(body)
	for _, p := range parameters {
		request.Param(p, metav1.DryRunAll)
	}
	return request.Do(s.ctx).Error()
}

// dryRun is the parameter that makes post create nothing.
const dryRun = "dryRun"

// accepts posts all objects.
func (s server) accepts(t *testing.T, b built, parameters ...string) {
	t.Helper()
	for _, o := range b.objects {
		if err := s.post(t, o["kind"].(string), b.namespace, o, parameters...); err != nil {
			t.Errorf("the API server refuses the %s: %.2000v", o["kind"], err)
		}
	}
}

// put sets the value at the path, whose parts are separated by "|"; the part "+" appends to a list.
func put(t *testing.T, o object, path string, value any) {
	t.Helper()
	parts := strings.Split(path, "|")
	var set func(v any, parts []string) any
	set = func(v any, parts []string) any {
		if len(parts) == 0 {
			return value
		}
		if l, ok := v.(list); ok {
			if parts[0] == "+" {
				return append(l, set(nil, parts[1:]))
			}
			i, err := strconv.Atoi(parts[0])
			if err != nil || i >= len(l) {
				t.Fatalf("%s: no item %s", path, parts[0])
			}
			l[i] = set(l[i], parts[1:])
			return l
		}
		m, ok := v.(object)
		if !ok {
			m = object{}
		}
		m[parts[0]] = set(m[parts[0]], parts[1:])
		return m
	}
	set(o, parts)
}

// rule is one thing that package driver refuses because the API server would. "{v}" stands for
// the value in every text.
type rule struct {
	submission
	legal, illegal []string
	// refused is the key, or the field of the template, that the refusal names.
	refused string
	// kind, at and value put the illegal value into what the first legal one gave; value is v itself if nil.
	kind, at string
	value    func(v string) any
	// field is what the API server names. Of JSON that it cannot read it names none, but says this.
	field, says string
	// needs is the kind of an object that is named by the value and must be there: Namespace or ServiceAccount.
	needs string
}

func number(v string) any {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func always(value any) func(string) any {
	return func(string) any { return runtime.DeepCopyJSONValue(value) }
}

func suffixed(suffix string) func(string) any { return func(v string) any { return v + suffix } }

func x(n int) string { return strings.Repeat("x", n) }

const quantities = "quantities must match the regular expression"

// What is legal and what is not, for names that many keys have.
var (
	labelValues = [2][]string{{"", x(62), x(63), "1", "A.b_c-D"}, {x(64), "a b", "-a", "a-", "a/b", "ü"}}
	labelKeys   = [2][]string{
		{x(62), x(63), "A_b.c-d", "a.b/c", x(252) + "/c", x(253) + "/c", x(253) + "/" + x(63)},
		{x(64), "", "a b", "a/b/c", "/c", "c/", "-a", "A.b/c", "a_b/c", x(254) + "/c", x(253) + "/" + x(64)},
	}
	annotationKeys = [2][]string{
		{x(62), x(63), "A_b.c-d", "a.b/c", "A.b/c", x(252) + "/c", x(253) + "/c", x(253) + "/" + x(63)},
		{x(64), "", "a b", "a/b/c", "/c", "c/", "-a", "a_b/c", x(254) + "/c", x(253) + "/" + x(64)},
	}
	envNames    = [2][]string{{"A", "a b", "1", "~!.-'\"", x(62), x(63), x(64), x(252), x(253), x(254)}, {"", "a\tb", "a\x7f", "Ü"}}
	volumeNames = [2][]string{{"v", "0", "a-b", x(62), x(63)}, {x(64), "", "V", "a_b", "-a", "a-"}}
	objectNames = [2][]string{{"n", "0", "a-b.c", x(252), x(253)}, {x(254), "", "N", "a_b", "-a", "a-", "a..b", "a/b"}}
	cpus        = [2][]string{{"2", "1500m", " 2 ", "2.", "+2", "2e0", "1Ki"}, {"", "abc", "1,5", "1 5", "-1", "-1m", "2x"}}
	images      = [2][]string{{"i", "a b", "Ü", x(300)}, {"", " i", "i ", "\ti", "i\n", "\u00a0i", " "}}
)

func rules() map[string]rule {
	const driverLabel, driverAnnotation = "spark.kubernetes.driver.label.", "spark.kubernetes.driver.annotation."
	const serviceLabel, serviceAnnotation = "spark.kubernetes.driver.service.label.", "spark.kubernetes.driver.service.annotation."
	claim := volumes + "persistentVolumeClaim.v."
	driverContainer := "spec|containers|0|"
	all := map[string]rule{
		"cpu request": {
			submission: submission{options: confs("spark.kubernetes.driver.request.cores={v}")}, legal: append(cpus[0], "0", "0.0001"), illegal: cpus[1],
			refused: "spark.kubernetes.driver.request.cores", kind: "Pod", at: driverContainer + "resources|requests|cpu",
			field: "spec.containers[0].resources.requests[cpu]", says: quantities,
		},
		"cpu limit": {
			submission: submission{options: confs("spark.kubernetes.driver.limit.cores={v}")}, legal: append(cpus[0], "1"), illegal: cpus[1],
			refused: "spark.kubernetes.driver.limit.cores", kind: "Pod", at: driverContainer + "resources|limits|cpu",
			field: "spec.containers[0].resources.limits[cpu]", says: quantities,
		},
		"cpu limit below the request": {
			submission: submission{options: confs("spark.kubernetes.driver.request.cores=1500m", "spark.kubernetes.driver.limit.cores={v}")},
			legal:      []string{"1500m", "1.5", "2"}, illegal: []string{"1499m", "1", "0"},
			refused: "spark.kubernetes.driver.limit.cores", kind: "Pod", at: driverContainer + "resources|limits|cpu",
			field: "spec.containers[0].resources.requests",
		},
		"cpu limit of the template below the request": {
			submission: submission{template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": {v}}}}]}}`},
			legal:      []string{"1", `"1"`, `"1000m"`, "1.5"}, illegal: []string{"0", "0.5", `"999m"`, `"0"`},
			refused: "spec.containers[0].resources.limits.cpu", kind: "Pod", at: driverContainer + "resources|limits|cpu",
			value: func(v string) any { return json.RawMessage(v) }, field: "spec.containers[0].resources.requests",
		},
		"memory": {
			submission: submission{options: confs("spark.driver.memoryOverhead={v}")}, legal: []string{"-1023", "-1024"}, illegal: []string{"-1025"},
			refused: "spark.driver.memory", kind: "Pod", at: driverContainer + "resources|requests|memory", value: always("-1Mi"),
			field: "spec.containers[0].resources.requests[memory]",
		},
		"size of an emptyDir": {
			submission: submission{options: volume("emptyDir.v", "mount.path=/v", "options.sizeLimit={v}")},
			legal:      []string{"1Gi", "1024", "0Gi", " 1Ki"}, illegal: []string{"1gib", "-1Gi", "1 Gi"},
			refused: volumes + "emptyDir.v.options.sizeLimit", kind: "Pod", at: "spec|volumes|0|emptyDir|sizeLimit", field: "spec.volumes[0].emptyDir.sizeLimit", says: quantities,
		},
		"size of a claim": {
			submission: submission{options: onDemand("options.sizeLimit={v}")},
			legal:      []string{"1Gi", "1024", "1m", " 1Ki"}, illegal: []string{"0Gi", "0m", "1gib", "-1Gi"},
			refused: claim + "options.sizeLimit", kind: "PersistentVolumeClaim", at: "spec|resources|requests|storage", field: "spec.resources[storage]", says: quantities,
		},
		"name of a claim": {
			submission: submission{options: onDemand("options.claimName={v}")}, legal: objectNames[0], illegal: objectNames[1],
			refused: claim + "options.claimName", kind: "PersistentVolumeClaim", at: "metadata|name", field: "metadata.name",
		},
		"name of the pod": {
			submission: submission{options: confs("spark.kubernetes.driver.pod.name={v}")}, legal: objectNames[0], illegal: objectNames[1],
			refused: "spark.kubernetes.driver.pod.name", kind: "Pod", at: "metadata|name", field: "metadata.name",
		},
		"name of the service account": {
			submission: submission{options: confs("spark.kubernetes.authenticate.driver.serviceAccountName={v}")},
			legal:      append(slices.Clone(objectNames[0]), ""), illegal: slices.DeleteFunc(slices.Clone(objectNames[1]), func(v string) bool { return v == "" }),
			refused: "spark.kubernetes.authenticate.driver.serviceAccountName", needs: "ServiceAccount", field: "metadata.name",
		},
		"name of a service account that a token replaces": {
			submission: submission{options: confs("spark.kubernetes.authenticate.driver.oauthToken=t", "spark.kubernetes.authenticate.driver.serviceAccountName={v}")},
			legal:      []string{"sa", "a_b"},
		},
		"name of the namespace": {
			submission: submission{options: confs("spark.kubernetes.namespace={v}")}, legal: []string{"n", x(62), x(63)}, illegal: []string{x(64), "", "N", "a.b", "a_b", "-a"},
			refused: "spark.kubernetes.namespace", needs: "Namespace", field: "metadata.name",
		},
		"derived name of the Pod": {
			submission: submission{options: []string{"--name", "{v}"}}, legal: []string{x(228), x(229)}, illegal: []string{x(230)},
			refused: "spark.app.name", kind: "Pod", at: "metadata|name", value: suffixed("-" + prefix + "-driver"), field: "metadata.name",
		},
		"derived name of the NetworkPolicy": {
			submission: submission{options: append([]string{"--name", "{v}"}, confs("spark.kubernetes.driver.pod.name=p")...)}, legal: []string{x(228), x(229)}, illegal: []string{x(230)},
			refused: "spark.app.name", kind: "NetworkPolicy", at: "metadata|name", value: suffixed("-" + prefix + "-policy"), field: "metadata.name",
		},
		"derived name of the executor template's ConfigMap": {
			submission: submission{options: []string{"--name", "{v}"}, executor: "{}"}, legal: []string{x(211), x(212)}, illegal: []string{x(213)},
			refused: "spark.app.name", kind: "ConfigMap", at: "metadata|name", value: suffixed("-" + prefix + "-driver-podspec-conf-map"), field: "metadata.name",
		},
		"derived name of the Secret": {
			submission: submission{options: append([]string{"--name", "{v}"}, confs("spark.kubernetes.authenticate.driver.oauthToken=t")...)}, legal: []string{x(212), x(213)}, illegal: []string{x(214)},
			refused: "spark.app.name", kind: "Secret", at: "metadata|name", value: suffixed("-" + prefix + "-kubernetes-credentials"), field: "metadata.name",
		},
		"derived name of a claim": {
			submission: submission{options: append([]string{"--name", "{v}"}, onDemand()...)}, legal: []string{x(222), x(223)}, illegal: []string{x(224)},
			refused: claim + "options.claimName", kind: "PersistentVolumeClaim", at: "metadata|name", value: suffixed("-" + prefix + "-driver-pvc-0"), field: "metadata.name",
		},
		"image": {
			submission: submission{options: confs("spark.kubernetes.container.image={v}")}, legal: images[0], illegal: images[1],
			refused: "spark.kubernetes.container.image", kind: "Pod", at: driverContainer + "image", field: "spec.containers[0].image",
		},
		"image of the driver": {
			submission: submission{options: confs("spark.kubernetes.driver.container.image={v}")}, legal: images[0], illegal: images[1],
			refused: "spark.kubernetes.driver.container.image", kind: "Pod", at: driverContainer + "image", field: "spec.containers[0].image",
		},
		"device": {
			submission: submission{options: confs("spark.driver.resource.{v}.amount=1", "spark.driver.resource.{v}.vendor=nvidia.com")},
			legal:      []string{"gpu", "A_b-c", x(62), x(63)}, illegal: []string{x(64), "a b", "-a", "a/b", ""},
			refused: "spark.driver.resource.{v}.vendor", kind: "Pod", at: driverContainer + "resources|limits|nvidia.com/{v}", value: always("1"),
			field: "spec.containers[0].resources.limits[nvidia.com/{v}]",
		},
		"vendor of a device": {
			submission: submission{options: confs("spark.driver.resource.gpu.amount=1", "spark.driver.resource.gpu.vendor={v}")},
			legal:      []string{"nvidia.com", "v", x(243), x(244)}, illegal: []string{x(254), "a b", "", "V", "a_b", "a/b"},
			refused: "spark.driver.resource.gpu.vendor", kind: "Pod", at: driverContainer + "resources|limits|{v}/gpu", value: always("1"),
			field: "spec.containers[0].resources.limits[{v}/gpu]",
		},
		"environment variable": {
			submission: submission{options: confs("spark.kubernetes.driverEnv.{v}=1")}, legal: envNames[0], illegal: envNames[1],
			refused: "spark.kubernetes.driverEnv.{v}", kind: "Pod", at: driverContainer + "env|2|name", field: "spec.containers[0].env[2].name",
		},
		"environment variable of a Secret": {
			submission: submission{options: confs("spark.kubernetes.driver.secretKeyRef.{v}=s:k")}, legal: envNames[0], illegal: envNames[1],
			refused: "spark.kubernetes.driver.secretKeyRef.{v}", kind: "Pod", at: driverContainer + "env|3|name", field: "spec.containers[0].env[3].name",
		},
		"volume name": {
			submission: submission{options: volume("emptyDir.{v}", "mount.path=/v")}, legal: volumeNames[0], illegal: volumeNames[1],
			refused: volumes + "emptyDir.{v}.mount.path", kind: "Pod", at: "spec|volumes|0|name", field: "spec.volumes[0].name",
		},
		"volume name of a Secret": {
			submission: submission{options: confs("spark.kubernetes.driver.secrets.{v}=/v")}, legal: []string{"s", x(55), x(56)}, illegal: []string{x(57), "", "S", "a.b", "a_b"},
			refused: "spark.kubernetes.driver.secrets.{v}", kind: "Pod", at: "spec|volumes|0|name", value: suffixed("-volume"), field: "spec.volumes[0].name",
		},
		"volume name of another type": {
			submission: submission{options: append(volume("emptyDir.v", "mount.path=/v"), volume("hostPath.{v}", "mount.path=/w", "options.path=/")...)},
			legal:      []string{"w"}, illegal: []string{"v"},
			refused: volumes + "hostPath.{v}.mount.path", kind: "Pod", at: "spec|volumes|1|name", field: "spec.volumes[1].name",
		},
		"volume name that a Secret has": {
			submission: submission{options: append(volume("emptyDir.{v}", "mount.path=/v"), confs("spark.kubernetes.driver.secrets.s=/s")...)},
			legal:      []string{"s"}, illegal: []string{"s-volume"},
			refused: volumes + "emptyDir.{v}.mount.path", kind: "Pod", at: "spec|volumes|1|name", field: "spec.volumes[1].name",
		},
		"volume name that Spark has": {
			submission: submission{options: volume("emptyDir.{v}", "mount.path=/v")}, legal: []string{"v"}, illegal: []string{"spark-conf-volume-driver"},
			refused: volumes + "emptyDir.{v}.mount.path", kind: "Pod", at: "spec|volumes|+", value: always(object{"name": "spark-conf-volume-driver", "emptyDir": object{}}),
			field: "spec.volumes[3].name",
		},
		"volume name of the template": {
			submission: submission{
				template: `{"spec": {"volumes": [{"name": "{v}", "emptyDir": {}}], "containers": [{"name": "spark-kubernetes-driver"}]}}`, options: volume("emptyDir.v", "mount.path=/v"),
			},
			legal: []string{"w"}, illegal: []string{"v", "spark-local-dir-1", "spark-conf-volume-driver"},
			refused: "spec.volumes", kind: "Pod", at: "spec|volumes|+", value: func(v string) any { return object{"name": v, "emptyDir": object{}} }, field: "spec.volumes[4].name",
		},
		"mount path": {
			submission: submission{options: append(volume("emptyDir.a", "mount.path=/a"), volume("emptyDir.v", "mount.path={v}")...)},
			legal:      []string{"/v", "/a/", "a", "/a/../a", "/A", " ", "/a:b"}, illegal: []string{"", "/a"},
			refused: volumes + "emptyDir.v.mount.path", kind: "Pod", at: driverContainer + "volumeMounts|1|mountPath", field: "spec.containers[0].volumeMounts[1].mountPath",
		},
		"mount path of a Secret": {
			submission: submission{options: confs("spark.kubernetes.driver.secrets.a=/a", "spark.kubernetes.driver.secrets.s={v}")},
			legal:      []string{"/s", "/a/", "s"}, illegal: []string{"", "/a"},
			refused: "spark.kubernetes.driver.secrets.s", kind: "Pod", at: driverContainer + "volumeMounts|1|mountPath", field: "spec.containers[0].volumeMounts[1].mountPath",
		},
		"mount path that Spark has": {
			submission: submission{
				options:  append(volume("emptyDir.v", "mount.path={v}"), confs("spark.kubernetes.kerberos.krb5.configMapName=k", "spark.kubernetes.hadoop.configMapName=h")...),
				executor: "{}",
			},
			legal: []string{"/v", "/opt/spark"}, illegal: []string{"/etc/krb5.conf", "/opt/hadoop/conf", "/opt/spark/pod-template", "/opt/spark/conf"},
			refused: volumes + "emptyDir.v.mount.path", kind: "Pod", at: driverContainer + "volumeMounts|+",
			value: func(v string) any { return object{"name": "v", "mountPath": v} }, field: "spec.containers[0].volumeMounts[6].mountPath",
		},
		"mount path of the template": {
			submission: submission{
				template: `{"spec": {"volumes": [{"name": "t", "emptyDir": {}}], "containers": [{"name": "other", "image": "i", "volumeMounts": [{"name": "t", "mountPath": "/v"}]},
					{"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "t", "mountPath": "{v}"}]}]}}`,
				options: volume("emptyDir.v", "mount.path=/v"),
			},
			legal: []string{"/t"}, illegal: []string{"/v", "/opt/spark/conf"},
			refused: "spec.containers[1].volumeMounts", kind: "Pod", at: "spec|containers|1|volumeMounts|+",
			value: func(v string) any { return object{"name": "t", "mountPath": v} }, field: "spec.containers[1].volumeMounts[4].mountPath",
		},
		"local directory": {
			submission: submission{options: confs("spark.local.dir=/a,{v},/c")}, legal: []string{"/b", " /a", "b"}, illegal: []string{"", "/a"},
			refused: "spark.local.dir", kind: "Pod", at: driverContainer + "volumeMounts|1|mountPath", field: "spec.containers[0].volumeMounts[1].mountPath",
		},
		"name of a port of the template": {
			submission: submission{template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "ports": [{"name": "{v}", "containerPort": 1}]}]}}`},
			legal:      []string{"mine", "driver-rpc-por", "a23456789012345"}, illegal: []string{"driver-rpc-port", "blockmanager", "spark-ui", "spark-connect"},
			refused: "spec.containers[0].ports", kind: "Pod", at: driverContainer + "ports|+",
			value: func(v string) any { return object{"name": v, "containerPort": int64(2), "protocol": "TCP"} }, field: "spec.containers[0].ports[5].name",
		},
		"two ports with one number": {
			submission: submission{options: confs("spark.ui.port={v}")}, legal: []string{"4041"}, illegal: []string{"7078", "7079"},
			refused: "spark.ui.port", kind: "Service", at: "spec|ports|2|port", value: number, field: "spec.ports[2]",
		},
		"the last two ports with one number": {
			submission: submission{options: confs("spark.connect.grpc.binding.port={v}")}, legal: []string{"15003"}, illegal: []string{"4040"},
			refused: "spark.connect.grpc.binding.port", kind: "Service", at: "spec|ports|3|port", value: number, field: "spec.ports[3]",
		},
		"left out step": {
			submission: submission{options: confs("spark.kubernetes.driver.pod.excludedFeatureSteps=" + stepPrefix + "{v}FeatureStep")},
			legal:      []string{"LocalDirs", "DriverService", "NetworkPolicy", "DriverCommand"}, illegal: []string{"BasicDriver"},
			refused: "spark.kubernetes.driver.pod.excludedFeatureSteps", kind: "Pod", at: "metadata|name", value: always(nil), field: "metadata.name",
		},
		"executor template": {
			submission: submission{executor: "{v}"}, legal: []string{x(1<<20 - 1), x(1 << 20)}, illegal: []string{x(1<<20 + 1)},
			refused: "spark.kubernetes.executor.podTemplateFile", kind: "ConfigMap", at: "data|podspec-configmap-key", field: "[]", // that is how it names all of a ConfigMap
		},
		// Values that never reach the API server.
		"node selector that the driver's own replaces": {
			submission: submission{options: confs("spark.kubernetes.node.selector.a={v}", "spark.kubernetes.driver.node.selector.a=b")}, legal: []string{"b", "b c"},
		},
		"label of a claim that Spark's replaces": {
			submission: submission{options: onDemand("label.spark-app-selector={v}")}, legal: []string{"b", "b c"},
		},
	}
	// Types of what Spark adds to in a template. A null counts as absence, on both sides.
	inMetadata, inSpec, inContainer := `{"metadata": {%s}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
		`{"spec": {%s, "containers": [{"name": "spark-kubernetes-driver"}]}}`, `{"spec": {"containers": [{"name": "spark-kubernetes-driver", %s}]}}`
	var (
		anObject, noObject = []string{"{}", "null"}, []string{"[]", `"x"`, "1", "true"}
		aList, noList      = []string{"[]", "null"}, []string{"{}", `"x"`, "1", "true"}
		aText, noText      = []string{`"x"`, `""`, "null"}, []string{"{}", "[]", "1", "true"}
		noItem             = []string{`"x"`, "1", "[]"}
	)
	for field, c := range map[string]struct {
		template, at   string
		legal, illegal []string
	}{
		"kind":                            {`{"kind": {v}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`, "kind", []string{`"Pod"`, "null"}, []string{`"Deployment"`, `"PodTemplate"`, `"pod"`, "1", "{}"}},
		"metadata":                        {`{"metadata": {v}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`, "metadata", anObject, noObject},
		"metadata.namespace":              {fmt.Sprintf(inMetadata, `"namespace": {v}`), "metadata|namespace", aText, noText},
		"metadata.labels":                 {fmt.Sprintf(inMetadata, `"labels": {v}`), "metadata|labels", anObject, noObject},
		`metadata.labels["a"]`:            {fmt.Sprintf(inMetadata, `"labels": {"a": {v}}`), "metadata|labels|a", aText, noText},
		"metadata.annotations":            {fmt.Sprintf(inMetadata, `"annotations": {v}`), "metadata|annotations", anObject, noObject},
		`metadata.annotations["a"]`:       {fmt.Sprintf(inMetadata, `"annotations": {"a": {v}}`), "metadata|annotations|a", aText, noText},
		"spec":                            {`{"spec": {v}}`, "spec", []string{`{"containers": [{"name": "spark-kubernetes-driver"}]}`}, append([]string{"null"}, noObject...)},
		"spec.nodeSelector":               {fmt.Sprintf(inSpec, `"nodeSelector": {v}`), "spec|nodeSelector", anObject, noObject},
		`spec.nodeSelector["a"]`:          {fmt.Sprintf(inSpec, `"nodeSelector": {"a": {v}}`), "spec|nodeSelector|a", aText, noText},
		"spec.imagePullSecrets":           {fmt.Sprintf(inSpec, `"imagePullSecrets": {v}`), "spec|imagePullSecrets", aList, noList},
		"spec.imagePullSecrets[0]":        {fmt.Sprintf(inSpec, `"imagePullSecrets": [{v}]`), "", []string{`{"name": "s"}`, "{}", "null"}, nil},
		"spec.schedulingGates":            {fmt.Sprintf(inSpec, `"schedulingGates": {v}`), "spec|schedulingGates", aList, noList},
		"spec.schedulingGates[0]":         {fmt.Sprintf(inSpec, `"schedulingGates": [{v}]`), "spec|schedulingGates", []string{`{"name": "a.b/c"}`}, append([]string{"null"}, noItem...)},
		"spec.volumes":                    {fmt.Sprintf(inSpec, `"volumes": {v}`), "spec|volumes", aList, noList},
		"spec.volumes[0]":                 {fmt.Sprintf(inSpec, `"volumes": [{v}]`), "spec|volumes", []string{`{"name": "a"}`}, append([]string{"null"}, noItem...)},
		"spec.containers":                 {`{"spec": {"containers": {v}}}`, "spec|containers", []string{`[{"name": "spark-kubernetes-driver"}]`}, noList},
		"spec.containers[0]":              {`{"spec": {"containers": [{v}, {"name": "spark-kubernetes-driver"}]}}`, "spec|containers", []string{`{"name": "a", "image": "i"}`}, append([]string{"null"}, noItem...)},
		"spec.containers[0].name":         {`{"spec": {"containers": [{"image": "i", "name": {v}}, {"name": "spark-kubernetes-driver"}]}}`, "spec|containers|0|name", []string{`"a"`}, noText},
		"spec.containers[0].args":         {fmt.Sprintf(inContainer, `"args": {v}`), "spec|containers|0|args", aList, noList},
		"spec.containers[0].args[0]":      {fmt.Sprintf(inContainer, `"args": [{v}]`), "spec|containers|0|args", aText, noText},
		"spec.containers[0].env":          {fmt.Sprintf(inContainer, `"env": {v}`), "spec|containers|0|env", aList, noList},
		"spec.containers[0].env[0]":       {fmt.Sprintf(inContainer, `"env": [{v}]`), "spec|containers|0|env", []string{`{"name": "A"}`}, append([]string{"null"}, noItem...)},
		"spec.containers[0].ports":        {fmt.Sprintf(inContainer, `"ports": {v}`), "spec|containers|0|ports", aList, noList},
		"spec.containers[0].ports[0]":     {fmt.Sprintf(inContainer, `"ports": [{v}]`), "spec|containers|0|ports", []string{`{"containerPort": 1}`}, append([]string{"null"}, noItem...)},
		"spec.containers[0].volumeMounts": {fmt.Sprintf(inContainer, `"volumeMounts": {v}`), "spec|containers|0|volumeMounts", aList, noList},
		"spec.containers[0].volumeMounts[0]": {
			`{"spec": {"volumes": [{"name": "a"}], "containers": [{"name": "spark-kubernetes-driver", "volumeMounts": [{v}]}]}}`,
			"spec|containers|0|volumeMounts", []string{`{"name": "a", "mountPath": "/a"}`}, append([]string{"null"}, noItem...),
		},
		"spec.containers[0].resources":          {fmt.Sprintf(inContainer, `"resources": {v}`), "spec|containers|0|resources", anObject, noObject},
		"spec.containers[0].resources.limits":   {fmt.Sprintf(inContainer, `"resources": {"limits": {v}}`), "spec|containers|0|resources|limits", anObject, noObject},
		"spec.containers[0].resources.requests": {fmt.Sprintf(inContainer, `"resources": {"requests": {v}}`), "spec|containers|0|resources|requests", anObject, noObject},
	} {
		value, named := func(v string) any { return json.RawMessage(v) }, "spec.containers"
		if strings.HasSuffix(field, "[0]") { // the list is replaced by one of the item alone
			value = func(v string) any { return list{json.RawMessage(v)} }
			switch at := c.at[strings.LastIndex(c.at, "|")+1:]; at { // what the API server misses in a null
			case "ports":
				named = field + ".containerPort"
			case "schedulingGates":
				named = field
			default:
				named = field + ".name"
			}
		}
		says := "unmarshal"
		if field == "kind" {
			says = "Pod"
		}
		all["type of "+field] = rule{
			submission: submission{template: c.template}, legal: c.legal, illegal: c.illegal, refused: field, kind: "Pod", at: c.at, value: value, field: named, says: says,
		}
	}
	// Labels, and annotations likewise.
	for name, c := range map[string]struct {
		key, kind, at, field string
		also                 []string
		values               bool
		keys                 [2][]string
	}{
		"label":                                {driverLabel, "Pod", "metadata|labels|", "metadata.labels", nil, true, labelKeys},
		"label in the selector of the Service": {driverLabel, "Service", "spec|selector|", "spec.selector", nil, true, labelKeys},
		"label of the Service":                 {serviceLabel, "Service", "metadata|labels|", "metadata.labels", nil, true, labelKeys},
		"label of a claim":                     {claim + "label.", "PersistentVolumeClaim", "metadata|labels|", "metadata.labels", onDemand(), true, labelKeys},
		"node selector":                        {"spark.kubernetes.node.selector.", "Pod", "spec|nodeSelector|", "spec.nodeSelector", nil, true, labelKeys},
		"node selector of the driver":          {"spark.kubernetes.driver.node.selector.", "Pod", "spec|nodeSelector|", "spec.nodeSelector", nil, true, labelKeys},
		"annotation":                           {driverAnnotation, "Pod", "metadata|annotations|", "metadata.annotations", nil, false, annotationKeys},
		"annotation of the Service":            {serviceAnnotation, "Service", "metadata|annotations|", "metadata.annotations", nil, false, annotationKeys},
		"annotation of a claim":                {claim + "annotation.", "PersistentVolumeClaim", "metadata|annotations|", "metadata.annotations", onDemand(), false, annotationKeys},
	} {
		all["key of a "+name] = rule{
			submission: submission{options: append(slices.Clone(c.also), confs(c.key+"{v}=y")...)}, legal: c.keys[0], illegal: c.keys[1],
			refused: c.key + "{v}", kind: c.kind, at: c.at + "{v}", value: always("y"), field: c.field,
		}
		r := rule{
			submission: submission{options: append(slices.Clone(c.also), confs(c.key+"a={v}")...)}, legal: labelValues[0], illegal: labelValues[1],
			refused: c.key + "a", kind: c.kind, at: c.at + "a", field: c.field,
		}
		if !c.values { // anything is legal
			r.legal, r.illegal = append(slices.Clone(r.legal), r.illegal...), nil
		}
		all["value of a "+name] = r
	}
	// Ports, in the container and in the Service.
	for i, p := range []struct{ key, container, service string }{
		{"spark.driver.port", "0", "0"},
		{"spark.driver.blockManager.port", "1", "1"},
		{"spark.blockManager.port", "1", ""},
		{"spark.ui.port", "2", "2"},
		{"spark.connect.grpc.binding.port", "3", "3"},
	} {
		r := rule{
			submission: submission{options: confs(p.key + "={v}")}, legal: []string{"1", "65535"}, illegal: []string{"0", "-1", "65536"}, refused: p.key,
			kind: "Pod", at: driverContainer + "ports|" + p.container + "|containerPort", value: number, field: "spec.containers[0].ports[" + p.container + "].containerPort",
		}
		if p.service == "" { // two of the container's ports may have one number
			r.legal = append(r.legal, "7078", "4040")
		}
		all[fmt.Sprintf("port %d in the container", i)] = r
		if p.service != "" {
			r.kind, r.at, r.field = "Service", "spec|ports|"+p.service+"|port", "spec.ports["+p.service+"].port"
			all[fmt.Sprintf("port %d in the Service", i)] = r
		}
	}
	return all
}

// refuses wants Flint's refusal, and that it names what is to blame.
func refuses(t *testing.T, err error, name string) {
	t.Helper()
	var key *conf.Error
	var field *driver.TemplateError
	var got string
	switch {
	case errors.As(err, &key):
		got = key.Name
	case errors.As(err, &field):
		got = field.Field
	default:
		t.Errorf("Flint's answer is %v, want a refusal of %s", err, name)
		return
	}
	if got != name {
		t.Errorf("Flint blames %.300q, want %.300q: %.1000v", got, name, err)
	}
}

// refused wants the API server's refusal: it names the field, or says what it cannot read.
func refused(t *testing.T, err error, field, says string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || status.ErrStatus.Code < 400 || status.ErrStatus.Code > 499 {
		t.Errorf("the API server's answer is %.2000v, want a refusal of %.300s", err, field)
		return
	}
	if apierrors.IsBadRequest(err) && says != "" {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the API server says %.2000v, want %q", err, says)
		}
		return
	}
	var fields []string
	if status.ErrStatus.Details != nil {
		for _, cause := range status.ErrStatus.Details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	if !slices.Contains(fields, field) {
		t.Errorf("the API server blames %.1000q, want %.300q: %.2000v", fields, field, err)
	}
}

// TestAPIServerRules: what Flint takes at the boundary of a rule, the API server takes; what Flint
// refuses, the API server refuses.
func TestAPIServerRules(t *testing.T) {
	controlplane.Shared(t)
	for name, r := range rules() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			for _, v := range r.legal {
				b, err := r.build(t, s.namespace, v)
				if err != nil {
					t.Errorf("%.300q: Flint refuses what is legal: %.1000v", v, err)
					continue
				}
				s.provide(t, r.needs, v)
				s.accepts(t, b, dryRun)
			}
			for _, v := range r.illegal {
				_, err := r.build(t, s.namespace, v)
				refuses(t, err, fill(r.refused, v))
				if r.needs != "" {
					o := object{"apiVersion": "v1", "kind": r.needs, "metadata": object{"name": v}}
					refused(t, s.post(t, r.needs, s.namespace, o, dryRun), r.field, "")
					continue
				}
				b, err := r.build(t, s.namespace, r.legal[0])
				if err != nil {
					t.Fatal(err)
				}
				o := b.kind(t, r.kind)
				if r.value == nil {
					put(t, o, fill(r.at, v), v)
				} else {
					put(t, o, fill(r.at, v), r.value(v))
				}
				refused(t, s.post(t, r.kind, s.namespace, o, dryRun), fill(r.field, v), r.says)
			}
		})
	}
}

// provide creates the object that the value names.
func (s server) provide(t *testing.T, kind, name string) {
	t.Helper()
	var err error
	switch {
	case kind == "Namespace":
		err = s.Namespace(s.ctx, name)
	case kind == "ServiceAccount" && name != "":
		err = s.ServiceAccount(s.ctx, s.namespace, name)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) { // of an earlier run in the same control plane
		t.Fatal(err)
	}
}

// TestAPIServerLeaves: what Flint does not judge, at the boundary: it builds both, the API server takes the first.
func TestAPIServerLeaves(t *testing.T) {
	controlplane.Shared(t)
	cases := map[string]struct {
		submission
		legal, illegal, field string
	}{
		"name of a port of the template": {
			submission: submission{template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "ports": [{"name": "{v}", "containerPort": 1}]}]}}`},
			legal:      "a23456789012345", illegal: "a234567890123456", field: "spec.containers[0].ports[0].name",
		},
		"label of the template": {
			submission: submission{template: `{"metadata": {"labels": {"a": "{v}"}}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`},
			legal:      x(63), illegal: x(64), field: "metadata.labels",
		},
		"annotation of the template": {
			submission: submission{template: `{"metadata": {"annotations": {"{v}": "y"}}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`},
			legal:      x(253) + "/" + x(63), illegal: x(254) + "/c", field: "metadata.annotations",
		},
		"volume name of the template": {
			submission: submission{template: `{"spec": {"volumes": [{"name": "{v}", "emptyDir": {}}], "containers": [{"name": "spark-kubernetes-driver"}]}}`},
			legal:      x(63), illegal: x(64), field: "spec.volumes[0].name",
		},
		"container name of the template": {
			submission: submission{template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver"}, {"name": "{v}", "image": "i"}]}}`},
			legal:      x(63), illegal: x(64), field: "spec.containers[0].name",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b, err := c.build(t, s.namespace, c.legal)
			if err != nil {
				t.Fatal(err)
			}
			s.accepts(t, b, dryRun)
			if b, err = c.build(t, s.namespace, c.illegal); err != nil {
				t.Fatal(err)
			}
			refused(t, s.post(t, "Pod", s.namespace, b.kind(t, "Pod"), dryRun), c.field, "")
		})
	}
}

// TestAPIServerLargestConfigMap has as many bytes of spark.properties as Flint lets through, and one more. It
// creates: a dry run asks no etcd, which has a limit of its own.
func TestAPIServerLargestConfigMap(t *testing.T) {
	s := newServer(t)
	filled := submission{options: confs("spark.fill={v}")}
	b, err := filled.build(t, s.namespace, "x")
	if err != nil {
		t.Fatal(err)
	}
	used := 0
	for _, value := range b.kind(t, "ConfigMap")["data"].(object) {
		used += len(value.(string))
	}
	largest := 1<<20 - used + 1
	if _, err := filled.build(t, s.namespace, x(largest+1)); err == nil {
		t.Error("Flint takes one byte more")
	} else {
		refuses(t, err, "spark.fill")
	}
	if b, err = filled.build(t, s.namespace, x(largest)); err != nil {
		t.Fatal(err)
	}
	s.accepts(t, b)
	o := runtime.DeepCopyJSON(b.kind(t, "ConfigMap"))
	put(t, o, "metadata|name", "more")
	put(t, o, "data|spark.properties", o["data"].(object)["spark.properties"].(string)+"x")
	refused(t, s.post(t, "ConfigMap", s.namespace, o), "[]", "")
}

// TestAPIServerSharedClaim: two volumes that make one claim with other options. The API server takes the first only.
func TestAPIServerSharedClaim(t *testing.T) {
	s := newServer(t)
	shared := func(name string) []string {
		return volume("persistentVolumeClaim."+name, "mount.path=/"+name, "options.claimName=c", "options.storageClass=fast", "options.sizeLimit={v}")
	}
	one := append(shared("a"), volume("persistentVolumeClaim.b", "mount.path=/b", "options.claimName=c", "options.storageClass=fast", "options.sizeLimit=1Gi")...)
	b, err := submission{options: one}.build(t, s.namespace, "1Gi")
	if err != nil {
		t.Fatal(err)
	}
	s.accepts(t, b)
	_, err = submission{options: one}.build(t, s.namespace, "2Gi")
	refuses(t, err, volumes+"persistentVolumeClaim.b.options.claimName")
	claim := b.kind(t, "PersistentVolumeClaim")
	put(t, claim, "spec|resources|requests|storage", "2Gi")
	if err := s.post(t, "PersistentVolumeClaim", s.namespace, claim); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the API server's answer to the second claim is %v, want that it exists", err)
	}
}

// rich is a template with most of what a pod can have, and with what no API server knows yet.
const rich = `{
	"metadata": {
		"labels": {"team": "a", "spark-role": "x"}, "annotations": {"A.b/c": "x, y"}, "finalizers": ["example.com/f"], "creationTimestamp": null, "futureField": {"a": 1},
		"ownerReferences": [{"apiVersion": "example.com/v1", "kind": "SparkApplication", "name": "a", "uid": "7f0a6c1e-0000-4000-8000-000000000001", "controller": true, "blockOwnerDeletion": true}]},
	"futureField": "x", "status": {"phase": "Running", "future": [1]},
	"spec": {
		"futureField": {"a": null, "b": [1.5, "x"]},
		"restartPolicy": "Always", "terminationGracePeriodSeconds": 5, "activeDeadlineSeconds": 60, "dnsPolicy": "None", "enableServiceLinks": false, "shareProcessNamespace": true,
		"automountServiceAccountToken": true, "priorityClassName": "system-cluster-critical", "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": false,
		"nodeSelector": {"a": "b", "c": "d"}, "imagePullSecrets": [{"name": "t"}],
		"securityContext": {"runAsUser": 185, "fsGroup": 185, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1 9"}]},
		"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}], "dnsConfig": {"nameservers": ["1.2.3.4"], "options": [{"name": "ndots", "value": "1"}]},
		"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}], "readinessGates": [{"conditionType": "example.com/ready"}],
		"affinity": {
			"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}},
			"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}}]},
			"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "labelSelector": {}}]}},
		"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}}],
		"volumes": [
			{"name": "cache", "emptyDir": {"sizeLimit": 1073741824}}, {"name": "spark-local-dir-7", "emptyDir": {"medium": "Memory"}}, {"name": "config", "configMap": {"name": "c", "optional": true}},
			{"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "t", "audience": "a"}}, {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
			{"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
			{"name": "driver", "csi": {"driver": "example.com"}}],
		"initContainers": [
			{"name": "init", "image": "i", "command": ["true"], "volumeMounts": [{"name": "cache", "mountPath": "/opt/spark/conf"}]},
			{"name": "native-sidecar", "image": "i", "restartPolicy": "Always", "ports": [{"name": "spark-ui", "containerPort": 4040}], "startupProbe": {"exec": {"command": ["true"]}}}],
		"containers": [
			{"name": "before", "image": "i", "futureField": 1, "ports": [{"name": "driver-rpc-port", "containerPort": 7078}], "resources": {"limits": {"cpu": "1"}}},
			{"name": "spark-kubernetes-driver", "image": "t", "command": ["/opt/entrypoint.sh"], "args": ["x"], "workingDir": "/w", "tty": true, "futureField": [{}],
				"env": [{"name": "SPARK_CONF_DIR", "value": "/mine"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}, {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
				"envFrom": [{"configMapRef": {"name": "e", "optional": true}}, {"secretRef": {"name": "e"}, "prefix": "P_"}],
				"ports": [{"name": "a23456789012345", "containerPort": 9, "protocol": "UDP"}, {"containerPort": 7078}],
				"resources": {"limits": {"cpu": 2, "example.com/x": 1, "ephemeral-storage": "2Gi"}, "requests": {"cpu": "9", "ephemeral-storage": "1Gi"}},
				"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true},
				"livenessProbe": {"httpGet": {"path": "/", "port": "spark-ui"}}, "readinessProbe": {"tcpSocket": {"port": 7078}}, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
				"volumeMounts": [{"name": "cache", "mountPath": "/cache", "subPath": "a"}, {"name": "spark-local-dir-7", "mountPath": "/local"}, {"name": "claim", "mountPath": "/claim", "mountPropagation": "None"}]},
			{"name": "after", "image": "i", "volumeMounts": [{"name": "cache", "mountPath": "/opt/spark/conf"}]}]}}`

// TestAPIServerAccepts creates everything of many submissions.
func TestAPIServerAccepts(t *testing.T) {
	controlplane.Shared(t)
	join := func(options ...[]string) []string { return slices.Concat(options...) }
	everyVolume := join(
		volume("hostPath.h", "mount.path=/h", "mount.readOnly=true", "options.path=/", "options.type=DirectoryOrCreate"),
		volume("nfs.n", "mount.path=/n", "options.path=/", "options.server=nfs.example.com"),
		volume("emptyDir.e", "mount.path=/e", "mount.subPath=a/b", "options.medium=Memory", "options.sizeLimit=1Gi"),
		volume("emptyDir.x", "mount.path=/x", "mount.subPathExpr=$(SPARK_USER)/a"),
		volume("emptyDir.spark-local-dir-9", "mount.path=/l"),
		volume("persistentVolumeClaim.there", "mount.path=/t", "mount.readOnly=true", "options.claimName=c"),
		volume("persistentVolumeClaim.mine", "mount.path=/m", "options.claimName=m", "options.storageClass=fast", "options.sizeLimit=1Gi"),
		volume("persistentVolumeClaim.unclassed", "mount.path=/u", "options.claimName=u", "options.storageClass=", "options.sizeLimit=1Gi"),
		onDemand("label.a=b", "label.spark-app-selector=x", "annotation.A.b/c=d e"),
	)
	identity := confs(
		"spark.kubernetes.authenticate.driver.oauthToken=t\u00fc", "spark.kubernetes.driver.secrets.s=/s", "spark.kubernetes.driver.secretKeyRef.REF=n:k.e-y_1",
		"spark.kubernetes.hadoop.configMapName=h", "spark.kubernetes.kerberos.krb5.configMapName=k",
		"spark.kubernetes.kerberos.tokenSecret.name=ts", "spark.kubernetes.kerberos.tokenSecret.itemKey=i",
	)
	decorated := confs(
		"spark.kubernetes.driver.label.l=x-{{APP_ID}}", "spark.kubernetes.driver.label.a.b/c=", "spark.kubernetes.driver.annotation.A.b/c=x, y = z {{APP_ID}}",
		"spark.kubernetes.driver.service.label.spark-app-selector=z", "spark.kubernetes.driver.service.annotation.n=${spark.x}",
		"spark.kubernetes.node.selector.a=general", "spark.kubernetes.driver.node.selector.a=driver", "spark.kubernetes.container.image.pullSecrets=a, b", "spark.kubernetes.container.image.pullPolicy=Always",
		"spark.kubernetes.driver.scheduler.name=other", "spark.kubernetes.driver.request.cores=500m", "spark.kubernetes.driver.limit.cores=2",
		"spark.driver.resource.gpu.amount=2", "spark.driver.resource.gpu.vendor=nvidia.com", "spark.kubernetes.driverEnv.A=$(B) ${spark.x}", "spark.kubernetes.driverEnv.SPARK_USER=z",
		"spark.kubernetes.local.dirs.tmpfs=true", "spark.local.dir=/l1,/l2", "spark.blockManager.port=4040",
	)
	plain := list{"Pod", "Service", "NetworkPolicy", "ConfigMap"}
	claims := list{"Pod", "Service", "NetworkPolicy", "PersistentVolumeClaim", "PersistentVolumeClaim", "PersistentVolumeClaim", "ConfigMap"}
	families := func(policy, families string) submission {
		return submission{options: confs("spark.kubernetes.driver.service.ipFamilyPolicy="+policy, "spark.kubernetes.driver.service.ipFamilies="+families)}
	}
	type accepted struct {
		submission
		kinds list
	}
	cases := map[string]accepted{
		"every volume":                {submission{options: everyVolume}, claims},
		"identity":                    {submission{options: identity}, list{"Pod", "Secret", "Service", "NetworkPolicy", "ConfigMap"}},
		"decorated":                   {submission{options: decorated}, plain},
		"proxy user":                  {submission{options: []string{"--proxy-user", "Ü b"}}, plain},
		"no name":                     {submission{options: []string{"--name", ""}}, plain},
		"long name":                   {submission{options: []string{"--name", x(229)}}, plain},
		"name of other signs":         {submission{options: []string{"--name", "Über 😀 -_. 9"}}, plain},
		"no memory":                   {submission{options: confs("spark.driver.memory=1k", "spark.driver.memoryOverhead=0")}, plain},
		"much memory":                 {submission{options: confs("spark.driver.memoryOverheadFactor=Infinity", "spark.driver.memory=1000000t")}, plain},
		"properties":                  {submission{options: confs("spark.a= x: = # ! \\ \t\n\rü😀\u0001", "spark.b:c=d")}, plain},
		"executor template":           {submission{executor: "# x\r\n{ not: [yaml\n\tü"}, list{"Pod", "Service", "NetworkPolicy", "ConfigMap", "ConfigMap"}},
		"no support":                  {submission{options: confs("spark.kubernetes.driver.pod.excludedFeatureSteps=" + stepPrefix + "DriverServiceFeatureStep," + stepPrefix + "NetworkPolicyFeatureStep")}, list{"Pod", "ConfigMap"}},
		"prefers dual stack":          {families("PreferDualStack", "IPv4"), plain},
		"bare template":               {submission{template: spark}, plain},
		"rich template":               {submission{template: rich}, plain},
		"another container":           {submission{template: `{"spec": {"containers": [{"name": "a"}, {"name": "b", "image": "i"}]}}`, options: confs("spark.kubernetes.driver.podTemplateContainerName=a")}, plain},
		"template that holds the pod": {submission{template: `{"spec": {"schedulingGates": [{"name": "example.com/mine"}], "containers": [{"name": "spark-kubernetes-driver"}]}}`}, plain},
		"template on the host's network": {
			submission{template: `{"spec": {"hostNetwork": true, "hostPID": true, "dnsPolicy": "ClusterFirstWithHostNet", "containers": [{"name": "spark-kubernetes-driver"}]}}`}, plain,
		},
		"template on a node": {submission{template: `{"spec": {"nodeName": "n", "containers": [{"name": "spark-kubernetes-driver"}]}}`}, plain},
		"everything": {
			submission{resource: "local:///app.py", template: rich, executor: "{}", options: join(everyVolume, identity, decorated, confs("spark.pyspark.python=/p"))},
			list{"Pod", "Secret", "Service", "NetworkPolicy", "PersistentVolumeClaim", "PersistentVolumeClaim", "PersistentVolumeClaim", "ConfigMap", "ConfigMap"},
		},
	}
	for _, release := range []string{"3.5.7", "4.0.4", "4.1.3", "4.2.0", "4.3.0"} {
		for language, resource := range map[string]string{"Java": "local:///a.jar", "Python": "local:///app.py", "R": "local:///app.R"} {
			kinds := plain
			if release < "4.2" {
				kinds = list{"Pod", "Service", "ConfigMap"}
			}
			cases[language+" "+release] = accepted{submission{release: release, resource: resource}, kinds}
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b, err := c.build(t, s.namespace, "")
			if err != nil {
				t.Fatal(err)
			}
			var kinds list
			for _, o := range b.objects {
				kinds = append(kinds, o["kind"])
			}
			if diff := cmp.Diff(c.kinds, kinds); diff != "" {
				t.Errorf("kinds (-want +got):\n%s", diff)
			}
			s.accepts(t, b)
		})
	}
	// The control plane has IPv4 only, and says so; Flint knows no cluster.
	for name, c := range map[string]struct {
		submission
		field string
	}{
		"IPv6":                {families("SingleStack", "IPv6"), "spec.ipFamilies[0]"},
		"prefers both":        {families("PreferDualStack", "IPv4,IPv6"), "spec.ipFamilies[1]"},
		"requires dual stack": {families("RequireDualStack", "IPv4,IPv6"), "spec.ipFamilyPolicy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b, err := c.build(t, s.namespace, "")
			if err != nil {
				t.Fatal(err)
			}
			refused(t, s.post(t, "Service", s.namespace, b.kind(t, "Service"), dryRun), c.field, "")
		})
	}
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range requests {
		t.Run("operator "+name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			for _, account := range []string{"spark-operator-spark", "non-existent"} {
				s.provide(t, "ServiceAccount", account)
			}
			body, err := operator.With(body, "", s.namespace, "")
			if err != nil {
				t.Fatal(err)
			}
			var r operator.Request
			if err := json.Unmarshal(body, &r); err != nil {
				t.Fatal(err)
			}
			b, err := build(t, "", r.SparkSubmitArgs, r.DriverPodTemplate, r.ExecutorPodTemplate)
			if err != nil {
				t.Fatal(err)
			}
			s.accepts(t, b)
		})
	}
}
