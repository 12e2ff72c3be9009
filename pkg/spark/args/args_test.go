package args_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

const pythonRunner = "org.apache.spark.deploy.PythonRunner"

// common is what all short vectors start with.
func common() []string {
	return []string{
		"--master", "k8s://https://api:6443", "--deploy-mode", "cluster",
		"--conf", "spark.kubernetes.container.image=img:1",
	}
}

// base is a Java application with more options.
func base(more ...string) []string {
	return append(append(append(common(), "--class", "C"), more...), "local:///a.jar")
}

// py and r are applications in Python and R with more options.
func py(more ...string) []string { return append(append(common(), more...), "local:///app.py") }
func r(more ...string) []string  { return append(append(common(), more...), "local:///app.R") }

// with is the common options, and nothing behind the given ones.
func with(more ...string) []string { return append(common(), more...) }

// on is a Java application on a master, in a deploy mode.
func on(master, deployMode string, more ...string) []string {
	argv := []string{"--class", "C"}
	if master != "" {
		argv = append(argv, "--master", master)
	}
	if deployMode != "" {
		argv = append(argv, "--deploy-mode", deployMode)
	}
	return append(append(argv, more...), "local:///a.jar")
}

// baseConf is the conf of base with changes over it.
func baseConf(changes conf.Conf) conf.Conf {
	c := conf.Conf{
		"spark.master":                     "k8s://https://api:6443",
		"spark.submit.deployMode":          "cluster",
		"spark.app.name":                   "C",
		"spark.kubernetes.container.image": "img:1",
		"spark.jars":                       "local:///a.jar",
		"spark.submit.pyFiles":             "",
	}
	maps.Copy(c, changes)
	return c
}

func pyConf(changes conf.Conf) conf.Conf {
	c := baseConf(conf.Conf{"spark.app.name": "app.py"})
	delete(c, "spark.jars")
	maps.Copy(c, changes)
	return c
}

func mustVersion(t testing.TB, text string) version.Version {
	t.Helper()
	v, err := version.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// parse parses by Spark 4.2.
func parse(t *testing.T, argv []string) *args.Arguments {
	t.Helper()
	a, err := args.Parse(argv, mustVersion(t, "4.2.0"))
	if err != nil {
		t.Fatalf("%q: %v", argv, err)
	}
	return a
}

// accepted is a vector and what Spark 4.2 makes of it.
type accepted struct {
	argv []string
	want args.Arguments
}

func testAccepted(t *testing.T, cases map[string]accepted) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&tc.want, parse(t, tc.argv), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%q (-want,+got):\n%s", tc.argv, diff)
			}
		})
	}
}

// java is the result of base with changes to its conf.
func java(changes conf.Conf) args.Arguments {
	return args.Arguments{Conf: baseConf(changes), Language: args.Java, Resource: "local:///a.jar", MainClass: "C"}
}

// python is the result of py with changes to its conf.
func python(changes conf.Conf) args.Arguments {
	return args.Arguments{Conf: pyConf(changes), Language: args.Python, Resource: "local:///app.py", MainClass: pythonRunner}
}

// refused is a vector that is refused by the named option or key; the message contains the words.
type refused struct {
	argv    []string
	version string // "4.2.0" unless set
	name    string
	words   []string
}

func testRefused(t *testing.T, cases map[string]refused) {
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.version == "" {
				tc.version = "4.2.0"
			}
			got, err := args.Parse(tc.argv, mustVersion(t, tc.version))
			var refusal *conf.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("%q: got %+v, error %v, want a *conf.Error", tc.argv, got, err)
			}
			if refusal.Name != tc.name {
				t.Errorf("the error names %q, want %q: %v", refusal.Name, tc.name, err)
			}
			for _, word := range tc.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the message lacks %q: %v", word, err)
				}
			}
		})
	}
}

