package api

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"sigs.k8s.io/json"
)

const (
	// maxFilePath is the most bytes of a path, and maxFileName of one name in it (Linux: PATH_MAX without its NUL, NAME_MAX).
	maxFilePath = 4095
	maxFileName = 255
	// maxFileURL is the most bytes of a source's or a sink's URL, and of a token.
	maxFileURL = 8 << 10
	// maxIdentity is the greatest id of a user or a group (k8s.io/apimachinery, IsValidUserID).
	maxIdentity = 1<<31 - 1
)

// DecodeFile reads the JSON of a file job. It is strict: an unknown field, a name that occurs twice, and a field that the operation
// has no use for are refused by their names. key stands for a submission_id that is not there; where both are
// empty the request has none, and the caller gives it one. The error is an *Error; the request is not nil even
// then, and carries the submission id if that is a good one, for the error's own body.
func DecodeFile(body []byte, key string) (*FileRequest, error) {
	refused := &FileRequest{}
	if !utf8.Valid(body) {
		return refused, Errorf(BadRequest, "malformed JSON: the body is not UTF-8")
	}
	var request FileRequest
	err := unmarshalStrict(body, &request)
	if request.SubmissionID == "" {
		request.SubmissionID = key
	}
	var idErr error
	if request.SubmissionID != "" {
		idErr = checkSubmissionID(request.SubmissionID)
	}
	if idErr == nil {
		refused.SubmissionID = request.SubmissionID
	}
	if err != nil {
		return refused, err
	}
	if idErr != nil {
		return refused, idErr
	}
	for _, check := range []func() error{
		request.Target.check,
		request.checkWaiting,
		func() error { return request.Operation.check("operation", request.Target.Claim) },
	} {
		if err := check(); err != nil {
			return refused, err
		}
	}
	return &request, nil
}

// unmarshalStrict is unmarshal that refuses unknown fields too.
func unmarshalStrict(text []byte, value any) error {
	strict, err := json.UnmarshalStrict(text, value)
	if err != nil {
		return Errorf(BadRequest, "malformed JSON: %s", reason(err))
	}
	if len(strict) > 0 {
		refused := Errorf(BadRequest, "%s", reason(strict[0]))
		var field json.FieldError
		if errors.As(strict[0], &field) {
			refused.Field = field.FieldPath()
		}
		return refused
	}
	return nil
}

func (t *FileTarget) check() error {
	switch {
	case t.Namespace == "":
		return required("target.namespace")
	case len(content.IsDNS1123Label(t.Namespace)) > 0:
		return FieldErrorf(BadRequest, "target.namespace", "target.namespace %.100q is no name of a namespace", t.Namespace)
	case t.Claim == "":
		return required("target.claim")
	case len(content.IsDNS1123Subdomain(t.Claim)) > 0:
		return FieldErrorf(BadRequest, "target.claim", "target.claim %.300q is no name of a claim", t.Claim)
	}
	if _, err := CleanPath("target.sub_path", t.SubPath); err != nil {
		return err
	}
	for _, id := range []struct {
		field string
		value *int64
	}{{"target.run_as_user", t.RunAsUser}, {"target.run_as_group", t.RunAsGroup}, {"target.fs_group", t.FSGroup}} {
		if id.value != nil && (*id.value < 0 || *id.value > maxIdentity) {
			return FieldErrorf(BadRequest, id.field, "%s is %d, and must be between 0 and %d", id.field, *id.value, maxIdentity)
		}
	}
	return nil
}

