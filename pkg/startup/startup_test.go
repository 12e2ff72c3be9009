package startup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

var (
	start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	// graces are all different, so that none stands in for another.
	graces = Graces{
		ImagePull: 10 * time.Second, Config: 11 * time.Second, Rejected: 5 * time.Second,
		Unschedulable: 15 * time.Second, ScaleUp: 180 * time.Second, VolumeAttach: 30 * time.Second,
	}
)

func at(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

type change func(*corev1.Pod)

// podWith is scheduled at 0 and ready to start its containers, "sidecar" and "app", at 100, and then changed.
func podWith(changes ...change) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Annotations: map[string]string{launch.AnnotationContainer: "app"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "app", Env: []corev1.EnvVar{{Name: "TOKEN", Value: "hunter2-hunter2"}, {Name: "N", Value: "1"}}, Args: []string{"--password=swordfish-9"}},
			{Name: "sidecar"},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: at(0)},
			{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: at(100)},
		}},
	}
	for _, c := range changes {
		c(pod)
	}
	return pod
}

func waiting(container, reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, Image: "r.example/a:1",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		})
	}
}

func running(container string, since int) change {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at(since)}},
		})
	}
}

func ended(container string, when int) change {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: container, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: at(when)}},
		})
	}
}

func asInit(c change) change {
	return func(p *corev1.Pod) {
		other := &corev1.Pod{}
		c(other)
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, other.Status.ContainerStatuses...)
	}
}

func failed(reason, message string) change {
	return func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, reason, message
	}
}

func unscheduled(reason string) change {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: at(0),
			Message: "0/3 nodes are available: 3 Insufficient cpu.",
		}}
	}
}

// creating takes the pod back to before its sandbox: its volumes are not mounted.
func creating(p *corev1.Pod) {
	p.Status.Conditions = p.Status.Conditions[:1]
	waiting("app", "ContainerCreating", "")(p)
}

func withoutConditions(p *corev1.Pod) { p.Status.Conditions = nil }
func startTime(p *corev1.Pod)         { t := at(200); p.Status.StartTime = &t }
func withIP(p *corev1.Pod)            { p.Status.PodIP = "10.0.0.9" }
func deleted(p *corev1.Pod)           { t := at(1); p.DeletionTimestamp = &t }

// event is about the pod, unless of says another uid.
func event(reason, message string, seen int) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: "u"}, Reason: reason, Message: message, LastTimestamp: at(seen)}
}

