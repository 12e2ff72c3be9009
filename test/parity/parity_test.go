package parity

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var goldens = os.DirFS("testdata")

// Flint does what Spark does, in every case and for every Spark line.
func TestParity(t *testing.T) {
	var out bytes.Buffer
	report, err := Run(goldens, &out)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Problems) > 0 {
		t.Fatalf("%d problems:\n%s", len(report.Problems), out.String())
	}
	t.Log(out.String())
	last := regexp.MustCompile(`\nparity: \d+/\d+ cases, 5 Spark versions\n$`)
	if !last.Match(out.Bytes()) {
		t.Errorf("the last line is not the summary of five versions:\n%s", out.String())
	}
}

// The table is as large as it claims to be, in each version.
func TestCoverage(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := Versions(goldens)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		var full, refused int
		for i := range cases {
			g, err := ReadGolden(goldens, v, cases[i].Name)
			if err != nil {
				t.Fatal(err)
			}
			if cases[i].Differs != "" {
				continue
			}
			full++
			if g.Refused() {
				refused++
			}
		}
		if full < 250 || refused < 60 {
			t.Errorf("spark %s: %d cases, of them %d refusals; want 250 and 60 at least", v, full, refused)
		}
	}
}

// A golden is small, and says nothing of the machine that it was made on.
func TestGoldensAreClean(t *testing.T) {
	machine := regexp.MustCompile(`/(?:tmp|root|home|Users|private)/|flint-oracle|localhost`)
	// Cases may hold some of these themselves.
	own := map[string]bool{"repositories-conf": true}
	err := fs.WalkDir(goldens, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(goldens, name)
		if err != nil {
			return err
		}
		if found := machine.Find(text); found != nil && !own[strings.TrimSuffix(path.Base(name), ".json")] {
			t.Errorf("%s has %q", name, found)
		}
		if len(text) > 40_000 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
