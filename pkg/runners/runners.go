// Package runners launches runners and sees to their lives: the look at a parent, the launch, the boot and its giving up, the
// quota, the back-off, and what is left to sweep.
//
// Nothing is kept: the objects in the cluster are what there is, and any instance goes on where another stopped. What
// arbitrates between instances is the API server:
//
//   - A key has a mark, a Lease whose name depends on the key alone, which the pod owns like its Secret. Whoever gives a
//     key up, for a boot that does not come or on demand, first makes a tombstone of the mark and then deletes the pod. A
//     launch of that key that is slow, or comes again, meets the tombstone while its pod is still held, and withdraws.
//   - Runners are counted once the new pod is there, held. Among those that are held at the same time the order is that of
//     their creation, so that instances agree on who is one too many.
//   - After a boot that failed, its shape is left alone for a while: a Lease says until when. Then one launch tries, and
//     takes that turn by a write that only one can do.
package runners

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/startup"
)

const (
	// maxAttempts is how often one call meets an object that others change.
	maxAttempts = 5
	// callLimit is for what is done when the caller's own time is over: a give-up with all its writes.
	callLimit = 10 * time.Second
	// pageSize is the most objects of one page of a list.
	pageSize = 500
)

// Runners are those of one cluster. Its methods may be called at the same time. Calls need a context with a deadline.
// Errors are *api.Error, or unexpected.
type Runners struct {
	Client   kube.Client
	Follower *follow.Follower
	// Apply brings a plan to the cluster.
	Apply    func(ctx context.Context, plan *launch.Plan) (*launch.Result, error)
	Settings Settings
	Clock    clock.Clock  // nil means the real one
	Log      *slog.Logger // nil means none
}

// Settings of Runners. The zero value has no quotas and no graces.
type Settings struct {
	Runner runner.Settings
	// MaxPerParent and MaxPerNamespace are how many runners may live at once; zero is no bound.
	MaxPerParent, MaxPerNamespace int
	// OrphanGrace is how long a runner with the owner "none" outlives its parent.
	OrphanGrace time.Duration
	Graces      startup.Graces
}

// Launched is a runner that is there.
type Launched struct {
	Runner *runner.Runner
	Plan   *launch.Plan
	Result *launch.Result

	began   time.Time // of the call
	shape   string
	secrets []string // values that no text of the runner's may have
	// unmasked is true where not all of them are known.
	unmasked bool
}

// Plan looks at the parent and makes the plan, without a launch: for a dry run. allow is asked about the parent before
// anything is told of it; found is nil where there is none.
func (r *Runners) Plan(ctx context.Context, request *api.RunnerRequest, traceparent string, allow Allow) (*runner.Runner, error) {
	facts, err := r.facts(ctx, request, allow)
	if err != nil {
		return nil, err
	}
	planned, err := runner.Plan(request, facts, r.Settings.Runner, traceparent)
	if err != nil {
		return nil, err
	}
	planned.Plan.Confirm, err = r.confirm(planned)
	return planned, err
}

// Allow tells whether the caller may have runners of the parent. found is nil where there is no such pod.
type Allow func(ctx context.Context, parent kube.Ref, found *unstructured.Unstructured) error

// Launch looks at the parent and creates the runner, or finds that it is there. It does not wait for its boot: see Wait.
func (r *Runners) Launch(ctx context.Context, request *api.RunnerRequest, traceparent string, allow Allow) (*Launched, error) {
	began := r.now()
	planned, err := r.Plan(ctx, request, traceparent, allow)
	if err != nil {
		return nil, err
	}
	l := &Launched{Runner: planned, Plan: planned.Plan, began: began, shape: shapeOf(planned.Plan.Workload)}
	for _, value := range request.SecretEnv {
		l.secrets = append(l.secrets, value)
	}
	tries, err := r.turn(ctx, l)
	if err != nil {
		return nil, err
	}
	l.Result, err = r.Apply(ctx, l.Plan)
	if err != nil {
		if tries {
			r.giveTurnBack(ctx, l)
		}
		return nil, err
	}
	if l.Result.Duplicate {
		r.ownSecrets(ctx, l)
		return l, r.unlessGivenUp(ctx, l)
	}
	return l, nil
}

