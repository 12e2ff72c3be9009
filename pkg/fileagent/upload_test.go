package fileagent

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// origin is a server on loopback, with TLS, that serves one file.
type origin struct {
	*httptest.Server
	content []byte
	// etag is what names the file; empty for none.
	etag string
	// answer, if it is there, stands in for the file.
	answer http.HandlerFunc

	mutex    sync.Mutex
	requests []*http.Request
}

func serve(t *testing.T, content []byte) *origin {
	t.Helper()
	o := &origin{content: content, etag: `"one"`}
	o.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mutex.Lock()
		o.requests = append(o.requests, r.Clone(context.Background()))
		answer, content, etag := o.answer, o.content, o.etag
		o.mutex.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	o.Config.ErrorLog = log.New(io.Discard, "", 0)
	o.StartTLS()
	t.Cleanup(o.Close)
	return o
}

// set changes what is served from now on.
func (o *origin) set(change func()) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	change()
}

func (o *origin) answers(answer http.HandlerFunc) { o.set(func() { o.answer = answer }) }

func (o *origin) asked() []*http.Request {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.requests
}

func (o *origin) source() *api.FileSource {
	return &api.FileSource{URL: o.URL + "/file?signature=s3cret", Size: int64(len(o.content)), SHA256: digestOf(string(o.content)), Token: "t0ken"}
}

// reach lets a run speak to the server.
func (r *run) reach(o *httptest.Server) *run {
	r.agent.Transfer.Roots = o.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	r.request.Limits.URLPrivate = true
	r.request.Limits.URLHosts = append(r.request.Limits.URLHosts, hostOf(o.URL))
	return r
}

// silent checks that a result tells no secret.
func silent(t *testing.T, result *api.FileResult) *api.FileResult {
	t.Helper()
	if text := fmt.Sprintf("%+v", *result); strings.Contains(text, "s3cret") || strings.Contains(text, "t0ken") {
		t.Errorf("the result tells a secret: %s", text)
	}
	return result
}

// random is n bytes that are the same each time, and do not repeat.
func random(n int) []byte {
	content := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	return content
}

func uploadOp(path string, source *api.FileSource) api.FileOperation {
	return api.FileOperation{Op: api.OpUpload, Path: path, Source: source}
}

func wantCode(t *testing.T, result *api.FileResult, code api.Code) *api.FileResult {
	t.Helper()
	if result.Code != code {
		t.Fatalf("code %q, not %q: %s", result.Code, code, result.Message)
	}
	return silent(t, result)
}

func TestUpload(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"empty": 0, "a byte": 1, "a chunk": partChunk, "a chunk and more": partChunk + 12345} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			o := serve(t, random(size))
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
			if result.SHA256 != o.source().SHA256 || *result.Size != int64(size) || result.Files != 1 || result.Resumed != 0 {
				t.Errorf("got %+v", result)
			}
			holds(t, filepath.Join(root, "file"), string(o.content))
			if mode, _, _ := modeOf(t, filepath.Join(root, "file")); mode != 0o644 {
				t.Errorf("mode %v", mode)
			}
			names(t, root, "file")
			if asked := o.asked(); len(asked) != 1 || asked[0].Header.Get("Authorization") != "Bearer t0ken" || asked[0].Header.Get("Range") != "" {
				t.Errorf("asked %v", asked)
			}
		})
	}
	t.Run("replaces, and keeps mode and owner", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, []byte("new"))
		must(t, os.Chmod(put(t, filepath.Join(root, "dir/file"), "old"), 0o600))
		giveTo(t, filepath.Join(root, "dir/file"), 1234, 5678)
		link(t, "dir/file", filepath.Join(root, "link"))
		op := uploadOp("link", o.source())
		op.ExpectSHA256 = digestOf("old")
		wantCode(t, open(t, root).reach(o.Server).give(t.Context(), op), "")
		holds(t, filepath.Join(root, "dir/file"), "new")
		if mode, uid, gid := modeOf(t, filepath.Join(root, "dir/file")); mode != 0o600 || uid != 1234 || gid != 5678 {
			t.Errorf("mode %v, owner %d:%d", mode, uid, gid)
		}
		names(t, root, "dir", "link")
		names(t, filepath.Join(root, "dir"), "file")
	})
	t.Run("what appears meanwhile stays", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, []byte("new"))
		r := open(t, root).reach(o.Server)
		r.progress = func(int64, int64) { put(t, filepath.Join(root, "file"), "theirs") }
		op := uploadOp("file", o.source())
		op.CreateOnly = true
		wantCode(t, r.give(t.Context(), op), api.FileExists)
		holds(t, filepath.Join(root, "file"), "theirs")
		names(t, root, "file")
	})
}

