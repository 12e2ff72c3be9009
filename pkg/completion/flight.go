package completion

import (
	"context"
	"fmt"
	"sync"
)

// Flight makes one call at a time of what looks at the cluster as it is. Whoever asks while one runs waits for the
// next, which begins after they asked and so sees all that they mean; there is one for all who wait. The zero value is good.
type Flight[T any] struct {
	once sync.Once
	turn chan struct{} // holds one token while a call runs
	last landed[T]     // guarded by turn

	mu    sync.Mutex
	begun int // calls
}

// landed is what became of a call.
type landed[T any] struct {
	number int // of those that have begun
	result T
	err    error
}

// Do calls fly, or gives what another's call of it has come to. What ran out of its caller's time is not shared. An error
// without a call means that the context has ended first.
func (f *Flight[T]) Do(ctx context.Context, fly func(ctx context.Context) (T, error)) (T, error) {
	f.once.Do(func() { f.turn = make(chan struct{}, 1) })
	f.mu.Lock()
	before := f.begun
	f.mu.Unlock()
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("wait for the look before: %w", ctx.Err())
	}
	if f.last.number > before {
		return f.last.result, f.last.err
	}
	f.mu.Lock()
	f.begun++
	number := f.begun
	f.mu.Unlock()
	result, err := fly(ctx)
	if ctx.Err() == nil {
		f.last = landed[T]{number, result, err}
	}
	return result, err
}