func TestJudge(t *testing.T) {
	const pullError = `Back-off pulling image "r.example/a:1": ErrImagePull: not found`
	cases := map[string]struct {
		pod    *corev1.Pod
		events []corev1.Event
		// after is the second of the first verdict; a second earlier there is none. Negative: never any.
		after   int
		code    api.Code
		message []string // what it has
		hidden  string   // what it has not
	}{
		"invalid image name": {pod: podWith(waiting("app", "InvalidImageName", "x")), after: atOnce, code: api.ImagePull, message: []string{"container app", "r.example/a:1", "InvalidImageName: x"}},
		"image never pulled": {pod: podWith(waiting("app", "ErrImageNeverPull", "x")), after: atOnce, code: api.ImagePull},

		"image pull":           {pod: podWith(waiting("app", "ErrImagePull", "denied")), after: 110, code: api.ImagePull, message: []string{"container app", "r.example/a:1", "denied"}},
		"image back-off":       {pod: podWith(waiting("app", "ImagePullBackOff", pullError)), after: 110, code: api.ImagePull, message: []string{pullError}},
		"registry unavailable": {pod: podWith(waiting("app", "RegistryUnavailable", "x")), after: 110, code: api.ImagePull},
		"signature":            {pod: podWith(waiting("app", "SignatureValidationFailed", "x")), after: 110, code: api.ImagePull},
		"image volume":         {pod: podWith(waiting("app", "ErrImageVolumePull", "x")), after: 110, code: api.ImagePull},
		"L08 image pull with an address (R3)": {
			pod: podWith(withIP, waiting("app", "ImagePullBackOff", pullError)), after: 110, code: api.ImagePull,
		},
		"image pull before 1.29": {
			pod:   podWith(func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:1] }, waiting("app", "ErrImagePull", "x")),
			after: 10, code: api.ImagePull,
		},
		"image pull by the start time":       {pod: podWith(withoutConditions, startTime, waiting("app", "ErrImagePull", "x")), after: 210, code: api.ImagePull},
		"image pull of unknown time":         {pod: podWith(withoutConditions, waiting("app", "ErrImagePull", "x")), after: never},
		"image pull after an init container": {pod: podWith(asInit(ended("init", 300)), waiting("app", "ErrImagePull", "x")), after: 310, code: api.ImagePull},
		"image pull after another container": {pod: podWith(running("sidecar", 200), waiting("app", "ErrImagePull", "x")), after: 210, code: api.ImagePull},
		"image pull of an init container":    {pod: podWith(asInit(waiting("init", "ErrImagePull", "x")), waiting("app", "PodInitializing", "")), after: 110, code: api.ImagePull, message: []string{"container init"}},
		"image pull of a sidecar":            {pod: podWith(waiting("app", "ContainerCreating", ""), waiting("sidecar", "ErrImagePull", "x")), after: 110, code: api.ImagePull, message: []string{"container sidecar"}},
		"image pull of a sidecar, app runs":  {pod: podWith(running("app", 101), waiting("sidecar", "ErrImagePull", "x")), after: never},
		"image pull of a sidecar, app is last": {
			pod: podWith(func(p *corev1.Pod) { p.Annotations = nil }, running("app", 101), waiting("sidecar", "ErrImagePull", "x")), after: 111, code: api.ImagePull,
		},

		"L07 rate limit":                  {pod: podWith(waiting("app", "ErrImagePull", "toomanyrequests: You have reached your pull rate limit")), after: never},
		"L07 rate limit of HTTP":          {pod: podWith(waiting("app", "ImagePullBackOff", "ErrImagePull: unexpected status: 429 Too Many Requests")), after: never},
		"L07 rate limit of ECR":           {pod: podWith(waiting("app", "ErrImagePull", "ThrottlingException: Rate exceeded")), after: never},
		"L07 rate limit of the kubelet":   {pod: podWith(waiting("app", "ErrImagePull", "pull QPS exceeded")), after: never},
		"a name like a rate limit's":      {pod: podWith(waiting("app", "ErrImagePull", "r.example/rate-limiter:429: not found")), after: 110, code: api.ImagePull},
		"L07 rate limit, other container": {pod: podWith(waiting("app", "ErrImagePull", "toomanyrequests: x"), waiting("sidecar", "InvalidImageName", "x")), after: atOnce, code: api.ImagePull, message: []string{"container sidecar"}},
		"L07 rate limit told by an event": {
			pod:    podWith(waiting("app", "ImagePullBackOff", `Back-off pulling image "r.example/a:1"`)),
			events: []corev1.Event{event("Failed", `Failed to pull image "r.example/a:1": toomanyrequests: x`, 105)}, after: never,
		},
		"back-off with its cause in an event": {
			pod: podWith(waiting("app", "ImagePullBackOff", `Back-off pulling image "r.example/a:1"`)),
			events: []corev1.Event{
				event("Failed", `Failed to pull image "r.example/a:1": toomanyrequests: x`, 104),
				event("Failed", `Failed to pull image "r.example/a:1": denied`, 105),
				event("Failed", `Failed to pull image "r.example/b:1": toomanyrequests: x`, 106),
			}, after: 110, code: api.ImagePull, message: []string{"denied"},
		},
		"back-off without its cause": {pod: podWith(waiting("app", "ImagePullBackOff", `Back-off pulling image "r.example/a:1"`)), after: 110, code: api.ImagePull},

		"L10 missing key":   {pod: podWith(waiting("app", "CreateContainerConfigError", `couldn't find key a in Secret n/s`)), after: 111, code: api.ConfigError, message: []string{"container app", "couldn't find key a"}},
		"create":            {pod: podWith(waiting("app", "CreateContainerError", "x")), after: 105, code: api.PodRejected},
		"run":               {pod: podWith(waiting("app", "RunContainerError", "x")), after: 105, code: api.PodRejected},
		"inspect":           {pod: podWith(waiting("app", "ImageInspectError", "x")), after: 105, code: api.PodRejected},
		"pre-create hook":   {pod: podWith(waiting("app", "PreCreateHookError", "x")), after: 105, code: api.PodRejected},
		"pre-start hook":    {pod: podWith(waiting("app", "PreStartHookError", "x")), after: 105, code: api.PodRejected},
		"no value of env":   {pod: podWith(waiting("app", "RunContainerError", `env "TOKEN=hunter2-hunter2" 1 is`)), after: 105, code: api.PodRejected, message: []string{"TOKEN=[...]", " 1 is"}, hidden: "hunter2"},
		"no value of args":  {pod: podWith(waiting("app", "RunContainerError", `exec swordfish-9: no such file`)), after: 105, code: api.PodRejected, message: []string{"exec [...]"}, hidden: "swordfish"},
		"container created": {pod: podWith(waiting("app", "ContainerCreating", "")), after: never},
		"crash loop":        {pod: podWith(waiting("app", "CrashLoopBackOff", "x")), after: never},

		"L09 unschedulable":             {pod: podWith(unscheduled("Unschedulable")), after: 15, code: api.Unschedulable, message: []string{"3 Insufficient cpu"}},
		"L09 unschedulable, scale-up":   {pod: podWith(unscheduled("Unschedulable")), events: []corev1.Event{event("TriggeredScaleUp", "x", 5)}, after: 180, code: api.Unschedulable},
		"L09 unschedulable, Karpenter":  {pod: podWith(unscheduled("Unschedulable")), events: []corev1.Event{event("Nominated", "x", 5)}, after: 180, code: api.Unschedulable},
		"L09 unschedulable, no scaling": {pod: podWith(unscheduled("Unschedulable")), events: []corev1.Event{event("NotTriggerScaleUp", "x", 5)}, after: 15, code: api.Unschedulable},
		"L09 scale-up of another pod": {
			pod:    podWith(unscheduled("Unschedulable")),
			events: []corev1.Event{{InvolvedObject: corev1.ObjectReference{UID: "other"}, Reason: "TriggeredScaleUp"}}, after: 15, code: api.Unschedulable,
		},
		"gated":              {pod: podWith(unscheduled("SchedulingGated")), after: never},
		"scheduler's error":  {pod: podWith(unscheduled("SchedulerError")), after: never},
		"not looked at yet":  {pod: podWith(withoutConditions), after: never},
		"volume, no events":  {pod: podWith(creating), after: never},
		"volume attach":      {pod: podWith(creating), events: []corev1.Event{event("FailedAttachVolume", `Multi-Attach error for volume "v"`, 5)}, after: 30, code: api.VolumeAttach, message: []string{"Multi-Attach"}},
		"volume mount":       {pod: podWith(creating), events: []corev1.Event{event("FailedMount", "x", 5)}, after: 30, code: api.VolumeAttach},
		"volume map":         {pod: podWith(creating), events: []corev1.Event{event("FailedMapVolume", "x", 5)}, after: 30, code: api.VolumeAttach},
		"volume healed":      {pod: podWith(creating), events: []corev1.Event{event("SuccessfulAttachVolume", "x", 9), event("FailedAttachVolume", "x", 5)}, after: never},
		"volume failed last": {pod: podWith(creating), events: []corev1.Event{event("FailedMount", "y", 9), event("SuccessfulAttachVolume", "x", 5)}, after: 30, code: api.VolumeAttach},
		"volume failed last, in a series": {
			pod: podWith(creating),
			events: []corev1.Event{
				{InvolvedObject: corev1.ObjectReference{UID: "u"}, Reason: "FailedMount", EventTime: metav1.NewMicroTime(start), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at(9).Time)}},
				event("SuccessfulAttachVolume", "x", 5),
			}, after: 30, code: api.VolumeAttach,
		},
		"volume of another pod":    {pod: podWith(creating), events: []corev1.Event{{InvolvedObject: corev1.ObjectReference{UID: "other"}, Reason: "FailedMount"}}, after: never},
		"volume, and then mounted": {pod: podWith(waiting("app", "ContainerCreating", "")), events: []corev1.Event{event("FailedMount", "x", 5)}, after: never},
		"volume, and then an address": {
			pod: podWith(creating, withIP), events: []corev1.Event{event("FailedMount", "x", 5)}, after: never,
		},
		"volume, and then an image": {
			pod:    podWith(creating, waiting("sidecar", "ErrImagePull", "toomanyrequests: x")),
			events: []corev1.Event{event("FailedMount", "x", 5)}, after: never,
		},

		"rejected by its node":       {pod: podWith(failed("OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu")), after: atOnce, code: api.PodRejected, message: []string{"OutOfcpu", "enough resource"}},
		"rejected without a reason":  {pod: podWith(failed("", "")), after: atOnce, code: api.PodRejected, message: []string{"no reason given"}},
		"rejected, not created":      {pod: podWith(failed("NodeAffinity", "x"), waiting("app", "ContainerCreating", "")), after: atOnce, code: api.PodRejected},
		"ended after it ran":         {pod: podWith(failed("Error", ""), ended("app", 120)), after: never},
		"ended in an init container": {pod: podWith(failed("", ""), asInit(ended("init", 120)), waiting("app", "PodInitializing", "")), after: never},
		"succeeded":                  {pod: podWith(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), after: never},
		"runs":                       {pod: podWith(running("app", 101)), after: never},
		"container ended":            {pod: podWith(ended("app", 101)), after: never},
		"deleted":                    {pod: podWith(deleted, waiting("app", "InvalidImageName", "x")), after: never},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judge := func(second int) (Trouble, bool) { return Judge(tc.pod, tc.events, graces, at(second).Time) }
			if tc.after == never {
				if got, found := judge(1_000_000); found {
					t.Fatalf("verdict %+v, want none", got)
				}
				return
			}
			got, found := judge(tc.after)
			if !found || got.Code != tc.code {
				t.Fatalf("verdict %+v, %v at %d s, want %s", got, found, tc.after, tc.code)
			}
			for _, text := range append(tc.message, "") {
				if !strings.Contains(got.Message, text) {
					t.Errorf("message %q without %q", got.Message, text)
				}
			}
			if tc.hidden != "" && strings.Contains(got.Message, tc.hidden) {
				t.Errorf("message %q tells %q", got.Message, tc.hidden)
			}
			if early, found := judge(tc.after - 1); found && tc.after != atOnce {
				t.Errorf("verdict %+v a second before the grace is over", early)
			}
		})
	}
}

