package fileagent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// The cases of the agent have numbers, F01 to F72, which the names of tests carry. Not here:
//   - F20, F21 and F45: files that are withheld or redacted. Flint's API has none.
//   - F33 and F35: how a request travels, in package protocol. F34, what a request may leave out, in package api; what "" does is here.
//   - F47 to F70: transfers and archives, in tests of their own.

const (
	testNonce = "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
	testClaim = "data"
)

func testLimits() protocol.Limits {
	limits := protocol.DefaultLimits()
	limits.ReservePercent = 0
	return limits
}

// outcome is what a run gave, as its reader sees it.
type outcome struct {
	*api.FileResult
	progress *api.FileProgress
	exit     int
	stderr   string
}

// do runs one operation on the folder as a pod would: the request comes through the environment, the result through log and message.
func do(t *testing.T, root string, op api.FileOperation) outcome {
	t.Helper()
	return ask(t.Context(), t, root, &protocol.Request{Operation: op, Claim: testClaim, Limits: testLimits()})
}

func ask(ctx context.Context, t *testing.T, root string, request *protocol.Request) outcome {
	t.Helper()
	var log, stderr bytes.Buffer
	var message []byte
	agent := &Agent{
		Root: root, Nonce: testNonce, Out: &log, Errors: &stderr, Now: time.Now,
		Termination: func(text []byte) error { message = text; return nil },
	}
	env := map[string]string{protocol.EnvNonce: testNonce, protocol.EnvRoot: root, protocol.EnvRequestFile: "request"}
	given, err := protocol.DecodeEnv(func(name string) string { return env[name] }, func(string) ([]byte, error) {
		return protocol.EncodeFile(request), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	exit := agent.Run(ctx, given.Request)
	// Whatever else is in the log must not matter.
	log.WriteString(stderr.String())
	result, progress, err := protocol.Read(&log, testNonce, string(message))
	if err != nil {
		t.Fatalf("%v\nstderr: %s", err, stderr.String())
	}
	if result.Op != request.Operation.Op {
		t.Errorf("the result is of %q", result.Op)
	}
	return outcome{result, progress, exit, stderr.String()}
}

// want checks the code, and that the agent ended as one that has done its work.
func (o outcome) want(t *testing.T, code api.Code) outcome {
	t.Helper()
	if o.Code != code || o.exit != ExitDone {
		t.Fatalf("code %q, exit %d, message %q, stderr %q; want code %q", o.Code, o.exit, o.Message, o.stderr, code)
	}
	if code != "" && o.Message == "" {
		t.Error("a refusal without a message")
	}
	return o
}

// open is a run whose parts a test may replace.
func open(t *testing.T, root string) *run {
	t.Helper()
	v, err := openVolume(root, "", testLimits(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.close)
	return &run{
		agent: &Agent{Errors: io.Discard}, volume: v, request: &protocol.Request{Claim: testClaim},
		progress: func(int64, int64) {}, room: protocol.MaxResult,
	}
}

// looked is a context that does something each time it is looked at.
type looked struct {
	context.Context
	do func(times int)
	n  int
}

func (l *looked) Err() error {
	l.n++
	l.do(l.n)
	return l.Context.Err()
}

// give is the result of an operation of a run.
func (r *run) give(ctx context.Context, op api.FileOperation) *api.FileResult {
	result, err := r.do(ctx, &op)
	return r.agent.conclude(&op, result, err)
}

func put(t *testing.T, name, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// holds checks what a file has.
func holds(t *testing.T, name, content string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil || string(text) != content {
		t.Errorf("%s: %.80q, %v; want %.80q", name, text, err, content)
	}
}

func absent(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v; want it not to be there", name, err)
	}
}

// names checks a folder's names: nothing prepared is left there either.
func names(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(entries))
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("%s has %q, want %q", dir, got, want)
	}
}

// mountAt mounts, or skips the test where that is not allowed.
func mountAt(t *testing.T, source, target, kind string, flags uintptr, data string) {
	t.Helper()
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		t.Skipf("mounting %s needs root: %v", kind, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}

func tmpfs(t *testing.T, target, data string) { mountAt(t, "tmpfs", target, "tmpfs", 0, data) }
func bind(t *testing.T, source, target string) {
	mountAt(t, source, target, "bind", unix.MS_BIND, "")
}

// asUser runs something as another user of the file system: that is a property of a thread.
func asUser(t *testing.T, uid int, something func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		if unix.Setfsgid(uid) != nil || unix.Setfsuid(uid) != nil {
			t.Error("setfsuid is not there")
			return
		}
		something()
	}()
	<-done
}

func special(t *testing.T, name string) map[string]string {
	t.Helper()
	made := map[string]string{"fifo": name + "-fifo", "socket": name + "-socket"}
	if err := unix.Mkfifo(made["fifo"], 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	here, err := os.Open(filepath.Dir(name)) // a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(here.Fd())), filepath.Base(made["socket"]))
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: short}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(name+"-device", unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))); err == nil {
		made["device"] = name + "-device"
	} else {
		t.Logf("without a device: mknod needs root: %v", err)
	}
	return made
}

