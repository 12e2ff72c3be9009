package conf

import (
	"strings"
	"testing"
)

func TestRedaction(t *testing.T) {
	cases := map[string]struct {
		arguments  []string
		key, value string
		hidden     bool
	}{
		"a key of Spark's pattern":       {nil, "spark.my.password", "x", true},
		"of any case":                    {nil, "DB_PassWord", "x", true},
		"a key with a dot":               {nil, "spark.hadoop.fs.s3a.access.key", "x", true},
		"a value that says so":           {nil, "spark.driver.extraJavaOptions", "-Djavax.net.ssl.trustStorePassword=x", true},
		"neither":                        {nil, "spark.ui.port", "4040", false},
		"a Secret's name":                {nil, "spark.kubernetes.driver.secretKeyRef.DB_PASSWORD", "db-secret:password", false},
		"a key of its own pattern":       {[]string{"--conf", "spark.redaction.regex=(?i)geheim"}, "spark.mein.Geheimnis", "x", true},
		"a value of its own pattern":     {[]string{"--conf", "spark.redaction.regex=(?i)geheim"}, "spark.x", "geheim", true},
		"in one argument":                {[]string{"--conf=spark.redaction.regex=geheim"}, "geheim", "x", true},
		"in the short form":              {[]string{"-c", " spark.redaction.regex=geheim"}, "geheim", "x", true},
		"its own does not replace ours":  {[]string{"--conf", "spark.redaction.regex=geheim"}, "spark.my.password", "x", true},
		"its own holds for names too":    {[]string{"--conf", "spark.redaction.regex=db"}, "spark.kubernetes.driver.secretKeyRef.X", "db-secret:password", true},
		"each of several":                {[]string{"--conf", "spark.redaction.regex=eins", "--conf", "spark.redaction.regex=zwei"}, "eins", "x", true},
		"one of Java's that Go has not":  {[]string{"--conf", "spark.redaction.regex=(?<!x)geheim"}, "spark.ui.port", "4040", true},
		"a pattern of another option":    {[]string{"--name", "geheim"}, "geheim", "x", false},
		"a key that begins like the one": {[]string{"--conf", "spark.redaction.regexes=geheim"}, "geheim", "x", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := RedactionOf(tc.arguments)
			if got := r.Hides(tc.key, tc.value); got != tc.hidden {
				t.Errorf("hidden: %v", got)
			}
			told := r.Hide(Refuse(tc.key, tc.value, "is wrong")).Error()
			if strings.Contains(told, Redacted) != tc.hidden || !strings.HasPrefix(told, tc.key+" ") || !strings.HasSuffix(told, ": is wrong") {
				t.Errorf("told: %s", told)
			}
		})
	}
	own := RedactionOf([]string{"-c=spark.redaction.regex=geheim"})
	for name, want := range map[string]string{
		"spark.my.password": "spark.my.password: is wrong", "--geheim=x": "--geheim=" + Redacted + ": is wrong", "--port=4040": "--port=4040: is wrong",
	} {
		if got := own.Hide(RefuseName(name, "is wrong")).Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
