package archive

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"io/fs"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/simplifiedchinese"

	"flint.dev/flint/pkg/api"
)

// Zip plans a zip archive of size bytes. Names are UTF-8, or else GB18030, which includes GBK; a backslash is a slash.
func Zip(ctx context.Context, from io.ReaderAt, size int64, limits Limits) (*Plan, error) {
	device := &medium{ctx: ctx, ReaderAt: from}
	plan, err := planZip(device, size, limits)
	if err != nil {
		return nil, device.judge(err, "")
	}
	return plan, nil
}

func planZip(device *medium, size int64, limits Limits) (*Plan, error) {
	directory, err := measure(device, size, limits)
	if err != nil {
		return nil, err
	}
	view := directory.view(device)
	reader, err := zip.NewReader(view, view.size())
	if err != nil {
		return nil, err
	}
	p := newPlanner(limits, size)
	data := make([]extent, 0, len(reader.File))
	for i, f := range reader.File {
		if err := p.count(f.Name); err != nil {
			return nil, err
		}
		e, err := zipEntry(f, i)
		if err != nil {
			return nil, err
		}
		if err := p.add(e); err != nil {
			return nil, err
		}
		if f.CompressedSize64 == 0 {
			continue
		}
		start, err := f.DataOffset()
		if err != nil {
			return nil, device.judge(err, e.shown)
		}
		if f.CompressedSize64 > math.MaxInt64 || start < 0 || start > directory.start || int64(f.CompressedSize64) > directory.start-start {
			return nil, refuse(api.ArchiveInvalid, e.shown, "lies outside of the archive")
		}
		data = append(data, extent{start: start, end: start + int64(f.CompressedSize64), entry: e.shown})
	}
	if err := apart(data); err != nil {
		return nil, err
	}
	return p.done(func(ctx context.Context, each func(File, io.Reader) error) error {
		device.ctx = ctx
		for _, file := range p.plan.Files {
			if err := extractZip(device, reader.File[file.index], file, each); err != nil {
				return err
			}
		}
		return nil
	})
}

func extractZip(device *medium, f *zip.File, file File, each func(File, io.Reader) error) error {
	from, err := f.Open()
	if err != nil {
		return device.judge(err, file.entry)
	}
	defer func() { _ = from.Close() }()
	c := &content{from: from, device: device, file: file, left: file.Size}
	return c.hand(each)
}

