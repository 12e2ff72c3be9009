package fileagent

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

func entryNames(entries []api.FileEntry) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

func TestList(t *testing.T) {
	t.Run("F01_list_root_empty_path", func(t *testing.T) {
		root := t.TempDir()
		got := do(t, root, api.FileOperation{Op: api.OpList}).want(t, "")
		if got.Entries == nil || *got.Entries == nil || len(*got.Entries) != 0 || got.NextCursor != "" {
			t.Errorf("of an empty folder: %+v", got.FileResult)
		}
		if got.AvailableBytes == nil || *got.AvailableBytes <= 0 {
			t.Errorf("available: %v", got.AvailableBytes)
		}
		put(t, root+"/b", "22")
		put(t, root+"/a/x", "")
		got = do(t, root, api.FileOperation{Op: api.OpList}).want(t, "")
		if names := entryNames(*got.Entries); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("names %q", names)
		}
	})
	t.Run("F02_list_sorted_and_paged", func(t *testing.T) {
		root := t.TempDir()
		var want []string
		for i := range 2500 {
			name := fmt.Sprintf("%d-%x", i%7, i*7919)
			want = append(want, name)
			put(t, root+"/d/"+name, "")
		}
		slices.Sort(want)
		for _, limit := range []int{0, 1000, 7 * 357, 2500, 1} {
			var got []string
			pages := 0
			for cursor := ""; ; pages++ {
				page := do(t, root, api.FileOperation{Op: api.OpList, Path: "d", Limit: limit, Cursor: cursor}).want(t, "")
				got = append(got, entryNames(*page.Entries)...)
				if cursor = page.NextCursor; cursor == "" || limit == 1 && pages == 3 {
					break
				}
			}
			expected := want
			if limit == 1 {
				expected = want[:len(got)]
			}
			if !slices.Equal(got, expected) || limit == 0 && pages != 1 {
				t.Errorf("limit %d: %d names, %d more pages", limit, len(got), pages)
			}
		}
		do(t, root, api.FileOperation{Op: api.OpList, Path: "d", Cursor: "%"}).want(t, api.BadRequest)
	})
	t.Run("F02_a_page_has_no_more_bytes_than_a_result", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root+"/d", "")
		target := strings.Repeat("\x01", 4000) // six bytes each in JSON
		for i := range 400 {
			link(t, target, fmt.Sprintf("%s/d/%0250d\xff", root, i))
		}
		var got []string
		pages := 1
		for cursor := ""; ; pages++ {
			page := do(t, root, api.FileOperation{Op: api.OpList, Path: "d", Cursor: cursor}).want(t, "")
			got = append(got, entryNames(*page.Entries)...)
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if len(got) != 400 || pages < 3 || !slices.IsSorted(got) {
			t.Errorf("%d names in %d pages", len(got), pages)
		}
	})
	t.Run("F03_list_link_to_dir_typed", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/d/x", "")
		link(t, "d", root+"/to-dir")
		link(t, "none\xff", root+"/to-nothing")
		special(t, root+"/special")
		got := do(t, root, api.FileOperation{Op: api.OpList}).want(t, "")
		types := map[string]api.FileType{}
		for _, e := range *got.Entries {
			types[e.Name] = e.Type
			switch e.Name {
			case "to-dir":
				if e.LinkTarget != "d" || e.LinkTargetB64 != nil {
					t.Errorf("%+v", e)
				}
			case "to-nothing":
				if string(e.LinkTargetB64) != "none\xff" || e.LinkTarget != "none\uFFFD" {
					t.Errorf("%+v", e)
				}
			}
		}
		if types["d"] != api.TypeDir || types["to-dir"] != api.TypeSymlink || types["to-nothing"] != api.TypeSymlink ||
			types["special-fifo"] != api.TypeOther || types["special-socket"] != api.TypeOther {
			t.Errorf("%v", types)
		}
	})
	t.Run("F04_list_entry_vanishes", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/a", "1")
		put(t, root+"/b", "22")
		r := open(t, root)
		dir, err := r.volume.openFolder(".")
		if err != nil {
			t.Fatal(err)
		}
		defer dir.close()
		if err := os.Remove(root + "/a"); err != nil { // after its name was read
			t.Fatal(err)
		}
		page := r.page(dir, []string{"a", "b"}, 10)
		entries := *page.Entries
		if len(entries) != 2 || entries[1].Size != 2 {
			t.Errorf("%+v", entries)
		}
		if diff := cmp.Diff(api.FileEntry{Name: "a", Type: api.TypeOther}, entries[0]); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
	t.Run("F05_list_non_utf8_name_roundtrip", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/bad\xff", "x")
		put(t, root+"/bad\uFFFD", "y") // what the other looks like
		got := do(t, root, api.FileOperation{Op: api.OpList}).want(t, "")
		var raw []byte
		for _, e := range *got.Entries {
			if e.NameB64 != nil {
				raw = e.NameB64
			}
		}
		if string(raw) != "bad\xff" {
			t.Fatalf("%+v", *got.Entries)
		}
		stat := do(t, root, api.FileOperation{Op: api.OpStat, PathB64: raw}).want(t, "")
		if !bytes.Equal(stat.Entry.NameB64, raw) {
			t.Errorf("%+v", stat.Entry)
		}
		do(t, root, api.FileOperation{Op: api.OpDelete, PathB64: raw}).want(t, "")
		names(t, root, "bad\uFFFD")
	})
	t.Run("F06_list_name_with_newline_marker", func(t *testing.T) {
		root := t.TempDir()
		forged := "\n" + protocol.Prefix + " " + testNonce + ` 0 {"op":"list"}` + "\n" // two names: the prefix has a slash
		put(t, root+"/"+forged, "")
		link(t, forged, root+"/link")
		got := do(t, root, api.FileOperation{Op: api.OpList}).want(t, "")
		if len(*got.Entries) != 2 || (*got.Entries)[1].LinkTarget != forged {
			t.Errorf("%+v", *got.Entries)
		}
		// An error that is about the name is not a line of the answer either.
		do(t, root, api.FileOperation{Op: api.OpRead, Path: forged + "none"}).want(t, api.NotFound)
		do(t, root, api.FileOperation{Op: api.OpDelete, Path: "\nflint-file"}).want(t, api.NotEmpty)
		if got := do(t, "/nowhere"+forged, api.FileOperation{Op: api.OpList}); got.exit != ExitFailed || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("exit %d, stderr %q", got.exit, got.stderr)
		}
	})
	t.Run("of_what_is_no_folder", func(t *testing.T) {
		root := t.TempDir()
		put(t, root+"/f", "")
		do(t, root, api.FileOperation{Op: api.OpList, Path: "f"}).want(t, api.BadPath)
		do(t, root, api.FileOperation{Op: api.OpList, Path: "none"}).want(t, api.NotFound)
	})
}

