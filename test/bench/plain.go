package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/spark"
	"flint.dev/flint/pkg/spark/version"
)

// plain does by hand, with client-go's dynamic client, the writes that Flint
// does: the gated pod, its support in parallel, the release. It knows nothing of
// replays, conflicts, refusals or clean-up.
type plain struct{ client dynamic.Interface }

func newPlain(c *rest.Config) (*plain, error) {
	client, err := dynamic.NewForConfig(c)
	return &plain{client}, err
}

var resources = map[string]schema.GroupVersionResource{
	"Pod":                   {Version: "v1", Resource: "pods"},
	"ConfigMap":             {Version: "v1", Resource: "configmaps"},
	"Service":               {Version: "v1", Resource: "services"},
	"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
	"NetworkPolicy":         {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
}

// planned are the objects of a request, the pod first.
func planned(body []byte) ([]*unstructured.Unstructured, error) {
	submission, err := understood(body)
	if err != nil {
		return nil, err
	}
	return launch.Render(submission.Plan), nil
}

func understood(body []byte) (*spark.Submission, error) {
	request, err := api.DecodeSubmit(body, "")
	if err != nil {
		return nil, err
	}
	v, err := version.Parse("4.2.0")
	if err != nil {
		return nil, err
	}
	return spark.Plan(request, spark.Defaults{Version: v, User: "spark"}, "", time.Now())
}

func (p *plain) create(ctx context.Context, objects []*unstructured.Unstructured) error {
	pod, support := objects[0], objects[1:]
	gates := []any{map[string]any{"name": launch.Gate}}
	if err := unstructured.SetNestedSlice(pod.Object, gates, "spec", "schedulingGates"); err != nil {
		return err
	}
	pods := p.client.Resource(resources["Pod"]).Namespace(namespace)
	created, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	controller := true
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: created.GetName(), UID: created.GetUID(), Controller: &controller}
	failures := make([]error, len(support))
	var wait sync.WaitGroup
	for i, object := range support {
		wait.Go(func() {
			object.SetOwnerReferences([]metav1.OwnerReference{owner})
			_, failures[i] = p.client.Resource(resources[object.GetKind()]).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
		})
	}
	wait.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"name":%q,"$patch":"delete"}]}}`, created.GetUID(), launch.Gate)
	_, err = pods.Patch(ctx, created.GetName(), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
