package conf_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"flint.dev/flint/pkg/spark/conf"
)

// key is the key under test; it is not sensitive.
const key = "spark.test.key"

// reading is what a typed read gives for one text: a value or the reason of a refusal.
type reading[T any] struct {
	text   string
	want   T
	reason string
}

func testReads[T any](t *testing.T, cases map[string]reading[T], absent T, read func(conf.Conf, string, T) (T, error)) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := read(conf.Conf{key: tc.text}, key, absent)
			checkReason(t, err, key, tc.reason)
			if tc.reason != "" {
				tc.want = absent
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%q (-want,+got):\n%s", tc.text, diff)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		got, err := read(conf.Conf{}, key, absent)
		if diff := cmp.Diff(absent, got); diff != "" || err != nil {
			t.Errorf("absent key: error %v, (-want,+got):\n%s", err, diff)
		}
	})
}

// checkReason wants no error if reason is empty, else an *Error of that name whose reason contains it.
func checkReason(t *testing.T, err error, name, reason string) {
	t.Helper()
	if reason == "" {
		if err != nil {
			t.Fatalf("error %v", err)
		}
		return
	}
	var refusal *conf.Error
	if !errors.As(err, &refusal) {
		t.Fatalf("error is %#v, want a *conf.Error", err)
	}
	if refusal.Name != name || !strings.Contains(refusal.Reason, reason) {
		t.Errorf("refused %q because %q, want %q because of %q", refusal.Name, refusal.Reason, name, reason)
	}
}

func TestInt(t *testing.T) {
	testReads(t, map[string]reading[int]{
		"plus":                {text: "+2", want: 2},
		"minus":               {text: "-7", want: -7},
		"trimmed":             {text: " \t2\x00", want: 2},
		"max":                 {text: "2147483647", want: math.MaxInt32},
		"min":                 {text: "-2147483648", want: math.MinInt32},
		"overflow":            {text: "2147483648", reason: "int"},
		"fraction":            {text: "1.5", reason: "int"},
		"B52_ui_port_invalid": {text: "x", reason: "int"},
		"hex":                 {text: "0x10", reason: "int"},
		"underscore":          {text: "1_0", reason: "int"},
		"empty":               {text: "", reason: "int"},
		"wide space":          {text: "\u00a02", reason: "int"},
		"reference":           {text: "${spark.ui.port}", want: 4040},
	}, -5, conf.Conf.Int)
}

func TestRawInt(t *testing.T) {
	testReads(t, map[string]reading[int]{
		"plain":                   {text: "+7", want: 7},
		"B52_driver_port_invalid": {text: "x", reason: "illegal value for config key"},
		"blank":                   {text: " 7", reason: "illegal value for config key"},
		"reference":               {text: "${spark.ui.port}", reason: "illegal value for config key"},
	}, -5, conf.Conf.RawInt)
}

func TestInt64(t *testing.T) {
	testReads(t, map[string]reading[int64]{
		"max":      {text: " 9223372036854775807 ", want: math.MaxInt64},
		"overflow": {text: "9223372036854775808", reason: "long"},
		"text":     {text: "x", reason: "long"},
	}, -5, conf.Conf.Int64)
}

func TestDouble(t *testing.T) {
	testReads(t, map[string]reading[float64]{
		"plain":           {text: " 0.1 ", want: 0.1},
		"leading point":   {text: ".2", want: 0.2},
		"trailing point":  {text: "1.", want: 1},
		"exponent":        {text: "1e3", want: 1000},
		"type d":          {text: "1.5d", want: 1.5},
		"type F":          {text: "1e3F", want: 1000},
		"hex":             {text: "0x1p3", want: 8},
		"hex fraction":    {text: "-0x.8p1", want: -1},
		"hex type":        {text: "0x1p3d", want: 8},
		"hex ends in d":   {text: "0xdp0", want: 13},
		"NaN":             {text: "NaN", want: math.NaN()},
		"minus NaN":       {text: "-NaN", want: math.NaN()},
		"Infinity":        {text: "-Infinity", want: math.Inf(-1)},
		"overflow":        {text: "1e999", want: math.Inf(1)},
		"underflow":       {text: "1e-999", want: 0},
		"lower nan":       {text: "nan", reason: "double"},
		"inf":             {text: "Inf", reason: "double"},
		"NaN type":        {text: "NaNd", reason: "double"},
		"two types":       {text: "1df", reason: "double"},
		"hex no exponent": {text: "0x1", reason: "double"},
		"underscore":      {text: "1_0", reason: "double"},
		"point":           {text: ".", reason: "double"},
		"empty":           {text: "", reason: "double"},
	}, -5, conf.Conf.Double)
}

