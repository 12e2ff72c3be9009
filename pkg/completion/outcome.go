package completion

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/startup"
)

// MaxMessage is how many bytes of a message an event has at most.
const MaxMessage = 1024

// Bounds are how long a workload may be in a state that is no end of its own. Zero means for ever.
type Bounds struct {
	// ImagePull is for a container that waits for an image that does not come, from the moment that
	// nothing but the image held it up.
	ImagePull time.Duration
	// ConfigError is for a container that cannot be created as the pod has it (a ConfigMap, a Secret or a key in one
	// is not there, a mount is not possible), from the moment that the pod had a node and its earlier init containers
	// were done: the time that its image took counts.
	ConfigError time.Duration
	// Unschedulable is for a pod that no node takes, from the moment that its PodScheduled condition became
	// false. The API server does not note when a gate went: time at the gates of a queue counts.
	Unschedulable time.Duration
	// NodeLost is for a pod whose node does not answer, in the phase Unknown or past its deletion time.
	NodeLost time.Duration
}

// Outcome is how a workload ended.
type Outcome struct {
	Outcome string // api.Succeeded or api.Failed
	Reason  api.Reason
	// ExitCode is that of the workload's own container, where it had one.
	ExitCode *int32
	// Message is for people: at most MaxMessage bytes, without values of the pod's env and args.
	Message string
	// StartedAt and FinishedAt are zero where nobody knows.
	StartedAt, FinishedAt time.Time
	// Result is what a file job answered: a JSON object, or nil.
	Result json.RawMessage
	// GivenUp is true when a bound has ended it and not its own state: it may still change its mind.
	GivenUp bool
}

// Container names the container whose end is the pod's end. Where it stands in the list tells nothing: Flint
// puts it last, and admission webhooks put sidecars before and after. It is, in this order,
//
//   - the one that the annotation flint.dev/container names;
//   - of a Spark driver, the one with the arguments of DriverCommandFeatureStep, "driver" and
//     "--properties-file", whatever the template calls it (spark.kubernetes.driver.podTemplateContainerName);
//   - of a Spark driver, the one named spark-kubernetes-driver, if that step was excluded;
//   - the last.
func Container(pod *corev1.Pod) string {
	containers := pod.Spec.Containers
	find := func(is func(corev1.Container) bool) string {
		for _, c := range slices.Backward(containers) {
			if is(c) {
				return c.Name
			}
		}
		return ""
	}
	named := find(func(c corev1.Container) bool { return c.Name == pod.Annotations[launch.AnnotationContainer] })
	if named == "" && pod.Labels[launch.LabelKind] == string(launch.Spark) {
		named = cmp.Or(
			find(func(c corev1.Container) bool {
				return slices.Contains(c.Args, "driver") && slices.Contains(c.Args, "--properties-file")
			}),
			find(func(c corev1.Container) bool { return c.Name == "spark-kubernetes-driver" }),
		)
	}
	return cmp.Or(named, find(func(corev1.Container) bool { return true }))
}

// OfPod tells how the pod ended, or that it has not. The rules, first to last:
//
//   - The agent of a file job tells how its operation ended, whatever its exit code.
//   - The end of the workload's own container decides, not the pod's phase: a sidecar that outlives it keeps the
//     pod Running, and one that fails makes the pod Failed. Exit code 0 is success, and nothing else. A container
//     that the kubelet will start again has not ended.
//   - A signal, or an end not before one of these, is put down to what the pod says of itself: evicted,
//     preempted, past its deadline, node gone, deleted. Memory counts first.
//   - A pod in the phase Succeeded or Failed without that container's end, evicted or rejected by its node,
//     is judged by phase, reason, DisruptionTarget condition and init containers.
//   - A pod that is deleted and never had a node will not run. One whose deletion waits for finalizers alone would be
//     gone: what its status does not tell by then, nobody will.
//   - All else is no end, but for the bounds.
func OfPod(pod *corev1.Pod, bounds Bounds, now time.Time) (Outcome, bool) {
	o, ended := ofPod(pod, bounds, now)
	o.Message = brief(startup.Scrub(o.Message, pod.Spec))
	return o, ended
}

