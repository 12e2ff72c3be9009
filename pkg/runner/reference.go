package runner

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReferenceOptions are what a pod of FLAMEK8sBackend depends on, beside its parent.
type ReferenceOptions struct {
	// Container is app_container_name; empty is the first.
	Container          string
	OmitOwnerReference bool
	// Manifest is the runner_pod_tpl callback's result in 0.3.0, where nil is no option at all, and the manifest option in 0.7.0.
	Manifest map[string]any
	// Env is the env option of 0.7.0, and Secret the name of the Secret that it has made.
	Env    map[string]string
	Secret string
	// FlameParent is the encoded parent, and Random the 20 random hexadecimal digits of 0.3.0's name.
	FlameParent, Random string
}

// Reference is the pod that FLAMEK8sBackend (github.com/mruoss/flame_k8s_backend) 0.3.0 or 0.7.0 would create: what Flint's
// runners are compared with in tests. Flint itself creates none like it.
func Reference(version string, parent *unstructured.Unstructured, options ReferenceOptions) (map[string]any, error) {
	spec, _ := parent.Object["spec"].(object)
	containers := objects(spec["containers"])
	if options.Container != "" {
		containers = slices.DeleteFunc(containers, func(c object) bool { return c["name"] != options.Container })
	}
	app := object{}
	if len(containers) > 0 {
		app = containers[0]
	}
	pod := runtime.DeepCopyJSON(options.Manifest)
	switch version {
	case "0.3.0":
		reference030(&pod, parent, app, options)
	case "0.7.0":
		reference070(&pod, parent, app, options)
	default:
		return nil, fmt.Errorf("there is no reference of version %q: 0.3.0 or 0.7.0", version)
	}
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	owners := list{}
	if !options.OmitOwnerReference {
		owners = append(owners, object{
			"apiVersion": parent.Object["apiVersion"], "kind": parent.Object["kind"], "name": parent.GetName(),
			"namespace": parent.GetNamespace(), "uid": string(parent.GetUID()),
		})
	}
	child(pod, "metadata")["ownerReferences"] = owners
	child(pod, "spec")["restartPolicy"] = "Never"
	return pod, nil
}

// reference030 follows RunnerPodTemplate.apply_defaults of 0.3.0.
func reference030(pod *object, parent *unstructured.Unstructured, app object, options ReferenceOptions) {
	if *pod == nil {
		container := object{}
		take(container, app, "env", "resources")
		*pod = object{"metadata": object{"namespace": parent.GetNamespace()}, "spec": object{"containers": list{container}}}
	}
	metadata, spec := child(*pod, "metadata"), child(*pod, "spec")
	name := parent.GetName()[:min(len(parent.GetName()), 41)] + options.Random
	metadata["name"] = name
	take(spec, parent.Object["spec"].(object), "serviceAccount")
	container := first(spec)
	container["image"], container["name"] = app["image"], name
	env := list{plain("POD_NAME", name), object{"name": "POD_NAMESPACE", "value": metadata["namespace"]}, plain("PHX_SERVER", "false"), plain(flameParent, options.FlameParent)}
	for _, v := range objects(container["env"]) {
		if !slices.Contains([]string{"PHX_SERVER", "FLAME_BACKEND", "POD_NAME", "POD_NAMESPACE"}, text(v, "name")) {
			env = append(env, v)
		}
	}
	container["env"] = env
}

// reference070 follows RunnerPodTemplate.pod_manifest and add_env_secret of 0.7.0.
func reference070(pod *object, parent *unstructured.Unstructured, app object, options ReferenceOptions) {
	if *pod == nil {
		*pod = object{}
	}
	metadata, spec := child(*pod, "metadata"), child(*pod, "spec")
	delete(metadata, "name")
	setDefault(metadata, "generateName", parent.GetName()+"-")
	setDefault(metadata, "namespace", parent.GetNamespace())
	setDefault(spec, "serviceAccount", parent.Object["spec"].(object)["serviceAccount"])
	container := first(spec)
	setDefault(container, "image", app["image"])
	container["name"] = "runner"
	var requested []object
	for _, name := range slices.Sorted(maps.Keys(options.Env)) {
		requested = append(requested, plain(name, options.Env[name]))
	}
	field := func(name, path string) object {
		return object{"name": name, "valueFrom": object{"fieldRef": object{"fieldPath": path}}}
	}
	forced := []object{field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP"), field("POD_NAMESPACE", "metadata.namespace"), plain(flameParent, options.FlameParent)}
	var env []object
	for _, layer := range [][]object{elixirDefaults(), objects(container["env"]), requested, forced} {
		env = slices.DeleteFunc(env, func(v object) bool { return named(layer, v["name"]) != nil })
		env = append(env, layer...)
	}
	container["env"] = environ(env)
	// The Secret is for the container of the parent's name, and the runner's has another: with a name it reaches none.
	if options.Secret != "" && (options.Container == "" || options.Container == "runner") {
		from, _ := container["envFrom"].(list)
		container["envFrom"] = append(list{object{"secretRef": object{"name": options.Secret, "namespace": parent.GetNamespace()}}}, from...)
	}
}

// first is the first container, made if there is no list.
func first(spec object) object {
	if containers := objects(spec["containers"]); len(containers) > 0 {
		return containers[0]
	}
	container := object{}
	spec["containers"] = list{container}
	return container
}

func setDefault(o object, key string, value any) {
	if _, set := o[key]; !set && value != nil {
		o[key] = value
	}
}
