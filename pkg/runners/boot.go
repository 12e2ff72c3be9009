package runners

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/startup"
)

const (
	// checkInterval is how often a boot is judged while its pod does not change: graces end by time.
	checkInterval = 500 * time.Millisecond
	// tendSlack is how much later a pass ends a boot than the request that waits for it, which has more to say. It also
	// makes up for creation times, which have whole seconds.
	tendSlack = 2 * time.Second
	// verdictMargin is how long after a boot's time what follows from its verdict may take, for whoever waits for the answer. A
	// giving up that takes longer is Tend's to finish.
	verdictMargin = 1500 * time.Millisecond
	// maxEvents is the most events of one pod that are looked at.
	maxEvents = 100
)

// Wait follows the runner until it has come as far as the request says, and gives it as it is then. When the context
// ends first, it gives the runner as far as it has come, with arrived false: its boot goes on, and Tend sees to it.
//
// The error is an *api.Error with api.RunnerDetails, after which no pod of that key starts any more, unless the
// request said to keep it: IMAGE_PULL, CONFIG_ERROR, POD_REJECTED, UNSCHEDULABLE, VOLUME_ATTACH, BOOT_TIMEOUT for one that was
// given up; RUNNER_EXITED for one that has ended, RUNNER_GONE for one that was deleted.
func (r *Runners) Wait(ctx context.Context, l *Launched, wait string) (answer *api.Runner, arrived bool, err error) {
	answer = l.Answer()
	if wait == api.WaitNone {
		return answer, false, nil
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	pods := make(chan []corev1.Pod, 1)
	followed := make(chan error, 1)
	go func() {
		followed <- r.Follower.Pods(following, l.Plan.Namespace, l.Plan.ID, func(found []corev1.Pod) bool {
			select {
			case <-pods: // nobody has looked at it
			default:
			}
			pods <- found
			return false
		})
	}()
	check := r.clock().NewTimer(checkInterval)
	defer func() { check.Stop() }()
	var pod *corev1.Pod
	for {
		select {
		case <-ctx.Done():
			return answer, false, nil
		case err := <-followed:
			if ctx.Err() != nil {
				return answer, false, nil
			}
			return nil, false, kube.Translate(err, "follow", podRef(l.Plan.Namespace, answer.Name))
		case found := <-pods:
			if pod = ofUID(found, l.Result.Workload.GetUID()); pod == nil {
				limited, cancel := r.limited(ctx, l)
				defer cancel()
				return nil, false, r.ended(limited, l, nil)
			}
			describe(answer, pod, r.now())
		case <-check.C():
			check = r.clock().NewTimer(checkInterval)
		}
		if pod == nil && r.now().Before(l.deadline()) {
			continue
		}
		if pod == nil { // the API server gives no list: what is known of the pod is that it was created
			if pod, err = podOf(l.Result.Workload); err != nil {
				return nil, false, err
			}
		}
		switch arrived, err := r.look(ctx, l, pod, wait); {
		case err != nil:
			return nil, false, err
		case arrived:
			return answer, true, nil
		case l.Result.Duplicate && stage(pod) >= stages[api.WaitRunning] && !r.now().Before(l.deadline()):
			return answer, false, nil
		}
	}
}

// limited is for what follows from a verdict. It is done whether the caller is still there or not, in the time that they have.
func (r *Runners) limited(ctx context.Context, l *Launched) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), min(max(l.deadline().Sub(r.now()), 0)+verdictMargin, callLimit))
}

// deadline is when the boot must have come as far as it is waited for: by the clock of the call that created the pod, else
// by the pod's creation time, which has whole seconds.
func (l *Launched) deadline() time.Time {
	if l.Result.Duplicate {
		return l.Result.CreatedAt.Add(l.Runner.Terms.BootTimeout + time.Second)
	}
	return l.began.Add(l.Runner.Terms.BootTimeout)
}

func ofUID(pods []corev1.Pod, uid types.UID) *corev1.Pod {
	for i := range pods {
		if pods[i].UID == uid {
			return &pods[i]
		}
	}
	return nil
}

