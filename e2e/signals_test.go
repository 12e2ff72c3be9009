//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/operator"
)

func sparkPi(t *testing.T, namespace string) []byte {
	t.Helper()
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	body, err := operator.With(requests["spark-pi"], "", namespace, "")
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// SIGTERM: what is in flight is finished and answered; what had not begun gets
// 503; a new connection is refused; the process ends with 0.
func TestSIGTERM(t *testing.T) {
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
	t.Cleanup(goOn) // before the proxy's, which waits for its calls
	f := start(t, proxy.kubeconfig)

	type outcome struct {
		status int
		err    error
	}
	inFlight := make(chan outcome, 1)
	go func() {
		_, status, err := f.client().Submit(t.Context(), sparkPi(t, namespace))
		inFlight <- outcome{status, err}
	}()
	<-arrived
	// A request that has begun and whose body is still to come: the server asks for it.
	waiting, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = waiting.Close() }()
	if err := waiting.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	body := string(sparkPi(t, namespace))
	_, err = fmt.Fprintf(waiting, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", api.SubmitPath, len(body))
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(waiting)
	begun, err := http.ReadResponse(answers, nil)
	if err != nil || begun.StatusCode != http.StatusContinue {
		t.Fatalf("%v, %v", begun, err)
	}
	defer func() { _ = begun.Body.Close() }()
	terminate(t, f)
	refusedWithin(t, f)
	if _, err := io.WriteString(waiting, body); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("work that had not begun: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
		t.Errorf("work that had not begun: %v", answer)
	}
	goOn()
	if got := <-inFlight; got.err != nil || got.status != http.StatusCreated {
		t.Errorf("in flight: HTTP %d, %v", got.status, got.err)
	}
	if err := f.exit(t); err != nil {
		t.Errorf("exit: %v", err)
	}
	if m := look(t, client, namespace); len(m.pods) != 1 || len(m.pods[0].Spec.SchedulingGates) != 0 || len(m.configMaps) != 2 {
		t.Errorf("made %+v", m)
	}
}

// refusedWithin waits until new connections are refused.
func refusedWithin(t *testing.T, f *flint) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		connection, err := net.Dial("tcp", strings.TrimPrefix(f.url, "http://"))
		if err != nil {
			return
		}
		_ = connection.Close()
		select {
		case <-deadline:
			t.Fatal("new connections are still taken")
		case <-tick.C:
		}
	}
}

// The process is killed at each API call of a launch, before the call reaches the
// API server and after it was done there. Another process then replays: always one
// complete driver.
func TestKilledAtEveryCall(t *testing.T) {
	cp, client, kubeconfig := cluster(t)
	second := start(t, kubeconfig)
	const calls = 6 // pod, Service, NetworkPolicy, two ConfigMaps, release
	for n := 1; n <= calls; n++ {
		for _, when := range []string{"before", "after"} {
			t.Run(fmt.Sprintf("%s call %d", when, n), func(t *testing.T) {
				namespace := cp.NewNamespace(t)
				if err := cp.ServiceAccount(t.Context(), namespace, "spark-operator-spark"); err != nil {
					t.Fatal(err)
				}
				var victim atomic.Pointer[flint]
				killed := make(chan struct{})
				kill := func(call int, _ *http.Request) bool {
					if call != n {
						return call > n // nothing of the dead process goes on
					}
					_ = victim.Load().cmd.Process.Kill()
					if err := <-victim.Load().done; err == nil {
						t.Error("the killed process ended well")
					}
					close(killed)
					return true
				}
				proxy := between{}
				if when == "before" {
					proxy.before = kill
				} else {
					proxy.after = kill
				}
				proxy.put(t, cp.Config())
				first := start(t, proxy.kubeconfig)
				victim.Store(first)
				body := sparkPi(t, namespace)
				once := first.client()
				once.Tries = 1
				if _, status, err := once.Submit(t.Context(), body); err == nil {
					t.Fatalf("the killed process answered %d", status)
				}
				<-killed
				if m := look(t, client, namespace); n < calls && len(m.pods) == 1 && len(m.pods[0].Spec.SchedulingGates) == 0 {
					t.Error("released before its support was complete")
				}
				answer, status, err := second.client().Submit(t.Context(), body)
				if err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[n == 1 && when == "before"]; status != want {
					t.Errorf("replay: HTTP %d, want %d", status, want)
				}
				m := look(t, client, namespace)
				if len(m.pods) != 1 || len(m.pods[0].Spec.SchedulingGates) != 0 || m.owners[answer.DriverPodUID] != 4 || len(m.owners) != 1 {
					t.Errorf("made %+v", m)
				}
			})
		}
	}
}
