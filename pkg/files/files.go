// Package files launches file jobs and tells what became of them: the look at a claim, the turn of those who change it, the
// launch, the wait, the result.
//
// Nothing is kept: the objects in the cluster are what there is, and any instance can answer for the launch of any other.
package files

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/follow"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/startup"
)

// Files are the file jobs of one cluster. Every call needs a context with a deadline. Errors are *api.Error, or unexpected.
type Files struct {
	Client   kube.Client
	Follower *follow.Follower
	// Apply brings a plan to the cluster.
	Apply    func(ctx context.Context, plan *launch.Plan) (*launch.Result, error)
	Settings Settings
	// Cancel ends a job that cannot start, for the reason, and has its end told.
	Cancel func(ctx context.Context, job *unstructured.Unstructured, why *api.Error) error
	Clock  clock.PassiveClock // nil means the real one
	// Graces of a pod that does not start; PodGrace is how long a Job may be without one. Zero means the defaults.
	Graces   *startup.Graces
	PodGrace time.Duration
}

// Settings of Files.
type Settings struct {
	Job filejob.Settings
	// ClaimLabel is one that a claim must have, as "key=value" or "key"; empty means none.
	ClaimLabel string
	// Unbound allows claims that nothing is bound to yet: the operation's pod then decides, as the first consumer, where their
	// volume comes to be.
	Unbound bool
}

// Launched is a file job that is there.
type Launched struct {
	Plan   *launch.Plan
	Result *launch.Result
	// Job is the answer as long as nothing more is known.
	Job *api.FileJob
}

// Plan looks at the claim and makes the plan, without a launch: for a dry run.
func (f *Files) Plan(ctx context.Context, request *api.FileRequest, traceparent string) (*launch.Plan, error) {
	l, err := f.look(ctx, request)
	if err != nil {
		return nil, err
	}
	return filejob.Plan(request, l.facts, f.Settings.Job, traceparent)
}

// Launch looks at the claim, takes the turn of an operation that changes it, and launches. A repeat of a request whose
// job is there is a duplicate, whatever has become of the claim since.
func (f *Files) Launch(ctx context.Context, request *api.FileRequest, traceparent string) (*Launched, error) {
	l, err := f.launch(ctx, request, traceparent)
	if err == nil {
		return l, nil
	}
	if again, found := f.repeat(ctx, request, traceparent); found {
		return again, nil
	}
	return nil, err
}

func (f *Files) launch(ctx context.Context, request *api.FileRequest, traceparent string) (*Launched, error) {
	look, err := f.look(ctx, request)
	if err != nil {
		return nil, err
	}
	plan, err := filejob.Plan(request, look.facts, f.Settings.Job, traceparent)
	if err != nil {
		return nil, err
	}
	var taken *turn
	if request.Operation.Mutates() {
		if taken, err = f.takeTurn(ctx, plan, look.claim); err != nil {
			return nil, err
		}
	}
	result, err := f.Apply(ctx, plan)
	if err != nil {
		f.giveBack(ctx, taken, err)
		return nil, err
	}
	f.noteJob(ctx, taken, result)
	return &Launched{Plan: plan, Result: result, Job: f.answer(plan, result)}, nil
}

// repeat finds the job of an earlier call of the same request. It says nothing of one that is held: that needs the
// launch, to be completed.
func (f *Files) repeat(ctx context.Context, request *api.FileRequest, traceparent string) (*Launched, bool) {
	id := launch.ID(request.Target.Namespace, request.SubmissionID)
	job, err := f.job(ctx, request.Target.Namespace, id)
	if err != nil || launch.Held(job) || job.GetDeletionTimestamp() != nil {
		return nil, false
	}
	plan, err := filejob.Plan(request, filejob.Facts{}, f.Settings.Job, traceparent)
	if err != nil || job.GetAnnotations()[launch.AnnotationHash] != plan.Hash {
		return nil, false
	}
	result := &launch.Result{Duplicate: true, Workload: job, CreatedAt: job.GetCreationTimestamp().Time}
	return &Launched{Plan: plan, Result: result, Job: f.answer(plan, result)}, true
}

// answer is what is known of a job that was just launched, or met.
func (f *Files) answer(plan *launch.Plan, result *launch.Result) *api.FileJob {
	annotations := result.Workload.GetAnnotations()
	return &api.FileJob{
		SubmissionID: plan.SubmissionID, ID: plan.ID, Namespace: plan.Namespace,
		Claim: annotations[filejob.AnnotationClaim], Op: api.Op(result.Workload.GetLabels()[filejob.LabelOp]),
		Job: result.Workload.GetName(), UID: string(result.Workload.GetUID()), State: api.StatePending,
		CreatedAt: result.CreatedAt.UTC().Format(time.RFC3339), DuplicateSubmission: result.Duplicate,
		Consistency: annotations[filejob.AnnotationConsistency],
	}
}

