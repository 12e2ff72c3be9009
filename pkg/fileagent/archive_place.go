package fileagent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

// step is one name that an extraction takes: a file, or a new folder with all that is in it. What takes it waits in the
// work folder under the step's number.
type step struct {
	Path     []byte `json:"path"`
	Replaces bool   `json:"replaces,omitempty"`
	// Made is of what waits, so that it is known again where it went.
	Made identity `json:"made"`
}

// placement brings an extraction's steps to their places, all or none, whether it fails or is killed.
//
// The steps are written down in the work folder first, and then the folder's name says that they may have begun: it ends in
// ".undo" instead of ".tmp". A step that replaces a file exchanges the two, so that the name is never without one, and the old
// file waits in the work folder. When all is done, the name says ".tmp" again, which is the moment from which on
// everything stays. Before it, everything is undone, last step first: by the run itself, or, if that was killed, by the
// next one in that folder.
//
// Undoing is safe to repeat. A step counts as done where its name leads to the very file or folder that was made for it; what somebody
// else has put there meanwhile stays.
type placement struct {
	volume *volume
	steps  []step
	into   *folder
	work   *folder
	// few tells that what was made is on the disk already, and that the steps are few enough to be brought there one by one.
	few bool
}

const journalName = "journal"

// undoName is the shape of the name of a work folder whose steps may have begun.
var undoName = regexp.MustCompile(`^\.flint-[0-9a-f]{12}\.undo$`)

// land does all steps, or none.
func (p *placement) land(ctx context.Context, s *staged) error {
	journal, err := p.note()
	if err != nil {
		return err
	}
	defer func() { _ = journal.Close() }()
	finished := s.name
	begun := strings.TrimSuffix(finished, path.Ext(finished)) + ".undo"
	if err := p.rename(s, begun); err != nil {
		return err
	}
	for i := 0; i < len(p.steps) && err == nil; i++ {
		if err = ctx.Err(); err == nil {
			err = p.do(i)
		}
	}
	if err == nil {
		err = p.sync()
	}
	if err == nil {
		err = p.rename(s, finished)
	}
	if err == nil {
		return nil
	}
	if failed := p.undo(); failed != nil {
		s.landed = true // it must stay: the next run in the folder undoes what is left
		return fmt.Errorf("the extraction failed (%s) and is not wholly undone, which the next one in the folder will do: %w", cause(err), failed)
	}
	if failed := p.rename(s, finished); failed != nil && s.name == begun {
		s.landed = true
	}
	return err
}

// rename gives the work folder its other name, for good.
func (p *placement) rename(s *staged, name string) error {
	if s.name != name {
		if err := p.volume.renameNoReplaceIn(s.dir, s.name, s.dir, name); err != nil {
			return err
		}
		s.name = name
	}
	return s.dir.sync()
}

// note writes the journal, and brings it, and all that was made and is not there yet, to the disk. The journal is locked for as long as it is open: that
// tells a run that is alive, and works on NFS, where only what is open for writing can be locked.
func (p *placement) note() (*os.File, error) {
	journal, err := p.work.open(journalName, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	_ = lock(journal) // where locks are not to be had, nobody else gets one either, and leaves it alone
	lines := bufio.NewWriter(journal)
	encoder := json.NewEncoder(lines)
	for i := range p.steps {
		made, err := p.work.stat(strconv.Itoa(i))
		if err == nil {
			p.steps[i].Made = p.work.identify(strconv.Itoa(i), &made)
			err = encoder.Encode(p.steps[i])
		}
		if err != nil {
			_ = journal.Close()
			return nil, err
		}
	}
	err = lines.Flush()
	switch {
	case err != nil:
	case p.few:
		if err = journal.Sync(); err == nil {
			err = p.work.sync()
		}
	default:
		err = p.syncAll()
	}
	if err != nil {
		_ = journal.Close()
		return nil, err
	}
	return journal, nil
}

// fewEntries is up to how many files and folders are brought to the disk one by one. For more, one call for the whole file system
// is less, though it waits for what others have written there too.
const fewEntries = 1000

func (p *placement) syncAll() error {
	return again(func() error { return unix.Syncfs(p.work.fd) })
}

// sync brings to the disk what the steps have changed: the folders of their names, and the work folder.
func (p *placement) sync() error {
	if !p.few {
		return p.syncAll()
	}
	into := finder{top: p.into}
	defer into.close()
	synced := map[string]bool{}
	for i := range p.steps {
		parent := path.Dir(string(p.steps[i].Path))
		if synced[parent] {
			continue
		}
		synced[parent] = true
		dir, err := into.in(parent)
		var gone *refusal
		if errors.As(err, &gone) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = dir.sync()
		}
		if err != nil {
			return locate(parent, err)
		}
	}
	return p.work.sync()
}

// do does one step.
func (p *placement) do(i int) error {
	name := string(p.steps[i].Path)
	into := finder{top: p.into}
	defer into.close()
	dir, err := into.in(path.Dir(name))
	if err != nil {
		return err
	}
	own, base := strconv.Itoa(i), path.Base(name)
	if !p.steps[i].Replaces {
		err := p.volume.renameNoReplaceIn(p.work, own, dir, base)
		if errors.Is(err, unix.EEXIST) {
			return refuse(api.TypeConflict, "%q has appeared while the archive was extracted", shown(name))
		}
		return locate(name, err)
	}
	replaced := own
	err = p.exchange(own, dir, base)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP) {
		replaced = aside(i)
		if err = p.volume.renameNoReplaceIn(dir, base, p.work, replaced); err == nil {
			err = p.volume.renameNoReplaceIn(p.work, own, dir, base)
		}
	}
	if err != nil {
		return locate(name, err)
	}
	old, err := p.work.stat(replaced)
	if err == nil && old.Mode&unix.S_IFMT != unix.S_IFREG {
		return refuse(api.TypeConflict, "%q is no longer a file", shown(name))
	}
	return locate(name, err)
}

