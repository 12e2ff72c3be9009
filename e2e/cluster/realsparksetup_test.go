//go:build e2e && spark && linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"flint.dev/flint/test/program"
)

// corefile has the names of Services and pods answered on the node's address, which the kubelet gives to all pods.
const corefile = `.:53 {
	bind ` + Address + `
	ready ` + Address + `:8181
	errors
	kubernetes cluster.local in-addr.arpa {
		kubeconfig %s
	}
}
`

// serveDNS runs a DNS server until the test is over: a driver looks for the API server by its Service's name.
func serveDNS(ctx context.Context, t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(file, fmt.Appendf(nil, corefile, shared.Kubeconfig()), 0o600); err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	command := exec.CommandContext(serving, os.Getenv(DNSVariable), "-conf", file)
	program.DieWithParent(command)
	var output []byte
	ended := make(chan error, 1)
	go func() {
		// The kernel ends the child when the thread that started it ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		output, err = command.CombinedOutput()
		ended <- err
	}()
	t.Cleanup(func() {
		stopped := serving.Err() == nil
		stop()
		if err := <-ended; !stopped || command.ProcessState == nil {
			t.Errorf("the DNS server: %v\n%s", err, output)
		}
		if t.Failed() {
			t.Logf("the DNS server said:\n%s", output)
		}
	})
	answers(ctx, t, "http://"+Address+":8181/ready")
}

const (
	driverAccount = "spark"        // of drivers
	submitAccount = "spark-submit" // of spark-submit itself, where it runs in a pod
)

// driverRules are what a driver may do: "Running Spark on Kubernetes", RBAC.
var driverRules = []rbacv1.PolicyRule{{
	APIGroups: []string{""}, Resources: []string{"pods", "services", "configmaps", "persistentvolumeclaims"},
	Verbs: []string{"create", "get", "list", "watch", "delete", "deletecollection", "patch", "update"},
}}

// submitRules are what spark-submit does beside that, from 4.2 on.
var submitRules = append(driverRules[:1:1], rbacv1.PolicyRule{
	APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create", "get", "patch"},
})

// account makes a service account with a Role of its own, unless they are there.
func account(ctx context.Context, t *testing.T, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: name, Namespace: jobs}
	_, made := client.CoreV1().ServiceAccounts(jobs).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, role := client.RbacV1().Roles(jobs).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	_, bound := client.RbacV1().RoleBindings(jobs).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: jobs}},
	}, metav1.CreateOptions{})
	for _, err := range []error{made, role, bound} {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// observer sees all pods that have a label, also those that are gone when they are asked for.
type observer struct {
	mu   sync.Mutex
	pods map[string]*seenPod // by name
	more chan struct{}       // closed when something was seen
}

// seenPod is a pod as it was last seen.
type seenPod struct {
	corev1.Pod
	at   time.Time // when it was first seen
	ran  bool      // all of its containers, at once
	gone bool
}

// observe watches until the test is over. Nothing of it may be there before.
func observe(ctx context.Context, t *testing.T, selector string) *observer {
	t.Helper()
	o := &observer{pods: map[string]*seenPod{}, more: make(chan struct{})}
	watching, err := client.CoreV1().Pods(jobs).Watch(ctx, metav1.ListOptions{LabelSelector: selector, TimeoutSeconds: ptr.To[int64](1200)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watching.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				o.see(pod, event.Type == watch.Deleted)
			}
		}
	}()
	t.Cleanup(func() { watching.Stop(); <-ended })
	return o
}

func (o *observer) see(now *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	pod := o.pods[now.Name]
	if pod == nil {
		pod = &seenPod{at: time.Now()}
		o.pods[now.Name] = pod
	}
	pod.Pod, pod.gone = *now, gone
	running := len(now.Status.ContainerStatuses) > 0
	for _, state := range now.Status.ContainerStatuses {
		running = running && state.State.Running != nil
	}
	pod.ran = pod.ran || running
	close(o.more)
	o.more = make(chan struct{})
}

// await waits until as many pods are as they should be, and returns those.
func (o *observer) await(ctx context.Context, n int, what string, is func(seenPod) bool) ([]seenPod, error) {
	for {
		o.mu.Lock()
		var found []seenPod
		for _, pod := range o.pods {
			if is(*pod) {
				found = append(found, *pod)
			}
		}
		all, more := len(o.pods), o.more
		o.mu.Unlock()
		if len(found) >= n {
			return found, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%d of %d pods seen are %s, want %d", len(found), all, what, n), ctx.Err())
		}
	}
}

// all are those seen until now.
func (o *observer) all() []seenPod {
	pods, _ := o.await(context.Background(), 0, "", func(seenPod) bool { return true })
	return pods
}
