//go:build e2e && serving && linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// host is the function's address in a cluster.
const host = function + "." + function + ".svc.cluster.local"

var ingresses = schema.GroupVersionResource{Group: "networking.internal.knative.dev", Version: "v1alpha1", Resource: "ingresses"}

// gateway is what Kourier, Istio or Contour would be, and kube-proxy for the autoscaler. It says of each Knative Ingress
// that it is programmed, and takes requests on port 80 of Address to one of the endpoints of the Service that the Ingress
// names, with the headers that it names. Serving lets that be the activator or the function's pods. It tries once.
type gateway struct{ objects dynamic.Interface }

// known is what the API server has in memory, which may be a moment old, as all that a gateway knows.
var known = metav1.ListOptions{ResourceVersion: "0"}

// startGateway has it serve until the test is over.
func startGateway(ctx context.Context, t *testing.T, objects dynamic.Interface) {
	t.Helper()
	g := &gateway{objects}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- g.program(ctx) }()
	listener, err := net.Listen("tcp", Address+":80")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: g, ReadHeaderTimeout: 5 * time.Second}
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// program writes the status of each Ingress, until ctx ends.
func (g *gateway) program(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		all, err := g.objects.Resource(ingresses).Namespace(function).List(ctx, known)
		if err == nil {
			for i := range all.Items {
				// Who else changes it is tried again a moment later.
				if err := g.programmed(ctx, &all.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
					return err
				}
			}
		} else if !apierrors.IsNotFound(err) { // the kind has just been made
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// programmed writes the status of an Ingress that a gateway has taken up, unless it has it.
func (g *gateway) programmed(ctx context.Context, ingress *unstructured.Unstructured) error {
	observed, _, _ := unstructured.NestedInt64(ingress.Object, "status", "observedGeneration")
	if observed == ingress.GetGeneration() && isTrue(ingress, "Ready") {
		return nil
	}
	var conditions []any
	for _, kind := range []string{"LoadBalancerReady", "NetworkConfigured", "Ready"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)})
	}
	balancer := map[string]any{"ingress": []any{map[string]any{"domainInternal": "gateway.e2e.svc.cluster.local"}}}
	ingress = ingress.DeepCopy()
	ingress.Object["status"] = map[string]any{
		"observedGeneration": ingress.GetGeneration(), "conditions": conditions, "publicLoadBalancer": balancer, "privateLoadBalancer": balancer,
	}
	_, err := g.objects.Resource(ingresses).Namespace(ingress.GetNamespace()).UpdateStatus(ctx, ingress, metav1.UpdateOptions{})
	return err
}

// rules are what a gateway reads of an Ingress.
type rules struct {
	Spec struct {
		Rules []struct {
			Hosts []string `json:"hosts"`
			HTTP  struct {
				Paths []struct {
					Splits []struct {
						ServiceName   string            `json:"serviceName"`
						Percent       int               `json:"percent"`
						AppendHeaders map[string]string `json:"appendHeaders"`
					} `json:"splits"`
				} `json:"paths"`
			} `json:"http"`
		} `json:"rules"`
	} `json:"spec"`
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, header, err := g.route(r.Context(), r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = "http", to, p.In.Host
			for name, value := range header {
				p.Out.Header.Set(name, value)
			}
		},
	}
	proxy.ServeHTTP(w, r)
}

// route is the address that a request to a host goes to, and the headers that it gets. A host that no Ingress has is that of a Service.
func (g *gateway) route(ctx context.Context, host string) (string, map[string]string, error) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	all, err := g.objects.Resource(ingresses).Namespace(function).List(ctx, known)
	if err != nil {
		return "", nil, err
	}
	for _, object := range all.Items {
		var ingress rules
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &ingress); err != nil {
			return "", nil, err
		}
		for _, rule := range ingress.Spec.Rules {
			if !slices.Contains(rule.Hosts, host) {
				continue
			}
			for _, split := range rule.HTTP.Paths[0].Splits {
				if split.Percent == 100 {
					to, err := g.endpoint(ctx, split.ServiceName)
					return to, split.AppendHeaders, err
				}
			}
		}
	}
	service, _, _ := strings.Cut(host, ".")
	to, err := g.endpoint(ctx, service)
	return to, nil, err
}

// endpoint is one of those of a Service's port http.
func (g *gateway) endpoint(ctx context.Context, service string) (string, error) {
	options := known
	options.LabelSelector = discoveryv1.LabelServiceName + "=" + service
	found, err := client.DiscoveryV1().EndpointSlices(function).List(ctx, options)
	if err != nil {
		return "", err
	}
	var all []string
	for _, slice := range found.Items {
		for _, port := range slice.Ports {
			if port.Name == nil || *port.Name != "http" {
				continue
			}
			for _, endpoint := range slice.Endpoints {
				if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
					all = append(all, net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("service %q has no endpoint", service)
	}
	return all[rand.IntN(len(all))], nil
}

// ask sends a request to the function as its callers in a cluster do, once.
func ask(ctx context.Context, method, path string, header http.Header, body io.Reader) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+Address+path, body)
	if err != nil {
		return answer{}, err
	}
	request.Host = host + ":80" // as the operator writes it
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, text}, err
}
