package fileagent

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// received is what a sink got.
type received struct {
	// body is nil until a whole one was there.
	body   []byte
	length int64
	header http.Header
}

// sink is a server that takes one PUT whole, and answers what it is told to.
func sink(t *testing.T, status int) (*origin, *received) {
	t.Helper()
	o, got := serve(t, nil), &received{}
	o.answers(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPut {
			return // cut short: what a store does not keep
		}
		got.body, got.length, got.header = body, r.ContentLength, r.Header
		w.WriteHeader(status)
	})
	return o, got
}

func downloadOp(path, format string, o *origin) api.FileOperation {
	return api.FileOperation{Op: api.OpDownload, Path: path, Sink: &api.FileSink{URL: o.URL + "/object?signature=s3cret", Token: "t0ken", Format: format}}
}

// unpackedTree is what an archive holds, as tree has it.
func unpackedTree(t *testing.T, format string, data []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, mode fs.FileMode, content io.Reader) {
		text, err := io.ReadAll(content)
		must(t, err)
		if mode.IsDir() {
			text = []byte("dir")
		}
		all[path.Clean(name)] = mode.Perm().String() + " " + string(text)
	}
	if format == formatZip {
		r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		must(t, err)
		for _, f := range r.File {
			content, err := f.Open()
			must(t, err)
			add(f.Name, f.Mode(), content)
			must(t, content.Close())
		}
		return all
	}
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		must(t, err)
		add(h.Name, h.FileInfo().Mode(), r)
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"empty": 0, "small": 7, "large": 2<<20 + 1} {
		t.Run("file, "+name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			content := string(random(size))
			put(t, filepath.Join(root, "dir/file"), content)
			o, got := sink(t, http.StatusCreated)
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp("dir/file", "", o)), "")
			if string(got.body) != content || got.length != int64(size) || got.header.Get("Authorization") != "Bearer t0ken" || got.header.Get("Content-Type") != "" {
				t.Errorf("got %d bytes, length %d, header %v", len(got.body), got.length, got.header)
			}
			if result.SHA256 != digestOf(content) || *result.Size != int64(size) || result.Bytes != int64(size) || result.Files != 1 {
				t.Errorf("got %+v", result)
			}
		})
	}
	for _, format := range []string{formatZip, formatTar} {
		for at, as := range map[string]string{"": testClaim, "dir": "dir", "dir/sub": "sub"} {
			t.Run(format+" of "+as, func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				put(t, filepath.Join(root, "dir/sub/file"), strings.Repeat("content ", 100_000))
				must(t, os.Chmod(put(t, filepath.Join(root, "dir/run"), "#!"), 0o750))
				put(t, filepath.Join(root, "dir/sub/"+strings.Repeat("n", 250)), "")
				put(t, filepath.Join(root, "dir/sub/bad\xff"), "not UTF-8")
				must(t, os.Mkdir(filepath.Join(root, "dir/empty"), 0o700))
				o, got := sink(t, http.StatusOK)
				result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp(at, format, o)), "")
				info, err := os.Stat(filepath.Join(root, at))
				must(t, err)
				want := map[string]string{as: info.Mode().Perm().String() + " dir"}
				files := 0
				for name, text := range tree(t, filepath.Join(root, at)) {
					want[as+"/"+name] = text
					if !strings.HasSuffix(text, " dir") {
						files++
					}
				}
				if diff := cmp.Diff(want, unpackedTree(t, format, got.body)); diff != "" {
					t.Error(diff)
				}
				if got.length != int64(len(got.body)) || result.Bytes != got.length || result.SHA256 != digestOf(string(got.body)) ||
					result.Files != int64(files) || result.Folders != int64(len(want)-files) || result.Skipped != 0 {
					t.Errorf("length %d, got %+v", got.length, result)
				}
				if format == formatTar { // which comes back as it went
					put(t, filepath.Join(root, "back/a.tar"), string(got.body))
					do(t, root, api.FileOperation{Op: api.OpUntar, Path: "back/a.tar"}).want(t, "")
					if _, err := os.Stat(filepath.Join(root, "back", as)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "dir/file"), "content")
		must(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o644))
		link(t, "/etc/passwd", filepath.Join(root, "out"))
		o, got := sink(t, http.StatusOK)
		r := open(t, root).reach(o.Server)
		for _, c := range []struct {
			path, format string
			code         api.Code
		}{
			{"dir", "file", api.BadPath}, {"", "", api.BadPath}, {"dir/file", "zip", api.BadPath}, {"dir/file", "tar", api.BadPath}, {"no", "", api.NotFound},
			{"no", "zip", api.NotFound}, {"out", "", api.BadPath}, {"../x", "", api.BadPath}, {"dir", "rar", api.BadRequest},
		} {
			wantCode(t, r.give(t.Context(), downloadOp(c.path, c.format, o)), c.code)
		}
		within(t, 10*time.Second, func() { wantCode(t, r.give(t.Context(), downloadOp("fifo", "", o)), api.BadPath) })
		wantCode(t, r.give(t.Context(), api.FileOperation{Op: api.OpDownload, Path: "dir/file"}), api.BadRequest)
		for what, change := range map[string]func(){
			"entries": func() { r.volume.limits.ArchiveEntries = 1 }, "bytes": func() { r.volume.limits.ArchiveBytes = 6 },
			"entry": func() { r.volume.limits.ArchiveEntryBytes = 6 },
		} {
			r.volume.limits = testLimits()
			change()
			t.Log(what, wantCode(t, r.give(t.Context(), downloadOp("dir", "zip", o)), api.ArchiveTooLarge).Message)
		}
		if len(o.asked()) != 0 || got.body != nil {
			t.Error("the sink was asked")
		}
	})
	for _, status := range []int{http.StatusForbidden, http.StatusTemporaryRedirect, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "file"), "content")
			o, _ := sink(t, status)
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp("file", "", o)), api.TransferFailed)
			if !strings.Contains(result.Message, http.StatusText(status)) {
				t.Error(result.Message)
			}
		})
	}
	t.Run("an answer before all is there", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "file"), string(random(20<<20)))
		o := serve(t, nil)
		o.answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
			w.WriteHeader(http.StatusOK)
		})
		wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp("file", "", o)), api.TransferFailed)
	})
	t.Run("a sink that stands still", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "file"), string(random(20<<20)))
		o, end := serve(t, nil), make(chan struct{})
		t.Cleanup(func() { close(end) })
		o.answers(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, 1000); <-end })
		r := open(t, root).reach(o.Server)
		r.agent.Transfer.Patience = 300 * time.Millisecond
		wantCode(t, r.give(t.Context(), downloadOp("file", "", o)), api.TransferFailed)
	})
	t.Run("an answer without end", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "file"), "content")
		o, end := serve(t, nil), make(chan struct{})
		t.Cleanup(func() { close(end) })
		o.answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-end
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantCode(t, open(t, root).reach(o.Server).give(ctx, downloadOp("file", "", o)), "")
		if ctx.Err() != nil {
			t.Error("it has waited for the end")
		}
	})
	t.Run("long names", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		deep := filepath.Join(root, "dir", strings.Repeat(strings.Repeat("n", 200)+"/", 10))
		for i := range 20 {
			put(t, filepath.Join(deep, strconv.Itoa(i)), "")
		}
		o, got := sink(t, http.StatusOK)
		r := open(t, root).reach(o.Server)
		r.volume.limits.ArchiveEntries = 100
		wantCode(t, r.give(t.Context(), downloadOp("dir", formatTar, o)), api.ArchiveTooLarge)
		r.volume.limits.ArchiveEntries = 1000
		wantCode(t, r.give(t.Context(), downloadOp("dir", formatTar, o)), "")
		if got.body == nil {
			t.Error("nothing was sent")
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		for _, format := range []string{formatFile, formatZip, formatTar} {
			root := t.TempDir()
			put(t, filepath.Join(root, "dir/file"), string(random(5<<20)))
			o, got := sink(t, http.StatusOK)
			r := open(t, root).reach(o.Server)
			ctx, cancel := context.WithCancel(t.Context())
			r.progress = func(_, total int64) {
				if total > 0 {
					cancel()
				}
			}
			from := "dir"
			if format == formatFile {
				from = "dir/file"
			}
			wantCode(t, r.give(ctx, downloadOp(from, format, o)), api.Cancelled)
			if got.body != nil {
				t.Errorf("%s: it is whole there", format)
			}
		}
	})
}

