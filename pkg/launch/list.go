package launch

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// List puts objects into one Kubernetes List, in their order, as `kubectl apply -f -` reads it.
func List(objects []*unstructured.Unstructured) map[string]any {
	items := make([]any, len(objects))
	for i, object := range objects {
		items[i] = object.Object
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": items}
}
