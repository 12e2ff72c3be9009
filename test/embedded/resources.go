package embedded

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one kind of object that the API stores.
type resource struct {
	gvr        schema.GroupVersionResource
	kind       string
	namespaced bool
	// example is the Go type that strategic merge patches go by. Nil, as for a custom resource,
	// means that the API refuses them.
	example any
	// counted is true when the API server counts generations of the spec.
	counted bool
	// echoed is true when a DELETE answers with the object and not with a Status.
	echoed bool
}

// The resources that tests name most.
var (
	Pods            = core("pods")
	ConfigMaps      = core("configmaps")
	Secrets         = core("secrets")
	Services        = core("services")
	Claims          = core("persistentvolumeclaims")
	Namespaces      = core("namespaces")
	Jobs            = batchv1.SchemeGroupVersion.WithResource("jobs")
	NetworkPolicies = networkingv1.SchemeGroupVersion.WithResource("networkpolicies")
	Leases          = coordinationv1.SchemeGroupVersion.WithResource("leases")
	PodGroups       = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
)

func core(name string) schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource(name)
}

// resources is all that the API knows.
var resources = []*resource{
	{gvr: Pods, kind: "Pod", namespaced: true, example: corev1.Pod{}, counted: true, echoed: true},
	{gvr: Jobs, kind: "Job", namespaced: true, example: batchv1.Job{}, counted: true},
	{gvr: ConfigMaps, kind: "ConfigMap", namespaced: true, example: corev1.ConfigMap{}},
	{gvr: Secrets, kind: "Secret", namespaced: true, example: corev1.Secret{}},
	{gvr: Services, kind: "Service", namespaced: true, example: corev1.Service{}, echoed: true},
	{gvr: Claims, kind: "PersistentVolumeClaim", namespaced: true, example: corev1.PersistentVolumeClaim{}, echoed: true},
	{gvr: core("serviceaccounts"), kind: "ServiceAccount", namespaced: true, example: corev1.ServiceAccount{}, echoed: true},
	{gvr: core("events"), kind: "Event", namespaced: true, example: corev1.Event{}},
	{gvr: NetworkPolicies, kind: "NetworkPolicy", namespaced: true, example: networkingv1.NetworkPolicy{}, counted: true},
	{gvr: networkingv1.SchemeGroupVersion.WithResource("ingresses"), kind: "Ingress", namespaced: true, example: networkingv1.Ingress{}, counted: true},
	{gvr: Leases, kind: "Lease", namespaced: true, example: coordinationv1.Lease{}},
	{gvr: PodGroups, kind: "PodGroup", namespaced: true, counted: true},
	{gvr: Namespaces, kind: "Namespace", example: corev1.Namespace{}, echoed: true},
}

var (
	byResource = map[schema.GroupVersionResource]*resource{}
	byKind     = map[schema.GroupVersionKind]*resource{}
)

func init() {
	for _, res := range resources {
		byResource[res.gvr] = res
		byKind[res.gvk()] = res
	}
}

func (r *resource) gvk() schema.GroupVersionKind { return r.gvr.GroupVersion().WithKind(r.kind) }

func resourceOf(gvk schema.GroupVersionKind) (*resource, error) {
	res := byKind[gvk]
	if res == nil {
		return nil, fmt.Errorf("the embedded API has no %s", gvk)
	}
	return res, nil
}
