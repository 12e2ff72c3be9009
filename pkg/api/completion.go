package api

import (
	_ "embed"
	"encoding/json"
	"time"
)

// Outcomes of a workload, the last word but one in the type of its completion event.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
)

// Reason is why a workload ended as it did.
type Reason string

// The reasons. A workload that succeeded has ReasonCompleted, and no other has it.
const (
	ReasonCompleted        Reason = "Completed"        // it ended by itself, with exit code 0
	ReasonError            Reason = "Error"            // it ended by itself, with another exit code, or could not be started
	ReasonOOMKilled        Reason = "OOMKilled"        // it used more memory than its limit
	ReasonEvicted          Reason = "Evicted"          // its node or the cluster sent it away
	ReasonDeadlineExceeded Reason = "DeadlineExceeded" // it ran longer than its activeDeadlineSeconds
	ReasonImagePull        Reason = "ImagePull"        // its image did not come within the time that the policy gives
	ReasonUnschedulable    Reason = "Unschedulable"    // no node took it, or not within the time that the policy gives
	ReasonNodeLost         Reason = "NodeLost"         // its node went away with it
	ReasonDeleted          Reason = "Deleted"          // somebody deleted it before its end
	ReasonUnknown          Reason = "Unknown"          // it is gone, and nobody saw its end
)

// Reasons are all reasons, ReasonCompleted first.
func Reasons() []Reason {
	return []Reason{
		ReasonCompleted, ReasonError, ReasonOOMKilled, ReasonEvicted, ReasonDeadlineExceeded,
		ReasonImagePull, ReasonUnschedulable, ReasonNodeLost, ReasonDeleted, ReasonUnknown,
	}
}

// Completion is the data of the event that a workload has ended.
type Completion struct {
	Kind         string          `json:"kind"` // spark, file or runner
	Namespace    string          `json:"namespace"`
	Name         string          `json:"name"`
	UID          string          `json:"uid"`
	SubmissionID string          `json:"submission_id"`
	SparkAppID   string          `json:"spark_app_id,omitempty"`
	Outcome      string          `json:"outcome"` // Succeeded or Failed
	Reason       Reason          `json:"reason"`
	ExitCode     *int32          `json:"exit_code,omitempty"` // where the workload's own container had one
	Message      string          `json:"message,omitempty"`
	StartedAt    *time.Time      `json:"started_at,omitempty"`
	FinishedAt   *time.Time      `json:"finished_at,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"` // of a file job
}

// CompletionEventType is the type of the event whose data is a Completion of that kind and outcome.
func CompletionEventType(kind, outcome string) string {
	return "dev.flint." + kind + "." + outcome + ".v1"
}

// CompletionSchema is the JSON Schema of a Completion, the data of all six event types.
//
//go:embed schema/completion.v1.json
var CompletionSchema []byte
