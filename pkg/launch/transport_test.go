package launch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/kube"
)

// A call is named by its verb, its resource and the object: "POST configmaps conf". Names
// of calls, and not their number, since support is created in parallel.
type call = string

// action stands in for one call on its way to the API server. send sends it.
type action func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error)

// wire records the calls of one client and lets a test act on them.
type wire struct {
	mu    sync.Mutex
	calls []call
	// act gives the action for the nth call (from 1), or nil to let it pass. It runs under mu.
	act  func(c call, n int) action
	next http.RoundTripper
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	name := w.name(request)
	w.mu.Lock()
	w.calls = append(w.calls, name)
	var do action
	if w.act != nil {
		do = w.act(name, len(w.calls))
	}
	w.mu.Unlock()
	send := func() (*http.Response, error) { return w.next.RoundTrip(request) }
	if do == nil {
		return send()
	}
	return do(request, send)
}

// name is the call's name. What a dry run posts is named "DRY …", and a list has no object: "LIST pods".
func (w *wire) name(request *http.Request) call {
	parts := strings.Split(strings.Trim(request.URL.Path, "/"), "/")
	if n := len(parts); request.Method == http.MethodGet && n > 2 && parts[n-3] == "namespaces" {
		return "LIST " + parts[n-1]
	}
	if request.Method != http.MethodPost {
		return request.Method + " " + parts[len(parts)-2] + " " + parts[len(parts)-1]
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(err)
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	var object struct {
		Metadata struct{ Name string } `json:"metadata"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		panic(err)
	}
	verb := request.Method
	if request.URL.Query().Get("dryRun") != "" {
		verb = "DRY"
	}
	return verb + " " + path.Base(request.URL.Path) + " " + object.Metadata.Name
}

// taken are the calls so far, those that go in parallel in alphabetical order.
func (w *wire) taken() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// client is a client of its own, with its own connections, over the wire.
func (w *wire) client(tb testing.TB, cfg *rest.Config) kube.Client {
	tb.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	c, err := kube.NewClient(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// What can happen to a call. cancel ends the context of the launch.
var faults = map[string]func(cancel context.CancelFunc) action{
	"connection fails": func(context.CancelFunc) action {
		return func(*http.Request, func() (*http.Response, error)) (*http.Response, error) {
			return nil, errors.New("connection refused")
		}
	},
	"answer lost": func(context.CancelFunc) action {
		return func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			drop(send())
			return nil, io.ErrUnexpectedEOF
		}
	},
	"hangs unsent": func(cancel context.CancelFunc) action {
		return func(request *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
			cancel()
			<-request.Context().Done()
			return nil, request.Context().Err()
		}
	},
	"hangs unanswered": func(cancel context.CancelFunc) action {
		return func(request *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			drop(send())
			cancel()
			<-request.Context().Done()
			return nil, request.Context().Err()
		}
	},
	"500": func(context.CancelFunc) action {
		return answer(http.StatusInternalServerError, "InternalError", "etcd is away")
	},
	"429": func(context.CancelFunc) action {
		return answer(http.StatusTooManyRequests, "TooManyRequests", "slow down")
	},
	"409": func(context.CancelFunc) action {
		return answer(http.StatusConflict, "Conflict", "Operation cannot be fulfilled on resourcequotas")
	},
}

func drop(response *http.Response, err error) {
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// answer stands for an API server that refuses the call.
func answer(code int, reason, message string) action {
	return func(request *http.Request, _ func() (*http.Response, error)) (*http.Response, error) {
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q,"details":{"retryAfterSeconds":7}}`,
			reason, code, message)
		return &http.Response{
			StatusCode:    code,
			Status:        strconv.Itoa(code),
			Proto:         "HTTP/1.1",
			ProtoMajor:    1,
			ProtoMinor:    1,
			Header:        http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}},
			Body:          io.NopCloser(strings.NewReader(body)),
			ContentLength: int64(len(body)),
			Request:       request,
		}, nil
	}
}

// first does something before the call is sent.
func first(do func()) action {
	return func(_ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		do()
		return send()
	}
}

// on acts on one call, each time that it comes.
func on(name call, do action) func(call, int) action {
	return func(c call, _ int) action {
		if c == name {
			return do
		}
		return nil
	}
}
