package driver

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
)

// TestNameTable is case C01: the table of section 2.4, computed by Java.
func TestNameTable(t *testing.T) {
	const id = testPrefix
	cases := map[string]struct{ prefix, label string }{
		"Spark Pi":                          {"spark-pi-" + id, "spark-pi"},
		"3d render":                         {"xd-render-" + id, "3d-render"},
		"my_app.v2":                         {"my-app-v2-" + id, "my-app-v2"},
		"-lead":                             {"lead-" + id, "lead"},
		"__x__":                             {"x-" + id, "x"},
		"":                                  {id, ""},
		"   ":                               {id, ""},
		"ÜberJob":                           {"berjob-" + id, "berjob"},
		"日本語":                               {id, ""},
		"123":                               {"x23-" + id, "123"},
		"9-1":                               {"x-1-" + id, "9-1"},
		"org.apache.spark.examples.SparkPi": {"org-apache-spark-examples-sparkpi-" + id, "org-apache-spark-examples-sparkpi"},
		"app.py":                            {"app-py-" + id, "app-py"},
		"İstanbul":                          {"i-stanbul-" + id, "i-stanbul"},
		strings.Repeat("a", 62) + "-bcd":    {strings.Repeat("a", 62) + "-bcd-" + id, strings.Repeat("a", 62)},
		strings.Repeat("a", 63):             {strings.Repeat("a", 63) + "-" + id, strings.Repeat("a", 63)},
		strings.Repeat("a", 64):             {strings.Repeat("a", 64) + "-" + id, strings.Repeat("a", 63)},
		"--a--":                             {"a-" + id, "a"},
		"a😀b":                               {"a-b-" + id, "a-b"},
		"\t\u2003x":                         {"x-" + id, "x"},
		"ΑΣ":                                {id, ""},
		"a\nb":                              {"a-b-" + id, "a-b"},
	}
	for name, want := range cases {
		t.Run("C01_"+name, func(t *testing.T) {
			if got := resourcePrefix(name, id); got != want.prefix {
				t.Errorf("prefix %q, want %q", got, want.prefix)
			}
			if got := appNameLabel(name); got != want.label {
				t.Errorf("label %q, want %q", got, want.label)
			}
		})
	}
	t.Run("C11_empty_name_digit_id", func(t *testing.T) {
		if got := resourcePrefix("", "7f"); got != "xf" {
			t.Errorf("prefix %q, want xf", got)
		}
	})
	if got := resourcePrefix("", ""); got != "" {
		t.Errorf("prefix of nothing is %q", got)
	}
}

func TestNamespace(t *testing.T) {
	cases := map[string]struct {
		conf conf.Conf
		want string
		err  string
	}{
		"default":     {conf: conf.Conf{}, want: "default"},
		"given":       {conf: conf.Conf{"spark.kubernetes.namespace": "jobs"}, want: "jobs"},
		"substituted": {conf: conf.Conf{"spark.kubernetes.namespace": "${spark.x}", "spark.x": "y"}, want: "y"},
		"empty":       {conf: conf.Conf{"spark.kubernetes.namespace": ""}, err: "is not the name of a namespace"},
		"slash":       {conf: conf.Conf{"spark.kubernetes.namespace": "a/b"}, err: `"a/b": is not the name of a namespace`},
		"cycle":       {conf: conf.Conf{"spark.kubernetes.namespace": "${spark.x}", "spark.x": "${spark.x}"}, err: "ircular reference"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Namespace(&args.Arguments{Conf: tc.conf})
			if got != tc.want {
				t.Errorf("Namespace = %q, want %q", got, tc.want)
			}
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
		})
	}
}

