package fileagent

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// member is a name and a content; a name that ends in a slash is a folder.
type member struct{ name, content string }

func zipped(t testing.TB, members ...member) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, m := range members {
		into, err := w.Create(m.name)
		must(t, err)
		if m.content != "" {
			_, err = io.WriteString(into, m.content)
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.String()
}

func tarred(t testing.TB, members ...member) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Size: int64(len(m.content)), Mode: 0o600}
		if strings.HasSuffix(m.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		must(t, w.WriteHeader(h))
		_, err := io.WriteString(w, m.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.String()
}

func gzipped(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := io.WriteString(w, content)
	must(t, err)
	must(t, w.Close())
	return b.String()
}

// tree is all that is in a folder: the content and mode of files, "dir" and mode, and where links lead.
func tree(t testing.TB, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, name)
		text := ""
		switch {
		case d.IsDir():
			text = "dir"
		case info.Mode()&fs.ModeSymlink != 0:
			text, err = os.Readlink(name)
			text = "-> " + text
		case info.Mode().IsRegular():
			var content []byte
			content, err = os.ReadFile(name)
			text = string(content)
		}
		all[rel] = info.Mode().Perm().String() + " " + text
		return err
	}))
	return all
}

func giveTo(t *testing.T, name string, uid, gid int) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	must(t, os.Chown(name, uid, gid))
}

func same(t *testing.T, want, got map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tree is another (-want +got):\n%s", diff)
	}
}

func TestF55_unzip_basic_merge_overwrite(t *testing.T) {
	t.Parallel()
	members := []member{{"conf/app.ini", "new"}, {"conf/deep/er/x", "x"}, {"empty/", ""}, {"top", "t"}}
	for name, c := range map[string]struct {
		op      api.Op
		archive string
		content string
	}{
		"zip":    {api.OpUnzip, "a.zip", zipped(t, members...)},
		"ZIP":    {api.OpUnzip, "A.ZIP", zipped(t, members...)},
		"tar":    {api.OpUntar, "a.tar", tarred(t, members...)},
		"tar.gz": {api.OpUntar, "a.tar.gz", gzipped(t, tarred(t, members...))},
		"tgz":    {api.OpUntar, "a.tgz", gzipped(t, tarred(t, members...))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "in", c.archive), c.content)
			must(t, os.Chmod(put(t, filepath.Join(root, "in/conf/app.ini"), "old"), 0o640))
			put(t, filepath.Join(root, "in/conf/other"), "kept")
			before := tree(t, root)

			o := do(t, root, api.FileOperation{Op: c.op, Path: "in/" + c.archive}).want(t, api.FileExists)
			if diff := cmp.Diff([]string{"conf/app.ini"}, o.Conflicts); diff != "" || o.ConflictCount != 1 {
				t.Errorf("%d conflicts: %s", o.ConflictCount, diff)
			}
			same(t, before, tree(t, root))

			o = do(t, root, api.FileOperation{Op: c.op, Path: "in/" + c.archive, Overwrite: true}).want(t, "")
			if o.Files != 3 || o.Folders != 3 || o.Bytes != 5 || o.HardlinksBroken {
				t.Errorf("%d files, %d folders, %d bytes", o.Files, o.Folders, o.Bytes)
			}
			if o.progress == nil || *o.progress != (api.FileProgress{Done: 5, Total: 5}) {
				t.Errorf("the last progress is %v", o.progress)
			}
			after := before
			after["in/conf/app.ini"] = "-rw-r----- new"
			after["in/conf/deep"], after["in/conf/deep/er"], after["in/empty"] = "-rwxr-xr-x dir", "-rwxr-xr-x dir", "-rwxr-xr-x dir"
			after["in/conf/deep/er/x"], after["in/top"] = "-rw-r--r-- x", "-rw-r--r-- t"
			same(t, after, tree(t, root))
		})
	}
	t.Run("owner kept, other names told", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "a.zip"), zipped(t, member{"x", "new"}))
		old := put(t, filepath.Join(root, "x"), "old")
		giveTo(t, old, 1234, 5678)
		must(t, os.Link(old, filepath.Join(root, "other")))
		if o := do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip", Overwrite: true}).want(t, ""); !o.HardlinksBroken {
			t.Error("nothing is said of the other name")
		}
		holds(t, old, "new")
		holds(t, filepath.Join(root, "other"), "old")
		if _, uid, gid := modeOf(t, old); uid != 1234 || gid != 5678 {
			t.Errorf("it belongs to %d and %d", uid, gid)
		}
	})
	t.Run("executable, whatever the umask", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		h := &zip.FileHeader{Name: "bin/run"}
		h.SetMode(0o4711)
		_, err := w.CreateHeader(h)
		must(t, err)
		must(t, w.Close())
		root := t.TempDir()
		put(t, filepath.Join(root, "a.zip"), b.String())
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, "")
		if got := tree(t, root)["bin/run"]; got != "-rwxr-xr-x " {
			t.Errorf("got %q", got)
		}
	})
	t.Run("what is no archive", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		put(t, filepath.Join(root, "a.txt"), zipped(t, member{"x", ""}))
		put(t, filepath.Join(root, "text.zip"), "text")
		must(t, os.Mkdir(filepath.Join(root, "dir.zip"), 0o755))
		must(t, unix.Mkfifo(filepath.Join(root, "fifo.zip"), 0o644))
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.txt"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "missing.zip"}).want(t, api.NotFound)
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: ""}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "../x.zip"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "dir.zip"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "text.zip"}).want(t, api.ArchiveInvalid)
		do(t, root, api.FileOperation{Op: api.OpUntar, Path: "text.zip"}).want(t, api.BadPath)
		within(t, 10*time.Second, func() { do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "fifo.zip"}).want(t, api.BadPath) })
	})
}

