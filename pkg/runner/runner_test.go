package runner

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// minimalParent is a pod as an API server returns the least one.
const minimalParent = `{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": "shop-7d4b9-x2", "namespace": "ns", "uid": "parent-uid", "resourceVersion": "7", "labels": {"app": "shop", "pod-template-hash": "7d4b9"},
		"annotations": {"cni.projectcalico.org/podIP": "10.0.0.5"}, "generateName": "shop-7d4b9-", "creationTimestamp": "2030-01-01T00:00:00Z",
		"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-7d4b9", "uid": "rs-uid", "controller": true, "blockOwnerDeletion": true}]},
	"spec": {
		"containers": [{"name": "app", "image": "registry.example/shop:1", "imagePullPolicy": "IfNotPresent", "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}],
		"restartPolicy": "Always", "serviceAccountName": "shop", "serviceAccount": "shop", "nodeName": "node-1", "priority": 0, "schedulerName": "default-scheduler",
		"imagePullSecrets": [{"name": "pull"}], "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "dnsPolicy": "ClusterFirst"
	},
	"status": {"phase": "Running", "podIP": "10.0.0.5"}
}`

// richParent has something in every corner.
const richParent = `{
	"apiVersion": "v1", "kind": "Pod",
	"metadata": {"name": "shop-7d4b9-x2", "namespace": "ns", "uid": "parent-uid",
		"annotations": {"example.com/team": "red", "k8s.v1.cni.cncf.io/networks": "net-a"},
		"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-7d4b9", "uid": "rs-uid", "controller": true}]},
	"spec": {
		"containers": [
			{"name": "proxy", "image": "registry.example/mesh/proxy:2", "securityContext": {"privileged": true},
				"env": [{"name": "MESH", "valueFrom": {"secretKeyRef": {"name": "mesh-secret", "key": "id"}}}],
				"volumeMounts": [{"name": "host", "mountPath": "/host"}, {"name": "scratch", "mountPath": "/scratch"}]},
			{"name": "app", "image": "registry.example/shop:1", "imagePullPolicy": "Always",
				"command": ["bin/shop"], "args": ["start"], "workingDir": "/srv",
				"ports": [{"name": "http", "containerPort": 4000, "hostPort": 4000}],
				"readinessProbe": {"httpGet": {"path": "/", "port": 4000, "host": "10.9.9.9"}}, "livenessProbe": {"tcpSocket": {"port": 4000}}, "startupProbe": {"exec": {"command": ["true"]}},
				"lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
				"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "500m"}, "claims": [{"name": "gpu"}]},
				"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "laterField": "x"},
				"env": [
					{"name": "RELEASE_NODE", "value": "shop@$(POD_IP)"}, {"name": "DB", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}},
					{"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "modes", "key": "mode"}}}, {"name": "TENANT", "value": "red"}, {"name": "PLACE", "value": "$(TENANT)/x"},
					{"name": "TIER", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['tier']"}}},
					{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}, {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
				],
				"envFrom": [{"secretRef": {"name": "all-of-it"}}, {"configMapRef": {"name": "settings"}, "prefix": "S_"}],
				"volumeMounts": [
					{"name": "data", "mountPath": "/data", "subPath": "shop"}, {"name": "data-ro", "mountPath": "/ro", "readOnly": true}, {"name": "tenant", "mountPath": "/tenant", "subPathExpr": "$(PLACE)"},
					{"name": "by-label", "mountPath": "/tier", "subPathExpr": "$(TIER)"}, {"name": "by-name", "mountPath": "/mine", "subPathExpr": "$(POD_NAME)"},
					{"name": "certs", "mountPath": "/certs"}, {"name": "part", "mountPath": "/part", "subPath": "one"}, {"name": "scratch", "mountPath": "/scratch"},
					{"name": "mixed", "mountPath": "/mixed"}, {"name": "kube-api-access-abcde", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}
				]}
		],
		"initContainers": [{"name": "setup", "image": "registry.example/setup:3", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}],
		"ephemeralContainers": [{"name": "debugger", "image": "busybox"}],
		"volumes": [
			{"name": "data", "persistentVolumeClaim": {"claimName": "claim-a"}}, {"name": "data-ro", "persistentVolumeClaim": {"claimName": "claim-b"}},
			{"name": "tenant", "persistentVolumeClaim": {"claimName": "claim-t"}}, {"name": "by-label", "persistentVolumeClaim": {"claimName": "claim-t"}}, {"name": "by-name", "persistentVolumeClaim": {"claimName": "claim-n"}},
			{"name": "certs", "secret": {"secretName": "certs", "items": [{"key": "tls.crt", "path": "tls.crt"}]}}, {"name": "part", "secret": {"secretName": "parts"}},
			{"name": "scratch", "emptyDir": {"laterField": 1}}, {"name": "host", "hostPath": {"path": "/var"}},
			{"name": "mixed", "projected": {"sources": [{"configMap": {"name": "mixed-map"}}, {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}},
			{"name": "kube-api-access-abcde", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}]}}
		],
		"securityContext": {"runAsUser": 1000, "runAsNonRoot": true, "fsGroup": 2000, "supplementalGroups": [3000], "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}]},
		"nodeSelector": {"pool": "apps"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}, "laterAffinity": {"x": 1.5}},
		"tolerations": [{"key": "apps", "operator": "Exists"}, {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
		"priorityClassName": "low", "priority": -5, "preemptionPolicy": "Never", "runtimeClassName": "gvisor", "overhead": {"cpu": "10m"}, "hostUsers": false, "schedulerName": "bin-packer",
		"hostname": "shop", "subdomain": "shops", "hostNetwork": true, "shareProcessNamespace": true, "restartPolicy": "Always", "serviceAccountName": "shop", "nodeName": "node-1",
		"imagePullSecrets": [{"name": "pull"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}], "resources": {"limits": {"cpu": "2"}}, "topologySpreadConstraints": []
	},
	"status": {"phase": "Running", "containerStatuses": [
		{"name": "proxy", "imageID": "registry.example/mesh/proxy@sha256:1111111111111111111111111111111111111111111111111111111111111111"},
		{"name": "app", "imageID": "docker-pullable://registry.example/shop@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}]}
}`

