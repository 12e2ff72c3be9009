package api

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// RunnerSchema is the JSON Schema of a RunnerRequest, the data of RunnerEventType.
//
//go:embed schema/runner.v1.json
var RunnerSchema []byte

// The limits of a runner's request.
const (
	// MaxFlameParent is how many characters a FLAME_PARENT has at most.
	MaxFlameParent = 16 << 10
	// MaxEnv is how many variables a request has at most, and MaxEnvBytes how many bytes their names and values. The pod is
	// an object of at most 1.5 MiB in etcd.
	MaxEnv      = 1000
	MaxEnvBytes = 512 << 10
	// MaxEnvEntry is the greatest length of NAME=value, without the NUL behind it (Linux: MAX_ARG_STRLEN).
	MaxEnvEntry = 128<<10 - 1

	minBootTimeoutMS, maxBootTimeoutMS, defaultBootTimeoutMS = 1000, 600_000, 30_000
	maxShutdownTimeoutMS, defaultShutdownTimeoutMS           = 3_600_000, 30_000
	maxTTLSeconds, defaultTTLSeconds                         = 7 * 24 * 3600, 300
	// ReservedPrefix begins the keys of labels and annotations that are Flint's own.
	ReservedPrefix = "flint.dev/"
	// etfVersion is the first byte of Erlang's external term format.
	etfVersion = 131
)

// DecodeRunner reads the JSON of a runner's request, and fills in its defaults. It is strict, but for the inside of
// template: an unknown field and a name that occurs twice are refused. Where there is no submission_id it is made of
// flame_parent, which is unique for each boot, whatever key says, so that no two runners connect to one parent's
// boot; else it is key, and where that is empty too the request has none, and the caller gives it one. The error is an *Error:
// INVALID_FLAME_PARENT, or BAD_REQUEST, which has the status 422 where a variable is at fault. The request is not nil even then, and
// carries the submission id if that is a good one, for the error's own body.
func DecodeRunner(body []byte, key string) (*RunnerRequest, error) {
	refused := &RunnerRequest{}
	if !utf8.Valid(body) {
		return refused, Errorf(BadRequest, "malformed JSON: the body is not UTF-8")
	}
	var wire struct {
		RunnerRequest
		BootTimeoutMS *int64 `json:"boot_timeout_ms"` // 0 is none of its values
	}
	err := unmarshalStrict(body, &wire)
	request := &wire.RunnerRequest
	parentErr := checkFlameParent(request.FlameParent)
	if request.SubmissionID == "" && request.FlameParent != "" && parentErr == nil {
		request.SubmissionID = FlameKey(request.FlameParent)
	}
	request.SubmissionID = cmp.Or(request.SubmissionID, key)
	var idErr error
	if request.SubmissionID != "" {
		idErr = checkSubmissionID(request.SubmissionID)
	}
	if idErr == nil {
		refused.SubmissionID = request.SubmissionID
	}
	for _, err := range []error{err, idErr, parentErr} {
		if err != nil {
			return refused, err
		}
	}
	*request = request.Complete()
	request.BootTimeoutMS = ptr.Deref(wire.BootTimeoutMS, defaultBootTimeoutMS)
	for _, check := range []func() error{request.Parent.check, request.checkChoices, request.checkEnv, request.checkKeys} {
		if err := check(); err != nil {
			return refused, err
		}
	}
	return request, nil
}

// FlameKey is the key of a runner for that boot of the parent, when its request has no other.
func FlameKey(flameParent string) string {
	sum := sha256.Sum256([]byte(flameParent))
	return "flame-" + hex.EncodeToString(sum[:])
}

// Complete is the request with the defaults of what it does not say.
func (r RunnerRequest) Complete() RunnerRequest {
	r.Wait = cmp.Or(r.Wait, WaitIP)
	r.OnBootTimeout = cmp.Or(r.OnBootTimeout, OnTimeoutDelete)
	r.Owner = cmp.Or(r.Owner, OwnerParent)
	r.BootTimeoutMS = cmp.Or(r.BootTimeoutMS, defaultBootTimeoutMS)
	if r.Inherit == nil {
		r.Inherit = ptr.To(DefaultInherit())
	}
	if r.ShutdownTimeoutMS == nil {
		r.ShutdownTimeoutMS = ptr.To[int64](defaultShutdownTimeoutMS)
	}
	if r.TTLSecondsAfterFinished == nil {
		r.TTLSecondsAfterFinished = ptr.To[int64](defaultTTLSeconds)
	}
	return r
}

// checkFlameParent refuses what is no Erlang term. What the term says is between the client and its runner.
func checkFlameParent(text string) error {
	const field = "flame_parent"
	if text == "" {
		return nil
	}
	if len(text) > MaxFlameParent {
		return FieldErrorf(InvalidFlameParent, field, "flame_parent has %d characters, more than %d", len(text), MaxFlameParent)
	}
	term, err := base64.StdEncoding.Strict().DecodeString(text)
	switch {
	case err != nil:
		return FieldErrorf(InvalidFlameParent, field, "flame_parent is not padded base64 of the standard alphabet: %v", err)
	case strings.ContainsAny(text, "\r\n"): // which the decoder skips
		return FieldErrorf(InvalidFlameParent, field, "flame_parent contains a line break")
	case term[0] != etfVersion:
		return FieldErrorf(InvalidFlameParent, field, "flame_parent begins with the byte %d, and a term of Erlang with %d", term[0], etfVersion)
	}
	return nil
}

