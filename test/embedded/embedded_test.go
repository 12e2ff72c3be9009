package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/test/embedded"
)

// deadline bounds every test; none comes near it.
const deadline = 30 * time.Second

func start(t *testing.T, options embedded.Options) (*embedded.Cluster, *kubernetes.Clientset, context.Context) {
	t.Helper()
	cluster, err := embedded.Start(options)
	if err != nil {
		t.Fatalf("Start() = %v", err)
	}
	t.Cleanup(cluster.Close)
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatalf("NewForConfig() = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return cluster, client, ctx
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func gatedPod(pod *corev1.Pod) {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "flint.dev/support"}}
}

func mounting(configMap string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}},
		}}}
	}
}

func release(uid types.UID) []byte {
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`, uid)
}

func phase(cluster *embedded.Cluster, name string) string {
	object := cluster.Object(embedded.Pods, "default", name)
	if object == nil {
		return "gone"
	}
	status, _ := object.Object["status"].(map[string]any)
	text, _ := status["phase"].(string)
	return text
}

func await(t *testing.T, ctx context.Context, cluster *embedded.Cluster, what string, condition func() bool) {
	t.Helper()
	if err := cluster.Until(ctx, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPodRunsOnTheClock(t *testing.T) {
	cases := map[string]struct {
		annotations map[string]string
		step        time.Duration
		phase       corev1.PodPhase
		line        string
		reason      string
	}{
		"as the options say": {
			step: 2 * time.Second, phase: corev1.PodSucceeded, reason: "Completed",
			line: "driver default/pi succeeded (exit 0) after 2.0s\n",
		},
		"as its annotations say": {
			annotations: map[string]string{
				embedded.AnnotationExitCode: "137", embedded.AnnotationRunFor: "90s", embedded.AnnotationReason: "OOMKilled",
			},
			step: 90 * time.Second, phase: corev1.PodFailed, reason: "OOMKilled",
			line: "driver default/pi failed (exit 137) after 90.0s\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
			var lines bytes.Buffer
			done := make(chan embedded.Completion, 1)
			cluster, client, ctx := start(t, embedded.Options{
				Clock: clock, RunFor: 2 * time.Second, Log: &lines,
				Completed: func(c embedded.Completion) { done <- c },
			})
			created, err := client.CoreV1().Pods("default").Create(ctx, pod("pi", func(pod *corev1.Pod) {
				pod.Labels = map[string]string{"spark-role": "driver"}
				pod.Annotations = tc.annotations
			}), metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("Create() = %v", err)
			}
			if got, want := created.CreationTimestamp.UTC(), clock.Now(); !got.Equal(want) {
				t.Errorf("creationTimestamp = %v, want the clock's %v", got, want)
			}
			await(t, ctx, cluster, "Running", func() bool { return phase(cluster, "pi") == "Running" })
			clock.Step(tc.step)
			await(t, ctx, cluster, "ended", func() bool { return phase(cluster, "pi") == string(tc.phase) })
			select {
			case completion := <-done:
				if completion.Reason != tc.reason || completion.Ran != tc.step {
					t.Errorf("completion = %+v, want reason %s after %v", completion, tc.reason, tc.step)
				}
			case <-ctx.Done():
				t.Fatal("no completion was reported")
			}
			if diff := cmp.Diff(tc.line, lines.String()); diff != "" {
				t.Errorf("log (-want,+got):\n%s", diff)
			}
			got, err := client.CoreV1().Pods("default").Get(ctx, "pi", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("Get() = %v", err)
			}
			if got.Status.PodIP == "" || got.Spec.NodeName == "" {
				t.Errorf("pod has address %q and node %q, want both", got.Status.PodIP, got.Spec.NodeName)
			}
			if state := got.Status.ContainerStatuses[0].State.Terminated; state == nil || state.Reason != tc.reason {
				t.Errorf("container state = %+v, want terminated for %s", state, tc.reason)
			}
		})
	}
}

func TestHeldPodWaitsForItsRelease(t *testing.T) {
	cluster, client, ctx := start(t, embedded.Options{})
	pods := client.CoreV1().Pods("default")
	held, err := pods.Create(ctx, pod("pi", gatedPod, mounting("conf")), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("Create() = %v", err)
	}
	isController := true
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Pod", Name: "pi", UID: held.UID, Controller: &isController,
	}}}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, conf, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create(ConfigMap) = %v", err)
	}
	if _, err := pods.Patch(ctx, "pi", types.StrategicMergePatchType, release("other"), metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("Patch() with another uid = %v, want invalid", err)
	}
	if got := phase(cluster, "pi"); got != "Pending" {
		t.Errorf("phase of the held pod = %s, want Pending", got)
	}
	if _, err := pods.Patch(ctx, "pi", types.StrategicMergePatchType, release(held.UID), metav1.PatchOptions{}); err != nil {
		t.Fatalf("Patch() = %v", err)
	}
	await(t, ctx, cluster, "Succeeded", func() bool { return phase(cluster, "pi") == "Succeeded" })
	if stranded := cluster.Stranded(); len(stranded) > 0 {
		t.Errorf("Stranded() = %v, want none", stranded)
	}

	if err := pods.Delete(ctx, "pi", *metav1.NewPreconditionDeleteOptions("other")); !apierrors.IsConflict(err) {
		t.Errorf("Delete() with another uid = %v, want a conflict", err)
	}
	if err := pods.Delete(ctx, "pi", *metav1.NewPreconditionDeleteOptions(string(held.UID))); err != nil {
		t.Fatalf("Delete() = %v", err)
	}
	if left := cluster.Objects(); len(left) > 0 {
		t.Errorf("%d objects left after the owner's end, want none", len(left))
	}
}

func TestPodReleasedTooEarlyIsStranded(t *testing.T) {
	cluster, client, ctx := start(t, embedded.Options{})
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod("pi", mounting("conf")), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if diff := cmp.Diff([]string{"default/pi"}, cluster.Stranded()); diff != "" {
		t.Errorf("Stranded() (-want,+got):\n%s", diff)
	}
	await(t, ctx, cluster, "ContainerCreating", func() bool {
		got, err := client.CoreV1().Pods("default").Get(ctx, "pi", metav1.GetOptions{})
		return err == nil && len(got.Status.ContainerStatuses) == 1 && got.Status.ContainerStatuses[0].State.Waiting != nil
	})
	if got := phase(cluster, "pi"); got != "Pending" {
		t.Errorf("phase = %s, want Pending", got)
	}
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "conf"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, conf, metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create(ConfigMap) = %v", err)
	}
	await(t, ctx, cluster, "Succeeded", func() bool { return phase(cluster, "pi") == "Succeeded" })
}

func TestJobEndsWithItsPod(t *testing.T) {
	cases := map[string]struct {
		run       embedded.RunFunc
		condition batchv1.JobConditionType
		log       string
	}{
		"simulated": {condition: batchv1.JobComplete, log: "simulated: runs for 0s, then exits with 0\n"},
		"run": {
			run: func(_ context.Context, pod *corev1.Pod, log io.Writer) (embedded.Exit, bool) {
				_, _ = fmt.Fprintf(log, "%s\n", pod.Spec.Containers[0].Image)
				return embedded.Exit{Code: 3, Message: "no such file"}, true
			},
			condition: batchv1.JobFailed, log: "agent\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, client, ctx := start(t, embedded.Options{Run: tc.run})
			suspend := true
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "copy"}, Spec: batchv1.JobSpec{Suspend: &suspend}}
			job.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent"}}
			created, err := client.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("Create() = %v", err)
			}
			if pods := cluster.Objects(embedded.Pods); len(pods) > 0 {
				t.Errorf("the suspended Job has %d pods, want none", len(pods))
			}
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"suspend":false}}`, created.UID)
			if _, err := client.BatchV1().Jobs("default").Patch(ctx, "copy", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatalf("Patch() = %v", err)
			}
			await(t, ctx, cluster, "the Job's end", func() bool {
				got, err := client.BatchV1().Jobs("default").Get(ctx, "copy", metav1.GetOptions{})
				if err != nil {
					return false
				}
				for _, condition := range got.Status.Conditions {
					if condition.Type == tc.condition {
						return true
					}
				}
				return false
			})
			name := cluster.Objects(embedded.Pods)[0].GetName()
			text, err := client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
			if err != nil || string(text) != tc.log {
				t.Errorf("GetLogs() = %q, %v, want %q", text, err, tc.log)
			}
		})
	}
}

