package fileagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/archive"
)

// unzip puts what is in a zip archive into the folder that holds it: all of it or nothing.
func (r *run) unzip(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	return r.extract(ctx, op, archive.Zip, ".zip")
}

// untar is unzip for a tar archive, plain or gzip.
func (r *run) untar(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	return r.extract(ctx, op, archive.Tar, ".tar", ".tar.gz", ".tgz")
}

// entryOverhead is how many bytes a file or a folder is taken to cost beside its content: one block.
const entryOverhead = 4096

// extract does the work of unzip and untar. Whatever can be refused is, before anything is written:
//
//  1. The archive is planned as a whole.
//  2. What killed runs have left in the folder is undone or removed.
//  3. Each name is matched with what is there. Folders merge. Files are conflicts, unless overwrite. A file in the place
//     of a folder, a folder in that of a file, and a link in any place are refused, overwrite or not.
//  4. The space is looked at.
//  5. All is extracted into a folder of our own, beside, and brought to the disk.
//  6. It takes its place, name by name; see placement.
func (r *run) extract(
	ctx context.Context, op *api.FileOperation,
	read func(context.Context, io.ReaderAt, int64, archive.Limits) (*archive.Plan, error), suffixes ...string,
) (*api.FileResult, error) {
	v := r.volume
	name, dir, base, err := v.resolveEntry(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(strings.ToLower(base), suffix) }) {
		return nil, refuse(api.BadPath, "%q does not end in %s", name, strings.Join(suffixes, " or "))
	}
	file, info, err := v.openFile(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	l := v.limits
	plan, err := read(ctx, file, info.Size(), archive.Limits{
		Entries: l.ArchiveEntries, Bytes: l.ArchiveBytes, EntryBytes: l.ArchiveEntryBytes, Ratio: l.ArchiveRatio,
	})
	if err != nil {
		return nil, refused(err, name)
	}
	into, err := v.openFolder(dir)
	if err != nil {
		return nil, err
	}
	defer into.close()
	v.sweep(ctx, into, "")
	if err := v.repair(ctx, into); err != nil {
		return nil, err
	}
	x := &extraction{
		volume: v, plan: plan, into: finder{top: into}, progress: r.progress, staged: map[string]int{},
		few: len(plan.Files)+len(plan.Folders) <= fewEntries,
	}
	defer x.into.close()
	conflicts, err := x.match()
	if err != nil {
		return nil, locate(name, err)
	}
	if len(conflicts) > 0 && !op.Overwrite {
		return nil, conflict(conflicts)
	}
	entries := int64(len(plan.Files)) + x.folders
	if err := v.admit(plan.Bytes+entryOverhead*entries, entries); err != nil {
		return nil, err
	}
	s, err := v.stageFolder(dir)
	if err != nil {
		return nil, err
	}
	defer s.close()
	x.work = finder{top: newFolder(s.file)}
	defer x.work.close()
	if err := x.unpack(ctx); err != nil {
		return nil, refused(err, name)
	}
	x.work.close()
	p := &placement{volume: v, steps: x.steps, into: x.into.top, work: x.work.top, few: x.few}
	if err := p.land(ctx, s); err != nil {
		return nil, locate(name, err)
	}
	return &api.FileResult{Files: int64(len(plan.Files)), Folders: x.folders, Bytes: plan.Bytes, HardlinksBroken: x.hardlinksBroken}, nil
}

// refused makes a refusal of the archive's a result's, and adds the archive's name to all else.
func refused(err error, name string) error {
	var bad *archive.Error
	if !errors.As(err, &bad) {
		return locate(name, err)
	}
	refused := refuse(bad.Code, "%q: %s", name, bad.Error())
	refused.result.ArchiveEntry = shown(bad.Entry)
	return refused
}

// maxShown is the most bytes of a name in a result.
const maxShown = 1 << 10

// shown is a name as a result can have it.
func shown(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), maxShown)], "\ufffd")
}

// maxConflictBytes is the most that the names of conflicts take in a result's JSON.
const maxConflictBytes = 8 << 10

func conflict(paths []string) *refusal {
	slices.Sort(paths)
	refused := refuse(api.FileExists, "%d files are there already, and overwrite is not set; the first is %q", len(paths), shown(paths[0]))
	refused.result.ConflictCount = int64(len(paths))
	left := maxConflictBytes
	for _, name := range paths[:min(len(paths), api.MaxConflicts)] {
		text, err := json.Marshal(shown(name))
		if left -= len(text) + 1; err != nil || left < 0 { // a string always marshals
			break
		}
		refused.result.Conflicts = append(refused.result.Conflicts, shown(name))
	}
	return refused
}

// finder finds folders beneath an open one, without following a link. It keeps the last one: names mostly come folder by folder.
type finder struct {
	top  *folder
	path string
	last *folder // nil is top
}

// in opens the folder of a clean path, "." for the top. It stays open until the next call.
func (f *finder) in(dir string) (*folder, error) {
	if dir == "." {
		return f.top, nil
	}
	if f.last != nil && f.path == dir {
		return f.last, nil
	}
	at := f.top
	for part := range strings.SplitSeq(dir, "/") {
		next, err := at.openFolder(part)
		if at != f.top {
			at.close()
		}
		switch {
		case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
			return nil, refuse(api.TypeConflict, "%q is, or is in, something that is no folder", shown(dir))
		case err != nil:
			return nil, locate(dir, err)
		}
		at = next
	}
	f.close()
	f.path, f.last = dir, at
	return at, nil
}

// close closes the folder that was kept, not the top.
func (f *finder) close() {
	if f.last != nil {
		f.last.close()
		f.last = nil
	}
}

