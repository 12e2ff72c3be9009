package archive_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/archive"
)

func limits() archive.Limits {
	return archive.Limits{Entries: 100_000, Bytes: 64 << 30, EntryBytes: 16 << 30, Ratio: 200}
}

// member is one entry of an archive that a test makes.
type member struct {
	name, content string
	mode          fs.FileMode
	typeflag      byte   // of a tar; 0 is a file
	link          string // of a tar
}

func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.BestSpeed) })
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name}
		if m.content != "" {
			h.Method = zip.Deflate
		}
		if m.mode != 0 {
			h.SetMode(m.mode)
		}
		into, err := w.CreateHeader(h)
		must(t, err)
		if !strings.HasSuffix(m.name, "/") {
			_, err = io.WriteString(into, m.content)
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// rawZip is a zip whose entry has whatever header the test gives it.
func rawZip(t testing.TB, headers []*zip.FileHeader, packed [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i, h := range headers {
		into, err := w.CreateRaw(h)
		must(t, err)
		_, err = into.Write(packed[i])
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func deflated(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	must(t, err)
	_, err = w.Write(content)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

func tarOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.typeflag, Linkname: m.link, Mode: int64(m.mode.Perm()), Size: int64(len(m.content))}
		if m.typeflag == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(m.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		}
		must(t, w.WriteHeader(h))
		_, err := io.WriteString(w, m.content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func gzipOf(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	must(t, err)
	_, err = w.Write(content)
	must(t, err)
	must(t, w.Close())
	return b.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type format func(context.Context, io.ReaderAt, int64, archive.Limits) (*archive.Plan, error)

// extracted is what an archive holds: the content of each file, "dir" for a folder, and "!" before what is executable.
func extracted(ctx context.Context, read format, data []byte, l archive.Limits) (map[string]string, error) {
	plan, err := read(ctx, bytes.NewReader(data), int64(len(data)), l)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, name := range plan.Folders {
		all[name] = "dir"
	}
	err = plan.Extract(ctx, func(f archive.File, content io.Reader) error {
		text, err := io.ReadAll(content)
		if f.Executable {
			all[f.Path] = "!"
		}
		all[f.Path] += string(text)
		if err == nil && int64(len(text)) != f.Size {
			return fmt.Errorf("%s has %d bytes, not %d", f.Path, len(text), f.Size)
		}
		return err
	})
	return all, err
}

// refusal checks that the error is a refusal with that code about that entry.
func refusal(t *testing.T, err error, code api.Code, entry string) {
	t.Helper()
	var refused *archive.Error
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a refusal with %s", err, code)
	}
	if refused.Code != code || refused.Entry != entry {
		t.Errorf("got %s about %q (%v), want %s about %q", refused.Code, refused.Entry, err, code, entry)
	}
}

func TestContents(t *testing.T) {
	t.Parallel()
	members := []member{
		{name: "empty/"}, {name: "a/b/c.txt", content: "deep"}, {name: "run", content: "#!", mode: 0o755},
		{name: "./dot//x", content: "dots"}, {name: "zero", content: ""}, {name: "a/d.txt", content: strings.Repeat("d", 100_000)},
	}
	want := map[string]string{
		"empty": "dir", "a": "dir", "a/b": "dir", "dot": "dir",
		"a/b/c.txt": "deep", "run": "!#!", "dot/x": "dots", "zero": "", "a/d.txt": strings.Repeat("d", 100_000),
	}
	plain := tarOf(t, members...)
	half := len(plain) / 2
	cases := map[string]struct {
		read format
		data []byte
	}{
		"zip":                       {archive.Zip, zipOf(t, members...)},
		"zip behind something else": {archive.Zip, append([]byte("#!/bin/sh\nexit\n"), zipOf(t, members...)...)},
		"tar":                       {archive.Tar, plain},
		"gzip":                      {archive.Tar, gzipOf(t, plain)},
		"gzip in two members":       {archive.Tar, append(gzipOf(t, plain[:half]), gzipOf(t, plain[half:])...)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := extracted(t.Context(), c.read, c.data, limits())
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestZipDirectory(t *testing.T) {
	t.Parallel()
	t.Run("a comment that looks like an end", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		_, err := w.Create("x")
		must(t, err)
		must(t, w.SetComment("PK\x05\x06"+strings.Repeat("\xff", 60)))
		must(t, w.Close())
		got, err := extracted(t.Context(), archive.Zip, b.Bytes(), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"x": ""}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("more than 65535 entries, zip64", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for i := range 70_000 {
			_, err := w.CreateHeader(&zip.FileHeader{Name: strconv.Itoa(i)})
			must(t, err)
		}
		must(t, w.Close())
		plan, err := archive.Zip(t.Context(), bytes.NewReader(b.Bytes()), int64(b.Len()), limits())
		must(t, err)
		if len(plan.Files) != 70_000 {
			t.Errorf("%d files", len(plan.Files))
		}
	})
	good := zipOf(t, member{name: "x", content: "content"})
	end := bytes.LastIndex(good, []byte("PK\x05\x06"))
	patched := func(at int, bytes ...byte) []byte {
		data := append([]byte{}, good...)
		copy(data[at:], bytes)
		return data
	}
	for name, data := range map[string][]byte{
		"nothing":                 {},
		"text":                    []byte("hello"),
		"cut at its end":          good[:len(good)-5],
		"more entries than there": patched(end+10, 2, 0),
		"none of its entries":     patched(end+8, 0, 0, 0, 0),
		"directory outside":       patched(end+16, 0xf0, 0xff, 0xff, 0x7f),
		"directory too long":      patched(end+12, 0xff, 0xff, 0xff, 0x7f),
		"zip64 that is not there": patched(end+16, 0xff, 0xff, 0xff, 0xff),
		"local header destroyed":  patched(0, 'X'),
		"no entries at all":       zipOf(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Zip, data, limits())
			var refused *archive.Error
			if !errors.As(err, &refused) || refused.Code != api.ArchiveInvalid {
				t.Errorf("got %v, want ARCHIVE_INVALID", err)
			}
		})
	}
}

func TestF56_unzip_slip_variants(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"../x", "a/../../x", "a/../x", `..\x`, `a\..\..\x`, "/abs", `\abs`, "//host/x", "C:/x", `c:\x`, "z:", "nul\x00x", "a/..", "..", "a/b/..", ".", "./",
		".flint-0123456789ab.undo/journal", "a/.FLINT-x",
	} {
		t.Run(fmt.Sprintf("zip %q", name), func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "good", content: "x"}, member{name: name}), limits())
			refusal(t, err, api.ArchiveUnsafe, name)
		})
		if strings.Contains(name, "\x00") || strings.Trim(name, "./") == "" {
			continue // no name of a tar, and for the folder itself see below
		}
		t.Run(fmt.Sprintf("tar %q", name), func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: "good", content: "x"}, member{name: name, typeflag: tar.TypeReg}), limits())
			refusal(t, err, api.ArchiveUnsafe, name)
		})
	}
	t.Run("zip, no name", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: ""}), limits())
		refusal(t, err, api.ArchiveUnsafe, "")
	})
	for _, name := range []string{"../", "../../", "..", "/", "a/../"} {
		t.Run(fmt.Sprintf("tar folder %q", name), func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: name, typeflag: tar.TypeDir}), limits())
			refusal(t, err, api.ArchiveUnsafe, name)
		})
	}
	t.Run("tar of . names the folder itself", func(t *testing.T) {
		t.Parallel()
		got, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: "./"}, member{name: "./x", content: "x"}), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"x": "x"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestF57_unzip_symlink_and_device(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode fs.FileMode
		code api.Code
	}{
		"symlink": {fs.ModeSymlink | 0o777, api.ArchiveSymlink},
		"device":  {fs.ModeDevice | fs.ModeCharDevice | 0o600, api.ArchiveUnsafe},
		"block":   {fs.ModeDevice | 0o600, api.ArchiveUnsafe},
		"pipe":    {fs.ModeNamedPipe | 0o600, api.ArchiveUnsafe},
		"socket":  {fs.ModeSocket | 0o600, api.ArchiveUnsafe},
	} {
		t.Run("zip "+name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "e", content: "/etc/passwd", mode: c.mode}), limits())
			refusal(t, err, c.code, "e")
		})
	}
	for name, c := range map[string]struct {
		typeflag byte
		code     api.Code
	}{
		"symlink": {tar.TypeSymlink, api.ArchiveSymlink}, "hard link": {tar.TypeLink, api.ArchiveSymlink},
		"char": {tar.TypeChar, api.ArchiveUnsafe}, "block": {tar.TypeBlock, api.ArchiveUnsafe}, "pipe": {tar.TypeFifo, api.ArchiveUnsafe},
		"contiguous": {tar.TypeCont, api.ArchiveInvalid}, "unknown": {'Q', api.ArchiveInvalid},
	} {
		t.Run("tar "+name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: "e", typeflag: c.typeflag, link: "/etc/passwd"}), limits())
			refusal(t, err, c.code, "e")
		})
	}
}

