package runners

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/launch"
)

// Of two that are held, one at least is before the other, whatever changed them meanwhile within another second.
func TestBefore(t *testing.T) {
	held := func(created, version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"creationTimestamp": created, "resourceVersion": version},
			"spec":     map[string]any{"schedulingGates": []any{map[string]any{"name": launch.Gate}}},
		}}
	}
	const first, second = "2030-01-01T00:00:00Z", "2030-01-01T00:00:01Z"
	released := held(second, "9")
	delete(released.Object, "spec")
	for name, c := range map[string]struct {
		other *unstructured.Unstructured
		want  bool
	}{
		"released":                          {released, true},
		"created before":                    {held(first, "6"), true},
		"created after":                     {held(first, "8"), false},
		"created before, and changed since": {held("2029-12-31T23:59:59Z", "8"), true},
		"of a later second":                 {held(second, "8"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := before(c.other, held(first, "7")); got != c.want {
				t.Errorf("%t, want %t", got, c.want)
			}
		})
	}
}
