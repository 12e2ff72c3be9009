// Command build makes the control plane that the tests start, if the cache does not have it. Run it
// before go test, which hides how far a build is and whose time limit a first build may exceed.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"flint.dev/flint/test/controlplane"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if folder := os.Getenv("KUBEBUILDER_ASSETS"); folder != "" {
		fmt.Printf("nothing to build: the tests use the programs in %s (KUBEBUILDER_ASSETS)\n", folder)
		return
	}
	path, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left for stop to do
	}
	fmt.Println(path)
}
