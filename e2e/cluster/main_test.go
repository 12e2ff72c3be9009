//go:build e2e && linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// inside is set in the test process that runs in the cluster's network.
const inside = "FLINT_E2E_INSIDE"

// What all tests share: the cluster, an administrator's client, and what has arrived at the sink.
var (
	shared   *Cluster
	client   kubernetes.Interface
	received = newSink()
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

// runTests runs the test process once more in the cluster's network, where pods are reached and reach the sink.
func runTests(m *testing.M) int {
	if os.Getenv(SkipVariable) != "" {
		return m.Run()
	}
	var err error
	shared, err = Open()
	if err == nil && shared == nil {
		err = errors.New("no cluster runs: `make e2e` runs these tests with one, `make e2e-up` makes one that stays")
	}
	if err == nil && os.Getenv(inside) == "" {
		self, missing := os.Executable()
		if missing != nil {
			return failed(missing)
		}
		command := shared.EnterNetwork(context.Background(), self, os.Args[1:]...)
		command.Env = append(os.Environ(), inside+"=yes")
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		_ = command.Run() // its code says it
		return command.ProcessState.ExitCode()
	}
	if err != nil {
		return failed(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", shared.Kubeconfig())
	if err != nil {
		return failed(err)
	}
	config.QPS = -1
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return failed(err)
	}
	server := &http.Server{Addr: Address + ":" + SinkPort, Handler: received, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	defer func() { _ = server.Close() }()
	code := m.Run()
	select {
	case err := <-ended:
		return failed(fmt.Errorf("the sink ended: %w", err))
	default:
		return code
	}
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// needsCluster skips a test on a machine that cannot run containers.
func needsCluster(t *testing.T) {
	t.Helper()
	if reason := os.Getenv(SkipVariable); reason != "" {
		t.Skip("SKIPPED: no containers on this machine, it lacks " + reason)
	}
}
