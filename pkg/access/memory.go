package access

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// askLimit is the longest time of one question to the API server.
const askLimit = 5 * time.Second

// answer is what the API server said. A bad one is remembered apart from good ones, so that a flood of what is
// refused drives out nothing that is allowed.
type answer[T any] struct {
	value T
	good  bool
	keep  time.Duration // how long it may be remembered, from when it was asked for; zero or less: not at all
}

// memory remembers answers for a while, and joins those who ask the same at once.
type memory[T any] struct {
	good, bad *cache.LRUExpireCache
	clock     clock.PassiveClock
	asked     singleflight.Group
}

func newMemory[T any](size int, c clock.PassiveClock) *memory[T] {
	return &memory[T]{good: cache.NewLRUExpireCacheWithClock(size, c), bad: cache.NewLRUExpireCacheWithClock(size, c), clock: c}
}

// recall gives the remembered answer, or asks. The question goes on when who asked first has gone: others wait for it.
// Errors are not remembered.
func (m *memory[T]) recall(ctx context.Context, key string, ask func(context.Context) (answer[T], error)) (answer[T], error) {
	for _, known := range []*cache.LRUExpireCache{m.good, m.bad} {
		if found, ok := known.Get(key); ok {
			return found.(answer[T]), nil
		}
	}
	result := m.asked.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		began := m.clock.Now() // what is changed from now on may not be in the answer
		got, err := ask(ctx)
		got.keep -= m.clock.Since(began)
		if err == nil && got.keep > 0 {
			into := m.bad
			if got.good {
				into = m.good
			}
			into.Add(key, got, got.keep)
		}
		return got, err
	})
	select {
	case got := <-result:
		return got.Val.(answer[T]), got.Err
	case <-ctx.Done():
		return answer[T]{}, ctx.Err()
	}
}
