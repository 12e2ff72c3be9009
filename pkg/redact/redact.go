// Package redact takes what may be secret out of objects that are shown, the output of a dry run, and out of what is said about
// them, since an API server and its admission webhooks quote what they refuse. It is pure.
//
// What may be secret is Spark's to say (conf.Redaction): the name of an environment variable, a property, an
// annotation or an option, or the value itself, has "password" or "token" in it, for instance. All values of a Secret are.
package redact

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/spark/conf"
)

// Objects gives copies without what may be secret.
func Objects(objects []*unstructured.Unstructured, r conf.Redaction) []*unstructured.Unstructured {
	shown := make([]*unstructured.Unstructured, len(objects))
	for i, object := range objects {
		shown[i] = object.DeepCopy()
		h := hider{redaction: r}
		h.object(shown[i].Object)
	}
	return shown
}

// minSecret is the length from which on a value is looked for in what is said. A shorter one would be found in any text.
const minSecret = 4

// Error is the error about the objects without the values that Objects hides in them. Its cause goes where it has one of them. An
// error that is no *api.Error is told to nobody but the log, and has to be one first.
func Error(err error, objects []*unstructured.Unstructured, r conf.Redaction) error {
	e, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	var values []string
	for _, object := range objects {
		h := hider{redaction: r, hid: func(value string) {
			if len(value) >= minSecret {
				values = append(values, value)
			}
		}}
		h.object(object.DeepCopy().Object)
	}
	if len(values) == 0 {
		return err
	}
	told := *e
	told.Message, told.Field = Text(uncut(e.Message, values), values), Text(e.Field, values)
	if e.Cause != nil && Text(e.Cause.Error(), values) != e.Cause.Error() {
		told.Cause = nil
	}
	return &told
}

// uncut takes away the beginning of a value before the mark that a text was cut off there (kube.Translate).
func uncut(text string, values []string) string {
	head, tail, found := strings.Cut(text, " (cut)")
	if !found {
		return text
	}
	for _, value := range values {
		for n := len(value) - 1; n >= minSecret; n-- {
			if rest, ends := strings.CutSuffix(head, value[:n]); ends {
				return rest + masked + " (cut)" + tail
			}
		}
	}
	return text
}

const masked = "[...]"

// Text is the text without the values: as they are, with their blanks made one, each line of one that has several, and as JSON and
// base64 write them.
func Text(text string, values []string) string {
	var hidden []string
	for _, value := range values {
		var quoted strings.Builder
		encoder := json.NewEncoder(&quoted)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err == nil { // "…" and a line break
			hidden = append(hidden, quoted.String()[1:quoted.Len()-2])
		}
		hidden = append(hidden, value, strings.Join(strings.Fields(value), " "),
			base64.StdEncoding.EncodeToString([]byte(value)), base64.RawURLEncoding.EncodeToString([]byte(value)))
		for line := range strings.SplitSeq(value, "\n") {
			hidden = append(hidden, strings.TrimSpace(line))
		}
	}
	// The longest first: one may be part of another.
	slices.SortFunc(hidden, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, value := range hidden {
		if value != "" {
			pairs = append(pairs, value, masked)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

type hider struct {
	redaction conf.Redaction
	// hid hears of each value that is hidden, and nil of none.
	hid func(value string)
}

// hide is what stands in the place of the value.
func (h hider) hide(value any) string {
	text, _ := value.(string)
	if h.hid != nil && text != "" {
		h.hid(text)
		if _, behind, found := strings.Cut(text, "="); found { // --password=…
			h.hid(behind)
		}
	}
	return conf.Redacted
}

// object hides in place, in whatever the object has the shape of.
func (h hider) object(o map[string]any) {
	h.metadata(o["metadata"])
	switch o["kind"] {
	case "Secret":
		for _, field := range []string{"data", "stringData"} {
			values, _ := o[field].(map[string]any)
			for key, value := range values {
				if text, _ := value.(string); h.hid != nil && field == "data" {
					decoded, err := base64.StdEncoding.DecodeString(text)
					if err == nil {
						h.hid(string(decoded))
					}
				}
				values[key] = h.hide(value)
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
			values[key] = h.hide(value)
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
	selector, _ := spec["nodeSelector"].(map[string]any)
	h.values(selector)
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
					node[field] = h.hide(value)
				}
			case "path":
				if h.redaction.Hides("", text) {
					node[field] = h.hide(value)
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
			list[i] = h.hide(a)
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
		return h.hide(text)
	}
	if !strings.HasSuffix(key, ".properties") {
		if h.redaction.Hides(key, text) {
			return h.hide(text)
		}
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		m := property.FindStringSubmatch(line)
		if m != nil && !strings.HasPrefix(line, "#") && h.redaction.Hides(unescape.Replace(m[1]), unescape.Replace(m[2])) {
			lines[i] = m[1] + "=" + h.hide(unescape.Replace(m[2]))
		}
	}
	return strings.Join(lines, "\n")
}
