package launch_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/launch"
)

func TestNewPlanBookkeeping(t *testing.T) {
	t.Parallel()
	draft := sparkDraft("jobs")
	before := draft.Workload.DeepCopy()
	for _, o := range []*unstructured.Unstructured{draft.Workload, before} {
		labels := o.Object["metadata"].(object)["labels"].(object)
		labels[launch.LabelManagedBy], labels[launch.LabelID] = "helm", "mine"
	}
	plan := newPlan(t, draft)

	common := map[string]string{"app.kubernetes.io/managed-by": "flint", "flint.dev/kind": "spark", "flint.dev/id": launch.ID("jobs", "sub-1")}
	want := maps.Clone(common)
	want[launch.LabelManagedBy] = "helm"
	want["spark-role"], want["spark-app-selector"], want["team"], want["flint.dev/completion"] = "driver", "spark-0011", "a", "pending"
	if diff := cmp.Diff(want, plan.Workload.GetLabels()); diff != "" {
		t.Errorf("labels of the workload (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"flint.dev/submission-id": "sub-1", "flint.dev/hash": "h1",
		"flint.dev/traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}, plan.Workload.GetAnnotations()); diff != "" {
		t.Errorf("annotations of the workload (-want +got):\n%s", diff)
	}
	for _, s := range plan.Support {
		if diff := cmp.Diff(common, s.Object.GetLabels()); diff != "" {
			t.Errorf("labels of the %s (-want +got):\n%s", s.Object.GetKind(), diff)
		}
		if a := s.Object.GetAnnotations(); len(a) > 0 {
			t.Errorf("annotations of the %s: %v", s.Object.GetKind(), a)
		}
		if s.Object.GetNamespace() != "jobs" {
			t.Errorf("namespace of the %s: %q", s.Object.GetKind(), s.Object.GetNamespace())
		}
	}
	selector, _, _ := unstructured.NestedStringMap(plan.Support[0].Object.Object, "spec", "selector")
	if diff := cmp.Diff(map[string]string{"spark-role": "driver", "spark-app-selector": "spark-0011"}, selector); diff != "" {
		t.Errorf("selector of the Service (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, draft.Workload); diff != "" {
		t.Errorf("the draft was changed (-want +got):\n%s", diff)
	}
	if draft.Support[0].Object.GetLabels() != nil {
		t.Error("the draft's support was changed")
	}

	draft.Traceparent = ""
	if _, there := newPlan(t, draft).Workload.GetAnnotations()[launch.AnnotationTraceparent]; there {
		t.Error("a request without trace context has one")
	}
}

// TestNewPlanKeepsWhatIsNoText: such labels are refused by the API server, by name, and not lost here.
func TestNewPlanKeepsWhatIsNoText(t *testing.T) {
	t.Parallel()
	draft := sparkDraft("jobs")
	draft.Workload.Object["metadata"].(object)["labels"] = object{"n": int64(1), "team": "a"}
	labels := newPlan(t, draft).Workload.Object["metadata"].(object)["labels"].(object)
	if labels["n"] != int64(1) || labels["team"] != "a" || labels[launch.LabelManagedBy] != "flint" {
		t.Errorf("labels %v", labels)
	}
}

func TestNewPlanRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		change func(*launch.Plan)
		says   string
	}{
		"unknown kind":            {func(p *launch.Plan) { p.Kind = "other" }, `unknown kind "other"`},
		"no namespace":            {func(p *launch.Plan) { p.Namespace = "" }, "no namespace"},
		"no key":                  {func(p *launch.Plan) { p.SubmissionID = "" }, "no submission id"},
		"no hash":                 {func(p *launch.Plan) { p.Hash = "" }, "no hash"},
		"no workload":             {func(p *launch.Plan) { p.Workload = nil }, "no workload"},
		"a workload of a kind":    {func(p *launch.Plan) { p.Workload.SetKind("ReplicaSet") }, "ReplicaSet"},
		"a workload of a group":   {func(p *launch.Plan) { p.Workload.SetAPIVersion("v2") }, "not a Pod"},
		"no name":                 {func(p *launch.Plan) { p.Workload.SetName("") }, "a Pod has no name"},
		"a generated name":        {func(p *launch.Plan) { p.Workload.SetName(""); p.Workload.SetGenerateName("pi-") }, "no name"},
		"support without name":    {func(p *launch.Plan) { p.Support[0].Object.SetName("") }, "a Service has no name"},
		"support without object":  {func(p *launch.Plan) { p.Support[1].Object = nil }, "support 1 has no object"},
		"support of another kind": {func(p *launch.Plan) { p.Support[0].Object.SetKind("Ingress") }, `kind "Ingress"`},
		"support twice":           {func(p *launch.Plan) { p.Support = append(p.Support, p.Support[0]) }, "comes twice"},
		"another namespace":       {func(p *launch.Plan) { p.Support[0].Object.SetNamespace("other") }, "is of namespace other"},
		"labels are a list":       {func(p *launch.Plan) { p.Workload.Object["metadata"].(object)["labels"] = []any{} }, "metadata.labels is not an object"},
		"annotations are a text":  {func(p *launch.Plan) { p.Workload.Object["metadata"].(object)["annotations"] = "x" }, "metadata.annotations is not an object"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			draft := sparkDraft("jobs")
			c.change(&draft)
			plan, err := launch.NewPlan(draft)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("plan %v, error %v, want one that says %q", plan, err, c.says)
			}
		})
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	draft := sparkDraft("jobs")
	ownedBy("Job", "parent", "u-1")(draft.Workload)
	ownedBy("Job", "other", "u-2")(draft.Support[0].Object)
	draft.Workload.Object["spec"].(object)["schedulingGates"] = []any{object{"name": launch.Gate}}
	draft.Workload.SetAnnotations(map[string]string{launch.AnnotationHeld: "true"})
	plan := newPlan(t, draft)
	objects := launch.Render(plan)
	var names []string
	for i, o := range objects {
		names = append(names, o.GetKind()+" "+o.GetName())
		if i > 0 && o.GetOwnerReferences() != nil {
			t.Errorf("%s has an owner", names[i])
		}
	}
	if diff := cmp.Diff([]string{"Pod pi-driver", "Service pi-driver-svc", "NetworkPolicy pi-policy", "PersistentVolumeClaim pi-pvc-0",
		"ConfigMap hadoop-config", "ConfigMap conf-map"}, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if launch.Held(objects[0]) || objects[0].GetAnnotations()[launch.AnnotationHeld] != "" {
		t.Error("the workload is held")
	}
	if _, empty := objects[0].Object["spec"].(object)["schedulingGates"]; empty {
		t.Error("the workload has an empty list of gates")
	}
	if owners := objects[0].GetOwnerReferences(); len(owners) != 1 || owners[0].UID != "u-1" {
		t.Errorf("the workload's own owners: %v", owners)
	}
	objects[0].SetName("changed")
	if plan.Workload.GetName() != "pi-driver" {
		t.Error("the plan is not apart from what was rendered")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	a, b := named("v1", "Pod", "a", nil), named("v1", "Secret", "b", nil)
	want := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{a.Object, b.Object}}
	if diff := cmp.Diff(want, launch.List([]*unstructured.Unstructured{a, b})); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

func TestIDIsStable(t *testing.T) {
	t.Parallel()
	// A change here orphans every launch that an earlier version made.
	if got, want := launch.ID("jobs", "sub-1"), "8c15736d8c0cd7da8dc24945722f8ebf"; got != want {
		t.Errorf("ID %s, want %s", got, want)
	}
}

func FuzzID(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("", "", "a", "")
	f.Add("a\x00", "b", "a", "\x00b")
	f.Add("flint.dev/launch/v1", "x", "x", "flint.dev/launch/v1")
	f.Add("a\x00\x00\x00\x00\x00\x00\x00\x01b", "c", "a", "b\x00c")
	form := regexp.MustCompile(`^[0-9a-f]{32}$`)
	f.Fuzz(func(t *testing.T, namespace, key, otherNamespace, otherKey string) {
		id := launch.ID(namespace, key)
		if !form.MatchString(id) || len(validation.IsValidLabelValue(id)) > 0 {
			t.Errorf("ID(%q, %q) = %q", namespace, key, id)
		}
		if id != launch.ID(namespace, key) {
			t.Error("not the same twice")
		}
		if same := namespace == otherNamespace && key == otherKey; same != (id == launch.ID(otherNamespace, otherKey)) {
			t.Errorf("(%q, %q) and (%q, %q): %s", namespace, key, otherNamespace, otherKey, id)
		}
	})
}

func FuzzNewPlan(f *testing.F) {
	f.Add("jobs", "sub-1", "h")
	f.Add("a", "bc/with \"quotes\" and \x00", "é")
	f.Fuzz(func(t *testing.T, namespace, key, hash string) {
		plan, err := launch.NewPlan(func() launch.Plan {
			d := jobDraft(namespace)
			d.SubmissionID, d.Hash = key, hash
			return d
		}())
		if err != nil {
			if !slices.Contains([]string{namespace, key, hash}, "") {
				t.Error(err)
			}
			return
		}
		for _, o := range launch.Render(plan) {
			for name, value := range o.GetLabels() {
				if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
					t.Errorf("label %s=%q: %v", name, value, wrong)
				}
			}
		}
	})
}