func (r *FileRequest) checkWaiting() error {
	switch {
	case r.WaitSeconds != nil && *r.WaitSeconds < 0:
		return FieldErrorf(BadRequest, "wait_seconds", "wait_seconds is %d, and must not be negative", *r.WaitSeconds)
	case r.TimeoutSeconds != nil && *r.TimeoutSeconds < 1:
		return FieldErrorf(BadRequest, "timeout_seconds", "timeout_seconds is %d, and must be at least 1", *r.TimeoutSeconds)
	case !slices.Contains([]string{"", InUseRefuse, InUseAllow}, r.InUse):
		return FieldErrorf(BadRequest, "in_use", "in_use is %.40q, and must be %q or %q", r.InUse, InUseRefuse, InUseAllow)
	}
	return nil
}

func required(field string) *Error {
	return FieldErrorf(BadRequest, field, "%s is required", field)
}

// CleanPath gives the clean form of a path of a file job: "." for the target itself. It only looks at the text: where links lead is
// for the agent. The error is an *Error with the code BAD_PATH about the field.
func CleanPath(field, text string) (string, error) {
	switch {
	case len(text) > maxFilePath:
		return "", FieldErrorf(BadPath, field, "the path has %d bytes, more than %d", len(text), maxFilePath)
	case strings.ContainsRune(text, 0):
		return "", FieldErrorf(BadPath, field, "the path %.200q has a NUL, which no name can hold", text)
	case strings.HasPrefix(text, "/"):
		return "", FieldErrorf(BadPath, field, "the path %.200q is absolute; paths are relative to the target", text)
	}
	clean := path.Clean(text)
	if !filepath.IsLocal(clean) {
		return "", FieldErrorf(BadPath, field, "the path %.200q leads out of the target", text)
	}
	for name := range strings.SplitSeq(clean, "/") {
		if len(name) > maxFileName {
			return "", FieldErrorf(BadPath, field, "the name %.40q... has %d bytes, more than %d", name, len(name), maxFileName)
		}
	}
	return clean, nil
}

// fileFields are the fields that each operation has a use for, beside op.
var fileFields = map[Op][]string{
	OpList:     {"path", "limit", "cursor"},
	OpStat:     {"path"},
	OpRead:     {"path", "offset", "length"},
	OpChecksum: {"path", "offset", "length"},
	OpWrite:    {"path", "content", "text", "sha256", "expect_sha256", "create_only"},
	OpMkdir:    {"path"},
	OpDelete:   {"path", "expect_sha256", "recursive", "confirm"},
	OpRename:   {"path", "to", "expect_sha256"},
	OpCopy:     {"path", "to", "expect_sha256"},
	OpUpload:   {"path", "source", "expect_sha256", "create_only"},
	OpDownload: {"path", "sink"},
	OpUnzip:    {"path", "overwrite"},
	OpUntar:    {"path", "overwrite"},
	OpBatch:    {"operations", "continue_on_error"},
}

// onTarget are the operations that can be done on the target itself.
var onTarget = map[Op]bool{OpList: true, OpStat: true, OpDelete: true, OpDownload: true, OpBatch: true}

var hexDigest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// check checks one operation; field is its own path in the request.
func (o *FileOperation) check(field, claim string) error {
	at := func(name string) string { return field + "." + name }
	if o.Op == "" {
		return required(at("op"))
	}
	allowed, known := fileFields[o.Op]
	if !known {
		return FieldErrorf(BadRequest, at("op"), "there is no operation %.40q", string(o.Op))
	}
	for _, given := range []struct {
		name  string
		is    bool
		group string // what fileFields calls it, where that is another name
	}{
		{"path", o.Path != "", ""}, {"path_b64", len(o.PathB64) > 0, "path"}, {"to", o.To != "", ""}, {"to_b64", len(o.ToB64) > 0, "to"},
		{"limit", o.Limit != 0, ""}, {"cursor", o.Cursor != "", ""}, {"offset", o.Offset != 0, ""}, {"length", o.Length != 0, ""},
		{"content", o.Content != nil, ""}, {"text", o.Text != nil, ""}, {"sha256", o.SHA256 != "", ""},
		{"expect_sha256", o.ExpectSHA256 != "", ""}, {"create_only", o.CreateOnly, ""}, {"recursive", o.Recursive, ""},
		{"confirm", o.Confirm != "", ""}, {"overwrite", o.Overwrite, ""}, {"source", o.Source != nil, ""}, {"sink", o.Sink != nil, ""},
		{"operations", o.Operations != nil, ""}, {"continue_on_error", o.ContinueOnError, ""},
	} {
		if given.group == "" {
			given.group = given.name
		}
		if given.is && !slices.Contains(allowed, given.group) {
			return FieldErrorf(BadRequest, at(given.name), "%s has no use for %s", o.Op, given.name)
		}
	}
	for _, check := range []func(at func(string) string, claim string) error{
		o.checkPaths, o.checkNumbers, o.checkContent, o.checkDigests, o.checkEnds, o.checkBatch,
	} {
		if err := check(at, claim); err != nil {
			return err
		}
	}
	return nil
}