func ofPod(pod *corev1.Pod, bounds Bounds, now time.Time) (Outcome, bool) {
	name := Container(pod)
	terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	status := statusOf(pod.Status.ContainerStatuses, name)
	if end := status.State.Terminated; end != nil && (terminal || endsForGood(pod, name, end)) {
		return ofContainer(pod, name, end), true
	}
	switch {
	case terminal:
		return ofPhase(pod), true
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName == "":
		return Outcome{
			Outcome: api.Failed, Reason: api.ReasonDeleted, FinishedAt: pod.DeletionTimestamp.UTC(),
			Message: "deleted before a node took it",
		}, true
	case lingers(pod):
		why, _ := cause(pod)
		return Outcome{
			Outcome: api.Failed, Reason: why.reason, StartedAt: startedAt(status), FinishedAt: pod.DeletionTimestamp.UTC(),
			Message: cmp.Or(why.message, "deleted, and its end was not told"),
		}, true
	}
	started := status.State.Running != nil
	reason, since, bound, message := stuck(pod, bounds, started)
	if reason == "" || bound <= 0 || since.IsZero() || now.Before(since.Add(bound)) {
		return Outcome{}, false
	}
	return Outcome{
		Outcome: api.Failed, Reason: reason, Message: message, GivenUp: true,
		StartedAt: startedAt(status), FinishedAt: since.Add(bound).UTC(),
	}, true
}

// lingers tells whether nothing but finalizers keeps the deleted pod: its node, or who deleted it by force, has left it
// no more time (k8s.io/kubernetes/pkg/registry/core/pod/strategy.go, CheckGracefulDelete).
func lingers(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && grace != nil && *grace == 0
}

// startedAt is when the container that runs was started, or zero.
func startedAt(status corev1.ContainerStatus) time.Time {
	if running := status.State.Running; running != nil {
		return known(running.StartedAt)
	}
	return time.Time{}
}

