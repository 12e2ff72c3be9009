//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/magiconair/properties"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/operator"
)

// managed selects what Flint created.
var managed = metav1.ListOptions{LabelSelector: launch.LabelManagedBy + "=" + launch.ManagedBy}

// made is what Flint created in a namespace.
type made struct {
	pods       []corev1.Pod
	services   []corev1.Service
	configMaps []corev1.ConfigMap
	policies   int
	owners     map[string]int // uid -> how many objects it owns
}

func look(t *testing.T, client kubernetes.Interface, namespace string) made {
	t.Helper()
	ctx := t.Context()
	m := made{owners: map[string]int{}}
	own := func(o metav1.ObjectMeta) {
		if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].Controller == nil || !*o.OwnerReferences[0].Controller || o.OwnerReferences[0].BlockOwnerDeletion != nil {
			t.Errorf("%s: owners %v", o.Name, o.OwnerReferences)
			return
		}
		m.owners[string(o.OwnerReferences[0].UID)]++
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, managed)
	if err != nil {
		t.Fatal(err)
	}
	m.pods = pods.Items
	services, err := client.CoreV1().Services(namespace).List(ctx, managed)
	if err != nil {
		t.Fatal(err)
	}
	m.services = services.Items
	configMaps, err := client.CoreV1().ConfigMaps(namespace).List(ctx, managed)
	if err != nil {
		t.Fatal(err)
	}
	m.configMaps = configMaps.Items
	policies, err := client.NetworkingV1().NetworkPolicies(namespace).List(ctx, managed)
	if err != nil {
		t.Fatal(err)
	}
	m.policies = len(policies.Items)
	for _, o := range m.services {
		own(o.ObjectMeta)
	}
	for _, o := range m.configMaps {
		own(o.ObjectMeta)
	}
	for _, o := range policies.Items {
		own(o.ObjectMeta)
	}
	return m
}

// clear takes away all that Flint created; no garbage collector runs here.
func clear(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	ctx, now := t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	errs := []error{
		client.CoreV1().Pods(namespace).DeleteCollection(ctx, now, managed),
		client.CoreV1().ConfigMaps(namespace).DeleteCollection(ctx, now, managed),
		client.NetworkingV1().NetworkPolicies(namespace).DeleteCollection(ctx, now, managed),
	}
	services, err := client.CoreV1().Services(namespace).List(ctx, managed)
	errs = append(errs, err)
	for _, service := range services.Items { // Services have no collection to delete
		errs = append(errs, client.CoreV1().Services(namespace).Delete(ctx, service.Name, now))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Each request exactly as the operator builds it: 201, then 200 with the same uid.
func TestOperatorRequests(t *testing.T) {
	cp, client, kubeconfig := cluster(t)
	for _, account := range []string{"default", "spark-operator-spark", "non-existent"} {
		if err := cp.ServiceAccount(t.Context(), "default", account); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	f := start(t, kubeconfig)
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) != 6 {
		t.Fatalf("%d requests, want 6", len(requests))
	}
	for name, body := range requests {
		t.Run(name, func(t *testing.T) {
			defer clear(t, client, "default")
			var sent operator.Request
			if err := json.Unmarshal(body, &sent); err != nil {
				t.Fatal(err)
			}
			first, status, err := f.client().Submit(t.Context(), body)
			if err != nil || status != http.StatusCreated {
				t.Fatalf("HTTP %d, %v", status, err)
			}
			again, status, err := f.client().Submit(t.Context(), body)
			if err != nil || status != http.StatusOK || !again.DuplicateSubmission || again.DriverPodUID != first.DriverPodUID || again.SparkAppID != first.SparkAppID {
				t.Errorf("again: HTTP %d, %v, %+v", status, err, again)
			}
			m := look(t, client, "default")
			if len(m.pods) != 1 || len(m.services) != 1 || len(m.configMaps) != 2 || m.policies != 1 || m.owners[first.DriverPodUID] != 4 {
				t.Fatalf("pods %d, services %d, config maps %d, policies %d, owners %v", len(m.pods), len(m.services), len(m.configMaps), m.policies, m.owners)
			}
			checkPod(t, &m.pods[0], name, sent, first)
			for _, configMap := range m.configMaps {
				if text, ok := configMap.Data["spark.properties"]; ok {
					checkProperties(t, text, sent, first, m.services[0].Name)
				} else if configMap.Data["podspec-configmap-key"] == "" {
					t.Errorf("config map %s holds %v", configMap.Name, configMap.Data)
				}
			}
			if diff := cmp.Diff(first.SparkAppID, m.services[0].Spec.Selector["spark-app-selector"]); diff != "" {
				t.Errorf("selector (-want +got)\n%s", diff)
			}
		})
	}
}

func checkPod(t *testing.T, pod *corev1.Pod, name string, sent operator.Request, answer *api.SubmitResponse) {
	t.Helper()
	if want := name + "-driver"; pod.Name != want || answer.DriverPodName != want {
		t.Errorf("pod %s, answered %s, want %s", pod.Name, answer.DriverPodName, want)
	}
	if len(pod.Spec.SchedulingGates) != 0 {
		t.Errorf("still held: %v", pod.Spec.SchedulingGates)
	}
	if pod.Labels["sparkoperator.k8s.io/submission-id"] != sent.SubmissionID || pod.Labels["spark-role"] != "driver" || pod.Labels["spark-app-selector"] != answer.SparkAppID {
		t.Errorf("labels %v", pod.Labels)
	}
	if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].Kind != "SparkApplication" {
		t.Errorf("owners %v", pod.OwnerReferences)
	}
	last := pod.Spec.Containers[len(pod.Spec.Containers)-1]
	if last.Name != "spark-kubernetes-driver" || len(last.Args) < 6 || last.Args[0] != "driver" {
		t.Errorf("container %s, args %q", last.Name, last.Args)
	}
}

func checkProperties(t *testing.T, text string, sent operator.Request, answer *api.SubmitResponse, service string) {
	t.Helper()
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	read, err := loader.LoadBytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	got := read.Map()
	want := map[string]string{
		"spark.app.id": answer.SparkAppID, "spark.kubernetes.driver.pod.name": answer.DriverPodName,
		"spark.driver.host": service + ".default.svc", "spark.kubernetes.submitInDriver": "true",
		"spark.kubernetes.executor.podTemplateFile": "/opt/spark/pod-template/pod-spec-template.yml",
	}
	for i, argument := range sent.SparkSubmitArgs {
		if i > 0 && sent.SparkSubmitArgs[i-1] == "--conf" {
			key, value, _ := strings.Cut(argument, "=")
			want[key] = value
		}
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s = %q, want %q", key, got[key], value)
		}
	}
}

