package files_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/files"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/startup"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// newFiles are file jobs on the API server, which has no grace with a pod that does not start.
func newFiles(t *testing.T, cfg *rest.Config) *files.Files {
	t.Helper()
	cfg.QPS = -1
	client, err := kube.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	applier := &launch.Applier{Client: client}
	return &files.Files{
		Client:   client,
		Follower: &follow.Follower{Client: client},
		Apply:    applier.Apply,
		Settings: files.Settings{Job: filejob.Settings{
			Image: "registry.example/fileagent:1", CPU: resource.MustParse("500m"), Memory: resource.MustParse("256Mi"), User: 65532, Group: 65532,
			Timeout: 2 * time.Minute, LongTimeout: 2 * time.Hour, Limits: protocol.DefaultLimits(),
		}},
		Cancel: func(ctx context.Context, job *unstructured.Unstructured, _ *api.Error) error {
			return client.Delete(ctx, kube.RefOf(job.GetNamespace(), job), job.GetUID())
		},
		Graces: &startup.Graces{}, PodGrace: 100 * time.Millisecond,
	}
}

// real is a namespace of a real API server. It has no controllers: statuses and pods are the test's.
type real struct {
	*files.Files
	cp        *controlplane.ControlPlane
	client    kubernetes.Interface
	namespace string
}

func newReal(t *testing.T) *real {
	t.Helper()
	cp := controlplane.Shared(t)
	return &real{newFiles(t, cp.Config()), cp, cp.Client(), cp.NewNamespace(t)}
}

// claim makes a claim that is bound, and changes it before.
func (g *real) claim(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	if change != nil {
		change(claim)
	}
	status := claim.Status
	claims := g.client.CoreV1().PersistentVolumeClaims(g.namespace)
	created, err := claims.Create(testContext(t), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created.Status = status
	created.Status.AccessModes = created.Spec.AccessModes
	if created, err = claims.UpdateStatus(testContext(t), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return created
}

// user makes a pod that has the claim mounted, on the node.
func (g *real) user(t *testing.T, claim, node string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "user-" + string(uuid.NewUUID())[:8]},
		Spec: corev1.PodSpec{
			NodeName:   node,
			Containers: []corev1.Container{{Name: "app", Image: "app", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}}},
			Volumes:    []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}},
		},
	}
	if change != nil {
		change(pod)
	}
	status := pod.Status
	pods := g.client.CoreV1().Pods(g.namespace)
	created, err := pods.Create(testContext(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if status.Phase != "" {
		created.Status = status
		if _, err := pods.UpdateStatus(testContext(t), created, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *real) request(t *testing.T, id, operation string, more ...string) *api.FileRequest {
	t.Helper()
	text := `{"submission_id":"` + id + `","target":{"namespace":"` + g.namespace + `","claim":"data"},"operation":` + strings.Join(append([]string{operation}, more...), ",") + `}`
	r, err := api.DecodeFile([]byte(text), "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (g *real) launch(t *testing.T, id, operation string, more ...string) (*files.Launched, error) {
	t.Helper()
	return g.Launch(testContext(t), g.request(t, id, operation, more...), "")
}

func (g *real) mustLaunch(t *testing.T, id, operation string, more ...string) *batchv1.Job {
	t.Helper()
	l, err := g.launch(t, id, operation, more...)
	if err != nil {
		t.Fatal(err)
	}
	return g.job(t, l.Plan.ID)
}

func (g *real) job(t *testing.T, id string) *batchv1.Job {
	t.Helper()
	job, err := g.client.BatchV1().Jobs(g.namespace).Get(testContext(t), filejob.JobName(id), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// podOf makes the Job's pod, as the Job controller does, with that status.
func (g *real) podOf(t *testing.T, job *batchv1.Job, status corev1.PodStatus) *corev1.Pod {
	t.Helper()
	pod := template(job)
	pods := g.client.CoreV1().Pods(g.namespace)
	created, err := pods.Create(testContext(t), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range status.ContainerStatuses {
		if end := status.ContainerStatuses[i].State.Terminated; end != nil && end.Message != "" {
			end.Message = protocol.Prefix + " " + string(created.UID) + " result " + end.Message
		}
	}
	created.Status = status
	if created, err = pods.UpdateStatus(testContext(t), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return created
}

func template(job *batchv1.Job) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Name = job.Name + "-" + string(uuid.NewUUID())[:5]
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: new(true)}}
	return pod
}

// event is one about the object, as the controllers write them.
func (g *real) event(t *testing.T, kind, name, uid, reason, message string) {
	t.Helper()
	_, err := g.client.CoreV1().Events(g.namespace).Create(testContext(t), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name + "." + string(uuid.NewUUID())[:8]},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: g.namespace, Name: name, UID: types.UID(uid)},
		Reason:         reason, Message: message, Type: corev1.EventTypeWarning,
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Source: corev1.EventSource{Component: "test"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func ended(code int32, reason, result string) corev1.PodStatus {
	phase := corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	return corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: filejob.Container, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: result, StartedAt: metav1.Now(), FinishedAt: metav1.Now()},
	}}}}
}

// fault is the error as the edge has it; the test fails if it is another.
func fault(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want %s", err, code)
	}
	return e
}