func statusOf(statuses []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, s := range statuses {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// endsForGood tells whether the kubelet leaves the ended container alone. Where the container has
// rules of its own for that, only the phase tells.
func endsForGood(pod *corev1.Pod, name string, end *corev1.ContainerStateTerminated) bool {
	policy := pod.Spec.RestartPolicy
	for _, c := range pod.Spec.Containers {
		if c.Name != name {
			continue
		}
		if len(c.RestartPolicyRules) > 0 {
			return false
		}
		if c.RestartPolicy != nil {
			policy = corev1.RestartPolicy(*c.RestartPolicy)
		}
	}
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure && end.ExitCode == 0
}

// statusUnknown is the kubelet's reason, with a made-up exit code 137, for a container that it did not find
// again (k8s.io/kubernetes/pkg/kubelet/container.ContainerReasonStatusUnknown).
const statusUnknown = "ContainerStatusUnknown"

func ofContainer(pod *corev1.Pod, name string, end *corev1.ContainerStateTerminated) Outcome {
	o := Outcome{
		Outcome:   api.Failed,
		StartedAt: known(end.StartedAt), FinishedAt: known(end.FinishedAt),
		ExitCode: &end.ExitCode,
		Message:  end.Message,
	}
	if o.FinishedAt.IsZero() {
		o.FinishedAt = lastChange(pod)
	}
	if pod.Labels[launch.LabelKind] == string(launch.Runner) {
		o.Message = "" // it may quote a value of the runner's Secret, which nobody here knows
	}
	told := toldBy(pod, name)
	if told != nil {
		o.Result, o.Message = marshal(told), told.Message
	}
	why, blame := causeOf(pod, end)
	switch {
	case final(told) && told.Code != "":
		o.Reason = api.ReasonError
	case final(told), told == nil && end.ExitCode == 0 && end.Signal == 0:
		o.Outcome, o.Reason = api.Succeeded, api.ReasonCompleted
		return o
	case end.Reason == "OOMKilled":
		o.Reason = api.ReasonOOMKilled
	case blame:
		o.Reason = why.reason
		o.Message = cmp.Or(why.message, o.Message)
	case end.Reason == statusUnknown:
		o.Reason = api.ReasonUnknown
	default:
		o.Reason = api.ReasonError
	}
	if end.Reason == statusUnknown {
		o.ExitCode = nil
	}
	if o.Message == "" {
		o.Message = fmt.Sprintf("container %s ended with exit code %d (%s)", name, end.ExitCode, cmp.Or(end.Reason, "no reason given"))
	}
	return o
}

// ofPhase judges a pod in a last phase whose own container tells nothing.
func ofPhase(pod *corev1.Pod) Outcome {
	o := Outcome{Outcome: api.Failed, Reason: api.ReasonUnknown, FinishedAt: lastChange(pod), Message: pod.Status.Message}
	if pod.Status.StartTime != nil {
		o.StartedAt = pod.Status.StartTime.UTC()
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		o.Outcome, o.Reason = api.Succeeded, api.ReasonCompleted
		return o
	}
	why, found := cause(pod)
	init, end := failedInit(pod)
	switch {
	case found && why.reason != api.ReasonDeleted:
		o.Reason, o.Message = why.reason, cmp.Or(why.message, o.Message)
	case end != nil:
		o.Reason = api.ReasonError
		if end.Reason == "OOMKilled" {
			o.Reason = api.ReasonOOMKilled
		}
		o.Message = strings.TrimSpace(fmt.Sprintf("init container %s ended with exit code %d (%s) %s", init, end.ExitCode, cmp.Or(end.Reason, "no reason given"), end.Message))
	case found:
		o.Reason, o.Message = why.reason, cmp.Or(why.message, o.Message)
	case pod.Status.Reason != "":
		o.Reason = api.ReasonError
		o.Message = strings.TrimSpace(pod.Status.Reason + ": " + pod.Status.Message)
	}
	if o.Message == "" {
		o.Message = "the pod failed and says nothing more"
	}
	return o
}

// failedInit is the init container that failed. One that is restarted, a sidecar, fails nothing.
func failedInit(pod *corev1.Pod) (string, *corev1.ContainerStateTerminated) {
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			continue
		}
		if end := statusOf(pod.Status.InitContainerStatuses, c.Name).State.Terminated; end != nil && end.ExitCode != 0 {
			return c.Name, end
		}
	}
	return "", nil
}

// blow is what ended a pod from outside.
type blow struct {
	reason  api.Reason
	message string
	at      time.Time // zero where the pod does not tell
	// moved is true when at may be later than the blow: the kubelet's last word on a pod that was deleted is another deletion, with
	// no grace, and moves its time.
	moved bool
}

// podReasons are the reasons in a pod's status that tell why it was ended or never begun: the kubelet's (pkg/kubelet
// in k8s.io/kubernetes: eviction, preemption, nodeshutdown, lifecycle/predicate.go, kubelet.go) and the node controller's.
var podReasons = map[string]api.Reason{
	"Evicted":                            api.ReasonEvicted,
	"Preempting":                         api.ReasonEvicted,
	"Terminated":                         api.ReasonEvicted, // the node shuts down
	"NodeShutdown":                       api.ReasonEvicted,
	"Shutdown":                           api.ReasonEvicted,
	"DeadlineExceeded":                   api.ReasonDeadlineExceeded,
	"NodeLost":                           api.ReasonNodeLost,
	"NodeAffinity":                       api.ReasonUnschedulable,
	"NodeName":                           api.ReasonUnschedulable,
	"NodePorts":                          api.ReasonUnschedulable,
	"NodeUnschedulable":                  api.ReasonUnschedulable,
	"TaintToleration":                    api.ReasonUnschedulable,
	"TopologyAffinityError":              api.ReasonUnschedulable,
	"PodOSNotSupported":                  api.ReasonUnschedulable,
	"PodOSSelectorNodeLabelDoesNotMatch": api.ReasonUnschedulable,
}

