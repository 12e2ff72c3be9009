package fileagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

func TestMkdir(t *testing.T) {
	t.Run("F36_mkdir_root_or_exists_or_no_parent", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "")
		link(t, "none", root+"/l")
		for path, code := range map[string]api.Code{
			"": api.BadPath, ".": api.BadPath, "x/..": api.BadPath, "f": api.FileExists, "l": api.FileExists, "none/d": api.NotFound, "f/d": api.BadPath,
		} {
			got := do(t, root, api.FileOperation{Op: api.OpMkdir, Path: path}).want(t, code)
			if code == api.NotFound && !strings.Contains(got.Message, `"none"`) {
				t.Errorf("the message does not name the parent: %s", got.Message)
			}
		}
		names(t, root, "f", "l")
	})
	t.Run("keeps_the_group_of_the_volume", func(t *testing.T) {
		root := t.TempDir()
		if err := os.Chown(root, -1, 23456); err != nil {
			t.Skipf("giving files away needs root: %v", err)
		}
		if err := unix.Chmod(root, 0o2775); err != nil {
			t.Fatal(err)
		}
		do(t, root, api.FileOperation{Op: api.OpMkdir, Path: "d"}).want(t, "")
		if mode, _, gid := modeOf(t, root+"/d"); mode != 0o2755 || gid != 23456 {
			t.Errorf("%o %d", mode, gid)
		}
	})
}

