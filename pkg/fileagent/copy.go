package fileagent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// copy copies a file, a link or a folder with all that is in it. The copy is made under a name of our own, and is there whole or not at
// all. Links are copied as links; modes, times and attributes are kept, and owners where this user may give files away. What is on
// another mount and what is neither file, folder nor link is left out, and counted.
func (r *run) copy(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	pair, err := r.openPair(op)
	if err != nil {
		return nil, err
	}
	defer pair.close()
	if _, err := pair.target.stat(path.Base(pair.to)); err == nil {
		return nil, refuse(api.FileExists, "%q is there already", pair.to)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, locate(pair.to, err)
	}
	expected, err := r.expectStill(ctx, pair.source, pair.from, op.ExpectSHA256)
	if err != nil {
		return nil, err
	}
	c := &copier{volume: r.volume, ctx: ctx, progress: r.progress}
	switch pair.entry.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		err = c.copyOne(pair, expected)
	case unix.S_IFLNK:
		if err = c.link(pair.source, path.Base(pair.from), pair.target, path.Base(pair.to)); err == nil {
			err = pair.target.sync()
		}
	case unix.S_IFDIR:
		err = c.copyAll(pair)
	default:
		err = refuse(api.BadPath, "%q is neither a file, a folder nor a link", pair.from)
	}
	if err != nil {
		return nil, locate(pair.to, err)
	}
	return &api.FileResult{Files: c.files, Folders: c.folders, Bytes: c.bytes, Skipped: c.skipped}, nil
}

// copier copies. Its counts are of what has been copied.
type copier struct {
	volume   *volume
	ctx      context.Context //nolint:containedctx // of one copy, from its begin to its end
	progress progress

	files, folders, bytes, skipped int64
	// total and entries are what is to be copied. allocated, in bytes, is what of it takes space: not the holes in files.
	total, entries, allocated int64
	// admitted is true when it is known that all of it fits.
	admitted bool
}

func (c *copier) copyOne(p *pair, expected *fileState) error {
	s, err := c.volume.stage(path.Dir(p.to))
	if err != nil {
		return err
	}
	defer s.close()
	c.volume.sweep(c.ctx, s.dir, "")
	c.total, c.entries, c.allocated = p.entry.Size, 1, allocated(&p.entry)
	source, err := p.source.open(path.Base(p.from), unix.O_RDONLY, 0)
	if err != nil {
		return locate(p.from, err)
	}
	defer func() { _ = source.Close() }()
	if err := c.fill(s.file, source, p.from); err != nil {
		return err
	}
	if err := expected.still(p.source, p.from); err != nil {
		return err
	}
	_, err = s.land(path.Base(p.to), landing{createOnly: true, moded: true})
	return err
}

func (c *copier) copyAll(p *pair) error {
	from, err := c.volume.real(p.from)
	if err != nil {
		return err
	}
	into, err := c.volume.real(path.Dir(p.to))
	if err != nil {
		return err
	}
	if into == from || strings.HasPrefix(into, from+"/") {
		return refuse(api.BadPath, "%q cannot be copied into itself", p.from)
	}
	source, err := p.source.openFolder(path.Base(p.from))
	if err != nil {
		return locate(p.from, err)
	}
	defer source.close()
	c.entries = 1
	if err := c.measure(source, p.from, 1); err != nil {
		return err
	}
	if err := c.volume.admit(0, c.entries); err != nil {
		return err
	}
	s, err := c.volume.stageFolder(path.Dir(p.to))
	if err != nil {
		return err
	}
	defer s.close()
	c.volume.sweep(c.ctx, s.dir, "")
	if err := c.tree(source, newFolder(s.file), p.from, 1); err != nil {
		return err
	}
	// One call for the whole file system is less than one for each file of a tree.
	if err := again(func() error { return unix.Syncfs(int(s.file.Fd())) }); err != nil {
		return err
	}
	return s.landFolder(path.Base(p.to))
}

func allocated(s *unix.Stat_t) int64 { return min(s.Size, s.Blocks*512) }

// each gives the entries of a folder that are to be copied, with the open folder for one that is a folder. What is on another mount or is of
// another kind goes to skip.
func (c *copier) each(dir *folder, full string, skip func(), entry func(name string, s *unix.Stat_t, inner *folder) error) error {
	own, err := mountOf(dir.fd)
	if err != nil {
		return locate(full, err)
	}
	return locate(full, dir.names(func(name string) error {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		s, err := dir.stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since its name was read
		}
		full := beneath(full, name)
		if err != nil {
			return locate(full, err)
		}
		switch s.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFLNK:
			return entry(name, &s, nil)
		case unix.S_IFDIR:
		default:
			skip()
			return nil
		}
		inner, err := dir.openFolder(name)
		if err != nil {
			return locate(full, err)
		}
		defer inner.close()
		if on, err := mountOf(inner.fd); err != nil {
			return locate(full, err)
		} else if on != own {
			skip()
			return nil
		}
		return entry(name, &s, inner)
	}))
}

