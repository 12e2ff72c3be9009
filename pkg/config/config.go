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
	"net"
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
	// ServiceAccounts are those that a pod may run under; empty means any one of its namespace.
	ServiceAccounts []string
	// Tokens is true when each request must bring a token, for the Audience.
	Tokens   bool
	Audience string
	// TLS is the second listener.
	TLS TLS
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
	// TellDeleted keeps each workload until its end was told, whoever deletes it.
	TellDeleted bool
	// JobTTL is how long a Job stays after its event was delivered; 0 means as its own TTL says.
	JobTTL time.Duration
	// EventSource is the source of completion events.
	EventSource string
	// EventReply answers an event that launches with an event, when its sender asks for a reply.
	EventReply bool
	// Sink is where they go; empty means to the log. SinkOverrides and SinkCACerts are what a SinkBinding adds.
	Sink, SinkOverrides, SinkCACerts string
	// File is how file jobs behave.
	File File
	// Runner is how runners behave.
	Runner Runner
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
}

// TLS is a listener for callers outside Knative. Without an Address there is none.
type TLS struct {
	Address, CertFile, KeyFile string
	// ClientCAFile has the authorities that a client's certificate must be of; empty means that none is asked for.
	ClientCAFile string
	// ClientNames are those that a client's certificate may have, each with the user that it stands for, or none. Empty: any.
	ClientNames map[string]string
}

