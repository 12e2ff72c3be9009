package parity

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func caseNamed(t *testing.T, name string) *Case {
	t.Helper()
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cases, func(c Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no case is named %q", name)
	}
	return &cases[i]
}

// Each single change of a golden is seen.
func TestCompareSeesEveryChange(t *testing.T) {
	for name, sparkVersion := range map[string]string{
		"operator-spark-pi-pod-template":    "4.3.0",
		"template-volumes-and-conf-volumes": "4.2.1",
		"volume-claims-two":                 "4.1.4",
		"secrets-two":                       "4.0.5",
		"krb5-and-token-secret":             "3.5.9",
	} {
		t.Run(name, func(t *testing.T) {
			c := caseNamed(t, name)
			g, err := ReadGolden(goldens, sparkVersion, name)
			if err != nil {
				t.Fatal(err)
			}
			changes := mutations(g.Objects)
			if r, err := Compare(c, sparkVersion, g); err != nil || !r.Equal {
				t.Fatalf("%+v, %v", r, err)
			}
			outcome := render(c, sparkVersion)
			for _, m := range changes {
				p := &pair{c: c, spark: m.objects, plan: outcome.plan}
				for _, o := range outcome.objects {
					p.flint = append(p.flint, runtime.DeepCopyJSON(o))
				}
				r, err := compareObjects(p, &Difference{})
				if err != nil {
					t.Fatalf("%s: %v", m.what, err)
				}
				if r.Equal || r.Problem == "" {
					t.Errorf("not seen: %s", m.what)
				}
			}
			t.Logf("%d changes", len(changes))
		})
	}
}

// Bookkeeping must be right to be taken out.
func TestCompareSeesWrongBookkeeping(t *testing.T) {
	c := caseNamed(t, "name-from-class")
	for _, label := range []string{"app.kubernetes.io/managed-by", "flint.dev/kind", "flint.dev/id", "flint.dev/completion"} {
		outcome := render(c, "4.2.1")
		at(outcome.objects[0], "metadata", "labels").(object)[label] = "other"
		if _, problem := bookkeeping(&pair{c: c, flint: outcome.objects, plan: outcome.plan}); !strings.Contains(problem, label) {
			t.Errorf("%s: problem %q", label, problem)
		}
	}
}

func TestCompareOutcomes(t *testing.T) {
	accepted := accept("x", java())
	refused := refuse("x", "--foo", java(o("--foo")))
	misnamed := refuse("x", "--bar", java(o("--foo")))
	named := differRefused("earlier refusal", "x", "spark.ui.port", java(conf("ui.port=0")))
	unnamed := refuse("x", "spark.ui.port", java(conf("ui.port=0")))
	lenient := differ("packages", "x", java(o("--packages", "g:a:1")))
	unknown := differ("no such difference", "x", java())
	cases := map[string]struct {
		c       *Case
		golden  Golden
		problem string
		result  Result
	}{
		"both refuse":                    {c: &refused, golden: Golden{Exit: 1}, result: Result{Equal: true, Refused: true}},
		"Spark refuses alone":            {c: &accepted, golden: Golden{Exit: 1, Error: "no"}, problem: "Flint accepts what Spark refuses: no"},
		"Spark refuses alone, named":     {c: &lenient, golden: Golden{Exit: 1, Error: "no"}, result: Result{Differences: []string{"packages"}}},
		"Flint refuses alone":            {c: &unnamed, golden: Golden{Objects: []object{{}}}, problem: "Flint refuses what Spark accepts"},
		"Flint refuses alone, named":     {c: &named, golden: Golden{Objects: []object{{}}}, result: Result{Differences: []string{"earlier refusal"}}},
		"Spark fails after it has begun": {c: &unnamed, golden: Golden{Exit: 1, Objects: []object{{}}}, problem: "Flint refuses what Spark accepts"},
		"something else is named":        {c: &misnamed, golden: Golden{Exit: 1}, problem: `does not name "--bar"`},
		"no submission":                  {c: &accepted, golden: Golden{}, problem: "no submission"},
		"another form of the case":       {c: &accepted, golden: Golden{Case: "old", Exit: 1}, problem: "run the oracle"},
		"no API server":                  {c: &refused, golden: Golden{Exit: 1, Error: "ConnectException: Connection refused"}, problem: "without an API server"},
		"unknown difference":             {c: &unknown, golden: Golden{}, problem: "no difference"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.golden.Case == "" {
				tc.golden.Case = tc.c.Hash()
			}
			got, err := Compare(tc.c, "4.2.1", &tc.golden)
			if err != nil {
				got = &Result{Problem: err.Error()}
			}
			if tc.problem != "" && strings.Contains(got.Problem, tc.problem) {
				return
			}
			if got.Problem != "" || tc.problem != "" || got.Equal != tc.result.Equal || got.Refused != tc.result.Refused || !slices.Equal(got.Differences, tc.result.Differences) {
				t.Errorf("got %+v, want %+v or the problem %q", got, tc.result, tc.problem)
			}
		})
	}
}
