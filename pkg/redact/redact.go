// Package redact takes what may be secret out of objects that are shown: the output of a dry run. It is pure.
//
// What may be secret is Spark's to say (conf.Redaction): the name of an environment variable, a property, an
// annotation or an option, or the value itself, has "password" or "token" in it, for instance. All values of a Secret are.
package redact

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/spark/conf"
)

// Objects gives copies without what may be secret.
func Objects(objects []*unstructured.Unstructured, r conf.Redaction) []*unstructured.Unstructured {
	shown := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		shown[i] = object.DeepCopy()
		h := hider{r}
		h.object(shown[i].Object)
	}
	return shown
}

type hider struct{ redaction conf.Redaction }

// object hides in place, in whatever the object has the shape of.
func (h hider) object(o map[string]any) {
	h.metadata(o["metadata"])
	switch o["kind"] {
	case "Secret":
		for _, field := range []string{"data", "stringData"} {
			values, _ := o[field].(map[string]any)
			for key := range values {
				values[key] = conf.Redacted
			}
		}
	case "ConfigMap":
		values, _ := o["data"].(map[string]any)
		for key, value := range values {
			if text, ok := value.(string); ok {
				values[key] = h.file(key, text)
			}
		}
	default:
		h.spec(o["spec"])
	}
}

func (h hider) metadata(node any) {
	metadata, _ := node.(map[string]any)
	for _, field := range []string{"annotations", "labels"} {
		values, _ := metadata[field].(map[string]any)
		h.values(values)
	}
}

func (h hider) values(values map[string]any) {
	for key, value := range values {
		if text, _ := value.(string); h.redaction.Hides(key, text) { // by its key, whatever it is
			values[key] = conf.Redacted
		}
	}
}

// spec is that of a Pod, or of what has a template of one.
func (h hider) spec(node any) {
	spec, _ := node.(map[string]any)
	if template, ok := spec["template"].(map[string]any); ok {
		h.metadata(template["metadata"])
		h.spec(template["spec"])
	}
	for _, field := range []string{"containers", "initContainers", "ephemeralContainers"} {
		containers, _ := spec[field].([]any)
		h.within(containers)
	}
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		for source, field := range map[string]string{"csi": "volumeAttributes", "flexVolume": "options"} {
			driver, _ := volume[source].(map[string]any)
			values, _ := driver[field].(map[string]any)
			h.values(values)
		}
	}
}

// within hides in containers, at any depth: probes and hooks have commands, headers and paths too.
func (h hider) within(node any) {
	switch node := node.(type) {
	case []any:
		for _, element := range node {
			h.within(element)
		}
	case map[string]any:
		for field, value := range node {
			text, _ := value.(string)
			switch name, _ := node["name"].(string); field {
			case "command", "args":
				h.arguments(value)
			case "value": // of a variable, or of a header
				if h.redaction.Hides(name, text) {
					node[field] = conf.Redacted
				}
			case "path":
				if h.redaction.Hides("", text) {
					node[field] = conf.Redacted
				}
			default:
				h.within(value)
			}
		}
	}
}

// arguments hides an argument that says what it is, and the one after an option that does.
func (h hider) arguments(node any) {
	list, _ := node.([]any)
	follows := false
	for i, a := range list {
		text, _ := a.(string)
		option := strings.HasPrefix(text, "-")
		secret := h.redaction.Hides("", text)
		bare := secret && option && !strings.ContainsAny(text, "= ")
		if follows && !option || secret && !bare {
			list[i] = conf.Redacted
		}
		follows = bare
	}
}

// property is a line of spark.properties, as conf.Properties writes it: a key, in which "=" is escaped, and a value.
var property = regexp.MustCompile(`^((?:[^\\=]|\\.)*)=(.*)$`)

// unescape takes back what conf.Properties escapes: a pattern of the submission's own is about what it wrote.
var unescape = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r", `\f`, "\f", `\ `, " ", `\:`, ":", `\=`, "=", `\#`, "#", `\!`, "!")

// file is a ConfigMap's value: properties, an object as JSON, or a text.
func (h hider) file(key, text string) string {
	var object map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &object) == nil && object != nil {
		whole := runtime.DeepCopyJSON(object)
		h.object(object)
		if reflect.DeepEqual(whole, object) {
			return text
		}
		if changed, err := json.Marshal(object); err == nil {
			return string(changed)
		}
		return conf.Redacted
	}
	if !strings.HasSuffix(key, ".properties") {
		if h.redaction.Hides(key, text) {
			return conf.Redacted
		}
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		m := property.FindStringSubmatch(line)
		if m != nil && !strings.HasPrefix(line, "#") && h.redaction.Hides(unescape.Replace(m[1]), unescape.Replace(m[2])) {
			lines[i] = m[1] + "=" + conf.Redacted
		}
	}
	return strings.Join(lines, "\n")
}
