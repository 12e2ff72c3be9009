// Package follow looks at pods for as long as somebody waits for them: a file job's for its result, a runner's for its boot.
//
// It lists, and does not watch: a list of the few pods that are waited for needs no right that Flint does not have,
// ends with its answer, and is as quick as the interval. However many wait in a namespace, there is one list an interval,
// of their pods alone.
package follow

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/kube"
)

// DefaultInterval is between two lists of a namespace: an end is seen within it, and a call's time.
const DefaultInterval = 75 * time.Millisecond

// Follower follows the pods of launches. Its methods may be called at the same time.
type Follower struct {
	Client   kube.Client
	Clock    clock.WithTicker // nil means the real one
	Interval time.Duration    // zero means DefaultInterval
}

// Pods calls see with the pods that have the label flint.dev/id=id, at first and then whenever one of them is
// another, or another version, until see returns true (nil) or the context ends (its error). A list that fails is
// repeated, with a growing interval, as long as the context lasts; one that is refused for good (403) is the error.
func (f *Follower) Pods(ctx context.Context, namespace, id string, see func(pods []corev1.Pod) (done bool)) error {
	panic("to be written")
}
