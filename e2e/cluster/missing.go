//go:build linux

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// packages are Debian's, by a program of each.
var packages = map[string]string{
	"containerd": "containerd",
	"ctr":        "containerd",
	"runc":       "runc",
	"iptables":   "iptables",
	"conntrack":  "conntrack",
	"ip":         "iproute2",
	"nsenter":    "util-linux",
}

// pluginPackage is Debian's with the CNI plugins. The program bridge that is found by its name is iproute2's.
const pluginPackage = "containernetworking-plugins"

// pluginFolders are where distributions put them.
var pluginFolders = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// Missing says what this machine lacks to run containers, and is empty if it lacks nothing. Packages that are not
// there are installed, where apt-get can do it.
func Missing(ctx context.Context, log io.Writer) []string {
	if os.Geteuid() != 0 {
		return []string{"root: containers are started by containerd and runc as root"}
	}
	var missing []string
	if err := namespaces(ctx); err != nil {
		missing = append(missing, fmt.Sprintf("the right to make namespaces and a bridge (CAP_SYS_ADMIN, CAP_NET_ADMIN): %v", err))
	}
	if folders, err := hierarchies(); err != nil || len(folders) == 0 {
		missing = append(missing, "control groups in "+controlGroups)
	} else if err := writable(folders); err != nil {
		missing = append(missing, fmt.Sprintf("control groups that may be written: %v", err))
	}
	if text, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(text), "overlay") {
		missing = append(missing, "the overlay file system in the kernel")
	}
	if len(missing) > 0 {
		return missing
	}
	absent := absentPackages()
	if len(absent) == 0 {
		return nil
	}
	if err := install(ctx, log, absent); err != nil {
		return []string{fmt.Sprintf("the packages %s, and they could not be installed: %v", strings.Join(absent, ", "), err)}
	}
	for _, name := range absentPackages() {
		missing = append(missing, "a program of the package "+name)
	}
	return missing
}

// namespaces makes a set of them with a bridge and a pair of network devices in it, as the cluster will.
func namespaces(ctx context.Context) error {
	const try = "ip link add flint-try type bridge && ip link add flint-try0 type veth peer name flint-try1"
	command := exec.CommandContext(ctx, "sh", "-c", try)
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if _, err := exec.LookPath("ip"); err != nil {
		command.Args[2] = "true" // iproute2 is installed later
	}
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w %s", err, strings.TrimSpace(string(output)))
	}
	return nil
}

func writable(folders []string) error {
	for _, folder := range folders {
		group := filepath.Join(folder, name()+"-try")
		if err := os.Mkdir(group, 0o755); err != nil {
			return err
		}
		if err := os.Remove(group); err != nil {
			return err
		}
	}
	return nil
}

func absentPackages() []string {
	absent := map[string]bool{}
	for program, name := range packages {
		if _, err := exec.LookPath(program); err != nil {
			absent[name] = true
		}
	}
	if plugins() == "" {
		absent[pluginPackage] = true
	}
	var names []string
	for name := range absent {
		names = append(names, name)
	}
	return names
}

// plugins is the folder of the CNI plugins.
func plugins() string {
	for _, folder := range pluginFolders {
		if _, err := os.Stat(filepath.Join(folder, "bridge")); err == nil {
			return folder
		}
	}
	return ""
}

func install(ctx context.Context, log io.Writer, names []string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return err
	}
	logf(log, "installing %s with apt-get", strings.Join(names, ", "))
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, args := range [][]string{{"update"}, append([]string{"install", "-y", "--no-install-recommends"}, names...)} {
		command := exec.CommandContext(ctx, "apt-get", args...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1") // no service is started
		if output, err := command.CombinedOutput(); err != nil {
			logf(log, "%s", output)
			lines := strings.Split(strings.TrimSpace(string(output)), "\n")
			return fmt.Errorf("apt-get %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
		}
	}
	return nil
}
