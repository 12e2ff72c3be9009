package kube_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// request is one that a server got.
type request struct {
	Method, URI, Accept, ContentType, UserAgent string
	Body                                        any
}

// serve answers each request with the given text, and gives what it got last.
func serve(t *testing.T, code int, headers map[string]string, answer string) (*rest.Config, *request, *atomic.Int64) {
	t.Helper()
	last, n := &request{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*last = request{r.Method, r.RequestURI, r.Header.Get("Accept"), r.Header.Get("Content-Type"), r.UserAgent(), nil}
		if len(body) > 0 {
			if err := json.Unmarshal(body, &last.Body); err != nil {
				t.Error(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		for key, value := range headers {
			w.Header().Set(key, value)
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1, UserAgent: "flint/test"}, last, n
}

func client(tb testing.TB, cfg *rest.Config) kube.Client {
	tb.Helper()
	c, err := kube.NewClient(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func object(apiVersion, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"name": name}}}
}

const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// TestRequests pins what each verb sends.
func TestRequests(t *testing.T) {
	t.Parallel()
	job := kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: "jobs", Name: "copy"}
	body := object("v1", "Pod", "pi")
	cases := map[string]struct {
		do   func(ctx context.Context, c kube.Client) error
		want request
	}{
		"create": {
			func(ctx context.Context, c kube.Client) error {
				_, err := c.Create(ctx, "jobs", body, false)
				return err
			},
			request{"POST", "/api/v1/namespaces/jobs/pods?fieldValidation=Ignore", metadataOnly, "application/json", "flint/test", body.Object},
		},
		"dry run": {
			func(ctx context.Context, c kube.Client) error {
				_, err := c.Create(ctx, "jobs", body, true)
				return err
			},
			request{"POST", "/api/v1/namespaces/jobs/pods?dryRun=All&fieldValidation=Strict", "application/json", "application/json", "flint/test", body.Object},
		},
		"get": {
			func(ctx context.Context, c kube.Client) error { _, err := c.Get(ctx, job); return err },
			request{"GET", "/apis/batch/v1/namespaces/jobs/jobs/copy", "application/json", "", "flint/test", nil},
		},
		"patch": {
			func(ctx context.Context, c kube.Client) error {
				_, err := c.Patch(ctx, job, types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))
				return err
			},
			request{"PATCH", "/apis/batch/v1/namespaces/jobs/jobs/copy", metadataOnly, "application/merge-patch+json", "flint/test", map[string]any{"spec": map[string]any{"suspend": false}}},
		},
		"delete": {
			func(ctx context.Context, c kube.Client) error { return c.Delete(ctx, job, "u-1") },
			request{"DELETE", "/apis/batch/v1/namespaces/jobs/jobs/copy", "application/json", "application/json", "flint/test", map[string]any{
				"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": map[string]any{"uid": "u-1"},
			}},
		},
		"delete unchanged": {
			func(ctx context.Context, c kube.Client) error { return c.DeleteUnchanged(ctx, job, "u-1", "7") },
			request{"DELETE", "/apis/batch/v1/namespaces/jobs/jobs/copy", "application/json", "application/json", "flint/test", map[string]any{
				"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": map[string]any{"uid": "u-1", "resourceVersion": "7"},
			}},
		},
		"log": {
			func(ctx context.Context, c kube.Client) error {
				text, err := c.Log(ctx, pod, "driver", 1000, 4096)
				if err == nil {
					err = text.Close()
				}
				return err
			},
			request{"GET", "/api/v1/namespaces/jobs/pods/pi/log?container=driver&limitBytes=4096&tailLines=1000", "application/json", "", "flint/test", nil},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, got, _ := serve(t, 200, nil, `{"apiVersion":"v1","kind":"Status","status":"Success"}`)
			if err := c.do(within(t), client(t, cfg)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestList pins what a list sends, and what it makes of the answer.
func TestList(t *testing.T) {
	t.Parallel()
	pods := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "jobs"}
	everywhere := kube.Ref{APIVersion: "batch/v1", Kind: "Job"}
	const plain, each = "application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	cases := map[string]struct {
		of           kube.Ref
		options      kube.ListOptions
		answer       string
		uri, accept  string
		wantNames    []string
		wantContinue string
	}{
		"all of a namespace": {
			of: pods, answer: `{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":"7"},"items":[]}`,
			uri: "/api/v1/namespaces/jobs/pods", accept: plain,
		},
		"a page": {
			of: pods, options: kube.ListOptions{LabelSelector: "a=b,c", Limit: 2},
			answer: `{"apiVersion":"v1","kind":"PodList","metadata":{"continue":"t/1="},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
			uri:    "/api/v1/namespaces/jobs/pods?labelSelector=a%3Db%2Cc&limit=2", accept: plain,
			wantNames: []string{"v1 Pod a", "v1 Pod b"}, wantContinue: "t/1=",
		},
		"the next page, everywhere, metadata only": {
			of: everywhere, options: kube.ListOptions{Limit: 2, Continue: "t/1=", MetadataOnly: true},
			answer: `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","items":[{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"c"}}]}`,
			uri:    "/apis/batch/v1/jobs?continue=t%2F1%3D&limit=2", accept: each,
			wantNames: []string{"batch/v1 Job c"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, got, n := serve(t, 200, nil, c.answer)
			page, err := client(t, cfg).List(within(t), c.of, c.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(request{"GET", c.uri, c.accept, "", "flint/test", nil}, *got); diff != "" || n.Load() != 1 {
				t.Errorf("%d requests (-want +got):\n%s", n.Load(), diff)
			}
			var names []string
			for _, item := range page.Items {
				names = append(names, item.GetAPIVersion()+" "+item.GetKind()+" "+item.GetName())
			}
			if diff := cmp.Diff(c.wantNames, names); diff != "" || page.Continue != c.wantContinue {
				t.Errorf("continue %q, items (-want +got):\n%s", page.Continue, diff)
			}
		})
	}
	for name, text := range map[string]string{"no list": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}`, "empty": "", "no JSON": "<html>"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _, _ := serve(t, 200, nil, text)
			if page, err := client(t, cfg).List(within(t), pods, kube.ListOptions{}); err == nil {
				t.Errorf("a page of %d", len(page.Items))
			}
		})
	}
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		cfg, _, n := serve(t, 410, nil, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Expired","code":410}`)
		if _, err := client(t, cfg).List(within(t), pods, kube.ListOptions{Continue: "old"}); !apierrors.IsResourceExpired(err) || n.Load() != 1 {
			t.Errorf("%d requests: %v", n.Load(), err)
		}
	})
}

// TestOnce: a verb sends one request, whatever the answer advises.
func TestOnce(t *testing.T) {
	t.Parallel()
	verbs := map[string]func(ctx context.Context, c kube.Client) error{
		"create": func(ctx context.Context, c kube.Client) error {
			_, err := c.Create(ctx, "jobs", object("v1", "Pod", "pi"), false)
			return err
		},
		"get": func(ctx context.Context, c kube.Client) error { _, err := c.Get(ctx, pod); return err },
		"list": func(ctx context.Context, c kube.Client) error {
			_, err := c.List(ctx, pod, kube.ListOptions{})
			return err
		},
		"patch": func(ctx context.Context, c kube.Client) error {
			_, err := c.Patch(ctx, pod, types.MergePatchType, []byte("{}"))
			return err
		},
		"delete": func(ctx context.Context, c kube.Client) error { return c.Delete(ctx, pod, "u") },
		"log":    func(ctx context.Context, c kube.Client) error { return openLog(ctx, c, pod) },
	}
	for code, reason := range map[int]string{429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"} {
		for name, verb := range verbs {
			t.Run(reason+"/"+name, func(t *testing.T) {
				t.Parallel()
				cfg, _, n := serve(t, code, map[string]string{"Retry-After": "3"}, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"`+reason+`","details":{"retryAfterSeconds":3}}`)
				e := kube.Translate(verb(within(t), client(t, cfg)), name, pod)
				if e == nil || e.Code != api.SubmitterOverloaded || e.RetryAfter != 3*time.Second {
					t.Errorf("error %v", e)
				}
				if n.Load() != 1 {
					t.Errorf("%d requests", n.Load())
				}
			})
		}
	}
}

// openLog opens a log that is not to be read.
func openLog(ctx context.Context, c kube.Client, ref kube.Ref) error {
	text, err := c.Log(ctx, ref, "driver", 1, 1)
	if err == nil {
		_ = text.Close()
	}
	return err
}

// TestLog: no more is read than was asked for, whatever is sent, and reading ends with the context.
func TestLog(t *testing.T) {
	t.Parallel()
	const all = "one\ntwo\nthree\n"
	for limit, want := range map[int64]string{1: "o", 8: "one\ntwo\n", 1 << 20: all} {
		cfg, _, n := serve(t, 200, map[string]string{"Content-Type": "text/plain"}, all)
		text, err := client(t, cfg).Log(within(t), pod, "driver", 10, limit)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(text)
		if err != nil || string(got) != want || n.Load() != 1 {
			t.Errorf("limit %d: %q, %v, %d requests", limit, got, err, n.Load())
		}
		if err := text.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		cfg, _, _ := serve(t, 403, nil, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","message":"pods/log is forbidden","code":403}`)
		err := openLog(within(t), client(t, cfg), pod)
		if e := kube.Translate(err, "read the log of", pod); e == nil || e.Code != api.Forbidden || !strings.Contains(e.Message, "pods/log is forbidden") {
			t.Errorf("error %v", e)
		}
	})
	t.Run("endless", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "one\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		t.Cleanup(server.Close)
		ctx, cancel := context.WithCancel(within(t))
		text, err := client(t, &rest.Config{Host: server.URL, QPS: -1}).Log(ctx, pod, "driver", 10, 100)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = text.Close() }()
		line := make([]byte, 4)
		if _, err := io.ReadFull(text, line); err != nil || string(line) != "one\n" {
			t.Fatalf("%q, %v", line, err)
		}
		cancel()
		if _, err := io.ReadAll(text); !errors.Is(err, context.Canceled) {
			t.Errorf("read on: %v", err)
		}
	})
	t.Run("own limit", func(t *testing.T) {
		t.Parallel()
		cfg, _, n := serve(t, 200, nil, "one")
		cfg.QPS, cfg.Burst = 0.001, 1
		c := client(t, cfg)
		if err := openLog(within(t), c, pod); err != nil {
			t.Fatal(err)
		}
		if e := kube.Translate(openLog(within(t), c, pod), "read the log of", pod); e == nil || e.Code != api.SubmitterOverloaded || n.Load() != 1 {
			t.Errorf("%d requests: %v", n.Load(), e)
		}
	})
}

