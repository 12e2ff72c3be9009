// Package fileagent does one operation of a file job, in that job's pod, on the claim that is mounted there.
//
// Everything goes through one handle of the mounted folder (os.Root): no path of the host is ever built, and a link that
// leads out of the folder is refused. Beneath it the system calls take one name in an open folder and follow no link. What
// is written is first whole, under a name of our own beside its place, and then takes its name in one step; a name is taken
// from nobody unless the operation says so.
//
// A caller's mistake, a missing file or a full volume is a result with a code, and the agent ends with 0: it did what it
// was asked to do. Only a volume or an answer that could not be reached ends it with 1.
//
// The package needs Linux: renameat2, statx, flock on folders, FICLONE.
package fileagent

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// Agent is where an operation is done and where its answer goes.
type Agent struct {
	// Root is the folder at which the claim is mounted.
	Root string
	// Nonce marks the lines of the answer as those of this run.
	Nonce string
	// Out is the pod's log.
	Out io.Writer
	// Errors is for the reader of the log: why the agent ends with 1. Names in it are quoted.
	Errors io.Writer
	// Termination writes the termination message.
	Termination func(message []byte) error
	// Now is the clock.
	Now func() time.Time
	// Transfer is what uploads and downloads need of the network.
	Transfer Transfer
}

// What the agent ends with.
const (
	ExitDone    = 0 // the operation was done or refused, and the result tells which
	ExitFailed  = 1 // the volume or the answer could not be reached
	ExitInvalid = 2 // there is no request, or none that can be read
)

// progress is told how far an operation has come, as in api.FileProgress.
type progress func(done, total int64)

// run is one request on its way. Its operations take a context that ends when the pod is to end, and give a result, an error, or
// both: then the result holds what was done before the error.
type run struct {
	agent    *Agent
	volume   *volume
	request  *protocol.Request
	progress progress
	// room is how many bytes the JSON of the next result may have.
	room int
}

// Run does the operation and prints its result. When the context ends, the operation stops where nothing is half done,
// removes what it had prepared, and its result has the code CANCELLED.
func (a *Agent) Run(ctx context.Context, request *protocol.Request) int {
	writer := protocol.NewWriter(a.Out, a.Nonce, a.Now)
	result := a.attempt(ctx, request, writer.Progress)
	message, whole, err := writer.Result(result)
	mirrored := a.Termination(message)
	if mirrored != nil {
		a.complain("the termination message cannot be written", mirrored)
	}
	if err != nil {
		a.complain("the result cannot be written", err)
	}
	delivered := err == nil || (mirrored == nil && whole)
	if !delivered || result.Code == api.InternalServerError {
		return ExitFailed
	}
	return ExitDone
}

func (a *Agent) complain(what string, err error) {
	fmt.Fprintf(a.Errors, "fileagent: %s: %q\n", what, err.Error())
}

// attempt gives the operation's result, whatever happens.
func (a *Agent) attempt(ctx context.Context, request *protocol.Request, progress progress) (result *api.FileResult) {
	op := &request.Operation
	defer func() {
		if cause := recover(); cause != nil {
			a.complain("panic", fmt.Errorf("%v: %s", cause, debug.Stack()))
			result = &api.FileResult{Op: op.Op, Code: api.InternalServerError, Message: "the agent failed; its log tells where"}
		}
	}()
	v, err := openVolume(a.Root, request.SubPath, request.Limits, a.Now)
	if err != nil {
		return a.conclude(op, nil, err)
	}
	defer v.close()
	r := &run{agent: a, volume: v, request: request, progress: progress, room: protocol.MaxResult}
	if op.Op == api.OpBatch {
		return r.batch(ctx)
	}
	result, err = r.do(ctx, op)
	return a.conclude(op, result, err)
}

// conclude is the result of an operation that gave this. What is nobody's request's fault is told to the log's reader too.
func (a *Agent) conclude(op *api.FileOperation, result *api.FileResult, err error) *api.FileResult {
	result = conclude(op, result, err)
	if result.Code == api.InternalServerError {
		a.complain(string(op.Op), err)
	}
	return result
}

// do does one operation that is no batch.
func (r *run) do(ctx context.Context, op *api.FileOperation) (*api.FileResult, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch op.Op {
	case api.OpList:
		return r.list(ctx, op)
	case api.OpStat:
		return r.stat(op)
	case api.OpRead:
		return r.read(op)
	case api.OpChecksum:
		return r.checksum(ctx, op)
	case api.OpWrite:
		return r.write(ctx, op)
	case api.OpMkdir:
		return r.mkdir(op)
	case api.OpDelete:
		return r.delete(ctx, op)
	case api.OpRename:
		return r.rename(ctx, op)
	case api.OpCopy:
		return r.copy(ctx, op)
	case api.OpUpload:
		return r.upload(ctx, op)
	case api.OpDownload:
		return r.download(ctx, op)
	case api.OpUnzip:
		return r.unzip(ctx, op)
	case api.OpUntar:
		return r.untar(ctx, op)
	default:
		return nil, refuse(api.BadRequest, "there is no operation %q", op.Op)
	}
}