func fromJSON(t testing.TB, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

func factsOf(t testing.TB, parent string, changes ...func(object)) Facts {
	t.Helper()
	o := fromJSON(t, parent)
	for _, change := range changes {
		change(o)
	}
	return Facts{Parent: &unstructured.Unstructured{Object: o}}
}

// request is for a runner of container app.
func request(changes ...func(*api.RunnerRequest)) *api.RunnerRequest {
	r := &api.RunnerRequest{SubmissionID: "key-1", Parent: api.RunnerParent{Namespace: "ns", Name: "shop-7d4b9-x2", Container: "app"}}
	for _, change := range changes {
		change(r)
	}
	return r
}

func inheriting(pieces ...string) func(*api.RunnerRequest) {
	return func(r *api.RunnerRequest) { r.Inherit = &pieces }
}

// all are all pieces.
func all(r *api.RunnerRequest) { r.Inherit = ptr.To(api.RunnerPieces()) }

func volumes(names ...string) func(*api.RunnerRequest) {
	return func(r *api.RunnerRequest) { r.Volumes = names }
}

func templated(t testing.TB, text string) func(*api.RunnerRequest) {
	return func(r *api.RunnerRequest) { r.Template = fromJSON(t, text) }
}

func mustPlan(t testing.TB, r *api.RunnerRequest, facts Facts, settings Settings) (*Runner, *corev1.Pod) {
	t.Helper()
	runner, err := Plan(r, facts, settings, "")
	if err != nil {
		t.Fatal(err)
	}
	return runner, podOf(t, runner)
}

// podOf reads the pod, which must have no field that Kubernetes does not know, but for those that the parent has.
func podOf(t testing.TB, runner *Runner) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(runner.Plan.Workload.Object, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func mustRefuse(t testing.TB, err error, code api.Code, status int, field string, parts ...string) {
	t.Helper()
	var refused *api.Error
	if !errors.As(err, &refused) {
		t.Fatalf("error = %v, want %s", err, code)
	}
	if refused.Code != code || refused.Status() != status || refused.Field != field {
		t.Errorf("%s, %d, field %q; want %s, %d, %q (%s)", refused.Code, refused.Status(), refused.Field, code, status, field, refused.Message)
	}
	for _, part := range parts {
		if !strings.Contains(refused.Message, part) {
			t.Errorf("message %q without %q", refused.Message, part)
		}
	}
}

func TestR01MinimalParent(t *testing.T) {
	runner, _ := mustPlan(t, request(), factsOf(t, minimalParent), Settings{})
	id := launch.ID("ns", "key-1")
	name := "shop-7d4b9-x2-r-" + id[:10]
	want := fromJSON(t, fmt.Sprintf(`{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {
			"name": %[1]q, "namespace": "ns",
			"labels": {"app.kubernetes.io/managed-by": "flint", "app.kubernetes.io/component": "runner", "flint.dev/kind": "runner", "flint.dev/id": %[2]q, "flint.dev/completion": "pending",
				"flint.dev/parent-uid": "parent-uid", "flint.dev/owner": "parent"},
			"annotations": {"flint.dev/submission-id": "key-1", "flint.dev/hash": %[3]q, "flint.dev/container": "app", "flint.dev/parent": "shop-7d4b9-x2",
				"flint.dev/boot-timeout-ms": "30000", "flint.dev/on-boot-timeout": "delete", "flint.dev/ttl-seconds": "300", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
			"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "shop-7d4b9-x2", "uid": "parent-uid", "controller": true, "blockOwnerDeletion": false}]},
		"spec": {
			"restartPolicy": "Never", "serviceAccountName": "shop", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 35,
			"schedulerName": "default-scheduler", "imagePullSecrets": [{"name": "pull"}],
			"containers": [{"name": "app", "image": "registry.example/shop:1", "imagePullPolicy": "IfNotPresent", "env": [
				{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
				{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
				{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
				{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
				{"name": "PHX_SERVER", "value": "false"}, {"name": "RELEASE_DISTRIBUTION", "value": "name"}, {"name": "RELEASE_NODE", "value": "flame_runner@$(POD_IP)"},
				{"name": "FLINT_RUNNER_ID", "value": %[2]q}]}]}
	}`, name, id, runner.Plan.Hash))
	if diff := gocmp.Diff(want, runner.Plan.Workload.Object); diff != "" {
		t.Errorf("pod (-want +got)\n%s", diff)
	}
	if runner.Container != "app" || runner.Plan.ID != id || runner.Plan.Kind != launch.Runner || runner.Plan.Namespace != "ns" || len(runner.Warnings) != 0 {
		t.Errorf("%+v", runner)
	}
	if len(runner.Plan.Support) != 1 {
		t.Fatalf("%d support objects, want the mark", len(runner.Plan.Support))
	}
	mark := runner.Plan.Support[0].Object
	holder, _, _ := unstructured.NestedString(mark.Object, "spec", "holderIdentity")
	if mark.GetKind() != "Lease" || mark.GetAPIVersion() != "coordination.k8s.io/v1" || mark.GetName() != MarkName(id) || holder != name || mark.GetLabels()[launch.LabelID] != id {
		t.Errorf("mark = %v", mark.Object)
	}
}

func TestSecretEnv(t *testing.T) {
	const cookie = "SECRETCOOKIE"
	runner, pod := mustPlan(t, request(func(r *api.RunnerRequest) { r.SecretEnv = map[string]string{"RELEASE_COOKIE": cookie, "A": "$(B)\x01"} }), factsOf(t, richParent), Settings{})
	if len(runner.Plan.Support) != 2 {
		t.Fatalf("%d support objects", len(runner.Plan.Support))
	}
	secret := runner.Plan.Support[1].Object
	want := fromJSON(t, `{"apiVersion": "v1", "kind": "Secret", "immutable": true, "type": "Opaque", "data": {"RELEASE_COOKIE": "U0VDUkVUQ09PS0lF", "A": "JChCKQE="}}`)
	if diff := gocmp.Diff(want, without(secret.Object, "metadata")); diff != "" {
		t.Errorf("secret (-want +got)\n%s", diff)
	}
	if secret.GetName() != pod.Name {
		t.Errorf("secret %s of pod %s", secret.GetName(), pod.Name)
	}
	t.Run("R03_named_container_still_gets_secret", func(t *testing.T) {
		for _, name := range []string{"RELEASE_COOKIE", "A"} {
			i := slices.IndexFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == name })
			ref := pod.Spec.Containers[0].Env[i].ValueFrom.SecretKeyRef
			if ref.Name != pod.Name || ref.Key != name || ref.Optional != nil {
				t.Errorf("%s comes from %+v", name, ref)
			}
		}
	})
	t.Run("the value is in the Secret alone", func(t *testing.T) {
		for _, o := range []*unstructured.Unstructured{runner.Plan.Workload, runner.Plan.Support[0].Object} {
			if text, err := json.Marshal(o.Object); err != nil || strings.Contains(string(text), cookie) {
				t.Errorf("%s tells the secret (%v)", o.GetKind(), err)
			}
		}
	})
}

