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
		"Event":                 "events",
	},
	"apps/v1":                       {"ReplicaSet": "replicasets", "DaemonSet": "daemonsets"},
	"batch/v1":                      {"Job": "jobs"},
	"networking.k8s.io/v1":          {"NetworkPolicy": "networkpolicies"},
	"coordination.k8s.io/v1":        {"Lease": "leases"},
	"scheduling.volcano.sh/v1beta1": {"PodGroup": "podgroups"},
}

// RequestError says that no request was sent, since it could not be made: an unknown
// kind, or a name that cannot be part of a path.
type RequestError struct {
	Ref    Ref
	Reason string
}

func (e *RequestError) Error() string { return e.Ref.String() + ": " + e.Reason }

// Known tells whether a Client reads and writes the kind.
func Known(apiVersion, kind string) bool {
	_, ok := resources[apiVersion][kind]
	return ok
}

// locate gives the path of the API group version and the resource of the kind. The name is
// part of the path of an existing object only: a new one's is for the API server to judge.
func locate(ref Ref, named bool) (prefix, resource string, err error) {
	prefix, resource, err = locateKind(ref)
	if err == nil {
		err = segment(ref, "namespace", ref.Namespace)
	}
	if err == nil && named {
		err = segment(ref, "name", ref.Name)
	}
	return prefix, resource, err
}

// locateAll is locate for a list, whose namespace may be empty.
func locateAll(ref Ref) (prefix, resource string, err error) {
	if ref.Namespace == "" {
		return locateKind(ref)
	}
	return locate(ref, false)
}

// locateKind is what of locate the kind alone decides.
func locateKind(ref Ref) (prefix, resource string, err error) {
	resource, ok := resources[ref.APIVersion][ref.Kind]
	if !ok {
		return "", "", &RequestError{Ref: ref, Reason: fmt.Sprintf("kind %q in %q is not one that Flint writes", ref.Kind, ref.APIVersion)}
	}
	if !strings.Contains(ref.APIVersion, "/") {
		return "/api/" + ref.APIVersion, resource, nil
	}
	return "/apis/" + ref.APIVersion, resource, nil
}

// segment refuses what would mean another path.
func segment(ref Ref, what, text string) error {
	if text == "" {
		return &RequestError{Ref: ref, Reason: "no " + what}
	}
	if wrong := rest.IsValidPathSegmentName(text); len(wrong) > 0 {
		return &RequestError{Ref: ref, Reason: fmt.Sprintf("%s %q %s", what, text, strings.Join(wrong, ", "))}
	}
	return nil
}
