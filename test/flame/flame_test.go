// Package flame drives the FLAME backend of docs/examples, compiled by a real Elixir and on real Erlang nodes, against Flint. FLAME
// itself is not there: a stub has its contract.
package flame

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

const (
	cookie  = "a-c00kie-of-the-test"
	backend = "../../docs/examples/flame_backend/flint_backend.ex"
)

// nodes gives each Erlang node of the tests a name of its own.
var nodes atomic.Int64

// elixir is a command on a node of its own, which ends with the context.
func elixir(ctx context.Context, cookie string, env []string, arguments ...string) *exec.Cmd {
	name := fmt.Sprintf("flint-%d-%d@127.0.0.1", os.Getpid(), nodes.Add(1))
	command := exec.CommandContext(ctx, "elixir", append([]string{"--name", name, "--cookie", cookie}, arguments...)...)
	command.Env = append(os.Environ(), env...)
	command.WaitDelay = 5 * time.Second
	return command
}

// ground is Flint on an embedded cluster whose runners are Erlang nodes.
type ground struct {
	url string
	// ran counts the runners' pods, by the id of their launch.
	mu  sync.Mutex
	ran map[string]int
}

// newGround makes one. With instead, if it is not nil, a runner's container does that in place of an Erlang node.
func newGround(t *testing.T, instead func(ctx context.Context) embedded.Exit) *ground {
	t.Helper()
	if _, err := exec.LookPath("elixir"); err != nil {
		t.Skip("no elixir on this machine (Debian: apt-get install elixir): the FLAME backend of docs/examples is not tested here")
	}
	g := &ground{ran: map[string]int{}}
	var cluster *embedded.Cluster
	run := func(ctx context.Context, pod *corev1.Pod, log io.Writer) (embedded.Exit, bool) {
		if pod.Labels[launch.LabelKind] != string(launch.Runner) {
			<-ctx.Done() // the parent
			return embedded.Exit{}, true
		}
		g.mu.Lock()
		g.ran[pod.Labels[launch.LabelID]]++
		g.mu.Unlock()
		if instead != nil {
			return instead(ctx), true
		}
		env := map[string]string{}
		for _, e := range pod.Spec.Containers[0].Env {
			env[e.Name] = e.Value
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				env[e.Name] = secret(cluster, pod.Namespace, e.ValueFrom.SecretKeyRef)
			}
		}
		command := elixir(ctx, env["RELEASE_COOKIE"], []string{"FLAME_PARENT=" + env["FLAME_PARENT"]}, "testdata/runner.exs")
		command.Stdout, command.Stderr = log, log
		var exit *exec.ExitError
		if err := command.Run(); errors.As(err, &exit) {
			return embedded.Exit{Code: int32(exit.ExitCode())}, true
		} else if err != nil {
			return embedded.Exit{Code: 127, Message: err.Error()}, true
		}
		return embedded.Exit{}, true
	}
	var err error
	if cluster, err = embedded.Start(embedded.Options{Run: run}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if _, err := cluster.Add(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "parent", "namespace": "default"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "app:1"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load()
	if err != nil {
		t.Fatal(err)
	}
	settings.Namespaces = []string{"default"}
	f := function.New(function.WithSettings(settings), function.WithCluster(cluster.Config()), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := f.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(f.Handle))
	t.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	g.url = server.URL
	return g
}

func secret(cluster *embedded.Cluster, namespace string, ref *corev1.SecretKeySelector) string {
	object := cluster.Object(embedded.Secrets, namespace, ref.Name)
	if object == nil {
		return ""
	}
	value, _, _ := unstructured.NestedString(object.Object, "data", ref.Key)
	text, _ := base64.StdEncoding.DecodeString(value)
	return string(text)
}

// parent boots one runner, and gives the lines that it printed.
func (g *ground) parent(t *testing.T, url string, bootTimeout time.Duration) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := elixir(ctx, cookie, []string{"POD_NAME=parent", "POD_NAMESPACE=default"},
		"-r", "testdata/stubs.exs", "-r", backend, "testdata/parent.exs", url, strconv.FormatInt(bootTimeout.Milliseconds(), 10), "")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	if strings.Contains(stderr.String(), "warning:") {
		t.Errorf("the backend compiles with warnings:\n%s", stderr.String())
	}
	if strings.Contains(string(out)+stderr.String(), cookie) || strings.Contains(string(out), "LEAK") {
		t.Error("the cookie is shown")
	}
	return string(out)
}

// once checks that the one key of a parent had one pod.
func (g *ground) once(t *testing.T, out string) {
	t.Helper()
	key, _, _ := strings.Cut(strings.TrimPrefix(out[strings.Index(out, "KEY "):], "KEY "), "\n")
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.ran[launch.ID("default", key)]; n != 1 || len(g.ran) != 1 {
		t.Errorf("%d pods of key %s, %d keys", n, key, len(g.ran))
	}
}

func TestL30_adapter_contract_fake_parent(t *testing.T) {
	t.Run("one connect", func(t *testing.T) {
		t.Parallel()
		g := newGround(t, nil)
		out := g.parent(t, g.url, time.Minute)
		if !strings.Contains(out, "UP flint-") || !strings.Contains(out, "CALLED\nDOWN :normal") || strings.Contains(out, "SECOND") {
			t.Errorf("the parent says:\n%s", out)
		}
		g.once(t, out)
	})
	// The answer to the first POST is lost on its way, and the second one is refused: the backend repeats with its key.
	t.Run("one connect though answers are lost", func(t *testing.T) {
		t.Parallel()
		g := newGround(t, nil)
		target, err := url.Parse(g.url)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(target)
		var posts atomic.Int32
		disturbed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				proxy.ServeHTTP(w, r)
				return
			}
			switch posts.Add(1) {
			case 1:
				proxy.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			case 2:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				proxy.ServeHTTP(w, r)
			}
		}))
		t.Cleanup(disturbed.Close)
		out := g.parent(t, disturbed.URL, time.Minute)
		if !strings.Contains(out, "UP flint-") || strings.Contains(out, "SECOND") {
			t.Errorf("the parent says:\n%s", out)
		}
		g.once(t, out)
	})
	t.Run("failure before the deadline", func(t *testing.T) {
		t.Parallel()
		g := newGround(t, func(context.Context) embedded.Exit { return embedded.Exit{Code: 3} })
		out := g.parent(t, g.url, time.Minute)
		var took int
		if _, err := fmt.Sscanf(out[strings.Index(out, "FAILED"):], "FAILED %d", &took); err != nil || took > 15_000 || !strings.Contains(out, "exit code 3") {
			t.Errorf("the parent says:\n%s", out)
		}
		g.once(t, out)
	})
	// A runner that never connects is given up by the parent, and nothing of it is left.
	t.Run("deleted when it does not connect", func(t *testing.T) {
		t.Parallel()
		g := newGround(t, func(ctx context.Context) embedded.Exit { <-ctx.Done(); return embedded.Exit{} })
		out := g.parent(t, g.url, 6*time.Second)
		if !strings.Contains(out, "FAILED 6") || !strings.Contains(out, ":boot_timeout") {
			t.Errorf("the parent says:\n%s", out)
		}
		key := strings.Fields(out)[1]
		response, err := http.Get(g.url + api.LaunchesPath + "/default/" + launch.ID("default", key))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNotFound && !strings.Contains(string(body), `"deleting":true`) && !strings.Contains(string(body), `"reason":"Deleted"`) {
			t.Errorf("HTTP %d: %s", response.StatusCode, body)
		}
	})
}