func TestParent(t *testing.T) {
	deleted := func(o object) { o["metadata"].(object)["deletionTimestamp"] = "2030-01-01T00:00:00Z" }
	label := func(o object) { o["metadata"].(object)["labels"] = object{"flint.dev/kind": "runner"} }
	variable := func(o object) {
		app := objects(o["spec"].(object)["containers"])[0]
		app["env"] = list{object{"name": "FLAME_PARENT", "value": "old"}}
	}
	cases := map[string]struct {
		change  func(*api.RunnerRequest)
		facts   Facts
		code    api.Code
		status  int
		field   string
		message string
	}{
		"L16_parent_terminating":    {facts: factsOf(t, minimalParent, deleted), code: api.ParentTerminating, status: 409, field: "parent.name", message: "being deleted"},
		"L16_parent_uid_mismatch":   {change: func(r *api.RunnerRequest) { r.Parent.UID = "other" }, facts: factsOf(t, minimalParent), code: api.ParentUIDMismatch, status: 409, field: "parent.uid", message: `"other"`},
		"R02_container_unknown":     {change: func(r *api.RunnerRequest) { r.Parent.Container = "web" }, facts: factsOf(t, richParent), code: api.ContainerNotFound, status: 422, field: "parent.container", message: "proxy, app"},
		"R02_init_container":        {change: func(r *api.RunnerRequest) { r.Parent.Container = "setup" }, facts: factsOf(t, richParent), code: api.ContainerNotFound, status: 422, field: "parent.container", message: `"setup"`},
		"R07_parent_is_a_runner":    {facts: factsOf(t, minimalParent, label), code: api.PolicyDenied, status: 403, field: "parent.name", message: "runner itself"},
		"R07_parent_is_FLAME's own": {facts: factsOf(t, minimalParent, variable), code: api.PolicyDenied, status: 403, field: "parent.name", message: "runner itself"},
		"no controller": {
			change: func(r *api.RunnerRequest) { r.Owner = api.OwnerController },
			facts:  factsOf(t, minimalParent, func(o object) { delete(o["metadata"].(object), "ownerReferences") }), code: api.BadRequest, status: 422, field: "owner", message: "has none",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request()
			if tc.change != nil {
				tc.change(r)
			}
			_, err := Plan(r, tc.facts, Settings{}, "")
			mustRefuse(t, err, tc.code, tc.status, tc.field, tc.message)
		})
	}
	t.Run("R07_nested_allowed", func(t *testing.T) {
		_, pod := mustPlan(t, request(inheriting("env"), func(r *api.RunnerRequest) { r.FlameParent = "new" }), factsOf(t, minimalParent, variable, label), Settings{AllowNested: true})
		var values []string
		for _, e := range pod.Spec.Containers[0].Env {
			if e.Name == "FLAME_PARENT" {
				values = append(values, e.Value)
			}
		}
		if !slices.Equal(values, []string{"new"}) {
			t.Errorf("FLAME_PARENT = %q", values)
		}
	})
	t.Run("R07_old_FLAME_PARENT_not_inherited", func(t *testing.T) {
		_, pod := mustPlan(t, request(inheriting("env")), factsOf(t, minimalParent, variable), Settings{AllowNested: true})
		if slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == "FLAME_PARENT" }) {
			t.Error("FLAME_PARENT is inherited")
		}
	})
	t.Run("the caller's mistakes", func(t *testing.T) {
		var refused *api.Error
		for name, facts := range map[string]Facts{
			"no parent": {}, "another pod": factsOf(t, minimalParent, func(o object) { o["metadata"].(object)["name"] = "other" }),
			"no pod": factsOf(t, minimalParent, func(o object) { o["spec"] = "x" }),
		} {
			if _, err := Plan(request(), facts, Settings{}, ""); err == nil || errors.As(err, &refused) {
				t.Errorf("%s: error = %v, want one that is no answer", name, err)
			}
		}
	})
}

func TestR02MultiContainer(t *testing.T) {
	_, first := mustPlan(t, request(func(r *api.RunnerRequest) { r.Parent.Container = "" }), factsOf(t, minimalParent), Settings{})
	if first.Spec.Containers[0].Name != "app" {
		t.Error("not the first container")
	}
	runner, pod := mustPlan(t, request(), factsOf(t, richParent), Settings{})
	if len(pod.Spec.Containers) != 1 || pod.Spec.Containers[0].Image != "registry.example/shop:1" || runner.Container != "app" || pod.Annotations[launch.AnnotationContainer] != "app" {
		t.Errorf("containers %+v", pod.Spec.Containers)
	}
}

