package function_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
	"flint.dev/flint/test/embedded/claims"
)

// fileGround is an embedded cluster on which the real agent runs, with the claim "data" in the namespace "default".
type fileGround struct {
	cluster *embedded.Cluster
	claims  *claims.Claims
	folder  string // of the claim
}

func newFileGround(t *testing.T, around func(context.Context, *corev1.Pod, func() int) int) *fileGround {
	t.Helper()
	return newFileGroundBehind(t, around, nil)
}

// newFileGroundBehind is newFileGround with an API behind the middleware.
func newFileGroundBehind(t *testing.T, around func(context.Context, *corev1.Pod, func() int) int, middleware func(http.Handler) http.Handler) *fileGround {
	t.Helper()
	g := &fileGround{claims: &claims.Claims{Root: t.TempDir(), Around: around}}
	var err error
	if g.cluster, err = embedded.Start(embedded.Options{Run: g.claims.Run, Namespaces: []string{"other"}, Middleware: middleware}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.cluster.Close)
	g.claims.Serve(g.cluster)
	if g.folder, err = g.claims.Add(t.Context(), "default", "data"); err != nil {
		t.Fatal(err)
	}
	return g
}

// serve is one instance of Flint on the ground.
func (g *fileGround) serve(t *testing.T, change ...func(*config.Settings)) *instance {
	t.Helper()
	return serve(t, setup{cluster: g.cluster, settings: func(s *config.Settings) {
		s.File = config.File{
			Job: filejob.Settings{
				Image: "flint-fileagent:test", CPU: resource.MustParse("500m"), Memory: resource.MustParse("256Mi"),
				User: 65532, Group: 65532, Timeout: 2 * time.Minute, LongTimeout: 2 * time.Hour, Limits: protocol.DefaultLimits(),
			},
			Wait: 20 * time.Second, WaitLimit: 30 * time.Second, Waiters: 64, EventResult: 256 << 10,
		}
		s.File.Job.Limits.ReservePercent = 0 // the test's own disk may be full
		for _, c := range change {
			c(s)
		}
	}})
}

func (g *fileGround) put(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.folder, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// answer is one answer of an instance.
type fileAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a fileAnswer) job(t *testing.T) api.FileJob {
	t.Helper()
	var job api.FileJob
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&job); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return job
}

// fileError is the body of an error whose details are a result.
type fileError struct {
	api.ErrorBody
	Details api.FileResult `json:"details"`
}

