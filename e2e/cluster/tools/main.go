// Command tools makes what the cluster of package cluster is fed with: images of single programs, and the
// manifests of Flint as Knative Serving would run them. It is a module of its own, so that neither Serving nor
// kustomize reaches the product's module graph; Serving's own programs are built from it too.
//
//	tools image NAME PROGRAM ARCHIVE      an image whose entrypoint is the program
//	tools folder NAME FOLDER CONFIG ARCHIVE    an image of a folder; CONFIG is its configuration, in JSON
//	tools manifests FOLDER QUEUE-IMAGE    the kustomization, its Knative Service made a Deployment by Serving
//	tools service FOLDER                  the Knative Service of the kustomization, with Serving's defaults
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
	case len(args) == 5 && args[0] == "folder":
		return writeFolder(args[1], args[2], args[3], args[4])
	case len(args) == 3 && args[0] == "manifests":
		return writeManifests(os.Stdout, args[1], args[2])
	case len(args) == 2 && args[0] == "service":
		return writeService(os.Stdout, args[1])
	}
	return fmt.Errorf("usage: tools image NAME PROGRAM ARCHIVE, tools folder NAME FOLDER CONFIG ARCHIVE, tools manifests FOLDER QUEUE-IMAGE, or tools service FOLDER, got %q", args)
}
