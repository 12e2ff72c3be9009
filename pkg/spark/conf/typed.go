package conf

// The typed reads. Each takes the key and the value that stands for an absent
// key; each returns an *Error that names the key when the text cannot be read.
// Defaults are given by the caller because one key may have several readers.

// Text is the substituted text of key, and whether the key is set.
func (c Conf) Text(key string) (value string, set bool, err error) { panic("todo") }

// Int reads a 32-bit integer as Java's Integer.parseInt does, after trimming.
func (c Conf) Int(key string, absent int) (int, error) { panic("todo") }

// RawInt is Int without substitution and trimming (SparkConf.getInt).
func (c Conf) RawInt(key string, absent int) (int, error) { panic("todo") }

// Int64 reads a 64-bit integer.
func (c Conf) Int64(key string, absent int64) (int64, error) { panic("todo") }

// Double reads a floating-point number as Java's Double.parseDouble does.
func (c Conf) Double(key string, absent float64) (float64, error) { panic("todo") }

// Bool reads true or false in any case.
func (c Conf) Bool(key string, absent bool) (bool, error) { panic("todo") }

// MiB reads a byte string whose unit is MiB when it names none, in whole MiB, truncated.
func (c Conf) MiB(key string, absent int64) (int64, error) { panic("todo") }

// Millis reads a time string whose unit is milliseconds when it names none.
func (c Conf) Millis(key string, absent int64) (int64, error) { panic("todo") }

// Seconds reads a time string whose unit is seconds when it names none.
func (c Conf) Seconds(key string, absent int64) (int64, error) { panic("todo") }

// Strings reads a comma-separated list: each element trimmed, empty ones dropped.
func (c Conf) Strings(key string) ([]string, error) { panic("todo") }

// OneOf reads a text that must be one of the allowed values, exact case.
func (c Conf) OneOf(key, absent string, allowed ...string) (string, error) { panic("todo") }

// ParseBytes reads a byte string (JavaUtils.byteStringAs) and converts it to
// multiples of unit, in bytes (1 for bytes, 1<<20 for MiB), truncated. A text without a suffix is in units.
func ParseBytes(text string, unit int64) (int64, error) { panic("todo") }

// ParseMillis reads a time string (JavaUtils.timeStringAs) whose unit is milliseconds when it names none.
func ParseMillis(text string) (int64, error) { panic("todo") }

// FormatDouble prints a number as Java's Double.toString does: "0.1", "1.0", "1.0E-4".
func FormatDouble(f float64) string { panic("todo") }

// Trim drops leading and trailing characters up to U+0020, as Java's String.trim does.
func Trim(s string) string { panic("todo") }

// Lower is Java's toLowerCase(Locale.ROOT); it differs from strings.ToLower for İ and final Σ.
func Lower(s string) string { panic("todo") }

// Properties is the text of spark.properties: the comment lines, each behind a
// "#", then one key=value line a property, sorted by key, escaped as
// java.util.Properties.store does to a character stream (no \u escapes).
func (c Conf) Properties(comments ...string) string { panic("todo") }
