//go:build linux

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"

	"flint.dev/flint/e2e/cluster/sparkimage"
	"flint.dev/flint/test/program"
)

// DNSVariable tells the tests where the program of e2e/cluster/dns is.
const DNSVariable = "FLINT_E2E_DNS"

// Spark gives the node the image of Spark, and builds the DNS server that a driver needs. It returns what the tests
// have in their environment.
func (c *Cluster) Spark(ctx context.Context, log io.Writer) ([]string, error) {
	root, err := program.Root(ctx)
	if err != nil {
		return nil, err
	}
	here := filepath.Join(root, "e2e", "cluster")
	dns, err := program.Cached(ctx, log, program.Program{Name: "e2e-dns", Module: filepath.Join(here, "dns"), Says: takes})
	if err != nil {
		return nil, err
	}
	tools, err := program.Cached(ctx, log, toolsIn(here))
	if err != nil {
		return nil, err
	}
	archive, err := sparkimage.Archive(ctx, log, tools)
	if err != nil {
		return nil, err
	}
	there, err := c.Enter(ctx, "ctr", "--address="+containerdSocket, "--namespace=k8s.io", "images", "ls", "--quiet", "name=="+sparkimage.Name()).Output()
	if err != nil {
		return nil, fmt.Errorf("look for the image of Spark: %w", err)
	}
	if len(bytes.TrimSpace(there)) == 0 {
		logf(log, "loading the image of Spark")
		if err := c.Load(ctx, archive); err != nil {
			return nil, err
		}
	}
	return []string{DNSVariable + "=" + dns}, nil
}