// look tells whether the runner has come far enough, or what it failed with. What is to be given up is given up; but a repeat of
// a request ends nothing that runs.
func (r *Runners) look(ctx context.Context, l *Launched, pod *corev1.Pod, wait string) (arrived bool, err error) {
	ctx, cancel := r.limited(ctx, l)
	defer cancel()
	now, ran := r.now(), stage(pod) >= stages[api.WaitRunning]
	outcome, ended := completion.OfPod(pod, completion.Bounds{}, now)
	switch {
	case ended && ran && outcome.Outcome == api.Succeeded && wait != api.WaitReady:
		r.settle(ctx, pod)
		return true, nil // it ran, and is done already
	case ended && ran:
		return false, r.exited(ctx, l, pod, outcome)
	case pod.DeletionTimestamp != nil:
		return false, r.ended(ctx, l, pod)
	}
	why := r.trouble(ctx, pod, l.deadline(), now)
	late := why != nil && why.Code == api.BootTimeout
	switch {
	case ended && (why == nil || late): // before its container ran
		return false, r.exited(ctx, l, pod, outcome)
	case (why == nil || late) && stage(pod) >= stages[wait]:
		r.settle(ctx, pod)
		return true, nil
	case why == nil, late && ran && l.Result.Duplicate:
		return false, nil
	}
	why.Message = redact.Text(why.Message, l.secrets)
	if l.Runner.Terms.OnBootTimeout == api.OnTimeoutKeep {
		why.Message += "; its pod is kept, as on_boot_timeout says"
		return false, l.refusal(*why, false)
	}
	deleted, err := r.giveUp(ctx, pod, l.began, *why)
	if err != nil {
		why.Message += "; it could not be given up now (" + messageOf(err) + "), which is done as soon as it can be"
		r.log().Warn("a boot could not be given up", "namespace", pod.Namespace, "name", pod.Name, "uid", string(pod.UID), "error", err.Error())
	}
	return false, l.refusal(*why, deleted)
}

// trouble is why the boot of the runner must be given up at the time, or nil as long as it may succeed.
func (r *Runners) trouble(ctx context.Context, pod *corev1.Pod, deadline, now time.Time) *startup.Trouble {
	events, known := []corev1.Event(nil), true
	if startup.WantsEvents(pod, r.Settings.Graces, now) {
		events, known = r.events(ctx, pod)
	}
	if why, found := startup.Judge(pod, events, r.Settings.Graces, now); found && known {
		return &why
	}
	if now.Before(deadline) {
		return nil
	}
	return &startup.Trouble{Code: api.BootTimeout, Message: "its boot time is over: it is " + standing(pod, now)}
}

// standing is where a boot stands, in words.
func standing(pod *corev1.Pod, now time.Time) string {
	text := []string{string(state(pod, now))}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			text = append(text, c.Message)
		}
	}
	if waits := statusOf(pod).State.Waiting; waits != nil && waits.Reason != "" {
		text = append(text, "its container waits", waits.Reason)
		if waits.Message != "" {
			text = append(text, waits.Message)
		}
	}
	return startup.Scrub(strings.Join(text, ": "), pod.Spec)
}

// events are those about the pod. Without the right to list them there are none, and less is told apart; known is false
// where they cannot be read now, and may change the verdict in a moment.
func (r *Runners) events(ctx context.Context, pod *corev1.Pod) (events []corev1.Event, known bool) {
	of := kube.Ref{APIVersion: "v1", Kind: "Event", Namespace: pod.Namespace}
	page, err := r.Client.List(ctx, of, kube.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID), Limit: maxEvents})
	if err != nil {
		return nil, apierrors.IsForbidden(err)
	}
	for _, item := range page.Items {
		var event corev1.Event
		if runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &event) == nil {
			events = append(events, event)
		}
	}
	return events, true
}

// exited is the refusal of a runner that has ended by itself. Its pod stays for its time to live.
func (r *Runners) exited(ctx context.Context, l *Launched, pod *corev1.Pod, o completion.Outcome) error {
	end := statusOf(pod).State.Terminated
	text := fmt.Sprintf("it ended (%s) before it was waited for", o.Reason)
	if end != nil {
		text = fmt.Sprintf("its container ended with exit code %d (%s)", end.ExitCode, cmp.Or(end.Reason, "no reason given"))
		if end.Signal != 0 {
			text = fmt.Sprintf("its container was ended by signal %d (%s)", end.Signal, cmp.Or(end.Reason, "no reason given"))
		}
	}
	if !l.Result.Duplicate { // a repeat tells of what was noted
		r.note(ctx, pod, l.began, api.RunnerExited)
	}
	e := l.refusal(startup.Trouble{Code: api.RunnerExited, Message: text}, false)
	details, _ := e.Details.(api.RunnerDetails)
	details.ExitCode = o.ExitCode
	if !l.unmasked {
		details.LogTail = r.tail(ctx, pod, l.secrets)
	}
	e.Details = details
	return e
}

