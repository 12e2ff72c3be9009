package fileagent

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// read gives a file's bytes, or a part of them. What is too long is refused before it is read, and a file that grows meanwhile when it
// is noticed: never is a file cut.
func (r *run) read(op *api.FileOperation) (*api.FileResult, error) {
	name, file, size, err := r.openPart(op)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	most := int64(min(api.MaxInline, max(0, base64.StdEncoding.DecodedLen(r.room-resultOverhead)-2)))
	length := size - op.Offset
	if op.Length > 0 {
		length = min(length, op.Length)
	}
	if length > most {
		return nil, tooLarge(name, length, most)
	}
	wanted := most + 1 // one more than may come
	if op.Length > 0 {
		wanted = op.Length
	}
	content, err := io.ReadAll(io.NewSectionReader(file, op.Offset, wanted))
	if err != nil {
		return nil, locate(name, err)
	}
	if read := int64(len(content)); read > most {
		return nil, tooLarge(name, read, most)
	} else if op.Length == 0 {
		size = op.Offset + read
	}
	sum := sha256.Sum256(content)
	return &api.FileResult{Content: &content, Size: &size, SHA256: hex.EncodeToString(sum[:])}, nil
}

func tooLarge(name string, length, most int64) error {
	return refuse(api.TooLarge, "%q has %d bytes from there on, or more, and the result has room for %d; read it in parts, or download it", name, length, most)
}

// checksum gives the SHA-256 of a file of any size, or of a part of it.
func (r *run) checksum(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	name, file, size, err := r.openPart(op)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	length := size - op.Offset
	if op.Length > 0 {
		length = min(length, op.Length)
	}
	sum, read, err := digest(ctx, io.NewSectionReader(file, op.Offset, length), func(done int64) { r.progress(done, length) })
	if err != nil {
		return &api.FileResult{Bytes: read}, locate(name, err)
	}
	if read < length {
		return nil, changedMeanwhile(name)
	}
	return &api.FileResult{SHA256: sum, Size: &size, Bytes: read}, nil
}

// openPart opens the file of a read or a checksum, and checks that its part begins within it.
func (r *run) openPart(op *api.FileOperation) (name string, file *os.File, size int64, err error) {
	if name, err = r.volume.resolve(op.Path, op.PathB64); err != nil {
		return "", nil, 0, err
	}
	file, info, err := r.volume.openFile(name)
	if err != nil {
		return "", nil, 0, err
	}
	if op.Offset < 0 || op.Length < 0 || op.Offset > info.Size() {
		_ = file.Close()
		refused := refuse(api.OffsetMismatch, "offset %d and length %d are no part of %q, which has %d bytes", op.Offset, op.Length, name, info.Size())
		size := info.Size()
		refused.result.Size = &size
		return "", nil, 0, refused
	}
	return name, file, info.Size(), nil
}

func changedMeanwhile(name string) error {
	return refuse(api.FileChanged, "%q was changed meanwhile", name)
}

// chunk is how many bytes are moved between two looks at the context.
const chunk = 1 << 20

// digest is the SHA-256, in hexadecimal digits, of all that comes, and how much that was.
func digest(ctx context.Context, from io.Reader, told func(done int64)) (sum string, read int64, err error) {
	hash := sha256.New()
	buffer := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return "", read, err
		}
		n, err := from.Read(buffer)
		hash.Write(buffer[:n])
		read += int64(n)
		if n > 0 && told != nil {
			told(read)
		}
		if err == io.EOF {
			return hex.EncodeToString(hash.Sum(nil)), read, nil
		}
		if err != nil {
			return "", read, err
		}
	}
}

// expectEntry checks the precondition of a change: the entry is a file with that digest. It gives the file as it was, for a second look
// right before the change. A file of any size has a digest; one that changes while it is read has none.
func (r *run) expectEntry(ctx context.Context, dir *folder, name, want string) (*fileState, error) {
	base := path.Base(name)
	s, err := dir.stat(base)
	if err != nil {
		return nil, locate(name, err)
	}
	if s.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, refuse(api.BadPath, "%q is not a file, and only a file has the digest that expect_sha256 asks for", name)
	}
	file, err := dir.open(base, unix.O_RDONLY, 0)
	if err != nil {
		return nil, locate(name, err)
	}
	defer func() { _ = file.Close() }()
	before := stateOf(&s)
	var now unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &now); err != nil {
		return nil, locate(name, err)
	}
	if !before.same(&now) {
		return nil, changedMeanwhile(name)
	}
	sum, read, err := digest(ctx, io.LimitReader(file, s.Size), nil) // somebody may write to it without end
	if err != nil {
		return nil, locate(name, err)
	}
	if read < s.Size {
		return nil, changedMeanwhile(name)
	}
	if sum != want {
		refused := refuse(api.FileChanged, "%q has another digest than expect_sha256", name)
		refused.result.SHA256 = sum
		return nil, refused
	}
	return before, nil
}
