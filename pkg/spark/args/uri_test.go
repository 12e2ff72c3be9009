package args

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestParseURI has what java.net.URI of JDK 17 says to each text: its scheme,
// its fragment, and new URI(scheme, schemeSpecificPart, null) of it.
func TestParseURI(t *testing.T) {
	cases := map[string]struct {
		illegal  bool
		scheme   string
		fragment string
		// rewritten is empty for a relative URI and where the second URI is illegal.
		rewritten string
	}{
		"a:b":                               {scheme: "a", rewritten: "a:b"},
		"":                                  {},
		"?q":                                {},
		"#f":                                {fragment: "f"},
		"//":                                {illegal: true},
		"//?x":                              {},
		"a://":                              {illegal: true},
		"a:":                                {illegal: true},
		"a:#x":                              {illegal: true},
		":x":                                {illegal: true},
		"1a:b":                              {illegal: true},
		"a%41:b":                            {illegal: true},
		"ü:b":                               {illegal: true},
		"aü:b":                              {illegal: true},
		"a+b-c.d1:x":                        {scheme: "a+b-c.d1", rewritten: "a+b-c.d1:x"},
		"k8s://http://x":                    {scheme: "k8s", rewritten: "k8s://http://x"},
		"http:///x":                         {scheme: "http", rewritten: "http:///x"},
		"s3a:////x":                         {scheme: "s3a", rewritten: "s3a:////x"},
		"s3a:///":                           {scheme: "s3a", rewritten: "s3a:///"},
		"s3a://#f":                          {scheme: "s3a", fragment: "f"},
		"http://h:99999999999/":             {scheme: "http", rewritten: "http://h:99999999999/"},
		"http://a@b@c/":                     {scheme: "http", rewritten: "http://a@b@c/"},
		"http://@/x":                        {scheme: "http", rewritten: "http://@/x"},
		"http://%41/x":                      {scheme: "http", rewritten: "http://A/x"},
		"s3a://b_c:x/y":                     {scheme: "s3a", rewritten: "s3a://b_c:x/y"},
		"http://[::1]:443/x":                {scheme: "http", rewritten: "http://[::1]:443/x"},
		"http://[::1%eth0]/x":               {scheme: "http", rewritten: "http://[::1%eth0]/x"},
		"http://u@[1:2::3]:/":               {scheme: "http", rewritten: "http://u@[1:2::3]:/"},
		"http://[::ffff:1.2.3.4]/":          {scheme: "http", rewritten: "http://[::ffff:1.2.3.4]/"},
		"s3a://[1:2:3:4:5:6:7::]/x":         {scheme: "s3a", rewritten: "s3a://[1:2:3:4:5:6:7::]/x"},
		"http://[::1]x/":                    {illegal: true},
		"http://[1.2.3.4]/":                 {illegal: true},
		"http://[::1]:99999999999/":         {illegal: true},
		"http://[::1]@x/y":                  {illegal: true},
		"http://a[b/x":                      {illegal: true},
		"s3a://u%zz@[::1]/x":                {illegal: true},
		"s3a://[1:2:3:4:5:6:7:8:9]/x":       {illegal: true},
		"s3a://[fe80::1%]/x":                {illegal: true},
		"http://a b/":                       {illegal: true},
		"http://h/%zz":                      {illegal: true},
		"http://h/%4":                       {illegal: true},
		"s3a://b/x\u00a0y":                  {illegal: true},
		"s3a://b/\u0085":                    {illegal: true},
		"s3a://b/\u2028":                    {illegal: true},
		"s3a://b/\x00":                      {illegal: true},
		"s3a://b/a[1].jar":                  {illegal: true},
		"s3a://h/x#a#b":                     {illegal: true},
		"s3a://h/x?a b":                     {illegal: true},
		"s3a:x y":                           {illegal: true},
		"s3a://h/x#":                        {scheme: "s3a", rewritten: "s3a://h/x#"},
		"s3a://b/€x":                        {scheme: "s3a", rewritten: "s3a://b/€x"},
		"s3a://b/😀":                         {scheme: "s3a", rewritten: "s3a://b/😀"},
		"s3a:x?y=[]":                        {scheme: "s3a", rewritten: "s3a:x?y=[]"},
		"s3a:%20x":                          {scheme: "s3a", rewritten: "s3a:%20x"},
		"s3a:/%2F/x":                        {scheme: "s3a", rewritten: "s3a:///x"},
		"s3a://b/%C2%A0":                    {scheme: "s3a", rewritten: "s3a://b/%C2%A0"},
		"s3a://b/%F0%9F%98%80":              {scheme: "s3a", rewritten: "s3a://b/😀"},
		"s3a://b/a%2Cb":                     {scheme: "s3a", rewritten: "s3a://b/a,b"},
		"s3a://b/a%5Bb":                     {scheme: "s3a"},
		"https://h/?a=[%41]%42":             {scheme: "https", rewritten: "https://h/?a=[%2541]B"},
		"https://h/a%2Fb?x=%26":             {scheme: "https", rewritten: "https://h/a/b?x=&"},
		"https://[::1]/a%20b?[%20#x":        {scheme: "https", fragment: "x", rewritten: "https://[::1]/a%20b?[%2520#x"},
		"https://h/a%20b%23c%25d%3Fe#f%20g": {scheme: "https", fragment: "f%20g", rewritten: "https://h/a%20b%23c%25d?e#f g"},
	}
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			u, err := parseURI(text)
			if (err != nil) != tc.illegal {
				t.Fatalf("error %v, want one: %t", err, tc.illegal)
			}
			if tc.illegal {
				return
			}
			if u.scheme != tc.scheme || u.fragment != tc.fragment {
				t.Errorf("scheme %q, fragment %q, want %q, %q", u.scheme, u.fragment, tc.scheme, tc.fragment)
			}
			if u.scheme == "" {
				return
			}
			rewritten, err := u.rewrite()
			if rewritten != tc.rewritten || (err == nil) != (tc.rewritten != "") {
				t.Errorf("rewritten as %q, %v, want %q", rewritten, err, tc.rewritten)
			}
		})
	}
}

