// Package scaffold proves that the func CLI can build Flint: its scaffold is a
// module of its own that replaces ours with a folder, pins some modules, and is
// built without leave to change go.mod.
package scaffold

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The scaffold of the func CLI for an instanced Go function with invoke: http.
const (
	scaffoldMain = `package main

import (
	"fmt"
	"os"

	"knative.dev/func-go/http"

	f "flint.dev/flint"
)

func main() {
	if err := http.Start(f.New()); err != nil {
		fmt.Fprintln(os.Stderr, err.Error())
		os.Exit(1)
	}
}
`
	scaffoldMod = `module s

go 1.26.0

require knative.dev/func-go v0.22.0

require (
	github.com/mattn/go-colorable v0.1.15 // indirect
	github.com/mattn/go-isatty v0.0.23 // indirect
	github.com/rs/zerolog v1.35.1 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
`
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func goCommand(t *testing.T, dir string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// Scaffolding is built as it is: no workspace, no flags of the caller's, no leave to change go.mod.
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

var requireLine = regexp.MustCompile(`(?m)^(?:require )?\t?([a-z0-9.-]+\.[a-z]+/\S+) (v\S+)(?: // indirect)?$`)

// merge is what the CLI does with a function's go.mod: it appends the
// requirements that the scaffold has not, and the lines of go.sum.
func merge(scaffold, function string) string {
	has := map[string]bool{}
	for _, m := range requireLine.FindAllStringSubmatch(scaffold, -1) {
		has[m[1]] = true
	}
	var merged strings.Builder
	merged.WriteString(scaffold + "\nrequire flint.dev/flint v0.0.0\n\nreplace flint.dev/flint => ./f\n")
	for _, m := range requireLine.FindAllStringSubmatch(function, -1) {
		if !has[m[1]] {
			merged.WriteString("\nrequire " + m[1] + " " + m[2] + " // indirect\n")
		}
	}
	return merged.String()
}

func TestFuncScaffoldBuildsAndServes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module of its own; not with -short")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "main.go"), scaffoldMain)
	write(t, filepath.Join(dir, "go.mod"), scaffoldMod)
	goCommand(t, dir, "mod", "download", "all") // the scaffold ships this go.sum
	if err := os.Symlink(root(t), filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), merge(scaffoldMod, read(t, filepath.Join(root(t), "go.mod"))))
	write(t, filepath.Join(dir, "go.sum"), read(t, filepath.Join(dir, "go.sum"))+read(t, filepath.Join(root(t), "go.sum")))
	binary := filepath.Join(dir, "f.bin")
	goCommand(t, dir, "build", "-mod=readonly", "-o", binary, ".")

	address := freeAddress(t)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	write(t, kubeconfig, `apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none}}]
current-context: none
`)
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LISTEN_ADDRESS="+address, "KUBECONFIG="+kubeconfig)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/health/readiness": "READY", "/health/liveness": "ALIVE"} {
		if got := eventually(t, "http://"+address+path); got != want {
			t.Errorf("GET %s = %q, want %q", path, got, want)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, log.String())
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// eventually asks until the answer is 200, for at most 30 s, and gives its body.
func eventually(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last := "no answer"
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return strings.TrimSpace(string(body))
			}
			last = response.Status
		}
		select {
		case <-ctx.Done():
			t.Fatalf("GET %s: no 200 within 30 s, last %s", url, last)
		case <-tick.C:
		}
	}
}
