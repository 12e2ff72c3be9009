package fileagent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// partChunk is how many bytes of a part have a digest of their own, and how much a run that is killed loses at most.
const partChunk = 8 << 20

// partName is the shape of the names of a part and of its digests.
var partName = regexp.MustCompile(`^\.flint-[0-9a-f]{32}\.(part|sums)$`)

// part is what has arrived of an upload, in a file beside its target that outlives the run: ".flint-<upload id>.part". The id
// comes from the target's name and from the size and the digest of the file, so that the same upload finds it again,
// whoever asks and at whatever URL.
//
// Beside it is ".flint-<upload id>.sums": a first line of JSON, a partHeader, and then the SHA-256 of each chunk that has arrived and
// been brought to the disk, one a line. What has no line does not count, and neither does a chunk, nor any after it, whose bytes on the
// volume have another digest by now.
//
// A part is kept when the run ends before its time, if the source can go on from the middle and a chunk is there. It is
// removed when it has landed, when the whole has a wrong digest, and when nobody has gone on with it for Limits.PartIdleSeconds.
type part struct {
	staged
	base string // of the names of both files
	// size and sha256 are what the whole must have.
	size   int64
	sha256 string
	// validator names the source's file; empty where it has no name.
	validator string

	sums *os.File // nil while nothing can be resumed
	// received is how many bytes are in the file; whole and last are the digests of them, and of those of the last chunk.
	received    int64
	whole, last hash.Hash
	// spoiled is true when the part is of no use to anybody; unchecked while it is not known yet.
	spoiled, unchecked bool
}

// partHeader is the first line of a part's digests.
type partHeader struct {
	Chunk     int64  `json:"chunk"`
	Validator string `json:"validator,omitempty"`
}

