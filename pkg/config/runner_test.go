package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/startup"
)

func TestRunnerSettings(t *testing.T) {
	clearSettings(t)
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	want := Runner{
		Plan: runner.Settings{PinDigest: true}, MaxPerParent: 100, WaitLimit: 75 * time.Second, Waiters: 256, OrphanGrace: time.Minute, Graces: startup.DefaultGraces(),
	}
	if diff := cmp.Diff(want, s.Runner); diff != "" {
		t.Errorf("defaults (-want +got)\n%s", diff)
	}
	// Within the time that a Knative Service of the manifests has for an answer.
	if longest := s.BodyTimeout + s.LaunchTimeout + s.Runner.WaitLimit + 10*time.Second; longest >= 120*time.Second {
		t.Errorf("an answer may take %v", longest)
	}

	faults := map[string]string{
		"FLINT_RUNNER_WAIT_LIMIT": "1h", "FLINT_RUNNER_WAITERS": "0", "FLINT_RUNNER_MAX_PER_PARENT": "-1", "FLINT_RUNNER_MAX_PER_NAMESPACE": "many",
		"FLINT_RUNNER_IMAGE_PULL_GRACE": "10", "FLINT_RUNNER_UNSCHEDULABLE_GRACE": "30m", "FLINT_RUNNER_SCALE_UP_GRACE": "29m", "FLINT_RUNNER_ORPHAN_GRACE": "-1s",
		"FLINT_RUNNER_MAX_LIFETIME": "long", "FLINT_RUNNER_ALLOW_NESTED": "yes", "FLINT_RUNNER_PIN_DIGEST": "1", "FLINT_RUNNER_ALLOW": "image:ok,node:x",
	}
	for name, value := range faults {
		t.Setenv(name, value)
	}
	_, err = Load()
	if err == nil {
		t.Fatal("no error")
	}
	for name := range faults {
		if name != "FLINT_RUNNER_UNSCHEDULABLE_GRACE" && !strings.Contains(err.Error(), name+"=") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	if !strings.Contains(err.Error(), "node:x") || strings.Contains(err.Error(), "image:ok") {
		t.Errorf("the entry at fault is not the one named:\n%v", err)
	}
}