func TestF47_upload_refused_never_fetches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   api.Code
		change func(r *run, op *api.FileOperation)
	}{
		"existing target":  {api.FileExists, func(_ *run, op *api.FileOperation) { op.CreateOnly = true }},
		"dangling link":    {api.FileExists, func(_ *run, op *api.FileOperation) { op.Path, op.CreateOnly = "dangling", true }},
		"folder":           {api.BadPath, func(_ *run, op *api.FileOperation) { op.Path = "dir" }},
		"root":             {api.BadPath, func(_ *run, op *api.FileOperation) { op.Path = "" }},
		"outside":          {api.BadPath, func(_ *run, op *api.FileOperation) { op.Path = "../x" }},
		"link to outside":  {api.BadPath, func(_ *run, op *api.FileOperation) { op.Path = "outside" }},
		"no parent":        {api.NotFound, func(_ *run, op *api.FileOperation) { op.Path = "no/file" }},
		"changed":          {api.FileChanged, func(_ *run, op *api.FileOperation) { op.ExpectSHA256 = digestOf("other") }},
		"vanished":         {api.FileChanged, func(_ *run, op *api.FileOperation) { op.Path, op.ExpectSHA256 = "no", digestOf("old") }},
		"no space":         {api.VolumeFull, func(_ *run, op *api.FileOperation) { op.Source.Size = 1 << 60 }},
		"no source":        {api.BadRequest, func(_ *run, op *api.FileOperation) { op.Source = nil }},
		"no digest":        {api.BadRequest, func(_ *run, op *api.FileOperation) { op.Source.SHA256 = "" }},
		"capital digest":   {api.BadRequest, func(_ *run, op *api.FileOperation) { op.Source.SHA256 = strings.ToUpper(op.Source.SHA256) }},
		"size below zero":  {api.BadRequest, func(_ *run, op *api.FileOperation) { op.Source.Size = -1 }},
		"host not allowed": {api.PolicyDenied, func(r *run, _ *api.FileOperation) { r.request.Limits.URLHosts = []string{"example.org"} }},
		"not private":      {api.PolicyDenied, func(r *run, _ *api.FileOperation) { r.request.Limits.URLPrivate = false }},
		"user information": {api.PolicyDenied, func(_ *run, op *api.FileOperation) {
			op.Source.URL = strings.Replace(op.Source.URL, "https://", "https://u:s3cret@", 1)
		}},
		"file:":       {api.PolicyDenied, func(_ *run, op *api.FileOperation) { op.Source.URL = "file:///etc/passwd" }},
		"token lines": {api.PolicyDenied, func(_ *run, op *api.FileOperation) { op.Source.Token = "t0ken\r\nHost: x" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "file"), "old")
			must(t, os.Mkdir(filepath.Join(root, "dir"), 0o755))
			link(t, "nowhere", filepath.Join(root, "dangling"))
			link(t, "/etc/passwd", filepath.Join(root, "outside"))
			before := tree(t, root)
			o := serve(t, []byte("new"))
			r := open(t, root).reach(o.Server)
			op := uploadOp("file", o.source())
			c.change(r, &op)
			result := wantCode(t, r.give(t.Context(), op), c.code)
			if c.code == api.VolumeFull && (*result.NeedBytes != 1<<60 || *result.AvailableBytes <= 0) {
				t.Errorf("need %d, available %d", *result.NeedBytes, *result.AvailableBytes)
			}
			if asked := o.asked(); len(asked) != 0 {
				t.Errorf("the source was asked %d times", len(asked))
			}
			same(t, before, tree(t, root))
		})
	}
}