const (
	never  = -1
	atOnce = -1000 // long before any condition of the pod
)

func TestNoGraceIsAtOnce(t *testing.T) {
	if _, found := Judge(podWith(withoutConditions, waiting("app", "ErrImagePull", "x")), nil, Graces{}, start); !found {
		t.Error("no verdict without graces")
	}
}

func TestWantsEvents(t *testing.T) {
	cases := map[string]struct {
		pod         *corev1.Pod
		from, until int // seconds; the first that wants them, the first that does not any more; 0 is never
	}{
		"unschedulable":                {pod: podWith(unscheduled("Unschedulable")), from: 15, until: 180},
		"gated":                        {pod: podWith(unscheduled("SchedulingGated"))},
		"volumes not mounted":          {pod: podWith(creating), from: 30},
		"volumes mounted":              {pod: podWith(waiting("app", "ContainerCreating", ""))},
		"back-off without its cause":   {pod: podWith(waiting("app", "ImagePullBackOff", "Back-off")), from: 110},
		"back-off with its cause":      {pod: podWith(waiting("app", "ImagePullBackOff", "Back-off: ErrImagePull: x"))},
		"runs":                         {pod: podWith(running("app", 101))},
		"deleted, volumes not mounted": {pod: podWith(deleted, creating)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, second := range []int{0, 14, 15, 29, 30, 109, 110, 179, 180, 1_000_000} {
				want := tc.from > 0 && second >= tc.from && (tc.until == 0 || second < tc.until)
				if got := WantsEvents(tc.pod, graces, at(second).Time); got != want {
					t.Errorf("at %d s: %v, want %v", second, got, want)
				}
			}
		})
	}
}