// TestResolveURI has the examples of Utils.resolveURI; what does not resolve
// would be a file in the submitter's working directory.
func TestResolveURI(t *testing.T) {
	cases := map[string]bool{
		"local:///opt/a.jar":     true,
		"s3a://b/a_*.jar":        true,
		"a:b":                    true,
		"hdfs:///x/y.jar#z":      true,
		"/opt/app.jar":           false,
		"app.jar":                false,
		"./x/../y.py":            false,
		"/a/b.zip#unp":           false,
		"file:///tmp/x.jar":      false,
		"file:/tmp/x.jar":        false,
		"FILE:/tmp/x.jar":        false,
		"local:///opt/a b.jar":   false,
		" local:///x":            false,
		"gs://b/{{APP_ID}}/x.py": false,
		"s3a://b/a|b":            false,
		`s3a://b\c`:              false,
		"s3a://b/^":              false,
		"s3a://b/`":              false,
		`s3a://b/"`:              false,
		"s3a://b/<x>":            false,
		"s3a://b/100%":           false,
		"spark-internal":         false,
		"":                       false,
		"/opt/ü.py":              false,
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			if _, got := resolveURI(text); got != want {
				t.Errorf("resolveURI(%q) is ok: %t", text, got)
			}
		})
	}
}

func TestURIList(t *testing.T) {
	cases := map[string]struct {
		text      string
		step      func(*uriList) error
		want      string
		offending []string
	}{
		"resolve empty":      {text: "", step: resolve, want: ""},
		"resolve blank":      {text: " , ,", step: resolve, want: ""},
		"resolve kept":       {text: "a:b,,c:d", step: resolve, want: "a:b,c:d"},
		"resolve untrimmed":  {text: "a:b, c:d", step: resolve, want: "a:b, c:d", offending: []string{" c:d"}},
		"glob trims":         {text: "a:b, c:d ,", step: glob, want: "a:b,c:d"},
		"glob star":          {text: "s3a://b/*.jar", step: glob, want: "s3a://b/*.jar"},
		"glob decodes":       {text: "https://h/%2F", step: glob, want: "https://h//"},
		"glob local":         {text: "/a, b,/a", step: glob, want: "/a,b,/a", offending: []string{"/a", "b"}},
		"glob makes a comma": {text: "s3a://b/a%2Cb", step: globThenResolve, want: "s3a://b/a,b", offending: []string{"b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			l := &uriList{field: field{name: "--jars", value: tc.text, set: true}}
			if err := tc.step(l); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, l.value); diff != "" {
				t.Errorf("value (-want,+got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.offending, l.offending); diff != "" {
				t.Errorf("offending (-want,+got):\n%s", diff)
			}
		})
	}
}