func (o *FileOperation) checkPaths(at func(string) string, claim string) error {
	clean, err := pathOf(at, "path", o.Path, o.PathB64)
	if err != nil {
		return err
	}
	if clean == "." && !onTarget[o.Op] {
		if o.Path == "" {
			return required(at("path"))
		}
		return FieldErrorf(BadPath, at("path"), "the path %.200q is the target itself, which %s does not take", o.Path, o.Op)
	}
	if o.Op == OpDelete {
		switch {
		case clean != "." && o.Confirm != "":
			return FieldErrorf(BadRequest, at("confirm"), "confirm is for the target itself, and the path is another")
		case clean == "." && !o.Recursive:
			return FieldErrorf(BadPath, at("path"), "the path is the target itself, which is emptied only with recursive and confirm")
		case clean == "." && o.Confirm != claim:
			return FieldErrorf(BadPath, at("confirm"), "the target itself is to be emptied, so confirm must be the claim's name, %q", claim)
		}
	}
	if !slices.Contains(fileFields[o.Op], "to") {
		return nil
	}
	to, err := pathOf(at, "to", o.To, o.ToB64)
	switch {
	case err != nil:
		return err
	case to == "." && o.To == "":
		return required(at("to"))
	case to == ".":
		return FieldErrorf(BadPath, at("to"), "the path %.200q is the target itself, which is there already", o.To)
	}
	return nil
}

// pathOf is the clean path of a field and its twin in base64.
func pathOf(at func(string) string, name, text string, raw []byte) (string, error) {
	if len(raw) == 0 {
		return CleanPath(at(name), text)
	}
	if text != "" {
		return "", FieldErrorf(BadRequest, at(name+"_b64"), "%s and %s_b64 exclude each other", name, name)
	}
	return CleanPath(at(name+"_b64"), string(raw))
}

func (o *FileOperation) checkNumbers(at func(string) string, _ string) error {
	switch {
	case o.Limit < 0 || o.Limit > MaxList:
		return FieldErrorf(BadRequest, at("limit"), "limit is %d, and must be between 1 and %d", o.Limit, MaxList)
	case o.Offset < 0:
		return FieldErrorf(BadRequest, at("offset"), "offset is %d, and must not be negative", o.Offset)
	case o.Length < 0:
		return FieldErrorf(BadRequest, at("length"), "length is %d, and must not be negative", o.Length)
	case o.Op == OpRead && o.Length > MaxInline:
		return FieldErrorf(TooLarge, at("length"), "length is %d, and one result has room for %d", o.Length, MaxInline)
	}
	return nil
}

func (o *FileOperation) checkContent(at func(string) string, _ string) error {
	switch {
	case o.Op != OpWrite:
		return nil
	case o.Content == nil && o.Text == nil:
		return FieldErrorf(BadRequest, at("content"), "content or text is required; an empty one makes the file empty")
	case o.Content != nil && o.Text != nil:
		return FieldErrorf(BadRequest, at("text"), "content and text exclude each other")
	case o.inline() > MaxInline:
		return FieldErrorf(TooLarge, at("content"), "there are %d bytes to write, more than %d; upload them", o.inline(), MaxInline)
	}
	return nil
}

