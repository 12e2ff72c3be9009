package completion_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/fileagent/protocol"
)

// decode reads what the API server would have answered.
func decode[T any](tb testing.TB, text string) *T {
	tb.Helper()
	value := new(T)
	if err := json.Unmarshal([]byte(text), value); err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
	return value
}

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-03-01T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

// driverSpec is a Spark driver behind a sidecar of the template.
const driverSpec = `"spec":{"nodeName":"n1","restartPolicy":"Never",
	"initContainers":[{"name":"fetch","image":"fetch"}],
	"containers":[
		{"name":"logs","image":"fluent","env":[{"name":"TOKEN","value":"s3cr3t-token"}]},
		{"name":"spark-kubernetes-driver","image":"apache/spark:4.2.0",
			"args":["driver","--properties-file","/opt/spark/conf/spark.properties","--class","org.apache.spark.examples.SparkPi","local:///x.jar","--password=hunter2hunter2"]}]}`

func driverPod(metadata, status string) string {
	if metadata != "" {
		metadata = "," + metadata
	}
	return `{"metadata":{"name":"pi","namespace":"jobs","uid":"u-1","labels":{"flint.dev/kind":"spark"}` + metadata + `},` + driverSpec + `,"status":{` + status + `}}`
}

const (
	deleted     = `"deletionTimestamp":"2026-03-01T10:10:30Z","deletionGracePeriodSeconds":30` // asked for at 10:10:00
	logsRun     = `{"name":"logs","state":{"running":{"startedAt":"2026-03-01T10:00:05Z"}}}`
	logsFailed  = `{"name":"logs","state":{"terminated":{"exitCode":1,"reason":"Error","finishedAt":"2026-03-01T10:20:00Z"}}}`
	driverRuns  = `{"name":"spark-kubernetes-driver","state":{"running":{"startedAt":"2026-03-01T10:00:06Z"}}}`
	driverWaits = `{"name":"spark-kubernetes-driver","image":"apache/spark:4.2.0","state":{"waiting":{"reason":"PodInitializing"}}}`
	driverStuck = `{"name":"spark-kubernetes-driver","state":{"waiting":{"reason":"CreateContainerConfigError","message":"couldn't find key url in ConfigMap jobs/db"}}}`
	kept        = `"deletionTimestamp":"2026-03-01T10:10:30Z","deletionGracePeriodSeconds":0,"finalizers":["flint.dev/completion"]` // by that alone
	scheduled   = `{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-03-01T10:00:00Z"}`
)

// driverEnded is the driver container's status, that ended at the time.
func driverEnded(code, reason, message, clock string) string {
	return `{"name":"spark-kubernetes-driver","state":{"terminated":{"exitCode":` + code + `,"reason":"` + reason + `","message":"` + message +
		`","startedAt":"2026-03-01T10:00:06Z","finishedAt":"2026-03-01T` + clock + `Z"}}}`
}

func statuses(all ...string) string { return `"containerStatuses":[` + strings.Join(all, ",") + `]` }

func conditions(all ...string) string { return `"conditions":[` + strings.Join(all, ",") + `]` }

func disrupted(reason, message, clock string) string {
	return `{"type":"DisruptionTarget","status":"True","reason":"` + reason + `","message":"` + message + `","lastTransitionTime":"2026-03-01T` + clock + `Z"}`
}

// want is an Outcome that can be read. Code -1 is none.
type want struct {
	Outcome, Reason, Message string
	Code                     int32
	Started, Finished        string
	Result                   string
	GivenUp                  bool
}

func read(o completion.Outcome, ended bool) *want {
	if !ended {
		return nil
	}
	w := &want{Outcome: o.Outcome, Reason: string(o.Reason), Message: o.Message, Code: -1, Result: string(o.Result), GivenUp: o.GivenUp}
	if o.ExitCode != nil {
		w.Code = *o.ExitCode
	}
	if !o.StartedAt.IsZero() {
		w.Started = o.StartedAt.UTC().Format("15:04:05")
	}
	if !o.FinishedAt.IsZero() {
		w.Finished = o.FinishedAt.UTC().Format("15:04:05")
	}
	return w
}