func TestF48_upload_short_long_wronghash_reset(t *testing.T) {
	t.Parallel()
	content := random(3 * partChunk)
	half := func(w http.ResponseWriter) {
		_, _ = w.Write(content[:len(content)/2])
		_ = http.NewResponseController(w).Flush()
	}
	for name, c := range map[string]struct {
		code   api.Code
		answer http.HandlerFunc
	}{
		"short, with its length": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)-1))
			_, _ = w.Write(content[:len(content)-1])
		}},
		"short, without a length": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) { half(w) }},
		"shorter than its length": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)))
			half(w)
		}},
		"long, without a length": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) {
			half(w)
			_, _ = w.Write(content[len(content)/2:])
			_, _ = w.Write([]byte("x"))
		}},
		"long, with its length": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(content)+1))
			_, _ = w.Write(append(content, 'x'))
		}},
		"wrong hash": {api.BadDigest, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Accept-Ranges", "bytes")
			_, _ = w.Write(append([]byte("x"), content[1:]...))
		}},
		"reset": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) {
			half(w)
			panic(http.ErrAbortHandler)
		}},
		"404":     {api.TransferFailed, http.NotFound},
		"204":     {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }},
		"encoded": {api.TransferFailed, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip"); half(w) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "file"), "old")
			o := serve(t, content)
			o.answers(c.answer)
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), c.code)
			t.Log(result.Message)
			holds(t, filepath.Join(root, "file"), "old")
			names(t, root, "file")
			if len(o.asked()) != 1 {
				t.Errorf("the source was asked %d times", len(o.asked()))
			}
		})
	}
	t.Run("stands still", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		o.answers(func(w http.ResponseWriter, _ *http.Request) { half(w); <-end })
		r := open(t, root).reach(o.Server)
		r.agent.Transfer.Patience = 2 * time.Second
		result := wantCode(t, r.give(t.Context(), uploadOp("file", o.source())), api.TransferFailed)
		if !strings.Contains(result.Message, "stands still") {
			t.Error(result.Message)
		}
		names(t, root)
	})
	t.Run("unknown certificate", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		r := open(t, root).reach(o.Server)
		r.agent.Transfer.Roots = nil
		wantCode(t, r.give(t.Context(), uploadOp("file", o.source())), api.TransferFailed)
		names(t, root)
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		end := make(chan struct{})
		t.Cleanup(func() { close(end) })
		o.answers(func(w http.ResponseWriter, _ *http.Request) { half(w); <-end })
		ctx, cancel := context.WithCancel(t.Context())
		r := open(t, root).reach(o.Server)
		r.progress = func(int64, int64) { cancel() }
		wantCode(t, r.give(ctx, uploadOp("file", o.source())), api.Cancelled)
		names(t, root)
	})
}

func TestF49_upload_source_enospc_is_not_volume_full(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	o := serve(t, []byte("content"))
	r := open(t, root).reach(o.Server)
	// A connection whose reading fails with ENOSPC, as if the source's own disk were full.
	source := o.source()
	err := locate("file", transferred(r.sourceError(t, source, unix.ENOSPC)))
	if code := codeOf(err); code == api.VolumeFull {
		t.Errorf("%v is %s", err, code)
	}
	var refused *refusal
	if !errors.As(err, &refused) || refused.result.Code != api.TransferFailed {
		t.Errorf("got %v", err)
	}
	o.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no space left on device", http.StatusInsufficientStorage)
	})
	wantCode(t, r.give(t.Context(), uploadOp("file", source)), api.TransferFailed)
	names(t, root)
}

// sourceError is the error of a GET whose connection fails so.
func (r *run) sourceError(t *testing.T, source *api.FileSource, errno error) error {
	t.Helper()
	r.agent.Transfer.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errno }}
	r.request.Limits.URLHosts = append(r.request.Limits.URLHosts, "source.test")
	client, err := r.dial("https://source.test/", source.Token)
	must(t, err)
	_, err = client.Get(t.Context(), 0, source.Size, "")
	if err == nil {
		t.Fatal("no error")
	}
	return err
}

func TestF50_upload_redirect_with_token(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	elsewhere := serve(t, []byte("content"))
	o := serve(t, []byte("content"))
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		o.answers(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) })
		result := wantCode(t, open(t, root).reach(elsewhere.Server).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), api.TransferFailed)
		if !strings.Contains(result.Message, "redirect") {
			t.Error(result.Message)
		}
	}
	if len(elsewhere.asked()) != 0 {
		t.Error("the redirect was followed")
	}
	names(t, root)
}