func TestF58_unzip_size_lies_and_crc(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("abcdefgh"), 1000)
	header := func(size int, crc uint32) *zip.FileHeader {
		return &zip.FileHeader{
			Name: "liar", Method: zip.Deflate, CRC32: crc,
			UncompressedSize64: uint64(size), CompressedSize64: uint64(len(deflated(t, content))),
		}
	}
	good := crc32.ChecksumIEEE(content)
	for name, h := range map[string]*zip.FileHeader{
		"says less":     header(len(content)-1, good),
		"says nothing":  header(0, good),
		"says more":     header(len(content)+1, good),
		"wrong CRC":     header(len(content), good+1),
		"huge size":     {Name: "liar", Method: zip.Deflate, UncompressedSize64: 1 << 63, CompressedSize64: uint64(len(deflated(t, content)))},
		"encrypted":     {Name: "liar", Method: zip.Deflate, Flags: 1, CRC32: good, UncompressedSize64: uint64(len(content)), CompressedSize64: uint64(len(deflated(t, content)))},
		"bzip2":         {Name: "liar", Method: 12, CRC32: good, UncompressedSize64: uint64(len(content)), CompressedSize64: uint64(len(deflated(t, content)))},
		"stored, twice": {Name: "liar", Method: zip.Store, CRC32: good, UncompressedSize64: 3, CompressedSize64: uint64(len(deflated(t, content)))},
		"no deflate":    {Name: "liar", Method: zip.Deflate, CRC32: good, UncompressedSize64: uint64(len(content)), CompressedSize64: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packed := deflated(t, content)
			if name == "no deflate" {
				packed = []byte("\xff\xff\xff\xff")
			}
			_, err := extracted(t.Context(), archive.Zip, rawZip(t, []*zip.FileHeader{h}, [][]byte{packed}), limits())
			refusal(t, err, api.ArchiveInvalid, "liar")
		})
	}
	plain := tarOf(t, member{name: "f", content: string(content)})
	packed := gzipOf(t, plain)
	flip := func(data []byte, at int) []byte {
		data = append([]byte{}, data...)
		data[at] ^= 0xff
		return data
	}
	for name, data := range map[string][]byte{
		"tar cut in a file":       plain[:1024],
		"gzip cut":                packed[:len(packed)-9],
		"gzip cut in its end":     packed[:len(packed)-1],
		"gzip with wrong CRC":     flip(packed, len(packed)-8),
		"tar header destroyed":    flip(plain, 150),
		"something after its end": append(append([]byte{}, plain...), plain...),
		"nothing":                 {},
		"only its end":            make([]byte, 1024),
		"text":                    []byte(strings.Repeat("hello ", 500)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Tar, data, limits())
			var refused *archive.Error
			if !errors.As(err, &refused) || refused.Code != api.ArchiveInvalid {
				t.Errorf("got %v, want ARCHIVE_INVALID", err)
			}
		})
	}
}

