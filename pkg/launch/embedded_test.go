package launch_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"flint.dev/flint/test/embedded"
)

// embeddedGround is a cluster in memory. It has no node: what is launched stays as it was launched.
func embeddedGround(tb testing.TB) ground {
	tb.Helper()
	cluster, err := embedded.Start(embedded.Options{Idle: true})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cluster.Close)
	var made atomic.Int64
	return ground{
		config:   cluster.Config(),
		stranded: cluster.Stranded,
		namespace: func(tb testing.TB) string {
			name := fmt.Sprintf("case-%d", made.Add(1))
			if err := cluster.AddNamespace(name); err != nil {
				tb.Fatal(err)
			}
			return name
		},
	}
}

func TestEveryFaultHeals(t *testing.T) {
	t.Run("Spark", func(t *testing.T) { embeddedGround(t).prove(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { embeddedGround(t).prove(t, jobDraft, jobCalls) })
}

func TestEveryTwoFaultsHeal(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of launches")
	}
	t.Run("Spark", func(t *testing.T) { embeddedGround(t).proveTwice(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { embeddedGround(t).proveTwice(t, jobDraft, jobCalls) })
}

func TestConcurrentReplays(t *testing.T) {
	t.Run("Spark", func(t *testing.T) { embeddedGround(t).proveConcurrent(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { embeddedGround(t).proveConcurrent(t, jobDraft, jobCalls) })
}
