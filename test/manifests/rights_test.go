package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const rbac = "rbac.authorization.k8s.io/v1"

// rights are the documented ones, by account, group/resource. test/rbac shows that each verb is needed.
var rights = map[string]map[string]string{
	"flint": {
		"/pods":                             "create delete get list patch",
		"/pods/log":                         "get",
		"batch/jobs":                        "create delete get list patch",
		"/services":                         "create get list",
		"/configmaps":                       "create get",
		"/secrets":                          "create get",
		"/persistentvolumeclaims":           "create get",
		"networking.k8s.io/networkpolicies": "create get",
		"/events":                           "list",
		"apps/daemonsets":                   "list",
		"apps/replicasets":                  "list",
		"coordination.k8s.io/leases":        "create delete get list patch",
	},
	"flint-source": {
		"/pods":      "get list watch",
		"batch/jobs": "get list watch",
	},
}

func TestRolesHaveExactlyTheirRights(t *testing.T) {
	for folder := range builds {
		t.Run(folder, func(t *testing.T) {
			for name, role := range all[rbacv1.Role](t, build(t, filepath.Join(root, folder)), rbac, "Role") {
				got := map[string]string{}
				for _, rule := range role.Rules {
					if len(rule.ResourceNames) != 0 || len(rule.NonResourceURLs) != 0 {
						t.Errorf("%s has a rule with names", name)
					}
					for _, group := range rule.APIGroups {
						for _, resource := range rule.Resources {
							if _, twice := got[group+"/"+resource]; twice {
								t.Errorf("%s has two rules about %s", name, resource)
							}
							got[group+"/"+resource] = strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " ")
						}
					}
				}
				if diff := cmp.Diff(rights[role.Name], got); diff != "" {
					t.Errorf("%s (-want +got)\n%s", name, diff)
				}
			}
		})
	}
}

// What is not of a namespace: two questions, and nothing that can be read or changed.
func TestClusterRole(t *testing.T) {
	for _, folder := range withFunction {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join(root, folder))
			roles, bindings := all[rbacv1.ClusterRole](t, objects, rbac, "ClusterRole"), all[rbacv1.ClusterRoleBinding](t, objects, rbac, "ClusterRoleBinding")
			role, binding := roles["/flint-reviews"], bindings["/flint-reviews"]
			if len(roles) != 1 || len(bindings) != 1 || role == nil || binding == nil {
				t.Fatalf("cluster roles %v, bindings %v", roles, bindings)
			}
			want := []rbacv1.PolicyRule{
				{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
				{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
			}
			if diff := cmp.Diff(want, role.Rules); diff != "" || role.AggregationRule != nil {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, binding.RoleRef); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff([]rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "flint", Namespace: "flint"}}, binding.Subjects); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Each role is bound in its namespace, to the account of its name in Flint's own namespace, and to nobody else.
func TestRolesAreBound(t *testing.T) {
	for folder := range builds {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join(root, folder))
			roles := all[rbacv1.Role](t, objects, rbac, "Role")
			bindings := all[rbacv1.RoleBinding](t, objects, rbac, "RoleBinding")
			if len(roles) != len(bindings) {
				t.Errorf("%d roles and %d bindings", len(roles), len(bindings))
			}
			for name, role := range roles {
				binding := bindings[name]
				if binding == nil {
					t.Errorf("%s is not bound", name)
					continue
				}
				want := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
				if diff := cmp.Diff(want, binding.RoleRef); diff != "" {
					t.Errorf("%s roleRef (-want +got)\n%s", name, diff)
				}
				subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: role.Name, Namespace: "flint"}}
				if diff := cmp.Diff(subjects, binding.Subjects); diff != "" {
					t.Errorf("%s subjects (-want +got)\n%s", name, diff)
				}
			}
		})
	}
}

// The namespaces of the setting are those that the function has rights in, and none of them is its own.
func TestNamespacesAgree(t *testing.T) {
	for _, folder := range withFunction {
		t.Run(folder, func(t *testing.T) {
			objects := build(t, filepath.Join(root, folder))
			var granted []string
			for _, role := range all[rbacv1.Role](t, objects, rbac, "Role") {
				if role.Name == "flint" {
					granted = append(granted, role.Namespace)
				}
			}
			slices.Sort(granted)
			set := strings.Split(environment(theService(t, objects))["FLINT_NAMESPACES"], ",")
			slices.Sort(set)
			if diff := cmp.Diff(set, granted); diff != "" {
				t.Errorf("FLINT_NAMESPACES, and the namespaces of the roles (-setting +roles)\n%s", diff)
			}
			if slices.Contains(set, "flint") {
				t.Error("Flint launches into its own namespace, where a pod may have its account")
			}
			if folder == "." {
				if diff := cmp.Diff(set, sourceNamespaces(t, objects)); diff != "" {
					t.Errorf("FLINT_NAMESPACES, and what the ApiServerSource watches (-setting +source)\n%s", diff)
				}
			}
		})
	}
}

// Flint's own namespace is at the restricted level, and the one for jobs refuses privileged pods.
func TestNamespaceLevels(t *testing.T) {
	namespaces := all[corev1.Namespace](t, build(t, filepath.Join(root, "base")), "v1", "Namespace")
	for name, want := range map[string]string{"/flint": "restricted", "/flint-jobs": "baseline"} {
		if got := namespaces[name].Labels["pod-security.kubernetes.io/enforce"]; got != want {
			t.Errorf("level of %s = %q, want %q", name, got, want)
		}
	}
}
