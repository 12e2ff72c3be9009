package conf

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Byte units, for ParseBytes.
const (
	Byte int64 = 1
	KiB        = Byte << 10
	MiB        = Byte << 20
	GiB        = Byte << 30
	TiB        = Byte << 40
	PiB        = Byte << 50
)

// byteSuffixes are powers of 1024 (JavaUtils.byteSuffixes).
var byteSuffixes = map[string]int64{
	"b": Byte,
	"k": KiB, "kb": KiB,
	"m": MiB, "mb": MiB,
	"g": GiB, "gb": GiB,
	"t": TiB, "tb": TiB,
	"p": PiB, "pb": PiB,
}

// binarySuffixes are those that Spark 4.2 added.
var binarySuffixes = map[string]int64{
	"ki": KiB, "kib": KiB,
	"mi": MiB, "mib": MiB,
	"gi": GiB, "gib": GiB,
	"ti": TiB, "tib": TiB,
	"pi": PiB, "pib": PiB,
}

const (
	byteHelp = "Size must be specified as bytes (b), kibibytes (k), mebibytes (m), gibibytes (g), tebibytes (t), or pebibytes (p), e.g. 50b, 100k, or 250m"
	timeHelp = "Time must be specified as seconds (s), milliseconds (ms), microseconds (us), minutes (m or min), hour (h), or day (d), e.g. 50s, 100ms, or 250us"
)

// ParseBytes reads a byte string (JavaUtils.byteStringAs) and converts it to
// multiples of unit, in bytes (1 for bytes, 1<<20 for MiB), truncated. A text
// without a suffix is in units. Digits and suffix touch; the case of the suffix
// does not matter; there is no sign and no fraction. A result beyond 64 bits is an error.
// The suffixes ki, kib, mi, ... are read if binary is set (version.Features.BinarySuffixes).
func ParseBytes(text string, unit int64, binary bool) (int64, error) {
	lower := Trim(Lower(text))
	number, suffix := cutDigits(lower)
	switch {
	case isFraction(number, suffix):
		return 0, errors.New(byteHelp + ". Fractional values are not supported")
	case number == "" || !isLetters(suffix):
		return 0, errors.New(byteHelp + ". Failed to parse byte string")
	}
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, errors.New(byteHelp + ". The number does not fit into 64 bits")
	}
	size := unit
	if suffix != "" {
		var known bool
		if size, known = byteSuffixes[suffix]; !known && binary {
			size, known = binarySuffixes[suffix]
		}
		if !known {
			return 0, fmt.Errorf("%s. Invalid suffix: %q", byteHelp, suffix)
		}
	}
	if size <= unit {
		return count / (unit / size), nil
	}
	ratio := size / unit
	if math.MaxInt64/ratio < count {
		return 0, fmt.Errorf("conversion of %d exceeds 64 bits. Try a larger unit (e.g. MiB instead of KiB)", count)
	}
	return count * ratio, nil
}

// timeSuffixes are the lengths of the units in microseconds (JavaUtils.timeSuffixes).
var timeSuffixes = map[string]int64{
	"us":  1,
	"ms":  1_000,
	"s":   1_000_000,
	"m":   60_000_000,
	"min": 60_000_000,
	"h":   3_600_000_000,
	"d":   86_400_000_000,
}

// ParseMillis reads a time string (JavaUtils.timeStringAs) whose unit is
// milliseconds when it names none. It may be negative and is truncated toward
// zero; what does not fit becomes the largest or smallest 64-bit number, as in
// java.util.concurrent.TimeUnit.
func ParseMillis(text string) (int64, error) { return parseTime(text, "ms") }

// parseTime reads a time string in whole multiples of the unit, which is a key of timeSuffixes.
func parseTime(text, unit string) (int64, error) {
	lower := Trim(Lower(text))
	magnitude, negative := strings.CutPrefix(lower, "-")
	number, suffix := cutDigits(magnitude)
	if number == "" || !isLetters(suffix) {
		return 0, errors.New(timeHelp + ". Failed to parse time string")
	}
	if negative {
		number = "-" + number
	}
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, errors.New(timeHelp + ". The number does not fit into 64 bits")
	}
	if suffix == "" {
		return count, nil
	}
	length, known := timeSuffixes[suffix]
	if !known {
		return 0, fmt.Errorf("%s. Invalid suffix: %q", timeHelp, suffix)
	}
	if length <= timeSuffixes[unit] {
		return count / (timeSuffixes[unit] / length), nil
	}
	return saturatedProduct(count, length/timeSuffixes[unit]), nil
}

// saturatedProduct is count × ratio, held at the ends of int64. The ratio is positive.
func saturatedProduct(count, ratio int64) int64 {
	switch {
	case count > math.MaxInt64/ratio:
		return math.MaxInt64
	case count < math.MinInt64/ratio:
		return math.MinInt64
	}
	return count * ratio
}

// cutDigits cuts the leading ASCII digits off s.
func cutDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// isFraction tells digits.digits with optional letters behind; rest is what follows the first digits.
func isFraction(digits, rest string) bool {
	rest, dotted := strings.CutPrefix(rest, ".")
	fraction, suffix := cutDigits(rest)
	return digits != "" && dotted && fraction != "" && isLetters(suffix)
}

// isLetters tells whether s consists of a to z only; it may be empty.
func isLetters(s string) bool {
	for i := range len(s) {
		if s[i] < 'a' || 'z' < s[i] {
			return false
		}
	}
	return true
}
