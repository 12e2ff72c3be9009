package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// assets is the variable that names a folder with kube-apiserver and etcd, as envtest has it.
const assets = "KUBEBUILDER_ASSETS"

// programs are the beginnings of the two command lines.
type programs struct{ etcd, apiserver []string }

// locate finds the programs, or builds them.
func locate(ctx context.Context, log io.Writer) (programs, error) {
	if folder := os.Getenv(assets); folder != "" {
		found := programs{[]string{filepath.Join(folder, "etcd")}, []string{filepath.Join(folder, "kube-apiserver")}}
		for _, program := range []string{found.etcd[0], found.apiserver[0]} {
			if _, err := os.Stat(program); err != nil {
				return programs{}, fmt.Errorf("look for the control plane in %s: %w", assets, err)
			}
		}
		return found, nil
	}
	binary, err := Build(ctx, log)
	if err != nil {
		return programs{}, err
	}
	return programs{[]string{binary, "etcd"}, []string{binary, "kube-apiserver"}}, nil
}

// Build makes the program of the module test/controlplane/binary, unless the user's cache has it:
// one folder for each version of its sources and of Go. It says in log that it builds and how far it is, and
// returns the path of the program.
func Build(ctx context.Context, log io.Writer) (string, error) {
	source, err := sources(ctx)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache for the control plane: %w", err)
	}
	hash, err := fingerprint(ctx, source)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "flint", "controlplane-"+hash)
	binary := filepath.Join(folder, "controlplane")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("make the cache for the control plane: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(folder, "lock"), log)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil // built while we waited
	}
	if err := compile(ctx, source, binary, log); err != nil {
		return "", err
	}
	return binary, nil
}

// compile runs go build and puts its result in place when it is whole.
func compile(ctx context.Context, source, binary string, log io.Writer) error {
	flags, err := linkerFlags(source)
	if err != nil {
		return err
	}
	logf(log, "building kube-apiserver and etcd from source for the tests, once: %s is not there.", binary)
	logf(log, "This takes 5 to 15 minutes on two cores. A folder with both programs in %s saves it.", assets)
	began := time.Now()
	partial := fmt.Sprintf("%s.%d", binary, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // gone already if all went well

	command := exec.CommandContext(ctx, "go", "build", "-C", source, "-v", "-buildvcs=false", "-ldflags", flags, "-o", partial, ".")
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var compiled atomic.Int64
	output := &buildOutput{compiled: &compiled}
	command.Stdout, command.Stderr = output, output
	dieWithParent(command)
	command.WaitDelay = 10 * time.Second

	done := make(chan error, 1)
	go func() {
		// See run: the thread must not end before the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- command.Run()
	}()
	ticker := time.NewTicker(15 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			logf(log, "building the control plane: %s, %d packages compiled", time.Since(began).Round(time.Second), compiled.Load())
			continue
		case err = <-done:
		}
		break
	}
	if err != nil {
		return fmt.Errorf("build the control plane: %w\n%s", errors.Join(err, ctx.Err()), output.other.String())
	}
	if err := os.Rename(partial, binary); err != nil {
		return fmt.Errorf("put the control plane in place: %w", err)
	}
	logf(log, "built the control plane in %s", time.Since(began).Round(time.Second))
	return nil
}

// buildOutput counts the packages that go build -v names, and keeps what else it says.
type buildOutput struct {
	compiled *atomic.Int64
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

// sources is the folder of the program's module: beside this package, wherever Go finds that.
func sources(ctx context.Context) (string, error) {
	folder, err := goSays(ctx, "", "list", "-m", "-f", "{{.Dir}}", "flint.dev/flint")
	if err != nil {
		return "", fmt.Errorf("find the sources of the control plane: %w", err)
	}
	return filepath.Join(folder, "test", "controlplane", "binary"), nil
}

// fingerprint tells one build from another.
func fingerprint(ctx context.Context, source string) (string, error) {
	version, err := goSays(ctx, source, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", fmt.Errorf("ask for the version of Go: %w", err)
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, version)
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("read the sources of the control plane: %w", err)
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", name, len(content), content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:16], nil
}

// linkerFlags have the program report the version that its go.mod requires.
func linkerFlags(source string) (string, error) {
	const module = "k8s.io/kubernetes"
	file, err := os.Open(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the version of the control plane: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(lines.Text()), "require "))
		if len(words) < 2 || words[0] != module {
			continue
		}
		parts := strings.Split(strings.TrimPrefix(words[1], "v"), ".")
		if len(parts) < 3 {
			break
		}
		const target = " -X k8s.io/component-base/version."
		return "-s -w" + target + "gitVersion=" + words[1] + target + "gitMajor=" + parts[0] + target + "gitMinor=" + parts[1], nil
	}
	return "", fmt.Errorf("%s requires no version of %s", file.Name(), module)
}

func goSays(ctx context.Context, folder string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
		}
		return "", err
	}
	return strings.TrimSpace(string(output)), nil
}