// What a runner has of a parent that has everything, by default and with each piece.
func TestInherit(t *testing.T) {
	runner, _ := mustPlan(t, request(), factsOf(t, richParent), Settings{})
	spec := runner.Plan.Workload.Object["spec"].(object)
	app := objects(spec["containers"])[0]
	delete(app, "env")
	want := fromJSON(t, `{
		"restartPolicy": "Never", "serviceAccountName": "shop", "automountServiceAccountToken": false, "enableServiceLinks": false, "terminationGracePeriodSeconds": 35,
		"runtimeClassName": "gvisor", "priorityClassName": "low", "hostUsers": false, "imagePullSecrets": [{"name": "pull"}], "resources": {"limits": {"cpu": "2"}},
		"nodeSelector": {"pool": "apps"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}, "laterAffinity": {"x": 1.5}},
		"tolerations": [{"key": "apps", "operator": "Exists"}], "schedulerName": "bin-packer",
		"securityContext": {"runAsUser": 1000, "runAsNonRoot": true, "fsGroup": 2000, "supplementalGroups": [3000], "seccompProfile": {"type": "RuntimeDefault"}, "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1024 65535"}]},
		"containers": [{"name": "app", "image": "registry.example/shop:1", "imagePullPolicy": "Always", "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "500m"}},
			"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "laterField": "x"}}]
	}`)
	if diff := gocmp.Diff(want, spec); diff != "" {
		t.Errorf("R11_drops_server_fields, R12_priority_class_kept_number_dropped: spec (-want +got)\n%s", diff)
	}
	if !slices.ContainsFunc(runner.Warnings, func(w string) bool { return strings.Contains(w, "resource claims") }) {
		t.Errorf("warnings %q", runner.Warnings)
	}

	const secure = "securityContext"
	cases := map[string]struct {
		inherit  []string
		volumes  []string
		app      string // fields of the container beside name, image, securityContext and env
		spec     string // fields of the spec beside those that are always there
		token    bool
		warnings []string
	}{
		"nothing":   {inherit: []string{secure}},
		"env":       {inherit: []string{secure, "env"}}, // its content is in TestEnv
		"envFrom":   {inherit: []string{secure, "envFrom"}, app: `{"envFrom": [{"secretRef": {"name": "all-of-it"}}, {"configMapRef": {"name": "settings"}, "prefix": "S_"}]}`},
		"imagePull": {inherit: []string{secure, "imagePull"}, app: `{"imagePullPolicy": "Always"}`, spec: `{"imagePullSecrets": [{"name": "pull"}]}`},
		"command":   {inherit: []string{secure, "command"}, app: `{"command": ["bin/shop"], "args": ["start"], "workingDir": "/srv"}`},
		"probes": {inherit: []string{secure, "probes"}, app: `{"readinessProbe": {"httpGet": {"path": "/", "port": 4000, "host": "10.9.9.9"}},
			"livenessProbe": {"tcpSocket": {"port": 4000}}, "startupProbe": {"exec": {"command": ["true"]}}}`},
		"ports":               {inherit: []string{secure, "ports"}, app: `{"ports": [{"name": "http", "containerPort": 4000}]}`, warnings: []string{"port 4000"}},
		"lifecycle":           {inherit: []string{secure, "lifecycle"}, app: `{"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}`},
		"serviceAccountToken": {inherit: []string{secure, "serviceAccountToken"}, token: true},
		"volumes": {
			inherit: []string{secure}, volumes: []string{"scratch", "data"},
			app:  `{"volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "shop"}, {"name": "scratch", "mountPath": "/scratch"}]}`,
			spec: `{"volumes": [{"name": "scratch", "emptyDir": {"laterField": 1}}, {"name": "data", "persistentVolumeClaim": {"claimName": "claim-a"}}]}`,
		},
		"initContainers": {
			inherit: []string{secure, "initContainers"}, volumes: []string{"scratch"},
			app: `{"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}`,
			spec: `{"volumes": [{"name": "scratch", "emptyDir": {"laterField": 1}}],
				"initContainers": [{"name": "setup", "image": "registry.example/setup:3", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]}]}`,
		},
		"initContainers without their volume": {
			inherit: []string{secure, "initContainers"}, spec: `{"initContainers": [{"name": "setup", "image": "registry.example/setup:3"}]}`,
			warnings: []string{"container setup loses its mount of volume scratch"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runner, pod := mustPlan(t, request(inheriting(tc.inherit...), volumes(tc.volumes...)), factsOf(t, richParent), Settings{})
			spec := runner.Plan.Workload.Object["spec"].(object)
			app := without(objects(spec["containers"])[0], "name", "image", "securityContext", "env")
			if diff := gocmp.Diff(fromJSON(t, cmp.Or(tc.app, "{}")), app); diff != "" {
				t.Errorf("container (-want +got)\n%s", diff)
			}
			rest := without(spec, "containers", "restartPolicy", "serviceAccountName", "automountServiceAccountToken", "enableServiceLinks",
				"terminationGracePeriodSeconds", "runtimeClassName", "priorityClassName", "hostUsers", "securityContext")
			if diff := gocmp.Diff(fromJSON(t, cmp.Or(tc.spec, "{}")), rest); diff != "" {
				t.Errorf("spec (-want +got)\n%s", diff)
			}
			if *pod.Spec.AutomountServiceAccountToken != tc.token {
				t.Errorf("token %v", *pod.Spec.AutomountServiceAccountToken)
			}
			if len(runner.Warnings) != len(tc.warnings) {
				t.Errorf("warnings %q, want %q", runner.Warnings, tc.warnings)
			}
			for i, want := range tc.warnings {
				if i < len(runner.Warnings) && !strings.Contains(runner.Warnings[i], want) {
					t.Errorf("warning %q, want %q", runner.Warnings[i], want)
				}
			}
		})
	}
	t.Run("sidecars", func(t *testing.T) {
		t.Parallel()
		runner, pod := mustPlan(t, request(inheriting(secure, "sidecars"), volumes("scratch")), factsOf(t, richParent), Settings{})
		if len(pod.Spec.Containers) != 2 || pod.Spec.Containers[1].Name != "proxy" || !*pod.Spec.Containers[1].SecurityContext.Privileged {
			t.Fatalf("containers %+v", pod.Spec.Containers)
		}
		if mounts := pod.Spec.Containers[1].VolumeMounts; len(mounts) != 1 || mounts[0].Name != "scratch" {
			t.Errorf("mounts %+v", mounts)
		}
		if text := strings.Join(runner.Warnings, "; "); !strings.Contains(text, "does not end") || !strings.Contains(text, "volume host") {
			t.Errorf("warnings %q", text)
		}
	})
	t.Run("no token where the parent's container has none", func(t *testing.T) {
		t.Parallel()
		if _, pod := mustPlan(t, request(inheriting("serviceAccountToken")), factsOf(t, minimalParent), Settings{}); *pod.Spec.AutomountServiceAccountToken {
			t.Error("a token that the parent has not")
		}
	})
	t.Run("everything twice gives the same", func(t *testing.T) {
		t.Parallel()
		one, _ := mustPlan(t, request(all, volumes("scratch", "data", "mixed")), factsOf(t, richParent), Settings{})
		two, _ := mustPlan(t, request(all, volumes("scratch", "data", "mixed")), factsOf(t, richParent), Settings{})
		if diff := gocmp.Diff(one, two); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the facts are not changed", func(t *testing.T) {
		t.Parallel()
		facts := factsOf(t, richParent)
		facts.InUse = map[string]Use{"claim-a": {Pod: "p", Node: "node-1"}}
		mustPlan(t, request(all, volumes("scratch", "data"), templated(t, `{"spec": {"affinity": {"podAffinity": {}}, "containers": [{"env": [{"name": "A", "value": "1"}], "command": ["x"]}]}}`)), facts, Settings{PinDigest: true})
		if diff := gocmp.Diff(fromJSON(t, richParent), facts.Parent.Object); diff != "" {
			t.Error(diff)
		}
	})
}

func TestVolumesRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		volumes []string
		field   string
		message string
	}{
		"unknown":   {[]string{"scratch", "other"}, "volumes[1]", `"other"`},
		"twice":     {[]string{"data", "data"}, "volumes[1]", "twice"},
		"the token": {[]string{"kube-api-access-abcde"}, "volumes[0]", "serviceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(request(volumes(tc.volumes...)), factsOf(t, richParent), Settings{}, "")
			mustRefuse(t, err, api.BadRequest, 422, tc.field, tc.message)
		})
	}
}

func TestR20LongParentName(t *testing.T) {
	for name, tc := range map[string]struct{ parent, prefix string }{
		"253":                 {strings.Repeat("a", 253), strings.Repeat("a", 40)},
		"ends at a dot":       {strings.Repeat("a", 39) + ".b", strings.Repeat("a", 39)},
		"ends at some dashes": {strings.Repeat("a", 37) + "---b", strings.Repeat("a", 37)},
		"short":               {"a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			facts := factsOf(t, minimalParent, func(o object) { o["metadata"].(object)["name"] = tc.parent })
			_, pod := mustPlan(t, request(func(r *api.RunnerRequest) { r.Parent.Name = tc.parent }), facts, Settings{})
			if want := tc.prefix + "-r-" + launch.ID("ns", "key-1")[:10]; pod.Name != want {
				t.Errorf("name %q, want %q", pod.Name, want)
			}
			if wrong := validation.IsDNS1123Subdomain(pod.Name); len(wrong) > 0 || len(pod.Name) > 63 {
				t.Errorf("name %q: %v", pod.Name, wrong)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	t.Run("R14_owner_is_controller_not_adopted", func(t *testing.T) {
		_, pod := mustPlan(t, request(), factsOf(t, minimalParent), Settings{})
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != "parent-uid" || *owner.BlockOwnerDeletion {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
	})
	t.Run("controller", func(t *testing.T) {
		_, pod := mustPlan(t, request(func(r *api.RunnerRequest) { r.Owner = api.OwnerController }), factsOf(t, minimalParent), Settings{})
		if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != "rs-uid" || pod.OwnerReferences[0].Kind != "ReplicaSet" || pod.OwnerReferences[0].Controller != nil {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
	})
	t.Run("none", func(t *testing.T) {
		_, pod := mustPlan(t, request(func(r *api.RunnerRequest) { r.Owner = api.OwnerNone }), factsOf(t, minimalParent), Settings{})
		if len(pod.OwnerReferences) != 0 || pod.Labels[LabelOwner] != api.OwnerNone {
			t.Errorf("owners %+v", pod.OwnerReferences)
		}
	})
	t.Run("R15_other_namespace_is_refused", func(t *testing.T) {
		_, err := Plan(request(templated(t, `{"metadata": {"namespace": "other"}}`)), factsOf(t, minimalParent), Settings{}, "")
		mustRefuse(t, err, api.PolicyDenied, 403, "template.metadata.namespace", `"other"`)
		if _, err := Plan(request(templated(t, `{"metadata": {"namespace": "ns"}}`)), factsOf(t, minimalParent), Settings{}, ""); err != nil {
			t.Error(err)
		}
	})
}

func TestLifetime(t *testing.T) {
	seconds := func(n int64) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.MaxLifetimeSeconds = &n }
	}
	plain := func(*api.RunnerRequest) {}
	for name, tc := range map[string]struct {
		change func(*api.RunnerRequest)
		max    time.Duration
		want   *int64
		warned bool
	}{
		"none":         {change: plain},
		"wanted":       {change: seconds(60), want: ptr.To[int64](60)},
		"the bound":    {change: plain, max: time.Hour, want: ptr.To[int64](3600)},
		"at the bound": {change: seconds(3600), max: time.Hour, want: ptr.To[int64](3600)},
		"before boot":  {change: seconds(29), want: ptr.To[int64](29), warned: true},
	} {
		t.Run(name, func(t *testing.T) {
			runner, pod := mustPlan(t, request(tc.change), factsOf(t, minimalParent), Settings{MaxLifetime: tc.max})
			if !ptr.Equal(pod.Spec.ActiveDeadlineSeconds, tc.want) || tc.warned != (len(runner.Warnings) == 1) {
				t.Errorf("deadline %v, warnings %q", pod.Spec.ActiveDeadlineSeconds, runner.Warnings)
			}
		})
	}
	t.Run("beyond the bound", func(t *testing.T) {
		_, err := Plan(request(seconds(3601)), factsOf(t, minimalParent), Settings{MaxLifetime: time.Hour}, "")
		mustRefuse(t, err, api.PolicyDenied, 403, "max_lifetime_seconds", "3601", "3600")
	})
	t.Run("L28_grace_period_ge_shutdown_timeout", func(t *testing.T) {
		for ms, want := range map[int64]int64{0: 5, 1: 6, 1000: 6, 30_000: 35, 30_001: 36} {
			_, pod := mustPlan(t, request(func(r *api.RunnerRequest) { r.ShutdownTimeoutMS = &ms }), factsOf(t, minimalParent), Settings{})
			if *pod.Spec.TerminationGracePeriodSeconds != want {
				t.Errorf("%d ms: grace period %d s, want %d", ms, *pod.Spec.TerminationGracePeriodSeconds, want)
			}
		}
	})
}

func TestTerms(t *testing.T) {
	runner, pod := mustPlan(t, request(func(r *api.RunnerRequest) {
		r.BootTimeoutMS, r.OnBootTimeout, r.Owner, r.TTLSecondsAfterFinished = 1500, api.OnTimeoutKeep, api.OwnerNone, ptr.To[int64](0)
	}), factsOf(t, minimalParent), Settings{})
	want := Terms{ParentName: "shop-7d4b9-x2", ParentUID: "parent-uid", Owner: "none", BootTimeout: 1500 * time.Millisecond, OnBootTimeout: "keep"}
	if diff := gocmp.Diff(want, runner.Terms); diff != "" {
		t.Errorf("planned (-want +got)\n%s", diff)
	}
	if diff := gocmp.Diff(want, TermsOf(pod)); diff != "" {
		t.Errorf("read back (-want +got)\n%s", diff)
	}
	pod.CreationTimestamp = metav1.NewTime(time.Unix(100, 0))
	if got := want.BootDeadline(pod); !got.Equal(time.Unix(101, 500_000_000)) {
		t.Errorf("boot deadline %v", got)
	}
	broken := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationBootTimeout: "soon", AnnotationTTL: "-1"}}}
	for name, pod := range map[string]*corev1.Pod{"nothing": {}, "broken": broken} {
		if diff := gocmp.Diff(Terms{Owner: "parent", BootTimeout: 30 * time.Second, OnBootTimeout: "delete", TTL: 5 * time.Minute}, TermsOf(pod)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestHash(t *testing.T) {
	hash := func(change func(*api.RunnerRequest)) string {
		runner, _ := mustPlan(t, request(change), factsOf(t, richParent), Settings{})
		return runner.Plan.Hash
	}
	least := hash(func(*api.RunnerRequest) {})
	for name, same := range map[string]func(*api.RunnerRequest){
		"another wait":       func(r *api.RunnerRequest) { r.Wait = api.WaitReady },
		"defaults spelt out": func(r *api.RunnerRequest) { *r = r.Complete() },
	} {
		if hash(same) != least {
			t.Errorf("%s: another hash", name)
		}
	}
	for name, other := range map[string]func(*api.RunnerRequest){
		"env":          func(r *api.RunnerRequest) { r.Env = map[string]string{"A": "1"} },
		"secret":       func(r *api.RunnerRequest) { r.SecretEnv = map[string]string{"A": "1"} },
		"flame_parent": func(r *api.RunnerRequest) { r.FlameParent = "g2gD" },
		"template":     templated(t, `{"spec": {"containers": [{"command": ["x"]}]}}`),
		"timeout":      func(r *api.RunnerRequest) { r.BootTimeoutMS = 1000 },
	} {
		if hash(other) == least {
			t.Errorf("%s: the same hash", name)
		}
	}
}

// TestHashKnowsNoSecret holds that the hash, which whoever reads the pod sees, tells nothing of a secret's value.
func TestHashKnowsNoSecret(t *testing.T) {
	hash := func(secrets map[string]string) string {
		r, _ := mustPlan(t, request(func(r *api.RunnerRequest) { r.SecretEnv = secrets }), factsOf(t, minimalParent), Settings{})
		return r.Plan.Hash
	}
	one := hash(map[string]string{"COOKIE": "one"})
	if hash(map[string]string{"COOKIE": "two"}) != one {
		t.Error("the hash depends on a secret's value")
	}
	if hash(map[string]string{"OTHER": "one"}) == one {
		t.Error("the hash does not depend on a secret's name")
	}
}

// TestG1OnePodForOneBoot holds that a flame_parent is a key too, whatever submission id it comes with.
func TestG1OnePodForOneBoot(t *testing.T) {
	marks := func(id string) []string {
		r, _ := mustPlan(t, request(func(r *api.RunnerRequest) { r.SubmissionID, r.FlameParent = id, "g3QAAAAI" }), factsOf(t, minimalParent), Settings{})
		var names []string
		for _, s := range r.Plan.Support {
			if s.Object.GetKind() == "Lease" {
				names = append(names, s.Object.GetName())
			}
		}
		return names
	}
	boot := MarkName(launch.ID("ns", api.FlameKey("g3QAAAAI")))
	if diff := gocmp.Diff([]string{boot}, marks(api.FlameKey("g3QAAAAI"))); diff != "" {
		t.Errorf("without a key of its own (-want +got):\n%s", diff)
	}
	for _, id := range []string{"mine", "another"} {
		if diff := gocmp.Diff([]string{MarkName(launch.ID("ns", id)), boot}, marks(id)); diff != "" {
			t.Errorf("with the key %s (-want +got):\n%s", id, diff)
		}
	}
}

func TestR16DigestPin(t *testing.T) {
	const sum = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct{ image, id, want string }{
		"same repository":            {"registry.example/shop:1", "registry.example/shop@" + sum, "registry.example/shop@" + sum},
		"of the Docker shim":         {"registry.example/shop:1", "docker-pullable://registry.example/shop@" + sum, "registry.example/shop@" + sum},
		"short name":                 {"shop", "docker.io/library/shop@" + sum, "docker.io/library/shop@" + sum},
		"user's short name":          {"me/shop:1", "docker.io/me/shop@" + sum, "docker.io/me/shop@" + sum},
		"port and no tag":            {"localhost:5000/shop", "localhost:5000/shop@" + sum, "localhost:5000/shop@" + sum},
		"loaded onto the node":       {"registry.example/shop:1", "registry.example/import-2024-01-01@" + sum, ""},
		"loaded, short":              {"shop:1", "docker.io/library/import-2024-01-01@" + sum, ""},
		"another registry":           {"registry.example/shop:1", "mirror.example/shop@" + sum, ""},
		"an id and no digest":        {"registry.example/shop:1", sum, ""},
		"an id of the Docker engine": {"registry.example/shop:1", "docker://" + sum, ""},
		"a short digest":             {"registry.example/shop:1", "registry.example/shop@sha256:abc", ""},
		"not told":                   {"registry.example/shop:1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			facts := factsOf(t, minimalParent, func(o object) {
				objects(o["spec"].(object)["containers"])[0]["image"] = tc.image
				o["status"] = object{"containerStatuses": list{object{"name": "app", "imageID": tc.id}}}
			})
			runner, pod := mustPlan(t, request(), facts, Settings{PinDigest: true})
			if want := cmp.Or(tc.want, tc.image); pod.Spec.Containers[0].Image != want {
				t.Errorf("image %q, want %q", pod.Spec.Containers[0].Image, want)
			}
			if (tc.want == "") != (len(runner.Warnings) == 1) {
				t.Errorf("warnings %q", runner.Warnings)
			}
			if _, pod := mustPlan(t, request(), facts, Settings{}); pod.Spec.Containers[0].Image != tc.image {
				t.Errorf("pinned unasked: %q", pod.Spec.Containers[0].Image)
			}
		})
	}
}

