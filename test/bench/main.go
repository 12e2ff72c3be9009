// Command bench measures Flint against plain client-go, in one run against one
// API server, and prints the figures as Markdown. Absolute times depend on the
// machine; the ratios are what counts, and each is of two things done in turn.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/operator"
)

// namespace of everything that is measured.
const namespace = "bench"

// sample is the request that is submitted: the operator's SparkPi with a dynamic
// allocation, which gives a pod, a Service, a NetworkPolicy and two ConfigMaps.
const sample = "spark-pi-dynamic-allocation"

func main() {
	binary := flag.String("binary", "bin/flint", "the program to measure")
	quick := flag.Bool("quick", false, "a tenth of everything, to try the command out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *quick, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	body   []byte // of the sample
	cp     *controlplane.ControlPlane
	plain  *plain
	flint  *process
	scale  int // divides every count
	serial atomic.Int64
	out    io.Writer
}

func run(ctx context.Context, binary string, quick bool, out io.Writer) error {
	requests, err := operator.Requests()
	if err != nil {
		return err
	}
	b := &bench{body: requests[sample], scale: 1, out: out}
	if quick {
		b.scale = 10
	}
	dir, err := os.MkdirTemp("", "flint-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	progress("starting kube-apiserver and etcd")
	if b.cp, err = controlplane.Start(ctx, controlplane.Options{Log: io.Discard}); err != nil {
		return err
	}
	defer b.cp.Stop()
	if err := b.cp.Namespace(ctx, namespace); err != nil {
		return err
	}
	if err := b.cp.ServiceAccount(ctx, namespace, "spark-operator-spark"); err != nil {
		return err
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := b.cp.Kubeconfig(kubeconfig); err != nil {
		return err
	}
	if b.plain, err = newPlain(unlimited(b.cp.Config())); err != nil {
		return err
	}

	fmt.Fprintf(out, "machine: %d cores, %s, %s/%s; kube-apiserver and etcd on the same cores\n\n", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(out, "| figure | goal | measured |\n|---|---|---|\n")
	defer func() {
		if b.flint != nil { // where a step has failed; else it has ended, and that is an error of no interest
			_ = b.flint.stop()
		}
	}()
	steps := []func(context.Context, string, string) error{b.size, b.start, b.render, b.handle, b.latency, b.throughput, b.events, b.memory, b.pass, b.agent, b.jobs, b.notice}
	for _, step := range steps {
		if err := step(ctx, binary, kubeconfig); err != nil {
			return err
		}
	}
	return nil
}

func unlimited(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS, c.Burst = -1, 0
	return c
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...) }

func (b *bench) row(figure, goal, format string, args ...any) {
	fmt.Fprintf(b.out, "| %s | %s | %s |\n", figure, goal, fmt.Sprintf(format, args...))
}

// next is the sample with an id and a pod name of its own.
func (b *bench) next() ([]byte, error) {
	n := b.serial.Add(1)
	return operator.With(b.body, fmt.Sprintf("bench-%08d", n), namespace, fmt.Sprintf("bench-%08d-driver", n))
}

func (b *bench) size(_ context.Context, binary, _ string) error {
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	b.row("size of the program, stripped", "", "%.1f MB", float64(info.Size())/1e6)
	return nil
}

// start measures from before the process is made to its first answer.
func (b *bench) start(ctx context.Context, binary, kubeconfig string) error {
	progress("start of the process")
	var times []time.Duration
	for range max(5, 40/b.scale) {
		before := time.Now()
		p, err := startProcess(ctx, binary, kubeconfig)
		if err != nil {
			return err
		}
		times = append(times, time.Since(before))
		if err := p.stop(); err != nil {
			return err
		}
	}
	b.row("process start to the first 405", "<= 100 ms", "p50 %s, slowest of %d %s", ms(percentile(times, 50)), len(times), ms(slices.Max(times)))
	return nil
}

// latency submits one at a time, by Flint and by plain client-go in turn.
func (b *bench) latency(ctx context.Context, binary, kubeconfig string) error {
	progress("latency, one client")
	p, err := startReady(ctx, binary, kubeconfig)
	if err != nil {
		return err
	}
	b.flint = p
	count := 600 / b.scale
	var ours, theirs []time.Duration
	for i := range count + 20 {
		d, err := timed(ctx, b.viaFlint)
		if err != nil {
			return err
		}
		d2, err := timed(ctx, b.viaClientGo)
		if err != nil {
			return err
		}
		if i >= 20 { // warm-up
			ours, theirs = append(ours, d), append(theirs, d2)
		}
	}
	for _, q := range []int{50, 99} {
		goal := ""
		if q == 50 {
			goal = "<= 1.25 x"
		}
		o, t := percentile(ours, q), percentile(theirs, q)
		b.row(fmt.Sprintf("submission over HTTP, p%d, against the same writes by plain client-go", q), goal,
			"%s / %s = %.2f x", ms(o), ms(t), float64(o)/float64(t))
	}
	return nil
}

// throughput submits from several clients at once, in rounds that alternate.
func (b *bench) throughput(ctx context.Context, _, _ string) error {
	for _, clients := range []int{1, 8, 64} {
		progress("throughput, %d clients", clients)
		count := max(clients, min(200*clients, 1600)/b.scale)
		const rounds = 3
		var ours, theirs []float64
		for range rounds {
			o, err := b.rate(ctx, clients, count/rounds, b.viaFlint)
			if err != nil {
				return err
			}
			t, err := b.rate(ctx, clients, count/rounds, b.viaClientGo)
			if err != nil {
				return err
			}
			ours, theirs = append(ours, o), append(theirs, t)
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		o, t := ours[rounds/2], theirs[rounds/2]
		b.row(fmt.Sprintf("submissions each second, %d clients, against plain client-go", clients), ">= 0.85 x", "%.0f / %.0f = %.2f x", o, t, o/t)
	}
	return nil
}

// memory submits 10,000 times and reads what the process holds.
func (b *bench) memory(ctx context.Context, binary, kubeconfig string) error {
	if err := b.flint.stop(); err != nil {
		return err
	}
	p, err := startReady(ctx, binary, kubeconfig)
	if err != nil {
		return err
	}
	b.flint = p
	defer func() { _ = p.stop() }()
	atStart, err := p.rss()
	if err != nil {
		return err
	}
	total, done := 10_000/b.scale, 0
	var at []string
	for _, share := range []int{total / 10, total / 2, total} {
		progress("memory, %d of %d submissions", share, total)
		if _, err := b.rate(ctx, 8, share-done, b.viaFlint); err != nil {
			return err
		}
		done = share
		rss, err := p.rss()
		if err != nil {
			return err
		}
		at = append(at, fmt.Sprintf("%.1f MB after %d", rss, share))
	}
	b.row("resident memory", "<= 40 MB, not growing", "%.1f MB at start, %s", atStart, strings.Join(at, ", "))
	return nil
}

// prepare makes one submission ready; what it gives does the part that is measured.
type prepare func() (submit func(context.Context) error, err error)

func timed(ctx context.Context, p prepare) (time.Duration, error) {
	submit, err := p()
	if err != nil {
		return 0, err
	}
	before := time.Now()
	err = submit(ctx)
	return time.Since(before), err
}

// rate gives submissions a second of count submissions by so many clients.
func (b *bench) rate(ctx context.Context, clients, count int, p prepare) (float64, error) {
	ready := make(chan func(context.Context) error, count)
	for range count {
		submit, err := p()
		if err != nil {
			return 0, err
		}
		ready <- submit
	}
	close(ready)
	var wait sync.WaitGroup
	failures := make([]error, clients)
	before := time.Now()
	for i := range clients {
		wait.Go(func() {
			for submit := range ready {
				if failures[i] = submit(ctx); failures[i] != nil {
					return
				}
			}
		})
	}
	wait.Wait()
	return float64(count) / time.Since(before).Seconds(), errors.Join(failures...)
}

// viaFlint posts a body to the process that serves.
func (b *bench) viaFlint() (func(context.Context) error, error) {
	body, err := b.next()
	if err != nil {
		return nil, err
	}
	client := operator.Client{URL: b.flint.url, Tries: 1, Timeout: 30 * time.Second, HTTP: b.flint.transport}
	return func(ctx context.Context) error {
		_, status, err := client.Submit(ctx, body)
		if err == nil && status != http.StatusCreated {
			err = fmt.Errorf("fresh submission answered %d", status)
		}
		return err
	}, nil
}

// viaClientGo writes the same objects in the same order, made beforehand.
func (b *bench) viaClientGo() (func(context.Context) error, error) {
	body, err := b.next()
	if err != nil {
		return nil, err
	}
	objects, err := planned(body)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return b.plain.create(ctx, objects) }, nil
}

// process is Flint, serving.
type process struct {
	cmd       *exec.Cmd
	url       string
	transport *http.Transport
	log       *bytes.Buffer
}

// startProcess returns when the process, with these settings beside those of every run, has answered 405 to a GET.
func startProcess(ctx context.Context, binary, kubeconfig string, env ...string) (*process, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	p := &process{
		url:       "http://" + address + api.SubmitPath,
		transport: &http.Transport{MaxIdleConnsPerHost: 100},
		log:       &bytes.Buffer{},
	}
	p.cmd = exec.Command(binary, "serve")
	p.cmd.Stderr = p.log
	p.cmd.Env = append([]string{
		"LISTEN_ADDRESS=" + address, "KUBECONFIG=" + kubeconfig, "FLINT_NAMESPACES=" + namespace,
		"FLINT_KUBE_QPS=-1", "FLINT_POLL_INTERVAL=0", "FLINT_LOG_LEVEL=warn", "FLINT_MAX_IN_FLIGHT=128",
	}, env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	client := operator.Client{URL: p.url, Timeout: time.Second, HTTP: p.transport}
	status, err := client.WaitForConnection(ctx, time.Millisecond)
	if err == nil && status != http.StatusMethodNotAllowed {
		err = fmt.Errorf("GET answered %d", status)
	}
	if err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		return nil, fmt.Errorf("%w\n%s", err, p.log)
	}
	return p, nil
}

// startReady is startProcess that waits for the process to be ready too: it answers 405 before, and a submission with 503.
func startReady(ctx context.Context, binary, kubeconfig string, env ...string) (*process, error) {
	p, err := startProcess(ctx, binary, kubeconfig, env...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		ready, err := p.ready(ctx)
		if ready {
			return p, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("flint serve is not ready: %w", ctx.Err()), err, p.stop())
		}
	}
}

func (p *process) ready(ctx context.Context) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.url, api.SubmitPath)+"/health/readiness", nil)
	if err != nil {
		return false, err
	}
	response, err := (&http.Client{Transport: p.transport}).Do(request)
	if err != nil {
		return false, err
	}
	return response.StatusCode == http.StatusOK, response.Body.Close()
}

func (p *process) stop() error {
	p.transport.CloseIdleConnections()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("flint serve: %w\n%s", err, p.log)
	}
	return nil
}

// rss is the resident memory of the process, in MB.
func (p *process) rss() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, errors.New("no VmRSS in the process's status")
}

func percentile(times []time.Duration, q int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[(len(sorted)-1)*q/100]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