// TestRefusedArchives: whatever is wrong with an archive, nothing is changed, and the result names the entry.
// TestExtractedGroup: in a volume whose folders hand on their group, as those with an fsGroup do, all that comes out of an archive has it.
func TestExtractedGroup(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	giveTo(t, root, os.Getuid(), 4242)
	must(t, unix.Chmod(root, 0o2775))
	put(t, filepath.Join(root, "a.zip"), zipped(t, member{"d/e/f", "x"}, member{"top", "x"}))
	do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, "")
	for name, want := range map[string]os.FileMode{"d": 0o2755, "d/e": 0o2755, "d/e/f": 0o644, "top": 0o644} {
		if mode, _, gid := modeOf(t, filepath.Join(root, name)); mode != want || gid != 4242 {
			t.Errorf("%s: %o of group %d", name, mode, gid)
		}
	}
}

func TestRefusedArchives(t *testing.T) {
	t.Parallel()
	crc := []byte(zipped(t, member{"good", "content"}, member{"bad", "content"}))
	crc[bytes.LastIndex(crc, []byte("PK\x01\x02"))+16] ^= 1
	cut := tarred(t, member{"good", "x"}, member{"bad", strings.Repeat("x", 5000)})
	for name, c := range map[string]struct {
		archive, content string
		code             api.Code
		entry            string
	}{
		"F56_unzip_slip_variants":                      {"a.zip", zipped(t, member{"good", ""}, member{"../bad", ""}), api.ArchiveUnsafe, "../bad"},
		"F56_untar":                                    {"a.tar", tarred(t, member{"good", ""}, member{"../bad", ""}), api.ArchiveUnsafe, "../bad"},
		"F58_unzip_size_lies_and_crc":                  {"a.zip", string(crc), api.ArchiveInvalid, "bad"},
		"F58_untar":                                    {"a.tar", cut[:3000], api.ArchiveInvalid, "bad"},
		"F62_unzip_duplicate_and_file_folder_clash":    {"a.zip", zipped(t, member{"bad", ""}, member{"bad", ""}), api.ArchiveInvalid, "bad"},
		"a name that no JSON holds":                    {"a.tar", tarred(t, member{"../\xff", ""}), api.ArchiveUnsafe, "../\ufffd"},
		"a folder where a file is":                     {"a.zip", zipped(t, member{"new", ""}, member{"kept/bad", ""}), api.TypeConflict, "kept"},
		"a file where a folder is":                     {"a.zip", zipped(t, member{"new", ""}, member{"dir", "x"}), api.TypeConflict, "dir"},
		"a file where a link is":                       {"a.zip", zipped(t, member{"new", ""}, member{"link", "x"}), api.TypeConflict, "link"},
		"a folder where a link to a folder is":         {"a.zip", zipped(t, member{"new", ""}, member{"dirlink/x", "x"}), api.TypeConflict, "dirlink"},
		"a file beneath a link to a folder in the way": {"a.tar", tarred(t, member{"new", ""}, member{"dirlink/sub/x", "x"}), api.TypeConflict, "dirlink"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			root := filepath.Join(outer, "root")
			put(t, filepath.Join(root, c.archive), c.content)
			put(t, filepath.Join(root, "kept"), "kept")
			put(t, filepath.Join(root, "dir/sub/y"), "y")
			link(t, "kept", filepath.Join(root, "link"))
			link(t, "dir", filepath.Join(root, "dirlink"))
			before := tree(t, outer)
			op := api.OpUnzip
			if strings.HasSuffix(c.archive, "tar") {
				op = api.OpUntar
			}
			o := do(t, root, api.FileOperation{Op: op, Path: c.archive, Overwrite: true}).want(t, c.code)
			if o.ArchiveEntry != c.entry {
				t.Errorf("the entry is %q, not %q", o.ArchiveEntry, c.entry)
			}
			same(t, before, tree(t, outer))
		})
	}
}

