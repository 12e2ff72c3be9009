// Package events sends CloudEvents to the one sink that a SinkBinding gives: binary
// mode over HTTP, with its extensions (K_CE_OVERRIDES), its certificates
// (K_CA_CERTS and the trust bundles beside it) and, where it mounts one, its token.
//
// Send is at least once: a sink may have taken an event whose answer was lost, and then gets
// it again, with the same id. What is repeated is what the CloudEvents of Knative
// repeat: no answer, 404, 408, 409, 429 and 5xx. Every other answer that is not 2xx is
// final. The package keeps no queue and starts no goroutine of its own: an event
// that was not delivered is an error, and stays the caller's.
//
// No error and no log line has the token, the event's data or the sink's answer in it.
package events

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

// What the zero values of a Config stand for.
const (
	DefaultTimeout       = 10 * time.Second
	DefaultAttempts      = 5
	DefaultMaxRetryAfter = 30 * time.Second
)

// DefaultBackoff is 0.2 s, doubled for each attempt up to 10 s, with up to half of it on top by chance.
func DefaultBackoff() wait.Backoff {
	return wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Cap: 10 * time.Second}
}

// Where a SinkBinding mounts what it does not put into the environment.
const (
	BundleDir = "/knative-custom-certs"
	TokenFile = "/oidc/token"
)

// Config is where events go, and how. The values are those of the environment as it is; New judges them.
type Config struct {
	// SinkURL is K_SINK. Empty means that there is no sink: an event becomes a log line.
	SinkURL string
	// Overrides is K_CE_OVERRIDES: JSON as {"extensions":{"name":"value"}}, or empty.
	Overrides string
	// CACerts is K_CA_CERTS: certificates in PEM, or empty.
	CACerts string
	// BundleDir is a folder with more certificates in files *.pem, which are read again for
	// each request over TLS. It need not exist.
	BundleDir string
	// TokenFile has the bearer token, and is read again for each request. It need not exist.
	TokenFile string

	// Timeout bounds one attempt, its answer included.
	Timeout time.Duration
	// Attempts is how often one event is tried in all.
	Attempts int
	// Backoff is the wait between attempts. Its Steps are not used.
	Backoff wait.Backoff
	// MaxRetryAfter bounds the wait that a sink asks for.
	MaxRetryAfter time.Duration

	// Clock times the waits. Nil means the real one.
	Clock clock.Clock
	// Log gets an event that has no sink, attempts that will be repeated (debug), and certificates that
	// cannot be read. Nil means slog.Default.
	Log *slog.Logger
	// Attempted, if not nil, is told of each request that was sent: the status of the answer, or 0 without one.
	Attempted func(status int, took time.Duration)
}

// Sink sends events. Its methods may be called at the same time.
type Sink struct {
	config     Config
	extensions map[string]string
	transport  transport // nil without a sink
}

// transport makes one round trip: a redirect is an answer like any other, and a final one.
type transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// New makes a Sink. It sends nothing. The error names each variable at fault.
func New(config Config) (*Sink, error) {
	setDefaults(&config)
	s := &Sink{config: config}
	var faults []error
	var err error
	if s.extensions, err = parseOverrides(config.Overrides); err != nil {
		faults = append(faults, fmt.Errorf("K_CE_OVERRIDES: %w", err))
	}
	if config.SinkURL != "" {
		target, err := parseSink(config.SinkURL)
		if err != nil {
			faults = append(faults, fmt.Errorf("K_SINK: %w", err))
		}
		if s.transport, err = newTransport(&config, target); err != nil {
			faults = append(faults, fmt.Errorf("K_CA_CERTS: %w", err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return s, nil
}

// Close ends the connections that are kept for the next event. It does not wait for a Send in flight.
func (s *Sink) Close() {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

func setDefaults(c *Config) {
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Attempts <= 0 {
		c.Attempts = DefaultAttempts
	}
	if c.Backoff.Duration <= 0 {
		c.Backoff = DefaultBackoff()
	}
	c.Backoff.Steps = c.Attempts // it may grow with each
	if c.MaxRetryAfter <= 0 {
		c.MaxRetryAfter = DefaultMaxRetryAfter
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
}

// parseSink checks the address. It is not repeated in the error: it may have a password in it.
func parseSink(text string) (*url.URL, error) {
	target, err := url.Parse(text)
	if err != nil {
		if known, ok := errors.AsType[*url.Error](err); ok {
			err = known.Err
		}
		return nil, fmt.Errorf("is not a URL: %w", err)
	}
	if target.Scheme != "http" && target.Scheme != "https" {
		return nil, fmt.Errorf("is not an http or https URL: its scheme is %q", target.Scheme)
	}
	if target.Hostname() == "" {
		return nil, errors.New("is a URL without a host")
	}
	return target, nil
}
