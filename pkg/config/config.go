// Package config is Flint's settings: environment variables with defaults, read
// once at start by envconfig, and refused as a whole with every fault named.
//
// The table of settings is the struct environment. `flint serve --help` and
// docs/configuration.md are made from it.
package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/spark/version"
)

// Settings is how one instance of Flint behaves.
type Settings struct {
	// SparkVersion is the release that submissions follow when they name none.
	SparkVersion version.Version
	// SparkUser is the value of SPARK_USER in drivers without a proxy user.
	SparkUser string
	// Namespaces may be launched into; empty means the function's own, "*" every one.
	Namespaces []string
	// MaxInFlight is how many launches may run at once.
	MaxInFlight int
	// LaunchTimeout bounds one launch from its decoded request to its answer.
	LaunchTimeout time.Duration
	// BodyTimeout bounds the reading of one body.
	BodyTimeout time.Duration
	// MaxBodyBytes bounds the body of a request.
	MaxBodyBytes int64
	// MaxEventBytes bounds the body of a CloudEvent.
	MaxEventBytes int64
	// BodyMemory bounds the bodies that are held at once.
	BodyMemory int64
	// Kubeconfig is a path, or empty for the service account in the pod.
	Kubeconfig string
	// KubeQPS and KubeBurst limit the calls to the API server.
	KubeQPS   float32
	KubeBurst int
	// PollInterval is from one look for ended workloads to the next while any is pending; 0 means never.
	PollInterval time.Duration
	// ImagePullLimit, ConfigErrorLimit, UnschedulableLimit and NodeLostLimit are how long a workload may be so; 0 means for ever.
	ImagePullLimit, ConfigErrorLimit, UnschedulableLimit, NodeLostLimit time.Duration
	// JobTTL is how long a Job stays after its event was delivered; 0 means as its own TTL says.
	JobTTL time.Duration
	// EventSource is the source of completion events.
	EventSource string
	// EventReply answers an event that launches with an event, when its sender asks for a reply.
	EventReply bool
	// Sink is where they go; empty means to the log. SinkOverrides and SinkCACerts are what a SinkBinding adds.
	Sink, SinkOverrides, SinkCACerts string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
}