func TestF69_download_changes_under_us(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, change := range map[string]func(file string) error{
		"shrinks":  func(file string) error { return os.Truncate(file, size-1) },
		"to zero":  func(file string) error { return os.Truncate(file, 0) },
		"grows":    func(file string) error { return os.Truncate(file, size+1) },
		"rewrites": func(file string) error { return rewrite(file, size-1) },
	} {
		for _, format := range []string{formatFile, formatZip, formatTar} {
			t.Run(name+", "+format, func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				file := put(t, filepath.Join(root, "dir/file"), string(random(size)))
				o, got := sink(t, http.StatusOK)
				r := open(t, root).reach(o.Server)
				done := false
				r.progress = func(_, total int64) { // of the sending, in which the file is open
					if !done && total > 0 {
						done = true
						must(t, change(file))
					}
				}
				from := "dir"
				if format == formatFile {
					from = "dir/file"
				}
				result := wantCode(t, r.give(t.Context(), downloadOp(from, format, o)), api.TransferFailed)
				if got.body != nil {
					t.Errorf("the sink has it as whole: %s", result.Message)
				}
			})
		}
	}
	for name, change := range map[string]func(file string) error{
		"a file becomes a folder": func(file string) error { return replace(file, func() error { return os.Mkdir(file, 0o755) }) },
		"a file becomes a link":   func(file string) error { return replace(file, func() error { return os.Symlink("/etc/passwd", file) }) },
		"a file becomes a pipe":   func(file string) error { return replace(file, func() error { return unix.Mkfifo(file, 0o644) }) },
		"a file becomes another": func(file string) error {
			return replace(file, func() error { return os.WriteFile(file, []byte("content"), 0o644) })
		},
		"a file vanishes": os.Remove,
		"its folder becomes a link": func(file string) error {
			dir := filepath.Dir(file)
			return replace(dir, func() error { return os.Symlink("/etc", dir) })
		},
	} {
		for _, format := range []string{formatZip, formatTar} {
			t.Run(name+", "+format, func(t *testing.T) {
				t.Parallel()
				root := t.TempDir()
				put(t, filepath.Join(root, "dir/a/first"), string(random(1<<20)))
				file := put(t, filepath.Join(root, "dir/z/file"), "content")
				o, got := sink(t, http.StatusOK)
				r := open(t, root).reach(o.Server)
				done := false
				r.progress = func(_, total int64) {
					if !done && total > 0 {
						done = true
						must(t, change(file))
					}
				}
				wantCode(t, r.give(t.Context(), downloadOp("dir", format, o)), api.TransferFailed)
				if got.body != nil {
					t.Error("the sink has it as whole")
				}
			})
		}
	}
}

