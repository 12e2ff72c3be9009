package runner

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/api"
)

var update = flag.Bool("update", false, "write testdata/env anew")

// envCase is a file of testdata/env: the list of a runner's container, and what its variables are in the container. That is
// checked with Kubernetes' own code in test/controlplane/binary/expansion, a module that has it.
type envCase struct {
	// Given are the values of the variables that come from elsewhere.
	Given map[string]string `json:"given"`
	List  []object          `json:"list"`
	Want  map[string]string `json:"want"`
}

// clustered is the parent's env of the backend's own documentation.
const clustered = `[
	{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}, {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}},
	{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
	{"name": "RELEASE_DISTRIBUTION", "value": "name"}, {"name": "RELEASE_NODE", "value": "flame_test@$(POD_IP)"}, {"name": "FOO", "value": "parent"}, {"name": "FLAME_BACKEND", "value": "k8s"}
]`

func withEnv(t testing.TB, env string) func(object) {
	return func(o object) {
		objects(o["spec"].(object)["containers"])[0]["env"] = fromJSON(t, `{"env": `+env+`}`)["env"]
	}
}

func TestEnv(t *testing.T) {
	env := func(vars map[string]string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.Env = vars }
	}
	secret := func(vars map[string]string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.SecretEnv = vars }
	}
	expand := func(r *api.RunnerRequest) { r.ExpandEnv = true }
	flame := func(r *api.RunnerRequest) { r.FlameParent = "g2gDWAAAAAA=" }
	template := func(env string) func(*api.RunnerRequest) {
		return templated(t, `{"spec": {"containers": [{"env": `+env+`}]}}`)
	}
	cases := map[string]struct {
		parent  string
		changes []func(*api.RunnerRequest)
		given   map[string]string
		want    map[string]string
	}{
		"R04_defaults_expand": {
			changes: []func(*api.RunnerRequest){flame},
			want:    map[string]string{"RELEASE_NODE": "flame_runner@10.0.0.9", "RELEASE_DISTRIBUTION": "name", "PHX_SERVER": "false", "FLAME_PARENT": "g2gDWAAAAAA=", "POD_NAME": "runner", "NODE_NAME": "node-1"},
		},
		"R04_inherited_expand": {
			parent: clustered, changes: []func(*api.RunnerRequest){inheriting("env"), flame},
			want: map[string]string{"RELEASE_NODE": "flame_test@10.0.0.9", "FOO": "parent", "POD_NAME": "runner"},
		},
		"R04_referenced_later": {
			parent: `[{"name": "A", "value": "$(B)-$(C)"}, {"name": "B", "value": "$(C)b"}, {"name": "C", "value": "c"}, {"name": "D", "value": "$(A)"}]`, changes: []func(*api.RunnerRequest){inheriting("env")},
			want: map[string]string{"A": "cb-c", "B": "cb", "C": "c", "D": "cb-c"},
		},
		"R04_across_layers": {
			parent: `[{"name": "URL", "value": "http://$(HOST):$(PORT)/$$(HOST)"}, {"name": "HOST", "value": "parent"}, {"name": "PORT", "value": "1"}]`,
			changes: []func(*api.RunnerRequest){
				inheriting("env"), template(`[{"name": "PORT", "value": "$(BASE)0"}]`), env(map[string]string{"BASE": "808", "HOST": "request"}),
			},
			want: map[string]string{"URL": "http://request:8080/$(HOST)", "PORT": "8080"},
		},
		"R05_precedence": {
			parent: `[{"name": "PHX_SERVER", "value": "inherited"}, {"name": "I", "value": "inherited"}, {"name": "IT", "value": "inherited"}, {"name": "ITR", "value": "inherited"}, {"name": "IR", "value": "inherited"}, {"name": "TWICE", "value": "first"}, {"name": "TWICE", "value": "last"}]`,
			changes: []func(*api.RunnerRequest){
				inheriting("env"), template(`[{"name": "IT", "value": "template"}, {"name": "ITR", "value": "template"}, {"name": "T", "value": "template"}, {"name": "RELEASE_DISTRIBUTION", "value": "template"}]`),
				env(map[string]string{"ITR": "request", "IR": "request", "R": "request", "RELEASE_NODE": "request"}), secret(map[string]string{"I": "", "S": ""}),
			},
			given: map[string]string{"I": "secret", "S": "secret"},
			want: map[string]string{
				"PHX_SERVER": "inherited", "RELEASE_DISTRIBUTION": "template", "RELEASE_NODE": "request", "I": "secret", "IT": "template", "ITR": "request", "IR": "request", "T": "template",
				"R": "request", "S": "secret", "TWICE": "last",
			},
		},
		"R05_not_inherited": {
			parent: `[{"name": "FOO", "value": "parent"}]`, changes: []func(*api.RunnerRequest){env(map[string]string{"BAR": "$(FOO)"}), expand},
			want: map[string]string{"BAR": "$(FOO)"},
		},
		"R08_dollars_stay": {
			changes: []func(*api.RunnerRequest){env(map[string]string{"A": "a$(HOME)b$$", "B": "$", "C": "$$$(POD_IP)$", "D": "$(", "E": "$(A", "F": "plain"})},
			want:    map[string]string{"A": "a$(HOME)b$$", "B": "$", "C": "$$$(POD_IP)$", "D": "$(", "E": "$(A", "F": "plain"},
		},
		"R08_dollars_expand": {
			changes: []func(*api.RunnerRequest){expand, env(map[string]string{"A": "a$(B)b$$", "B": "$(POD_IP)", "C": "$(C)", "D": "$$(B)", "E": "$(UNKNOWN)"})},
			want:    map[string]string{"A": "a10.0.0.9b$", "B": "10.0.0.9", "C": "$(C)", "D": "$(B)", "E": "$(UNKNOWN)"},
		},
		"secret_before_its_user": {
			changes: []func(*api.RunnerRequest){expand, env(map[string]string{"A": "$(Z)@$(POD_NAMESPACE)"}), secret(map[string]string{"Z": ""})},
			given:   map[string]string{"Z": "cookie$(POD_IP)"},
			want:    map[string]string{"A": "cookie$(POD_IP)@ns", "Z": "cookie$(POD_IP)"},
		},
		"R07_reserved_not_inherited": {
			parent: `[{"name": "FLINT_RUNNER_ID", "value": "old"}, {"name": "POD_IP", "value": "old"}, {"name": "NODE_NAME", "value": "old"}, {"name": "ME", "value": "$(POD_IP)"}]`, changes: []func(*api.RunnerRequest){inheriting("env")},
			want: map[string]string{"POD_IP": "10.0.0.9", "NODE_NAME": "node-1", "ME": "10.0.0.9"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			parent := factsOf(t, minimalParent)
			if tc.parent != "" {
				parent = factsOf(t, minimalParent, withEnv(t, tc.parent))
			}
			runner, _ := mustPlan(t, request(tc.changes...), parent, Settings{})
			env := objects(objects(runner.Plan.Workload.Object["spec"].(object)["containers"])[0]["env"])
			checkEnvCase(t, name, env, tc.given, tc.want)

			seen := map[string]bool{}
			all := map[string]bool{}
			for _, v := range env {
				all[text(v, "name")] = true
			}
			for i, v := range env {
				for _, other := range references(text(v, "value")) {
					if all[other] && !seen[other] && other != v["name"] {
						t.Errorf("%v comes before %s, to which it refers", v["name"], other)
					}
				}
				if seen[text(v, "name")] {
					t.Errorf("%v comes twice", v["name"])
				}
				if want := []string{"POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME"}; i < 4 && v["name"] != want[i] {
					t.Errorf("%v at %d, want %s", v["name"], i, want[i])
				}
				seen[text(v, "name")] = true
			}
		})
	}
}

