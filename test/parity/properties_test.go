package parity

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sparkconf "flint.dev/flint/pkg/spark/conf"
)

func TestParseProperties(t *testing.T) {
	cases := map[string]struct {
		text string
		want map[string]string
	}{
		"three separators":  {"a=1\nb:2\nc 3\nd = 4\ne\t:\t5", map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}},
		"only a key":        {"a\nb=", map[string]string{"a": "", "b": ""}},
		"escapes":           {`a\ b\=\:=\ x\t\n\r\f\\\#\!\q`, map[string]string{"a b=:": " x\t\n\r\f\\#!q"}},
		"unicode":           {`\u0061=\u00fc\ud83d\ude00x`, map[string]string{"a": "ü😀x"}},
		"continued":         {"a=1\\\n   2\\\\\nb=3", map[string]string{"a": "12\\", "b": "3"}},
		"comments":          {"# a=1\n  ! b=2\nc=3\n#d=4\\\ne=5", map[string]string{"c": "3", "e": "5"}},
		"comment sign":      {"a=#\nb=x#y", map[string]string{"a": "#", "b": "x#y"}},
		"white space after": {"a=1 \t\n \t \nb=2", map[string]string{"a": "1 \t", "b": "2"}},
		"line ends":         {"a=1\r\nb=2\rc=3", map[string]string{"a": "1", "b": "2", "c": "3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseProperties(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.values); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
	for name, text := range map[string]string{"key twice": "a=1\na=2", "short escape": `a=\u12`, "no hex": `a=\uzzzz`} {
		if got, err := parseProperties(text); err == nil {
			t.Errorf("%s: got %v, want an error", name, got.values)
		}
	}
}

// What Flint writes is what a reader of Java properties reads, whatever the characters.
func TestPropertiesRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("ab.=: \t\n\r\f\\#!'\"$\u0001\u007f\u0085\u00a0ü\u2028日😀")
	text := func() string {
		var b strings.Builder
		for range random.IntN(12) {
			b.WriteRune(alphabet[random.IntN(len(alphabet))])
		}
		return b.String()
	}
	for i := range 2000 {
		want := sparkconf.Conf{}
		for range random.IntN(20) {
			want["spark."+text()] = text()
		}
		got, err := parseProperties(want.Properties("comment "+text(), "two"))
		if err != nil {
			t.Fatalf("%d: %q: %v", i, want, err)
		}
		if diff := cmp.Diff(map[string]string(want), got.values); diff != "" {
			t.Fatal(fmt.Sprintf("%d (-want,+got):\n", i), diff)
		}
	}
}
