package protocol

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"flint.dev/flint/pkg/api"
)

// tailSize is how much of the end of a log without a result is told.
const tailSize = 512

// Read reads a log to its end, and gives the result and the last progress of the run with the nonce. It holds at most MaxResult bytes
// and a little, however long the log and its lines are. Lines of others are ignored. The termination message of the
// same container, if there is one, must agree.
//
// The error is an *api.Error: RESULT_MISSING when there is no result, with the end of the log; RESULT_INCONSISTENT when there is
// one that cannot be trusted: pieces are missing, mixed or altered, it is no JSON, its code is none of FileCodes, or the
// termination message says something else. An error of the reader itself is given as it is. Progress is given with
// an error too, where there was some; it is nil else.
func Read(log io.Reader, nonce, termination string) (*api.FileResult, *api.FileProgress, error) {
	c := &collector{start: []byte(Prefix + " " + nonce + " ")}
	if err := c.readAll(log); err != nil {
		return nil, c.progress, err
	}
	result, err := c.result(readBrief(termination, nonce))
	return result, c.progress, err
}

// Brief reads a termination message. The result is nil when it is none of the run with the nonce; whole tells that nothing was left out of
// it, and that the log need not be read.
func Brief(termination, nonce string) (result *api.FileResult, whole bool) {
	result, _ = readBrief(termination, nonce)
	return result, result != nil && result.Partial == nil
}

// readBrief is Brief with the JSON as it was written.
func readBrief(termination, nonce string) (*api.FileResult, string) {
	text, found := strings.CutPrefix(termination, Prefix+" "+nonce+" "+wordResult+" ")
	if !found || nonce == "" {
		return nil, ""
	}
	result, err := decode([]byte(text))
	if err != nil {
		return nil, ""
	}
	return result, text
}

// collector gathers one run's pieces.
type collector struct {
	start []byte

	text     bytes.Buffer
	pieces   int
	ended    bool
	fault    string // what makes the result one that cannot be trusted; empty while nothing does
	progress *api.FileProgress
	tail     []byte
}

func (c *collector) readAll(log io.Reader) error {
	// The longest line of ours, and the longest piece into which a container runtime splits one (16 KiB).
	reader := bufio.NewReaderSize(log, 16<<10)
	begin := true // of a line
	for {
		part, err := reader.ReadSlice('\n')
		c.remember(part)
		complete := err == nil
		if begin && (complete || errors.Is(err, io.EOF)) {
			c.line(bytes.TrimSuffix(part, newline), complete)
		}
		begin = complete
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// remember keeps the end of the log.
func (c *collector) remember(part []byte) {
	if len(part) >= tailSize {
		c.tail = append(c.tail[:0], part[len(part)-tailSize:]...)
		return
	}
	c.tail = append(c.tail, part...)
	if over := len(c.tail) - tailSize; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
}

// line reads one line. The last one may be incomplete, and then counts for nothing: what is missing of it is noticed.
func (c *collector) line(line []byte, complete bool) {
	rest, ours := bytes.CutPrefix(line, c.start)
	if !ours || !complete {
		return
	}
	word, value, _ := strings.Cut(string(rest), " ")
	switch word {
	case wordProgress:
		c.readProgress(value)
	case wordEnd:
		c.readEnd(value)
	default:
		c.readPiece(word, value)
	}
}

func (c *collector) readProgress(value string) {
	done, total, _ := strings.Cut(value, " ")
	d, err := strconv.ParseInt(done, 10, 64)
	t, err2 := strconv.ParseInt(total, 10, 64)
	if err == nil && err2 == nil && d >= 0 && t >= 0 {
		c.progress = &api.FileProgress{Done: d, Total: t}
	}
}

func (c *collector) distrust(fault string) {
	if c.fault == "" {
		c.fault = fault
	}
}

func (c *collector) readPiece(number, value string) {
	switch {
	case c.ended:
		c.distrust("there are pieces after its end")
	case number != strconv.Itoa(c.pieces):
		c.distrust("its pieces are not all there, or not in their order")
	case c.text.Len()+len(value) > MaxResult:
		c.distrust("it is longer than any")
	case c.fault == "":
		c.text.WriteString(value)
	}
	c.pieces++
}

func (c *collector) readEnd(value string) {
	if c.ended {
		c.distrust("it has two ends")
	}
	c.ended = true
	count, rest, _ := strings.Cut(value, " ")
	length, sum, _ := strings.Cut(rest, " ")
	if count != strconv.Itoa(c.pieces) || length != strconv.Itoa(c.text.Len()) || sum != digest(c.text.Bytes()) {
		c.distrust("its pieces are not what they were when they were written")
	}
}

// result judges what was gathered, beside the termination message's result, which may be nil, and its JSON.
func (c *collector) result(brief *api.FileResult, briefText string) (*api.FileResult, error) {
	if c.pieces == 0 && !c.ended {
		if brief != nil && brief.Partial == nil { // the log was lost; the message has all of it
			return brief, nil
		}
		return nil, api.Errorf(api.ResultMissing, "the log has no result; it ends with: %s", clean(c.tail))
	}
	if !c.ended {
		c.distrust("its end is missing")
	}
	if c.fault != "" {
		return nil, inconsistent(c.fault)
	}
	text := c.text.Bytes()
	result, err := decode(text)
	switch {
	case err != nil:
		return nil, err
	case result.Partial != nil:
		return nil, inconsistent("the log has only a part of it")
	case brief == nil:
		return result, nil
	}
	told := brief.Partial
	if told == nil {
		told = &api.FilePartial{Length: int64(len(briefText)), SHA256: digest([]byte(briefText))}
	}
	if told.Length != int64(len(text)) || told.SHA256 != digest(text) || brief.Code != result.Code {
		return nil, inconsistent("the termination message tells of another")
	}
	return result, nil
}

func inconsistent(why string) *api.Error {
	return api.Errorf(api.ResultInconsistent, "the result cannot be trusted: %s", why)
}

// decode reads a result's JSON. A code that is unknown is an error, and so never taken for a success or for anything else.
func decode(text []byte) (*api.FileResult, error) {
	var result api.FileResult
	if err := json.Unmarshal(text, &result); err != nil {
		return nil, inconsistent("it is no JSON of a result")
	}
	if result.Op == "" {
		return nil, inconsistent("it is of no operation")
	}
	if code, known := knownCodes(&result); !known {
		return nil, inconsistent("its code " + strconv.Quote(string(code)) + " is not known")
	}
	return &result, nil
}

func knownCodes(result *api.FileResult) (api.Code, bool) {
	if result.Code != "" && !slices.Contains(api.FileCodes, result.Code) {
		return result.Code, false
	}
	for i := range result.Results {
		if code, known := knownCodes(&result.Results[i]); !known {
			return code, false
		}
	}
	return "", true
}
