package runner_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// A parent that a real API server has completed (token volume, tolerations, priority, overhead), and runners of it:
// admission takes them, with everything inherited.
func TestAPIServerTakesRunners(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cp := controlplane.Shared(t)
	namespace := cp.NewNamespace(t)
	clients := cp.Client()
	if err := cp.ServiceAccount(ctx, namespace, "shop"); err != nil {
		t.Fatal(err)
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-low"}, Value: -5, PreemptionPolicy: ptr.To(corev1.PreemptNever)}
	if _, err := clients.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sandbox := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: namespace + "-sandbox"}, Handler: "sandbox",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}},
	}
	if _, err := clients.NodeV1().RuntimeClasses().Create(ctx, sandbox, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	parent := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1", Labels: map[string]string{"app": "shop"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: "shop", PriorityClassName: class.Name, RuntimeClassName: &sandbox.Name, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1000), RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			InitContainers:  []corev1.Container{{Name: "setup", Image: "registry.example/setup:1"}},
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example/shop:1", Command: []string{"shop"},
				Ports:        []corev1.ContainerPort{{ContainerPort: 4000}},
				Env:          []corev1.EnvVar{{Name: "RELEASE_NODE", Value: "shop@$(POD_IP)"}, {Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}}},
				Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}, {Name: "claim", MountPath: "/data"}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}},
			}, {Name: "proxy", Image: "registry.example/proxy:1"}},
			Volumes: []corev1.Volume{
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "claim", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			},
		},
	}
	if _, err := clients.CoreV1().Pods(namespace).Create(ctx, parent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kube.NewClient(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	facts := runner.Facts{}
	if facts.Parent, err = client.Get(ctx, kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "shop-1"}); err != nil {
		t.Fatal(err)
	}
	facts.InUse = map[string]runner.Use{"claim": {Pod: "shop-1"}} // on no node: nobody schedules here
	for name, tc := range map[string]struct {
		change func(*api.RunnerRequest)
		token  bool
	}{
		"least":    {change: func(*api.RunnerRequest) {}},
		"no owner": {change: func(r *api.RunnerRequest) { r.Owner = api.OwnerNone }},
		"everything": {change: func(r *api.RunnerRequest) {
			r.Inherit, r.Volumes = ptr.To(api.RunnerPieces()), []string{"scratch", "claim"}
			r.FlameParent, r.Env, r.SecretEnv = "g2gDWAAAAAA=", map[string]string{"A": "$(B)"}, map[string]string{"RELEASE_COOKIE": "c"}
			r.Template = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}}}}}
			r.MaxLifetimeSeconds = ptr.To[int64](600)
		}, token: true},
	} {
		t.Run(name, func(t *testing.T) {
			request := &api.RunnerRequest{SubmissionID: name, Parent: api.RunnerParent{Namespace: namespace, Name: "shop-1", Container: "app"}}
			tc.change(request)
			planned, err := runner.Plan(request, facts, runner.Settings{}, "")
			if err != nil {
				t.Fatal(err)
			}
			applier := &launch.Applier{Client: client}
			result, err := applier.Apply(ctx, planned.Plan)
			if err != nil {
				t.Fatal(err)
			}
			pod, err := clients.CoreV1().Pods(namespace).Get(ctx, result.Workload.GetName(), metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Run("R12_priority_class_kept_number_dropped", func(t *testing.T) {
				if *pod.Spec.Priority != -5 || pod.Spec.PriorityClassName != class.Name || *pod.Spec.PreemptionPolicy != corev1.PreemptNever || pod.Spec.Overhead == nil {
					t.Errorf("priority %d of %q, overhead %v", *pod.Spec.Priority, pod.Spec.PriorityClassName, pod.Spec.Overhead)
				}
			})
			volumes := 0
			for _, v := range pod.Spec.Volumes {
				if v.Projected != nil {
					volumes++
				}
			}
			if tc.token != (volumes == 1) {
				t.Errorf("volumes %+v", pod.Spec.Volumes)
			}
			if len(pod.Spec.SchedulingGates) != 0 || pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
				t.Errorf("gates %v, restart policy %s", pod.Spec.SchedulingGates, pod.Spec.RestartPolicy)
			}
			lease, err := clients.CoordinationV1().Leases(namespace).Get(ctx, runner.MarkName(pod.Labels[launch.LabelID]), metav1.GetOptions{})
			if err != nil || *lease.Spec.HolderIdentity != pod.Name {
				t.Errorf("mark %v, %v", lease, err)
			}
			if len(request.SecretEnv) == 0 {
				return
			}
			secret, err := clients.CoreV1().Secrets(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Run("L19_secret_dies_with_runner", func(t *testing.T) {
				if owners := secret.OwnerReferences; len(owners) != 1 || owners[0].UID != pod.UID {
					t.Errorf("owners %+v", owners)
				}
				if !*secret.Immutable || string(secret.Data["RELEASE_COOKIE"]) != "c" {
					t.Errorf("immutable %v", *secret.Immutable)
				}
			})
		})
	}
}
