package filejob_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
)

var start = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

func at(second int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(second) * time.Second))
}

// jobOf is a Job that was launched for the operation, with that status.
func jobOf(t *testing.T, operation string, status batchv1.JobStatus) *unstructured.Unstructured {
	t.Helper()
	_, job := plan(t, request(t, operation), filejob.Facts{}, settings())
	job.UID, job.CreationTimestamp, job.Status = "job-1", at(0), status
	if status.StartTime == nil {
		began := at(0)
		job.Status.StartTime = &began
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		t.Fatal(err)
	}

	return &unstructured.Unstructured{Object: content}
}

func podOf(owner types.UID, status corev1.PodStatus) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "fj-x", UID: "pod-1", Annotations: map[string]string{"flint.dev/container": filejob.Container},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", UID: owner, Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, NodeName: "n", Containers: []corev1.Container{{Name: filejob.Container}}},
		Status: status,
	}
}

func terminated(phase corev1.PodPhase, code int32, reason, message string, second int) corev1.PodStatus {
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: filejob.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, StartedAt: at(1), FinishedAt: at(second)},
	}}}}
}

func told(result string) string { return protocol.Prefix + " pod-1 result " + result }

func TestOf(t *testing.T) {
	t.Parallel()
	running := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: filejob.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(1)}}}}}
	conditions := func(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason string) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status, Reason: reason, Message: "the Job's words", LastTransitionTime: at(9)}}}
	}
	succeeded := func(message string) []corev1.Pod {
		return []corev1.Pod{podOf("job-1", terminated(corev1.PodSucceeded, 0, "Completed", message, 5))}
	}
	failed := func(reason, message string) []corev1.Pod {
		return []corev1.Pod{podOf("job-1", terminated(corev1.PodFailed, 137, reason, message, 5))}
	}
	cases := map[string]struct {
		operation string
		job       batchv1.JobStatus
		pods      []corev1.Pod
		state     api.State
		ended     bool
		code      api.Code
		status    int // of the answer to whoever waited; 0 where there is none
		wantsLog  bool
	}{
		"no pod yet":         {operation: reading, state: api.StatePending},
		"its pod waits":      {operation: reading, pods: []corev1.Pod{podOf("job-1", corev1.PodStatus{Phase: corev1.PodPending})}, state: api.StatePending},
		"running":            {operation: reading, pods: []corev1.Pod{podOf("job-1", running)}, state: api.StateRunning},
		"the pod of another": {operation: reading, pods: []corev1.Pod{podOf("job-0", terminated(corev1.PodSucceeded, 0, "Completed", told(`{"op":"read"}`), 5))}, state: api.StatePending},
		"done":               {operation: writing, pods: succeeded(told(`{"op":"write"}`)), state: api.StateSucceeded, ended: true},
		"done in part":       {operation: reading, pods: succeeded(told(`{"op":"read","partial":{"length":9000,"sha256":"x"}}`)), state: api.StateSucceeded, ended: true, wantsLog: true},
		"refused":            {operation: writing, pods: succeeded(told(`{"op":"write","code":"FILE_EXISTS"}`)), state: api.StateFailed, ended: true, code: api.FileExists, status: http.StatusConflict},
		"S05_result_none":    {operation: reading, pods: succeeded(""), state: api.StateFailed, ended: true, code: api.ResultMissing, status: http.StatusInternalServerError, wantsLog: true},
		"S06_forged_marker_wrong_nonce": {
			operation: reading, pods: succeeded(protocol.Prefix + ` pod-2 result {"op":"read"}`),
			state: api.StateFailed, ended: true, code: api.ResultMissing, status: http.StatusInternalServerError, wantsLog: true,
		},
		"S10_unknown_code_is_failure": {
			operation: writing, pods: succeeded(told(`{"op":"write","code":"FINE"}`)),
			state: api.StateFailed, ended: true, code: api.ResultMissing, status: http.StatusInternalServerError, wantsLog: true,
		},
		"S10_malformed_json": {
			operation: writing, pods: succeeded(told(`{"op":`)),
			state: api.StateFailed, ended: true, code: api.ResultMissing, status: http.StatusInternalServerError, wantsLog: true,
		},
		"S13_job_deadline_deletes_pod": {
			operation: writing, job: conditions(batchv1.JobFailed, corev1.ConditionTrue, "DeadlineExceeded"),
			state: api.StateFailed, ended: true, code: api.Deadline, status: http.StatusGatewayTimeout,
		},
		"S13_the_agent_was_stopped_at_the_deadline": {
			operation: copying, pods: []corev1.Pod{podOf("job-1", terminated(corev1.PodSucceeded, 0, "Completed", told(`{"op":"copy","code":"CANCELLED"}`), 7200))},
			state: api.StateFailed, ended: true, code: api.Deadline, status: http.StatusGatewayTimeout,
		},
		"the agent was stopped before": {
			operation: copying, pods: succeeded(told(`{"op":"copy","code":"CANCELLED"}`)),
			state: api.StateFailed, ended: true, code: api.Cancelled, status: http.StatusConflict,
		},
		"S14_oom_without_result": {operation: writing, pods: failed("OOMKilled", ""), state: api.StateFailed, ended: true, code: api.OOMKilled, status: http.StatusInternalServerError, wantsLog: true},
		"S14_oom_and_the_job_failed": {
			operation: writing, job: conditions(batchv1.JobFailed, corev1.ConditionTrue, "BackoffLimitExceeded"), pods: failed("OOMKilled", ""),
			state: api.StateFailed, ended: true, code: api.OOMKilled, status: http.StatusInternalServerError, wantsLog: true,
		},
		"S15_condition_failed_but_result_ok": {
			operation: writing, job: conditions(batchv1.JobFailed, corev1.ConditionTrue, "DeadlineExceeded"), pods: succeeded(told(`{"op":"write"}`)),
			state: api.StateSucceeded, ended: true,
		},
		"S16_condition_status_false_ignored": {
			operation: writing, job: conditions(batchv1.JobFailed, corev1.ConditionFalse, "DeadlineExceeded"), pods: []corev1.Pod{podOf("job-1", running)},
			state: api.StateRunning,
		},
		"complete, and its pod is gone": {
			operation: reading, job: conditions(batchv1.JobComplete, corev1.ConditionTrue, "CompletionsReached"),
			state: api.StateFailed, ended: true, code: api.ResultMissing, status: http.StatusInternalServerError,
		},
		"evicted before it ran": {
			operation: reading, pods: []corev1.Pod{podOf("job-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"})},
			state: api.StateFailed, ended: true, code: api.Evicted, status: http.StatusServiceUnavailable,
		},
		"rejected by its node": {
			operation: reading, pods: []corev1.Pod{podOf("job-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no device"})},
			state: api.StateFailed, ended: true, code: api.PodRejected, status: http.StatusBadGateway,
		},
		"its sidecar goes on": {
			operation: writing, pods: []corev1.Pod{podOf("job-1", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: append(terminated("", 0, "Completed", told(`{"op":"write"}`), 5).ContainerStatuses,
				corev1.ContainerStatus{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})})},
			state: api.StateSucceeded, ended: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := filejob.Of(jobOf(t, c.operation, c.job), c.pods)
			if err != nil {
				t.Fatal(err)
			}
			if s.Job.State != c.state || s.Ended != c.ended || s.Job.Code != c.code || s.WantsLog() != c.wantsLog {
				t.Errorf("state %s, ended %t, code %q, wants log %t: %+v", s.Job.State, s.Ended, s.Job.Code, s.WantsLog(), s.Job)
			}
			e := s.Error()
			switch {
			case c.status == 0 && e != nil:
				t.Errorf("error %v", e)
			case c.status != 0 && (e == nil || e.Status() != c.status || e.Message == "" || e.Code != c.code):
				t.Errorf("error %+v, want %d %s", e, c.status, c.code)
			case s.Result != nil && s.Result.Code != "":
				if result, ok := e.Details.(*api.FileResult); !ok || result.Code != s.Result.Code {
					t.Errorf("details %+v", e.Details)
				}
			}
			if s.Job.SubmissionID != "s" || s.Job.Claim != "data" || s.Job.Namespace != "team" || s.Job.CreatedAt != "2026-03-01T10:00:00Z" {
				t.Errorf("answer %+v", s.Job)
			}
			if _, err := json.Marshal(s.Job); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNotCreated(t *testing.T) {
	t.Parallel()
	event := func(reason, message string, second int) corev1.Event {
		return corev1.Event{Reason: reason, Message: message, LastTimestamp: at(second)}
	}
	quota := event("FailedCreate", `Error creating: pods "fj-x-abcde" is forbidden: exceeded quota: small, requested: limits.memory=256Mi, used: limits.memory=1Gi, limited: limits.memory=1Gi`, 2)
	psa := event("FailedCreate", `Error creating: pods "fj-x-abcde" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`, 3)
	cases := map[string]struct {
		events []corev1.Event
		code   api.Code
		status int
	}{
		"none":                        {},
		"of something else":           {events: []corev1.Event{event("SuccessfulCreate", "Created pod: x is forbidden", 1)}},
		"S11_quota":                   {events: []corev1.Event{quota}, code: api.QuotaExceeded, status: http.StatusTooManyRequests},
		"S11_psa_restricted":          {events: []corev1.Event{psa}, code: api.PodForbidden, status: http.StatusBadGateway},
		"the last one counts":         {events: []corev1.Event{psa, quota}, code: api.PodForbidden, status: http.StatusBadGateway},
		"a webhook that says no":      {events: []corev1.Event{event("FailedCreate", `Error creating: admission webhook "x" denied the request: no`, 1)}, code: api.PodForbidden, status: http.StatusBadGateway},
		"a webhook that is not there": {events: []corev1.Event{event("FailedCreate", `Error creating: Internal error occurred: failed calling webhook "x": no route to host`, 1)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := filejob.NotCreated(c.events)
			if (got == nil) != (c.code == "") || got != nil && (got.Code != c.code || got.Status() != c.status) {
				t.Errorf("%v, want %s", got, c.code)
			}
			if c.status == http.StatusTooManyRequests && !got.Retryable() {
				t.Error("not retryable")
			}
		})
	}
}
