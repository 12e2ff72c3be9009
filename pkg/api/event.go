package api

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"regexp"
)

// SubmitEventType is the type of an event whose data is a SubmitRequest.
const SubmitEventType = "dev.flint.spark.submit.v1"

// SubmitSchema is the JSON Schema of a SubmitRequest, the data of SubmitEventType.
//
//go:embed schema/submit.v1.json
var SubmitSchema []byte

// AcceptedEventType is the type of the event that answers one that launched. Its data is a SubmitResponse.
const AcceptedEventType = "dev.flint.launch.accepted.v1"

// AcceptedSchema is the JSON Schema of a SubmitResponse, the data of AcceptedEventType.
//
//go:embed schema/accepted.v1.json
var AcceptedSchema []byte

// traceparent is version, trace id, parent id and flags (W3C Trace Context, 3.2).
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// Traceparent is the text if it is a W3C trace context, and else empty: a
// broken one is no reason to refuse a submission, and nothing to store.
func Traceparent(text string) string {
	if traceparent.MatchString(text) {
		return text
	}
	return ""
}

// EventKey is the key of an event that brings none of its own. CloudEvents makes
// source and id together unique; the source's length goes in first, so that no two
// pairs give one key.
func EventKey(source, id string) string {
	hash := sha256.New()
	_ = binary.Write(hash, binary.BigEndian, uint64(len(source))) // a hash never fails to write
	hash.Write([]byte(source))
	hash.Write([]byte(id))
	return "event-" + hex.EncodeToString(hash.Sum(nil))
}