func TestDelete(t *testing.T) {
	t.Run("F37_delete_link_not_target", func(t *testing.T) {
		base := t.TempDir()
		root := base + "/root"
		put(t, base+"/outside/f", "theirs")
		put(t, root+"/d/f", "ours")
		for _, target := range []string{"d", "../outside", "../outside/f", "d/f"} {
			for _, recursive := range []bool{false, true} {
				link(t, target, root+"/link")
				do(t, root, api.FileOperation{Op: api.OpDelete, Path: "link/", Recursive: recursive}).want(t, "")
				absent(t, root+"/link")
			}
		}
		link(t, "../../outside", root+"/d/link")
		got := do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d", Recursive: true}).want(t, "")
		if got.Files != 2 || got.Folders != 1 {
			t.Errorf("%+v", got.FileResult)
		}
		holds(t, base+"/outside/f", "theirs")
	})
	t.Run("F38_delete_root_refused", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/a/f", "")
		for _, path := range []string{"", ".", "a/..", "./"} {
			for _, op := range []api.FileOperation{
				{}, {Recursive: true}, {Recursive: true, Confirm: "another"}, {Confirm: testClaim},
			} {
				op.Op, op.Path = api.OpDelete, path
				do(t, root, op).want(t, api.BadPath)
			}
		}
		ask(t.Context(), t, root, &protocol.Request{Operation: api.FileOperation{Op: api.OpDelete, Recursive: true}}).want(t, api.BadPath) // no claim, no confirm
		names(t, root, "a")
	})
	t.Run("F38_root_is_emptied_when_confirmed", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/a/f", "")
		put(t, root+"/b", "")
		got := do(t, root, api.FileOperation{Op: api.OpDelete, Recursive: true, Confirm: testClaim}).want(t, "")
		if got.Files != 2 || got.Folders != 1 {
			t.Errorf("%+v", got.FileResult)
		}
		names(t, root)
	})
	t.Run("F39_delete_missing", func(t *testing.T) {
		root := t.TempDir()
		for _, path := range []string{"none", "none/none"} {
			do(t, root, api.FileOperation{Op: api.OpDelete, Path: path}).want(t, api.NotFound)
			do(t, root, api.FileOperation{Op: api.OpDelete, Path: path, Recursive: true}).want(t, api.NotFound)
		}
	})
	t.Run("F40_delete_large_tree_async_progress", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "nr_inodes=300k")
		const folders, each = 200, 1000
		for i := range folders {
			dir := fmt.Sprintf("%s/tree/%d", root, i)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for j := range each {
				fd, err := unix.Open(fmt.Sprintf("%s/%d", dir, j), unix.O_CREAT|unix.O_WRONLY, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				_ = unix.Close(fd)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := open(t, root)
		r.progress = func(done, _ int64) {
			if done == 50_000 {
				cancel()
			}
		}
		op := api.FileOperation{Op: api.OpDelete, Path: "tree", Recursive: true}
		got := r.give(ctx, op)
		if got.Code != api.Cancelled || got.Files+got.Folders != 50_000 {
			t.Errorf("after the stop: %+v", got)
		}
		rest := do(t, root, op).want(t, "")
		if rest.Files+got.Files != folders*each || rest.Folders+got.Folders != folders+1 {
			t.Errorf("%d and %d files, %d and %d folders", got.Files, rest.Files, got.Folders, rest.Folders)
		}
		if rest.progress == nil || rest.progress.Done != rest.Files+rest.Folders || rest.progress.Total != rest.progress.Done {
			t.Errorf("progress %+v", rest.progress)
		}
		names(t, root)
	})
	t.Run("F41_delete_does_not_cross_mount", func(t *testing.T) {
		base := t.TempDir()
		root := base + "/root"
		put(t, base+"/elsewhere/precious", "theirs")
		put(t, root+"/tree/a/f", "ours")
		put(t, root+"/tree/b/one", "")
		put(t, root+"/same/precious", "ours too")
		bind(t, base+"/elsewhere", root+"/tree/a/bind") // of the same file system: the device is the same
		bind(t, root+"/same", root+"/tree/b/inner")
		tmpfs(t, root+"/tree/tmp", "")
		put(t, root+"/tree/tmp/precious", "theirs")
		put(t, root+"/tree/b/file", "")
		put(t, base+"/elsewhere/of-file", "theirs")
		if err := unix.Mount(base+"/elsewhere/of-file", root+"/tree/b/file", "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(root+"/tree/b/file", unix.MNT_DETACH) })
		got := do(t, root, api.FileOperation{Op: api.OpDelete, Path: "tree", Recursive: true}).want(t, api.NotEmpty)
		if got.Skipped != 4 || !strings.HasPrefix(got.Path, "tree/") || got.Files != 2 {
			t.Errorf("%+v", got.FileResult)
		}
		holds(t, base+"/elsewhere/precious", "theirs")
		holds(t, base+"/elsewhere/of-file", "theirs")
		holds(t, root+"/same/precious", "ours too")
		holds(t, root+"/tree/tmp/precious", "theirs")
		absent(t, root+"/tree/a/f")
		absent(t, root+"/tree/b/one")
		// The mount point itself, and a whole volume with one in it.
		got = do(t, root, api.FileOperation{Op: api.OpDelete, Path: "tree/tmp", Recursive: true}).want(t, api.NotEmpty)
		if got.Skipped != 1 || got.Path != "tree/tmp" {
			t.Errorf("%+v", got.FileResult)
		}
		do(t, root, api.FileOperation{Op: api.OpDelete, Recursive: true, Confirm: testClaim}).want(t, api.NotEmpty)
		holds(t, base+"/elsewhere/precious", "theirs")
		holds(t, root+"/tree/tmp/precious", "theirs")
	})
	t.Run("a_folder_needs_recursive", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/f", "")
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d"}).want(t, api.NotEmpty)
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d/f"}).want(t, "")
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d"}).want(t, "")
		names(t, root)
	})
	t.Run("a_file_that_becomes_a_folder", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "")
		put(t, root+"/d/f", "theirs")
		swapped := &looked{Context: t.Context(), do: func(times int) {
			if times == 2 { // the file was looked at
				must(t, unix.Renameat2(unix.AT_FDCWD, root+"/f", unix.AT_FDCWD, root+"/d", unix.RENAME_EXCHANGE))
			}
		}}
		if got := open(t, root).give(swapped, api.FileOperation{Op: api.OpDelete, Path: "f"}); got.Code != api.BadPath || swapped.n < 2 {
			t.Errorf("%+v", got)
		}
		holds(t, root+"/f/f", "theirs")
	})
	t.Run("expected_of_a_file_that_grows_without_end", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", strings.Repeat("x", chunk))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		grows := &looked{Context: ctx, do: func(times int) {
			must(t, os.Truncate(root+"/f", int64(times+1)*2*chunk))
			if times == 100 {
				cancel()
			}
		}}
		if got := open(t, root).give(grows, api.FileOperation{Op: api.OpDelete, Path: "f", ExpectSHA256: digestOf("x")}); got.Code != api.FileChanged {
			t.Errorf("%+v", got)
		}
	})
	t.Run("paths_in_messages_are_bounded", func(t *testing.T) {
		full := ""
		for range maxDepth {
			full = beneath(full, strings.Repeat("n", 255))
		}
		if len(full) > 2*maxLink {
			t.Errorf("%d bytes", len(full))
		}
	})
	t.Run("only_what_was_expected", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "theirs")
		op := api.FileOperation{Op: api.OpDelete, Path: "f", ExpectSHA256: digestOf("before")}
		if got := do(t, root, op).want(t, api.FileChanged); got.SHA256 != digestOf("theirs") {
			t.Errorf("%+v", got.FileResult)
		}
		op.ExpectSHA256 = digestOf("theirs")
		do(t, root, op).want(t, "")
		do(t, root, op).want(t, api.FileChanged)
		put(t, root+"/d/f", "")
		op.Path, op.Recursive = "d", true
		do(t, root, op).want(t, api.BadPath)
	})
	t.Run("deeper_than_may_be", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "")
		at, err := os.Open(root)
		if err != nil {
			t.Fatal(err)
		}
		for range maxDepth + 5 {
			if err := unix.Mkdirat(int(at.Fd()), "d", 0o755); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.Openat(int(at.Fd()), "d", unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_ = at.Close()
			at = os.NewFile(uintptr(fd), "d")
		}
		_ = at.Close()
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d", Recursive: true}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpCopy, Path: "d", To: "e"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: strings.TrimSuffix(strings.Repeat("d/", 500), "/"), Recursive: true}).want(t, "")
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "d", Recursive: true}).want(t, "")
		names(t, root)
	})
}