func TestF59_unzip_honest_bomb_ratio(t *testing.T) {
	t.Parallel()
	bomb := make([]byte, 65<<20)
	t.Run("zip", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "zeros", content: string(bomb)}), limits())
		refusal(t, err, api.ArchiveTooLarge, "zeros")
	})
	t.Run("tar, by what it says", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Tar, gzipOf(t, tarOf(t, member{name: "zeros", content: string(bomb)})), limits())
		refusal(t, err, api.ArchiveTooLarge, "zeros")
	})
	t.Run("tar, by what it does not say", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Tar, gzipOf(t, append(tarOf(t, member{name: "x"}), bomb...)), limits())
		refusal(t, err, api.ArchiveTooLarge, "")
	})
	t.Run("below the floor it is just well packed", func(t *testing.T) {
		t.Parallel()
		data := zipOf(t, member{name: "zeros", content: string(bomb[:64<<20])})
		_, err := archive.Zip(t.Context(), bytes.NewReader(data), int64(len(data)), limits())
		must(t, err)
	})
	small := limits()
	small.Bytes, small.EntryBytes = 1000, 600
	for name, read := range map[string]format{"zip": archive.Zip, "tar": archive.Tar} {
		of := map[string]func(testing.TB, ...member) []byte{"zip": zipOf, "tar": tarOf}[name]
		t.Run(name+" caps", func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), read, of(t, member{name: "a", content: strings.Repeat("x", 600)}, member{name: "b", content: strings.Repeat("x", 400)}), small)
			must(t, err)
			_, err = extracted(t.Context(), read, of(t, member{name: "a", content: strings.Repeat("x", 601)}), small)
			refusal(t, err, api.ArchiveTooLarge, "a")
			_, err = extracted(t.Context(), read, of(t, member{name: "a", content: strings.Repeat("x", 600)}, member{name: "b", content: strings.Repeat("x", 401)}), small)
			refusal(t, err, api.ArchiveTooLarge, "b")
		})
	}
}

