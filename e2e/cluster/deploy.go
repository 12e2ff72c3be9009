//go:build linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// deploy creates what is in flint.yaml, and waits until the function is ready behind its queue-proxy.
func (m *machine) deploy(ctx context.Context, config *rest.Config, client kubernetes.Interface) error {
	known, err := restmapper.GetAPIGroupResources(client.Discovery())
	if err != nil {
		return fmt.Errorf("ask for the API's resources: %w", err)
	}
	resources := restmapper.NewDiscoveryRESTMapper(known)
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(m.path("flint.yaml"))
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("read flint.yaml: %w", err)
		}
		kind := object.GroupVersionKind()
		mapping, err := resources.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		_, err = objects.Resource(mapping.Resource).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create %s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return m.until(ctx, "Flint to be ready", func() (bool, error) {
		pods, err := client.CoreV1().Pods("flint").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, pod := range pods.Items {
			if Ready(&pod) {
				return true, nil
			}
		}
		return false, errors.New(Describe(ctx, client, "flint"))
	})
}

// Describe says, for people, what a namespace's pods are at and what happened to them.
func Describe(ctx context.Context, client kubernetes.Interface, namespace string) string {
	var text strings.Builder
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, pod := range pods.Items {
		fmt.Fprintf(&text, "pod %s: %s %s\n", pod.Name, pod.Status.Phase, pod.Status.Reason)
		for _, c := range pod.Status.ContainerStatuses {
			state, _ := json.Marshal(c.State) // it has no part that fails
			fmt.Fprintf(&text, "  container %s: ready %t, restarts %d, %s\n", c.Name, c.Ready, c.RestartCount, state)
		}
	}
	events, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, event := range events.Items {
		fmt.Fprintf(&text, "event %s %s: %s %s\n", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
	return text.String()
}

// Ready is whether the pod says so of itself, and is not about to go.
func Ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}