// aside is where a replaced file waits on a file system that cannot exchange two.
func aside(i int) string { return strconv.Itoa(i) + ".old" }

func (p *placement) exchange(own string, dir *folder, base string) error {
	return again(func() error { return p.volume.renameat2(p.work.fd, own, dir.fd, base, unix.RENAME_EXCHANGE) })
}

// undo undoes all steps as far as they were done, last one first, and brings that to the disk. It goes on after an
// error, and gives the first.
func (p *placement) undo() error {
	var failed error
	for i := len(p.steps) - 1; i >= 0; i-- {
		if err := p.undoStep(i); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	return p.sync()
}

func (p *placement) undoStep(i int) error {
	st := &p.steps[i]
	name := string(st.Path)
	into := finder{top: p.into}
	defer into.close()
	dir, err := into.in(path.Dir(name))
	var gone *refusal
	if errors.As(err, &gone) || errors.Is(err, fs.ErrNotExist) {
		return nil // and so is all that was put there
	}
	if err != nil {
		return err
	}
	own, base := strconv.Itoa(i), path.Base(name)
	now, err := dir.stat(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return locate(name, err)
	}
	ours := err == nil && now.Ino == st.Made.Inode && dir.identify(base, &now) == st.Made
	_, err = p.work.stat(aside(i))
	wasAside := err == nil
	if ours && st.Replaces && !wasAside {
		err := p.exchange(own, dir, base)
		return locate(name, err)
	}
	if ours {
		if err := p.volume.renameNoReplaceIn(dir, base, p.work, own); err != nil {
			return locate(name, err)
		}
	}
	if !wasAside {
		return nil
	}
	err = p.volume.renameNoReplaceIn(p.work, aside(i), dir, base)
	if errors.Is(err, unix.EEXIST) {
		return nil // somebody has made another file in its place
	}
	return locate(name, err)
}

// repair undoes what killed runs have begun in the folder. It waits for no age, as a sweep does: until it is done, the folder is neither
// as it was nor as it should be. One that is alive is kept from it by the lock on its journal, and by Flint's own lock of the claim.
func (v *volume) repair(ctx context.Context, dir *folder) error {
	var begun []string
	seen := 0
	err := dir.names(func(name string) error {
		if seen++; seen > maxSwept {
			return fs.SkipAll
		}
		if undoName.MatchString(name) {
			begun = append(begun, name)
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.SkipAll) {
		return err
	}
	for _, name := range begun {
		if err := v.repairOne(ctx, dir, name); err != nil {
			return locate(name, err)
		}
	}
	return nil
}

func (v *volume) repairOne(ctx context.Context, dir *folder, name string) error {
	work, err := dir.openFolder(name)
	if err != nil {
		return nil // not ours, or not there any more
	}
	defer work.close()
	journal, err := work.open(journalName, unix.O_RDWR, 0)
	if err != nil {
		return nil // likewise
	}
	defer func() { _ = journal.Close() }()
	if !mine(work.file) || !mine(journal) || lock(journal) != nil {
		return nil // another user's, or of a run that is alive
	}
	steps, err := stepsOf(journal)
	if err != nil {
		return nil // a journal is on the disk before its folder has that name: this one is not ours
	}
	p := &placement{volume: v, steps: steps, into: dir, work: work, few: len(steps) <= fewEntries}
	if err := p.undo(); err != nil {
		return err
	}
	finished := strings.TrimSuffix(name, path.Ext(name)) + ".tmp"
	if err := v.renameNoReplaceIn(dir, name, dir, finished); err != nil {
		return err
	}
	tree := &removal{volume: v, ctx: ctx, own: true}
	return tree.discard(dir, finished, work)
}

// mine tells whether an open file or folder belongs to this user, and, of a file, has no other name: what bears a name of our shape
// may be somebody else's work, who would have our rights used on his files, or on ours.
func mine(file *os.File) bool {
	var s unix.Stat_t
	err := again(func() error { return unix.Fstat(int(file.Fd()), &s) })
	if err != nil || int(s.Uid) != os.Geteuid() {
		return false
	}
	return s.Mode&unix.S_IFMT == unix.S_IFDIR || s.Mode&unix.S_IFMT == unix.S_IFREG && s.Nlink == 1
}

// stepsOf reads a journal.
func stepsOf(journal io.Reader) ([]step, error) {
	var steps []step
	decoder := json.NewDecoder(bufio.NewReader(journal))
	for {
		var s step
		err := decoder.Decode(&s)
		if errors.Is(err, io.EOF) {
			return steps, nil
		}
		if err != nil {
			return nil, err
		}
		if name := string(s.Path); name == "." || !filepath.IsLocal(name) || path.Clean(name) != name {
			return nil, fmt.Errorf("the path %q is none of a step", name)
		}
		steps = append(steps, s)
	}
}
