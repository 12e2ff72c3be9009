package files_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/files"
	"flint.dev/flint/pkg/launch"
)

func (g *real) lease(t *testing.T, claim types.UID) *coordinationv1.Lease {
	t.Helper()
	lease, err := g.client.CoordinationV1().Leases(g.namespace).Get(testContext(t), "flint-claim-"+string(claim), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// hold makes the Lease as a launch of that id left it, so long ago.
func (g *real) hold(t *testing.T, claim *corev1.PersistentVolumeClaim, id string, ago time.Duration) {
	t.Helper()
	acquired := metav1.NewMicroTime(time.Now().Add(-ago))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "flint-claim-" + string(claim.UID)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &id, AcquireTime: &acquired},
	}
	if _, err := g.client.CoordinationV1().Leases(g.namespace).Create(testContext(t), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// finish writes that the Job has ended, as the Job controller does.
func (g *real) finish(t *testing.T, job *batchv1.Job, kind batchv1.JobConditionType, before batchv1.JobConditionType, reason string) {
	t.Helper()
	job = g.job(t, strings.TrimPrefix(job.Name, "fj-"))
	now := metav1.Now()
	job.Status.StartTime = &now
	if kind == batchv1.JobComplete {
		job.Status.CompletionTime, job.Status.Succeeded = &now, 1
	}
	for _, condition := range []batchv1.JobConditionType{before, kind} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now, LastProbeTime: now})
	}
	if _, err := g.client.BatchV1().Jobs(g.namespace).UpdateStatus(testContext(t), job, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (g *real) delete(t *testing.T, job *batchv1.Job) {
	t.Helper()
	if err := g.client.BatchV1().Jobs(g.namespace).Delete(testContext(t), job.Name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
}

// Whose turn it is, by what there is of the holder.
func TestS22_turns(t *testing.T) {
	cases := map[string]struct {
		// after is what became of the first operation.
		after func(t *testing.T, g *real, job *batchv1.Job)
		busy  string // in the message; empty: the second has its turn
	}{
		"its Job is there": {func(*testing.T, *real, *batchv1.Job) {}, "has no pod yet"},
		"its pod runs": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.podOf(t, job, corev1.PodStatus{Phase: corev1.PodRunning})
		}, "has a pod that has not ended"},
		"its pod has ended well": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.podOf(t, job, ended(0, "Completed", `{"op":"mkdir"}`))
		}, ""},
		"its pod has failed": {func(t *testing.T, g *real, job *batchv1.Job) { g.podOf(t, job, ended(137, "OOMKilled", "")) }, ""},
		"its agent has ended, and a sidecar goes on": {func(t *testing.T, g *real, job *batchv1.Job) {
			status := ended(0, "Completed", `{"op":"mkdir"}`)
			status.Phase = corev1.PodRunning
			g.podOf(t, job, status)
		}, ""},
		"its pod has ended, and its Job is suspended: there will be another": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.podOf(t, job, ended(143, "Error", ""))
			job.Spec.Suspend = new(true)
			if _, err := g.client.BatchV1().Jobs(g.namespace).Update(testContext(t), job, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "has no pod yet"},
		"its Job has ended": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.finish(t, job, batchv1.JobComplete, batchv1.JobSuccessCriteriaMet, "CompletionsReached")
		}, ""},
		"its Job has failed, and its pod still runs": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.podOf(t, job, corev1.PodStatus{Phase: corev1.PodRunning})
			g.finish(t, job, batchv1.JobFailed, batchv1.JobFailureTarget, "DeadlineExceeded")
		}, "has a pod that has not ended"},
		"S32_lock_free_after_cancel": {func(t *testing.T, g *real, job *batchv1.Job) { g.delete(t, job) }, ""},
		"its Job is deleted, and its pod still runs": {func(t *testing.T, g *real, job *batchv1.Job) {
			g.podOf(t, job, corev1.PodStatus{Phase: corev1.PodRunning})
			g.delete(t, job)
		}, "has a pod that has not ended"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			claim := g.claim(t, "data", nil)
			first := g.mustLaunch(t, "first", making)
			c.after(t, g, first)
			second, err := g.launch(t, "second", `{"op":"mkdir","path":"e"}`)
			lease := g.lease(t, claim.UID)
			if c.busy != "" {
				if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, c.busy) || !strings.Contains(e.Message, first.Name) || !strings.Contains(e.Message, "(mkdir)") || e.RetryAfter == 0 {
					t.Errorf("message %q", e.Message)
				}
				if *lease.Spec.HolderIdentity != launch.ID(g.namespace, "first") {
					t.Errorf("holder %q", *lease.Spec.HolderIdentity)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if *lease.Spec.HolderIdentity != second.Plan.ID || *lease.Spec.LeaseTransitions != 1 || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != claim.UID {
				t.Errorf("lease %+v %+v", lease.ObjectMeta, lease.Spec)
			}
		})
	}
}

