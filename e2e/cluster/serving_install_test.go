//go:build e2e && serving && linux

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"flint.dev/flint/test/program"
)

const (
	servingNamespace = "knative-serving"
	function         = "flint" // namespace and name of the Knative Service
	// The Knative Service is the project's own but for these two, which are 30s and 2m there, and what a scenario says.
	window    = 6 * time.Second // the shortest that Serving takes
	retention = 12 * time.Second
)

var services = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}

// serving is Knative Serving in the cluster: its own controller, activator and autoscaler, as its own manifests deploy
// them, with their accounts and rights. Its webhook is not run: the Knative Service comes with the defaults and the
// judgement of the webhook's code. The gateway is the test's: gateway.
type serving struct {
	objects dynamic.Interface
	kinds   *restmapper.DeferredDiscoveryRESTMapper
	service map[string]any // the Knative Service as config has it, with Serving's defaults
}

// newServing installs Serving, and takes away the Deployment of the function, which comes back when the test is over.
func newServing(ctx context.Context, t *testing.T) *serving {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig())
	must(err)
	config.QPS = -1
	s := &serving{}
	s.objects, err = dynamic.NewForConfig(config)
	must(err)
	s.kinds = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	text, err := os.ReadFile(filepath.Join(shared.Folder, ServiceFile)) // `run serving` writes it
	must(err)
	must(yaml.Unmarshal(text, &s.service))
	takeOver(ctx, t)
	must(s.install(ctx, t))
	startGateway(ctx, t, s.objects)
	return s
}

// takeOver deletes the function's Deployment: the Revision's has the same name.
func takeOver(ctx context.Context, t *testing.T) {
	t.Helper()
	deployments, err := client.AppsV1().Deployments(function).List(ctx, metav1.ListOptions{})
	if err != nil || len(deployments.Items) != 1 || len(deployments.Items[0].OwnerReferences) > 0 {
		t.Fatalf("%d deployments of the function, %v: not the cluster as it was made. `make e2e-down` ends it", len(deployments.Items), err)
	}
	d := deployments.Items[0]
	before := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, Labels: d.Labels, Annotations: d.Annotations}, Spec: d.Spec}
	deleteDeployment(ctx, t, &d)
	t.Cleanup(func() { // after that of the Knative Service
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := client.AppsV1().Deployments(function).Create(ctx, before, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// deleteDeployment waits until the pods are gone too, and leaves them no time.
func deleteDeployment(ctx context.Context, t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	if err := client.AppsV1().Deployments(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	noPods(ctx, t, d.Namespace, metav1.FormatLabelSelector(d.Spec.Selector), true)
}

// noPods waits until there are none, and ends those that there are if it is to hasten: deleted without a grace only, they
// would drain on their node for half a minute still.
func noPods(ctx context.Context, t *testing.T, namespace, selector string, hasten bool) {
	t.Helper()
	err := until(ctx, "the pods of "+namespace+" to go", func() (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if !hasten {
				break
			}
			remove(t, &pods.Items[i])
			if err := killContainers(ctx, &pods.Items[i]); err != nil {
				return false, err
			}
		}
		return len(pods.Items) == 0, fmt.Errorf("%d are there", len(pods.Items))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func killContainers(ctx context.Context, pod *corev1.Pod) error {
	for _, status := range pod.Status.ContainerStatuses {
		if status.ContainerID == "" {
			continue // not started yet
		}
		if err := killContainer(ctx, pod, status.Name); err != nil {
			return err
		}
	}
	return nil
}

// install applies Serving's manifests, from the modules themselves, and waits until its three programs are ready.
func (s *serving) install(ctx context.Context, t *testing.T) error {
	t.Helper()
	folders := map[string]string{}
	for _, module := range []string{"serving", "networking", "caching"} {
		folder, err := program.GoSays(ctx, "tools", "list", "-m", "-f", "{{.Dir}}", "knative.dev/"+module)
		if err != nil {
			return err
		}
		folders[module] = folder
	}
	for _, pattern := range []string{
		"serving/config/core/100-namespace.yaml", "serving/config/core/200-serviceaccount.yaml", "serving/config/core/200-roles/*.yaml",
		"serving/config/core/300-resources/*.yaml", "networking/config/*.yaml", "caching/config/*.yaml", "serving/config/core/configmaps/*.yaml",
	} {
		module, rest, _ := strings.Cut(pattern, "/")
		files, err := filepath.Glob(filepath.Join(folders[module], rest))
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("%s is not there", pattern)
		}
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := s.applyFile(ctx, file, withQueue); err != nil {
				return err
			}
		}
	}
	// There is no DNS. The autoscaler asks the gateway whether it leads to the activator before it takes the last pod.
	revisions := make([]string, 9)
	for i := range revisions {
		revisions[i] = fmt.Sprintf("%s-%05d.%[1]s.svc.cluster.local", function, i+1)
	}
	autoscaler, err := s.start(ctx, t, folders["serving"], "autoscaler", corev1.HostAlias{IP: Address, Hostnames: revisions})
	if err != nil {
		return err
	}
	if _, err := s.start(ctx, t, folders["serving"], "activator", corev1.HostAlias{
		IP: autoscaler.Status.PodIP, Hostnames: []string{"autoscaler." + servingNamespace + ".svc.cluster.local"},
	}); err != nil {
		return err
	}
	_, err = s.start(ctx, t, folders["serving"], "controller")
	return err
}

// start deploys one of Serving's programs as its manifest has it, and waits until it is ready.
func (s *serving) start(ctx context.Context, t *testing.T, serving, name string, hosts ...corev1.HostAlias) (*corev1.Pod, error) {
	t.Helper()
	var deployed appsv1.Deployment
	err := s.applyFile(ctx, filepath.Join(serving, "config/core/deployments", name+".yaml"), func(object *unstructured.Unstructured) error {
		if object.GetKind() != "Deployment" {
			return nil
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployed); err != nil {
			return err
		}
		deployed.Spec.Template.Spec.HostAliases = hosts
		deployed.Spec.Template.Spec.Containers[0].Image = servingImage(name)
		var err error
		object.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&deployed)
		return err
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		deleteDeployment(ctx, t, &deployed)
	})
	var ready *corev1.Pod
	err = until(ctx, name+" to be ready", func() (bool, error) {
		pods, err := client.CoreV1().Pods(servingNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if Ready(&pods.Items[i]) {
				ready = &pods.Items[i]
			}
		}
		return ready != nil, errors.New(Describe(ctx, client, servingNamespace))
	})
	return ready, err
}

func (s *serving) applyFile(ctx context.Context, file string, change func(*unstructured.Unstructured) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := change(object); err != nil {
			return fmt.Errorf("change %s: %w", file, err)
		}
		if err := s.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s: %w", file, err)
		}
	}
}

// withQueue puts the image of queue-proxy into the settings, which is all that they say.
func withQueue(object *unstructured.Unstructured) error {
	if object.GetName() != "config-deployment" {
		return nil
	}
	return unstructured.SetNestedField(object.Object, queueImage, "data", "queue-sidecar-image")
}

func (s *serving) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := s.kinds.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(object.Object, "status")
	_, err = s.objects.Resource(mapping.Resource).Namespace(object.GetNamespace()).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "e2e", Force: true})
	return err
}

