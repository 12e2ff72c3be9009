//go:build e2e && linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
)

// jobs is the namespace that Flint launches into: config/watched.
const jobs = "flint-jobs"

// instances are the function's pods that are ready.
func instances(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := client.CoreV1().Pods("flint").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ready []corev1.Pod
	for _, pod := range pods.Items {
		if Ready(&pod) {
			ready = append(ready, pod)
		}
	}
	return ready, nil
}

// answer of the function.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// call sends a request to an instance, through its queue-proxy as Knative's activator would, and tries others for as
// long as the answer is one that a caller tries again.
func call(ctx context.Context, method, path string, header http.Header, body []byte) (answer, error) {
	var got answer
	attempt := 0
	err := until(ctx, method+" "+path, func() (bool, error) {
		ready, err := instances(ctx)
		if err != nil || len(ready) == 0 {
			return false, errors.Join(err, errors.New("no instance is ready"))
		}
		attempt++
		address := ready[attempt%len(ready)].Status.PodIP
		limited, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(limited, method, "http://"+address+":8012"+path, bytes.NewReader(body))
		if err != nil {
			return false, err
		}
		for name, values := range header {
			request.Header[name] = values
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		defer func() { _ = response.Body.Close() }()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		got = answer{response.StatusCode, response.Header, text}
		return !got.retryable(), fmt.Errorf("HTTP %d: %s", got.status, text)
	})
	return got, err
}

// retryable is what a caller tries again: Flint's two codes, and what is not from Flint but from the queue-proxy.
func (a answer) retryable() bool {
	code := a.code()
	return a.status >= 500 && (code == "" || code == api.InternalServerError || code == api.SubmitterOverloaded)
}

// code is the error code, and empty where the answer is no error of Flint's.
func (a answer) code() api.Code {
	var body api.ErrorBody
	if json.Unmarshal(a.body, &body) != nil {
		return ""
	}
	return body.ErrorCode
}

// post sends JSON, and reads the answer if it is one of those that are wanted.
func post[T any](ctx context.Context, path string, request any, statuses ...int) (T, error) {
	var into T
	body, err := json.Marshal(request)
	if err != nil {
		return into, err
	}
	got, err := call(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil {
		return into, err
	}
	if !slices.Contains(statuses, got.status) {
		return into, fmt.Errorf("POST %s: HTTP %d, want %d: %s", path, got.status, statuses, got.body)
	}
	return into, json.Unmarshal(got.body, &into)
}

// postEvent sends JSON as the data of a binary event, which a Broker would count as delivered only with 202 and no body.
func postEvent(ctx context.Context, t *testing.T, kind string, data any) {
	t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/e2e"}, "Ce-Type": {kind},
	}
	got, err := call(ctx, http.MethodPost, "/", header, body)
	if err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusAccepted || len(got.body) != 0 {
		t.Fatalf("event %s: HTTP %d, %s", kind, got.status, got.body)
	}
}
