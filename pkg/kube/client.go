package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	jsonType = "application/json"
	// metadataOnly asks for an answer without spec and status; an API server that cannot
	// transform it answers with the whole object.
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	// metadataOfEach is metadataOnly for a list.
	metadataOfEach = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

// client is a Client over one REST client: one connection pool and one rate limit for all kinds.
type client struct {
	rest *rest.RESTClient
	// limit is nil for none. It is asked here and not by client-go, which writes lines of its own
	// about each long wait to standard error.
	limit flowcontrol.RateLimiter
}

// NewClient makes the Client of the API server that cfg names. It sends nothing. The
// limit on requests per second is cfg's QPS and Burst (client-go's 5 and 10 when they are zero,
// none when QPS is negative), or its RateLimiter.
func NewClient(cfg *rest.Config) (Client, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(cfg *rest.Config) (*client, error) {
	c := rest.CopyConfig(cfg)
	c.NegotiatedSerializer = statusCodec()
	c.ContentType = jsonType
	c.AcceptContentTypes = jsonType
	c.GroupVersion = nil
	c.APIPath = ""
	limit := limiter(c)
	c.QPS, c.RateLimiter = -1, nil
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make the HTTP client for the API server: %w", err)
	}
	r, err := rest.UnversionedRESTClientForConfigAndClient(c, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make the client for the API server: %w", err)
	}
	return &client{r, limit}, nil
}

// statusCodec reads metav1.Status, the only typed object in an answer that we need.
// The scheme of client-go would bring every API type with it.
func statusCodec() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

// limiter is the rate limiter that client-go would make of the configuration.
func limiter(c *rest.Config) flowcontrol.RateLimiter {
	switch qps, burst := c.QPS, c.Burst; {
	case c.RateLimiter != nil:
		return c.RateLimiter
	case qps < 0:
		return nil
	default:
		if qps == 0 {
			qps = rest.DefaultQPS
		}
		if burst == 0 {
			burst = rest.DefaultBurst
		}
		return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
	}
}

// turn waits for the turn of one request. The wait ends at once when it would outlast the context.
func (c *client) turn(ctx context.Context) error {
	if c.limit != nil {
		if err := c.limit.Wait(ctx); err != nil {
			return &throttledError{err}
		}
	}
	return nil
}

// send waits for its turn, sends the request and gives the answer's body.
func (c *client) send(ctx context.Context, request *rest.Request) ([]byte, error) {
	if err := c.turn(ctx); err != nil {
		return nil, err
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // unlike Raw, it reads the Status of a refusal
		return nil, err
	}
	return result.Raw()
}

// throttledError says that our own limit on requests per second left no time to send this one.
type throttledError struct{ cause error }

func (e *throttledError) Error() string { return "own request limit: " + e.cause.Error() }
func (e *throttledError) Unwrap() error { return e.cause }

func (c *client) Create(ctx context.Context, namespace string, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	ref := RefOf(namespace, object)
	body, err := json.Marshal(object.Object)
	if err != nil {
		return nil, &RequestError{Ref: ref, Reason: err.Error()}
	}
	request, err := c.request("POST", ref, false, body, jsonType)
	if err != nil {
		return nil, err
	}
	if dryRun {
		// Unknown fields are told in a dry run; else they are dropped, as a typed client drops them.
		request.Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict)
	} else {
		request.Param("fieldValidation", metav1.FieldValidationIgnore).SetHeader("Accept", metadataOnly)
	}
	return c.do(ctx, request, ref)
}

func (c *client) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	request, err := c.request("GET", ref, true, nil, "")
	if err != nil {
		return nil, err
	}
	return c.do(ctx, request, ref)
}

