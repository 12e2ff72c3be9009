//go:build linux

package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"flint.dev/flint/test/program"
)

// ServiceFile of the cluster's folder has the function's Knative Service, after Serving.
const ServiceFile = "service.yaml"

// servingImage is that of one of Knative Serving's programs: its controller, activator and autoscaler.
func servingImage(name string) string { return "dev.local/serving-" + name + ":e2e" }

// Serving gives the node the programs of Knative Serving, which are built from its module, and writes ServiceFile: the
// Knative Service of deploy, with the defaults that Serving's webhook would give it.
func (c *Cluster) Serving(ctx context.Context, log io.Writer) ([]string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return nil, err
	}
	here := filepath.Join(root, "e2e", "cluster")
	tools, err := program.Cached(ctx, log, toolsIn(here))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"controller", "activator", "autoscaler"} {
		built, err := program.Cached(ctx, log, program.Program{
			Name: "e2e-" + name, Module: filepath.Join(here, "tools"), Source: "knative.dev/serving/cmd/" + name, Says: takes,
		})
		if err != nil {
			return nil, err
		}
		archive := filepath.Join(c.Folder, name+".tar")
		if output, err := exec.CommandContext(ctx, tools, "image", servingImage(name), built, archive).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("write image %s: %w\n%s", servingImage(name), err, output)
		}
		if err := c.Load(ctx, archive); err != nil {
			return nil, err
		}
		if err := os.Remove(archive); err != nil {
			return nil, err
		}
	}
	service, err := exec.CommandContext(ctx, tools, "service", filepath.Join(here, "deploy")).Output()
	if err != nil {
		return nil, fmt.Errorf("make the Knative Service: %w", err)
	}
	return nil, os.WriteFile(filepath.Join(c.Folder, ServiceFile), service, 0o600)
}
