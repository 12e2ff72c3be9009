package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// Whatever the request holds, the body of an event's refusal fits into a dead letter, and says why.
func TestBodyWithin(t *testing.T) {
	for _, filler := range []string{"x", `"`, `\`, "\u2028", "\x07", "é", "\xff"} {
		long := strings.Repeat(filler, 5000)
		id := strings.Repeat(filler, 253/len(filler))
		if checkSubmissionID(id) != nil {
			id = ""
		}
		for code := range status {
			e := FieldErrorf(code, long, "why: %s", long)
			text := e.BodyWithin(700, e.Status(), id, time.Now())
			var body ErrorBody
			if err := json.Unmarshal(text, &body); err != nil || len(text) > 700 || body.ErrorCode != code || body.SubmissionID != id || !strings.HasPrefix(body.Message, "why: ") {
				t.Errorf("%q, %s: %v, %d bytes: %s", filler, code, err, len(text), text)
			}
		}
	}
	small := FieldErrorf(BadRequest, "submission_id", "submission_id is required").BodyWithin(700, 400, "", time.Now())
	if !strings.Contains(string(small), `"field":"submission_id"`) {
		t.Errorf("%s", small)
	}
}
