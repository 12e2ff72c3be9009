package rbac

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const root = "../../config"

// resources are the kinds in the manifests that the API server has without Knative.
var resources = map[string]schema.GroupVersionResource{
	"v1 Namespace":      {Version: "v1", Resource: "namespaces"},
	"v1 ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"rbac.authorization.k8s.io/v1 ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"rbac.authorization.k8s.io/v1 Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"rbac.authorization.k8s.io/v1 RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"networking.k8s.io/v1 NetworkPolicy":              {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
}

// manifests reads a file of the folder config. That kustomize changes nothing about them but a label
// is shown in test/manifests.
func manifests(t *testing.T, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		objects = append(objects, object)
	}
}

// create brings an object to the API server, as it is or for a dry run.
func create(t *testing.T, cp *controlplane.ControlPlane, object *unstructured.Unstructured, options metav1.CreateOptions) {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	resource, ok := resources[object.GetAPIVersion()+" "+object.GetKind()]
	if !ok {
		t.Fatalf("%s of %s has no resource here", object.GetKind(), object.GetAPIVersion())
	}
	options.FieldValidation = metav1.FieldValidationStrict
	var into dynamic.ResourceInterface = client.Resource(resource)
	if namespace := object.GetNamespace(); namespace != "" {
		into = client.Resource(resource).Namespace(namespace)
	}
	if _, err := into.Create(testContext(t), object, options); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create %s %s/%s: %v", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
}

// namespaces makes those of the manifests.
func namespaces(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	for _, object := range manifests(t, "base/100-namespace.yaml") {
		create(t, cp, object, metav1.CreateOptions{})
	}
}

// TestAPIServerAcceptsTheManifests is a dry run of every object that is not Knative's, with no field
// that the API server does not know.
func TestAPIServerAcceptsTheManifests(t *testing.T) {
	cp := controlplane.Shared(t)
	namespaces(t, cp)
	judged := 0
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" || entry.Name() == "values.yaml" {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, object := range manifests(t, relative) {
			if strings.Contains(object.GetAPIVersion(), ".knative.dev/") {
				continue
			}
			create(t, cp, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			judged++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := 12; judged != want {
		t.Errorf("%d objects were judged, want %d", judged, want)
	}
}
