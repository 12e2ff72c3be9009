//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/api"
)

// command runs the program to its end.
func command(t *testing.T, stdin string, environment []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	cmd.Env = environment
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestRender(t *testing.T) {
	request, err := os.ReadFile("../test/operator/requests/spark-pi.json")
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string][]string{
		"4.2.0": {"Pod", "Service", "NetworkPolicy", "ConfigMap", "ConfigMap"},
		"4.0.4": {"Pod", "Service", "ConfigMap", "ConfigMap"},
	} {
		code, stdout, stderr := command(t, string(request), nil, "render", "--spark-version", version)
		var list struct {
			Kind  string
			Items []struct{ Kind string }
		}
		if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 0 || stderr != "" || list.Kind != "List" {
			t.Fatalf("exit %d, %v\n%s%s", code, err, stdout, stderr)
		}
		var kinds []string
		for _, item := range list.Items {
			kinds = append(kinds, item.Kind)
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("%s (-want +got)\n%s", version, diff)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	code, stdout, stderr := command(t, `{"submission_id":"s","spark_submit_args":["--foo"]}`, nil, "render")
	var body api.ErrorBody
	if err := json.Unmarshal([]byte(stderr), &body); err != nil || code != 1 || stdout != "" || body.ErrorCode != api.InvalidSparkSubmitArgs || body.SubmissionID != "s" {
		t.Errorf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
}

func TestCommandLine(t *testing.T) {
	faults := []string{"FLINT_MAX_IN_FLIGHT=none", "FLINT_SPARK_VERSION=1.6.0"}
	cases := map[string]struct {
		args           []string
		environment    []string
		code           int
		stdout, stderr []string
	}{
		"no command":        {code: 2, stderr: []string{"usage:"}},
		"help":              {args: []string{"--help"}, stdout: []string{"flint serve", "flint render"}},
		"an unknown one":    {args: []string{"server"}, code: 2, stderr: []string{`"server"`}},
		"serve --help":      {args: []string{"serve", "--help"}, stdout: []string{"FLINT_SPARK_VERSION (default 4.2.0)", "FLINT_KUBE_BURST (default 400)", "LISTEN_ADDRESS"}},
		"render --help":     {args: []string{"render", "--help"}, stdout: []string{"spark-version"}},
		"version":           {args: []string{"version"}, stdout: []string{"\n"}},
		"an unknown flag":   {args: []string{"serve", "--port", "1"}, code: 2, stderr: []string{"port"}},
		"an argument":       {args: []string{"serve", "now"}, code: 2, stderr: []string{`"now"`}},
		"faults, all named": {args: []string{"serve"}, environment: faults, code: 1, stderr: []string{"FLINT_MAX_IN_FLIGHT=", "FLINT_SPARK_VERSION="}},
		"a bad version":     {args: []string{"render", "--spark-version", "1.6.0"}, code: 2, stderr: []string{"1.6.0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, "", tc.environment, tc.args...)
			if code != tc.code {
				t.Errorf("exit %d, want %d\n%s%s", code, tc.code, stdout, stderr)
			}
			for _, want := range tc.stdout {
				if !strings.Contains(stdout, want) {
					t.Errorf("stdout lacks %q:\n%s", want, stdout)
				}
			}
			for _, want := range tc.stderr {
				if !strings.Contains(stderr, want) {
					t.Errorf("stderr lacks %q:\n%s", want, stderr)
				}
			}
		})
	}
}