// environment is the settings as they are written. All are text, so that
// envconfig, which stops at its first fault, has none to stop at.
type environment struct {
	SparkVersion  string `envconfig:"FLINT_SPARK_VERSION" default:"4.2.0" desc:"Spark release whose spark-submit is followed, when a request names none; of a line that Flint knows"`
	SparkUser     string `envconfig:"FLINT_SPARK_USER" default:"spark" desc:"value of SPARK_USER in drivers that have no --proxy-user"`
	Namespaces    string `envconfig:"FLINT_NAMESPACES" desc:"namespaces that may be launched into, separated by commas; empty: the function's own; *: every one that its account may use"`
	MaxInFlight   string `envconfig:"FLINT_MAX_IN_FLIGHT" default:"64" desc:"launches at once in one instance; beyond it the answer is 503 SUBMITTER_OVERLOADED"`
	LaunchTimeout string `envconfig:"FLINT_LAUNCH_TIMEOUT" default:"20s" desc:"longest time for the API calls of one launch; 1s to 25s, since func-go cuts a response at 30 s"`
	BodyTimeout   string `envconfig:"FLINT_BODY_TIMEOUT" default:"10s" desc:"longest time to receive a request's body; 1s to 25s"`
	MaxBodyBytes  string `envconfig:"FLINT_MAX_BODY_BYTES" default:"4194304" desc:"largest body of a request, in bytes; beyond it the answer is 413"`
	MaxEventBytes string `envconfig:"FLINT_MAX_EVENT_BYTES" default:"1048576" desc:"largest body of a CloudEvent, in bytes; beyond it the answer is 413"`
	BodyMemory    string `envconfig:"FLINT_BODY_MEMORY" default:"33554432" desc:"bytes of bodies held at once in one instance; beyond it the answer is 503 SUBMITTER_OVERLOADED"`
	KubeQPS       string `envconfig:"FLINT_KUBE_QPS" default:"200" desc:"calls to the API server each second, on average; -1: no limit of our own"`
	KubeBurst     string `envconfig:"FLINT_KUBE_BURST" default:"400" desc:"calls to the API server at once, before the average counts"`
	PollInterval  string `envconfig:"FLINT_POLL_INTERVAL" default:"2s" desc:"from one look for ended workloads to the next, while any is pending; 0: never, only when a ping or an event of the API server asks for it"`
	ImagePull     string `envconfig:"FLINT_IMAGE_PULL_LIMIT" default:"0" desc:"a workload that waits longer for its image is told as failed, ImagePull, and deleted; 0: it may wait for ever"`
	ConfigError   string `envconfig:"FLINT_CONFIG_ERROR_LIMIT" default:"10m" desc:"a workload whose container cannot be created for longer, since a ConfigMap, a Secret or a key that it names is not there, is told as failed, Error, and deleted; 0: it may wait for ever"`
	Unschedulable string `envconfig:"FLINT_UNSCHEDULABLE_LIMIT" default:"0" desc:"a workload that no node takes for longer is told as failed, Unschedulable, and deleted; 0: it may wait for ever"`
	NodeLost      string `envconfig:"FLINT_NODE_LOST_LIMIT" default:"5m" desc:"a workload whose node does not answer for longer is told as failed, NodeLost, and deleted; 0: it may wait for ever"`
	JobTTL        string `envconfig:"FLINT_JOB_TTL" default:"10m" desc:"how long a Job stays after its event was delivered; 0: as long as its own TTL says"`
	EventSource   string `envconfig:"FLINT_EVENT_SOURCE" default:"/flint" desc:"source of completion events: a URI, the same in every instance, for ever"`
	EventReply    string `envconfig:"FLINT_EVENT_REPLY" default:"false" desc:"true: an event that launches is answered with the event dev.flint.launch.accepted.v1, when its sender prefers a reply; false: without a body"`
	Sink          string `envconfig:"K_SINK" desc:"where completion events go; set by a SinkBinding. Empty: to the log"`
	SinkOverrides string `envconfig:"K_CE_OVERRIDES" desc:"extensions of completion events, as JSON; set by a SinkBinding"`
	SinkCACerts   string `envconfig:"K_CA_CERTS" desc:"certificates that the sink's is checked against, as PEM; set by a SinkBinding"`
	LogLevel      string `envconfig:"FLINT_LOG_LEVEL" default:"info" desc:"debug, info, warn or error; JSON lines on standard error"`
	Kubeconfig    string `envconfig:"KUBECONFIG" desc:"path of a kubeconfig file; empty: the service account that is mounted in the pod"`
	ListenAddress string `envconfig:"LISTEN_ADDRESS" default:"[::]:8080" desc:"address to listen on; read by func-go. With PORT alone func-go listens on loopback only"`
}

// Load reads the environment. The error names every setting at fault, a line each.
func Load() (*Settings, error) {
	var env environment
	if err := envconfig.Process("", &env); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	return env.settings()
}

