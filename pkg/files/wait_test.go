package files_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

// never is the end of no instance.
var never = make(chan struct{})

func scheduled(status corev1.ConditionStatus, reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}}
}

// Why an operation does not start, or ends without a result, is told in seconds and not at the end of the wait.
func TestWaitTellsWhy(t *testing.T) {
	pull := scheduled(corev1.ConditionTrue, "", "")
	pull.ContainerStatuses = []corev1.ContainerStatus{{Name: filejob.Container, Image: "registry.example/fileagent:1", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "manifest unknown"},
	}}}
	cases := map[string]struct {
		before func(t *testing.T, g *real)
		after  func(t *testing.T, g *real, job *batchv1.Job)
		code   api.Code
		status int
		says   string
		gone   bool // the Job was deleted for it
	}{
		"S11_pod_never_created_quota": {
			before: func(t *testing.T, g *real) {
				_, err := g.client.CoreV1().ResourceQuotas(g.namespace).Create(testContext(t), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("1Mi")}},
					Status: corev1.ResourceQuotaStatus{},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				quota, err := g.client.CoreV1().ResourceQuotas(g.namespace).Get(testContext(t), "small", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourceLimitsMemory: resource.MustParse("0")}}
				if _, err := g.client.CoreV1().ResourceQuotas(g.namespace).UpdateStatus(testContext(t), quota, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			},
			after: refusedPod("exceeded quota: small"), code: api.QuotaExceeded, status: http.StatusTooManyRequests, says: "exceeded quota: small", gone: true,
		},
		"S11_pod_never_created_psa_restricted": {
			before: func(t *testing.T, g *real) {
				namespace, err := g.client.CoreV1().Namespaces().Get(testContext(t), g.namespace, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
				if _, err := g.client.CoreV1().Namespaces().Update(testContext(t), namespace, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				g.Settings.Job.Root, g.Settings.Job.User = true, 0
			},
			after: refusedPod("violates PodSecurity"), code: api.PodForbidden, status: http.StatusBadGateway, says: "runAsNonRoot", gone: true,
		},
		"S12_image_pull_error": {
			after: func(t *testing.T, g *real, job *batchv1.Job) { g.podOf(t, job, pull) },
			code:  api.ImagePull, status: http.StatusBadGateway, says: "manifest unknown", gone: true,
		},
		"S12_unschedulable": {
			after: func(t *testing.T, g *real, job *batchv1.Job) {
				g.podOf(t, job, scheduled(corev1.ConditionFalse, "Unschedulable", "0/3 nodes are available: 3 Insufficient memory."))
			},
			code: api.Unschedulable, status: http.StatusServiceUnavailable, says: "Insufficient memory", gone: true,
		},
		"S12_multi_attach": {
			after: func(t *testing.T, g *real, job *batchv1.Job) {
				pod := g.podOf(t, job, scheduled(corev1.ConditionTrue, "", ""))
				g.event(t, "Pod", pod.Name, string(pod.UID), "FailedAttachVolume", `Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) other`)
			},
			code: api.VolumeAttach, status: http.StatusServiceUnavailable, says: "Multi-Attach error", gone: true,
		},
		"S13_job_deadline_deletes_pod": {
			after: func(t *testing.T, g *real, job *batchv1.Job) {
				g.finish(t, job, batchv1.JobFailed, batchv1.JobFailureTarget, "DeadlineExceeded")
			},
			code: api.Deadline, status: http.StatusGatewayTimeout, says: "not known",
		},
		"S14_oom_without_result": {
			after: func(t *testing.T, g *real, job *batchv1.Job) { g.podOf(t, job, ended(137, "OOMKilled", "")) },
			code:  api.OOMKilled, status: http.StatusInternalServerError, says: "not known",
		},
		"evicted": {
			after: func(t *testing.T, g *real, job *batchv1.Job) {
				g.podOf(t, job, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory"})
			},
			code: api.Evicted, status: http.StatusServiceUnavailable, says: "low on resource",
		},
		"deleted": {
			after: func(t *testing.T, g *real, job *batchv1.Job) { g.delete(t, job) },
			code:  api.Cancelled, status: http.StatusConflict, says: "deleted",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			if c.before != nil {
				c.before(t, g)
			}
			g.claim(t, "data", nil)
			job := g.mustLaunch(t, "s", making)
			c.after(t, g, job)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			began := time.Now()
			state, err := g.Wait(ctx, never, g.namespace, strings.TrimPrefix(job.Name, "fj-"))
			if err == nil {
				if !state.Ended || state.Job.State != api.StateFailed {
					t.Fatalf("state %+v", state.Job)
				}
				err = state.Error()
			}
			e := fault(t, err, c.code)
			if e.Status() != c.status || !strings.Contains(e.Message, c.says) {
				t.Errorf("%d %s", e.Status(), e.Message)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
			_, err = g.client.BatchV1().Jobs(g.namespace).Get(testContext(t), job.Name, metav1.GetOptions{})
			if c.gone != (apierrors.IsNotFound(err)) && c.code != api.Cancelled {
				t.Errorf("the Job afterwards: %v", err)
			}
			if details, ok := e.Details.(*api.FileJobDetails); c.gone && (!ok || !details.Deleted || details.UID != string(job.UID) || details.Job != job.Name) {
				t.Errorf("details %+v", e.Details)
			}
		})
	}
}

// refusedPod has the API server itself refuse the Job's pod, and passes its words on as the Job controller does.
func refusedPod(why string) func(t *testing.T, g *real, job *batchv1.Job) {
	return func(t *testing.T, g *real, job *batchv1.Job) {
		t.Helper()
		var err error
		for range 100 { // quota is counted a moment after it was made
			if _, err = g.client.CoreV1().Pods(g.namespace).Create(testContext(t), template(job), metav1.CreateOptions{}); err != nil && strings.Contains(err.Error(), why) {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Fatalf("the pod was not refused: %v", err)
		}
		g.event(t, "Job", job.Name, string(job.UID), "FailedCreate", "Error creating: "+err.Error())
	}
}

// A pod that starts after it was judged does what it was asked to: no caller is told that it did not.
func TestPodBeginsWhileItIsGivenUp(t *testing.T) {
	pending := scheduled(corev1.ConditionFalse, "Unschedulable", "0/3 nodes are available")
	running := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: filejob.Container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
	}}}
	begin := func(t *testing.T, g *real, pod *corev1.Pod) {
		pod = pod.DeepCopy()
		pod.Status, pod.ResourceVersion = running, ""
		if _, err := g.client.CoreV1().Pods(g.namespace).UpdateStatus(testContext(t), pod, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	}
	t.Run("before its Job is deleted", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.claim(t, "data", nil)
		job := g.mustLaunch(t, "s", making)
		pod := g.podOf(t, job, pending)
		g.Client = &beforeGet{g.Client, func() { begin(t, g, pod) }}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		state, err := g.Wait(ctx, never, g.namespace, strings.TrimPrefix(job.Name, "fj-"))
		if err != nil || state.Ended || state.Job.State != api.StateRunning {
			t.Errorf("%+v, %v", state, err)
		}
		g.job(t, strings.TrimPrefix(job.Name, "fj-"))
	})
	t.Run("as its Job is deleted", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.claim(t, "data", nil)
		job := g.mustLaunch(t, "s", making)
		pod := g.podOf(t, job, pending)
		cancelJob := g.Cancel
		g.Cancel = func(ctx context.Context, job *unstructured.Unstructured, why *api.Error) error {
			begin(t, g, pod)
			return cancelJob(ctx, job, why)
		}
		state, err := g.Wait(testContext(t), never, g.namespace, strings.TrimPrefix(job.Name, "fj-"))
		if err != nil {
			t.Fatal(err)
		}
		if e := fault(t, state.Error(), api.Unschedulable); !strings.Contains(e.Message, "not known") {
			t.Errorf("message %q", e.Message)
		}
	})
}