func TestF60_unzip_limits_of_the_request(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "a.zip"), zipped(t, member{"1", "x"}, member{"2", "x"}, member{"3", "x"}))
	for name, change := range map[string]func(*protocol.Limits){
		"entries": func(l *protocol.Limits) { l.ArchiveEntries = 2 },
		"bytes":   func(l *protocol.Limits) { l.ArchiveBytes = 2 },
		"entry":   func(l *protocol.Limits) { l.ArchiveEntryBytes = 0 },
	} {
		limits := testLimits()
		change(&limits)
		o := ask(t.Context(), t, root, &protocol.Request{Operation: api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}, Limits: limits})
		o.want(t, api.ArchiveTooLarge)
		t.Log(name, o.Message)
	}
	names(t, root, "a.zip")
}

// mixed is an archive that has each kind of step: a new file, a new tree, a file that is replaced at the top and one beneath.
func mixed(t testing.TB) (archive string, before func(root string)) {
	return zipped(t, member{"a", "new"}, member{"dir/b", "new"}, member{"dir/new", "new"}, member{"tree/x/y", "new"}, member{"z", "new"}),
		func(root string) {
			for _, name := range []string{"a", "dir/b", "dir/kept"} {
				must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
				must(t, os.WriteFile(filepath.Join(root, name), []byte("old"), 0o600))
			}
		}
}

func landedTree(before map[string]string) map[string]string {
	after := map[string]string{}
	for name, text := range before {
		after[name] = text
	}
	after["a"], after["dir/b"], after["dir/new"], after["z"] = "-rw------- new", "-rw------- new", "-rw-r--r-- new", "-rw-r--r-- new"
	after["tree"], after["tree/x"], after["tree/x/y"] = "-rwxr-xr-x dir", "-rwxr-xr-x dir", "-rw-r--r-- new"
	return after
}

// kernels are file systems by what their renames can do.
func kernels() map[string]func(int, string, int, string, uint) error {
	refusing := func(flags uint) func(int, string, int, string, uint) error {
		return func(of int, o string, nf int, n string, f uint) error {
			if f&flags != 0 {
				return unix.EINVAL
			}
			return unix.Renameat2(of, o, nf, n, f)
		}
	}
	return map[string]func(int, string, int, string, uint) error{
		"all renames": unix.Renameat2, "no exchange": refusing(unix.RENAME_EXCHANGE), "neither": refusing(unix.RENAME_EXCHANGE | unix.RENAME_NOREPLACE),
	}
}

