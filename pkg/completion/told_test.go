package completion

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestToldIsBounded: the last ones are remembered, however many were told.
func TestToldIsBounded(t *testing.T) {
	t.Parallel()
	var all told
	uid := func(n int) types.UID { return types.UID(strconv.Itoa(n)) }
	const n = 5*maxTold + 17
	for i := range n {
		all.add(uid(i))
	}
	for i := n - maxTold; i < n; i++ {
		if !all.has(uid(i)) {
			t.Fatalf("%d of %d is forgotten", i, n)
		}
	}
	if kept := len(all.new) + len(all.old); all.has(uid(0)) || kept > 2*maxTold {
		t.Errorf("%d are remembered", kept)
	}
}
