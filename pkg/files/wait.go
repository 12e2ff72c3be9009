package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/startup"
)

const (
	// lookInterval is from one look at why a pod does not start, or is not there, to the next.
	lookInterval = 500 * time.Millisecond
	// listenInterval is from one list of events to the next.
	listenInterval = time.Second
	// defaultPodGrace is how long the Job controller may take to create a pod.
	defaultPodGrace = 2 * time.Second
	// callLimit bounds one call while somebody waits.
	callLimit = 10 * time.Second

	// tailLines and tailBytes are what is read of a log when the pieces of a result are counted: more than the pieces, since others
	// may have written after them. wholeBytes is more than a log file before the kubelet rotates it, which it
	// does at 10 MiB (containerLogMaxSize).
	tailLines  = 100
	tailBytes  = 2 << 20
	wholeLines = 10_000_000
	wholeBytes = 64 << 20

	// Of a job that runs, the last progress is looked for in so much of its log.
	progressLines   = 20
	progressBytes   = 32 << 10
	progressAtOnce  = 8
	progressTimeout = 3 * time.Second
)

// Get tells what became of the file job, now.
func (f *Files) Get(ctx context.Context, namespace, id string) (*filejob.State, error) {
	job, err := f.job(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	pods, err := f.pods(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	state, err := filejob.Of(job, pods)
	if err != nil {
		return nil, err
	}
	if !state.Ended {
		f.progress(ctx, []*filejob.State{state})
		return state, nil
	}
	f.complete(ctx, state)
	return state, nil
}

// Wait waits for the end of the file job, as long as the context lasts and enough is not closed, and tells what it is. A job that has
// not ended by then is no error. One that cannot start is ended, so that it does not run later, when nobody expects it: its
// failure says so in its details.
func (f *Files) Wait(ctx context.Context, enough <-chan struct{}, namespace, id string) (*filejob.State, error) {
	// The end of the wait ends the wait alone, and no call that tells what was waited for.
	calls := context.WithoutCancel(ctx)
	w := &waiting{Files: f, namespace: namespace, id: id, began: f.now()}
	following, stop := context.WithCancel(ctx)
	lists, failed, left := f.follow(following, namespace, id)
	defer left()
	defer stop()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return f.limitedGet(calls, namespace, id)
		case <-enough:
			return f.limitedGet(calls, namespace, id)
		case err := <-failed:
			if ctx.Err() != nil {
				return f.limitedGet(calls, namespace, id)
			}
			return nil, kube.Translate(err, "list", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: namespace})
		case w.pods = <-lists:
			w.seen = true
		case <-ticker.C:
		}
		if !w.seen {
			continue
		}
		state, err := w.look(calls)
		if state != nil || err != nil {
			return state, err
		}
	}
}

func (f *Files) limitedGet(ctx context.Context, namespace, id string) (*filejob.State, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return f.Get(ctx, namespace, id)
}

// follow gives the newest list of the launch's pods, whenever it is another, until the context ends or the API server refuses; left
// returns when it has ended.
func (f *Files) follow(ctx context.Context, namespace, id string) (lists chan []corev1.Pod, failed chan error, left func()) {
	lists, failed = make(chan []corev1.Pod, 1), make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		failed <- f.Follower.Pods(ctx, namespace, id, func(pods []corev1.Pod) bool {
			select {
			case <-lists: // one that nobody has looked at
			default:
			}
			lists <- pods
			return false
		})
	})
	return lists, failed, wg.Wait
}

// waiting is one call of Wait.
type waiting struct {
	*Files
	namespace, id string
	began         time.Time
	pods          []corev1.Pod
	seen          bool        // pods is what a list said
	had           bool        // there was a pod
	last          *corev1.Pod // as it was before anybody deleted it
	looked        time.Time   // when the Job was looked at, or what keeps the pod was judged
	heard         []corev1.Event
	heardOf       string    // the uid that they are about
	listened      time.Time // when they were listed
}

// listen gives the events about the object of that uid. They are listed less often than all else is looked at.
func (w *waiting) listen(ctx context.Context, uid string) []corev1.Event {
	if now := w.now(); w.heardOf != uid || now.Sub(w.listened) >= listenInterval {
		w.heard, w.heardOf, w.listened = w.events(ctx, w.namespace, uid), uid, now
	}
	return w.heard
}