// cause is what ended the pod from outside, if it says so.
func cause(pod *corev1.Pod) (blow, bool) {
	if c := condition(pod, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		b := blow{reason: api.ReasonEvicted, message: c.Message, at: c.LastTransitionTime.UTC()}
		if c.Reason == "DeletionByPodGC" { // its node is gone
			b.reason = api.ReasonNodeLost
		}
		if pod.Status.Reason != "" && pod.Status.Message != "" {
			b.message = pod.Status.Message // the kubelet's own account
		}
		return b, true
	}
	reason, found := podReasons[pod.Status.Reason]
	if strings.HasPrefix(pod.Status.Reason, "OutOf") { // OutOfcpu, OutOfpods and so on
		reason, found = api.ReasonUnschedulable, true
	}
	if found {
		b := blow{reason: reason, message: pod.Status.Message}
		if limit := pod.Spec.ActiveDeadlineSeconds; reason == api.ReasonDeadlineExceeded && limit != nil && pod.Status.StartTime != nil {
			b.at = pod.Status.StartTime.Add(time.Duration(*limit) * time.Second).UTC()
		}
		return b, true
	}
	if at := pod.DeletionTimestamp; at != nil {
		b := blow{reason: api.ReasonDeleted, message: "deleted before its end", at: at.UTC()}
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			b.at = b.at.Add(-time.Duration(*grace) * time.Second)
			b.moved = *grace == 0
		}
		return b, true
	}
	return blow{}, false
}

// causeOf is cause, if the container's end is put down to it: it ended not before the blow, to the second in
// which Kubernetes counts; where the pod does not tell when that was, a signal ended it.
func causeOf(pod *corev1.Pod, end *corev1.ContainerStateTerminated) (blow, bool) {
	why, found := cause(pod)
	finished := known(end.FinishedAt)
	switch {
	case !found:
		return blow{}, false
	case end.Reason == statusUnknown || finished.IsZero():
		return why, true
	case (why.at.IsZero() || why.moved) && (end.Signal != 0 || end.ExitCode == 128+9 || end.ExitCode == 128+15):
		return why, true
	}
	return why, !why.at.IsZero() && !finished.Before(why.at.Add(-time.Second))
}

// stuck tells in which bounded state a pod that has not ended is, and since when.
func stuck(pod *corev1.Pod, bounds Bounds, started bool) (reason api.Reason, since time.Time, bound time.Duration, message string) {
	ready, scheduled := condition(pod, corev1.PodReady), condition(pod, corev1.PodScheduled)
	switch {
	case pod.DeletionTimestamp != nil:
		return api.ReasonNodeLost, pod.DeletionTimestamp.UTC(), bounds.NodeLost, "deleted, and its node has not ended it"
	case pod.Status.Phase == corev1.PodUnknown || pod.Status.Reason == "NodeLost":
		since = lastChange(pod)
		if ready != nil {
			since = known(ready.LastTransitionTime)
		}
		return api.ReasonNodeLost, since, bounds.NodeLost, cmp.Or(pod.Status.Message, "its node does not answer")
	case started:
		return "", time.Time{}, 0, ""
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse && scheduled.Reason == corev1.PodReasonUnschedulable:
		return api.ReasonUnschedulable, known(scheduled.LastTransitionTime), bounds.Unschedulable, scheduled.Message
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch waits := s.State.Waiting; {
		case waits == nil:
		case imageReasons[waits.Reason]:
			return api.ReasonImagePull, heldUpSince(pod), bounds.ImagePull, fmt.Sprintf("container %s waits for image %s: %s: %s", s.Name, s.Image, waits.Reason, waits.Message)
		case configReasons[waits.Reason]:
			return api.ReasonError, heldUpSince(pod), bounds.ConfigError, fmt.Sprintf("container %s cannot be created: %s: %s", s.Name, waits.Reason, waits.Message)
		}
	}
	return "", time.Time{}, 0, ""
}

