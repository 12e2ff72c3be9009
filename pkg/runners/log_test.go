package runners

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLastOf(t *testing.T) {
	long := strings.Repeat("é", maxTail)
	for name, c := range map[string]struct{ text, want string }{
		"short":           {" a\nb \n", "a\nb"},
		"from a new line": {strings.Repeat("x", maxTail) + "\nlast", "last"},
		"one long line":   {long, strings.Repeat("é", maxTail/2)},
		"exactly":         {strings.Repeat("x", maxTail), strings.Repeat("x", maxTail)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lastOf(c.text); got != c.want || len(got) > maxTail || !utf8.ValidString(got) {
				t.Errorf("%d bytes, want %d", len(got), len(c.want))
			}
		})
	}
}

func TestDelay(t *testing.T) {
	for failures, want := range map[int]string{1: "30s", 2: "1m0s", 3: "2m0s", 4: "4m0s", 5: "5m0s", 6: "5m0s", 1 << 30: "5m0s"} {
		if got := delay(failures).String(); got != want {
			t.Errorf("after %d: %s, want %s", failures, got, want)
		}
	}
}
