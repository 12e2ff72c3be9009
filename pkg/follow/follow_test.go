package follow_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
)

// cluster answers lists, and notes them. All else of a Client is not for a Follower.
type cluster struct {
	kube.Client

	mu    sync.Mutex
	pods  map[string]string // version by id
	err   error
	lists []list
	takes time.Duration
}

type list struct {
	namespace, selector string
	at                  time.Time
}

func (c *cluster) List(ctx context.Context, of kube.Ref, options kube.ListOptions) (*kube.Page, error) {
	if _, ok := ctx.Deadline(); !ok || of.Kind != "Pod" {
		return nil, fmt.Errorf("a list of %s, deadline %t", of, ok)
	}
	if c.takes > 0 {
		select {
		case <-time.After(c.takes):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists = append(c.lists, list{of.Namespace, options.LabelSelector, time.Now()})
	if c.err != nil {
		return nil, c.err
	}
	page := &kube.Page{}
	for id, version := range c.pods {
		if !strings.Contains(options.LabelSelector, id) {
			continue
		}
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{
			"name": id, "uid": id, "resourceVersion": version, "labels": map[string]any{"flint.dev/id": id},
		}}}
		page.Items = append(page.Items, pod)
	}
	return page, nil
}

func (c *cluster) set(id, version string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pods[id], c.err = version, err
}

func (c *cluster) seen() []list {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lists)
}

// versions are the pods as see gets them.
func versions(pods []corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name+"@"+p.ResourceVersion)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Each bubble ends only when all that was started in it has ended: no goroutine is left when nobody waits.

func TestPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[string]string{"a": "1", "b": "1"}}
		f := &follow.Follower{Client: c}
		started := time.Now()
		var got []string
		go func() {
			<-time.After(time.Second)
			c.set("a", "2", nil)
		}()
		err := f.Pods(t.Context(), "ns", "a", func(pods []corev1.Pod) bool {
			got = append(got, versions(pods))
			return len(got) == 2
		})
		if took := time.Since(started); err != nil || strings.Join(got, ",") != "a@1,a@2" || took > time.Second+100*time.Millisecond {
			t.Errorf("Pods() = %v after %v, saw %v", err, took, got)
		}
	})
}

func TestOneListForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[string]string{}}
		f := &follow.Follower{Client: c}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for n := range 200 {
			wg.Go(func() {
				err := f.Pods(ctx, "ns", fmt.Sprintf("id-%d", n%100), func([]corev1.Pod) bool { return false })
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Pods() = %v", err)
				}
			})
		}
		wg.Wait()
		lists := c.seen()
		if most := int(time.Second/follow.DefaultInterval) + 1; len(lists) > most || len(lists) < most-1 {
			t.Errorf("%d lists in a second, want %d", len(lists), most)
		}
		last := lists[len(lists)-1]
		if ids := strings.Count(last.selector, "id-"); last.namespace != "ns" || ids != 100 || !strings.HasPrefix(last.selector, "flint.dev/id in (") {
			t.Errorf("%d ids in %q of %s", ids, last.selector, last.namespace)
		}
	})
}

func TestNamespacesApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[string]string{"a": "1"}}
		f := &follow.Follower{Client: c}
		var wg sync.WaitGroup
		for _, namespace := range []string{"one", "other"} {
			wg.Go(func() {
				if err := f.Pods(t.Context(), namespace, "a", func(pods []corev1.Pod) bool { return len(pods) == 1 }); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if lists := c.seen(); len(lists) != 2 || lists[0].namespace == lists[1].namespace {
			t.Errorf("lists %+v", lists)
		}
	})
}

func TestErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	t.Run("refused for good", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &follow.Follower{Client: &cluster{pods: map[string]string{}, err: forbidden}}
			if err := f.Pods(t.Context(), "ns", "a", func([]corev1.Pod) bool { return false }); !apierrors.IsForbidden(err) {
				t.Errorf("Pods() = %v", err)
			}
		})
	})
	t.Run("repeated, ever later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &cluster{pods: map[string]string{"a": "1"}, err: errors.New("no answer")}
			f := &follow.Follower{Client: c}
			go func() {
				<-time.After(20 * time.Second)
				c.set("a", "1", nil)
			}()
			if err := f.Pods(t.Context(), "ns", "a", func([]corev1.Pod) bool { return true }); err != nil {
				t.Errorf("Pods() = %v", err)
			}
			lists := c.seen()
			if n := len(lists); n > 20 || lists[n-1].at.Sub(lists[n-2].at) > 2*time.Second {
				t.Errorf("%d lists in 20 s", n)
			}
		})
	})
	t.Run("the context ends amid a list", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := &follow.Follower{Client: &cluster{pods: map[string]string{}, takes: time.Hour}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := f.Pods(ctx, "ns", "a", func([]corev1.Pod) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Pods() = %v", err)
			}
		})
	})
}

// Whoever comes while others wait is in the next list, and has the pods as they are then.
func TestComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[string]string{"a": "1", "b": "1"}}
		f := &follow.Follower{Client: c}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = f.Pods(ctx, "ns", "a", func([]corev1.Pod) bool { return false }) })
		<-time.After(time.Second)
		joined := time.Now()
		if err := f.Pods(ctx, "ns", "b", func(pods []corev1.Pod) bool { return versions(pods) == "b@1" }); err != nil || time.Since(joined) > follow.DefaultInterval {
			t.Errorf("Pods() = %v after %v", err, time.Since(joined))
		}
		cancel()
		wg.Wait()
	})
}

// An id that is none spoils no list: the others are seen as before.
func TestIDsAreLabelValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{pods: map[string]string{"a": "1"}}
		f := &follow.Follower{Client: c}
		for _, id := range []string{"x)(", "a,b", "a) , flint.dev/kind in (spark", strings.Repeat("a", 64)} {
			if err := f.Pods(t.Context(), "default", id, func([]corev1.Pod) bool { return true }); err == nil || !strings.Contains(err.Error(), id) {
				t.Errorf("%q: %v", id, err)
			}
		}
		if err := f.Pods(t.Context(), "default", "a", func([]corev1.Pod) bool { return true }); err != nil {
			t.Error(err)
		}
		for _, l := range c.seen() {
			if l.selector != "flint.dev/id in (a)" {
				t.Errorf("selector %q", l.selector)
			}
		}
	})
}