func TestWorkedExamples(t *testing.T) {
	testAccepted(t, map[string]accepted{
		"A_java": {
			argv: []string{
				"--master", "k8s://10.0.0.1:6443", "--deploy-mode", "cluster", "--name", "Spark Pi",
				"--class", "org.apache.spark.examples.SparkPi", "--driver-memory", "2g",
				"--conf", "spark.executor.instances=2", "--num-executors", "5",
				"--conf", "spark.kubernetes.namespace=jobs", "--conf", "spark.kubernetes.container.image=apache/spark:4.2.0",
				"--conf", "hive.x=1", "--conf", "spark.driver.host=h",
				"local:///opt/spark/examples/jars/spark-examples.jar", "1000", "--verbose",
			},
			want: args.Arguments{
				Conf: conf.Conf{
					"spark.app.name":                   "Spark Pi",
					"spark.driver.memory":              "2g",
					"spark.executor.instances":         "5",
					"spark.jars":                       "local:///opt/spark/examples/jars/spark-examples.jar",
					"spark.kubernetes.container.image": "apache/spark:4.2.0",
					"spark.kubernetes.namespace":       "jobs",
					"spark.master":                     "k8s://https://10.0.0.1:6443",
					"spark.submit.deployMode":          "cluster",
					"spark.submit.pyFiles":             "",
				},
				Language:  args.Java,
				Resource:  "local:///opt/spark/examples/jars/spark-examples.jar",
				MainClass: "org.apache.spark.examples.SparkPi",
				AppArgs:   []string{"1000", "--verbose"},
				Warnings:  []string{"Ignoring non-Spark config property: hive.x"},
			},
		},
		"B_python": {
			argv: []string{
				"--master", "k8s://https://api", "--deploy-mode", "cluster", "--conf", "spark.kubernetes.driver.container.image=i",
				"--py-files", "local:///opt/deps.zip,s3a://b/more.zip", "--files", "https://h/a.conf#app.conf",
				"--jars", "local:///x.jar", "--packages", "g:a:1", "--repositories", "https://r1",
				"--exclude-packages", "g:bad", "local:///opt/app.py", "in", "out",
			},
			want: args.Arguments{
				Conf: conf.Conf{
					"spark.app.name":                          "app.py",
					"spark.submit.pyFiles":                    "local:///opt/deps.zip,s3a://b/more.zip",
					"spark.files":                             "https://h/a.conf#app.conf",
					"spark.jars":                              "local:///x.jar",
					"spark.jars.packages":                     "g:a:1",
					"spark.jars.repositories":                 "https://r1",
					"spark.jars.excludes":                     "g:bad",
					"spark.master":                            "k8s://https://api",
					"spark.submit.deployMode":                 "cluster",
					"spark.kubernetes.driver.container.image": "i",
				},
				Language:  args.Python,
				Resource:  "local:///opt/app.py",
				MainClass: pythonRunner,
				AppArgs:   []string{"in", "out"},
			},
		},
		"C_folded": {
			argv: base("--driver-memory", "2g", "--conf", "spark.driver.memory=3g"),
			want: java(conf.Conf{"spark.driver.memory": "3g"}),
		},
		"C_unfolded": {
			argv: base("--executor-memory", "2g", "--conf", "spark.executor.memory=3g"),
			want: java(conf.Conf{"spark.executor.memory": "2g"}),
		},
		"D_spark_internal": {
			argv: with("--class", "com.x.Main", "spark-internal", "a", "b"),
			want: args.Arguments{
				Conf:      baseConf(conf.Conf{"spark.app.name": "com.x.Main", "spark.jars": ""}),
				Language:  args.Java,
				MainClass: "com.x.Main",
				AppArgs:   []string{"a", "b"},
			},
		},
	})
}

// TestSame pins that a vector parses the same each time and is not changed.
func TestSame(t *testing.T) {
	argv := base("--conf", "b=1", "--conf", "a=1", "--conf", "spark.x=y")
	kept := slices.Clone(argv)
	first := parse(t, argv)
	for range 20 {
		if diff := cmp.Diff(first, parse(t, argv)); diff != "" {
			t.Fatalf("(-first,+next):\n%s", diff)
		}
	}
	if diff := cmp.Diff(kept, argv); diff != "" {
		t.Errorf("the vector changed (-want,+got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, argv := range [][]string{
		base("--driver-memory", "2g"), py("--py-files", "local:///d.zip"), r(),
		base("--files", "https://h/a%2Fb?x=[%26#%20"), base("--jars", "s3a://b/a%2Cb.jar,, c"),
		base("--conf", "spark.jars=${spark.x}", "-c", "spark.x=${spark.jars}"),
		base("--archives", "s3a://b/x#$%7Bspark.jars%7D"),
		{"--name=\n"}, {"--"}, {}, {""}, {"--conf"}, {"-c", "=v", "x:y"},
		base("--driver-java-options", `-Da="x y' \`), on("k8s://http://[::1]:443", "cluster"),
	} {
		f.Add(strings.Join(argv, "\x00"), false)
		f.Add(strings.Join(argv, "\x00"), true)
	}
	current, oldest := mustVersion(f, "4.2.0"), mustVersion(f, "3.5.6")
	f.Fuzz(func(t *testing.T, line string, useOld bool) {
		v := current
		if useOld {
			v = oldest
		}
		argv := strings.Split(line, "\x00")
		got, err := args.Parse(argv, v)
		again, errAgain := args.Parse(argv, v)
		if diff := cmp.Diff(got, again); diff != "" || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("%q: %v, then %v (-first,+second):\n%s", argv, err, errAgain, diff)
		}
		var refusal *conf.Error
		if err != nil {
			if !errors.As(err, &refusal) || refusal.Reason == "" {
				t.Fatalf("%q: error is %#v", argv, err)
			}
			return
		}
		checkComplete(t, got)
	})
}

// checkComplete checks what holds for every accepted vector.
func checkComplete(t *testing.T, a *args.Arguments) {
	t.Helper()
	for _, key := range []string{"spark.master", "spark.app.name", "spark.submit.pyFiles"} {
		if _, set := a.Conf[key]; !set {
			t.Errorf("%s is not set", key)
		}
	}
	if _, set := a.Conf["spark.jars"]; a.Language == args.Java && !set {
		t.Error("spark.jars is not set")
	}
	if mode := a.Conf["spark.submit.deployMode"]; mode != "cluster" {
		t.Errorf("deploy mode is %q", mode)
	}
	for key := range a.Conf {
		if !strings.HasPrefix(key, "spark.") || key == "spark.driver.host" {
			t.Errorf("key %q", key)
		}
	}
	for _, key := range []string{"spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"} {
		for _, element := range conf.SplitList(a.Conf[key]) {
			if strings.HasPrefix(element, "file:") || !strings.Contains(element, ":") {
				t.Errorf("%s holds the local file %q", key, element)
			}
		}
	}
}

// BenchmarkParse has a vector of 40 confs.
func BenchmarkParse(b *testing.B) {
	var more []string
	for i := range 40 {
		more = append(more, "--conf", fmt.Sprintf("spark.kubernetes.driver.label.l%d=value-%d", i, i))
	}
	argv := base(more...)
	v := mustVersion(b, "4.2.0")
	for b.Loop() {
		if _, err := args.Parse(argv, v); err != nil {
			b.Fatal(err)
		}
	}
}