func TestF64_unzip_rename_fails_midway(t *testing.T) {
	t.Parallel()
	for name, kernel := range kernels() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for failAt := 1; ; failAt++ {
				root := t.TempDir()
				archive, prepare := mixed(t)
				prepare(root)
				put(t, filepath.Join(root, "m.zip"), archive)
				before := tree(t, root)
				r := open(t, root)
				calls := 0
				r.volume.renameat2 = func(of int, o string, nf int, n string, f uint) error {
					if calls++; calls == failAt {
						return unix.EIO
					}
					return kernel(of, o, nf, n, f)
				}
				result := r.give(t.Context(), api.FileOperation{Op: api.OpUnzip, Path: "m.zip", Overwrite: true})
				if calls < failAt {
					if result.Code != "" || failAt < 7 {
						t.Fatalf("%s after %d renames: %s", result.Code, calls, result.Message)
					}
					same(t, landedTree(before), tree(t, root))
					return
				}
				if result.Code != api.InternalServerError {
					t.Errorf("rename %d: code %q: %s", failAt, result.Code, result.Message)
				}
				same(t, before, tree(t, root))
			}
		})
	}
}

func TestF64_unzip_cancelled_midway(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	archive, prepare := mixed(t)
	prepare(root)
	put(t, filepath.Join(root, "m.zip"), archive)
	before := tree(t, root)
	r := open(t, root)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	r.volume.renameat2 = func(of int, o string, nf int, n string, f uint) error {
		if calls++; calls == 4 {
			cancel()
		}
		return unix.Renameat2(of, o, nf, n, f)
	}
	if result := r.give(ctx, api.FileOperation{Op: api.OpUnzip, Path: "m.zip", Overwrite: true}); result.Code != api.Cancelled {
		t.Errorf("%s: %s", result.Code, result.Message)
	}
	same(t, before, tree(t, root))
}

// killEnv tells a process of this test that it is one that gets killed, and when.
const killEnv = "FLINT_TEST_KILLED"

// killed is what such a process is to do.
type killed struct {
	Root, Op, Path, Kernel string
	// Renames is before which rename it kills itself; 0 is never.
	Renames int
	// Source and Bytes are of an upload: it kills itself when so many have arrived.
	Source *api.FileSource
	Bytes  int64
	Roots  []byte
}

func init() { //nolint:gochecknoinits // before the tests: this process is none of theirs
	text := os.Getenv(killEnv)
	if text == "" {
		return
	}
	var k killed
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		panic(err)
	}
	k.run()
	os.Exit(3) // it should be dead by now
}

// run is what the process does.
func (k killed) run() {
	limits := protocol.DefaultLimits()
	limits.ReservePercent = 0
	if k.Source != nil {
		limits.URLPrivate, limits.URLHosts = true, []string{hostOf(k.Source.URL)}
	}
	v, err := openVolume(k.Root, "", limits, time.Now)
	if err != nil {
		panic(err)
	}
	calls := 0
	v.renameat2 = func(of int, o string, nf int, n string, f uint) error {
		if calls++; calls == k.Renames {
			die()
		}
		return kernels()[k.Kernel](of, o, nf, n, f)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.Roots)
	r := &run{
		agent: &Agent{Errors: os.Stderr, Transfer: Transfer{Roots: roots}}, volume: v, request: &protocol.Request{Limits: limits}, room: protocol.MaxResult,
		progress: func(done, _ int64) {
			if k.Source != nil && done >= k.Bytes {
				die()
			}
		},
	}
	result, err := r.do(context.Background(), &api.FileOperation{Op: api.Op(k.Op), Path: k.Path, Overwrite: k.Source == nil, Source: k.Source})
	fmt.Fprintf(os.Stderr, "%+v, %v\n", result, err)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dies runs a process to its death.
func (k killed) dies(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(k)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), killEnv+"="+string(text))
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || ctx.Err() != nil {
		t.Fatalf("the process ended with %v: %s", err, output)
	}
}