func (env *environment) settings() (*Settings, error) {
	var faults []error
	fault := func(name, value, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s=%q: %s", name, value, fmt.Sprintf(format, args...)))
	}
	s := &Settings{Kubeconfig: env.Kubeconfig, SparkUser: env.SparkUser}

	v, err := version.Parse(env.SparkVersion)
	if err != nil {
		fault("FLINT_SPARK_VERSION", env.SparkVersion, "%v", err)
	}
	s.SparkVersion = v
	if strings.TrimSpace(env.SparkUser) == "" {
		fault("FLINT_SPARK_USER", env.SparkUser, "must not be blank")
	}
	for namespace := range strings.SplitSeq(env.Namespaces, ",") {
		namespace = strings.TrimSpace(namespace)
		switch problems := validation.IsDNS1123Label(namespace); {
		case namespace == "":
		case namespace != "*" && len(problems) > 0:
			fault("FLINT_NAMESPACES", namespace, "is not a namespace name: %s", problems[0])
		default:
			s.Namespaces = append(s.Namespaces, namespace)
		}
	}
	integer := func(name, text string, least, most int64) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			fault(name, text, "must be a whole number from %d to %d", least, most)
		}
		return n
	}
	duration := func(name, text string, least, most time.Duration) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most {
			fault(name, text, "must be a duration from %v to %v, such as 20s", least, most)
		}
		return d
	}
	s.MaxInFlight = int(integer("FLINT_MAX_IN_FLIGHT", env.MaxInFlight, 1, 100_000))
	s.LaunchTimeout = duration("FLINT_LAUNCH_TIMEOUT", env.LaunchTimeout, time.Second, 25*time.Second)
	s.BodyTimeout = duration("FLINT_BODY_TIMEOUT", env.BodyTimeout, time.Second, 25*time.Second)
	s.MaxBodyBytes = integer("FLINT_MAX_BODY_BYTES", env.MaxBodyBytes, 1024, 64<<20)
	s.MaxEventBytes = integer("FLINT_MAX_EVENT_BYTES", env.MaxEventBytes, 1024, 64<<20)
	s.BodyMemory = integer("FLINT_BODY_MEMORY", env.BodyMemory, 1024, 1<<40)
	if largest := max(s.MaxBodyBytes, s.MaxEventBytes); s.BodyMemory < largest {
		fault("FLINT_BODY_MEMORY", env.BodyMemory, "must hold the largest body, %d bytes", largest)
	}
	s.KubeQPS = float32(integer("FLINT_KUBE_QPS", env.KubeQPS, -1, 100_000))
	if s.KubeQPS == 0 {
		fault("FLINT_KUBE_QPS", env.KubeQPS, "must not be 0, which client-go takes for its own default of 5")
	}
	limit := func(name, text string, most time.Duration) time.Duration { return duration(name, text, 0, most) }
	s.PollInterval = limit("FLINT_POLL_INTERVAL", env.PollInterval, time.Hour)
	s.ImagePullLimit = limit("FLINT_IMAGE_PULL_LIMIT", env.ImagePull, 30*24*time.Hour)
	s.ConfigErrorLimit = limit("FLINT_CONFIG_ERROR_LIMIT", env.ConfigError, 30*24*time.Hour)
	s.UnschedulableLimit = limit("FLINT_UNSCHEDULABLE_LIMIT", env.Unschedulable, 30*24*time.Hour)
	s.NodeLostLimit = limit("FLINT_NODE_LOST_LIMIT", env.NodeLost, 30*24*time.Hour)
	s.JobTTL = limit("FLINT_JOB_TTL", env.JobTTL, 365*24*time.Hour)
	if _, err := url.Parse(env.EventSource); err != nil || env.EventSource == "" {
		fault("FLINT_EVENT_SOURCE", env.EventSource, "must be a URI")
	}
	s.EventSource = env.EventSource
	switch env.EventReply {
	case "true", "false":
		s.EventReply = env.EventReply == "true"
	default:
		fault("FLINT_EVENT_REPLY", env.EventReply, "must be true or false")
	}
	s.Sink, s.SinkOverrides, s.SinkCACerts = env.Sink, env.SinkOverrides, env.SinkCACerts
	s.KubeBurst = int(integer("FLINT_KUBE_BURST", env.KubeBurst, 1, 1_000_000))
	if err := s.LogLevel.UnmarshalText([]byte(env.LogLevel)); err != nil {
		fault("FLINT_LOG_LEVEL", env.LogLevel, "must be debug, info, warn or error")
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("settings are at fault:\n%w", errors.Join(faults...))
	}
	return s, nil
}

const textUsage = `{{range .}}  {{usage_key .}}{{with usage_default .}} (default {{.}}){{end}}
        {{usage_description .}}
{{end}}`

const markdownUsage = `# Settings

All settings are environment variables, read once at start. A fault in any of
them ends the start, with every fault named. This page is made from the code by
` + "`make generate`" + `; a test holds the two together.

| variable | default | meaning |
|---|---|---|
{{range .}}| ` + "`{{usage_key .}}`" + ` | {{with usage_default .}}` + "`{{.}}`" + `{{end}} | {{usage_description .}} |
{{end}}`

// Usage writes the settings with their defaults, for a terminal.
func Usage(w io.Writer) error { return usage(w, textUsage) }

// Markdown writes the settings as docs/configuration.md.
func Markdown(w io.Writer) error { return usage(w, markdownUsage) }

func usage(w io.Writer, template string) error {
	return envconfig.Usagef("", &environment{}, w, template)
}
