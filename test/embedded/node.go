package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
)

// Annotations on a pod that steer the simulated node.
const (
	// AnnotationExitCode is the exit code of its containers; absent means 0.
	AnnotationExitCode = "embedded.flint.dev/exit-code"
	// AnnotationRunFor is how long they run, as Go writes durations; absent means Options.RunFor.
	AnnotationRunFor = "embedded.flint.dev/run-for"
	// AnnotationReason is the reason of their end, such as OOMKilled; absent means Completed or Error.
	AnnotationReason = "embedded.flint.dev/reason"
)

const nodeName = "embedded"

// Exit is how the containers of a pod ended.
type Exit struct {
	Code    int32
	Reason  string // empty means Completed or Error, as the code says
	Message string // the termination message
}

// RunFunc runs the containers of a pod: until it returns, the pod is Running. What it
// writes to log is the pod's log. With false the pod is not its business and is simulated. The context
// ends when the pod is deleted or the cluster closed.
type RunFunc func(ctx context.Context, pod *corev1.Pod, log io.Writer) (Exit, bool)

// Completion is the end of one pod.
type Completion struct {
	Role      string // driver, or the pod's flint.dev/kind, or pod
	Namespace string
	Name      string
	UID       types.UID
	Phase     corev1.PodPhase // Succeeded or Failed
	ExitCode  int32
	Reason    string
	Ran       time.Duration
}

// String is the line that Options.Log gets.
func (c Completion) String() string {
	word := "succeeded"
	if c.Phase != corev1.PodSucceeded {
		word = "failed"
	}
	return fmt.Sprintf("%s %s/%s %s (exit %d) after %.1fs", c.Role, c.Namespace, c.Name, word, c.ExitCode, c.Ran.Seconds())
}

// execution is a pod whose containers run.
type execution struct {
	began  time.Time
	ends   time.Time // when it is simulated
	exit   Exit
	real   bool // Options.Run has it
	ended  bool // and is done with it
	cancel context.CancelFunc
}

// control is the node, the Job controller, the volume controller and the garbage collector: it looks at one changed
// object at a time, until the queue is shut down.
func (c *Cluster) control(ctx context.Context) {
	for {
		k, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		completion := c.reconcile(ctx, k)
		c.queue.Done(k)
		if completion == nil {
			continue
		}
		c.print(completion.String())
		if c.options.Completed != nil {
			c.options.Completed(*completion)
		}
	}
}

func (c *Cluster) reconcile(ctx context.Context, k key) *Completion {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collect(k)
	switch k.gvr {
	case Pods:
		return c.reconcilePod(ctx, k)
	case Jobs:
		c.reconcileJob(k)
	case Claims:
		c.bind(k)
	}
	return nil
}

// bind binds a claim that names its volume, with the access modes that it asks for.
func (c *Cluster) bind(k key) {
	claim, err := c.load(k)
	if err != nil || stringAt(claim, "spec", "volumeName") == "" || stringAt(claim, "status", "phase") != "Pending" {
		return
	}
	status := map[string]any{"phase": "Bound"}
	if modes, found, _ := unstructured.NestedSlice(claim.Object, "spec", "accessModes"); found {
		status["accessModes"] = modes
	}
	c.setStatus(byResource[Claims], k, status)
}

// reconcilePod takes a pod one step on: to the node, into Running, to its end.
func (c *Cluster) reconcilePod(ctx context.Context, k key) *Completion {
	object, err := c.load(k)
	if err != nil {
		delete(c.waiting, k)
		c.endLost()
		return nil
	}
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		c.setPodStatus(k, &corev1.Pod{Status: corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Invalid", Message: "the embedded node cannot read this pod: " + err.Error(),
		}})
		return nil
	}
	run := c.running[pod.UID]
	switch {
	case pod.DeletionTimestamp != nil:
		return c.endDeleted(k, object, pod, run)
	case terminal(object) || gated(object):
		return nil
	case pod.Spec.NodeName == "":
		c.schedule(k)
		return nil // the change brings us back
	case run == nil:
		if missing := c.missing(k.namespace, &pod.Spec); missing != "" {
			c.waiting[k] = true
			pod.Status.ContainerStatuses = containerStatuses(pod, corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating", Message: missing + " not found"},
			})
			c.setPodStatus(k, pod)
			return nil
		}
		delete(c.waiting, k)
		c.begin(ctx, k, pod)
		return nil
	case run.real && !run.ended, !run.real && c.clock.Now().Before(run.ends):
		return nil
	}
	return c.end(k, pod, run)
}

