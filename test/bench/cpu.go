package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
)

// cost is what a piece of work takes of the processor and of the heap.
type cost struct {
	cpu    time.Duration
	allocs uint64
	bytes  uint64
}

// measure gives the cost of one of n runs, after a tenth as many to warm up.
func measure(n int, work func() error) (cost, error) {
	for range n / 10 {
		if err := work(); err != nil {
			return cost{}, err
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processorTime()
	for range n {
		if err := work(); err != nil {
			return cost{}, err
		}
	}
	cpu = processorTime() - cpu
	runtime.ReadMemStats(&after)
	count := uint64(n)
	return cost{cpu / time.Duration(n), (after.Mallocs - before.Mallocs) / count, (after.TotalAlloc - before.TotalAlloc) / count}, nil
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // RUSAGE_SELF is always there
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (c cost) String() string {
	return fmt.Sprintf("%.2f ms CPU, %d allocations, %d KiB", float64(c.cpu.Microseconds())/1000, c.allocs, c.bytes/1024)
}

// render measures 1,000 renders: decode, parse, build, print.
func (b *bench) render(context.Context, string, string) error {
	progress("renders")
	c, err := measure(max(100, 1000/b.scale), func() error {
		objects, err := planned(b.body)
		if err != nil {
			return err
		}
		return json.NewEncoder(io.Discard).Encode(launch.List(objects))
	})
	if err != nil {
		return err
	}
	b.row("one of 1,000 renders", "<= 5 ms CPU", "%s", c)
	return nil
}

// handle measures whole submissions through the function, on an API server
// that answers at once and costs next to nothing.
func (b *bench) handle(context.Context, string, string) error {
	progress("submissions without the API server")
	settings, err := config.Load()
	if err != nil {
		return err
	}
	settings.Namespaces, settings.PollInterval = []string{namespace}, 0
	cluster := &rest.Config{Host: "http://api.invalid", QPS: -1, Transport: instant{}}
	f := function.New(function.WithSettings(settings), function.WithCluster(cluster), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := f.Start(context.Background(), nil); err != nil {
		return err
	}
	c, err := measure(max(100, 1000/b.scale), func() error {
		body, err := b.next()
		if err != nil {
			return err
		}
		request := httptest.NewRequest(http.MethodPost, api.SubmitPath, bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		f.Handle(answer, request)
		if answer.Code != http.StatusCreated {
			return errors.New(answer.Body.String())
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.row("one of 1,000 submissions, without the API server", "<= 5 ms CPU", "%s", c)
	return nil
}

// instant is an API server that accepts everything: it answers a write with the
// metadata of what it was sent.
type instant struct{}

func (instant) RoundTrip(r *http.Request) (*http.Response, error) {
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
	}
	if err := json.NewDecoder(r.Body).Decode(&object); err != nil {
		return nil, err
	}
	if err := r.Body.Close(); err != nil {
		return nil, err
	}
	status := http.StatusCreated
	if r.Method == http.MethodPatch {
		status = http.StatusOK
		object.APIVersion, object.Kind = "v1", "Pod"
		object.Metadata["name"] = r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	}
	object.Metadata["uid"] = "00000000-0000-4000-8000-000000000000"
	object.Metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
	body, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}, nil
}
