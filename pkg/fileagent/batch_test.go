package fileagent

import (
	"bytes"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
)

func TestBatch(t *testing.T) {
	batch := func(ops ...api.FileOperation) api.FileOperation {
		return api.FileOperation{Op: api.OpBatch, Operations: ops}
	}
	t.Run("one_after_the_other", func(t *testing.T) {
		root := t.TempDir()
		got := do(t, root, batch(
			api.FileOperation{Op: api.OpMkdir, Path: "d"}, writeOp("d/f", "text"), api.FileOperation{Op: api.OpRead, Path: "d/f"},
			api.FileOperation{Op: api.OpRename, Path: "d/f", To: "g"}, api.FileOperation{Op: api.OpList},
		)).want(t, "")
		if len(got.Results) != 5 || string(*got.Results[2].Content) != "text" || len(*got.Results[4].Entries) != 2 {
			t.Errorf("%+v", got.Results)
		}
		if got.progress == nil || *got.progress != (api.FileProgress{Done: 5, Total: 5}) {
			t.Errorf("%+v", got.progress)
		}
	})
	t.Run("ends_at_the_first_that_fails", func(t *testing.T) {
		root := t.TempDir()
		op := batch(writeOp("a", ""), api.FileOperation{Op: api.OpDelete, Path: "none"}, writeOp("b", ""))
		got := do(t, root, op).want(t, api.BatchFailed)
		if len(got.Results) != 2 || got.Results[0].Code != "" || got.Results[1].Code != api.NotFound {
			t.Errorf("%+v", got.Results)
		}
		names(t, root, "a")
		op.ContinueOnError = true
		got = do(t, root, op).want(t, api.BatchFailed)
		if len(got.Results) != 3 || got.Results[2].Code != "" || !strings.HasPrefix(got.Message, "1 ") {
			t.Errorf("%q, %+v", got.Message, got.Results)
		}
		names(t, root, "a", "b")
	})
	t.Run("no_batch_in_a_batch", func(t *testing.T) {
		do(t, t.TempDir(), batch(batch(writeOp("a", "")))).want(t, api.BatchFailed)
	})
	t.Run("all_results_have_the_room_of_one", func(t *testing.T) {
		root := t.TempDir()
		content := bytes.Repeat([]byte("x"), api.MaxInline)
		put(t, root+"/f", string(content))
		ops := make([]api.FileOperation, api.MaxBatch)
		for i := range ops {
			ops[i] = api.FileOperation{Op: api.OpRead, Path: "f"}
		}
		op := batch(ops...)
		op.ContinueOnError = true
		got := do(t, root, op).want(t, api.BatchFailed)
		whole, refused := 0, 0
		for _, one := range got.Results {
			switch {
			case one.Code == "" && bytes.Equal(*one.Content, content):
				whole++
			case one.Code == api.TooLarge && one.Content == nil:
				refused++
			}
		}
		if whole != 4 || refused != api.MaxBatch-4 {
			t.Errorf("%d whole, %d refused", whole, refused)
		}
	})
	t.Run("what_has_no_room_is_brief", func(t *testing.T) {
		root := t.TempDir()
		tmpfs(t, root, "")
		target := strings.Repeat("\x01", 4090)
		link(t, target, root+"/l")
		ops := make([]api.FileOperation, api.MaxBatch)
		for i := range ops {
			ops[i] = api.FileOperation{Op: api.OpStat, Path: "l"}
		}
		ops[0] = api.FileOperation{Op: api.OpRead, Path: "f"}
		put(t, root+"/f", strings.Repeat("x", api.MaxInline))
		for i := range 4 {
			ops[i] = ops[0]
		}
		got := do(t, root, batch(ops...)).want(t, "")
		brief := 0
		for _, one := range got.Results {
			if one.Partial != nil {
				brief++
			} else if one.Op == api.OpStat && one.Entry.LinkTarget != target {
				t.Error("cut")
			}
		}
		if len(got.Results) != api.MaxBatch || brief == 0 {
			t.Errorf("%d results, %d brief", len(got.Results), brief)
		}
	})
}
