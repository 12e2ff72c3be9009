package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"strings"

	"flint.dev/flint/pkg/api"
)

// blockLength is of a tar's blocks.
const blockLength = 512

// Tar plans a tar archive of size bytes, plain or gzip, in one reading of the whole; Extract is the second. Names are kept byte for
// byte: tar has no charset, and comes from file systems that have none.
func Tar(ctx context.Context, from io.ReaderAt, size int64, limits Limits) (*Plan, error) {
	device := &medium{ctx: ctx, ReaderAt: from}
	p := newPlanner(limits, size)
	index := 0
	err := eachEntry(device, size, limits, func(h *tar.Header, _ io.Reader) error {
		if err := p.count(h.Name); err != nil {
			return err
		}
		e, skip, err := tarEntry(h, index)
		index++
		if err != nil || skip {
			return err
		}
		return p.add(e)
	})
	if err != nil {
		return nil, err
	}
	return p.done(func(ctx context.Context, each func(File, io.Reader) error) error {
		device.ctx = ctx
		next, index := 0, 0
		err := eachEntry(device, size, limits, func(h *tar.Header, from io.Reader) error {
			if next == len(p.plan.Files) || p.plan.Files[next].index != index {
				index++
				return nil
			}
			file := p.plan.Files[next]
			next, index = next+1, index+1
			if h.Name != file.entry || h.Size != file.Size {
				return refuse(api.ArchiveInvalid, file.entry, "was changed while it was read")
			}
			c := &content{from: from, device: device, file: file, left: file.Size}
			if err := each(file, c); err != nil {
				return &taken{err}
			}
			_, err := io.Copy(io.Discard, c)
			return err
		})
		if err == nil && next < len(p.plan.Files) {
			err = refuse(api.ArchiveInvalid, p.plan.Files[next].entry, "was changed while it was read")
		}
		var own *taken
		if errors.As(err, &own) {
			return own.error
		}
		return err
	})
}

// taken is an error of the one who takes the contents.
type taken struct{ error }

// eachEntry streams the archive and hands out its entries; then it reads to the very end, where the checksum of gzip is.
func eachEntry(device *medium, size int64, limits Limits, each func(*tar.Header, io.Reader) error) error {
	stream, err := unpacked(device, size, limits)
	if err != nil {
		return device.judge(err, "")
	}
	reader, last := tar.NewReader(stream), ""
	for {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return device.judge(err, last)
		}
		last = h.Name
		if err := each(h, reader); err != nil {
			return err
		}
	}
	return device.judge(padding(stream), "")
}

// padding reads what follows the end mark: nothing but zeros. Anything else was appended, and would be left out.
func padding(stream io.Reader) error {
	buffer, zeros := make([]byte, 32<<10), make([]byte, 32<<10)
	for {
		n, err := stream.Read(buffer)
		if !bytes.Equal(buffer[:n], zeros[:n]) {
			return refuse(api.ArchiveInvalid, "", "goes on after its end mark")
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// unpacked is the tar itself, from the beginning. What gzip makes of it is held to the limits as it flows: headers
// of all kinds count, which no plan sees.
func unpacked(device *medium, size int64, limits Limits) (io.Reader, error) {
	packed := io.NewSectionReader(device, 0, size)
	var magic [2]byte
	if _, err := packed.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if magic != [2]byte{0x1f, 0x8b} { // RFC 1952, 2.3.1
		return packed, nil
	}
	stream, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	// Four blocks an entry: its header, a long name's header and the name, and the padding of its content.
	most := limits.Bytes + 4*blockLength*min(limits.Entries, 1<<40)
	return &bounded{from: stream, packed: size, most: most, ratio: limits.Ratio}, nil
}

// bounded refuses what unpacks to too much.
type bounded struct {
	from                      io.Reader
	packed, most, ratio, done int64
}

// Read reads.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	b.done += int64(n)
	switch {
	case b.done > b.most:
		return 0, refuse(api.ArchiveTooLarge, "", "unpacks to more than %d bytes", b.most)
	case tooDense(b.done, b.packed, b.ratio):
		return 0, refuse(api.ArchiveTooLarge, "", "unpacks to more than %d times its size", b.ratio)
	}
	return n, err
}

// tarEntry is what a header says. Skipped are those that are no entry: defaults for all that follow, which git
// archive writes, and the folder itself, with which "tar c ." begins.
func tarEntry(h *tar.Header, index int) (e entry, skip bool, err error) {
	e = entry{name: h.Name, shown: h.Name, size: h.Size, executable: h.Mode&0o111 != 0, index: index}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return e, false, refuse(api.ArchiveInvalid, e.shown, "is sparse")
		}
	}
	switch h.Typeflag {
	case tar.TypeXGlobalHeader:
		return e, true, nil
	case tar.TypeDir:
		if strings.Trim(h.Name, "./") == "" && !strings.Contains(h.Name, "..") && !strings.HasPrefix(h.Name, "/") && h.Name != "" {
			return e, true, nil
		}
		e.kind, e.size = folder, 0
	case tar.TypeReg:
		if strings.HasSuffix(h.Name, "/") {
			return e, false, refuse(api.ArchiveInvalid, e.shown, "is a file with the name of a folder")
		}
	case tar.TypeSymlink, tar.TypeLink:
		e.kind = link
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		e.kind = special
	case tar.TypeGNUSparse:
		return e, false, refuse(api.ArchiveInvalid, e.shown, "is sparse")
	default:
		return e, false, refuse(api.ArchiveInvalid, e.shown, "is of the unknown kind %q", h.Typeflag)
	}
	return e, false, nil
}
