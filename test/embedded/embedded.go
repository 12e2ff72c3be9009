// Package embedded is a Kubernetes API in memory, served over HTTP on loopback, with
// a simulated node behind it. Product code runs against it unmodified, from a
// rest.Config or a kubeconfig file, in tests and under `make run`.
//
// What it promises: the calls that Flint makes (create, get, list, update, patch and delete of the
// resources in resources.go, pod logs, dry runs, preconditions on uid and
// resourceVersion) answer with the status codes, reasons and metadata of a real API server. The
// conformance test of this package sends one script of calls to this API and to a real
// kube-apiserver and compares the answers; that test is what keeps the imitation honest. A pod
// without scheduling gates is placed on the node, gets an address, runs for a while on the injected
// clock and ends; a Job that is not suspended gets one pod and ends with it; what a deleted
// object owned goes with it. A pod that was released before everything it mounts was there is
// remembered, see Stranded.
//
// What it lacks: defaulting and validation of objects (except for a name, and gates beside a
// nodeName), admission, quota, authentication and authorization, watches, server-side
// apply, and any resource that is not in the list. A call that it lacks is answered with a
// Status that says so, never with silence. For the API server's own rules use package
// controlplane.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// Options say how a Cluster behaves. The zero value is good for most tests: real clock, the
// namespace "default", pods that end at once with exit code 0, no output.
type Options struct {
	// Clock is the time of creation timestamps and of the node. Nil means the real one.
	Clock clock.WithTicker
	// Log gets one line for each pod that ended. Nil means none.
	Log io.Writer
	// Completed is called after the end of a pod is stored, one call at a time. It must
	// not block.
	Completed func(Completion)
	// Namespaces exist from the start, beside "default".
	Namespaces []string
	// RunFor is how long a pod's containers run. Zero means that they end as soon as they ran.
	RunFor time.Duration
	// Run stands for the container runtime. When it is set, it is asked to run each pod; see
	// RunFunc. Nil means that every pod is simulated.
	Run RunFunc
	// Idle leaves the API alone: no node, no Job controller, no garbage collector for
	// objects whose owner never was. Pods stay as they were created, as they do at a control plane
	// without nodes.
	Idle bool
	// Middleware wraps the API, so that a test can count, delay or refuse calls.
	Middleware func(http.Handler) http.Handler
	// Address to listen on. Empty means a free port of 127.0.0.1.
	Address string
}

// Request is one call that the API received.
type Request struct {
	Method string // HTTP's
	Path   string
	Query  string // as it came, not decoded
}

// IsWrite reports whether the call changes something.
func (r Request) IsWrite() bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// Cluster is a running API with its node. Start makes one.
type Cluster struct {
	options Options
	clock   clock.WithTicker
	address string
	server  *http.Server
	served  chan struct{} // closed when the server has ended

	stop    context.CancelFunc
	work    sync.WaitGroup
	queue   workqueue.TypedDelayingInterface[key]
	reports sync.Mutex // one Completed call or log line at a time

	mu       sync.Mutex // guards all below, and is held through each read-modify-write
	tracker  clienttesting.ObjectTracker
	version  uint64                   // the last resourceVersion given out
	uids     map[types.UID]key        // every stored object
	owned    map[types.UID][]key      // what names the uid as an owner
	waiting  map[key]bool             // pods on the node whose volumes are not there yet
	running  map[types.UID]*execution // pods whose containers run
	logs     map[types.UID][]byte     // what containers wrote
	ips      uint32                   // pod addresses given out
	stranded []string
	requests []Request
	changed  chan struct{} // closed, and replaced, at each change
}

