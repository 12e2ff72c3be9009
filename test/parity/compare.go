package parity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// Result is what came of one case for one Spark version.
type Result struct {
	// Equal: both sides did the same, apart from adjusted differences.
	Equal bool
	// Refused: both sides refused.
	Refused bool
	// Differences are the names of those that the case shows. Without Equal it is one, and it is the case's own.
	Differences []string
	// Problem says what is different and should not be; empty if nothing is.
	Problem string
	// Lines are what differs in the objects where the difference is the case's own.
	Lines []string
}

// Compare renders the case with Flint and compares it with the golden.
func Compare(c *Case, sparkVersion string, g *Golden) (*Result, error) {
	if g.Case != c.Hash() {
		return &Result{Problem: "the golden was made from another form of the case: run the oracle"}, nil
	}
	if strings.Contains(g.Error, "Connect") && strings.Contains(g.Error, "refused") {
		return &Result{Problem: "the golden was made without an API server: " + g.Error}, nil
	}
	own := &Difference{}
	if c.Differs != "" {
		var err error
		if own, err = difference(c.Differs); err != nil {
			return nil, err
		}
	}
	outcome := render(c, sparkVersion)
	if outcome.failure != nil {
		return &Result{Problem: "Flint failed: " + outcome.failure.Error()}, nil //nolint:nilerr // it is the result
	}
	refusedByFlint := outcome.refusal != nil
	refusedBySpark := g.Refused()
	switch {
	case refusedByFlint && c.Refused == "":
		return &Result{Problem: "the case does not say what a refusal must name; Flint's is " + outcome.refusal.Error()}, nil
	case refusedByFlint && !strings.Contains(outcome.refusal.Field+" "+outcome.refusal.Message, c.Refused):
		return &Result{Problem: fmt.Sprintf("Flint's refusal does not name %q: %v", c.Refused, outcome.refusal)}, nil
	case refusedByFlint && outcome.refusal.Status() != 400 && outcome.refusal.Status() != 422:
		return &Result{Problem: fmt.Sprintf("Flint refuses with HTTP %d: %v", outcome.refusal.Status(), outcome.refusal)}, nil
	case refusedByFlint && refusedBySpark && len(g.Objects) == 0:
		return &Result{Equal: true, Refused: true}, nil
	case refusedByFlint && own.kind == flintRefuses, !refusedByFlint && refusedBySpark && own.kind == sparkRefuses:
		return &Result{Differences: []string{own.Name}}, nil
	case refusedByFlint:
		return &Result{Problem: "Flint refuses what Spark accepts: " + outcome.refusal.Error()}, nil //nolint:nilerr // it is the result
	case refusedBySpark:
		return &Result{Problem: "Flint accepts what Spark refuses: " + g.Error}, nil
	case len(g.Objects) == 0:
		return &Result{Problem: "Flint accepts what is no submission for Spark"}, nil
	}
	if c.Refused != "" && !c.Depends && own.kind != flintRefuses {
		return &Result{Problem: "both accept what the case says is refused"}, nil
	}
	return compareObjects(&pair{c: c, spark: g.Objects, flint: outcome.objects, plan: outcome.plan}, own)
}

func compareObjects(p *pair, own *Difference) (*Result, error) {
	r := &Result{}
	for _, d := range Differences {
		if d.kind != adjusted {
			continue
		}
		found, problem := d.adjust(p)
		if problem != "" {
			r.Problem = d.Name + ": " + problem
			return r, nil
		}
		if found {
			r.Differences = append(r.Differences, d.Name)
		}
	}
	flint, err := Normalise(p.flint)
	if err != nil {
		return nil, fmt.Errorf("normalise Flint's objects: %w", err)
	}
	lines := diffLines(asList(p.spark), asList(flint))
	switch {
	case len(lines) == 0:
		r.Equal = true
	case own.kind == objectsDiffer:
		r.Differences, r.Lines = []string{own.Name}, lines
	default:
		r.Problem = strings.Join(lines, "\n\t")
	}
	return r, nil
}

// Report is what came of all cases.
type Report struct {
	// Compared is how many cases were compared in full, and Equal how many of those were equal.
	Compared, Equal int
	// Versions is how many Spark versions there are.
	Versions int
	// Problems has every case that is not equal, and every golden that has no case or that none was found for.
	Problems []string
}

// Run compares all cases with all goldens and writes a summary.
func Run(goldens fs.FS, out io.Writer) (*Report, error) {
	cases, err := Cases()
	if err != nil {
		return nil, err
	}
	versions, err := Versions(goldens)
	if err != nil {
		return nil, err
	}
	report := &Report{Versions: len(versions)}
	shown := map[string]bool{}
	counts := map[string]int{}
	for _, v := range versions {
		var equal, refused, apart int
		for i := range cases {
			c := &cases[i]
			result, err := one(goldens, v, c)
			if err != nil {
				return nil, fmt.Errorf("spark %s, case %s: %w", v, c.Name, err)
			}
			for _, name := range result.Differences {
				counts[name]++
			}
			switch {
			case result.Problem != "":
				report.Compared++
				report.Problems = append(report.Problems, fmt.Sprintf("spark %s: %s: %s", v, c.Name, result.Problem))
			case !result.Equal:
				apart++
				shown[c.Name] = true
			default:
				report.Compared++
				equal++
				if result.Refused {
					refused++
				}
			}
		}
		report.Equal += equal
		fmt.Fprintf(out, "spark %s: %d cases equal, of them %d refused by both; %d with a named difference\n", v, equal, refused, apart)
		stale, err := Stale(goldens, v, cases)
		if err != nil {
			return nil, err
		}
		for _, name := range stale {
			report.Problems = append(report.Problems, fmt.Sprintf("spark %s: %s: no case has this golden", v, name))
		}
	}
	for i := range cases {
		if c := &cases[i]; c.Differs != "" && !shown[c.Name] {
			report.Problems = append(report.Problems, fmt.Sprintf("%s shows the difference %q in no version", c.Name, c.Differs))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		d, err := difference(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "difference %s: %d times; %s\n", name, counts[name], d.Reason)
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(out, problem)
	}
	fmt.Fprintf(out, "parity: %d/%d cases, %d Spark versions\n", report.Equal, report.Compared, report.Versions)
	return report, nil
}

func one(goldens fs.FS, sparkVersion string, c *Case) (*Result, error) {
	g, err := ReadGolden(goldens, sparkVersion, c.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return &Result{Problem: "there is no golden: run the oracle"}, nil
	}
	if err != nil {
		return nil, err
	}
	return Compare(c, sparkVersion, g)
}
