//go:build e2e && linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// driver is a submission of a driver that is the workload of this folder, which does what its arguments say.
type driver struct {
	conf  []string       // beside those that every driver here has
	does  []string       // the application's arguments
	shape corev1.PodSpec // of the pod template
}

// request is what the operator would post.
func (d driver) request(submission string) map[string]any {
	args := []string{
		"--master", "k8s://https://kubernetes.default.svc", "--deploy-mode", "cluster", "--name", "e2e", "--class", "Main",
	}
	for _, conf := range append([]string{
		"spark.kubernetes.namespace=" + jobs,
		"spark.kubernetes.container.image=" + WorkloadImage,
		"spark.kubernetes.driver.request.cores=10m",
		"spark.driver.memory=48m", "spark.driver.memoryOverhead=16m",
	}, d.conf...) {
		args = append(args, "--conf", conf)
	}
	shape := *d.shape.DeepCopy()
	if !slices.ContainsFunc(shape.Containers, func(c corev1.Container) bool { return c.Name == driverContainer }) {
		shape.Containers = append([]corev1.Container{{Name: driverContainer}}, shape.Containers...)
	}
	return map[string]any{
		"submission_id":       submission,
		"spark_submit_args":   append(append(args, "local:///app.jar"), d.does...),
		"driver_pod_template": corev1.PodTemplateSpec{Spec: shape},
	}
}

const driverContainer = "spark-kubernetes-driver"

// run makes submissions of one run of the tests differ from those of another, against a cluster that stays.
var run = fmt.Sprintf("%x", time.Now().UnixNano())

// end is what an event must say.
type end struct {
	reason  api.Reason
	code    *int32
	message string // contained in it
}

func (e end) check(t *testing.T, kind string, got completion) {
	t.Helper()
	outcome := api.Failed
	if e.reason == api.ReasonCompleted {
		outcome = api.Succeeded
	}
	if want := api.CompletionEventType(kind, outcome); got.kind != want || got.Outcome != outcome || got.Reason != e.reason {
		t.Errorf("told as %s, %s, %s (%s), want %s, %s", got.kind, got.Outcome, got.Reason, got.Message, want, e.reason)
	}
	if e.code != nil && (got.ExitCode == nil || *got.ExitCode != *e.code) {
		t.Errorf("exit code %v, want %d", show(got.ExitCode), *e.code)
	}
	if !strings.Contains(got.Message, e.message) {
		t.Errorf("message %q, want %q in it", got.Message, e.message)
	}
}

func show(code *int32) string {
	if code == nil {
		return "none"
	}
	return strconv.Itoa(int(*code))
}

