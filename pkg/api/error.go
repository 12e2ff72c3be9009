package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Code is the error_code of an error body.
type Code string

// The codes of the operator's contract, then those that Flint adds. The
// operator retries InternalServerError and SubmitterOverloaded, and takes every
// other code, known to it or not, as final.
const (
	BadRequest             Code = "BAD_REQUEST"
	InvalidSparkSubmitArgs Code = "INVALID_SPARK_SUBMIT_ARGS"
	MethodNotAllowed       Code = "METHOD_NOT_ALLOWED"
	UnsupportedMediaType   Code = "UNSUPPORTED_MEDIA_TYPE"
	DriverPodAlreadyExists Code = "DRIVER_POD_ALREADY_EXISTS"
	InvalidPodTemplate     Code = "INVALID_POD_TEMPLATE"
	InternalServerError    Code = "INTERNAL_SERVER_ERROR"
	SubmitterOverloaded    Code = "SUBMITTER_OVERLOADED"

	Unauthenticated   Code = "UNAUTHENTICATED"
	Forbidden         Code = "FORBIDDEN"
	QuotaExceeded     Code = "QUOTA_EXCEEDED"
	NotFound          Code = "NOT_FOUND"
	NamespaceNotFound Code = "NAMESPACE_NOT_FOUND"
	PayloadTooLarge   Code = "PAYLOAD_TOO_LARGE"
)

// status is the HTTP status of each code.
var status = map[Code]int{
	BadRequest:             http.StatusBadRequest,
	InvalidSparkSubmitArgs: http.StatusBadRequest,
	MethodNotAllowed:       http.StatusMethodNotAllowed,
	UnsupportedMediaType:   http.StatusUnsupportedMediaType,
	DriverPodAlreadyExists: http.StatusConflict,
	InvalidPodTemplate:     http.StatusUnprocessableEntity,
	InternalServerError:    http.StatusInternalServerError,
	SubmitterOverloaded:    http.StatusServiceUnavailable,
	Unauthenticated:        http.StatusUnauthorized,
	Forbidden:              http.StatusForbidden,
	QuotaExceeded:          http.StatusForbidden,
	NotFound:               http.StatusNotFound,
	NamespaceNotFound:      http.StatusNotFound,
	PayloadTooLarge:        http.StatusRequestEntityTooLarge,
}

// Codes are all codes, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(status)) }

// Error is the one error type at the edge: what a caller is told.
type Error struct {
	Code Code
	// Message is never empty, and names what is wrong with which value.
	Message string
	// Field is the path in the request, where one is known: "spark_submit_args[3]".
	Field string
	// RetryAfter is how long the caller should wait before it tries again; zero means no advice.
	RetryAfter time.Duration
	// Cause is for the log alone; it is never sent.
	Cause error
}

// Errorf is an Error without a field.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// FieldErrorf is an Error about one field of the request.
func FieldErrorf(code Code, field, format string, args ...any) *Error {
	return &Error{Code: code, Field: field, Message: fmt.Sprintf(format, args...)}
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Status is the HTTP status of the error's code.
func (e *Error) Status() int {
	if s, ok := status[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Retryable tells whether the same request may succeed later.
func (e *Error) Retryable() bool {
	return e.Code == InternalServerError || e.Code == SubmitterOverloaded
}

// ErrorBody is the JSON of an error answer.
type ErrorBody struct {
	SubmissionID string `json:"submission_id"`
	Status       int    `json:"status"`
	ErrorCode    Code   `json:"error_code"`
	Message      string `json:"message"`
	Field        string `json:"field,omitempty"`
	Timestamp    string `json:"timestamp"`
}

// Limits of what an error repeats of the request that it refuses, in bytes. The
// operator reads 1 MiB of an answer, and repeats the request of one that is cut off.
const (
	messageLimit = 4096
	fieldLimit   = 256
)

// Bounded is the error with message and field no longer than they may be.
func (e *Error) Bounded() *Error { return e.within(messageLimit) }

func (e *Error) within(limit int) *Error {
	short := *e
	short.Message, short.Field = cut(e.Message, limit), cut(e.Field, min(limit, fieldLimit))
	return &short
}

// cut shortens a text to limit bytes and the mark that it was cut.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}

// Body is the error as it is sent with the HTTP status, for the submission, at the time.
func (e *Error) Body(status int, submissionID string, now time.Time) []byte {
	short := e.Bounded()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(ErrorBody{
		SubmissionID: submissionID,
		Status:       status,
		ErrorCode:    e.Code,
		Message:      short.Message,
		Field:        short.Field,
		Timestamp:    now.UTC().Format(time.RFC3339),
	})
	if err != nil { // strings and an int always marshal
		panic(err)
	}
	return b.Bytes()
}

// BodyWithin is Body with as much of message and field as fits into so many bytes. 700 hold any
// submission id, the code and a beginning of the message.
func (e *Error) BodyWithin(size, status int, submissionID string, now time.Time) []byte {
	body := e.Body(status, submissionID, now)
	for limit := messageLimit; len(body) > size && limit >= 8; limit /= 2 {
		short := e.within(limit)
		if limit <= 32 {
			short.Field = ""
		}
		body = short.Body(status, submissionID, now)
	}
	return body
}