// TestOnceConnection: nor does it try again when the connection breaks, as client-go does with a GET.
func TestOnceConnection(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = connection.Close()
	}))
	t.Cleanup(server.Close)
	_, err := client(t, &rest.Config{Host: server.URL, QPS: -1}).Get(within(t), pod)
	if e := kube.Translate(err, "get", pod); e == nil || e.Code != api.SubmitterOverloaded || !strings.Contains(e.Message, "no answer from the API server to: get Pod jobs/pi (EOF)") {
		t.Errorf("error %v", e)
	}
	if n.Load() != 1 {
		t.Errorf("%d requests", n.Load())
	}
}

// TestOwnLimit: a wait for our own limit that would outlast the context is told at once, unsent.
func TestOwnLimit(t *testing.T) {
	t.Parallel()
	limits := map[string]func(*rest.Config){
		"of the configuration": func(c *rest.Config) { c.QPS, c.Burst = 0.001, 1 },
		"given":                func(c *rest.Config) { c.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(0.001, 1) },
	}
	for name, limit := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _, n := serve(t, 200, nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pi"}}`)
			limit(cfg)
			c := client(t, cfg)
			if _, err := c.Get(within(t), pod); err != nil {
				t.Fatal(err)
			}
			_, err := c.Get(within(t), pod)
			if e := kube.Translate(err, "get", pod); e == nil || e.Code != api.SubmitterOverloaded || !strings.Contains(e.Message, "too many requests in flight to get Pod jobs/pi") {
				t.Errorf("error %v", e)
			}
			if n.Load() != 1 {
				t.Errorf("%d requests", n.Load())
			}
		})
	}
	t.Run("client-go's", func(t *testing.T) {
		t.Parallel()
		cfg, _, n := serve(t, 200, nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"pi"}}`)
		cfg.QPS = 0
		if _, err := client(t, cfg).Get(within(t), pod); err != nil || n.Load() != 1 {
			t.Error(n.Load(), err)
		}
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	t.Run("metadata", func(t *testing.T) {
		t.Parallel()
		cfg, _, _ := serve(t, 201, nil, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"pi","uid":"u-1"}}`)
		got, err := client(t, cfg).Create(within(t), "jobs", object("v1", "Pod", "pi"), false)
		if err != nil {
			t.Fatal(err)
		}
		if got.GetAPIVersion() != "v1" || got.GetKind() != "Pod" || got.GetUID() != "u-1" {
			t.Errorf("answer %v", got)
		}
	})
	for name, text := range map[string]string{"empty": "", "no JSON": "<html>", "no kind": "{}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, _, _ := serve(t, 200, nil, text)
			_, err := client(t, cfg).Get(within(t), pod)
			if e := kube.Translate(err, "get", pod); e == nil || !e.Retryable() {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		cfg, _, _ := serve(t, 403, map[string]string{"Content-Type": "text/plain"}, "the proxy says no")
		_, err := client(t, cfg).Get(within(t), pod)
		if e := kube.Translate(err, "get", pod); e == nil || e.Code != api.Forbidden || !strings.Contains(e.Message, "the proxy says no") {
			t.Errorf("error %v", e)
		}
	})
}

