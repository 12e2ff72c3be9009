package runner

import (
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/api"
)

// flameTestParent is a parent as the backend's documentation wants it.
func flameTestParent(t testing.TB) Facts {
	return factsOf(t, minimalParent, withEnv(t, clustered))
}

// parentsEnv is a manifest of 0.7.0 with the parent's env copied, as its documentation shows it.
func parentsEnv(t testing.TB) map[string]any {
	return fromJSON(t, `{"spec": {"containers": [{"env": `+clustered+`}]}}`)
}

func TestReference030(t *testing.T) {
	pod, err := Reference("0.3.0", flameTestParent(t).Parent, ReferenceOptions{FlameParent: "new", Random: "0123456789abcdef0123"})
	if err != nil {
		t.Fatal(err)
	}
	want := fromJSON(t, `{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": "shop-7d4b9-x20123456789abcdef0123", "namespace": "ns",
			"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "shop-7d4b9-x2", "namespace": "ns", "uid": "parent-uid"}]},
		"spec": {"restartPolicy": "Never", "serviceAccount": "shop", "containers": [{"name": "shop-7d4b9-x20123456789abcdef0123", "image": "registry.example/shop:1", "env": [
			{"name": "POD_NAME", "value": "shop-7d4b9-x20123456789abcdef0123"}, {"name": "POD_NAMESPACE", "value": "ns"}, {"name": "PHX_SERVER", "value": "false"}, {"name": "FLAME_PARENT", "value": "new"},
			{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
			{"name": "RELEASE_DISTRIBUTION", "value": "name"}, {"name": "RELEASE_NODE", "value": "flame_test@$(POD_IP)"}, {"name": "FOO", "value": "parent"}]}]}}`)
	if diff := gocmp.Diff(want, pod); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	t.Run("a callback's pod", func(t *testing.T) {
		pod, err := Reference("0.3.0", factsOf(t, richParent).Parent, ReferenceOptions{
			Container: "app", OmitOwnerReference: true, Random: "r",
			Manifest: fromJSON(t, `{"metadata": {"name": "x"}, "spec": {"serviceAccount": "x", "restartPolicy": "Always", "containers": [{"name": "x", "image": "x"}]}}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		container := first(pod["spec"].(object))
		if container["image"] != "registry.example/shop:1" || container["name"] != "shop-7d4b9-x2r" || pod["spec"].(object)["restartPolicy"] != "Never" || len(objects(container["env"])) != 4 {
			t.Errorf("pod %v", pod)
		}
		if owners := pod["metadata"].(object)["ownerReferences"].(list); len(owners) != 0 {
			t.Errorf("owners %v", owners)
		}
	})
}

func TestReference070(t *testing.T) {
	pod, err := Reference("0.7.0", flameTestParent(t).Parent, ReferenceOptions{FlameParent: "new", Env: map[string]string{"A": "1", "POD_NAME": "x"}, Secret: "sec"})
	if err != nil {
		t.Fatal(err)
	}
	want := fromJSON(t, `{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {"generateName": "shop-7d4b9-x2-", "namespace": "ns", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "shop-7d4b9-x2", "namespace": "ns", "uid": "parent-uid"}]},
		"spec": {"restartPolicy": "Never", "serviceAccount": "shop", "containers": [{"name": "runner", "image": "registry.example/shop:1", "envFrom": [{"secretRef": {"name": "sec", "namespace": "ns"}}], "env": [
			{"name": "PHX_SERVER", "value": "false"}, {"name": "RELEASE_DISTRIBUTION", "value": "name"}, {"name": "RELEASE_NODE", "value": "flame_runner@$(POD_IP)"}, {"name": "A", "value": "1"},
			{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
			{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}, {"name": "FLAME_PARENT", "value": "new"}]}]}}`)
	if diff := gocmp.Diff(want, pod); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := Reference("0.5.7", flameTestParent(t).Parent, ReferenceOptions{}); err == nil || !strings.Contains(err.Error(), `"0.5.7"`) {
		t.Errorf("0.5.7: %v", err)
	}
}

// The same parent, and the same wish for its env, in the two references and here.
func TestDifferencesToTheReference(t *testing.T) {
	facts := factsOf(t, richParent, func(o object) {
		app := objects(o["spec"].(object)["containers"])[1]
		app["env"] = append(app["env"].(list), plain("FLAME_PARENT", "old"), plain("FOO", "parent"))
		o["spec"].(object)["serviceAccount"] = "shop"
	})
	options := ReferenceOptions{
		Container: "app", FlameParent: "new", Random: "0123456789abcdef0123", Secret: "sec",
		Manifest: fromJSON(t, `{"spec": {"containers": [{"env": [{"name": "FOO", "value": "template"}]}]}}`),
	}
	seed, err := Reference("0.3.0", facts.Parent, options)
	if err != nil {
		t.Fatal(err)
	}
	// The struct template of 0.3.0 puts its own env before the parent's, which so wins.
	options.Manifest = nil
	structural, err := Reference("0.3.0", facts.Parent, options)
	if err != nil {
		t.Fatal(err)
	}
	options.Manifest = fromJSON(t, `{"spec": {"containers": [{"env": [{"name": "FOO", "value": "template"}]}]}}`)
	newest, err := Reference("0.7.0", facts.Parent, options)
	if err != nil {
		t.Fatal(err)
	}
	runner, err := Plan(request(inheriting("env", "resources", "scheduling", "securityContext", "imagePull"), func(r *api.RunnerRequest) {
		r.FlameParent, r.SecretEnv = "new", map[string]string{"RELEASE_COOKIE": "c"}
		r.Template = fromJSON(t, `{"spec": {"containers": [{"env": [{"name": "FOO", "value": "template"}]}]}}`)
	}), facts, Settings{AllowNested: true}, "")
	if err != nil {
		t.Fatal(err)
	}
	ours := runner.Plan.Workload.Object

	at := func(path ...string) func(object) any {
		return func(pod object) any {
			var value any = pod
			for _, key := range path {
				if key == "container" {
					value = first(value.(object))
					continue
				}
				o, ok := value.(object)
				if !ok || o[key] == nil {
					return nil
				}
				value = o[key]
			}
			return value
		}
	}
	variable := func(name string) func(object) any {
		return func(pod object) any {
			v := lastNamed(objects(first(pod["spec"].(object))["env"]), name)
			if v == nil {
				return nil
			}
			if v["value"] != nil {
				return v["value"]
			}
			return "elsewhere"
		}
	}
	count := func(name string) func(object) any {
		return func(pod object) any {
			n := 0
			for _, v := range objects(first(pod["spec"].(object))["env"]) {
				if v["name"] == name {
					n++
				}
			}
			return n
		}
	}
	before := func(one, other string) func(object) any {
		return func(pod object) any {
			env := objects(first(pod["spec"].(object))["env"])
			index := func(name string) int { return slices.IndexFunc(env, func(v object) bool { return v["name"] == name }) }
			return index(one) >= 0 && index(one) < index(other)
		}
	}
	table := []struct {
		what                           string
		read                           func(object) any
		seed, structural, newest, ours any
	}{
		{"name is derived from the key", at("metadata", "name"), "shop-7d4b9-x20123456789abcdef0123", "shop-7d4b9-x20123456789abcdef0123", nil, runner.Plan.Workload.GetName()},
		{"generateName", at("metadata", "generateName"), nil, nil, "shop-7d4b9-x2-", nil},
		{"namespace", at("metadata", "namespace"), nil, "ns", "ns", "ns"},
		{"R11 labels", at("metadata", "labels", "flint.dev/kind"), nil, nil, nil, "runner"},
		{"restartPolicy", at("spec", "restartPolicy"), "Never", "Never", "Never", "Never"},
		{"account by its old name", at("spec", "serviceAccount"), "shop", "shop", "shop", nil},
		{"account", at("spec", "serviceAccountName"), nil, nil, nil, "shop"},
		{"R12 token", at("spec", "automountServiceAccountToken"), nil, nil, nil, false},
		{"R10 pull policy", at("spec", "container", "imagePullPolicy"), nil, nil, nil, "Always"},
		{"R10 pull secrets", at("spec", "imagePullSecrets"), nil, nil, nil, list{object{"name": "pull"}}},
		{"R16 grace period", at("spec", "terminationGracePeriodSeconds"), nil, nil, nil, int64(35)},
		{"resources", at("spec", "container", "resources", "limits"), nil, object{"memory": "1Gi"}, nil, object{"memory": "1Gi"}},
		{"container's name", at("spec", "container", "name"), "shop-7d4b9-x20123456789abcdef0123", "shop-7d4b9-x20123456789abcdef0123", "runner", "app"},
		{"node selector", at("spec", "nodeSelector"), nil, nil, nil, object{"pool": "apps"}},
		{"security context", at("spec", "securityContext", "runAsUser"), nil, nil, nil, int64(1000)},
		{"FLAME_PARENT that counts", variable("FLAME_PARENT"), "new", "old", "new", "new"},
		{"FLAME_PARENT how often", count("FLAME_PARENT"), 1, 2, 1, 1},
		{"template's variable", variable("FOO"), "template", "parent", "template", "template"},
		{"R5 cookie", variable("RELEASE_COOKIE"), nil, nil, nil, "elsewhere"},
		{"R5 cookie by envFrom", at("spec", "container", "envFrom"), nil, nil, nil, nil},
		{"R8 address before the node's name", before("POD_IP", "RELEASE_NODE"), false, false, false, true},
	}
	for _, row := range table {
		t.Run(row.what, func(t *testing.T) {
			for i, pod := range []object{seed, structural, newest, ours} {
				want := []any{row.seed, row.structural, row.newest, row.ours}[i]
				if diff := gocmp.Diff(want, row.read(pod)); diff != "" {
					t.Errorf("%s (-want +got)\n%s", []string{"0.3.0 with a callback", "0.3.0", "0.7.0", "Flint"}[i], diff)
				}
			}
		})
	}
}

// The lists of the references, which test/controlplane/binary/expansion expands: where the identity comes last, a node has no name.
func TestReferenceEnv(t *testing.T) {
	for name, tc := range map[string]struct {
		version  string
		manifest map[string]any
		parent   string
		want     map[string]string
	}{
		"reference_0.3.0_with_parents_env": {version: "0.3.0", parent: strings.Replace(clustered, `{"name": "FOO"`, `{"name": "FLAME_PARENT", "value": "old"}, {"name": "FOO"`, 1), want: map[string]string{"RELEASE_NODE": "flame_test@10.0.0.9", "FLAME_PARENT": "old", "FOO": "parent"}},
		"reference_0.7.0_defaults":         {version: "0.7.0", parent: clustered, want: map[string]string{"RELEASE_NODE": "flame_runner@$(POD_IP)", "POD_IP": "10.0.0.9"}},
		"reference_0.7.0_with_parents_env": {version: "0.7.0", parent: clustered, manifest: parentsEnv(t), want: map[string]string{"RELEASE_NODE": "flame_test@$(POD_IP)", "FOO": "parent"}},
	} {
		t.Run(name, func(t *testing.T) {
			pod, err := Reference(tc.version, factsOf(t, minimalParent, withEnv(t, tc.parent)).Parent, ReferenceOptions{Manifest: tc.manifest, FlameParent: "new", Random: "r"})
			if err != nil {
				t.Fatal(err)
			}
			checkEnvCase(t, name, objects(first(pod["spec"].(object))["env"]), nil, tc.want)
		})
	}
}