// What the API server refuses is answered with its own reason, and leaves nothing.
func TestMissingServiceAccount(t *testing.T) {
	cp, client, kubeconfig := cluster(t)
	namespace := cp.NewNamespace(t)
	f := start(t, kubeconfig)
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	body, err := operator.With(requests["fail-submission"], "", namespace, "")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = f.client().Submit(t.Context(), body)
	var refused *operator.SubmitError
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusForbidden || refused.Body.ErrorCode != api.Forbidden || !strings.Contains(refused.Body.Message, "non-existent") {
		t.Errorf("error %v", err)
	}
	if m := look(t, client, namespace); len(m.pods)+len(m.services)+len(m.configMaps)+m.policies != 0 {
		t.Errorf("left behind: %+v", m)
	}
}

// 20 replays at once through two processes: one driver.
func TestReplaysAtOnceThroughTwoProcesses(t *testing.T) {
	cp, client, kubeconfig := cluster(t)
	namespace := cp.NewNamespace(t)
	if err := cp.ServiceAccount(t.Context(), namespace, "spark-operator-spark"); err != nil {
		t.Fatal(err)
	}
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	body, err := operator.With(requests["spark-pi"], "", namespace, "")
	if err != nil {
		t.Fatal(err)
	}
	processes := []*flint{start(t, kubeconfig), start(t, kubeconfig)}
	var mu sync.Mutex
	var wait sync.WaitGroup
	statuses, uids := map[int]int{}, map[string]bool{}
	for n := range 20 {
		wait.Go(func() {
			answer, status, err := processes[n%2].client().Submit(t.Context(), body)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			statuses[status]++
			uids[answer.DriverPodUID] = true
		})
	}
	wait.Wait()
	if diff := cmp.Diff(map[int]int{http.StatusCreated: 1, http.StatusOK: 19}, statuses); diff != "" || len(uids) != 1 {
		t.Errorf("uids %v, statuses (-want +got)\n%s", uids, diff)
	}
	if m := look(t, client, namespace); len(m.pods) != 1 || len(m.services) != 1 || len(m.configMaps) != 2 || m.policies != 1 {
		t.Errorf("made %+v", m)
	}
}
