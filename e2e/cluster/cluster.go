//go:build linux

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// Address is the node's own, and the gateway of its pods: what listens there is reached by all of them.
	Address = "10.77.0.1"
	// SinkPort is where Flint sends its events to, on Address: deploy/kustomization.yaml.
	SinkPort = "8090"
	// SkipVariable is set for tests that must be skipped, to the reason.
	SkipVariable = "FLINT_E2E_MISSING"
	// NodeName is the one node's.
	NodeName = "flint-e2e"

	subnet        = "10.77.0.0/16"
	firstPod      = "10.77.1.0"
	apiService    = "10.96.0.1" // the first address of the Services' range
	controlGroups = "/sys/fs/cgroup"
	startLimit    = 3 * time.Minute
)

// NameVariable may name another cluster beside the usual one.
const NameVariable = "FLINT_E2E_NAME"

// name is that of the cluster's folder and of its control group. It is the same each time, so that there is one
// cluster at most and Down finds what is left of it.
func name() string { return cmp.Or(os.Getenv(NameVariable), "flint-e2e") }

func folder() string { return filepath.Join(os.TempDir(), name()) }

// Cluster is one that Up has made: a folder, and the process that all others descend from.
type Cluster struct {
	Folder string `json:"folder"`
	PID    int    `json:"pid"`
	// Started is the process's start time in clock ticks since boot: a process id alone may be another's by now.
	Started string `json:"started"`
}

// Kubeconfig is the path of a kubeconfig file of an administrator. Its address is reached from inside only: Enter.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.Folder, "kubeconfig") }

// Root is the path of the node's file system as its kubelet sees it, with what is mounted there.
func (c *Cluster) Root() string { return fmt.Sprintf("/proc/%d/root", c.PID) }

// Claims is the folder on the node below which claims may have their files. Two of
// them are file systems: small, of 1 MiB, and readonly.
func (c *Cluster) Claims() string { return filepath.Join(c.Folder, "claims") }

// EnterNetwork is a command that runs in the cluster's network, and otherwise on this machine.
func (c *Cluster) EnterNetwork(ctx context.Context, program string, args ...string) *exec.Cmd {
	return c.enter(ctx, []string{"--net"}, program, args...)
}

// Enter is a command that runs on the node: its network, its mounts, its root, its processes.
func (c *Cluster) Enter(ctx context.Context, program string, args ...string) *exec.Cmd {
	return c.enter(ctx, []string{"--net", "--mount", "--root", "--pid", "--uts", "--ipc"}, program, args...)
}

func (c *Cluster) enter(ctx context.Context, namespaces []string, program string, args ...string) *exec.Cmd {
	enter := append([]string{"--target", strconv.Itoa(c.PID)}, namespaces...)
	return exec.CommandContext(ctx, "nsenter", slices.Concat(enter, []string{"--", program}, args)...)
}

// Load gives the node the images of an archive.
func (c *Cluster) Load(ctx context.Context, archive string) error {
	output, err := c.Enter(ctx, "ctr", "--address="+containerdSocket, "--namespace=k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("load %s: %w\n%s", archive, err, bytes.TrimSpace(output))
	}
	return nil
}

// Alone waits until no other process of this machine makes, uses or ends the cluster. The kernel forgets the socket's
// name with the process, so nothing of it can be left.
func Alone(ctx context.Context, log io.Writer) (release func(), err error) {
	var held net.Listener
	take := func() (bool, error) {
		var err error
		held, err = net.Listen("unix", "@"+name())
		return err == nil, err
	}
	if taken, _ := take(); !taken {
		logf(log, "another process uses the cluster, waiting for it")
		if err := until(ctx, "another process that uses the cluster", take); err != nil {
			return nil, err
		}
	}
	return func() { _ = held.Close() }, nil
}

