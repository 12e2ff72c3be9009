package api

import (
	stdjson "encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/json"
)

// maxSubmissionID is the longest submission id, in bytes.
const maxSubmissionID = 253

// submitWire is the body as it is written. The pointers tell null from a value.
type submitWire struct {
	SubmissionID        *string            `json:"submission_id"`
	SparkSubmitArgs     []*string          `json:"spark_submit_args"`
	DriverPodTemplate   map[string]any     `json:"driver_pod_template"`
	ExecutorPodTemplate stdjson.RawMessage `json:"executor_pod_template"`
	SparkVersion        *string            `json:"spark_version"`
}

// DecodeSubmit reads the JSON of a submission; key stands for a submission_id
// that is not there, and is empty where there must be one. Field names are case-sensitive,
// and unknown fields are ignored. A name that occurs twice in one object is
// refused where the object is read, since readers disagree on which of the two
// counts. The error is an *Error with the code BAD_REQUEST; the request is not nil
// even then, and carries the submission id if that is a good one, for the error's own body.
func DecodeSubmit(body []byte, key string) (*SubmitRequest, error) {
	request := &SubmitRequest{}
	if !utf8.Valid(body) {
		return request, Errorf(BadRequest, "malformed JSON: the body is not UTF-8")
	}
	var wire submitWire
	err := unmarshal(body, &wire)
	id := key
	if wire.SubmissionID != nil && *wire.SubmissionID != "" {
		id = *wire.SubmissionID
	}
	idErr := checkSubmissionID(id)
	if idErr == nil {
		request.SubmissionID = id
	}
	if err != nil {
		return request, err
	}
	if idErr != nil {
		return request, idErr
	}
	if len(wire.SparkSubmitArgs) == 0 {
		return request, FieldErrorf(BadRequest, "spark_submit_args", "spark_submit_args is required and must not be empty")
	}
	request.SparkSubmitArgs = make([]string, len(wire.SparkSubmitArgs))
	for i, arg := range wire.SparkSubmitArgs {
		field := fmt.Sprintf("spark_submit_args[%d]", i)
		switch {
		case arg == nil:
			return request, FieldErrorf(BadRequest, field, "%s must be a string, not null", field)
		case strings.ContainsRune(*arg, 0):
			return request, FieldErrorf(BadRequest, field, "%s contains a NUL character, which no argument of a process can hold", field)
		}
		request.SparkSubmitArgs[i] = *arg
	}
	request.DriverPodTemplate = wire.DriverPodTemplate
	if executor := string(wire.ExecutorPodTemplate); executor != "" && executor != "null" {
		if executor[0] != '{' {
			return request, FieldErrorf(BadRequest, "executor_pod_template", "executor_pod_template must be a JSON object")
		}
		var read map[string]any
		if err := unmarshal(wire.ExecutorPodTemplate, &read); err != nil {
			return request, err
		}
		request.ExecutorPodTemplate = wire.ExecutorPodTemplate
	}
	if wire.SparkVersion != nil {
		request.SparkVersion = *wire.SparkVersion
	}
	return request, nil
}

// unmarshal reads JSON into value; its error is an *Error.
func unmarshal(text []byte, value any) error {
	strict, err := json.UnmarshalStrict(text, value, json.DisallowDuplicateFields)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err != nil {
		return Errorf(BadRequest, "malformed JSON: %s", reason(err))
	}
	return nil
}

func checkSubmissionID(id string) error {
	const field = "submission_id"
	switch {
	case id == "":
		return FieldErrorf(BadRequest, field, "submission_id is required")
	case len(id) > maxSubmissionID:
		return FieldErrorf(BadRequest, field, "submission_id has %d bytes, more than %d", len(id), maxSubmissionID)
	case strings.ContainsFunc(id, unicode.IsControl):
		return FieldErrorf(BadRequest, field, "submission_id contains a control character")
	case strings.ContainsRune(id, utf8.RuneError):
		return FieldErrorf(BadRequest, field, "submission_id contains U+FFFD, which stands for a character that could not be read")
	}
	return nil
}

// reasonLimit bounds what a message repeats of a decoder's error, which may
// quote the body.
const reasonLimit = 200

func reason(err error) string {
	return cut(strings.TrimPrefix(err.Error(), "json: "), reasonLimit)
}