func TestR21Claims(t *testing.T) {
	plan := func(r *api.RunnerRequest, inUse map[string]Use, changes ...func(object)) (*Runner, error) {
		facts := factsOf(t, richParent, changes...)
		facts.InUse = inUse
		return Plan(r, facts, Settings{}, "")
	}
	r := request(volumes("data", "scratch"))
	t.Run("names", func(t *testing.T) {
		r := request(volumes("data", "scratch", "nothing"), templated(t, `{"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "claim-z"}}, {"name": "y", "persistentVolumeClaim": 1}, 7]}}`))
		if got := Claims(r, factsOf(t, richParent).Parent); !slices.Equal(got, []string{"claim-a", "claim-z"}) {
			t.Errorf("claims %q", got)
		}
		if got := Claims(request(), &unstructured.Unstructured{Object: object{"spec": 1}}); len(got) != 0 {
			t.Errorf("claims %q of garbage", got)
		}
	})
	t.Run("once a pod", func(t *testing.T) {
		_, err := plan(r, map[string]Use{"claim-a": {Pod: "other", Node: "node-1", OncePod: true}})
		mustRefuse(t, err, api.ClaimUnusable, 422, "volumes", "claim-a", "other")
	})
	t.Run("on another node", func(t *testing.T) {
		_, err := plan(r, map[string]Use{"claim-a": {Pod: "other", Node: "node-2"}})
		mustRefuse(t, err, api.ClaimUnusable, 422, "volumes", "claim-a", "other", "node-2")
	})
	t.Run("not mounted", func(t *testing.T) {
		if _, err := plan(request(), map[string]Use{"claim-a": {Pod: "other", Node: "node-2"}}); err != nil {
			t.Error(err)
		}
	})
	here := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: "In", Values: []string{"node-1"}}
	for name, tc := range map[string]struct {
		inherit []string
		change  func(object)
		terms   int
	}{
		"on the parent's node, with affinity":    {api.DefaultInherit(), func(object) {}, 1},
		"on the parent's node, two terms":        {api.DefaultInherit(), twoTerms, 2},
		"on the parent's node, without affinity": {[]string{"securityContext"}, func(object) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			runner, err := plan(request(volumes("data"), inheriting(tc.inherit...)), map[string]Use{"claim-a": {Pod: "shop-7d4b9-x2", Node: "node-1"}}, tc.change)
			if err != nil {
				t.Fatal(err)
			}
			terms := podOf(t, runner).Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			if len(terms) != tc.terms {
				t.Fatalf("terms %+v", terms)
			}
			for _, term := range terms {
				if len(term.MatchFields) != 1 || gocmp.Diff(here, term.MatchFields[0]) != "" {
					t.Errorf("term %+v", term)
				}
			}
			if podOf(t, runner).Spec.NodeName != "" || !strings.Contains(strings.Join(runner.Warnings, ";"), "node-1") {
				t.Errorf("node %q, warnings %q", podOf(t, runner).Spec.NodeName, runner.Warnings)
			}
		})
	}
}

