package launch_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// realGround is a real API server. No garbage collector runs there: what a deleted workload owned stays.
func realGround(tb testing.TB) ground {
	tb.Helper()
	cp := controlplane.Shared(tb)
	return ground{config: cp.Config(), namespace: cp.NewNamespace}
}

func TestAPIServerEveryFaultHeals(t *testing.T) {
	t.Run("Spark", func(t *testing.T) { realGround(t).prove(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { realGround(t).prove(t, jobDraft, jobCalls) })
	t.Run("Runner", func(t *testing.T) { realGround(t).prove(t, runnerDraft, runnerCalls) })
	t.Run("Job, told when deleted", func(t *testing.T) { realGround(t).telling().prove(t, jobDraft, jobCalls) })
}

func TestAPIServerConcurrentReplays(t *testing.T) {
	t.Run("Spark", func(t *testing.T) { realGround(t).proveConcurrent(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { realGround(t).proveConcurrent(t, jobDraft, jobCalls) })
	t.Run("Runner", func(t *testing.T) { realGround(t).proveConcurrent(t, runnerDraft, runnerCalls) })
}

// TestAPIServerRefusals has the API server's own words for what it refuses.
func TestAPIServerRefusals(t *testing.T) {
	cp := controlplane.Shared(t)
	const user = "system:serviceaccount:flint:flint"
	rights := func(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) {
		t.Helper()
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "flint"}, Rules: rules}
		if _, err := cp.Client().RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "flint"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "flint"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		}
		if _, err := cp.Client().RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	quota := func(t *testing.T, namespace string, hard corev1.ResourceList, counted bool) {
		t.Helper()
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		q, err := cp.Client().CoreV1().ResourceQuotas(namespace).Create(t.Context(), q, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		q.Status = corev1.ResourceQuotaStatus{Hard: hard}
		if counted {
			q.Status.Used = corev1.ResourceList{}
			for name := range hard {
				q.Status.Used[name] = resource.MustParse("0")
			}
		}
		if _, err := cp.Client().CoreV1().ResourceQuotas(namespace).UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(draft launch.Plan) object { return draft.Workload.Object["spec"].(object) }
	container := func(draft launch.Plan) object { return spec(draft)["containers"].([]any)[0].(object) }

	cases := map[string]struct {
		stage  func(t *testing.T, namespace string)
		change func(draft *launch.Plan)
		config *rest.Config
		code   api.Code
		field  string
		says   []string
		left   int // objects
	}{
		"no quota for pods": {
			stage: func(t *testing.T, ns string) {
				quota(t, ns, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}, true)
			},
			code: api.QuotaExceeded, says: []string{"quota exceeded: create Pod", "exceeded quota: team, requested: pods=1, used: pods=0, limited: pods=0"},
		},
		"no quota for claims": {
			stage: func(t *testing.T, ns string) {
				quota(t, ns, corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}, true)
			},
			code: api.QuotaExceeded, says: []string{"quota exceeded: create PersistentVolumeClaim", "exceeded quota: team"},
			left: 4, // owned by the pod that was taken away: the garbage collector's
		},
		"a quota not counted yet": {
			stage: func(t *testing.T, ns string) {
				quota(t, ns, corev1.ResourceList{corev1.ResourcePods: resource.MustParse("9")}, false)
			},
			code: api.SubmitterOverloaded, says: []string{"quota not counted yet", "status unknown for quota: team"},
		},
		"missing namespace": {
			change: func(d *launch.Plan) { d.Namespace = "nowhere" },
			code:   api.NamespaceNotFound, says: []string{"namespace nowhere does not exist"},
		},
		"namespace that cannot be": {
			change: func(d *launch.Plan) { d.Namespace = "a/b" },
			code:   api.BadRequest, says: []string{`namespace "a/b"`},
		},
		"missing service account": {
			change: func(d *launch.Plan) { spec(*d)["serviceAccountName"] = "nobody" },
			code:   api.Forbidden, says: []string{`serviceaccount "nobody" not found`},
		},
		"invalid pod": {
			change: func(d *launch.Plan) {
				container(*d)["imagePullPolicy"] = "Sometimes"
				spec(*d)["restartPolicy"] = "Perhaps"
			},
			code: api.InvalidPodTemplate, field: "spec.containers[0].imagePullPolicy",
			says: []string{`invalid: create Pod`, `spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes"`, `spec.restartPolicy: Unsupported value: "Perhaps"`},
		},
		"invalid pod name": {
			change: func(d *launch.Plan) { d.Workload.SetName("Pi/Driver") },
			code:   api.InvalidPodTemplate, field: "metadata.name", says: []string{"Pi/Driver"},
		},
		"a label that is no text": {
			change: func(d *launch.Plan) {
				d.Workload.Object["metadata"].(object)["labels"].(object)["n"] = int64(1)
			},
			code: api.InvalidPodTemplate, says: []string{"cannot unmarshal number"},
		},
		"a quantity that is none": {
			change: func(d *launch.Plan) { container(*d)["resources"] = object{"limits": object{"memory": "2gigs"}} },
			code:   api.InvalidPodTemplate, says: []string{"quantities must match the regular expression"},
		},
		"invalid support": {
			change: func(d *launch.Plan) { d.Support[4].Object.Object["data"] = object{"bad key": "password=hunter2"} },
			code:   api.BadRequest, field: "data[bad key]", says: []string{"create ConfigMap", "a valid config key must consist of"}, left: 4,
		},
		"no right to create pods": {
			config: cp.ConfigFor(user),
			code:   api.Forbidden, says: []string{"forbidden: create Pod", user, `cannot create resource "pods"`},
		},
		"no right to create claims": {
			config: cp.ConfigFor(user),
			stage: func(t *testing.T, ns string) {
				rights(t, ns, rule("", "pods", "create", "get", "patch", "delete"), rule("", "services", "create", "get"),
					rule("", "configmaps", "create", "get"), rule("networking.k8s.io", "networkpolicies", "create", "get"))
			},
			code: api.Forbidden, says: []string{`cannot create resource "persistentvolumeclaims"`}, left: 4,
		},
		"no right to release": {
			config: cp.ConfigFor(user),
			stage: func(t *testing.T, ns string) {
				rights(t, ns, rule("", "pods", "create", "get", "delete"), rule("", "services", "create", "get"), rule("", "persistentvolumeclaims", "create", "get"),
					rule("", "configmaps", "create", "get"), rule("networking.k8s.io", "networkpolicies", "create", "get"))
			},
			code: api.Forbidden, says: []string{"forbidden: release Pod", `cannot patch resource "pods"`}, left: 5,
		},
		"no right to take away": {
			config: cp.ConfigFor(user),
			stage:  func(t *testing.T, ns string) { rights(t, ns, rule("", "pods", "create", "get", "patch")) },
			code:   api.Forbidden, says: []string{`cannot create resource "services"`, "could not be taken away", `cannot delete resource "pods"`, "it stays, held"}, left: 1,
		},
		"a kind that the cluster lacks": {
			change: func(d *launch.Plan) {
				d.Support = append(d.Support, launch.Support{Object: named("scheduling.volcano.sh/v1beta1", "PodGroup", "pi", nil)})
			},
			code: api.NotFound, says: []string{"create PodGroup"}, left: 5,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := cp.NewNamespace(t)
			draft := sparkDraft(namespace)
			if c.change != nil {
				c.change(&draft)
			}
			if c.stage != nil {
				c.stage(t, namespace)
			}
			if c.config == nil {
				c.config = cp.Config()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			applier := &launch.Applier{Client: (&wire{}).client(t, c.config)}
			plan := newPlan(t, draft)
			var err error
			for range 100 { // what admission and RBAC know comes by a watch
				_, err = applier.Apply(ctx, plan)
				if matches(err, c.code, c.says) || err == nil {
					break
				}
				<-time.After(20 * time.Millisecond)
			}
			if !matches(err, c.code, c.says) {
				t.Fatalf("error %v, want %s with %q", err, c.code, c.says)
			}
			var known *api.Error
			errors.As(err, &known)
			if known.Field != c.field {
				t.Errorf("field %q, want %q", known.Field, c.field)
			}
			if strings.Contains(known.Message, "hunter2") {
				t.Errorf("the message tells a value: %s", known.Message)
			}
			left := (ground{config: cp.Config()}).state(t, namespace)
			if len(left) != c.left {
				t.Errorf("%d objects are left, want %d", len(left), c.left)
			}
		})
	}
}

func matches(err error, code api.Code, says []string) bool {
	var known *api.Error
	if !errors.As(err, &known) || known.Code != code {
		return false
	}
	for _, text := range says {
		if !strings.Contains(known.Message, text) {
			return false
		}
	}
	return true
}

// TestAPIServerEarlierIncarnation launches again what was launched and deleted, before anything
// collected what the first one owned.
func TestAPIServerEarlierIncarnation(t *testing.T) {
	g := realGround(t)
	cp := controlplane.Shared(t)
	plan := newPlan(t, sparkDraft(g.namespace(t)))
	if _, _, err := g.applyOver(t, plan, nil); err != nil {
		t.Fatal(err)
	}
	if err := cp.Client().CoreV1().Pods(plan.Namespace).Delete(t.Context(), "pi-driver", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, _, err := g.applyOver(t, plan, nil)
		if !matches(err, api.SubmitterOverloaded, []string{"of an earlier launch is still to be collected"}) {
			t.Fatalf("before the collector: %v", err)
		}
		if state := g.state(t, plan.Namespace); len(state) != 6 || !launch.Held(state[0]) {
			t.Fatalf("before the collector: %d objects, held %t", len(state), launch.Held(state[0]))
		}
	}
	collect(t, cp, plan.Namespace)
	result, _, err := g.applyOver(t, plan, nil)
	if err != nil || !result.Healed {
		t.Fatalf("after the collector: %+v, %v", result, err)
	}
	g.checkSafe(t, plan)
}

// collect stands in for the garbage collector.
func collect(t *testing.T, cp *controlplane.ControlPlane, namespace string) {
	t.Helper()
	ctx, all, none := t.Context(), metav1.ListOptions{LabelSelector: launch.LabelManagedBy + "=flint"}, metav1.DeleteOptions{}
	core := cp.Client().CoreV1()
	for _, err := range []error{
		core.ConfigMaps(namespace).DeleteCollection(ctx, none, all),
		core.Services(namespace).Delete(ctx, "pi-driver-svc", none),
		cp.Client().NetworkingV1().NetworkPolicies(namespace).DeleteCollection(ctx, none, all),
		core.PersistentVolumeClaims(namespace).DeleteCollection(ctx, none, all),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	claims, err := core.PersistentVolumeClaims(namespace).List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims.Items { // protected by a finalizer that no controller takes off
		claim.Finalizers = nil
		if _, err := core.PersistentVolumeClaims(namespace).Update(ctx, &claim, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAPIServerForeignGates releases a pod that others hold too.
func TestAPIServerForeignGates(t *testing.T) {
	g := realGround(t)
	draft := sparkDraft(g.namespace(t))
	gates := []any{object{"name": "example.com/mine"}, object{"name": launch.Gate}, object{"name": "kueue.x-k8s.io/admission"}}
	draft.Workload.Object["spec"].(object)["schedulingGates"] = gates
	plan := newPlan(t, draft)
	if _, _, err := g.applyOver(t, plan, nil); err != nil {
		t.Fatal(err)
	}
	left, _, _ := unstructured.NestedSlice(g.state(t, plan.Namespace)[0].Object, "spec", "schedulingGates")
	if diff := cmp.Diff([]any{gates[0], gates[2]}, left); diff != "" {
		t.Errorf("gates after the release (-want +got):\n%s", diff)
	}
}

// TestAPIServerOtherUnderTheName has another workload take the name between creation and release:
// the late release is not for that one.
func TestAPIServerOtherUnderTheName(t *testing.T) {
	g := realGround(t)
	cp := controlplane.Shared(t)
	for name, c := range map[string]struct {
		draft   func(string) launch.Plan
		release call
		remove  func(namespace string) error
	}{
		"Pod": {sparkDraft, patch, func(ns string) error {
			return cp.Client().CoreV1().Pods(ns).Delete(t.Context(), "pi-driver", metav1.DeleteOptions{})
		}},
		"Job": {jobDraft, "PATCH jobs copy", func(ns string) error {
			now := metav1.DeletePropagationBackground
			return cp.Client().BatchV1().Jobs(ns).Delete(t.Context(), "copy", metav1.DeleteOptions{PropagationPolicy: &now})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			draft := c.draft(g.namespace(t))
			_, _, err := g.applyOver(t, newPlan(t, draft), func(cancel context.CancelFunc) func(call, int) action {
				return on(c.release, first(func() {
					if err := c.remove(draft.Namespace); err != nil {
						t.Error(err)
					}
					other := otherKey(draft)
					_, _, err := g.applyOver(t, newPlan(t, other), func(cancel context.CancelFunc) func(call, int) action {
						return func(_ call, n int) action {
							if n == 1 {
								return nil
							}
							return faults["connection fails"](cancel)
						}
					})
					if err == nil {
						t.Error("the other launch succeeded")
					}
				}))
			})
			if !matches(err, api.SubmitterOverloaded, []string{"was deleted or changed"}) {
				t.Errorf("error %v", err)
			}
			state := g.state(t, draft.Namespace)
			if !launch.Held(state[0]) || state[0].GetAnnotations()[launch.AnnotationSubmissionID] != "sub-2" {
				t.Errorf("the other workload was released")
			}
		})
	}
}

// TestAPIServerNode shows why a pod that names its node goes without the gate.
func TestAPIServerNode(t *testing.T) {
	g := realGround(t)
	plan := newPlan(t, onNode(sparkDraft(g.namespace(t))))
	result, calls, err := g.applyOver(t, plan, nil)
	if err != nil || result.Duplicate {
		t.Fatal(result, err)
	}
	// Each name is looked at first, the pod's before all; then Spark's own order.
	want := slices.Clone(sparkCalls[:6])
	for _, c := range sparkCalls[:6] {
		want = append(want, strings.Replace(c, "POST", "GET", 1))
	}
	if diff := cmp.Diff(sorted(want), sorted(calls)); diff != "" || calls[6] != sparkCalls[0] {
		t.Errorf("calls %v (-want +got):\n%s", calls, diff)
	}
	g.checkSafe(t, plan)
	if result, _, err = g.applyOver(t, plan, nil); err != nil || !result.Duplicate || result.Healed {
		t.Errorf("the replay: %+v, %v", result, err)
	}
}

func TestAPIServerDryRun(t *testing.T) {
	g := realGround(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	applier := &launch.Applier{Client: (&wire{}).client(t, g.config)}

	t.Run("accepted", func(t *testing.T) {
		plan := newPlan(t, sparkDraft(g.namespace(t)))
		objects, err := applier.DryRun(ctx, plan)
		if err != nil {
			t.Fatal(err)
		}
		if len(objects) != 6 || !launch.Held(objects[0]) || objects[0].GetUID() == "" {
			t.Fatalf("%d objects, the first %v", len(objects), objects[0])
		}
		if policy, _, _ := unstructured.NestedString(objects[0].Object, "spec", "dnsPolicy"); policy != "ClusterFirst" {
			t.Error("the answer has no defaults")
		}
		for _, o := range objects[1:] {
			if owners := o.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != objects[0].GetUID() {
				t.Errorf("%s: owners %v", o.GetKind(), owners)
			}
		}
		if left := g.state(t, plan.Namespace); len(left) > 0 {
			t.Errorf("a dry run left %d objects", len(left))
		}
	})
	refused := map[string]struct {
		change func(*launch.Plan)
		code   api.Code
		says   string
	}{
		"unknown field":   {func(d *launch.Plan) { d.Workload.Object["spec"].(object)["colour"] = "red" }, api.InvalidPodTemplate, `unknown field "spec.colour"`},
		"invalid support": {func(d *launch.Plan) { d.Support[0].Object.Object["spec"].(object)["type"] = "Loud" }, api.BadRequest, `spec.type: Unsupported value: "Loud"`},
	}
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			draft := sparkDraft(g.namespace(t))
			c.change(&draft)
			if _, err := applier.DryRun(ctx, newPlan(t, draft)); !matches(err, c.code, []string{c.says}) {
				t.Errorf("error %v, want %s with %q", err, c.code, c.says)
			}
		})
	}
}
