package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/fileagent/protocol"
)

func TestFileDefaults(t *testing.T) {
	clearSettings(t)
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	f := s.File
	if f.Job.Image != "" || f.Job.Root || f.Job.User != 65532 || f.Job.Group != 65532 || f.Job.CPU.String() != "500m" || f.Job.Memory.String() != "256Mi" ||
		f.Job.Timeout != 2*time.Minute || f.Job.LongTimeout != 2*time.Hour || f.Wait != 20*time.Second || f.WaitLimit != time.Minute || f.Unbound || f.ClaimLabel != "" {
		t.Errorf("defaults = %+v", f)
	}
	if diff := cmp.Diff(protocol.DefaultLimits(), f.Job.Limits); diff != "" {
		t.Errorf("limits (-want +got)\n%s", diff)
	}
}

func TestFileValues(t *testing.T) {
	clearSettings(t)
	for name, value := range map[string]string{
		"FLINT_FILE_IMAGE": "i", "FLINT_FILE_PULL_POLICY": "Always", "FLINT_FILE_PULL_SECRETS": "a, b,", "FLINT_FILE_ROOT": "true", "FLINT_FILE_USER": "0",
		"FLINT_FILE_CLAIM_LABEL": "example.org/files=yes", "FLINT_FILE_URL_HOSTS": "files.example.org, *.example.net,minio:9000", "FLINT_FILE_URL_PRIVATE": "true", "FLINT_FILE_PART_IDLE": "1h",
	} {
		t.Setenv(name, value)
	}
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if s.File.Job.PullPolicy != corev1.PullAlways || !s.File.Job.Root || s.File.Job.User != 0 || s.File.ClaimLabel != "example.org/files=yes" || s.File.Job.Limits.PartIdleSeconds != 3600 {
		t.Errorf("settings = %+v", s.File)
	}
	if diff := cmp.Diff([][]string{{"a", "b"}, {"files.example.org", "*.example.net", "minio:9000"}}, [][]string{s.File.Job.PullSecrets, s.File.Job.Limits.URLHosts}); diff != "" {
		t.Errorf("lists (-want +got)\n%s", diff)
	}
}

func TestFileFaultsAreNamedAtOnce(t *testing.T) {
	clearSettings(t)
	faults := map[string]string{
		"FLINT_FILE_PULL_POLICY": "Sometimes", "FLINT_FILE_PULL_SECRETS": "Not_OK", "FLINT_FILE_SERVICE_ACCOUNT": "Not_OK", "FLINT_FILE_CPU": "0", "FLINT_FILE_MEMORY": "much",
		"FLINT_FILE_USER": "0", "FLINT_FILE_GROUP": "-1", "FLINT_FILE_ROOT": "yes", "FLINT_FILE_CLAIM_LABEL": "a b=c", "FLINT_FILE_UNBOUND": "maybe",
		"FLINT_FILE_WAIT": "2m", "FLINT_FILE_WAIT_LIMIT": "1m", "FLINT_FILE_WAITERS": "0", "FLINT_FILE_TIMEOUT": "3h", "FLINT_FILE_LONG_TIMEOUT": "2h", "FLINT_FILE_EVENT_RESULT": "-1",
		"FLINT_FILE_ARCHIVE_ENTRIES": "0", "FLINT_FILE_ARCHIVE_BYTES": "1Gi", "FLINT_FILE_ARCHIVE_ENTRY_BYTES": "0", "FLINT_FILE_ARCHIVE_RATIO": "0",
		"FLINT_FILE_RESERVE_PERCENT": "100", "FLINT_FILE_URL_HOSTS": "https://example.org/", "FLINT_FILE_URL_PRIVATE": "no", "FLINT_FILE_PART_IDLE": "1s",
	}
	for name, value := range faults {
		t.Setenv(name, value)
	}
	_, err := Load()
	if err == nil {
		t.Fatal("no error")
	}
	// Of two that do not go together, one is named.
	delete(faults, "FLINT_FILE_WAIT")
	delete(faults, "FLINT_FILE_TIMEOUT")
	for name := range faults {
		if !strings.Contains(err.Error(), name+"=") {
			t.Errorf("%s is not named in:\n%v", name, err)
		}
	}
	t.Run("private addresses of nobody", func(t *testing.T) {
		clearSettings(t)
		t.Setenv("FLINT_FILE_URL_PRIVATE", "true")
		if _, err := Load(); err == nil || !strings.Contains(err.Error(), "FLINT_FILE_URL_PRIVATE=") {
			t.Errorf("error %v", err)
		}
	})
}