// ended is the refusal of a runner that somebody else has ended: a pass or another request, which left behind why, or whoever
// deleted it. The pod is nil when it is gone.
func (r *Runners) ended(ctx context.Context, l *Launched, pod *corev1.Pod) error {
	if pod != nil {
		seen := &unstructured.Unstructured{}
		seen.SetUID(pod.UID)
		seen.SetAnnotations(pod.Annotations)
		if o, recorded := completion.Recorded(seen); recorded {
			if code, text, ok := strings.Cut(o.Message, ": "); ok && isKnown(code) {
				return l.refusal(startup.Trouble{Code: api.Code(code), Message: text}, true)
			}
		}
	}
	stone, err := r.Client.Get(ctx, leaseRef(l.Plan.Namespace, runner.MarkName(l.Plan.ID)))
	why := ""
	if err == nil {
		why = stone.GetAnnotations()[launch.AnnotationGivenUp]
	}
	if code, _, _ := strings.Cut(why, " "); isKnown(code) && api.Code(code) != api.Cancelled {
		return l.refusal(startup.Trouble{Code: api.Code(code), Message: "it was given up: " + why}, true)
	}
	if why == "" { // whoever deleted it by hand made no tombstone
		err = r.GiveUp(ctx, l.Plan.Workload, api.RunnerGone)
	}
	if err != nil {
		return l.refusal(startup.Trouble{Code: api.RunnerGone, Message: "somebody deleted its pod; its key could not be given up now (" + messageOf(err) + ")"}, false)
	}
	return l.refusal(startup.Trouble{Code: api.RunnerGone, Message: "somebody deleted its pod"}, true)
}

func isKnown(code string) bool { return slices.Contains(api.Codes(), api.Code(code)) }

// refusal is what the caller is told of a boot that failed.
func (l *Launched) refusal(why startup.Trouble, deleted bool) *api.Error {
	pod := l.Result.Workload
	e := api.Errorf(why.Code, "runner %s/%s did not boot: %s", l.Plan.Namespace, pod.GetName(), redact.Text(why.Message, l.secrets))
	e.Details = api.RunnerDetails{Namespace: l.Plan.Namespace, Name: pod.GetName(), UID: string(pod.GetUID()), Deleted: deleted}
	return e
}

func messageOf(err error) string {
	if known, ok := errors.AsType[*api.Error](err); ok {
		return known.Message
	}
	return "unexpected failure"
}

// reasons are those of the events about boots that were given up.
var reasons = map[api.Code]api.Reason{
	api.ImagePull: api.ReasonImagePull, api.Unschedulable: api.ReasonUnschedulable, api.BootTimeout: api.ReasonDeadlineExceeded,
}

// giveUp ends a boot: first its key, then its pod, whose end is told by a Poller. deleted is true when the pod is gone or
// going; one that has ended by itself meanwhile stays.
func (r *Runners) giveUp(ctx context.Context, pod *corev1.Pod, began time.Time, why startup.Trouble) (deleted bool, err error) {
	r.note(ctx, pod, began, why.Code)
	if err := r.giveUpKeys(ctx, pod, why.Code); err != nil {
		return false, err
	}
	return r.end(ctx, podRef(pod.Namespace, pod.Name), pod.UID, completion.Outcome{
		Outcome: api.Failed, Reason: cmp.Or(reasons[why.Code], api.ReasonError), FinishedAt: r.now().UTC(),
		Message: fmt.Sprintf("%s: %s", why.Code, why.Message),
	})
}

