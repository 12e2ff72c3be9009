package fileagent

import (
	"context"
	"encoding/json"
	"fmt"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// batch does operations one after the other. What one has done stays done when a later one fails. All results share the room of one:
// an operation with content or entries gets what the earlier ones have left.
func (r *run) batch(ctx context.Context) *api.FileResult {
	operations := r.request.Operation.Operations
	outer := &api.FileResult{Op: api.OpBatch, Results: []api.FileResult{}}
	told := r.progress
	r.progress = func(int64, int64) {}
	// Each result is brief where there is no room for more, so that there is always room for all.
	left := protocol.MaxResult - resultOverhead - len(operations)*protocol.MaxTermination
	failed := 0
	for i := range operations {
		op := &operations[i]
		r.room = left
		result, err := r.do(ctx, op)
		one := *r.agent.conclude(op, result, err)
		text, _ := json.Marshal(&one) // strings and numbers
		if len(text) > left {
			brief, short := protocol.Shorten(&one)
			one, text = *brief, short
		}
		left -= len(text)
		outer.Results = append(outer.Results, one)
		told(int64(i+1), int64(len(operations)))
		if one.Code == "" {
			continue
		}
		if one.Code == api.Cancelled || one.Code == api.InternalServerError {
			outer.Code, outer.Message = one.Code, one.Message
			return outer
		}
		failed++
		if !r.request.Operation.ContinueOnError {
			break
		}
	}
	if failed > 0 {
		outer.Code = api.BatchFailed
		outer.Message = fmt.Sprintf("%d of the %d operations that were tried failed; the batch has %d", failed, len(outer.Results), len(operations))
	}
	return outer
}
