package config

import (
	"time"

	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/startup"
)

// Runner is how runners behave.
type Runner struct {
	// Plan is what a runner may be.
	Plan runner.Settings
	// MaxPerParent and MaxPerNamespace are how many may live at once; 0 is no bound.
	MaxPerParent, MaxPerNamespace int
	// WaitLimit is how long an answer waits for a boot at most, Waiters how many answers may wait at once in one instance.
	WaitLimit time.Duration
	Waiters   int
	// OrphanGrace is how long a runner without an owner outlives its parent.
	OrphanGrace time.Duration
	Graces      startup.Graces
}

// runner reads the settings of runners.
func (env *environment) runner(r readers) Runner {
	const longest = time.Hour
	s := Runner{
		Plan: runner.Settings{
			AllowNested: r.boolean("FLINT_RUNNER_ALLOW_NESTED", env.RunnerNested),
			MaxLifetime: r.duration("FLINT_RUNNER_MAX_LIFETIME", env.RunnerLifetime, 0, 365*24*time.Hour),
			PinDigest:   r.boolean("FLINT_RUNNER_PIN_DIGEST", env.RunnerPinDigest),
			Allow: r.list("FLINT_RUNNER_ALLOW", env.RunnerAllow, func(entry string) []string {
				if err := runner.CheckAllow([]string{entry}); err != nil {
					return []string{err.Error()}
				}
				return nil
			}),
		},
		MaxPerParent:    int(r.integer("FLINT_RUNNER_MAX_PER_PARENT", env.RunnerPerParent, 0, 100_000)),
		MaxPerNamespace: int(r.integer("FLINT_RUNNER_MAX_PER_NAMESPACE", env.RunnerPerNamespace, 0, 100_000)),
		WaitLimit:       r.duration("FLINT_RUNNER_WAIT_LIMIT", env.RunnerWaitLimit, 0, 10*time.Minute),
		Waiters:         int(r.integer("FLINT_RUNNER_WAITERS", env.RunnerWaiters, 1, 10_000)),
		OrphanGrace:     r.duration("FLINT_RUNNER_ORPHAN_GRACE", env.RunnerOrphanGrace, 0, 24*time.Hour),
		Graces:          startup.DefaultGraces(),
	}
	s.Graces.ImagePull = r.duration("FLINT_RUNNER_IMAGE_PULL_GRACE", env.RunnerImagePull, 0, longest)
	s.Graces.Unschedulable = r.duration("FLINT_RUNNER_UNSCHEDULABLE_GRACE", env.RunnerUnschedulable, 0, longest)
	s.Graces.ScaleUp = r.duration("FLINT_RUNNER_SCALE_UP_GRACE", env.RunnerScaleUp, 0, longest)
	if s.Graces.ScaleUp < s.Graces.Unschedulable {
		r.fault("FLINT_RUNNER_SCALE_UP_GRACE", env.RunnerScaleUp, "must not be shorter than FLINT_RUNNER_UNSCHEDULABLE_GRACE, %v", s.Graces.Unschedulable)
	}
	return s
}