// schedule puts a pod on the node.
func (c *Cluster) schedule(k key) {
	_, _ = c.updateLocked(byResource[Pods], k, false, false, func(pod *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return pod, unstructured.SetNestedField(pod.Object, nodeName, "spec", "nodeName")
	})
}

// begin starts the containers of a pod.
func (c *Cluster) begin(ctx context.Context, k key, pod *corev1.Pod) {
	now := c.clock.Now()
	ctx, cancel := context.WithCancel(ctx)
	run := &execution{began: now, cancel: cancel, exit: Exit{Reason: pod.Annotations[AnnotationReason]}}
	c.running[pod.UID] = run

	c.ips++
	ip := fmt.Sprintf("10.%d.%d.%d", 128+c.ips>>16&0x7f, c.ips>>8&0xff, c.ips&0xff)
	started := metav1.NewTime(now.UTC())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &started
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	pod.Status.Conditions = nil
	for _, condition := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: started,
		})
	}
	pod.Status.ContainerStatuses = containerStatuses(pod, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}})
	c.setPodStatus(k, pod)

	if c.options.Run == nil {
		c.simulate(k, pod, run)
		return
	}
	run.real = true
	given := pod.DeepCopy()
	c.work.Go(func() {
		exit, taken := c.options.Run(ctx, given, &podLog{cluster: c, uid: given.UID})
		c.mu.Lock()
		defer c.mu.Unlock()
		if !taken {
			run.real = false
			c.simulate(k, given, run)
			return
		}
		run.exit, run.ended = exit, true
		c.queue.Add(k)
	})
}

// simulate lets time pass for a pod that nothing runs.
func (c *Cluster) simulate(k key, pod *corev1.Pod, run *execution) {
	lasts := c.options.RunFor
	if text := pod.Annotations[AnnotationRunFor]; text != "" {
		if parsed, err := time.ParseDuration(text); err == nil {
			lasts = parsed
		}
	}
	if text := pod.Annotations[AnnotationExitCode]; text != "" {
		if code, err := strconv.ParseInt(text, 10, 32); err == nil {
			run.exit.Code = int32(code)
		}
	}
	run.ends = run.began.Add(lasts)
	c.logs[pod.UID] = fmt.Appendf(c.logs[pod.UID], "simulated: runs for %s, then exits with %d\n", lasts, run.exit.Code)
	c.queue.AddAfter(k, run.ends.Sub(c.clock.Now()))
}

// end stores how the containers of a pod ended.
func (c *Cluster) end(k key, pod *corev1.Pod, run *execution) *Completion {
	run.cancel()
	delete(c.running, pod.UID)
	now := c.clock.Now()
	reason := run.exit.Reason
	phase := corev1.PodSucceeded
	if run.exit.Code != 0 {
		phase = corev1.PodFailed
	}
	if reason == "" {
		reason = map[corev1.PodPhase]string{corev1.PodSucceeded: "Completed", corev1.PodFailed: "Error"}[phase]
	}
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = containerStatuses(pod, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: run.exit.Code, Reason: reason, Message: run.exit.Message,
		StartedAt: metav1.NewTime(run.began.UTC()), FinishedAt: metav1.NewTime(now.UTC()),
	}})
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; condition.Type == corev1.PodReady || condition.Type == corev1.ContainersReady {
			condition.Status, condition.Reason = corev1.ConditionFalse, "PodCompleted"
			condition.LastTransitionTime = metav1.NewTime(now.UTC())
		}
	}
	c.setPodStatus(k, pod)
	return &Completion{
		Role: role(pod), Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		Phase: phase, ExitCode: run.exit.Code, Reason: reason, Ran: now.Sub(run.began),
	}
}

