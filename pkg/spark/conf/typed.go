package conf

import (
	"errors"
	"strconv"
	"strings"
)

// The typed reads. Each takes the key and the value that stands for an absent
// key; each returns an *Error that names the key when the text cannot be read.
// Defaults are given by the caller because one key may have several readers.
// They mirror org.apache.spark.internal.config.ConfigHelpers.

// Text is the substituted text of key, and whether the key is set. It is not trimmed.
func (c Conf) Text(key string) (value string, set bool, err error) {
	raw, set := c[key]
	if !set {
		return "", false, nil
	}
	value, err = c.substitute(key, raw)
	if err != nil {
		return "", true, err
	}
	return value, true, nil
}

// read converts the substituted text of key; an error of parse becomes an *Error that names the key.
func read[T any](c Conf, key string, absent T, parse func(string) (T, error)) (T, error) {
	text, set, err := c.Text(key)
	if err != nil || !set {
		return absent, err
	}
	value, err := parse(text)
	if err != nil {
		return absent, Refuse(key, c[key], "%s", err)
	}
	return value, nil
}

// Int reads a 32-bit integer as Java's Integer.parseInt does, after trimming.
func (c Conf) Int(key string, absent int) (int, error) {
	return read(c, key, absent, func(text string) (int, error) { return ParseInt(Trim(text)) })
}

// RawInt is Int without substitution and trimming (SparkConf.getInt).
func (c Conf) RawInt(key string, absent int) (int, error) {
	text, set := c[key]
	if !set {
		return absent, nil
	}
	value, err := ParseInt(text)
	if err != nil {
		return absent, Refuse(key, text, "illegal value for config key: %s", err)
	}
	return value, nil
}

// Int64 reads a 64-bit integer as Java's Long.parseLong does, after trimming.
func (c Conf) Int64(key string, absent int64) (int64, error) {
	return read(c, key, absent, func(text string) (int64, error) {
		value, err := strconv.ParseInt(Trim(text), 10, 64)
		if err != nil {
			return 0, errors.New("should be long, a whole number of 64 bits")
		}
		return value, nil
	})
}

// Double reads a floating-point number as Java's Double.parseDouble does: 1e3,
// NaN, Infinity, 0x1p3, 1.5d. Too large a number is infinite.
func (c Conf) Double(key string, absent float64) (float64, error) {
	return read(c, key, absent, parseDouble)
}

// Bool reads true or false in any case, after trimming.
func (c Conf) Bool(key string, absent bool) (bool, error) {
	return read(c, key, absent, func(text string) (bool, error) {
		switch word := Trim(text); {
		case strings.EqualFold(word, "true"):
			return true, nil
		case strings.EqualFold(word, "false"):
			return false, nil
		}
		return false, errors.New("should be boolean, true or false")
	})
}

// MiB reads a byte string whose unit is MiB when it names none, in whole MiB,
// truncated. One leading "-" makes it negative (ConfigHelpers.byteFromString).
// For binary see ParseBytes.
func (c Conf) MiB(key string, absent int64, binary bool) (int64, error) {
	return read(c, key, absent, func(text string) (int64, error) {
		magnitude, negative := strings.CutPrefix(text, "-")
		value, err := ParseBytes(magnitude, MiB, binary)
		if negative {
			value = -value
		}
		return value, err
	})
}

// Millis reads a time string whose unit is milliseconds when it names none.
func (c Conf) Millis(key string, absent int64) (int64, error) {
	return read(c, key, absent, ParseMillis)
}

// Seconds reads a time string whose unit is seconds when it names none, truncated to whole seconds.
func (c Conf) Seconds(key string, absent int64) (int64, error) {
	return read(c, key, absent, func(text string) (int64, error) { return parseTime(text, "s") })
}

// Strings reads a comma-separated list: each element trimmed, empty ones dropped.
func (c Conf) Strings(key string) ([]string, error) {
	return read(c, key, nil, func(text string) ([]string, error) { return SplitList(text), nil })
}

// SplitList splits at commas, trims each element and drops empty ones (Utils.stringToSeq).
func SplitList(text string) []string {
	var list []string
	for element := range strings.SplitSeq(text, ",") {
		if element = Trim(element); element != "" {
			list = append(list, element)
		}
	}
	return list
}

// OneOf reads a text that must be one of the allowed values, exact case. An absent key is not checked.
func (c Conf) OneOf(key, absent string, allowed ...string) (string, error) {
	return read(c, key, absent, func(text string) (string, error) {
		for _, a := range allowed {
			if text == a {
				return text, nil
			}
		}
		return "", errors.New("should be one of " + strings.Join(allowed, ", "))
	})
}
