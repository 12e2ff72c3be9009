package rbac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/operator"
)

// callers are accounts with their rules in the first namespace; in the second one they have none of them.
var callers = map[string][]rbacv1.PolicyRule{
	"nobody":  nil,
	"admin":   {rule("*", "*", "*")},
	"creator": {rule("create", "", "pods", "services", "configmaps", "secrets"), rule("create", "networking.k8s.io", "networkpolicies"), rule("create", "batch", "jobs")},
	// As Spark's own page has it for the driver: without policies.
	"spark":        {rule("*", "", "pods", "services", "configmaps", "persistentvolumeclaims")},
	"podder":       {rule("create", "", "pods")},
	"parent":       {rule("create get", "", "pods"), rule("create", "", "secrets")},
	"filer":        {rule("create", "batch", "jobs"), rule("create", "", "secrets", "configmaps")},
	"jobber":       {rule("create get list delete", "batch", "jobs"), rule("create", "", "configmaps")},
	"support":      {rule("create", "", "services", "configmaps", "secrets"), rule("create", "networking.k8s.io", "networkpolicies")},
	"reader":       {rule("get list", "", "pods"), rule("get list", "batch", "jobs")},
	"lister":       {rule("list", "", "pods")},
	"watcher":      {rule("watch", "", "pods", "pods/log")},
	"logger":       {rule("get", "", "pods/log")},
	"killer":       {rule("delete", "", "pods")},
	"collector":    {rule("deletecollection", "", "pods"), rule("deletecollection", "batch", "jobs")},
	"by-name":      {named(rule("get delete", "", "pods", "pods/log"), "spark-by-name", "runner-by-name"), named(rule("get delete", "batch", "jobs"), "file-by-name")},
	"by-other":     {named(rule("create get list delete", "", "pods", "pods/log"), "other")},
	"other-groups": {rule("*", "apps", "pods", "jobs"), rule("*", "extensions", "pods", "jobs")},
}

func rule(verbs, group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: []string{group}, Resources: resources}
}

func named(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// asked is one request of one caller, by way of Flint and by hand. Each tells whether it is forbidden.
type asked struct {
	flint, hand func(t *testing.T) bool
}

// court is Flint with tokens wanted, and the callers with theirs.
type court struct {
	cp     *controlplane.ControlPlane
	url    string
	access *access.Access
	flint  kube.Client // with the rights of Flint's account
}

// TestFlintAllowsWhatKubernetesAllows holds each way in, for each caller, namespace and kind of launch, against what the
// API server itself answers to that caller with the same token: Flint allows nothing more, and refuses nothing more.
func TestFlintAllowsWhatKubernetesAllows(t *testing.T) {
	cp := controlplane.Shared(t)
	first, second := cp.NewNamespace(t), cp.NewNamespace(t)
	home := cp.NewNamespace(t) // where the callers' accounts are
	c := newCourt(t, cp, first, second)
	// In the second namespace everybody has one right, by a group.
	bind(t, cp, second, "everybody", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + home},
		[]rbacv1.PolicyRule{rule("list", "", "pods")})
	for name, rules := range callers {
		if err := cp.ServiceAccount(testContext(t), home, name); err != nil {
			t.Fatal(err)
		}
		if rules != nil {
			bind(t, cp, first, name, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: home, Name: name}, rules)
		}
	}
	forbidden, allowed := 0, 0
	for name, rules := range callers {
		user := "system:serviceaccount:" + home + ":" + name
		c.awaitRules(t, user, home, first, rules)
		c.awaitRules(t, user, home, second, []rbacv1.PolicyRule{rule("list", "", "pods")})
		caller := c.caller(t, home, name)
		for place, namespace := range map[string]string{"first": first, "second": second} {
			for _, kind := range []launch.Kind{launch.Spark, launch.File, launch.Runner} {
				for verb, a := range c.asks(t, caller, namespace, kind, name) {
					t.Run(fmt.Sprintf("%s/%s/%s/%s", name, place, kind, verb), func(t *testing.T) {
						hand := a.hand(t)
						flint := a.flint(t)
						if hand != flint {
							t.Errorf("forbidden by hand: %v, by Flint: %v", hand, flint)
						}
						if flint {
							forbidden++
						} else {
							allowed++
						}
					})
				}
			}
		}
	}
	if allowed < 40 || forbidden < 200 {
		t.Errorf("%d allowed and %d forbidden: the callers do not show what they should", allowed, forbidden)
	}
}