func TestF52_upload_resume_after_kill(t *testing.T) {
	t.Parallel()
	content := random(3*partChunk + 1000)
	for name, c := range map[string]struct {
		change func(t *testing.T, root string, o *origin)
		// resumed is how much is expected to be there.
		resumed int64
	}{
		"goes on":                           {func(*testing.T, string, *origin) {}, 2 * partChunk},
		"without a name of the file":        {func(*testing.T, string, *origin) {}, 2 * partChunk},
		"another file by now":               {func(_ *testing.T, _ string, o *origin) { o.set(func() { o.etag = `"two"` }) }, 0},
		"F53_upload_part_wrong_digest":      {func(t *testing.T, root string, _ *origin) { corrupt(t, root, "part", partChunk+7) }, partChunk},
		"F53_upload_first_chunk_wrong":      {func(t *testing.T, root string, _ *origin) { corrupt(t, root, "part", 0) }, 0},
		"F53_upload_digest_of_digests_torn": {func(t *testing.T, root string, _ *origin) { shorten(t, root, "sums", 10) }, partChunk},
		"F53_upload_header_torn":            {func(t *testing.T, root string, _ *origin) { corrupt(t, root, "sums", 0) }, 0},
		"F53_upload_part_cut":               {func(t *testing.T, root string, _ *origin) { shorten(t, root, "part", 1) }, partChunk},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "file"), "old")
			o := serve(t, content)
			if strings.HasPrefix(name, "without") {
				o.set(func() { o.etag = "" })
			}
			roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.Certificate().Raw})
			killed{
				Root: root, Op: string(api.OpUpload), Path: "file", Kernel: "all renames", Source: o.source(), Bytes: 2*partChunk + 1, Roots: roots,
			}.dies(t)
			holds(t, filepath.Join(root, "file"), "old")
			if len(tree(t, root)) != 3 {
				t.Fatal("no part is left")
			}
			c.change(t, root, o)
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
			if result.Resumed != c.resumed {
				t.Errorf("resumed at %d, not at %d", result.Resumed, c.resumed)
			}
			holds(t, filepath.Join(root, "file"), string(content))
			names(t, root, "file")
			asked := o.asked()
			if want := fmt.Sprintf("bytes=%d-", c.resumed); c.resumed > 0 && asked[1].Header.Get("Range") != want {
				t.Errorf("range %q", asked[1].Header.Get("Range"))
			}
		})
	}
	t.Run("a connection that breaks, twice", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		o.answers(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", o.etag)
			http.ServeContent(&breaking{ResponseWriter: w, left: 2*partChunk - 5}, r, "", time.Time{}, bytes.NewReader(content))
		})
		for _, want := range []int64{partChunk, 2 * partChunk} {
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), api.TransferFailed)
			if result.Bytes != want {
				t.Errorf("%d bytes are kept, not %d", result.Bytes, want)
			}
		}
		result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
		if result.Resumed != 2*partChunk {
			t.Errorf("resumed at %d", result.Resumed)
		}
		holds(t, filepath.Join(root, "file"), string(content))
		names(t, root, "file")
	})
	t.Run("a resumed whole with a wrong digest is dropped", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		o.set(func() { o.etag = "" })
		source := o.source()
		o.answers(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(&breaking{ResponseWriter: w, left: 2 * partChunk}, r, "", time.Time{}, bytes.NewReader(content))
		})
		wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", source)), api.TransferFailed)
		o.set(func() {
			o.answer, o.content = nil, append(append([]byte{}, content[:len(content)-1]...), content[len(content)-1]+1)
		})
		wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", source)), api.BadDigest)
		names(t, root)
	})
	t.Run("what bears the name and is not ours", func(t *testing.T) {
		t.Parallel()
		for what, plant := range map[string]func(part, victim string) error{
			"a link":        func(part, victim string) error { return os.Symlink(victim, part) },
			"a second name": func(part, victim string) error { return os.Link(victim, part) },
			"a pipe":        func(part, _ string) error { return unix.Mkfifo(part, 0o644) },
			"another user's": func(part, _ string) error {
				return errors.Join(os.WriteFile(part, nil, 0o666), os.Chown(part, 1234, 1234))
			},
			"digests, linked": func(part, victim string) error { return os.Link(victim, strings.TrimSuffix(part, "part")+"sums") },
		} {
			root := t.TempDir()
			o := serve(t, []byte("content"))
			victim := put(t, filepath.Join(root, "victim"), "kept")
			must(t, plant(filepath.Join(root, ".flint-"+uploadID("file", o.source())+".part"), victim))
			wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
			holds(t, victim, "kept")
			holds(t, filepath.Join(root, "file"), "content")
			if _, uid, _ := modeOf(t, filepath.Join(root, "file")); int(uid) != os.Getuid() {
				t.Errorf("%s: the file belongs to %d", what, uid)
			}
			names(t, root, "file", "victim")
		}
	})
	t.Run("two at once", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		o := serve(t, content)
		r := open(t, root).reach(o.Server)
		var once sync.Once
		r.progress = func(int64, int64) {
			once.Do(func() {
				result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), api.TransferFailed)
				t.Log(result.Message)
			})
		}
		wantCode(t, r.give(t.Context(), uploadOp("file", o.source())), "")
		holds(t, filepath.Join(root, "file"), string(content))
		names(t, root, "file")
	})
}

