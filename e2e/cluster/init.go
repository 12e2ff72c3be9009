//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// The words by which a program that has this package in it calls itself.
const (
	// Init is the first argument of the first process in the namespaces: it adopts and buries what has lost its parent.
	Init = "cluster-init"
	// Node is the first argument of the process that starts everything else.
	Node = "cluster-node"

	readyFile = "ready"
)

// Main is called first by a program that calls Up. In a process of the cluster it does not return.
func Main() {
	if len(os.Args) != 3 {
		return
	}
	var err error
	switch os.Args[1] {
	case Init:
		err = bury()
	case Node:
		err = node(context.Background(), os.Args[2])
	default:
		return
	}
	fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
	os.Exit(1)
}

// bury is process 1: it starts the node, and waits for every child there is until the node has ended, or until the one
// who started all this is gone before knowing that it is ready.
func bury() error {
	go func() {
		if read, _ := os.Stdin.Read(make([]byte, 8)); read == 0 {
			os.Exit(1)
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child, err := os.StartProcess(self, []string{self, Node, os.Args[2]}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr},
	})
	if err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == child.Pid:
			return fmt.Errorf("the node ended: %v", status)
		}
	}
}

// wanted are the settings that the kubelet makes, unless it finds them made (setupKernelTunables in
// pkg/kubelet/cm/container_manager_linux.go). They are the whole machine's, so here it finds files that say so.
var wanted = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0",
	"kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// mounts makes the node's file system: this machine's, but with its own folders where containerd, runc, the CNI
// plugins and the kubelet keep things, its own processes, and the settings of the kernel that the kubelet would change.
func mounts(folder string) error {
	type mount struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}
	all := []mount{{target: "/", flags: syscall.MS_PRIVATE | syscall.MS_REC}, {source: "proc", target: "/proc", kind: "proc"}}
	for _, name := range []string{"lib", "log"} {
		own := filepath.Join(folder, "var", name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		all = append(all, mount{source: own, target: "/var/" + name, flags: syscall.MS_BIND})
	}
	for name, value := range wanted {
		own := filepath.Join(folder, filepath.Base(name))
		if err := os.WriteFile(own, []byte(value+"\n"), 0o600); err != nil {
			return err
		}
		all = append(all, mount{source: own, target: filepath.Join("/proc/sys", name), flags: syscall.MS_BIND})
	}
	all = append(all,
		mount{source: "tmpfs", target: "/run", kind: "tmpfs", data: "mode=755"},
		mount{source: "tmpfs", target: filepath.Join(folder, "claims", "small"), kind: "tmpfs", data: "size=1m,mode=777"},
		mount{source: "tmpfs", target: filepath.Join(folder, "claims", "readonly"), kind: "tmpfs", flags: syscall.MS_RDONLY, data: "size=1m,mode=777"})
	for _, m := range all {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// With shared mounts below, a pod may have mounts propagated; the kubelet expects it of /.
	return syscall.Mount("", "/", "", syscall.MS_SHARED|syscall.MS_REC, "")
}

// network gives the node its address, and the API server the one that pods know it by: without a kube-proxy it is
// simply one of the node's.
func network(ctx context.Context) error {
	if err := syscall.Sethostname([]byte(NodeName)); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up",
		"address add " + apiService + "/32 dev lo",
		// With an address of its own: else it takes that of one of its ports, and pods lose the node whenever that port goes.
		"link add " + bridge + " address 0a:58:0a:4d:00:01 type bridge",
		"address add " + Address + "/16 dev " + bridge,
		"link set " + bridge + " up",
	} {
		if output, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w\n%s", line, err, output)
		}
	}
	return nil
}