func newCourt(t *testing.T, cp *controlplane.ControlPlane, namespaced ...string) *court {
	t.Helper()
	namespaces(t, cp)
	for _, file := range []string{"base/201-clusterrole.yaml", "base/202-clusterrolebinding.yaml"} {
		for _, object := range manifests(t, file) {
			create(t, cp, object, metav1.CreateOptions{})
		}
	}
	for _, namespace := range namespaced {
		bear(t, cp, namespace)
		if err := cp.ServiceAccount(testContext(t), namespace, otherAccount); err != nil {
			t.Fatal(err)
		}
		role, binding := theRole(t), theBinding(t)
		role.Namespace, binding.Namespace = namespace, namespace
		if _, err := cp.Client().RbacV1().Roles(namespace).Create(testContext(t), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := cp.Client().RbacV1().RoleBindings(namespace).Create(testContext(t), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitRights(t, cp, namespace, rightsOf(t, role))
	}
	awaitRights(t, cp, "", []right{{"create", "authorization.k8s.io", "subjectaccessreviews"}})
	awaitRights(t, cp, "", []right{{"create", "authentication.k8s.io", "tokenreviews"}})
	account := cp.ConfigFor(account)
	account.WarningHandler = rest.NoWarnings{}
	settings, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	settings.Namespaces, settings.Tokens, settings.PollInterval = namespaced, true, 0
	settings.File.Job.Image = "fileagent"
	f := function.New(function.WithSettings(settings), function.WithCluster(account), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := f.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(f.Handle))
	t.Cleanup(func() {
		server.Close()
		if err := f.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	c := &court{cp: cp, url: server.URL}
	if c.access, err = access.New(access.Config{Cluster: account, Tokens: true, Audience: "flint", Clock: clock.RealClock{}}); err != nil {
		t.Fatal(err)
	}
	if c.flint, err = kube.NewClient(account); err != nil {
		t.Fatal(err)
	}
	return c
}

func bind(t *testing.T, cp *controlplane.ControlPlane, namespace, name string, to rbacv1.Subject, rules []rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := cp.Client().RbacV1().Roles(namespace).Create(testContext(t), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{to},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
	}
	if _, err := cp.Client().RbacV1().RoleBindings(namespace).Create(testContext(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitRules waits until the authorizer has seen the first of the caller's rules, and so its role.
func (c *court) awaitRules(t *testing.T, user, home, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	if len(rules) == 0 {
		return
	}
	resource, sub, _ := strings.Cut(rules[0].Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: rules[0].Verbs[0], Group: rules[0].APIGroups[0], Resource: resource, Subresource: sub}
	if len(rules[0].ResourceNames) > 0 {
		attributes.Name = rules[0].ResourceNames[0]
	}
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		answer, err := c.cp.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"}, ResourceAttributes: attributes,
		}}, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		t.Fatalf("the rules of %s in %s are not seen: %v", user, namespace, err)
	}
}

// caller has a token for Flint, and one for the API server.
type caller struct {
	header string
	client kube.Client
	who    *access.Caller
}

func (c *court) caller(t *testing.T, namespace, account string) caller {
	t.Helper()
	token := func(audiences ...string) string {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
		answer, err := c.cp.Client().CoreV1().ServiceAccounts(namespace).CreateToken(testContext(t), account, request, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Token
	}
	own := c.cp.Config()
	own.BearerToken, own.WarningHandler = token(), rest.NoWarnings{}
	client, err := kube.NewClient(own)
	if err != nil {
		t.Fatal(err)
	}
	header := "Bearer " + token("flint")
	who, err := c.access.Identify(testContext(t), &http.Request{Header: http.Header{"Authorization": {header}}})
	if err != nil {
		t.Fatal(err)
	}
	return caller{header, client, who}
}

// listPodsOf asks for the pods of a Job, in which its result stands.
func (c caller) listPodsOf(t *testing.T, workload kube.Ref) error {
	if workload.Kind != "Job" {
		return nil
	}
	_, err := c.client.List(testContext(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: workload.Namespace}, kube.ListOptions{Limit: 1})
	return err
}

// readLog tells whether the log of the pod of that name is forbidden.
func (c caller) readLog(t *testing.T, namespace, pod string) bool {
	t.Helper()
	text, err := c.client.Log(testContext(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod}, "", 1, 1)
	if err == nil {
		_ = text.Close()
	}
	return forbids(t, err)
}

// mayNotDelete tells whether the deletion is forbidden. It is of another uid, so that the object stays: who may not is told so first.
func (c caller) mayNotDelete(t *testing.T, ref kube.Ref) bool {
	t.Helper()
	err := c.client.Delete(testContext(t), ref, "00000000-0000-0000-0000-000000000000")
	if !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
		t.Fatalf("by hand: %v", err)
	}
	return apierrors.IsForbidden(err)
}

// asks are all requests about launches of a kind.
func (c *court) asks(t *testing.T, who caller, namespace string, kind launch.Kind, name string) map[string]asked {
	name = string(kind) + "-" + name
	at := api.LaunchesPath + "/" + namespace + "/" + launch.ID(namespace, name)
	ref := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}
	if kind == launch.File {
		ref.APIVersion, ref.Kind = "batch/v1", "Job"
	}
	asks := map[string]asked{
		"launch": {
			flint: func(t *testing.T) bool { return c.launches(t, who, namespace, kind, "new-"+name) },
			hand: func(t *testing.T) bool {
				if kind == launch.Runner { // it is made of what its parent is
					_, err := who.client.Get(testContext(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: parent})
					if forbids(t, err) {
						return true
					}
				}
				for _, object := range c.objects(t, who, namespace, kind, "new-"+name) {
					if _, err := who.client.Create(testContext(t), namespace, object, true); forbids(t, err) {
						return true
					}
				}
				return false
			},
		},
		"get": {
			flint: func(t *testing.T) bool { return c.forbids(t, who, http.MethodGet, at, nil, http.StatusOK) },
			hand: func(t *testing.T) bool {
				c.fixture(t, namespace, kind, name)
				_, err := who.client.Get(testContext(t), ref)
				return forbids(t, err) || forbids(t, who.listPodsOf(t, ref))
			},
		},
		"list": {
			flint: func(t *testing.T) bool {
				return c.forbids(t, who, http.MethodGet, api.LaunchesPath+"?namespace="+namespace+"&kind="+string(kind), nil, http.StatusOK)
			},
			hand: func(t *testing.T) bool {
				_, err := who.client.List(testContext(t), ref, kube.ListOptions{Limit: 1})
				return forbids(t, err) || forbids(t, who.listPodsOf(t, ref))
			},
		},
		"delete": {
			flint: func(t *testing.T) bool { return c.forbids(t, who, http.MethodDelete, at, nil, http.StatusAccepted) },
			hand: func(t *testing.T) bool {
				c.fixture(t, namespace, kind, name)
				return who.mayNotDelete(t, ref)
			},
		},
	}
	if kind == launch.Spark { // whoever may create pods may do so under any account
		asks["launch under another account"] = asked{
			flint: func(t *testing.T) bool { return c.launches(t, who, namespace, kind, otherAccount+"-"+name) },
			hand: func(t *testing.T) bool {
				for _, object := range c.objects(t, who, namespace, kind, otherAccount+"-"+name) {
					account, _, _ := unstructured.NestedString(object.Object, "spec", "serviceAccountName")
					if object.GetKind() == "Pod" && account != otherAccount {
						t.Fatalf("the driver runs under %q", account)
					}
					if _, err := who.client.Create(testContext(t), namespace, object, true); forbids(t, err) {
						return true
					}
				}
				return false
			},
		}
	}
	asks["log"] = asked{
		flint: func(t *testing.T) bool {
			return c.forbids(t, who, http.MethodGet, at+"/log", nil, http.StatusServiceUnavailable)
		},
		hand: func(t *testing.T) bool {
			c.fixture(t, namespace, kind, name)
			return who.readLog(t, namespace, name)
		},
	}
	if kind != launch.File {
		return asks
	}
	// The paths of file jobs alone, which tell what the pods' logs have, and go by the Job's name.
	own := ref
	own.Name = filejob.JobName(launch.ID(namespace, "own-"+name))
	files := api.FilePath + "/" + namespace + "/" + launch.ID(namespace, "own-"+name)
	asks["get by its own path"] = asked{
		flint: func(t *testing.T) bool { return c.forbids(t, who, http.MethodGet, files, nil, http.StatusOK) },
		hand: func(t *testing.T) bool {
			c.fixtureOf(t, namespace, kind, "own-"+name, own.Name)
			_, err := who.client.Get(testContext(t), own)
			return forbids(t, err) || who.readLog(t, namespace, own.Name)
		},
	}
	asks["list by their own path"] = asked{
		flint: func(t *testing.T) bool {
			return c.forbids(t, who, http.MethodGet, api.FilePath+"?namespace="+namespace, nil, http.StatusOK)
		},
		hand: func(t *testing.T) bool {
			c.fixtureOf(t, namespace, kind, "own-"+name, own.Name)
			_, err := who.client.List(testContext(t), own, kube.ListOptions{Limit: 1})
			return forbids(t, err) || who.readLog(t, namespace, own.Name)
		},
	}
	asks["delete by its own path"] = asked{
		flint: func(t *testing.T) bool { return c.forbids(t, who, http.MethodDelete, files, nil, http.StatusAccepted) },
		hand: func(t *testing.T) bool {
			c.fixtureOf(t, namespace, kind, "own-"+name, own.Name)
			return who.mayNotDelete(t, own)
		},
	}
	return asks
}

// forbids tells an answer of the API server that says so from one about anything else.
func forbids(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsBadRequest(err) { // the latter: a log of no container
		t.Fatalf("by hand: %v", err)
	}
	return apierrors.IsForbidden(err)
}

// forbids sends a request with the caller's token. What is not forbidden has the status.
func (c *court) forbids(t *testing.T, who caller, method, path string, body []byte, want int) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), method, c.url+path, strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", who.header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	switch response.StatusCode {
	case want:
		return false
	case http.StatusForbidden:
		if text := messageOf(t, answer); !strings.Contains(text, "may not ") || !strings.Contains(text, who.who.Name) {
			t.Errorf("the refusal does not say what is missing: %s", text)
		}
		return true
	case http.StatusNotFound: // to who may look at launches of another kind, what they may not see is not there
		if text := messageOf(t, answer); !strings.Contains(path, api.LaunchesPath+"/") || !strings.Contains(text, "; ") || !strings.Contains(text, "may not ") {
			t.Errorf("%s %s: HTTP 404, and not by want of rights: %s", method, path, text)
		}
		return true
	}
	t.Fatalf("%s %s: HTTP %d, want %d or 403: %s", method, path, response.StatusCode, want, answer)
	return false
}

