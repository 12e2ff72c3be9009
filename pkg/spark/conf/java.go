package conf

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// What Java's standard library does to texts and numbers differently from Go's.

// Trim drops leading and trailing characters up to U+0020, as Java's
// String.trim does. Unlike strings.TrimSpace it drops all control characters
// and keeps Unicode's spaces.
func Trim(s string) string {
	start, end := 0, len(s)
	for start < end && s[start] <= ' ' {
		start++
	}
	for start < end && s[end-1] <= ' ' {
		end--
	}
	return s[start:end]
}

// Lower is Java's toLowerCase(Locale.ROOT); it differs from strings.ToLower for
// İ, which becomes two code points, and for Σ at the end of a word.
func Lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	var b strings.Builder
	runes := []rune(s)
	for i, r := range runes {
		switch {
		case r == 'İ':
			b.WriteString("i\u0307")
		case r == 'Σ' && isFinal(runes, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(r))
		}
	}
	return b.String()
}

// isFinal tells whether a cased letter stands before runes[i] and none behind
// it, marks left aside (Unicode's Final_Sigma).
func isFinal(runes []rune, i int) bool {
	before, behind := i-1, i+1
	for before >= 0 && unicode.Is(unicode.Mn, runes[before]) {
		before--
	}
	for behind < len(runes) && unicode.Is(unicode.Mn, runes[behind]) {
		behind++
	}
	return before >= 0 && isCased(runes[before]) && (behind == len(runes) || !isCased(runes[behind]))
}

func isCased(r rune) bool { return unicode.IsLower(r) || unicode.IsUpper(r) || unicode.IsTitle(r) }

// ParseInt reads a 32-bit decimal integer as Java's Integer.parseInt does: "+"
// and "-" are allowed, white space is not.
func ParseInt(text string) (int, error) {
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, errors.New("should be int, a whole number of 32 bits")
	}
	return int(value), nil
}

// doubleSyntax is the grammar of java.lang.Double.valueOf, without the white space around it.
var doubleSyntax = regexp.MustCompile(`^[+-]?(?:NaN|Infinity|(?:` +
	`(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|` +
	`0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+` +
	`)[fFdD]?)$`)

// parseDouble is Java's Double.parseDouble.
func parseDouble(text string) (float64, error) {
	text = Trim(text)
	switch {
	case !doubleSyntax.MatchString(text):
		return 0, errors.New("should be double, a floating-point number")
	case strings.HasSuffix(text, "NaN"):
		return math.NaN(), nil
	}
	// Even a hexadecimal number ends with a decimal exponent, so the letters are the type suffix.
	// The only error left is a range error, whose value (0 or infinite) is already Java's.
	value, _ := strconv.ParseFloat(strings.TrimRight(text, "fFdD"), 64)
	return value, nil
}

// FormatDouble prints a number as Java's Double.toString does since JDK 19: the
// shortest digits that read back as f, but at least two, in plain notation from
// 10⁻³ up to 10⁷ and with an exponent elsewhere: "0.1", "1.0", "1.0E-4", "NaN", "-Infinity".
func FormatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0 || (math.Abs(f) >= 1e-3 && math.Abs(f) < 1e7):
		plain := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(plain, ".") {
			plain += ".0"
		}
		return plain
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	if !strings.Contains(scientific, ".") {
		scientific = strconv.FormatFloat(f, 'e', 1, 64)
	}
	digits, exponent, _ := strings.Cut(scientific, "e")
	power, _ := strconv.Atoi(exponent)
	return digits + "E" + strconv.Itoa(power)
}
