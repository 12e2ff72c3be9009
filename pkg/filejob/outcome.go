package filejob

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/launch"
)

// State is what a Job and its pod tell of an operation.
type State struct {
	// Job is the answer as far as it is known. Its state is the last one only if Ended and not WantsLog.
	Job api.FileJob
	// Pod is the Job's pod, the last if it had several; nil where there is none.
	Pod *corev1.Pod
	// Ended is true when nothing will change what became of the operation.
	Ended bool
	// Result is what the termination message says; nil where there is none.
	Result *api.FileResult
	// Failure is why an operation that has ended left no result in its pod's status.
	Failure *api.Error

	mutates  bool
	deadline time.Time // zero where there is none yet
}

// Mutates tells whether the operation could change the claim.
func (s *State) Mutates() bool { return s.mutates }

// WantsLog tells whether the pod's log has more of the result than its status.
func (s *State) WantsLog() bool {
	return s.Ended && s.Pod != nil && agentEnd(s.Pod) != nil && (s.Result == nil || s.Result.Partial != nil)
}

// Of reads a file job's Job, and the pods that have its id. What the agent has printed outranks what the Job
// says: a deadline may pass when all is done.
func Of(object *unstructured.Unstructured, pods []corev1.Pod) (*State, error) {
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job); err != nil {
		return nil, fmt.Errorf("read Job %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	s := &State{Pod: podOf(job, pods), mutates: changes(job.Spec.Template.Spec), Job: api.FileJob{
		SubmissionID: job.Annotations[launch.AnnotationSubmissionID],
		ID:           job.Labels[launch.LabelID],
		Namespace:    job.Namespace,
		Claim:        job.Annotations[AnnotationClaim],
		Op:           api.Op(job.Labels[LabelOp]),
		Job:          job.Name,
		UID:          string(job.UID),
		State:        api.StatePending,
		CreatedAt:    stamp(job.CreationTimestamp.Time),
		Consistency:  job.Annotations[AnnotationConsistency],
	}}
	if launch.Held(object) {
		s.Job.State = api.StateHeld
	}
	if start, limit := job.Status.StartTime, job.Spec.ActiveDeadlineSeconds; start != nil && limit != nil {
		s.deadline = start.Add(time.Duration(*limit) * time.Second)
	}
	if s.Pod != nil {
		s.ofPod()
	}
	if s.Result != nil {
		return s, nil
	}
	outcome, ended := completion.Recorded(object)
	if !ended {
		outcome, ended = completion.OfJob(job, pods, completion.Bounds{}, time.Time{})
	}
	if ended {
		s.Ended = true
		s.fail(outcome, api.ResultMissing)
		s.Job.FinishedAt = cmp.Or(s.Job.FinishedAt, stamp(outcome.FinishedAt))
	}
	return s, nil
}

// podOf is the Job's own pod: the one whose agent has ended, else the newest.
func podOf(job *batchv1.Job, pods []corev1.Pod) *corev1.Pod {
	var found *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		owner := metav1.GetControllerOf(pod)
		switch {
		case owner == nil || owner.UID != job.UID:
		case found == nil, agentEnd(found) == nil && (agentEnd(pod) != nil || found.CreationTimestamp.Before(&pod.CreationTimestamp)):
			found = pod
		}
	}
	return found
}

// agentOf is the state of the agent's container.
func agentOf(pod *corev1.Pod) corev1.ContainerState {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == Container {
			return status.State
		}
	}
	return corev1.ContainerState{}
}

func agentEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated { return agentOf(pod).Terminated }

