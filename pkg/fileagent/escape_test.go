package fileagent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
)

const secret = "the secret of the host"

// prison is a root with everything around it that an escape would show.
func prison(t testing.TB) (root, outside string) { return prisonIn(t, t.TempDir()) }

func prisonIn(t testing.TB, base string) (root, outside string) {
	root, outside = base+"/root", base+"/outside"
	for _, dir := range []string{root + "/d/e", outside + "/d"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{outside + "/secret", outside + "/d/secret", base + "/secret"} {
		if err := os.WriteFile(name, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(root+"/d/f", []byte("inside"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"abs-file": outside + "/secret", "abs-dir": outside, "rel-file": "../outside/secret", "rel-dir": "../outside",
		"up": "..", "d/up2": "../..", "root-link": "/", "via": "rel-dir", "d/e/deep": "../../../outside", "proc": "/proc/self/root",
	} {
		if err := os.Symlink(target, root+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

// escapes are paths that all lead out.
func escapes(outside string) []string {
	return []string{
		"..", "../secret", "../outside/secret", "d/../../secret", "d/../../outside/secret", "./../secret", outside + "/secret", "/", "//secret",
		strings.Repeat("../", 40) + "etc/passwd", "abs-file", "rel-file", "abs-dir/secret", "rel-dir/secret", "up/secret", "up/outside/secret",
		"d/up2/secret", "d/up2/outside/secret", "via/secret", "d/e/deep/secret", "proc" + outside + "/secret", "root-link" + outside + "/secret",
		"d/../rel-dir/d/secret", "rel-dir/d/../secret",
	}
}

func TestEscape(t *testing.T) {
	root, outside := prison(t)
	text := "overwritten"
	var log strings.Builder
	for _, name := range escapes(outside) {
		t.Run("F15_escape_vectors/"+name, func(t *testing.T) {
			for _, op := range []api.FileOperation{
				{Op: api.OpRead, Path: name}, {Op: api.OpChecksum, Path: name}, {Op: api.OpWrite, Path: name, Text: &text},
				{Op: api.OpList, Path: name}, {Op: api.OpRename, Path: "d/f", To: name + "/x"}, {Op: api.OpCopy, Path: "d/f", To: name + "/x"},
				{Op: api.OpMkdir, Path: name + "/x"}, {Op: api.OpDelete, Path: name + "/x", Recursive: true}, {Op: api.OpStat, Path: name + "/x"},
			} {
				got := do(t, root, op)
				// Behind "rel-dir/d/.." the text alone is "rel-dir", which is in the root.
				if got.Code != api.BadPath {
					t.Errorf("%s: code %q", op.Op, got.Code)
				}
				if got.Content != nil || got.SHA256 != "" || got.Entries != nil {
					t.Errorf("%s gave something: %+v", op.Op, got.FileResult)
				}
				log.WriteString(got.Message)
			}
		})
	}
	if strings.Contains(log.String(), secret) {
		t.Error("a message has the secret")
	}
	untouched(t, root, outside)
	holds(t, root+"/d/f", "inside")
}

func untouched(t testing.TB, root, outside string) {
	t.Helper()
	for _, name := range []string{outside + "/secret", outside + "/d/secret", filepath.Dir(root) + "/secret"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != secret {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for dir, want := range map[string]int{outside: 2, outside + "/d": 1, filepath.Dir(root): 3} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
			t.Errorf("%s has %d entries, %v", dir, len(entries), err)
		}
	}
}

func TestEscapeByTrailingSlash(t *testing.T) {
	root, outside := prison(t)
	for _, name := range []string{"rel-dir/", "rel-dir//", "rel-dir/.", "abs-dir/", "abs-dir/./", "up/", "via/", "rel-file/", "d/e/deep/", "root-link/"} {
		t.Run("F16_escape_trailing_slash_link/"+name, func(t *testing.T) {
			for _, op := range []api.Op{api.OpList, api.OpRead, api.OpChecksum} {
				if got := do(t, root, api.FileOperation{Op: op, Path: name}); got.Code != api.BadPath {
					t.Errorf("%s: %q", op, got.Code)
				}
			}
			// The agent cleans paths before os.Root sees them. This is for os.Root itself: CVE-2026-39822, golang/go#79005.
			r, err := os.OpenRoot(root)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = r.Close() }()
			if f, err := r.Open(name); err == nil {
				t.Errorf("this toolchain's os.Root opens %q", f.Name())
			}
			if sub, err := r.OpenRoot(name); err == nil {
				t.Errorf("this toolchain's os.Root opens %q as a root", sub.Name())
			}
			if info, err := r.Stat(name); err == nil {
				t.Errorf("this toolchain's os.Root describes %q", info.Name())
			}
		})
	}
	untouched(t, root, outside)
}

func TestEscapeBySwap(t *testing.T) {
	t.Run("F17_escape_dir_swapped_for_link_during_list", func(t *testing.T) {
		root, outside := prison(t)
		put(t, root+"/d/secret", "ours")
		r := open(t, root)
		dir, err := r.volume.openFolder("d")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.close()
		found, err := firstNames(t.Context(), dir, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		swap(t, root, outside)
		for _, e := range *r.page(dir, found, 10).Entries {
			if e.Name == "secret" && e.Size != 4 {
				t.Errorf("of outside: %+v", e)
			}
		}
	})
	t.Run("F17_escape_of_directory_entries", func(t *testing.T) { // os.Root itself: CVE-2026-27139, golang/go#77827
		root, outside := prison(t)
		put(t, root+"/d/secret", "ours")
		r, err := os.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		for name, read := range map[string]func(*os.File) ([]os.FileInfo, error){
			"Readdir": func(f *os.File) ([]os.FileInfo, error) { return f.Readdir(-1) },
			"ReadDir": func(f *os.File) (infos []os.FileInfo, err error) {
				entries, err := f.ReadDir(-1)
				for _, e := range entries {
					if info, err := e.Info(); err == nil {
						infos = append(infos, info)
					}
				}
				return infos, err
			},
		} {
			f, err := r.Open("d")
			if err != nil {
				t.Fatal(err)
			}
			swap(t, root, outside)
			infos, _ := read(f)
			for _, info := range infos {
				if info.Name() == "secret" && info.Size() != 4 {
					t.Errorf("this toolchain's %s describes what is outside: %d bytes", name, info.Size())
				}
			}
			_ = f.Close()
			if err := os.Remove(root + "/d"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(root+"/moved", root+"/d"); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("F17_delete_and_copy_of_a_swapped_folder", func(t *testing.T) {
		root, outside := prison(t)
		r := open(t, root)
		dir, err := r.volume.openFolder(".")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.close()
		swap(t, root, outside)
		tree := &removal{volume: r.volume, ctx: t.Context()}
		if err := tree.removeAt(dir, "d", "d", 0); err != nil { // the link itself
			t.Fatal(err)
		}
		absent(t, root+"/d")
		for _, name := range []string{"secret", "d"} {
			if _, err := os.Lstat(outside + "/" + name); err != nil {
				t.Error(err)
			}
		}
		if _, err := dir.openFolder("rel-dir"); err == nil {
			t.Error("a link was opened as a folder")
		}
	})
}

// swap puts a link to the outside where root/d was.
func swap(t *testing.T, root, outside string) {
	t.Helper()
	if err := os.Rename(root+"/d", root+"/moved"); err != nil {
		t.Fatal(err)
	}
	link(t, outside, root+"/d")
}

func TestBadPaths(t *testing.T) {
	root := t.TempDir()
	text := "x"
	for name, path := range map[string]string{
		"NUL":                    "a\x00b",
		"a name of 256 bytes":    strings.Repeat("n", 256),
		"within":                 "d/" + strings.Repeat("é", 128) + "/f",
		"more than PATH_MAX":     strings.Repeat("a/", 2100) + "f",
		"much more":              strings.Repeat("x", 1<<20),
		"only dots":              "../..",
		"an absolute one":        "/etc/passwd",
		"absolute by cleaning":   "//x",
		"out and in":             "../root",
		"a NUL alone":            "\x00",
		"out after a long way":   strings.Repeat("a/", 500) + strings.Repeat("../", 501),
		"a backslash is a name.": "..\\..\\x/../../y",
	} {
		t.Run("F18_nul_empty_overlong_paths/"+name, func(t *testing.T) {
			for _, op := range []api.FileOperation{
				{Op: api.OpRead, PathB64: []byte(path)}, {Op: api.OpWrite, PathB64: []byte(path), Text: &text}, {Op: api.OpList, PathB64: []byte(path)},
				{Op: api.OpMkdir, PathB64: []byte(path)}, {Op: api.OpCopy, Path: "f", ToB64: []byte(path)}, {Op: api.OpDelete, PathB64: []byte(path)},
			} {
				if got := do(t, root, op); got.Code != api.BadPath || len(got.Message) > 2000 {
					t.Errorf("%s: %q, message of %d bytes", op.Op, got.Code, len(got.Message))
				}
			}
		})
	}
	t.Run("F18_empty_where_a_name_must_be", func(t *testing.T) {
		for _, op := range []api.FileOperation{
			{Op: api.OpRead}, {Op: api.OpWrite, Text: &text}, {Op: api.OpMkdir}, {Op: api.OpRename, Path: "f"}, {Op: api.OpCopy, To: "f"},
			{Op: api.OpRead, Path: "f", PathB64: []byte("f")},
		} {
			do(t, root, op).want(t, api.BadPath)
		}
	})
	names(t, root)
}

func TestLinkLoops(t *testing.T) {
	root := t.TempDir()
	link(t, "self", root+"/self")
	link(t, "b", root+"/a")
	link(t, "a", root+"/b")
	put(t, root+"/f", "found")
	link(t, "f", root+"/hop1")
	for i := 2; i <= 9; i++ {
		link(t, fmt.Sprintf("hop%d", i-1), fmt.Sprintf("%s/hop%d", root, i))
	}
	text := "new"
	for _, name := range []string{"self", "a", "hop9", "self/x"} {
		t.Run("F19_link_loop/"+name, func(t *testing.T) {
			do(t, root, api.FileOperation{Op: api.OpRead, Path: name}).want(t, api.BadPath)
			do(t, root, api.FileOperation{Op: api.OpWrite, Path: name, Text: &text}).want(t, api.BadPath)
		})
	}
	t.Run("F19_eight_hops_are_followed", func(t *testing.T) {
		if got := do(t, root, api.FileOperation{Op: api.OpRead, Path: "hop8"}).want(t, ""); string(*got.Content) != "found" {
			t.Errorf("%q", *got.Content)
		}
		do(t, root, api.FileOperation{Op: api.OpWrite, Path: "hop8", Text: &text}).want(t, "")
		holds(t, root+"/f", "new")
	})
}

// FuzzPath gives every operation a path. Whatever it is, nothing outside of the root is shown or changed.
func FuzzPath(f *testing.F) {
	for _, name := range escapes("/") {
		f.Add([]byte(name), byte(0))
	}
	for i := range byte(12) {
		f.Add([]byte("rel-dir/../d//./f"), i)
		f.Add([]byte("d/f\x00/../../x"), i)
		f.Add([]byte("up/root/d/f"), i)
		f.Add([]byte("new/\xff"), i)
	}
	f.Fuzz(func(t *testing.T, path []byte, which byte) {
		base := t.TempDir()
		if quick, err := os.MkdirTemp("/dev/shm", "flint-fuzz-"); err == nil { // where fsync costs nothing
			t.Cleanup(func() { _ = os.RemoveAll(quick) })
			base = quick
		}
		root, outside := prisonIn(t, base)
		text := "overwritten"
		ops := []api.FileOperation{
			{Op: api.OpRead, PathB64: path}, {Op: api.OpList, PathB64: path}, {Op: api.OpStat, PathB64: path},
			{Op: api.OpChecksum, PathB64: path}, {Op: api.OpWrite, PathB64: path, Text: &text},
			{Op: api.OpWrite, PathB64: path, Text: &text, CreateOnly: true}, {Op: api.OpMkdir, PathB64: path},
			{Op: api.OpDelete, PathB64: path, Recursive: true, Confirm: testClaim}, {Op: api.OpRename, PathB64: path, To: "d/new"},
			{Op: api.OpRename, Path: "d/f", ToB64: path}, {Op: api.OpCopy, PathB64: path, To: "d/new"}, {Op: api.OpCopy, Path: "d/f", ToB64: path},
		}
		got := do(t, root, ops[int(which)%len(ops)])
		if got.exit != ExitDone {
			t.Errorf("exit %d: %s", got.exit, got.stderr)
		}
		if got.Content != nil && strings.Contains(string(*got.Content), secret) || got.SHA256 == digestOf(secret) {
			t.Error("the secret was read")
		}
		untouched(t, root, outside)
	})
}