// millionEntries is a zip whose directory has so many headers, all of one empty file, and an end that says what it is told to.
func millionEntries(headers int, says uint16) []byte {
	local := append([]byte("PK\x03\x04"), make([]byte, 27)...)
	local[26], local[30] = 1, 'x'
	header := append([]byte("PK\x01\x02"), make([]byte, 43)...)
	header[28], header[46] = 1, 'x'
	data := append(append([]byte{}, local...), bytes.Repeat(header, headers)...)
	end := append([]byte("PK\x05\x06"), make([]byte, 18)...)
	binary.LittleEndian.PutUint16(end[8:], says)
	binary.LittleEndian.PutUint16(end[10:], says)
	binary.LittleEndian.PutUint32(end[12:], uint32(len(header)*headers))
	binary.LittleEndian.PutUint32(end[16:], uint32(len(local)))
	return append(data, end...)
}

// TestF60_unzip_million_entries measures the memory, and so runs alone.
func TestF60_unzip_million_entries(t *testing.T) { //nolint:paralleltest // see above
	var many bytes.Buffer
	w := tar.NewWriter(&many)
	for i := range 100_001 {
		must(t, w.WriteHeader(&tar.Header{Name: strconv.Itoa(i), Typeflag: tar.TypeReg}))
	}
	must(t, w.Close())
	deep := strings.Repeat("d/", 90)
	var folders []member
	for i := range 1200 {
		folders = append(folders, member{name: fmt.Sprintf("%d/%sx", i, deep)})
	}
	for name, c := range map[string]struct {
		read format
		data []byte
	}{
		"zip":                           {archive.Zip, millionEntries(1_000_000, 1_000_000&0xffff)},
		"zip with one too many":         {archive.Zip, millionEntries(100_001, 100_001&0xffff)},
		"zip that says two":             {archive.Zip, millionEntries(1_000_000, 2)},
		"tar":                           {archive.Tar, gzipOf(t, many.Bytes())},
		"zip, folders of nobody's name": {archive.Zip, zipOf(t, folders...)},
	} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // see above
			g := newGauge(bytes.NewReader(c.data))
			_, err := c.read(t.Context(), g, int64(len(c.data)), limits())
			refusal(t, err, api.ArchiveTooLarge, "")
			if used := g.used(); used > 100<<20 {
				t.Errorf("%d bytes were held", used)
			}
		})
	}
	t.Run("an end that says billions takes nothing for them", func(t *testing.T) { //nolint:paralleltest // see above
		// A long archive lets archive/zip believe the number; this one is nearly all hole.
		end := millionEntries(1, 1)
		size := int64(1 << 40)
		record := append([]byte("PK\x06\x06"), make([]byte, 52)...)
		binary.LittleEndian.PutUint64(record[32:], 1<<33)
		locator := append([]byte("PK\x06\x07"), make([]byte, 16)...)
		binary.LittleEndian.PutUint64(locator[8:], uint64(size)-22-20-56)
		tail := append(append(record, locator...), end[len(end)-22:]...)
		copy(tail[len(tail)-22+8:], bytes.Repeat([]byte{0xff}, 12))
		g := newGauge(hole{size, tail})
		_, err := archive.Zip(t.Context(), g, size, limits())
		refusal(t, err, api.ArchiveInvalid, "")
		if used := g.used(); used > 8<<20 {
			t.Errorf("%d bytes were held", used)
		}
	})
}

