//go:build e2e && linux

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A second cluster, whose Up is killed while its node starts: its processes end by themselves, and Down removes the rest
// and says so, also a second time.
func TestUpKilled(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const second = "flint-e2e-killed"
	command := func(verb string) *exec.Cmd {
		c := exec.CommandContext(ctx, "../../bin/e2e-cluster", verb)
		c.Env = append(os.Environ(), NameVariable+"="+second)
		return c
	}
	t.Cleanup(func() { _ = exec.Command("env", NameVariable+"="+second, "../../bin/e2e-cluster", "down").Run() })
	up := command("up")
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(os.TempDir(), second)
	err := until(ctx, "its kubelet", func() (bool, error) {
		_, err := os.Stat(filepath.Join(folder, "kubelet.log"))
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	var killed Cluster
	text, err := os.ReadFile(filepath.Join(folder, "cluster.json"))
	if err := errors.Join(err, json.Unmarshal(text, &killed)); err != nil {
		t.Fatal(err)
	}
	if err := up.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.Wait() // it was killed
	if err := until(ctx, "the end of its processes", func() (bool, error) { return !killed.alive(), nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if output, err := command("down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, output)
		}
	}
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}
