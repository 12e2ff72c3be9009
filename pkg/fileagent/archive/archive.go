// Package archive reads zip and tar archives that nobody vouches for. It knows no file system: an archive is bytes that can be
// read at an offset, and what comes out is a Plan, made and judged as a whole before the first byte of content is
// taken, and then the contents in the plan's order.
//
// What is refused, and with which code:
//   - ARCHIVE_UNSAFE: a name that is empty, holds NUL, is absolute, begins with a drive letter, has ".." in it, names the
//     folder itself, or begins with Reserved; a device, a pipe, a socket.
//   - ARCHIVE_SYMLINK: a symbolic link, and a hard link of a tar.
//   - ARCHIVE_INVALID: what cannot be read; two entries of one name, or one that is both file and folder; entries of a zip
//     that share bytes; sizes or checksums that are not true; encrypted, sparse or unknown kinds; nothing to extract.
//   - ARCHIVE_TOO_LARGE: more entries, bytes, bytes of one entry, depth or name than the limits allow, or contents more
//     than Ratio times larger than the archive.
//
// Memory is bounded by Limits.Entries, whatever the archive says of itself: about 1 KiB an entry at worst.
package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"flint.dev/flint/pkg/api"
)

// Reserved begins the names of what the file agent itself keeps on a volume. An archive must not bring such: a later
// run would take them for its own.
const Reserved = ".flint-"

const (
	// ratioFloor is how many bytes of contents the ratio does not look at: short texts pack well.
	ratioFloor = 64 << 20
	// maxName is the longest name of one file or folder in bytes, as Linux has it (NAME_MAX).
	maxName = 255
	// maxPath is the longest path in bytes: half of PATH_MAX, so that it can be opened wherever the volume is mounted.
	maxPath = 2048
	// maxDepth is the most names in one path.
	maxDepth = 100
	// namesFloor and namesEach bound the bytes of all names, and of a zip's directory: so many, and so many an entry.
	namesFloor = 64 << 10
	namesEach  = 256
)

// Limits are the most that an archive may hold. Ratio is contents by archive, and looks at contents above 64 MiB only.
type Limits struct {
	Entries, Bytes, EntryBytes, Ratio int64
}

// names is the most bytes of all names.
func (l Limits) names() int64 { return namesFloor + namesEach*min(l.Entries, 1<<40) }

// Error is a refusal.
type Error struct {
	Code api.Code
	// Entry is the name of the entry that it is about, as the archive has it; empty where it is about the archive.
	Entry string
	// Reason goes on after "the archive" or after the entry's name.
	Reason string
}

func (e *Error) Error() string {
	if e.Entry == "" {
		return "the archive " + e.Reason
	}
	return fmt.Sprintf("entry %q %s", e.Entry, e.Reason)
}

func refuse(code api.Code, entry, format string, args ...any) *Error {
	return &Error{Code: code, Entry: entry, Reason: fmt.Sprintf(format, args...)}
}

// File is one file of a plan. Path is clean, relative, and slash-separated.
type File struct {
	Path       string
	Size       int64
	Executable bool
	// entry is the name as the archive has it; index is the entry's place in it.
	entry string
	index int
}

// Plan is what an archive holds.
type Plan struct {
	// Files are in the order of the archive.
	Files []File
	// Folders are those that are named and those that paths pass through, parents before what is in them.
	Folders []string
	// Bytes is the sum of the files' sizes.
	Bytes int64

	contents func(ctx context.Context, each func(File, io.Reader) error) error
}

// Extract hands out the content of each file, in order: exactly Size bytes and then io.EOF, or an error that is an *Error
// where the archive is not what it said of itself. It ends with the first error of each, and with the context.
func (p *Plan) Extract(ctx context.Context, each func(File, io.Reader) error) error {
	return p.contents(ctx, each)
}

// planner judges one entry after the other.
type planner struct {
	limits Limits
	// packed is the archive's size.
	packed  int64
	entries int64
	names   int64
	// folder tells of each path whether it is a folder; named are those that are entries of their own.
	folder map[string]bool
	named  map[string]bool
	plan   Plan
}

func newPlanner(limits Limits, packed int64) *planner {
	return &planner{limits: limits, packed: packed, folder: map[string]bool{}, named: map[string]bool{}}
}