// uploadID names an upload by its target's name and its content.
func uploadID(base string, source *api.FileSource) string {
	text := binary.LittleEndian.AppendUint64(nil, uint64(len(base)))
	text = append(text, base...)
	text = binary.LittleEndian.AppendUint64(text, uint64(source.Size)) //nolint:gosec // not below zero
	text = append(text, source.SHA256...)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// openPart opens or makes the part of an upload to the file of that name, and reads what has arrived of it. It refuses what
// does not fit onto the volume before it makes anything. The caller closes it.
func (v *volume) openPart(ctx context.Context, name string, source *api.FileSource) (*part, error) {
	dir, err := v.openFolder(path.Dir(name))
	if err != nil {
		return nil, err
	}
	base := ".flint-" + uploadID(path.Base(name), source)
	p := &part{
		staged: staged{volume: v, dir: dir, name: base + ".part"}, base: base,
		size: source.Size, sha256: source.SHA256, whole: sha256.New(), last: sha256.New(),
	}
	v.sweep(ctx, dir, base)
	if err := p.open(ctx); err != nil {
		p.close()
		return nil, locate(name, err)
	}
	return p, nil
}

func (p *part) open(ctx context.Context) error {
	if err := p.find(ctx); err != nil {
		return err
	}
	if err := p.volume.admit(p.size-p.received, 1); err != nil || p.file != nil {
		return err
	}
	file, err := p.dir.open(p.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return underWay()
	}
	if err != nil {
		return err
	}
	p.file = file
	_ = lock(p.file) // where locks are not to be had, no sweep gets one either
	return nil
}

func underWay() error {
	return refuse(api.TransferFailed, "the same upload is under way in another run")
}

// find opens a part that is there, and checks it chunk by chunk. What is not whole is cut off; what is not ours, or
// has another name too, is removed.
func (p *part) find(ctx context.Context) error {
	file, err := p.dir.open(p.name, unix.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var opened, named unix.Stat_t
	if err == nil {
		if err := lock(file); errors.Is(err, unix.EWOULDBLOCK) {
			_ = file.Close()
			return underWay()
		}
		if err = again(func() error { return unix.Fstat(int(file.Fd()), &opened) }); err == nil {
			named, err = p.dir.stat(p.name) // it may have landed before it was locked
		}
	}
	if err != nil || opened.Ino != named.Ino || !mine(file) {
		if file != nil {
			_ = file.Close()
		}
		if err := p.dir.remove(p.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	p.file = file
	sums, err := p.dir.open(p.base+".sums", unix.O_RDWR, 0)
	if err != nil {
		return p.rewind(0, 0)
	}
	if !mine(sums) {
		_ = sums.Close()
		return p.rewind(0, 0)
	}
	p.sums, p.unchecked = sums, true
	if err := p.check(ctx); err != nil {
		return err
	}
	p.unchecked = false
	return nil
}

// check takes over the chunks whose bytes have the digests that were written down, up to the first that has not.
func (p *part) check(ctx context.Context) error {
	lines := bufio.NewReader(p.sums)
	first, err := lines.ReadSlice('\n')
	var header partHeader
	if err != nil || json.Unmarshal(first, &header) != nil || header.Chunk != partChunk {
		return p.rewind(0, 0)
	}
	p.validator = header.Validator
	kept := int64(len(first))
	buffer := make([]byte, partChunk)
	for p.received+partChunk <= p.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := lines.ReadSlice('\n')
		if err != nil {
			break
		}
		if _, err := p.file.ReadAt(buffer, p.received); err != nil {
			break
		}
		if sum := sha256.Sum256(buffer); string(bytes.TrimSuffix(line, []byte("\n"))) != hex.EncodeToString(sum[:]) {
			break
		}
		p.whole.Write(buffer)
		p.received += partChunk
		kept += int64(len(line))
	}
	return p.rewind(p.received, kept)
}

// rewind cuts both files, and goes on writing there.
func (p *part) rewind(received, sums int64) error {
	for file, length := range map[*os.File]int64{p.file: received, p.sums: sums} {
		if file == nil {
			continue
		}
		if err := file.Truncate(length); err != nil {
			return err
		}
		if _, err := file.Seek(length, io.SeekStart); err != nil {
			return err
		}
	}
	return nil
}

// begin starts anew, with a source that sends its file from the beginning.
func (p *part) begin(resumable bool, validator string) error {
	p.received, p.validator = 0, validator
	p.whole.Reset()
	p.last.Reset()
	if err := p.rewind(0, 0); err != nil {
		return err
	}
	if !resumable {
		p.dropSums()
		return nil
	}
	if p.sums == nil {
		if err := p.dir.remove(p.base + ".sums"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sums, err := p.dir.open(p.base+".sums", unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		p.sums = sums
	}
	line, err := json.Marshal(partHeader{Chunk: partChunk, Validator: validator})
	if err != nil { // an int and a string always marshal
		return err
	}
	_, err = p.sums.Write(append(line, '\n'))
	return err
}

// write adds bytes, no more than are missing.
func (p *part) write(data []byte) error {
	for len(data) > 0 {
		piece := data[:min(int64(len(data)), partChunk-p.received%partChunk)]
		if _, err := p.file.Write(piece); err != nil {
			return err
		}
		p.whole.Write(piece)
		p.last.Write(piece)
		p.received += int64(len(piece))
		data = data[len(piece):]
		if p.received%partChunk == 0 {
			if err := p.note(); err != nil {
				return err
			}
		}
	}
	return nil
}

// note writes down the digest of a chunk, when its bytes are on the disk.
func (p *part) note() error {
	sum := p.last.Sum(nil)
	p.last.Reset()
	if p.sums == nil {
		return nil
	}
	if err := p.file.Sync(); err != nil {
		return err
	}
	if _, err := p.sums.WriteString(hex.EncodeToString(sum) + "\n"); err != nil {
		return err
	}
	return p.sums.Sync()
}

func (p *part) dropSums() {
	if p.sums != nil {
		_ = p.sums.Close()
		p.sums = nil
	}
	_ = p.dir.remove(p.base + ".sums")
}

// kept is how many bytes stay for the next run, when the part is closed now.
func (p *part) kept() int64 {
	if p.landed || p.spoiled || p.sums == nil {
		return 0
	}
	return p.received - p.received%partChunk
}

// close ends the work on the part. What has not landed is removed, unless somebody can go on with it.
func (p *part) close() {
	kept := p.kept() > 0 || p.unchecked
	if !kept && p.file != nil {
		p.dropSums()
	}
	if p.sums != nil {
		_ = p.sums.Close()
	}
	if p.file == nil {
		p.dir.close()
		return
	}
	p.landed = p.landed || kept // which the staging does not remove
	p.staged.close()
}

// sweepPart removes a part, or its digests, that is idle. One that is locked is being worked on.
func (v *volume) sweepPart(dir *folder, name string) {
	s, err := dir.stat(name)
	limit := time.Duration(v.limits.PartIdleSeconds) * time.Second
	if err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG || v.now().Sub(time.Unix(s.Mtim.Unix())) < limit {
		return
	}
	base := strings.TrimSuffix(name, path.Ext(name))
	file, err := dir.open(base+".part", unix.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		_ = dir.remove(name) // digests of nothing
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	if lock(file) != nil {
		return
	}
	if info, err := file.Stat(); err != nil || v.now().Sub(info.ModTime()) < limit {
		return
	}
	_ = dir.remove(base + ".sums")
	_ = dir.remove(base + ".part")
}
