package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/events"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/metrics"
	"flint.dev/flint/pkg/runners"
)

// The events that ask for a look at what has ended.
const (
	pingEvent       = "dev.knative.sources.ping"
	apiServerEvents = "dev.knative.apiserver."
)

// completions tells of what has ended: on its own while the instance is up, and when an event asks for it.
type completions struct {
	poller *completion.Poller
	sink   *events.Sink
	cancel context.CancelFunc
	done   chan struct{} // closed when the poller has ended
}

// newCompletions makes the sink and the poller. It sends nothing. The error names every setting of the sink at fault.
func newCompletions(s *config.Settings, client kube.Client, applier *launch.Applier, c clock.Clock, namespaces []string, counts *metrics.Metrics, log *slog.Logger) (*completions, error) {
	sink, err := events.New(events.Config{
		SinkURL:   s.Sink,
		Overrides: s.SinkOverrides,
		CACerts:   s.SinkCACerts,
		BundleDir: events.BundleDir,
		TokenFile: events.TokenFile,
		Clock:     c,
		Log:       log,
		Attempted: counts.Attempted,
	})
	if err != nil {
		return nil, err
	}
	poller := &completion.Poller{
		Client:     client,
		Sender:     sink,
		Applier:    applier,
		Clock:      c,
		Source:     s.EventSource,
		Namespaces: namespaces,
		Settings: completion.Settings{
			Bounds: completion.Bounds{
				ImagePull: s.ImagePullLimit, ConfigError: s.ConfigErrorLimit, Unschedulable: s.UnschedulableLimit, NodeLost: s.NodeLostLimit,
			},
			TellDeleted: s.TellDeleted,
			JobTTL:      s.JobTTL,
			IntervalMin: s.PollInterval,
		},
		Result: wholeResult(client, s.File.EventResult),
		Refused: func(err error) bool {
			var refused *events.Error
			return errors.As(err, &refused) && refused.Final
		},
		Log:     log,
		Observe: counts.Completed,
		Passed:  counts.Passed,
	}
	applier.TellDeleted = s.TellDeleted
	// Its name is free once its end was told. What that waits for is the poller's, not the launch's.
	applier.Abandon = func(ctx context.Context, abandoned kube.Ref) error {
		ctx, cancel := context.WithTimeout(ctx, tellLimit)
		defer cancel()
		_, err := poller.One(ctx, abandoned, nil)
		return err
	}
	return &completions{poller: poller, sink: sink, cancel: func() {}, done: make(chan struct{})}, nil
}

// start polls until stop, and sweeps beside it, unless the settings say never.
func (c *completions) start(ctx context.Context, s *config.Settings, r *runners.Runners) {
	c.poller.Tend = r.Tend
	if s.PollInterval == 0 {
		close(c.done)
		return
	}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.done)
		var sweeping sync.WaitGroup
		sweeping.Go(func() { r.Run(ctx, c.poller.Namespaces) })
		c.poller.Run(ctx)
		sweeping.Wait()
	}()
}

// stop ends the polling, waits for what it has begun, and lets go of the sink.
func (c *completions) stop(ctx context.Context) error {
	c.cancel()
	select {
	case <-c.done:
	case <-ctx.Done():
		return fmt.Errorf("stop while completions are told: %w", ctx.Err())
	}
	c.sink.Close()
	return nil
}

// asksForLook tells whether the event is one that a PingSource or an ApiServerSource sends.
func asksForLook(eventType string) bool {
	return eventType == pingEvent || strings.HasPrefix(eventType, apiServerEvents)
}

// look answers such an event: at everything for a ping, at one object for an
// event of the API server. What the event says of the object is not believed, only
// that there is something to see: anybody may send it.
func (f *Function) look(w http.ResponseWriter, r *http.Request, run *running, event *cloudevents.Event) error {
	release, err := f.take(run.looks)
	if err != nil {
		return err
	}
	defer release()
	extendWrite(w, run.settings.LaunchTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), run.settings.LaunchTimeout)
	defer cancel()
	var ref kube.Ref // of all, for a ping
	if event.Type() == pingEvent {
		err = run.lookAtAll(ctx)
	} else {
		if ref, err = reference(event); err != nil {
			return err
		}
		if isWorkload(ref) {
			_, err = run.completions.poller.One(ctx, ref, nil)
		}
	}
	if err != nil {
		return unseen(err, ref)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// lookAtAll makes one pass and one sweep, for all pings that wait for it.
func (run *running) lookAtAll(ctx context.Context) error {
	_, err := run.pings.Do(ctx, func(ctx context.Context) (struct{}, error) {
		poller := run.completions.poller
		_, err := poller.Pass(ctx)
		_, failed := run.runners.Sweep(ctx, poller.Namespaces)
		return struct{}{}, errors.Join(err, failed)
	})
	return err
}

// unseen is what a look failed with. What the API server will refuse for ever, for want of rights or by its form, is
// final where one object was asked for; of a look at all, some may be seen later.
func unseen(err error, of kube.Ref) error {
	if e := kube.Translate(err, "look at", of); of.Name != "" && !e.Retryable() {
		return e
	}
	e := overloaded("not all could be seen; the next look sees the rest")
	e.Cause = err
	return e
}

// reference reads which object an ApiServerSource's event is about: its data is an
// ObjectReference, or the object itself in the source's mode Resource.
func reference(event *cloudevents.Event) (kube.Ref, error) {
	var data struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		Metadata   struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(event.Data(), &data); err != nil {
		return kube.Ref{}, api.FieldErrorf(api.BadRequest, "data", "the event's data is no JSON object with texts for kind, namespace and name")
	}
	ref := kube.Ref{APIVersion: data.APIVersion, Kind: data.Kind, Namespace: data.Namespace, Name: data.Name}
	if ref.Name == "" {
		ref.Namespace, ref.Name = data.Metadata.Namespace, data.Metadata.Name
	}
	if ref.Kind == "" || ref.Namespace == "" || ref.Name == "" {
		return kube.Ref{}, api.FieldErrorf(api.BadRequest, "data", "the event's data names no object: kind %q, namespace %q, name %q", ref.Kind, ref.Namespace, ref.Name)
	}
	if problems := append(validation.IsDNS1123Label(ref.Namespace), validation.IsDNS1123Subdomain(ref.Name)...); len(problems) > 0 {
		return kube.Ref{}, api.FieldErrorf(api.BadRequest, "data", "the event's data names no object: %s", problems[0])
	}
	return ref, nil
}

func isWorkload(ref kube.Ref) bool {
	return ref.APIVersion == "v1" && ref.Kind == "Pod" || ref.APIVersion == "batch/v1" && ref.Kind == "Job"
}
