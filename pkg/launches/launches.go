// Package launches looks at what was launched, and ends it: a page of launches, one, the tail of its log, its cancel.
//
// Nothing is kept: the objects in the cluster are what there is. A launch is its workload, a Pod or a Job with
// Flint's bookkeeping, and is gone with it. The id is the workload's label flint.dev/id; by it alone a
// launch is found, with a list.
package launches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
)

const (
	// MaxPage is the most launches of one page.
	MaxPage = 100
	// maxRead is the most workloads that are read at once for a page: each may be more than a megabyte.
	maxRead = 20
	// maxTexts is after how many bytes of others' text a page ends early. What is read at once is never cut.
	maxTexts = 1 << 20
	// maxAttempts is how often one cancel meets a workload that others change.
	maxAttempts = 5
	// maxPods is the most pods of the Jobs of one page that are read. A Job of Flint's has one pod, or a few.
	maxPods = 500
	// notStarted is the advice where a container has not started yet.
	notStarted = 2 * time.Second
)

// Launches are those of one cluster. Every call needs a context with a deadline. Errors are *api.Error, or unexpected.
type Launches struct {
	Client kube.Client
	// Clock tells when a cancel was. Nil means the real one.
	Clock clock.PassiveClock
	// May tells whether the verb on all of the workloads, or on their subresource, is allowed to whoever asks; without a
	// name, on all of its kind. It is asked before anything of a workload is told or done, by Get, Log and Cancel. A refusal
	// is FORBIDDEN, and names the rights that are missing. Nil allows all.
	May func(ctx context.Context, verb, subresource string, of ...kube.Ref) error
	// Before, if not nil, is called with the workload before a Cancel deletes it. Its error ends the Cancel.
	Before func(ctx context.Context, workload *unstructured.Unstructured) error
}

// Name names one launch.
type Name struct {
	Namespace, ID string
	// Kind may be empty. An id is derived from namespace and submission id alone, so that launches of two
	// kinds may have it in common.
	Kind launch.Kind
}

func (n Name) String() string { return n.Namespace + "/" + n.ID }

// Query says which launches are listed.
type Query struct {
	Namespace string
	Kind      launch.Kind // empty means every one
	State     api.State   // empty means every one
	Parent    string      // of runners, its name or its uid; empty means every one
	Limit     int64       // 1 to MaxPage
	Continue  string      // of the page before; empty for the first
}

// List gives one page: Pods first, then Jobs, in the API server's order. The state is looked at after a page was read. A
// page is read in parts, of which one at a time is in memory whole.
func (l *Launches) List(ctx context.Context, q Query) (*api.LaunchList, error) {
	at, err := positionOf(q)
	if err != nil {
		return nil, err
	}
	list := &api.LaunchList{Items: []api.Launch{}}
	texts := 0
	for room := q.Limit; room > 0 && texts < maxTexts; {
		of := resources[at.Resource]
		of.Namespace = q.Namespace
		page, err := l.Client.List(ctx, of, kube.ListOptions{LabelSelector: selector("", q.Kind) + ofParent(q.Parent), Limit: min(room, maxRead), Continue: at.Continue})
		if err != nil {
			return nil, pageError(err, of, at)
		}
		found, err := l.launches(ctx, slices.DeleteFunc(slices.Clone(page.Items), func(w *unstructured.Unstructured) bool { return !hasParent(w, q.Parent) }))
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			if q.State == "" || one.State == q.State {
				list.Items = append(list.Items, one)
				texts += len(one.SubmissionID) + len(one.Message) + len(one.Result)
			}
		}
		room -= int64(len(page.Items))
		if at.Continue = page.Continue; at.Continue == "" {
			if at.Resource == lastResource {
				return list, nil
			}
			at.Resource = lastResource
		} else if len(page.Items) == 0 {
			break // an API server may answer so; the caller's next page goes on
		}
	}
	list.Continue = at.token()
	return list, nil
}

