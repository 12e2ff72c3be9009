package controlplane_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestHeldPodIsReleasedByUID(t *testing.T) {
	cp := controlplane.Shared(t)
	ctx := testContext(t)
	pods := cp.Client().CoreV1().Pods(cp.NewNamespace(t))
	held, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pi"},
		Spec: corev1.PodSpec{
			Containers:      []corev1.Container{{Name: "main", Image: "main"}},
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "flint.dev/support"}, {Name: "other.dev/gate"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	release := func(uid types.UID) (*corev1.Pod, error) {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`, uid)
		return pods.Patch(ctx, "pi", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	}
	// In a patch the uid is a precondition by being immutable: not a conflict, as it is in a DELETE or a PUT.
	if _, err := release("00000000-0000-0000-0000-000000000000"); !apierrors.IsInvalid(err) {
		t.Errorf("release with another uid = %v, want invalid", err)
	}
	released, err := release(held.UID)
	if err != nil {
		t.Fatalf("release = %v", err)
	}
	if gates := released.Spec.SchedulingGates; len(gates) != 1 || gates[0].Name != "other.dev/gate" {
		t.Errorf("gates after the release = %v, want the other one alone", gates)
	}
}

func TestConfigForIsSubjectToRBAC(t *testing.T) {
	cp := controlplane.Shared(t)
	ctx := testContext(t)
	namespace := cp.NewNamespace(t)
	client, err := kubernetes.NewForConfig(cp.ConfigFor("system:serviceaccount:" + namespace + ":default"))
	if err != nil {
		t.Fatalf("NewForConfig() = %v", err)
	}
	if _, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("List() as a service account without a role = %v, want forbidden", err)
	}
}

func TestKubeconfigReportsTheVersion(t *testing.T) {
	cp := controlplane.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.Kubeconfig(path); err != nil {
		t.Fatalf("Kubeconfig() = %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("read kubeconfig: %v", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("NewForConfig() = %v", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatalf("ServerVersion() = %v", err)
	}
	if version.Major != "1" || version.Minor == "" || !strings.HasPrefix(version.GitVersion, "v1."+version.Minor) {
		t.Errorf("ServerVersion() = %+v, want the version that go.mod requires", version)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test needs a real kube-apiserver")
	}
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	ctx := testContext(t)
	cp, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	client := cp.Client()
	cp.Stop()
	cp.Stop()
	if _, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err == nil {
		t.Error("the API server answers after Stop")
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("temporary directory after Stop = %v, %v, want it empty", left, err)
	}
}

func TestStartSaysWhyItFailed(t *testing.T) {
	folder := t.TempDir()
	script := []byte("#!/bin/sh\necho out of cheese >&2\nexit 7\n")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(folder, name), script, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("KUBEBUILDER_ASSETS", folder)
	_, err := controlplane.Start(testContext(t), controlplane.Options{})
	if err == nil || !strings.Contains(err.Error(), "out of cheese") || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("Start() = %v, want the program's last words and status", err)
	}
}
