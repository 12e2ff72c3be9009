package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// events submits by CloudEvent: from the event to a complete driver.
func (b *bench) events(ctx context.Context, _, _ string) error {
	progress("events")
	var times []time.Duration
	for range 200 / b.scale {
		d, err := timed(ctx, b.viaEvent)
		if err != nil {
			return err
		}
		times = append(times, d)
	}
	rate, err := b.rate(ctx, 8, 800/b.scale, b.viaEvent)
	if err != nil {
		return err
	}
	b.row("event to driver (six writes), one client; each second with 8", "", "p50 %s, p99 %s; %.0f", ms(percentile(times, 50)), ms(percentile(times, 99)), rate)
	return nil
}

// viaEvent posts a binary event to the process that serves.
func (b *bench) viaEvent() (func(context.Context) error, error) {
	body, err := b.next()
	if err != nil {
		return nil, err
	}
	return b.post(body, api.SubmitEventType), nil
}

// acknowledged is a sink that takes every event at once.
type acknowledged struct{ events atomic.Int64 }

func (a *acknowledged) Send(context.Context, cloudevents.Event) error { a.events.Add(1); return nil }

// pendingLeft is how many of the launches are left pending for the pass.
const pendingLeft = 50

// pass marks all launches of the run but a few as told, and measures a look for what has ended.
func (b *bench) pass(ctx context.Context, _, _ string) error {
	client, err := kube.NewClient(unlimited(b.cp.Config()))
	if err != nil {
		return err
	}
	total := int(b.serial.Load())
	progress("a pass over %d launches that were told of and %d pending", total-pendingLeft, pendingLeft)
	pods := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace}
	pending := launch.LabelCompletion + "=" + launch.CompletionPending
	var all []*unstructured.Unstructured
	for next := ""; ; {
		page, err := client.List(ctx, pods, kube.ListOptions{LabelSelector: pending, Limit: 500, Continue: next, MetadataOnly: true})
		if err != nil {
			return err
		}
		all = append(all, page.Items...)
		if next = page.Continue; next == "" {
			break
		}
	}
	told := all[:len(all)-pendingLeft]
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, launch.LabelCompletion, completion.Sent)
	var failed atomic.Pointer[error]
	var wait sync.WaitGroup
	queue := make(chan *unstructured.Unstructured)
	for range 8 {
		wait.Go(func() {
			for pod := range queue {
				ref := pods
				ref.Name = pod.GetName()
				if _, err := client.Patch(ctx, ref, types.MergePatchType, patch); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	for _, pod := range told {
		queue <- pod
	}
	close(queue)
	wait.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	sink := &acknowledged{}
	poller := completion.Poller{Client: client, Sender: sink, Source: "/bench", Namespaces: []string{namespace}}
	var times []time.Duration
	var stats completion.Stats
	for range 20 {
		before := time.Now()
		if stats, err = poller.Pass(ctx); err != nil {
			return err
		}
		times = append(times, time.Since(before))
	}
	b.row(fmt.Sprintf("a pass over %d launches told of and %d pending", len(told), pendingLeft), "lists 50",
		"lists %d objects, p50 %s", stats.Listed, ms(percentile(times, 50)))
	return nil
}
