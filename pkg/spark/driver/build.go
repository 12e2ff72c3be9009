package driver

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// object and list are JSON values.
type (
	object = map[string]any
	list   = []any
)

// app is what the steps read and never change: Spark's KubernetesDriverConf.
type app struct {
	// Arguments with a Conf of our own: the caller's, the submit time, and the container
	// names of inline templates.
	args.Arguments
	version          version.Version
	features         version.Features
	ids              IDs
	user             string
	submitTime       time.Time
	executorTemplate []byte
	namespace        string
	appName          string
	// prefix begins the names of the application's objects.
	prefix string
	// labels of the driver pod, which are the Service's selector too.
	labels object
}

// newApp reads what all steps need.
func newApp(r Request) (*app, error) {
	a := &app{
		Arguments:        *r.Arguments,
		version:          r.Version,
		features:         r.Version.Features(),
		ids:              r.IDs,
		user:             r.User,
		submitTime:       r.SubmitTime,
		executorTemplate: r.ExecutorTemplate,
	}
	for _, key := range []string{"spark.kubernetes.driver.podTemplateFile", "spark.kubernetes.executor.podTemplateFile"} {
		if value, set := a.Conf[key]; set {
			return nil, conf.Refuse(key, value, "names a file of the submitter, which cannot be read here; send the pod template in the request instead")
		}
	}
	a.Conf = maps.Clone(a.Conf)
	setIfMissing(a.Conf, "spark.app.submitTime", strconv.FormatInt(r.SubmitTime.UnixMilli(), 10))
	if r.DriverTemplate != nil {
		setIfMissing(a.Conf, driverContainerKey, DriverContainerName)
	}
	if r.ExecutorTemplate != nil {
		setIfMissing(a.Conf, executorContainerKey, ExecutorContainerName)
	}
	var err error
	if a.namespace, err = Namespace(&a.Arguments); err != nil {
		return nil, err
	}
	var named bool
	if a.appName, named = a.Conf["spark.app.name"]; !named {
		a.appName = "spark"
	}
	a.prefix = resourcePrefix(a.appName, a.ids.Prefix)
	return a, nil
}

func setIfMissing(c conf.Conf, key, value string) {
	if _, set := c[key]; !set {
		c[key] = value
	}
}

// step is one of Spark's KubernetesFeatureConfigSteps. Its constructor makes the checks
// of the Scala class's constructor, configure does the rest.
type step interface {
	configure(*draft) error
}

// builtIn are the steps in Spark's order (KubernetesDriverBuilder). A constructor may give
// nil for a step that its Spark line does not have.
var builtIn = []struct {
	class     string
	construct func(*app) (step, error)
}{
	{"BasicDriverFeatureStep", newBasicDriver},
	{"DriverKubernetesCredentialsFeatureStep", newCredentials},
	{"DriverServiceFeatureStep", newDriverService},
	{"NetworkPolicyFeatureStep", newNetworkPolicy},
	{"MountSecretsFeatureStep", newMountSecrets},
	{"EnvSecretsFeatureStep", newEnvSecrets},
	{"MountVolumesFeatureStep", newMountVolumes},
	{"DriverCommandFeatureStep", newDriverCommand},
	{"HadoopConfDriverFeatureStep", newHadoopConf},
	{"KerberosConfDriverFeatureStep", newKerberosConf},
	{"PodTemplateConfigMapStep", newPodTemplateConfigMap},
	{"LocalDirsFeatureStep", newLocalDirs},
}

const (
	stepPackage = "org.apache.spark.deploy.k8s.features."
	excludedKey = "spark.kubernetes.driver.pod.excludedFeatureSteps"
)

// newSteps constructs the user's steps and then all built-in ones, and only then leaves
// out the excluded: the checks of an excluded step count. Names that no step has are ignored.
func newSteps(a *app) ([]step, error) {
	users, err := newUserSteps(a)
	if err != nil {
		return nil, err
	}
	if a.labels, err = driverLabels(a); err != nil {
		return nil, err
	}
	var excluded []string
	if a.features.ExcludedSteps {
		if excluded, err = a.Conf.Strings(excludedKey); err != nil {
			return nil, err
		}
	}
	if slices.Contains(excluded, stepPackage+"BasicDriverFeatureStep") {
		return nil, conf.RefuseName(excludedKey, "%sBasicDriverFeatureStep cannot be left out, without it there is no driver", stepPackage)
	}
	var steps []step
	for _, b := range builtIn {
		s, err := b.construct(a)
		if err != nil {
			return nil, err
		}
		if s != nil && !slices.Contains(excluded, stepPackage+b.class) {
			steps = append(steps, s)
		}
	}
	if !slices.Contains(excluded, volcanoClass) {
		steps = append(steps, users...)
	}
	return steps, nil
}

