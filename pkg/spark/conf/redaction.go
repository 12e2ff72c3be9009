package conf

import (
	"regexp"
	"strings"
)

// Redaction tells what of a submission may be secret: what Spark's default pattern matches, in a key or in a value, as
// org.apache.spark.util.Utils.redact has it, and what the submission's own spark.redaction.regex does. Spark lets the
// latter replace its default; nobody makes Flint show more by it. The zero value is Spark's default.
type Redaction struct {
	own []*regexp.Regexp
	// everything is hidden where a pattern of the submission's is none that can be read here.
	everything bool
}

const redactionKey = "spark.redaction.regex"

// RedactionOf is that of a submission, by its raw argument vector: an argument that cannot be parsed may hold a secret too.
func RedactionOf(arguments []string) Redaction {
	var r Redaction
	for _, argument := range arguments {
		for option := range strings.SplitSeq("--conf=,-c=,--conf,-c,", ",") {
			rest, found := strings.CutPrefix(argument, option)
			if !found {
				continue
			}
			pattern, found := strings.CutPrefix(strings.TrimSpace(rest), redactionKey+"=")
			if !found {
				continue
			}
			own, err := regexp.Compile(pattern)
			if err != nil {
				r.everything = true
				continue
			}
			r.own = append(r.own, own)
		}
	}
	return r
}

// Hides tells whether the value may be secret, or is that of a key which says so.
func (r Redaction) Hides(key, value string) bool {
	if r.everything || Sensitive(key) || !isNameFamily(key) && sensitive.MatchString(value) {
		return true
	}
	for _, own := range r.own {
		if own.MatchString(key) || own.MatchString(value) {
			return true
		}
	}
	return false
}

// Hide is the error as it is told: without a value that the redaction hides, be it behind the "=" of what was no option.
func (r Redaction) Hide(e *Error) *Error {
	hidden := *e
	hidden.hidden = e.HasValue && r.Hides(e.Name, e.Value)
	if option, value, found := strings.Cut(e.Name, "="); found && r.Hides(option, value) {
		hidden.Name = option + "=" + Redacted
	}
	return &hidden
}
