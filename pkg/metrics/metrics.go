// Package metrics counts what one instance of Flint does, for Prometheus. Each instance
// has a registry of its own. No label holds text of a user's: what is not one of
// a few known values counts as "other".
package metrics

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/launch"
)

// The codes of what was not refused; a refusal has its error code.
const (
	Created   = "CREATED"
	Duplicate = "DUPLICATE"
	DryRun    = "DRY_RUN"
)

// Unread is the kind of a request that was refused before its kind was known.
const Unread launch.Kind = "unread"

// other stands for every value that is not known.
const other = "other"

// Metrics of one instance. Make it with New. Its methods may be called at the same time.
type Metrics struct {
	registry    *prometheus.Registry
	launches    *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	inFlight    prometheus.Gauge
	completions *prometheus.CounterVec
	pending     prometheus.Gauge
	deliveries  *prometheus.CounterVec
	polls       prometheus.Histogram
	listed      prometheus.Gauge
}

// New makes a registry with everything in it, those of Go and the process included.
func New() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		launches: counter("flint_launches_total", "Requests to launch that were answered, over HTTP and by event: CREATED, DUPLICATE, DRY_RUN, or the error code.", "kind", "code"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flint_launch_seconds", Help: "Time from a request to its answer, of launches that were accepted.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25},
		}, []string{"kind"}),
		inFlight:    gauge("flint_launches_in_flight", "Slots of FLINT_MAX_IN_FLIGHT that are taken, by launches, dry runs and cancels."),
		completions: counter("flint_completions_total", "Completion events that were acknowledged.", "kind", "outcome", "reason"),
		pending:     gauge("flint_pending_launches", "Launches whose end is not told yet, at the last look that saw all."),
		deliveries:  counter("flint_delivery_attempts_total", "Attempts to deliver an event, by the sink's answer; none: without one.", "code"),
		polls: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flint_poll_seconds", Help: "Time of one look at all that is pending.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		listed: gauge("flint_poll_listed_objects", "Objects that the last look read."),
	}
	m.registry.MustRegister(
		m.launches, m.seconds, m.inFlight, m.completions, m.pending, m.deliveries, m.polls, m.listed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Handler answers with all metrics, in a format that the caller accepts.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Accepted counts a launch that was accepted.
func (m *Metrics) Accepted(kind launch.Kind, duplicate bool, took time.Duration) {
	code := Created
	if duplicate {
		code = Duplicate
	}
	m.launches.WithLabelValues(kindOf(kind), code).Inc()
	m.seconds.WithLabelValues(kindOf(kind)).Observe(took.Seconds())
}

// DryRun counts a dry run that found no fault.
func (m *Metrics) DryRun(kind launch.Kind) {
	m.launches.WithLabelValues(kindOf(kind), DryRun).Inc()
}

// Refused counts a refusal.
func (m *Metrics) Refused(kind launch.Kind, code api.Code) {
	m.launches.WithLabelValues(kindOf(kind), string(code)).Inc()
}

// Begin counts a slot as taken until the answer is called.
func (m *Metrics) Begin() (end func()) {
	m.inFlight.Inc()
	return m.inFlight.Dec
}

// Completed counts an event that was acknowledged.
func (m *Metrics) Completed(s completion.Subject, o completion.Outcome) {
	outcome, reason := o.Outcome, string(o.Reason)
	if outcome != api.Succeeded && outcome != api.Failed {
		outcome = other
	}
	if !slices.Contains(api.Reasons(), o.Reason) { // an annotation on the workload may say anything
		reason = other
	}
	m.completions.WithLabelValues(kindOf(s.Kind), outcome, reason).Inc()
}

// Attempted counts an attempt to deliver; status is 0 without an answer.
func (m *Metrics) Attempted(status int, _ time.Duration) {
	code := strconv.Itoa(status)
	switch {
	case status == 0:
		code = "none"
	case http.StatusText(status) == "":
		code = other
	}
	m.deliveries.WithLabelValues(code).Inc()
}

// Passed notes a look at all that is pending.
func (m *Metrics) Passed(stats completion.Stats, took time.Duration, _ error) {
	m.polls.Observe(took.Seconds())
	m.listed.Set(float64(stats.Listed))
	if !stats.Incomplete {
		m.pending.Set(float64(stats.Pending))
	}
}

func kindOf(kind launch.Kind) string {
	switch kind {
	case launch.Spark, launch.File, launch.Runner, Unread:
		return string(kind)
	}
	return other
}
