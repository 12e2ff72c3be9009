//go:build e2e

package e2e

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/certificates"
	"flint.dev/flint/test/operator"
)

// The operator's client over mutual TLS, on a listener of the process's own: what is in flight at SIGTERM is answered,
// as on the plain one, and the process ends with 0.
func TestTLS(t *testing.T) {
	cp, client, _ := cluster(t)
	namespace := cp.NewNamespace(t)
	if err := cp.ServiceAccount(t.Context(), namespace, "spark-operator-spark"); err != nil {
		t.Fatal(err)
	}
	arrived, release := make(chan struct{}), make(chan struct{})
	proxy := between{before: func(n int, _ *http.Request) bool {
		if n == 1 {
			close(arrived)
			<-release
		}
		return false
	}}
	proxy.put(t, cp.Config())
	goOn := sync.OnceFunc(func() { close(release) })
	t.Cleanup(goOn)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	authority, folder := certificates.NewAuthority(t), t.TempDir()
	pair := authority.Issue(t, folder, "flint", nil)
	f := start(t, proxy.kubeconfig, "FLINT_TLS_ADDRESS="+address, "FLINT_TLS_CERT="+pair.Cert, "FLINT_TLS_KEY="+pair.Key,
		"FLINT_TLS_CLIENT_CA="+authority.File, "FLINT_TLS_CLIENT_NAMES=operator")
	speak := func(name string) *operator.Client {
		transport, err := certificates.Transport(authority.File, authority.Issue(t, t.TempDir(), name, nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(transport.CloseIdleConnections)
		return &operator.Client{URL: "https://" + address + api.SubmitPath, Tries: 3, Backoff: 50 * time.Millisecond, Timeout: 30 * time.Second, HTTP: transport}
	}
	if status, err := speak("operator").WaitForConnection(t.Context(), 10*time.Millisecond); err != nil || status != http.StatusMethodNotAllowed {
		t.Fatalf("GET: HTTP %d, %v", status, err)
	}
	if _, status, err := speak("mallory").Submit(t.Context(), sparkPi(t, namespace)); err == nil {
		t.Errorf("a name that is not listed: HTTP %d", status)
	}

	type outcome struct {
		status int
		err    error
	}
	inFlight := make(chan outcome, 1)
	go func() {
		_, status, err := speak("operator").Submit(t.Context(), sparkPi(t, namespace))
		inFlight <- outcome{status, err}
	}()
	<-arrived
	terminate(t, f)
	refusedWithin(t, &flint{url: "http://" + address, log: f.log})
	refusedWithin(t, f)
	goOn()
	if got := <-inFlight; got.err != nil || got.status != http.StatusCreated {
		t.Errorf("in flight: HTTP %d, %v", got.status, got.err)
	}
	if err := f.exit(t); err != nil {
		t.Errorf("exit: %v", err)
	}
	if m := look(t, client, namespace); len(m.pods) != 1 || len(m.pods[0].Spec.SchedulingGates) != 0 {
		t.Errorf("made %+v", m)
	}
}
