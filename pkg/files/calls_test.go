package files_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// recorder notes the calls to the API server.
type recorder struct {
	kube.Client
	calls []string
}

func (r *recorder) Create(ctx context.Context, namespace string, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	r.calls = append(r.calls, "create "+object.GetKind())
	return r.Client.Create(ctx, namespace, object, dryRun)
}

func (r *recorder) Get(ctx context.Context, ref kube.Ref) (*unstructured.Unstructured, error) {
	r.calls = append(r.calls, "get "+ref.Kind)
	return r.Client.Get(ctx, ref)
}

func (r *recorder) List(ctx context.Context, of kube.Ref, options kube.ListOptions) (*kube.Page, error) {
	r.calls = append(r.calls, "list "+of.Kind)
	return r.Client.List(ctx, of, options)
}

func (r *recorder) Patch(ctx context.Context, ref kube.Ref, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	r.calls = append(r.calls, "patch "+ref.Kind)
	return r.Client.Patch(ctx, ref, kind, patch)
}

// What a launch costs. A change reads whose turn it is before it writes that: but for the first on a claim the Lease is there.
func TestCallsOfALaunch(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	r := &recorder{Client: g.Client}
	g.Client, g.Apply = r, (&launch.Applier{Client: r}).Apply
	look := []string{"get PersistentVolumeClaim", "list Pod"}
	turn := []string{"get Lease", "get Job", "list Pod", "patch Lease"}
	for _, c := range []struct {
		name, operation string
		want            []string
	}{
		{"read", reading, slices.Concat(look, []string{"create Job"})},
		{"first", making, slices.Concat(look, []string{"get Lease", "create Lease", "list Job", "create Job", "patch Lease"})},
		{"next", making, slices.Concat(look, turn, []string{"create Job", "patch Lease"})},
		{"content", writing, slices.Concat(look, turn, []string{"create Job", "create Secret", "patch Job", "patch Lease"})},
	} {
		r.calls = nil
		job := g.mustLaunch(t, c.name, c.operation)
		if diff := cmp.Diff(c.want, r.calls); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
		g.podOf(t, job, ended(0, "Completed", `{"op":"mkdir"}`))
	}
}
