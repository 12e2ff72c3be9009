// Package operator speaks to Flint in the manner of the Kubeflow
// spark-operator's REST submitter client, and holds requests as the operator
// builds them. It follows that client's observable behaviour: a GET until there is any
// answer; a POST of JSON, three tries in all with a back-off that doubles; 200
// and 201 are success; a well-formed error body is retried only for two codes, anything
// else always.
//
// The requests all carry one submission id and the namespace default, as they
// were taken. With makes variants of them.
package operator

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"flint.dev/flint/pkg/api"
)

//go:embed requests/*.json
var files embed.FS

// Request is a submission as the operator posts it.
type Request struct {
	SubmissionID        string          `json:"submission_id"`
	SparkSubmitArgs     []string        `json:"spark_submit_args"`
	DriverPodTemplate   json.RawMessage `json:"driver_pod_template,omitempty"`
	ExecutorPodTemplate json.RawMessage `json:"executor_pod_template,omitempty"`
}

// Requests gives each file of requests, by its name without the ending.
func Requests() (map[string][]byte, error) {
	entries, err := files.ReadDir("requests")
	if err != nil {
		return nil, err
	}
	found := make(map[string][]byte, len(entries))
	for _, entry := range entries {
		body, err := files.ReadFile(path.Join("requests", entry.Name()))
		if err != nil {
			return nil, err
		}
		found[strings.TrimSuffix(entry.Name(), ".json")] = body
	}
	return found, nil
}

// With gives the request with another submission id, namespace and pod name, each unless it is empty.
func With(body []byte, submissionID, namespace, podName string) ([]byte, error) {
	var r Request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if submissionID != "" {
		r.SubmissionID = submissionID
	}
	replace := func(key, value string) {
		i := slices.IndexFunc(r.SparkSubmitArgs, func(a string) bool { return strings.HasPrefix(a, key+"=") })
		if i >= 0 && value != "" {
			r.SparkSubmitArgs[i] = key + "=" + value
		}
	}
	replace("spark.kubernetes.namespace", namespace)
	replace("spark.kubernetes.driver.pod.name", podName)
	return json.Marshal(r)
}

// Client is the operator's client for one submitter.
type Client struct {
	// URL of the submitter's POST path.
	URL string
	// Tries in all; the operator's default is 3.
	Tries int
	// Backoff before the second try; it doubles. The operator's default is 2 s.
	Backoff time.Duration
	// Timeout of one try; the operator's default is 2 minutes.
	Timeout time.Duration
	// HTTP is the transport; nil means http.DefaultTransport.
	HTTP http.RoundTripper
}

// SubmitError is an error body that the submitter sent.
type SubmitError struct {
	StatusCode int
	Body       api.ErrorBody
}

func (e *SubmitError) Error() string {
	return fmt.Sprintf("submitter answered %s (HTTP %d): %s", e.Body.ErrorCode, e.StatusCode, e.Body.Message)
}

func (c *Client) retries(err error) bool {
	var submit *SubmitError
	if errors.As(err, &submit) {
		return submit.Body.ErrorCode == api.SubmitterOverloaded || submit.Body.ErrorCode == api.InternalServerError
	}
	return true
}

func (c *Client) client() *http.Client {
	return &http.Client{Timeout: c.Timeout, Transport: c.HTTP}
}

// WaitForConnection asks with GET, once each interval, until there is any answer, and gives its status.
func (c *Client) WaitForConnection(ctx context.Context, interval time.Duration) (int, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL, nil)
		if err != nil {
			return 0, err
		}
		response, err := c.client().Do(request)
		if err == nil {
			return response.StatusCode, response.Body.Close()
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for %s: %w", c.URL, errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

// Submit posts the body until it is accepted, refused for good, or out of tries. It
// gives the HTTP status of the acceptance.
func (c *Client) Submit(ctx context.Context, body []byte) (*api.SubmitResponse, int, error) {
	backoff := c.Backoff
	var last error
	for try := range c.Tries {
		if try > 0 {
			wait := time.NewTimer(backoff)
			backoff *= 2
			select {
			case <-ctx.Done():
				wait.Stop()
				return nil, 0, errors.Join(ctx.Err(), last)
			case <-wait.C:
			}
		}
		response, status, err := c.try(ctx, body)
		if err == nil {
			return response, status, nil
		}
		last = err
		if !c.retries(err) {
			break
		}
	}
	return nil, 0, last
}

func (c *Client) try(ctx context.Context, body []byte) (*api.SubmitResponse, int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client().Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return nil, 0, err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		var accepted api.SubmitResponse
		if err := json.Unmarshal(text, &accepted); err != nil {
			return nil, 0, fmt.Errorf("success that is no JSON (HTTP %d): %w", response.StatusCode, err)
		}
		return &accepted, response.StatusCode, nil
	}
	refused := &SubmitError{StatusCode: response.StatusCode}
	if err := json.Unmarshal(text, &refused.Body); err == nil && refused.Body.Message != "" {
		return nil, 0, refused
	}
	return nil, 0, fmt.Errorf("unexpected answer (HTTP %d): %.200s", response.StatusCode, text)
}