func TestDeletedPodEnds(t *testing.T) {
	stopped := make(chan struct{})
	cluster, client, ctx := start(t, embedded.Options{
		Run: func(ctx context.Context, _ *corev1.Pod, _ io.Writer) (embedded.Exit, bool) {
			<-ctx.Done()
			close(stopped)
			return embedded.Exit{Code: 143}, true
		},
	})
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, pod("pi", func(pod *corev1.Pod) { pod.Finalizers = []string{"flint.dev/test"} }), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	await(t, ctx, cluster, "Running", func() bool { return phase(cluster, "pi") == "Running" })
	if err := pods.Delete(ctx, "pi", metav1.DeleteOptions{}); err != nil {
		t.Fatalf("Delete() = %v", err)
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		t.Fatal("the containers of the deleted pod were not stopped")
	}
	await(t, ctx, cluster, "Failed", func() bool { return phase(cluster, "pi") == "Failed" })
	if _, err := pods.Patch(ctx, "pi", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatalf("Patch() = %v", err)
	}
	await(t, ctx, cluster, "gone", func() bool { return phase(cluster, "pi") == "gone" })
}

func TestObjectWithoutOwnerIsCollected(t *testing.T) {
	cluster, client, ctx := start(t, embedded.Options{})
	for name, kind := range map[string]string{"orphan": "Pod", "foreign": "SparkApplication"} {
		conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: kind, Name: "pi", UID: "earlier",
		}}}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, conf, metav1.CreateOptions{}); err != nil {
			t.Fatalf("Create() = %v", err)
		}
	}
	await(t, ctx, cluster, "collected", func() bool {
		return cluster.Object(embedded.ConfigMaps, "default", "orphan") == nil
	})
	if cluster.Object(embedded.ConfigMaps, "default", "foreign") == nil {
		t.Error("an object of a foreign owner is gone, want it kept")
	}
}

