// Package docs holds the pages against the code: what they name exists, what
// exists is named, and what a reader pastes works.
package docs

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/test/embedded"
	"flint.dev/flint/test/embedded/claims"
	"flint.dev/flint/test/parity"
)

const root = "../.."

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Each direct dependency is on the page with its reason, and no other.
func TestDependencies(t *testing.T) {
	var required, named []string
	block, _, _ := strings.Cut(page(t, "go.mod"), "\n)")
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(block, -1) {
		required = append(required, m[1])
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(page(t, "docs/dependencies.md"), -1) {
		named = append(named, m[1])
	}
	slices.Sort(required)
	slices.Sort(named)
	if diff := cmp.Diff(required, named); diff != "" || len(required) == 0 {
		t.Errorf("docs/dependencies.md against go.mod (-required +named)\n%s", diff)
	}
}

// Links from page to page lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	checked := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			checked++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
		return nil
	})
	if err != nil || checked < 5 {
		t.Errorf("%d links, %v", checked, err)
	}
}

// The curl lines of the pages, in their order, on what `make run` serves on.
func TestCurlLines(t *testing.T) {
	folders := &claims.Claims{Root: t.TempDir()}
	cluster, err := embedded.Start(embedded.Options{Run: folders.Run})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	folders.Serve(cluster)
	if _, err := folders.Add(t.Context(), "default", "data"); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	settings.Namespaces, settings.PollInterval = []string{"default"}, 0
	settings.File.Job.Image, settings.File.Job.Limits.ReservePercent = "fileagent", 0
	f := function.New(function.WithSettings(settings), function.WithCluster(cluster.Config()), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := f.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		page     string
		statuses []int
		last     string // in the last answer
	}{
		{"README.md", []int{201, 200, 400}, "1.5g"},
		{"docs/file-jobs.md", []int{200, 200, 200, 200, 200, 404, 200}, `"submission_id":"three"`},
	} {
		statuses, messages := curl(t, f, page(t, c.page))
		if diff := cmp.Diff(c.statuses, statuses); diff != "" {
			t.Fatalf("%s (-want +got)\n%s\n%s", c.page, diff, strings.Join(messages, "\n"))
		}
		if last := messages[len(messages)-1]; !strings.Contains(last, c.last) {
			t.Errorf("%s: the last answer lacks %s: %s", c.page, c.last, last)
		}
	}
}

// curl does what the curl lines of a page do.
func curl(t *testing.T, f *function.Function, text string) (statuses []int, messages []string) {
	t.Helper()
	post := regexp.MustCompile(`^curl -s -X POST localhost:8080(/\S+) -H 'Content-Type: application/json' -d '([^']+)'$`)
	get := regexp.MustCompile(`^curl -s '?localhost:8080(/[^\s']+)'?$`)
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		method, path, body := http.MethodGet, "", ""
		if m := post.FindStringSubmatch(line); m != nil {
			method, path, body = http.MethodPost, m[1], m[2]
		} else if m := get.FindStringSubmatch(line); m != nil {
			path = m[1]
		} else {
			t.Fatalf("this line is not understood: %s", line)
		}
		request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		f.Handle(answer, request)
		statuses = append(statuses, answer.Code)
		messages = append(messages, answer.Body.String())
	}
	return statuses, messages
}

// docs/api.md has each code with its status.
func TestCodes(t *testing.T) {
	text := page(t, "docs/api.md")
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "pkg/api/error.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		value, ok := n.(*ast.ValueSpec)
		if !ok || len(value.Values) != 1 {
			return true
		}
		if kind, ok := value.Type.(*ast.Ident); !ok || kind.Name != "Code" {
			return true
		}
		code, err := strconv.Unquote(value.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		row := "| " + code + " | " + strconv.Itoa((&api.Error{Code: api.Code(code)}).Status()) + " |"
		if !strings.Contains(text, row) {
			t.Errorf("docs/api.md lacks a row %s", row)
		}
		return true
	})
	if found < 14 {
		t.Errorf("%d codes found in the code", found)
	}
}

// docs/compat.md has every option and every key that the code knows by name.
func TestCompat(t *testing.T) {
	text := page(t, "docs/compat.md")
	known := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "pkg/spark"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if value, err := strconv.Unquote(literal.Value); err == nil && name.MatchString(value) {
				known[value] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(known) < 80 {
		t.Fatalf("only %d options and keys found in the code", len(known))
	}
	for value := range known {
		if !strings.Contains(text, "`"+value) {
			t.Errorf("docs/compat.md lacks `%s`", value)
		}
	}
}

// docs/compat.md has each known difference to Spark, with its reason.
func TestDifferences(t *testing.T) {
	text := page(t, "docs/compat.md")
	differences := parity.Differences
	if len(differences) == 0 {
		t.Fatal("no differences in the code")
	}
	for _, d := range differences {
		if !strings.Contains(text, "| "+d.Name+" | ") || !strings.Contains(text, " | "+d.Reason+" |") {
			t.Errorf("docs/compat.md lacks %q with its reason; `go run ./test/parity/run -differences` prints the table", d.Name)
		}
	}
}

// name is a whole option or key; prefixes of keys end with a dot.
var name = regexp.MustCompile(`^(--[a-z][a-z-]+|spark\.[A-Za-z][A-Za-z0-9.]*)$`)

// The error body in docs/api.md is one that decodes.
func TestErrorExample(t *testing.T) {
	text := page(t, "docs/api.md")
	_, after, _ := strings.Cut(text, "## Errors\n\n```json\n")
	example, _, _ := strings.Cut(after, "```")
	decoder := json.NewDecoder(bytes.NewReader([]byte(example)))
	decoder.DisallowUnknownFields()
	var body api.ErrorBody
	if err := decoder.Decode(&body); err != nil || body.ErrorCode != api.InvalidSparkSubmitArgs {
		t.Errorf("%v: %+v", err, body)
	}
}
