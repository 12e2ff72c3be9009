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

// The codes of file jobs. Those up to ArchiveTooLarge are also what an operation itself may end with.
const (
	BadPath          Code = "BAD_PATH" // it is none, leads out of the target, or names what the operation does not take
	BadDigest        Code = "BAD_DIGEST"
	PolicyDenied     Code = "POLICY_DENIED"
	FileExists       Code = "FILE_EXISTS"
	FileChanged      Code = "FILE_CHANGED" // a precondition does not hold
	TypeConflict     Code = "TYPE_CONFLICT"
	TooLarge         Code = "TOO_LARGE"
	VolumeFull       Code = "VOLUME_FULL"
	CrossDevice      Code = "CROSS_DEVICE"
	PermissionDenied Code = "PERMISSION_DENIED" // the volume, not a policy: the operation's user may not do it there
	NotEmpty         Code = "NOT_EMPTY"
	OffsetMismatch   Code = "OFFSET_MISMATCH"
	TransferFailed   Code = "TRANSFER_FAILED" // the other end, not the volume
	BatchFailed      Code = "BATCH_FAILED"    // results tell which of the batch
	ArchiveInvalid   Code = "ARCHIVE_INVALID"
	ArchiveUnsafe    Code = "ARCHIVE_UNSAFE"
	ArchiveSymlink   Code = "ARCHIVE_SYMLINK"
	ArchiveTooLarge  Code = "ARCHIVE_TOO_LARGE"

	ClaimNotFound       Code = "CLAIM_NOT_FOUND"
	ClaimUnusable       Code = "CLAIM_UNUSABLE"
	ClaimTerminating    Code = "CLAIM_TERMINATING"
	VolumeBusy          Code = "VOLUME_BUSY"
	IdempotencyConflict Code = "IDEMPOTENCY_CONFLICT"
	Gone                Code = "GONE"
	NotConfigured       Code = "NOT_CONFIGURED"
	ResultMissing       Code = "RESULT_MISSING"
	ResultInconsistent  Code = "RESULT_INCONSISTENT"
	Cancelled           Code = "CANCELLED"
	OOMKilled           Code = "OOM_KILLED"
	Evicted             Code = "EVICTED"
	Deadline            Code = "DEADLINE"
)

// The codes of a pod that does not start: of file jobs and of runners.
const (
	ImagePull     Code = "IMAGE_PULL"
	PodForbidden  Code = "POD_FORBIDDEN" // quota, Pod Security or a webhook refuses the Job's pod
	PodRejected   Code = "POD_REJECTED"  // its node, or the runtime there, refuses it
	ConfigError   Code = "CONFIG_ERROR"
	Unschedulable Code = "UNSCHEDULABLE"
	VolumeAttach  Code = "VOLUME_ATTACH"
)