// gauge looks at the heap while it is read from.
type gauge struct {
	io.ReaderAt
	before, most uint64
	reads        int
}

func newGauge(from io.ReaderAt) *gauge {
	g := &gauge{ReaderAt: from}
	g.look()
	g.before, g.reads = g.most, 0
	return g
}

func (g *gauge) look() {
	runtime.GC() // what nobody holds does not count
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	g.most = max(g.most, now.HeapAlloc)
}

func (g *gauge) used() uint64 {
	g.look()
	return g.most - g.before
}

func (g *gauge) ReadAt(p []byte, off int64) (int, error) {
	if g.reads++; g.reads%100 == 0 {
		g.look()
	}
	return g.ReaderAt.ReadAt(p, off)
}

// hole is zeros up to the tail.
type hole struct {
	size int64
	tail []byte
}

func (h hole) ReadAt(p []byte, off int64) (int, error) {
	n := int(min(int64(len(p)), h.size-off))
	clear(p[:n])
	if at := h.size - int64(len(h.tail)); off+int64(n) > at {
		copy(p[max(0, at-off):n], h.tail[max(0, off-at):])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func TestF61_unzip_nested_overlap_quine(t *testing.T) {
	t.Parallel()
	t.Run("two entries of the same bytes", func(t *testing.T) {
		t.Parallel()
		data := zipOf(t, member{name: "a", content: "content"}, member{name: "b", content: "content"})
		// The directory's second entry is made to point at the first one's content.
		at := bytes.LastIndex(data, []byte("PK\x01\x02"))
		binary.LittleEndian.PutUint32(data[at+42:], 0)
		_, err := extracted(t.Context(), archive.Zip, data, limits())
		refusal(t, err, api.ArchiveInvalid, "b")
	})
	t.Run("an entry that reaches into the next", func(t *testing.T) {
		t.Parallel()
		// The quoted-overlap construction: the first entry's stored bytes are the second entry, header and all.
		inner := zipOf(t, member{name: "b", content: "content"})
		local := inner[:bytes.Index(inner, []byte("PK\x01\x02"))]
		outer := rawZip(t,
			[]*zip.FileHeader{{Name: "a", Method: zip.Store, CRC32: crc32.ChecksumIEEE(local), UncompressedSize64: uint64(len(local)), CompressedSize64: uint64(len(local))}},
			[][]byte{local})
		start := bytes.Index(outer, []byte("PK\x01\x02"))
		end := bytes.LastIndex(outer, []byte("PK\x05\x06"))
		second := append([]byte{}, inner[bytes.Index(inner, []byte("PK\x01\x02")):bytes.LastIndex(inner, []byte("PK\x05\x06"))]...)
		binary.LittleEndian.PutUint32(second[42:], uint32(31)) // behind the first entry's local header
		data := append(append(append([]byte{}, outer[:end]...), second...), outer[end:]...)
		at := bytes.LastIndex(data, []byte("PK\x05\x06"))
		binary.LittleEndian.PutUint16(data[at+8:], 2)
		binary.LittleEndian.PutUint16(data[at+10:], 2)
		binary.LittleEndian.PutUint32(data[at+12:], uint32(at-start))
		_, err := extracted(t.Context(), archive.Zip, data, limits())
		refusal(t, err, api.ArchiveInvalid, "b")
	})
	t.Run("archives in an archive are files", func(t *testing.T) {
		t.Parallel()
		inner := zipOf(t, member{name: "x", content: strings.Repeat("0", 1<<20)})
		got, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "1.zip", content: string(inner)}, member{name: "2.zip", content: string(inner)}), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"1.zip": string(inner), "2.zip": string(inner)}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestF62_unzip_duplicate_and_file_folder_clash(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		members []member
		entry   string
	}{
		"file twice":               {[]member{{name: "a"}, {name: "a"}}, "a"},
		"file twice, spelled anew": {[]member{{name: "d/a"}, {name: "d//./a"}}, "d//./a"},
		"folder twice":             {[]member{{name: "a/"}, {name: "a/"}}, "a/"},
		"file, then folder":        {[]member{{name: "a"}, {name: "a/"}}, "a/"},
		"folder, then file":        {[]member{{name: "a/"}, {name: "a"}}, "a"},
		"file, then within":        {[]member{{name: "a"}, {name: "a/b"}}, "a/b"},
		"within, then file":        {[]member{{name: "a/b"}, {name: "a"}}, "a"},
		"within, then far within":  {[]member{{name: "a/b"}, {name: "a/b/c/d"}}, "a/b/c/d"},
	} {
		t.Run("zip "+name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Zip, zipOf(t, c.members...), limits())
			refusal(t, err, api.ArchiveInvalid, c.entry)
		})
		t.Run("tar "+name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Tar, tarOf(t, c.members...), limits())
			refusal(t, err, api.ArchiveInvalid, c.entry)
		})
	}
	t.Run("a folder that is named after what is in it", func(t *testing.T) {
		t.Parallel()
		got, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "a/b", content: "x"}, member{name: "a/"}), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"a": "dir", "a/b": "x"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestNamesTooLong(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"a name":  strings.Repeat("n", 256),
		"a path":  strings.Repeat(strings.Repeat("n", 200)+"/", 11) + "x",
		"a depth": strings.Repeat("d/", 100) + "x",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: path}), limits())
			refusal(t, err, api.ArchiveTooLarge, path)
			_, err = extracted(t.Context(), archive.Tar, tarOf(t, member{name: path}), limits())
			refusal(t, err, api.ArchiveTooLarge, path)
		})
	}
	t.Run("the longest", func(t *testing.T) {
		t.Parallel()
		path := strings.Repeat("d/", 99) + strings.Repeat("n", 255)
		got, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: path, content: "x"}), limits())
		must(t, err)
		if got[path] != "x" {
			t.Errorf("got %v", got)
		}
	})
}

