// Command flint serves the function, or renders what it would create.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/config"
)

const usage = `Flint creates Spark drivers, file jobs and runner pods in Kubernetes on request.

usage:
  flint serve                                        answer HTTP and CloudEvents
  flint render [--spark-version V] < request.json    print what a submission would create
  flint version

Each command has --help.
`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "serve":
		return serve(args, stdout, stderr)
	case "render":
		return render(args, stdin, stdout, stderr)
	case "version":
		fmt.Fprintln(stdout, buildVersion())
		return 0
	case "help", "-h", "--help":
		fmt.Fprint(stdout, usage)
		return 0
	case "":
		fmt.Fprint(stderr, usage)
		return 2
	default:
		fmt.Fprintf(stderr, "flint: no command %q\n\n%s", command, usage)
		return 2
	}
}

// parse reads the flags of a command. done is true when there is nothing left to do but exit with code.
func parse(flags *flag.FlagSet, args []string, help func(io.Writer), stdout, stderr io.Writer) (done bool, code int) {
	flags.SetOutput(io.Discard)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return true, 0
	case err != nil:
		fmt.Fprintf(stderr, "flint %s: %v\n", flags.Name(), err)
		return true, 2
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "flint %s: unexpected argument %q\n", flags.Name(), flags.Arg(0))
		return true, 2
	}
	return false, 0
}

func serve(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	help := func(w io.Writer) {
		fmt.Fprint(w, "usage: flint serve\n\nServes until SIGTERM or SIGINT, then finishes what is in flight. Settings are environment variables:\n\n")
		if err := config.Usage(w); err != nil {
			fmt.Fprintln(stderr, "flint serve:", err)
		}
	}
	if done, code := parse(flags, args, help, stdout, stderr); done {
		return code
	}
	// Settings are checked here as well as in Start: func-go listens before it
	// calls Start, and a process at fault must not take a single request.
	if _, err := config.Load(); err != nil {
		fmt.Fprintln(stderr, "flint serve:", err)
		return 1
	}
	fhttp.SetLogLevel(fhttp.LogInfo)
	if err := fhttp.New(function.New()).Start(context.Background()); err != nil {
		fmt.Fprintln(stderr, "flint serve:", err)
		return 1
	}
	return 0
}

// buildVersion is the version of the module, or the commit that it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
