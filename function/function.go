// Package function is Flint as func-go serves it: New, Start, Stop, Ready,
// Alive and Handle, and the routes between them. It decodes, asks who may do
// what, builds a plan, applies it and answers; all of these are done elsewhere.
//
// New touches nothing. Start reads the settings and makes the client, without a
// call to the API server. Until Start is done, Ready is false and work is
// answered 503; answers that need no work, such as the 405 to a GET that the
// operator probes with, are given from the first moment.
package function

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/metrics"
	"flint.dev/flint/pkg/runners"
	"flint.dev/flint/pkg/tlsserver"
)

// Function is one instance. Make it with New.
type Function struct {
	options  options
	running  atomic.Pointer[running] // nil until Start is done
	draining atomic.Bool
	stopping context.Context // ends when draining begins: waits end with it
	stop     context.CancelFunc
}

// running is what Start makes: everything that work needs.
type running struct {
	settings *config.Settings
	applier  *launch.Applier
	policy   access.Policy
	access   *access.Access
	tls      *tlsserver.Server // nil without a second listener
	slots    chan struct{}     // one token for each launch in flight
	reads    places
	looks    places
	pings    completion.Flight[struct{}]
	bodies   *bodyMemory
	log      *slog.Logger
	metrics  *metrics.Metrics
	unwatch  func() // ends the watch for signals

	completions *completions
	files       *fileJobs

	runners        *runners.Runners
	waitingRunners chan struct{} // one token for each answer that waits for a boot
}

type options struct {
	settings *config.Settings
	kube     *rest.Config
	clock    clock.Clock
	log      *slog.Logger
}

// Option changes how an instance is made. Served by func-go, it has none.
type Option func(*options)

// WithSettings takes these settings in place of the environment's.
func WithSettings(s *config.Settings) Option { return func(o *options) { o.settings = s } }

// WithCluster takes this API server in place of the settings'.
func WithCluster(c *rest.Config) Option { return func(o *options) { o.kube = c } }

// WithClock takes this clock in place of the machine's.
func WithClock(c clock.Clock) Option { return func(o *options) { o.clock = c } }

// WithLog takes this logger in place of JSON lines on standard error.
func WithLog(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// New makes an instance. It reads nothing and cannot fail.
func New(opts ...Option) *Function {
	f := &Function{options: options{clock: clock.RealClock{}}}
	f.stopping, f.stop = context.WithCancel(context.Background())
	for _, option := range opts {
		option(&f.options)
	}
	return f
}

// Start reads the settings and makes the client. Its error names every setting
// at fault, and ends func-go. func-go's map repeats the environment, and is not used;
// its context never ends.
func (f *Function) Start(ctx context.Context, _ map[string]string) error {
	settings := f.options.settings
	if settings == nil {
		var err error
		if settings, err = config.Load(); err != nil {
			return err
		}
	}
	log := f.options.log
	if log == nil {
		log = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: settings.LogLevel}))
	}
	cluster := f.options.kube
	if cluster == nil {
		var err error
		if cluster, err = kube.LoadConfig(settings.Kubeconfig, settings.KubeQPS, settings.KubeBurst); err != nil {
			return fmt.Errorf("find the API server: %w", err)
		}
	}
	client, err := kube.NewClient(cluster)
	if err != nil {
		return fmt.Errorf("make the API client: %w", err)
	}
	namespaces := settings.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{kube.OwnNamespace(settings.Kubeconfig)}
	}
	applier := &launch.Applier{Client: client, Clock: f.options.clock}
	counts := metrics.New()
	ended, err := newCompletions(settings, client, applier, f.options.clock, namespaces, counts, log)
	if err != nil {
		return err
	}
	who, err := access.New(access.Config{
		Cluster: cluster, Tokens: settings.Tokens, Audience: settings.Audience, Names: settings.TLS.ClientNames, Clock: f.options.clock,
	})
	if err != nil {
		return err
	}
	second, err := f.listenTLS(ctx, settings, log)
	if err != nil {
		return err
	}
	run := &running{
		settings: settings,
		applier:  applier,
		policy:   access.Policy{Namespaces: namespaces, ServiceAccounts: settings.ServiceAccounts},
		access:   who,
		tls:      second,
		slots:    make(chan struct{}, settings.MaxInFlight),
		reads:    newPlaces(maxReads, "GETs of launches"),
		looks:    newPlaces(maxLooks, "looks"),
		bodies:   newBodyMemory(settings.BodyMemory),
		log:      log,
		metrics:  counts,
		unwatch:  f.drainOnSignal(context.WithoutCancel(ctx), second),

		completions: ended,
		files:       newFileJobs(client, settings.File.Waiters),

		waitingRunners: make(chan struct{}, settings.Runner.Waiters),
	}
	run.runners = f.newRunners(run)
	ended.start(context.WithoutCancel(ctx), settings, run.runners)
	f.running.Store(run)
	log.Info("flint is ready", "spark_version", settings.SparkVersion.String(), "namespaces", namespaces)
	return nil
}