// ownSecrets adds the values that the runner of a repeated request has: the repeat may have others.
func (r *Runners) ownSecrets(ctx context.Context, l *Launched) {
	pod, err := podOf(l.Result.Workload)
	if err != nil {
		l.unmasked = true
		return
	}
	secrets, known := r.secretsOf(ctx, pod)
	l.secrets = append(l.secrets, secrets...)
	l.unmasked = !known
}

// secretsOf are the values of the Secret that goes with the runner's pod, if it has one. known is false where not all can be read.
func (r *Runners) secretsOf(ctx context.Context, pod *corev1.Pod) (values []string, known bool) {
	if !runner.HasSecret(pod) {
		return nil, true
	}
	secret, err := r.Client.Get(ctx, kube.Ref{APIVersion: "v1", Kind: "Secret", Namespace: pod.Namespace, Name: pod.Name})
	if err != nil {
		return nil, false
	}
	data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
	known = true
	for _, encoded := range data {
		value, err := base64.StdEncoding.DecodeString(encoded)
		known = known && err == nil
		values = append(values, string(value))
	}
	return values, known
}

// unlessGivenUp refuses a repeat whose runner lives although its key was given up, since whoever did that did not come to
// end it. That is done now.
func (r *Runners) unlessGivenUp(ctx context.Context, l *Launched) error {
	ref := leaseRef(l.Plan.Namespace, runner.MarkName(l.Plan.ID))
	stone, err := r.Client.Get(ctx, ref)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return kube.Translate(err, "get", ref)
	}
	pod, err := podOf(l.Result.Workload)
	if err != nil {
		return err
	}
	why := stone.GetAnnotations()[launch.AnnotationGivenUp]
	if _, ended := completion.OfPod(pod, completion.Bounds{}, r.now()); why == "" || ended {
		return nil
	}
	if _, err := r.finish(ctx, stone); err != nil {
		r.log().Warn("a runner whose key was given up could not be ended now", "namespace", pod.Namespace, "name", pod.Name, "error", err.Error())
	}
	return api.Errorf(api.Gone, "submission_id %s was given up, and its runner ends: %s; use a new one", l.Plan.SubmissionID, why)
}

// Answer is the runner as far as its launch knows it.
func (l *Launched) Answer() *api.Runner {
	workload := l.Result.Workload
	answer := &api.Runner{
		SubmissionID: l.Plan.SubmissionID, ID: l.Plan.ID, State: api.RunnerPending,
		Namespace: l.Plan.Namespace, Name: workload.GetName(), UID: string(workload.GetUID()), CreatedAt: l.Result.CreatedAt.UTC(),
		DuplicateSubmission: l.Result.Duplicate, Warnings: l.Runner.Warnings,
	}
	if pod, err := podOf(workload); err == nil && l.Result.Duplicate { // it was read whole
		describe(answer, pod, l.began)
	}
	return answer
}

func (r *Runners) clock() clock.Clock {
	if r.Clock == nil {
		return clock.RealClock{}
	}
	return r.Clock
}

func (r *Runners) now() time.Time { return r.clock().Now() }

func (r *Runners) log() *slog.Logger {
	if r.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Log
}

func podRef(namespace, name string) kube.Ref {
	return kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name}
}

func podOf(object *unstructured.Unstructured) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		return nil, fmt.Errorf("read Pod %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return pod, nil
}

// each goes through all pages of a list. A list whose pages have expired (410) ends early, with that error: whoever sweeps
// comes again, and whoever counts may be asked again.
func each(ctx context.Context, client kube.Client, of kube.Ref, options kube.ListOptions, do func(*unstructured.Unstructured)) *api.Error {
	options.Limit = pageSize
	for {
		page, err := client.List(ctx, of, options)
		if err != nil {
			return kube.Translate(err, "list", of)
		}
		for _, item := range page.Items {
			do(item)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// isLost tells whether a write failed since the object of that uid and version is there no more. A patch
// with the uid of an earlier incarnation is 422.
func isLost(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}