// TestF64_unzip_killed_midway kills a run before each of its renames; the next run in the folder undoes what it did.
func TestF64_unzip_killed_midway(t *testing.T) {
	t.Parallel()
	archive, prepare := mixed(t)
	for kernel, renames := range map[string]int{"all renames": 7, "no exchange": 9, "neither": 9} {
		t.Run(kernel, func(t *testing.T) {
			t.Parallel()
			for at := 1; at <= renames; at++ {
				root := t.TempDir()
				prepare(root)
				put(t, filepath.Join(root, "m.zip"), archive)
				put(t, filepath.Join(root, "next.zip"), zipped(t, member{"next", "n"}))
				before := tree(t, root)
				killed{Root: root, Op: string(api.OpUnzip), Path: "m.zip", Kernel: kernel, Renames: at}.dies(t)

				r := open(t, root)
				r.volume.renameat2 = kernels()[kernel]
				r.volume.now = func() time.Time { return time.Now().Add(2 * leftoverAge) }
				if result := r.give(t.Context(), api.FileOperation{Op: api.OpUnzip, Path: "next.zip"}); result.Code != "" {
					t.Fatalf("rename %d: %s: %s", at, result.Code, result.Message)
				}
				before["next"] = "-rw-r--r-- n"
				same(t, before, tree(t, root))
			}
		})
	}
}

func TestRepairTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	const name = ".flint-0123456789ab.undo"
	journal := func(path string, made identity) string {
		text, err := json.Marshal(step{Path: []byte(path), Made: made})
		must(t, err)
		return string(text) + "\n"
	}
	made := func(name string) identity { return identityOf(t, name) }
	for what, prepare := range map[string]func(t *testing.T, root, outside string){
		"another user's": func(t *testing.T, root, _ string) {
			put(t, filepath.Join(root, name, journalName), journal("victim", made(filepath.Join(root, "victim"))))
			giveTo(t, filepath.Join(root, name), 1234, 1234)
		},
		"another user's journal": func(t *testing.T, root, _ string) {
			giveTo(t, put(t, filepath.Join(root, name, journalName), journal("victim", made(filepath.Join(root, "victim")))), 1234, 1234)
		},
		"a path that leads out": func(t *testing.T, root, outside string) {
			put(t, filepath.Join(root, name, journalName), journal("../outside/secret", made(filepath.Join(outside, "secret"))))
		},
		"a link that leads out": func(t *testing.T, root, outside string) {
			link(t, outside, filepath.Join(root, "dir"))
			put(t, filepath.Join(root, name, journalName), journal("dir/secret", made(filepath.Join(outside, "secret"))))
		},
		"a link to a folder": func(t *testing.T, root, outside string) {
			put(t, filepath.Join(outside, journalName), journal("victim", made(filepath.Join(root, "victim"))))
			link(t, outside, filepath.Join(root, name))
		},
		"text": func(t *testing.T, root, _ string) { put(t, filepath.Join(root, name, journalName), "text") },
		"no journal": func(t *testing.T, root, _ string) {
			must(t, os.Mkdir(filepath.Join(root, name), 0o755))
		},
		"look-alikes": func(t *testing.T, root, _ string) {
			for _, alike := range []string{".flint-0123456789ab.undo2", "x" + name, ".flint-0123456789AB.undo", ".flint-0123456789abc.undo"} {
				put(t, filepath.Join(root, alike, journalName), journal("victim", made(filepath.Join(root, "victim"))))
			}
		},
		"of a run that is alive": func(t *testing.T, root, _ string) {
			file, err := os.OpenFile(put(t, filepath.Join(root, name, journalName), journal("victim", made(filepath.Join(root, "victim")))), os.O_RDWR, 0)
			must(t, err)
			t.Cleanup(func() { _ = file.Close() })
			must(t, lock(file))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			root, outside := filepath.Join(outer, "root"), filepath.Join(outer, "outside")
			put(t, filepath.Join(root, "victim"), "mine")
			put(t, filepath.Join(outside, "secret"), "secret")
			prepare(t, root, outside)
			put(t, filepath.Join(root, "a.zip"), zipped(t, member{"x", "x"}))
			want := tree(t, outer)
			do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, "")
			want["root/x"] = "-rw-r--r-- x"
			if what == "a link that leads out" { // the step has nothing to be undone, and so is undone
				delete(want, "root/"+name)
				delete(want, "root/"+name+"/"+journalName)
			}
			same(t, want, tree(t, outer))
		})
	}
}