// pageError is what a page failed with. A continue that the API server does not take is the caller's.
func pageError(err error, of kube.Ref, at position) error {
	switch {
	case at.Continue == "":
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return &api.Error{Code: api.BadRequest, Field: "continue", Message: "the page is asked for too late: start anew, without continue", Cause: err}
	case apierrors.IsBadRequest(err):
		return &api.Error{Code: api.BadRequest, Field: "continue", Message: "continue is not what a page before answered", Cause: err}
	}
	return kube.Translate(err, "list", of)
}

// Get gives one launch.
func (l *Launches) Get(ctx context.Context, name Name) (*api.Launch, error) {
	workload, _, err := l.findTo(ctx, "get", "", name)
	if err != nil {
		return nil, err
	}
	found, err := l.launches(ctx, []*unstructured.Unstructured{workload})
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

// launches are those of the workloads that are Flint's. Of Jobs that have ended the pods are asked for, which tell how.
func (l *Launches) launches(ctx context.Context, workloads []*unstructured.Unstructured) ([]api.Launch, error) {
	var all []api.Launch
	var ended []int // Jobs, by their place in all
	jobs := map[string]*unstructured.Unstructured{}
	for _, workload := range workloads {
		if !ours(workload) {
			continue
		}
		one, err := Of(workload, nil)
		if err != nil {
			return nil, err
		}
		if workload.GetKind() == "Job" && one.Outcome != "" {
			ended = append(ended, len(all))
			jobs[one.UID] = workload
		}
		all = append(all, one)
	}
	if len(ended) == 0 {
		return all, nil
	}
	var uids []string
	for _, i := range ended {
		uids = append(uids, all[i].UID)
	}
	pods, err := l.podsOf(ctx, all[ended[0]].Namespace, uids...)
	if err != nil {
		return nil, err
	}
	for _, i := range ended {
		if all[i], err = Of(jobs[all[i].UID], pods); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (l *Launches) podsOf(ctx context.Context, namespace string, jobs ...string) ([]corev1.Pod, error) {
	of := resources[firstResource]
	of.Namespace = namespace
	page, err := l.Client.List(ctx, of, kube.ListOptions{
		LabelSelector: batchv1.ControllerUidLabel + " in (" + strings.Join(jobs, ",") + ")", Limit: maxPods,
	})
	if err != nil {
		return nil, kube.Translate(err, "list", of)
	}
	pods := make([]corev1.Pod, len(page.Items))
	for i, item := range page.Items {
		if err := typed(item, &pods[i]); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// selector selects workloads: only they have the label flint.dev/completion; support objects and a Job's pods may
// have the others.
func selector(id string, kind launch.Kind) string {
	parts := []string{launch.LabelID, launch.LabelCompletion}
	if id != "" {
		parts[0] += "=" + id
	}
	if kind != "" {
		parts = append(parts, launch.LabelKind+"="+string(kind))
	}
	return strings.Join(parts, ",")
}

// ofParent selects the runners of a parent by its uid. Its name may be longer than a label's value: see hasParent.
func ofParent(parent string) string {
	if !uidForm.MatchString(parent) {
		return ""
	}
	return "," + runner.LabelParentUID + "=" + parent
}

// hasParent tells whether the workload is a runner of the parent, by name or uid, or no parent was asked for.
func hasParent(workload *unstructured.Unstructured, parent string) bool {
	return parent == "" || workload.GetLabels()[runner.LabelParentUID] == parent || workload.GetAnnotations()[runner.AnnotationParent] == parent
}

// Kinds are those that a launch may have.
func Kinds() []launch.Kind { return []launch.Kind{launch.Spark, launch.File, launch.Runner} }

func ours(workload *unstructured.Unstructured) bool {
	return launch.Ours(workload) && slices.Contains(Kinds(), launch.Kind(workload.GetLabels()[launch.LabelKind]))
}

// uidForm is that of an object's uid.
var uidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// idForm is that of launch.ID.
var idForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

// IsID tells whether the text may be a launch's id.
func IsID(text string) bool { return idForm.MatchString(text) }

// find finds the workloads that may be meant, the first of each kind. Both resources are asked, so that a repeated cancel never
// meets a launch of another kind once the first is gone, unless it has been told of the choice. None is no error.
func (l *Launches) find(ctx context.Context, name Name) ([]*unstructured.Unstructured, error) {
	if !idForm.MatchString(name.ID) || len(validation.IsDNS1123Label(name.Namespace)) > 0 {
		return nil, nil
	}
	type answer struct {
		page *kube.Page
		err  error
	}
	answers := make(chan answer, len(resources))
	for _, of := range resources {
		of.Namespace = name.Namespace
		go func() {
			page, err := l.Client.List(ctx, of, kube.ListOptions{LabelSelector: selector(name.ID, name.Kind), Limit: 100})
			if err != nil {
				err = kube.Translate(err, "list", of)
			}
			answers <- answer{page, err}
		}()
	}
	var found []*unstructured.Unstructured
	var errs []error
	for range resources {
		a := <-answers
		if a.err != nil {
			errs = append(errs, a.err)
			continue
		}
		found = append(found, a.page.Items...)
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	slices.SortFunc(found, earlier)
	seen := map[string]bool{}
	return slices.DeleteFunc(found, func(w *unstructured.Unstructured) bool {
		kind := w.GetLabels()[launch.LabelKind]
		if !ours(w) || seen[kind] {
			return true
		}
		seen[kind] = true
		return false
	}), nil
}

// findTo finds the workload for a verb, or a verb on a subresource, that whoever asks must be allowed. One that they may not is to
// them as if it were not there: whatever there is, the answer is the same, and depends on their rights alone. With a subresource it
// gives the workload's pod too, or nil where there is none.
func (l *Launches) findTo(ctx context.Context, verb, subresource string, name Name) (*unstructured.Unstructured, *corev1.Pod, error) {
	all, err := l.find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var found []*unstructured.Unstructured
	var pod *corev1.Pod
	var refusal error
	for _, workload := range all {
		of, its, err := l.target(ctx, workload, subresource)
		if err == nil {
			err = l.may(ctx, verb, subresource, of)
		}
		switch {
		case err == nil:
			found, pod = append(found, workload), its
		case !isForbidden(err):
			return nil, nil, err
		default:
			refusal = err
		}
	}
	switch len(found) {
	case 0:
		return nil, nil, l.unseen(ctx, verb, subresource, name, refusal)
	case 1:
		return found[0], pod, nil
	}
	return nil, nil, api.FieldErrorf(api.BadRequest, "kind", "launches of the kinds %s and %s have this id, since their submission_id is the same: say which kind",
		found[0].GetLabels()[launch.LabelKind], found[1].GetLabels()[launch.LabelKind])
}

// target is what a right is asked for: the workload, or for its subresource its pod, which has no name where there is none.
func (l *Launches) target(ctx context.Context, workload *unstructured.Unstructured, subresource string) (kube.Ref, *corev1.Pod, error) {
	if subresource == "" {
		return kube.RefOf(workload.GetNamespace(), workload), nil, nil
	}
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: workload.GetNamespace()}
	pod, err := l.podOf(ctx, workload)
	if pod != nil {
		of.Name = pod.Name
	}
	return of, pod, err
}

// unseen is the answer about a launch that is not there, or that whoever asks may not see: FORBIDDEN where they may look at none
// that could have the name, and else NOT_FOUND, which says at what they may not. Why a launch that is there is not seen is its cause.
func (l *Launches) unseen(ctx context.Context, verb, subresource string, name Name, why error) error {
	kinds := []kube.Ref{resources[firstResource], resources[lastResource]}
	switch {
	case subresource != "", name.Kind == launch.Spark, name.Kind == launch.Runner:
		kinds = kinds[:1]
	case name.Kind == launch.File:
		kinds = kinds[1:]
	}
	var closed []kube.Ref
	for _, of := range kinds {
		of.Namespace = name.Namespace
		err := l.may(ctx, verb, subresource, of)
		if err != nil && !isForbidden(err) {
			return err
		}
		if err != nil {
			closed = append(closed, of)
		}
	}
	e := notFound(name)
	if len(closed) > 0 {
		refusal, ok := errors.AsType[*api.Error](l.may(ctx, verb, subresource, closed...))
		switch {
		case !ok: // it was allowed meanwhile
		case len(closed) == len(kinds) || refusal.Code != api.Forbidden:
			e = refusal
		default:
			e.Message += "; " + refusal.Message
		}
	}
	e.Cause = why
	return e
}

func (l *Launches) may(ctx context.Context, verb, subresource string, of ...kube.Ref) error {
	if l.May == nil {
		return nil
	}
	return l.May(ctx, verb, subresource, of...)
}

func isForbidden(err error) bool {
	known, ok := errors.AsType[*api.Error](err)
	return ok && known.Code == api.Forbidden
}

// earlier puts a workload that was released before one that is held, which may be a second one that is
// about to be refused, and the older one first.
func earlier(a, b *unstructured.Unstructured) int {
	if launch.Held(a) != launch.Held(b) {
		if launch.Held(a) {
			return 1
		}
		return -1
	}
	if c := a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time); c != 0 {
		return c
	}
	return strings.Compare(a.GetName(), b.GetName())
}

func notFound(name Name) *api.Error {
	return api.Errorf(api.NotFound, "no launch %s: the id is 32 hexadecimal digits, and its workload may be gone", name)
}

// Log opens the tail of the log of the workload's own container: of a Job, of its newest pod. Close it. Reading
// ends with the context, or after limitBytes.
func (l *Launches) Log(ctx context.Context, name Name, tailLines, limitBytes int64) (io.ReadCloser, error) {
	workload, pod, err := l.findTo(ctx, "get", "log", name)
	if err != nil {
		return nil, err
	}
	if pod == nil || !hasStarted(pod) {
		one, err := Of(workload, nil)
		if err != nil {
			return nil, err
		}
		if one.Outcome != "" {
			return nil, api.Errorf(api.NotFound, "launch %s has no log: it %s (%s), and no container that ran is left", name, one.State, one.Reason)
		}
		return nil, waits(name, one.State)
	}
	ref := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	text, err := l.Client.Log(ctx, ref, completion.Container(pod), tailLines, limitBytes)
	switch {
	case apierrors.IsBadRequest(err): // not Translate's: it is no fault of a template
		return nil, &api.Error{Code: api.NotFound, Message: fmt.Sprintf("launch %s has no log: %s", name, reasonOf(err)), Cause: err}
	case err != nil:
		return nil, kube.Translate(err, "read the log of", ref)
	}
	return text, nil
}

// podOf is the pod of the workload, or nil.
func (l *Launches) podOf(ctx context.Context, workload *unstructured.Unstructured) (*corev1.Pod, error) {
	if workload.GetKind() == "Pod" {
		pod := &corev1.Pod{}
		return pod, typed(workload, pod)
	}
	pods, err := l.podsOf(ctx, workload.GetNamespace(), string(workload.GetUID()))
	if err != nil {
		return nil, err
	}
	return newest(workload, pods), nil
}

// waits is retryable: nothing but time is missing, which is what SUBMITTER_OVERLOADED says to a caller, and no final
// code does. The only 409 is of a name that is taken, for good.
func waits(name Name, state api.State) *api.Error {
	e := api.Errorf(api.SubmitterOverloaded, "launch %s is %s and has no log yet: its container has not started; ask again", name, state)
	e.RetryAfter = notStarted
	return e
}

func reasonOf(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return http.StatusText(http.StatusBadRequest)
	}
	return status.Status().Message
}

// Cancelled is a launch whose deletion is under way.
type Cancelled struct {
	Launch api.Launch
	Ref    kube.Ref
	// Last is the workload's last state that is known, as completion.Poller.One takes it.
	Last *unstructured.Unstructured
}

// Cancel deletes the workload, in the background, if it is as it was read. Where its end was not told, it is kept until
// it was (completion.Keep): whatever this process comes to, what is left tells its end to a Poller. A deletion that
// is under way already is left alone.
func (l *Launches) Cancel(ctx context.Context, name Name) (*Cancelled, error) {
	workload, _, err := l.findTo(ctx, "delete", "", name)
	if err == nil && l.Before != nil {
		err = l.Before(ctx, workload)
	}
	if err != nil {
		return nil, err
	}
	ref, uid := kube.RefOf(name.Namespace, workload), workload.GetUID()
	for range maxAttempts {
		if workload.GetDeletionTimestamp() != nil {
			return l.cancelled(ctx, ref, workload)
		}
		workload, err = l.remove(ctx, ref, workload)
		if err == nil {
			return l.cancelled(ctx, ref, l.deleted(workload))
		}
		// A patch with the uid of an earlier incarnation is 422, and every other write 409.
		if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !unanswered(err) {
			break
		}
		// Changed since it was read; or the answer was lost, and it may be deleted or not.
		found, failed := l.Client.Get(ctx, ref)
		gone := apierrors.IsNotFound(failed) || failed == nil && found.GetUID() != uid
		switch {
		case gone && unanswered(err):
			return l.cancelled(ctx, ref, l.deleted(workload))
		case gone:
			return nil, notFound(name)
		case failed != nil:
			return nil, kube.Translate(failed, "get", ref)
		}
		workload = found
	}
	if apierrors.IsNotFound(err) { // somebody else deleted it meanwhile
		return nil, notFound(name)
	}
	return nil, kube.Translate(err, "delete", ref)
}

// remove deletes the workload as it was read, kept if its end is to be told. It gives the workload as it was deleted.
func (l *Launches) remove(ctx context.Context, ref kube.Ref, workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if patch := completion.Keep(workload); patch != nil {
		kept, err := l.Client.Patch(ctx, ref, types.MergePatchType, patch)
		if err != nil {
			return workload, err
		}
		workload = &unstructured.Unstructured{Object: maps.Clone(workload.Object)}
		workload.Object["metadata"] = kept.Object["metadata"]
	}
	return workload, l.Client.DeleteUnchanged(ctx, ref, workload.GetUID(), workload.GetResourceVersion())
}

// unanswered tells an error that leaves open whether the API server has done what it was asked.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsInternalError(err)
}

// deleted is the workload as it is once it has been deleted.
func (l *Launches) deleted(workload *unstructured.Unstructured) *unstructured.Unstructured {
	workload = workload.DeepCopy()
	now := metav1.NewTime(l.now())
	workload.SetDeletionTimestamp(&now)
	return workload
}

func (l *Launches) cancelled(ctx context.Context, ref kube.Ref, workload *unstructured.Unstructured) (*Cancelled, error) {
	completion.EndPods(ctx, l.Client, workload)
	found, err := l.launches(ctx, []*unstructured.Unstructured{workload})
	if err != nil { // the pods of a Job: it can do without
		one, failed := Of(workload, nil)
		if failed != nil {
			return nil, failed
		}
		found = []api.Launch{one}
	}
	if len(found) == 0 { // its bookkeeping was taken off it meanwhile
		return nil, api.Errorf(api.NotFound, "%s is no launch any more", ref)
	}
	return &Cancelled{Launch: found[0], Ref: ref, Last: workload}, nil
}

func (l *Launches) now() time.Time {
	if l.Clock == nil {
		return time.Now()
	}
	return l.Clock.Now()
}
