package rbac

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runners"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/operator"
)

// account is the one of the manifests.
const account = "system:serviceaccount:flint:flint"

// right is one verb of a rule: "create pods", "get pods/log".
type right struct{ verb, group, resource string }

func (r right) String() string { return strings.TrimSuffix(r.verb+" "+r.resource+"."+r.group, ".") }

// works is for what Flint has each right: the work that fails without it. A right that is not here
// has no reason, and one that is here and not in the role is missing.
var works = map[right]work{
	{"create", "", "pods"}: submit,
	{"get", "", "pods"}:    repeat,
	{"list", "", "pods"}:   list,
	{"patch", "", "pods"}:  submit,
	{"delete", "", "pods"}: each(withdraw, cancel),

	{"create", "batch", "jobs"}: runJob,
	{"get", "batch", "jobs"}:    repeatJob,
	{"list", "batch", "jobs"}:   list,
	{"patch", "batch", "jobs"}:  runJob,
	{"delete", "batch", "jobs"}: each(withdrawJob, cancelJob),

	{"create", "", "services"}:                         submit,
	{"get", "", "services"}:                            heal,
	{"create", "", "configmaps"}:                       submit,
	{"get", "", "configmaps"}:                          heal,
	{"create", "", "secrets"}:                          submit,
	{"get", "", "secrets"}:                             heal,
	{"create", "", "persistentvolumeclaims"}:           submit,
	{"get", "", "persistentvolumeclaims"}:              heal,
	{"create", "networking.k8s.io", "networkpolicies"}: submit,
	{"get", "networking.k8s.io", "networkpolicies"}:    heal,

	{"get", "", "pods/log"}: readLog,

	{"create", "coordination.k8s.io", "leases"}: changeFiles,
	{"get", "coordination.k8s.io", "leases"}:    changeFilesAgain,
	{"patch", "coordination.k8s.io", "leases"}:  changeFilesAgain,
	{"list", "coordination.k8s.io", "leases"}:   sweepRunners,
	{"delete", "coordination.k8s.io", "leases"}: sweepRunners,
	{"list", "", "services"}:                    labelRunner,
	{"list", "apps", "replicasets"}:             labelRunner,
	{"list", "apps", "daemonsets"}:              labelRunner,
	{"list", "", "events"}:                      tellWhyNoPod,
}

// work is done with the rights of the account. Its error has the API server's reason.
type work func(t *testing.T, g *ground) error

// TestEveryWorkIsDoneWithTheRole runs in the namespace and with the role of the manifests, so at its Pod Security level too.
func TestEveryWorkIsDoneWithTheRole(t *testing.T) {
	cp := controlplane.Shared(t)
	namespaces(t, cp)
	const namespace = "flint-jobs"
	if err := cp.ServiceAccount(testContext(t), namespace, "default"); err != nil && !apierrors.IsAlreadyExists(errors.Unwrap(err)) {
		t.Fatal(err)
	}
	for _, file := range []string{"base/200-serviceaccount.yaml", "watched/201-role.yaml", "watched/202-rolebinding.yaml"} {
		for _, object := range manifests(t, file) {
			create(t, cp, object, metav1.CreateOptions{})
		}
	}
	rights := rightsOf(t, theRole(t))
	awaitRights(t, cp, namespace, rights)
	for r, work := range works {
		t.Run(r.String(), func(t *testing.T) {
			if !slices.Contains(rights, r) {
				t.Fatal("the role does not have it")
			}
			if err := work(t, newGround(t, cp, namespace)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryRightIsNeeded(t *testing.T) {
	cp := controlplane.Shared(t)
	all := rightsOf(t, theRole(t))
	for _, missing := range all {
		t.Run(missing.String(), func(t *testing.T) {
			work := works[missing]
			if work == nil {
				t.Fatal("nothing needs it")
			}
			namespace := cp.NewNamespace(t)
			role := theRole(t)
			role.Namespace = namespace
			remove(role, missing)
			binding := theBinding(t)
			binding.Namespace = namespace
			ctx := testContext(t)
			if _, err := cp.Client().RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := cp.Client().RbacV1().RoleBindings(namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			others := slices.DeleteFunc(slices.Clone(all), func(r right) bool { return r == missing })
			awaitRights(t, cp, namespace, others)
			err := work(t, newGround(t, cp, namespace))
			if err == nil {
				t.Fatal("it is done without this right")
			}
			if want := fmt.Sprintf("cannot %s resource %q", missing.verb, missing.resource); !strings.Contains(err.Error(), want) {
				t.Errorf("it fails with %v, want %q in it", err, want)
			}
		})
	}
}

func theRole(t *testing.T) *rbacv1.Role {
	return typed[rbacv1.Role](t, manifests(t, "watched/201-role.yaml"))
}

func theBinding(t *testing.T) *rbacv1.RoleBinding {
	return typed[rbacv1.RoleBinding](t, manifests(t, "watched/202-rolebinding.yaml"))
}

func typed[T any](t *testing.T, objects []*unstructured.Unstructured) *T {
	t.Helper()
	if len(objects) != 1 {
		t.Fatalf("%d objects in the file, want one", len(objects))
	}
	into := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[0].Object, into, true); err != nil {
		t.Fatal(err)
	}
	return into
}

func rightsOf(t *testing.T, role *rbacv1.Role) (all []right) {
	t.Helper()
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, right{verb, group, resource})
				}
			}
		}
	}
	return all
}

