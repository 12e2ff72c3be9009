package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"

	kjson "sigs.k8s.io/json"
)

// recorder is an API server that takes everything, gives each object a uid, and keeps what it was sent.
type recorder struct {
	plain, tls *httptest.Server
	mu         sync.Mutex
	writes     []write
	faults     []string
}

// write is one object as it was sent.
type write struct {
	method, path string
	object       map[string]any
}

func newRecorder() *recorder {
	r := &recorder{}
	r.plain, r.tls = httptest.NewServer(r), httptest.NewTLSServer(r)
	return r
}

func (r *recorder) close() {
	r.plain.Close()
	r.tls.Close()
}

// take gives what was written since the last call.
func (r *recorder) take() ([]write, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	writes, faults := r.writes, r.faults
	r.writes, r.faults = nil, nil
	if len(faults) > 0 {
		return nil, fmt.Errorf("unexpected calls: %s", strings.Join(faults, "; "))
	}
	return writes, nil
}

// ServeHTTP answers creates and server-side applies with the object and a uid, and reads with 404.
func (r *recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	status := http.StatusOK
	switch {
	case q.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	case q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/pods"):
		status = http.StatusCreated
	case q.Method == http.MethodPatch && strings.HasPrefix(q.Header.Get("Content-Type"), "application/apply-patch+yaml") && q.URL.Query().Get("force") == "true":
	default:
		r.faults = append(r.faults, q.Method+" "+q.URL.String()+" "+q.Header.Get("Content-Type"))
		http.Error(w, "not expected", http.StatusMethodNotAllowed)
		return
	}
	var sent map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &sent); err != nil {
		r.faults = append(r.faults, "not JSON: "+err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.writes = append(r.writes, write{q.Method, q.URL.Path, sent})
	var stored map[string]any
	_ = json.Unmarshal(body, &stored)
	metadata, _ := stored["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		stored["metadata"] = metadata
	}
	metadata["uid"] = fmt.Sprintf("00000000-0000-4000-8000-%012d", len(r.writes))
	metadata["namespace"] = namespaceOf(q.URL.Path)
	metadata["resourceVersion"] = "1"
	text, err := json.Marshal(stored)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// namespaceOf is the namespace in a path of the API.
func namespaceOf(urlPath string) string {
	_, rest, _ := strings.Cut(urlPath, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return namespace
}

// objects gives what is left of the writes at the end, in the order of their creation: an
// object that is applied again, as Volcano's PodGroup is to get its owner, is there once, as it was last. Each has the
// namespace of its URL. The pod must be created, and all else applied under its own name.
func objects(writes []write) ([]map[string]any, error) {
	var all []map[string]any
	at := map[string]int{}
	for _, w := range writes {
		kind, _ := w.object["kind"].(string)
		metadata, _ := w.object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if (kind == "Pod") != (w.method == http.MethodPost) {
			return nil, fmt.Errorf("%s of a %s", w.method, kind)
		}
		if kind != "Pod" && path.Base(w.path) != name {
			return nil, fmt.Errorf("%q is applied as %s", name, w.path)
		}
		namespace := namespaceOf(w.path)
		if own, ok := metadata["namespace"].(string); ok && own != namespace {
			return nil, fmt.Errorf("%s %q of namespace %q is sent to %s", kind, name, own, w.path)
		}
		metadata["namespace"] = namespace
		key := kind + "/" + name
		if i, again := at[key]; again {
			all[i] = w.object
			continue
		}
		at[key] = len(all)
		all = append(all, w.object)
	}
	return all, nil
}