func TestRename(t *testing.T) {
	t.Run("files_folders_and_links", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "f")
		put(t, root+"/d/g", "g")
		link(t, "none", root+"/l")
		for _, op := range []api.FileOperation{{Path: "f", To: "d/f2"}, {Path: "d", To: "e"}, {Path: "l", To: "e/l2"}, {Path: "e/g", ToB64: []byte("bad\xff")}} {
			op.Op = api.OpRename
			do(t, root, op).want(t, "")
		}
		names(t, root, "bad\xff", "e")
		names(t, root+"/e", "f2", "l2")
	})
	t.Run("refused", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "f")
		put(t, root+"/g", "g")
		put(t, root+"/d/x", "")
		link(t, "none", root+"/l")
		for name, tc := range map[string]struct {
			op   api.FileOperation
			code api.Code
		}{
			"root":                {api.FileOperation{Path: ".", To: "x"}, api.BadPath},
			"to the root":         {api.FileOperation{Path: "f", To: "d/.."}, api.BadPath},
			"missing":             {api.FileOperation{Path: "none", To: "x"}, api.NotFound},
			"to a missing folder": {api.FileOperation{Path: "f", To: "none/x"}, api.NotFound},
			"over a file":         {api.FileOperation{Path: "f", To: "g"}, api.FileExists},
			"over a folder":       {api.FileOperation{Path: "f", To: "d"}, api.FileExists},
			"over a dangling one": {api.FileOperation{Path: "f", To: "l"}, api.FileExists},
			"over itself":         {api.FileOperation{Path: "f", To: "./f"}, api.FileExists},
			"another digest":      {api.FileOperation{Path: "f", To: "x", ExpectSHA256: digestOf("g")}, api.FileChanged},
			"expected and gone":   {api.FileOperation{Path: "none", To: "x", ExpectSHA256: digestOf("g")}, api.FileChanged},
		} {
			t.Run(name, func(t *testing.T) {
				tc.op.Op = api.OpRename
				do(t, root, tc.op).want(t, tc.code)
			})
		}
		names(t, root, "d", "f", "g", "l")
		holds(t, root+"/g", "g")
		do(t, root, api.FileOperation{Op: api.OpRename, Path: "f", To: "x", ExpectSHA256: digestOf("f")}).want(t, "")
	})
	for name, errno := range map[string]error{"F42_rename_no_clobber_race": nil, "F42_without_such_a_rename": unix.EINVAL} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, kind := range []string{"file", "folder", "link"} {
				from, to := root+"/from-"+kind, root+"/to-"+kind
				switch kind {
				case "file":
					put(t, from, "mine")
				case "folder":
					put(t, from+"/f", "mine")
				case "link":
					link(t, "mine", from)
				}
				op := api.FileOperation{Op: api.OpRename, Path: filepath.Base(from), To: filepath.Base(to)}
				r := open(t, root)
				r.volume.renameat2 = func(oldFolder int, oldName string, newFolder int, newName string, flags uint) error {
					put(t, to, "theirs") // right before the rename
					if errno != nil {
						return errno
					}
					return unix.Renameat2(oldFolder, oldName, newFolder, newName, flags)
				}
				if got := r.give(t.Context(), op); got.Code != api.FileExists {
					t.Errorf("%s: %+v", kind, got)
				}
				holds(t, to, "theirs")
				if _, err := os.Lstat(from); err != nil {
					t.Error(err)
				}
				// And when nobody is in the way.
				if err := os.Remove(to); err != nil {
					t.Fatal(err)
				}
				r.volume.renameat2 = unix.Renameat2
				if errno != nil {
					r.volume.renameat2 = func(int, string, int, string, uint) error { return errno }
				}
				if got := r.give(t.Context(), op); got.Code != "" {
					t.Errorf("%s: %+v", kind, got)
				}
				absent(t, from)
				if _, err := os.Lstat(to); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("F43_rename_dir_into_itself", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/e/f", "")
		op := api.FileOperation{Op: api.OpRename, Path: "d", To: "d/e/d"}
		do(t, root, op).want(t, api.BadPath)
		r := open(t, root)
		r.volume.renameat2 = func(int, string, int, string, uint) error { return unix.EINVAL }
		if got := r.give(t.Context(), op); got.Code != api.BadPath {
			t.Errorf("%+v", got)
		}
		names(t, root+"/d/e", "f")
	})
	t.Run("F44_rename_cross_device", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "ours")
		put(t, root+"/d/f", "ours")
		tmpfs(t, root+"/tmp", "")
		if err := os.Mkdir(root+"/other", 0o755); err != nil {
			t.Fatal(err)
		}
		bind(t, root+"/d", root+"/other")
		for _, dir := range []string{"tmp", "other"} {
			do(t, root, api.FileOperation{Op: api.OpRename, Path: "f", To: dir + "/x"}).want(t, api.CrossDevice)
			do(t, root, api.FileOperation{Op: api.OpRename, Path: dir, To: "x"}).want(t, api.BadPath) // a mount point
		}
		holds(t, root+"/f", "ours")
		names(t, root+"/tmp")
		names(t, root+"/other", "f")
	})
}

