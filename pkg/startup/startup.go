// Package startup tells why a pod that was launched does not run, as early as it can be told with some certainty. It is pure.
//
// Kubernetes has no such verdict: a pod that will never start stays Pending, for ever, and its status says why in
// a dozen places. Each observation has a grace, since many of them heal by themselves: a Secret that is being
// created, a node that is being added, a registry that limits its rate.
package startup

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
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
		ImagePull: 15 * time.Second, Config: 10 * time.Second, Rejected: 5 * time.Second,
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
// while there is none: the container that the pod is for runs, the pod has ended or is deleted, or it may still start.
//
// A pod that failed before any container of it ran was rejected; one of whose containers one has run has ended, which is
// for others to judge. A registry that limits its rate is waited for (apache/airflow#61778), for as long as the caller has.
func Judge(pod *corev1.Pod, events []corev1.Event, graces Graces, now time.Time) (Trouble, bool) {
	own := slices.DeleteFunc(slices.Clone(events), func(e corev1.Event) bool { return e.InvolvedObject.UID != pod.UID })
	slices.SortStableFunc(own, func(a, b corev1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	for _, s := range ripe(pod, graces, now) {
		trouble, found := s.trouble, true
		if s.hear != nil {
			trouble, found = s.hear(own)
		}
		if found {
			trouble.Message = Scrub(trouble.Message, pod.Spec)
			return trouble, true
		}
	}
	return Trouble{}, false
}

// WantsEvents tells whether events about the pod would make a difference to Judge now.
func WantsEvents(pod *corev1.Pod, graces Graces, now time.Time) bool {
	return slices.ContainsFunc(ripe(pod, graces, now), func(s sight) bool { return s.hear != nil })
}

// sight is an observation on a pod.
type sight struct {
	trouble Trouble
	// since is when it began, zero where nobody knows; it counts after the grace.
	since time.Time
	grace time.Duration
	// hear gives what the observation means in the light of the pod's events, the oldest first; nil where they do not matter.
	hear func([]corev1.Event) (Trouble, bool)
}

// ripe are the observations whose grace is over.
func ripe(pod *corev1.Pod, graces Graces, now time.Time) []sight {
	return slices.DeleteFunc(look(pod, graces, now), func(s sight) bool {
		return s.grace > 0 && (s.since.IsZero() || now.Before(s.since.Add(s.grace)))
	})
}

func look(pod *corev1.Pod, graces Graces, now time.Time) []sight {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	switch {
	case pod.DeletionTimestamp != nil, pod.Status.Phase == corev1.PodSucceeded, runs(pod):
		return nil
	case pod.Status.Phase == corev1.PodFailed:
		if slices.ContainsFunc(statuses, hasRun) {
			return nil
		}
		why := fmt.Sprintf("%s: %s", cmp.Or(pod.Status.Reason, "no reason given"), cmp.Or(pod.Status.Message, "the pod failed before it ran"))
		return []sight{{trouble: Trouble{api.PodRejected, why}}}
	}
	scheduled := condition(pod, corev1.PodScheduled)
	if scheduled != nil && scheduled.Status == corev1.ConditionFalse {
		if scheduled.Reason != corev1.PodReasonUnschedulable { // SchedulingGated: somebody else will let it go
			return nil
		}
		return []sight{unschedulable(scheduled, graces, now)}
	}
	var sights []sight
	since := heldUpSince(pod, statuses)
	for _, status := range statuses {
		if s, ok := ofContainer(status, graces); ok {
			s.since = since
			sights = append(sights, s)
		}
	}
	if scheduled != nil && !mounted(pod, statuses) {
		sights = append(sights, sight{since: known(scheduled.LastTransitionTime), grace: graces.VolumeAttach, hear: volumes})
	}
	return sights
}

// runs tells whether the container that the pod is for was started.
func runs(pod *corev1.Pod) bool {
	name := pod.Annotations[launch.AnnotationContainer]
	if n := len(pod.Spec.Containers); name == "" && n > 0 {
		name = pod.Spec.Containers[n-1].Name
	}
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name && hasRun(s) })
}

func hasRun(s corev1.ContainerStatus) bool {
	return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
}

// unschedulable is a pod that no node takes. A new node may: the cluster autoscaler and Karpenter say so.
func unschedulable(scheduled *corev1.PodCondition, graces Graces, now time.Time) sight {
	s := sight{
		trouble: Trouble{api.Unschedulable, cmp.Or(scheduled.Message, "no node takes the pod, and the scheduler does not say why")},
		since:   known(scheduled.LastTransitionTime), grace: graces.Unschedulable,
	}
	if now.Before(s.since.Add(graces.ScaleUp)) {
		s.hear = func(events []corev1.Event) (Trouble, bool) {
			return s.trouble, !slices.ContainsFunc(events, func(e corev1.Event) bool {
				return e.Reason == "TriggeredScaleUp" || e.Reason == "Nominated"
			})
		}
	}
	return s
}

// rateLimited are the words of registries, and of the kubelet (registryPullQPS), for an image that will come later.
var rateLimited = regexp.MustCompile(`(?i)too ?many ?requests|rate limit|rate exceeded|QPS exceeded`)