// identityOf is what a journal has of a file.
func identityOf(t *testing.T, name string) identity {
	t.Helper()
	file, err := os.Open(filepath.Dir(name))
	must(t, err)
	dir := newFolder(file)
	defer dir.close()
	made, err := dir.stat(filepath.Base(name))
	must(t, err)
	return dir.identify(filepath.Base(name), &made)
}

// TestRepairOfWhatWasMadeLater has a user replace what a killed run has made: the number of the inode is the same, and the file is another.
func TestRepairOfWhatWasMadeLater(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	put(t, filepath.Join(root, "m.zip"), zipped(t, member{"a", "from the archive"}, member{"d/b", ""}, member{"z", ""}))
	put(t, filepath.Join(root, "next.zip"), zipped(t, member{"next", "n"}))
	killed{Root: root, Op: string(api.OpUnzip), Path: "m.zip", Kernel: "all renames", Renames: 4}.dies(t) // "d" and "a" are there
	file, folder := filepath.Join(root, "a"), filepath.Join(root, "d")
	before := [2]uint64{identityOf(t, file).Inode, identityOf(t, folder).Inode}
	must(t, os.Remove(file))
	put(t, file, "made later")
	must(t, os.RemoveAll(folder))
	put(t, filepath.Join(folder, "mine"), "made later")
	t.Logf("inodes %v, then %v", before, [2]uint64{identityOf(t, file).Inode, identityOf(t, folder).Inode})
	do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "next.zip"}).want(t, "")
	holds(t, file, "made later")
	holds(t, filepath.Join(folder, "mine"), "made later")
	names(t, root, "a", "d", "m.zip", "next", "next.zip")
}

func TestF63_unzip_target_becomes_link_midway(t *testing.T) {
	t.Parallel()
	swap := func(root, outside, name string) error {
		full := filepath.Join(root, name)
		if err := os.Rename(full, filepath.Join(outside, "was")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return os.Symlink(filepath.Join(outside, "dir"), full)
	}
	for name, kernel := range kernels() {
		for _, victim := range []string{"a", "dir", "dir/b", "dir/new", "tree", "z"} {
			t.Run(name+", "+victim, func(t *testing.T) {
				t.Parallel()
				outer := t.TempDir()
				root, outside := filepath.Join(outer, "root"), filepath.Join(outer, "outside")
				archive, prepare := mixed(t)
				prepare(root)
				put(t, filepath.Join(root, "m.zip"), archive)
				put(t, filepath.Join(outside, "dir/b"), "secret")
				r := open(t, root)
				r.volume.renameat2 = kernel
				var planted map[string]string
				r.progress = func(int64, int64) {
					if planted == nil {
						must(t, swap(root, outside, victim))
						planted = tree(t, outer)
					}
				}
				result := r.give(t.Context(), api.FileOperation{Op: api.OpUnzip, Path: "m.zip", Overwrite: true})
				if result.Code != api.TypeConflict {
					t.Errorf("%q: %s", result.Code, result.Message)
				}
				for full := range planted {
					if strings.Contains(full, ".flint-") {
						delete(planted, full) // the work folder
					}
				}
				same(t, planted, tree(t, outer))
			})
		}
	}
}

func TestF65_unzip_leftover_workdir_swept(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := time.Now().Add(-2 * leftoverAge)
	alike := []string{".flint-0123456789AB.tmp", ".flint-0123456789abc.tmp", "x.flint-0123456789ab.tmp", ".flint-0123456789ab.tmp~", ".flint-unzip-0123456789ab"}
	for _, name := range append(alike, ".flint-0123456789ab.tmp", ".flint-aaaaaaaaaaaa.tmp") {
		put(t, filepath.Join(root, name, "0/x"), "left")
		must(t, os.Chtimes(filepath.Join(root, name), old, old))
	}
	must(t, os.Chtimes(filepath.Join(root, ".flint-aaaaaaaaaaaa.tmp"), time.Now(), time.Now())) // young: maybe not locked yet
	put(t, filepath.Join(root, "a.zip"), zipped(t, member{"x", "x"}))
	do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, "")
	want := append(alike, ".flint-aaaaaaaaaaaa.tmp", "a.zip", "x")
	slices.Sort(want)
	names(t, root, want...)
}