// breaking breaks the connection after so many bytes of a body.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	_, _ = b.ResponseWriter.Write(p[:n])
	if b.left -= n; b.left == 0 {
		_ = http.NewResponseController(b.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, nil
}

func found(t *testing.T, root, kind string) string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(root, ".flint-*."+kind))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

func corrupt(t *testing.T, root, kind string, at int64) {
	t.Helper()
	file, err := os.OpenFile(found(t, root, kind), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = file.Close() }()
	var b [1]byte
	_, err = file.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0xff
	_, err = file.WriteAt(b[:], at)
	must(t, err)
}

func shorten(t *testing.T, root, kind string, by int64) {
	t.Helper()
	name := found(t, root, kind)
	info, err := os.Stat(name)
	must(t, err)
	size := info.Size() - by
	if kind == "part" {
		size = 2*partChunk - by // it may have more, which does not count
	}
	must(t, os.Truncate(name, size))
}

// TestUploadBesideSomebodysFile: what bears the name of a part's digests, and another name too, is not written to.
func TestUploadBesideSomebodysFile(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	o := serve(t, []byte("content"))
	base := filepath.Join(root, ".flint-"+uploadID("file", o.source()))
	put(t, base+".part", "x")
	must(t, os.Link(put(t, filepath.Join(root, "victim"), "theirs"), base+".sums"))
	wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
	holds(t, filepath.Join(root, "victim"), "theirs")
	names(t, root, "file", "victim")
}

// TestUploadBesideDigestsWithoutEnd: a file of digests that is no such file costs no memory.
func TestUploadBesideDigestsWithoutEnd(t *testing.T) { //nolint:paralleltest // it measures the memory
	root := t.TempDir()
	o := serve(t, []byte("content"))
	base := filepath.Join(root, ".flint-"+uploadID("file", o.source()))
	put(t, base+".part", "x")
	must(t, os.Truncate(put(t, base+".sums", ""), 256<<20))
	var before, after runtime.MemStats
	r := open(t, root).reach(o.Server)
	runtime.ReadMemStats(&before)
	wantCode(t, r.give(t.Context(), uploadOp("file", o.source())), "")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes", n)
	}
	names(t, root, "file")
}

func TestF54_part_sweep_after_idle(t *testing.T) {
	t.Parallel()
	t.Run("by an upload", func(t *testing.T) {
		t.Parallel()
		o := serve(t, []byte("content"))
		testPartSweep(t, func(root string) {
			wantCode(t, open(t, root).reach(o.Server).give(t.Context(), uploadOp("file", o.source())), "")
		})
	})
	t.Run("by a write", func(t *testing.T) {
		t.Parallel()
		testPartSweep(t, func(root string) {
			content := "content"
			wantCode(t, open(t, root).give(t.Context(), api.FileOperation{Op: api.OpWrite, Path: "file", Text: &content}), "")
		})
	})
}

