package driver

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/spark/conf"
)

// TemplateError says that a pod template cannot be used.
type TemplateError struct {
	// Field is the path in the template: "spec.containers".
	Field string
	// Reason says what is wrong with it.
	Reason string
}

func (e *TemplateError) Error() string { return "driver pod template: " + e.Field + ": " + e.Reason }

// DriverContainerName is the container of an inline template that becomes the
// driver, unless spark.kubernetes.driver.podTemplateContainerName names another.
const DriverContainerName = "spark-kubernetes-driver"

// ExecutorContainerName likewise for executors.
const ExecutorContainerName = "spark-kubernetes-executor"

const (
	driverContainerKey   = "spark.kubernetes.driver.podTemplateContainerName"
	executorContainerKey = "spark.kubernetes.executor.podTemplateContainerName"
)

// newDraft is the pod that the steps start from: a copy of the template with the
// Spark container taken out, or nothing (KubernetesUtils.loadPodFromTemplate).
//
// Fields that no step touches are kept as they are, known or not. Fields that the
// steps add to must have their JSON type; null counts as absent.
func newDraft(template map[string]any, c conf.Conf) (*draft, error) {
	d := &draft{
		pod:       object{"kind": "Pod"},
		container: object{},
		field:     "spec.containers[0]",
		volumes:   map[string]origin{},
		mounts:    map[string]origin{},
	}
	if template != nil {
		d.pod = runtime.DeepCopyJSON(template)
		if err := d.load(c); err != nil {
			return nil, err
		}
	}
	d.pod["apiVersion"] = "v1"
	return d, nil
}

// load checks the template in d.pod and takes the Spark container out of it.
func (d *draft) load(c conf.Conf) error {
	kind, err := field[string](d.pod, "", "kind")
	if err != nil {
		return err
	}
	switch kind {
	case "":
		d.pod["kind"] = "Pod"
	case "Pod":
	default: // Spark leaves it to the API server to refuse
		return &TemplateError{"kind", fmt.Sprintf("is %q; a driver is a Pod", kind)}
	}
	metadata, err := field[object](d.pod, "", "metadata")
	if err != nil {
		return err
	}
	for _, key := range []string{"labels", "annotations"} {
		if err := texts(metadata, "metadata", key); err != nil {
			return err
		}
	}
	if _, err := field[string](metadata, "metadata", "namespace"); err != nil {
		return err
	}
	if metadata["resourceVersion"] != nil { // the API server takes it for an error of its own
		return &TemplateError{"metadata.resourceVersion", "resourceVersion must not be set on a pod to be created"}
	}
	spec, err := field[object](d.pod, "", "spec")
	if err != nil {
		return err
	}
	if spec == nil {
		return &TemplateError{"spec", "is missing"}
	}
	if err := texts(spec, "spec", "nodeSelector"); err != nil {
		return err
	}
	if _, err := field[list](spec, "spec", "imagePullSecrets"); err != nil {
		return err
	}
	if _, err := objects(spec, "spec", "schedulingGates"); err != nil {
		return err
	}
	volumes, err := objects(spec, "spec", "volumes")
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if name, ok := v["name"].(string); ok {
			d.volumes[name] = fromTemplate
		}
	}
	containers, err := objects(spec, "spec", "containers")
	if err != nil {
		return err
	}
	chosen, err := d.choose(containers, c)
	if err != nil || chosen < 0 {
		return err
	}
	d.field = fmt.Sprintf("spec.containers[%d]", chosen)
	d.container = containers[chosen]
	rest := make(list, 0, len(containers))
	for i, container := range containers {
		if i != chosen {
			rest = append(rest, container)
		}
	}
	spec["containers"] = rest
	return d.loadContainer()
}