func TestF66_unzip_conflict_list_bounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	tmpfs(t, root, "size=200m,nr_inodes=0")
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	must(t, os.Mkdir(filepath.Join(root, "d"), 0o755))
	const many = 50_000
	for i := range many {
		name := "d/" + strings.Repeat("n", 195) + fmt.Sprintf("%05d", many-1-i)
		_, err := w.CreateHeader(&zip.FileHeader{Name: name})
		must(t, err)
		fd, err := unix.Open(filepath.Join(root, name), unix.O_CREAT|unix.O_WRONLY, 0o644)
		must(t, err)
		must(t, unix.Close(fd))
	}
	must(t, w.Close())
	put(t, filepath.Join(root, "a.zip"), b.String())
	o := do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, api.FileExists)
	text, err := json.Marshal(o.Conflicts)
	must(t, err)
	if o.ConflictCount != many || len(o.Conflicts) > api.MaxConflicts || len(o.Conflicts) < 35 || len(text) > 8<<10 {
		t.Errorf("%d conflicts, %d of them named in %d bytes", o.ConflictCount, len(o.Conflicts), len(text))
	}
	if want := "d/" + strings.Repeat("n", 195) + "00000"; o.Conflicts[0] != want {
		t.Errorf("the first is %q", o.Conflicts[0])
	}
	t.Run("short names", func(t *testing.T) {
		t.Parallel()
		paths := make([]string, 1000)
		for i := range paths {
			paths[i] = strconv.Itoa(i)
		}
		if refused := conflict(paths); len(refused.result.Conflicts) != api.MaxConflicts || refused.result.ConflictCount != 1000 {
			t.Errorf("%d of %d", len(refused.result.Conflicts), refused.result.ConflictCount)
		}
	})
}

func TestF67_unzip_gbk_names_macosx_skipped(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range []string{"\xd6\xd0\xce\xc4\\\xc4\xe3\xba\xc3.txt", "__MACOSX/._x", "é"} {
		_, err := w.CreateRaw(&zip.FileHeader{Name: name})
		must(t, err)
	}
	must(t, w.Close())
	root := t.TempDir()
	put(t, filepath.Join(root, "a.zip"), b.String())
	do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, "")
	names(t, root, "a.zip", "é", "中文")
	names(t, filepath.Join(root, "中文"), "你好.txt")
}

func TestF68_unzip_exact_space_boundary(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]int64{"need = avail": 0, "need = avail + 1": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			tmpfs(t, root, "size=8m")
			// Room for the archive itself is taken first.
			file := put(t, filepath.Join(root, "a.zip"), strings.Repeat("x", 64<<10))
			var s unix.Statfs_t
			must(t, unix.Statfs(root, &s))
			available := int64(s.Bavail) * s.Bsize
			// A folder and two files have 4,096 bytes each beside their contents.
			content := zipped(t, member{"d/zeros", string(make([]byte, available-3*4096-1000+more))}, member{"d/x", strings.Repeat("x", 1000)})
			must(t, os.WriteFile(file, []byte(content+strings.Repeat("\x00", 64<<10-len(content))), 0o644))
			o := do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"})
			if more == 0 {
				o.want(t, "")
				names(t, filepath.Join(root, "d"), "x", "zeros")
				return
			}
			o.want(t, api.VolumeFull)
			if *o.NeedBytes != available+1 || *o.AvailableBytes != available {
				t.Errorf("need %d, available %d", *o.NeedBytes, *o.AvailableBytes)
			}
			names(t, root, "a.zip")
		})
	}
	t.Run("inodes", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		tmpfs(t, root, "size=8m,nr_inodes=10")
		put(t, filepath.Join(root, "a.zip"), zipped(t, member{"1", ""}, member{"2", ""}, member{"3", ""}, member{"4", ""}, member{"5", ""}, member{"6", ""}, member{"7", ""}, member{"8", ""}, member{"9", ""}))
		do(t, root, api.FileOperation{Op: api.OpUnzip, Path: "a.zip"}).want(t, api.VolumeFull)
		names(t, root, "a.zip")
	})
	t.Run("full while it is extracted", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		tmpfs(t, root, "size=4m")
		put(t, filepath.Join(root, "a.zip"), zipped(t, member{"small", "x"}, member{"zeros", string(make([]byte, 2<<20))}))
		put(t, filepath.Join(root, "small"), "old")
		before := tree(t, root)
		r := open(t, root)
		filled := false
		r.progress = func(int64, int64) {
			if !filled {
				filled = true
				_ = os.WriteFile(filepath.Join(root, "filler"), make([]byte, 4<<20), 0o644)
			}
		}
		if result := r.give(t.Context(), api.FileOperation{Op: api.OpUnzip, Path: "a.zip", Overwrite: true}); result.Code != api.VolumeFull {
			t.Errorf("%s: %s", result.Code, result.Message)
		}
		must(t, os.Remove(filepath.Join(root, "filler")))
		same(t, before, tree(t, root))
	})
}