// testPartSweep does what lands a file "file" in the root, between parts of all kinds.
func testPartSweep(t *testing.T, land func(root string)) {
	root := t.TempDir()
	id := func(c string) string { return ".flint-" + strings.Repeat(c, 32) }
	old := time.Now().Add(-25 * time.Hour)
	keep := []string{id("a") + ".part~", ".flint-abc.part", id("G") + ".part", "x" + id("a") + ".part"} // look-alikes
	for _, name := range append(keep, id("a")+".part", id("a")+".sums", id("b")+".sums", id("c")+".part", id("c")+".sums", id("d")+".part", id("e")+".part") {
		put(t, filepath.Join(root, name), "x")
		must(t, os.Chtimes(filepath.Join(root, name), old, old))
	}
	must(t, os.Chtimes(filepath.Join(root, id("c")+".part"), time.Now(), time.Now())) // in use a moment ago
	active, err := os.OpenFile(filepath.Join(root, id("d")+".part"), os.O_RDWR, 0)
	must(t, err)
	defer func() { _ = active.Close() }()
	must(t, lock(active))
	land(root)
	// The digests beside the young part are as old as the others, and stay with it.
	want := append(keep, id("c")+".part", id("c")+".sums", id("d")+".part", "file")
	got := tree(t, root)
	for _, name := range want {
		if _, there := got[name]; !there {
			t.Errorf("%s was removed", name)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is left", name)
	}
}

func TestF51_upload_ssrf_targets(t *testing.T) {
	t.Parallel()
	o := serve(t, []byte("content"))
	_, port, err := net.SplitHostPort(hostOf(o.URL))
	must(t, err)
	var asked atomic.Int64
	rebinding := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go answerDNS(theirs, &asked)
		return ours, nil
	}}
	for name, c := range map[string]struct{ url string }{
		"metadata":                 {"https://169.254.169.254/latest/meta-data/"},
		"metadata, http":           {"http://169.254.169.254/latest/meta-data/"},
		"metadata, IPv4 in IPv6":   {"https://[::ffff:169.254.169.254]/"},
		"metadata, NAT64":          {"https://[64:ff9b::a9fe:a9fe]/"},
		"localhost":                {"https://localhost/"},
		"localhost, other port":    {"https://localhost:" + port + "/"},
		"loopback":                 {"https://127.0.0.1/"},
		"loopback, the server":     {o.URL},
		"loopback, IPv6":           {"https://[::1]/"},
		"unspecified":              {"https://0.0.0.0/"},
		"private":                  {"https://10.0.0.1/"},
		"unique local":             {"https://[fd00::1]/"},
		"link-local with a zone":   {"https://[fe80::1%25lo]/"},
		"by a name":                {"https://rebinding.test/"},
		"by a name, with our port": {"https://rebinding.test:" + port + "/"},
		"file":                     {"file:///etc/passwd"},
		"ftp":                      {"ftp://example.org/"},
		"no host":                  {"https:///x"},
		"opaque":                   {"https:x"},
		"nothing":                  {""},
		"no URL":                   {"https://a b/%zz"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			r := open(t, root)
			r.agent.Transfer.Resolver = rebinding
			source := o.source()
			source.URL = c.url
			result := wantCode(t, r.give(t.Context(), uploadOp("file", source)), api.PolicyDenied)
			t.Log(result.Message)
			names(t, root)
			download := api.FileOperation{Op: api.OpDownload, Path: "file", Sink: &api.FileSink{URL: c.url}}
			put(t, filepath.Join(root, "file"), "content")
			wantCode(t, r.give(t.Context(), download), api.PolicyDenied)
		})
	}
	t.Cleanup(func() {
		if len(o.asked()) != 0 {
			t.Error("the server was asked")
		}
		if asked.Load() == 0 {
			t.Error("no name was resolved")
		}
	})
}

// answerDNS answers questions over a stream: every name is loopback.
func answerDNS(conn net.Conn, asked *atomic.Int64) {
	defer func() { _ = conn.Close() }()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		question := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		end := 12
		for question[end] != 0 {
			end += int(question[end]) + 1
		}
		end += 5
		answer := append([]byte{}, question[:end]...)
		copy(answer[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
		if question[end-3] == 1 { // type A
			asked.Add(1)
			answer[7] = 1
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1)
		}
		if _, err := conn.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
			return
		}
	}
}
