//go:build linux

// Command run makes and ends the cluster of package cluster, and runs its tests.
//
//	run up         make it, unless it runs
//	run down       end it, and remove what is left of it
//	run test       up, the tests (with what follows as flags of go test), down unless it ran before
//	run serving    the same with the tests that have Knative Serving scale the function
//	run spark      the same with the tests that run Spark itself
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"flint.dev/flint/e2e/cluster"
)

func main() {
	cluster.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	verb := ""
	if len(args) > 0 {
		verb = args[0]
	}
	release, err := cluster.Alone(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer release()
	switch verb {
	case "up":
		if missing := cluster.Missing(ctx, os.Stderr); len(missing) > 0 {
			return fmt.Errorf("this machine cannot run containers, it lacks: %s", strings.Join(missing, "; "))
		}
		c, err := cluster.Up(ctx, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Printf("kubectl: nsenter --target %d --net -- kubectl --kubeconfig %s\n", c.PID, c.Kubeconfig())
		return nil
	case "down":
		return down(ctx)
	case "test":
		return test(ctx, "e2e", args[1:])
	case "serving":
		return test(ctx, "e2e,serving", append([]string{"-run=^TestServing"}, args[1:]...))
	case "spark":
		return test(ctx, "e2e,spark", append([]string{"-run=^TestSpark"}, args[1:]...))
	}
	return fmt.Errorf("usage: run up|down|test|serving|spark, got %q", args)
}

// down ends the cluster, and looks whether anything of it is left.
func down(ctx context.Context) error {
	if err := cluster.Down(ctx); err != nil {
		return err
	}
	left, err := cluster.Left()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("left of the cluster: %s", strings.Join(left, "; "))
	}
	return err
}

// test runs the tests of the package that the build tags have. Those of a machine that cannot run containers are skipped, and say why.
func test(ctx context.Context, tags string, flags []string) (err error) {
	environment := os.Environ()
	if missing := cluster.Missing(ctx, os.Stderr); len(missing) > 0 {
		reason := strings.Join(missing, "; ")
		fmt.Println("SKIPPED: all scenarios on a real node: this machine lacks " + reason)
		environment = append(environment, cluster.SkipVariable+"="+reason)
	} else if already, failed := cluster.Open(); failed != nil {
		return failed
	} else if already == nil {
		defer func() { err = errors.Join(err, down(context.WithoutCancel(ctx))) }()
		if _, err := cluster.Up(ctx, os.Stderr); err != nil {
			return err
		}
	}
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-tags=" + tags, "-count=1", "-v", "-parallel=8", "-timeout=20m", "./e2e/cluster"}, flags...)...)
	command.Env = environment
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	return command.Run()
}