// look tells the end, if there is one.
func (w *waiting) look(ctx context.Context) (*filejob.State, error) {
	ended, waits := false, (*corev1.Pod)(nil)
	for i := range w.pods {
		ended = ended || filejob.PodEnded(&w.pods[i])
		waits = &w.pods[i]
	}
	if waits != nil && waits.DeletionTimestamp == nil {
		w.last = waits
	}
	now := w.now()
	switch {
	case ended:
		return w.end(ctx)
	case now.Sub(w.looked) < lookInterval:
		return nil, nil
	case waits == nil && !w.had && now.Sub(w.began) < w.podGrace():
		return nil, nil
	}
	w.had = w.had || waits != nil
	w.looked = now
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if waits == nil {
		return w.withoutPod(ctx)
	}
	return w.judge(ctx, waits)
}

// end tells the end by a pod that has ended. The pods are those of the list, and the Job is read once.
func (w *waiting) end(ctx context.Context) (*filejob.State, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	job, err := w.job(ctx, w.namespace, w.id)
	if err != nil {
		return nil, w.gone(err)
	}
	state, err := filejob.Of(job, w.pods)
	if err != nil || !state.Ended { // not of this Job
		return nil, err
	}
	w.complete(ctx, state)
	return state, nil
}

// withoutPod looks at a Job without a pod: it may have ended, be gone, or be refused one.
func (w *waiting) withoutPod(ctx context.Context) (*filejob.State, error) {
	job, err := w.job(ctx, w.namespace, w.id)
	if err != nil {
		return nil, w.gone(err)
	}
	state, err := filejob.Of(job, w.pods)
	if err != nil {
		return nil, err
	}
	if state.Ended {
		return state, nil
	}
	if launch.Held(job) {
		return nil, nil
	}
	if why := filejob.NotCreated(w.listen(ctx, string(job.GetUID()))); why != nil {
		return w.giveUp(ctx, job, state, why)
	}
	return nil, nil
}

// judge looks at what keeps the pod from starting.
func (w *waiting) judge(ctx context.Context, pod *corev1.Pod) (*filejob.State, error) {
	graces := w.graces()
	var events []corev1.Event
	if startup.WantsEvents(pod, graces, w.now()) {
		events = w.listen(ctx, string(pod.UID))
	}
	trouble, found := startup.Judge(pod, events, graces, w.now())
	if !found && pod.DeletionTimestamp == nil {
		return nil, nil
	}
	job, err := w.job(ctx, w.namespace, w.id)
	if err != nil {
		return nil, w.gone(err)
	}
	state, err := filejob.Of(job, w.pods)
	if err != nil {
		return nil, err
	}
	if state.Ended { // the Job has failed or is being deleted, and the pod goes with it
		return state, nil
	}
	if !found {
		return nil, nil
	}
	why := api.Errorf(trouble.Code, "the operation's pod does not start: %s", trouble.Message)
	if node := filejob.NodeOf(&pod.Spec); node != "" && trouble.Code == api.Unschedulable {
		why.Message += fmt.Sprintf("; it must run on node %s, which has the claim", node)
	}
	return w.giveUp(ctx, job, state, why)
}

// giveUp ends a job that cannot start. A pod that has begun since it was judged goes on; of one that begins while its Job is deleted
// the message says so.
func (w *waiting) giveUp(ctx context.Context, job *unstructured.Unstructured, state *filejob.State, why *api.Error) (*filejob.State, error) {
	if w.begun(ctx, job) {
		return nil, nil
	}
	details := &api.FileJobDetails{Namespace: w.namespace, ID: w.id, Job: job.GetName(), UID: string(job.GetUID()), Deleted: true}
	if err := w.Cancel(ctx, job, why); err != nil {
		details.Deleted = false
		why.Message += "; its Job could not be deleted, and may run later: " + toAPI(err).Message
	} else {
		why.Message += "; its Job was deleted"
	}
	if state.Mutates() && w.begun(ctx, job) {
		why.Message += ", but its pod began just then: whether it changed something is not known"
	}
	why.Details = details
	state.Ended = true
	state.Fail(why)
	return state, nil
}

// begun tells whether the agent of a pod of the Job runs, or has.
func (w *waiting) begun(ctx context.Context, job *unstructured.Unstructured) bool {
	pods, err := w.Files.pods(ctx, w.namespace, w.id)
	if err != nil {
		return false
	}
	state, err := filejob.Of(job, pods)
	return err == nil && state.Job.StartedAt != ""
}

