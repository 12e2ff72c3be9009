package fileagent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func TestRead(t *testing.T) {
	t.Run("F08_read_binary_roundtrip", func(t *testing.T) {
		root := t.TempDir()
		content := "\xff\xfe\x00\x80\r\n" + testNonce
		put(t, root+"/f", content)
		got := do(t, root, api.FileOperation{Op: api.OpRead, Path: "./f"}).want(t, "")
		if string(*got.Content) != content || got.SHA256 != digestOf(content) || *got.Size != int64(len(content)) {
			t.Errorf("%q", *got.Content)
		}
	})
	t.Run("F09_read_empty_file", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "")
		got := do(t, root, api.FileOperation{Op: api.OpRead, Path: "f"}).want(t, "")
		if got.Content == nil || len(*got.Content) != 0 || got.SHA256 != emptyDigest || *got.Size != 0 {
			t.Errorf("%+v", got.FileResult)
		}
	})
	t.Run("F10_read_at_limit", func(t *testing.T) {
		root := t.TempDir()
		content := bytes.Repeat([]byte{0xff, 0}, api.MaxInline/2)
		put(t, root+"/f", string(content))
		got := do(t, root, api.FileOperation{Op: api.OpRead, Path: "f"}).want(t, "")
		if !bytes.Equal(*got.Content, content) {
			t.Error("the content is another")
		}
	})
	t.Run("F10_read_over_limit", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", string(make([]byte, api.MaxInline+1)))
		do(t, root, api.FileOperation{Op: api.OpRead, Path: "f"}).want(t, api.TooLarge)
		if err := os.Truncate(root+"/f", 1<<40); err != nil {
			t.Fatal(err)
		}
		r := open(t, root)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := r.give(t.Context(), api.FileOperation{Op: api.OpRead, Path: "f"})
		runtime.ReadMemStats(&after)
		if got.Code != api.TooLarge || after.TotalAlloc-before.TotalAlloc > 256<<10 {
			t.Errorf("code %s after %d bytes of memory", got.Code, after.TotalAlloc-before.TotalAlloc)
		}
	})
	t.Run("F11_read_grows_during_read", func(t *testing.T) {
		// Of a file in /proc the size is 0, whatever comes when it is read.
		info, err := os.Stat("/proc/kallsyms")
		if err != nil || info.Size() != 0 {
			t.Skip("this kernel has no /proc/kallsyms")
		}
		content, err := os.ReadFile("/proc/kallsyms")
		if err != nil || len(content) <= api.MaxInline {
			t.Skipf("/proc/kallsyms has %d bytes: %v", len(content), err)
		}
		got := do(t, "/proc", api.FileOperation{Op: api.OpRead, Path: "kallsyms"}).want(t, api.TooLarge)
		if got.Content != nil {
			t.Error("a cut file was given")
		}
		part := do(t, "/proc", api.FileOperation{Op: api.OpRead, Path: "kallsyms", Length: 100})
		if part.Code != "" && part.Code != api.OffsetMismatch {
			t.Errorf("a part: %s", part.Code)
		}
		// One that grows within the limit is given to its end.
		version, err := os.ReadFile("/proc/version")
		if err != nil {
			t.Fatal(err)
		}
		whole := do(t, "/proc", api.FileOperation{Op: api.OpRead, Path: "version"}).want(t, "")
		if !bytes.Equal(*whole.Content, version) || *whole.Size != int64(len(version)) || whole.SHA256 != digestOf(string(version)) {
			t.Errorf("%q of %d", *whole.Content, *whole.Size)
		}
	})
	t.Run("F12_read_fifo_does_not_block", func(t *testing.T) {
		root := t.TempDir()
		made := special(t, root+"/x")
		link(t, filepath.Base(made["fifo"]), root+"/link")
		for _, name := range []string{filepath.Base(made["fifo"]), "link"} {
			for _, op := range []api.FileOperation{
				{Op: api.OpRead, Path: name}, {Op: api.OpChecksum, Path: name}, {Op: api.OpList, Path: name},
				{Op: api.OpList, Path: name + "/below"},
			} {
				within(t, 10*time.Second, func() { do(t, root, op).want(t, api.BadPath) })
			}
		}
		text := ""
		within(t, 10*time.Second, func() {
			do(t, root, api.FileOperation{Op: api.OpWrite, Path: "link", Text: &text}).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpCopy, Path: filepath.Base(made["fifo"]), To: "y"}).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpDelete, Path: filepath.Base(made["fifo"]), ExpectSHA256: emptyDigest}).want(t, api.BadPath)
		})
	})
	t.Run("F12_a_fifo_takes_the_place_of_a_file", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "text")
		must(t, unix.Mkfifo(root+"/fifo", 0o644))
		ctx, cancel := context.WithCancel(t.Context())
		swapped := make(chan struct{})
		go func() {
			defer close(swapped)
			for ctx.Err() == nil {
				_ = unix.Renameat2(unix.AT_FDCWD, root+"/f", unix.AT_FDCWD, root+"/fifo", unix.RENAME_EXCHANGE)
			}
		}()
		r := open(t, root)
		for range 2000 {
			if file, info, err := r.volume.openFile("f"); err == nil {
				if !info.Mode().IsRegular() {
					t.Errorf("a %s was opened", kind(info.Mode()))
				}
				_ = file.Close()
			}
		}
		cancel()
		<-swapped
	})
	t.Run("F13_read_device_and_socket", func(t *testing.T) {
		root := t.TempDir()
		for _, name := range special(t, root+"/x") {
			do(t, root, api.FileOperation{Op: api.OpRead, Path: filepath.Base(name)}).want(t, api.BadPath)
		}
	})
	t.Run("F14_read_directory", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/f", "")
		do(t, root, api.FileOperation{Op: api.OpRead, Path: "d"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpRead, Path: ""}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpRead, Path: "d/f/x"}).want(t, api.BadPath)
	})
	t.Run("parts", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "0123456789")
		for name, tc := range map[string]struct {
			offset, length int64
			want           string
			code           api.Code
		}{
			"middle":         {offset: 3, length: 4, want: "3456"},
			"to the end":     {offset: 7, want: "789"},
			"past the end":   {offset: 7, length: 100, want: "789"},
			"at the end":     {offset: 10, want: ""},
			"behind the end": {offset: 11, code: api.OffsetMismatch},
			"negative":       {offset: -1, code: api.OffsetMismatch},
			"negative too":   {length: -1, code: api.OffsetMismatch},
			"too long a one": {length: api.MaxInline + 1, want: "0123456789"},
		} {
			t.Run(name, func(t *testing.T) {
				for _, kind := range []api.Op{api.OpRead, api.OpChecksum} {
					got := do(t, root, api.FileOperation{Op: kind, Path: "f", Offset: tc.offset, Length: tc.length}).want(t, tc.code)
					if tc.code == "" && (got.SHA256 != digestOf(tc.want) || *got.Size != 10 || kind == api.OpRead && string(*got.Content) != tc.want) {
						t.Errorf("%+v", got.FileResult)
					}
				}
			})
		}
	})
}

// within fails when something takes longer.
func within(t *testing.T, limit time.Duration, something func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		something()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("blocked for %s", limit)
	}
}

func TestChecksum(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(root+"/f", 64<<20); err != nil {
		t.Fatal(err)
	}
	got := do(t, root, api.FileOperation{Op: api.OpChecksum, Path: "f"}).want(t, "")
	if got.SHA256 != "3b6a07d0d404fab4e23b6d34bc6696a6a312dd92821332385e5af7c01c421351" || got.Bytes != 64<<20 || *got.Size != 64<<20 {
		t.Errorf("%+v", got.FileResult)
	}
	if got.progress == nil || *got.progress != (api.FileProgress{Done: 64 << 20, Total: 64 << 20}) {
		t.Errorf("progress %+v", got.progress)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := open(t, root)
	r.progress = func(done, _ int64) {
		if done >= 8<<20 {
			cancel()
		}
	}
	if got := r.give(ctx, api.FileOperation{Op: api.OpChecksum, Path: "f"}); got.Code != api.Cancelled || got.Bytes != 8<<20 {
		t.Errorf("%+v", got)
	}
}
