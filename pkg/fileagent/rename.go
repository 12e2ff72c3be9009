package fileagent

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// mkdir makes one folder, in one that is there.
func (r *run) mkdir(op *api.FileOperation) (*api.FileResult, error) {
	name, dirName, base, err := r.volume.resolveNew(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	if err := r.volume.admit(0, 1); err != nil {
		return nil, err
	}
	dir, err := r.volume.openFolder(dirName)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	if err := dir.mkdir(base, newFolderMode); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil, refuse(api.FileExists, "%q is there already", name)
		}
		return nil, locate(name, err)
	}
	if made, err := dir.openFolder(base); err == nil {
		err = setFolderMode(made.fd)
		made.close()
		if err != nil {
			return nil, locate(name, err)
		}
	}
	return &api.FileResult{Folders: 1}, locate(name, dir.sync())
}

const newFolderMode = 0o755

// setFolderMode sets the mode of a new folder whatever the umask, and keeps the set-group-id bit that it has from its parent: by it
// the files of a volume stay in the pod's fsGroup.
func setFolderMode(fd int) error {
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		return err
	}
	return unix.Fchmod(fd, newFolderMode|s.Mode&unix.S_ISGID)
}

// rename gives an entry another name, in the same folder or in another of the volume. A link is renamed itself.
func (r *run) rename(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	pair, err := r.openPair(op)
	if err != nil {
		return nil, err
	}
	defer pair.close()
	if _, err := r.expectStill(ctx, pair.source, pair.from, op.ExpectSHA256); err != nil {
		return nil, err
	}
	err = r.volume.renameNoReplaceIn(pair.source, path.Base(pair.from), pair.target, path.Base(pair.to))
	switch {
	case errors.Is(err, unix.EEXIST):
		return nil, refuse(api.FileExists, "%q is there already", pair.to)
	case errors.Is(err, unix.EINVAL):
		return nil, refuse(api.BadPath, "%q cannot be moved into itself", pair.from)
	case errors.Is(err, unix.EXDEV):
		return nil, refuse(api.CrossDevice, "%q and %q are on different file systems; nothing was moved", pair.from, pair.to)
	case errors.Is(err, unix.EBUSY):
		return nil, refuse(api.BadPath, "%q is a mount point, or in use as one", pair.from)
	case err != nil:
		return nil, locate(pair.from, err)
	}
	err = pair.target.sync()
	if err == nil {
		err = pair.source.sync()
	}
	return &api.FileResult{}, locate(pair.to, err)
}

// pair is what rename and copy work on: two names, and the open folders that they are in.
type pair struct {
	from, to       string
	source, target *folder
	entry          unix.Stat_t // of from
}

func (p *pair) close() {
	p.source.close()
	p.target.close()
}

func (r *run) openPair(op *api.FileOperation) (*pair, error) {
	from, fromDir, fromBase, err := r.volume.resolveEntry(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	to, toDir, _, err := r.volume.resolveNew(op.To, op.ToB64)
	if err != nil {
		return nil, err
	}
	p := &pair{from: from, to: to}
	if p.source, err = r.volume.openFolder(fromDir); err != nil {
		return nil, err
	}
	if p.entry, err = p.source.stat(fromBase); err != nil {
		p.source.close()
		if op.ExpectSHA256 != "" && errors.Is(err, fs.ErrNotExist) {
			return nil, refuse(api.FileChanged, "%q is not there any more", from)
		}
		return nil, locate(from, err)
	}
	if p.target, err = r.volume.openFolder(toDir); err != nil {
		p.source.close()
		return nil, err
	}
	return p, nil
}

// expectStill checks the precondition of an entry, if there is one, and looks at the entry again once its digest is known. The
// state is nil where nothing is expected.
func (r *run) expectStill(ctx context.Context, dir *folder, name, want string) (*fileState, error) {
	if want == "" {
		return nil, ctx.Err()
	}
	state, err := r.expectEntry(ctx, dir, name, want)
	if err != nil {
		return nil, err
	}
	return state, state.still(dir, name)
}

// still refuses an entry that is no longer the file that it was. Of nil nothing is expected.
func (f *fileState) still(dir *folder, name string) error {
	if f == nil {
		return nil
	}
	if now, err := dir.stat(path.Base(name)); err != nil || !f.same(&now) {
		return changedMeanwhile(name)
	}
	return nil
}
