package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const submission = `{"submission_id":"%s","spark_submit_args":["--master","k8s://https://kubernetes.default.svc",
	"--deploy-mode","cluster","--name","Spark Pi","--class","org.apache.spark.examples.SparkPi",
	"--conf","spark.kubernetes.namespace=%s",
	"--conf","spark.kubernetes.driver.annotation.embedded.flint.dev/run-for=100ms",
	"--conf","spark.kubernetes.container.image=apache/spark:4.2.0","local:///app.jar"]}`

// TestRun is what a newcomer does: start, submit, see the driver end, stop.
func TestRun(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("LISTEN_ADDRESS", "127.0.0.1:0")
	t.Setenv("FLINT_NAMESPACES", "default,team")
	t.Setenv("FLINT_FILE_IMAGE", "")
	t.Setenv("FLINT_FILE_RESERVE_PERCENT", "0")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()

	output, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, writer)
		_ = writer.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(output)
	next := func(pattern string) []string {
		t.Helper()
		for lines.Scan() {
			if match := regexp.MustCompile(pattern).FindStringSubmatch(lines.Text()); match != nil {
				return match
			}
		}
		t.Fatalf("the program ended without a line like %q", pattern)
		return nil
	}

	folder := next(`^the claim data in the namespace default is the folder (.+)$`)[1]
	url := next(`^Flint on (http://[0-9.:]+), with an embedded Kubernetes on http://127.0.0.1:`)[1]
	next(`README`)
	post := func(path, body string, want int) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s = %v", path, err)
		}
		answer, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Fatalf("%s = %s: %s", path, response.Status, answer)
		}
	}
	for i, namespace := range []string{"default", "team"} {
		post("/api/v1/spark-submit", fmt.Sprintf(submission, fmt.Sprintf("run-%d", i), namespace), http.StatusCreated)
		next(`^driver ` + namespace + `/\S+-driver succeeded \(exit 0\) after \d+\.\ds$`)
	}

	told := make(chan bool, 1)
	go func() { // the pod's line comes before the answer, and somebody must read it
		told <- next(`^file default/fj-[0-9a-f]{32}-\S+ succeeded \(exit 0\)`) != nil
	}()
	post("/api/v1/file-jobs", `{"target":{"namespace":"default","claim":"data"},"operation":{"op":"write","path":"hello","text":"hello"}}`, http.StatusOK)
	if text, err := os.ReadFile(filepath.Join(folder, "hello")); err != nil || string(text) != "hello" {
		t.Errorf("the claim has %q, %v", text, err)
	}
	if !<-told {
		t.Error("the operation's end was not told")
	}

	http.DefaultClient.CloseIdleConnections()
	cancel()
	for lines.Scan() { // until its end
		t.Logf("at its end: %s", lines.Text())
	}
	if err := <-ended; err != nil {
		t.Errorf("run() = %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "flint-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if path := os.Getenv("KUBECONFIG"); !strings.HasPrefix(path, temporary) {
		t.Errorf("KUBECONFIG = %s, want the embedded cluster's", path)
	}
}
