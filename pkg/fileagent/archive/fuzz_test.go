package archive_test

import (
	"archive/zip"
	"bytes"
	"io"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"flint.dev/flint/pkg/fileagent/archive"
)

// FuzzArchivePlan: whatever the bytes are, a plan has only paths that lead nowhere else, each once and beneath folders that the plan has, and
// no more than the limits allow; and the contents are as long as the plan says.
func FuzzArchivePlan(f *testing.F) {
	members := []member{{name: "a/b", content: "content"}, {name: "c/"}, {name: "d", content: strings.Repeat("x", 1000), mode: 0o755}}
	for _, data := range [][]byte{
		zipOf(f, members...), tarOf(f, members...), gzipOf(f, tarOf(f, members...)), millionEntries(3, 3), paxSparse(f),
		zipOf(f, member{name: "../x"}), tarOf(f, member{name: "../x"}), rawZip(f, []*zip.FileHeader{{Name: "a\xff\\b"}}, make([][]byte, 1)),
	} {
		f.Add(data)
	}
	small := archive.Limits{Entries: 50, Bytes: 1 << 20, EntryBytes: 1 << 19, Ratio: 10}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, read := range map[string]format{"zip": archive.Zip, "tar": archive.Tar} {
			plan, err := read(t.Context(), bytes.NewReader(data), int64(len(data)), small)
			if err != nil {
				continue
			}
			sound(t, name, plan, small)
			bytes, files := int64(0), 0
			err = plan.Extract(t.Context(), func(f archive.File, content io.Reader) error {
				n, err := io.Copy(io.Discard, content)
				bytes += n
				files++
				if err == nil && n != f.Size {
					t.Errorf("%s: %q has %d bytes, and the plan says %d", name, f.Path, n, f.Size)
				}
				return err
			})
			if bytes > plan.Bytes {
				t.Errorf("%s: %d bytes came, and the plan says %d", name, bytes, plan.Bytes)
			}
			if err == nil && (files != len(plan.Files) || bytes != plan.Bytes) {
				t.Errorf("%s: %d files with %d bytes came, and the plan says %d and %d", name, files, bytes, len(plan.Files), plan.Bytes)
			}
		}
	})
}

func sound(t *testing.T, name string, plan *archive.Plan, l archive.Limits) {
	t.Helper()
	folders, all := map[string]bool{".": true}, map[string]bool{}
	once := func(p string) {
		if !filepath.IsLocal(p) || path.Clean(p) != p || p == "." || strings.ContainsRune(p, 0) || strings.Contains(p, "..") && strings.Contains("/"+p+"/", "/../") {
			t.Errorf("%s: the path %q leads elsewhere", name, p)
		}
		if all[p] {
			t.Errorf("%s: %q is there twice", name, p)
		}
		if !folders[path.Dir(p)] {
			t.Errorf("%s: %q has no folder", name, p)
		}
		all[p] = true
	}
	for _, p := range plan.Folders {
		once(p)
		folders[p] = true
	}
	sum := int64(0)
	for _, f := range plan.Files {
		once(f.Path)
		if f.Size < 0 || f.Size > l.EntryBytes {
			t.Errorf("%s: %q has %d bytes", name, f.Path, f.Size)
		}
		sum += f.Size
	}
	if sum != plan.Bytes || sum > l.Bytes || int64(len(all)) > l.Entries {
		t.Errorf("%s: %d bytes (%d said) in %d entries", name, sum, plan.Bytes, len(all))
	}
}