// Start serves a cluster until Close.
func Start(options Options) (*Cluster, error) {
	c := &Cluster{
		options: options,
		clock:   options.Clock,
		served:  make(chan struct{}),
		tracker: newTracker(),
		uids:    map[types.UID]key{},
		owned:   map[types.UID][]key{},
		waiting: map[key]bool{},
		running: map[types.UID]*execution{},
		logs:    map[types.UID][]byte{},
		changed: make(chan struct{}),
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.queue = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{Clock: c.clock})
	if options.Address == "" {
		options.Address = "127.0.0.1:0"
	}
	for _, name := range append([]string{"default"}, options.Namespaces...) {
		if err := c.AddNamespace(name); err != nil {
			c.queue.ShutDown()
			return nil, fmt.Errorf("add namespace %s: %w", name, err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", options.Address)
	if err != nil {
		c.queue.ShutDown()
		return nil, fmt.Errorf("listen for the embedded API: %w", err)
	}
	c.address = listener.Addr().String()

	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	if !options.Idle {
		c.work.Go(func() { c.control(ctx) })
	}
	handler := c.handler()
	if options.Middleware != nil {
		handler = options.Middleware(handler)
	}
	c.server = &http.Server{
		Handler:           c.record(handler),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
	}
	go func() {
		defer close(c.served)
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.print(fmt.Sprintf("embedded API ended: %v", err))
		}
	}()
	return c, nil
}

// Close ends the node and the API and waits for both.
func (c *Cluster) Close() {
	c.stop()
	c.queue.ShutDown()
	_ = c.server.Close()
	<-c.served
	c.work.Wait()
}

// URL is where the API listens.
func (c *Cluster) URL() string { return "http://" + c.address }

// Config is for a client of this cluster, without a rate limit of its own.
func (c *Cluster) Config() *rest.Config {
	return &rest.Config{Host: c.URL(), QPS: -1}
}

// Kubeconfig writes a kubeconfig file for this cluster.
func (c *Cluster) Kubeconfig(path string) error {
	const name = "embedded"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: c.URL()}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of the embedded cluster: %w", err)
	}
	return nil
}

// AddNamespace creates a namespace past the API.
func (c *Cluster) AddNamespace(name string) error {
	_, err := c.Add(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}})
	return err
}

// Add creates an object past HTTP: it is not in Requests. The answer is what was stored.
func (c *Cluster) Add(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	res, err := resourceOf(object.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	namespace := object.GetNamespace()
	if res.namespaced && namespace == "" {
		namespace = "default"
	}
	return c.create(res, namespace, object.DeepCopy(), false)
}

// Object is one stored object, or nil.
func (c *Cluster) Object(gvr schema.GroupVersionResource, namespace, name string) *unstructured.Unstructured {
	c.mu.Lock()
	defer c.mu.Unlock()
	object, err := c.load(key{gvr, namespace, name})
	if err != nil {
		return nil
	}
	return object
}

// Objects are all stored objects of the named resources, ordered by resource (as asked), namespace and
// name. No resource means all that Flint may create: everything but namespaces.
func (c *Cluster) Objects(gvrs ...schema.GroupVersionResource) []*unstructured.Unstructured {
	if len(gvrs) == 0 {
		for _, res := range resources {
			if res.namespaced {
				gvrs = append(gvrs, res.gvr)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var objects []*unstructured.Unstructured
	for _, gvr := range gvrs {
		res := byResource[gvr]
		if res == nil {
			continue
		}
		objects = append(objects, c.all(res, "")...)
	}
	return objects
}

// Log is what the containers of a pod wrote so far.
func (c *Cluster) Log(namespace, pod string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	object, err := c.load(key{Pods, namespace, pod})
	if err != nil {
		return ""
	}
	return string(c.logs[object.GetUID()])
}

// Requests are the calls that came over HTTP since the start or the last ResetRequests, in the
// order of their arrival.
func (c *Cluster) Requests() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// ResetRequests forgets the calls so far.
func (c *Cluster) ResetRequests() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = nil
}

// Stranded names, as namespace/name, each pod and Job that could have been started while a ConfigMap,
// Secret or PersistentVolumeClaim that it mounts did not exist: created without a gate
// or released too early. It is judged in the very write, not when the node comes by.
func (c *Cluster) Stranded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.stranded)
}

// Until waits until the condition holds. It looks again after each change in the cluster. The
// condition may call any method of the cluster but Close.
func (c *Cluster) Until(ctx context.Context, condition func() bool) error {
	for {
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the embedded cluster: %w", ctx.Err())
		}
	}
}

// record notes each request before it is served, so that whoever has an answer finds the request.
func (c *Cluster) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.requests = append(c.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery})
		c.mu.Unlock()
		next.ServeHTTP(w, r)
	})
}

// print writes a line to the log, if there is one.
func (c *Cluster) print(line string) {
	if c.options.Log == nil {
		return
	}
	c.reports.Lock()
	defer c.reports.Unlock()
	_, _ = fmt.Fprintln(c.options.Log, line)
}
