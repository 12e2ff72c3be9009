package launches

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// TestAPIServer: pages hold each launch once, a made-up continue is the caller's fault, and a cancel of what no node
// has is at once, also the second of two with one id.
func TestAPIServer(t *testing.T) {
	cp := controlplane.Shared(t)
	cfg := cp.Config()
	cfg.WarningHandler = rest.NoWarnings{}
	client, err := kube.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	namespace := cp.NewNamespace(t)
	if err := cp.ServiceAccount(ctx, namespace, "default"); err != nil {
		t.Log(err) // it may be there
	}
	object := func(apiVersion, kind, name, submissionID string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
		o.SetLabels(map[string]string{launch.LabelID: launch.ID(namespace, submissionID), launch.LabelKind: "file", launch.LabelCompletion: "pending"})
		o.SetAnnotations(map[string]string{launch.AnnotationSubmissionID: submissionID, launch.AnnotationHash: "1"})
		return o
	}
	pod := func() map[string]any {
		return map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "c", "image": "i"}}}
	}
	held := pod()
	held["schedulingGates"] = []any{map[string]any{"name": launch.Gate}}
	for _, o := range []*unstructured.Unstructured{
		object("v1", "Pod", "a-held", "one", held), // of one id with the next
		object("v1", "Pod", "b", "one", pod()),
		object("v1", "Pod", "c", "two", pod()),
		object("batch/v1", "Job", "d", "three", map[string]any{"template": map[string]any{"spec": pod()}}),
		object("batch/v1", "Job", "e", "four", map[string]any{"template": map[string]any{"spec": pod()}}),
	} {
		if _, err := client.Create(ctx, namespace, o, false); err != nil {
			t.Fatal(err)
		}
	}
	l := &Launches{Client: client}

	var names []string
	query, pages := Query{Namespace: namespace, Limit: 2}, 0
	for {
		page, err := l.List(ctx, query)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range page.Items {
			names = append(names, one.Name)
		}
		pages++
		if query.Continue = page.Continue; query.Continue == "" {
			break
		}
	}
	if fmt.Sprint(names) != "[a-held b c d e]" || pages != 3 {
		t.Errorf("%v on %d pages", names, pages)
	}
	for _, own := range []string{"abc", base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"../../other/x\u0000"}`))} {
		query.Continue = position{Namespace: namespace, Continue: own}.token()
		_, err := l.List(ctx, query)
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.BadRequest || e.Field != "continue" {
			t.Errorf("continue %q: %v", own, err)
		}
	}

	poller := &completion.Poller{Client: client, Sender: &ledger{}, Source: "/flint", Namespaces: []string{namespace}}
	tell := func(c *Cancelled) { // until then it is kept
		if stats, err := poller.One(ctx, c.Ref, c.Last); err != nil || stats.Sent != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	}
	// The one that was released is meant, then what is left.
	name := Name{Namespace: namespace, ID: launch.ID(namespace, "one")}
	for _, want := range []string{"b", "a-held"} {
		got, err := l.Cancel(ctx, name)
		if err != nil || got.Launch.Name != want || got.Launch.Reason != api.ReasonDeleted || got.Last.GetDeletionTimestamp() == nil {
			t.Fatalf("cancelled %+v, %v", got, err)
		}
		tell(got)
	}
	name.ID = launch.ID(namespace, "three")
	if got, err := l.Cancel(ctx, name); err != nil || got.Ref.Kind != "Job" || got.Launch.State != api.StateFailed {
		t.Errorf("cancelled %+v, %v", got, err)
	} else {
		tell(got)
	}
	_, err = l.Get(ctx, name)
	if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.NotFound {
		t.Errorf("after its cancel: %v", err)
	}
}

// TestEarlier: of one id, what was released comes first, then the older, then the lesser name.
func TestEarlier(t *testing.T) {
	one := func(name, created string, gated bool) *unstructured.Unstructured {
		o := workload(t, "v1", "Pod", noted, "")
		if gated {
			o = workload(t, "v1", "Pod", noted, `,"spec":{"schedulingGates":[{"name":"flint.dev/support"}]}`)
		}
		o.SetName(name)
		unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
		if err := unstructured.SetNestedField(o.Object, "2026-11-30T08:30:0"+created+"Z", "metadata", "creationTimestamp"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	all := []*unstructured.Unstructured{one("e", "0", true), one("c", "2", false), one("b", "2", false), one("d", "1", true), one("a", "3", false)}
	slices.SortFunc(all, earlier)
	var names []string
	for _, o := range all {
		names = append(names, o.GetName())
	}
	if got := strings.Join(names, ""); got != "bcaed" {
		t.Errorf("order %s", got)
	}
}