// The codes of runners.
const (
	InvalidFlameParent Code = "INVALID_FLAME_PARENT"
	ParentForbidden    Code = "PARENT_FORBIDDEN"
	ParentNotFound     Code = "PARENT_NOT_FOUND"
	ParentUIDMismatch  Code = "PARENT_UID_MISMATCH"
	ParentTerminating  Code = "PARENT_TERMINATING"
	ContainerNotFound  Code = "CONTAINER_NOT_FOUND"
	TemplateInvalid    Code = "TEMPLATE_INVALID"
	TooManyRunners     Code = "TOO_MANY_RUNNERS"
	Backoff            Code = "BACKOFF"
	RunnerExited       Code = "RUNNER_EXITED"
	RunnerGone         Code = "RUNNER_GONE"
	BootTimeout        Code = "BOOT_TIMEOUT"
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

	BadPath:             http.StatusBadRequest,
	BadDigest:           http.StatusBadRequest,
	PolicyDenied:        http.StatusForbidden,
	FileExists:          http.StatusConflict,
	FileChanged:         http.StatusConflict,
	TypeConflict:        http.StatusConflict,
	TooLarge:            http.StatusRequestEntityTooLarge,
	VolumeFull:          http.StatusInsufficientStorage,
	CrossDevice:         http.StatusUnprocessableEntity,
	PermissionDenied:    http.StatusForbidden,
	NotEmpty:            http.StatusConflict,
	OffsetMismatch:      http.StatusRequestedRangeNotSatisfiable,
	TransferFailed:      http.StatusBadGateway,
	BatchFailed:         http.StatusUnprocessableEntity,
	ArchiveInvalid:      http.StatusUnprocessableEntity,
	ArchiveUnsafe:       http.StatusUnprocessableEntity,
	ArchiveSymlink:      http.StatusUnprocessableEntity,
	ArchiveTooLarge:     http.StatusUnprocessableEntity,
	ClaimNotFound:       http.StatusNotFound,
	ClaimUnusable:       http.StatusUnprocessableEntity,
	ClaimTerminating:    http.StatusConflict,
	VolumeBusy:          http.StatusConflict,
	IdempotencyConflict: http.StatusConflict,
	Gone:                http.StatusGone,
	NotConfigured:       http.StatusServiceUnavailable,
	ResultMissing:       http.StatusInternalServerError,
	ResultInconsistent:  http.StatusInternalServerError,
	Cancelled:           http.StatusConflict,
	OOMKilled:           http.StatusInternalServerError,
	Evicted:             http.StatusServiceUnavailable,
	Deadline:            http.StatusGatewayTimeout,

	ImagePull:     http.StatusBadGateway,
	PodForbidden:  http.StatusBadGateway,
	PodRejected:   http.StatusBadGateway,
	ConfigError:   http.StatusUnprocessableEntity,
	Unschedulable: http.StatusServiceUnavailable,
	VolumeAttach:  http.StatusServiceUnavailable,

	InvalidFlameParent: http.StatusBadRequest,
	ParentForbidden:    http.StatusForbidden,
	ParentNotFound:     http.StatusNotFound,
	ParentUIDMismatch:  http.StatusConflict,
	ParentTerminating:  http.StatusConflict,
	ContainerNotFound:  http.StatusUnprocessableEntity,
	TemplateInvalid:    http.StatusUnprocessableEntity,
	TooManyRunners:     http.StatusTooManyRequests,
	Backoff:            http.StatusTooManyRequests,
	RunnerExited:       http.StatusBadGateway,
	RunnerGone:         http.StatusBadGateway,
	BootTimeout:        http.StatusGatewayTimeout,
}

// retryable are the codes after which the same request, with the same key, may succeed later. A read that took too
// long may be repeated too; of a change it is not known whether it was made, so that DEADLINE is not here.
var retryable = map[Code]bool{
	InternalServerError: true,
	SubmitterOverloaded: true,
	VolumeBusy:          true,
	NotConfigured:       true,
	TooManyRunners:      true,
	Backoff:             true,
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
	// Details is what a program needs beside the message, as JSON: a FileResult, or the pod of a runner. It may be nil.
	Details any
	// HTTPStatus stands in for the code's own status where the same code has two; zero means the code's own.
	HTTPStatus int
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
	if e.HTTPStatus != 0 {
		return e.HTTPStatus
	}
	if s, ok := status[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Retryable tells whether the same request may succeed later.
func (e *Error) Retryable() bool {
	return retryable[e.Code] || e.HTTPStatus == http.StatusTooManyRequests
}

// ErrorBody is the JSON of an error answer.
type ErrorBody struct {
	SubmissionID string `json:"submission_id"`
	Status       int    `json:"status"`
	ErrorCode    Code   `json:"error_code"`
	Message      string `json:"message"`
	Field        string `json:"field,omitempty"`
	Details      any    `json:"details,omitempty"`
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
		Details:      e.Details,
		Timestamp:    now.UTC().Format(time.RFC3339),
	})
	if err != nil { // strings, an int and our own types always marshal
		panic(err)
	}
	return b.Bytes()
}

// BodyWithin is Body with as much of message and field as fits into so many bytes. 700 hold any
// submission id, the code and a beginning of the message.
func (e *Error) BodyWithin(size, status int, submissionID string, now time.Time) []byte {
	body := e.Body(status, submissionID, now)
	if len(body) > size && e.Details != nil {
		brief := *e
		brief.Details = nil
		e, body = &brief, brief.Body(status, submissionID, now)
	}
	for limit := messageLimit; len(body) > size && limit >= 8; limit /= 2 {
		short := e.within(limit)
		if limit <= 32 {
			short.Field = ""
		}
		body = short.Body(status, submissionID, now)
	}
	return body
}
