package fileagent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

func TestBreakInodeReuse(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/m.zip", zipped(t, member{"a", "from the archive"}, member{"b", "x"}, member{"c", "y"}))
	put(t, root+"/next.zip", zipped(t, member{"next", "n"}))
	killed{Root: root, Op: "unzip", Path: "m.zip", Kernel: "all renames", Renames: 4}.dies(t)
	var s, now unix.Stat_t
	must(t, unix.Stat(root+"/a", &s))
	for range 50 {
		must(t, os.Remove(root+"/a"))
		put(t, root+"/a", "the user's own, made later")
		must(t, unix.Stat(root+"/a", &now))
		if now.Ino == s.Ino {
			break
		}
	}
	t.Log("same inode:", now.Ino == s.Ino)
	do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "next.zip"}).want(t, "")
	holds(t, root+"/a", "the user's own, made later")
}

func TestBreakSweepOthersFolder(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/victim/precious", "theirs")
	giveTo(t, root+"/victim", 4321, 4321)
	must(t, os.Rename(root+"/victim", root+"/.flint-0123456789ab.tmp"))
	old := time.Now().Add(-2 * leftoverAge)
	must(t, os.Chtimes(root+"/.flint-0123456789ab.tmp", old, old))
	do(t, root, writeOp("f", "x")).want(t, "")
	holds(t, root+"/.flint-0123456789ab.tmp/precious", "theirs")
}

func TestBreakDeleteSwapped(t *testing.T) {
	root := t.TempDir()
	lost := 0
	for i := range 3000 {
		put(t, root+"/f", "f")
		put(t, root+"/d/inner", "d")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range i % 40 {
				runtime.Gosched()
			}
			_ = unix.Renameat2(unix.AT_FDCWD, root+"/f", unix.AT_FDCWD, root+"/d", unix.RENAME_EXCHANGE)
		}()
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "f"})
		<-done
		_, e1 := os.Stat(root + "/d/inner")
		_, e2 := os.Stat(root + "/f/inner")
		if e1 != nil && e2 != nil {
			lost++
		}
		_ = os.RemoveAll(root + "/f")
		_ = os.RemoveAll(root + "/d")
	}
	if lost > 0 {
		t.Errorf("%d trees were deleted without recursive", lost)
	}
}

func chain(t *testing.T, root string, name string, depth int) *os.File {
	at, err := os.Open(root)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(int(at.Fd()), name, 0o755))
		fd, err := unix.Openat(int(at.Fd()), name, unix.O_RDONLY, 0)
		must(t, err)
		_ = at.Close()
		at = os.NewFile(uintptr(fd), "d")
	}
	return at
}

func TestBreakDeepMemory(t *testing.T) {
	root := t.TempDir()
	tmpfs(t, root, "")
	n := strings.Repeat("n", 255)
	at := chain(t, root, n, maxDepth-2)
	fd, err := unix.Openat(int(at.Fd()), "f", unix.O_CREAT|unix.O_WRONLY, 0o600)
	must(t, err)
	_ = unix.Close(fd)
	_ = at.Close()
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := live()
	r := open(t, root)
	most := uint64(0)
	r.progress = func(done, _ int64) {
		if done == 1 {
			most = live() - before
		}
	}
	op := api.FileOperation{Op: api.OpDelete, Path: n, Recursive: true}
	result := r.give(t.Context(), op)
	t.Logf("%s %s; %d MiB live", result.Code, result.Message, most>>20)
	if most > 64<<20 {
		t.Error("too much")
	}
}

func TestBreakPackingMemory(t *testing.T) {
	root := t.TempDir()
	tmpfs(t, root, "")
	n := strings.Repeat("n", 255)
	at := chain(t, root, n, 60)
	for i := range 5000 {
		fd, err := unix.Openat(int(at.Fd()), fmt.Sprint(i), unix.O_CREAT|unix.O_WRONLY, 0o600)
		must(t, err)
		_ = unix.Close(fd)
	}
	_ = at.Close()
	r := open(t, root)
	r.request.Limits = r.volume.limits
	o, _ := sink(t, 200)
	r.reach(o.Server)
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	peak := uint64(0)
	r.progress = func(int64, int64) {
		if peak == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m1)
			peak = m1.HeapAlloc - m0.HeapAlloc
		}
	}
	op := downloadOp(n, "tar", o)
	result, err := r.do(t.Context(), &op)
	t.Logf("%+v %.300v; %d MiB", result, err, peak>>20)
}