// endDeleted stops a deleted pod and takes it off the node.
func (c *Cluster) endDeleted(k key, object *unstructured.Unstructured, pod *corev1.Pod, run *execution) *Completion {
	delete(c.waiting, k)
	if run != nil {
		run.exit = Exit{Code: 143, Reason: "Error"}
		c.end(k, pod, run)
		return nil // the change brings us back
	}
	if len(object.GetFinalizers()) == 0 {
		c.forget(k, object)
	} else if grace := object.GetDeletionGracePeriodSeconds(); grace != nil && *grace > 0 {
		// The node is done; what is left is up to the finalizers.
		shorten(object, 0)
		c.touch(object)
		if err := c.tracker.Update(k.gvr, object, k.namespace); err == nil {
			c.notify(k)
		}
	}
	return nil
}

// endLost stops the containers of pods that are gone.
func (c *Cluster) endLost() {
	for uid, run := range c.running {
		if _, found := c.uids[uid]; !found {
			run.cancel()
			delete(c.running, uid)
		}
	}
}

func (c *Cluster) setPodStatus(k key, pod *corev1.Pod) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod.Status)
	if err != nil {
		panic(fmt.Sprintf("embedded: status of %s: %v", k.name, err)) // a corev1.PodStatus always converts
	}
	c.setStatus(byResource[Pods], k, status)
}

func (c *Cluster) setStatus(res *resource, k key, status map[string]any) {
	_, _ = c.updateLocked(res, k, true, false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object.Object["status"] = status
		return object, nil
	})
}

// reconcileJob gives a Job that is not suspended its one pod, and ends it as that pod ends.
func (c *Cluster) reconcileJob(k key) {
	object, err := c.load(k)
	if err != nil || object.GetDeletionTimestamp() != nil {
		return
	}
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job); err != nil {
		return
	}
	if job.Status.CompletionTime != nil || jobFailed(job) || job.Spec.Suspend != nil && *job.Spec.Suspend {
		return
	}
	now := metav1.NewTime(c.clock.Now().UTC())
	if job.Status.StartTime == nil {
		job.Status.StartTime = &now
	}
	pods := c.children(job.UID, Pods)
	ready := job.Status.Ready
	job.Status.Ready = new(int32)
	switch {
	case len(pods) == 0:
		if err := c.createJobPod(k, job); err != nil {
			return
		}
		job.Status.Active = 1
	case stringAt(pods[0], "status", "phase") == string(corev1.PodSucceeded):
		job.Status.Active, job.Status.Succeeded = 0, 1
		job.Status.CompletionTime = &now
		job.Status.Conditions = append(job.Status.Conditions, jobConditions(now, "CompletionsReached", "Reached expected number of succeeded pods", batchv1.JobSuccessCriteriaMet, batchv1.JobComplete)...)
	case stringAt(pods[0], "status", "phase") == string(corev1.PodFailed):
		job.Status.Active, job.Status.Failed = 0, 1
		job.Status.Conditions = append(job.Status.Conditions, jobConditions(now, batchv1.JobReasonBackoffLimitExceeded, "Job has reached the specified backoff limit", batchv1.JobFailureTarget, batchv1.JobFailed)...)
	case stringAt(pods[0], "status", "phase") == string(corev1.PodRunning) && (ready == nil || *ready == 0):
		*job.Status.Ready = 1
	default:
		return
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&job.Status)
	if err != nil {
		return
	}
	c.setStatus(byResource[Jobs], k, status)
}

