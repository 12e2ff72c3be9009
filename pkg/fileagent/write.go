package fileagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path"

	"flint.dev/flint/pkg/api"
)

// write gives a file new bytes, or makes one; the folder must be there. Through a link it is the link's target that is
// written, unless the file must be new.
func (r *run) write(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	content, err := contentOf(op)
	if err != nil {
		return nil, err
	}
	name, how, err := r.destination(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := r.volume.admit(int64(len(content)), 1); err != nil {
		return nil, err
	}
	s, err := r.volume.stage(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer s.close()
	r.volume.sweep(ctx, s.dir, "")
	if _, err := s.file.Write(content); err != nil {
		return nil, locate(name, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	landed, err := s.land(path.Base(name), how)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(content)
	size := int64(len(content))
	return &api.FileResult{SHA256: hex.EncodeToString(sum[:]), Size: &size, Files: 1, Bytes: size, HardlinksBroken: landed.hardlinksBroken}, nil
}

// contentOf is what is to be written, checked against its digest.
func contentOf(op *api.FileOperation) ([]byte, error) {
	var content []byte
	switch {
	case op.Content != nil:
		content = *op.Content
	case op.Text != nil:
		content = []byte(*op.Text)
	default:
		return nil, refuse(api.BadRequest, "write has neither content nor text")
	}
	if len(content) > api.MaxInline {
		return nil, refuse(api.TooLarge, "the content has %d bytes, more than %d; upload it", len(content), api.MaxInline)
	}
	if sum := sha256.Sum256(content); op.SHA256 != "" && op.SHA256 != hex.EncodeToString(sum[:]) {
		return nil, refuse(api.BadDigest, "the content has another digest than sha256")
	}
	return content, nil
}

// destination is where a write or an upload lands, and how: at the end of a link, unless the file must be new.
func (r *run) destination(ctx context.Context, op *api.FileOperation) (name string, how landing, err error) {
	if name, _, _, err = r.volume.resolveNew(op.Path, op.PathB64); err != nil {
		return "", landing{}, err
	}
	if !op.CreateOnly {
		if name, err = r.volume.real(name); err != nil {
			return "", landing{}, err
		}
		if name == "." {
			return "", landing{}, refuse(api.BadPath, "%q is a folder, not a file", op.Path)
		}
	}
	expect, err := r.replaceable(ctx, name, op)
	return name, landing{createOnly: op.CreateOnly, expect: expect}, err
}

// replaceable refuses what a write or an upload cannot take the place of, before anything is made: a folder, a device, a file
// with another digest than expected, and whatever is there where the file must be new. name has no link in it, unless
// the file must be new. The state is that of the file that is expected; nil where none is.
func (r *run) replaceable(ctx context.Context, name string, op *api.FileOperation) (*fileState, error) {
	dir, err := r.volume.openFolder(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer dir.close()
	info, err := r.volume.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if op.ExpectSHA256 != "" {
			return nil, refuse(api.FileChanged, "%q is not there any more", name)
		}
		return nil, nil //nolint:nilnil // no state is expected
	case err != nil:
		return nil, locate(name, err)
	case op.CreateOnly:
		return nil, refuse(api.FileExists, "%q is there already", name)
	}
	if err := mustBeFile(name, info); err != nil {
		return nil, err
	}
	if op.ExpectSHA256 == "" {
		return nil, nil //nolint:nilnil // no state is expected
	}
	return r.expectEntry(ctx, dir, name, op.ExpectSHA256)
}
