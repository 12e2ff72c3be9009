package kube_test

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// TestAPIServerVerbs drives each verb on each built-in kind of the table.
func TestAPIServerVerbs(t *testing.T) {
	cp := controlplane.Shared(t)
	c := client(t, cp.Config())
	spec := func(o *unstructured.Unstructured, spec map[string]any) *unstructured.Unstructured {
		o.Object["spec"] = spec
		return o
	}
	containers := []any{map[string]any{"name": "c", "image": "i"}}
	objects := []*unstructured.Unstructured{
		spec(object("v1", "Pod", "o"), map[string]any{"containers": containers}),
		spec(object("batch/v1", "Job", "o"), map[string]any{"template": map[string]any{"spec": map[string]any{"restartPolicy": "Never", "containers": containers}}}),
		object("v1", "ConfigMap", "o"),
		object("v1", "Secret", "o"),
		spec(object("v1", "Service", "o"), map[string]any{"clusterIP": "None"}),
		spec(object("v1", "PersistentVolumeClaim", "o"), map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}),
		spec(object("networking.k8s.io/v1", "NetworkPolicy", "o"), map[string]any{"podSelector": map[string]any{}}),
		object("coordination.k8s.io/v1", "Lease", "o"),
	}
	namespace := cp.NewNamespace(t)
	for _, o := range objects {
		t.Run(o.GetKind(), func(t *testing.T) {
			t.Parallel()
			ref := kube.RefOf(namespace, o)
			dry, err := c.Create(within(t), namespace, o, true)
			if err != nil {
				t.Fatal(err)
			}
			if _, whole := dry.Object["spec"]; whole != (o.Object["spec"] != nil) && o.GetKind() != "Lease" || dry.GetUID() == "" {
				t.Errorf("a dry run answers %v", dry)
			}
			created, err := c.Create(within(t), namespace, o, false)
			if err != nil {
				t.Fatal(err)
			}
			metadataOf(t, ref, created)
			if _, err := c.Create(within(t), namespace, o, false); !apierrors.IsAlreadyExists(err) {
				t.Errorf("created twice: %v", err)
			}
			found, err := c.Get(within(t), ref)
			if err != nil || found.GetUID() != created.GetUID() || found.GetKind() != o.GetKind() {
				t.Fatal(found, err)
			}
			patched, err := c.Patch(within(t), ref, types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			metadataOf(t, ref, patched)
			if patched.GetLabels()["a"] != "b" {
				t.Errorf("patched: %v", patched)
			}
			for _, all := range []kube.Ref{ref, {APIVersion: ref.APIVersion, Kind: ref.Kind}} {
				page, err := c.List(within(t), all, kube.ListOptions{LabelSelector: "a=b", Limit: 2, MetadataOnly: all.Namespace == ""})
				if err != nil || len(page.Items) != 1 || page.Continue != "" {
					t.Fatalf("list of %s: %+v, %v", all, page, err)
				}
				if all.Namespace == "" {
					metadataOf(t, ref, page.Items[0])
				} else if got := page.Items[0]; got.GetUID() != created.GetUID() || got.GetKind() != ref.Kind || got.GetAPIVersion() != ref.APIVersion {
					t.Errorf("listed: %v", got)
				}
			}
			if ref.Kind == "Pod" {
				text, err := c.Log(within(t), ref, "c", 10, 100)
				if err != nil {
					t.Fatal(err)
				}
				if all, err := io.ReadAll(text); err != nil || len(all) > 0 || text.Close() != nil { // no node has it
					t.Errorf("log: %q, %v", all, err)
				}
				if _, err := c.Log(within(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "none"}, "c", 10, 100); !apierrors.IsNotFound(err) {
					t.Errorf("log of none: %v", err)
				}
				if _, err := c.Log(within(t), ref, "none", 10, 100); !apierrors.IsBadRequest(err) {
					t.Errorf("log of another container: %v", err)
				}
			}
			for name, err := range map[string]error{
				"delete of another uid":     c.Delete(within(t), ref, "00000000-0000-0000-0000-000000000000"),
				"delete of another version": c.DeleteUnchanged(within(t), ref, created.GetUID(), created.GetResourceVersion()),
			} {
				if !apierrors.IsConflict(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if err := c.DeleteUnchanged(within(t), ref, created.GetUID(), patched.GetResourceVersion()); err != nil {
				t.Error(err)
			}
			after, err := c.Get(within(t), ref)
			if !apierrors.IsNotFound(err) && (err != nil || after.GetDeletionTimestamp() == nil) { // a claim is protected by a finalizer
				t.Errorf("after the delete: %v, %v", after, err)
			}
		})
	}
	t.Run("PodGroup", func(t *testing.T) {
		t.Parallel() // a custom resource that this cluster lacks
		_, err := c.Create(within(t), namespace, object("scheduling.volcano.sh/v1beta1", "PodGroup", "o"), false)
		if !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// TestAPIServerPages: pages hold each object once.
func TestAPIServerPages(t *testing.T) {
	cp := controlplane.Shared(t)
	c := client(t, cp.Config())
	namespace := cp.NewNamespace(t)
	maps := kube.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace}
	want := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		o := object("v1", "ConfigMap", name)
		o.SetLabels(map[string]string{"paged": "yes"})
		if _, err := c.Create(within(t), namespace, o, false); err != nil {
			t.Fatal(err)
		}
		want[name] = true
	}
	got, options, pages := map[string]bool{}, kube.ListOptions{LabelSelector: "paged=yes", Limit: 2}, 0
	for {
		page, err := c.List(within(t), maps, options)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, item := range page.Items {
			if got[item.GetName()] {
				t.Errorf("%s twice", item.GetName())
			}
			got[item.GetName()] = true
		}
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}
}

// metadataOf checks that an answer is the kind's metadata, and nothing else.
func metadataOf(t *testing.T, ref kube.Ref, answer *unstructured.Unstructured) {
	t.Helper()
	if answer.GetAPIVersion() != ref.APIVersion || answer.GetKind() != ref.Kind || answer.GetName() != ref.Name ||
		answer.GetUID() == "" || answer.GetResourceVersion() == "" || answer.GetCreationTimestamp().Time.IsZero() {
		t.Errorf("answer %v", answer)
	}
	if len(answer.Object) != 3 {
		t.Errorf("the answer has more than metadata: %v", answer)
	}
}

// TestAPIServerSecrets: what the API server says of a refused Secret or ConfigMap does not reach the caller.
func TestAPIServerSecrets(t *testing.T) {
	cp := controlplane.Shared(t)
	c := client(t, cp.Config())
	namespace := cp.NewNamespace(t)
	const value = "hunter2hunter2"
	secret := func(kind string, more map[string]any) *unstructured.Unstructured {
		o := object("v1", kind, "s")
		for key, v := range more {
			o.Object[key] = v
		}
		return o
	}
	cases := map[string]struct {
		object *unstructured.Unstructured
		code   api.Code
	}{
		"not base64":        {secret("Secret", map[string]any{"data": map[string]any{"k": value + "!"}}), api.BadRequest},
		"not a map":         {secret("Secret", map[string]any{"stringData": []any{value}}), api.BadRequest},
		"a pull secret":     {secret("Secret", map[string]any{"type": "kubernetes.io/dockerconfigjson", "stringData": map[string]any{".dockerconfigjson": value}}), api.BadRequest},
		"an unknown field":  {secret("Secret", map[string]any{"type": "Opaque", "stringdata": value}), ""},
		"a config map's":    {secret("ConfigMap", map[string]any{"data": map[string]any{"k k": value}}), api.BadRequest},
		"a config map list": {secret("ConfigMap", map[string]any{"data": []any{value}}), api.BadRequest},
		"too large":         {secret("ConfigMap", map[string]any{"data": map[string]any{"k": strings.Repeat(value, 100000)}}), api.BadRequest},
		"far too large":     {secret("ConfigMap", map[string]any{"data": map[string]any{"k": strings.Repeat(value, 300000)}}), api.PayloadTooLarge},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := c.Create(within(t), namespace, x.object, false)
			if x.code == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := kube.Translate(err, "create", kube.RefOf(namespace, x.object))
			if e == nil || e.Code != x.code || strings.Contains(e.Message, value) || !strings.Contains(e.Message, x.object.GetKind()+" "+namespace+"/s") {
				t.Errorf("error %v", e)
			}
		})
	}
}
