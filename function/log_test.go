package function_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"flint.dev/flint/pkg/api"
)

// The log of a file job costs one list of the pods of its Job, beside the search for its id: the one that its right is asked for is the one that is read.
func TestLogListsPodsOnce(t *testing.T) {
	var lists atomic.Int64
	g := newFileGroundBehind(t, nil, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/pods") && strings.Contains(r.URL.RawQuery, "controller-uid") {
				lists.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	g.put(t, "f", []byte("content"))
	i := g.serve(t)
	read := i.do(t, http.MethodPost, api.FilePath, operationBody("one", `{"op":"read","path":"f"}`), "Content-Type", "application/json")
	var job api.FileJob
	if err := json.Unmarshal([]byte(read.body), &job); err != nil || read.status != http.StatusOK {
		t.Fatalf("HTTP %d: %s", read.status, read.body)
	}
	lists.Store(0)
	log := i.do(t, http.MethodGet, api.LaunchesPath+"/default/"+job.ID+"/log?kind=file", "")
	if log.status != http.StatusOK || lists.Load() != 1 {
		t.Errorf("HTTP %d after %d lists of pods, want 200 after 1: %s", log.status, lists.Load(), log.body)
	}
}