func jobConditions(now metav1.Time, reason, message string, kinds ...batchv1.JobConditionType) []batchv1.JobCondition {
	var conditions []batchv1.JobCondition
	for _, kind := range kinds {
		conditions = append(conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
			LastProbeTime: now, LastTransitionTime: now,
		})
	}
	return conditions
}

func jobFailed(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(condition batchv1.JobCondition) bool {
		return condition.Type == batchv1.JobFailed && condition.Status == corev1.ConditionTrue
	})
}

func (c *Cluster) createJobPod(k key, job *batchv1.Job) error {
	isController := true
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(),
		Spec:       *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.Name = k.name + "-" + utilrand.String(5)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "Job", Name: k.name, UID: job.UID, Controller: &isController, BlockOwnerDeletion: &isController,
	}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return err
	}
	_, err = c.createLocked(byResource[Pods], k.namespace, &unstructured.Unstructured{Object: content}, false)
	return err
}

// noteStranded remembers a pod or a Job that this very write made free to start, if something that
// it mounts does not exist.
func (c *Cluster) noteStranded(old, object *unstructured.Unstructured) {
	var template corev1.PodSpec
	switch object.GetKind() {
	case "Pod":
		if gated(object) || old != nil && !gated(old) {
			return
		}
		pod := &corev1.Pod{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod) != nil {
			return
		}
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
			return // its Job was judged
		}
		template = pod.Spec
	case "Job":
		if suspended(object) || old != nil && !suspended(old) {
			return
		}
		job := &batchv1.Job{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, job) != nil {
			return
		}
		template = job.Spec.Template.Spec
	default:
		return
	}
	if c.missing(object.GetNamespace(), &template) != "" {
		c.stranded = append(c.stranded, object.GetNamespace()+"/"+object.GetName())
	}
}

func suspended(job *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend")
	return value
}

// missing names the first thing that a pod mounts and that does not exist, or nothing.
func (c *Cluster) missing(namespace string, spec *corev1.PodSpec) string {
	var wanted []key
	want := func(k key, optional *bool) {
		if optional == nil || !*optional {
			k.namespace = namespace
			wanted = append(wanted, k)
		}
	}
	for _, volume := range spec.Volumes {
		if source := volume.ConfigMap; source != nil {
			want(key{gvr: ConfigMaps, name: source.Name}, source.Optional)
		}
		if source := volume.Secret; source != nil {
			want(key{gvr: Secrets, name: source.SecretName}, source.Optional)
		}
		if source := volume.PersistentVolumeClaim; source != nil {
			want(key{gvr: Claims, name: source.ClaimName}, nil)
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if part := source.ConfigMap; part != nil {
				want(key{gvr: ConfigMaps, name: part.Name}, part.Optional)
			}
			if part := source.Secret; part != nil {
				want(key{gvr: Secrets, name: part.Name}, part.Optional)
			}
		}
	}
	for _, k := range wanted {
		if _, err := c.load(k); err != nil {
			return fmt.Sprintf("%s %q", byResource[k.gvr].kind, k.name)
		}
	}
	return ""
}

func containerStatuses(pod *corev1.Pod, state corev1.ContainerState) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	running := state.Running != nil
	for _, container := range pod.Spec.Containers {
		statuses = append(statuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, State: state, Ready: running, Started: &running,
		})
	}
	return statuses
}

// role is what Completion calls a pod.
func role(pod *corev1.Pod) string {
	for _, label := range []string{"spark-role", "flint.dev/kind"} {
		if value := pod.Labels[label]; value != "" {
			return value
		}
	}
	return "pod"
}

// podLog takes what the containers of a pod write.
type podLog struct {
	cluster *Cluster
	uid     types.UID
}

func (l *podLog) Write(text []byte) (int, error) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	if _, found := l.cluster.uids[l.uid]; found {
		l.cluster.logs[l.uid] = append(l.cluster.logs[l.uid], bytes.Clone(text)...)
	}
	return len(text), nil
}