// choose gives the index of the container that becomes the driver, -1 for a new one.
//
// With spark.kubernetes.driver.podTemplateContainerName this is Spark's rule: the only
// container of that name, else the first, with a warning. Without, the name is
// DriverContainerName, and there must be exactly one: an inline template comes from a
// program, and a sidecar that is made the driver by accident helps nobody.
func (d *draft) choose(containers []object, c conf.Conf) (int, error) {
	wanted, set, err := c.Text(driverContainerKey)
	if err != nil {
		return 0, err
	}
	if !set {
		wanted = DriverContainerName
	}
	matches, match := 0, -1
	for i, container := range containers {
		name, err := field[string](container, fmt.Sprintf("spec.containers[%d]", i), "name")
		if err != nil {
			return 0, err
		}
		if name == wanted {
			matches, match = matches+1, i
		}
	}
	switch {
	case matches == 1:
		return match, nil
	case !set && matches == 0:
		return 0, &TemplateError{"spec.containers", fmt.Sprintf("no container is named %q, which is the one that becomes the driver; name it so, or set %s", wanted, driverContainerKey)}
	case !set:
		return 0, &TemplateError{"spec.containers", fmt.Sprintf("%d containers are named %q, only one can become the driver", matches, wanted)}
	case len(containers) == 0:
		return -1, nil
	}
	d.warnings = append(d.warnings, fmt.Sprintf("%s is %q, which is the name of %d containers of the driver pod template; the first container becomes the driver", driverContainerKey, wanted, matches))
	return 0, nil
}

// loadContainer checks the fields of the Spark container that the steps add to.
func (d *draft) loadContainer() error {
	args, err := field[list](d.container, d.field, "args")
	if err != nil {
		return err
	}
	for i, arg := range args {
		if _, ok := arg.(string); !ok && arg != nil {
			return &TemplateError{fmt.Sprintf("%s.args[%d]", d.field, i), "must be a string"}
		}
	}
	for _, key := range []string{"env", "ports"} {
		if _, err := objects(d.container, d.field, key); err != nil {
			return err
		}
	}
	mounts, err := objects(d.container, d.field, "volumeMounts")
	if err != nil {
		return err
	}
	for i, m := range mounts {
		at := fmt.Sprintf("%s.volumeMounts[%d]", d.field, i)
		if _, err := field[string](m, at, "name"); err != nil {
			return err
		}
		path, err := field[string](m, at, "mountPath")
		if err != nil {
			return err
		}
		d.mounts[path] = fromTemplate
	}
	if _, err := field[object](d.container, d.field, "securityContext"); err != nil {
		return err
	}
	resources, err := field[object](d.container, d.field, "resources")
	if err != nil {
		return err
	}
	for _, key := range []string{"limits", "requests"} {
		if _, err := field[object](resources, d.field+".resources", key); err != nil {
			return err
		}
	}
	return nil
}

// field is the value under key, which must be a T; the zero T if it is absent or null. A null is removed.
func field[T string | object | list](parent object, path, key string) (T, error) {
	var zero T
	value := parent[key]
	if value == nil {
		delete(parent, key)
		return zero, nil
	}
	typed, ok := value.(T)
	if !ok {
		if path != "" {
			key = path + "." + key
		}
		return zero, &TemplateError{key, "must be " + jsonType(zero)}
	}
	return typed, nil
}

func jsonType(zero any) string {
	switch zero.(type) {
	case string:
		return "a string"
	case list:
		return "a list"
	default:
		return "an object"
	}
}

// objects is the list under key, whose items must be objects.
func objects(parent object, path, key string) ([]object, error) {
	items, err := field[list](parent, path, key)
	if err != nil {
		return nil, err
	}
	all := make([]object, len(items))
	for i, item := range items {
		o, ok := item.(object)
		if !ok {
			return nil, &TemplateError{fmt.Sprintf("%s.%s[%d]", path, key, i), "must be an object"}
		}
		all[i] = o
	}
	return all, nil
}

// texts checks that the object under key has only strings for values, as labels have.
func texts(parent object, path, key string) error {
	m, err := field[object](parent, path, key)
	if err != nil {
		return err
	}
	for name, value := range m {
		if value == nil {
			m[name] = "" // what the API server reads in a null
			continue
		}
		if _, ok := value.(string); !ok {
			return &TemplateError{fmt.Sprintf("%s.%s[%q]", path, key, name), "must be a string"}
		}
	}
	return nil
}
