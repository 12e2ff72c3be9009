package driver

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/spark/conf"
)

// Rules of the API server that Spark does not know. A value that breaks one would be
// refused when the object is created, with a path into an object that the caller never
// wrote; here it is refused with the key that the caller did write. Nothing that the API
// server takes is refused.

// judge makes a refusal of what a validation function found.
func judge(key, value, what string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return conf.Refuse(key, value, "%s: %s", what, strings.Join(problems, "; "))
}

// judgeName is judge where the key itself is at fault, and not its value, which may be a secret.
func judgeName(key, what string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return conf.RefuseName(key, "%s: %s", what, strings.Join(problems, "; "))
}

// checkLabel judges the label name=value that came from the key.
func checkLabel(key, name, value string) error {
	if err := judgeName(key, "\""+name+"\" is not a label key", content.IsLabelKey(name)); err != nil {
		return err
	}
	return judge(key, value, "is not a label value", content.IsLabelValue(value))
}

// checkAnnotation judges the annotation's name. It is a label key in any case; the value is free.
func checkAnnotation(key, name string) error {
	return judgeName(key, "\""+name+"\" is not an annotation key", content.IsLabelKey(strings.ToLower(name)))
}

// checkEnvName judges an environment variable's name: printable ASCII without "=".
func checkEnvName(key, name string) error {
	return judgeName(key, "\""+name+"\" is not an environment variable name", validation.IsRelaxedEnvVarName(name))
}

// checkVolumeName judges a volume's name: a DNS label of at most 63 characters.
func checkVolumeName(key, name string) error {
	return judgeName(key, "\""+name+"\" is not a volume name", validation.IsDNS1123Label(name))
}

// checkObjectName judges the name of a Pod, claim, Secret or ConfigMap: a DNS subdomain of at most 253 characters.
func checkObjectName(key, name string) error {
	return judge(key, name, "is not the name of an object", validation.IsDNS1123Subdomain(name))
}

// checkPort judges a port number. Spark takes 0 for "any free port", which has no meaning in a pod's specification.
func checkPort(key string, port int) error {
	if 1 <= port && port <= 65535 {
		return nil
	}
	return conf.RefuseName(key, "must be a port between 1 and 65535, but is %d; the API server refuses it, so give a fixed port", port)
}

// quantity reads a Kubernetes quantity that must not be negative. The object gets the
// text, not the value: a quantity that is printed again looks different.
func quantity(key, text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(strings.TrimSpace(text))
	if err != nil {
		return q, conf.Refuse(key, text, "must be a Kubernetes quantity such as 500m, 2 or 10Gi")
	}
	if q.Sign() < 0 {
		return q, conf.Refuse(key, text, "must not be negative")
	}
	return q, nil
}