// drain refuses new work, and ends the waits.
func (f *Function) drain() {
	f.draining.Store(true)
	f.stop()
}

// drainOnSignal refuses new work from the first SIGTERM or SIGINT on, until it is
// told to stop watching. func-go closes its listener at the same signal and waits for
// what is in flight, but it calls Stop only afterwards, and a request whose body is
// still arriving has not begun.
// The listener with TLS closes at the same signal.
func (f *Function) drainOnSignal(ctx context.Context, second *tlsserver.Server) (stop func()) {
	signals, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(signals, func() {
		f.drain()
		ctx, cancel := context.WithTimeout(ctx, fhttp.ServerShutdownTimeout)
		defer cancel()
		_ = stopTLS(ctx, second) // Stop waits for the same, and tells
	})
	return stop
}

// Stop refuses new work and waits until what is in flight has ended, completions
// included, or ctx has.
func (f *Function) Stop(ctx context.Context) error {
	f.drain()
	run := f.running.Load()
	if run == nil {
		return nil
	}
	run.unwatch()
	return errors.Join(stopTLS(ctx, run.tls), run.drained(ctx), run.completions.stop(ctx))
}

// drained waits until nothing is in flight: who holds every slot knows that nothing else runs.
// Reads have nothing to lose.
func (run *running) drained(ctx context.Context) error {
	return errors.Join(allFree(ctx, run.slots, "launches"), allFree(ctx, run.looks.taken, run.looks.sort), allFree(ctx, run.files.waiters, "waits"), allFree(ctx, run.waitingRunners, "boots"))
}

func allFree(ctx context.Context, slots chan struct{}, sort string) error {
	held := 0
	defer func() {
		for range held {
			<-slots
		}
	}()
	for held < cap(slots) {
		select {
		case slots <- struct{}{}:
			held++
		case <-ctx.Done():
			return fmt.Errorf("stop with %s in flight: %w", sort, ctx.Err())
		}
	}
	return nil
}

// Ready is true once Start is done and until the instance drains. It never asks the API server.
func (f *Function) Ready(context.Context) (bool, error) {
	return f.running.Load() != nil && !f.draining.Load(), nil
}

// Alive is true as long as the process answers. It never asks the API server.
func (f *Function) Alive(context.Context) (bool, error) { return true, nil }

// Handle answers one request. A panic below it becomes a 500 and a log line with its stack.
func (f *Function) Handle(w http.ResponseWriter, r *http.Request) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			f.logger().Error("panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			e := api.Errorf(api.InternalServerError, "unexpected failure; the log of Flint has its cause")
			f.countRefusal(metrics.Unread, e)
			f.answerError(w, "", e)
		}
	}()
	// A body in chunks may have come with a length too, of which net/http tells nothing: then a proxy in front may hold
	// its end to be elsewhere, and what follows is no request of its client (RFC 9112, 6.1).
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		w.Header().Set("Connection", "close")
	}
	f.route(w, withCaller(r))
}

func (f *Function) logger() *slog.Logger {
	if run := f.running.Load(); run != nil {
		return run.log
	}
	return slog.Default()
}

// work gives what a request needs, or the error that the instance takes none now, or none of this caller. Nothing that
// needs work is reached but through it.
func (f *Function) work(r *http.Request) (*running, error) {
	run := f.running.Load()
	switch {
	case f.draining.Load():
		return nil, errStopping()
	case run == nil:
		return nil, overloaded("this instance is starting")
	}
	return run, run.identify(r)
}

// acquire takes a slot for one launch, or refuses at once: what waits in memory
// is lost with the process, what waits at the caller is not. A request whose body
// was still arriving at the signal to stop is refused here.
func (f *Function) acquire(run *running) (release func(), err error) {
	select {
	case run.slots <- struct{}{}:
	default:
		return nil, overloaded(fmt.Sprintf("%d launches are in flight, as many as this instance takes", cap(run.slots)))
	}
	end := run.metrics.Begin()
	release = func() { end(); <-run.slots }
	if f.draining.Load() {
		release()
		return nil, errStopping()
	}
	return release, nil
}

func errStopping() *api.Error {
	return overloaded("this instance is stopping; the next one takes the request")
}

func overloaded(message string) *api.Error {
	return &api.Error{Code: api.SubmitterOverloaded, Message: message, RetryAfter: time.Second}
}

// toAPIError gives the error as the edge tells it. What is not an *api.Error is
// unexpected: the caller gets no more of it than that, the log gets all.
func toAPIError(err error) *api.Error {
	var known *api.Error
	if errors.As(err, &known) {
		return known.Bounded()
	}
	return &api.Error{Code: api.InternalServerError, Message: "unexpected failure; the log of Flint has its cause", Cause: err}
}
