package runner

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/spark/conf"
)

// template is the request's, checked for its form: a Pod of this Kubernetes version without unknown fields.
type template struct {
	pod                 object
	labels, annotations map[string]string
	// env is what it has for the runner's container; pod is without.
	env []object
}

// readTemplate reads the template for a runner whose container has that name. One container of the template may have no
// name: it is the runner's. A null takes away what was inherited; the directives of a strategic merge ($patch and
// the like) are not taken, inherit says the same more plainly.
func readTemplate(raw map[string]any, container, namespace string) (*template, error) {
	t := &template{pod: object{}}
	if raw == nil {
		return t, nil
	}
	// A copy whose integers are int64, however the template came here.
	text, err := json.Marshal(raw)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &t.pod)
	}
	if err != nil {
		return nil, badTemplate("", "is not JSON: %v", err)
	}
	if err := checkForm("", t.pod); err != nil {
		return nil, err
	}
	metadata, _ := t.pod["metadata"].(object)
	for _, key := range fields(metadata, nil) {
		switch value := metadata[key]; {
		case key == "labels" || key == "annotations" || value == nil:
		case key == "namespace" && value == namespace:
		default:
			return nil, denied("template.metadata."+key, "template.metadata.%s is %s, and is not for a template to choose", key, show(key, value))
		}
	}
	var read corev1.Pod
	strict, err := kjson.UnmarshalStrict(text, &read)
	if err = cmp.Or(err, errors.Join(strict...)); err != nil {
		return nil, badTemplate("", "is no Pod: %.300s", err)
	}
	if v, k := read.APIVersion, read.Kind; v != "" && v != "v1" || k != "" && k != "Pod" {
		return nil, badTemplate("kind", "is a %s of %s, and must be a Pod of v1", k, v)
	}
	for _, key := range fields(t.pod, nil) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, key) {
			return nil, badTemplate(key, "is not of a template")
		}
	}
	t.labels, t.annotations = read.Labels, read.Annotations
	delete(t.pod, "metadata")
	spec, _ := t.pod["spec"].(object)
	return t, t.readContainers(spec, container)
}

// readContainers names the runner's container, takes its env out, and checks that names are there, and there once.
func (t *template) readContainers(spec object, container string) error {
	if containers, ok := spec["containers"].(list); ok && len(containers) == 0 {
		return badTemplate("spec.containers", "is empty; leave it out to change none")
	}
	own := objects(spec["containers"])
	for _, c := range own {
		if text(c, "name") == "" {
			c["name"] = container
		}
	}
	if err := unique("spec", "containers", "name", slices.Concat(own, objects(spec["initContainers"]))); err != nil {
		return err
	}
	for _, key := range []string{"volumes", "imagePullSecrets"} {
		if err := unique("spec", key, "name", objects(spec[key])); err != nil {
			return err
		}
	}
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[kind]) {
			at := "spec." + kind + "[" + text(c, "name") + "]"
			for _, by := range [][2]string{{"env", "name"}, {"volumeMounts", "mountPath"}, {"volumeDevices", "devicePath"}} {
				if err := unique(at, by[0], by[1], objects(c[by[0]])); err != nil {
					return err
				}
			}
		}
	}
	if app := named(own, container); app != nil {
		t.env = objects(app["env"])
		delete(app, "env")
	}
	return nil
}

// unique checks that each item of a list has a key of its own, which the merge goes by.
func unique(at, list, key string, items []object) error {
	seen := map[string]bool{}
	for i, item := range items {
		field, name := fmt.Sprintf("%s.%s[%d]", at, list, i), text(item, key)
		if name == "" {
			return badTemplate(field, "has no %s", key)
		}
		if seen[name] {
			return badTemplate(field, "has the %s %.100q, which another has too", key, name)
		}
		seen[name] = true
	}
	return nil
}

// checkForm refuses what the merge would read in another way than the API does: its directives, and a null in a list.
func checkForm(at string, value any) error {
	switch value := value.(type) {
	case object:
		for _, key := range fields(value, nil) {
			if strings.HasPrefix(key, "$") {
				return badTemplate(join(at, key), "is a directive of a strategic merge, which a template cannot have")
			}
			if err := checkForm(join(at, key), value[key]); err != nil {
				return err
			}
		}
	case list:
		for i, v := range value {
			if v == nil {
				return badTemplate(fmt.Sprintf("%s[%d]", at, i), "is null")
			}
			if err := checkForm(fmt.Sprintf("%s[%d]", at, i), v); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// merge lays the template over the base, by the rules of Kubernetes' own types.
func (t *template) merge(base object) (object, error) {
	merged, err := strategicpatch.StrategicMergeMapPatch(runtime.DeepCopyJSON(base), runtime.DeepCopyJSON(t.pod), corev1.Pod{})
	if err != nil {
		return nil, badTemplate("", "cannot be merged: %v", err)
	}
	return merged, nil
}

func badTemplate(field, format string, args ...any) error {
	field = strings.TrimSuffix("template."+field, ".")
	return api.FieldErrorf(api.TemplateInvalid, field, "%s %s", field, fmt.Sprintf(format, args...))
}

// unprocessable is BAD_REQUEST with the status 422: what was well written, and makes no sense here.
func unprocessable(field, format string, args ...any) error {
	e := api.FieldErrorf(api.BadRequest, field, format, args...)
	e.HTTPStatus = 422
	return e
}

func denied(field, format string, args ...any) error {
	return api.FieldErrorf(api.PolicyDenied, field, format, args...)
}

// show is the value at the field for a message: a scalar as JSON, unless it or the field says that it may be secret, of others only
// what they are, since what is in them may be too.
func show(at string, value any) string {
	switch value := value.(type) {
	case string:
		if (conf.Redaction{}).Hides(at, value) {
			return conf.Redacted
		}
	case object:
		return fmt.Sprintf("an object of %d fields", len(value))
	case list:
		return fmt.Sprintf("a list of %d", len(value))
	}
	text, err := json.Marshal(value)
	if err != nil { // never of what was JSON
		return "unreadable"
	}
	return fmt.Sprintf("%.200s", text)
}
