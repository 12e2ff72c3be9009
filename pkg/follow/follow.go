// Package follow looks at pods for as long as somebody waits for them: a file job's for its result, a runner's for its boot.
//
// It lists, and does not watch: a list of the few pods that are waited for needs no right that Flint does not have,
// ends with its answer, and is as quick as the interval. However many wait in a namespace, there is one list an interval,
// of their pods alone.
package follow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

const (
	// DefaultInterval is between two lists of a namespace: an end is seen within it, and a call's time.
	DefaultInterval = 50 * time.Millisecond
	// maxInterval is what the interval grows to while lists fail.
	maxInterval = 2 * time.Second
	// callTimeout bounds one list.
	callTimeout = 10 * time.Second
)

// Follower follows the pods of launches. Its methods may be called at the same time.
type Follower struct {
	Client   kube.Client
	Clock    clock.WithTicker // nil means the real one
	Interval time.Duration    // zero means DefaultInterval

	mu     sync.Mutex
	groups map[string]*group // by namespace, those in which somebody waits
}

// group are those who wait in one namespace. It lists as long as there are any.
type group struct {
	waiters map[*waiter]bool // guarded by Follower.mu
	cancel  context.CancelFunc
}

// waiter is one call of Pods.
type waiter struct {
	id string
	// news holds the last list that the call has not seen yet.
	news chan news
}

// news is what one list told about one launch.
type news struct {
	pods []corev1.Pod
	err  error
}

// Pods calls see with the pods that have the label flint.dev/id=id, at first and then whenever one of them is
// another, or another version, until see returns true (nil) or the context ends (its error). A list that fails is
// repeated, with a growing interval, as long as the context lasts; one that is refused for good (403) is the error. So is an id
// that is no label's value: it would spoil the one list for all who wait.
func (f *Follower) Pods(ctx context.Context, namespace, id string, see func(pods []corev1.Pod) (done bool)) error {
	if problems := validation.IsValidLabelValue(id); len(problems) > 0 {
		return fmt.Errorf("follow pods of %q: %s", id, problems[0])
	}
	w := &waiter{id: id, news: make(chan news, 1)}
	defer f.join(namespace, w)() //nolint:contextcheck // what is started is for all who wait, and ends with the last of them
	var seen map[types.UID]string
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-w.news:
			if n.err != nil {
				return n.err
			}
			versions := map[types.UID]string{}
			for i := range n.pods {
				versions[n.pods[i].UID] = n.pods[i].ResourceVersion
			}
			if seen != nil && maps.Equal(seen, versions) {
				continue
			}
			seen = versions
			if see(n.pods) {
				return nil
			}
		}
	}
}

// join adds the waiter to its namespace's group, which it starts if there is none; leave takes it out, and ends the
// group with its last.
func (f *Follower) join(namespace string, w *waiter) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.groups[namespace]
	if g == nil {
		ctx, cancel := context.WithCancel(context.Background())
		g = &group{waiters: map[*waiter]bool{}, cancel: cancel}
		if f.groups == nil {
			f.groups = map[string]*group{}
		}
		f.groups[namespace] = g
		go f.run(ctx, namespace, g)
	}
	g.waiters[w] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(g.waiters, w)
		if len(g.waiters) == 0 && f.groups[namespace] == g {
			g.cancel()
			delete(f.groups, namespace)
		}
	}
}

// run lists until the group has ended.
func (f *Follower) run(ctx context.Context, namespace string, g *group) {
	interval := f.interval()
	for {
		waiters := f.waitersOf(g)
		byID, err := f.list(ctx, namespace, waiters)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			interval = f.interval()
		case !apierrors.IsForbidden(err):
			interval = min(2*interval, max(maxInterval, f.interval()))
		}
		if err == nil || apierrors.IsForbidden(err) {
			for _, w := range waiters {
				w.tell(news{byID[w.id], err})
			}
		}
		timer := f.clock().NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

// tell leaves the newest news. Only the group's one goroutine sends.
func (w *waiter) tell(n news) {
	select {
	case <-w.news:
	default:
	}
	w.news <- n
}

func (f *Follower) waitersOf(g *group) []*waiter {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(g.waiters))
}

// list gives the pods of all waiters, by the id of their launch.
func (f *Follower) list(ctx context.Context, namespace string, waiters []*waiter) (map[string][]corev1.Pod, error) {
	var ids []string
	for _, w := range waiters {
		ids = append(ids, w.id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace}
	page, err := f.Client.List(ctx, of, kube.ListOptions{LabelSelector: launch.LabelID + " in (" + strings.Join(ids, ",") + ")"})
	if err != nil {
		return nil, err
	}
	byID := map[string][]corev1.Pod{}
	for _, item := range page.Items {
		var pod corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pod); err != nil {
			return nil, fmt.Errorf("read %s: %w", kube.RefOf(namespace, item), err)
		}
		id := pod.Labels[launch.LabelID]
		byID[id] = append(byID[id], pod)
	}
	return byID, nil
}

func (f *Follower) clock() clock.WithTicker {
	if f.Clock == nil {
		return clock.RealClock{}
	}
	return f.Clock
}

func (f *Follower) interval() time.Duration {
	if f.Interval == 0 {
		return DefaultInterval
	}
	return f.Interval
}