// deploy applies the function's Knative Service with these annotations and variables beside its own, and waits until the revision of it that this makes
// serves. It gives the revision's name.
func (s *serving) deploy(ctx context.Context, t *testing.T, annotations, env map[string]string) string {
	t.Helper()
	object := (&unstructured.Unstructured{Object: s.service}).DeepCopy()
	template := []string{"spec", "template"}
	set := func(value any, path ...string) {
		if err := unstructured.SetNestedField(object.Object, value, append(template, path...)...); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range map[string]string{"window": window.String(), "scale-to-zero-pod-retention-period": retention.String()} {
		set(value, "metadata", "annotations", "autoscaling.knative.dev/"+name)
	}
	for name, value := range annotations {
		set(value, "metadata", "annotations", "autoscaling.knative.dev/"+name)
	}
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container := containers[0].(map[string]any)
	for name, value := range env {
		container["env"] = append(container["env"].([]any), map[string]any{"name": name, "value": value})
	}
	set(containers, "spec", "containers")
	// The kinds have just been made, and the API server may not serve them yet.
	if err := until(ctx, "the Knative Service to be taken", func() (bool, error) {
		s.kinds.Reset()
		err := s.apply(ctx, object)
		return err == nil, err
	}); err != nil {
		t.Fatal(err)
	}
	var revision string
	err = until(ctx, "the Knative Service to be ready", func() (bool, error) {
		now, err := s.objects.Resource(services).Namespace(function).Get(ctx, function, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		observed, _, _ := unstructured.NestedInt64(now.Object, "status", "observedGeneration")
		created, _, _ := unstructured.NestedString(now.Object, "status", "latestCreatedRevisionName")
		revision, _, _ = unstructured.NestedString(now.Object, "status", "latestReadyRevisionName")
		ready := isTrue(now, "Ready")
		return ready && observed == now.GetGeneration() && revision == created, fmt.Errorf("%v\n%s", now.Object["status"], Describe(ctx, client, function))
	})
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

// remove deletes the Knative Service, and waits until nothing of it is left.
func (s *serving) remove(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.objects.Resource(services).Namespace(function).Delete(ctx, function, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	err := until(ctx, "the end of the Knative Service", func() (bool, error) {
		deployments, err := client.AppsV1().Deployments(function).List(ctx, metav1.ListOptions{})
		return err == nil && len(deployments.Items) == 0, err
	})
	if err != nil {
		t.Error(err)
	}
	noPods(ctx, t, function, "", true)
}

// isTrue is whether a condition of Knative's shape is True.
func isTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == kind {
			return c["status"] == string(corev1.ConditionTrue)
		}
	}
	return false
}