// gone tells a Job that is not there any more. One whose pod did not start may have been ended by a Poller, whose bounds need not be
// this wait's: what kept the pod is what there is to tell then, whoever deleted it.
func (w *waiting) gone(err error) error {
	if !isCode(err, api.NotFound) {
		return err
	}
	if w.last != nil {
		why, found := startup.Judge(w.last, nil, startup.Graces{}, w.now())
		if found && (why.Code == api.Unschedulable || why.Code == api.ImagePull) {
			return api.Errorf(why.Code, "the operation's Job was deleted, and its pod had not started: %s", why.Message)
		}
	}
	return api.Errorf(api.Cancelled, "the operation's Job was deleted while its end was waited for; what it had done by then is done")
}

func (w *waiting) podGrace() time.Duration {
	if w.PodGrace == 0 {
		return defaultPodGrace
	}
	return w.PodGrace
}

func (f *Files) graces() startup.Graces {
	if f.Graces == nil {
		return startup.DefaultGraces()
	}
	return *f.Graces
}

// complete reads the whole result, where the pod's status has only a part of it or none, and puts it, or
// why it cannot be had, into the state.
func (f *Files) complete(ctx context.Context, s *filejob.State) {
	if !s.WantsLog() {
		return
	}
	result, err := f.whole(ctx, s)
	switch {
	case err == nil:
		s.Conclude(result)
	case s.Result != nil && isCode(err, api.ResultMissing) && s.Mutates():
		// What was changed is told by what the status has; only its bulk is lost.
	case s.Result != nil:
		e := toAPI(err)
		e.Details = s.Result
		s.Fail(e)
	case s.Failure == nil || s.Failure.Code == api.ResultMissing:
		s.Fail(toAPI(err)) // with the end of the log
	}
}

// whole reads the result from the log: from its end, as far as the result may be, and if that is not enough, all of it.
func (f *Files) whole(ctx context.Context, s *filejob.State) (*api.FileResult, error) {
	lines, bytes := int64(tailLines), int64(tailBytes)
	if s.Result != nil && s.Result.Partial != nil {
		pieces := s.Result.Partial.Length/protocol.MaxPiece + 2
		lines, bytes = lines+2*pieces, bytes+2*s.Result.Partial.Length
	}
	result, err := f.read(ctx, s.Pod, lines, bytes)
	if err != nil {
		result, err = f.read(ctx, s.Pod, wholeLines, wholeBytes)
	}
	return result, err
}

func (f *Files) read(ctx context.Context, pod *corev1.Pod, lines, bytes int64) (*api.FileResult, error) {
	log, err := f.log(ctx, pod, lines, bytes)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	termination := ""
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == filejob.Container && status.State.Terminated != nil {
			termination = status.State.Terminated.Message
		}
	}
	result, _, err := protocol.Read(log, string(pod.UID), termination)
	if err != nil && !errors.As(err, new(*api.Error)) {
		return nil, &api.Error{Code: api.ResultMissing, Message: "the log, which has the result, broke off", Cause: err}
	}
	return result, err
}

func (f *Files) log(ctx context.Context, pod *corev1.Pod, lines, bytes int64) (io.ReadCloser, error) {
	ref := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name}
	log, err := f.Client.Log(ctx, ref, filejob.Container, lines, bytes)
	switch {
	case err == nil:
		return log, nil
	case apierrors.IsForbidden(err):
		return nil, kube.Translate(err, "read the log of", ref)
	}
	return nil, &api.Error{Code: api.ResultMissing, Message: "the log, which has the result, cannot be read: " + kube.Translate(err, "read the log of", ref).Message, Cause: err}
}

// progress puts into the running jobs how far they have come. One that cannot be read is left out.
func (f *Files) progress(ctx context.Context, states []*filejob.State) {
	slots := make(chan struct{}, progressAtOnce)
	var wg sync.WaitGroup
	for _, s := range states {
		if s.Ended || s.Pod == nil || s.Job.State != api.StateRunning {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			ctx, cancel := context.WithTimeout(ctx, progressTimeout)
			defer cancel()
			log, err := f.log(ctx, s.Pod, progressLines, progressBytes)
			if err != nil {
				return
			}
			defer func() { _ = log.Close() }()
			_, s.Job.Progress, _ = protocol.Read(log, string(s.Pod.UID), "")
		})
	}
	wg.Wait()
}

// toAPI is the error as the edge tells it.
func toAPI(err error) *api.Error {
	known := &api.Error{}
	if errors.As(err, &known) {
		return known
	}
	return &api.Error{Code: api.InternalServerError, Message: "unexpected failure; the log of Flint has its cause", Cause: err}
}
