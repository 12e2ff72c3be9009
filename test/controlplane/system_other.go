//go:build !linux

package controlplane

import (
	"context"
	"io"
	"os/exec"
)

// dieWithParent does nothing: only Linux can. Stop ends the processes everywhere.
func dieWithParent(*exec.Cmd) {}

// lock does nothing: two builds at once cost time and are harmless, since the result is renamed into place.
func lock(context.Context, string, io.Writer) (unlock func(), err error) { return func() {}, nil }
