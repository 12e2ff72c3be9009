package controlplane

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The one control plane of a test binary.
var shared struct {
	once    sync.Once
	managed bool // Main runs, and will stop it
	cp      *ControlPlane
	err     error
}

// startLimit bounds the start without a build; a build is bounded by the test binary's own limit.
const startLimit = 90 * time.Second

// Main runs the tests of a package that uses Shared, and stops the control plane after them:
//
//	func TestMain(m *testing.M) { controlplane.Main(m) }
func Main(m *testing.M) {
	shared.managed = true
	code := m.Run()
	if shared.cp != nil {
		shared.cp.Stop()
	}
	os.Exit(code)
}

// Shared is the control plane of this test binary, started by the first test that asks. A
// machine that cannot start it fails the test; only -short skips it.
func Shared(t testing.TB) *ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test needs a real kube-apiserver")
	}
	if !shared.managed {
		t.Fatal("controlplane.Shared needs func TestMain(m *testing.M) { controlplane.Main(m) } in this package")
	}
	shared.once.Do(func() {
		ctx := context.Background()
		if _, err := Locate(ctx, os.Stderr); err != nil {
			shared.err = err
			return
		}
		ctx, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		shared.cp, shared.err = Start(ctx, Options{Log: os.Stderr})
	})
	if shared.err != nil {
		t.Fatalf("the control plane did not start: %v", shared.err)
	}
	return shared.cp
}

var (
	namespaces  atomic.Int64
	notInALabel = regexp.MustCompile(`[^a-z0-9]+`)
)

// NewNamespace creates a namespace for one test, named for it, with its service account "default".
// It stays: nothing here would empty it, and the control plane ends with the tests.
func (cp *ControlPlane) NewNamespace(t testing.TB) string {
	t.Helper()
	name := notInALabel.ReplaceAllString(strings.ToLower(t.Name()), "-")
	name = fmt.Sprintf("%s-%d", strings.Trim(name[:min(len(name), 40)], "-"), namespaces.Add(1))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cp.Namespace(ctx, name); err != nil {
		t.Fatal(err)
	}
	return name
}