// What may be found in the events when the wish for them is refused must not change the verdict.
func TestEventsMatterOnlyWhenWanted(t *testing.T) {
	told := []corev1.Event{
		event("TriggeredScaleUp", "x", 5), event("FailedMount", "x", 6),
		event("Failed", `Failed to pull image "r.example/a:1": toomanyrequests: x`, 7),
	}
	pods := map[string]*corev1.Pod{
		"unschedulable": podWith(unscheduled("Unschedulable")), "creating": podWith(creating),
		"back-off": podWith(waiting("app", "ImagePullBackOff", "Back-off")), "config": podWith(waiting("app", "CreateContainerConfigError", "x")),
		"running": podWith(running("app", 101)), "rejected": podWith(failed("OutOfcpu", "x")),
	}
	for name, pod := range pods {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for second := range 200 {
				now := at(second).Time
				with, found := Judge(pod, told, graces, now)
				without, foundWithout := Judge(pod, nil, graces, now)
				if differs := with != without || found != foundWithout; differs != WantsEvents(pod, graces, now) {
					t.Errorf("at %d s: events differ %v, wanted %v", second, differs, !differs)
				}
			}
		})
	}
}

func TestDefaultGraces(t *testing.T) {
	g := DefaultGraces()
	if g.Rejected <= 0 || g.ImagePull < g.Rejected || g.ScaleUp <= g.Unschedulable {
		t.Errorf("%+v", g)
	}
}