func (p *RunnerParent) check() error {
	switch {
	case p.Namespace == "":
		return required("parent.namespace")
	case len(validation.IsDNS1123Label(p.Namespace)) > 0:
		return FieldErrorf(BadRequest, "parent.namespace", "parent.namespace %.100q is no name of a namespace", p.Namespace)
	case p.Name == "":
		return required("parent.name")
	case len(validation.IsDNS1123Subdomain(p.Name)) > 0:
		return FieldErrorf(BadRequest, "parent.name", "parent.name %.300q is no name of a pod", p.Name)
	case len(p.UID) > 128:
		return FieldErrorf(BadRequest, "parent.uid", "parent.uid has %d bytes, more than 128", len(p.UID))
	case p.Container != "" && len(validation.IsDNS1123Label(p.Container)) > 0:
		return FieldErrorf(BadRequest, "parent.container", "parent.container %.100q is no name of a container", p.Container)
	}
	return nil
}

// checkChoices checks what is one of a few values, or a number between two.
func (r *RunnerRequest) checkChoices() error {
	for _, choice := range []struct {
		field, value string
		of           []string
	}{
		{"wait", r.Wait, []string{WaitNone, WaitIP, WaitRunning, WaitReady}},
		{"on_boot_timeout", r.OnBootTimeout, []string{OnTimeoutDelete, OnTimeoutKeep}},
		{"owner", r.Owner, []string{OwnerParent, OwnerController, OwnerNone}},
	} {
		if !slices.Contains(choice.of, choice.value) {
			return FieldErrorf(BadRequest, choice.field, "%s is %.40q, and must be one of %s", choice.field, choice.value, strings.Join(choice.of, ", "))
		}
	}
	for i, piece := range *r.Inherit {
		if !slices.Contains(RunnerPieces(), piece) {
			return FieldErrorf(BadRequest, fmt.Sprintf("inherit[%d]", i), "inherit names %.40q, and must name some of %s", piece, strings.Join(RunnerPieces(), ", "))
		}
	}
	for i, name := range r.Volumes {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return FieldErrorf(BadRequest, fmt.Sprintf("volumes[%d]", i), "volumes: %.100q is no name of a volume", name)
		}
	}
	for _, number := range []struct {
		field    string
		value    *int64
		min, max int64
	}{
		{"boot_timeout_ms", &r.BootTimeoutMS, minBootTimeoutMS, maxBootTimeoutMS},
		{"shutdown_timeout_ms", r.ShutdownTimeoutMS, 0, maxShutdownTimeoutMS},
		{"max_lifetime_seconds", r.MaxLifetimeSeconds, 1, math.MaxInt32},
		{"ttl_seconds_after_finished", r.TTLSecondsAfterFinished, 0, maxTTLSeconds},
	} {
		if number.value != nil && (*number.value < number.min || *number.value > number.max) {
			return FieldErrorf(BadRequest, number.field, "%s is %d, and must be between %d and %d", number.field, *number.value, number.min, number.max)
		}
	}
	return nil
}

// checkEnv refuses variables that cannot be. Their values are in no error: they may be secret.
func (r *RunnerRequest) checkEnv() error {
	if n := len(r.Env) + len(r.SecretEnv); n > MaxEnv {
		return unprocessable("env", "env and secret_env have %d variables, more than %d", n, MaxEnv)
	}
	total := 0
	for _, vars := range []struct {
		field string
		env   map[string]string
	}{{"env", r.Env}, {"secret_env", r.SecretEnv}} {
		for _, name := range slices.Sorted(maps.Keys(vars.env)) {
			value, field := vars.env[name], vars.field+"."+cut(name, 100)
			total += len(name) + len(value)
			switch wrong := validation.IsEnvVarName(name); {
			case len(wrong) > 0:
				return unprocessable(field, "%s: %.100q is no name of a variable: %s", vars.field, name, strings.Join(wrong, "; "))
			case len(name)+1+len(value) > MaxEnvEntry:
				return unprocessable(field, "%s has %d bytes with its name, more than %d", field, len(name)+1+len(value), MaxEnvEntry)
			case strings.ContainsRune(value, 0):
				return unprocessable(field, "%s contains a NUL character, which no variable can hold", field)
			}
			if _, twice := r.Env[name]; twice && vars.field == "secret_env" {
				return unprocessable(field, "%s is in env and in secret_env", name)
			}
		}
	}
	if total > MaxEnvBytes {
		return unprocessable("env", "env and secret_env have %d bytes, more than %d", total, MaxEnvBytes)
	}
	return nil
}

// checkKeys checks the form of labels and annotations, and that none is Flint's own. Their values are in no error either.
func (r *RunnerRequest) checkKeys() error {
	for _, texts := range []struct {
		field  string
		values map[string]string
	}{{"labels", r.Labels}, {"annotations", r.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(texts.values)) {
			field := texts.field + "." + cut(key, 100)
			if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
				return FieldErrorf(BadRequest, field, "%s: %.100q is no key: %s", texts.field, key, strings.Join(wrong, "; "))
			}
			if strings.HasPrefix(key, ReservedPrefix) {
				return FieldErrorf(BadRequest, field, "%s: %q: keys under %s are reserved for Flint's bookkeeping", texts.field, key, ReservedPrefix)
			}
			if wrong := validation.IsValidLabelValue(texts.values[key]); texts.field == "labels" && len(wrong) > 0 {
				return FieldErrorf(BadRequest, field, "%s is no value of a label: %s", field, strings.Join(wrong, "; "))
			}
		}
	}
	return nil
}

// unprocessable is BAD_REQUEST for what is well written and makes no sense.
func unprocessable(field, format string, args ...any) *Error {
	e := FieldErrorf(BadRequest, field, format, args...)
	e.HTTPStatus = http.StatusUnprocessableEntity
	return e
}