// imageReasons are the kubelet's for a container that waits for its image (k8s.io/kubernetes/pkg/kubelet/images/types.go).
var imageReasons = map[string]bool{
	"ImagePullBackOff": true, "ErrImagePull": true, "ErrImageNeverPull": true, "InvalidImageName": true, "ImageInspectError": true,
	"RegistryUnavailable": true, "SignatureValidationFailed": true, "ErrImageVolumePull": true,
}

// configReasons are the kubelet's for a container that it cannot create and tries again and again
// (k8s.io/kubernetes/pkg/kubelet/kuberuntime/kuberuntime_container.go). A volume of what is not there has none: the
// container is ContainerCreating then, like one that is slow.
var configReasons = map[string]bool{"CreateContainerConfigError": true, "CreateContainerError": true}

// heldUpSince is when nothing but a container held the pod up: it had a node, and its earlier init containers were done.
func heldUpSince(pod *corev1.Pod) time.Time {
	var since time.Time
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized} {
		if c := condition(pod, kind); c != nil && c.Status == corev1.ConditionTrue {
			since = later(since, c.LastTransitionTime)
		}
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if end := s.State.Terminated; end != nil {
			since = later(since, end.FinishedAt)
		}
	}
	if since.IsZero() && pod.Status.StartTime != nil {
		since = pod.Status.StartTime.UTC()
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

// lastChange is the last time that the pod's status names: the best guess of its end where nothing tells it.
func lastChange(pod *corev1.Pod) time.Time {
	var last time.Time
	for _, c := range pod.Status.Conditions {
		last = later(last, c.LastTransitionTime)
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if end := s.State.Terminated; end != nil {
			last = later(last, end.FinishedAt)
		}
	}
	if last.IsZero() && pod.Status.StartTime != nil {
		last = pod.Status.StartTime.UTC()
	}
	return last
}

func later(a time.Time, b metav1.Time) time.Time {
	if t := known(b); t.After(a) {
		return t
	}
	return a
}

// known is the time, or zero for the epoch, which the kubelet writes where it does not know.
func known(t metav1.Time) time.Time {
	if t.IsZero() || t.Unix() == 0 {
		return time.Time{}
	}
	return t.UTC()
}

// OfJob tells how the Job ended, or that it has not. pods are the Job's own, as far as they are left. The rules,
// first to last:
//
//   - What a file job's agent has told of its operation: a deadline may pass when all is done.
//   - The condition Failed wins: over Complete, over counts of succeeded pods, and over what its pods say, which
//     then tell why, unless the Job does (DeadlineExceeded), or was deleted before: its pods failed by that.
//   - The condition Complete is success, but for a file job whose agent's word is gone: its exit code says no more than that it has
//     told something, which may be a refusal. SuccessCriteriaMet, FailureTarget and counts are no end: the Job
//     controller sets the conditions last, when the pods are gone. Conditions whose status is not True say nothing.
//   - A Job that is deleted without either will never have one.
//   - All else is no end, but for the bounds of image and scheduling of its newest pod. A node that was lost is for
//     the Job controller, which counts the pod as failed.
func OfJob(job *batchv1.Job, pods []corev1.Pod, bounds Bounds, now time.Time) (Outcome, bool) {
	var own []*corev1.Pod
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner != nil && owner.UID == job.UID {
			pod := pods[i].DeepCopy()
			pod.Labels = map[string]string{launch.LabelKind: job.Labels[launch.LabelKind]}
			own = append(own, pod)
		}
	}
	slices.SortStableFunc(own, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })

	failed, complete := jobCondition(job, batchv1.JobFailed), jobCondition(job, batchv1.JobComplete)
	o, ended := Outcome{}, true
	switch {
	case failed != nil:
		o = lastOf(own, api.Failed)
		switch {
		case job.DeletionTimestamp != nil && !failed.LastTransitionTime.Before(job.DeletionTimestamp): // its pods were deleted with it
			o.Reason, o.Message = api.ReasonDeleted, "deleted before its end"
		case failed.Reason == batchv1.JobReasonDeadlineExceeded:
			o.Reason, o.Message = api.ReasonDeadlineExceeded, failed.Message
		case o.Outcome == "":
			o.Reason, o.Message = api.ReasonError, strings.TrimSpace(failed.Reason+": "+failed.Message)
		}
		o.Outcome = api.Failed
		o.FinishedAt = latest(o.FinishedAt, known(failed.LastTransitionTime))
	case complete != nil:
		o = lastOf(own, api.Succeeded)
		o.Outcome, o.Reason = api.Succeeded, api.ReasonCompleted
		if job.Status.CompletionTime != nil {
			o.FinishedAt = job.Status.CompletionTime.UTC()
		} else {
			o.FinishedAt = latest(o.FinishedAt, known(complete.LastTransitionTime))
		}
		if job.Labels[launch.LabelKind] == string(launch.File) && o.Result == nil {
			o = untold(own, o)
		}
	case job.DeletionTimestamp != nil:
		o = Outcome{Outcome: api.Failed, Reason: api.ReasonDeleted, Message: "deleted before its end", FinishedAt: job.DeletionTimestamp.UTC()}
	default:
		if len(own) > 0 && own[0].DeletionTimestamp == nil {
			bounds.NodeLost = 0
			o, ended = OfPod(own[0], bounds, now)
			ended = ended && o.GivenUp
		} else {
			ended = false
		}
	}
	if !ended {
		return Outcome{}, false
	}
	if i := slices.IndexFunc(own, func(pod *corev1.Pod) bool { return final(toldBy(pod, Container(pod))) }); i >= 0 {
		finished := o.FinishedAt
		o, _ = OfPod(own[i], Bounds{}, time.Time{})
		o.FinishedAt = latest(o.FinishedAt, finished)
	}
	if o.StartedAt.IsZero() && job.Status.StartTime != nil {
		o.StartedAt = job.Status.StartTime.UTC()
	}
	o.Message = brief(startup.Scrub(o.Message, job.Spec.Template.Spec))
	return o, true
}

