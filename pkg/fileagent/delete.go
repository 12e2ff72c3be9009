package fileagent

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// delete removes an entry: a file, a link and not what it leads to, an empty folder, or with Recursive a folder and all that is
// in it. The volume's root stays, and is emptied where Confirm is the claim's name.
func (r *run) delete(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	name, err := r.volume.resolve(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	tree := &removal{volume: r.volume, ctx: ctx, progress: r.progress}
	if name == "." {
		if !op.Recursive || op.Confirm == "" || op.Confirm != r.request.Claim {
			return nil, refuse(api.BadPath, "the path %q is the target itself: it is emptied with recursive, and confirm must be the claim's name, %q", op.Path, r.request.Claim)
		}
		dir, err := r.volume.openFolder(".")
		if err != nil {
			return nil, err
		}
		defer dir.close()
		return tree.result(tree.empty(dir, ".", 1))
	}
	dir, err := r.volume.openFolder(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.close()
	base := path.Base(name)
	entry, err := dir.stat(base)
	if err != nil {
		if op.ExpectSHA256 != "" && errors.Is(err, fs.ErrNotExist) {
			return nil, refuse(api.FileChanged, "%q is not there any more", name)
		}
		return nil, locate(name, err)
	}
	if _, err := r.expectStill(ctx, dir, name, op.ExpectSHA256); err != nil {
		return nil, err
	}
	switch {
	case op.Recursive:
		if err := tree.removeAt(dir, base, name, 0); err != nil {
			return tree.result(err)
		}
	case entry.Mode&unix.S_IFMT == unix.S_IFDIR:
		if err := dir.rmdir(base); err != nil {
			return nil, locate(name, err)
		}
		tree.folders++
	default: // even if there is a folder by now
		if err := dir.remove(base); err != nil {
			return nil, locate(name, err)
		}
		tree.files++
	}
	return tree.result(locate(name, dir.sync()))
}

// removal removes trees. It never enters another mount: a mount point stays, with all that is on it, and is counted.
type removal struct {
	volume   *volume
	ctx      context.Context // nil never ends
	progress progress        // may be nil
	// own is true of what an operation had prepared: its folders are this user's, whatever mode they have been given by now.
	own bool

	files, folders, skipped int64
	// kept is the first mount point that was met.
	kept string
}

func (t *removal) result(err error) (*api.FileResult, error) {
	result := &api.FileResult{Files: t.files, Folders: t.folders, Skipped: t.skipped}
	if err == nil && t.skipped > 0 {
		refused := refuse(api.NotEmpty, "%d mount points are left with all that is on them, the first at %q; the rest is deleted", t.skipped, t.kept)
		refused.result.Path = t.kept
		err = refused
	}
	if err == nil && t.progress != nil {
		t.progress(t.files+t.folders, t.files+t.folders)
	}
	return result, err
}

// removeAt removes a name in the folder and all beneath it; full is its path from the root.
func (t *removal) removeAt(dir *folder, name, full string, depth int) error {
	if t.ctx != nil && t.ctx.Err() != nil {
		return t.ctx.Err()
	}
	err := dir.remove(name)
	switch {
	case err == nil:
		t.files++
		t.tell()
		return nil
	case errors.Is(err, fs.ErrNotExist) && depth > 0: // somebody else was faster
		return nil
	case errors.Is(err, unix.EBUSY):
		t.keep(full)
		return nil
	case !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM):
		return locate(full, err)
	}
	// It is a folder, or may be: POSIX has EPERM for that, and so have some file systems.
	inner, openErr := dir.openFolder(name)
	switch {
	case errors.Is(openErr, unix.ENOTDIR), errors.Is(openErr, unix.ELOOP):
		return locate(full, err)
	case openErr != nil:
		return t.rmdir(dir, name, full, openErr)
	}
	defer inner.close()
	outerMount, err := mountOf(dir.fd)
	if err != nil {
		return locate(full, err)
	}
	innerMount, err := mountOf(inner.fd)
	if err != nil {
		return locate(full, err)
	}
	if innerMount != outerMount {
		t.keep(full)
		return nil
	}
	if t.own {
		_ = unix.Fchmod(inner.fd, 0o700)
	}
	skipped := t.skipped
	if err := t.empty(inner, full, depth+1); err != nil {
		return err
	}
	if t.skipped > skipped {
		return nil
	}
	return t.rmdir(dir, name, full, nil)
}

// discard removes a folder that an operation had prepared. What it empties is the open folder, and not what has its name by now.
func (t *removal) discard(dir *folder, name string, work *folder) error {
	_ = unix.Fchmod(work.fd, 0o700)
	if err := t.empty(work, name, 1); err != nil {
		return err
	}
	return locate(name, dir.rmdir(name))
}

// rmdir removes a folder that should be empty. One that could not be opened, for the reason given, may still be empty.
func (t *removal) rmdir(dir *folder, name, full string, reason error) error {
	err := dir.rmdir(name)
	switch {
	case err == nil:
		t.folders++
		t.tell()
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.EBUSY):
		t.keep(full)
		return nil
	case reason != nil:
		err = reason
	}
	return locate(full, err)
}

// maxPasses is how often a folder is read again where others keep making files in it, or where a file system loses
// its place in a folder that shrinks.
const maxPasses = 100

// empty removes all that is in the folder.
func (t *removal) empty(dir *folder, full string, depth int) error {
	if depth > maxDepth {
		return refuse(api.BadPath, "%q is more than %d folders deep; delete a folder within the tree first", full, maxDepth)
	}
	skipped := t.skipped
	for range maxPasses {
		before := t.files + t.folders
		t.skipped = skipped // what stays is met again by each pass
		err := dir.names(func(name string) error {
			return t.removeAt(dir, name, beneath(full, name), depth)
		})
		if err != nil {
			return locate(full, err)
		}
		if t.files+t.folders == before {
			return nil
		}
	}
	return nil
}

func (t *removal) keep(full string) {
	if t.skipped++; t.skipped == 1 {
		t.kept = full
	}
}

func (t *removal) tell() {
	if t.progress != nil {
		t.progress(t.files+t.folders, 0)
	}
}
