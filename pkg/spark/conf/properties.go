package conf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
)

// Properties is the text of spark.properties: the comment lines, each behind a
// "#", then one key=value line a property, sorted by key, escaped as
// java.util.Properties.store does to a character stream (no \u escapes).
//
// A comment of several lines gets a "#" before each, so that it cannot become a property.
func (c Conf) Properties(comments ...string) string {
	var b strings.Builder
	for _, comment := range comments {
		writeComment(&b, comment)
	}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		escape(&b, key, true)
		b.WriteByte('=')
		escape(&b, c[key], false)
		b.WriteByte('\n')
	}
	return b.String()
}

// writeComment is Properties.writeComments: characters above U+00FF become \u
// escapes, every line break is followed by a "#" unless a comment sign stands there.
func writeComment(b *strings.Builder, comment string) {
	comment = strings.ReplaceAll(comment, "\r\n", "\n")
	b.WriteByte('#')
	for i, r := range comment {
		switch {
		case r == '\n' || r == '\r':
			b.WriteByte('\n')
			if next := comment[i+1:]; !strings.HasPrefix(next, "#") && !strings.HasPrefix(next, "!") {
				b.WriteByte('#')
			}
		case r > 0xFF:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, `\u%04X`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\n')
}

// escape is Properties.saveConvert without Unicode escapes. In a key every
// space is escaped, in a value only the first character if it is one.
func escape(b *strings.Builder, text string, key bool) {
	for i := range len(text) {
		switch ch := text[i]; ch {
		case ' ':
			if key || i == 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(' ')
		case '\t':
			b.WriteString(`\t`)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\f':
			b.WriteString(`\f`)
		case '\\', '=', ':', '#', '!':
			b.WriteByte('\\')
			b.WriteByte(ch)
		default:
			b.WriteByte(ch)
		}
	}
}