func TestF67_unzip_gbk_names_macosx_skipped(t *testing.T) {
	t.Parallel()
	gbk := "\xd6\xd0\xce\xc4/\xc4\xe3\xba\xc3.txt" // 中文/你好.txt
	data := rawZip(t, []*zip.FileHeader{{Name: gbk}, {Name: "__MACOSX/._x"}, {Name: "__MACOSX/"}, {Name: "é/ü"}, {Name: `win\dows`}}, make([][]byte, 5))
	got, err := extracted(t.Context(), archive.Zip, data, limits())
	must(t, err)
	if diff := cmp.Diff(map[string]string{"中文": "dir", "中文/你好.txt": "", "é": "dir", "é/ü": "", "win": "dir", "win/dows": ""}, got); diff != "" {
		t.Error(diff)
	}
	t.Run("neither", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Zip, rawZip(t, []*zip.FileHeader{{Name: "a\xff"}}, make([][]byte, 1)), limits())
		refusal(t, err, api.ArchiveInvalid, "a\xff")
	})
	t.Run("only __MACOSX", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Zip, zipOf(t, member{name: "__MACOSX/._x"}), limits())
		refusal(t, err, api.ArchiveInvalid, "")
	})
	t.Run("tar keeps its bytes", func(t *testing.T) {
		t.Parallel()
		got, err := extracted(t.Context(), archive.Tar, tarOf(t, member{name: "a\xff"}, member{name: `back\slash`}), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"a\xff": "", `back\slash`: ""}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTarKinds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long/", 30) + strings.Repeat("n", 200)
	for _, kind := range []tar.Format{tar.FormatPAX, tar.FormatGNU} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			must(t, w.WriteHeader(&tar.Header{Name: long, Typeflag: tar.TypeReg, Format: kind, ModTime: time.Unix(1, 0)}))
			must(t, w.Close())
			got, err := extracted(t.Context(), archive.Tar, b.Bytes(), limits())
			must(t, err)
			if _, there := got[long]; !there {
				t.Errorf("got %v", got)
			}
		})
	}
	t.Run("defaults for all entries are none", func(t *testing.T) {
		t.Parallel()
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		must(t, w.WriteHeader(&tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c0ffee"}}))
		must(t, w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg}))
		must(t, w.Close())
		got, err := extracted(t.Context(), archive.Tar, b.Bytes(), limits())
		must(t, err)
		if diff := cmp.Diff(map[string]string{"x": ""}, got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("sparse", func(t *testing.T) {
		t.Parallel()
		header := tarOf(t, member{name: "s"})[:512]
		header[156] = 'S'
		copy(header[257:], "ustar  \x00")
		checksum(header)
		_, err := extracted(t.Context(), archive.Tar, append(header, make([]byte, 1024)...), limits())
		refusal(t, err, api.ArchiveInvalid, "s")
	})
	t.Run("sparse by PAX", func(t *testing.T) {
		t.Parallel()
		_, err := extracted(t.Context(), archive.Tar, paxSparse(t), limits())
		refusal(t, err, api.ArchiveInvalid, "s")
	})
}

// paxSparse is a tar with a sparse file of PAX format 1.0, which the writer refuses to make.
func paxSparse(t testing.TB) []byte {
	t.Helper()
	var records strings.Builder
	for _, r := range []string{"GNU.sparse.major=1\n", "GNU.sparse.minor=0\n", "GNU.sparse.name=s\n", "GNU.sparse.realsize=1000000\n"} {
		length := len(r) + 3
		fmt.Fprintf(&records, "%d %s", length, r)
	}
	data := tarOf(t, member{name: "h", content: records.String()})
	data[156] = 'x'
	checksum(data)
	return append(data[:1024], tarOf(t, member{name: "GNUSparseFile.0/s", content: "1\n0\n512\n" + strings.Repeat("\x00", 504) + strings.Repeat("x", 512)})...)
}

func checksum(header []byte) {
	copy(header[148:156], "        ")
	sum := 0
	for _, c := range header[:512] {
		sum += int(c)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
}

func TestStops(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		read format
		data []byte
	}{
		"zip": {archive.Zip, zipOf(t, member{name: "a", content: "x"}, member{name: "b", content: "y"})},
		"tar": {archive.Tar, tarOf(t, member{name: "a", content: "x"}, member{name: "b", content: "y"})},
	} {
		t.Run(name+", with the context", func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			plan, err := c.read(ctx, bytes.NewReader(c.data), int64(len(c.data)), limits())
			must(t, err)
			seen := 0
			err = plan.Extract(ctx, func(archive.File, io.Reader) error { seen++; cancel(); return nil })
			if !errors.Is(err, context.Canceled) || seen != 1 {
				t.Errorf("got %v after %d files", err, seen)
			}
		})
		t.Run(name+", with the taker", func(t *testing.T) {
			t.Parallel()
			plan, err := c.read(t.Context(), bytes.NewReader(c.data), int64(len(c.data)), limits())
			must(t, err)
			if err := plan.Extract(t.Context(), func(archive.File, io.Reader) error { return io.ErrUnexpectedEOF }); err != io.ErrUnexpectedEOF { //nolint:errorlint // the very same
				t.Errorf("got %v", err)
			}
		})
		t.Run(name+", with the disk", func(t *testing.T) {
			t.Parallel()
			broken := errors.New("input/output error")
			_, err := c.read(t.Context(), failing{broken}, int64(len(c.data)), limits())
			if !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	}
}

type failing struct{ err error }

func (f failing) ReadAt([]byte, int64) (int, error) { return 0, f.err }

// TestChecksumOfWhatNobodyTakes: an entry is judged to its end, however little of it is taken.
func TestChecksumOfWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	data := zipOf(t, member{name: "a", content: "content"})
	data[bytes.Index(data, []byte("PK\x01\x02"))+16] ^= 1 // APPNOTE.TXT 4.3.12
	plan, err := archive.Zip(t.Context(), bytes.NewReader(data), int64(len(data)), limits())
	must(t, err)
	var refused *archive.Error
	if err := plan.Extract(t.Context(), func(archive.File, io.Reader) error { return nil }); !errors.As(err, &refused) || refused.Code != api.ArchiveInvalid {
		t.Errorf("got %v", err)
	}
}
