package conf_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"flint.dev/flint/pkg/spark/conf"
)

func TestParseBytes(t *testing.T) {
	cases := map[string]struct {
		text   string
		unit   int64
		binary bool
		want   int64
		reason string
	}{
		"bytes":             {text: "512", unit: conf.Byte, want: 512},
		"b":                 {text: "7b", unit: conf.Byte, want: 7},
		"k":                 {text: "1k", unit: conf.Byte, want: 1024},
		"kb":                {text: "1kb", unit: conf.Byte, want: 1024},
		"mb":                {text: "1mb", unit: conf.KiB, want: 1024},
		"m":                 {text: "1m", unit: conf.KiB, want: 1024},
		"g":                 {text: "1g", unit: conf.MiB, want: 1024},
		"t":                 {text: "1t", unit: conf.GiB, want: 1024},
		"tb":                {text: "3TB", unit: conf.TiB, want: 3},
		"p":                 {text: "1p", unit: conf.TiB, want: 1024},
		"pb":                {text: "2pb", unit: conf.PiB, want: 2},
		"down":              {text: "1048575b", unit: conf.MiB, want: 0},
		"kelvin sign":       {text: "1\u212a", unit: conf.Byte, want: 1024},
		"largest":           {text: "8191p", unit: conf.Byte, want: 8191 << 50},
		"conversion beyond": {text: "8192p", unit: conf.Byte, reason: "exceeds"},
		"number beyond":     {text: "9223372036854775808", unit: conf.Byte, reason: "64 bits"},
		"fraction":          {text: "1.5", unit: conf.Byte, reason: "Fractional values are not supported"},
		"fraction suffix":   {text: "0.5gb", unit: conf.Byte, reason: "Fractional values are not supported"},
		"fraction open":     {text: "1.", unit: conf.Byte, reason: "Failed to parse"},
		"fraction twice":    {text: "1.5.5", unit: conf.Byte, reason: "Failed to parse"},
		"suffix":            {text: "1gib", unit: conf.Byte, reason: `Invalid suffix: "gib"`},
		"ki":                {text: "1ki", unit: conf.Byte, binary: true, want: 1024},
		"MiB":               {text: "2MiB", unit: conf.KiB, binary: true, want: 2048},
		"gib":               {text: "1gib", unit: conf.MiB, binary: true, want: 1024},
		"ti and pib":        {text: "1pib", unit: conf.TiB, binary: true, want: 1024},
		"binary suffix":     {text: "1eib", unit: conf.Byte, binary: true, reason: `Invalid suffix: "eib"`},
		"negative":          {text: "-1", unit: conf.Byte, reason: "Failed to parse"},
		"plus":              {text: "+1", unit: conf.Byte, reason: "Failed to parse"},
		"inner blank":       {text: "1 g", unit: conf.Byte, reason: "Failed to parse"},
		"suffix only":       {text: "g", unit: conf.Byte, reason: "Failed to parse"},
		"suffix digits":     {text: "1g1", unit: conf.Byte, reason: "Failed to parse"},
		"empty":             {text: "", unit: conf.Byte, reason: "Failed to parse"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := conf.ParseBytes(tc.text, tc.unit, tc.binary)
			checkParsed(t, got, err, tc.want, tc.reason)
		})
	}
}

func TestParseMillis(t *testing.T) {
	cases := map[string]struct {
		text   string
		want   int64
		reason string
	}{
		"no unit":       {text: "250", want: 250},
		"us":            {text: "1999us", want: 1},
		"ms":            {text: "-3ms", want: -3},
		"s":             {text: " 3S ", want: 3000},
		"m":             {text: "1m", want: 60_000},
		"min":           {text: "1min", want: 60_000},
		"h":             {text: "1h", want: 3_600_000},
		"d":             {text: "1d", want: 86_400_000},
		"saturates":     {text: "9223372036854775807s", want: math.MaxInt64},
		"saturates low": {text: "-9223372036854775808d", want: math.MinInt64},
		"smallest":      {text: "-9223372036854775808", want: math.MinInt64},
		"beyond":        {text: "9223372036854775808", reason: "64 bits"},
		"suffix":        {text: "1hour", reason: `Invalid suffix: "hour"`},
		"fraction":      {text: "1.5s", reason: "Failed to parse"},
		"plus":          {text: "+1s", reason: "Failed to parse"},
		"two signs":     {text: "--1s", reason: "Failed to parse"},
		"sign only":     {text: "-", reason: "Failed to parse"},
		"empty":         {text: "", reason: "Failed to parse"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := conf.ParseMillis(tc.text)
			checkParsed(t, got, err, tc.want, tc.reason)
		})
	}
}

