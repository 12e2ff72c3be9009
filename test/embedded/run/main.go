// Command run is `make run`: Flint, served as func-go serves it, on the embedded cluster, so that
// a newcomer sees a submission become a driver and end, and files change on a claim that is a local folder, with no cluster and no account. When KUBECONFIG
// is set, Flint uses that cluster instead. Settings are Flint's own; only LISTEN_ADDRESS has
// another default, loopback.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/test/embedded"
	"flint.dev/flint/test/embedded/claims"
)

// runFor is how long a simulated driver runs.
const runFor = 2 * time.Second

func main() {
	// func-go ends on SIGINT and SIGTERM by itself.
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

// run serves until ctx or a signal ends it. It tells out what it does.
func run(ctx context.Context, out io.Writer) error {
	settings, err := config.Load()
	if err != nil {
		return err
	}
	if os.Getenv("LISTEN_ADDRESS") == "" {
		if err := os.Setenv("LISTEN_ADDRESS", "127.0.0.1:8080"); err != nil {
			return err
		}
	}
	on := "the cluster of KUBECONFIG=" + settings.Kubeconfig
	if settings.Kubeconfig == "" {
		cluster, stop, err := startCluster(settings, out)
		if err != nil {
			return err
		}
		defer stop()
		on = "an embedded Kubernetes on " + cluster.URL() + ", KUBECONFIG=" + os.Getenv("KUBECONFIG")
	}

	fhttp.SetLogLevel(fhttp.LogWarn)
	f := &announced{Function: function.New()}
	service := fhttp.New(f)
	f.ready = func() {
		_, _ = fmt.Fprintf(out, "Flint on http://%s, with %s\n", service.Addr(), on)
		_, _ = fmt.Fprintln(out, "paste the curl lines of the README, or of docs/file-jobs.md, in a second terminal; Ctrl-C ends it")
	}
	err = service.Start(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; LISTEN_ADDRESS=127.0.0.1:PORT takes another port", err)
	}
	return err
}

// startCluster starts the embedded cluster and points KUBECONFIG at it.
func startCluster(settings *config.Settings, out io.Writer) (_ *embedded.Cluster, stop func(), err error) {
	folder, err := os.MkdirTemp("", "flint-run-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder: %w", err)
	}
	folders := &claims.Claims{Root: filepath.Join(folder, "claims")}
	options := embedded.Options{Log: out, RunFor: runFor, Run: folders.Run}
	for _, namespace := range settings.Namespaces {
		if namespace != "*" && namespace != "default" {
			options.Namespaces = append(options.Namespaces, namespace)
		}
	}
	cluster, err := embedded.Start(options)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(folder))
	}
	stop = func() {
		cluster.Close()
		_ = os.RemoveAll(folder)
	}
	path := filepath.Join(folder, "kubeconfig")
	if err := errors.Join(cluster.Kubeconfig(path), os.Setenv("KUBECONFIG", path), addClaim(cluster, folders, out)); err != nil {
		stop()
		return nil, nil, err
	}
	return cluster, stop, nil
}

// addClaim makes the claim that docs/file-jobs.md works on. No image is pulled: its agent runs in this process.
func addClaim(cluster *embedded.Cluster, folders *claims.Claims, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	folders.Serve(cluster)
	folder, err := folders.Add(ctx, "default", "data")
	if err != nil {
		return fmt.Errorf("make the claim data: %w", err)
	}
	_, _ = fmt.Fprintln(out, "the claim data in the namespace default is the folder", folder)
	if os.Getenv("FLINT_FILE_IMAGE") == "" {
		return os.Setenv("FLINT_FILE_IMAGE", "fileagent")
	}
	return nil
}

// announced tells when the function has started.
type announced struct {
	*function.Function
	ready func()
}

func (a *announced) Start(ctx context.Context, cfg map[string]string) error {
	if err := a.Function.Start(ctx, cfg); err != nil {
		return err
	}
	a.ready()
	return nil
}