// launches tells whether Flint refuses the launch.
func (c *court) launches(t *testing.T, who caller, namespace string, kind launch.Kind, name string) bool {
	t.Helper()
	path, body, created := c.request(t, namespace, kind, name)
	refused := c.forbids(t, who, http.MethodPost, path+"?dryRun=All", body, http.StatusOK)
	if also := c.forbids(t, who, http.MethodPost, path, body, created); also != refused {
		t.Errorf("dry run forbidden: %v, launch forbidden: %v", refused, also)
	}
	return refused
}

const (
	// parent is the pod of runners, in each namespace.
	parent = "parent"
	// otherAccount is one of each namespace that nobody's rights name, and what the drivers' names begin with that run under it.
	otherAccount = "other"
)

// request is one that launches, where it goes, and the status that it is answered with.
func (c *court) request(t *testing.T, namespace string, kind launch.Kind, name string) (path string, body []byte, created int) {
	t.Helper()
	switch kind {
	case launch.File:
		c.claim(t, namespace, name) // one for each: changes of a claim take turns
		return api.FilePath, fmt.Appendf(nil, `{"submission_id":%q,"target":{"namespace":%q,"claim":%q},"operation":{"op":"write","path":"f","text":"x"},"wait_seconds":0}`,
			name, namespace, name), http.StatusAccepted
	case launch.Runner:
		return api.RunnerPath, fmt.Appendf(nil, `{"submission_id":%q,"parent":{"namespace":%q,"name":%q},"secret_env":{"A":"b"},"wait":"none"}`,
			name, namespace, parent), http.StatusAccepted
	default:
		return api.SubmitPath, sparkRequest(t, namespace, name), http.StatusCreated
	}
}

