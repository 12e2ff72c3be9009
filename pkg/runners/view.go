package runners

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/launch"
)

// stages are the states in which a runner may be waited for, from the least to the most.
var stages = map[string]int{api.WaitIP: 1, api.WaitRunning: 2, api.WaitReady: 3}

// stage is how far the pod has come: 0 to 3, as in stages. It never goes back from running, whatever became of it since.
func stage(pod *corev1.Pod) int {
	container := statusOf(pod)
	switch {
	case container.State.Running != nil && container.Ready:
		return 3
	case container.State.Running != nil || container.State.Terminated != nil || container.LastTerminationState.Terminated != nil:
		return 2
	case pod.Status.PodIP != "":
		return 1
	}
	return 0
}

// statusOf is that of the container that the runner is for.
func statusOf(pod *corev1.Pod) corev1.ContainerStatus {
	name := completion.Container(pod)
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// state is where the runner stands.
func state(pod *corev1.Pod, now time.Time) api.RunnerState {
	if o, ended := completion.OfPod(pod, completion.Bounds{}, now); ended {
		if o.Outcome == api.Succeeded {
			return api.RunnerSucceeded
		}
		return api.RunnerFailed
	}
	switch {
	case pod.DeletionTimestamp != nil:
		return api.RunnerTerminating
	case isHeld(pod):
		return api.RunnerCreating
	}
	switch stage(pod) {
	case 3:
		return api.RunnerReady
	case 2:
		return api.RunnerRunning
	case 1:
		return api.RunnerStarting
	}
	if pod.Spec.NodeName != "" {
		return api.RunnerScheduled
	}
	return api.RunnerPending
}

func isHeld(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.SchedulingGates {
		if gate.Name == launch.Gate {
			return true
		}
	}
	return false
}

// describe puts what the pod tells into the answer.
func describe(answer *api.Runner, pod *corev1.Pod, now time.Time) {
	answer.State, answer.Node, answer.IP = state(pod, now), pod.Spec.NodeName, pod.Status.PodIP
	answer.IPs = nil
	for _, ip := range pod.Status.PodIPs {
		answer.IPs = append(answer.IPs, ip.IP)
	}
	since := func(t time.Time) *int64 {
		if t.Unix() <= 0 {
			return nil
		}
		ms := max(t.Sub(pod.CreationTimestamp.Time).Milliseconds(), 0)
		return &ms
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			answer.Timings.ScheduledMS = since(c.LastTransitionTime.Time)
		}
	}
	if answer.IP != "" && answer.Timings.IPMS == nil && !answer.DuplicateSubmission {
		answer.Timings.IPMS = since(now)
	}
	container := statusOf(pod)
	if running := container.State.Running; running != nil {
		answer.Timings.RunningMS = since(running.StartedAt.Time)
	}
	if end := container.State.Terminated; end != nil {
		answer.Timings.RunningMS = since(end.StartedAt.Time)
	}
}
