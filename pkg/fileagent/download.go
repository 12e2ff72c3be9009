package fileagent

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// The formats of a download.
const (
	formatFile = "file"
	formatZip  = "zip"
	formatTar  = "tar"
)

// download pushes a file, or a folder as an archive, to a URL. It is a PUT with its length, since presigned URLs take no other, and
// an archive's length is known only when it was made: so it is made twice, once to be measured and once to be sent.
// Nothing is written to the volume.
//
// A file that changes meanwhile fails the transfer before its last byte has left, so that the other end cannot take a part for the whole.
func (r *run) download(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	if op.Sink == nil {
		return nil, refuse(api.BadRequest, "download has no sink")
	}
	client, err := r.dial(op.Sink.URL, op.Sink.Token)
	if err != nil {
		return nil, err
	}
	name, err := r.volume.resolve(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	var result *api.FileResult
	var content io.ReadCloser
	switch op.Sink.Format {
	case "", formatFile:
		result, content, err = r.openWhole(name)
	case formatZip, formatTar:
		result, content, err = r.openPacked(ctx, name, op.Sink.Format)
	default:
		err = refuse(api.BadRequest, "the sink's format %q is none of file, zip and tar", op.Sink.Format)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	sum, sent := sha256.New(), int64(0)
	told := func(n int64) {
		sent += n
		r.progress(sent, result.Bytes)
	}
	from := &exact{from: content, left: result.Bytes, changed: changed(name)}
	err = client.Put(ctx, result.Bytes, io.TeeReader(&watched{ctx, from, told}, sum))
	if err != nil {
		return nil, locate(name, transferred(err))
	}
	result.SHA256 = hex.EncodeToString(sum.Sum(nil))
	size := result.Bytes
	result.Size = &size
	return result, nil
}

func changed(name string) error {
	return refuse(api.TransferFailed, "%q was changed while it was sent", shown(name))
}

// openWhole opens a file to be sent. The result has its size, as Bytes.
func (r *run) openWhole(name string) (*api.FileResult, io.ReadCloser, error) {
	file, info, err := r.volume.openFile(name)
	if err != nil {
		return nil, nil, err
	}
	content := &sameFile{File: file, name: name, before: info}
	return &api.FileResult{Files: 1, Bytes: info.Size()}, content, nil
}

// sameFile is a file that is to stay as it was when it was opened, up to its end.
type sameFile struct {
	*os.File
	name   string
	before fs.FileInfo
}

// Read reads. At the end it looks whether the file is still the same.
func (f *sameFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err == io.EOF {
		now, statErr := f.Stat()
		if statErr != nil {
			return n, statErr
		}
		if now.Size() != f.before.Size() || !now.ModTime().Equal(f.before.ModTime()) {
			return n, changed(f.name)
		}
	}
	return n, err
}

// openPacked lists and measures a folder to be sent as an archive, and begins to make it. The result has the archive's
// length, as Bytes, and what was counted.
func (r *run) openPacked(ctx context.Context, name, format string) (*api.FileResult, io.ReadCloser, error) {
	top, err := r.volume.openFolder(name)
	if err != nil {
		return nil, nil, err
	}
	k := &packing{volume: r.volume, ctx: ctx, format: format, name: name, as: path.Base(name), top: finder{top: top}}
	if name == "." {
		k.as = r.request.Claim
	}
	if err := k.list(); err != nil {
		k.close()
		return nil, nil, locate(name, err)
	}
	var length counter
	read := int64(0)
	k.told = func(n int64) {
		read += n
		r.progress(read, 0)
	}
	if err := k.write(&length, format == formatZip); err != nil {
		k.close()
		return nil, nil, locate(name, err)
	}
	k.told = func(int64) {}
	return &api.FileResult{Files: k.files, Folders: k.folders, Skipped: k.skipped, Bytes: int64(length)}, k.start(), nil
}

// counter counts what is written to it.
type counter int64

// Write counts.
func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// namesEach bounds the paths in an archive that is made: so many bytes for each of Limits.ArchiveEntries.
const namesEach = 256

// packed is one entry of an archive that is made.
type packed struct {
	path     string // beneath the folder; "." is the folder itself
	folder   bool
	size     int64
	mode     fs.FileMode
	modified time.Time
	state    *fileState
}

// packing makes an archive of a folder, whose entries have the folder's own name before theirs. Links, devices, pipes, sockets, mount
// points and what the agent itself keeps on a volume are left out and counted.
type packing struct {
	volume *volume
	ctx    context.Context //nolint:containedctx // of one download, from its begin to its end
	format string
	name   string // of the folder, in errors
	as     string // the first name of each entry
	top    finder
	told   func(n int64) // of bytes that were read

	entries                        []packed
	names                          int64 // bytes of all paths
	files, folders, bytes, skipped int64
}

func (k *packing) close() {
	k.top.close()
	k.top.top.close()
}

// list finds what is to be packed, in the order of names.
func (k *packing) list() error {
	var s unix.Stat_t
	if err := again(func() error { return unix.Fstat(k.top.top.fd, &s) }); err != nil {
		return err
	}
	if err := k.add(".", &s); err != nil {
		return err
	}
	if err := k.walk(k.top.top, ".", 1); err != nil {
		return err
	}
	slices.SortFunc(k.entries, func(a, b packed) int { return strings.Compare(a.path, b.path) })
	return nil
}

func (k *packing) walk(dir *folder, full string, depth int) error {
	if depth > maxDepth {
		return refuse(api.BadPath, "%q is more than %d folders deep", shown(full), maxDepth)
	}
	c := &copier{volume: k.volume, ctx: k.ctx}
	return c.each(dir, full, func() { k.skipped++ }, func(name string, s *unix.Stat_t, inner *folder) error {
		full := path.Join(full, name)
		if s.Mode&unix.S_IFMT == unix.S_IFLNK || reserved(name) {
			k.skipped++
			return nil
		}
		if err := k.add(full, s); err != nil || inner == nil {
			return err
		}
		return k.walk(inner, full, depth+1)
	})
}

func (k *packing) add(name string, s *unix.Stat_t) error {
	l := k.volume.limits
	e := packed{path: name, mode: fs.FileMode(s.Mode & 0o777), modified: time.Unix(s.Mtim.Unix()), state: stateOf(s)}
	k.names += int64(len(name))
	if e.folder = s.Mode&unix.S_IFMT == unix.S_IFDIR; e.folder {
		k.folders++
	} else {
		k.files++
		e.size = s.Size
	}
	switch {
	case k.files+k.folders > l.ArchiveEntries:
		return refuse(api.ArchiveTooLarge, "%q has more than %d entries", shown(k.name), l.ArchiveEntries)
	case k.names > l.ArchiveEntries*namesEach: // all are held, and may be as long as the tree is deep
		return refuse(api.ArchiveTooLarge, "%q has more than %d bytes of names", shown(k.name), l.ArchiveEntries*namesEach)
	case e.size > l.ArchiveEntryBytes:
		return refuse(api.ArchiveTooLarge, "%q has %d bytes, and %d are the most in an archive", shown(path.Join(k.name, name)), e.size, l.ArchiveEntryBytes)
	case e.size > l.ArchiveBytes-k.bytes:
		return refuse(api.ArchiveTooLarge, "%q has more than %d bytes", shown(k.name), l.ArchiveBytes)
	}
	k.bytes += e.size
	k.entries = append(k.entries, e)
	return nil
}

// start makes the archive again, for the reader. Closing the reader ends that, and the packing.
func (k *packing) start() io.ReadCloser {
	from, to := io.Pipe()
	made := make(chan struct{})
	go func() {
		defer close(made)
		to.CloseWithError(k.write(to, true))
	}()
	return &stream{PipeReader: from, made: made, close: k.close}
}

// stream is an archive that is being made.
type stream struct {
	*io.PipeReader
	made  chan struct{}
	close func()
}

// Close ends the making.
func (s *stream) Close() error {
	err := s.PipeReader.Close()
	<-s.made
	s.close()
	return err
}

// packer is what zip and tar have in common.
type packer interface {
	// begin begins an entry, whose content goes to what it gives.
	begin(name string, e *packed) (io.Writer, error)
	Close() error
}

// write makes the archive. Without contents it is as long, but has zeros for them: what a tar is measured by.
func (k *packing) write(to io.Writer, contents bool) error {
	var p packer
	if k.format == formatZip {
		p = newZip(to)
	} else {
		p = &tarPacker{tar.NewWriter(to)}
	}
	for i := range k.entries {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		e := &k.entries[i]
		into, err := p.begin(path.Join(k.as, e.path), e)
		if err == nil && !e.folder {
			err = k.content(into, e, contents)
		}
		if err != nil {
			return err
		}
	}
	return p.Close()
}

func (k *packing) content(to io.Writer, e *packed, real bool) error {
	if !real {
		_, err := io.CopyN(to, zeros{}, e.size)
		return err
	}
	full := path.Join(k.name, e.path)
	file, err := k.open(e.path)
	var replaced *refusal
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) || errors.As(err, &replaced) {
		return changed(full)
	}
	if err != nil {
		return locate(full, err)
	}
	defer func() { _ = file.Close() }()
	same := func() error {
		var now unix.Stat_t
		err := again(func() error { return unix.Fstat(int(file.Fd()), &now) })
		if err == nil && !e.state.same(&now) {
			err = changed(full)
		}
		return err
	}
	if err := same(); err != nil {
		return locate(full, err)
	}
	from := &exact{from: file, left: e.size, check: same, changed: changed(full)}
	_, err = io.Copy(to, &watched{k.ctx, from, k.told})
	return locate(full, err)
}

func (k *packing) open(name string) (*os.File, error) {
	dir, err := k.top.in(path.Dir(name))
	if err != nil {
		return nil, err
	}
	return dir.open(path.Base(name), unix.O_RDONLY, 0)
}

// zeros gives zeros without end.
type zeros struct{}

// Read leaves the buffer as it is: what a tar's content is does not matter where only its length is asked for.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// zipPacker packs by deflate, as fast as it can.
type zipPacker struct{ *zip.Writer }

func newZip(to io.Writer) *zipPacker {
	w := zip.NewWriter(to)
	var one *flate.Writer // for all entries, which come one after the other: it has some 600 KiB
	w.RegisterCompressor(zip.Deflate, func(to io.Writer) (_ io.WriteCloser, err error) {
		if one == nil {
			one, err = flate.NewWriter(to, flate.BestSpeed)
			return one, err
		}
		one.Reset(to)
		return one, nil
	})
	return &zipPacker{w}
}

func (z *zipPacker) begin(name string, e *packed) (io.Writer, error) {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: e.modified}
	h.SetMode(e.mode)
	if e.folder {
		h.Name, h.Method = name+"/", zip.Store
		h.SetMode(e.mode | fs.ModeDir)
	}
	return z.CreateHeader(h)
}

// tarPacker writes USTAR, and PAX where a name or a size needs it.
type tarPacker struct{ *tar.Writer }

func (t *tarPacker) begin(name string, e *packed) (io.Writer, error) {
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: e.size, Mode: int64(e.mode), ModTime: e.modified,
		Uid: int(e.state.uid), Gid: int(e.state.gid),
	}
	if e.folder {
		h.Typeflag, h.Name = tar.TypeDir, name+"/"
	}
	return t.Writer, t.WriteHeader(h)
}