// TestSweepOfNobodyElse: a folder that somebody has given a name of our shape keeps what is in it.
func TestSweepOfNobodyElse(t *testing.T) {
	const name = "/.flint-0123456789ac.tmp"
	old := time.Now().Add(-2 * leftoverAge)
	t.Run("another_users", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+name+"/f", "theirs")
		giveTo(t, root+name, 1234, 1234)
		must(t, os.Chtimes(root+name, old, old))
		do(t, root, writeOp("g", "x")).want(t, "")
		holds(t, root+name+"/f", "theirs")
	})
	t.Run("in_the_place_of_ours", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/victim/f", "theirs")
		s, err := open(t, root).volume.stageFolder(".")
		must(t, err)
		put(t, root+"/"+s.name+"/f", "ours")
		must(t, os.Rename(root+"/"+s.name, root+"/away"))
		must(t, os.Rename(root+"/victim", root+"/"+s.name))
		s.close()
		holds(t, root+"/"+s.name+"/f", "theirs")
		names(t, root+"/away")
	})
	t.Run("for_no_longer_than_it_may", func(t *testing.T) {
		root := t.TempDir()
		for _, file := range []string{"/f", "/g", "/h"} {
			put(t, root+name+file, "left")
		}
		must(t, os.Chtimes(root+name, old, old))
		r := open(t, root)
		dir, err := r.volume.openFolder(".")
		must(t, err)
		defer dir.close()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r.volume.sweepStaged(&looked{Context: ctx, do: func(times int) {
			if times == 3 { // at the third file
				cancel()
			}
		}}, dir, name[1:])
		if left, err := os.ReadDir(root + name); err != nil || len(left) == 0 || len(left) == 3 {
			t.Errorf("%d files are left: %v", len(left), err)
		}
		r.volume.sweep(t.Context(), dir, "")
		names(t, root)
	})
}

