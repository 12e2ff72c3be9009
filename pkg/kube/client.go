package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

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
)

// client is a Client over one REST client: one connection pool and one rate limit for all kinds.
type client struct{ rest *rest.RESTClient }

// NewClient makes the Client of the API server that cfg names. It sends nothing. The
// limit on requests per second is cfg's QPS and Burst (client-go's 5 and 10 when they are zero,
// none when QPS is negative), or its RateLimiter.
func NewClient(cfg *rest.Config) (Client, error) {
	c := rest.CopyConfig(cfg)
	c.NegotiatedSerializer = statusCodec()
	c.ContentType = jsonType
	c.AcceptContentTypes = jsonType
	c.GroupVersion = nil
	c.APIPath = ""
	if limit := limiter(c); limit != nil {
		c.RateLimiter = waiting{limit}
	}
	httpClient, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make the HTTP client for the API server: %w", err)
	}
	r, err := rest.UnversionedRESTClientForConfigAndClient(c, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make the client for the API server: %w", err)
	}
	return &client{r}, nil
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

// waiting marks the errors of a rate limiter, which has none of its own: it gives up at
// once when the wait would outlast the context.
type waiting struct{ flowcontrol.RateLimiter }

func (w waiting) Wait(ctx context.Context) error {
	if err := w.RateLimiter.Wait(ctx); err != nil {
		return &throttledError{err}
	}
	return nil
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
	return do(ctx, request, ref)
}

func (c *client) Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	request, err := c.request("GET", ref, true, nil, "")
	if err != nil {
		return nil, err
	}
	return do(ctx, request, ref)
}

func (c *client) Patch(ctx context.Context, ref Ref, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	request, err := c.request("PATCH", ref, true, patch, string(kind))
	if err != nil {
		return nil, err
	}
	return do(ctx, request.SetHeader("Accept", metadataOnly), ref)
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
	return request.Do(ctx).Error()
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
func do(ctx context.Context, request *rest.Request, ref Ref) (*unstructured.Unstructured, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	raw, err := result.Raw()
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
