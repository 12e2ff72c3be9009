//go:build linux

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Left is what there still is of a cluster: nothing after Down.
func Left() ([]string, error) {
	var left []string
	if _, err := os.Stat(folder()); err == nil {
		left = append(left, "folder "+folder())
	}
	folders, err := hierarchies()
	if err != nil {
		return nil, err
	}
	for _, hierarchy := range folders {
		group := filepath.Join(hierarchy, name())
		if _, err := os.Stat(group); err == nil {
			left = append(left, "control group "+group)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, folder()+"/") {
			left = append(left, "mount "+strings.TrimSpace(line))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		line, err := os.ReadFile(process)
		if err != nil {
			continue // it has ended in between
		}
		// A container's processes name nothing of ours, but their shim does, and they do not outlive the kernel's namespace of both.
		words := strings.ReplaceAll(string(line), "\x00", " ")
		if strings.Contains(words, folder()+"/") || strings.Contains(words, Init+" "+folder()+" ") || strings.Contains(words, Node+" "+folder()+" ") {
			left = append(left, fmt.Sprintf("process %s: %s", filepath.Base(filepath.Dir(process)), words))
		}
	}
	return left, nil
}
