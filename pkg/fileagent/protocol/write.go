package protocol

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"flint.dev/flint/pkg/api"
)

// What the line of an answer is, after the prefix and the nonce. A piece of the result has its number there, from 0 on.
const (
	wordProgress = "progress" // done total
	wordEnd      = "end"      // how many pieces, the length in bytes, and the SHA-256 of all of them together
	wordResult   = "result"   // of a termination message: the JSON
)

// Writer writes the answer of one run. It is for one goroutine.
type Writer struct {
	out   io.Writer
	start string // of each line
	now   func() time.Time

	told    int           // progress lines
	last    time.Time     // of the last one
	pause   time.Duration // until the next one
	pending string        // what the latest progress would have said
}

// NewWriter writes to the log, for the run with the nonce.
func NewWriter(out io.Writer, nonce string, now func() time.Time) *Writer {
	return &Writer{out: out, start: Prefix + " " + nonce + " ", now: now, pause: time.Second}
}

// Progress says how far the operation has come: at once, then at most once a second, and ever less often after MaxProgress
// lines. The last one is said before the result. A line that cannot be written is no fault.
func (w *Writer) Progress(done, total int64) {
	w.pending = fmt.Sprintf("%s%s %d %d\n", w.start, wordProgress, done, total)
	if now := w.now(); w.told == 0 || now.Sub(w.last) >= w.pause {
		w.last = now
		w.tell()
	}
}

func (w *Writer) tell() {
	if w.told++; w.told > MaxProgress {
		w.pause *= 2
	}
	fmt.Fprint(w.out, w.pending)
	w.pending = ""
}

// Result writes the result to the log, and gives the termination message that goes with it: the same, or
// a brief one where it would be too long.
func (w *Writer) Result(result *api.FileResult) (message []byte, whole bool, err error) {
	text, err := json.Marshal(result)
	if err != nil {
		return nil, false, err
	}
	message, whole = w.message(result, text)
	if len(text) > MaxResult {
		return message, whole, fmt.Errorf("the result has %d bytes, more than %d", len(text), MaxResult)
	}
	if w.pending != "" {
		w.tell()
	}
	pieces := 0
	for piece := range split(text) {
		// One call for a line, so that nothing comes between.
		line := fmt.Appendf(nil, "%s%d %s\n", w.start, pieces, piece)
		if _, err := w.out.Write(line); err != nil {
			return message, whole, err
		}
		pieces++
	}
	_, err = fmt.Fprintf(w.out, "%s%s %d %d %s\n", w.start, wordEnd, pieces, len(text), digest(text))
	return message, whole, err
}

// split cuts the text into pieces for one line each, and no character in two: what stores the log may mend a piece that is not UTF-8.
func split(text []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			end := min(len(text), MaxPiece)
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end--
			}
			if !yield(text[:end]) {
				return
			}
			text = text[end:]
		}
	}
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func (w *Writer) message(result *api.FileResult, text []byte) (message []byte, whole bool) {
	start := []byte(w.start + wordResult + " ")
	if whole = len(start)+len(text) <= MaxTermination; !whole {
		_, text = shorten(result, text, MaxTermination-len(start))
	}
	return slices.Concat(start, text), whole
}

// Shorten is the result without its bulk, in at most MaxTermination bytes of JSON: entries, content, conflicts and a batch's
// results go, and then what else is long. Partial tells of the whole.
func Shorten(result *api.FileResult) (*api.FileResult, []byte) {
	text, _ := json.Marshal(result) // strings and numbers
	return shorten(result, text, MaxTermination)
}

func shorten(result *api.FileResult, text []byte, most int) (*api.FileResult, []byte) {
	brief := *result
	brief.Entries, brief.Content, brief.Conflicts, brief.Results = nil, nil, nil, nil
	brief.Partial = &api.FilePartial{Length: int64(len(text)), SHA256: digest(text)}
	for _, less := range []func(){
		func() { brief.Message = cut(brief.Message, 512) },
		func() { brief.Entry = nil },
		func() { brief.Path, brief.ArchiveEntry = cut(brief.Path, 128), cut(brief.ArchiveEntry, 128) },
		func() { brief.Message, brief.Path, brief.ArchiveEntry = cut(brief.Message, 128), "", "" },
		func() { brief.NextCursor = "" },
	} {
		if short, _ := json.Marshal(&brief); len(short) <= most { // strings and numbers
			return &brief, short
		}
		less()
	}
	short, _ := json.Marshal(&brief) // strings and numbers
	return &brief, short
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

var newline = []byte{'\n'}

// clean is the text in one line of printable characters: for what others wrote.
func clean(text []byte) string {
	return strings.Trim(fmt.Sprintf("%q", bytes.TrimSuffix(text, newline)), `"`)
}
