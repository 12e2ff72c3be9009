package conf_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/magiconair/properties"

	"flint.dev/flint/pkg/spark/conf"
)

func TestProperties(t *testing.T) {
	cases := map[string]struct {
		conf     conf.Conf
		comments []string
		want     string
	}{
		"examples of Spark": {
			conf: conf.Conf{
				"spark.master":                  "k8s://https://10.0.0.1:6443",
				"spark.app.name":                "Spark Pi",
				"spark.jars":                    "local:///opt/a.jar",
				"spark.driver.extraJavaOptions": "-Da=b -Dc=d",
			},
			comments: []string{"Java properties built from Kubernetes config map with name: m", "Mon Nov 30 01:23:09 UTC 2026"},
			want: "#Java properties built from Kubernetes config map with name: m\n" +
				"#Mon Nov 30 01:23:09 UTC 2026\n" +
				"spark.app.name=Spark Pi\n" +
				"spark.driver.extraJavaOptions=-Da\\=b -Dc\\=d\n" +
				"spark.jars=local\\:///opt/a.jar\n" +
				"spark.master=k8s\\://https\\://10.0.0.1\\:6443\n",
		},
		"empty conf":         {want: ""},
		"empty value":        {conf: conf.Conf{"k": ""}, want: "k=\n"},
		"specials in value":  {conf: conf.Conf{"k": "  a b\\:=#!\t\n\r\f"}, want: "k=\\  a b\\\\\\:\\=\\#\\!\\t\\n\\r\\f\n"},
		"specials in key":    {conf: conf.Conf{" a b:=#!\\\t\n": "v"}, want: "\\ a\\ b\\:\\=\\#\\!\\\\\\t\\n=v\n"},
		"beyond ascii":       {conf: conf.Conf{"kü": "ü😀\u2028\x01"}, want: "kü=ü😀\u2028\x01\n"},
		"comment injection":  {comments: []string{"a\nspark.x=1\r\nspark.y=2\rspark.z=3"}, want: "#a\n#spark.x=1\n#spark.y=2\n#spark.z=3\n"},
		"comment in comment": {comments: []string{"a\n#b\n!c\n"}, want: "#a\n#b\n!c\n#\n"},
		"comment unicode":    {comments: []string{"aü€😀"}, want: "#aü\\u20AC\\uD83D\\uDE00\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.conf.Properties(tc.comments...)); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// load reads the text with an independent implementation of java.util.Properties.load.
func load(t *testing.T, text string) conf.Conf {
	t.Helper()
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return p.Map()
}

func TestPropertiesRoundTrip(t *testing.T) {
	t.Run("G15_props_escaping", func(t *testing.T) {
		c := conf.Conf{
			"spark.all":      ": = # ! \\ \t \n \r \f",
			"spark.leading":  "   three",
			"spark.trailing": "three   ",
			"spark.inner":    "a  b",
			"spark.words":    "ü and 😀 and ${spark.x} and \\u0041",
			"spark.lines":    "a\nspark.injected=1",
			"spark.cont":     "ends with \\",
			"spark.k:e y":    "v",
			"spark.#=!":      "v",
			"spark.empty":    "",
		}
		if diff := cmp.Diff(c, load(t, c.Properties("comment"))); diff != "" {
			t.Errorf("(-want,+got):\n%s", diff)
		}
	})
	t.Run("G17_props_contains_all_confs", func(t *testing.T) {
		c := conf.Conf{
			"spark.app.name": "Pi", "spark.submit.pyFiles": "", "spark.jars": "local:///a.jar",
			"spark.kubernetes.driver.label.a.b/c":                   "v",
			"spark.kubernetes.driver.annotation.x":                  "a=b,c",
			"spark.kubernetes.node.selector.kubernetes.io/os":       "linux",
			"spark.kubernetes.driver.volumes.hostPath.h.mount.path": "/m",
			"spark.kubernetes.driver.secretKeyRef.PASS":             "s:k",
			"spark.kubernetes.driver.secrets.s":                     "/s",
			"spark.kubernetes.driverEnv.A":                          "x=y",
			"spark.executorEnv.B":                                   "",
			"spark.hadoop.fs.s3a.endpoint":                          "http://minio:9000",
			"spark.sql.catalog.c":                                   "org.x.C",
			"spark.executor.extraJavaOptions":                       "-Xmx1g -Da=\"b c\"",
			"spark.kubernetes.executor.podTemplateFile":             "/opt/spark/pod-template/pod-spec-template.yml",
			"spark.kubernetes.container.image":                      "${spark.x}",
		}
		if diff := cmp.Diff(c, load(t, c.Properties())); diff != "" {
			t.Errorf("(-want,+got):\n%s", diff)
		}
	})
}

// FuzzProperties is G16_props_round_trip_fuzz.
func FuzzProperties(f *testing.F) {
	f.Add("spark.a", "b", "spark.c", " d\n", "comment")
	f.Add(" :=#!\\", "\\", "\t\n\r\f", "a\\u0041 ", "x\r\ny=1\n\n#\r!")
	f.Add("", "", "ü", "😀\x00\x01\u2028", "€")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, comment string) {
		c := conf.Conf{key1: value1, key2: value2}
		for k, v := range c {
			// Java's strings and the API's JSON are Unicode.
			if !utf8.ValidString(k) || !utf8.ValidString(v) {
				return
			}
		}
		text := c.Properties(strings.ToValidUTF8(comment, "?"))
		if diff := cmp.Diff(c, javaLoad(t, text), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want,+got):\n%s", text, diff)
		}
	})
}

// javaLoad is java.util.Properties.load, written for the fuzz target because
// the library refuses some keys that Java takes, such as the empty one.
func javaLoad(t *testing.T, text string) conf.Conf {
	t.Helper()
	loaded := conf.Conf{}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.TrimLeft(line, " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		end := 0
		for end < len(line) && !strings.ContainsRune("=: \t\f", rune(line[end])) {
			if line[end] == '\\' {
				end++
			}
			end++
		}
		if end > len(line) || strings.HasSuffix(strings.ReplaceAll(line, `\\`, ""), `\`) {
			t.Fatalf("line %q continues on the next", line)
		}
		value := strings.TrimLeft(line[end:], " \t\f")
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = strings.TrimLeft(value[1:], " \t\f")
		}
		loaded[unescape(t, line[:end])] = unescape(t, value)
	}
	return loaded
}

func unescape(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			t.Fatalf("%q has a Unicode escape", s)
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}
