//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// hierarchies are the folders of the control groups: one for each controller of version 1, or the one of version 2.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(controlGroups, "cgroup.controllers")); err == nil {
		return []string{controlGroups}, nil
	}
	folders, err := filepath.Glob(filepath.Join(controlGroups, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	for i := range folders {
		folders[i] = filepath.Dir(folders[i])
	}
	return folders, nil
}

// makeControlGroups makes the group below which the kubelet makes those of its pods. It wants the group to exist, and
// in version 1 a group of processors has none until it is told.
func makeControlGroups() error {
	folders, err := hierarchies()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		group := filepath.Join(folder, name())
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the control group: %w", err)
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(folder, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("make the control group: %w", err)
			}
			if err := os.WriteFile(filepath.Join(group, name), value, 0o600); err != nil {
				return fmt.Errorf("make the control group: %w", err)
			}
		}
	}
	return nil
}

// removeControlGroups removes the group and those below it. The kernel needs a moment to see that they are empty.
func removeControlGroups(ctx context.Context) error {
	folders, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, folder := range folders {
		err := until(ctx, "the end of the control group", func() (bool, error) {
			err := removeGroup(filepath.Join(folder, name()))
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removeGroup removes the folders of a group from below: its files are the kernel's.
func removeGroup(group string) error {
	var folders []string
	err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			folders = append(folders, path)
		}
		return nil // what has just gone need not be removed
	})
	if err != nil {
		return err
	}
	for _, folder := range slices.Backward(folders) {
		if err := os.Remove(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
