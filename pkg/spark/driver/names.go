package driver

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
)

// Lengths that the API server allows, in characters.
const (
	maxName    = validation.DNS1123SubdomainMaxLength // of a Pod, ConfigMap, Secret, claim, policy
	maxService = validation.DNS1035LabelMaxLength     // of a Service
	maxLabel   = validation.DNS1123LabelMaxLength     // of a label value
)

// Namespace is where the objects go: spark.kubernetes.namespace, by default "default".
// It refuses with a *conf.Error what cannot be the name of a namespace.
func Namespace(a *args.Arguments) (string, error) {
	const key = "spark.kubernetes.namespace"
	name, set, err := a.Conf.Text(key)
	if err != nil {
		return "", err
	}
	if !set {
		return "default", nil
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return "", conf.Refuse(key, name, "is not the name of a namespace: %s", strings.Join(problems, "; "))
	}
	return name, nil
}

// resourcePrefix begins the names of the driver's objects. It has no limit of length and
// holds [a-z0-9-], with no digit and no dash in front
// (org.apache.spark.deploy.k8s.KubernetesConf.getResourceNamePrefix).
func resourcePrefix(appName, id string) string {
	name := dashed(conf.Lower(conf.Trim(appName + "-" + id)))
	name = strings.TrimPrefix(name, "-")
	if name != "" && '0' <= name[0] && name[0] <= '9' {
		name = "x" + name[1:]
	}
	return name
}

// appNameLabel is the value of the label spark-app-name: at most 63 characters of
// [a-z0-9-], no dash at either end, possibly empty (KubernetesConf.getAppNameLabel).
func appNameLabel(appName string) string {
	name := dashed(conf.Lower(conf.Trim(appName)))
	name = name[:min(len(name), maxLabel)]
	return strings.TrimSuffix(strings.TrimPrefix(name, "-"), "-")
}

// dashed writes every run of code points outside [a-z0-9] as one dash.
func dashed(s string) string {
	var b strings.Builder
	dash := false
	for _, r := range s {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			b.WriteRune(r)
			dash = false
		} else if !dash {
			b.WriteByte('-')
			dash = true
		}
	}
	return b.String()
}

// serviceName is the driver Service's name, and whether it is the fallback that is used
// when the prefix leaves no room in the 63 characters of a Service name
// (DriverServiceFeatureStep).
func serviceName(prefix, id string) (name string, fallback bool) {
	const suffix = "-driver-svc"
	if name = prefix + suffix; len(name) <= maxService {
		return name, false
	}
	return "spark-" + id + suffix, true
}
