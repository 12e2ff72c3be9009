package conf_test

import (
	"math"
	"strconv"
	"testing"

	"flint.dev/flint/pkg/spark/conf"
)

func TestFormatDouble(t *testing.T) {
	cases := map[float64]string{
		1:                               "1.0",
		-1.5:                            "-1.5",
		0.1:                             "0.1",
		0.4:                             "0.4",
		0.25:                            "0.25",
		0.001:                           "0.001",
		0.002:                           "0.002",
		0.00099:                         "9.9E-4",
		1e-4:                            "1.0E-4",
		123456.789:                      "123456.789",
		9999999:                         "9999999.0",
		1e7:                             "1.0E7",
		12345678:                        "1.2345678E7",
		1e23:                            "1.0E23",
		2e23:                            "2.0E23",
		1.1e-300:                        "1.1E-300",
		math.SmallestNonzeroFloat64:     "4.9E-324",
		2 * math.SmallestNonzeroFloat64: "9.9E-324",
		math.MaxFloat64:                 "1.7976931348623157E308",
		math.Inf(1):                     "Infinity",
		math.Inf(-1):                    "-Infinity",
		1.0 / 3:                         "0.3333333333333333",
	}
	for f, want := range cases {
		t.Run(want, func(t *testing.T) {
			if got := conf.FormatDouble(f); got != want {
				t.Errorf("FormatDouble(%g) = %s, want %s", f, got, want)
			}
		})
	}
	for want, f := range map[string]float64{"0.0": 0, "-0.0": math.Copysign(0, -1), "NaN": math.NaN()} {
		t.Run(want, func(t *testing.T) {
			if got := conf.FormatDouble(f); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func FuzzFormatDouble(f *testing.F) {
	for _, seed := range []float64{0.1, 1e7, 5e-324, 2e23, 123456.789, -1e-3} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, number float64) {
		if math.IsNaN(number) || math.IsInf(number, 0) {
			return
		}
		text := conf.FormatDouble(number)
		if back, err := strconv.ParseFloat(text, 64); err != nil || back != number {
			t.Fatalf("%g is printed as %s, which is %g, %v", number, text, back, err)
		}
	})
}

func TestTrim(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"spaces":         {"  a b ", "a b"},
		"controls":       {"\x00\t\x1fa\x1c\r\n", "a"},
		"no-break space": {"\u00a0a\u2003", "\u00a0a\u2003"},
		"nothing left":   {" \x01 ", ""},
		"empty":          {"", ""},
		"delete":         {"\x7fa", "\x7fa"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := conf.Trim(tc.text); got != tc.want {
				t.Errorf("Trim(%q) = %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}

func TestLower(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"ascii":             {"Spark Pi", "spark pi"},
		"umlaut":            {"ÜBER", "über"},
		"dotted I":          {"İstanbul", "i\u0307stanbul"},
		"dotless kept":      {"ı", "ı"},
		"final sigma":       {"ΟΔΟΣ", "οδος"},
		"inner sigma":       {"ΣΟΣΑ", "σοσα"},
		"sigma alone":       {"Σ", "σ"},
		"sigma before dash": {"ΑΣ-1", "ας-1"},
		"sigma and mark":    {"Α\u0301Σ\u0301", "α\u0301ς\u0301"},
		"kelvin":            {"\u212a", "k"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := conf.Lower(tc.text); got != tc.want {
				t.Errorf("Lower(%q) = %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}
