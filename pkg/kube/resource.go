package kube

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
)

// resources are the kinds that Flint reads and writes, and their paths in the API. All
// of them live in a namespace. A table instead of discovery: discovery costs requests at
// start, and a launch is about these kinds and no others.
var resources = map[string]map[string]string{
	"v1": {
		"Pod":                   "pods",
		"ConfigMap":             "configmaps",
		"Secret":                "secrets",
		"Service":               "services",
		"PersistentVolumeClaim": "persistentvolumeclaims",
	},
	"batch/v1":                       {"Job": "jobs"},
	"networking.k8s.io/v1":           {"NetworkPolicy": "networkpolicies"},
	"coordination.k8s.io/v1":         {"Lease": "leases"},
	"scheduling.volcano.sh/v1beta1": {"PodGroup": "podgroups"},
}

// RequestError says that no request was sent, since it could not be made: an unknown
// kind, or a name that cannot be part of a path. The caller's mistake, not the API server's.
type RequestError struct {
	Ref    Ref
	Reason string
}

func (e *RequestError) Error() string { return e.Ref.String() + ": " + e.Reason }

// locate gives the path of the API group version and the resource of the kind.
func locate(ref Ref) (prefix, resource string, err error) {
	resource, ok := resources[ref.APIVersion][ref.Kind]
	if !ok {
		return "", "", &RequestError{Ref: ref, Reason: fmt.Sprintf("kind %q in %q is not one that Flint writes", ref.Kind, ref.APIVersion)}
	}
	for what, segment := range map[string]string{"namespace": ref.Namespace, "name": ref.Name} {
		if segment == "" {
			return "", "", &RequestError{Ref: ref, Reason: "no " + what}
		}
		if wrong := rest.IsValidPathSegmentName(segment); len(wrong) > 0 {
			return "", "", &RequestError{Ref: ref, Reason: fmt.Sprintf("%s %q %s", what, segment, strings.Join(wrong, ", "))}
		}
	}
	if !strings.Contains(ref.APIVersion, "/") {
		return "/api/" + ref.APIVersion, resource, nil
	}
	return "/apis/" + ref.APIVersion, resource, nil
}
