package api

import _ "embed"

// FileSchema is the JSON Schema of a FileRequest, the data of FileEventType.
//
//go:embed schema/file.v1.json
var FileSchema []byte

// FileJobDetails are in the error of an operation whose Job could not start.
type FileJobDetails struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Job       string `json:"job"`
	UID       string `json:"uid"`
	// Deleted is true when the Job is gone, or going: it will not run later.
	Deleted bool `json:"deleted"`
}
