package function

import "fmt"

const (
	// maxReads is how many GETs of launches are answered at once: each may hold a part of a page in memory, or a
	// connection to a kubelet.
	maxReads = 32
	// maxLooks is how many events ask for a look at once. Pings wait for one look together, and take none of the
	// slots of launches meanwhile.
	maxLooks = 128
)

// places bound how many requests of one sort are in flight in an instance.
type places struct {
	taken chan struct{}
	sort  string // for the refusal
}

func newPlaces(n int, sort string) places { return places{make(chan struct{}, n), sort} }

// take takes a place, or refuses at once, as acquire does.
func (f *Function) take(p places) (release func(), err error) {
	select {
	case p.taken <- struct{}{}:
	default:
		return nil, overloaded(fmt.Sprintf("%d %s are in flight, as many as this instance takes", cap(p.taken), p.sort))
	}
	release = func() { <-p.taken }
	if f.draining.Load() {
		release()
		return nil, errStopping()
	}
	return release, nil
}