// beforeGet is a client that does something else first, whenever a Job is read.
type beforeGet struct {
	kube.Client
	first func()
}

func (c *beforeGet) Get(ctx context.Context, ref kube.Ref) (*unstructured.Unstructured, error) {
	if ref.Kind == "Job" {
		c.first()
	}
	return c.Client.Get(ctx, ref)
}

// S21: what keeps it pending is its node, and the message says which.
func TestS21_pinned_node_full_fails_fast(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	g.user(t, "data", "node-seven", nil)
	job := g.mustLaunch(t, "s", reading)
	g.podOf(t, job, scheduled(corev1.ConditionFalse, "Unschedulable", "0/1 nodes are available: 1 Too many pods."))
	state, err := g.Wait(testContext(t), never, g.namespace, strings.TrimPrefix(job.Name, "fj-"))
	if err != nil {
		t.Fatal(err)
	}
	if e := fault(t, state.Error(), api.Unschedulable); !strings.Contains(e.Message, "node-seven") || !strings.Contains(e.Message, "Too many pods") {
		t.Errorf("message %q", e.Message)
	}
}

// A wait that ends first leaves the operation alone, and says how it stands.
func TestWaitEndsFirst(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	job := g.mustLaunch(t, "s", reading)
	g.podOf(t, job, corev1.PodStatus{Phase: corev1.PodPending})
	id := strings.TrimPrefix(job.Name, "fj-")
	t.Run("its time is over", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if state, err := g.Wait(ctx, never, g.namespace, id); err != nil || state.Ended || state.Job.State != api.StatePending {
			t.Errorf("%+v, %v", state, err)
		}
	})
	t.Run("the instance ends", func(t *testing.T) {
		enough := make(chan struct{})
		close(enough)
		if state, err := g.Wait(testContext(t), enough, g.namespace, id); err != nil || state.Ended {
			t.Errorf("%+v, %v", state, err)
		}
	})
}