func TestDeriveIDs(t *testing.T) {
	// Ids are for ever: these texts must never change.
	want := IDs{
		App:       "spark-2c87df15caa5498c99b886a8b9e69c52",
		Prefix:    "e005b80bbd718d91",
		ConfigMap: "99ff2bce46a96a3a",
		Service:   "53c65472291ad0b2",
		LocalDir:  "92ebee83-00f9-466d-8fe4-028939b2d73a",
	}
	if got := DeriveIDs("default", "550e8400-e29b-41d4-a716-446655440000"); got != want {
		t.Errorf("DeriveIDs = %#v, want %#v", got, want)
	}
}

var idShapes = []struct {
	name  string
	field func(IDs) string
	shape *regexp.Regexp
}{
	{"App", func(i IDs) string { return i.App }, regexp.MustCompile(`^spark-[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}$`)},
	{"Prefix", func(i IDs) string { return i.Prefix }, regexp.MustCompile(`^[0-9a-f]{16}$`)},
	{"ConfigMap", func(i IDs) string { return i.ConfigMap }, regexp.MustCompile(`^[0-9a-f]{16}$`)},
	{"Service", func(i IDs) string { return i.Service }, regexp.MustCompile(`^[0-9a-f]{16}$`)},
	{"LocalDir", func(i IDs) string { return i.LocalDir }, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)},
}

// FuzzDeriveIDs: the ids have Spark's shapes, are the same every time, differ from each
// other, and differ between pairs, also between those that are the same text when joined.
func FuzzDeriveIDs(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("", "", "default", "550e8400-e29b-41d4-a716-446655440000")
	f.Add("ns", "id\x00", "ns\x00", "id")
	f.Fuzz(func(t *testing.T, ns1, id1, ns2, id2 string) {
		one, again, two := DeriveIDs(ns1, id1), DeriveIDs(ns1, id1), DeriveIDs(ns2, id2)
		if one != again {
			t.Errorf("%#v, then %#v", one, again)
		}
		same := ns1 == ns2 && id1 == id2
		seen := map[string]string{}
		for _, s := range idShapes {
			if !s.shape.MatchString(s.field(one)) {
				t.Errorf("%s = %q", s.name, s.field(one))
			}
			if (s.field(one) == s.field(two)) != same {
				t.Errorf("%s: %q for (%q,%q) and %q for (%q,%q)", s.name, s.field(one), ns1, id1, s.field(two), ns2, id2)
			}
			if other, ok := seen[s.field(one)]; ok {
				t.Errorf("%s and %s are both %q", s.name, other, s.field(one))
			}
			seen[s.field(one)] = s.name
		}
	})
}

// FuzzNames: whatever the application is called, what is made of its name is legal.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "Spark Pi", "-", "9", "İ", "a😀b", "\xff", strings.Repeat("é-", 99)} {
		f.Add(name, "a1b2c39d0f3a7c21")
		f.Add(name, "0")
	}
	f.Fuzz(func(t *testing.T, name, unique string) {
		unique = fmt.Sprintf("%x0", unique) // any id has such digits, from 1 to 16
		unique = unique[:min(len(unique), 16)]
		prefix := resourcePrefix(name, unique)
		if problems := validation.IsDNS1035Label(prefix[:min(len(prefix), 40)] + "x"); len(problems) > 0 {
			t.Errorf("prefix %q: %v", prefix, problems)
		}
		if strings.Contains(prefix, "--") {
			t.Errorf("prefix %q has two dashes in a row", prefix)
		}
		if n := utf8.RuneCountInString(name); len(prefix) > 3*n+1+len(unique) {
			t.Errorf("prefix %q is longer than what it is made of", prefix)
		}
		if label := appNameLabel(name); len(content.IsLabelValue(label)) > 0 {
			t.Errorf("label %q: %v", label, content.IsLabelValue(label))
		}
		service, fallback := serviceName(prefix, unique)
		if problems := validation.IsDNS1035Label(service); len(problems) > 0 {
			t.Errorf("service %q: %v", service, problems)
		}
		if fallback != (len(prefix) > 52) {
			t.Errorf("service %q for a prefix of %d, fallback %v", service, len(prefix), fallback)
		}
	})
}