func TestBreakSinkNeverEnds(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/f", "text")
	o := serve(t, nil)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	o.answers(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 4)
		_, _ = r.Body.Read(buf)
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		select {
		case <-ended:
		case <-r.Context().Done():
		}
	})
	r := open(t, root).reach(o.Server)
	r.agent.Transfer.Patience = time.Second
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	began := time.Now()
	result := r.give(ctx, downloadOp("f", "", o))
	t.Log(time.Since(began))
	if result.Code != "" {
		t.Errorf("%s: %s", result.Code, result.Message)
	}
}

func TestBreakETag(t *testing.T) {
	root := t.TempDir()
	content := random(2*partChunk + 10)
	o := serve(t, content)
	cut := true
	o.answers(func(w http.ResponseWriter, r *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		body := content
		if cut {
			body = content[:partChunk+100]
		}
		if rg := r.Header.Get("Range"); rg != "" {
			fmt.Fprintf(buf, "HTTP/1.1 206 OK\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n\r\n", partChunk, len(content)-1, len(content), len(content)-partChunk)
			_, _ = buf.Write(content[partChunk:])
		} else {
			fmt.Fprintf(buf, "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nETag: \"a\x01b\"\r\nContent-Length: %d\r\n\r\n", len(content))
			_, _ = buf.Write(body)
		}
		_ = buf.Flush()
	})
	r := open(t, root).reach(o.Server)
	first := r.give(t.Context(), uploadOp("f", o.source()))
	t.Log(first.Code, first.Message, first.Bytes)
	cut = false
	second := r.give(t.Context(), uploadOp("f", o.source()))
	if second.Code != "" {
		t.Errorf("%s: %s", second.Code, second.Message)
	}
}

func TestBreakSumsWithoutEnd(t *testing.T) {
	root := t.TempDir()
	o := serve(t, random(1000))
	base := root + "/.flint-" + uploadID("f", o.source())
	put(t, base+".part", "x")
	put(t, base+".sums", "")
	must(t, os.Truncate(base+".sums", 1<<30))
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	r := open(t, root).reach(o.Server)
	result := r.give(t.Context(), uploadOp("f", o.source()))
	runtime.ReadMemStats(&m1)
	t.Log(result.Code, result.Message)
	if n := m1.TotalAlloc - m0.TotalAlloc; n > 64<<20 {
		t.Errorf("%d MiB", n>>20)
	}
}

func TestBreakCopyDeepened(t *testing.T) {
	root := t.TempDir()
	tmpfs(t, root, "")
	for i := range 8 {
		put(t, fmt.Sprintf("%s/src/b%d/f", root, i), "x")
		must(t, os.MkdirAll(fmt.Sprintf("%s/p/%d", root, i), 0o755))
		_ = chain(t, fmt.Sprintf("%s/p/%d", root, i), "d", 1500).Close()
	}
	r := open(t, root)
	planted := false
	r.progress = func(int64, int64) {
		if planted {
			return
		}
		planted = true
		for i := range 8 {
			must(t, os.Rename(fmt.Sprintf("%s/p/%d/d", root, i), fmt.Sprintf("%s/src/b%d/d", root, i)))
		}
	}
	result := r.give(t.Context(), api.FileOperation{Op: api.OpCopy, Path: "src", To: "dst"})
	t.Log(result.Code, result.Message)
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		if strings.Contains(e.Name(), ".flint") {
			t.Error("left: ", e.Name())
		}
	}
}

func TestBreakOddNames(t *testing.T) {
	root := t.TempDir()
	for i, name := range []string{"bad\xff", "new\nline", "back\\slash", strings.Repeat("x", 255), "ünï", "tab\t", "a=b", "\x01", " lead", "trail "} {
		put(t, root+"/d/"+name, "x")
		when := time.Unix([]int64{-5, -1 << 40, 1 << 33, 1 << 40, 253402300800, 0, 1 << 31, 1 << 32, -1, 5}[i], 123456789)
		if err := os.Chtimes(root+"/d/"+name, when, when); err != nil {
			t.Log(err)
		}
	}
	must(t, os.Chown(root+"/d/a=b", 4294967294, 4294967294))
	for _, format := range []string{"zip", "tar"} {
		o, got := sink(t, 200)
		r := open(t, root).reach(o.Server)
		r.request.Limits = r.volume.limits
		r.reach(o.Server)
		result := r.give(t.Context(), downloadOp("d", format, o))
		if result.Code != "" {
			t.Errorf("%s: %s %s", format, result.Code, result.Message)
			continue
		}
		for name := range unpackedTree(t, format, got.body) {
			t.Logf("%s %q", format, name)
		}
	}
	do(t, root, api.FileOperation{Op: api.OpList, Path: "d"}).want(t, "")
}

var _ = filepath.Join
