package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// asAgent makes the test's own binary the program.
const asAgent = "FLINT_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		main()
	}
	os.Exit(m.Run())
}

const nonce = "7d0f0a2e-1111-2222-3333-444455556666"

// program is the agent as a process, asked to do the operation on the folder.
func program(ctx context.Context, t *testing.T, root string, op api.FileOperation) *exec.Cmd {
	t.Helper()
	value, fits := protocol.EncodeEnv(&protocol.Request{Operation: op, Limits: protocol.DefaultLimits()})
	if !fits {
		t.Fatal("the request does not fit")
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = []string{asAgent + "=1", protocol.EnvRequest + "=" + value, protocol.EnvNonce + "=" + nonce, protocol.EnvRoot + "=" + root}
	return cmd
}

func TestInvocation(t *testing.T) {
	good := map[string]string{protocol.EnvNonce: nonce, protocol.EnvRoot: t.TempDir()}
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
	}{
		"an argument":      {args: []string{"--op\n"}, env: good},
		"no environment":   {},
		"no request":       {env: good},
		"half a request":   {env: map[string]string{protocol.EnvNonce: nonce, protocol.EnvRoot: "/", protocol.EnvRequest: "eyJvcGVyYXRpb24iOnsib3A"}},
		"a file not there": {env: map[string]string{protocol.EnvNonce: nonce, protocol.EnvRoot: "/", protocol.EnvRequestFile: "/none"}},
	} {
		t.Run("F72_bad_invocation_is_2/"+name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(tc.args, func(name string) string { return tc.env[name] }, &stdout, &stderr)
			if code != fileagent.ExitInvalid || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("exit %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

func TestProcess(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	t.Run("reads", func(t *testing.T) {
		root := t.TempDir()
		if err := os.WriteFile(root+"/f", []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		log, err := program(ctx, t, root, api.FileOperation{Op: api.OpRead, Path: "f"}).Output()
		if err != nil {
			t.Fatal(err)
		}
		result, _, err := protocol.Read(bytes.NewReader(log), nonce, "")
		if err != nil || string(*result.Content) != "text" {
			t.Errorf("%+v, %v", result, err)
		}
	})
	t.Run("nobody_reads_the_log", func(t *testing.T) {
		root := t.TempDir()
		text := "text"
		cmd := program(ctx, t, root, api.FileOperation{Op: api.OpWrite, Path: "f", Text: &text})
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = reader.Close()
		cmd.Stdout = writer
		err = cmd.Run()
		_ = writer.Close()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != fileagent.ExitFailed {
			t.Errorf("%v; want exit %d, and no signal", err, fileagent.ExitFailed)
		}
		if got, err := os.ReadFile(root + "/f"); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("stops_when_told_to", func(t *testing.T) {
		root := t.TempDir()
		if err := os.WriteFile(root+"/f", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(root+"/f", 1<<40); err != nil { // a hole: hours of work, and no space
			t.Fatal(err)
		}
		cmd := program(ctx, t, root, api.FileOperation{Op: api.OpChecksum, Path: "f"})
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		reader := bufio.NewReader(stdout)
		first, err := reader.ReadString('\n')
		if err != nil || !strings.Contains(first, " progress ") {
			t.Fatalf("%q, %v", first, err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		log, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v; want exit 0", err)
		}
		result, progress, err := protocol.Read(strings.NewReader(first+string(log)), nonce, "")
		if err != nil || result.Code != api.Cancelled || progress == nil || progress.Total != 1<<40 {
			t.Errorf("%+v, %+v, %v", result, progress, err)
		}
	})
}