func resolve(l *uriList) error { l.resolve(); return nil }
func glob(l *uriList) error    { return l.glob() }
func globThenResolve(l *uriList) error {
	err := l.glob()
	l.resolve()
	return err
}

func TestDecodeMalformed(t *testing.T) {
	if got, want := decode("a%FFb%FEc"), "a\uFFFDb\uFFFDc"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSplitJavaOptions(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
		open bool
	}{
		"none":              {text: " \t"},
		"two":               {text: " -Da=b\n -Dc ", want: []string{"-Da=b", "-Dc"}},
		"double quotes":     {text: `-Da="b c"d`, want: []string{"-Da=b cd"}},
		"single quotes":     {text: `'a "b\' c`, want: []string{`a "b\`, "c"}},
		"quoted empty":      {text: `"" ''`, want: []string{"", ""}},
		"escape":            {text: `a\ b \"c`, want: []string{"a b", `"c`}},
		"escape in double":  {text: `"a\"b"`, want: []string{`a"b`}},
		"single in double":  {text: `"it's"`, want: []string{"it's"}},
		"no-break space":    {text: "a\u00a0b\u2003c", want: []string{"a\u00a0b", "c"}},
		"separator":         {text: "a\x1fb", want: []string{"a", "b"}},
		"open double quote": {text: `a "b`, want: []string{"a", "b"}, open: true},
		"open single quote": {text: `'`, want: []string{""}, open: true},
		"open escape":       {text: `a\`, want: []string{"a"}, open: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, closed := splitJavaOptions(tc.text)
			if diff := cmp.Diff(tc.want, got); diff != "" || closed == tc.open {
				t.Errorf("closed %t, (-want,+got):\n%s", closed, diff)
			}
		})
	}
}

func FuzzResolveURI(f *testing.F) {
	for _, seed := range []string{
		"local:///opt/a.jar", "s3a://b/a%2Cb#x%20y", "https://[::1%eth0]:1/?[%20", "a:b", "//[", "s3a://%5B:%5D", "a:%", "file:x", "%C2%A0:#",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		u, err := parseURI(text)
		if err != nil {
			if _, ok := resolveURI(text); ok {
				t.Fatalf("%q resolves but does not parse: %v", text, err)
			}
			return
		}
		whole := u.specific
		if u.scheme != "" {
			whole = u.scheme + ":" + whole
		}
		if u.hasFragment {
			whole += "#" + u.fragment
		}
		if whole != text {
			t.Fatalf("%q has the parts %+v", text, u)
		}
		if strings.ContainsAny(text, " {}|\\^`\"<>\n\x00") {
			t.Fatalf("%q parses", text)
		}
		if u.scheme == "" {
			return
		}
		rewritten, err := u.rewrite()
		if err != nil {
			return
		}
		if !strings.Contains(text, "%") && rewritten != text {
			t.Fatalf("%q has no escape but becomes %q", text, rewritten)
		}
		before, _, _ := strings.Cut(rewritten, "#")
		if again, err := parseURI(before); err != nil || again.scheme != u.scheme {
			t.Fatalf("%q becomes %q: %+v, %v", text, rewritten, again, err)
		}
	})
}
