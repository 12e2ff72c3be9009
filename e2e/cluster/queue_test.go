//go:build e2e && linux

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/smuggling"
)

// queue is the address of an instance's queue-proxy.
func queue(ctx context.Context, t *testing.T) string {
	t.Helper()
	var address string
	err := until(ctx, "an instance", func() (bool, error) {
		ready, err := instances(ctx)
		if len(ready) > 0 {
			address = net.JoinHostPort(ready[0].Status.PodIP, "8012")
		}
		return address != "", err
	})
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// connect opens a connection that ends with the test, at the latest.
func connect(ctx context.Context, t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if limit, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(limit); err != nil {
			t.Fatal(err)
		}
	}
	return connection
}

// said is an answer on a connection.
type said struct {
	status int
	body   string
}

// hear reads the answers, of which so many are expected, until the connection is closed, speaks no HTTP/1, or ends: when the
// last one has come it is listened to for another two seconds.
func hear(connection net.Conn, expected int) (all []said) {
	answers := bufio.NewReader(connection)
	for {
		if len(all) == expected {
			_ = connection.SetReadDeadline(time.Now().Add(2 * time.Second))
		}
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		all = append(all, said{response.StatusCode, string(body)})
		if response.Close || err != nil {
			return all
		}
	}
}

// printing is the request of a driver that ends at once, as JSON.
func printing(t *testing.T, submission string) string {
	t.Helper()
	text, err := json.Marshal(driver{does: []string{"print=done"}}.request(submission))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// launched are the submission ids of all drivers that begin so, each as often as it has a pod.
func launched(ctx context.Context, t *testing.T, prefix string) (ids []string) {
	t.Helper()
	pods, err := client.CoreV1().Pods(jobs).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		if id := pods.Items[i].Annotations["flint.dev/submission-id"]; strings.HasPrefix(id, prefix) {
			t.Cleanup(func() { remove(t, &pods.Items[i]) })
			ids = append(ids, id)
		}
	}
	return ids
}

// Shapes by which queue-proxy and Flint might disagree where a request ends. Each request that queue-proxy makes out has its own
// answer, in order, and launches what it says; nothing else is launched. Where it makes out two, Flint has them on connections
// of queue-proxy's own, framed anew.
func TestQueueProxySmuggling(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	prefix := run + "-shape-"
	first := prefix + "first"
	if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, json.RawMessage(printing(t, first)), http.StatusCreated, http.StatusOK); err != nil {
		t.Fatal(err)
	}
	address := queue(ctx, t)
	wants := []string{first}
	places := make(chan struct{}, 8)
	var shapes sync.WaitGroup
	for n := range smuggling.Shapes(api.SubmitPath, "", "") {
		second := fmt.Sprintf("%s%d", prefix, n)
		shape := smuggling.Shapes(api.SubmitPath, printing(t, first), printing(t, second))[n]
		if slices.Contains(shape.Queue, http.StatusCreated) {
			wants = append(wants, second)
		}
		shapes.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err == nil {
				err = connection.SetDeadline(time.Now().Add(time.Minute))
			}
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = connection.Close() }()
			go func() { _, _ = io.WriteString(connection, shape.Text) }()
			got := hear(connection, len(shape.Queue))
			var statuses []int
			for _, answer := range got {
				statuses = append(statuses, answer.status)
				if about := map[int]string{http.StatusOK: first, http.StatusCreated: second}[answer.status]; !strings.Contains(answer.body, about) {
					t.Errorf("%s: HTTP %d is not about %s: %s", shape.Name, answer.status, about, answer.body)
				}
			}
			if !slices.Equal(statuses, shape.Queue) {
				t.Errorf("%s: answers %v, want %v", shape.Name, statuses, shape.Queue)
			}
		})
	}
	shapes.Wait()
	got := launched(ctx, t, prefix)
	slices.Sort(got)
	slices.Sort(wants)
	if !slices.Equal(got, wants) {
		t.Errorf("launched %q, want %q", got, wants)
	}
	if got, err := call(ctx, http.MethodGet, api.LaunchesPath+"?namespace="+jobs, nil, nil); err != nil || got.status != http.StatusOK {
		t.Errorf("behind it: %d, %v", got.status, err)
	}
	t.Logf("SEEN %d shapes, %d second requests that queue-proxy makes out", len(smuggling.Shapes("", "", "")), len(wants)-1)
}

