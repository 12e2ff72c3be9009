package conf

import (
	"regexp"
	"strings"
)

// reference is ConfigReader.REF_RE: ${name} or ${prefix:name}.
var reference = regexp.MustCompile(`\$\{(?:([0-9A-Za-z_]+?):)?([^\t\n\v\f\r ]+?)\}`)

// substitutionLimit bounds the texts that one typed read may insert, in bytes.
// Spark has no limit, but there a submission can only hurt its own process.
const substitutionLimit = 1 << 20

// declared are the defaults that a reference to an unset key finds
// (ConfigEntry.defaultValueString). Spark knows one for each of its keys; these
// are the ones that a submission has a use for.
var declared = map[string]string{
	"spark.driver.cores":                          "1",
	"spark.driver.memory":                         "1g",
	"spark.executor.cores":                        "1",
	"spark.executor.memory":                       "1g",
	"spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
	"spark.kubernetes.namespace":                  "default",
	"spark.ui.port":                               "4040",
}

// fallbacks are the keys that take another key's value when they are unset (FallbackConfigEntry).
var fallbacks = map[string]string{
	"spark.kubernetes.driver.container.image":   "spark.kubernetes.container.image",
	"spark.kubernetes.executor.container.image": "spark.kubernetes.container.image",
}

// substitution is one typed read on its way through the references.
type substitution struct {
	conf Conf
	// key is the key that is read; it stands in the errors.
	key string
	// open are the references that are being expanded.
	open map[string]bool
	// left is what is left of substitutionLimit.
	left int
}

// substitute expands the references in the raw text of key. ${env:X},
// ${system:X} and references to nothing known stay as they are written.
func (c Conf) substitute(key, raw string) (string, error) {
	if !strings.Contains(raw, "${") {
		return raw, nil
	}
	s := &substitution{conf: c, key: key, open: map[string]bool{}, left: substitutionLimit}
	return s.expand(key, raw)
}

// expand expands text, which is the value of the key within.
func (s *substitution) expand(within, text string) (string, error) {
	var b strings.Builder
	end := 0
	for _, m := range reference.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(text[end:m[0]])
		end = m[1]
		// A prefix (group 1) is env, system or unknown: none is looked up.
		replacement, err := text[m[0]:m[1]], error(nil)
		if m[2] < 0 {
			replacement, err = s.resolve(within, replacement, text[m[4]:m[5]])
		}
		if err != nil {
			return "", err
		}
		b.WriteString(replacement)
	}
	b.WriteString(text[end:])
	return b.String(), nil
}

// resolve gives the expanded value of the key name, or written when it has none.
func (s *substitution) resolve(within, written, name string) (string, error) {
	if s.open[name] {
		return "", RefuseName(s.key, "circular reference in %s: %s", within, written)
	}
	value, known := s.conf.orDefault(name)
	if !known {
		return written, nil
	}
	if s.left -= len(value) + 1; s.left < 0 {
		return "", RefuseName(s.key, "its references expand to more than %d bytes", substitutionLimit)
	}
	if !strings.Contains(value, "${") {
		return value, nil
	}
	s.open[name] = true
	defer delete(s.open, name)
	return s.expand(name, value)
}

// orDefault is the raw text of a spark.* key, its fallback's, or its declared default.
func (c Conf) orDefault(name string) (value string, known bool) {
	if value, known = c[name]; known && strings.HasPrefix(name, "spark.") {
		return value, true
	}
	if other, falls := fallbacks[name]; falls {
		return c.orDefault(other)
	}
	value, known = declared[name]
	return value, known
}
