package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someDigest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// fileBody is a file job's body with the operation, and more fields.
func fileBody(operation string, more ...string) string {
	fields := append([]string{`"submission_id":"s"`, `"target":{"namespace":"ns","claim":"data"}`, `"operation":` + operation}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

func TestDecodeFile(t *testing.T) {
	empty, text, zero, minute, user := []byte{}, "", 0, 60, int64(1000)
	some := []byte("\xff\x00")
	for name, tc := range map[string]struct {
		body, key string
		want      FileRequest
	}{
		"least": {body: fileBody(`{"op":"list"}`), want: FileRequest{Operation: FileOperation{Op: OpList}}},
		"no key over HTTP": {
			body: `{"target":{"namespace":"ns","claim":"data"},"operation":{"op":"stat"}}`,
			want: FileRequest{SubmissionID: "none", Operation: FileOperation{Op: OpStat}},
		},
		"the key stands in": {
			body: `{"submission_id":"","target":{"namespace":"ns","claim":"data"},"operation":{"op":"stat"}}`, key: "event-1",
			want: FileRequest{SubmissionID: "event-1", Operation: FileOperation{Op: OpStat}},
		},
		"the body's id beats the key": {body: fileBody(`{"op":"stat"}`), key: "event-1", want: FileRequest{Operation: FileOperation{Op: OpStat}}},
		"all of the frame": {
			body: `{"submission_id":"s","target":{"namespace":"ns","claim":"a.b-c","sub_path":"x/./y","run_as_user":1000,"run_as_group":1000,"fs_group":1000},` +
				`"operation":{"op":"read","path":"f"},"wait_seconds":0,"timeout_seconds":60,"in_use":"allow"}`,
			want: FileRequest{
				Target:      FileTarget{Namespace: "ns", Claim: "a.b-c", SubPath: "x/./y", RunAsUser: &user, RunAsGroup: &user, FSGroup: &user},
				WaitSeconds: &zero, TimeoutSeconds: &minute, InUse: InUseAllow, Operation: FileOperation{Op: OpRead, Path: "f"},
			},
		},
		"F34_empty_content":       {body: fileBody(`{"op":"write","path":"f","content":""}`), want: FileRequest{Operation: FileOperation{Op: OpWrite, Path: "f", Content: &empty}}},
		"F34_empty_text":          {body: fileBody(`{"op":"write","path":"f","text":""}`), want: FileRequest{Operation: FileOperation{Op: OpWrite, Path: "f", Text: &text}}},
		"F34_null_beside_content": {body: fileBody(`{"op":"write","path":"f","text":null,"content":"/wA="}`), want: FileRequest{Operation: FileOperation{Op: OpWrite, Path: "f", Content: &some}}},
		"dollar signs":            {body: fileBody(`{"op":"read","path":"a$(TOKEN)$$\n"}`), want: FileRequest{Operation: FileOperation{Op: OpRead, Path: "a$(TOKEN)$$\n"}}},
		"bytes of a name":         {body: fileBody(`{"op":"rename","path_b64":"/w==","to":"x"}`), want: FileRequest{Operation: FileOperation{Op: OpRename, PathB64: some[:1], To: "x"}}},
		"the target is emptied": {
			body: fileBody(`{"op":"delete","path":"a/..","recursive":true,"confirm":"data"}`),
			want: FileRequest{Operation: FileOperation{Op: OpDelete, Path: "a/..", Recursive: true, Confirm: "data"}},
		},
		"a batch": {
			body: fileBody(`{"op":"batch","continue_on_error":true,"operations":[{"op":"mkdir","path":"d"},{"op":"stat"}]}`),
			want: FileRequest{Operation: FileOperation{Op: OpBatch, ContinueOnError: true, Operations: []FileOperation{{Op: OpMkdir, Path: "d"}, {Op: OpStat}}}},
		},
		"a transfer": {
			body: fileBody(`{"op":"upload","path":"f","create_only":true,"source":{"url":"https://h/x?sig=1","size":0,"sha256":"` + someDigest + `","token":"t"}}`),
			want: FileRequest{Operation: FileOperation{Op: OpUpload, Path: "f", CreateOnly: true, Source: &FileSource{URL: "https://h/x?sig=1", SHA256: someDigest, Token: "t"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeFile([]byte(tc.body), tc.key)
			if err != nil {
				t.Fatal(err)
			}
			switch tc.want.SubmissionID {
			case "":
				tc.want.SubmissionID = "s"
			case "none":
				tc.want.SubmissionID = ""
			}
			if tc.want.Target.Claim == "" {
				tc.want.Target = FileTarget{Namespace: "ns", Claim: "data"}
			}
			if diff := cmp.Diff(&tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestDecodeFileRefuses(t *testing.T) {
	big := base64.StdEncoding.EncodeToString(make([]byte, MaxInline+1))
	half := base64.StdEncoding.EncodeToString(make([]byte, MaxInline/2+1))
	source := func(fields string) string { return fileBody(`{"op":"upload","path":"f","source":{` + fields + `}}`) }
	cases := map[string]struct {
		body, field, message string
		code                 Code
	}{
		"nothing":                   {body: ``, message: "malformed JSON"},
		"an array":                  {body: `[]`, message: "malformed JSON"},
		"not UTF-8":                 {body: "{\"submission_id\":\"\xff\"}", message: "not UTF-8"},
		"two values":                {body: fileBody(`{"op":"stat"}`) + "{}", message: "malformed JSON"},
		"nested beyond measure":     {body: strings.Repeat(`{"operation":`, 20000), message: "malformed JSON"},
		"S29_body_unknown_field":    {body: fileBody(`{"op":"stat"}`, `"later":1`), field: "later", message: `unknown field "later"`},
		"unknown, deep":             {body: fileBody(`{"op":"batch","operations":[{"op":"stat","mode":"0644"}]}`), field: "operation.operations[0].mode", message: "unknown field"},
		"another case":              {body: fileBody(`{"op":"stat","Path":"x"}`), field: "operation.Path", message: "unknown field"},
		"a name twice":              {body: fileBody(`{"op":"stat","path":"a","path":"b"}`), field: "operation.path", message: "duplicate field"},
		"id with a newline":         {body: `{"submission_id":"a\nb"}`, field: "submission_id", message: "control character"},
		"id too long":               {body: `{"submission_id":"` + strings.Repeat("x", 254) + `"}`, field: "submission_id", message: "254 bytes"},
		"no target":                 {body: `{"operation":{"op":"stat"}}`, field: "target.namespace", message: "required"},
		"no claim":                  {body: `{"target":{"namespace":"ns"},"operation":{"op":"stat"}}`, field: "target.claim", message: "required"},
		"namespace is none":         {body: `{"target":{"namespace":"../ns","claim":"c"},"operation":{"op":"stat"}}`, field: "target.namespace", message: `"../ns"`},
		"claim is none":             {body: `{"target":{"namespace":"ns","claim":"A"},"operation":{"op":"stat"}}`, field: "target.claim", message: `"A"`},
		"sub path leads out":        {body: `{"target":{"namespace":"ns","claim":"c","sub_path":"a/../.."},"operation":{"op":"stat"}}`, field: "target.sub_path", message: "leads out", code: BadPath},
		"sub path is absolute":      {body: `{"target":{"namespace":"ns","claim":"c","sub_path":"/a"},"operation":{"op":"stat"}}`, field: "target.sub_path", message: "absolute", code: BadPath},
		"negative user":             {body: `{"target":{"namespace":"ns","claim":"c","run_as_user":-1},"operation":{"op":"stat"}}`, field: "target.run_as_user", message: "-1"},
		"group too great":           {body: `{"target":{"namespace":"ns","claim":"c","fs_group":4294967296},"operation":{"op":"stat"}}`, field: "target.fs_group", message: "4294967296"},
		"wait is negative":          {body: fileBody(`{"op":"stat"}`, `"wait_seconds":-1`), field: "wait_seconds", message: "-1"},
		"wait is no integer":        {body: fileBody(`{"op":"stat"}`, `"wait_seconds":1.5`), message: "malformed JSON"},
		"no time":                   {body: fileBody(`{"op":"stat"}`, `"timeout_seconds":0`), field: "timeout_seconds", message: "at least 1"},
		"in_use is none of them":    {body: fileBody(`{"op":"stat"}`, `"in_use":"maybe"`), field: "in_use", message: `"maybe"`},
		"no operation":              {body: `{"target":{"namespace":"ns","claim":"c"}}`, field: "operation.op", message: "required"},
		"unknown operation":         {body: fileBody(`{"op":"chmod","path":"f"}`), field: "operation.op", message: `"chmod"`},
		"no path":                   {body: fileBody(`{"op":"read"}`), field: "operation.path", message: "required"},
		"the target cannot be read": {body: fileBody(`{"op":"read","path":"a/.."}`), field: "operation.path", message: "target itself", code: BadPath},
		"path leads out":            {body: fileBody(`{"op":"list","path":"../x"}`), field: "operation.path", message: "leads out", code: BadPath},
		"path with a NUL":           {body: fileBody(`{"op":"stat","path":"a\u0000"}`), field: "operation.path", message: "NUL", code: BadPath},
		"bytes lead out":            {body: fileBody(`{"op":"stat","path_b64":"Li4v"}`), field: "operation.path_b64", message: "leads out", code: BadPath},
		"bytes with a NUL":          {body: fileBody(`{"op":"stat","path_b64":"/wA="}`), field: "operation.path_b64", message: "NUL", code: BadPath},
		"bytes are no base64":       {body: fileBody(`{"op":"stat","path_b64":"%"}`), message: "malformed JSON"},
		"path twice":                {body: fileBody(`{"op":"stat","path":"a","path_b64":"YQ=="}`), field: "operation.path_b64", message: "exclude"},
		"name too long":             {body: fileBody(`{"op":"stat","path":"` + strings.Repeat("x", 256) + `"}`), field: "operation.path", message: "256 bytes", code: BadPath},
		"path too long":             {body: fileBody(`{"op":"stat","path":"` + strings.Repeat("x/", 2048) + `"}`), field: "operation.path", message: "4096 bytes", code: BadPath},
		"no new name":               {body: fileBody(`{"op":"rename","path":"a"}`), field: "operation.to", message: "required"},
		"onto the target":           {body: fileBody(`{"op":"copy","path":"a","to":"."}`), field: "operation.to", message: "target itself", code: BadPath},
		"a batch in a batch":        {body: fileBody(`{"op":"batch","operations":[{"op":"batch","operations":[]}]}`), field: "operation.operations[0].op", message: "batch"},
		"an empty batch":            {body: fileBody(`{"op":"batch","operations":[]}`), field: "operation.operations", message: "required"},
		"a batch too long":          {body: fileBody(`{"op":"batch","operations":[` + strings.Repeat(`{"op":"stat"},`, MaxBatch) + `{"op":"stat"}]}`), field: "operation.operations", message: "51"},
		"the second is at fault":    {body: fileBody(`{"op":"batch","operations":[{"op":"stat"},{"op":"read"}]}`), field: "operation.operations[1].path", message: "required"},
		"F34_absent_content":        {body: fileBody(`{"op":"write","path":"f"}`), field: "operation.content", message: "required"},
		"F34_null_content":          {body: fileBody(`{"op":"write","path":"f","content":null}`), field: "operation.content", message: "required"},
		"content and text":          {body: fileBody(`{"op":"write","path":"f","content":"","text":""}`), field: "operation.text", message: "exclude"},
		"content too long":          {body: fileBody(`{"op":"write","path":"f","content":"` + big + `"}`), field: "operation.content", message: "716801", code: TooLarge},
		"text too long":             {body: fileBody(`{"op":"write","path":"f","text":"` + big + `"}`), field: "operation.content", message: "upload", code: TooLarge},
		"together too long": {
			body:  fileBody(`{"op":"batch","operations":[{"op":"write","path":"a","content":"` + half + `"},{"op":"write","path":"b","content":"` + half + `"}]}`),
			field: "operation.operations", message: "716802", code: TooLarge,
		},
		"digest too short":         {body: fileBody(`{"op":"write","path":"f","text":"","sha256":"abc"}`), field: "operation.sha256", message: `"abc"`},
		"digest in capitals":       {body: fileBody(`{"op":"delete","path":"f","expect_sha256":"` + strings.ToUpper(someDigest) + `"}`), field: "operation.expect_sha256", message: "lower-case"},
		"digest with a newline":    {body: fileBody(`{"op":"delete","path":"f","expect_sha256":"` + someDigest + `\n"}`), field: "operation.expect_sha256", message: "64"},
		"new and as before":        {body: fileBody(`{"op":"write","path":"f","text":"","create_only":true,"expect_sha256":"` + someDigest + `"}`), field: "operation.create_only", message: "exclude"},
		"limit too great":          {body: fileBody(`{"op":"list","limit":2001}`), field: "operation.limit", message: "2001"},
		"limit is negative":        {body: fileBody(`{"op":"list","limit":-1}`), field: "operation.limit", message: "-1"},
		"offset is negative":       {body: fileBody(`{"op":"read","path":"f","offset":-1}`), field: "operation.offset", message: "-1"},
		"length is negative":       {body: fileBody(`{"op":"checksum","path":"f","length":-1}`), field: "operation.length", message: "-1"},
		"length too great":         {body: fileBody(`{"op":"read","path":"f","length":716801}`), field: "operation.length", message: "716801", code: TooLarge},
		"target without recursive": {body: fileBody(`{"op":"delete"}`), field: "operation.path", message: "recursive", code: BadPath},
		"target without confirm":   {body: fileBody(`{"op":"delete","recursive":true}`), field: "operation.confirm", message: `"data"`, code: BadPath},
		"another claim confirmed":  {body: fileBody(`{"op":"delete","recursive":true,"confirm":"other"}`), field: "operation.confirm", message: `"data"`, code: BadPath},
		"confirm for a file":       {body: fileBody(`{"op":"delete","path":"f","confirm":"data"}`), field: "operation.confirm", message: "target itself"},
		"no source":                {body: fileBody(`{"op":"upload","path":"f"}`), field: "operation.source", message: "required"},
		"source without digest":    {body: source(`"url":"https://h","size":1`), field: "operation.source.sha256", message: "64"},
		"source without url":       {body: source(`"size":1,"sha256":"` + someDigest + `"`), field: "operation.source.url", message: "required"},
		"source of negative size":  {body: source(`"url":"https://h","size":-1,"sha256":"` + someDigest + `"`), field: "operation.source.size", message: "-1"},
		"token with a newline":     {body: source(`"url":"https://h","size":1,"sha256":"` + someDigest + `","token":"secret\nx"`), field: "operation.source.token", message: "header"},
		"url too long":             {body: source(`"url":"https://h/secret` + strings.Repeat("x", 9000) + `","size":1,"sha256":"` + someDigest + `"`), field: "operation.source.url", message: "bytes"},
		"no sink":                  {body: fileBody(`{"op":"download","path":"f"}`), field: "operation.sink", message: "required"},
		"sink without url":         {body: fileBody(`{"op":"download","path":"f","sink":{"url":""}}`), field: "operation.sink.url", message: "required"},
		"sink of another format":   {body: fileBody(`{"op":"download","path":"f","sink":{"url":"https://h","format":"rar"}}`), field: "operation.sink.format", message: `"rar"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeFile([]byte(tc.body), "")
			var refused *Error
			if tc.code == "" {
				tc.code = BadRequest
			}
			if !errors.As(err, &refused) || refused.Code != tc.code {
				t.Fatalf("error = %v, want %s", err, tc.code)
			}
			if refused.Field != tc.field || !strings.Contains(refused.Message, tc.message) {
				t.Errorf("field %q, message %q; want %q, %q", refused.Field, refused.Message, tc.field, tc.message)
			}
			if len(refused.Message) > 500 || strings.Contains(refused.Message, "secret") {
				t.Errorf("the message repeats the body: %q", refused.Message)
			}
		})
	}
	t.Run("the id is kept for the error's body", func(t *testing.T) {
		if got, err := DecodeFile([]byte(fileBody(`{"op":"none"}`)), "key"); err == nil || got.SubmissionID != "s" {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := DecodeFile([]byte(`{"later":1}`), "key"); err == nil || got.SubmissionID != "key" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Each operation takes its own fields and refuses all others by their names.
func TestFieldsOfOperations(t *testing.T) {
	given := map[string]string{
		"path": `"f"`, "path_b64": `"Zg=="`, "to": `"g"`, "to_b64": `"Zw=="`, "limit": `1`, "cursor": `"c"`, "offset": `1`, "length": `1`,
		"content": `""`, "text": `""`, "sha256": `"` + someDigest + `"`, "expect_sha256": `"` + someDigest + `"`, "create_only": `true`,
		"recursive": `true`, "confirm": `"data"`, "overwrite": `true`, "continue_on_error": `true`, "operations": `[{"op":"stat"}]`,
		"source": `{"url":"https://h","size":1,"sha256":"` + someDigest + `"}`, "sink": `{"url":"https://h"}`,
	}
	needs := map[Op][]string{
		OpList: {"path"}, OpStat: {"path"}, OpRead: {"path"}, OpChecksum: {"path"}, OpWrite: {"path", "text"}, OpMkdir: {"path"}, OpDelete: {"path"},
		OpRename: {"path", "to"}, OpCopy: {"path", "to"}, OpUpload: {"path", "source"}, OpDownload: {"path", "sink"}, OpUnzip: {"path"}, OpUntar: {"path"},
		OpBatch: {"operations"},
	}
	takes := map[Op][]string{
		OpList: {"limit", "cursor"}, OpStat: nil, OpRead: {"offset", "length"}, OpChecksum: {"offset", "length"},
		OpWrite: {"sha256", "expect_sha256", "create_only"}, OpMkdir: nil, OpDelete: {"expect_sha256", "recursive"}, OpRename: {"expect_sha256"},
		OpCopy: {"expect_sha256"}, OpUpload: {"expect_sha256", "create_only"}, OpDownload: nil, OpUnzip: {"overwrite"}, OpUntar: {"overwrite"},
		OpBatch: {"continue_on_error"},
	}
	// Those that exclude one that the operation needs, and so are not tried beside it.
	twins := map[string]string{"path_b64": "path", "to_b64": "to", "content": "text", "confirm": "path"}
	if len(needs) != len(fileFields) || len(takes) != len(fileFields) {
		t.Fatal("an operation is missing here")
	}
	for op, needed := range needs {
		fields := []string{`"op":"` + string(op) + `"`}
		for _, field := range needed {
			fields = append(fields, fmt.Sprintf(`%q:%s`, field, given[field]))
		}
		body := "{" + strings.Join(fields, ",")
		if _, err := DecodeFile([]byte(fileBody(body+"}")), ""); err != nil {
			t.Errorf("%s: %v", op, err)
		}
		for field, value := range given {
			if slices.Contains(needed, field) || twins[field] != "" && slices.Contains(needed, twins[field]) && (field != "confirm" || op == OpDelete) {
				continue
			}
			_, err := DecodeFile([]byte(fileBody(body+fmt.Sprintf(`,%q:%s}`, field, value))), "")
			var refused *Error
			if slices.Contains(takes[op], field) {
				if err != nil {
					t.Errorf("%s with %s: %v", op, field, err)
				}
			} else if !errors.As(err, &refused) || refused.Field != "operation."+field || refused.Code != BadRequest {
				t.Errorf("%s with %s: %v", op, field, err)
			}
		}
	}
	// No field of the type is forgotten.
	var fields map[string]any
	text, err := json.Marshal(FileOperation{
		Op: "x", Path: "x", PathB64: []byte{1}, To: "x", ToB64: []byte{1}, Limit: 1, Cursor: "x", Offset: 1, Length: 1, Content: &[]byte{}, Text: new(string),
		SHA256: "x", ExpectSHA256: "x", CreateOnly: true, Recursive: true, Confirm: "x", Overwrite: true, Source: &FileSource{}, Sink: &FileSink{},
		Operations: []FileOperation{{}}, ContinueOnError: true,
	})
	if err != nil || json.Unmarshal(text, &fields) != nil || len(fields) != len(given)+1 {
		t.Errorf("%d fields of the type, %d here: %v", len(fields), len(given)+1, err)
	}
}

func TestFileCodes(t *testing.T) {
	for _, code := range FileCodes {
		if _, known := status[code]; !known {
			t.Errorf("%s has no status", code)
		}
	}
}

func FuzzDecodeFile(f *testing.F) {
	f.Add([]byte(fileBody(`{"op":"write","path":"f","content":"eA==","expect_sha256":"` + someDigest + `"}`)))
	f.Add([]byte(fileBody(`{"op":"batch","operations":[{"op":"delete","recursive":true,"confirm":"data"},{"op":"rename","path_b64":"/w==","to":"../x"}]}`)))
	f.Add([]byte(`{"target":null,"operation":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		request, err := DecodeFile(body, "")
		var refused *Error
		switch {
		case request == nil:
			t.Fatal("no request")
		case err == nil:
			if request.Target.Claim == "" || request.Operation.Op == "" {
				t.Fatalf("accepted: %+v", request)
			}
			for _, op := range append([]FileOperation{request.Operation}, request.Operation.Operations...) {
				if op.Path != "" && !filepath.IsLocal(op.Path) {
					t.Fatalf("accepted the path %q", op.Path)
				}
			}
		case !errors.As(err, &refused) || refused.Message == "" || len(refused.Message) > 1000:
			t.Fatalf("error %v", err)
		}
	})
}