// kind is what an entry is.
type kind int

const (
	regular kind = iota
	folder
	link
	special
)

// entry is one entry as the archive's format has it. The name is decoded, with slashes.
type entry struct {
	name       string
	shown      string // for messages
	kind       kind
	size       int64
	executable bool
	index      int
}

// count takes note of one more entry, whatever it is.
func (p *planner) count(name string) error {
	p.entries++
	p.names += int64(len(name))
	switch {
	case p.entries > p.limits.Entries:
		return refuse(api.ArchiveTooLarge, "", "has more than %d entries", p.limits.Entries)
	case p.names > p.limits.names():
		return refuse(api.ArchiveTooLarge, "", "has more than %d bytes of names", p.limits.names())
	}
	return nil
}

// add takes one entry into the plan.
func (p *planner) add(e entry) error {
	switch e.kind {
	case link:
		return refuse(api.ArchiveSymlink, e.shown, "is a link")
	case special:
		return refuse(api.ArchiveUnsafe, e.shown, "is a device, a pipe or a socket")
	case folder, regular:
	}
	path, err := clean(e.name, e.shown)
	if err != nil {
		return err
	}
	if path == macOSX || strings.HasPrefix(path, macOSX+"/") {
		return nil
	}
	if err := p.parents(path, e.shown); err != nil {
		return err
	}
	if isFolder, there := p.folder[path]; there {
		switch {
		case isFolder != (e.kind == folder):
			return refuse(api.ArchiveInvalid, e.shown, "is both a file and a folder")
		case p.named[path] || e.kind == regular:
			return refuse(api.ArchiveInvalid, e.shown, "is there twice")
		}
	}
	p.named[path] = true
	if e.kind == folder {
		if e.size != 0 {
			return refuse(api.ArchiveInvalid, e.shown, "is a folder with content")
		}
		return p.addFolder(path)
	}
	p.folder[path] = false
	return p.addFile(path, e)
}

// parents takes the folders that a path passes through.
func (p *planner) parents(path, shown string) error {
	for i, c := range path {
		if c != '/' {
			continue
		}
		parent := path[:i]
		if isFolder, there := p.folder[parent]; there && !isFolder {
			return refuse(api.ArchiveInvalid, shown, "lies within %q, which is a file", parent)
		}
		if err := p.addFolder(parent); err != nil {
			return err
		}
	}
	return nil
}

// addFolder takes a folder, once. Those that are nobody's entry count as entries too: they cost as much.
func (p *planner) addFolder(path string) error {
	if p.folder[path] {
		return nil
	}
	p.folder[path] = true
	p.plan.Folders = append(p.plan.Folders, path)
	if int64(len(p.folder)) > p.limits.Entries {
		return refuse(api.ArchiveTooLarge, "", "has more than %d files and folders", p.limits.Entries)
	}
	return nil
}

func (p *planner) addFile(path string, e entry) error {
	l := p.limits
	switch {
	case e.size < 0:
		return refuse(api.ArchiveInvalid, e.shown, "has a size below zero")
	case e.size > l.EntryBytes:
		return refuse(api.ArchiveTooLarge, e.shown, "has %d bytes, and %d are the most", e.size, l.EntryBytes)
	case e.size > l.Bytes-p.plan.Bytes:
		return refuse(api.ArchiveTooLarge, e.shown, "makes the contents larger than %d bytes, which are the most", l.Bytes)
	}
	p.plan.Bytes += e.size
	if tooDense(p.plan.Bytes, p.packed, l.Ratio) {
		return refuse(api.ArchiveTooLarge, e.shown, "makes the contents more than %d times larger than the archive", l.Ratio)
	}
	p.plan.Files = append(p.plan.Files, File{Path: path, Size: e.size, Executable: e.executable, entry: e.shown, index: e.index})
	return nil
}

// tooDense tells whether so many bytes are more than ratio times what they were packed into.
func tooDense(bytes, packed, ratio int64) bool {
	return bytes > ratioFloor && bytes/ratio > packed
}

