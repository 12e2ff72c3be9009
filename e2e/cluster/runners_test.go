//go:build e2e && linux

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// newParent makes a pod that runners may be derived from, and waits until it runs.
func newParent(ctx context.Context, t *testing.T, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: run + "-" + name}, Spec: spec}
	pod, err := client.CoreV1().Pods(jobs).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, pod) })
	running(ctx, t, pod)
	return pod
}

func app(args ...string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: WorkloadImage, Args: args,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: *quantity("16Mi")}}}}}
}

// probed is the pod with a readiness probe on port 9000.
func probed(spec corev1.PodSpec) corev1.PodSpec {
	spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(9000)}}}
	return spec
}

// template is a request's, with other arguments.
func template(args ...string) map[string]any {
	return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "args": args}}}}
}

// Runners of a parent, from one that answers on its address to those that cannot start.
func TestRunner(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	for _, tc := range []struct {
		name    string
		parent  corev1.PodSpec
		request api.RunnerRequest
		status  int
		code    api.Code
		event   *end // what is told of its end; nil where it does not end
		check   func(context.Context, *testing.T, *corev1.Pod, api.Runner)
	}{
		{name: "answers on its address", parent: app("sleep=10m"),
			request: api.RunnerRequest{Wait: api.WaitRunning, FlameParent: "g2E=", Env: map[string]string{"PLAIN": "a$b"}, SecretEnv: map[string]string{"HIDDEN": "s3cret"},
				Template: template("serve=:9000", "env=FLAME_PARENT", "env=PLAIN", "env=HIDDEN", "sleep=10m")},
			status: http.StatusCreated,
			check: func(ctx context.Context, t *testing.T, parent *corev1.Pod, r api.Runner) {
				answers(ctx, t, "http://"+r.IP+":9000/")
				pod, err := client.CoreV1().Pods(jobs).Get(ctx, r.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if text, _ := json.Marshal(pod); strings.Contains(string(text), "s3cret") {
					t.Error("the pod tells the value of its secret_env")
				}
				for _, want := range []string{"FLAME_PARENT=g2E=\n", "PLAIN=a$b\n", "HIDDEN=s3cret\n"} {
					logHas(want)(ctx, t, pod)
				}
				// Its end is its parent's.
				remove(t, parent)
				isDeleted(ctx, t, pod)
			}},
		{name: "has ended by itself", parent: app("sleep=10m"), request: api.RunnerRequest{Template: template("exit=0")},
			status: http.StatusCreated, event: &end{api.ReasonCompleted, ptr.To[int32](0), ""}},
		{name: "runs longer than it may", parent: app("sleep=10m"), request: api.RunnerRequest{Template: template("sleep=10m"), MaxLifetimeSeconds: ptr.To[int64](3)},
			status: http.StatusCreated, event: &end{api.ReasonDeadlineExceeded, nil, ""}},
		{name: "boots too slowly", parent: func() corev1.PodSpec {
			spec := app("sleep=10m")
			spec.InitContainers = []corev1.Container{{Name: "first", Image: WorkloadImage, Args: []string{"sleep=8s"}}}
			return spec
		}(), request: api.RunnerRequest{Wait: api.WaitRunning, BootTimeoutMS: 3000, Inherit: &[]string{"initContainers"}, Template: template("sleep=10m")},
			status: http.StatusGatewayTimeout, code: api.BootTimeout, event: &end{api.ReasonDeadlineExceeded, nil, ""}},
		{name: "its image is not there", parent: app("sleep=10m"), request: api.RunnerRequest{Wait: api.WaitRunning, Template: map[string]any{
			"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "dev.local/absent:e2e"}}}}},
			status: http.StatusBadGateway, code: api.ImagePull, event: &end{api.ReasonImagePull, nil, ""}},
		{name: "exits in its boot", parent: probed(app("serve=:9000", "sleep=10m")), request: api.RunnerRequest{Wait: api.WaitReady, Inherit: &[]string{"probes"}, Template: template("print=no", "exit=5")},
			status: http.StatusBadGateway, code: api.RunnerExited, event: &end{api.ReasonError, ptr.To[int32](5), ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			slug := strings.ReplaceAll(tc.name, " ", "-")
			parent := newParent(ctx, t, slug, tc.parent)
			request := tc.request
			request.SubmissionID = run + "-runner-" + slug
			request.Parent = api.RunnerParent{Namespace: jobs, Name: parent.Name, UID: string(parent.UID)}
			body, err := json.Marshal(request)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			got, err := call(ctx, http.MethodPost, api.RunnerPath, http.Header{"Content-Type": {"application/json"}}, body)
			if err != nil {
				t.Fatal(err)
			}
			answered := time.Since(began)
			if got.status != tc.status || got.code() != tc.code {
				t.Fatalf("HTTP %d %s, want %d %q: %s\n%s", got.status, got.code(), tc.status, tc.code, got.body, Describe(ctx, client, jobs))
			}
			var runner api.Runner
			if tc.code == "" {
				if err := json.Unmarshal(got.body, &runner); err != nil {
					t.Fatal(err)
				}
			}
			said := "HTTP " + strconv.Itoa(got.status) + " " + string(got.code()+api.Code(runner.State))
			if tc.check != nil {
				tc.check(ctx, t, parent, runner)
			}
			if tc.event != nil {
				told, err := received.await(ctx, request.SubmissionID)
				if err != nil {
					t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
				}
				tc.event.check(t, "runner", told)
				oneEnd(t, request.SubmissionID)
				said += fmt.Sprintf(", told as %s (%s) after %.1fs", told.Reason, told.Message, told.at.Sub(began).Seconds())
			}
			t.Logf("SEEN %s, answered after %.1fs", said, answered.Seconds())
		})
	}
}

// answers waits until something answers HTTP there.
func answers(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	err := until(ctx, url, func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