// remove takes one right out of the role, and leaves every other.
func remove(role *rbacv1.Role, missing right) {
	var rules []rbacv1.PolicyRule
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			one := rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{resource}, Verbs: slices.Clone(rule.Verbs)}
			if resource == missing.resource && slices.Contains(rule.APIGroups, missing.group) {
				one.Verbs = slices.DeleteFunc(one.Verbs, func(verb string) bool { return verb == missing.verb })
			}
			if len(one.Verbs) > 0 {
				rules = append(rules, one)
			}
		}
	}
	role.Rules = rules
}

// awaitRights waits until the API server's authorizer has seen the role and its binding.
func awaitRights(t *testing.T, cp *controlplane.ControlPlane, namespace string, rights []right) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		r := rights[0] // a role is seen whole
		resource, sub, _ := strings.Cut(r.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:flint", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: sub},
		}}
		answer, err := cp.Client().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		return err == nil && answer.Status.Allowed, err
	})
	if err != nil {
		t.Fatalf("the role in %s is not seen: %v", namespace, err)
	}
}

// ground is a namespace, and Flint with the rights of its account there.
type ground struct {
	cp        *controlplane.ControlPlane
	namespace string
	name      string // of this work's submission and pod
	config    *rest.Config
}

func newGround(t *testing.T, cp *controlplane.ControlPlane, namespace string) *ground {
	t.Helper()
	g := &ground{cp: cp, namespace: namespace, config: cp.ConfigFor(account)}
	g.name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "/")+1:]))
	g.config.WarningHandler = rest.NoWarnings{}
	return g
}

// post sends this ground's submission to a Flint with the configuration, and wants the status.
func (g *ground) post(t *testing.T, cluster *rest.Config, query string, want int) ([]byte, error) {
	t.Helper()
	return g.call(t, cluster, http.MethodPost, api.SubmitPath+query, g.submission(t), want)
}

// launch asks Flint about this ground's launch.
func (g *ground) launch(t *testing.T, method, more string, want int) ([]byte, error) {
	t.Helper()
	return g.call(t, g.config, method, api.LaunchesPath+"/"+g.namespace+"/"+launch.ID(g.namespace, g.name)+more, nil, want)
}