func TestBool(t *testing.T) {
	testReads(t, map[string]reading[bool]{
		"false":  {text: " FALSE ", want: false},
		"number": {text: "0", reason: "boolean"},
		"yes":    {text: "no", reason: "boolean"},
		"empty":  {text: "", reason: "boolean"},
	}, true, conf.Conf.Bool)
	testReads(t, map[string]reading[bool]{"true": {text: "tRue", want: true}}, false, conf.Conf.Bool)
}

func mib(binary bool) func(conf.Conf, string, int64) (int64, error) {
	return func(c conf.Conf, key string, absent int64) (int64, error) { return c.MiB(key, absent, binary) }
}

func TestMiB(t *testing.T) {
	testReads(t, map[string]reading[int64]{
		"no unit":     {text: "512", want: 512},
		"truncated":   {text: "1500k", want: 1},
		"to zero":     {text: "500k", want: 0},
		"upper":       {text: "2GB", want: 2048},
		"upper short": {text: " 2G ", want: 2048},
		"negative":    {text: "-1g", want: -1024},
		"fraction":    {text: "1.5g", reason: "Fractional values are not supported"},
		"gib":         {text: "1gib", reason: `Invalid suffix: "gib"`},
		"inner blank": {text: "2 g", reason: "Failed to parse byte string"},
	}, -5, mib(false))
	testReads(t, map[string]reading[int64]{"gib": {text: "-1gib", want: -1024}}, -5, mib(true))
}

func TestTimes(t *testing.T) {
	testReads(t, map[string]reading[int64]{
		"no unit": {text: "10000", want: 10000},
		"seconds": {text: "-2S", want: -2000},
		"bad":     {text: "1.5s", reason: "Failed to parse time string"},
	}, -5, conf.Conf.Millis)
	testReads(t, map[string]reading[int64]{
		"no unit":   {text: "90", want: 90},
		"minutes":   {text: "1m", want: 60},
		"truncated": {text: "-1999ms", want: -1},
		"bad":       {text: "1w", reason: `Invalid suffix: "w"`},
	}, -5, conf.Conf.Seconds)
}

func TestStrings(t *testing.T) {
	read := func(c conf.Conf, key string, _ []string) ([]string, error) { return c.Strings(key) }
	testReads(t, map[string]reading[[]string]{
		"trimmed":   {text: " a, ,b,,c ", want: []string{"a", "b", "c"}},
		"empty":     {text: "", want: nil},
		"reference": {text: "a,${spark.ui.port}", want: []string{"a", "4040"}},
	}, nil, read)
}

func TestOneOf(t *testing.T) {
	read := func(c conf.Conf, key, absent string) (string, error) {
		return c.OneOf(key, absent, "Always", "Never")
	}
	testReads(t, map[string]reading[string]{
		"allowed": {text: "Never", want: "Never"},
		"case":    {text: "never", reason: "should be one of Always, Never"},
		"blank":   {text: " Never", reason: "should be one of"},
	}, "Absent", read)
}

func TestTypedReadsNameTheRawText(t *testing.T) {
	_, err := conf.Conf{key: "${spark.x}", "spark.x": "abc"}.Int(key, 0)
	var refusal *conf.Error
	if !errors.As(err, &refusal) || refusal.Value != "${spark.x}" {
		t.Errorf("error %#v does not show the text that the user wrote", err)
	}
}

func TestWithPrefix(t *testing.T) {
	c := conf.Conf{"spark.l.b/c.d": "2", "spark.l.a": "1", "spark.l.": "0", "spark.lx": "no"}
	want := []conf.Property{{Key: "", Value: "0"}, {Key: "a", Value: "1"}, {Key: "b/c.d", Value: "2"}}
	if diff := cmp.Diff(want, c.WithPrefix("spark.l.")); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

func TestErrorText(t *testing.T) {
	cases := map[string]struct {
		err  *conf.Error
		want string
	}{
		"value":          {conf.Refuse("spark.ui.port", "x", "should be %s", "int"), `spark.ui.port "x": should be int`},
		"empty value":    {conf.Refuse("--name", "", "bad"), `--name "": bad`},
		"no value":       {conf.RefuseName("--kill", "bad"), `--kill: bad`},
		"no name":        {conf.RefuseName("", "Missing application resource."), `Missing application resource.`},
		"secret":         {conf.Refuse("spark.a.PASSWORD", "hunter2", "bad"), `spark.a.PASSWORD *********(redacted): bad`},
		"secret's name":  {conf.Refuse("spark.kubernetes.driver.secretKeyRef.A", "x", "bad"), `spark.kubernetes.driver.secretKeyRef.A "x": bad`},
		"long":           {conf.Refuse("k", strings.Repeat("a", 300), "bad"), `k "` + strings.Repeat("a", 200) + `...": bad`},
		"cut within a ü": {conf.Refuse("k", strings.Repeat("a", 199)+"üü", "bad"), `k "` + strings.Repeat("a", 199) + `...": bad`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.err.Error()); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}
