//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/operator"
)

const binary = "../bin/flint"

func TestMain(m *testing.M) { controlplane.Main(m) }

// flint is one process that serves.
type flint struct {
	url  string
	cmd  *exec.Cmd
	log  *log
	done chan error
}

// log is what a process wrote.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// start serves on a free port, and waits for its first answer and its readiness.
func start(t *testing.T, kubeconfig string, environment ...string) *flint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f := &flint{url: "http://" + address, cmd: exec.Command(binary, "serve"), log: &log{}, done: make(chan error, 1)}
	f.cmd.Env = append([]string{"LISTEN_ADDRESS=" + address, "KUBECONFIG=" + kubeconfig, "FLINT_NAMESPACES=*"}, environment...)
	f.cmd.Stderr = f.log
	if err := f.cmd.Start(); err != nil {
		t.Fatalf("%v; `make e2e` builds it", err)
	}
	go func() { f.done <- f.cmd.Wait() }()
	t.Cleanup(func() {
		_ = f.cmd.Process.Kill()
		if t.Failed() {
			t.Logf("log of flint:\n%s", f.log)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client := operator.Client{URL: f.url + api.SubmitPath, Timeout: time.Second}
	status, err := client.WaitForConnection(ctx, 10*time.Millisecond)
	if err != nil || status != http.StatusMethodNotAllowed {
		t.Fatalf("GET: HTTP %d, %v\n%s", status, err, f.log)
	}
	f.untilReady(ctx, t)
	return f
}

func (f *flint) untilReady(ctx context.Context, t *testing.T) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/health/readiness", nil)
		if err != nil {
			t.Fatal(err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not ready: %v\n%s", ctx.Err(), f.log)
		case <-tick.C:
		}
	}
}

// exit waits for the end of the process.
func (f *flint) exit(t *testing.T) error {
	t.Helper()
	select {
	case err := <-f.done:
		return err
	case <-time.After(40 * time.Second):
		t.Fatalf("the process did not end\n%s", f.log)
		return nil
	}
}

func (f *flint) client() *operator.Client {
	return &operator.Client{URL: f.url + api.SubmitPath, Tries: 3, Backoff: 50 * time.Millisecond, Timeout: 30 * time.Second}
}

func cluster(t *testing.T) (*controlplane.ControlPlane, kubernetes.Interface, string) {
	t.Helper()
	cp := controlplane.Shared(t)
	client, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.Kubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	return cp, client, kubeconfig
}

// between is a proxy in front of the API server that a test can hold and cut.
type between struct {
	kubeconfig string
	// before and after are called around each write, with its number from 1; a true
	// answer cuts the call off without an answer. Reads pass: they are the poller's.
	before, after func(n int, r *http.Request) (cut bool)
}

// put starts the proxy.
func (b *between) put(t *testing.T, config *rest.Config) {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	var mu sync.Mutex
	calls := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			proxy.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		calls++
		n := calls
		mu.Unlock()
		if b.before != nil && b.before(n, r) {
			panic(http.ErrAbortHandler)
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		if b.after != nil && b.after(n, r) {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	t.Cleanup(server.Close)
	b.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: between, cluster: {server: %q}}]
contexts: [{name: between, context: {cluster: between}}]
current-context: between
`, server.URL)
	if err := os.WriteFile(b.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func terminate(t *testing.T, f *flint) {
	t.Helper()
	if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}
