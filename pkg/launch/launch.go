// Package launch brings a Plan to the cluster: ordered, idempotent, healing.
//
// The order is a held workload, what it needs, the release. The workload is
// created first, held back (a Pod by the scheduling gate flint.dev/support, a Job
// by suspend), so that every conflict, quota, admission and validation refusal
// shows while nothing else exists. Then its support objects are created in
// parallel, each born with its one ownerReference. One patch releases it.
// Killed at any point there is nothing, or a held workload that uses no node, or a
// complete one. Apply again with the same Plan to go on where it stopped.
//
// A Pod whose spec names its node cannot be gated, the API server refuses that: it goes first
// and runs at once, its support follows, as spark-submit does it. Killed in between, such a pod waits
// for its ConfigMap until the same Plan is applied again.
//
// The API server arbitrates between instances: names come from the key, so a
// replay meets its own objects. A fresh launch reads nothing: it costs one write
// for each support object and two more, or one write when there is no support.
package launch

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// Kind is what is launched.
type Kind string

// The kinds, as the label flint.dev/kind has them.
const (
	Spark  Kind = "spark"
	File   Kind = "file"
	Runner Kind = "runner"
)

// Labels and annotations that Flint adds to what it creates: its bookkeeping,
// and the only difference to what the caller's own tool would have created.
const (
	LabelManagedBy  = "app.kubernetes.io/managed-by" // "flint", unless the caller chose another value
	LabelKind       = "flint.dev/kind"
	LabelID         = "flint.dev/id"
	LabelCompletion = "flint.dev/completion" // on the workload: "pending" until its event was delivered

	AnnotationSubmissionID = "flint.dev/submission-id" // on the workload
	AnnotationHash         = "flint.dev/hash"          // on the workload
	AnnotationTraceparent  = "flint.dev/traceparent"   // on the workload, if the request had one
	// AnnotationHeld is on a Job from its creation to its release: "true". Others suspend a Job
	// too (Kueue, a person), so suspend alone does not tell that it still waits for its support.
	AnnotationHeld = "flint.dev/held"
	// AnnotationContainer may be on a pod, and names the container that the pod is for, whose end is the workload's end.
	AnnotationContainer = "flint.dev/container"
	// AnnotationGivenUp is on a support object that was left behind for a key that was given up, and says why and when: a
	// launch of that key that comes later, or is still on its way, meets it before its release, and withdraws.
	AnnotationGivenUp = "flint.dev/given-up"

	// Finalizer keeps a workload that is deleted until its end was told. Who tells, takes it off.
	Finalizer = "flint.dev/completion"

	ManagedBy         = "flint"
	CompletionPending = "pending"

	// Gate is the scheduling gate of a Pod that waits for its support.
	Gate = "flint.dev/support"
)

// Plan is all that one launch creates. Make one with NewPlan.
type Plan struct {
	Kind      Kind
	Namespace string
	// SubmissionID is the caller's key.
	SubmissionID string
	// ID is derived from namespace and key: 32 hexadecimal digits.
	ID string
	// Hash is of the canonical request: the same key with another hash is a conflict.
	Hash string
	// Traceparent is the W3C trace context of the request, or empty.
	Traceparent string
	// Workload is the Pod or the Job, with bookkeeping, neither held nor owned by us.
	Workload *unstructured.Unstructured
	// Support is what the workload mounts or needs, with bookkeeping, without owner.
	Support []Support
	// Confirm, if not nil, has the last word on a workload that is held and has its support, before its release. It reads
	// by the launch's client. A refusal withdraws the workload; but for SUBMITTER_OVERLOADED, by which Confirm could not
	// find out: the workload waits, held, for the next call.
	Confirm func(ctx context.Context, client kube.Client, workload *unstructured.Unstructured) *api.Error
}

// Support is one object beside the workload.
type Support struct {
	Object *unstructured.Unstructured
	// Reuse allows an object of that name that is not ours to serve as it is,
	// neither changed nor owned: a PersistentVolumeClaim that the caller named.
	Reuse bool
}

// Result is what became of a Plan.
type Result struct {
	// Duplicate is true when the workload of this key and hash was there already.
	Duplicate bool
	// Workload is as the API server answered: at least its metadata.
	Workload *unstructured.Unstructured
	// CreatedAt is the workload's creation time at the API server.
	CreatedAt time.Time
	// Healed is true when the workload was there, not complete, and this call completed it.
	Healed bool
	// Replaced is true when an abandoned workload of that name was deleted for this one.
	Replaced bool
}
