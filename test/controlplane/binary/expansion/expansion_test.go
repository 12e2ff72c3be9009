// Package expansion expands the lists of variables in pkg/runner/testdata/env with Kubernetes' own code, which is in the
// module graph here and not in the product's.
package expansion

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// TestEnv goes through each list as the kubelet does (pkg/kubelet, makeEnvironmentVariables): in its order, and each value
// sees those before it.
func TestEnv(t *testing.T) {
	files, err := filepath.Glob("../../../../pkg/runner/testdata/env/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var c struct {
				Given map[string]string
				List  []struct {
					Name      string
					Value     string
					ValueFrom map[string]any
				}
				Want map[string]string
			}
			if err := json.Unmarshal(text, &c); err != nil {
				t.Fatal(err)
			}
			env := map[string]string{}
			for _, v := range c.List {
				value := expansion.Expand(v.Value, expansion.MappingFuncFor(env))
				if v.ValueFrom != nil {
					given, ok := c.Given[v.Name]
					if !ok {
						t.Fatalf("nothing is given for %s", v.Name)
					}
					value = given
				}
				env[v.Name] = value
			}
			if len(c.Want) == 0 {
				t.Fatal("nothing is wanted")
			}
			for name, want := range c.Want {
				if got, set := env[name]; !set || got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
		})
	}
}
