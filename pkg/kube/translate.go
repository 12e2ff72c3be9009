package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
)

const (
	// defaultRetryAfter is the advice where the API server gives none.
	defaultRetryAfter = time.Second
	// maxReason is how many bytes of an API server's reason a message has: it may quote what
	// it refused, which may be megabytes.
	maxReason = 2048
)

// Translate makes an api error of what a Client's verb ("create", "patch") on the object
// failed with. What to do comes first in its message, then the verb and the object, then the API
// server's own reason; values in a refused Secret or ConfigMap are left out of it. The cause is
// err. It gives nil for nil, and an *api.Error in err as it is.
//
//	no answer, context ended, own request limit, 5xx, 429,
//	conflict of versions, quota not yet counted             SUBMITTER_OVERLOADED, with RetryAfter (1 s unless the server says)
//	401 (Flint's own credentials), anything unforeseen      INTERNAL_SERVER_ERROR
//	403 for want of quota                                   QUOTA_EXCEEDED
//	403 otherwise                                           FORBIDDEN
//	404 of the namespace                                    NAMESPACE_NOT_FOUND
//	404 otherwise                                           NOT_FOUND
//	409 name taken                                          DRIVER_POD_ALREADY_EXISTS
//	413, and what etcd finds too large                      PAYLOAD_TOO_LARGE
//	400 and 422 of a Pod or Job                             INVALID_POD_TEMPLATE, with Field
//	400 and 422 of another kind                             BAD_REQUEST, with Field
//	RequestError                                            BAD_REQUEST
func Translate(err error, verb string, object Ref) *api.Error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*api.Error](err); ok {
		return known
	}
	what := verb + " " + object.String()
	e := translate(err, what, object)
	e.Cause = err
	return e
}

func translate(err error, what string, object Ref) *api.Error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return overloaded(defaultRetryAfter, "the time for this request was spent at: %s; the same request may be repeated", what)
	}
	if e, ok := errors.AsType[*RequestError](err); ok {
		return api.Errorf(api.BadRequest, "cannot %s: %s", what, e.Reason)
	}
	if e, ok := errors.AsType[*throttledError](err); ok {
		return overloaded(defaultRetryAfter, "too many requests in flight to %s within the time for this request (%v); the same request may be repeated", what, e.cause)
	}
	var status apierrors.APIStatus // an interface without Error, so not one for AsType
	if !errors.As(err, &status) {
		return overloaded(defaultRetryAfter, "no answer from the API server to: %s (%s); the same request may be repeated", what, short(transport(err)))
	}
	return refused(status.Status(), what, object)
}

// refused translates an answer of the API server.
func refused(s metav1.Status, what string, object Ref) *api.Error {
	reason := short(s.Message)
	if reason == "" {
		reason = strings.TrimSpace(fmt.Sprintf("%s %d", s.Reason, s.Code))
	}
	switch code(s) {
	case http.StatusTooManyRequests:
		return overloaded(retryAfter(s), "the API server is overloaded: %s: %s; the same request may be repeated", what, reason)
	case http.StatusUnauthorized:
		return api.Errorf(api.InternalServerError, "the API server refuses Flint's own credentials: %s: %s", what, reason)
	case http.StatusForbidden:
		return forbidden(s, what, reason)
	case http.StatusNotFound:
		if s.Details != nil && s.Details.Kind == "namespaces" {
			return api.Errorf(api.NamespaceNotFound, "namespace %s does not exist: %s", object.Namespace, what)
		}
		return api.Errorf(api.NotFound, "not found: %s: %s", what, reason)
	case http.StatusConflict:
		if s.Reason == metav1.StatusReasonAlreadyExists {
			return api.Errorf(api.DriverPodAlreadyExists, "%s exists already", object)
		}
		return overloaded(retryAfter(s), "changed by another at the same time: %s: %s; the same request may be repeated", what, reason)
	case http.StatusRequestEntityTooLarge:
		return api.Errorf(api.PayloadTooLarge, "too large for the API server: %s: %s", what, reason)
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		return invalid(s, what, reason, object)
	}
	if tooLarge(s.Message) {
		return api.Errorf(api.PayloadTooLarge, "too large for the API server: %s: %s", what, reason)
	}
	if code(s) >= http.StatusInternalServerError {
		return overloaded(retryAfter(s), "the API server is unavailable: %s: %s; the same request may be repeated", what, reason)
	}
	return api.Errorf(api.InternalServerError, "the API server refused: %s: %s", what, reason)
}