func (g *ground) call(t *testing.T, cluster *rest.Config, method, path string, body []byte, want int) ([]byte, error) {
	t.Helper()
	cluster = rest.CopyConfig(cluster)
	cluster.WarningHandler = rest.NoWarnings{} // of Pod Security: a driver is not restricted
	settings, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	settings.Namespaces = []string{g.namespace}
	settings.File.Job.Image = "fileagent"
	f := function.New(function.WithSettings(settings), function.WithCluster(cluster), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := f.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Stop(testContext(t)); err != nil {
			t.Error(err)
		}
	}()
	server := httptest.NewServer(http.HandlerFunc(f.Handle))
	defer server.Close()
	request, err := http.NewRequestWithContext(testContext(t), method, server.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != want {
		return nil, fmt.Errorf("status %d, want %d: %s", response.StatusCode, want, messageOf(t, answer))
	}
	return answer, nil
}

func messageOf(t *testing.T, body []byte) string {
	t.Helper()
	var refusal api.ErrorBody
	if err := json.Unmarshal(body, &refusal); err != nil {
		t.Fatalf("not an error body: %v\n%s", err, body)
	}
	return refusal.Message
}

// submission is an operator's, with every kind of support: a Service, a NetworkPolicy, ConfigMaps, a Secret and a claim.
func (g *ground) submission(t *testing.T) []byte {
	t.Helper()
	samples, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	body, err := operator.With(samples["spark-pi"], g.name, g.namespace, g.name)
	if err != nil {
		t.Fatal(err)
	}
	var request operator.Request
	if err := json.Unmarshal(body, &request); err != nil {
		t.Fatal(err)
	}
	const volume = "spark.kubernetes.driver.volumes.persistentVolumeClaim.data."
	for key, value := range map[string]string{
		"spark.kubernetes.authenticate.driver.oauthToken": "t0ken",
		volume + "mount.path":                             "/data",
		volume + "options.claimName":                      "OnDemand",
		volume + "options.storageClass":                   "manual",
		volume + "options.sizeLimit":                      "1Gi",
	} {
		request.SparkSubmitArgs = append([]string{"--conf", key + "=" + value}, request.SparkSubmitArgs...)
	}
	if body, err = json.Marshal(request); err != nil {
		t.Fatal(err)
	}
	return body
}

// submit launches what is new.
func submit(t *testing.T, g *ground) error {
	_, err := g.post(t, g.config, "", http.StatusCreated)
	if err != nil {
		return err
	}
	for kind, list := range map[string]func() (int, error){
		"Secret": func() (int, error) {
			l, err := g.cp.Client().CoreV1().Secrets(g.namespace).List(testContext(t), metav1.ListOptions{})
			return len(l.Items), err
		},
		"PersistentVolumeClaim": func() (int, error) {
			l, err := g.cp.Client().CoreV1().PersistentVolumeClaims(g.namespace).List(testContext(t), metav1.ListOptions{})
			return len(l.Items), err
		},
		"NetworkPolicy": func() (int, error) {
			l, err := g.cp.Client().NetworkingV1().NetworkPolicies(g.namespace).List(testContext(t), metav1.ListOptions{})
			return len(l.Items), err
		},
	} {
		if n, err := list(); err != nil || n == 0 {
			t.Fatalf("the launch has no %s (%v): the test does not show what it should", kind, err)
		}
	}
	return nil
}

// repeat is the same again, which was launched.
func repeat(t *testing.T, g *ground) error {
	if _, err := g.post(t, g.cp.Config(), "", http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	_, err := g.post(t, g.config, "", http.StatusOK)
	return err
}

// heal is the same again, which was left held with all its support.
func heal(t *testing.T, g *ground) error {
	broken := g.cp.Config()
	broken.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutPatch{next} })
	if _, err := g.post(t, broken, "", http.StatusServiceUnavailable); err != nil {
		t.Fatal(err)
	}
	pod, err := g.cp.Client().CoreV1().Pods(g.namespace).Get(testContext(t), g.name, metav1.GetOptions{})
	if err != nil || len(pod.Spec.SchedulingGates) == 0 {
		t.Fatalf("the pod is not left held: %v", err)
	}
	_, err = g.post(t, g.config, "", http.StatusOK)
	return err
}

// withoutPatch loses the connection at every PATCH.
type withoutPatch struct{ next http.RoundTripper }

func (w withoutPatch) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		return nil, errors.New("connection lost")
	}
	return w.next.RoundTrip(r)
}

// withdraw takes a held pod away, since a ConfigMap that is nobody's is in the way of its own.
func withdraw(t *testing.T, g *ground) error {
	body, err := g.post(t, g.config, "?dryRun=client", http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(body); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.Items, func(o unstructured.Unstructured) bool { return o.GetKind() == "ConfigMap" })
	g.obstruct(t, list.Items[i].GetName())
	refusal, err := g.post(t, g.config, "", http.StatusConflict)
	if err != nil {
		return err
	}
	if _, err := g.cp.Client().CoreV1().Pods(g.namespace).Get(testContext(t), g.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the pod stays: %s", messageOf(t, refusal))
	}
	return nil
}