// environment is the settings as they are written. All are text, so that
// envconfig, which stops at its first fault, has none to stop at.
type environment struct {
	SparkVersion  string `envconfig:"FLINT_SPARK_VERSION" default:"4.2.0" desc:"Spark release whose spark-submit is followed, when a request names none; of a line that Flint knows"`
	SparkUser     string `envconfig:"FLINT_SPARK_USER" default:"spark" desc:"value of SPARK_USER in drivers that have no --proxy-user"`
	Namespaces    string `envconfig:"FLINT_NAMESPACES" desc:"namespaces that may be launched into, separated by commas; empty: the function's own; *: every one that its account may use"`
	Accounts      string `envconfig:"FLINT_SERVICE_ACCOUNTS" desc:"service accounts that a pod may run under, separated by commas; empty: any one of its namespace, as Kubernetes has it"`
	Auth          string `envconfig:"FLINT_AUTH" default:"none" desc:"none: nobody is asked who they are; token: each request needs a bearer token of the cluster, and whoever sends it the rights that they would need by hand"`
	Audience      string `envconfig:"FLINT_AUDIENCE" default:"flint" desc:"audience that a token must be for"`
	TLSAddress    string `envconfig:"FLINT_TLS_ADDRESS" desc:"address of a second listener, with TLS, such as [::]:8443; empty: none"`
	TLSCert       string `envconfig:"FLINT_TLS_CERT" desc:"path of its certificate with intermediates, as PEM; read anew when it changes"`
	TLSKey        string `envconfig:"FLINT_TLS_KEY" desc:"path of its private key, as PEM; read anew when it changes"`
	TLSClientCA   string `envconfig:"FLINT_TLS_CLIENT_CA" desc:"path of the authorities that a client's certificate must be of, as PEM; read anew when it changes. Empty: no certificate is asked for"`
	TLSNames      string `envconfig:"FLINT_TLS_CLIENT_NAMES" desc:"names that a client's certificate may have (URI, DNS name, or else common name), separated by commas; NAME=USER stands for that user of the cluster and has their rights. Empty: any"`
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
	TellDeleted   string `envconfig:"FLINT_TELL_DELETED" default:"false" desc:"true: each workload has a finalizer until its end was told, whoever deletes it, and whether an instance is up then or not; kubectl delete and the end of a namespace wait for that. false: a deletion past Flint may go untold"`
	JobTTL        string `envconfig:"FLINT_JOB_TTL" default:"10m" desc:"how long a Job stays after its event was delivered; 0: as long as its own TTL says"`
	EventSource   string `envconfig:"FLINT_EVENT_SOURCE" default:"/flint" desc:"source of completion events: a URI, the same in every instance, for ever"`
	EventReply    string `envconfig:"FLINT_EVENT_REPLY" default:"false" desc:"true: an event that launches is answered with the event dev.flint.launch.accepted.v1, when its sender prefers a reply; false: without a body"`
	Sink          string `envconfig:"K_SINK" desc:"where completion events go; set by a SinkBinding. Empty: to the log"`
	SinkOverrides string `envconfig:"K_CE_OVERRIDES" desc:"extensions of completion events, as JSON; set by a SinkBinding"`
	SinkCACerts   string `envconfig:"K_CA_CERTS" desc:"certificates that the sink's is checked against, as PEM; set by a SinkBinding"`
	LogLevel      string `envconfig:"FLINT_LOG_LEVEL" default:"info" desc:"debug, info, warn or error; JSON lines on standard error"`
	Kubeconfig    string `envconfig:"KUBECONFIG" desc:"path of a kubeconfig file; empty: the service account that is mounted in the pod"`
	ListenAddress string `envconfig:"LISTEN_ADDRESS" default:"[::]:8080" desc:"address to listen on; read by func-go. With PORT alone func-go listens on loopback only"`

	FileImage             string `envconfig:"FLINT_FILE_IMAGE" desc:"image of the file agent, for the pods of file jobs; empty: there are no file jobs, and the answer is 503 NOT_CONFIGURED"`
	FilePullPolicy        string `envconfig:"FLINT_FILE_PULL_POLICY" desc:"its pull policy: Always, IfNotPresent or Never; empty: Kubernetes' own default"`
	FilePullSecrets       string `envconfig:"FLINT_FILE_PULL_SECRETS" desc:"names of pull secrets, in the namespace of each file job, separated by commas"`
	FileAccount           string `envconfig:"FLINT_FILE_SERVICE_ACCOUNT" desc:"service account of file jobs' pods, which get no token of it; empty: default"`
	FileCPU               string `envconfig:"FLINT_FILE_CPU" default:"500m" desc:"CPU of a file job's pod, requested and limited"`
	FileMemory            string `envconfig:"FLINT_FILE_MEMORY" default:"256Mi" desc:"memory of a file job's pod, requested and limited"`
	FileUser              string `envconfig:"FLINT_FILE_USER" default:"65532" desc:"user id that an operation runs as when neither its request nor a pod that has the claim mounted says so"`
	FileGroup             string `envconfig:"FLINT_FILE_GROUP" default:"65532" desc:"group id, likewise"`
	FileRoot              string `envconfig:"FLINT_FILE_ROOT" default:"false" desc:"true: an operation may run as root, with DAC_OVERRIDE, CHOWN and FOWNER; Pod Security restricted refuses such pods"`
	FileClaimLabel        string `envconfig:"FLINT_FILE_CLAIM_LABEL" desc:"label, as key=value or key, that a claim must have for file jobs; empty: none"`
	FileUnbound           string `envconfig:"FLINT_FILE_UNBOUND" default:"false" desc:"true: claims that wait for their first consumer are taken, and the operation's pod is that; its node then decides where the volume comes to be"`
	FileWait              string `envconfig:"FLINT_FILE_WAIT" default:"20s" desc:"how long an answer waits for a result when the request does not say; then it is 202"`
	FileWaitLimit         string `envconfig:"FLINT_FILE_WAIT_LIMIT" default:"60s" desc:"how long an answer waits at most, whatever the request says; less than the time-out of whatever is in front of Flint, such as a Knative Service's timeoutSeconds"`
	FileWaiters           string `envconfig:"FLINT_FILE_WAITERS" default:"64" desc:"answers that wait at once in one instance, each of which may come to hold a result of 700 KiB; beyond it they are 202 without a wait"`
	FileTimeout           string `envconfig:"FLINT_FILE_TIMEOUT" default:"2m" desc:"how long an operation may take, from the start of its Job"`
	FileLongTimeout       string `envconfig:"FLINT_FILE_LONG_TIMEOUT" default:"2h" desc:"the same for upload, download, unzip, untar, copy, checksum and a recursive delete, and the most that a request may ask for"`
	FileEventResult       string `envconfig:"FLINT_FILE_EVENT_RESULT" default:"262144" desc:"longest result, in bytes of JSON, that a completion event carries whole; of a longer one it has what fits 4 KiB"`
	FileArchiveEntries    string `envconfig:"FLINT_FILE_ARCHIVE_ENTRIES" default:"100000" desc:"most entries of an archive"`
	FileArchiveBytes      string `envconfig:"FLINT_FILE_ARCHIVE_BYTES" default:"68719476736" desc:"most bytes of an archive's contents"`
	FileArchiveEntryBytes string `envconfig:"FLINT_FILE_ARCHIVE_ENTRY_BYTES" default:"17179869184" desc:"most bytes of one entry"`
	FileArchiveRatio      string `envconfig:"FLINT_FILE_ARCHIVE_RATIO" default:"200" desc:"how many times larger than the archive its contents may be, from 64 MiB of contents on"`
	FileReserve           string `envconfig:"FLINT_FILE_RESERVE_PERCENT" default:"5" desc:"per cent of a volume's bytes and inodes that operations leave free"`
	FileURLHosts          string `envconfig:"FLINT_FILE_URL_HOSTS" desc:"hosts that uploads and downloads may speak to, separated by commas: names, *.example.org, or host:port; empty: any public address"`
	FileURLPrivate        string `envconfig:"FLINT_FILE_URL_PRIVATE" default:"false" desc:"true: for the hosts of FLINT_FILE_URL_HOSTS, private addresses and http too"`
	FilePartIdle          string `envconfig:"FLINT_FILE_PART_IDLE" default:"24h" desc:"how long a part of an upload is kept on the volume for its resumption"`

	RunnerWaitLimit     string `envconfig:"FLINT_RUNNER_WAIT_LIMIT" default:"75s" desc:"how long an answer waits for a runner's boot at most; then it is 202 and the boot goes on. With FLINT_BODY_TIMEOUT and FLINT_LAUNCH_TIMEOUT, less than the time-out of whatever is in front of Flint, such as a Knative Service's timeoutSeconds"`
	RunnerWaiters       string `envconfig:"FLINT_RUNNER_WAITERS" default:"256" desc:"answers that wait for a boot at once in one instance; beyond it they are 202 without a wait"`
	RunnerPerParent     string `envconfig:"FLINT_RUNNER_MAX_PER_PARENT" default:"100" desc:"runners of one parent that live at once; beyond it the answer is 429 TOO_MANY_RUNNERS; 0: any number"`
	RunnerPerNamespace  string `envconfig:"FLINT_RUNNER_MAX_PER_NAMESPACE" default:"0" desc:"the same for all runners of a namespace"`
	RunnerImagePull     string `envconfig:"FLINT_RUNNER_IMAGE_PULL_GRACE" default:"15s" desc:"how long a boot goes on whose image cannot be pulled"`
	RunnerUnschedulable string `envconfig:"FLINT_RUNNER_UNSCHEDULABLE_GRACE" default:"15s" desc:"how long a boot goes on that no node takes"`
	RunnerScaleUp       string `envconfig:"FLINT_RUNNER_SCALE_UP_GRACE" default:"3m" desc:"the same when a new node is on its way, as an event of the autoscaler says; the request's boot_timeout_ms bounds all"`
	RunnerOrphanGrace   string `envconfig:"FLINT_RUNNER_ORPHAN_GRACE" default:"60s" desc:"how long a runner that has no owner outlives its parent"`
	RunnerLifetime      string `envconfig:"FLINT_RUNNER_MAX_LIFETIME" default:"0" desc:"longest life of a runner, and that of one whose request does not say; 0: any"`
	RunnerNested        string `envconfig:"FLINT_RUNNER_ALLOW_NESTED" default:"false" desc:"true: a runner may be the parent of others"`
	RunnerPinDigest     string `envconfig:"FLINT_RUNNER_PIN_DIGEST" default:"true" desc:"true: a runner runs the very image that its parent runs, by its digest, where the node tells one of the same repository"`
	RunnerAllow         string `envconfig:"FLINT_RUNNER_ALLOW" desc:"what runners may have that their parents do not, separated by commas: image:REPOSITORY, secret:NAME, configMap:NAME, claim:NAME, pullSecret:NAME, priorityClass:NAME, runtimeClass:NAME"`
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
	for account := range strings.SplitSeq(env.Accounts, ",") {
		account = strings.TrimSpace(account)
		switch problems := validation.IsDNS1123Subdomain(account); {
		case account == "":
		case len(problems) > 0:
			fault("FLINT_SERVICE_ACCOUNTS", account, "is not a service account's name: %s", problems[0])
		default:
			s.ServiceAccounts = append(s.ServiceAccounts, account)
		}
	}
	switch env.Auth {
	case "none", "token":
		s.Tokens = env.Auth == "token"
	default:
		fault("FLINT_AUTH", env.Auth, "must be none or token")
	}
	if s.Audience = env.Audience; strings.TrimSpace(s.Audience) == "" {
		fault("FLINT_AUDIENCE", s.Audience, "must not be blank")
	}
	s.TLS = env.tls(fault)
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
	switch env.TellDeleted {
	case "true", "false":
		s.TellDeleted = env.TellDeleted == "true"
	default:
		fault("FLINT_TELL_DELETED", env.TellDeleted, "must be true or false")
	}
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
	s.File = env.file(readers{fault, integer, duration})
	s.Runner = env.runner(readers{fault, integer, duration})
	if err := s.LogLevel.UnmarshalText([]byte(env.LogLevel)); err != nil {
		fault("FLINT_LOG_LEVEL", env.LogLevel, "must be debug, info, warn or error")
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("settings are at fault:\n%w", errors.Join(faults...))
	}
	return s, nil
}

