package api

import "time"

// RunnerPath is where runners are asked for (POST).
const RunnerPath = "/api/v1/runners"

// RunnerEventType is the type of an event whose data is a RunnerRequest.
const RunnerEventType = "dev.flint.runner.start.v1"

// RunnerRequest asks for a pod of the shape of another, its parent.
type RunnerRequest struct {
	// SubmissionID is the key: one key, one pod. Absent means the SHA-256 of FlameParent, which is unique for each
	// boot, and where there is none either, a key of its own.
	SubmissionID string       `json:"submission_id,omitempty"`
	Parent       RunnerParent `json:"parent"`
	// FlameParent becomes the variable FLAME_PARENT, unchanged: base64 of an Erlang term, at most 16 KiB.
	FlameParent string `json:"flame_parent,omitempty"`

	// Env are plain variables, SecretEnv those whose values go into a Secret. A $ in a value stays a $, unless
	// ExpandEnv lets the kubelet expand $(NAME) in Env.
	Env       map[string]string `json:"env,omitempty"`
	SecretEnv map[string]string `json:"secret_env,omitempty"`
	ExpandEnv bool              `json:"expand_env,omitempty"`

	// Inherit names what is taken over from the parent: of RunnerPieces. Absent means DefaultInherit.
	Inherit *[]string `json:"inherit,omitempty"`
	// Volumes are the parent's volumes, by name, that are taken over with their mounts.
	Volumes []string `json:"volumes,omitempty"`
	// Template is a partial Pod that is merged over what is inherited, within the policy: never more than the parent has.
	Template map[string]any `json:"template,omitempty"`

	// Wait is how far the runner must have come for the answer: "none", "ip" (the default), "running" or "ready".
	Wait string `json:"wait,omitempty"`
	// BootTimeoutMS, 1,000 to 600,000, default 30,000, is the time from the creation until the container runs. A runner
	// that needs longer is given up: deleted, unless OnBootTimeout is "keep".
	BootTimeoutMS int64  `json:"boot_timeout_ms,omitempty"`
	OnBootTimeout string `json:"on_boot_timeout,omitempty"`
	// Owner is whose end is the runner's: "parent" (the default), "controller" (the parent's, so that a rollout
	// does not end it) or "none".
	Owner string `json:"owner,omitempty"`
	// MaxLifetimeSeconds is the pod's activeDeadlineSeconds. TTLSecondsAfterFinished is how long an ended
	// runner is kept after its event was delivered: default 300.
	MaxLifetimeSeconds      *int64 `json:"max_lifetime_seconds,omitempty"`
	TTLSecondsAfterFinished *int64 `json:"ttl_seconds_after_finished,omitempty"`
	// ShutdownTimeoutMS is how long the program may take to stop: the pod's grace period is 5 s more. Default 30,000.
	ShutdownTimeoutMS *int64 `json:"shutdown_timeout_ms,omitempty"`

	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// RunnerParent names the pod that a runner is derived from.
type RunnerParent struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID, if given, must be the pod's.
	UID string `json:"uid,omitempty"`
	// Container is the app's; absent means the first.
	Container string `json:"container,omitempty"`
}

// The values of RunnerRequest.Wait, from the least to the most.
const (
	WaitNone    = "none"
	WaitIP      = "ip"
	WaitRunning = "running"
	WaitReady   = "ready"
)

// The values of RunnerRequest.OnBootTimeout.
const (
	OnTimeoutDelete = "delete"
	OnTimeoutKeep   = "keep"
)

// The values of RunnerRequest.Owner.
const (
	OwnerParent     = "parent"
	OwnerController = "controller"
	OwnerNone       = "none"
)

// RunnerPieces are what Inherit may name.
func RunnerPieces() []string {
	return []string{
		"env", "envFrom", "resources", "scheduling", "securityContext", "imagePull", "command", "probes",
		"ports", "lifecycle", "initContainers", "sidecars", "serviceAccountToken",
	}
}

// DefaultInherit is what is inherited when the request does not say.
func DefaultInherit() []string {
	return []string{"resources", "scheduling", "securityContext", "imagePull"}
}

// RunnerState is where a runner stands.
type RunnerState string

// The states of a runner, in their order.
const (
	RunnerCreating    RunnerState = "creating"  // it waits for its Secret
	RunnerPending     RunnerState = "pending"   // no node yet
	RunnerScheduled   RunnerState = "scheduled" // its node has it, and it has no address yet
	RunnerStarting    RunnerState = "starting"  // it has an address
	RunnerRunning     RunnerState = "running"   // its container runs
	RunnerReady       RunnerState = "ready"
	RunnerTerminating RunnerState = "terminating"
	RunnerSucceeded   RunnerState = "succeeded"
	RunnerFailed      RunnerState = "failed"
)

// Runner is a runner as it is answered.
type Runner struct {
	SubmissionID        string        `json:"submission_id"`
	ID                  string        `json:"id"`
	State               RunnerState   `json:"state"`
	Namespace           string        `json:"namespace"`
	Name                string        `json:"name"`
	UID                 string        `json:"uid"`
	IP                  string        `json:"ip,omitempty"`
	IPs                 []string      `json:"ips,omitempty"`
	Node                string        `json:"node,omitempty"`
	CreatedAt           time.Time     `json:"created_at"`
	Timings             RunnerTimings `json:"timings"`
	DuplicateSubmission bool          `json:"duplicate_submission"`
	Warnings            []string      `json:"warnings,omitempty"`
}

// RunnerTimings are milliseconds from the creation, as far as it has come. Kubernetes counts seconds.
type RunnerTimings struct {
	ScheduledMS *int64 `json:"scheduled_ms,omitempty"`
	IPMS        *int64 `json:"ip_ms,omitempty"` // as seen by the answering instance
	RunningMS   *int64 `json:"running_ms,omitempty"`
}

// RunnerDetails are in the error of a runner whose pod was created.
type RunnerDetails struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Deleted is true when the pod is gone, or going.
	Deleted  bool   `json:"deleted"`
	ExitCode *int32 `json:"exit_code,omitempty"`
	// LogTail are the last lines that it wrote, at most 2 KiB, without the values of its SecretEnv.
	LogTail string `json:"log_tail,omitempty"`
}
