package fileagent

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

const (
	// maxLink is the most bytes of a link's target (PATH_MAX).
	maxLink = 4096
	// maxHops is how many links are followed one after the other; os.Root has the same bound.
	maxHops = 8
	// maxDepth is how many folders deep a tree is walked; each is one open file.
	maxDepth = 1000
)

// beneath is the path of a name in a folder, for messages: of a tree that is deeper than any path can name, the end is left out.
func beneath(dir, name string) string {
	if len(dir) > maxLink {
		return dir
	}
	return path.Join(dir, name)
}

// volume is the folder that an operation works in. Names are relative to it, clean, and "." is the folder itself.
type volume struct {
	root   *os.Root
	limits protocol.Limits
	now    func() time.Time

	// The two system calls that tests make fail as a file system might.
	statfs    func(fd int, into *unix.Statfs_t) error
	renameat2 func(oldFolder int, oldName string, newFolder int, newName string, flags uint) error
}

func openVolume(mount, subPath string, limits protocol.Limits, now func() time.Time) (*volume, error) {
	root, err := os.OpenRoot(mount)
	if err != nil {
		return nil, &unreachable{err}
	}
	v := &volume{root: root, limits: limits, now: now, statfs: unix.Fstatfs, renameat2: unix.Renameat2}
	name, err := v.resolve(subPath, nil)
	if err == nil && name == "." {
		return v, nil
	}
	defer func() { _ = root.Close() }()
	if err != nil {
		return nil, err
	}
	// OpenRoot opens whatever has the last name, and would wait for the writer of a FIFO. The names before are opened as folders.
	v.root, err = root.OpenRoot(name + "/.")
	if errors.Is(err, unix.ENOTDIR) {
		return nil, refuse(api.BadPath, "the target's sub_path %q is no folder", subPath)
	}
	if err != nil {
		return nil, locate(subPath, err)
	}
	return v, nil
}

// unreachable is the error of a mount that cannot be opened.
type unreachable struct{ err error }

func (e *unreachable) Error() string { return "the volume cannot be opened: " + cause(e.err) }
func (e *unreachable) Unwrap() error { return unix.EIO }

func (v *volume) close() { _ = v.root.Close() }

// resolve gives the clean name of a path, or of the one in bytes: "." for the volume's root. It only reads the text: where links
// lead is for os.Root to judge.
func (v *volume) resolve(text string, raw []byte) (string, error) {
	if len(raw) > 0 {
		if text != "" {
			return "", refuse(api.BadPath, "a path is given as text or in base64, not as both")
		}
		text = string(raw)
	}
	name, err := api.CleanPath("path", text)
	if err != nil {
		var refused *api.Error
		errors.As(err, &refused)
		return "", refuse(refused.Code, "%s", refused.Message)
	}
	return name, nil
}

// resolveEntry is resolve for what must be an entry of some folder, and so not the root. It gives the folder and the name in it too.
func (v *volume) resolveEntry(text string, raw []byte) (name, dir, base string, err error) {
	if name, err = v.resolve(text, raw); err != nil {
		return "", "", "", err
	}
	if name == "." {
		return "", "", "", refuse(api.BadPath, "the path %q is the target itself", text)
	}
	return name, path.Dir(name), path.Base(name), nil
}

// resolveNew is resolveEntry for what is to be made. The names of what the agent keeps are its own: a sweep would remove what bears one.
func (v *volume) resolveNew(text string, raw []byte) (name, dir, base string, err error) {
	name, dir, base, err = v.resolveEntry(text, raw)
	if err == nil && slices.ContainsFunc(strings.Split(name, "/"), reserved) {
		return "", "", "", refuse(api.BadPath, "%q has a name that the file agent keeps for itself", name)
	}
	return name, dir, base, err
}

// reserved tells whether a name is of the shape of what the agent keeps on a volume.
func reserved(name string) bool {
	return stagedName.MatchString(name) || undoName.MatchString(name) || partName.MatchString(name)
}

// openFile opens a file to be read. It waits for nobody: a FIFO, a socket or a device is refused, from what is
// there before the opening and again from what was opened.
func (v *volume) openFile(name string) (*os.File, fs.FileInfo, error) {
	info, err := v.root.Stat(name)
	if err != nil {
		return nil, nil, locate(name, err)
	}
	if err := mustBeFile(name, info); err != nil {
		return nil, nil, err
	}
	file, err := v.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, locate(name, err)
	}
	if info, err = file.Stat(); err == nil {
		err = mustBeFile(name, info)
	}
	if err != nil {
		_ = file.Close()
		return nil, nil, locate(name, err)
	}
	return file, info, nil
}