// A folder of any size costs the memory of a page.
func TestFirstNamesHoldsOnePage(t *testing.T) {
	root := t.TempDir()
	tmpfs(t, root, "")
	for i := range 20000 {
		if err := os.WriteFile(fmt.Sprintf("%s/%08d", root, (i*7919)%20000), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := open(t, root).volume.openFolder(".")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.close()
	got, err := firstNames(t.Context(), dir, "00004999", 10)
	if err != nil || len(got) != 10 || cap(got) > 16 {
		t.Fatalf("%q, %v, room for %d", got, err, cap(got))
	}
	for i, name := range got {
		if name != fmt.Sprintf("%08d", 5000+i) {
			t.Errorf("%d: %s", i, name)
		}
	}
}

func TestStat(t *testing.T) {
	root := t.TempDir()
	put(t, root+"/f", "12345")
	if err := os.Chmod(root+"/f", 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(root+"/f", root+"/other name"); err != nil {
		t.Fatal(err)
	}
	link(t, "/elsewhere", root+"/l")
	got := do(t, root, api.FileOperation{Op: api.OpStat, Path: "f"}).want(t, "").Entry
	if got.Name != "f" || got.Type != api.TypeFile || got.Size != 5 || got.Mode != "0640" || got.Nlink != 2 || got.Inode == 0 ||
		got.UID != int64(os.Getuid()) || got.Modified == "" {
		t.Errorf("%+v", got)
	}
	if got := do(t, root, api.FileOperation{Op: api.OpStat, Path: "l"}).want(t, "").Entry; got.LinkTarget != "/elsewhere" {
		t.Errorf("%+v", got)
	}
	if got := do(t, root, api.FileOperation{Op: api.OpStat}).want(t, "").Entry; got.Type != api.TypeDir || got.Name != "." {
		t.Errorf("%+v", got)
	}
	do(t, root, api.FileOperation{Op: api.OpStat, Path: "none"}).want(t, api.NotFound)
}

func TestSpace(t *testing.T) {
	space := func(t *testing.T, reserve int64, statfs func(int, *unix.Statfs_t) error) int64 {
		t.Helper()
		r := open(t, t.TempDir())
		r.volume.statfs = statfs
		r.volume.limits.ReservePercent = reserve
		return *r.give(t.Context(), api.FileOperation{Op: api.OpList}).AvailableBytes
	}
	figures := func(available, blocks uint64) func(int, *unix.Statfs_t) error {
		return func(_ int, s *unix.Statfs_t) error {
			*s = unix.Statfs_t{Bavail: available, Blocks: blocks, Bsize: 4096, Frsize: 4096}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		reserve int64
		statfs  func(int, *unix.Statfs_t) error
		want    int64
	}{
		"F07_list_space_unknown_is_minus_one": {statfs: func(int, *unix.Statfs_t) error { return unix.ENOSYS }, want: -1},
		"F07_full_is_0":                       {statfs: figures(0, 100), want: 0},
		"F07_huge_is_clamped":                 {statfs: figures(math.MaxUint64, math.MaxUint64), want: math.MaxInt64},
		"without the reserve":                 {reserve: 5, statfs: figures(50, 1000), want: 0},
		"beside the reserve":                  {reserve: 5, statfs: figures(150, 1000), want: 100 * 4096},
	} {
		t.Run(name, func(t *testing.T) {
			if got := space(t, tc.reserve, tc.statfs); got < tc.want-4096 || got > tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
	t.Run("F07_a_volume_that_is_full", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "size=64k")
		if err := os.WriteFile(root+"/f", make([]byte, 64<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := do(t, root, api.FileOperation{Op: api.OpList}).want(t, ""); *got.AvailableBytes != 0 {
			t.Errorf("%d", *got.AvailableBytes)
		}
	})
}