func (g *ground) obstruct(t *testing.T, name string) {
	t.Helper()
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := g.cp.Client().CoreV1().ConfigMaps(g.namespace).Create(testContext(t), stranger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// apply launches a Job by the way of all launches; the function has no request for one yet.
func (g *ground) apply(t *testing.T, cluster *rest.Config) (*launch.Result, error) {
	t.Helper()
	object := func(apiVersion, kind string, more map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": g.name}}}
		maps.Copy(o.Object, more)
		return o
	}
	plan, err := launch.NewPlan(launch.Plan{
		Kind: launch.File, Namespace: g.namespace, SubmissionID: g.name, Hash: "1",
		Workload: object("batch/v1", "Job", map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"restartPolicy": "Never",
			"containers":    []any{map[string]any{"name": "agent", "image": "agent"}},
		}}}}),
		Support: []launch.Support{{Object: object("v1", "ConfigMap", nil)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster = rest.CopyConfig(cluster)
	cluster.WarningHandler = rest.NoWarnings{}
	client, err := kube.NewClient(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return (&launch.Applier{Client: client}).Apply(testContext(t), plan)
}

func runJob(t *testing.T, g *ground) error {
	_, err := g.apply(t, g.config)
	return err
}

func repeatJob(t *testing.T, g *ground) error {
	if _, err := g.apply(t, g.cp.Config()); err != nil {
		t.Fatal(err)
	}
	result, err := g.apply(t, g.config)
	if err == nil && !result.Duplicate {
		t.Error("the Job was launched again")
	}
	return err
}

func withdrawJob(t *testing.T, g *ground) error {
	g.obstruct(t, g.name)
	_, err := g.apply(t, g.config)
	if err == nil {
		t.Fatal("the launch succeeded")
	}
	_, gone := g.cp.Client().BatchV1().Jobs(g.namespace).Get(testContext(t), g.name, metav1.GetOptions{})
	if apierrors.IsNotFound(gone) {
		return nil
	}
	return fmt.Errorf("the Job stays: %w", err)
}

// each is all of these works, one after the other, each with a name of its own. Without a right they fail alike.
func each(all ...work) work {
	return func(t *testing.T, g *ground) error {
		var errs []error
		for i, work := range all {
			own := *g
			own.name = fmt.Sprintf("%s-%d", g.name, i)
			errs = append(errs, work(t, &own))
		}
		for i, err := range errs {
			if (err == nil) != (errs[0] == nil) {
				t.Errorf("of these works, number %d fails otherwise than the first: %v", i, errs)
			}
		}
		return errors.Join(errs...)
	}
}

// cancel ends a launch.
func cancel(t *testing.T, g *ground) error {
	if _, err := g.post(t, g.cp.Config(), "", http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	if _, err := g.launch(t, http.MethodDelete, "", http.StatusAccepted); err != nil {
		return err
	}
	_, err := g.launch(t, http.MethodGet, "", http.StatusNotFound)
	return err
}

func cancelJob(t *testing.T, g *ground) error {
	if _, err := g.apply(t, g.cp.Config()); err != nil {
		t.Fatal(err)
	}
	if _, err := g.launch(t, http.MethodDelete, "", http.StatusAccepted); err != nil {
		return err
	}
	_, err := g.launch(t, http.MethodGet, "", http.StatusNotFound)
	return err
}

// list finds a driver and a Job on one page, and the driver by its id.
func list(t *testing.T, g *ground) error {
	if _, err := g.post(t, g.cp.Config(), "", http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	job := *g
	job.name += "-job"
	if _, err := job.apply(t, g.cp.Config()); err != nil {
		t.Fatal(err)
	}
	body, err := g.call(t, g.config, http.MethodGet, api.LaunchesPath, nil, http.StatusOK)
	if err != nil {
		return err
	}
	var page api.LaunchList
	if err := json.Unmarshal(body, &page); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{g.name, job.name} {
		if !slices.ContainsFunc(page.Items, func(l api.Launch) bool { return l.SubmissionID == id && l.State == api.StatePending }) {
			return fmt.Errorf("%s is not on the page: %s", id, body)
		}
	}
	_, err = g.launch(t, http.MethodGet, "", http.StatusOK)
	return err
}

// readLog reads the log of a driver that runs as far as its status says. No node has it, so the log is empty.
func readLog(t *testing.T, g *ground) error {
	if _, err := g.post(t, g.cp.Config(), "", http.StatusCreated); err != nil {
		t.Fatal(err)
	}
	if _, err := g.launch(t, http.MethodGet, "/log", http.StatusServiceUnavailable); err != nil {
		t.Fatal(err)
	}
	status := `{"status":{"containerStatuses":[{"name":"spark-kubernetes-driver","image":"i","imageID":"i","ready":true,"restartCount":0,"state":{"running":{}}}]}}`
	if _, err := g.cp.Client().CoreV1().Pods(g.namespace).Patch(testContext(t), g.name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	_, err := g.launch(t, http.MethodGet, "/log", http.StatusOK)
	return err
}

// bound makes this ground's claim.
func (g *ground) bound(t *testing.T) {
	t.Helper()
	claims := g.cp.Client().CoreV1().PersistentVolumeClaims(g.namespace)
	claim, err := claims.Create(testContext(t), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: g.name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	claim.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(testContext(t), claim, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mkdir changes this ground's claim, with a Flint of the configuration.
func (g *ground) mkdir(t *testing.T, cluster *rest.Config, id string, wait, want int) ([]byte, error) {
	t.Helper()
	body := fmt.Sprintf(`{"submission_id":%q,"target":{"namespace":%q,"claim":%q},"operation":{"op":"mkdir","path":"d"},"wait_seconds":%d}`, id, g.namespace, g.name, wait)
	return g.call(t, cluster, http.MethodPost, api.FilePath, []byte(body), want)
}

func changeFiles(t *testing.T, g *ground) error {
	g.bound(t)
	_, err := g.mkdir(t, g.config, g.name, 0, http.StatusAccepted)
	return err
}

// changeFilesAgain comes after a change whose Job is gone.
func changeFilesAgain(t *testing.T, g *ground) error {
	g.bound(t)
	if _, err := g.mkdir(t, g.cp.Config(), g.name, 0, http.StatusAccepted); err != nil {
		t.Fatal(err)
	}
	job := "fj-" + launch.ID(g.namespace, g.name)
	if err := g.cp.Client().BatchV1().Jobs(g.namespace).Delete(testContext(t), job, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	_, err := g.mkdir(t, g.config, g.name+"-again", 0, http.StatusAccepted)
	return err
}

// sweepRunners takes a tombstone away whose time is over.
func sweepRunners(t *testing.T, g *ground) error {
	instance := func(cluster *rest.Config, now time.Time) *runners.Runners {
		client, err := kube.NewClient(cluster)
		if err != nil {
			t.Fatal(err)
		}
		return &runners.Runners{Client: client, Clock: clocktesting.NewFakeClock(now)}
	}
	past := time.Now().Add(-time.Hour)
	if err := instance(g.cp.Config(), past).GiveUpKey(testContext(t), g.namespace, launch.ID(g.namespace, g.name), api.Cancelled, 0); err != nil {
		t.Fatal(err)
	}
	swept, err := instance(g.config, time.Now()).Sweep(testContext(t), []string{g.namespace})
	if err == nil && swept.Leases == 0 {
		t.Errorf("swept %+v", swept)
	}
	return err
}

// labelRunner looks whether a Service or a controller selects what the request calls the runner.
func labelRunner(t *testing.T, g *ground) error {
	parent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: g.name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if _, err := g.cp.Client().CoreV1().Pods(g.namespace).Create(testContext(t), parent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"submission_id":%q,"parent":{"namespace":%q,"name":%q},"labels":{"team":"a"},"owner":"none"}`, g.name, g.namespace, g.name)
	_, err := g.call(t, g.config, http.MethodPost, api.RunnerPath+"?dryRun=client", []byte(body), http.StatusOK)
	return err
}

// tellWhyNoPod waits for a Job of which an event says that its pod is refused. Without the right nothing fails: what the event
// says is not told, and the wait is over before anything else is.
func tellWhyNoPod(t *testing.T, g *ground) error {
	g.bound(t)
	if _, err := g.mkdir(t, g.cp.Config(), g.name, 0, http.StatusAccepted); err != nil {
		t.Fatal(err)
	}
	job, err := g.cp.Client().BatchV1().Jobs(g.namespace).Get(testContext(t), "fj-"+launch.ID(g.namespace, g.name), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.cp.Client().CoreV1().Events(g.namespace).Create(testContext(t), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: job.Name + ".1"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: g.namespace, Name: job.Name, UID: job.UID},
		Reason:         "FailedCreate", Message: "Error creating: pods is forbidden: no", Type: corev1.EventTypeWarning,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.mkdir(t, g.config, g.name, 5, http.StatusBadGateway); err != nil {
		return fmt.Errorf("it cannot list resource %q: %w", "events", err)
	}
	return nil
}
