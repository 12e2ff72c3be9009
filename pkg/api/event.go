package api

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// SubmitEventType is the type of an event whose data is a SubmitRequest.
const SubmitEventType = "dev.flint.spark.submit.v1"

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