func TestRequestsAreRecorded(t *testing.T) {
	cluster, client, ctx := start(t, embedded.Options{Idle: true})
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod("pi"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatalf("Create() = %v", err)
	}
	if _, err := client.CoreV1().Pods("default").Get(ctx, "pi", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("Get() = %v, want not found: a dry run stores nothing", err)
	}
	want := []embedded.Request{
		{Method: "POST", Path: "/api/v1/namespaces/default/pods", Query: "dryRun=All"},
		{Method: "GET", Path: "/api/v1/namespaces/default/pods/pi"},
	}
	if diff := cmp.Diff(want, cluster.Requests()); diff != "" {
		t.Errorf("Requests() (-want,+got):\n%s", diff)
	}
	cluster.ResetRequests()
	if got := cluster.Requests(); len(got) != 0 {
		t.Errorf("Requests() after the reset = %v, want none", got)
	}
}

func TestWhatIsLackingIsSaid(t *testing.T) {
	cluster, _, _ := start(t, embedded.Options{Idle: true})
	for path, code := range map[string]int{
		"/apis/apps/v1/namespaces/default/deployments": http.StatusNotFound,
		"/api/v1/pods?watch=true":                      http.StatusMethodNotAllowed,
		"/metrics":                                     http.StatusNotFound,
	} {
		response, err := http.Get(cluster.URL() + path)
		if err != nil {
			t.Fatalf("GET %s = %v", path, err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode != code || !strings.Contains(string(body), "the embedded API lacks GET "+path) {
			t.Errorf("GET %s = %d %s, want %d that says what lacks", path, response.StatusCode, body, code)
		}
	}
}

func TestKubeconfig(t *testing.T) {
	cluster, _, ctx := start(t, embedded.Options{Namespaces: []string{"team"}})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.Kubeconfig(path); err != nil {
		t.Fatalf("Kubeconfig() = %v", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatalf("read kubeconfig: %v", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatalf("NewForConfig() = %v", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, "team", metav1.GetOptions{}); err != nil {
		t.Errorf("Get(namespace) = %v", err)
	}
}
