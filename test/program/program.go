// Package program builds the programs that tests run beside the product: Kubernetes, Knative, DNS. Each comes from a Go
// module of its own, so that nothing of it reaches the product's module graph, is built once, and is kept in the
// user's cache.
package program

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// stripped leaves out what only a debugger needs.
const stripped = "-s -w"

// Program is what is built.
type Program struct {
	// Name of the file, and of its folder in the cache.
	Name string
	// Module is the folder with the go.mod that the build goes by.
	Module string
	// Source is the package, as go build takes it; empty for that in Module.
	Source string
	// Says is written before the build: how long it takes, or what saves it. It may be empty.
	Says string
}

// Cached is the path of the program in the user's cache: one folder for each state of the module and version of Go. It
// is built if it is not there; log gets that it is, and how far. Two processes that want it at once build it once.
func Cached(ctx context.Context, log io.Writer, p Program) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache for %s: %w", p.Name, err)
	}
	hash, err := p.fingerprint(ctx)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "flint", p.Name+"-"+hash)
	path := filepath.Join(folder, p.Name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("make the cache for %s: %w", p.Name, err)
	}
	unlock, err := lock(ctx, filepath.Join(folder, "lock"), p.Name, log)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // built while we waited
	}
	logf(log, "building %s from source, once: %s is not there.", p.Name, path)
	if p.Says != "" {
		logf(log, "%s", p.Says)
	}
	partial := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // gone already if all went well
	began := time.Now()
	if err := Compile(ctx, log, p, partial); err != nil {
		return "", err
	}
	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("put %s in place: %w", p.Name, err)
	}
	logf(log, "built %s in %s", p.Name, time.Since(began).Round(time.Second))
	return path, nil
}

// Compile builds the program at the path, static and stripped, and says every 15 seconds how far it is. A program of
// Kubernetes reports the version that its module requires.
func Compile(ctx context.Context, log io.Writer, p Program, path string) error {
	flags := stripped
	version, err := p.required(ctx, "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	if version != "" {
		flags += kubernetes(version)
	}
	source := p.Source
	if source == "" {
		source = "."
	}
	command := exec.CommandContext(ctx, "go", "build", "-C", p.Module, "-v", "-buildvcs=false", "-ldflags", flags, "-o", path, source)
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	output := &buildOutput{}
	command.Stdout, command.Stderr = output, output
	DieWithParent(command)
	command.WaitDelay = 10 * time.Second
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		// The kernel ends the child when the thread that started it ends, so that thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- command.Run()
	}()
	ticker := time.NewTicker(15 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			logf(log, "building %s: %s, %d packages compiled", p.Name, time.Since(began).Round(time.Second), output.compiled.Load())
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", p.Name, errors.Join(err, ctx.Err()), output.other.String())
			}
			return nil
		}
	}
}

// required is the version of a module that the program's module requires, and empty if it requires none.
func (p Program) required(ctx context.Context, path string) (string, error) {
	text, err := GoSays(ctx, p.Module, "mod", "edit", "-json")
	if err != nil {
		return "", err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal([]byte(text), &mod); err != nil {
		return "", fmt.Errorf("read what %s requires: %w", p.Name, err)
	}
	for _, module := range mod.Require {
		if module.Path == path {
			return module.Version, nil
		}
	}
	return "", nil
}

// kubernetes are linker flags by which a program of Kubernetes knows its version.
func kubernetes(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const target = " -X k8s.io/component-base/version."
	return target + "gitVersion=" + version + target + "gitMajor=" + major + target + "gitMinor=" + minor
}

// fingerprint tells one build from another: by the version of Go, and by the files in the module's own folder.
func (p Program) fingerprint(ctx context.Context) (string, error) {
	version, err := GoSays(ctx, p.Module, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("ask for the version of Go: %w", err)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, version)
	files := []string{filepath.Join(p.Module, "go.mod"), filepath.Join(p.Module, "go.sum")}
	sources, err := filepath.Glob(filepath.Join(p.Module, "*.go"))
	if err != nil {
		return "", fmt.Errorf("look for the sources of %s: %w", p.Name, err)
	}
	for _, file := range append(files, sources...) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the sources of %s: %w", p.Name, err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// buildOutput counts the packages that go build -v names, and keeps what else it says.
type buildOutput struct {
	compiled atomic.Int64
	partial  []byte
	other    bytes.Buffer
}

var packagePath = regexp.MustCompile(`^[\w./~+-]+$`)

func (o *buildOutput) Write(text []byte) (int, error) {
	o.partial = append(o.partial, text...)
	for {
		line, rest, found := bytes.Cut(o.partial, []byte("\n"))
		if !found {
			return len(text), nil
		}
		if packagePath.Match(line) {
			o.compiled.Add(1)
		} else {
			_, _ = fmt.Fprintf(&o.other, "%s\n", line)
		}
		o.partial = rest
	}
}

// Root is the folder of this checkout.
func Root(ctx context.Context) (string, error) {
	return GoSays(ctx, "", "list", "-m", "-f", "{{.Dir}}", "flint.dev/flint")
}

// GoSays is what the go command prints, run in the folder. Its error has what it says.
func GoSays(ctx context.Context, folder string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(output)), nil
}

func logf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