// untold is the outcome of a file job that is complete, and whose result nobody has.
func untold(pods []*corev1.Pod, complete Outcome) Outcome {
	o := lastOf(pods, api.Failed) // of an agent that was made to stop
	if o.Outcome == "" {
		o = complete
		o.Outcome, o.Reason, o.Message = api.Failed, api.ReasonUnknown, "its agent has ended, and what it told of the operation is gone"
	}
	o.FinishedAt = complete.FinishedAt
	return o
}

// lastOf is the outcome of the newest pod that ended so, or no outcome.
func lastOf(pods []*corev1.Pod, outcome string) Outcome {
	for _, pod := range pods {
		if o, ended := OfPod(pod, Bounds{}, time.Time{}); ended && o.Outcome == outcome {
			return o
		}
	}
	return Outcome{}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func jobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// toldBy is what the agent of a file job has told of its operation in the termination message, or nil.
func toldBy(pod *corev1.Pod, container string) *api.FileResult {
	end := statusOf(pod.Status.ContainerStatuses, container).State.Terminated
	if end == nil || pod.Labels[launch.LabelKind] != string(launch.File) {
		return nil
	}
	result, _ := protocol.Brief(end.Message, string(pod.UID))
	return result
}

// final tells whether what was told decides how the operation ended. CANCELLED only says that the agent was made to stop: why
// it was, others tell.
func final(told *api.FileResult) bool { return told != nil && told.Code != api.Cancelled }

func marshal(result *api.FileResult) json.RawMessage {
	text, err := json.Marshal(result)
	if err != nil { // it was read from JSON
		panic(err)
	}
	return text
}

// brief cuts the text to MaxMessage bytes of valid UTF-8.
func brief(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= MaxMessage {
		return text
	}
	const more = "..."
	cut := MaxMessage - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
