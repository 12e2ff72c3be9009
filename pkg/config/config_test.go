package config

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const page = "../../docs/configuration.md"

func TestDefaults(t *testing.T) {
	clearSettings(t)
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if s.SparkVersion.String() != "4.2.0" || s.MaxInFlight != 64 || s.LaunchTimeout != 20*time.Second || s.MaxBodyBytes != 4<<20 ||
		s.MaxEventBytes != 1<<20 || s.KubeQPS != 200 || s.KubeBurst != 400 || s.Namespaces != nil || s.SparkUser != "spark" || s.TellDeleted {
		t.Errorf("defaults = %+v", s)
	}
}

func TestValues(t *testing.T) {
	clearSettings(t)
	t.Setenv("FLINT_SPARK_VERSION", "4.3.0")
	t.Setenv("FLINT_NAMESPACES", " jobs, ,spark ")
	t.Setenv("FLINT_KUBE_QPS", "-1")
	t.Setenv("FLINT_LAUNCH_TIMEOUT", "5s")
	t.Setenv("FLINT_TELL_DELETED", "true")
	t.Setenv("FLINT_LOG_LEVEL", "debug")
	t.Setenv("KUBECONFIG", "/k")
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if s.SparkVersion.String() != "4.3.0" || s.KubeQPS != -1 || s.LaunchTimeout != 5*time.Second || s.LogLevel.String() != "DEBUG" || s.Kubeconfig != "/k" || !s.TellDeleted {
		t.Errorf("settings = %+v", s)
	}
	if diff := cmp.Diff([]string{"jobs", "spark"}, s.Namespaces); diff != "" {
		t.Errorf("namespaces (-want +got)\n%s", diff)
	}
}

func TestEveryFaultIsNamedAtOnce(t *testing.T) {
	clearSettings(t)
	faults := map[string]string{
		"FLINT_SPARK_VERSION":   "1.6.0",
		"FLINT_SPARK_USER":      " ",
		"FLINT_NAMESPACES":      "ok,Not_OK",
		"FLINT_MAX_IN_FLIGHT":   "0",
		"FLINT_LAUNCH_TIMEOUT":  "60s",
		"FLINT_BODY_TIMEOUT":    "fast",
		"FLINT_MAX_BODY_BYTES":  "4MiB",
		"FLINT_MAX_EVENT_BYTES": "-1",
		"FLINT_BODY_MEMORY":     "some",
		"FLINT_KUBE_QPS":        "0",
		"FLINT_POLL_INTERVAL":   "-1s",
		"FLINT_JOB_TTL":         "long",
		"FLINT_EVENT_SOURCE":    "%zz",
		"FLINT_EVENT_REPLY":     "yes",
		"FLINT_TELL_DELETED":    "1",
		"FLINT_KUBE_BURST":      "0",
		"FLINT_LOG_LEVEL":       "loud",
	}
	for name, value := range faults {
		t.Setenv(name, value)
	}
	_, err := Load()
	if err == nil {
		t.Fatal("no error")
	}
	for name := range faults {
		if !strings.Contains(err.Error(), name+"=") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	if !strings.Contains(err.Error(), `"Not_OK"`) || strings.Contains(err.Error(), `"ok"`) {
		t.Errorf("the namespace at fault is not the one named:\n%v", err)
	}
}

func TestUsageNamesEverySetting(t *testing.T) {
	var text bytes.Buffer
	if err := Usage(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FLINT_SPARK_VERSION (default 4.2.0)", "FLINT_NAMESPACES\n", "LISTEN_ADDRESS (default [::]:8080)", "KUBECONFIG"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("usage lacks %q:\n%s", want, text.String())
		}
	}
}

func TestPage(t *testing.T) {
	var want bytes.Buffer
	if err := Markdown(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("docs/configuration.md is not what the code says; run make generate (-want +got)\n%s", diff)
	}
}

// clearSettings takes the caller's own settings out of the test's environment.
func clearSettings(t *testing.T) {
	t.Helper()
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "FLINT_") || strings.HasPrefix(name, "K_") || name == "KUBECONFIG" || name == "LISTEN_ADDRESS" {
			t.Setenv(name, "") // restores it afterwards
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestBodyMemoryHoldsTheLargestBody(t *testing.T) {
	clearSettings(t)
	t.Setenv("FLINT_BODY_MEMORY", "4194303")
	if _, err := Load(); err == nil || !strings.Contains(err.Error(), "FLINT_BODY_MEMORY=") {
		t.Errorf("error %v", err)
	}
}