// How a driver ends, and what is told of it.
func TestDriver(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	for _, tc := range []struct {
		name  string
		event bool // submitted as a CloudEvent
		driver
		during func(context.Context, *testing.T, *corev1.Pod) // when the driver's container runs
		want   end
		after  func(context.Context, *testing.T, *corev1.Pod)
	}{
		{name: "succeeds", driver: driver{does: []string{"print=done"}},
			want: end{api.ReasonCompleted, ptr.To[int32](0), ""}},
		{name: "succeeds, submitted by event", event: true, driver: driver{does: []string{"sleep=1s"}},
			want: end{api.ReasonCompleted, ptr.To[int32](0), ""}},
		{name: "reads its properties from the ConfigMap", driver: driver{does: []string{"show=/opt/spark/conf/spark.properties"}},
			want:  end{api.ReasonCompleted, ptr.To[int32](0), ""},
			after: logHas("spark.kubernetes.driver.pod.name")},
		{name: "writes a long line", driver: driver{does: []string{"lines=1:100000", "print=behind it"}},
			want:  end{api.ReasonCompleted, ptr.To[int32](0), ""},
			after: logHas("000000" + strings.Repeat("x", 100000-6) + "\nbehind it\n")},
		{name: "writes more than its node keeps in one file", driver: driver{does: []string{"lines=30000:200", "sleep=10s", "print=the end"}},
			want:  end{api.ReasonCompleted, ptr.To[int32](0), ""},
			after: logHas("the end\n")},
		{name: "fails with a code", driver: driver{does: []string{"print=no", "exit=3"}},
			want: end{api.ReasonError, ptr.To[int32](3), "3"}},
		{name: "fails with a code, submitted by event", event: true, driver: driver{does: []string{"exit=3"}},
			want: end{api.ReasonError, ptr.To[int32](3), "3"}},
		{name: "cannot be started", driver: driver{shape: corev1.PodSpec{Containers: []corev1.Container{{Name: driverContainer, Command: []string{"/absent"}}}}},
			want: end{api.ReasonError, ptr.To[int32](128), "/absent"}},
		{name: "its init container fails", driver: driver{shape: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "first", Image: WorkloadImage, Args: []string{"exit=4"}}}}},
			want: end{api.ReasonError, nil, "first"}},
		{name: "uses more memory than its limit", driver: driver{does: []string{"memory=200"}},
			want: end{api.ReasonOOMKilled, ptr.To[int32](137), ""}},
		{name: "its image is not there", driver: driver{conf: []string{"spark.kubernetes.container.image=dev.local/absent:e2e"}},
			want: end{api.ReasonImagePull, nil, "dev.local/absent:e2e"}, after: isDeleted},
		{name: "fits no node", driver: driver{conf: []string{"spark.kubernetes.driver.node.selector.e2e=absent"}},
			want: end{api.ReasonUnschedulable, nil, "node"}, after: isDeleted},
		{name: "runs longer than it may", driver: driver{does: []string{"sleep=5m"}, shape: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To[int64](3)}},
			want: end{api.ReasonDeadlineExceeded, nil, ""}},
		{name: "is evicted by the API", driver: driver{does: []string{"sleep=5m"}},
			during: func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
				err := client.PolicyV1().Evictions(jobs).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: jobs}})
				if err != nil {
					t.Error(err)
				}
			},
			want: end{api.ReasonEvicted, ptr.To[int32](143), ""}, after: isDeleted},
		{name: "is evicted by its node, its volume is full", driver: driver{does: []string{"write=/scratch/file:5", "sleep=5m"}, shape: corev1.PodSpec{
			Containers: []corev1.Container{{Name: driverContainer, VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
			Volumes:    []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: quantity("1Mi")}}}},
		}},
			want: end{api.ReasonEvicted, nil, "scratch"}},
		{name: "is deleted", driver: driver{does: []string{"sleep=5m"}},
			during: func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
				if err := client.CoreV1().Pods(jobs).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			},
			want: end{api.ReasonDeleted, ptr.To[int32](143), ""}, after: isDeleted},
		{name: "is cancelled", driver: driver{does: []string{"sleep=5m"}},
			during: func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
				got, err := call(ctx, http.MethodDelete, api.LaunchesPath+"/"+jobs+"/"+pod.Labels["flint.dev/id"], nil, nil)
				if err != nil || got.status != http.StatusAccepted {
					t.Errorf("cancel: HTTP %d %s, %v", got.status, got.body, err)
				}
			},
			want: end{api.ReasonDeleted, nil, ""}},
		{name: "is outlived by a sidecar", driver: driver{does: []string{"sleep=1s"}, shape: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "sidecar", Image: WorkloadImage, Args: []string{"sleep=10m"}}}}},
			want: end{api.ReasonCompleted, ptr.To[int32](0), ""},
			after: func(ctx context.Context, t *testing.T, pod *corev1.Pod) {
				now, err := client.CoreV1().Pods(jobs).Get(ctx, pod.Name, metav1.GetOptions{})
				if err != nil || now.Status.Phase != corev1.PodRunning {
					t.Errorf("the pod is no longer running: %v, %v", now.Status.Phase, err)
				}
			}},
		{name: "fails, and is outlived by a sidecar", driver: driver{does: []string{"exit=7"}, shape: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "sidecar", Image: WorkloadImage, Args: []string{"sleep=10m"}}}}},
			want: end{api.ReasonError, ptr.To[int32](7), ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			began := time.Now()
			submission := run + "-" + strings.NewReplacer(" ", "-", ",", "").Replace(tc.name)
			if tc.event {
				postEvent(ctx, t, "dev.flint.spark.submit.v1", tc.request(submission))
			} else {
				// A repeat is 200: this caller tries again where an answer is lost.
				if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, tc.request(submission), http.StatusCreated, http.StatusOK); err != nil {
					t.Fatal(err)
				}
			}
			pod := podOf(ctx, t, submission)
			t.Cleanup(func() { remove(t, pod) })
			if tc.during != nil {
				running(ctx, t, pod)
				tc.during(ctx, t, pod)
			}
			got, err := received.await(ctx, submission)
			if err != nil {
				t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
			}
			if got.UID != string(pod.UID) || got.Name != pod.Name {
				t.Errorf("told of %s %s, want %s %s", got.Name, got.UID, pod.Name, pod.UID)
			}
			tc.want.check(t, "spark", got)
			if tc.after != nil {
				tc.after(ctx, t, pod)
			}
			oneEnd(t, submission)
			t.Logf("SEEN %s, exit code %s, %q, after %.1fs", got.Reason, show(got.ExitCode), got.Message, got.at.Sub(began).Seconds())
		})
	}
}