// end records the outcome on the pod of that uid, keeps what is left of it until that was told, and deletes it. A pod that has ended
// by itself is left alone.
//
// The grace period is the pod's own: a pod without a node goes at once, and of one that has a node only the kubelet knows
// that nothing of it runs any more. By force it would be gone here, and maybe start there.
func (r *Runners) end(ctx context.Context, ref kube.Ref, uid types.UID, o completion.Outcome) (deleted bool, err error) {
	for range maxAttempts {
		var found *unstructured.Unstructured
		found, err = r.Client.Get(ctx, ref)
		phase := ""
		if err == nil {
			phase, _, _ = unstructured.NestedString(found.Object, "status", "phase")
		}
		switch {
		case apierrors.IsNotFound(err), err == nil && (found.GetUID() != uid || found.GetDeletionTimestamp() != nil):
			return true, nil
		case err != nil:
			return false, kube.Translate(err, "get", ref)
		case phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed):
			return false, nil
		}
		for _, patch := range []func(*unstructured.Unstructured) []byte{
			func(w *unstructured.Unstructured) []byte { return completion.Recording(w, o) }, completion.Keep,
		} {
			if body := patch(found); body != nil && err == nil {
				var changed *unstructured.Unstructured
				if changed, err = r.Client.Patch(ctx, ref, types.MergePatchType, body); err == nil {
					found = changed
				}
			}
		}
		if err == nil {
			err = r.Client.Delete(ctx, ref, uid)
		}
		if err == nil {
			return true, nil
		}
		if !isLost(err) {
			break
		}
	}
	return false, kube.Translate(err, "delete", ref)
}

// note notes a failed boot for those that come after. That it cannot be noted is no reason to keep the pod.
func (r *Runners) note(ctx context.Context, pod *corev1.Pod, began time.Time, why api.Code) {
	err := r.failed(ctx, pod.Namespace, pod.Annotations[annotationShape], pod.Labels[launch.LabelID], began, why)
	if err != nil {
		r.log().Warn("a failed boot could not be noted", "namespace", pod.Namespace, "name", pod.Name, "error", err.Error())
	}
}

// settle forgets the failures of the pod's shape, if it runs and was the one to try. For a while after its start: by
// then somebody has settled it.
func (r *Runners) settle(ctx context.Context, pod *corev1.Pod) {
	shape := pod.Annotations[annotationTries]
	if shape == "" || stage(pod) < stages[api.WaitRunning] || r.now().After(runner.TermsOf(pod).BootDeadline(pod).Add(turnMargin)) {
		return
	}
	if err := r.booted(ctx, pod.Namespace, shape, pod.Labels[launch.LabelID]); err != nil {
		r.log().Warn("a boot that succeeded could not be noted", "namespace", pod.Namespace, "name", pod.Name, "error", err.Error())
	}
}

// Tend looks at a workload that a Poller found pending. If it is a runner whose boot will not succeed, or has taken
// its time, and nobody waits for it any more, it is given up. Tend gives the workload as it is then: nil if it is gone.
func (r *Runners) Tend(ctx context.Context, workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	_, recorded := completion.Recorded(workload)
	if workload.GetLabels()[launch.LabelKind] != string(launch.Runner) || workload.GetKind() != "Pod" ||
		launch.Held(workload) || workload.GetDeletionTimestamp() != nil || recorded {
		return workload, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pod, err := podOf(workload)
	if err != nil {
		return workload, err
	}
	o, ended := completion.OfPod(pod, completion.Bounds{}, r.now())
	if ran := stage(pod) >= stages[api.WaitRunning]; ran && (!ended || o.Outcome == api.Succeeded) {
		r.settle(ctx, pod)
		return workload, nil
	} else if ran || ended {
		return workload, nil
	}
	terms := runner.TermsOf(pod)
	if terms.OnBootTimeout == api.OnTimeoutKeep {
		return workload, nil
	}
	// Whoever waits for it comes first.
	now := r.now().Add(-tendSlack)
	if now.Before(pod.CreationTimestamp.Time) {
		return workload, nil
	}
	why := r.trouble(ctx, pod, terms.BootDeadline(pod), now)
	if why == nil {
		return workload, nil
	}
	secrets, known := r.secretsOf(ctx, pod)
	switch {
	case why.Code == api.PodRejected:
		why.Message = "the container runtime refuses it" // in words that may have a secret, expanded from a variable
	case !known:
		why.Message = "its Secret cannot be read, and what is said of it may have a value"
	default:
		why.Message = redact.Text(why.Message, secrets)
	}
	if _, err := r.giveUp(ctx, pod, pod.CreationTimestamp.Time, *why); err != nil {
		return workload, err
	}
	r.log().Info("boot given up", "namespace", pod.Namespace, "name", pod.Name, "uid", string(pod.UID), "code", string(why.Code))
	found, err := r.Client.Get(ctx, podRef(pod.Namespace, pod.Name))
	switch {
	case apierrors.IsNotFound(err) || err == nil && found.GetUID() != pod.UID:
		return nil, nil //nolint:nilnil // it is gone, and nothing is wrong
	case err != nil:
		return workload, kube.Translate(err, "get", podRef(pod.Namespace, pod.Name))
	}
	return found, nil
}