func rewrite(name string, at int64) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteAt([]byte("x"), at); err != nil {
		return err
	}
	later := time.Now().Add(time.Second)
	return os.Chtimes(name, later, later)
}

func replace(name string, with func() error) error {
	if err := os.RemoveAll(name); err != nil {
		return err
	}
	return with()
}

func TestF70_download_folder_skips_links(t *testing.T) {
	t.Parallel()
	for _, format := range []string{formatZip, formatTar} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			root := filepath.Join(outer, "root")
			put(t, filepath.Join(outer, "outside/secret"), "s3cret")
			put(t, filepath.Join(root, "dir/kept"), "kept")
			put(t, filepath.Join(root, "dir/.flint-0123456789ab.tmp/half"), "half")
			put(t, filepath.Join(root, "dir/.flint-"+strings.Repeat("a", 32)+".part"), "half")
			link(t, "../../outside/secret", filepath.Join(root, "dir/file"))
			link(t, "../../outside", filepath.Join(root, "dir/folder"))
			link(t, "kept", filepath.Join(root, "dir/inner"))
			skipped := 5 + len(special(t, filepath.Join(root, "dir/special")))
			o, got := sink(t, http.StatusOK)
			result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp("dir", format, o)), "")
			if result.Skipped != int64(skipped) || result.Files != 1 || result.Folders != 1 {
				t.Errorf("%d skipped, not %d; %d files, %d folders", result.Skipped, skipped, result.Files, result.Folders)
			}
			if diff := cmp.Diff(map[string]string{"dir": "-rwxr-xr-x dir", "dir/kept": "-rw-r--r-- kept"}, unpackedTree(t, format, got.body)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("other mounts", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "dir/kept"), "kept")
		tmpfs(t, filepath.Join(root, "dir/mount"), "size=1m")
		put(t, filepath.Join(root, "dir/mount/secret"), "s3cret")
		o, got := sink(t, http.StatusOK)
		result := wantCode(t, open(t, root).reach(o.Server).give(t.Context(), downloadOp("dir", "zip", o)), "")
		if result.Skipped != 1 || bytes.Contains(got.body, []byte("secret")) {
			t.Errorf("got %+v", result)
		}
	})
}