// claim makes a claim that is bound, unless it is there.
func (c *court) claim(t *testing.T, namespace, name string) {
	t.Helper()
	claims := c.cp.Client().CoreV1().PersistentVolumeClaims(namespace)
	made, err := claims.Create(testContext(t), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	made.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(testContext(t), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bear makes the pod of runners.
func bear(t *testing.T, cp *controlplane.ControlPlane, namespace string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: parent}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if _, err := cp.Client().CoreV1().Pods(namespace).Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func sparkRequest(t *testing.T, namespace, name string) []byte {
	t.Helper()
	samples, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	body, err := operator.With(samples["spark-pi"], name, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	// The account of the sample is not in these namespaces.
	account := "default"
	if strings.HasPrefix(name, otherAccount) {
		account = otherAccount
	}
	return []byte(strings.ReplaceAll(string(body), "spark-operator-spark", account))
}

// objects are those of a launch, as somebody would create them by hand: as a dry run, which needs no right, gives them.
// A runner's asks for its parent, so it is as it must be.
func (c *court) objects(t *testing.T, who caller, namespace string, kind launch.Kind, name string) []*unstructured.Unstructured {
	t.Helper()
	if kind == launch.Runner {
		return []*unstructured.Unstructured{c.object(namespace, "v1", "Pod", name), c.object(namespace, "v1", "Secret", name)}
	}
	path, body, _ := c.request(t, namespace, kind, name)
	request, err := http.NewRequestWithContext(testContext(t), http.MethodPost, c.url+path+"?dryRun=client", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", who.header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var list struct{ Items []map[string]any }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || len(list.Items) < 2 {
		t.Fatalf("HTTP %d, %d objects, %v", response.StatusCode, len(list.Items), err)
	}
	var objects []*unstructured.Unstructured
	for _, item := range list.Items {
		objects = append(objects, &unstructured.Unstructured{Object: item})
	}
	return objects
}

func (c *court) object(namespace, apiVersion, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name, "namespace": namespace}}}
	pod := map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i"}}}
	switch kind {
	case "Pod":
		o.Object["spec"] = pod
	case "Job":
		o.Object["spec"] = map[string]any{"template": map[string]any{"spec": pod}}
	}
	return o
}

// fixture is a launch that is there, unless it is already.
func (c *court) fixture(t *testing.T, namespace string, kind launch.Kind, name string) {
	t.Helper()
	c.fixtureOf(t, namespace, kind, name, name)
}

// fixtureOf is one of the submission, whose workload has the name.
func (c *court) fixtureOf(t *testing.T, namespace string, kind launch.Kind, submission, name string) {
	t.Helper()
	workload := c.object(namespace, "v1", "Pod", name)
	if kind == launch.File {
		workload = c.object(namespace, "batch/v1", "Job", name)
	}
	plan, err := launch.NewPlan(launch.Plan{Kind: kind, Namespace: namespace, SubmissionID: submission, Hash: "1", Workload: workload})
	if err != nil {
		t.Fatal(err)
	}
	result, err := (&launch.Applier{Client: c.flint}).Apply(testContext(t), plan)
	if err != nil {
		t.Fatal(err)
	}
	if kind != launch.File {
		return
	}
	// Its pod, which no controller makes here, has its name.
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"batch.kubernetes.io/controller-uid": string(result.Workload.GetUID())},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: result.Workload.GetUID(), Controller: new(true)}},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pods := c.cp.Client().CoreV1().Pods(namespace)
	switch found, err := pods.Get(testContext(t), name, metav1.GetOptions{}); {
	case err == nil && found.OwnerReferences[0].UID != result.Workload.GetUID(): // of the fixture before
		if err := pods.Delete(testContext(t), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	case err == nil:
		return
	case !apierrors.IsNotFound(err):
		t.Fatal(err)
	}
	if _, err := pods.Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestWithoutTheClusterRole: without its rights Flint refuses everybody, as its own fault, and says which it needs.
func TestWithoutTheClusterRole(t *testing.T) {
	cp := controlplane.Shared(t)
	stranger := cp.ConfigFor("system:serviceaccount:flint:without")
	a, err := access.New(access.Config{Cluster: stranger, Tokens: true, Audience: "flint", Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	_, identified := a.Identify(testContext(t), &http.Request{Header: http.Header{"Authorization": {"Bearer x"}}})
	allowed := a.Allow(testContext(t), &access.Caller{Name: "ann"}, access.Right{Verb: "create", Resource: "pods", Namespace: "default"})
	for right, err := range map[string]error{"create tokenreviews.authentication.k8s.io": identified, "create subjectaccessreviews.authorization.k8s.io": allowed} {
		e, ok := errors.AsType[*api.Error](err)
		if !ok || e.Code != api.InternalServerError || !strings.Contains(e.Message, right) {
			t.Errorf("want %q in %v", right, err)
		}
	}
	rules := typed[rbacv1.ClusterRole](t, manifests(t, "base/201-clusterrole.yaml")).Rules
	if !slices.EqualFunc(rules, []string{"tokenreviews", "subjectaccessreviews"}, func(r rbacv1.PolicyRule, resource string) bool {
		return len(r.Resources) == 1 && r.Resources[0] == resource && slices.Equal(r.Verbs, []string{"create"})
	}) {
		t.Errorf("the cluster role has %v", rules)
	}
}
