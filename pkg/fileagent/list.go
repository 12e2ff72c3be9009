package fileagent

import (
	"container/heap"
	"context"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// list gives a page of a folder's entries, sorted by the bytes of their names. A folder may be huge: only the names of the page are held.
func (r *run) list(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	name, err := r.volume.resolve(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	after, err := base64.RawURLEncoding.DecodeString(op.Cursor)
	if err != nil {
		return nil, refuse(api.BadRequest, "the cursor %q is none of a list's", op.Cursor)
	}
	limit := op.Limit
	if limit <= 0 || limit > api.MaxList {
		limit = api.MaxList
	}
	dir, err := r.volume.openFolder(name)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	names, err := firstNames(ctx, dir, string(after), limit+1)
	if err != nil {
		return nil, locate(name, err)
	}
	return r.page(dir, names, limit), nil
}

// resultOverhead is the most bytes of a list's or a read's result beside entries or content: the longest cursor, and figures.
const resultOverhead = 4 << 10

// page describes as many of the names as there are room and limit for. There is always one.
func (r *run) page(dir *folder, names []string, limit int) *api.FileResult {
	entries := []api.FileEntry{}
	size := resultOverhead
	for _, name := range names {
		entry := describeEntry(dir, name)
		text, _ := json.Marshal(entry) // strings and numbers
		size += len(text) + 1
		if len(entries) == limit || size > r.room && len(entries) > 0 {
			break
		}
		entries = append(entries, entry)
	}
	result := &api.FileResult{Entries: &entries, AvailableBytes: r.volume.available()}
	if len(entries) < len(names) {
		result.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(names[len(entries)-1]))
	}
	return result
}

// firstNames gives the first count names of the folder after the one given, sorted. It holds no more than those: the
// greatest is on top of a heap, and goes when a lesser one comes.
func firstNames(ctx context.Context, dir *folder, after string, count int) ([]string, error) {
	var best greatest
	err := dir.names(func(name string) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case after != "" && name <= after:
		case len(best) < count:
			heap.Push(&best, name)
		case name < best[0]:
			best[0] = name
			heap.Fix(&best, 0)
		}
		return nil
	})
	slices.Sort(best)
	return best, err
}

// greatest is a heap with the greatest name on top.
type greatest []string

func (h greatest) Len() int           { return len(h) }
func (h greatest) Less(i, j int) bool { return h[i] > h[j] }
func (h greatest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push adds a string.
func (h *greatest) Push(name any) { *h = append(*h, name.(string)) }

// Pop is a part of heap.Interface. Nothing is ever taken off.
func (h *greatest) Pop() any { panic("unused") }

// describeEntry looks at one entry of the open folder. Of one that vanished only the name is known.
func describeEntry(dir *folder, name string) api.FileEntry {
	entry := api.FileEntry{Type: api.TypeOther}
	entry.Name, entry.NameB64 = text(name)
	s, err := dir.stat(name)
	if err != nil {
		return entry
	}
	fill(&entry, &s)
	if entry.Type == api.TypeSymlink {
		if target, err := dir.readlink(name); err == nil {
			entry.LinkTarget, entry.LinkTargetB64 = text(target)
		}
	}
	return entry
}

func fill(entry *api.FileEntry, s *unix.Stat_t) {
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		entry.Type = api.TypeFile
	case unix.S_IFDIR:
		entry.Type = api.TypeDir
	case unix.S_IFLNK:
		entry.Type = api.TypeSymlink
	default:
		entry.Type = api.TypeOther
	}
	entry.Size = s.Size
	entry.Modified = time.Unix(s.Mtim.Unix()).UTC().Format(time.RFC3339Nano)
	entry.Mode = "0" + strconv.FormatUint(uint64(s.Mode&0o7777), 8)
	entry.UID, entry.GID = int64(s.Uid), int64(s.Gid)
	entry.Nlink = int64(s.Nlink) //nolint:gosec // a count of names
	entry.Inode = int64(s.Ino)   //nolint:gosec // as the kernel's own interfaces print it
}

// text is a name as JSON can hold it, and its bytes where it is not UTF-8.
func text(name string) (string, []byte) {
	if utf8.ValidString(name) {
		return name, nil
	}
	return strings.ToValidUTF8(name, "\uFFFD"), []byte(name)
}

// stat describes one entry; a link is described itself.
func (r *run) stat(op *api.FileOperation) (*api.FileResult, error) {
	name, err := r.volume.resolve(op.Path, op.PathB64)
	if err != nil {
		return nil, err
	}
	dir, err := r.volume.openFolder(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.close()
	base := path.Base(name)
	if _, err := dir.stat(base); err != nil {
		return nil, locate(name, err)
	}
	entry := describeEntry(dir, base)
	return &api.FileResult{Entry: &entry, AvailableBytes: r.volume.available()}, nil
}