func TestOfPod(t *testing.T) {
	t.Parallel()
	bounds := completion.Bounds{ImagePull: 10 * time.Minute, ConfigError: 20 * time.Minute, Unschedulable: time.Hour, NodeLost: 5 * time.Minute}
	const began = "10:00:06"
	image := func(reason string) string {
		return `{"name":"spark-kubernetes-driver","image":"apache/spark:9","state":{"waiting":{"reason":"` + reason + `","message":"Back-off pulling image"}}}`
	}
	unschedulable := conditions(`{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available: 3 Insufficient cpu.","lastTransitionTime":"2026-03-01T10:00:00Z"}`)

	cases := map[string]struct {
		pod    string
		now    string // 11:00:00 if empty
		bounds *completion.Bounds
		want   *want // nil: not ended
	}{
		// The driver container's end decides (spark-operator#841, #1443).
		"completed": {
			pod:  driverPod("", `"phase":"Succeeded",`+statuses(driverEnded("0", "Completed", "", "10:05:00"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00", Message: ""},
		},
		"completed, the sidecar runs on": {
			pod:  driverPod("", `"phase":"Running",`+statuses(logsRun, driverEnded("0", "Completed", "", "10:05:00"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00"},
		},
		"failed, the sidecar runs on": {
			pod:  driverPod("", `"phase":"Running",`+statuses(logsRun, driverEnded("1", "Error", "", "10:05:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: began, Finished: "10:05:00", Message: "container spark-kubernetes-driver ended with exit code 1 (Error)"},
		},
		"completed, the sidecar failed and with it the phase": {
			pod:  driverPod("", `"phase":"Failed",`+statuses(logsFailed, driverEnded("0", "Completed", "", "10:05:00"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00"},
		},
		"the sidecar failed, the driver runs": {
			pod: driverPod("", `"phase":"Running",`+statuses(logsFailed, driverRuns)),
		},
		"completed, a restartable init container runs on": {
			pod: `{"metadata":{"labels":{"flint.dev/kind":"spark"}},"spec":{"restartPolicy":"Never","initContainers":[{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"spark-kubernetes-driver"}]},
				"status":{"phase":"Running","initContainerStatuses":[{"name":"proxy","state":{"running":{}}}],` + statuses(driverEnded("0", "Completed", "", "10:05:00")) + `}}`,
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00"},
		},
		"a restartable init container failed last": {
			pod: `{"metadata":{"labels":{"flint.dev/kind":"spark"}},"spec":{"restartPolicy":"Never","initContainers":[{"name":"proxy","restartPolicy":"Always"}],"containers":[{"name":"spark-kubernetes-driver"}]},
				"status":{"phase":"Failed","initContainerStatuses":[{"name":"proxy","state":{"terminated":{"exitCode":137,"reason":"Error"}}}],` + statuses(driverEnded("0", "Completed", "", "10:05:00")) + `}}`,
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00"},
		},
		"runs": {pod: driverPod("", `"phase":"Running",`+statuses(logsRun, driverRuns)), now: "23:00:00"},
		"just created, not even a status": {
			pod: driverPod("", ``),
		},
		"gated": {
			pod: driverPod("", `"phase":"Pending",`+conditions(`{"type":"PodScheduled","status":"False","reason":"SchedulingGated","lastTransitionTime":"2026-03-01T01:00:00Z"}`)),
		},
		"the termination message is told": {
			pod:  driverPod("", `"phase":"Failed",`+statuses(driverEnded("13", "Error", "no such table", "10:05:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 13, Started: began, Finished: "10:05:00", Message: "no such table"},
		},
		"values of env and args are not": {
			pod:  driverPod("", `"phase":"Failed",`+statuses(driverEnded("128", "StartError", `exec: --password=hunter2hunter2: not found; hunter2hunter2 and s3cr3t-token`, "10:05:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 128, Started: began, Finished: "10:05:00", Message: "exec: [...]: not found; [...] and [...]"},
		},
		"out of memory": {
			pod:  driverPod("", `"phase":"Failed",`+statuses(driverEnded("137", "OOMKilled", "", "10:05:00"))),
			want: &want{Outcome: "failed", Reason: "OOMKilled", Code: 137, Started: began, Finished: "10:05:00", Message: "container spark-kubernetes-driver ended with exit code 137 (OOMKilled)"},
		},
		"a child was killed for memory, the driver ended well": {
			pod:  driverPod("", `"phase":"Succeeded",`+statuses(driverEnded("0", "OOMKilled", "", "10:05:00"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:05:00"},
		},
		"out of memory of an evicted pod": {
			pod:  driverPod("", `"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.",`+statuses(driverEnded("137", "OOMKilled", "", "10:05:00"))),
			want: &want{Outcome: "failed", Reason: "OOMKilled", Code: 137, Started: began, Finished: "10:05:00", Message: "container spark-kubernetes-driver ended with exit code 137 (OOMKilled)"},
		},
		"a container that will be restarted": {
			pod: `{"spec":{"restartPolicy":"OnFailure","containers":[{"name":"main"}]},"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":1}}}]}}`,
		},
		"a container that will not be restarted": {
			pod:  `{"spec":{"restartPolicy":"OnFailure","containers":[{"name":"main"}]},"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0,"finishedAt":"2026-03-01T10:05:00Z"}}}]}}`,
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Finished: "10:05:00"},
		},
		"a container of an always restarted pod": {
			pod: `{"spec":{"restartPolicy":"Always","containers":[{"name":"main"}]},"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0}}}]}}`,
		},
		"a container with a restart policy of its own": {
			pod: `{"spec":{"restartPolicy":"Never","containers":[{"name":"main","restartPolicy":"Always"}]},"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":0}}}]}}`,
		},
		"a container with restart rules": {
			pod: `{"spec":{"restartPolicy":"Never","containers":[{"name":"main","restartPolicy":"Never","restartPolicyRules":[{"action":"Restart","exitCodes":{"operator":"In","values":[42]}}]}]},
				"status":{"phase":"Running","containerStatuses":[{"name":"main","state":{"terminated":{"exitCode":42}}}]}}`,
		},

		// Evicted and ended from outside (spark-kubernetes-operator#863).
		"evicted, no statuses": {
			pod:  driverPod("", `"phase":"Failed","reason":"Evicted","message":"The node was low on resource: ephemeral-storage.","startTime":"2026-03-01T10:00:01Z"`),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: -1, Started: "10:00:01", Finished: "10:00:01", Message: "The node was low on resource: ephemeral-storage."},
		},
		"evicted by the kubelet, as it tells it today": {
			pod: driverPod("", `"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.","startTime":"2026-03-01T10:00:01Z",`+
				conditions(disrupted("TerminationByKubelet", "The node was low on resource: memory.", "10:05:00"))+`,`+statuses(driverEnded("143", "Error", "", "10:05:02"))),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: 143, Started: began, Finished: "10:05:02", Message: "The node was low on resource: memory."},
		},
		"failed by itself before it was evicted": {
			pod: driverPod("", `"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory.",`+
				conditions(disrupted("TerminationByKubelet", "low", "10:05:00"))+`,`+statuses(driverEnded("1", "Error", "bad input", "10:01:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: began, Finished: "10:01:00", Message: "bad input"},
		},
		"evicted without a time, ended by a signal": {
			pod:  driverPod("", `"phase":"Failed","reason":"Evicted","message":"low",`+statuses(driverEnded("137", "Error", "", "10:01:00"))),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: 137, Started: began, Finished: "10:01:00", Message: "low"},
		},
		"evicted without a time, failed by itself": {
			pod:  driverPod("", `"phase":"Failed","reason":"Evicted","message":"low",`+statuses(driverEnded("1", "Error", "bad input", "10:01:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: began, Finished: "10:01:00", Message: "bad input"},
		},
		"drained": {
			pod: driverPod(deleted, `"phase":"Running",`+
				conditions(disrupted("EvictionByEvictionAPI", "Eviction API: evicting", "10:10:00"))+`,`+statuses(driverEnded("143", "Error", "", "10:10:04"))),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: 143, Started: began, Finished: "10:10:04", Message: "Eviction API: evicting"},
		},
		"preempted": {
			pod: driverPod(deleted, `"phase":"Failed",`+
				conditions(disrupted("PreemptionByScheduler", "default-scheduler: preempting", "10:10:00"))+`,`+statuses(driverEnded("143", "Error", "", "10:10:04"))),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: 143, Started: began, Finished: "10:10:04", Message: "default-scheduler: preempting"},
		},
		"its node shut down": {
			pod:  driverPod("", `"phase":"Failed","reason":"Terminated","message":"Pod was terminated in response to imminent node shutdown."`),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: -1, Message: "Pod was terminated in response to imminent node shutdown."},
		},
		"its container was not found again": {
			pod: driverPod("", `"phase":"Failed","reason":"Evicted","message":"low","startTime":"2026-03-01T10:00:01Z",`+
				statuses(`{"name":"spark-kubernetes-driver","state":{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown","message":"The container could not be located when the pod was terminated","startedAt":null,"finishedAt":null}}}`)),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: -1, Finished: "10:00:01", Message: "low"},
		},
		"its container was not found again, and nobody knows why": {
			pod: driverPod("", `"phase":"Failed",`+
				statuses(`{"name":"spark-kubernetes-driver","state":{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown","message":"The container could not be located when the pod was terminated"}}}`)),
			want: &want{Outcome: "failed", Reason: "Unknown", Code: -1, Message: "The container could not be located when the pod was terminated"},
		},
		"past its deadline": {
			pod: strings.Replace(driverPod("", `"phase":"Failed","reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline","startTime":"2026-03-01T10:00:00Z",`+
				statuses(driverEnded("1", "Error", "", "10:05:01"))), `"spec":{`, `"spec":{"activeDeadlineSeconds":300,`, 1),
			want: &want{Outcome: "failed", Reason: "DeadlineExceeded", Code: 1, Started: began, Finished: "10:05:01", Message: "Pod was active on the node longer than the specified deadline"},
		},
		"past its deadline, no statuses": {
			pod:  driverPod("", `"phase":"Failed","reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline"`),
			want: &want{Outcome: "failed", Reason: "DeadlineExceeded", Code: -1, Message: "Pod was active on the node longer than the specified deadline"},
		},
		"refused by its node": {
			pod:  driverPod("", `"phase":"Failed","reason":"OutOfcpu","message":"Pod was rejected: Node didn't have enough resource: cpu"`),
			want: &want{Outcome: "failed", Reason: "Unschedulable", Code: -1, Message: "Pod was rejected: Node didn't have enough resource: cpu"},
		},
		"refused by its node for its affinity": {
			pod:  driverPod("", `"phase":"Failed","reason":"NodeAffinity","message":"Pod was rejected: Predicate NodeAffinity failed"`),
			want: &want{Outcome: "failed", Reason: "Unschedulable", Code: -1, Message: "Pod was rejected: Predicate NodeAffinity failed"},
		},
		"refused by its node for another reason": {
			pod:  driverPod("", `"phase":"Failed","reason":"UnexpectedAdmissionError","message":"Allocate failed"`),
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Message: "UnexpectedAdmissionError: Allocate failed"},
		},
		"an init container failed": {
			pod: driverPod("", `"phase":"Failed","initContainerStatuses":[{"name":"fetch","state":{"terminated":{"exitCode":3,"reason":"Error","message":"404","finishedAt":"2026-03-01T10:00:03Z"}}}],`+statuses(driverWaits)),
			want: &want{
				Outcome: "failed", Reason: "Error", Code: -1, Finished: "10:00:03",
				Message: "init container fetch ended with exit code 3 (Error) 404",
			},
		},
		"an init container took too much memory": {
			pod:  driverPod("", `"phase":"Failed","initContainerStatuses":[{"name":"fetch","state":{"terminated":{"exitCode":137,"reason":"OOMKilled"}}}],`+statuses(driverWaits)),
			want: &want{Outcome: "failed", Reason: "OOMKilled", Code: -1, Message: "init container fetch ended with exit code 137 (OOMKilled)"},
		},
		"an init container failed, the pod is pending": {
			pod: driverPod("", `"phase":"Pending","initContainerStatuses":[{"name":"fetch","state":{"terminated":{"exitCode":3,"reason":"Error"}}}],`+statuses(driverWaits)),
		},
		"succeeded, no statuses": {
			pod:  driverPod("", `"phase":"Succeeded"`),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: -1},
		},
		"failed, and nothing more": {
			pod:  driverPod("", `"phase":"Failed"`),
			want: &want{Outcome: "failed", Reason: "Unknown", Code: -1, Message: "the pod failed and says nothing more"},
		},

		// Deleted.
		"deleted while it ran": {
			pod:  driverPod(deleted, `"phase":"Running",`+statuses(driverEnded("143", "Error", "", "10:10:02"))),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: 143, Started: began, Finished: "10:10:02", Message: "deleted before its end"},
		},
		"deleted, and the kubelet's last deletion moved its time": {
			pod:  driverPod(strings.NewReplacer("10:10:30", "10:10:05", `Seconds":30`, `Seconds":0`).Replace(deleted), `"phase":"Failed",`+statuses(driverEnded("143", "Error", "", "10:10:02"))),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: 143, Started: began, Finished: "10:10:02", Message: "deleted before its end"},
		},
		"failed, and deleted without grace": {
			pod:  driverPod(strings.NewReplacer("10:10:30", "10:10:05", `Seconds":30`, `Seconds":0`).Replace(deleted), `"phase":"Failed",`+statuses(driverEnded("1", "Error", "bad input", "10:10:02"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: began, Finished: "10:10:02", Message: "bad input"},
		},
		"deleted, and ended well in its grace": {
			pod:  driverPod(deleted, `"phase":"Succeeded",`+statuses(driverEnded("0", "Completed", "", "10:10:02"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: began, Finished: "10:10:02"},
		},
		"deleted after it failed": {
			pod:  driverPod(deleted, `"phase":"Failed",`+statuses(driverEnded("1", "Error", "bad input", "10:09:00"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: began, Finished: "10:09:00", Message: "bad input"},
		},
		"deleted, still running": {pod: driverPod(deleted, `"phase":"Running",`+statuses(driverRuns)), now: "10:10:20"},
		"deleted before it had a node": {
			pod:  strings.Replace(driverPod(deleted, `"phase":"Pending"`), `"nodeName":"n1",`, "", 1),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: -1, Finished: "10:10:30", Message: "deleted before a node took it"},
		},
		"garbage collected with its node": {
			pod: driverPod(deleted, `"phase":"Failed",`+conditions(disrupted("DeletionByPodGC", "PodGC: node no longer exists", "10:20:00"))+`,`+statuses(driverRuns)),
			want: &want{
				Outcome: "failed", Reason: "NodeLost", Code: -1, Finished: "10:20:00",
				Message: "PodGC: node no longer exists",
			},
		},

		// What a finalizer alone keeps.
		"kept, and its end is told": {
			pod:  driverPod(kept, `"phase":"Succeeded",`+statuses(driverEnded("0", "Completed", "", "10:10:20"))),
			want: &want{Outcome: "succeeded", Reason: "Completed", Started: began, Finished: "10:10:20"},
		},
		"kept, and its node never told its end": {
			pod: driverPod(kept, `"phase":"Running",`+statuses(driverRuns)), bounds: &completion.Bounds{},
			want: &want{Outcome: "failed", Reason: "Deleted", Code: -1, Started: began, Finished: "10:10:30", Message: "deleted before its end"},
		},
		"kept, and evicted": {
			pod:  driverPod(kept, `"phase":"Running",`+conditions(disrupted("TaintManagerEviction", "Taint manager: deleting due to NoExecute taint", "10:10:00"))+`,`+statuses(driverRuns)),
			want: &want{Outcome: "failed", Reason: "Evicted", Code: -1, Started: began, Finished: "10:10:30", Message: "Taint manager: deleting due to NoExecute taint"},
		},
		"kept, and its container was never created": {
			pod:  driverPod(kept, `"phase":"Pending",`+statuses(driverWaits)),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: -1, Finished: "10:10:30", Message: "deleted before its end"},
		},

		// What time alone ends (spark-operator#970, #2667; actions-runner-controller#3468).
		"its node is lost, within the bound": {pod: driverPod(deleted, `"phase":"Running",`+statuses(driverRuns)), now: "10:15:29"},
		"its node is lost": {
			pod: driverPod(deleted, `"phase":"Running",`+statuses(driverRuns)), now: "10:15:30",
			want: &want{Outcome: "failed", Reason: "NodeLost", Code: -1, Started: began, Finished: "10:15:30", Message: "deleted, and its node has not ended it", GivenUp: true},
		},
		"its node is lost, no bound": {pod: driverPod(deleted, `"phase":"Running",`+statuses(driverRuns)), now: "23:00:00", bounds: &completion.Bounds{}},
		"phase Unknown": {
			pod: driverPod("", `"phase":"Unknown","reason":"NodeLost","message":"Node n1 which was running pod pi is unresponsive",`+
				conditions(`{"type":"Ready","status":"False","lastTransitionTime":"2026-03-01T10:30:00Z"}`)),
			want: &want{Outcome: "failed", Reason: "NodeLost", Code: -1, Finished: "10:35:00", Message: "Node n1 which was running pod pi is unresponsive", GivenUp: true},
		},
		"phase Unknown, within the bound": {
			pod: driverPod("", `"phase":"Unknown",`+conditions(`{"type":"Ready","status":"False","lastTransitionTime":"2026-03-01T10:58:00Z"}`)),
		},
		"the image does not come, within the bound": {pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(image("ImagePullBackOff"))), now: "10:09:59"},
		"the image does not come": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(image("ImagePullBackOff"))),
			want: &want{
				Outcome: "failed", Reason: "ImagePull", Code: -1, Finished: "10:10:00", GivenUp: true,
				Message: "container spark-kubernetes-driver waits for image apache/spark:9: ImagePullBackOff: Back-off pulling image",
			},
		},
		"the image does not come, no bound": {pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(image("ErrImagePull"))), now: "23:00:00", bounds: &completion.Bounds{}},
		"the image does not come, init containers took long": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled, `{"type":"Initialized","status":"True","lastTransitionTime":"2026-03-01T10:55:00Z"}`)+`,`+statuses(image("ErrImagePull"))),
		},
		"an init container's image does not come": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,"initContainerStatuses":[{"name":"fetch","image":"fetch:9","state":{"waiting":{"reason":"InvalidImageName","message":"couldn't parse"}}}],`+statuses(driverWaits)),
			want: &want{
				Outcome: "failed", Reason: "ImagePull", Code: -1, Finished: "10:10:00", GivenUp: true,
				Message: "container fetch waits for image fetch:9: InvalidImageName: couldn't parse",
			},
		},
		"a sidecar's image does not come, the driver runs": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(`{"name":"logs","state":{"waiting":{"reason":"ImagePullBackOff"}}}`, driverRuns)), now: "23:00:00",
		},
		"no node takes it, within the bound": {pod: driverPod("", `"phase":"Pending",`+unschedulable), now: "10:59:59"},
		"no node takes it": {
			pod:  driverPod("", `"phase":"Pending",`+unschedulable),
			want: &want{Outcome: "failed", Reason: "Unschedulable", Code: -1, Finished: "11:00:00", Message: "0/3 nodes are available: 3 Insufficient cpu.", GivenUp: true},
		},
		"no node takes it, no bound": {pod: driverPod("", `"phase":"Pending",`+unschedulable), now: "23:00:00", bounds: &completion.Bounds{}},
		"its configuration is missing, within the bound": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(driverStuck)), now: "10:19:59",
		},
		"its configuration is missing": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(driverStuck)), now: "10:20:00",
			want: &want{
				Outcome: "failed", Reason: "Error", Code: -1, Finished: "10:20:00", GivenUp: true,
				Message: `container spark-kubernetes-driver cannot be created: CreateContainerConfigError: couldn't find key url in ConfigMap jobs/db`,
			},
		},
		"a sidecar cannot be created, the driver waits": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(`{"name":"logs","state":{"waiting":{"reason":"CreateContainerError","message":"no command specified"}}}`, driverWaits)),
			want: &want{
				Outcome: "failed", Reason: "Error", Code: -1, Finished: "10:20:00", GivenUp: true,
				Message: "container logs cannot be created: CreateContainerError: no command specified",
			},
		},
		"its configuration is missing, no bound": {
			pod: driverPod("", `"phase":"Pending",`+conditions(scheduled)+`,`+statuses(driverStuck)), now: "23:00:00", bounds: &completion.Bounds{},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, b := at("11:00:00"), bounds
			if c.now != "" {
				now = at(c.now)
			}
			if c.bounds != nil {
				b = *c.bounds
			}
			pod := decode[corev1.Pod](t, c.pod)
			before := pod.DeepCopy()
			got := read(completion.OfPod(pod, b, now))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed:\n%s", diff)
			}
		})
	}
}

func TestContainer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ pod, want string }{
		"the only one":              {`{"spec":{"containers":[{"name":"a"}]}}`, "a"},
		"the last":                  {`{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`, "b"},
		"none":                      {`{}`, ""},
		"of a driver, by its name":  {`{"metadata":{"labels":{"flint.dev/kind":"spark"}},"spec":{"containers":[{"name":"spark-kubernetes-driver"},{"name":"istio-proxy"}]}}`, "spark-kubernetes-driver"},
		"of a runner, not by that":  {`{"metadata":{"labels":{"flint.dev/kind":"runner"}},"spec":{"containers":[{"name":"spark-kubernetes-driver"},{"name":"app"}]}}`, "app"},
		"of a driver, by its args":  {`{"metadata":{"labels":{"flint.dev/kind":"spark"}},"spec":{"containers":[{"name":"spark-kubernetes-driver"},{"name":"mine","args":["-v","driver","--proxy-user","u","--properties-file","f"]},{"name":"istio-proxy","args":["proxy","driver"]}]}}`, "mine"},
		"by the annotation":         {`{"metadata":{"annotations":{"flint.dev/container":"a"},"labels":{"flint.dev/kind":"spark"}},"spec":{"containers":[{"name":"a"},{"name":"spark-kubernetes-driver"}]}}`, "a"},
		"the annotation names none": {`{"metadata":{"annotations":{"flint.dev/container":"x"}},"spec":{"containers":[{"name":"a"},{"name":"b"}]}}`, "b"},
	}
	for name, c := range cases {
		if got := completion.Container(decode[corev1.Pod](t, c.pod)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestOfJob(t *testing.T) {
	t.Parallel()
	bounds := completion.Bounds{ImagePull: 10 * time.Minute, ConfigError: 20 * time.Minute, Unschedulable: time.Hour, NodeLost: 5 * time.Minute}
	job := func(metadata, status string) string {
		return `{"metadata":{"name":"copy","namespace":"jobs","uid":"j-1","labels":{"flint.dev/kind":"file"}` + metadata + `},
			"spec":{"backoffLimit":0,"template":{"spec":{"containers":[{"name":"agent","env":[{"name":"FLINT_REQUEST","value":"cmVxdWVzdA=="}]}]}}},
			"status":{"startTime":"2026-03-01T10:00:00Z",` + status + `}}`
	}
	condition := func(kind, status, reason, message, clock string) string {
		return `{"type":"` + kind + `","status":"` + status + `","reason":"` + reason + `","message":"` + message + `","lastTransitionTime":"2026-03-01T` + clock + `Z"}`
	}
	pod := func(owner, created, status string) string {
		return `{"metadata":{"name":"copy-x","uid":"p-1","creationTimestamp":"2026-03-01T` + created + `Z","ownerReferences":[{"controller":true,"uid":"` + owner + `"}]},
			"spec":{"restartPolicy":"Never","nodeName":"n1","containers":[{"name":"agent","env":[{"name":"FLINT_REQUEST","value":"cmVxdWVzdA=="}]}]},"status":{` + status + `}}`
	}
	ended := func(code, reason, message string) string {
		phase := "Failed"
		if code == "0" {
			phase = "Succeeded"
		}
		quoted, _ := json.Marshal(message)
		return `"phase":"` + phase + `","containerStatuses":[{"name":"agent","state":{"terminated":{"exitCode":` + code + `,"reason":"` + reason + `","message":` + string(quoted) +
			`,"startedAt":"2026-03-01T10:00:02Z","finishedAt":"2026-03-01T10:00:05Z"}}}]`
	}
	told := func(result string) string { return protocol.Prefix + " p-1 result " + result }
	complete := conditions(condition("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods", "10:00:06"), condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods", "10:00:06"))
	backoff := conditions(condition("FailureTarget", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "10:00:06"), condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "10:00:07"))

	cases := map[string]struct {
		job  string
		pods []string
		now  string
		want *want
	}{
		"complete, with its result": {
			job:  job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"write", "sha256": "ab"}`)))},
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: "10:00:02", Finished: "10:00:06", Result: `{"op":"write","sha256":"ab"}`},
		},
		"S10_complete_and_its_pod_is_gone": { // the agent ends with 0 when it has refused too
			job:  job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			want: &want{Outcome: "failed", Reason: "Unknown", Code: -1, Started: "10:00:00", Finished: "10:00:06", Message: "its agent has ended, and what it told of the operation is gone"},
		},
		"S10_complete_and_an_unknown_code": {
			job:  job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"write","code":"NEVER_HEARD_OF"}`)))},
			want: &want{Outcome: "failed", Reason: "Unknown", Code: 0, Started: "10:00:02", Finished: "10:00:06", Message: "its agent has ended, and what it told of the operation is gone"},
		},
		"complete, and the agent was made to stop": {
			job:  job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"copy","code":"CANCELLED","message":"stopped"}`)))},
			want: &want{Outcome: "failed", Reason: "Error", Code: 0, Started: "10:00:02", Finished: "10:00:06", Result: `{"op":"copy","code":"CANCELLED","message":"stopped"}`, Message: "stopped"},
		},
		"complete, of another kind": {
			job:  strings.Replace(job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`), `"file"`, `"runner"`, 1),
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: -1, Started: "10:00:00", Finished: "10:00:06"},
		},
		"complete after a pod failed": {
			job: job("", complete+`,"succeeded":1,"failed":1,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{
				pod("j-1", "09:59:00", ended("1", "Error", "")), pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"mkdir"}`))),
				pod("other", "10:00:00", ended("0", "Completed", told(`{"op":"delete"}`))),
			},
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: "10:00:02", Finished: "10:00:06", Result: `{"op":"mkdir"}`},
		},
		"failed": {
			job: job("", backoff+`,"failed":1`), pods: []string{pod("j-1", "10:00:00", ended("1", "Error", told(`{"op":"write","code":"INTERNAL_SERVER_ERROR"}`)))},
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: "10:00:02", Finished: "10:00:07", Result: `{"op":"write","code":"INTERNAL_SERVER_ERROR"}`, Message: "container agent ended with exit code 1 (Error)"},
		},
		"complete, and the operation was refused": {
			job:  job("", complete+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"write","code":"VOLUME_FULL","message":"no room"}`)))},
			want: &want{Outcome: "failed", Reason: "Error", Code: 0, Started: "10:00:02", Finished: "10:00:06", Result: `{"op":"write","code":"VOLUME_FULL","message":"no room"}`, Message: "no room"},
		},
		"S15_condition_failed_but_result_ok": {
			job:  job("", conditions(condition("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", "10:00:07"))),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"write"}`)))},
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: "10:00:02", Finished: "10:00:07", Result: `{"op":"write"}`},
		},
		"past its deadline, and the agent was made to stop": {
			job:  job("", conditions(condition("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", "10:00:07"))),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"copy","code":"CANCELLED"}`)))},
			want: &want{Outcome: "failed", Reason: "DeadlineExceeded", Code: 0, Started: "10:00:02", Finished: "10:00:07", Result: `{"op":"copy","code":"CANCELLED"}`, Message: "Job was active longer than specified deadline"},
		},
		"failed, its result is no object": {
			job: job("", backoff+`,"failed":1`), pods: []string{pod("j-1", "10:00:00", ended("1", "Error", `no cmVxdWVzdA== {`))},
			want: &want{Outcome: "failed", Reason: "Error", Code: 1, Started: "10:00:02", Finished: "10:00:07", Message: "no [...] {"},
		},
		"failed for memory": {
			job: job("", backoff+`,"failed":1`), pods: []string{pod("j-1", "10:00:00", ended("137", "OOMKilled", ""))},
			want: &want{Outcome: "failed", Reason: "OOMKilled", Code: 137, Started: "10:00:02", Finished: "10:00:07", Message: "container agent ended with exit code 137 (OOMKilled)"},
		},
		"failed, evicted": {
			job: job("", backoff+`,"failed":1`), pods: []string{pod("j-1", "10:00:00", `"phase":"Failed","reason":"Evicted","message":"low on memory"`)},
			want: &want{Outcome: "failed", Reason: "Evicted", Code: -1, Started: "10:00:00", Finished: "10:00:07", Message: "low on memory"},
		},
		"failed, its pod is gone": {
			job:  job("", backoff+`,"failed":1`),
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Started: "10:00:00", Finished: "10:00:07", Message: "BackoffLimitExceeded: Job has reached the specified backoff limit"},
		},
		"past its deadline, and its pod was deleted": {
			job:  job("", conditions(condition("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", "10:02:00"))+`,"failed":1`),
			want: &want{Outcome: "failed", Reason: "DeadlineExceeded", Code: -1, Started: "10:00:00", Finished: "10:02:00", Message: "Job was active longer than specified deadline"},
		},
		"past its deadline, and its pod tells another story": {
			job:  job("", conditions(condition("Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", "10:02:00"))+`,"failed":1`),
			pods: []string{pod("j-1", "10:00:00", ended("143", "Error", ""))},
			want: &want{Outcome: "failed", Reason: "DeadlineExceeded", Code: 143, Started: "10:00:02", Finished: "10:02:00", Message: "Job was active longer than specified deadline"},
		},
		"Failed wins over a count": {
			job:  job("", backoff+`,"succeeded":1`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", "{}"))},
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Started: "10:00:00", Finished: "10:00:07", Message: "BackoffLimitExceeded: Job has reached the specified backoff limit"},
		},
		"Failed wins over Complete": {
			job:  job("", conditions(condition("Complete", "True", "", "", "10:00:06"), condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "10:00:07"))+`,"succeeded":1,"completionTime":"2026-03-01T10:00:06Z"`),
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Started: "10:00:00", Finished: "10:00:07", Message: "BackoffLimitExceeded: Job has reached the specified backoff limit"},
		},
		"a count is no end":                   {job: job("", `"succeeded":1`), pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", "{}"))}},
		"a condition that is False is none":   {job: job("", conditions(condition("Failed", "False", "", "", "10:00:06"), condition("Complete", "Unknown", "", "", "10:00:06"))+`,"active":1`)},
		"success criteria met is no end yet":  {job: job("", conditions(condition("SuccessCriteriaMet", "True", "CompletionsReached", "", "10:00:06"))+`,"succeeded":1`)},
		"failure target is no end yet":        {job: job("", conditions(condition("FailureTarget", "True", "BackoffLimitExceeded", "", "10:00:06"))+`,"failed":1`)},
		"suspended":                           {job: job("", conditions(condition("Suspended", "True", "JobSuspended", "Job suspended", "10:00:06"))), now: "23:00:00"},
		"a pod failed, the Job has not ended": {job: job("", `"failed":1`), pods: []string{pod("j-1", "10:00:00", ended("1", "Error", ""))}},
		"deleted": {
			job:  job(`,"deletionTimestamp":"2026-03-01T10:01:00Z"`, `"active":1`),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: -1, Started: "10:00:00", Finished: "10:01:00", Message: "deleted before its end"},
		},
		"deleted after its end": {
			job:  job(`,"deletionTimestamp":"2026-03-01T10:01:00Z"`, complete+`,"completionTime":"2026-03-01T10:00:06Z"`),
			pods: []string{pod("j-1", "10:00:00", ended("0", "Completed", told(`{"op":"mkdir"}`)))},
			want: &want{Outcome: "succeeded", Reason: "Completed", Code: 0, Started: "10:00:02", Finished: "10:00:06", Result: `{"op":"mkdir"}`},
		},
		"deleted, and its pods fail by that": {
			job:  job(`,"deletionTimestamp":"2026-03-01T10:01:00Z"`, conditions(condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "10:01:02"))),
			want: &want{Outcome: "failed", Reason: "Deleted", Code: -1, Started: "10:00:00", Finished: "10:01:02", Message: "deleted before its end"},
		},
		"deleted after it failed": {
			job:  job(`,"deletionTimestamp":"2026-03-01T10:01:00Z"`, conditions(condition("Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", "10:00:07"))),
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Started: "10:00:00", Finished: "10:00:07", Message: "BackoffLimitExceeded: Job has reached the specified backoff limit"},
		},
		"its image does not come": {
			job:  job("", `"active":1`),
			pods: []string{pod("j-1", "10:00:00", `"phase":"Pending",`+conditions(scheduled)+`,"containerStatuses":[{"name":"agent","image":"agent:9","state":{"waiting":{"reason":"ErrImagePull","message":"no"}}}]`)},
			want: &want{Outcome: "failed", Reason: "ImagePull", Code: -1, Started: "10:00:00", Finished: "10:10:00", Message: "container agent waits for image agent:9: ErrImagePull: no", GivenUp: true},
		},
		"its pod's configuration is missing": {
			job:  job("", `"active":1`),
			pods: []string{pod("j-1", "10:00:00", `"phase":"Pending",`+conditions(scheduled)+`,"containerStatuses":[{"name":"agent","state":{"waiting":{"reason":"CreateContainerConfigError","message":"no"}}}]`)},
			want: &want{Outcome: "failed", Reason: "Error", Code: -1, Started: "10:00:00", Finished: "10:20:00", Message: "container agent cannot be created: CreateContainerConfigError: no", GivenUp: true},
		},
		"its older pod's image did not come": {
			job: job("", `"active":1`),
			pods: []string{
				pod("j-1", "10:00:00", `"phase":"Pending",`+conditions(scheduled)+`,"containerStatuses":[{"name":"agent","state":{"waiting":{"reason":"ErrImagePull"}}}]`),
				pod("j-1", "10:01:00", `"phase":"Running","containerStatuses":[{"name":"agent","state":{"running":{}}}]`),
			},
		},
		"its pod's node is lost": { // the Job controller counts it as failed
			job:  job("", `"active":1`),
			pods: []string{strings.Replace(pod("j-1", "10:00:00", `"phase":"Running"`), `"name":"copy-x"`, `"name":"copy-x",`+deleted, 1)}, now: "23:00:00",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := at("11:00:00")
			if c.now != "" {
				now = at(c.now)
			}
			var pods []corev1.Pod
			for _, text := range c.pods {
				pods = append(pods, *decode[corev1.Pod](t, text))
			}
			if diff := cmp.Diff(c.want, read(completion.OfJob(decode[batchv1.Job](t, c.job), pods, bounds, now))); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMessageIsBounded: 1,024 bytes of valid text, whatever a container leaves.
func TestMessageIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 4096), "of wide runes": strings.Repeat("日本", 700), "just long enough": strings.Repeat("x", 1024), "not UTF-8": strings.Repeat("\xffa", 600),
	} {
		pod := decode[corev1.Pod](t, driverPod("", `"phase":"Failed",`+statuses(driverEnded("1", "Error", "", "10:05:00"))))
		pod.Status.ContainerStatuses[0].State.Terminated.Message = text
		o, _ := completion.OfPod(pod, completion.Bounds{}, at("11:00:00"))
		if n := len(o.Message); n > completion.MaxMessage || n < completion.MaxMessage-6 || !utf8.ValidString(o.Message) {
			t.Errorf("%s: %d bytes: %q", name, n, o.Message)
		}
	}
}