// PodEnded tells whether nothing on the claim is changed by the pod any more: its agent has ended, or never will begin.
func PodEnded(pod *corev1.Pod) bool {
	return agentEnd(pod) != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// ofPod reads what the pod tells.
func (s *State) ofPod() {
	pod := s.Pod
	if running := agentOf(pod).Running; running != nil {
		s.Job.State, s.Job.StartedAt = api.StateRunning, stamp(running.StartedAt.Time)
	}
	if !PodEnded(pod) {
		return
	}
	s.Ended = true
	end := agentEnd(pod)
	if end != nil {
		s.Job.StartedAt, s.Job.FinishedAt = stamp(end.StartedAt.Time), stamp(end.FinishedAt.Time)
		if result, _ := protocol.Brief(end.Message, string(pod.UID)); result != nil {
			s.Result = result
			s.Conclude(result)
			return
		}
	}
	outcome, ended := completion.OfPod(pod, completion.Bounds{}, time.Time{})
	if !ended { // a container that the kubelet would start again: not as we made the pod
		outcome = completion.Outcome{Reason: api.ReasonUnknown, Message: "the agent has ended, and its pod has not"}
	}
	if end == nil { // it never ran
		s.fail(outcome, api.PodRejected)
		return
	}
	s.fail(outcome, api.ResultMissing)
}

// Conclude puts the whole result into the answer.
func (s *State) Conclude(result *api.FileResult) {
	s.Job.Result, s.Job.State = result, api.StateSucceeded
	s.Job.Code, s.Job.Message = result.Code, ""
	s.Failure = nil
	switch {
	case result.Code == "":
	case result.Code == api.Cancelled && s.outOfTime():
		e := api.Errorf(api.Deadline, "the operation did not end within its time-out: %s", result.Message)
		e.Details = result
		s.Fail(e)
	default:
		s.Job.State, s.Job.Message = api.StateFailed, result.Message
	}
}

// outOfTime tells whether the agent was ended by the Job's deadline: the Job controller deletes the pod then, and the
// agent knows no more than that it is to end. Kubernetes counts seconds.
func (s *State) outOfTime() bool {
	end := agentEnd(s.Pod)
	return end != nil && !s.deadline.IsZero() && !end.FinishedAt.Add(time.Second).Before(s.deadline)
}

// Fail puts into the answer why there is no result, or none that can be trusted.
func (s *State) Fail(e *api.Error) {
	s.Failure = e
	s.Job.State, s.Job.Code, s.Job.Message = api.StateFailed, e.Code, e.Message
}

// codes are what the reasons of an end without a result are told as.
var codes = map[api.Reason]api.Code{
	api.ReasonOOMKilled:        api.OOMKilled,
	api.ReasonEvicted:          api.Evicted,
	api.ReasonNodeLost:         api.Evicted,
	api.ReasonDeadlineExceeded: api.Deadline,
	api.ReasonImagePull:        api.ImagePull,
	api.ReasonUnschedulable:    api.Unschedulable,
	api.ReasonDeleted:          api.Cancelled,
}

// fail tells an end without a result; what its reason does not tell has the code rest. The first thing that was told of it
// stays, unless the Job knows better.
func (s *State) fail(o completion.Outcome, rest api.Code) {
	code, known := codes[o.Reason]
	if !known {
		code = rest
	}
	if s.Failure != nil && (!known || s.Failure.Code != api.ResultMissing) && code != api.Deadline {
		return
	}
	message := "the operation left no result"
	if o.Message != "" {
		message += ": " + o.Message
	}
	if s.mutates && code != api.PodRejected {
		message += "; whether it changed something is not known"
	}
	s.Fail(api.Errorf(code, "%s", message))
}

// changes tells whether the pod could have written to the claim.
func changes(spec corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly
	})
}

// Error is what whoever waited for the operation is told in place of the answer, or nil where it succeeded. A coded
// result is in the details.
func (s *State) Error() *api.Error {
	switch result := s.Job.Result; {
	case s.Failure != nil:
		return s.Failure
	case result != nil && result.Code != "":
		return &api.Error{Code: result.Code, Message: cmp.Or(result.Message, "the operation was refused"), Details: result}
	}
	return nil
}

// tooManyRequests is the HTTP status of a pod that exceeds a quota: unlike a workload that does, which is refused for good, it
// may be asked for again when others have ended.
const tooManyRequests = 429

// NotCreated reads from the events about a Job why it gets no pod, or nil. A refusal that time may lift by itself, such as
// that of a webhook that does not answer, is none.
func NotCreated(events []corev1.Event) *api.Error {
	var last *corev1.Event
	for i := range events {
		if e := &events[i]; e.Reason == "FailedCreate" && (last == nil || last.LastTimestamp.Before(&e.LastTimestamp)) {
			last = e
		}
	}
	if last == nil {
		return nil
	}
	// The Job controller passes on the API server's words, and nothing else tells them apart.
	text := strings.TrimPrefix(last.Message, "Error creating: ")
	switch {
	case strings.Contains(text, "exceeded quota"):
		e := api.Errorf(api.QuotaExceeded, "the operation's pod exceeds a quota: %s", text)
		e.HTTPStatus, e.RetryAfter = tooManyRequests, 10*time.Second
		return e
	case strings.Contains(text, "forbidden"), strings.Contains(text, "denied the request"), strings.Contains(text, "is invalid"):
		return api.Errorf(api.PodForbidden, "the operation's pod is refused: %s", text)
	}
	return nil
}

// NodeOf is the node that the Job's pod must run on, or empty.
func NodeOf(spec *corev1.PodSpec) string {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// stamp is the time as answers have it, or empty where nobody knows it.
func stamp(t time.Time) string {
	if known := completion.Time(t); known != nil && known.Unix() != 0 {
		return known.Format(time.RFC3339)
	}
	return ""
}
