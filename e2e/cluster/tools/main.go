// Command tools makes what the cluster of package cluster is fed with: images of single programs, and the
// manifests of Flint as Knative Serving would run them. It is a module of its own, so that neither Serving nor
// kustomize reaches the product's module graph; knative.dev/serving/cmd/queue is built from it too.
//
//	tools image NAME PROGRAM ARCHIVE      an image whose entrypoint is the program
//	tools manifests FOLDER QUEUE-IMAGE    the kustomization, its Knative Service made a Deployment by Serving
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "image":
		return writeImage(args[1], args[2], args[3])
	case len(args) == 3 && args[0] == "manifests":
		return writeManifests(os.Stdout, args[1], args[2])
	}
	return fmt.Errorf("usage: tools image NAME PROGRAM ARCHIVE, or tools manifests FOLDER QUEUE-IMAGE, got %q", args)
}
