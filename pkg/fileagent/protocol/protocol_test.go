package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/api"
)

const nonce = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"

func at(seconds int) func() time.Time {
	return func() time.Time { return time.Unix(int64(seconds), 0) }
}

// written is what a run writes.
func written(t testing.TB, result *api.FileResult) (log, message string) {
	t.Helper()
	var out bytes.Buffer
	text, _, err := NewWriter(&out, nonce, at(0)).Result(result)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), string(text)
}

func content(size int) *api.FileResult {
	bytes := bytes.Repeat([]byte{0xff, 0, '\n'}, size/3+1)[:size]
	length := int64(size)
	return &api.FileResult{Op: api.OpRead, Content: &bytes, Size: &length, SHA256: digest(bytes)}
}

func codeOf(err error) api.Code {
	var known *api.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

func TestResultsComeBack(t *testing.T) {
	entries := make([]api.FileEntry, api.MaxList)
	for i := range entries {
		entries[i] = api.FileEntry{Name: strings.Repeat("é", 100) + "\u2028<&>\"\n", NameB64: []byte("\xff"), Type: api.TypeFile}
	}
	none := []api.FileEntry{}
	empty := []byte{}
	for name, result := range map[string]*api.FileResult{
		"least":                {Op: api.OpMkdir},
		"refused":              {Op: api.OpRead, Code: api.NotFound, Message: "no \"x\"\n" + Prefix + " " + nonce + " end 0 0 x"},
		"an empty list":        {Op: api.OpList, Entries: &none},
		"an empty file":        {Op: api.OpRead, Content: &empty},
		"a piece":              content(100),
		"two pieces":           content(7000),
		"all that can be":      content(api.MaxInline),
		"entries":              {Op: api.OpList, Entries: &entries, NextCursor: "next"},
		"a batch":              {Op: api.OpBatch, Code: api.BatchFailed, Message: "m", Results: []api.FileResult{{Op: api.OpStat, Code: api.BadPath}, *content(5000)}},
		"not UTF-8":            {Op: api.OpStat, Code: api.NotFound, Message: "\xff\xfe"},
		"a message at its end": {Op: api.OpStat, Code: api.NotFound, Message: strings.Repeat("€", 3000)},
	} {
		t.Run("F08_"+name, func(t *testing.T) {
			log, message := written(t, result)
			for line := range strings.Lines(log) {
				if len(line) > 16<<10-100 || !strings.HasPrefix(line, Prefix+" "+nonce+" ") || !utf8.ValidString(line) {
					t.Errorf("a line of %d bytes: %.60q", len(line), line)
				}
			}
			if len(message) > MaxTermination {
				t.Errorf("a message of %d bytes", len(message))
			}
			want := *result
			for _, told := range []string{message, ""} {
				got, progress, err := Read(strings.NewReader(log), nonce, told)
				if err != nil || progress != nil {
					t.Fatal(progress, err)
				}
				if name == "not UTF-8" { // JSON cannot hold it
					want.Message = "\uFFFD\uFFFD"
				}
				if !reflect.DeepEqual(&want, got) {
					t.Errorf("(-want +got)\n%.2000s", cmp.Diff(&want, got))
				}
			}
			brief, whole := Brief(message, nonce)
			if brief == nil || brief.Code != result.Code || brief.SHA256 != result.SHA256 || whole != (brief.Partial == nil) {
				t.Errorf("brief %+v", brief)
			}
		})
	}
}

func TestBrief(t *testing.T) {
	long := strings.Repeat("\x01", 5000)
	need := int64(7)
	for name, result := range map[string]*api.FileResult{
		"long texts":  {Op: api.OpUnzip, Code: api.ArchiveUnsafe, Message: long, Path: long, ArchiveEntry: long, NextCursor: long},
		"an entry":    {Op: api.OpStat, Entry: &api.FileEntry{Name: "l", LinkTarget: long}},
		"conflicts":   {Op: api.OpUnzip, Code: api.FileExists, Message: "m", Conflicts: slices.Repeat([]string{strings.Repeat("c", 200)}, 40), ConflictCount: 50_000},
		"a full disk": {Op: api.OpUnzip, Code: api.VolumeFull, Message: long, NeedBytes: &need, AvailableBytes: new(int64)},
		"a batch":     {Op: api.OpBatch, Results: slices.Repeat([]api.FileResult{{Op: api.OpMkdir}}, 500)},
	} {
		t.Run(name, func(t *testing.T) {
			log, message := written(t, result)
			if len(message) > MaxTermination {
				t.Errorf("%d bytes", len(message))
			}
			brief, whole := Brief(message, nonce)
			if brief == nil || whole || brief.Code != result.Code || brief.ConflictCount != result.ConflictCount || brief.Results != nil {
				t.Fatalf("%+v", brief)
			}
			if result.NeedBytes != nil && (*brief.NeedBytes != need || *brief.AvailableBytes != 0) {
				t.Errorf("%+v", brief)
			}
			if text, _ := json.Marshal(result); brief.Partial.Length != int64(len(text)) || brief.Partial.SHA256 != digest(text) {
				t.Errorf("%+v", brief.Partial)
			}
			if _, _, err := Read(strings.NewReader(log), nonce, message); err != nil {
				t.Error(err)
			}
			short, text := Shorten(result)
			if short.Partial == nil || len(text) > MaxTermination {
				t.Errorf("%d bytes", len(text))
			}
		})
	}
	log, message := written(t, &api.FileResult{Op: api.OpMkdir})
	for name, other := range map[string]string{
		"none": "", "of another run": strings.Replace(message, nonce, "another", 1), "a log's tail": log, "no JSON": message[:len(message)-1],
		"something before it": "x" + message, "an unknown code": strings.Replace(message, `"op"`, `"code":"FINE","op"`, 1),
	} {
		if brief, whole := Brief(other, nonce); brief != nil || whole {
			t.Errorf("%s: %+v", name, brief)
		}
	}
	if brief, _ := Brief(strings.Replace(message, nonce, "", 1), ""); brief != nil {
		t.Error("without a nonce")
	}
}

func TestReader(t *testing.T) {
	log, message := written(t, content(20_000))
	lines := slices.Collect(strings.Lines(log))
	if len(lines) != 5 {
		t.Fatalf("%d lines", len(lines))
	}
	small, smallMessage := written(t, &api.FileResult{Op: api.OpMkdir, Folders: 1})
	_, otherMessage := written(t, &api.FileResult{Op: api.OpMkdir, Folders: 2})
	forged, _ := written(t, &api.FileResult{Op: api.OpRead, SHA256: "forged"})
	forged = strings.ReplaceAll(forged, nonce, "another-nonce")
	noise := "warning: x\n\n" + Prefix + "\n" + Prefix + " \n" + Prefix + " end\n" + Prefix + " 0 {}\n"
	line := func(text string) string { return Prefix + " " + nonce + " " + text + "\n" }
	// raw is the answer with a text that need not be a result.
	raw := func(text string) string {
		return line("0 "+text) + line(fmt.Sprintf("end 1 %d %s", len(text), digest([]byte(text))))
	}
	for name, tc := range map[string]struct {
		log, message string
		code         api.Code
	}{
		"S05_result_among_noise":           {log: noise + lines[0] + noise + strings.Join(lines[1:], noise) + noise, message: message},
		"S05_result_in_the_last_line":      {log: noise + small},
		"S05_none":                         {log: noise, code: api.ResultMissing},
		"S05_an_empty_log":                 {code: api.ResultMissing},
		"S05_a_lost_log_with_message":      {log: noise, message: smallMessage},
		"S05_a_lost_log_with_brief":        {log: noise, message: message, code: api.ResultMissing},
		"S05_not_at_the_begin_of_a_line":   {log: "x" + strings.ReplaceAll(small, "\n", "\nx"), code: api.ResultMissing},
		"S06_forged_marker_wrong_nonce":    {log: forged + log + forged, message: message},
		"S06_forged_alone":                 {log: forged, code: api.ResultMissing},
		"S06_forged_message":               {log: log, message: strings.ReplaceAll(otherMessage, nonce, "another-nonce")},
		"S07_piece_missing":                {log: lines[0] + lines[2] + lines[3] + lines[4], code: api.ResultInconsistent},
		"S07_first_piece_missing":          {log: strings.Join(lines[1:], ""), code: api.ResultInconsistent},
		"S07_last_piece_missing":           {log: lines[0] + lines[1] + lines[2] + lines[4], code: api.ResultInconsistent},
		"S07_pieces_reordered":             {log: lines[1] + lines[0] + lines[2] + lines[3] + lines[4], code: api.ResultInconsistent},
		"S07_piece_twice":                  {log: lines[0] + log, code: api.ResultInconsistent},
		"S07_end_missing":                  {log: strings.Join(lines[:4], ""), code: api.ResultInconsistent},
		"S07_end_missing_with_message":     {log: lines[0], message: message, code: api.ResultInconsistent},
		"S07_end_alone":                    {log: lines[4], code: api.ResultInconsistent},
		"S07_cut_within_a_piece":           {log: log[:len(lines[0])+100], code: api.ResultInconsistent},
		"S07_cut_within_the_end":           {log: log[:len(log)-2], code: api.ResultInconsistent},
		"S07_cut_before_the_last_newline":  {log: log[:len(log)-1], code: api.ResultInconsistent},
		"S07_one_byte_altered":             {log: strings.Replace(log, "A", "B", 1), code: api.ResultInconsistent},
		"S07_two_results":                  {log: small + small, code: api.ResultInconsistent},
		"S07_two_ends":                     {log: log + lines[4], code: api.ResultInconsistent},
		"S07_message_of_another":           {log: small, message: otherMessage, code: api.ResultInconsistent},
		"S07_brief_of_another":             {log: small, message: message, code: api.ResultInconsistent},
		"S07_part_in_the_log":              {log: raw(`{"op":"read","partial":{"length":1,"sha256":""}}`), code: api.ResultInconsistent},
		"S10_unknown_code_is_failure":      {log: raw(`{"op":"read","code":"FINE"}`), code: api.ResultInconsistent},
		"S10_a_code_that_no_operation_has": {log: raw(`{"op":"read","code":"UNAUTHENTICATED"}`), code: api.ResultInconsistent},
		"S10_unknown_code_in_a_batch":      {log: raw(`{"op":"batch","results":[{"op":"stat"},{"op":"stat","code":"FINE"}]}`), code: api.ResultInconsistent},
		"S10_malformed_json":               {log: raw(`{"op":"read",`), code: api.ResultInconsistent},
		"S10_another_type":                 {log: raw(`{"op":"read","files":"many"}`), code: api.ResultInconsistent},
		"S10_null":                         {log: raw(`null`), code: api.ResultInconsistent},
		"S10_of_no_operation":              {log: raw(`{}`), code: api.ResultInconsistent},
		"S10_two_values":                   {log: raw(`{"op":"read"}{"op":"read"}`), code: api.ResultInconsistent},
		"a newer agent's field":            {log: raw(`{"op":"read","later":1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(tc.log), iotest.OneByteReader(strings.NewReader(tc.log))} {
				result, _, err := Read(reader, nonce, tc.message)
				if codeOf(err) != tc.code || (err == nil) != (tc.code == "") || (result == nil) != (err != nil) {
					t.Fatalf("result %+v, error %v; want %q", result, err, tc.code)
				}
			}
		})
	}
	t.Run("S05_tail_of_512_bytes", func(t *testing.T) {
		_, _, err := Read(strings.NewReader(strings.Repeat("x", 600)+"\x1b[31mlast\x00 words"), nonce, "")
		if err == nil || !strings.Contains(err.Error(), `last\x00 words`) || strings.Contains(err.Error(), "\x1b") || strings.Count(err.Error(), "x") > 520 {
			t.Error(err)
		}
	})
	t.Run("a_log_that_cannot_be_read", func(t *testing.T) {
		gone := errors.New("gone")
		if _, _, err := Read(io.MultiReader(strings.NewReader(log), iotest.ErrReader(gone)), nonce, ""); !errors.Is(err, gone) {
			t.Error(err)
		}
	})
}

// A container runtime stores a line of more than 16 KiB in pieces, each of which a reader may see as a line.
func TestSplitLines(t *testing.T) {
	log, message := written(t, content(100_000))
	long := strings.Repeat("noise", 20_000) + "\n"
	var stored strings.Builder
	for line := range strings.Lines(long + log + long) {
		for len(line) > 16<<10 {
			stored.WriteString(line[:16<<10] + "\n")
			line = line[16<<10:]
		}
		stored.WriteString(line)
	}
	for name, text := range map[string]string{"S08_long_line_over_16KiB_tail_lines": stored.String(), "S08_joined_again": long + log + long} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Read(strings.NewReader(text), nonce, message); err != nil {
				t.Error(err)
			}
		})
	}
}

// flood is a log of 100 MiB: one line, or many.
func flood(text string) io.Reader {
	chunk := strings.Repeat(text, 1<<20/len(text))
	return &generator{lines: 100, line: func(int) string { return chunk }}
}

func TestFlood(t *testing.T) {
	log, message := written(t, content(api.MaxInline))
	forgedPieces := func() io.Reader { // without an end, by somebody who knows the nonce
		piece := strings.Repeat("y", MaxPiece)
		return iotest.DataErrReader(&generator{lines: 100 << 20 / MaxPiece, line: func(i int) string {
			return fmt.Sprintf("%s %s %d %s\n", Prefix, nonce, i, piece)
		}})
	}
	for name, tc := range map[string]struct {
		log  func() io.Reader
		code api.Code
	}{
		"lines": {func() io.Reader {
			return io.MultiReader(flood(strings.Repeat("noise ", 15)+"\n"), strings.NewReader("\n"+log))
		}, ""},
		"one line":      {func() io.Reader { return io.MultiReader(flood("x"), strings.NewReader("\n"+log)) }, ""},
		"no result":     {func() io.Reader { return flood("x") }, api.ResultMissing},
		"forged pieces": {forgedPieces, api.ResultInconsistent},
	} {
		t.Run("S09_log_flood_bounded/"+name, func(t *testing.T) {
			var before, peak runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			most := uint64(0)
			watched := &watching{Reader: tc.log(), look: func() {
				runtime.GC()
				runtime.ReadMemStats(&peak)
				most = max(most, peak.HeapAlloc-min(peak.HeapAlloc, before.HeapAlloc))
			}}
			result, _, err := Read(watched, nonce, message)
			watched.look()
			if codeOf(err) != tc.code || (err == nil) != (tc.code == "") {
				t.Errorf("error %v, want %q", err, tc.code)
			}
			if most > 8<<20 {
				t.Errorf("%d bytes are held", most)
			}
			t.Logf("%d KiB are held at most", most>>10)
			runtime.KeepAlive(result)
		})
	}
}

type generator struct {
	i, lines int
	line     func(int) string
	rest     string
}

func (g *generator) Read(p []byte) (int, error) {
	if g.rest == "" {
		if g.i == g.lines {
			return 0, io.EOF
		}
		g.rest = g.line(g.i)
		g.i++
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// watching looks at the memory every 16 MiB.
type watching struct {
	io.Reader
	look func()
	read int
}

func (w *watching) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if w.read += n; w.read > 16<<20 {
		w.read = 0
		w.look()
	}
	return n, err
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	w := NewWriter(&out, nonce, func() time.Time { return now })
	for i := range int64(10_001) { // a hundred a second
		w.Progress(i, 10_000)
		now = now.Add(10 * time.Millisecond)
	}
	if n := strings.Count(out.String(), "\n"); n != 101 {
		t.Errorf("%d lines in 100 seconds", n)
	}
	if _, _, err := w.Result(&api.FileResult{Op: api.OpCopy}); err != nil {
		t.Fatal(err)
	}
	junk := Prefix + " " + nonce + " progress 1\n" + Prefix + " " + nonce + " progress -1 x\n"
	_, progress, err := Read(strings.NewReader(out.String()+junk), nonce, "")
	if err != nil || *progress != (api.FileProgress{Done: 10_000, Total: 10_000}) {
		t.Errorf("%+v, %v", progress, err)
	}
	// Of a run that was killed it is still known how far it came.
	_, progress, err = Read(strings.NewReader(Prefix+" "+nonce+" progress 5 0\n"+junk), nonce, "")
	if codeOf(err) != api.ResultMissing || *progress != (api.FileProgress{Done: 5}) {
		t.Errorf("%+v, %v", progress, err)
	}
	t.Run("half_a_day_of_it", func(t *testing.T) {
		out.Reset()
		w := NewWriter(&out, nonce, func() time.Time { return now })
		for i := range int64(12 * 3600) {
			w.Progress(i, 0)
			now = now.Add(time.Second)
		}
		if n := strings.Count(out.String(), "\n"); n < MaxProgress || n > MaxProgress+20 {
			t.Errorf("%d lines", n)
		}
	})
	t.Run("that_cannot_be_written", func(t *testing.T) {
		w := NewWriter(failing{}, nonce, at(0))
		w.Progress(1, 2)
		if _, whole, err := w.Result(&api.FileResult{Op: api.OpCopy}); err == nil || !whole {
			t.Error("the result was written")
		}
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestResultTooLong(t *testing.T) {
	text := make([]byte, MaxResult)
	var out bytes.Buffer
	message, whole, err := NewWriter(&out, nonce, at(0)).Result(&api.FileResult{Op: api.OpRead, Content: &text})
	if err == nil || whole || len(message) > MaxTermination {
		t.Errorf("%v, whole %v, %d bytes", err, whole, len(message))
	}
}

func TestEnvironment(t *testing.T) {
	text := strings.Repeat("$$(HOME)é\x00", 100)
	request := &Request{
		Operation: api.FileOperation{Op: api.OpWrite, Path: "a$(TOKEN)$$.txt", PathB64: []byte("\xff"), Text: &text, Content: &[]byte{}},
		SubPath:   "sub", Claim: "data", Limits: DefaultLimits(),
	}
	value, fits := EncodeEnv(request)
	if !fits || strings.Contains(value, "$") {
		t.Fatalf("%v, %q", fits, value)
	}
	files := map[string][]byte{"/request": EncodeFile(request)}
	readFile := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return text, nil
		}
		return nil, errors.New("no such file: " + name)
	}
	base := map[string]string{EnvNonce: nonce, EnvRoot: "/claim"}
	with := func(pairs ...string) map[string]string {
		env := map[string]string{EnvNonce: base[EnvNonce], EnvRoot: base[EnvRoot]}
		for i := 0; i < len(pairs); i += 2 {
			env[pairs[i]] = pairs[i+1]
		}
		return env
	}
	for name, env := range map[string]map[string]string{"variable": with(EnvRequest, value), "file": with(EnvRequestFile, "/request")} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeEnv(func(name string) string { return env[name] }, readFile)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&Environment{Request: request, Nonce: nonce, Root: "/claim"}, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
	files["/cut"] = files["/request"][:len(files["/request"])-1]
	files["/two"] = append(slices.Clone(files["/request"]), "{}"...)
	files["/later"] = []byte(`{"operation":{"op":"list"},"secret-later":1}`)
	for name, env := range map[string]map[string]string{
		"nothing":          {},
		"no nonce":         with(EnvRequest, value, EnvNonce, ""),
		"no root":          with(EnvRequest, value, EnvRoot, ""),
		"no request":       with(),
		"both":             with(EnvRequest, value, EnvRequestFile, "/request"),
		"a piece":          with(EnvRequest, value[:len(value)/2]),
		"a multiple of 4":  with(EnvRequest, value[:len(value)/2/4*4]),
		"no base64":        with(EnvRequest, "{}"),
		"no JSON":          with(EnvRequest, base64.StdEncoding.EncodeToString([]byte("secret"))),
		"no file":          with(EnvRequestFile, "/none"),
		"a cut file":       with(EnvRequestFile, "/cut"),
		"two requests":     with(EnvRequestFile, "/two"),
		"an unknown field": with(EnvRequestFile, "/later"),
	} {
		t.Run("F33_write_missing_content_piece/"+name, func(t *testing.T) {
			got, err := DecodeEnv(func(name string) string { return env[name] }, readFile)
			if err == nil || got != nil || strings.Contains(err.Error(), "secret") {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestLargestEnvironment(t *testing.T) {
	const kernelLimit = 128 << 10 // MAX_ARG_STRLEN, with the name, "=" and the NUL
	longest := 0
	t.Run("F35_env_piece_under_128KiB", func(t *testing.T) {
		for _, size := range []int{0, 50_000, 56_000, 57_000, 57_200, 57_400, 57_600, 57_800, 60_000, 100_000, api.MaxInline} {
			text := make([]byte, size)
			value, fits := EncodeEnv(&Request{Operation: api.FileOperation{Op: api.OpWrite, Path: "f", Content: &text}, Limits: DefaultLimits()})
			whole := len(EnvRequest) + 1 + len(value) + 1
			if fits && whole >= kernelLimit {
				t.Errorf("%d bytes of content: %d bytes", size, whole)
			}
			if fits {
				longest = max(longest, whole)
			}
			if !fits && len(value) <= MaxEnv {
				t.Errorf("%d bytes would fit", len(value))
			}
		}
		if longest < MaxEnv*95/100 {
			t.Errorf("the longest was of %d bytes", longest)
		}
	})
}

// FuzzReader gives the reader logs and messages. What it accepts for a result has the digest that its end says, all its pieces, and the nonce.
func FuzzReader(f *testing.F) {
	log, message := written(f, content(9000))
	small, smallMessage := written(f, &api.FileResult{Op: api.OpBatch, Results: []api.FileResult{{Op: api.OpStat, Code: api.NotFound}}})
	for _, seed := range []string{log, small, log + small, log[:len(log)-1], strings.Replace(small, " 0 ", " 1 ", 1), "\n" + Prefix + " " + nonce + " progress 1 2\n"} {
		for _, told := range []string{"", message, smallMessage} {
			f.Add([]byte(seed), told)
		}
	}
	f.Fuzz(func(t *testing.T, log []byte, message string) {
		result, progress, err := Read(bytes.NewReader(log), nonce, message)
		if (result == nil) == (err == nil) {
			t.Fatal(result, err)
		}
		if progress != nil && (progress.Done < 0 || progress.Total < 0) {
			t.Errorf("%+v", progress)
		}
		if err != nil {
			if code := codeOf(err); code != api.ResultMissing && code != api.ResultInconsistent {
				t.Errorf("%v", err)
			}
			return
		}
		if result.Code != "" && !slices.Contains(api.FileCodes, result.Code) {
			t.Errorf("code %q", result.Code)
		}
		if brief, whole := Brief(message, nonce); whole && brief.Code != result.Code {
			t.Errorf("the log's %+v, the message's %+v", result, brief)
		}
		// Looked for in another way: the pieces together, and the line that must end them.
		var text strings.Builder
		pieces := 0
		for line := range strings.Lines(string(log)) {
			if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%s %s %d ", Prefix, nonce, pieces)); ok && strings.HasSuffix(line, "\n") && len(line) <= 16<<10 {
				text.WriteString(strings.TrimSuffix(rest, "\n"))
				pieces++
			}
		}
		end := fmt.Sprintf("%s %s end %d %d %s\n", Prefix, nonce, pieces, text.Len(), digest([]byte(text.String())))
		if !strings.Contains(string(log), end) {
			if _, whole := Brief(message, nonce); !whole || pieces > 0 {
				t.Errorf("accepted without %q", end)
			}
		}
	})
}
