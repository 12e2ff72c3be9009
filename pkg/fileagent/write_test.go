package fileagent

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

func writeOp(path, text string) api.FileOperation {
	return api.FileOperation{Op: api.OpWrite, Path: path, Text: &text}
}

func modeOf(t *testing.T, name string) (mode os.FileMode, uid, gid uint32) {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(name, &s); err != nil {
		t.Fatal(err)
	}
	return os.FileMode(s.Mode & 0o7777), s.Uid, s.Gid
}

func TestWrite(t *testing.T) {
	t.Run("F22_write_atomic_on_enospc", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "size=128k")
		put(t, root+"/f", "old")
		big := strings.Repeat("x", 200<<10)
		got := do(t, root, writeOp("f", big)).want(t, api.VolumeFull)
		if got.NeedBytes == nil || *got.NeedBytes != 200<<10 || *got.AvailableBytes <= 0 || *got.AvailableBytes > 128<<10 {
			t.Errorf("%+v", got.FileResult)
		}
		// The same where the space cannot be measured, so that the write itself finds out.
		r := open(t, root)
		r.volume.statfs = func(int, *unix.Statfs_t) error { return unix.ENOSYS }
		if got := r.give(t.Context(), writeOp("f", big)); got.Code != api.VolumeFull {
			t.Errorf("%+v", got)
		}
		holds(t, root+"/f", "old")
		names(t, root, "f")
	})
	t.Run("F22_no_inodes_left", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "nr_inodes=3")
		do(t, root, writeOp("a", "")).want(t, "")
		do(t, root, writeOp("b", "")).want(t, "")
		do(t, root, writeOp("c", "")).want(t, api.VolumeFull)
		do(t, root, api.FileOperation{Op: api.OpMkdir, Path: "d"}).want(t, api.VolumeFull)
		names(t, root, "a", "b")
	})
	t.Run("F22_the_reserve_stays_free", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "size=1m")
		limits := testLimits()
		limits.ReservePercent = 50
		ask(t.Context(), t, root, &protocol.Request{Operation: writeOp("f", strings.Repeat("x", 600<<10)), Limits: limits}).want(t, api.VolumeFull)
		ask(t.Context(), t, root, &protocol.Request{Operation: writeOp("f", strings.Repeat("x", 400<<10)), Limits: limits}).want(t, "")
	})
	t.Run("F23_write_keeps_mode_owner", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		if err := os.Chown(root+"/f", 12345, 23456); err != nil {
			t.Skipf("giving files away needs root: %v", err)
		}
		if err := os.Chmod(root+"/f", 0o600); err != nil {
			t.Fatal(err)
		}
		do(t, root, writeOp("f", "new")).want(t, "")
		if mode, uid, gid := modeOf(t, root+"/f"); mode != 0o600 || uid != 12345 || gid != 23456 {
			t.Errorf("%o %d %d", mode, uid, gid)
		}
		// As for any write, the set-user-id bit goes.
		if err := unix.Chmod(root+"/f", 0o4755); err != nil {
			t.Fatal(err)
		}
		do(t, root, writeOp("f", "new")).want(t, "")
		if mode, _, _ := modeOf(t, root+"/f"); mode != 0o755 {
			t.Errorf("%o", mode)
		}
	})
	t.Run("F23_an_owner_that_cannot_be_kept", func(t *testing.T) {
		root := t.TempDir()
		if err := os.Chmod(root, 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, root+"/f", "old")
		r := open(t, root)
		asUser(t, 12345, func() {
			got := r.give(t.Context(), writeOp("f", "new"))
			if got.Code != api.PermissionDenied || !strings.Contains(got.Message, "run_as_user") {
				t.Errorf("%+v", got)
			}
		})
		holds(t, root+"/f", "old")
		names(t, root, "f")
	})
	t.Run("F23_attributes", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		if err := unix.Setxattr(root+"/f", "user.flint", []byte("kept"), 0); err != nil {
			t.Skipf("no attributes on this file system: %v", err)
		}
		do(t, root, writeOp("f", "new")).want(t, "")
		value := make([]byte, 10)
		n, err := unix.Getxattr(root+"/f", "user.flint", value)
		if err != nil || string(value[:n]) != "kept" {
			t.Errorf("%q, %v", value[:n], err)
		}
	})
	t.Run("F23_capabilities_go", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		const name = "security.capability" // CAP_NET_BIND_SERVICE, permitted and effective (linux/capability.h, VFS_CAP_REVISION_2)
		if err := unix.Setxattr(root+"/f", name, []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0); err != nil {
			t.Skipf("only root gives capabilities: %v", err)
		}
		do(t, root, writeOp("f", "new")).want(t, "")
		if n, err := unix.Getxattr(root+"/f", name, nil); !errors.Is(err, unix.ENODATA) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
	t.Run("F24_write_new_mode_ignores_umask", func(t *testing.T) {
		root := t.TempDir()
		defer unix.Umask(unix.Umask(0o077))
		do(t, root, writeOp("f", "x")).want(t, "")
		do(t, root, api.FileOperation{Op: api.OpMkdir, Path: "d"}).want(t, "")
		if mode, _, _ := modeOf(t, root+"/f"); mode != 0o644 {
			t.Errorf("%o", mode)
		}
		if mode, _, _ := modeOf(t, root+"/d"); mode != 0o755 {
			t.Errorf("%o", mode)
		}
	})
	t.Run("F25_write_through_inner_link", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/data/real/f", "old")
		put(t, root+"/x/y", "")
		link(t, "../data/current/f", root+"/x/link") // by a link to a folder too, and from the folder that it is in
		link(t, "real", root+"/data/current")
		link(t, "data/current", root+"/short")
		do(t, root, writeOp("x/link", "new")).want(t, "")
		holds(t, root+"/data/real/f", "new")
		if target, err := os.Readlink(root + "/x/link"); err != nil || target != "../data/current/f" {
			t.Errorf("%q, %v", target, err)
		}
		do(t, root, writeOp("short/f", "newer")).want(t, "")
		holds(t, root+"/data/real/f", "newer")
		names(t, root+"/data/real", "f")
		// One that leads to nothing yet makes it.
		link(t, "made", root+"/dangling")
		do(t, root, writeOp("dangling", "x")).want(t, "")
		holds(t, root+"/made", "x")
		link(t, "none/made", root+"/dangling2")
		do(t, root, writeOp("dangling2", "x")).want(t, api.NotFound)
		link(t, "..", root+"/x/root")
		do(t, root, writeOp("x/root", "x")).want(t, api.BadPath)
	})
	t.Run("F26_write_longest_name", func(t *testing.T) {
		root := t.TempDir()
		name := strings.Repeat("n", 255)
		for _, text := range []string{"old", "new"} {
			do(t, root, writeOp(name, text)).want(t, "")
			holds(t, root+"/"+name, text)
		}
		names(t, root, name)
	})
	t.Run("F27_write_no_parent_created", func(t *testing.T) {
		root := t.TempDir()
		do(t, root, writeOp("none/f", "x")).want(t, api.NotFound)
		do(t, root, api.FileOperation{Op: api.OpWrite, Path: "none/f", Text: new(string), CreateOnly: true}).want(t, api.NotFound)
		names(t, root)
	})
	t.Run("F28_write_conditional_conflict", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "theirs")
		op := writeOp("f", "mine")
		op.ExpectSHA256 = digestOf("before")
		got := do(t, root, op).want(t, api.FileChanged)
		if got.SHA256 != digestOf("theirs") {
			t.Errorf("%+v", got.FileResult)
		}
		holds(t, root+"/f", "theirs")
		op.Path = "gone"
		do(t, root, op).want(t, api.FileChanged)
		names(t, root, "f")
	})
	t.Run("F28_changed_between_check_and_rename", func(t *testing.T) {
		root := t.TempDir()
		for name, change := range map[string]func(name string){
			"written in place": func(name string) { put(t, name, "theirs") },
			"written in place, and its time set back": func(name string) {
				info, err := os.Stat(name)
				if err != nil {
					t.Error(err)
					return
				}
				put(t, name, "BEFORE")
				if err := os.Chtimes(name, time.Time{}, info.ModTime()); err != nil {
					t.Error(err)
				}
			},
			"replaced": func(name string) {
				put(t, name+"-2", "before")
				if err := os.Rename(name+"-2", name); err != nil {
					t.Error(err)
				}
			},
			"removed": func(name string) {
				if err := os.Remove(name); err != nil {
					t.Error(err)
				}
			},
		} {
			put(t, root+"/f", "before")
			r := open(t, root)
			op := api.FileOperation{Op: api.OpWrite, Path: "f", ExpectSHA256: digestOf("before")}
			state, err := r.replaceable(t.Context(), "f", &op)
			if err != nil || state == nil {
				t.Fatal(state, err)
			}
			s, err := r.volume.stage(".")
			if err != nil {
				t.Fatal(err)
			}
			change(root + "/f")
			_, err = s.land("f", landing{expect: state})
			var refused *refusal
			if !errors.As(err, &refused) || refused.result.Code != api.FileChanged {
				t.Errorf("%s: %v", name, err)
			}
			s.close()
			_ = os.Remove(root + "/f")
			names(t, root)
		}
	})
	t.Run("F29_write_conditional_large_file", func(t *testing.T) {
		root := t.TempDir()
		large := strings.Repeat("0123456789abcdef", 5<<16)
		put(t, root+"/f", large)
		op := writeOp("f", "new")
		op.ExpectSHA256 = digestOf(large)
		got := do(t, root, op).want(t, "")
		if got.SHA256 != digestOf("new") || *got.Size != 3 {
			t.Errorf("%+v", got.FileResult)
		}
		holds(t, root+"/f", "new")
	})
	t.Run("F30_write_content_digest_mismatch", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		op := writeOp("f", "altered")
		op.SHA256 = digestOf("sent")
		do(t, root, op).want(t, api.BadDigest)
		holds(t, root+"/f", "old")
		op.SHA256 = digestOf("altered")
		do(t, root, op).want(t, "")
		holds(t, root+"/f", "altered")
	})
	t.Run("F31_write_create_only_race", func(t *testing.T) {
		root := t.TempDir()
		op := writeOp("f", "mine")
		op.CreateOnly = true
		r := open(t, root)
		r.volume.renameat2 = func(oldFolder int, oldName string, newFolder int, newName string, flags uint) error {
			put(t, root+"/f", "theirs")
			return unix.Renameat2(oldFolder, oldName, newFolder, newName, flags)
		}
		if got := r.give(t.Context(), op); got.Code != api.FileExists {
			t.Errorf("%+v", got)
		}
		holds(t, root+"/f", "theirs")
		names(t, root, "f")
	})
	t.Run("F31_on_a_file_system_without_such_a_rename", func(t *testing.T) {
		root := t.TempDir()
		op := writeOp("f", "mine")
		op.CreateOnly = true
		for _, theirs := range []string{"theirs", ""} {
			r := open(t, root)
			r.volume.renameat2 = func(int, string, int, string, uint) error {
				if theirs != "" {
					put(t, root+"/f", theirs)
				}
				return unix.EINVAL
			}
			got := r.give(t.Context(), op)
			if theirs != "" {
				if got.Code != api.FileExists {
					t.Errorf("%+v", got)
				}
				holds(t, root+"/f", theirs)
				if err := os.Remove(root + "/f"); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if got.Code != "" {
				t.Errorf("%+v", got)
			}
			holds(t, root+"/f", "mine")
		}
		names(t, root, "f")
	})
	t.Run("F32_write_create_only_dangling_link", func(t *testing.T) {
		root := t.TempDir()
		link(t, "target", root+"/f")
		op := writeOp("f", "x")
		op.CreateOnly = true
		do(t, root, op).want(t, api.FileExists)
		names(t, root, "f")
		absent(t, root+"/target")
		op.Path = "new"
		do(t, root, op).want(t, "")
		holds(t, root+"/new", "x")
	})
	t.Run("F34_empty_content_truncates", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		do(t, root, api.FileOperation{Op: api.OpWrite, Path: "f", Content: &[]byte{}}).want(t, "")
		holds(t, root+"/f", "")
		do(t, root, api.FileOperation{Op: api.OpWrite, Path: "f"}).want(t, api.BadRequest)
		big := make([]byte, api.MaxInline+1)
		do(t, root, api.FileOperation{Op: api.OpWrite, Path: "f", Content: &big}).want(t, api.TooLarge)
	})
	t.Run("F46_path_dollar_signs_survive", func(t *testing.T) {
		root := t.TempDir()
		t.Setenv("TOKEN", "secret")
		for _, name := range []string{"cost$$.txt", "a$(TOKEN).txt", "$(KUBERNETES_SERVICE_HOST)", "`id`", "%s %d", " ", "-rf", "*"} {
			do(t, root, writeOp(name, name)).want(t, "")
			holds(t, root+"/"+name, name)
			do(t, root, api.FileOperation{Op: api.OpDelete, Path: name}).want(t, "")
		}
		names(t, root)
	})
	t.Run("hard_links_are_told", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		if err := os.Link(root+"/f", root+"/g"); err != nil {
			t.Fatal(err)
		}
		if got := do(t, root, writeOp("f", "new")).want(t, ""); !got.HardlinksBroken {
			t.Error("not told")
		}
		holds(t, root+"/g", "old")
		if got := do(t, root, writeOp("f", "newer")).want(t, ""); got.HardlinksBroken {
			t.Error("told of a file with one name")
		}
	})
	t.Run("onto_what_is_no_file", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/f", "")
		special(t, root+"/x")
		for _, name := range []string{"d", "x-socket", "x-fifo", "d/f/g"} {
			do(t, root, writeOp(name, "x")).want(t, api.BadPath)
		}
	})
	t.Run("where_the_user_may_not", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "old")
		r := open(t, root)
		asUser(t, 12345, func() {
			for _, op := range []api.FileOperation{
				writeOp("g", "x"), {Op: api.OpMkdir, Path: "d"}, {Op: api.OpDelete, Path: "f"}, {Op: api.OpRename, Path: "f", To: "g"},
			} {
				if got := r.give(t.Context(), op); got.Code != api.PermissionDenied || strings.Contains(got.Message, root) {
					t.Errorf("%+v", got)
				}
			}
		})
		names(t, root, "f")
	})
	t.Run("on_a_mount_for_reading", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/in/f", "old")
		bind(t, root+"/in", root+"/ro")
		if err := unix.Mount("", root+"/ro", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		do(t, root+"/ro", writeOp("f", "new")).want(t, api.PermissionDenied)
		do(t, root+"/ro", api.FileOperation{Op: api.OpDelete, Path: "f"}).want(t, api.PermissionDenied)
		do(t, root+"/ro", api.FileOperation{Op: api.OpRead, Path: "f"}).want(t, "")
	})
}