// checkParsed wants the value, or an error that contains reason.
func checkParsed(t *testing.T, got int64, err error, want int64, reason string) {
	t.Helper()
	switch {
	case reason == "" && err != nil:
		t.Errorf("error %v, want %d", err, want)
	case reason == "" && got != want:
		t.Errorf("got %d, want %d", got, want)
	case reason != "" && (err == nil || !strings.Contains(err.Error(), reason)):
		t.Errorf("got %d, error %v, want an error with %q", got, err, reason)
	}
}

func FuzzBytes(f *testing.F) {
	for _, seed := range []string{"", "1g", "1.5g", "8192p", "-1", "2 g", "1gib", "9223372036854775807k", "\u212a", "01m"} {
		f.Add(seed)
	}
	// The pattern of JavaUtils.byteStringAs, to decide what is well formed independently.
	wellFormed := regexp.MustCompile(`^[0-9]+([kmgtp](b|ib?)?|b)?$`)
	f.Fuzz(func(t *testing.T, text string) {
		bytes, err := conf.ParseBytes(text, conf.Byte, true)
		mib, mibErr := conf.ParseBytes(text, conf.MiB, true)
		lower := conf.Trim(conf.Lower(text))
		if !wellFormed.MatchString(lower) {
			if err == nil || mibErr == nil {
				t.Fatalf("%q is read as %d bytes, %d MiB", text, bytes, mib)
			}
			return
		}
		if err == nil && bytes < 0 || mibErr == nil && mib < 0 {
			t.Fatalf("%q is read as %d bytes, %d MiB", text, bytes, mib)
		}
		bare := !strings.ContainsAny(lower, "bkmgtp")
		if err == nil && mibErr == nil && !bare && mib != bytes>>20 {
			t.Fatalf("%q is read as %d bytes but %d MiB", text, bytes, mib)
		}
		if err == nil && !bare {
			if again, err := conf.ParseBytes(fmt.Sprintf("%db", bytes), conf.Byte, true); err != nil || again != bytes {
				t.Fatalf("%q is %d bytes, read back as %d, %v", text, bytes, again, err)
			}
		}
	})
}

func FuzzTime(f *testing.F) {
	for _, seed := range []string{"", "1s", "-1min", "1.5s", "9223372036854775807d", "90", "1 s", "-", "1us"} {
		f.Add(seed)
	}
	wellFormed := regexp.MustCompile(`^-?[0-9]+(us|ms|s|m|min|h|d)?$`)
	f.Fuzz(func(t *testing.T, text string) {
		millis, err := conf.ParseMillis(text)
		seconds, secondsErr := conf.Conf{"spark.t": text}.Seconds("spark.t", 0)
		if (err == nil) && !wellFormed.MatchString(conf.Trim(conf.Lower(text))) {
			t.Fatalf("%q is read as %d ms", text, millis)
		}
		if strings.Contains(text, "${") {
			return
		}
		if (err == nil) != (secondsErr == nil) {
			t.Fatalf("%q: milliseconds %v, seconds %v", text, err, secondsErr)
		}
		hasUnit := strings.ContainsAny(conf.Lower(text), "usmhd")
		saturated := millis == math.MaxInt64 || millis == math.MinInt64
		if err == nil && hasUnit && !saturated && millis/1000 != seconds {
			t.Fatalf("%q is %d ms but %d s", text, millis, seconds)
		}
	})
}