func (a fileAnswer) fault(t *testing.T) fileError {
	t.Helper()
	var e fileError
	if err := json.Unmarshal(a.body, &e); err != nil || e.ErrorCode == "" {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return e
}

func (i *instance) call(ctx context.Context, method, path, body string) (fileAnswer, error) {
	request, err := http.NewRequestWithContext(ctx, method, i.url+path, strings.NewReader(body))
	if err != nil {
		return fileAnswer{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fileAnswer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return fileAnswer{response.StatusCode, response.Header, text}, err
}

func (i *instance) file(t *testing.T, method, path, body string) fileAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	answer, err := i.call(ctx, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// operate asks for an operation on the claim data.
func (i *instance) operate(t *testing.T, id, operation string, more ...string) fileAnswer {
	t.Helper()
	return i.file(t, http.MethodPost, api.FilePath, operationBody(id, operation, more...))
}

func operationBody(id, operation string, more ...string) string {
	return fmt.Sprintf(`{"submission_id":%q,"target":{"namespace":"default","claim":"data"},"operation":%s%s}`, id, operation, strings.Join(append([]string{""}, more...), ","))
}

// What is written is there, byte for byte, and what is read comes back so, however long.
func TestFileRoundTrip(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)

	a := i.operate(t, "w1", `{"op":"write","path":"hello.txt","text":"hello\n"}`)
	if a.status != http.StatusOK || a.job(t).State != api.StateSucceeded {
		t.Fatalf("write = %d %s", a.status, a.body)
	}
	if text, err := os.ReadFile(filepath.Join(g.folder, "hello.txt")); err != nil || string(text) != "hello\n" {
		t.Errorf("on the claim: %q, %v", text, err)
	}

	t.Run("read_700_KiB", func(t *testing.T) {
		content := make([]byte, api.MaxInline)
		for n := range content {
			content[n] = byte(n * 7 >> (n % 5)) // every byte, in no order that base64 would repeat
		}
		g.put(t, "big", content)
		result := i.operate(t, "r1", `{"op":"read","path":"big"}`).job(t).Result
		sum := sha256.Sum256(content)
		if result == nil || result.Content == nil || !bytes.Equal(*result.Content, content) || result.SHA256 != hex.EncodeToString(sum[:]) || result.Partial != nil {
			t.Errorf("read: not what was written")
		}
	})
	t.Run("list_2000_entries", func(t *testing.T) {
		if err := os.Mkdir(filepath.Join(g.folder, "many"), 0o700); err != nil {
			t.Fatal(err)
		}
		var names, got []string
		for n := range api.MaxList {
			names = append(names, fmt.Sprintf("%04d-%s", n, strings.Repeat("n", n%200)))
			g.put(t, filepath.Join("many", names[n]), nil)
		}
		result := i.operate(t, "l1", `{"op":"list","path":"many"}`).job(t).Result
		if result == nil || result.Entries == nil {
			t.Fatal("no entries")
		}
		for _, e := range *result.Entries {
			got = append(got, e.Name)
		}
		if diff := cmp.Diff(names, got); diff != "" || result.NextCursor != "" {
			t.Errorf("entries (-want +got)\n%s", diff)
		}
	})
	t.Run("a refusal has its own status, and the result in its details", func(t *testing.T) {
		a := i.operate(t, "r2", `{"op":"read","path":"missing"}`)
		if e := a.fault(t); a.status != http.StatusNotFound || e.ErrorCode != api.NotFound || e.Details.Op != api.OpRead || e.Details.Code != api.NotFound {
			t.Errorf("read = %d %s", a.status, a.body)
		}
	})
	t.Run("without a key", func(t *testing.T) {
		body := `{"target":{"namespace":"default","claim":"data"},"operation":{"op":"stat","path":"hello.txt"}}`
		one, other := i.file(t, http.MethodPost, api.FilePath, body).job(t), i.file(t, http.MethodPost, api.FilePath, body).job(t)
		if one.SubmissionID == "" || one.SubmissionID == other.SubmissionID || one.State != api.StateSucceeded || other.State != api.StateSucceeded {
			t.Errorf("%+v, %+v", one, other)
		}
	})
}

// gate holds the agents of the operations that it is told to hold, until it is opened.
type gate struct {
	hold    map[api.Op]bool
	entered chan string // the pod's op
	open    chan struct{}
}

func newGate(ops ...api.Op) *gate {
	g := &gate{hold: map[api.Op]bool{}, entered: make(chan string, 100), open: make(chan struct{})}
	for _, op := range ops {
		g.hold[op] = true
	}
	return g
}

func (g *gate) around(ctx context.Context, pod *corev1.Pod, run func() int) int {
	op := pod.Labels[filejob.LabelOp]
	if g.hold[api.Op(op)] {
		g.entered <- op
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return run()
}

func TestFileKeys(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)
	t.Run("S04_idempotent_replay", func(t *testing.T) {
		const write = `{"op":"write","path":"once","text":"1","create_only":true}`
		first := i.operate(t, "k1", write).job(t)
		again := i.operate(t, "k1", write, `"wait_seconds":5`)
		if job := again.job(t); again.status != http.StatusOK || job.UID != first.UID || !job.DuplicateSubmission || job.State != api.StateSucceeded || first.DuplicateSubmission {
			t.Errorf("again = %d %s", again.status, again.body)
		}
		other := i.operate(t, "k1", `{"op":"write","path":"once","text":"2"}`)
		if e := other.fault(t); other.status != http.StatusConflict || e.ErrorCode != api.IdempotencyConflict || e.SubmissionID != "k1" {
			t.Errorf("other content = %d %s", other.status, other.body)
		}
		if text, _ := os.ReadFile(filepath.Join(g.folder, "once")); string(text) != "1" {
			t.Errorf("the file has %q", text)
		}
	})
	t.Run("S04_opid_fresh_each_time", func(t *testing.T) {
		one, other := i.operate(t, "k2", `{"op":"stat","path":"once"}`).job(t), i.operate(t, "k3", `{"op":"stat","path":"once"}`).job(t)
		if one.ID == other.ID || one.UID == other.UID || one.ID != launch.ID("default", "k2") {
			t.Errorf("%+v\n%+v", one, other)
		}
	})
	t.Run("a repeat is answered whatever has become of the claim", func(t *testing.T) {
		first := i.operate(t, "k4", `{"op":"stat","path":"once"}`).job(t)
		if err := deleteClaim(g.cluster, "data"); err != nil {
			t.Fatal(err)
		}
		if job := i.operate(t, "k4", `{"op":"stat","path":"once"}`).job(t); job.UID != first.UID || !job.DuplicateSubmission {
			t.Errorf("again = %+v", job)
		}
		if a := i.operate(t, "k5", `{"op":"stat","path":"once"}`); a.status != http.StatusNotFound || a.fault(t).ErrorCode != api.ClaimNotFound {
			t.Errorf("another = %d %s", a.status, a.body)
		}
	})
}

func deleteClaim(c *embedded.Cluster, name string) error {
	request, err := http.NewRequest(http.MethodDelete, c.URL()+"/api/v1/namespaces/default/persistentvolumeclaims/"+name, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// Operations that change a claim take turns; those that read it do not wait.
func TestFileTurns(t *testing.T) {
	gate := newGate(api.OpMkdir)
	g := newFileGround(t, gate.around)
	i, other := g.serve(t), g.serve(t)

	first := i.operate(t, "t1", `{"op":"mkdir","path":"a"}`, `"wait_seconds":0`)
	job := first.job(t)
	if location := first.header.Get("Location"); first.status != http.StatusAccepted || location != api.FilePath+"/default/"+job.ID || first.header.Get("Retry-After") == "" {
		t.Fatalf("first = %d %v %s", first.status, first.header, first.body)
	}
	<-gate.entered

	t.Run("S22_two_writes_same_claim", func(t *testing.T) {
		a := other.operate(t, "t2", `{"op":"write","path":"b","text":""}`)
		e := a.fault(t)
		if a.status != http.StatusConflict || e.ErrorCode != api.VolumeBusy || a.header.Get("Retry-After") == "" || !strings.Contains(e.Message, job.Job) || !strings.Contains(e.Message, "mkdir") {
			t.Errorf("second = %d %v %s", a.status, a.header, a.body)
		}
	})
	t.Run("a repeat of the holder passes", func(t *testing.T) {
		if again := other.operate(t, "t1", `{"op":"mkdir","path":"a"}`, `"wait_seconds":0`); again.status != http.StatusAccepted || again.job(t).UID != job.UID {
			t.Errorf("again = %d %s", again.status, again.body)
		}
	})
	t.Run("reads run beside it", func(t *testing.T) {
		if a := other.operate(t, "t3", `{"op":"list"}`); a.status != http.StatusOK {
			t.Errorf("list = %d %s", a.status, a.body)
		}
	})
	close(gate.open)
	done := i.file(t, http.MethodGet, first.header.Get("Location")+"?wait_seconds=20", "").job(t)
	if done.State != api.StateSucceeded || done.Result == nil || done.Result.Op != api.OpMkdir {
		t.Errorf("done = %+v", done)
	}
	for n := range 5 { // one after the other, none meets the turn of the one before
		if a := other.operate(t, fmt.Sprintf("t4-%d", n), `{"op":"write","path":"b","text":"x"}`); a.status != http.StatusOK {
			t.Errorf("write %d = %d %s", n, a.status, a.body)
		}
	}
}

// Whatever the instances and however many at once, there is one change at a time, and all are made in the end.
func TestFileRace(t *testing.T) {
	var running, peak, ran atomic.Int32
	g := newFileGround(t, func(_ context.Context, pod *corev1.Pod, run func() int) int {
		now := running.Add(1)
		defer running.Add(-1)
		ran.Add(1)
		for {
			most := peak.Load()
			if now <= most || peak.CompareAndSwap(most, now) {
				break
			}
		}
		return run()
	})
	instances := []*instance{g.serve(t), g.serve(t)}
	const writers = 20
	var wg sync.WaitGroup
	var refused atomic.Int32
	for n := range writers {
		wg.Go(func() {
			for {
				a := instances[n%2].operate(t, fmt.Sprintf("race-%d", n), fmt.Sprintf(`{"op":"write","path":"f%d","text":"%d"}`, n, n))
				switch a.status {
				case http.StatusOK:
					return
				case http.StatusConflict:
					refused.Add(1)
					if code := a.fault(t).ErrorCode; code != api.VolumeBusy {
						t.Errorf("writer %d: %s", n, a.body)
						return
					}
				default:
					t.Errorf("writer %d: %d %s", n, a.status, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	if peak.Load() != 1 || ran.Load() != writers || refused.Load() == 0 {
		t.Errorf("at most %d at once, %d ran of %d, %d refusals", peak.Load(), ran.Load(), writers, refused.Load())
	}
	for n := range writers {
		if text, err := os.ReadFile(filepath.Join(g.folder, fmt.Sprintf("f%d", n))); err != nil || string(text) != strconv.Itoa(n) {
			t.Errorf("f%d has %q, %v", n, text, err)
		}
	}
}

func TestFileWaits(t *testing.T) {
	gate := newGate(api.OpMkdir)
	g := newFileGround(t, gate.around)
	i := g.serve(t, func(s *config.Settings) { s.File.Wait, s.File.WaitLimit = time.Second, time.Second })
	t.Run("S33_wait_longer_than_platform_limit", func(t *testing.T) {
		a := i.operate(t, "v1", `{"op":"mkdir","path":"a"}`, `"wait_seconds":100000`)
		if job := a.job(t); a.status != http.StatusAccepted || job.State != api.StateRunning || job.StartedAt == "" {
			t.Errorf("%d %s", a.status, a.body)
		}
		<-gate.entered
	})
	t.Run("S24_client_disconnects_midway", func(t *testing.T) {
		gate.open <- struct{}{} // the first one ends
		if job := i.file(t, http.MethodGet, api.FilePath+"/default/"+launch.ID("default", "v1")+"?wait_seconds=1", "").job(t); job.State != api.StateSucceeded {
			t.Fatalf("first = %+v", job)
		}
		patient := g.serve(t)
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := patient.call(ctx, http.MethodPost, api.FilePath, operationBody("v2", `{"op":"mkdir","path":"b"}`))
			ended <- err
		}()
		<-gate.entered
		hangUp()
		if err := <-ended; err == nil {
			t.Fatal("there was an answer")
		}
		gate.open <- struct{}{}
		if job := patient.file(t, http.MethodGet, api.FilePath+"/default/"+launch.ID("default", "v2")+"?wait_seconds=20", "").job(t); job.State != api.StateSucceeded {
			t.Errorf("by its id: %+v", job)
		}
	})
	t.Run("Stop ends the wait with 202", func(t *testing.T) {
		stopping := g.serve(t)
		answered := make(chan fileAnswer, 1)
		go func() {
			a, err := stopping.call(t.Context(), http.MethodPost, api.FilePath, operationBody("v3", `{"op":"mkdir","path":"c"}`))
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		<-gate.entered
		if err := stopping.f.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if a := <-answered; a.status != http.StatusAccepted || a.header.Get("Location") == "" {
			t.Errorf("%d %s", a.status, a.body)
		}
		gate.open <- struct{}{}
	})
	t.Run("more waiters than there is room for are answered at once", func(t *testing.T) {
		full := g.serve(t, func(s *config.Settings) { s.File.Waiters = 1 })
		answered := make(chan fileAnswer, 1)
		i.file(t, http.MethodGet, api.FilePath+"/default/"+launch.ID("default", "v3")+"?wait_seconds=20", "")
		go func() {
			a, err := full.call(t.Context(), http.MethodPost, api.FilePath, operationBody("v4", `{"op":"mkdir","path":"d"}`))
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		<-gate.entered
		if a := full.operate(t, "v5", `{"op":"list"}`); a.status != http.StatusAccepted {
			t.Errorf("beside it: %d %s", a.status, a.body)
		}
		close(gate.open)
		if a := <-answered; a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestFileRefusals(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)
	cases := map[string]struct {
		method, path, body, contentType string
		status                          int
		code                            api.Code
		field                           string
	}{
		"S29_body_unknown_field":   {body: operationBody("x", `{"op":"list","colour":"red"}`), status: 400, code: api.BadRequest, field: "operation.colour"},
		"S29_wrong_content_type":   {body: operationBody("x", `{"op":"list"}`), contentType: "text/plain", status: 415, code: api.UnsupportedMediaType},
		"S29_too_big":              {body: strings.Repeat(" ", 5<<20), status: 413, code: api.PayloadTooLarge},
		"S30_cross_namespace":      {body: `{"target":{"namespace":"other","claim":"data"},"operation":{"op":"list"}}`, status: 403, code: api.Forbidden},
		"a misspelt dry run":       {path: api.FilePath + "?dryrun=All", body: operationBody("x", `{"op":"list"}`), status: 400, code: api.BadRequest, field: "query"},
		"a time-out beyond":        {body: operationBody("x", `{"op":"list"}`, `"timeout_seconds":100000`), status: 400, code: api.BadRequest, field: "timeout_seconds"},
		"root":                     {body: `{"target":{"namespace":"default","claim":"data","run_as_user":0},"operation":{"op":"list"}}`, status: 403, code: api.PolicyDenied, field: "target.run_as_user"},
		"another method":           {method: http.MethodPut, status: 405, code: api.MethodNotAllowed},
		"no such job":              {method: http.MethodGet, path: api.FilePath + "/default/" + strings.Repeat("0", 32), status: 404, code: api.NotFound},
		"no such job, waited for":  {method: http.MethodGet, path: api.FilePath + "/default/" + strings.Repeat("0", 32) + "?wait_seconds=5", status: 404, code: api.NotFound},
		"no id, waited for":        {method: http.MethodGet, path: api.FilePath + "/default/x%29%28?wait_seconds=5", status: 404, code: api.NotFound},
		"no id":                    {method: http.MethodGet, path: api.FilePath + "/default/..%2f..", status: 404, code: api.NotFound},
		"no path":                  {method: http.MethodGet, path: api.FilePath + "/default", status: 404, code: api.NotFound},
		"a job of another's place": {method: http.MethodGet, path: api.FilePath + "/other/" + strings.Repeat("0", 32), status: 403, code: api.Forbidden},
		"a wait that is none":      {method: http.MethodGet, path: api.FilePath + "/default/" + strings.Repeat("0", 32) + "?wait_seconds=x", status: 400, code: api.BadRequest, field: "wait_seconds"},
		"a list of elsewhere":      {method: http.MethodGet, path: api.FilePath + "?namespace=other", status: 403, code: api.Forbidden},
		"a list of no claim":       {method: http.MethodGet, path: api.FilePath + "?claim=nothing", status: 404, code: api.ClaimNotFound, field: "target.claim"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodPost
			}
			if c.path == "" {
				c.path = api.FilePath
			}
			if c.contentType == "" {
				c.contentType = "application/json"
			}
			got := i.do(t, c.method, c.path, c.body, "Content-Type", c.contentType)
			e := got.refusal(t)
			if got.status != c.status || e.ErrorCode != c.code || e.Field != c.field {
				t.Errorf("%d %+v, want %d %s %s", got.status, e, c.status, c.code, c.field)
			}
		})
	}
	for _, r := range g.cluster.Requests() {
		if r.IsWrite() {
			t.Errorf("a refusal has written: %+v", r)
		}
	}
	t.Run("not configured", func(t *testing.T) {
		without := g.serve(t, func(s *config.Settings) { s.File.Job.Image = "" })
		a := without.operate(t, "x", `{"op":"list"}`)
		if e := a.fault(t); a.status != http.StatusServiceUnavailable || e.ErrorCode != api.NotConfigured {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestFileDryRun(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)
	for _, mode := range []string{"client", "All"} {
		a := i.file(t, http.MethodPost, api.FilePath+"?dryRun="+mode, operationBody("d", `{"op":"write","path":"a","text":"hidden"}`))
		var list struct{ Items []*unstructured.Unstructured }
		if err := json.Unmarshal(a.body, &list); err != nil || a.status != http.StatusOK || len(list.Items) != 2 || list.Items[0].GetKind() != "Job" || list.Items[1].GetKind() != "Secret" {
			t.Errorf("%s = %d %s", mode, a.status, a.body)
			continue
		}
		data, _, _ := unstructured.NestedStringMap(list.Items[1].Object, "data")
		for key, value := range data {
			if text, err := base64.StdEncoding.DecodeString(value); err == nil && bytes.Contains(text, []byte("operation")) {
				t.Errorf("%s shows %s of the Secret: %s", mode, key, text)
			}
		}
		if len(data) == 0 {
			t.Errorf("%s: the Secret has no data: %v", mode, list.Items[1].Object)
		}
	}
	if left := g.cluster.Objects(embedded.Jobs, embedded.Secrets, embedded.Leases); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFileEvents(t *testing.T) {
	g := newFileGround(t, nil)
	url, received := sink(t)
	i := g.serve(t, func(s *config.Settings) { s.Sink, s.JobTTL = url, time.Minute })
	binary := []string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", "e1", "Ce-Source", "/test", "Ce-Type", api.FileEventType}
	data := `{"target":{"namespace":"default","claim":"data"},"operation":{"op":"write","path":"e","text":"by event"}}`
	t.Run("S28_binary_cloudevent", func(t *testing.T) {
		if a := i.do(t, http.MethodPost, "/", data, binary...); a.status != http.StatusAccepted || len(a.body) != 0 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		id := launch.ID("default", api.EventKey("/test", "e1"))
		if job := i.file(t, http.MethodGet, api.FilePath+"/default/"+id+"?wait_seconds=20", "").job(t); job.State != api.StateSucceeded {
			t.Errorf("%+v", job)
		}
	})
	t.Run("S27_duplicate_cloudevent", func(t *testing.T) {
		if a := i.do(t, http.MethodPost, "/", data, binary...); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if jobs := g.cluster.Objects(embedded.Jobs); len(jobs) != 1 {
			t.Errorf("%d jobs", len(jobs))
		}
	})
	t.Run("S28_structured_cloudevent", func(t *testing.T) {
		event := `{"specversion":"1.0","id":"e2","source":"/test","type":"` + api.FileEventType + `","data":{"submission_id":"s2","target":{"namespace":"default","claim":"data"},"operation":{"op":"read","path":"e"}}}`
		if a := i.do(t, http.MethodPost, "/", event, "Content-Type", "application/cloudevents+json"); a.status != http.StatusAccepted {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if job := i.file(t, http.MethodGet, api.FilePath+"/default/"+launch.ID("default", "s2")+"?wait_seconds=20", "").job(t); job.Result == nil || job.Result.Content == nil || string(*job.Result.Content) != "by event" {
			t.Errorf("%+v", job)
		}
	})
	t.Run("answered by event", func(t *testing.T) {
		replying := g.serve(t, func(s *config.Settings) { s.EventReply = true })
		a := replying.do(t, http.MethodPost, "/", data, append(slices.Clone(binary), "Prefer", "reply")...)
		if a.status != http.StatusOK || a.header.Get("Ce-Type") != api.AcceptedEventType || a.header.Get("Ce-Launchid") != launch.ID("default", api.EventKey("/test", "e1")) {
			t.Errorf("%d %v", a.status, a.header)
		}
		if err := conforms(t, api.AcceptedSchema, []byte(a.body)); err != nil {
			t.Errorf("%v: %s", err, a.body)
		}
		if err := describe(t, api.OpenAPI).answered(t, http.MethodPost, "/", a); err != nil {
			t.Error(err)
		}
	})
	t.Run("S28_bad_ce", func(t *testing.T) {
		for name, body := range map[string]string{"no operation": `{"target":{"namespace":"default","claim":"data"}}`, "no JSON": `{`, "of no claim": strings.Replace(data, `"data"`, `"nothing"`, 1)} {
			header := append([]string{}, binary...)
			header[5] = "bad-" + strings.ReplaceAll(name, " ", "-")
			a := i.do(t, http.MethodPost, "/", body, header...)
			want := http.StatusBadRequest
			if name == "of no claim" { // a 404 would be repeated
				want = http.StatusUnprocessableEntity
			}
			if a.status != want {
				t.Errorf("%s = %d %s", name, a.status, a.body)
			}
		}
	})
	t.Run("S25_S26_told_once_with_its_result_and_then_its_TTL", func(t *testing.T) {
		content := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
		g.put(t, "long", content)
		read := i.operate(t, "long", `{"op":"read","path":"long"}`).job(t)
		missing := i.operate(t, "missing", `{"op":"read","path":"nothing"}`)
		if missing.status != http.StatusNotFound {
			t.Fatalf("%d %s", missing.status, missing.body)
		}
		for _, job := range g.cluster.Objects(embedded.Jobs) {
			if _, set, _ := unstructured.NestedInt64(job.Object, "spec", "ttlSecondsAfterFinished"); set {
				t.Errorf("%s has a TTL before its event was delivered", job.GetName())
			}
		}
		// Nobody was up when they ended: another instance finds them.
		fresh := g.serve(t, func(s *config.Settings) { s.Sink, s.JobTTL = url, time.Minute })
		if err := g.cluster.Until(t.Context(), func() bool { return allFinished(g.cluster) }); err != nil {
			t.Fatal(err)
		}
		if a := fresh.event(t, "dev.knative.sources.ping", ""); a.status != http.StatusAccepted {
			t.Fatalf("ping = %d %s", a.status, a.body)
		}
		told := map[string]api.Completion{}
		for range 4 {
			e := next(t, received)
			var data api.Completion
			if err := json.Unmarshal(e.Data(), &data); err != nil {
				t.Fatal(err)
			}
			if _, twice := told[data.SubmissionID]; twice || e.ID() != data.UID+"."+data.Outcome {
				t.Errorf("told %s", e)
			}
			told[data.SubmissionID] = data
		}
		var result api.FileResult
		if err := json.Unmarshal(told["long"].Result, &result); err != nil || result.Content == nil || !bytes.Equal(*result.Content, content) || told["long"].UID != read.UID {
			t.Errorf("the long result: %v, %.200s", err, told["long"].Result)
		}
		if c := told["missing"]; c.Outcome != api.Failed || c.Reason != api.ReasonError || !strings.Contains(string(c.Result), string(api.NotFound)) || c.Message == "" {
			t.Errorf("the refused operation: %+v", c)
		}
		for _, job := range g.cluster.Objects(embedded.Jobs) {
			if ttl, _, _ := unstructured.NestedInt64(job.Object, "spec", "ttlSecondsAfterFinished"); ttl != 60 {
				t.Errorf("%s has the TTL %d", job.GetName(), ttl)
			}
		}
		if a := fresh.event(t, "dev.knative.sources.ping", ""); a.status != http.StatusAccepted || len(received) > 0 {
			t.Errorf("told again: %d", len(received))
		}
	})
}

func allFinished(c *embedded.Cluster) bool {
	for _, job := range c.Objects(embedded.Jobs) {
		if _, done, _ := unstructured.NestedString(job.Object, "status", "completionTime"); !done {
			return false
		}
	}
	return true
}

func TestFileCancel(t *testing.T) {
	gate := newGate(api.OpMkdir)
	g := newFileGround(t, gate.around)
	url, received := sink(t)
	i := g.serve(t, func(s *config.Settings) { s.Sink, s.PollInterval = url, 20*time.Millisecond })
	t.Cleanup(func() { _ = i.f.Stop(context.Background()) })
	for _, path := range []string{api.FilePath, api.LaunchesPath} {
		t.Run("S32_cancel_while_running "+path, func(t *testing.T) {
			id := "c-" + filepath.Base(path)
			answered := make(chan fileAnswer, 1)
			go func() {
				a, err := i.call(t.Context(), http.MethodPost, api.FilePath, operationBody(id, `{"op":"mkdir","path":"`+id+`"}`))
				if err != nil {
					t.Error(err)
				}
				answered <- a
			}()
			<-gate.entered
			if a := i.file(t, http.MethodDelete, path+"/default/"+launch.ID("default", id), ""); a.status != http.StatusAccepted {
				t.Fatalf("cancel = %d %s", a.status, a.body)
			}
			// Whoever waited is told that it was cancelled, and the next change has its turn.
			if a := <-answered; a.fault(t).ErrorCode != api.Cancelled || a.status != http.StatusConflict {
				t.Errorf("waited: %d %s", a.status, a.body)
			}
			if e := next(t, received); e.Type() != "dev.flint.file.failed.v1" || !strings.Contains(string(e.Data()), `"Deleted"`) {
				t.Errorf("told %s", e)
			}
			if a := i.operate(t, id+"-next", `{"op":"write","path":"next","text":""}`); a.status != http.StatusOK {
				t.Errorf("the next change = %d %s", a.status, a.body)
			}
			next(t, received) // of that one
		})
	}
}

// A driver of the same submission id has the same launch id: the path of file jobs is not about it.
func TestFileCancelIsOfFileJobs(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)
	i.submit(t, submission("shared")).accepted(t)
	one := api.FilePath + "/default/" + launch.ID("default", "shared")
	if a := i.file(t, http.MethodDelete, one, ""); a.status != http.StatusNotFound {
		t.Errorf("no file job: %d %s", a.status, a.body)
	}
	i.operate(t, "shared", `{"op":"list"}`)
	if a := i.file(t, http.MethodDelete, one+"?kind=spark", ""); a.status != http.StatusBadRequest {
		t.Errorf("of another kind: %d %s", a.status, a.body)
	}
	if a := i.file(t, http.MethodDelete, one, ""); a.status != http.StatusAccepted || !bytes.Contains(a.body, []byte(`"kind":"file"`)) {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, pod := range g.cluster.Objects(embedded.Pods) {
		if pod.GetLabels()[launch.LabelKind] == "spark" && pod.GetDeletionTimestamp() != nil {
			t.Error("the driver was deleted")
		}
	}
}

func TestFileList(t *testing.T) {
	gate := newGate(api.OpDownload)
	g := newFileGround(t, gate.around)
	if _, err := g.claims.Add(t.Context(), "default", "more"); err != nil {
		t.Fatal(err)
	}
	i := g.serve(t)
	g.put(t, "f", []byte("1"))
	i.operate(t, "one", `{"op":"stat","path":"f"}`)
	i.operate(t, "two", `{"op":"stat","path":"nothing"}`)
	i.file(t, http.MethodPost, api.FilePath, `{"submission_id":"three","target":{"namespace":"default","claim":"more"},"operation":{"op":"list"}}`)
	list := func(query string) []string {
		var l api.FileJobList
		a := i.file(t, http.MethodGet, api.FilePath+query, "")
		if err := json.Unmarshal(a.body, &l); err != nil || a.status != http.StatusOK || l.Items == nil {
			t.Fatalf("%d %s", a.status, a.body)
		}
		var all []string
		for _, job := range l.Items {
			all = append(all, fmt.Sprintf("%s %s %s %s", job.SubmissionID, job.Claim, job.State, job.Code))
		}
		slices.Sort(all) // made within one second, their order is that of their names
		return all
	}
	if diff := cmp.Diff([]string{"one data succeeded ", "three more succeeded ", "two data failed NOT_FOUND"}, list("")); diff != "" {
		t.Errorf("all (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"three more succeeded "}, list("?claim=more&namespace=default")); diff != "" {
		t.Errorf("of a claim (-want +got)\n%s", diff)
	}
}

// No content, token or URL of a request is in the log, an answer, or an object but the Secret.
func TestFileSecrets(t *testing.T) {
	g := newFileGround(t, nil)
	i := g.serve(t)
	const secret = "c0ffee-s3cret"
	for n, operation := range []string{
		`{"op":"write","path":"a/b","text":"` + secret + `"}`, // there is no folder a
		`{"op":"upload","path":"u","source":{"url":"https://127.0.0.1/x?sig=` + secret + `","size":1,"sha256":"` + strings.Repeat("0", 64) + `","token":"` + secret + `"}}`,
		`{"op":"download","path":"u","sink":{"url":"https://127.0.0.1/x?sig=` + secret + `","token":"` + secret + `"}}`,
	} {
		a := i.operate(t, fmt.Sprintf("s%d", n), operation, `"wait_seconds":20`)
		if a.status < 400 || bytes.Contains(a.body, []byte(secret)) {
			t.Errorf("%s = %d %s", operation, a.status, a.body)
		}
	}
	for _, line := range i.log.all() {
		if strings.Contains(line, secret) {
			t.Errorf("in the log: %s", line)
		}
	}
	secrets := 0
	for _, object := range g.cluster.Objects() {
		if object.GetKind() == "Secret" {
			secrets++
			if len(object.GetOwnerReferences()) != 1 {
				t.Errorf("Secret %s belongs to nobody", object.GetName())
			}
			continue
		}
		text, _ := object.MarshalJSON()
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("in %s %s: %s", object.GetKind(), object.GetName(), text)
		}
	}
	if secrets != 3 || len(g.cluster.Stranded()) > 0 {
		t.Errorf("%d secrets, stranded %v", secrets, g.cluster.Stranded())
	}
}

// With tokens, nobody is told, or does, by Flint what they could not by hand.
func TestFileRights(t *testing.T) {
	v := &reviews{rights: []string{"ann *", "reader list jobs", "reader get jobs", "reader get pods/log", "lister list jobs", "lister get jobs", "maker create jobs", "writer create jobs", "writer create secrets"}}
	g := newFileGroundBehind(t, nil, v.middleware)
	i := g.serve(t, func(s *config.Settings) { s.Tokens, s.Audience = true, "flint" })
	ask := func(user, method, path, body string) answer {
		return i.do(t, method, path, body, "Content-Type", "application/json", "Authorization", "Bearer "+user)
	}
	one := api.FilePath + "/default/" + launch.ID("default", "one")
	for _, c := range []struct {
		user, method, path, body string
		want                     int
		lacks                    string
	}{
		{"ann", http.MethodPost, api.FilePath, operationBody("one", `{"op":"write","path":"f","text":"x"}`), 200, ""},
		{"reader", http.MethodPost, api.FilePath, operationBody("r", `{"op":"list"}`), 403, "create jobs.batch"},
		{"reader", http.MethodPost, api.FilePath, `{"target":{"namespace":"default","claim":"nothing"},"operation":{"op":"list"}}`, 403, "create jobs.batch"},
		{"maker", http.MethodPost, api.FilePath, operationBody("m1", `{"op":"list"}`), 200, ""},
		{"maker", http.MethodPost, api.FilePath, operationBody("m2", `{"op":"write","path":"g","text":"x"}`), 403, "create secrets"},
		{"maker", http.MethodPost, api.FilePath + "?dryRun=All", operationBody("m3", `{"op":"write","path":"g","text":"x"}`), 403, "create secrets"},
		{"writer", http.MethodPost, api.FilePath, operationBody("w", `{"op":"write","path":"g","text":"x"}`), 200, ""},
		{"reader", http.MethodGet, one, "", 200, ""},
		{"lister", http.MethodGet, one, "", 403, "get pods/log"},
		{"maker", http.MethodGet, one, "", 403, "get jobs.batch"},
		{"reader", http.MethodGet, api.FilePath, "", 200, ""},
		{"lister", http.MethodGet, api.FilePath, "", 403, "get pods/log"},
		{"maker", http.MethodGet, api.FilePath, "", 403, "list jobs.batch"},
		{"reader", http.MethodDelete, one, "", 403, "delete jobs.batch"},
		{"ann", http.MethodDelete, one, "", 202, ""},
	} {
		a := ask(c.user, c.method, c.path, c.body)
		if a.status != c.want || c.want == http.StatusForbidden && !strings.Contains(a.refusal(t).Message, c.lacks) {
			t.Errorf("%s %s %s %s = %d %s, want %d %s", c.user, c.method, c.path, c.body, a.status, a.body, c.want, c.lacks)
		}
	}
}

// What cannot start is told at once, its Job goes, and its completion event says why.
func TestFileGivesUp(t *testing.T) {
	cluster, err := embedded.Start(embedded.Options{Idle: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if _, err := cluster.Add(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data"}}}); err != nil {
		t.Fatal(err)
	}
	url, received := sink(t)
	i := (&fileGround{cluster: cluster}).serve(t, func(s *config.Settings) { s.File.Unbound, s.Sink = true, url })
	answered := make(chan fileAnswer, 1)
	go func() {
		a, err := i.call(t.Context(), http.MethodPost, api.FilePath, operationBody("g", `{"op":"mkdir","path":"a"}`))
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	if err := cluster.Until(t.Context(), func() bool { return len(cluster.Objects(embedded.Jobs)) == 1 }); err != nil {
		t.Fatal(err)
	}
	job := cluster.Objects(embedded.Jobs)[0]
	pod, err := cluster.Add(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{
			"name": job.GetName() + "-x", "labels": map[string]any{launch.LabelID: job.GetLabels()[launch.LabelID], launch.LabelKind: "file"},
			"ownerReferences": []any{map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": job.GetName(), "uid": string(job.GetUID()), "controller": true}},
		},
		"spec": map[string]any{"containers": []any{map[string]any{"name": filejob.Container}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, cluster.URL()+"/api/v1/namespaces/default/pods/"+pod.GetName()+"/status",
		strings.NewReader(`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", response, err)
	}
	_ = response.Body.Close()

	a := <-answered
	var body struct {
		api.ErrorBody
		Details api.FileJobDetails `json:"details"`
	}
	if err := json.Unmarshal(a.body, &body); err != nil || a.status != http.StatusServiceUnavailable || body.ErrorCode != api.Unschedulable || !body.Details.Deleted || body.Details.UID != string(job.GetUID()) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if err := describe(t, api.OpenAPI).answered(t, http.MethodPost, api.FilePath, answer{a.status, a.header, string(a.body)}); err != nil {
		t.Error(err)
	}
	if e := next(t, received); e.Type() != "dev.flint.file.failed.v1" || !strings.Contains(string(e.Data()), `"reason":"Unschedulable"`) {
		t.Errorf("told %s", e)
	}
	if left := cluster.Objects(embedded.Jobs); len(left) > 0 && left[0].GetDeletionTimestamp() == nil {
		t.Errorf("the Job is left: %v", left)
	}
}
