package fileagent

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"path"
	"regexp"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/transfer"
)

var sha256Text = regexp.MustCompile(`^[0-9a-f]{64}$`)

// upload pulls a file from a URL. The target is looked at first: an upload that is refused fetches nothing. What has arrived
// is kept beside the target (see part), so that the same upload, asked for again, goes on where it was; the file takes its
// name only when all of it is there and has its digest.
func (r *run) upload(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	source := op.Source
	switch {
	case source == nil:
		return nil, refuse(api.BadRequest, "upload has no source")
	case source.Size < 0:
		return nil, refuse(api.BadRequest, "the source's size %d is below zero", source.Size)
	case !sha256Text.MatchString(source.SHA256):
		return nil, refuse(api.BadRequest, "the source's sha256 is not 64 lower-case hexadecimal digits")
	}
	client, err := r.dial(source.URL, source.Token)
	if err != nil {
		return nil, err
	}
	name, how, err := r.destination(ctx, op)
	if err != nil {
		return nil, err
	}
	p, err := r.volume.openPart(ctx, name, source)
	if err != nil {
		return nil, err
	}
	defer p.close()
	resumed, err := r.fill(ctx, client, p)
	if err != nil {
		return &api.FileResult{Resumed: resumed, Bytes: p.kept()}, locate(name, err)
	}
	landed, err := p.land(path.Base(name), how)
	if err != nil {
		return nil, err
	}
	size := source.Size
	return &api.FileResult{
		SHA256: source.SHA256, Size: &size, Files: 1, Bytes: size, Resumed: resumed, HardlinksBroken: landed.hardlinksBroken,
	}, nil
}

// fill fetches what a part has not got yet, and checks the whole. It tells how much was there already.
func (r *run) fill(ctx context.Context, client *transfer.Client, p *part) (resumed int64, err error) {
	if p.size == 0 || p.received < p.size {
		source, err := client.Get(ctx, p.received, p.size, p.validator)
		if err != nil {
			return 0, transferred(err)
		}
		defer func() { _ = source.Body.Close() }()
		if source.From == 0 {
			if err := p.begin(source.Resumable, source.Validator); err != nil {
				return 0, err
			}
		}
		resumed = p.received
		if err := r.pull(ctx, source.Body, p); err != nil {
			return resumed, err
		}
	} else {
		resumed = p.received
	}
	if sum := hex.EncodeToString(p.whole.Sum(nil)); sum != p.sha256 {
		p.spoiled = true
		return resumed, refuse(api.BadDigest, "the source's file has the digest %s, not %s", sum, p.sha256)
	}
	return resumed, nil
}

// pull moves a source's bytes into a part. One byte more than wanted is asked for, so that a longer file is noticed.
func (r *run) pull(ctx context.Context, from io.Reader, p *part) error {
	buffer := make([]byte, chunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.Read(buffer)
		if int64(n) > p.size-p.received {
			p.spoiled = true
			return refuse(api.TransferFailed, "the source has more than %d bytes", p.size)
		}
		if err := p.write(buffer[:n]); err != nil {
			return err
		}
		r.progress(p.received, p.size)
		switch {
		case errors.Is(err, io.EOF) && p.received < p.size:
			return refuse(api.TransferFailed, "the source ended after %d of %d bytes", p.received, p.size)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return transferred(err)
		}
	}
}