// draft is what the steps change: Spark's KubernetesDriverSpec with its SparkPod.
type draft struct {
	// pod without the Spark container, and that container.
	pod, container object
	// field is where the container is in the template: "spec.containers[0]".
	field string
	// properties become spark.properties.
	properties conf.Conf
	// preResources are made before the pod, resources after it.
	preResources, resources []*unstructured.Unstructured
	callerNamed             []string
	claims                  int // made so far
	warnings                []string
	// volumes and mounts tell where each volume name of the pod and each mount path of
	// the container came from.
	volumes, mounts map[string]origin
}

// origin is the conf key that something in the pod came from, or one of the two below.
type origin string

const (
	fromTemplate origin = "template"
	fromSpark    origin = "Spark"
)

// metadata and spec of the pod.
func (d *draft) metadata() object { return child(d.pod, "metadata") }
func (d *draft) spec() object     { return child(d.pod, "spec") }

// env appends an environment variable to the Spark container.
func (d *draft) env(name, value string) {
	push(d.container, "env", object{"name": name, "value": value})
}

// mount appends a volume to the pod and a mount of it to the Spark container. It refuses a
// volume name or a mount path that is taken: the API server would.
func (d *draft) mount(from origin, volume, mount object) error {
	name, path := volume["name"].(string), mount["mountPath"].(string)
	if path == "" {
		return conf.RefuseName(string(from), "the mount path must not be empty")
	}
	if taken, ok := d.volumes[name]; ok {
		return clash(from, taken, "spec.volumes", "volume", name)
	}
	if taken, ok := d.mounts[path]; ok {
		return clash(from, taken, d.field+".volumeMounts", "mount path", path)
	}
	d.volumes[name], d.mounts[path] = from, from
	mount["name"] = name
	push(d.spec(), "volumes", volume)
	push(d.container, "volumeMounts", mount)
	return nil
}

// clash is the refusal of a name that two sides want. It blames the one that can give way.
func clash(from, taken origin, field, what, name string) error {
	switch {
	case taken == fromTemplate:
		return &TemplateError{Field: field, Reason: what + " " + strconv.Quote(name) + " is also made by " + string(from) + "; the API server refuses two"}
	case from == fromSpark:
		from, taken = taken, from
	}
	return conf.RefuseName(string(from), "%s %q is also made by %s; the API server refuses two", what, name, taken)
}

// create adds an object that is made after the pod.
func (d *draft) create(apiVersion, kind string, metadata, rest object) {
	d.resources = append(d.resources, newObject(apiVersion, kind, metadata, rest))
}

func newObject(apiVersion, kind string, metadata, rest object) *unstructured.Unstructured {
	o := object{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	maps.Copy(o, rest)
	return &unstructured.Unstructured{Object: o}
}

// child is the object under key, made if it is not there.
func child(parent object, key string) object {
	c, ok := parent[key].(object)
	if !ok {
		c = object{}
		parent[key] = c
	}
	return c
}

// push appends to the list under key.
func push(parent object, key string, items ...any) {
	l, _ := parent[key].(list)
	parent[key] = append(l, items...)
}

// assemble makes the spark.properties ConfigMap, puts the Spark container behind the
// template's other containers (KubernetesClientApplication), and checks the length of the names.
func assemble(a *app, d *draft) (*Objects, error) {
	configMap, err := propertiesConfigMap(a, d)
	if err != nil {
		return nil, err
	}
	push(d.spec(), "containers", d.container)
	if metadata := d.metadata(); metadata["namespace"] != nil {
		metadata["namespace"] = a.namespace
	}
	resources := append(append(d.preResources, d.resources...), configMap)
	for _, r := range resources {
		if name := r.GetName(); len(name) > maxName {
			return nil, a.tooLong(r.GetKind(), name)
		}
	}
	return &Objects{
		Pod:         &unstructured.Unstructured{Object: d.pod},
		Resources:   resources,
		CallerNamed: d.callerNamed,
		Warnings:    d.warnings,
	}, nil
}

// tooLong refuses the application's name for a name that was derived from it.
func (a *app) tooLong(kind, name string) error {
	return conf.Refuse("spark.app.name", a.appName,
		"is too long: the %s's name made of it has %d characters, at most %d are allowed", kind, len(name), maxName)
}
