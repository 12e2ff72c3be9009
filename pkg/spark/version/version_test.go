package version

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		line string
		err  string
	}{
		"3.5.0":          {line: "3.5"},
		"3.5.7":          {line: "3.5"},
		"4.0.4":          {line: "4.0"},
		"4.1.0":          {line: "4.1"},
		"4.2.0":          {line: "4.2"},
		"4.3.12":         {line: "4.3"},
		"":               {err: `spark version "" is not of the form MAJOR.MINOR.PATCH`},
		"4.2":            {err: "form"},
		"v4.2.0":         {err: "form"},
		"4.2.0-SNAPSHOT": {err: "form"},
		"4.2.0 ":         {err: "form"},
		"4.2.0\n":        {err: "form"},
		"4.2.0.1":        {err: "form"},
		"4..0":           {err: "form"},
		"3.4.0":          {err: `spark version "3.4.0" is not of a known line: 3.5, 4.0, 4.1, 4.2, 4.3`},
		"4.4.0":          {err: "known line"},
		"04.2.0":         {err: "known line"},
		"4.20.0":         {err: "known line"},
	}
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			v, err := Parse(text)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("Parse = %v, %v; want an error with %q", v, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if v.String() != text || v.Features().Line != tc.line {
				t.Errorf("Parse = %q of line %q", v, v.Features().Line)
			}
		})
	}
}

// TestTable is the table of differences in the specification, column by column: the
// lines that have a feature.
func TestTable(t *testing.T) {
	all := []string{"3.5", "4.0", "4.1", "4.2", "4.3"}
	if diff := cmp.Diff(all, Lines()); diff != "" {
		t.Fatalf("lines (-want,+got):\n%s", diff)
	}
	cases := map[string]struct {
		has   func(Features) bool
		lines []string
	}{
		"LoadSparkDefaults":      {func(f Features) bool { return f.LoadSparkDefaults }, all[1:]},
		"DriverDefaultClassPath": {func(f Features) bool { return f.DriverDefaultClassPath }, all[1:]},
		"ExtraPropertiesFile":    {func(f Features) bool { return f.ExtraPropertiesFile }, all[3:]},
		"XmxAnywhere":            {func(f Features) bool { return f.XmxAnywhere }, all[:1]},
		"ConnectPort":            {func(f Features) bool { return f.ConnectPort }, all[2:]},
		"ConnectProtocol":        {func(f Features) bool { return f.ConnectProtocol }, all[3:]},
		"NetworkPolicy":          {func(f Features) bool { return f.NetworkPolicy }, all[3:]},
		"ReadWriteOncePod":       {func(f Features) bool { return f.ReadWriteOncePod }, all[1:]},
		"VolumeMetadata":         {func(f Features) bool { return f.VolumeMetadata }, all[1:]},
		"VolumeUnits":            {func(f Features) bool { return f.VolumeUnits }, all[1:]},
		"MinMemoryOverhead":      {func(f Features) bool { return f.MinMemoryOverhead }, all[1:]},
		"LabelPlaceholders":      {func(f Features) bool { return f.LabelPlaceholders }, all[1:]},
		"ImageVersion":           {func(f Features) bool { return f.ImageVersion }, all[2:]},
		"ExcludedSteps":          {func(f Features) bool { return f.ExcludedSteps }, all[2:]},
		"BinarySuffixes":         {func(f Features) bool { return f.BinarySuffixes }, all[3:]},
		"PrivilegeEscalation":    {func(f Features) bool { return f.PrivilegeEscalation }, all[4:]},
		"PublishNotReady":        {func(f Features) bool { return f.PublishNotReady }, all[4:]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, line := range all {
				v, err := Parse(line + ".0")
				if err != nil {
					t.Fatal(err)
				}
				if got, want := tc.has(v.Features()), slices.Contains(tc.lines, line); got != want {
					t.Errorf("%s: %v, want %v", line, got, want)
				}
			}
		})
	}
}

// TestLinesIsACopy: callers cannot change the table.
func TestLinesIsACopy(t *testing.T) {
	Lines()[0] = "x"
	if got := Lines()[0]; got != "3.5" {
		t.Errorf("Lines()[0] = %q", got)
	}
}