// idForm is that of launch.ID.
var idForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// job reads the Job of a file job's id. It is an *api.Error NOT_FOUND where there is none of Flint's.
func (f *Files) job(ctx context.Context, namespace, id string) (*unstructured.Unstructured, error) {
	missing := api.Errorf(api.NotFound, "no file job %s/%s: the id is 32 hexadecimal digits, and its Job may be gone", namespace, id)
	if !idForm.MatchString(id) {
		return nil, missing
	}
	ref := kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace, Name: filejob.JobName(id)}
	job, err := f.Client.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, missing
	case err != nil:
		return nil, kube.Translate(err, "get", ref)
	case !launch.Ours(job) || job.GetLabels()[launch.LabelKind] != string(launch.File) || job.GetLabels()[launch.LabelID] != id:
		return nil, missing
	}
	return job, nil
}

// pods are those of the launches, as they are now.
func (f *Files) pods(ctx context.Context, namespace string, ids ...string) ([]corev1.Pod, error) {
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace}
	page, err := f.Client.List(ctx, of, kube.ListOptions{LabelSelector: launch.LabelID + " in (" + strings.Join(ids, ",") + ")"})
	if err != nil {
		return nil, kube.Translate(err, "list", of)
	}
	return podsOf(page)
}

func podsOf(page *kube.Page) ([]corev1.Pod, error) {
	pods := make([]corev1.Pod, len(page.Items))
	for i, item := range page.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &pods[i]); err != nil {
			return nil, fmt.Errorf("read Pod %s/%s: %w", item.GetNamespace(), item.GetName(), err)
		}
	}
	return pods, nil
}

// events are those about the object of that uid, or none where they may not be listed: then the wait knows less.
func (f *Files) events(ctx context.Context, namespace, uid string) []corev1.Event {
	of := kube.Ref{APIVersion: "v1", Kind: "Event", Namespace: namespace}
	page, err := f.Client.List(ctx, of, kube.ListOptions{FieldSelector: "involvedObject.uid=" + uid, Limit: maxEvents})
	if err != nil {
		return nil
	}
	var events []corev1.Event
	for _, item := range page.Items {
		var event corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &event) == nil {
			events = append(events, event)
		}
	}
	return events
}

// maxEvents is the most events of one object that are looked at. The API server keeps them for an hour.
const maxEvents = 100

// List are the newest file jobs of the namespace, at most MaxJobs, or those on one claim. Of those that run it tells how far they
// have come, of those that have ended what their pods' statuses tell.
func (f *Files) List(ctx context.Context, namespace, claim string) (*api.FileJobList, error) {
	selector := launch.LabelKind + "=" + string(launch.File) + "," + launch.LabelCompletion
	if claim != "" {
		found, err := f.claim(ctx, namespace, claim)
		if err != nil {
			return nil, err
		}
		selector += "," + filejob.LabelClaim + "=" + string(found.UID)
	}
	jobs, err := f.newest(ctx, kube.Ref{APIVersion: "batch/v1", Kind: "Job", Namespace: namespace}, selector)
	if err != nil {
		return nil, err
	}
	list := &api.FileJobList{Items: []api.FileJob{}}
	if len(jobs) == 0 {
		return list, nil
	}
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.GetLabels()[launch.LabelID])
	}
	pods, err := f.pods(ctx, namespace, ids...)
	if err != nil {
		return nil, err
	}
	states := make([]*filejob.State, len(jobs))
	for i, job := range jobs {
		if states[i], err = filejob.Of(job, pods); err != nil {
			return nil, err
		}
	}
	f.progress(ctx, states)
	for _, s := range states {
		list.Items = append(list.Items, s.Job)
	}
	return list, nil
}

// MaxJobs is the most jobs of a list.
const MaxJobs = 50

// pageSize is the most objects of one page of what is listed whole.
const pageSize = 500

// newest are the newest jobs: the API server lists by name, so all are looked at, a page at a time.
func (f *Files) newest(ctx context.Context, of kube.Ref, selector string) ([]*unstructured.Unstructured, error) {
	var jobs []*unstructured.Unstructured
	options := kube.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		page, err := f.Client.List(ctx, of, options)
		if err != nil {
			return nil, kube.Translate(err, "list", of)
		}
		for _, job := range page.Items {
			if launch.Ours(job) && idForm.MatchString(job.GetLabels()[launch.LabelID]) {
				jobs = append(jobs, job)
			}
		}
		slices.SortFunc(jobs, func(a, b *unstructured.Unstructured) int {
			if c := b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time); c != 0 {
				return c
			}
			return strings.Compare(a.GetName(), b.GetName())
		})
		jobs = jobs[:min(len(jobs), MaxJobs)]
		if options.Continue = page.Continue; options.Continue == "" {
			return jobs, nil
		}
	}
}

func (f *Files) now() time.Time {
	if f.Clock == nil {
		return time.Now()
	}
	return f.Clock.Now()
}

// isCode tells whether the error is an *api.Error of that code.
func isCode(err error, code api.Code) bool {
	known, ok := errors.AsType[*api.Error](err)
	return ok && known.Code == code
}
