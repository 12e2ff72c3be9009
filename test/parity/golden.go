package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	kjson "sigs.k8s.io/json"
)

// Golden is what Spark did with a case.
type Golden struct {
	// Case is the hash of the case that it was made from.
	Case string
	// Exit is the exit code of spark-submit, and Error what it said if it was not 0.
	Exit  int
	Error string
	// Objects are what it created, in normal form and in order; none if it created nothing.
	Objects []object
}

// Refused tells whether Spark refused.
func (g *Golden) Refused() bool { return g.Exit != 0 }

// Marshal gives the golden as JSON, one line an object.
func (g *Golden) Marshal() ([]byte, error) {
	var b bytes.Buffer
	head, err := marshal(struct {
		Case  string `json:"case"`
		Exit  int    `json:"exit"`
		Error string `json:"error,omitempty"`
	}{g.Case, g.Exit, g.Error})
	if err != nil {
		return nil, err
	}
	b.Write(head[:len(head)-1])
	if len(g.Objects) > 0 {
		b.WriteString(`,"objects":[`)
	}
	for i, o := range g.Objects {
		text, err := marshal(o)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		b.Write(text)
	}
	if len(g.Objects) > 0 {
		b.WriteString("\n]")
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
}

// marshal is JSON without escapes for HTML.
func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// parseGolden reads what Marshal wrote.
func parseGolden(text []byte) (*Golden, error) {
	var raw struct {
		Case    string           `json:"case"`
		Exit    int              `json:"exit"`
		Error   string           `json:"error"`
		Objects []map[string]any `json:"objects"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &raw); err != nil {
		return nil, err
	}
	return &Golden{Case: raw.Case, Exit: raw.Exit, Error: raw.Error, Objects: raw.Objects}, nil
}

// Versions are the Spark versions that a folder of goldens has, oldest first.
func Versions(goldens fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(goldens, ".")
	if err != nil {
		return nil, fmt.Errorf("read the goldens: %w", err)
	}
	var versions []string
	for _, entry := range entries {
		if entry.IsDir() {
			versions = append(versions, entry.Name())
		}
	}
	// The lines have one digit each part, so the order of the texts is that of the versions.
	slices.Sort(versions)
	return versions, nil
}

// ReadGolden reads the golden of a case for a Spark version. The error is fs.ErrNotExist if there is none.
func ReadGolden(goldens fs.FS, version, name string) (*Golden, error) {
	text, err := fs.ReadFile(goldens, path.Join(version, name+".json"))
	if err != nil {
		return nil, err
	}
	g, err := parseGolden(text)
	if err != nil {
		return nil, fmt.Errorf("golden %s/%s: %w", version, name, err)
	}
	return g, nil
}

// WriteGolden writes the golden of a case into the folder of a Spark version.
func WriteGolden(folder, version, name string, g *Golden) error {
	text, err := g.Marshal()
	if err != nil {
		return fmt.Errorf("golden %s/%s: %w", version, name, err)
	}
	folder = filepath.Join(folder, version)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".json"), text, 0o644)
}

// Stale are the names of goldens of a version that no case has.
func Stale(goldens fs.FS, version string, cases []Case) ([]string, error) {
	entries, err := fs.ReadDir(goldens, version)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".json")
		if !slices.ContainsFunc(cases, func(c Case) bool { return c.Name == name }) {
			stale = append(stale, name)
		}
	}
	return stale, nil
}
