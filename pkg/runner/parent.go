package runner

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// object and list are JSON values.
type (
	object = map[string]any
	list   = []any
)

// parent is the pod that a runner is derived from, as the API server has it and as this build reads it.
type parent struct {
	raw object
	pod corev1.Pod
	// app is the container that the runner is made from, raw and read.
	rawApp object
	app    corev1.Container
}

// readParent checks that the parent is the one that is meant, and may have runners.
func readParent(request *api.RunnerRequest, facts Facts, settings Settings) (*parent, error) {
	if facts.Parent == nil {
		return nil, errors.New("plan the runner: no parent")
	}
	p := &parent{raw: facts.Parent.Object}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.raw, &p.pod); err != nil {
		return nil, fmt.Errorf("read the parent pod: %w", err)
	}
	wanted := request.Parent
	switch {
	case p.pod.Namespace != wanted.Namespace || p.pod.Name != wanted.Name || p.pod.UID == "":
		return nil, fmt.Errorf("plan the runner of %s/%s: the parent is %s/%s", wanted.Namespace, wanted.Name, p.pod.Namespace, p.pod.Name)
	case wanted.UID != "" && wanted.UID != string(p.pod.UID):
		return nil, api.FieldErrorf(api.ParentUIDMismatch, "parent.uid", "pod %s has the uid %s, not %.128q", wanted.Name, p.pod.UID, wanted.UID)
	case p.pod.DeletionTimestamp != nil:
		return nil, api.FieldErrorf(api.ParentTerminating, "parent.name", "pod %s is being deleted", wanted.Name)
	}
	index := 0
	if wanted.Container != "" {
		index = slices.IndexFunc(p.pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == wanted.Container })
	}
	if index < 0 || index >= len(p.pod.Spec.Containers) {
		var names []string
		for _, c := range p.pod.Spec.Containers {
			names = append(names, c.Name)
		}
		return nil, api.FieldErrorf(api.ContainerNotFound, "parent.container", "pod %s has no container %q; it has %s", wanted.Name, wanted.Container, strings.Join(names, ", "))
	}
	p.app = p.pod.Spec.Containers[index]
	p.rawApp = objects(p.spec()["containers"])[index]
	if p.isRunner() && !settings.AllowNested {
		return nil, api.FieldErrorf(api.PolicyDenied, "parent.name", "pod %s is a runner itself, and runners of runners are not allowed here", wanted.Name)
	}
	return p, nil
}

// isRunner tells whether the pod is a runner, of Flint's or of FLAME's own backend.
func (p *parent) isRunner() bool {
	return p.pod.Labels[launch.LabelKind] == string(launch.Runner) ||
		slices.ContainsFunc(p.app.Env, func(e corev1.EnvVar) bool { return e.Name == flameParent })
}

func (p *parent) spec() object {
	spec, _ := p.raw["spec"].(object)
	return spec
}

// objects are the objects of a list; what is no list has none.
func objects(value any) []object {
	items, _ := value.(list)
	all := make([]object, 0, len(items))
	for _, item := range items {
		if o, ok := item.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// named is the first of the objects with that name, or nil.
func named(all []object, name any) object {
	for _, o := range all {
		if o["name"] == name {
			return o
		}
	}
	return nil
}

// text is the string under the key, or empty.
func text(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

// take copies fields, deeply, as far as they are there.
func take(to, from object, keys ...string) {
	for _, key := range keys {
		if value, ok := from[key]; ok {
			to[key] = runtime.DeepCopyJSONValue(value)
		}
	}
}

// without is a copy of the object that lacks the keys.
func without(o object, keys ...string) object {
	rest := make(object, len(o))
	for key, value := range o {
		if !slices.Contains(keys, key) {
			rest[key] = value
		}
	}
	return rest
}
