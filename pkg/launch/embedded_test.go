package launch_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
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
	t.Run("Runner", func(t *testing.T) { embeddedGround(t).prove(t, runnerDraft, runnerCalls) })
	t.Run("Job, told when deleted", func(t *testing.T) { embeddedGround(t).telling().prove(t, jobDraft, jobCalls) })
	t.Run("Runner, told when deleted", func(t *testing.T) { embeddedGround(t).telling().prove(t, runnerDraft, runnerCalls) })
}

func TestEveryTwoFaultsHeal(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of launches")
	}
	t.Run("Spark", func(t *testing.T) { embeddedGround(t).proveTwice(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { embeddedGround(t).proveTwice(t, jobDraft, jobCalls) })
	t.Run("Runner", func(t *testing.T) { embeddedGround(t).proveTwice(t, runnerDraft, runnerCalls) })
}

func TestConcurrentReplays(t *testing.T) {
	t.Run("Spark", func(t *testing.T) { embeddedGround(t).proveConcurrent(t, sparkDraft, sparkCalls) })
	t.Run("Job", func(t *testing.T) { embeddedGround(t).proveConcurrent(t, jobDraft, jobCalls) })
	t.Run("Runner", func(t *testing.T) { embeddedGround(t).proveConcurrent(t, runnerDraft, runnerCalls) })
	t.Run("Job, told when deleted", func(t *testing.T) { embeddedGround(t).telling().proveConcurrent(t, jobDraft, jobCalls) })
}

// TestRivals sends two contents under one key at the same time, for pods of two names: their support has
// the same names. However often each is repeated, one is launched, whole, and the other refused.
func TestRivals(t *testing.T) {
	const attempts = 1000
	g := embeddedGround(t)
	for round := range 20 {
		t.Run(strconv.Itoa(round), func(t *testing.T) {
			t.Parallel()
			namespace := g.namespace(t)
			drafts := []launch.Plan{sparkDraft(namespace), renamed(sparkDraft(namespace))}
			errs := make([]error, len(drafts))
			var wg sync.WaitGroup
			for i, draft := range drafts {
				plan := newPlan(t, draft)
				wg.Go(func() {
					for range attempts {
						_, _, errs[i] = g.applyOver(t, plan, nil)
						var known *api.Error
						if !errors.As(errs[i], &known) || !known.Retryable() {
							return
						}
					}
				})
			}
			wg.Wait()
			won := 0
			for i, err := range errs {
				if err == nil {
					won++
					g.checkSafe(t, newPlan(t, drafts[i]))
				} else if !matches(err, api.DriverPodAlreadyExists, []string{"submission_id sub-1 was used before with another content"}) {
					t.Errorf("the loser: %v", err)
				}
			}
			if state := g.state(t, namespace); won != 1 || len(state) != 6 || launch.Held(state[0]) {
				t.Errorf("%d won, %d objects are left", won, len(state))
			}
		})
	}
}
