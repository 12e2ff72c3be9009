package api

import (
	"encoding/json"
	"time"
)

// LaunchesPath is where launches are listed. One is at LaunchesPath/{namespace}/{id}, its log behind that at /log.
const LaunchesPath = "/api/v1/launches"

// State is where a launch stands.
type State string

// The states of a launch, in their order.
const (
	StateHeld      State = "held"      // it waits for what it mounts to be created
	StatePending   State = "pending"   // its container has not started
	StateRunning   State = "running"   // its container has started, and it has not ended for good
	StateSucceeded State = "succeeded" // it ended with the outcome Succeeded
	StateFailed    State = "failed"    // it ended with the outcome Failed
)

// Launch is one launch, as far as its workload is still in the cluster.
type Launch struct {
	ID           string    `json:"id"` // the workload's label flint.dev/id
	Namespace    string    `json:"namespace"`
	Kind         string    `json:"kind"` // spark, file or runner
	SubmissionID string    `json:"submission_id"`
	Name         string    `json:"name"` // the workload's
	UID          string    `json:"uid"`
	State        State     `json:"state"`
	Deleting     bool      `json:"deleting,omitempty"` // somebody deleted it, and it is not gone yet
	CreatedAt    time.Time `json:"created_at"`
	SparkAppID   string    `json:"spark_app_id,omitempty"`

	// How it ended, as its completion event tells it. Absent before.
	Outcome    string          `json:"outcome,omitempty"` // Succeeded or Failed
	Reason     Reason          `json:"reason,omitempty"`
	ExitCode   *int32          `json:"exit_code,omitempty"` // where the workload's own container had one
	Message    string          `json:"message,omitempty"`
	StartedAt  *time.Time      `json:"started_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // of a file job
}

// LaunchList is one page of launches.
type LaunchList struct {
	Items []Launch `json:"items"` // never null
	// Continue asks for the next page; absent on the last. A page may be short, or empty, and have it.
	Continue string `json:"continue,omitempty"`
}
