package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"flint.dev/flint/test/program"
)

// assets is the variable that names a folder with kube-apiserver and etcd, as envtest has it.
const assets = "KUBEBUILDER_ASSETS"

// Commands are how the command lines of the two programs begin.
type Commands struct{ Etcd, APIServer []string }

// Locate finds the programs in the folder KUBEBUILDER_ASSETS, if it is set, or builds them.
func Locate(ctx context.Context, log io.Writer) (Commands, error) {
	if folder := os.Getenv(assets); folder != "" {
		found := Commands{[]string{filepath.Join(folder, "etcd")}, []string{filepath.Join(folder, "kube-apiserver")}}
		for _, path := range []string{found.Etcd[0], found.APIServer[0]} {
			if _, err := os.Stat(path); err != nil {
				return Commands{}, fmt.Errorf("look for the control plane in %s: %w", assets, err)
			}
		}
		return found, nil
	}
	binary, err := Build(ctx, log)
	if err != nil {
		return Commands{}, err
	}
	return Commands{[]string{binary, "etcd"}, []string{binary, "kube-apiserver"}}, nil
}

// Build makes the program of the module test/controlplane/binary, unless the user's cache has it. It says in log that
// it builds and how far it is, and returns the path of the program.
func Build(ctx context.Context, log io.Writer) (string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return "", fmt.Errorf("find the sources of the control plane: %w", err)
	}
	return program.Cached(ctx, log, program.Program{
		Name:   "controlplane",
		Module: filepath.Join(root, "test", "controlplane", "binary"),
		Says:   "These are kube-apiserver and etcd, and take 5 to 15 minutes on two cores. A folder with both in " + assets + " saves it.",
	})
}