func TestS17_list_forbidden_is_error_not_empty(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	job := g.mustLaunch(t, "s", reading)
	nobody := newFiles(t, g.cp.ConfigFor("nobody"))
	id := strings.TrimPrefix(job.Name, "fj-")
	_, err := nobody.List(testContext(t), g.namespace, "")
	_ = fault(t, err, api.Forbidden)
	_, err = nobody.Get(testContext(t), g.namespace, id)
	_ = fault(t, err, api.Forbidden)
	_, err = nobody.Wait(testContext(t), never, g.namespace, id)
	_ = fault(t, err, api.Forbidden)
	_, err = nobody.Launch(testContext(t), g.request(t, "other", reading), "")
	_ = fault(t, err, api.Forbidden)
}

func TestS18_ops_newest_first_capped_no_log_for_pending(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC))
	cluster, err := embedded.Start(embedded.Options{Idle: true, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	f := newFiles(t, cluster.Config())
	f.Clock = clock
	if _, err := cluster.Add(object(t, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data"}}`)); err != nil {
		t.Fatal(err)
	}
	f.Settings.Unbound = true
	var want []string
	const jobs = 60
	for n := range jobs {
		id := fmt.Sprintf("s%d", n)
		request, err := api.DecodeFile([]byte(`{"submission_id":"`+id+`","target":{"namespace":"default","claim":"data"},"operation":{"op":"checksum","path":"f"}}`), "")
		if err != nil {
			t.Fatal(err)
		}
		l, err := f.Launch(testContext(t), request, "")
		if err != nil {
			t.Fatal(err)
		}
		status, state := `"phase":"Pending"`, api.StatePending
		if n%2 == 1 {
			status, state = `"phase":"Running","containerStatuses":[{"name":"agent","state":{"running":{}}}]`, api.StateRunning
		}
		pod := object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+l.Job.Job+`-x","labels":{"flint.dev/id":"`+l.Plan.ID+`"},"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"`+l.Job.Job+`","uid":"`+l.Job.UID+`","controller":true}]},"spec":{"nodeName":"n","containers":[{"name":"agent"}]}}`)
		created, err := cluster.Add(pod)
		if err != nil {
			t.Fatal(err)
		}
		ref := kube.RefOf("default", created)
		if err := setStatus(t, cluster, ref, `{"status":{`+status+`}}`); err != nil {
			t.Fatal(err)
		}
		want = append([]string{id + " " + string(state)}, want...)
		clock.Step(time.Second)
	}
	cluster.ResetRequests()
	list, err := f.List(testContext(t), "default", "data")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, job := range list.Items {
		got = append(got, job.SubmissionID+" "+string(job.State))
	}
	if diff := cmp.Diff(want[:50], got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	logs, others := 0, 0
	for _, r := range cluster.Requests() {
		if strings.HasSuffix(r.Path, "/log") {
			logs++
		} else {
			others++
		}
	}
	if logs != 25 || others != 3 { // the claim, its jobs, their pods
		t.Errorf("%d logs and %d other calls", logs, others)
	}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return o
}

func setStatus(t *testing.T, cluster *embedded.Cluster, ref kube.Ref, patch string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodPatch, cluster.URL()+"/api/v1/namespaces/"+ref.Namespace+"/pods/"+ref.Name+"/status", strings.NewReader(patch))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return nil
}

// What a pod's log has, and what is read from it.
func TestResultsFromLogs(t *testing.T) {
	// print writes the result as the agent does, and gives its lines and its termination message.
	print := func(nonce string) (lines []string, message string) {
		var log strings.Builder
		content := []byte(strings.Repeat("0123456789abcdef", 4<<10))
		brief, _, err := protocol.NewWriter(&log, nonce, time.Now).Result(&api.FileResult{Op: api.OpRead, Content: &content, Size: new(int64(len(content)))})
		if err != nil {
			panic(err)
		}
		return strings.SplitAfter(log.String(), "\n"), string(brief)
	}
	noise := strings.Repeat("a line of another program\n", 5000)
	cases := map[string]struct {
		log func(lines []string) string
		// silent leaves the termination message empty.
		silent bool
		code   api.Code
	}{
		"S05_result_among_noise": {log: func(lines []string) string { return noise + strings.Join(lines, "noise\n") + noise }},
		"S05_no_message":         {log: func(lines []string) string { return noise + strings.Join(lines, "") }, silent: true},
		"S05_none":               {log: func([]string) string { return "the agent's last words\n" }, silent: true, code: api.ResultMissing},
		"S05_lost":               {log: func([]string) string { return "" }, code: api.ResultMissing},
		"S06_forged_marker": {log: func(lines []string) string {
			forged, _ := print("another")
			return strings.Join(lines, "") + strings.Join(forged, "")
		}},
		"S07_pieces_missing":   {log: func(lines []string) string { return strings.Join(lines[1:], "") }, code: api.ResultInconsistent},
		"S07_pieces_reordered": {log: func(lines []string) string { lines[0], lines[1] = lines[1], lines[0]; return strings.Join(lines, "") }, code: api.ResultInconsistent},
		"S07_altered": {log: func(lines []string) string {
			lines[0] = strings.Replace(lines[0], "read", "stat", 1)
			return strings.Join(lines, "")
		}, code: api.ResultInconsistent},
		"S08_long_lines_tail_lines": {log: func(lines []string) string {
			return strings.Join(lines, strings.Repeat(strings.Repeat("x", 16<<10)+"\n", 20))
		}},
		"S08_lines_after_the_end": {log: func(lines []string) string { return strings.Join(lines, "") + strings.Repeat("x\n", 3000) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := embedded.Start(embedded.Options{Run: func(_ context.Context, pod *corev1.Pod, log io.Writer) (embedded.Exit, bool) {
				lines, message := print(string(pod.UID))
				_, _ = io.WriteString(log, c.log(lines))
				if c.silent {
					message = ""
				}
				return embedded.Exit{Message: message}, true
			}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			f := newFiles(t, cluster.Config())
			if _, err := cluster.Add(object(t, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data"},"spec":{"volumeName":"v"}}`)); err != nil {
				t.Fatal(err)
			}
			f.Settings.Unbound = true
			request, err := api.DecodeFile([]byte(`{"submission_id":"s","target":{"namespace":"default","claim":"data"},"operation":`+reading+`}`), "")
			if err != nil {
				t.Fatal(err)
			}
			l, err := f.Launch(testContext(t), request, "")
			if err != nil {
				t.Fatal(err)
			}
			state, err := f.Wait(testContext(t), never, "default", l.Plan.ID)
			if err != nil {
				t.Fatal(err)
			}
			if c.code == "" {
				if result := state.Job.Result; state.Error() != nil || result == nil || result.Content == nil || len(*result.Content) != 64<<10 || result.Partial != nil {
					t.Errorf("%v %+v", state.Error(), state.Job)
				}
				return
			}
			e := fault(t, state.Error(), c.code)
			if e.Status() != http.StatusInternalServerError || state.Job.State != api.StateFailed {
				t.Errorf("%d %+v", e.Status(), state.Job)
			}
			if _, brief := e.Details.(*api.FileResult); brief == c.silent {
				t.Errorf("details %+v", e.Details)
			}
			if c.silent && !strings.Contains(e.Message, "last words") {
				t.Errorf("message %q", e.Message)
			}
		})
	}
}

// flood is an API server whose logs never end of themselves.
type flood struct {
	kube.Client
	pod, job *unstructured.Unstructured
}

func (f *flood) Get(context.Context, kube.Ref) (*unstructured.Unstructured, error) { return f.job, nil }

func (f *flood) List(context.Context, kube.Ref, kube.ListOptions) (*kube.Page, error) {
	return &kube.Page{Items: []*unstructured.Unstructured{f.pod}}, nil
}

func (f *flood) Log(_ context.Context, _ kube.Ref, _ string, _, limit int64) (io.ReadCloser, error) {
	return io.NopCloser(io.LimitReader(endless{}, limit)), nil
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestS09_log_flood_bounded(t *testing.T) {
	id := launch.ID("default", "s")
	f := newFiles(t, &rest.Config{Host: "http://127.0.0.1:1"})
	f.Client = &flood{
		job: object(t, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"fj-`+id+`","namespace":"default","uid":"j","labels":{"flint.dev/id":"`+id+`","flint.dev/kind":"file"},"annotations":{"flint.dev/hash":"h"}}}`),
		pod: object(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"default","uid":"p","labels":{"flint.dev/id":"`+id+`"},"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","uid":"j","controller":true}]},
			"spec":{"restartPolicy":"Never","containers":[{"name":"agent"}]},"status":{"phase":"Succeeded","containerStatuses":[{"name":"agent","state":{"terminated":{"exitCode":0}}}]}}`),
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	state, err := f.Get(testContext(t), "default", id)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	_ = fault(t, state.Error(), api.ResultMissing)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 4<<20 {
		t.Errorf("%d bytes were allocated", taken)
	}
}