// done is the plan, if it holds anything.
func (p *planner) done(contents func(context.Context, func(File, io.Reader) error) error) (*Plan, error) {
	if len(p.plan.Files) == 0 && len(p.plan.Folders) == 0 {
		return nil, refuse(api.ArchiveInvalid, "", "has nothing to extract")
	}
	slices.SortFunc(p.plan.Folders, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Count(a, "/"), strings.Count(b, "/")), cmp.Compare(a, b))
	})
	p.plan.contents = contents
	plan := p.plan
	return &plan, nil
}

// macOSX is the folder into which the Finder puts its own notes.
const macOSX = "__MACOSX"

// clean is the path of an entry's name: without "." and empty names. Backslashes are looked at as slashes: a server that
// exports the volume to Windows would.
func clean(name, shown string) (string, error) {
	slashed := strings.ReplaceAll(name, `\`, "/")
	switch {
	case name == "":
		return "", refuse(api.ArchiveUnsafe, shown, "has no name")
	case strings.ContainsRune(name, 0):
		return "", refuse(api.ArchiveUnsafe, shown, "has NUL in its name")
	case slashed[0] == '/':
		return "", refuse(api.ArchiveUnsafe, shown, "has an absolute path")
	case len(name) > 1 && name[1] == ':' && (name[0]|0x20 >= 'a' && name[0]|0x20 <= 'z'):
		return "", refuse(api.ArchiveUnsafe, shown, "begins with a drive letter")
	case len(name) > maxPath:
		return "", refuse(api.ArchiveTooLarge, shown, "has a path of more than %d bytes", maxPath)
	}
	for part := range strings.SplitSeq(slashed, "/") {
		switch {
		case part == "..":
			return "", refuse(api.ArchiveUnsafe, shown, `has ".." in its path`)
		case len(part) >= len(Reserved) && strings.EqualFold(part[:len(Reserved)], Reserved):
			return "", refuse(api.ArchiveUnsafe, shown, "has a name that begins with %s, which the file agent keeps for itself", Reserved)
		}
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case len(part) > maxName:
			return "", refuse(api.ArchiveTooLarge, shown, "has a name of more than %d bytes", maxName)
		default:
			parts = append(parts, part)
		}
	}
	switch {
	case len(parts) == 0:
		return "", refuse(api.ArchiveUnsafe, shown, "names the folder itself")
	case len(parts) > maxDepth:
		return "", refuse(api.ArchiveTooLarge, shown, "lies more than %d folders deep", maxDepth)
	}
	return strings.Join(parts, "/"), nil
}

// medium reads an archive, for as long as the context lasts. It keeps the first error of the reading itself, which says
// nothing of the archive.
type medium struct {
	ctx context.Context
	io.ReaderAt
	failed error
}

// ReadAt reads.
func (d *medium) ReadAt(p []byte, off int64) (int, error) {
	if err := d.ctx.Err(); err != nil {
		d.failed = cmp.Or(d.failed, err)
		return 0, err
	}
	n, err := d.ReaderAt.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) && d.failed == nil {
		d.failed = err
	}
	return n, err
}

// judge gives what an error of a decoder means: a failed device is that, a refusal stays one, and all else says that
// the archive, or the entry, cannot be read.
func (d *medium) judge(err error, entry string) error {
	var refusal *Error
	switch {
	case err == nil:
		return nil
	case d.failed != nil:
		return d.failed
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return refuse(api.ArchiveInvalid, entry, "is cut short")
	}
	return refuse(api.ArchiveInvalid, entry, "cannot be read: %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "zip: "), "archive/tar: "))
}

// content is the content of one entry: it judges the decoder's errors, and holds the entry to its size. What the one
// who takes it has to say stays his own.
type content struct {
	from   io.Reader
	device *medium
	file   File
	left   int64
	failed error
}

// Read reads.
func (c *content) Read(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	n, err := c.from.Read(p)
	c.left -= int64(n)
	switch {
	case c.left < 0:
		c.failed = refuse(api.ArchiveInvalid, c.file.entry, "has more bytes than the %d that the archive says", c.file.Size)
		return 0, c.failed
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && c.left == 0 && c.device.failed == nil:
		c.failed = io.EOF
	default:
		c.failed = c.device.judge(err, c.file.entry)
	}
	return n, c.failed
}

// hand gives a file's content to each, and sees that it was taken to its end: a checksum is known no sooner.
func (c *content) hand(each func(File, io.Reader) error) error {
	if err := each(c.file, c); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, c)
	return err
}