func TestRequestErrors(t *testing.T) {
	t.Parallel()
	cfg, _, n := serve(t, 200, nil, "{}")
	c := client(t, cfg)
	unreadable := object("v1", "Pod", "pi")
	unreadable.Object["spec"] = func() {}
	errs := map[string]func() error{
		"unknown kind": func() error { _, err := c.Create(within(t), "jobs", object("v1", "Node", "n"), false); return err },
		"unknown version": func() error {
			_, err := c.Get(within(t), kube.Ref{APIVersion: "v2", Kind: "Pod", Namespace: "a", Name: "b"})
			return err
		},
		"no namespace":     func() error { _, err := c.Create(within(t), "", object("v1", "Pod", "pi"), false); return err },
		"namespace of two": func() error { _, err := c.Create(within(t), "a/b", object("v1", "Pod", "pi"), false); return err },
		"list of an unknown kind": func() error {
			_, err := c.List(within(t), kube.Ref{APIVersion: "v1", Kind: "Node"}, kube.ListOptions{})
			return err
		},
		"list of two namespaces": func() error {
			_, err := c.List(within(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "a/b"}, kube.ListOptions{})
			return err
		},
		"no name": func() error { return c.Delete(within(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "a"}, "u") },
		"name above": func() error {
			return c.DeleteUnchanged(within(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: ".."}, "u", "1")
		},
		"name of two": func() error {
			_, err := c.Patch(within(t), kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "b/status"}, types.MergePatchType, nil)
			return err
		},
		"log of a name of two": func() error {
			return openLog(within(t), c, kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "b/log"})
		},
		"log of no pod": func() error {
			return openLog(within(t), c, kube.Ref{APIVersion: "v1", Kind: "Service", Namespace: "a", Name: "b"})
		},
		"object of no JSON": func() error { _, err := c.Create(within(t), "jobs", unreadable, false); return err },
	}
	for name, do := range errs {
		var wrong *kube.RequestError
		if err := do(); !errors.As(err, &wrong) || wrong.Error() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n.Load() > 0 {
		t.Errorf("%d requests", n.Load())
	}
}

func TestNewClientRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]*rest.Config{
		"host":        {Host: "http://%"},
		"certificate": {Host: "https://x", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("no certificate")}},
	} {
		if c, err := kube.NewClient(cfg); err == nil {
			t.Errorf("%s: %v", name, c)
		}
	}
}