// ofContainer is what a waiting container says. The reasons are the kubelet's: pkg/kubelet/images/types.go and
// pkg/kubelet/kuberuntime/kuberuntime_container.go in k8s.io/kubernetes.
func ofContainer(status corev1.ContainerStatus, graces Graces) (sight, bool) {
	waits := status.State.Waiting
	if waits == nil {
		return sight{}, false
	}
	image := Trouble{api.ImagePull, fmt.Sprintf("container %s waits for image %s: %s: %s", status.Name, status.Image, waits.Reason, waits.Message)}
	refused := fmt.Sprintf("container %s cannot be started: %s: %s", status.Name, waits.Reason, waits.Message)
	switch waits.Reason {
	case "InvalidImageName", "ErrImageNeverPull":
		return sight{trouble: image}, true
	case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed", "ErrImageVolumePull":
		if rateLimited.MatchString(waits.Message) {
			return sight{}, false
		}
		s := sight{trouble: image, grace: graces.ImagePull}
		if waits.Reason == "ImagePullBackOff" && !strings.Contains(waits.Message, "ErrImagePull") {
			s.hear = func(events []corev1.Event) (Trouble, bool) { return pull(image, status.Image, events) }
		}
		return s, true
	case "CreateContainerConfigError":
		return sight{trouble: Trouble{api.ConfigError, refused}, grace: graces.Config}, true
	case "CreateContainerError", "RunContainerError", "ImageInspectError", "PreCreateHookError", "PreStartHookError":
		return sight{trouble: Trouble{api.PodRejected, refused}, grace: graces.Rejected}, true
	}
	return sight{}, false
}

// pull finds why an image is not pulled in the events: kubelets before 1.32 do not say it in the status once they back off.
func pull(trouble Trouble, image string, events []corev1.Event) (Trouble, bool) {
	for _, e := range slices.Backward(events) {
		if e.Reason == "Failed" && strings.HasPrefix(e.Message, fmt.Sprintf("Failed to pull image %q", image)) {
			trouble.Message += ": " + e.Message
			return trouble, !rateLimited.MatchString(e.Message)
		}
	}
	return trouble, true
}

// volumes is the last that was told of the pod's volumes, if that was a failure.
func volumes(events []corev1.Event) (Trouble, bool) {
	for _, e := range slices.Backward(events) {
		switch e.Reason {
		case "FailedAttachVolume", "FailedMount", "FailedMapVolume":
			return Trouble{api.VolumeAttach, e.Reason + ": " + e.Message}, true
		case "SuccessfulAttachVolume", "SuccessfulMountVolume":
			return Trouble{}, false
		}
	}
	return Trouble{}, false
}

// mounted tells whether the pod's volumes are in place: the kubelet makes the sandbox only then.
func mounted(pod *corev1.Pod, statuses []corev1.ContainerStatus) bool {
	if ready := condition(pod, corev1.PodReadyToStartContainers); ready != nil && ready.Status == corev1.ConditionTrue {
		return true
	}
	return pod.Status.PodIP != "" || slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		waits := s.State.Waiting
		return hasRun(s) || waits != nil && waits.Reason != "" && waits.Reason != "ContainerCreating" && waits.Reason != "PodInitializing"
	})
}

// heldUpSince is when nothing but a container held the pod up: it was ready to start them, and the last one that
// had its turn before was started or has ended. Clusters before 1.29 do not tell the first, but that the pod had a node.
func heldUpSince(pod *corev1.Pod, statuses []corev1.ContainerStatus) time.Time {
	var since time.Time
	later := func(t metav1.Time) {
		if t := known(t); t.After(since) {
			since = t
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodReadyToStartContainers} {
		if c := condition(pod, kind); c != nil && c.Status == corev1.ConditionTrue {
			later(c.LastTransitionTime)
		}
	}
	for _, s := range statuses {
		if s.State.Running != nil {
			later(s.State.Running.StartedAt)
		}
		if s.State.Terminated != nil {
			later(s.State.Terminated.FinishedAt)
		}
	}
	if since.IsZero() && pod.Status.StartTime != nil {
		later(*pod.Status.StartTime)
	}
	return since
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// lastSeen is the newest time that the event names.
func lastSeen(e corev1.Event) time.Time {
	times := []time.Time{e.CreationTimestamp.Time, e.FirstTimestamp.Time, e.LastTimestamp.Time, e.EventTime.Time}
	if e.Series != nil {
		times = append(times, e.Series.LastObservedTime.Time)
	}
	return slices.MaxFunc(times, time.Time.Compare)
}

// known is the time, or zero for the epoch, which the kubelet writes where it does not know.
func known(t metav1.Time) time.Time {
	if t.IsZero() || t.Unix() == 0 {
		return time.Time{}
	}
	return t.Time
}

// minSecret is the length from which on a value of the pod is looked for in a message. A shorter one
// would be found in any text.
const minSecret = 8

// Scrub takes the values of env and the arguments of all containers, their probes and hooks out of a message: a runtime that
// cannot start a container quotes them, and so may a program that reports its own end.
func Scrub(message string, spec corev1.PodSpec) string {
	var values []string
	add := func(value string) {
		if len(value) >= minSecret {
			values = append(values, value)
		}
	}
	arguments := func(all []string) {
		for _, a := range all {
			add(a)
			if _, value, found := strings.Cut(a, "="); found { // --password=…
				add(value)
			}
		}
	}
	asked := func(exec *corev1.ExecAction, get *corev1.HTTPGetAction) {
		if exec != nil {
			arguments(exec.Command)
		}
		if get != nil {
			add(get.Path)
			for _, h := range get.HTTPHeaders {
				add(h.Value)
			}
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, e := range c.Env {
			add(e.Value)
		}
		arguments(slices.Concat(c.Command, c.Args))
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if p != nil {
				asked(p.Exec, p.HTTPGet)
			}
		}
		if l := c.Lifecycle; l != nil {
			for _, h := range []*corev1.LifecycleHandler{l.PostStart, l.PreStop} {
				if h != nil {
					asked(h.Exec, h.HTTPGet)
				}
			}
		}
	}
	// The longest first: one value may be part of another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		message = strings.ReplaceAll(message, value, "[...]")
	}
	return message
}
