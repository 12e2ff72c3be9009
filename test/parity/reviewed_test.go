package parity

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write reviewed.txt, to be read before it is committed")

const reviewed = "reviewed.txt"

// What no program can judge is for readers: whether Flint's words mean what Spark's
// do where both refuse, and whether what differs in the objects is what the
// difference's reason says. The pairs stand in a file; a change of either side is a
// change of the file, to be read before it is committed.
func TestReviewed(t *testing.T) {
	got := pairs(t)
	if *update {
		if err := os.WriteFile(reviewed, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(reviewed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("read what has changed, then run with -update (-reviewed +now)\n%s", diff)
	}
}

// pairs has, for each case that both refuse and each whose objects differ, what Spark and Flint say, each text once.
func pairs(t *testing.T) string {
	t.Helper()
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	versions, err := Versions(goldens)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for i := range cases {
		c := &cases[i]
		var lines []string
		for _, v := range versions {
			g, err := ReadGolden(goldens, v, c.Name)
			if err != nil {
				t.Fatal(err)
			}
			result, err := Compare(c, v, g)
			if err != nil {
				t.Fatal(err)
			}
			if result.Refused {
				lines = append(lines, "spark: "+oneLine(g.Error), "flint: "+oneLine(render(c, v).refusal.Message))
			}
			for _, line := range result.Lines {
				lines = append(lines, "differs: "+oneLine(line))
			}
		}
		slices.Sort(lines)
		if lines = slices.Compact(lines); len(lines) > 0 {
			fmt.Fprintf(&b, "%s\n\t%s\n", c.Name, strings.Join(lines, "\n\t"))
		}
	}
	return b.String()
}

// oneLine cuts a text that is long because the case's value is.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), 300)]
}
