//go:build linux

package cluster

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
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"flint.dev/flint/test/controlplane"
)

// Module of this folder, whose other modules lie below it.
const module = "flint.dev/flint"

// Images that are loaded into the node. No registry has them, so nothing is pulled in their place.
const (
	FlintImage    = "dev.local/flint:e2e"
	AgentImage    = "dev.local/fileagent:e2e"
	WorkloadImage = "dev.local/workload:e2e"
	queueImage    = "dev.local/queue:e2e"
	pauseImage    = "dev.local/pause:e2e"
)

// programs are the paths of what was built.
type programs struct {
	root                       string // of the checkout
	commands                   commands
	tools, queue               string
	flint, fileagent, workload string
	pause                      string
}

// commands are how the command lines of Kubernetes begin.
type commands struct {
	Etcd, APIServer, Manager, Scheduler, Kubelet []string
}

// build makes all programs. Kubernetes, Knative and kustomize are kept in the cache; what is of this checkout is
// built each time, which Go's own cache makes quick.
func build(ctx context.Context, log io.Writer) (*programs, error) {
	root, err := goSays(ctx, "", "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, err
	}
	p := &programs{root: root}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		p.commands.Etcd, p.commands.APIServer = []string{filepath.Join(assets, "etcd")}, []string{filepath.Join(assets, "kube-apiserver")}
	} else {
		binary, err := controlplane.Build(ctx, log)
		if err != nil {
			return nil, err
		}
		p.commands.Etcd, p.commands.APIServer = []string{binary, "etcd"}, []string{binary, "kube-apiserver"}
	}
	here := filepath.Join(root, "e2e", "cluster")
	version, err := goSays(ctx, filepath.Join(here, "node"), "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	node, err := cached(ctx, log, filepath.Join(here, "node"), ".", "node", kubernetesFlags(version))
	if err != nil {
		return nil, err
	}
	p.commands.Manager = []string{node, "kube-controller-manager"}
	p.commands.Scheduler = []string{node, "kube-scheduler"}
	p.commands.Kubelet = []string{node, "kubelet"}
	tools := filepath.Join(here, "tools")
	if p.tools, err = cached(ctx, log, tools, ".", "tools", "-s -w"); err != nil {
		return nil, err
	}
	if p.queue, err = cached(ctx, log, tools, "knative.dev/serving/cmd/queue", "queue", "-s -w"); err != nil {
		return nil, err
	}
	output := filepath.Join(root, "bin", "e2e")
	if err := os.MkdirAll(output, 0o755); err != nil {
		return nil, err
	}
	for _, own := range []struct {
		program *string
		source  string
	}{
		{&p.flint, "./cmd/flint"},
		{&p.fileagent, "./cmd/fileagent"},
		{&p.workload, "./e2e/cluster/workload"},
		{&p.pause, "./e2e/cluster/pause"},
	} {
		*own.program = filepath.Join(output, filepath.Base(own.source))
		if err := compile(ctx, log, root, own.source, *own.program, "-s -w"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// kubernetesFlags have the programs report the version of their module.
func kubernetesFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const target = " -X k8s.io/component-base/version."
	return "-s -w" + target + "gitVersion=" + version + target + "gitMajor=" + parts[0] + target + "gitMinor=" + parts[1]
}

// cached is the program that the user's cache has for this state of its module, and builds it if there is none.
func cached(ctx context.Context, log io.Writer, folder, source, name, flags string) (string, error) {
	version, err := goSays(ctx, folder, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, version, source, flags)
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range append(files, filepath.Join(folder, "go.mod"), filepath.Join(folder, "go.sum")) {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%s %d\n%s", filepath.Base(file), len(content), content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, "flint", "e2e-"+name+"-"+hex.EncodeToString(sum.Sum(nil))[:16], name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	logf(log, "building %s, once: %s is not there. This takes 2 to 10 minutes on two cores.", name, program)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", err
	}
	partial := fmt.Sprintf("%s.%d", program, os.Getpid())
	defer func() { _ = os.Remove(partial) }() // gone already if all went well
	if err := compile(ctx, log, folder, source, partial, flags); err != nil {
		return "", err
	}
	return program, os.Rename(partial, program)
}

// compile builds one static program, and says every 15 seconds how far it is.
func compile(ctx context.Context, log io.Writer, folder, source, program, flags string) error {
	command := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-ldflags", flags, "-o", program, source)
	command.Dir = folder
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	// Its compilers end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	output := &counted{}
	command.Stdout, command.Stderr = output, output
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- command.Run() }()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			logf(log, "building %s: %s, %d packages compiled", filepath.Base(program), time.Since(began).Round(time.Second), output.lines.Load())
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", source, errors.Join(err, ctx.Err()), output.text.Bytes())
			}
			return nil
		}
	}
}

// counted keeps what go build says, and counts its lines: with -v one for each package.
type counted struct {
	lines atomic.Int64
	text  bytes.Buffer
}

func (c *counted) Write(p []byte) (int, error) {
	c.lines.Add(int64(bytes.Count(p, []byte("\n"))))
	return c.text.Write(p)
}

// prepare writes what the first process reads: the images, Flint's manifests and the settings of the node.
func (p *programs) prepare(ctx context.Context, folder string) error {
	images := filepath.Join(folder, "images")
	for _, made := range []string{images, filepath.Join(folder, "cni"), filepath.Join(folder, "claims", "small"), filepath.Join(folder, "claims", "readonly")} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
	}
	for _, image := range []struct{ name, program, archive string }{
		{pauseImage, p.pause, "1-pause.tar"}, // first: the kubelet needs it for every pod
		{queueImage, p.queue, "2-queue.tar"},
		{FlintImage, p.flint, "3-flint.tar"},
		{AgentImage, p.fileagent, "4-fileagent.tar"},
		{WorkloadImage, p.workload, "5-workload.tar"},
	} {
		if output, err := exec.CommandContext(ctx, p.tools, "image", image.name, image.program, filepath.Join(images, image.archive)).CombinedOutput(); err != nil {
			return fmt.Errorf("write image %s: %w\n%s", image.name, err, output)
		}
	}
	manifests, err := exec.CommandContext(ctx, p.tools, "manifests", filepath.Join(p.root, "e2e", "cluster", "deploy"), queueImage).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("make Flint's manifests: %w\n%s", err, exit.Stderr)
		}
		return fmt.Errorf("make Flint's manifests: %w", err)
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	lines, err := json.Marshal(p.commands)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"flint.yaml":         string(manifests),
		"containerd.toml":    containerdConfig(runc, plugins(), folder),
		"kubelet.yaml":       kubeletConfig(folder),
		"cni/flint.conflist": cniConfig,
		"resolv.conf":        "",
		commandsFile:         string(lines),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// keepLogs copies the logs of a cluster that did not start to bin/e2e of the checkout.
func (p *programs) keepLogs(folder string) error {
	logs, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		return err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(p.flint), filepath.Base(log)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func goSays(ctx context.Context, folder string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = folder
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(output)), nil
}