// zipEntry is what a header says.
func zipEntry(f *zip.File, index int) (entry, error) {
	name, decoded := f.Name, true
	if !utf8.ValidString(name) {
		name, decoded = decodeGB18030(name)
	}
	e := entry{name: strings.ReplaceAll(name, `\`, "/"), shown: name, index: index}
	const encrypted = 0x1 // APPNOTE.TXT 4.4.4, bit 0
	switch {
	case !decoded:
		return e, refuse(api.ArchiveInvalid, f.Name, "has a name that is neither UTF-8 nor GB18030")
	case f.Flags&encrypted != 0:
		return e, refuse(api.ArchiveInvalid, e.shown, "is encrypted")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return e, refuse(api.ArchiveInvalid, e.shown, "is packed by method %d, and stored (0) and deflate (8) are known", f.Method)
	case f.UncompressedSize64 > math.MaxInt64:
		return e, refuse(api.ArchiveInvalid, e.shown, "has a size of %d bytes", f.UncompressedSize64)
	case f.Method == zip.Store && f.CompressedSize64 != f.UncompressedSize64 && !strings.HasSuffix(e.name, "/"):
		return e, refuse(api.ArchiveInvalid, e.shown, "is stored, and has two sizes: %d and %d", f.CompressedSize64, f.UncompressedSize64)
	}
	e.size = int64(f.UncompressedSize64)
	mode := f.Mode()
	e.executable = mode&0o111 != 0
	switch {
	case mode&fs.ModeSymlink != 0:
		e.kind = link
	case strings.HasSuffix(e.name, "/") || mode.IsDir():
		e.kind = folder
	case !mode.IsRegular():
		e.kind = special
	}
	return e, nil
}

func decodeGB18030(name string) (string, bool) {
	decoded, err := simplifiedchinese.GB18030.NewDecoder().String(name)
	return decoded, err == nil && !strings.ContainsRune(decoded, utf8.RuneError)
}

// extent is where an entry's content lies.
type extent struct {
	start, end int64
	entry      string
}

// apart refuses entries that share bytes: what is small on disk and large when extracted (D. Fifield, "A better zip
// bomb", 2019) is made of such.
func apart(data []extent) error {
	slices.SortFunc(data, func(a, b extent) int { return int(min(1, max(-1, a.start-b.start))) })
	for i := 1; i < len(data); i++ {
		if data[i].start < data[i-1].end {
			return refuse(api.ArchiveInvalid, data[i].entry, "shares bytes with entry %q", data[i-1].entry)
		}
	}
	return nil
}

// Lengths and signatures of APPNOTE.TXT 4.3.
const (
	headerLength    = 46 // of an entry in the central directory, without its name, extra and comment
	headerSignature = "PK\x01\x02"
	endLength       = 22
	endSignature    = "PK\x05\x06"
	locatorLength   = 20
	locatorSign     = "PK\x06\x07"
	end64Length     = 56
	end64Signature  = "PK\x06\x06"
	maxComment      = 1<<16 - 1
)

// directory is a zip's central directory, as it was counted and not as the archive says.
type directory struct {
	// start is where it lies, and size its length. offset is what the archive says of start: less, by what was put before it.
	start, size, offset int64
	entries             uint64
}

// measure finds the central directory and counts its entries, in little memory. archive/zip takes an entry's memory
// before anybody can judge, and takes the number of entries, for the most part, from the archive.
func measure(from io.ReaderAt, size int64, limits Limits) (directory, error) {
	invalid := func(reason string) (directory, error) {
		return directory{}, refuse(api.ArchiveInvalid, "", "is not a zip: %s", reason)
	}
	tail := make([]byte, min(size, endLength+maxComment))
	if _, err := io.ReadFull(io.NewSectionReader(from, size-int64(len(tail)), int64(len(tail))), tail); err != nil {
		return directory{}, err
	}
	at := endOf(tail)
	if at < 0 {
		return invalid("it has no end of its directory")
	}
	end := tail[at:]
	var (
		little  = binary.LittleEndian
		records = uint64(little.Uint16(end[10:]))
		length  = uint64(little.Uint32(end[12:]))
		offset  = uint64(little.Uint32(end[16:]))
		limit   = size - int64(len(tail)) + int64(at) // the directory ends here at the latest
		counted = uint64(1<<16 - 1)                   // what of the number of entries is told
	)
	if records == 1<<16-1 || length == 1<<32-1 || offset == 1<<32-1 {
		wide, where, err := end64(from, limit)
		if err != nil {
			return directory{}, err
		}
		if wide != nil {
			records, length, offset = little.Uint64(wide[32:]), little.Uint64(wide[40:]), little.Uint64(wide[48:])
			limit, counted = where, math.MaxUint64
		}
	}
	if length > math.MaxInt64 || offset > math.MaxInt64 {
		return invalid("its directory lies outside of it")
	}
	d := directory{start: int64(offset), size: int64(length), offset: int64(offset)}
	if d.size > limit || d.offset > limit-d.size {
		return invalid("its directory lies outside of it")
	}
	if most := limits.names(); d.size > most {
		return directory{}, refuse(api.ArchiveTooLarge, "", "has a directory of %d bytes, and %d are the most", d.size, most)
	}
	var sign [4]byte
	if _, err := from.ReadAt(sign[:], d.start); err != nil || string(sign[:]) != headerSignature {
		d.start = limit - d.size // something was put before the archive, and the offsets do not know
	}
	if err := d.count(from, uint64(max(0, limits.Entries))); err != nil {
		return directory{}, err
	}
	if d.entries&counted != records {
		return invalid("its directory does not have as many entries as it says")
	}
	return d, nil
}

// endOf finds the end of central directory record: the last signature whose comment fits behind it. It is -1 if there is none.
func endOf(tail []byte) int {
	for at := len(tail); at >= 0; {
		at = bytes.LastIndex(tail[:at], []byte(endSignature))
		if at < 0 {
			return -1
		}
		if rest := len(tail) - at - endLength; rest >= 0 && int(binary.LittleEndian.Uint16(tail[at+20:])) <= rest {
			return at
		}
	}
	return -1
}

// end64 is the zip64 record, and where it is; nil if there is none.
func end64(from io.ReaderAt, end int64) ([]byte, int64, error) {
	if end < locatorLength+end64Length {
		return nil, 0, nil
	}
	locator := make([]byte, locatorLength)
	if _, err := from.ReadAt(locator, end-locatorLength); err != nil {
		return nil, 0, err
	}
	if string(locator[:4]) != locatorSign {
		return nil, 0, nil
	}
	at := binary.LittleEndian.Uint64(locator[8:])
	if at > math.MaxInt64 || int64(at) > end-locatorLength-end64Length {
		return nil, 0, refuse(api.ArchiveInvalid, "", "is not a zip: its zip64 record lies outside of it")
	}
	record := make([]byte, end64Length)
	if _, err := from.ReadAt(record, int64(at)); err != nil {
		return nil, 0, err
	}
	if string(record[:4]) != end64Signature {
		return nil, 0, refuse(api.ArchiveInvalid, "", "is not a zip: its zip64 record is none")
	}
	return record, int64(at), nil
}

// count walks the directory.
func (d *directory) count(from io.ReaderAt, most uint64) error {
	headers := bufio.NewReaderSize(io.NewSectionReader(from, d.start, d.size), 64<<10)
	for left := d.size; left > 0; d.entries++ {
		if d.entries == most {
			return refuse(api.ArchiveTooLarge, "", "has more than %d entries", most)
		}
		var h [headerLength]byte
		if _, err := io.ReadFull(headers, h[:]); err != nil {
			return err
		}
		if string(h[:4]) != headerSignature {
			return refuse(api.ArchiveInvalid, "", "is not a zip: entry %d of its directory is none", d.entries)
		}
		rest := 0
		for _, at := range []int{28, 30, 32} { // lengths of name, extra and comment
			rest += int(binary.LittleEndian.Uint16(h[at:]))
		}
		if _, err := headers.Discard(rest); err != nil {
			return err
		}
		left -= int64(headerLength + rest)
	}
	return nil
}

// view is the archive up to the end of its directory, and then an end of our own that says what was counted: so
// archive/zip sees the directory that was measured, and no other.
func (d *directory) view(from io.ReaderAt) *spliced {
	var (
		little = binary.LittleEndian
		end    = d.start + d.size
		tail   = make([]byte, 0, end64Length+locatorLength+endLength)
	)
	tail = append(tail, end64Signature...)
	tail = little.AppendUint64(tail, end64Length-12)
	tail = append(tail, make([]byte, 12)...) // versions and disks
	tail = little.AppendUint64(tail, d.entries)
	tail = little.AppendUint64(tail, d.entries)
	tail = little.AppendUint64(tail, uint64(d.size))   //nolint:gosec // not below zero
	tail = little.AppendUint64(tail, uint64(d.offset)) //nolint:gosec // not below zero

	tail = append(tail, locatorSign...)
	tail = little.AppendUint32(tail, 0)
	tail = little.AppendUint64(tail, uint64(end)) //nolint:gosec // not below zero
	tail = little.AppendUint32(tail, 1)           // disks in all

	tail = append(tail, endSignature...)
	tail = little.AppendUint32(tail, 0)
	tail = little.AppendUint64(tail, 1<<64-1) // entries, twice, and size: see the zip64 record
	tail = little.AppendUint32(tail, 1<<32-1)
	tail = little.AppendUint16(tail, 0)
	return &spliced{from: from, at: end, tail: tail}
}

// spliced is a reader's bytes up to at, and then tail.
type spliced struct {
	from io.ReaderAt
	at   int64
	tail []byte
}

func (s *spliced) size() int64 { return s.at + int64(len(s.tail)) }

// ReadAt reads.
func (s *spliced) ReadAt(p []byte, off int64) (int, error) {
	if off >= s.at {
		return bytes.NewReader(s.tail).ReadAt(p, off-s.at)
	}
	head := p[:min(int64(len(p)), s.at-off)]
	n, err := s.from.ReadAt(head, off)
	if n < len(head) || len(head) == len(p) {
		if n == len(head) {
			err = nil
		}
		return n, err
	}
	more, err := bytes.NewReader(s.tail).ReadAt(p[n:], 0)
	return n + more, err
}