// inline is how many bytes the operation brings to be written.
func (o *FileOperation) inline() (n int) {
	if o.Content != nil {
		n = len(*o.Content)
	}
	if o.Text != nil {
		n += len(*o.Text)
	}
	for i := range o.Operations {
		n += o.Operations[i].inline()
	}
	return n
}

func (o *FileOperation) checkDigests(at func(string) string, _ string) error {
	for _, digest := range []struct{ name, value string }{{"sha256", o.SHA256}, {"expect_sha256", o.ExpectSHA256}} {
		if digest.value != "" && !hexDigest.MatchString(digest.value) {
			return badDigest(at(digest.name), digest.value)
		}
	}
	if o.CreateOnly && o.ExpectSHA256 != "" {
		return FieldErrorf(BadRequest, at("create_only"), "create_only and expect_sha256 exclude each other")
	}
	return nil
}

func badDigest(field, value string) *Error {
	return FieldErrorf(BadRequest, field, "%s is %.80q, and must be a SHA-256 as 64 lower-case hexadecimal digits", field, value)
}

// checkEnds checks what upload and download speak to. A URL is never repeated: it may be presigned.
func (o *FileOperation) checkEnds(at func(string) string, _ string) error {
	switch o.Op {
	case OpUpload:
		switch s := o.Source; {
		case s == nil:
			return required(at("source"))
		case s.Size < 0:
			return FieldErrorf(BadRequest, at("source.size"), "source.size is %d, and must not be negative", s.Size)
		case !hexDigest.MatchString(s.SHA256):
			return badDigest(at("source.sha256"), s.SHA256)
		default:
			return checkEnd(at("source"), s.URL, s.Token)
		}
	case OpDownload:
		switch s := o.Sink; {
		case s == nil:
			return required(at("sink"))
		case !slices.Contains([]string{"", "file", "zip", "tar"}, s.Format):
			return FieldErrorf(BadRequest, at("sink.format"), `sink.format is %.40q, and must be "file", "zip" or "tar"`, s.Format)
		default:
			return checkEnd(at("sink"), s.URL, s.Token)
		}
	default:
		return nil
	}
}

func checkEnd(field, url, token string) error {
	switch {
	case url == "":
		return required(field + ".url")
	case len(url) > maxFileURL:
		return FieldErrorf(BadRequest, field+".url", "%s.url has %d bytes, more than %d", field, len(url), maxFileURL)
	case len(token) > maxFileURL:
		return FieldErrorf(BadRequest, field+".token", "%s.token has %d bytes, more than %d", field, len(token), maxFileURL)
	case strings.ContainsAny(token, "\r\n\x00"):
		return FieldErrorf(BadRequest, field+".token", "%s.token has characters that no header can hold", field)
	}
	return nil
}

func (o *FileOperation) checkBatch(at func(string) string, claim string) error {
	switch {
	case o.Op != OpBatch:
		return nil
	case len(o.Operations) == 0:
		return required(at("operations"))
	case len(o.Operations) > MaxBatch:
		return FieldErrorf(BadRequest, at("operations"), "there are %d operations, more than %d", len(o.Operations), MaxBatch)
	case o.inline() > MaxInline:
		return FieldErrorf(TooLarge, at("operations"), "there are %d bytes to write, more than %d; upload them", o.inline(), MaxInline)
	}
	for i := range o.Operations {
		inner := &o.Operations[i]
		field := fmt.Sprintf("%s[%d]", at("operations"), i)
		if inner.Op == OpBatch {
			return FieldErrorf(BadRequest, field+".op", "a batch cannot hold a batch")
		}
		if err := inner.check(field, claim); err != nil {
			return err
		}
	}
	return nil
}