func twoTerms(o object) {
	affinity := o["spec"].(object)["affinity"].(object)["nodeAffinity"].(object)["requiredDuringSchedulingIgnoredDuringExecution"].(object)
	affinity["nodeSelectorTerms"] = list{
		object{"matchExpressions": list{object{"key": "a", "operator": "Exists"}}}, object{},
		object{"matchExpressions": list{object{"key": "b", "operator": "Exists"}}},
	}
}

func TestR13Labels(t *testing.T) {
	labelled := func(labels map[string]string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.Labels = labels }
	}
	t.Run("of template and request", func(t *testing.T) {
		_, pod := mustPlan(t, request(labelled(map[string]string{"a": "request", "b": "request"}), templated(t, `{"metadata": {"labels": {"a": "template", "c": "template"}}}`)), factsOf(t, minimalParent), Settings{})
		if pod.Labels["a"] != "request" || pod.Labels["b"] != "request" || pod.Labels["c"] != "template" || pod.Labels["app"] != "" {
			t.Errorf("labels %v", pod.Labels)
		}
	})
	for _, key := range []string{
		"pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid", "job-name", "statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index", "batch.kubernetes.io/controller-uid", "serving.knative.dev/revision",
	} {
		t.Run("stripped "+key, func(t *testing.T) {
			for _, change := range []func(*api.RunnerRequest){labelled(map[string]string{key: "x"}), templated(t, fmt.Sprintf(`{"metadata": {"labels": {%q: "x"}}}`, key))} {
				runner, pod := mustPlan(t, request(change), factsOf(t, minimalParent), Settings{})
				if _, there := pod.Labels[key]; there || len(runner.Warnings) != 1 || !strings.Contains(runner.Warnings[0], key) {
					t.Errorf("labels %v, warnings %q", pod.Labels, runner.Warnings)
				}
			}
		})
	}
	refused := map[string]struct {
		change func(*api.RunnerRequest)
		code   api.Code
		field  string
	}{
		"ours":                {labelled(map[string]string{"flint.dev/kind": "spark"}), api.BadRequest, "labels.flint.dev/kind"},
		"ours in a template":  {templated(t, `{"metadata": {"labels": {"flint.dev/kind": "spark"}}}`), api.TemplateInvalid, "template.metadata.labels.flint.dev/kind"},
		"managed-by":          {labelled(map[string]string{"app.kubernetes.io/managed-by": "me"}), api.BadRequest, "labels.app.kubernetes.io/managed-by"},
		"component":           {labelled(map[string]string{"app.kubernetes.io/component": "me"}), api.BadRequest, "labels.app.kubernetes.io/component"},
		"a key that is none":  {templated(t, `{"metadata": {"labels": {"a b": "x"}}}`), api.TemplateInvalid, "template.metadata.labels.a b"},
		"a value that is not": {templated(t, `{"metadata": {"labels": {"a": "x y"}}}`), api.TemplateInvalid, "template.metadata.labels.a"},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(request(tc.change), factsOf(t, minimalParent), Settings{}, "")
			mustRefuse(t, err, tc.code, 422, tc.field)
		})
	}
	selectors := map[string]struct {
		labels map[string]string
		metav1.LabelSelector
		match bool
	}{
		"matched":           {map[string]string{"app": "shop", "x": "y"}, metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}}, true},
		"matched by ours":   {nil, metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/managed-by": "flint"}}, true},
		"by an expression":  {map[string]string{"app": "shop"}, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}}, true},
		"only partly":       {map[string]string{"app": "shop"}, metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop", "tier": "web"}}, false},
		"empty":             {map[string]string{"app": "shop"}, metav1.LabelSelector{}, false},
		"one that is wrong": {map[string]string{"app": "shop"}, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}, false},
	}
	for name, tc := range selectors {
		t.Run("selector "+name, func(t *testing.T) {
			facts := factsOf(t, minimalParent)
			facts.Selectors = []Selector{{Kind: "ReplicaSet", Name: "shop-7d4b9", Labels: tc.LabelSelector}}
			_, err := Plan(request(labelled(tc.labels)), facts, Settings{}, "")
			if !tc.match {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustRefuse(t, err, api.BadRequest, 422, "labels", "ReplicaSet shop-7d4b9")
		})
	}
}