// TestF60_unzip_many_files extracts as many as may be, in bounded memory.
func TestF60_unzip_many_files(t *testing.T) { //nolint:paralleltest // it measures the memory
	root := t.TempDir()
	tmpfs(t, root, "size=400m,nr_inodes=0")
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := range 20_000 {
		into, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("many/%03d/%d", i%500, i)})
		must(t, err)
		_, err = io.WriteString(into, "x")
		must(t, err)
	}
	must(t, w.Close())
	put(t, filepath.Join(root, "a.zip"), b.String())
	b = bytes.Buffer{}
	var before, peak runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := open(t, root)
	most, calls := uint64(0), 0
	r.progress = func(int64, int64) {
		if calls++; calls%1000 == 0 {
			runtime.ReadMemStats(&peak)
			most = max(most, peak.HeapAlloc)
		}
	}
	result := r.give(t.Context(), api.FileOperation{Op: api.OpUnzip, Path: "a.zip"})
	if result.Code != "" || result.Files != 20_000 || result.Folders != 501 {
		t.Errorf("%s: %s, %d files, %d folders", result.Code, result.Message, result.Files, result.Folders)
	}
	if used := int64(most) - int64(before.HeapAlloc); used > 64<<20 {
		t.Errorf("%d bytes were held", used)
	}
	names(t, root, "a.zip", "many")
}

// FuzzExtract: whatever the bytes are, nothing outside of the folder is touched, and a refusal leaves nothing in it.
func FuzzExtract(f *testing.F) {
	for _, data := range []string{
		zipped(f, member{"a/b", "x"}, member{"kept", "new"}), tarred(f, member{"a/b", "x"}, member{"kept", "new"}), gzipped(f, tarred(f, member{"c", "x"})),
		zipped(f, member{"../outside/secret", "x"}), tarred(f, member{"out/secret", "x"}), zipped(f, member{"out/secret", "x"}),
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		outer := t.TempDir()
		root := filepath.Join(outer, "root")
		put(t, filepath.Join(outer, "outside/secret"), "secret")
		put(t, filepath.Join(root, "kept"), "kept")
		link(t, "../outside", filepath.Join(root, "out"))
		for name, op := range map[string]api.Op{"a.zip": api.OpUnzip, "a.tar": api.OpUntar} {
			put(t, filepath.Join(root, name), string(data))
			before := tree(t, outer)
			limits := testLimits()
			limits.ArchiveEntries, limits.ArchiveBytes, limits.ArchiveEntryBytes, limits.ArchiveRatio = 50, 1<<20, 1<<19, 10
			o := ask(t.Context(), t, root, &protocol.Request{Operation: api.FileOperation{Op: op, Path: name, Overwrite: true}, Claim: testClaim, Limits: limits})
			after := tree(t, outer)
			if o.Code != "" {
				same(t, before, after)
			}
			if after["outside/secret"] != before["outside/secret"] || after["outside"] != before["outside"] || len(after) < len(before) {
				t.Errorf("something else was changed: %v", after)
			}
		}
	})
}