func TestExitCodes(t *testing.T) {
	t.Run("F72_refusal_is_0", func(t *testing.T) {
		do(t, t.TempDir(), api.FileOperation{Op: api.OpRead, Path: "none"}).want(t, api.NotFound)
		do(t, t.TempDir(), api.FileOperation{Op: "chmod", Path: "x"}).want(t, api.BadRequest)
	})
	t.Run("F72_unreadable_mount_is_1", func(t *testing.T) {
		got := do(t, filepath.Join(t.TempDir(), "none\nflint"), api.FileOperation{Op: api.OpList})
		if got.exit != ExitFailed || got.Code != api.InternalServerError {
			t.Errorf("exit %d, code %q", got.exit, got.Code)
		}
		if strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("stderr is not one quoted line: %q", got.stderr)
		}
	})
	t.Run("F72_nobody_to_tell_is_1", func(t *testing.T) {
		gone := errors.New("gone")
		for name, tc := range map[string]struct {
			log     io.Writer
			message error
			content string
			want    int
		}{
			"neither":                         {log: failing{gone}, message: gone, want: ExitFailed},
			"a message that has all":          {log: failing{gone}, want: ExitDone},
			"a message that has not all":      {log: failing{gone}, content: strings.Repeat("x", 5000), want: ExitFailed},
			"a log without a message":         {log: io.Discard, message: gone, want: ExitDone},
			"a log without message, long too": {log: io.Discard, message: gone, content: strings.Repeat("x", 5000), want: ExitDone},
		} {
			t.Run(name, func(t *testing.T) {
				root := t.TempDir()
				put(t, root+"/f", tc.content)
				agent := &Agent{Root: root, Nonce: testNonce, Out: tc.log, Errors: io.Discard, Now: time.Now,
					Termination: func([]byte) error { return tc.message }}
				got := agent.Run(t.Context(), &protocol.Request{Operation: api.FileOperation{Op: api.OpRead, Path: "f"}})
				if got != tc.want {
					t.Errorf("exit %d, want %d", got, tc.want)
				}
			})
		}
	})
	t.Run("F72_panic_is_1_and_has_a_result", func(t *testing.T) {
		var log, stderr bytes.Buffer
		agent := &Agent{Root: t.TempDir(), Nonce: testNonce, Out: &log, Errors: &stderr, Now: time.Now, Termination: func([]byte) error { return nil }}
		result := agent.attempt(t.Context(), &protocol.Request{Operation: api.FileOperation{Op: api.OpChecksum, Path: "f"}}, nil)
		if result.Code != api.NotFound {
			t.Fatalf("%+v", result)
		}
		put(t, agent.Root+"/f", "x")
		result = agent.attempt(t.Context(), &protocol.Request{Operation: api.FileOperation{Op: api.OpChecksum, Path: "f"}}, nil)
		if result.Code != api.InternalServerError || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%+v\n%s", result, stderr.String())
		}
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestSubPath(t *testing.T) {
	base := t.TempDir()
	put(t, base+"/in/a/f", "inside")
	put(t, base+"/in/secret", "of the volume")
	put(t, base+"/secret", "outside")
	link(t, "../secret", base+"/in/a/out")
	link(t, "a", base+"/in/link")
	link(t, "..", base+"/in/up")
	if err := unix.Mkfifo(base+"/in/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		sub, path string
		code      api.Code
	}{
		"a folder":                  {sub: "a", path: "f"},
		"a folder behind a link":    {sub: "link", path: "f"},
		"none":                      {sub: "", path: "a/f"},
		"not there":                 {sub: "b", path: "f", code: api.NotFound},
		"a file":                    {sub: "a/f", path: "f", code: api.BadPath},
		"a pipe":                    {sub: "fifo", path: "f", code: api.BadPath},
		"out of the volume":         {sub: "..", path: "f", code: api.BadPath},
		"out of the volume by link": {sub: "up", path: "secret", code: api.BadPath},
		"absolute":                  {sub: "/a", path: "f", code: api.BadPath},
		"out of the sub path":       {sub: "a", path: "../secret", code: api.BadPath},
		"out of it by a link":       {sub: "a", path: "out", code: api.BadPath},
	} {
		t.Run(name, func(t *testing.T) {
			got := ask(t.Context(), t, base+"/in", &protocol.Request{
				Operation: api.FileOperation{Op: api.OpRead, Path: tc.path}, SubPath: tc.sub, Limits: testLimits(),
			}).want(t, tc.code)
			if tc.code == "" && string(*got.Content) != "inside" {
				t.Errorf("%q", *got.Content)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/f", "old")
	put(t, root+"/d/f", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	text := "new"
	for _, op := range []api.FileOperation{
		{Op: api.OpWrite, Path: "f", Text: &text}, {Op: api.OpDelete, Path: "f"}, {Op: api.OpDelete, Path: "d", Recursive: true},
		{Op: api.OpCopy, Path: "d", To: "e"}, {Op: api.OpRename, Path: "f", To: "g"}, {Op: api.OpList}, {Op: api.OpChecksum, Path: "f"},
		{Op: api.OpBatch, Operations: []api.FileOperation{{Op: api.OpDelete, Path: "f"}}},
	} {
		t.Run(string(op.Op), func(t *testing.T) {
			ask(ctx, t, root, &protocol.Request{Operation: op, Limits: testLimits()}).want(t, api.Cancelled)
		})
	}
	names(t, root, "d", "f")
	holds(t, root+"/f", "old")
}

// What a file system says is told as what it is, and never with a path of the host.
func TestCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code api.Code
	}{
		"missing":     {unix.ENOENT, api.NotFound},
		"full":        {unix.ENOSPC, api.VolumeFull},
		"quota":       {unix.EDQUOT, api.VolumeFull},
		"file limit":  {unix.EFBIG, api.TooLarge},
		"mounts":      {unix.EXDEV, api.CrossDevice},
		"not empty":   {unix.ENOTEMPTY, api.NotEmpty},
		"there":       {unix.EEXIST, api.FileExists},
		"read-only":   {unix.EROFS, api.PermissionDenied},
		"not allowed": {unix.EACCES, api.PermissionDenied},
		"immutable":   {unix.EPERM, api.PermissionDenied},
		"disk":        {unix.EIO, api.InternalServerError},
		"server gone": {unix.ESTALE, api.InternalServerError},
		"corrupted":   {unix.EBADMSG, api.InternalServerError},
		"loop":        {unix.ELOOP, api.BadPath},
		"unknown":     {errors.New("path escapes from parent"), api.BadPath},
		"stopped":     {context.Canceled, api.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			err := locate("a\nb", &os.PathError{Op: "openat", Path: "/the/host/a\nb", Err: tc.err})
			got := conclude(&api.FileOperation{Op: api.OpRead}, &api.FileResult{Files: 3}, err)
			if got.Code != tc.code || got.Message == "" || got.Files != 3 {
				t.Errorf("%+v", got)
			}
			if strings.Contains(got.Message, "/the/host") || strings.Contains(got.Message, "\n") {
				t.Errorf("message %q", got.Message)
			}
		})
	}
}