func TestAnnotations(t *testing.T) {
	annotated := func(key, value string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.Annotations = map[string]string{key: value} }
	}
	for _, key := range []string{
		"container.apparmor.security.beta.kubernetes.io/app", "seccomp.security.alpha.kubernetes.io/pod", "k8s.v1.cni.cncf.io/networks", "io.kubernetes.cri-o.Devices",
		"io.katacontainers.config.hypervisor.path", "cni.projectcalico.org/ipAddrs", "example.K8S.io/x", "k8s.io/x", "CNI.x",
		"iam.amazonaws.com/role", "sidecar.istio.io/userVolume", "sidecar.istio.io/proxyImage", "config.linkerd.io/proxy-image", "vault.hashicorp.com/role",
		"seccomp-profile.kubernetes.cri-o.io/POD", "cpu-quota.crio.io", "run.oci.handler", "org.systemd.property.x",
	} {
		t.Run(key, func(t *testing.T) {
			for _, change := range []func(*api.RunnerRequest){annotated(key, "value-x"), templated(t, fmt.Sprintf(`{"metadata": {"annotations": {%q: "value-x"}}}`, key))} {
				_, err := Plan(request(change), factsOf(t, richParent), Settings{}, "")
				mustRefuse(t, err, api.PolicyDenied, 403, "annotations."+key, key)
				if strings.Contains(err.Error(), "value-x") {
					t.Errorf("its value, which may be secret, is told: %v", err)
				}
			}
		})
	}
	for name, tc := range map[string][2]string{
		"of one's own":             {"example.com/build", "7"},
		"without a domain":         {"build", "7"},
		"the parent's, as it is":   {"k8s.v1.cni.cncf.io/networks", "net-a"},
		"for the autoscaler":       {safeToEvict, "true"},
		"a domain with that end":   {"myk8s.io/x", "7"},
		"for people with kubectl":  {"kubectl.kubernetes.io/default-container", "app"},
		"the parent's, other text": {"example.com/team", "blue"},
	} {
		t.Run(name, func(t *testing.T) {
			_, pod := mustPlan(t, request(annotated(tc[0], tc[1])), factsOf(t, richParent), Settings{})
			if pod.Annotations[tc[0]] != tc[1] {
				t.Errorf("annotations %v", pod.Annotations)
			}
		})
	}
	t.Run("ours", func(t *testing.T) {
		_, err := Plan(request(annotated("flint.dev/hash", "x")), factsOf(t, richParent), Settings{}, "")
		mustRefuse(t, err, api.BadRequest, 422, "annotations.flint.dev/hash")
	})
	t.Run("none is inherited", func(t *testing.T) {
		if _, pod := mustPlan(t, request(all), factsOf(t, richParent), Settings{}); pod.Annotations["example.com/team"] != "" {
			t.Errorf("annotations %v", pod.Annotations)
		}
	})
}

func TestCheckAllow(t *testing.T) {
	if err := CheckAllow([]string{"image:registry.example/x", "secret:a", "configMap:a", "claim:a", "pullSecret:a", "priorityClass:a", "runtimeClass:a"}); err != nil {
		t.Error(err)
	}
	for _, entry := range []string{"", "secret", "secret:", "host:x", "Secret:x"} {
		if err := CheckAllow([]string{"secret:a", entry}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", entry)) {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
