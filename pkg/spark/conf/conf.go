// Package conf is a Spark configuration as spark-submit reads it: a flat map of
// spark.* keys, typed reads with Spark's units and defaults, variable
// substitution, and the text of spark.properties.
//
// There are two kinds of reads, as in Spark. A raw read (indexing the map, and
// WithPrefix) gives the text as the user wrote it. A typed read (Text, Int,
// Bool, ...) first substitutes ${...} references (org.apache.spark.internal.config.ConfigReader),
// then converts; it is what a ConfigEntry does. The map, and so
// spark.properties, always keeps the raw text.
//
// Nothing here reads the environment: ${env:X} and ${system:X} stay as they are
// written, so that no value of the server's own process can reach a driver.
package conf

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// Conf is a set of Spark properties, key to raw text.
type Conf map[string]string

// Error is a refusal that one option or key caused.
type Error struct {
	// Name is the option ("--master") or the key ("spark.ui.port"). It may be
	// empty where no single one is at fault.
	Name string
	// Value is the offending text; it is left out of the message when Name may name a secret.
	Value string
	// HasValue tells an empty value from none.
	HasValue bool
	// Reason says what is wrong, in Spark's own words where Spark has some.
	Reason string
	// hidden leaves Value out of the message whatever Name is (Redaction.Hide).
	hidden bool
}

// Refuse is an Error with a value.
func Refuse(name, value, format string, args ...any) *Error {
	return &Error{Name: name, Value: value, HasValue: true, Reason: fmt.Sprintf(format, args...)}
}

// RefuseName is an Error about an option or key as such, without a value.
func RefuseName(name, format string, args ...any) *Error {
	return &Error{Name: name, Reason: fmt.Sprintf(format, args...)}
}

// AsWritten is the error with the value as the conf has it where references in it were
// replaced: what they refer to may be a secret.
func (e *Error) AsWritten(c Conf) *Error {
	raw, set := c[e.Name]
	if !set || !e.HasValue || raw == e.Value || !strings.Contains(raw, "${") {
		return e
	}
	written := *e
	written.Value = raw
	return &written
}

// credentials are the parts of a URI that may be secret: the user information, up to
// the last "@" before a query, and all from the query on.
var credentials = regexp.MustCompile(`(?s)/[^\s?#]*@|\?.*$`)

// WithoutCredentials is the text without what may be secret in it if it is a URI, or was meant as one.
func WithoutCredentials(text string) string {
	return credentials.ReplaceAllStringFunc(text, func(part string) string {
		if part[0] == '?' {
			return "?..."
		}
		return "/...@"
	})
}

// valueLimit bounds how much of a value a message repeats, in bytes.
const valueLimit = 200

// Error gives `NAME "VALUE": REASON`. A value that may be a secret
// (Redaction) is replaced, and so are parts of a URI (WithoutCredentials).
func (e *Error) Error() string {
	switch {
	case e.Name == "":
		return e.Reason
	case !e.HasValue:
		return e.Name + ": " + e.Reason
	case e.hidden || (Redaction{}).Hides(e.Name, e.Value):
		return e.Name + " " + Redacted + ": " + e.Reason
	}
	value := WithoutCredentials(e.Value)
	if len(value) > valueLimit {
		value = strings.ToValidUTF8(value[:valueLimit], "") + "..."
	}
	return fmt.Sprintf("%s %q: %s", e.Name, value, e.Reason)
}

// Redacted stands where a secret was.
const Redacted = "*********(redacted)"

// sensitive is Spark's default of spark.redaction.regex (org.apache.spark.internal.config.SECRET_REDACTION_PATTERN).
var sensitive = regexp.MustCompile(`(?i)secret|password|token|access[.]?key`)

// nameFamilies hold names of Secrets and files, never their content, although their keys look sensitive.
var nameFamilies = []string{
	"spark.kubernetes.driver.secretKeyRef.", "spark.kubernetes.executor.secretKeyRef.",
	"spark.kubernetes.driver.secrets.", "spark.kubernetes.executor.secrets.",
	"spark.kubernetes.kerberos.tokenSecret.",
}

// Sensitive tells whether the value of the key may be a secret, by Spark's own redaction pattern.
func Sensitive(key string) bool { return !isNameFamily(key) && sensitive.MatchString(key) }

func isNameFamily(key string) bool {
	return slices.ContainsFunc(nameFamilies, func(family string) bool { return strings.HasPrefix(key, family) })
}

// Property is one key and its raw text.
type Property struct{ Key, Value string }

// WithPrefix lists the properties whose key starts with prefix, the prefix cut
// off, sorted by key. The rest of the key may be empty, and keeps its dots and slashes.
func (c Conf) WithPrefix(prefix string) []Property {
	var found []Property
	for key, value := range c {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			found = append(found, Property{rest, value})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].Key < found[j].Key })
	return found
}