// TestNamesOfOurs: nobody makes what a sweep or a repair would take for the agent's own. What is there can be removed.
func TestNamesOfOurs(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/f", "x")
	put(t, root+"/d/f", "x")
	for _, name := range []string{".flint-0123456789ab.tmp", ".flint-0123456789ab.undo", ".flint-0123456789abcdef0123456789abcdef.part", ".flint-0123456789abcdef0123456789abcdef.sums"} {
		for _, path := range []string{name, "d/" + name, name + "/journal"} {
			do(t, root, writeOp(path, "x")).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpMkdir, Path: path}).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpRename, Path: "f", To: path}).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpCopy, Path: "d", ToB64: []byte(path)}).want(t, api.BadPath)
		}
		put(t, root+"/"+name, "x")
		do(t, root, api.FileOperation{Op: api.OpRead, Path: name}).want(t, "")
		do(t, root, api.FileOperation{Op: api.OpRename, Path: name, To: "g"}).want(t, "")
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "g"}).want(t, "")
	}
	names(t, root, "d", "f")
}

func TestSweep(t *testing.T) {
	root := t.TempDir()
	r := open(t, root)
	old := time.Now().Add(-leftoverAge - time.Hour)
	age := func(name string) {
		t.Helper()
		spec := []unix.Timespec{unix.NsecToTimespec(old.UnixNano()), unix.NsecToTimespec(old.UnixNano())}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, spec, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
	}
	living, err := r.volume.stage(".")
	if err != nil {
		t.Fatal(err)
	}
	defer living.close()
	livingFolder, err := r.volume.stageFolder(".")
	if err != nil {
		t.Fatal(err)
	}
	defer livingFolder.close()
	age(root + "/" + living.name)
	age(root + "/" + livingFolder.name)
	killed, err := r.volume.stage(".")
	if err != nil {
		t.Fatal(err)
	}
	_ = killed.file.Close() // what is left of a run that was killed: a name without a lock
	killed.dir.close()
	age(root + "/" + killed.name)
	put(t, root+"/.flint-0123456789ac.tmp/a/b", "")
	age(root + "/.flint-0123456789ac.tmp")
	stay := []string{living.name, livingFolder.name}
	for _, name := range []string{
		".flint-0123456789a.tmp", ".flint-0123456789abc.tmp", ".flint-0123456789AB.tmp", ".flint-0123456789ab.tmp2", ".flint-0123456789ab.part",
		"flint-0123456789ab.tmp", ".flint-0123456789ag.tmp", "x.flint-0123456789ab.tmp", ".flint-0123456789ab.tmp\n",
	} {
		put(t, root+"/"+name, "theirs")
		age(root + "/" + name)
		stay = append(stay, name)
	}
	if err := unix.Chmod(root+"/.flint-0123456789ac.tmp/a", 0o500); err != nil {
		t.Fatal(err)
	}
	put(t, root+"/.flint-aaaaaaaaaaaa.tmp", "young")
	link(t, "x", root+"/.flint-bbbbbbbbbbbb.tmp")
	age(root + "/.flint-bbbbbbbbbbbb.tmp")
	stay = append(stay, ".flint-aaaaaaaaaaaa.tmp", ".flint-bbbbbbbbbbbb.tmp")
	do(t, root, writeOp("f", "x")).want(t, "")
	for _, name := range append(stay, "f") {
		if _, err := os.Lstat(root + "/" + name); err != nil {
			t.Errorf("%q was swept: %v", name, err)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != len(stay)+1 {
		t.Errorf("%d entries, want %d: %v", len(entries), len(stay)+1, err)
	}
	if _, err := r.volume.stage("none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
