package fileagent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// stagedName is the shape of the names of what is not whole yet. Nothing else, but the parts of uploads, is ever swept.
var stagedName = regexp.MustCompile(`^\.flint-[0-9a-f]{12}\.tmp$`)

func newStagedName() string {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	return ".flint-" + hex.EncodeToString(id[:]) + ".tmp"
}

// staged is a file, or a folder, that is being made beside its place, under a name of its own so that the longest name can still
// be written. It is locked while it is open: a sweep tells by that what a killed run has left.
type staged struct {
	volume *volume
	dir    *folder
	name   string
	// file is where the bytes go; of a folder it is the folder.
	file   *os.File
	folder bool
	landed bool
}

// stage makes an empty file in the folder. The caller closes it, which removes it unless it has landed.
func (v *volume) stage(dir string) (*staged, error) {
	s, err := v.stageBeside(dir)
	if err != nil {
		return nil, err
	}
	s.file, err = s.dir.open(s.name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	return s.begin(dir, err)
}

// stageFolder is stage for a folder.
func (v *volume) stageFolder(dir string) (*staged, error) {
	s, err := v.stageBeside(dir)
	if err != nil {
		return nil, err
	}
	s.folder = true
	if err = s.dir.mkdir(s.name, 0o700); err == nil {
		s.file, err = s.dir.open(s.name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return s.begin(dir, err)
}

func (v *volume) stageBeside(dir string) (*staged, error) {
	parent, err := v.openFolder(dir)
	if err != nil {
		return nil, err
	}
	return &staged{volume: v, dir: parent, name: newStagedName()}, nil
}

func (s *staged) begin(dir string, err error) (*staged, error) {
	if err != nil {
		s.dir.close()
		return nil, locate(dir, err)
	}
	// Where locks are not to be had, a sweep cannot get one either, and removes nothing.
	_ = lock(s.file)
	return s, nil
}

func lock(file *os.File) error {
	return again(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}

// close ends the staging. What has not landed is removed.
func (s *staged) close() {
	if !s.landed {
		if s.folder {
			tree := &removal{volume: s.volume, own: true}
			_ = tree.discard(s.dir, s.name, newFolder(s.file))
		} else {
			_ = s.dir.remove(s.name)
		}
	}
	_ = s.file.Close()
	s.dir.close()
}

// fileState is a file at one moment, so that a later look tells whether it is still that file with those bytes.
type fileState struct {
	device, inode   uint64
	size            int64
	modified, ctime unix.Timespec
	uid, gid        uint32
}

func stateOf(s *unix.Stat_t) *fileState {
	return &fileState{device: s.Dev, inode: s.Ino, size: s.Size, modified: s.Mtim, ctime: s.Ctim, uid: s.Uid, gid: s.Gid}
}

// same tells whether nothing has happened to the file's bytes since. The status change time notices a write whose modification
// time was set back.
func (f *fileState) same(now *unix.Stat_t) bool {
	return f.device == now.Dev && f.inode == now.Ino && f.size == now.Size && f.modified == now.Mtim && f.ctime == now.Ctim
}

// landing is how a staged file takes its name.
type landing struct {
	// createOnly: whatever has the name, a dangling link too, keeps it: FILE_EXISTS.
	createOnly bool
	// expect is the file that must still be there: FILE_CHANGED else. It excludes createOnly.
	expect *fileState
	// moded: the staged file has its mode already. Else it is 0644, and that of the old file, with owner and attributes, where one is replaced.
	moded bool
}

// landed is what a landing has found.
type landed struct {
	// hardlinksBroken is true when the replaced file has other names, which keep the old bytes.
	hardlinksBroken bool
}

const newFileMode = 0o644

// land makes the staged file durable and gives it the name, in one step: whoever opens the name sees the old bytes or the new.
func (s *staged) land(name string, how landing) (landed, error) {
	old, err := s.dir.stat(name)
	exists := err == nil
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return landed{}, locate(name, err)
	case exists && how.createOnly:
		return landed{}, refuse(api.FileExists, "%q is there already", name)
	case exists && old.Mode&unix.S_IFMT != unix.S_IFREG:
		return landed{}, refuse(api.TypeConflict, "%q is no longer a file", name)
	}
	switch {
	case exists:
		err = s.keep(name, &old)
	case how.moded:
		err = nil
	default:
		err = s.file.Chmod(newFileMode) // whatever the umask
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return landed{}, locate(name, err)
	}
	if err := how.expect.still(s.dir, name); err != nil {
		return landed{}, err
	}
	if how.createOnly {
		err = s.volume.renameNoReplaceIn(s.dir, s.name, s.dir, name)
	} else {
		err = again(func() error { return unix.Renameat(s.dir.fd, s.name, s.dir.fd, name) })
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return landed{}, refuse(api.FileExists, "%q is there already", name)
	case errors.Is(err, unix.EISDIR):
		return landed{}, refuse(api.TypeConflict, "%q is no longer a file", name)
	case err != nil:
		return landed{}, locate(name, err)
	}
	s.landed = true
	return landed{hardlinksBroken: exists && old.Nlink > 1}, locate(name, s.dir.sync())
}

// landFolder gives the staged folder the name, which nothing may have.
func (s *staged) landFolder(name string) error {
	if err := s.volume.renameNoReplaceIn(s.dir, s.name, s.dir, name); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return refuse(api.FileExists, "%q is there already", name)
		}
		return locate(name, err)
	}
	s.landed = true
	return locate(name, s.dir.sync())
}

// keep gives the staged file the owner, the mode and the attributes of the one that it replaces. The set-user-id and
// set-group-id bits and the security attributes go, as they do when a file is written to.
func (s *staged) keep(name string, old *unix.Stat_t) error {
	var own unix.Stat_t
	fd := int(s.file.Fd())
	if err := unix.Fstat(fd, &own); err != nil {
		return err
	}
	if own.Uid != old.Uid || own.Gid != old.Gid {
		if err := unix.Fchown(fd, int(old.Uid), int(old.Gid)); err != nil {
			return refuse(api.PermissionDenied,
				"%q belongs to user %d and group %d, and this job runs as %d and %d, which cannot keep that; run_as_user and run_as_group can be given",
				name, old.Uid, old.Gid, own.Uid, own.Gid)
		}
	}
	if err := unix.Fchmod(fd, old.Mode&0o1777); err != nil {
		return err
	}
	if file, err := s.dir.open(name, unix.O_RDONLY, 0); err == nil {
		copyAttributes(int(file.Fd()), fd)
		_ = file.Close()
	}
	return nil
}

// maxAttributes is the most bytes of a list of attributes' names, and of one's value (XATTR_LIST_MAX, XATTR_SIZE_MAX).
const maxAttributes = 64 << 10

// copyAttributes copies the extended attributes, access lists among them, as far as they can be read and set.
func copyAttributes(from, to int) {
	size, err := unix.Flistxattr(from, nil)
	if err != nil || size == 0 {
		return
	}
	names, value := make([]byte, maxAttributes), make([]byte, maxAttributes)
	if size, err = unix.Flistxattr(from, names); err != nil {
		return
	}
	for name := range strings.SplitSeq(string(names[:size]), "\x00") {
		if name == "" || strings.HasPrefix(name, "security.") {
			continue
		}
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}

// renameNoReplaceIn renames from one open folder to another. Whatever has the new name keeps it: EEXIST. Where the file system has no such rename (NFS), a
// link to a file does the same, since a link replaces nothing either; and a folder takes the place of an empty one that was made for it.
func (v *volume) renameNoReplaceIn(source *folder, from string, target *folder, to string) error {
	err := again(func() error { return v.renameat2(source.fd, from, target.fd, to, unix.RENAME_NOREPLACE) })
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	old, statErr := source.stat(from)
	if statErr != nil {
		return statErr
	}
	if old.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := again(func() error { return unix.Linkat(source.fd, from, target.fd, to, 0) }); err != nil {
			return err
		}
		if err := source.remove(from); err != nil {
			_ = target.remove(to)
			return err
		}
		return nil
	}
	if err := target.mkdir(to, 0o700); err != nil {
		return err
	}
	err = again(func() error { return unix.Renameat(source.fd, from, target.fd, to) })
	if err != nil {
		_ = target.rmdir(to)
	}
	return err
}

const (
	// leftoverAge is how old an unlocked staged file must be to be taken for that of a killed run: longer than any
	// run, since some shared file systems keep the locks of one node from the others.
	leftoverAge = 24 * time.Hour
	// maxSwept bounds what a sweep of a huge folder costs.
	maxSwept = 100_000
	// sweepTime is the most of an operation's own time: what a killed run has left may be a huge tree.
	sweepTime = 5 * time.Second
)

// sweep removes what killed runs have left in the folder: names of exactly our shape, unlocked, and old enough; and the parts of
// uploads with which nobody has gone on for Limits.PartIdleSeconds, but not the part of the base name that is given.
// It is a favour; what it cannot remove within sweepTime stays.
func (v *volume) sweep(ctx context.Context, dir *folder, but string) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	seen := 0
	var leftovers, parts []string
	_ = dir.names(func(name string) error {
		if seen++; seen > maxSwept {
			return fs.SkipAll
		}
		switch {
		case stagedName.MatchString(name):
			leftovers = append(leftovers, name)
		case partName.MatchString(name) && strings.TrimSuffix(name, path.Ext(name)) != but:
			parts = append(parts, name)
		}
		return nil
	})
	for _, name := range leftovers {
		v.sweepStaged(ctx, dir, name)
	}
	for _, name := range parts {
		v.sweepPart(dir, name)
	}
}

// sweepStaged removes what a killed run has left. Of a folder, which somebody else may have given that name, it must be this user's own.
func (v *volume) sweepStaged(ctx context.Context, dir *folder, name string) {
	s, err := dir.stat(name)
	if err != nil || v.now().Sub(time.Unix(s.Mtim.Unix())) < leftoverAge {
		return
	}
	flags := unix.O_RDWR // NFS locks only what is open for writing
	isFolder := s.Mode&unix.S_IFMT == unix.S_IFDIR
	switch {
	case isFolder:
		flags = unix.O_RDONLY | unix.O_DIRECTORY
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return
	}
	file, err := dir.open(name, flags, 0)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	switch {
	case lock(file) != nil:
	case !isFolder:
		_ = dir.remove(name)
	case mine(file):
		tree := &removal{volume: v, ctx: ctx, own: true}
		if tree.discard(dir, name, newFolder(file)) != nil { // the next sweep goes on, and does not wait until this one's changes are old
			_ = unix.Futimes(int(file.Fd()), []unix.Timeval{unix.NsecToTimeval(s.Atim.Nano()), unix.NsecToTimeval(s.Mtim.Nano())})
		}
	}
}