// tls reads the settings of the second listener. Of those that need another one, none is ignored in silence.
func (env *environment) tls(fault func(name, value, format string, args ...any)) TLS {
	t := TLS{Address: env.TLSAddress, CertFile: env.TLSCert, KeyFile: env.TLSKey, ClientCAFile: env.TLSClientCA}
	for _, s := range []struct{ name, value, needs, has string }{
		{"FLINT_TLS_ADDRESS", t.Address, "FLINT_TLS_CERT", t.CertFile},
		{"FLINT_TLS_CERT", t.CertFile, "FLINT_TLS_KEY", t.KeyFile},
		{"FLINT_TLS_KEY", t.KeyFile, "FLINT_TLS_ADDRESS", t.Address},
		{"FLINT_TLS_CLIENT_CA", t.ClientCAFile, "FLINT_TLS_ADDRESS", t.Address},
		{"FLINT_TLS_CLIENT_NAMES", env.TLSNames, "FLINT_TLS_CLIENT_CA", t.ClientCAFile},
	} {
		if s.value != "" && s.has == "" {
			fault(s.name, s.value, "needs %s", s.needs)
		}
	}
	if t.Address != "" {
		if _, port, err := net.SplitHostPort(t.Address); err != nil || port == "" {
			fault("FLINT_TLS_ADDRESS", t.Address, "must be an address with a port, such as [::]:8443")
		}
	}
	for entry := range strings.SplitSeq(env.TLSNames, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		// The last "=": a URI may have some.
		name, user, mapped := entry, "", false
		if i := strings.LastIndex(entry, "="); i >= 0 {
			name, user, mapped = strings.TrimSpace(entry[:i]), strings.TrimSpace(entry[i+1:]), true
		}
		_, twice := t.ClientNames[name]
		if name == "" || mapped && user == "" || twice {
			fault("FLINT_TLS_CLIENT_NAMES", entry, "must be NAME or NAME=USER, each name once")
			continue
		}
		if t.ClientNames == nil {
			t.ClientNames = map[string]string{}
		}
		t.ClientNames[name] = user
	}
	if strings.TrimSpace(env.TLSNames) != "" && len(t.ClientNames) == 0 {
		fault("FLINT_TLS_CLIENT_NAMES", env.TLSNames, "names nobody")
	}
	return t
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
