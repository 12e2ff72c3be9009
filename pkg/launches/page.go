package launches

import (
	"bytes"
	"encoding/base64"
	"encoding/json"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// resources are those that workloads are of, in the order of their lists.
var resources = []kube.Ref{
	{APIVersion: "v1", Kind: "Pod"},
	{APIVersion: "batch/v1", Kind: "Job"},
}

const (
	firstResource = iota
	lastResource
)

// maxContinue is the longest continue that is taken. An API server's own has less than 1,000 bytes.
const maxContinue = 4096

// position is where a list goes on. Its token is opaque to the caller, not secret: it holds nothing that the caller
// could not ask for, and the API server judges its own part.
type position struct {
	Resource  int         `json:"r"` // of resources
	Namespace string      `json:"n"`
	Kind      launch.Kind `json:"k,omitempty"`
	Continue  string      `json:"c,omitempty"` // the API server's; empty at the beginning of a resource
}

func (p position) token() string {
	text, err := json.Marshal(p)
	if err != nil { // strings and an int always marshal
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// positionOf reads where the query goes on. Only the state, the parent and the limit may differ from the page before.
func positionOf(q Query) (position, error) {
	first := position{Resource: firstResource, Namespace: q.Namespace, Kind: q.Kind}
	if q.Continue == "" {
		return first, nil
	}
	var p position
	text, err := base64.RawURLEncoding.DecodeString(q.Continue)
	if err == nil && len(text) <= maxContinue {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err = decoder.Decode(&p)
	}
	switch {
	case err != nil || len(text) > maxContinue || p.token() != q.Continue, p.Resource != firstResource && p.Resource != lastResource, p == first:
		return position{}, api.FieldErrorf(api.BadRequest, "continue", "continue is not what a page before answered")
	case p.Namespace != q.Namespace || p.Kind != q.Kind:
		return position{}, api.FieldErrorf(api.BadRequest, "continue", "continue is of another namespace or kind than the query")
	}
	return p, nil
}
