// Package startup tells why a pod that was launched does not run, as early as it can be told with some certainty. It is pure.
//
// Kubernetes has no such verdict: a pod that will never start stays Pending, for ever, and its status says why in
// a dozen places. Each observation has a grace, since many of them heal by themselves: a Secret that is being
// created, a node that is being added, a registry that limits its rate.
package startup

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/api"
)

// Graces are how long an observation must last before it is a verdict, counted by the pod's own conditions. Zero
// means at once.
type Graces struct {
	ImagePull     time.Duration // ErrImagePull, ImagePullBackOff; from PodReadyToStartContainers on (tektoncd/pipeline#7881)
	Config        time.Duration // CreateContainerConfigError
	Rejected      time.Duration // CreateContainerError, RunContainerError, ImageInspectError
	Unschedulable time.Duration // without a scale-up
	ScaleUp       time.Duration // with an event TriggeredScaleUp
	VolumeAttach  time.Duration // FailedAttachVolume, FailedMount
}

// DefaultGraces are those that fail fast and do not fail what heals.
func DefaultGraces() Graces {
	return Graces{
		ImagePull: 10 * time.Second, Config: 10 * time.Second, Rejected: 5 * time.Second,
		Unschedulable: 15 * time.Second, ScaleUp: 3 * time.Minute, VolumeAttach: 30 * time.Second,
	}
}

// Trouble is why a pod does not run.
type Trouble struct {
	Code    api.Code // IMAGE_PULL, CONFIG_ERROR, POD_REJECTED, UNSCHEDULABLE, VOLUME_ATTACH
	Message string   // names the container, the image, the scheduler's own words; no values of env or args
}

// Judge is the verdict on a pod whose containers have not started, with the events about it, as far as they are
// known: without them there is no VOLUME_ATTACH and no longer grace for a scale-up. The second result is false
// while there is none: the pod runs, has ended, or may still start.
func Judge(pod *corev1.Pod, events []corev1.Event, graces Graces, now time.Time) (Trouble, bool) {
	panic("to be written")
}

// WantsEvents tells whether events about the pod would make a difference to Judge now.
func WantsEvents(pod *corev1.Pod, graces Graces, now time.Time) bool {
	panic("to be written")
}
