package fileagent

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// folder is an open folder. Its methods take one name in it, and follow no link.
type folder struct {
	file *os.File
	fd   int
}

func newFolder(file *os.File) *folder {
	return &folder{file, int(file.Fd())}
}

func (f *folder) close() { _ = f.file.Close() }

// again repeats a system call that a signal has interrupted, as the os package does.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f *folder) open(name string, flags int, mode uint32) (*os.File, error) {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(f.fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openFolder opens a folder in the folder; of a link, or of anything else that is none, it gives ENOTDIR.
func (f *folder) openFolder(name string) (*folder, error) {
	file, err := f.open(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return newFolder(file), nil
}

func (f *folder) stat(name string) (s unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstatat(f.fd, name, &s, unix.AT_SYMLINK_NOFOLLOW) })
	return s, err
}

func (f *folder) readlink(name string) (string, error) {
	buffer := make([]byte, maxLink)
	var n int
	err := again(func() (err error) { n, err = unix.Readlinkat(f.fd, name, buffer); return err })
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

func (f *folder) mkdir(name string, mode uint32) error {
	return again(func() error { return unix.Mkdirat(f.fd, name, mode) })
}

// remove removes whatever is no folder.
func (f *folder) remove(name string) error {
	return again(func() error { return unix.Unlinkat(f.fd, name, 0) })
}

// rmdir removes an empty folder.
func (f *folder) rmdir(name string) error {
	return again(func() error { return unix.Unlinkat(f.fd, name, unix.AT_REMOVEDIR) })
}

// names gives the folder's names to each, in the order of the file system, without ever holding all of them.
func (f *folder) names(each func(name string) error) error {
	if _, err := f.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for {
		names, err := f.file.Readdirnames(1024)
		for _, name := range names {
			if err := each(name); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// sync brings the folder's names to the disk. A file system that has nothing to do for it says EINVAL.
func (f *folder) sync() error {
	err := again(func() error { return unix.Fsync(f.fd) })
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return err
}

// identity tells what was made from whatever else has, or will have, its name. It has no device, which has another number on another node.
type identity struct {
	Inode uint64 `json:"inode"`
	// Stamp is the time of birth in nanoseconds: the number of an inode is soon another's. Where the file system knows none, it is a file's time of
	// modification, and 0 of a folder.
	Stamp int64 `json:"stamp,omitempty"`
}

// identify is the identity of a name of which the state is known.
func (f *folder) identify(name string, s *unix.Stat_t) identity {
	id := identity{Inode: s.Ino}
	var x unix.Statx_t
	err := again(func() error { return unix.Statx(f.fd, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &x) })
	switch {
	case err == nil && x.Mask&unix.STATX_BTIME != 0:
		id.Stamp = x.Btime.Sec*1e9 + int64(x.Btime.Nsec)
	case s.Mode&unix.S_IFMT == unix.S_IFREG:
		id.Stamp = s.Mtim.Nano()
	}
	return id
}

// mount identifies the mount that an open file is on: a bind mount of the same file system is another. Without the
// kernel's help (statx, Linux 5.8) it is the device.
type mount struct{ id, device uint64 }

func mountOf(fd int) (mount, error) {
	var x unix.Statx_t
	err := again(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &x) })
	if err == nil && x.Mask&unix.STATX_MNT_ID != 0 {
		return mount{id: x.Mnt_id, device: unix.Mkdev(x.Dev_major, x.Dev_minor)}, nil
	}
	var s unix.Stat_t
	err = again(func() error { return unix.Fstat(fd, &s) })
	return mount{device: s.Dev}, err
}
