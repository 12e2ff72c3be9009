package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// agent runs the file agent as a process: one small read, from the start of the process to its end.
func (b *bench) agent(ctx context.Context, binary, _ string) error {
	progress("file agent")
	program := filepath.Join(filepath.Dir(binary), "fileagent")
	info, err := os.Stat(program)
	if err != nil {
		return err
	}
	b.row("size of the file agent, stripped", "< 15 MB", "%.1f MB", float64(info.Size())/1e6)
	root, err := os.MkdirTemp("", "flint-bench-claim-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := os.WriteFile(filepath.Join(root, "small.txt"), []byte(strings.Repeat("0123456789abcde\n", 256)), 0o600); err != nil {
		return err
	}
	request, _ := protocol.EncodeEnv(&protocol.Request{
		Operation: api.FileOperation{Op: api.OpRead, Path: "small.txt"}, Claim: "bench", Limits: protocol.DefaultLimits(),
	})
	var times []time.Duration
	for range max(10, 200/b.scale) {
		cmd := exec.CommandContext(ctx, program)
		cmd.Env = []string{protocol.EnvRequest + "=" + request, protocol.EnvNonce + "=bench", protocol.EnvRoot + "=" + root}
		before := time.Now()
		out, err := cmd.Output()
		times = append(times, time.Since(before))
		if err != nil {
			return fmt.Errorf("file agent: %w", err)
		}
		if result, _, err := protocol.Read(bytes.NewReader(out), "bench", ""); err != nil || result.Code != "" {
			return fmt.Errorf("file agent answered %v, %w", result, err)
		}
	}
	b.row("file agent: start, read of 4 KiB, end", "< 20 ms", "p50 %s, slowest of %d %s", ms(percentile(times, 50)), len(times), ms(slices.Max(times)))
	return nil
}

// jobs asks for file jobs by CloudEvent: from the event to the Job.
func (b *bench) jobs(ctx context.Context, binary, kubeconfig string) error {
	progress("events to Jobs")
	client, err := kubernetes.NewForConfig(unlimited(b.cp.Config()))
	if err != nil {
		return err
	}
	claims := client.CoreV1().PersistentVolumeClaims(namespace)
	claim, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Phase = corev1.ClaimBound
	if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	p, err := startReady(ctx, binary, kubeconfig, "FLINT_FILE_IMAGE=example.org/fileagent:bench")
	if err != nil {
		return err
	}
	defer func() { _ = p.stop() }()
	b.flint = p
	var times []time.Duration
	for range 200 / b.scale {
		d, err := timed(ctx, b.viaFileEvent)
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	rate, err := b.rate(ctx, 8, 800/b.scale, b.viaFileEvent)
	if err != nil {
		return err
	}
	b.row("event to Job (a read of a file), one client; each second with 8", "JobSink: p50 100 ms", "p50 %s, p99 %s; %.0f", ms(percentile(times, 50)), ms(percentile(times, 99)), rate)
	return nil
}

// viaFileEvent posts a binary event that asks for a read.
func (b *bench) viaFileEvent() (func(context.Context) error, error) {
	body := fmt.Appendf(nil, `{"target":{"namespace":%q,"claim":"data"},"operation":{"op":"read","path":"a.txt"}}`, namespace)
	return b.post(body, api.FileEventType), nil
}

// notice measures from the API server's answer to the write that ends a pod until whoever follows it sees that.
func (b *bench) notice(ctx context.Context, _, _ string) error {
	progress("the end of a pod")
	typed, err := kubernetes.NewForConfig(unlimited(b.cp.Config()))
	if err != nil {
		return err
	}
	client, err := kube.NewClient(unlimited(b.cp.Config()))
	if err != nil {
		return err
	}
	follower := &follow.Follower{Client: client}
	pods := typed.CoreV1().Pods(namespace)
	var times []time.Duration
	for i := range max(10, 100/b.scale) {
		id := launch.ID(namespace, fmt.Sprintf("notice-%d", i))
		name := "notice-" + id
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{launch.LabelID: id}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "files", Image: "example.org/fileagent:bench"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		seen, ended, followed := make(chan struct{}), make(chan time.Time, 1), make(chan error, 1)
		go func() {
			first := true
			followed <- follower.Pods(ctx, namespace, id, func(pods []corev1.Pod) bool {
				if first {
					first = false
					close(seen)
				}
				done := len(pods) == 1 && pods[0].Status.Phase == corev1.PodSucceeded
				if done {
					ended <- time.Now()
				}
				return done
			})
		}()
		select {
		case <-seen:
		case err := <-followed:
			return err
		}
		_, err = pods.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		written := time.Now()
		if err := <-followed; err != nil {
			return err
		}
		times = append(times, max(0, (<-ended).Sub(written)))
	}
	b.row("the end of a pod, from the API server to whoever waits", "<= 100 ms", "p50 %s, slowest of %d %s", ms(percentile(times, 50)), len(times), ms(slices.Max(times)))
	return nil
}

// post sends a binary event of the type with an id of its own to the process that serves.
func (b *bench) post(body []byte, eventType string) func(context.Context) error {
	url := strings.TrimSuffix(b.flint.url, api.SubmitPath) + "/"
	client := &http.Client{Timeout: 30 * time.Second, Transport: b.flint.transport}
	id := fmt.Sprintf("event-%d", b.serial.Add(1))
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			return err
		}
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Type": eventType, "Ce-Source": "/bench", "Ce-Id": id,
		} {
			request.Header.Set(name, value)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusAccepted {
			err = fmt.Errorf("an event was answered %d", response.StatusCode)
		}
		return errors.Join(err, response.Body.Close())
	}
}