// TestScrub: what a kubelet quotes of a hook or a probe is taken out like arguments.
func TestScrub(t *testing.T) {
	ask := func(name string) (*corev1.ExecAction, *corev1.HTTPGetAction) {
		return &corev1.ExecAction{Command: []string{"run", "--token=command-" + name}},
			&corev1.HTTPGetAction{Path: "/path-" + name, HTTPHeaders: []corev1.HTTPHeader{{Name: "X", Value: "header-" + name}}}
	}
	probe := func(name string) *corev1.Probe {
		exec, get := ask(name)
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec, HTTPGet: get}}
	}
	hook := func(name string) *corev1.LifecycleHandler {
		exec, get := ask(name)
		return &corev1.LifecycleHandler{Exec: exec, HTTPGet: get}
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{
		Name: "app", LivenessProbe: probe("liveness"), ReadinessProbe: probe("readiness"), StartupProbe: probe("startup"),
		Lifecycle: &corev1.Lifecycle{PostStart: hook("start"), PreStop: hook("stop")},
	}}}
	for _, name := range []string{"liveness", "readiness", "startup", "start", "stop"} {
		message := fmt.Sprintf("hook [run --token=command-%[1]s] failed: command-%[1]s, GET /path-%[1]s with header-%[1]s", name)
		if got, want := Scrub(message, spec), "hook [run [...]] failed: [...], GET [...] with [...]"; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