func (c *client) List(ctx context.Context, ref Ref, options ListOptions) (*Page, error) {
	prefix, resource, err := locateAll(ref)
	if err != nil {
		return nil, err
	}
	ref.Name = ""
	request := c.rest.Verb("GET").AbsPath(prefix).Namespace(ref.Namespace).Resource(resource).MaxRetries(0)
	if options.LabelSelector != "" {
		request.Param("labelSelector", options.LabelSelector)
	}
	if options.FieldSelector != "" {
		request.Param("fieldSelector", options.FieldSelector)
	}
	if options.Limit > 0 {
		request.Param("limit", strconv.FormatInt(options.Limit, 10))
	}
	if options.Continue != "" {
		request.Param("continue", options.Continue)
	}
	if options.MetadataOnly {
		request.SetHeader("Accept", metadataOfEach)
	}
	raw, err := c.send(ctx, request)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("read the API server's list of %s: %w", ref, err)
	}
	if !strings.HasSuffix(list.GetKind(), "List") { // never an empty page for an answer that is no list
		return nil, fmt.Errorf("read the API server's list of %s: the answer is a %q", ref, list.GetKind())
	}
	page := &Page{Continue: list.GetContinue()}
	for i := range list.Items {
		item := &list.Items[i]
		item.Object["apiVersion"], item.Object["kind"] = ref.APIVersion, ref.Kind // a list's items may lack both
		page.Items = append(page.Items, item)
	}
	return page, nil
}

func (c *client) Patch(ctx context.Context, ref Ref, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	request, err := c.request("PATCH", ref, true, patch, string(kind))
	if err != nil {
		return nil, err
	}
	return c.do(ctx, request.SetHeader("Accept", metadataOnly), ref)
}

func (c *client) Delete(ctx context.Context, ref Ref, uid types.UID) error {
	return c.delete(ctx, ref, map[string]any{"uid": uid})
}

func (c *client) DeleteUnchanged(ctx context.Context, ref Ref, uid types.UID, resourceVersion string) error {
	return c.delete(ctx, ref, map[string]any{"uid": uid, "resourceVersion": resourceVersion})
}

func (c *client) delete(ctx context.Context, ref Ref, preconditions map[string]any) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion":        "v1",
		"kind":              "DeleteOptions",
		"propagationPolicy": metav1.DeletePropagationBackground,
		"preconditions":     preconditions,
	})
	if err != nil { // strings always marshal
		panic(err)
	}
	request, err := c.request("DELETE", ref, true, body, jsonType)
	if err != nil {
		return err
	}
	_, err = c.send(ctx, request)
	return err
}

func (c *client) Log(ctx context.Context, ref Ref, container string, tailLines, limitBytes int64) (io.ReadCloser, error) {
	if ref.Kind != "Pod" {
		return nil, &RequestError{Ref: ref, Reason: "only a Pod has a log"}
	}
	request, err := c.request("GET", ref, true, nil, "")
	if err != nil {
		return nil, err
	}
	request.SubResource("log").Param("container", container).
		Param("tailLines", strconv.FormatInt(tailLines, 10)).Param("limitBytes", strconv.FormatInt(limitBytes, 10))
	if err := c.turn(ctx); err != nil {
		return nil, err
	}
	text, err := request.Stream(ctx)
	if err != nil {
		return nil, err
	}
	return bounded{io.LimitReader(text, limitBytes), text}, nil
}

// bounded is a stream of which no more is read than its limit: a kubelet may send more than it was asked for.
type bounded struct {
	io.Reader
	io.Closer
}

// request is a request on the resource, or on the named object in it, that is sent once:
// client-go would else send it up to ten times when the answer is 429 or 5xx with Retry-After.
func (c *client) request(verb string, ref Ref, named bool, body []byte, contentType string) (*rest.Request, error) {
	prefix, resource, err := locate(ref, named)
	if err != nil {
		return nil, err
	}
	r := c.rest.Verb(verb).AbsPath(prefix).Namespace(ref.Namespace).Resource(resource).MaxRetries(0)
	if named {
		r.Name(ref.Name)
	}
	if body != nil {
		r.Body(body).SetHeader("Content-Type", contentType)
	}
	return r, nil
}

// do sends the request and reads the object in the answer. An object's metadata alone
// comes as a PartialObjectMetadata; the answer has the kind that was asked about.
func (c *client) do(ctx context.Context, request *rest.Request, ref Ref) (*unstructured.Unstructured, error) {
	raw, err := c.send(ctx, request)
	if err != nil {
		return nil, err
	}
	answer := &unstructured.Unstructured{}
	if err := answer.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("read the API server's answer about %s: %w", ref, err)
	}
	if answer.GetKind() == "PartialObjectMetadata" {
		object := maps.Clone(answer.Object)
		object["apiVersion"], object["kind"] = ref.APIVersion, ref.Kind
		answer.Object = object
	}
	return answer, nil
}