func (c *copier) measure(dir *folder, full string, depth int) error {
	if depth > maxDepth {
		return refuse(api.BadPath, "%q is more than %d folders deep", full, maxDepth)
	}
	return c.each(dir, full, func() {}, func(name string, s *unix.Stat_t, inner *folder) error {
		c.entries++
		if inner != nil {
			return c.measure(inner, beneath(full, name), depth+1)
		}
		if s.Mode&unix.S_IFMT == unix.S_IFREG {
			c.total += s.Size
			c.allocated += allocated(s)
		}
		return nil
	})
}

// tree copies what is in one open folder into another, and then gives it the folder's own mode and times.
func (c *copier) tree(from, to *folder, full string, depth int) error {
	err := c.each(from, full, func() { c.skipped++ }, func(name string, s *unix.Stat_t, inner *folder) error {
		full := beneath(full, name)
		switch {
		case inner != nil && depth == maxDepth: // by now; deeper, it could not be removed any more
			return changedMeanwhile(full)
		case inner != nil:
			if err := to.mkdir(name, 0o700); err != nil {
				return locate(full, err)
			}
			made, err := to.openFolder(name)
			if err != nil {
				return locate(full, err)
			}
			defer made.close()
			return c.tree(inner, made, full, depth+1)
		case s.Mode&unix.S_IFMT == unix.S_IFLNK:
			return locate(full, c.link(from, name, to, name))
		}
		source, err := from.open(name, unix.O_RDONLY, 0)
		if err != nil {
			return locate(full, err)
		}
		defer func() { _ = source.Close() }()
		made, err := to.open(name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return locate(full, err)
		}
		err = c.fill(made, source, full)
		return errors.Join(err, made.Close())
	})
	if err != nil {
		return err
	}
	c.folders++
	return locate(full, keepCopied(from.fd, to.fd))
}

func (c *copier) link(from *folder, name string, to *folder, newName string) error {
	target, err := from.readlink(name)
	if err != nil {
		return err
	}
	s, err := from.stat(name)
	if err != nil {
		return err
	}
	if err := again(func() error { return unix.Symlinkat(target, to.fd, newName) }); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return refuse(api.FileExists, "%q is there already", newName)
		}
		return err
	}
	_ = unix.Fchownat(to.fd, newName, int(s.Uid), int(s.Gid), unix.AT_SYMLINK_NOFOLLOW)
	c.files++
	return nil
}

// fill copies a file's bytes, and what belongs to it. Where the file system can, both files share the bytes; else the
// kernel copies them, without the holes.
func (c *copier) fill(to, from *os.File, full string) error {
	info, err := from.Stat()
	if err != nil {
		return locate(full, err)
	}
	if err := mustBeFile(full, info); err != nil {
		return err
	}
	if err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd())); err != nil {
		if !c.admitted {
			if err := c.volume.admit(c.allocated, c.entries); err != nil {
				return err
			}
			c.admitted = true
		}
		err := c.copyData(to, from, info.Size())
		if errors.Is(err, io.EOF) {
			return changedMeanwhile(full)
		}
		if err != nil {
			return locate(full, err)
		}
	} else {
		c.moved(info.Size())
	}
	c.files++
	return locate(full, keepCopied(int(from.Fd()), int(to.Fd())))
}

func (c *copier) moved(n int64) {
	c.bytes += n
	c.progress(c.bytes, max(c.total, c.bytes))
}

// copyData copies size bytes, in pieces between which it looks at the context. Of a file that has become shorter it gives io.EOF.
func (c *copier) copyData(to, from *os.File, size int64) error {
	for at := int64(0); at < size; {
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // a hole to the end
			c.moved(size - at)
			break
		}
		end := size
		if err != nil {
			data = at // the file system knows of no holes
		} else if hole, err := from.Seek(data, unix.SEEK_HOLE); err == nil && hole > data {
			end = min(hole, size)
		}
		c.moved(min(data, size) - at)
		for at = data; at < end; {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			if _, err := from.Seek(at, io.SeekStart); err != nil {
				return err
			}
			if _, err := to.Seek(at, io.SeekStart); err != nil {
				return err
			}
			n, err := io.CopyN(to, from, min(end-at, 8*chunk))
			at += n
			c.moved(n)
			if err != nil { // io.EOF of a file that has become shorter
				return err
			}
		}
	}
	now, err := from.Stat()
	if err == nil && now.Size() < size {
		err = io.EOF
	}
	if err != nil {
		return err
	}
	return to.Truncate(size)
}

// keepCopied gives a copy the owner, mode, attributes and times (to the microsecond) of what it was copied from; never its set-user-id bit. An owner
// that this user cannot give away to is this user.
func keepCopied(from, to int) error {
	var s, own unix.Stat_t
	if err := unix.Fstat(from, &s); err != nil {
		return err
	}
	if err := unix.Fstat(to, &own); err != nil {
		return err
	}
	mode := s.Mode & 0o1777
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		mode |= s.Mode & unix.S_ISGID
	}
	if own.Uid != s.Uid || own.Gid != s.Gid {
		_ = unix.Fchown(to, int(s.Uid), int(s.Gid))
	}
	if err := unix.Fchmod(to, mode); err != nil {
		return err
	}
	copyAttributes(from, to)
	times := []unix.Timeval{unix.NsecToTimeval(unix.TimespecToNsec(s.Atim)), unix.NsecToTimeval(unix.TimespecToNsec(s.Mtim))}
	return unix.Futimes(to, times)
}
