package access

import (
	"context"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

func tokenOf(t *testing.T, cp *controlplane.ControlPlane, namespace, account string, audiences ...string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	answer, err := cp.Client().CoreV1().ServiceAccounts(namespace).CreateToken(within(t), account, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

func realAccess(t *testing.T, cp *controlplane.ControlPlane) *Access {
	t.Helper()
	a, err := New(Config{Cluster: cp.Config(), Tokens: true, Audience: "flint", Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAPIServerTokens(t *testing.T) {
	cp := controlplane.Shared(t)
	namespace := cp.NewNamespace(t)
	a := realAccess(t, cp)
	for name, tc := range map[string]struct {
		token string
		taken bool
	}{
		"ours":                 {tokenOf(t, cp, namespace, "default", "flint"), true},
		"ours among others":    {tokenOf(t, cp, namespace, "default", "vault", "flint"), true},
		"another audience":     {tokenOf(t, cp, namespace, "default", "vault"), false},
		"the API server's own": {tokenOf(t, cp, namespace, "default"), false},
		"one of a file":        {cp.Config().BearerToken, false}, // for the API server alone
		"nobody's":             {"eyJhbGciOiJub25lIn0.e30.", false},
		"a text":               {"x", false},
	} {
		t.Run(name, func(t *testing.T) {
			caller, err := a.Identify(within(t), bearing("Bearer "+tc.token))
			if !tc.taken {
				if code(err) != api.Unauthenticated {
					t.Errorf("caller %+v, %v", caller, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if caller.Name != "system:serviceaccount:"+namespace+":default" || caller.UID == "" || !slices.Contains(caller.Groups, "system:serviceaccounts:"+namespace) ||
				len(caller.Extra["authentication.kubernetes.io/credential-id"]) != 1 {
				t.Errorf("caller %+v", caller)
			}
			// The one that a certificate may stand for has the same groups.
			if got := userOf(caller.Name).Groups; !slices.Equal(got, caller.Groups) {
				t.Errorf("groups %v, and of a certificate %v", caller.Groups, got)
			}
		})
	}
}

// A token of an account that is gone is refused, once it is forgotten.
func TestAPIServerTokenOfWhatIsGone(t *testing.T) {
	cp := controlplane.Shared(t)
	namespace := cp.NewNamespace(t)
	token := tokenOf(t, cp, namespace, "default", "flint")
	if err := cp.Client().CoreV1().ServiceAccounts(namespace).Delete(within(t), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		_, err := realAccess(t, cp).Identify(within(t), bearing("Bearer "+token)) // that remembers nothing
		return code(err) == api.Unauthenticated, nil
	})
	if err != nil {
		t.Error("the token is still taken")
	}
}

// Rights by group, by name and by extra are the authorizer's own; user and groups alone decide in RBAC.
func TestAPIServerRights(t *testing.T) {
	cp := controlplane.Shared(t)
	namespace := cp.NewNamespace(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}, ResourceNames: []string{"mine"}},
	}}
	if _, err := cp.Client().RbacV1().Roles(namespace).Create(within(t), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "dev"}},
	}
	if _, err := cp.Client().RbacV1().RoleBindings(namespace).Create(within(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ann := &Caller{Name: "ann", Groups: []string{"dev", "system:authenticated"}, Extra: map[string][]string{"k": {"v"}}}
	create := Right{Verb: "create", Resource: "pods", Namespace: namespace}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return realAccess(t, cp).Allow(within(t), ann, create) == nil, nil
	})
	if err != nil {
		t.Fatal("the role is not seen")
	}
	a := realAccess(t, cp)
	for _, tc := range []struct {
		caller  *Caller
		right   Right
		allowed bool
	}{
		{ann, create, true},
		{ann, Right{Verb: "get", Resource: "pods", Namespace: namespace, Name: "mine"}, true},
		{ann, Right{Verb: "get", Resource: "pods", Namespace: namespace, Name: "yours"}, false},
		{ann, Right{Verb: "get", Resource: "pods", Namespace: namespace}, false},
		{ann, Right{Verb: "get", Resource: "pods", Subresource: "log", Namespace: namespace, Name: "mine"}, false},
		{ann, Right{Verb: "create", Group: "batch", Resource: "jobs", Namespace: namespace}, false},
		{ann, Right{Verb: "create", Resource: "pods", Namespace: "default"}, false},
		{&Caller{Name: "dev"}, create, false},
		{&Caller{Name: "root", Groups: []string{"system:masters"}}, Right{Verb: "delete", Group: "batch", Resource: "jobs", Namespace: "default", Name: "j"}, true},
	} {
		err := a.Allow(within(t), tc.caller, tc.right)
		if tc.allowed && err != nil || !tc.allowed && code(err) != api.Forbidden {
			t.Errorf("%s, %+v: %v", tc.caller.Name, tc.right, err)
		}
	}
}