func TestS23_lock_holder_died(t *testing.T) {
	nobody := strings.Repeat("0", 32)
	t.Run("a moment ago, maybe", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.hold(t, g.claim(t, "data", nil), nobody, 10*time.Second)
		_, err := g.launch(t, "s", making)
		if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, "is being launched, for 1") {
			t.Errorf("message %q", e.Message)
		}
	})
	t.Run("long ago, without a Job", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.hold(t, g.claim(t, "data", nil), nobody, 2*time.Minute)
		g.mustLaunch(t, "s", making)
	})
	t.Run("long ago, and its Job has not ended", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		claim := g.claim(t, "data", nil)
		first := g.mustLaunch(t, "first", making)
		if err := g.client.CoordinationV1().Leases(g.namespace).Delete(testContext(t), "flint-claim-"+string(claim.UID), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		g.hold(t, claim, strings.TrimPrefix(first.Name, "fj-"), time.Hour)
		_, err := g.launch(t, "second", making)
		_ = fault(t, err, api.VolumeBusy)
	})
	t.Run("somebody else's hand", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.hold(t, g.claim(t, "data", nil), "a person", time.Hour)
		_, err := g.launch(t, "s", making)
		if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, `"a person"`) {
			t.Errorf("message %q", e.Message)
		}
	})
	t.Run("nobody holds it", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		g.hold(t, g.claim(t, "data", nil), "", time.Second)
		g.mustLaunch(t, "s", making)
	})
}

// A launch that is refused for good gives its turn back; one that may have come through keeps it.
func TestTurnIsGivenBack(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		claim := g.claim(t, "data", nil)
		g.Apply = func(context.Context, *launch.Plan) (*launch.Result, error) {
			return nil, api.Errorf(api.Forbidden, "no")
		}
		_, err := g.launch(t, "s", making)
		_ = fault(t, err, api.Forbidden)
		if lease := g.lease(t, claim.UID); lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
			t.Errorf("holder %q", *lease.Spec.HolderIdentity)
		}
	})
	t.Run("not answered", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		claim := g.claim(t, "data", nil)
		apply := g.Apply
		g.Apply = func(ctx context.Context, plan *launch.Plan) (*launch.Result, error) {
			if _, err := apply(ctx, plan); err != nil {
				return nil, err
			}
			return nil, api.Errorf(api.SubmitterOverloaded, "the answer was lost")
		}
		first, err := g.launch(t, "s", making)
		if err != nil || !first.Result.Duplicate { // the Job is there, and that is the answer
			t.Fatalf("%+v, %v", first, err)
		}
		if lease := g.lease(t, claim.UID); *lease.Spec.HolderIdentity != first.Plan.ID {
			t.Errorf("holder %q", *lease.Spec.HolderIdentity)
		}
	})
	t.Run("the key was used for something else, which runs", func(t *testing.T) {
		t.Parallel()
		g := newReal(t)
		claim := g.claim(t, "data", nil)
		first := g.mustLaunch(t, "s", making)
		_, err := g.launch(t, "s", writing)
		_ = fault(t, err, api.IdempotencyConflict)
		if lease := g.lease(t, claim.UID); *lease.Spec.HolderIdentity != strings.TrimPrefix(first.Name, "fj-") {
			t.Errorf("holder %q", *lease.Spec.HolderIdentity)
		}
	})
}

