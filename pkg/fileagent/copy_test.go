package fileagent

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

func copyOp(from, to string) api.FileOperation {
	return api.FileOperation{Op: api.OpCopy, Path: from, To: to}
}

func TestCopy(t *testing.T) {
	stamp := time.Unix(1_500_000_000, 123_456_000)
	t.Run("a_file", func(t *testing.T) {
		root := t.TempDir()
		content := strings.Repeat("0123456789", 1<<20)
		put(t, root+"/f", content)
		if err := unix.Chmod(root+"/f", 0o4750); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(root+"/f", stamp, stamp); err != nil {
			t.Fatal(err)
		}
		got := do(t, root, copyOp("f", "g")).want(t, "")
		if got.Files != 1 || got.Bytes != 10<<20 || got.progress == nil || got.progress.Done != 10<<20 || got.progress.Total != 10<<20 {
			t.Errorf("%+v, %+v", got.FileResult, got.progress)
		}
		holds(t, root+"/g", content)
		info, err := os.Stat(root + "/g")
		if mode, _, _ := modeOf(t, root+"/g"); err != nil || mode != 0o750 || !info.ModTime().Equal(stamp) {
			t.Errorf("%o, %s, %v", mode, info.ModTime(), err)
		}
		names(t, root, "f", "g")
	})
	t.Run("a_file_that_nobody_may_read", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "private")
		must(t, os.Chmod(root+"/f", 0))
		if os.Getuid() != 0 {
			t.Skip("only root can read it")
		}
		do(t, root, copyOp("f", "g")).want(t, "")
		if mode, _, _ := modeOf(t, root+"/g"); mode != 0 {
			t.Errorf("%o", mode)
		}
	})
	t.Run("changed_after_its_digest_was_taken", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "before")
		r := open(t, root)
		r.progress = func(int64, int64) { put(t, root+"/f", "after!") } // as long
		op := copyOp("f", "g")
		op.ExpectSHA256 = digestOf("before")
		if got := r.give(t.Context(), op); got.Code != api.FileChanged {
			t.Errorf("%+v", got)
		}
		names(t, root, "f")
	})
	t.Run("becomes_too_deep_meanwhile", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "")
		for _, name := range []string{"a", "b"} {
			put(t, root+"/tree/"+name+"/f", "x")
			at, err := os.OpenRoot(root)
			must(t, err)
			for i := range maxDepth + 1 {
				inner := name
				if i > 0 {
					inner = "d"
				}
				must(t, at.Mkdir(inner, 0o755))
				next, err := at.OpenRoot(inner)
				must(t, err)
				must(t, at.Close())
				at = next
			}
			must(t, at.Close())
		}
		r := open(t, root)
		moved := false
		r.progress = func(int64, int64) {
			if moved {
				return
			}
			moved = true // while the first of the two is copied
			for _, name := range []string{"a", "b"} {
				must(t, os.Rename(root+"/"+name, root+"/tree/"+name+"/d"))
			}
		}
		if got := r.give(t.Context(), copyOp("tree", "copy")); got.Code != api.FileChanged {
			t.Errorf("%+v", got)
		}
		names(t, root, "tree")
	})
	t.Run("holes_stay_holes", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "size=1m")
		f, err := os.Create(root + "/f")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, 5 << 30, 9<<30 + 7} {
			if _, err := f.WriteAt([]byte("data"), at); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(10 << 30); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		got := do(t, root, copyOp("f", "g")).want(t, "")
		if got.Bytes != 10<<30 {
			t.Errorf("%+v", got.FileResult)
		}
		g, err := os.Open(root + "/g")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = g.Close() }()
		info, err := g.Stat()
		if err != nil || info.Size() != 10<<30 {
			t.Errorf("%v, %v", info, err)
		}
		text := make([]byte, 6)
		for at, want := range map[int64]string{0: "data\x00\x00", 5 << 30: "data\x00\x00", 9<<30 + 7: "data\x00\x00", 1 << 30: "\x00\x00\x00\x00\x00\x00"} {
			if _, err := g.ReadAt(text, at); err != nil || string(text) != want {
				t.Errorf("at %d: %q, %v", at, text, err)
			}
		}
	})
	t.Run("a_tree", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/a/f", "f")
		put(t, root+"/d/empty-file", "")
		put(t, root+"/d/bad\xff", "bad")
		link(t, "../outside", root+"/d/l")
		special(t, root+"/d/x")
		if err := os.Mkdir(root+"/d/closed", 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/d/a/f", "/d/a", "/d"} {
			if err := os.Chtimes(root+name, stamp, stamp); err != nil {
				t.Fatal(err)
			}
		}
		_ = os.Chown(root+"/d/a/f", 12345, 23456) // as root only
		got := do(t, root, copyOp("d", "e")).want(t, "")
		if got.Files != 4 || got.Folders != 3 || got.Bytes != 4 || got.Skipped < 2 || got.Skipped > 3 {
			t.Errorf("%+v", got.FileResult)
		}
		holds(t, root+"/e/a/f", "f")
		holds(t, root+"/e/bad\xff", "bad")
		if target, err := os.Readlink(root + "/e/l"); err != nil || target != "../outside" {
			t.Errorf("%q, %v", target, err)
		}
		for _, name := range []string{"", "/a", "/a/f", "/closed"} {
			mode, uid, gid := modeOf(t, root+"/d"+name)
			mode2, uid2, gid2 := modeOf(t, root+"/e"+name)
			if mode != mode2 || uid != uid2 || gid != gid2 {
				t.Errorf("%s: %o %d %d, want %o %d %d", name, mode2, uid2, gid2, mode, uid, gid)
			}
		}
		if info, err := os.Stat(root + "/e"); err != nil || !info.ModTime().Equal(stamp) {
			t.Errorf("%v, %v", info, err)
		}
		names(t, root, "d", "e")
	})
	t.Run("a_link", func(t *testing.T) {
		root := t.TempDir()
		link(t, "/outside", root+"/l")
		do(t, root, copyOp("l", "m")).want(t, "")
		if target, err := os.Readlink(root + "/m"); err != nil || target != "/outside" {
			t.Errorf("%q, %v", target, err)
		}
	})
	t.Run("refused", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "f")
		put(t, root+"/d/e/f", "")
		link(t, "d/e", root+"/link")
		link(t, "none", root+"/dangling")
		special(t, root+"/x")
		for name, tc := range map[string]struct {
			op   api.FileOperation
			code api.Code
		}{
			"root":                  {copyOp("", "x"), api.BadPath},
			"missing":               {copyOp("none", "x"), api.NotFound},
			"to a missing folder":   {copyOp("f", "none/x"), api.NotFound},
			"over a file":           {copyOp("d", "f"), api.FileExists},
			"over a dangling link":  {copyOp("f", "dangling"), api.FileExists},
			"into itself":           {copyOp("d", "d/copy"), api.BadPath},
			"into itself by a link": {copyOp("d", "link/copy"), api.BadPath},
			"a socket":              {copyOp("x-socket", "y"), api.BadPath},
			"another digest":        {api.FileOperation{Op: api.OpCopy, Path: "f", To: "y", ExpectSHA256: digestOf("g")}, api.FileChanged},
		} {
			t.Run(name, func(t *testing.T) { do(t, root, tc.op).want(t, tc.code) })
		}
		names(t, root+"/d", "e")
		names(t, root+"/d/e", "f")
		do(t, root, api.FileOperation{Op: api.OpCopy, Path: "f", To: "y", ExpectSHA256: digestOf("f")}).want(t, "")
	})
	t.Run("not_across_mounts", func(t *testing.T) {
		base := t.TempDir()
		root := base + "/root"
		put(t, base+"/elsewhere/secret", "theirs")
		put(t, root+"/d/f", "ours")
		bind(t, base+"/elsewhere", root+"/d/bind")
		got := do(t, root, copyOp("d", "e")).want(t, "")
		if got.Skipped != 1 || got.Files != 1 || got.Folders != 1 {
			t.Errorf("%+v", got.FileResult)
		}
		names(t, root+"/e", "f")
	})
	t.Run("a_volume_that_is_too_small", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "size=1m")
		put(t, root+"/d/a", strings.Repeat("x", 300<<10))
		put(t, root+"/d/b", strings.Repeat("x", 300<<10))
		got := do(t, root, copyOp("d", "e")).want(t, api.VolumeFull)
		if got.NeedBytes == nil || *got.NeedBytes != 600<<10 {
			t.Errorf("%+v", got.FileResult)
		}
		r := open(t, root)
		r.volume.statfs = func(int, *unix.Statfs_t) error { return unix.ENOSYS }
		if got := r.give(t.Context(), copyOp("d", "e")); got.Code != api.VolumeFull {
			t.Errorf("%+v", got)
		}
		names(t, root, "d")
	})
	t.Run("of_a_file_that_becomes_shorter", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "") // which shares no bytes between files
		for name, tail := range map[string]string{"data": strings.Repeat("x", 20<<20), "hole": ""} {
			put(t, root+"/f", strings.Repeat("x", 20<<20)+tail)
			if name == "hole" {
				if err := os.Truncate(root+"/f", 40<<20); err != nil {
					t.Fatal(err)
				}
			}
			r := open(t, root)
			r.progress = func(done, _ int64) {
				if done > 0 {
					if err := os.Truncate(root+"/f", 19<<20); err != nil {
						t.Error(err)
					}
				}
			}
			if got := r.give(t.Context(), copyOp("f", "g")); got.Code != api.FileChanged {
				t.Errorf("%s: %+v", name, got)
			}
			names(t, root, "f")
		}
	})
	t.Run("stopped", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "") // which shares no bytes between files
		put(t, root+"/d/a", strings.Repeat("x", 20<<20))
		put(t, root+"/d/b", strings.Repeat("x", 20<<20))
		for _, op := range []api.FileOperation{copyOp("d", "e"), copyOp("d/a", "e")} {
			ctx, cancel := context.WithCancel(t.Context())
			r := open(t, root)
			r.progress = func(done, total int64) {
				if done > 0 && done < total {
					cancel()
				}
			}
			if got := r.give(ctx, op); got.Code != api.Cancelled || got.Files != 0 {
				t.Errorf("%+v", got)
			}
			names(t, root, "d")
		}
	})
	t.Run("somebody_takes_the_name", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/f", "mine")
		for _, from := range []string{"d", "d/f"} {
			r := open(t, root)
			r.volume.renameat2 = func(oldFolder int, oldName string, newFolder int, newName string, flags uint) error {
				put(t, root+"/e", "theirs")
				return unix.Renameat2(oldFolder, oldName, newFolder, newName, flags)
			}
			if got := r.give(t.Context(), copyOp(from, "e")); got.Code != api.FileExists {
				t.Errorf("%+v", got)
			}
			holds(t, root+"/e", "theirs")
			if err := os.Remove(root + "/e"); err != nil {
				t.Fatal(err)
			}
			names(t, root, "d")
		}
	})
	t.Run("what_was_prepared_goes_whatever_its_modes", func(t *testing.T) {
		root := t.TempDir()
		for name, mode := range map[string]os.FileMode{"": 0o777, "/d": 0o755, "/d/closed": 0o555} {
			if name != "" {
				put(t, root+name+"/f", "x")
			}
			if err := os.Chmod(root+name, mode); err != nil {
				t.Fatal(err)
			}
		}
		r := open(t, root)
		r.volume.renameat2 = func(int, string, int, string, uint) error { return unix.EEXIST } // the last step
		asUser(t, 12345, func() {
			if got := r.give(t.Context(), copyOp("d", "e")); got.Code != api.FileExists {
				t.Errorf("%+v", got)
			}
		})
		names(t, root, "d")
	})
	t.Run("as_a_user_who_cannot_give_files_away", func(t *testing.T) {
		root := t.TempDir()
		if err := os.Chmod(root, 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, root+"/d/f", "theirs")
		r := open(t, root)
		asUser(t, 12345, func() {
			if got := r.give(t.Context(), copyOp("d", "e")); got.Code != "" {
				t.Errorf("%+v", got)
			}
		})
		if _, uid, _ := modeOf(t, root+"/e/f"); uid != 12345 {
			t.Errorf("%d", uid)
		}
		if text, err := os.ReadFile(root + "/e/f"); err != nil || !bytes.Equal(text, []byte("theirs")) {
			t.Errorf("%q, %v", text, err)
		}
	})
}