// tooLarge tells an object that etcd does not store. The API server passes
// etcd's refusal on as an internal error, and marks it by nothing but its words
// (go.etcd.io/etcd/api/v3/v3rpc/rpctypes.ErrRequestTooLarge, google.golang.org/grpc's message limit).
func tooLarge(message string) bool {
	return strings.Contains(message, "etcdserver: request is too large") ||
		strings.Contains(message, "trying to send message larger than max")
}

// forbidden tells the three meanings of 403 apart. Admission gives the quota's no other
// mark than its words (k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go).
func forbidden(s metav1.Status, what, reason string) *api.Error {
	switch {
	case strings.Contains(s.Message, "exceeded quota: "):
		return api.Errorf(api.QuotaExceeded, "quota exceeded: %s: %s", what, reason)
	case strings.Contains(s.Message, "status unknown for quota: "): // a quota made a moment ago
		return overloaded(retryAfter(s), "quota not counted yet: %s: %s; the same request may be repeated", what, reason)
	}
	return api.Errorf(api.Forbidden, "forbidden: %s: %s", what, reason)
}

// invalid is an object that the API server cannot read or does not allow.
func invalid(s metav1.Status, what, reason string, object Ref) *api.Error {
	result := api.BadRequest
	switch object.Kind {
	case "Pod", "Job":
		result = api.InvalidPodTemplate
	case "Secret":
		reason = fmt.Sprintf("%s %d", s.Reason, s.Code) // its message may quote a value
	}
	var field string
	if s.Details != nil && len(s.Details.Causes) > 0 && s.Reason == metav1.StatusReasonInvalid {
		field = s.Details.Causes[0].Field
		var all []string
		for _, cause := range s.Details.Causes {
			text := complaint(cause.Message, object.Kind)
			if cause.Field != "" {
				text = cause.Field + ": " + text
			}
			all = append(all, text)
		}
		reason = short(strings.Join(all, "; "))
	}
	return api.FieldErrorf(result, field, "invalid: %s: %s", what, reason)
}

// complaint is the text of one cause, `Invalid value: "x": must be y`
// (k8s.io/apimachinery/pkg/util/validation/field.Error.ErrorBody), without what it may
// give away: values that are more than a word of the workload, all values of a ConfigMap, and
// everything but the kind of error of a Secret. A refused change of a Pod comes with the
// difference of the two specs, on further lines.
func complaint(message, kind string) string {
	message, _, _ = strings.Cut(message, "\n")
	what, rest, found := strings.Cut(message, ": ")
	if !found || kind == "Secret" {
		return what
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		if kind == "ConfigMap" {
			return what + rest[len(quoted):]
		}
		return message
	}
	if strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, "[") {
		dec := json.NewDecoder(strings.NewReader(rest))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return what
		}
		return what + rest[dec.InputOffset():]
	}
	return message
}

// code is the status's HTTP code, or the one that its reason stands for.
func code(s metav1.Status) int {
	if s.Code != 0 {
		return int(s.Code)
	}
	switch s.Reason {
	case metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return http.StatusInternalServerError
	case metav1.StatusReasonTooManyRequests:
		return http.StatusTooManyRequests
	default:
		return 0
	}
}

// retryAfter is how long the API server asks to wait.
func retryAfter(s metav1.Status) time.Duration {
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		return time.Duration(s.Details.RetryAfterSeconds) * time.Second
	}
	return defaultRetryAfter
}

// transport is what a request without an answer failed with; its URL says nothing to the caller.
func transport(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

// short cuts the text to maxReason bytes, on one line.
func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + " (cut)"
}

func overloaded(after time.Duration, format string, args ...any) *api.Error {
	e := api.Errorf(api.SubmitterOverloaded, format, args...)
	e.RetryAfter = after
	return e
}
