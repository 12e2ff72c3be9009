package files

import (
	"context"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/startup"
)

// nothing is an API server that has no object.
type nothing struct{ kube.Client }

func (nothing) Get(_ context.Context, ref kube.Ref) (*unstructured.Unstructured, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: ref.Kind}, ref.Name)
}

func (nothing) List(context.Context, kube.Ref, kube.ListOptions) (*kube.Page, error) {
	return &kube.Page{}, nil
}

// A Job that is gone, whose pod was seen not to start within this wait's graces, was ended by a Poller's bound: the wait tells what kept
// the pod. The looks are made one by one: on an API server nobody could tell that the wait has seen the pod before it went.
func TestEndedByABound(t *testing.T) {
	t.Parallel()
	since := metav1.NewTime(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: since}
	waits := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
		}}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		code   api.Code
		http   int
	}{
		"no node": {corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes", LastTransitionTime: since,
		}}}, api.Unschedulable, http.StatusServiceUnavailable},
		"no image": {waits("ImagePullBackOff"), api.ImagePull, http.StatusBadGateway},
		"slow":     {waits("ContainerCreating"), api.Cancelled, http.StatusConflict},
		"runs": {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}},
		}}}, api.Cancelled, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := clocktesting.NewFakePassiveClock(since.Add(time.Minute))
			f := &Files{Client: nothing{}, Clock: clock, Graces: &startup.Graces{ImagePull: time.Hour, Unschedulable: time.Hour, ScaleUp: time.Hour}}
			w := &waiting{Files: f, namespace: "jobs", id: "00000000000000000000000000000000", began: clock.Now()}
			w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "i"}}}, Status: c.status}}
			if state, err := w.look(t.Context()); state != nil || err != nil {
				t.Fatalf("it waits: %+v, %v", state, err)
			}
			w.pods = nil
			clock.SetTime(clock.Now().Add(time.Minute))
			_, err := w.look(t.Context())
			if e := toAPI(err); e.Code != c.code || e.Status() != c.http {
				t.Errorf("%d %v, want %d %s", e.Status(), err, c.http, c.code)
			}
		})
	}
}
