// Package api is the wire: what callers send, what they get, and the codes
// that say why not. It imports no other package of Flint.
//
// The contract of POST /api/v1/spark-submit is that of the Kubeflow
// spark-operator's REST submitter client; names, codes and statuses are its own.
package api

// The paths that Flint serves.
const (
	SubmitPath  = "/api/v1/spark-submit"
	OpenAPIPath = "/openapi.yaml"
	MetricsPath = "/metrics"
)

// SubmitRequest is the body of POST /api/v1/spark-submit, and the data of the
// event dev.flint.spark.submit.v1.
type SubmitRequest struct {
	// SubmissionID is the caller's key: the same key is the same submission.
	// 1 to 253 bytes of UTF-8 without control characters.
	SubmissionID string
	// SparkSubmitArgs is spark-submit's argument vector, verbatim; not empty.
	SparkSubmitArgs []string
	// DriverPodTemplate is a PodTemplateSpec, with integers as int64; nil if absent. Unknown fields are kept.
	DriverPodTemplate map[string]any
	// ExecutorPodTemplate is a PodTemplateSpec as its JSON text; nil if absent.
	ExecutorPodTemplate []byte
	// SparkVersion names the Spark release to be compatible with; empty means the server's default.
	SparkVersion string
}

// SubmitResponse is the answer to a submission that was accepted: 201 when the
// driver pod was created, 200 when it was there already.
type SubmitResponse struct {
	SubmissionID        string `json:"submission_id"`
	AppName             string `json:"app_name"`
	Message             string `json:"message"`
	SubmittedAt         string `json:"submitted_at"`
	SparkAppID          string `json:"spark_app_id"`
	DriverPodName       string `json:"driver_pod_name"`
	DriverPodUID        string `json:"driver_pod_uid"`
	Namespace           string `json:"namespace"`
	DuplicateSubmission bool   `json:"duplicate_submission"`
}
