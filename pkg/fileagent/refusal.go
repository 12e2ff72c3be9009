package fileagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"flint.dev/flint/pkg/api"
)

// refusal is an error that a result tells: its code, its message, and what belongs to them.
type refusal struct{ result api.FileResult }

func refuse(code api.Code, format string, args ...any) *refusal {
	return &refusal{api.FileResult{Code: code, Message: fmt.Sprintf(format, args...)}}
}

func (r *refusal) Error() string { return string(r.result.Code) + ": " + r.result.Message }

// full is the refusal of what does not fit onto the volume.
func full(need, available int64) *refusal {
	r := refuse(api.VolumeFull, "%d bytes are needed, and %d are left beside the volume's reserve", need, available)
	r.result.NeedBytes, r.result.AvailableBytes = &need, &available
	return r
}

// at is a file-system error with the path that the caller knows.
type at struct {
	path string
	err  error
}

func (e *at) Error() string { return fmt.Sprintf("%q: %s", e.path, cause(e.err)) }
func (e *at) Unwrap() error { return e.err }

// locate adds the path to an error, unless one further in has named its own.
func locate(path string, err error) error {
	var known *at
	var refused *refusal
	if err == nil || errors.As(err, &known) || errors.As(err, &refused) || errors.Is(err, context.Canceled) {
		return err
	}
	return &at{path, err}
}

// cause is the innermost text of an error: a path error says the path of the host, and says it unquoted.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

// infrastructure are the errors that are nobody's request's fault.
var infrastructure = []error{
	syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EREMOTEIO, syscall.EHOSTDOWN,
	syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EUCLEAN, syscall.EBADMSG, syscall.ENODEV,
}

// codeOf is the code of a file-system error. What is not known to be harmless is BAD_PATH, since the errors with which
// os.Root refuses a way out have no other mark.
func codeOf(err error) api.Code {
	is := func(errno error) bool { return errors.Is(err, errno) }
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return api.Cancelled
	case errors.Is(err, fs.ErrNotExist):
		return api.NotFound
	case is(syscall.ENOSPC), is(syscall.EDQUOT):
		return api.VolumeFull
	case is(syscall.EFBIG):
		return api.TooLarge
	case is(syscall.EXDEV):
		return api.CrossDevice
	case is(syscall.ENOTEMPTY):
		return api.NotEmpty
	case is(syscall.EEXIST):
		return api.FileExists
	case is(syscall.EROFS), is(syscall.EACCES), is(syscall.EPERM):
		return api.PermissionDenied
	case slices.ContainsFunc(infrastructure, is):
		return api.InternalServerError
	default:
		return api.BadPath
	}
}

// maxMessage is the most bytes of a result's message.
const maxMessage = 1 << 10

// conclude makes the result of an operation from what it gave.
func conclude(op *api.FileOperation, result *api.FileResult, err error) *api.FileResult {
	if result == nil {
		result = &api.FileResult{}
	}
	var refused *refusal
	switch {
	case err == nil:
	case errors.As(err, &refused):
		told := refused.result
		told.Files, told.Folders, told.Bytes, told.Skipped = result.Files, result.Folders, result.Bytes, result.Skipped
		result = &told
	default:
		result.Code = codeOf(err)
		result.Message = describe(err)
	}
	result.Op = op.Op
	if len(result.Message) > maxMessage {
		result.Message = strings.ToValidUTF8(result.Message[:maxMessage], "") + "..."
	}
	return result
}

func describe(err error) string {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "the operation was stopped before its end; what is counted was done"
	}
	var known *at
	if errors.As(err, &known) {
		return known.Error()
	}
	return cause(err)
}