// extraction is an archive on its way into a folder.
type extraction struct {
	volume   *volume
	plan     *archive.Plan
	into     finder // where it goes
	work     finder // where it is made
	progress progress

	steps []step
	// staged tells which step a path belongs to: that of a file which is a step of its own, and that of a new folder.
	staged  map[string]int
	folders int64 // that are new
	few     bool  // each file and folder is brought to the disk by itself; see fewEntries
	// hardlinksBroken is true when a file that is replaced has other names.
	hardlinksBroken bool
}

// match makes the steps, and gives the files that are there already.
func (x *extraction) match() (conflicts []string, err error) {
	for _, name := range x.plan.Folders {
		if i, within := x.staged[path.Dir(name)]; within {
			x.staged[name] = i
			x.folders++
			continue
		}
		mode, exists, err := x.look(name)
		switch {
		case err != nil:
			return nil, err
		case !exists:
			x.step(name, false)
			x.folders++
		case mode != unix.S_IFDIR:
			return nil, clash(name, mode, "a folder")
		}
	}
	for _, file := range x.plan.Files {
		if _, within := x.staged[path.Dir(file.Path)]; within {
			continue
		}
		mode, exists, err := x.look(file.Path)
		switch {
		case err != nil:
			return nil, err
		case exists && mode != unix.S_IFREG:
			return nil, clash(file.Path, mode, "a file")
		case exists:
			conflicts = append(conflicts, file.Path)
		}
		x.step(file.Path, exists)
	}
	return conflicts, nil
}

func (x *extraction) step(name string, replaces bool) {
	x.staged[name] = len(x.steps)
	x.steps = append(x.steps, step{Path: []byte(name), Replaces: replaces})
}

// look gives the type of what has the name.
func (x *extraction) look(name string) (mode uint32, exists bool, err error) {
	dir, err := x.into.in(path.Dir(name))
	if err != nil {
		return 0, false, err
	}
	s, err := dir.stat(path.Base(name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	return s.Mode & unix.S_IFMT, true, locate(name, err)
}

func clash(name string, mode uint32, what string) *refusal {
	there := "something that is neither file nor folder"
	switch mode {
	case unix.S_IFDIR:
		there = "a folder"
	case unix.S_IFREG:
		there = "a file"
	case unix.S_IFLNK:
		there = "a link"
	}
	refused := refuse(api.TypeConflict, "%q is %s in the archive, and %s is there", shown(name), what, there)
	refused.result.ArchiveEntry = shown(name)
	return refused
}

// place is where a path is made: its step's number, and the rest of the path beneath.
func (x *extraction) place(name string) string {
	i, own := x.staged[name]
	if !own {
		i = x.staged[path.Dir(name)]
	}
	return strconv.Itoa(i) + name[len(x.steps[i].Path):]
}

// unpack makes all folders and files in the work folder.
func (x *extraction) unpack(ctx context.Context) error {
	for _, name := range x.plan.Folders {
		if _, new := x.staged[name]; !new {
			continue
		}
		if err := x.makeFolder(x.place(name)); err != nil {
			return locate(name, err)
		}
	}
	done, buffer := int64(0), make([]byte, 256<<10)
	err := x.plan.Extract(ctx, func(f archive.File, content io.Reader) error {
		told := func(n int64) {
			done += n
			x.progress(done, x.plan.Bytes)
		}
		return locate(f.Path, x.makeFile(f, content, buffer, told))
	})
	if err != nil || !x.few {
		return err
	}
	for _, name := range x.plan.Folders {
		if _, new := x.staged[name]; !new {
			continue
		}
		made, err := x.work.in(x.place(name))
		if err == nil {
			err = made.sync()
		}
		if err != nil {
			return locate(name, err)
		}
	}
	return nil
}

func (x *extraction) makeFolder(where string) error {
	dir, err := x.work.in(path.Dir(where))
	if err != nil {
		return err
	}
	base := path.Base(where)
	if err := dir.mkdir(base, 0o700); err != nil {
		return err
	}
	made, err := dir.openFolder(base)
	if err != nil {
		return err
	}
	defer made.close()
	return setFolderMode(made.fd)
}

// makeFile makes one file. One that replaces another takes over its owner, mode and attributes.
func (x *extraction) makeFile(f archive.File, content io.Reader, buffer []byte, told func(int64)) error {
	where := x.place(f.Path)
	dir, err := x.work.in(path.Dir(where))
	if err != nil {
		return err
	}
	file, err := dir.open(path.Base(where), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(&counted{file, told}, struct{ io.Reader }{content}, buffer)
	if i, own := x.staged[f.Path]; err == nil && own && x.steps[i].Replaces {
		err = x.keep(&staged{file: file}, f.Path)
	} else if err == nil {
		mode := fs.FileMode(newFileMode)
		if f.Executable {
			mode = 0o755
		}
		err = file.Chmod(mode)
	}
	if err == nil && x.few {
		err = file.Sync()
	}
	return cmp.Or(err, file.Close())
}

func (x *extraction) keep(s *staged, name string) (err error) {
	if s.dir, err = x.into.in(path.Dir(name)); err != nil {
		return err
	}
	old, err := s.dir.stat(path.Base(name))
	if err != nil {
		return err
	}
	x.hardlinksBroken = x.hardlinksBroken || old.Nlink > 1
	return s.keep(path.Base(name), &old)
}

// counted tells how much is written.
type counted struct {
	to   io.Writer
	told func(int64)
}

// Write writes.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.told(int64(n))
	return n, err
}
