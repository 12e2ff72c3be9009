package manifests

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
)

// judge is what Serving's webhook does with a new Service, at its default settings.
func judge(service *servingv1.Service) *apis.FieldError {
	ctx := apis.WithinCreate(context.Background())
	service = service.DeepCopy()
	service.SetDefaults(ctx)
	return service.Validate(ctx)
}

// accept wants no error from Serving, and no warning.
func accept(t *testing.T, service *servingv1.Service) {
	t.Helper()
	if err := judge(service); err != nil {
		t.Errorf("Serving says: %v", err)
	}
}

func TestServingAcceptsTheService(t *testing.T) {
	for _, folder := range withFunction {
		t.Run(folder, func(t *testing.T) { accept(t, theService(t, build(t, filepath.Join(root, folder)))) })
	}
}

// That Serving accepts the Service means something: it refuses each of these changes.
func TestServingRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*servingv1.Service)
		field  string
	}{
		"fieldRef": {func(s *servingv1.Service) {
			container(s).Env = append(container(s).Env, corev1.EnvVar{Name: "NAMESPACE", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}})
		}, "valueFrom.fieldRef"},
		"pod securityContext": {func(s *servingv1.Service) {
			s.Spec.Template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
		}, "securityContext"},
		"lifecycle": {func(s *servingv1.Service) { container(s).Lifecycle = &corev1.Lifecycle{} }, "lifecycle"},
		"claim": {func(s *servingv1.Service) {
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		}, "persistentVolumeClaim"},
		"token mount": {func(s *servingv1.Service) {
			s.Spec.Template.Spec.AutomountServiceAccountToken = ptr.To(true)
		}, "automountServiceAccountToken"},
		"scale on the Service": {func(s *servingv1.Service) {
			s.Annotations = map[string]string{"autoscaling.knative.dev/min-scale": "0"}
		}, "metadata.annotations"},
		"long timeout": {func(s *servingv1.Service) { s.Spec.Template.Spec.TimeoutSeconds = ptr.To[int64](700) }, "timeoutSeconds"},
		"short window": {func(s *servingv1.Service) {
			s.Spec.Template.Annotations["autoscaling.knative.dev/window"] = "3s"
		}, "window"},
		"node selector": {func(s *servingv1.Service) {
			s.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
		}, "nodeSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			service := theService(t, build(t, filepath.Join(root, "base")))
			tc.change(service)
			err := judge(service).Filter(apis.ErrorLevel)
			if err == nil || !strings.Contains(err.Error(), tc.field) {
				t.Errorf("Validate() = %v, want an error about %s", err, tc.field)
			}
		})
	}
}

func container(s *servingv1.Service) *corev1.Container { return &s.Spec.Template.Spec.Containers[0] }
