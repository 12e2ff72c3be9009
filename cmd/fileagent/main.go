// Command fileagent does the one operation of a file job, in that job's pod. It takes no arguments: what it is to do, and on which
// folder, is in its environment (package protocol), and so is the mark of its answer.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"flint.dev/flint/pkg/fileagent"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// terminationLog is where the kubelet reads the termination message, unless the container says otherwise.
const terminationLog = "/dev/termination-log"

func main() { os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr)) }

func run(args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "fileagent: unexpected argument %q\n", args[0])
		return fileagent.ExitInvalid
	}
	given, err := protocol.DecodeEnv(getenv, os.ReadFile)
	if err != nil {
		fmt.Fprintln(stderr, "fileagent:", err)
		return fileagent.ExitInvalid
	}
	if limit := fileagent.HeapLimit(os.DirFS("/sys/fs/cgroup"), getenv); limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	// Where nobody reads the log any more, the operation goes on to its end, and the termination message tells of it.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	agent := &fileagent.Agent{
		Root: given.Root, Nonce: given.Nonce, Out: stdout, Errors: stderr, Now: time.Now,
		Termination: overwriteTermination,
	}
	return agent.Run(ctx, given.Request)
}

// overwriteTermination writes the file that the kubelet has made; where it has not, nobody would read one.
func overwriteTermination(content []byte) error {
	file, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