// Twenty at once, by two instances: each time one has its turn, and every other is told that it is busy.
func TestTwentyAtOnce(t *testing.T) {
	g := newReal(t)
	claim := g.claim(t, "data", nil)
	instances := []*files.Files{g.Files, newFiles(t, g.cp.Config())}
	for round := range 5 {
		var mu sync.Mutex
		var won []string
		var wg sync.WaitGroup
		for n := range 20 {
			request := g.request(t, fmt.Sprintf("r%d-%d", round, n), making)
			wg.Go(func() {
				l, err := instances[n%2].Launch(testContext(t), request, "")
				if err != nil {
					if e, ok := err.(*api.Error); !ok || e.Code != api.VolumeBusy { //nolint:errorlint // fault would end another goroutine's test
						t.Errorf("launch %d: %v", n, err)
					}
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, l.Plan.ID)
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("round %d: %d had a turn at once", round, len(won))
		}
		if holder := *g.lease(t, claim.UID).Spec.HolderIdentity; holder != won[0] {
			t.Errorf("holder %s, and %s runs", holder, won[0])
		}
		g.podOf(t, g.job(t, won[0]), ended(0, "Completed", `{"op":"mkdir"}`))
	}
}

// However often, and by whomever, one request is repeated at once, it is one Job.
func TestOneKeyTwentyTimes(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	instances := []*files.Files{g.Files, newFiles(t, g.cp.Config())}
	for _, operation := range []string{making, writing} {
		var wg sync.WaitGroup
		var created, duplicates atomic.Int32
		for n := range 20 {
			request := g.request(t, "one-"+operation[7:11], operation)
			wg.Go(func() {
				l, err := instances[n%2].Launch(testContext(t), request, "")
				switch {
				case err != nil:
					t.Errorf("launch %d: %v", n, err)
				case l.Result.Duplicate:
					duplicates.Add(1)
				default:
					created.Add(1)
				}
			})
		}
		wg.Wait()
		if created.Load() != 1 || duplicates.Load() != 19 {
			t.Errorf("%d created, %d duplicates", created.Load(), duplicates.Load())
		}
		job := g.job(t, launch.ID(g.namespace, "one-"+operation[7:11]))
		g.podOf(t, job, ended(0, "Completed", `{"op":"mkdir"}`))
	}
}

// A repeat whose Job was deleted begins its turn anew, so that nobody takes it for over while it launches.
func TestRepeatAfterDeletionRenewsItsTurn(t *testing.T) {
	g := newReal(t)
	claim := g.claim(t, "data", nil)
	first := g.mustLaunch(t, "s", making)
	before := g.lease(t, claim.UID)
	g.delete(t, first)
	apply := g.Apply
	g.Apply = func(ctx context.Context, plan *launch.Plan) (*launch.Result, error) {
		during := g.lease(t, claim.UID)
		if during.Annotations["flint.dev/job-uid"] != "" || !during.Spec.AcquireTime.After(before.Spec.AcquireTime.Time) {
			t.Errorf("lease %+v %+v", during.Annotations, during.Spec)
		}
		_, err := newFiles(t, g.cp.Config()).Launch(testContext(t), g.request(t, "other", making), "")
		_ = fault(t, err, api.VolumeBusy)
		return apply(ctx, plan)
	}
	if second := g.mustLaunch(t, "s", making); second.UID == first.UID {
		t.Error("the Job was not launched anew")
	}
}

// While the repeat launches, its earlier Job may be deleted and there still, kept until its end was told, and be gone the next moment: the
// turn is the repeat's all the same, else two would write at once. Else a Job that is kept holds nobody up: a repeat that cannot
// launch beside it takes no turn, however often it comes.
func TestTurnBesideAKeptJob(t *testing.T) {
	t.Parallel()
	g := newReal(t)
	claim := g.claim(t, "data", nil)
	first := g.mustLaunch(t, "s", making)
	keep := func(finalizers string) {
		t.Helper()
		patch := []byte(`{"metadata":{"finalizers":` + finalizers + `}}`)
		if _, err := g.client.BatchV1().Jobs(g.namespace).Patch(testContext(t), first.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	keep(`["` + launch.Finalizer + `"]`)
	other := newFiles(t, g.cp.Config())
	busy := func(says string) {
		t.Helper()
		_, err := other.Launch(testContext(t), g.request(t, "other", making), "")
		if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, says) {
			t.Errorf("message %q", e.Message)
		}
	}
	apply := g.Apply
	g.Apply = func(ctx context.Context, plan *launch.Plan) (*launch.Result, error) {
		g.delete(t, first)
		busy("is being launched")
		keep("null") // it was told
		return apply(ctx, plan)
	}
	if second := g.mustLaunch(t, "s", making); second.UID == first.UID {
		t.Error("the Job was not launched anew")
	} else {
		first = second
	}
	g.Apply = apply
	busy("has no pod yet")
	keep(`["` + launch.Finalizer + `"]`)
	g.delete(t, first)
	before := g.lease(t, claim.UID)
	for range 2 {
		_, err := g.launch(t, "s", making)
		if e := fault(t, err, api.SubmitterOverloaded); !strings.Contains(e.Message, "is being deleted") || e.RetryAfter == 0 {
			t.Errorf("message %q", e.Message)
		}
	}
	if diff := cmp.Diff(before, g.lease(t, claim.UID)); diff != "" {
		t.Errorf("the turn (-before +after):\n%s", diff)
	}
	if _, err := other.Launch(testContext(t), g.request(t, "other", making), ""); err != nil {
		t.Errorf("beside a Job that is kept: %v", err)
	}
}

// A Lease that somebody has deleted says nothing of the Job that changes the claim: the Job does.
func TestS23_lease_deleted(t *testing.T) {
	t.Parallel()
	g := newReal(t)
	claim := g.claim(t, "data", nil)
	first := g.mustLaunch(t, "first", making)
	pod := g.podOf(t, first, corev1.PodStatus{Phase: corev1.PodRunning})
	g.mustLaunch(t, "reader", reading) // which holds nobody up
	if err := g.client.CoordinationV1().Leases(g.namespace).Delete(testContext(t), "flint-claim-"+string(claim.UID), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := g.launch(t, "second", making)
		if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, first.Name) {
			t.Errorf("message %q", e.Message)
		}
		if holder := *g.lease(t, claim.UID).Spec.HolderIdentity; holder != launch.ID(g.namespace, "first") {
			t.Errorf("holder %q", holder)
		}
	}
	pod.Status = ended(0, "Completed", "")
	if _, err := g.client.CoreV1().Pods(g.namespace).UpdateStatus(testContext(t), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.mustLaunch(t, "second", making)
}

// A repeat whose Job was deleted waits for the pod that it has left: two would write at once.
func TestRepeatAfterDeletionWaitsForItsPod(t *testing.T) {
	for name, noted := range map[string]bool{"S22_two_writes_of_one_key": true, "S22_two_writes_of_one_key_not_noted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			claim := g.claim(t, "data", nil)
			first := g.mustLaunch(t, "s", making)
			pod := g.podOf(t, first, corev1.PodStatus{Phase: corev1.PodRunning})
			if again, err := g.launch(t, "s", making); err != nil || !again.Result.Duplicate {
				t.Fatalf("beside its Job: %+v, %v", again, err)
			}
			if !noted { // the instance was killed before it noted the Job
				lease := g.lease(t, claim.UID)
				delete(lease.Annotations, "flint.dev/job-uid")
				if _, err := g.client.CoordinationV1().Leases(g.namespace).Update(testContext(t), lease, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			g.delete(t, first)
			_, err := g.launch(t, "s", making)
			if e := fault(t, err, api.VolumeBusy); !strings.Contains(e.Message, pod.Name) || e.RetryAfter == 0 {
				t.Errorf("message %q", e.Message)
			}
			pod.Status = ended(0, "Completed", "")
			if _, err := g.client.CoreV1().Pods(g.namespace).UpdateStatus(testContext(t), pod, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if second := g.mustLaunch(t, "s", making); second.UID == first.UID {
				t.Error("the Job was not launched anew")
			}
		})
	}
}

// A turn that an earlier call of the same request took is gone on with for a moment alone: a clock that is half a minute ahead
// takes it for over soon after.
func TestRepeatRenewsAnOldTurn(t *testing.T) {
	for _, c := range []struct {
		ago   time.Duration
		renew bool
	}{{2 * time.Second, false}, {10 * time.Second, true}} {
		t.Run(c.ago.String(), func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			claim := g.claim(t, "data", nil)
			g.hold(t, claim, launch.ID(g.namespace, "s"), c.ago)
			before := g.lease(t, claim.UID).Spec.AcquireTime.Time
			g.mustLaunch(t, "s", making)
			if after := g.lease(t, claim.UID).Spec.AcquireTime.Time; after.After(before) != c.renew {
				t.Errorf("taken at %v, before at %v", after, before)
			}
		})
	}
}
