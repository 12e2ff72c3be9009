package runner

import (
	"testing"

	"flint.dev/flint/pkg/api"
)

// meshParent has a sidecar with a volume and a script of its own, which the app's container does not see.
const meshParent = `{
	"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shop-7d4b9-x2", "namespace": "ns", "uid": "parent-uid"},
	"spec": {
		"containers": [
			{"name": "app", "image": "registry.example/shop:1", "volumeMounts": [{"name": "shared", "mountPath": "/shared", "subPath": "app"}]},
			{"name": "agent", "image": "registry.example/agent:1", "command": ["sh", "/scripts/run"], "volumeMounts": [
				{"name": "private", "mountPath": "/tokens"}, {"name": "shared", "mountPath": "/shared"}, {"name": "scripts", "mountPath": "/scripts"}]}
		],
		"volumes": [
			{"name": "private", "emptyDir": {"medium": "Memory"}}, {"name": "shared", "emptyDir": {}}, {"name": "scripts", "configMap": {"name": "agent-scripts"}}
		],
		"serviceAccountName": "shop"
	}
}`

// What an inherited container keeps from the app's in the parent, it keeps from the runner's too.
func TestR17CompanionsVolumes(t *testing.T) {
	for name, tc := range map[string]struct{ template, field string }{
		"an empty volume of the agent's": {`{"spec": {"containers": [{"volumeMounts": [{"name": "private", "mountPath": "/loot"}]}]}}`, "template.spec.containers[app].volumeMounts"},
		"more of it than the app has":    {`{"spec": {"containers": [{"volumeMounts": [{"name": "shared", "mountPath": "/loot"}]}]}}`, "template.spec.containers[app].volumeMounts"},
		"by another container":           {`{"spec": {"containers": [{"name": "x", "image": "registry.example/shop:1", "volumeMounts": [{"name": "private", "mountPath": "/loot"}]}]}}`, "template.spec.containers[x].volumeMounts"},
		"another in the place of its scripts": {
			`{"spec": {"volumes": [{"name": "scripts", "configMap": null, "downwardAPI": {"items": [{"path": "run", "fieldRef": {"fieldPath": "metadata.annotations['run']"}}]}}]}}`, "template.spec.volumes[scripts].downwardAPI",
		},
		"another in the place of its tokens'": {`{"spec": {"volumes": [{"name": "private", "emptyDir": {"medium": ""}}]}}`, "template.spec.volumes[private].emptyDir"},
		"a part that the app has too":         {`{"spec": {"containers": [{"volumeMounts": [{"name": "shared", "mountPath": "/mine", "subPath": "app"}]}]}}`, ""},
		"a volume of its own":                 {`{"spec": {"volumes": [{"name": "own", "emptyDir": {}}], "containers": [{"volumeMounts": [{"name": "own", "mountPath": "/own"}]}]}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(request(inheriting("sidecars"), volumes("private", "shared", "scripts"), templated(t, tc.template)), factsOf(t, meshParent), Settings{}, "")
			if tc.field == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			mustRefuse(t, err, api.PolicyDenied, 403, tc.field)
		})
	}
}

// A mount in the place of the token hides it from the parent's container, and so from the runner.
func TestTokenHidden(t *testing.T) {
	for name, tc := range map[string]struct {
		volume string
		want   bool
	}{
		"the token":                {`{"projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}, {"serviceAccountToken": {"path": "token"}}]}}`, true},
		"a token of old":           {`{"secret": {"secretName": "shop-token-abcde"}}`, false},
		"an empty volume":          {`{"emptyDir": {}}`, false},
		"for another than the API": {`{"projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			hide := func(o object) {
				spec := o["spec"].(object)
				volume := fromJSON(t, tc.volume)
				volume["name"] = "v"
				spec["volumes"] = list{volume}
				spec["containers"].(list)[0].(object)["volumeMounts"] = list{object{"name": "v", "mountPath": tokenMount}}
			}
			_, pod := mustPlan(t, request(inheriting("serviceAccountToken")), factsOf(t, minimalParent, hide), Settings{})
			if got := *pod.Spec.AutomountServiceAccountToken; got != tc.want {
				t.Errorf("automount %t, want %t", got, tc.want)
			}
		})
	}
}
