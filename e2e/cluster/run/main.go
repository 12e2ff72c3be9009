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
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"flint.dev/flint/e2e/cluster"
	"flint.dev/flint/e2e/cluster/sparkimage"
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
		return test(ctx, suite{tags: "e2e", flags: args[1:]})
	case "serving":
		return test(ctx, suite{"e2e,serving", append([]string{"-run=^TestServing"}, args[1:]...), nil, (*cluster.Cluster).Serving})
	case "spark":
		return test(ctx, suite{"e2e,spark", append([]string{"-run=^TestSpark"}, args[1:]...), sparkimage.Missing(), (*cluster.Cluster).Spark})
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

// suite is some of the tests of the package.
type suite struct {
	tags    string // build tags that have them
	flags   []string
	missing []string // what the machine lacks for these beside what all need
	// prepare gives the cluster what only these need, and returns what they have in their environment. It may be nil.
	prepare func(*cluster.Cluster, context.Context, io.Writer) ([]string, error)
}

// test runs the tests. Those of a machine that cannot run them are skipped, and say why.
func test(ctx context.Context, s suite) (err error) {
	environment := os.Environ()
	if missing := append(cluster.Missing(ctx, os.Stderr), s.missing...); len(missing) > 0 {
		reason := strings.Join(missing, "; ")
		fmt.Println("SKIPPED: all scenarios on a real node: this machine lacks " + reason)
		environment = append(environment, cluster.SkipVariable+"="+reason)
	} else {
		var c *cluster.Cluster
		if c, err = cluster.Open(); err != nil {
			return err
		}
		if c == nil {
			defer func() { err = errors.Join(err, down(context.WithoutCancel(ctx))) }()
			if c, err = cluster.Up(ctx, os.Stderr); err != nil {
				return err
			}
		}
		if s.prepare != nil {
			more, err := s.prepare(c, ctx, os.Stderr)
			if err != nil {
				return err
			}
			environment = append(environment, more...)
		}
	}
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-tags=" + s.tags, "-count=1", "-v", "-parallel=8", "-timeout=20m", "./e2e/cluster"}, s.flags...)...)
	command.Env = environment
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	return command.Run()
}
