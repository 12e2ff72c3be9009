package runners

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestMask(t *testing.T) {
	for name, c := range map[string]struct{ text, value, want string }{
		"as it is":              {"cookie=abc!", "abc", "cookie=[...]!"},
		"short":                 {"a.b.c", ".", "a[...]b[...]c"},
		"empty":                 {"abc", "", "abc"},
		"as JSON writes it":     {`"a\"b\nc<"`, "a\"b\nc<", `"[...]"`},
		"line by line":          {"1: BEGIN KEY\n2: c2VjcmV0\n", "BEGIN KEY\n c2VjcmV0 \n", "1: [...]\n2: [...]\n"},
		"in base64":             {"dG9wIHNlY3JldA== dG9wIHNlY3JldA", "top secret", "[...] [...]"},
		"in base64 of URLs":     {"_-8_", "\xff\xef\x3f", "[...]"},
		"one in another":        {"secret-2 secret", "secret", "[...]-2 [...]"},
		"what stands for it is": {"[...]", "[", "[...]...]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mask(c.text, []string{c.value}); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	if got := mask("secret-2 secret", []string{"secret", "secret-2"}); got != "[...] [...]" {
		t.Errorf("the longest does not come first: %q", got)
	}
}

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
