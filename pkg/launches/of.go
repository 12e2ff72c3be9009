package launches

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/launch"
)

// Of is the launch whose workload, read whole, this is. pods are a Job's own, as far as they are left.
//
// It has ended when its state says so, or when an outcome was recorded on it, which then holds. A bound of the
// poller that has passed is no end until the poller has recorded it.
//
// Before its end it is held; or running, once its own container has started, between two attempts included; or else
// pending. Of a Job its own status tells: the Job controller counts pods that are ready, that failed and that are done.
func Of(workload *unstructured.Unstructured, pods []corev1.Pod) (api.Launch, error) {
	subject := completion.SubjectOf(workload)
	l := api.Launch{
		ID: subject.LaunchID, Namespace: subject.Ref.Namespace, Kind: string(subject.Kind), SubmissionID: subject.SubmissionID,
		Name: subject.Ref.Name, UID: string(subject.UID), SparkAppID: subject.SparkAppID,
		Deleting: workload.GetDeletionTimestamp() != nil,
	}
	if created := completion.Time(workload.GetCreationTimestamp().Time); created != nil {
		l.CreatedAt = *created
	}
	outcome, ended, started, err := read(workload, pods)
	if err != nil {
		return api.Launch{}, err
	}
	if recorded, found := completion.Recorded(workload); found {
		outcome, ended = recorded, true
	}
	switch {
	case ended:
		l.State = api.StateFailed
		if outcome.Outcome == api.Succeeded {
			l.State = api.StateSucceeded
		}
		l.Outcome, l.Reason, l.ExitCode, l.Message, l.Result = outcome.Outcome, outcome.Reason, outcome.ExitCode, outcome.Message, outcome.Result
		l.StartedAt, l.FinishedAt = completion.Time(outcome.StartedAt), completion.Time(outcome.FinishedAt)
	case launch.Held(workload):
		l.State = api.StateHeld
	case started:
		l.State = api.StateRunning
	default:
		l.State = api.StatePending
	}
	return l, nil
}

// read tells how the workload ended, if it has, and whether its container has ever started.
func read(workload *unstructured.Unstructured, pods []corev1.Pod) (outcome completion.Outcome, ended, started bool, err error) {
	if workload.GetKind() == "Pod" {
		pod := &corev1.Pod{}
		if err := typed(workload, pod); err != nil {
			return completion.Outcome{}, false, false, err
		}
		outcome, ended = completion.OfPod(pod, completion.Bounds{}, time.Time{})
		return outcome, ended, hasStarted(pod), nil
	}
	job := &batchv1.Job{}
	if err := typed(workload, job); err != nil {
		return completion.Outcome{}, false, false, err
	}
	outcome, ended = completion.OfJob(job, pods, completion.Bounds{}, time.Time{})
	return outcome, ended, jobHasStarted(&job.Status), nil
}

func typed(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// hasStarted tells whether the pod's own container runs or ever ran, so that it may have a log.
func hasStarted(pod *corev1.Pod) bool {
	name := completion.Container(pod)
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == name && (s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil)
	})
}

func jobHasStarted(s *batchv1.JobStatus) bool {
	if s.Ready != nil && *s.Ready > 0 || s.Terminating != nil && *s.Terminating > 0 || s.Succeeded > 0 || s.Failed > 0 {
		return true
	}
	if u := s.UncountedTerminatedPods; u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		return true
	}
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobSuccessCriteriaMet || c.Type == batchv1.JobFailureTarget)
	})
}

// newest is the Job's pod that was created last, or nil. It has the Job's kind, by which its own container is found.
func newest(job *unstructured.Unstructured, pods []corev1.Pod) *corev1.Pod {
	var last *corev1.Pod
	for i := range pods {
		owner := metav1.GetControllerOf(&pods[i])
		if owner == nil || owner.UID != job.GetUID() {
			continue
		}
		if last == nil || last.CreationTimestamp.Before(&pods[i].CreationTimestamp) {
			last = &pods[i]
		}
	}
	if last == nil {
		return nil
	}
	last = last.DeepCopy()
	last.Labels = map[string]string{launch.LabelKind: job.GetLabels()[launch.LabelKind]}
	return last
}