func mustBeFile(name string, info fs.FileInfo) error {
	switch {
	case info.Mode().IsRegular():
		return nil
	case info.IsDir():
		return refuse(api.BadPath, "%q is a folder, not a file", name)
	default:
		return refuse(api.BadPath, "%q is a %s, not a file", name, kind(info.Mode()))
	}
}

func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeDir:
		return "folder"
	case fs.ModeSymlink:
		return "link"
	case fs.ModeNamedPipe:
		return "pipe"
	case fs.ModeSocket:
		return "socket"
	case 0:
		return "file"
	default:
		return "device"
	}
}

// openDir opens a folder.
func (v *volume) openDir(name string) (*os.File, error) {
	file, err := v.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOTDIR) {
		return nil, refuse(api.BadPath, "%q is not a folder, or is in something that is none", name)
	}
	return file, locate(name, err)
}

// openFolder is openDir for the calls that take one name in it.
func (v *volume) openFolder(name string) (*folder, error) {
	file, err := v.openDir(name)
	if err != nil {
		return nil, err
	}
	return newFolder(file), nil
}

// space is how many bytes an operation may still write: what the volume has left for this user, without the reserve.
func (v *volume) space() (available int64, known bool) {
	s, ok := v.measure()
	if !ok {
		return 0, false
	}
	block := uint64(max(s.Frsize, 1))
	return v.beside(saturate(s.Bavail, block), saturate(s.Blocks, block)), true
}

// inodes is how many files may still be made; not known where the file system makes them as it goes.
func (v *volume) inodes() (available int64, known bool) {
	s, ok := v.measure()
	if !ok || s.Files == 0 {
		return 0, false
	}
	return v.beside(saturate(s.Ffree, 1), saturate(s.Files, 1)), true
}

func (v *volume) measure() (s unix.Statfs_t, ok bool) {
	dir, err := v.openDir(".")
	if err != nil {
		return s, false
	}
	defer func() { _ = dir.Close() }()
	return s, v.statfs(int(dir.Fd()), &s) == nil
}

// beside is what is free without the reserve of the total.
func (v *volume) beside(free, total int64) int64 {
	return max(0, free-total/100*v.limits.ReservePercent)
}

func saturate(count, unit uint64) int64 {
	if count > math.MaxInt64/unit {
		return math.MaxInt64
	}
	return int64(count * unit) //nolint:gosec // at most MaxInt64
}

// available is space as a result has it: -1 where it is not known.
func (v *volume) available() *int64 {
	n, known := v.space()
	if !known {
		n = -1
	}
	return &n
}

// admit refuses what does not fit: so many bytes in so many new files and folders.
func (v *volume) admit(bytes, entries int64) error {
	if free, known := v.space(); known && bytes > free {
		return full(bytes, free)
	}
	if free, known := v.inodes(); known && entries > free {
		return refuse(api.VolumeFull, "%d files and folders are needed, and the volume has room for %d beside its reserve", entries, free)
	}
	return nil
}

// real is the name without any link in it, the last one included: what it stands for, or would if it were there. Links that
// are absolute, lead out of the root or are more than maxHops are refused, as os.Root does.
func (v *volume) real(name string) (string, error) {
	rest := strings.Split(name, "/")
	done := "."
	for hops := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if done == "." {
				return "", refuse(api.BadPath, "%q leads out of the target by a link", name)
			}
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		info, err := v.root.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && len(rest) == 0 {
			return next, nil
		}
		if err != nil {
			return "", locate(name, err)
		}
		if info.Mode().Type() != fs.ModeSymlink {
			done = next
			continue
		}
		target, err := v.root.Readlink(next)
		if err != nil {
			return "", locate(name, err)
		}
		if hops++; hops > maxHops {
			return "", refuse(api.BadPath, "%q is behind more than %d links", name, maxHops)
		}
		if strings.HasPrefix(target, "/") {
			return "", refuse(api.BadPath, "%q leads out of the target by a link", name)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return done, nil
}