// Open finds the cluster that runs, and is nil when none does.
func Open() (*Cluster, error) {
	text, err := os.ReadFile(filepath.Join(folder(), "cluster.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read about the cluster: %w", err)
	}
	c := &Cluster{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("read about the cluster: %w", err)
	}
	if !c.alive() {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(c.Folder, readyFile)); err != nil {
		return nil, nil //nolint:nilerr // it never became ready
	}
	return c, nil
}

// Up makes a cluster with Flint in it, and returns the one that runs if there is one. What an earlier Up has left is
// removed first. The builds of the first Up take ten minutes and more; log says how far they are.
func Up(ctx context.Context, log io.Writer) (_ *Cluster, err error) {
	if c, err := Open(); err != nil || c != nil {
		return c, err
	}
	if err := Down(ctx); err != nil {
		return nil, err
	}
	built, err := build(ctx, log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Folder: folder()}
	defer func() {
		if err != nil {
			err = errors.Join(err, built.keepLogs(c.Folder), Down(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.Mkdir(c.Folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the cluster's folder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	began := time.Now()
	if err := built.prepare(ctx, c.Folder); err != nil {
		return nil, err
	}
	if err := c.start(ctx, log); err != nil {
		return nil, err
	}
	logf(log, "cluster ready after %.1fs: process %d, folder %s", time.Since(began).Seconds(), c.PID, c.Folder)
	return c, nil
}

// start runs the first process and waits until the cluster is ready. Until then the process ends when this one does:
// it reads from a pipe, whose end without a word means that nobody knows of it.
func (c *Cluster) start(ctx context.Context, log io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	output, err := os.Create(filepath.Join(c.Folder, "node.log"))
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }()
	command := exec.Command(self, Init, c.Folder)
	command.Env = []string{NameVariable + "=" + name(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	command.Dir = c.Folder
	command.Stdout, command.Stderr = output, output
	word, err := command.StdinPipe()
	if err != nil {
		return err
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start the cluster: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // how it ended does not matter: it should not
		close(ended)
	}()
	c.PID = command.Process.Pid
	if c.Started, err = startTime(c.PID); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.Folder, "cluster.json"), text, 0o600); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	progress := time.NewTicker(15 * time.Second)
	defer progress.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the cluster: %w\n%s", ctx.Err(), tail(output.Name()))
		case <-ended:
			return fmt.Errorf("the cluster did not start\n%s", tail(output.Name()))
		case <-progress.C:
			logf(log, "starting the cluster: %s", lastLine(output.Name()))
		case <-tick.C:
			if _, err := os.Stat(filepath.Join(c.Folder, readyFile)); err == nil {
				_, err := io.WriteString(word, "known")
				return err
			}
		}
	}
}

// Down ends the cluster, if there is one, and removes what it or an earlier one has left. It may be called at any time.
func Down(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(folder(), "cluster.json"))
	if err == nil {
		c := Cluster{}
		if json.Unmarshal(text, &c) == nil {
			if err := c.kill(ctx); err != nil {
				return err
			}
		}
	}
	if err := removeControlGroups(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(folder()); err != nil {
		return fmt.Errorf("remove the cluster's folder: %w", err)
	}
	return nil
}

// kill ends the first process; the kernel then ends all others of its process ids, and waits for them first.
func (c *Cluster) kill(ctx context.Context) error {
	if !c.alive() {
		return nil
	}
	if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
		return fmt.Errorf("end the cluster: %w", err)
	}
	return until(ctx, "the end of the cluster's processes", func() (bool, error) { return !c.alive(), nil })
}

// alive tells whether the first process has not ended.
func (c *Cluster) alive() bool {
	started, err := startTime(c.PID)
	return err == nil && started == c.Started
}

// startTime is field 22 of /proc/PID/stat (proc_pid_stat(5)). A zombie has none: it has ended.
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}

// until asks again and again until it is so.
func until(ctx context.Context, what string, ask func() (bool, error)) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ask()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// tail is the end of a log file.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

func lastLine(path string) string {
	lines := strings.Split(strings.TrimSpace(tail(path)), "\n")
	return lines[len(lines)-1]
}

func logf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