// Headers that are hop by hop, since the request says so, do not get to Flint: a sender can leave out what they are, and add nothing.
func TestQueueProxyHopByHop(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := queue(ctx, t)
	prefix := run + "-hop-"
	event := []string{"Ce-Specversion: 1.0", "Ce-Id: 1", "Ce-Source: /e2e", "Ce-Type: dev.flint.spark.submit.v1"}
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{
		"an event without its type":   {append(slices.Clone(event), "Connection: close, Ce-Type"), http.StatusBadRequest},
		"an event that is none":       {append(slices.Clone(event), "Connection: close, Ce-Specversion, Ce-Type, Ce-Id, Ce-Source"), http.StatusUnsupportedMediaType},
		"a request without its type":  {[]string{"Connection: close, Content-Type"}, http.StatusUnsupportedMediaType},
		"what is forwarded, by a lie": {append(slices.Clone(event), "Connection: close, K-Original-Host, Forwarded, X-Forwarded-For", "K-Original-Host: y"), http.StatusAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			body := printing(t, prefix+strings.ReplaceAll(name, " ", "-"))
			connection := connect(ctx, t, address)
			if _, err := io.WriteString(connection, smuggling.Request("/", body, append(tc.headers, smuggling.Length(body))...)); err != nil {
				t.Fatal(err)
			}
			if got := hear(connection, 1); len(got) != 1 || got[0].status != tc.want {
				t.Errorf("%+v, want one %d", got, tc.want)
			}
		})
	}
	if got := launched(ctx, t, prefix); len(got) != 1 {
		t.Errorf("launched %q, want one", got)
	}
}

// Who sends too much, too slowly, or nothing is answered or let go, and keeps nobody out meanwhile.
func TestQueueProxyHostile(t *testing.T) {
	needsCluster(t)
	prefix := run + "-hostile-"
	body := printing(t, prefix+"headers")
	headers := func(n, size int) []string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("X-%d: %s", i, strings.Repeat("a", size)))
		}
		return append(all, "Connection: close", smuggling.Length(body))
	}
	answered := func(t *testing.T, connection net.Conn, want int) {
		t.Helper()
		got := hear(connection, 1)
		if len(got) != 1 || got[0].status != want {
			t.Errorf("%d answers, want one %d: %.300s", len(got), want, fmt.Sprint(got))
		}
	}
	sent := func(text string, want int) func(context.Context, *testing.T, string) {
		return func(ctx context.Context, t *testing.T, address string) {
			connection := connect(ctx, t, address)
			go func() { _, _ = io.WriteString(connection, text) }()
			answered(t, connection, want)
		}
	}
	for name, attack := range map[string]func(context.Context, *testing.T, string){
		"a header of one megabyte and more": sent(smuggling.Request(api.SubmitPath, body, headers(1, 1<<20+8<<10)...), http.StatusRequestHeaderFieldsTooLarge),
		"10,000 headers":                    sent(smuggling.Request(api.SubmitPath, body, headers(10_000, 50)...), http.StatusCreated),
		"10,000 headers, too long":          sent(smuggling.Request(api.SubmitPath, body, headers(10_000, 110)...), http.StatusRequestHeaderFieldsTooLarge),
		"a body that grows for ever": func(ctx context.Context, t *testing.T, address string) {
			connection := connect(ctx, t, address)
			go func() {
				text := smuggling.Request(api.SubmitPath, "", "Transfer-Encoding: chunked")
				chunk := "1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n"
				for err := error(nil); err == nil; text = chunk {
					_, err = io.WriteString(connection, text)
				}
			}()
			answered(t, connection, http.StatusRequestEntityTooLarge)
		},
		"a body that comes slowly": func(ctx context.Context, t *testing.T, address string) {
			connection := connect(ctx, t, address)
			go func() {
				tick := time.NewTicker(300 * time.Millisecond)
				defer tick.Stop()
				text := smuggling.Request(api.SubmitPath, "", "Content-Length: 1000000")
				for err := error(nil); err == nil; text = " " {
					_, err = io.WriteString(connection, text)
					<-tick.C
				}
			}()
			answered(t, connection, http.StatusServiceUnavailable)
		},
		"a header that does not end": func(ctx context.Context, t *testing.T, address string) {
			connection := connect(ctx, t, address)
			if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: x\r\nX: "); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is kept")
			}
		},
		"an answer that nobody reads": func(ctx context.Context, t *testing.T, address string) {
			text := strings.Replace(printing(t, prefix+"unread"), `"print=done"`, `"`+strings.Repeat(`\u0001`, 500_000)+`"`, 1)
			connection := connect(ctx, t, address)
			if err := connection.(*net.TCPConn).SetReadBuffer(4096); err != nil {
				t.Fatal(err)
			}
			request := smuggling.Request(api.SubmitPath+"?dryRun=client", text, "Connection: close", smuggling.Length(text))
			if _, err := io.WriteString(connection, request); err != nil {
				t.Fatal(err)
			}
			// Whether it is let go is queue-proxy's; it holds nothing of Flint's.
		},
		"2,000 idle connections": func(ctx context.Context, t *testing.T, address string) {
			for range 2000 {
				connect(ctx, t, address)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			began := time.Now()
			attack(ctx, t, queue(ctx, t))
			took := time.Since(began)
			began = time.Now()
			if got, err := call(ctx, http.MethodGet, api.LaunchesPath+"?namespace="+jobs, nil, nil); err != nil || got.status != http.StatusOK {
				t.Errorf("beside it: %d, %v", got.status, err)
			}
			t.Logf("SEEN after %.1fs; a request then took %.1fs", took.Seconds(), time.Since(began).Seconds())
		})
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if got := launched(ctx, t, prefix); len(got) > 1 || len(got) == 1 && got[0] != prefix+"headers" {
			t.Errorf("launched %q", got)
		}
	})
}