// checkEnvCase compares a list with the one in testdata.
func checkEnvCase(t *testing.T, name string, env []object, given, want map[string]string) {
	t.Helper()
	all := map[string]string{"POD_NAME": "runner", "POD_NAMESPACE": "ns", "POD_IP": "10.0.0.9", "NODE_NAME": "node-1"}
	for key, value := range given {
		all[key] = value
	}
	text, err := json.MarshalIndent(envCase{all, env, want}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	file := filepath.Join("testdata", "env", name+".json")
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(stored), string(text)); diff != "" {
		t.Errorf("another list than in %s (-stored +made); go test -update writes it\n%s", file, diff)
	}
}

func TestEnvRefused(t *testing.T) {
	env := func(name, value string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.Env, r.ExpandEnv = map[string]string{name: value}, true }
	}
	for _, name := range []string{"FLAME_PARENT", "POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME", "FLINT_RUNNER_ID"} {
		t.Run("R06_reserved_"+name, func(t *testing.T) {
			_, err := Plan(request(env(name, "hidden")), factsOf(t, minimalParent), Settings{}, "")
			mustRefuse(t, err, api.BadRequest, 422, "env."+name, name)
			_, err = Plan(request(func(r *api.RunnerRequest) { r.SecretEnv = map[string]string{name: "hidden"} }), factsOf(t, minimalParent), Settings{}, "")
			mustRefuse(t, err, api.BadRequest, 422, "secret_env."+name, name)
			_, err = Plan(request(templated(t, `{"spec": {"containers": [{"env": [{"name": "`+name+`", "value": "hidden"}]}]}}`)), factsOf(t, minimalParent), Settings{}, "")
			mustRefuse(t, err, api.TemplateInvalid, 422, "template.spec.containers[app].env", name)
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v tells the value", err)
			}
		})
	}
	t.Run("cycle", func(t *testing.T) {
		r := request(inheriting("env"), env("B", "$(C)"), templated(t, `{"spec": {"containers": [{"env": [{"name": "C", "value": "$(A)"}]}]}}`))
		_, err := Plan(r, factsOf(t, minimalParent, withEnv(t, `[{"name": "Z", "value": "$(A)"}, {"name": "A", "value": "x$(B)"}]`)), Settings{}, "")
		mustRefuse(t, err, api.BadRequest, 422, "env", "A, B, C ")
	})
	t.Run("in both", func(t *testing.T) {
		_, err := Plan(request(env("A", "x"), func(r *api.RunnerRequest) { r.SecretEnv = map[string]string{"A": "y"} }), factsOf(t, minimalParent), Settings{}, "")
		mustRefuse(t, err, api.BadRequest, 422, "secret_env.A")
	})
}

func TestReferences(t *testing.T) {
	for value, want := range map[string][]string{
		"":                nil,
		"$":               nil,
		"$$":              nil,
		"$(A)":            {"A"},
		"$$(A)":           nil,
		"$$$(A)":          {"A"},
		"$x$(A)":          {"A"},
		"$(A)$(B)x$(A)":   {"A", "B", "A"},
		"$(A":             nil,
		"$($(A)":          {"$(A"},
		"$()":             {""},
		"a$(B)c$ $(D) $e": {"B", "D"},
		"$é$(A)":          {"A"},
	} {
		if got := references(value); !slices.Equal(got, want) {
			t.Errorf("%q refers to %q, want %q", value, got, want)
		}
	}
}
