//go:build linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/program"
)

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

const takes = "This takes 2 to 10 minutes on two cores."

// toolsIn is the program tools of the folder of this package.
func toolsIn(here string) program.Program {
	return program.Program{Name: "e2e-tools", Module: filepath.Join(here, "tools"), Says: takes}
}

// build makes all programs. Kubernetes, Knative and kustomize are kept in the cache; what is of this checkout is
// built each time, which Go's own cache makes quick.
func build(ctx context.Context, log io.Writer) (*programs, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return nil, err
	}
	p := &programs{root: root}
	control, err := controlplane.Locate(ctx, log)
	if err != nil {
		return nil, err
	}
	here := filepath.Join(root, "e2e", "cluster")
	node, err := program.Cached(ctx, log, program.Program{Name: "e2e-node", Module: filepath.Join(here, "node"), Says: takes})
	if err != nil {
		return nil, err
	}
	p.commands = commands{
		Etcd: control.Etcd, APIServer: control.APIServer,
		Manager: []string{node, "kube-controller-manager"}, Scheduler: []string{node, "kube-scheduler"}, Kubelet: []string{node, "kubelet"},
	}
	tools := toolsIn(here)
	if p.tools, err = program.Cached(ctx, log, tools); err != nil {
		return nil, err
	}
	queue := program.Program{Name: "e2e-queue", Module: tools.Module, Source: "knative.dev/serving/cmd/queue", Says: takes}
	if p.queue, err = program.Cached(ctx, log, queue); err != nil {
		return nil, err
	}
	output := filepath.Join(root, "bin", "e2e")
	if err := os.MkdirAll(output, 0o755); err != nil {
		return nil, err
	}
	for _, own := range []struct {
		path   *string
		source string
	}{
		{&p.flint, "./cmd/flint"},
		{&p.fileagent, "./cmd/fileagent"},
		{&p.workload, "./e2e/cluster/workload"},
		{&p.pause, "./e2e/cluster/pause"},
	} {
		name := filepath.Base(own.source)
		*own.path = filepath.Join(output, name)
		if err := program.Compile(ctx, log, program.Program{Name: name, Module: root, Source: own.source}, *own.path); err != nil {
			return nil, err
		}
	}
	return p, nil
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
