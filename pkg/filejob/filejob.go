// Package filejob makes the Job of a file operation, and reads from a Job and its pod what became of it. It is pure.
//
// The Job has one pod with one container, the agent (package fileagent), which has the claim mounted and nothing else: no
// token, no capability, a root file system that it cannot write. Where the operation only reads, the claim is mounted so
// that the kernel keeps it from writing. The request goes to the agent as data: in a variable, or, where it holds content, a
// token or a URL, in a Secret that the Job owns.
package filejob

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/launch"
)

// What a file job has beside the bookkeeping of package launch.
const (
	LabelClaim = "flint.dev/claim" // the claim's uid, on Job and pod
	LabelOp    = "flint.dev/op"    // on Job and pod

	AnnotationClaim       = "flint.dev/claim-name"  // on the Job: a claim's name may be longer than a label
	AnnotationSubPath     = "flint.dev/sub-path"    // on the Job, where the request has one
	AnnotationConsistency = "flint.dev/consistency" // on the Job: Live, where a pod had the claim mounted

	// Live is the consistency of what was read while a pod may have been changing it.
	Live = "live"
)

const (
	// Container is the agent's.
	Container = "agent"
	// root is where the claim is mounted, requestFolder where the Secret is, and requestFile its file.
	root          = "/claim"
	requestFolder = "/flint"
	requestFile   = "request.json"
	// maxSecret is the most bytes of a Secret's data (k8s.io/api/core/v1 MaxSecretSize).
	maxSecret = corev1.MaxSecretSize
	// graceSeconds is the time that a deleted pod has for coming to a point where nothing is half done.
	graceSeconds = 10
)

// Settings are what every file job of an instance has in common.
type Settings struct {
	// Image has the agent as its entrypoint. Empty means that file jobs are not configured.
	Image       string
	PullPolicy  corev1.PullPolicy // empty means Kubernetes' own default
	PullSecrets []string
	// ServiceAccount is the pod's; empty means "default". It gets no token of it.
	ServiceAccount string
	// CPU and Memory are requests and limits alike.
	CPU, Memory resource.Quantity
	// User and Group are who an operation runs as when neither its request nor a pod that uses the claim says so.
	User, Group int64
	// Root allows the user 0, with the capabilities to reach files of every owner.
	Root bool
	// Timeout is the default for an operation, LongTimeout for one that may be long, and the most for all.
	Timeout, LongTimeout time.Duration
	// Limits go to the agent.
	Limits protocol.Limits
}

// Check refuses, with an *api.Error NOT_CONFIGURED, settings without an image.
func (s Settings) Check() error {
	if s.Image != "" {
		return nil
	}
	e := api.Errorf(api.NotConfigured, "file jobs are not configured: FLINT_FILE_IMAGE is empty")
	e.RetryAfter = time.Minute
	return e
}

// Facts are what was looked up of a claim and of the pods that use it.
type Facts struct {
	ClaimUID types.UID
	// Live is true when a pod that is no file job's had the claim mounted.
	Live bool
	// Node is the one that the claim is attached to, when it can be attached to one alone; empty means any.
	Node string
	// Tolerations are those of the pod that uses the claim there.
	Tolerations []corev1.Toleration
	// As is who the pod that uses the claim runs as; nil where it does not say.
	As Identity
	// SELinux are that pod's options: another label could relabel the volume under it.
	SELinux *corev1.SELinuxOptions
}

// Identity is who a pod runs as.
type Identity struct{ User, Group, FSGroup *int64 }

// JobName is the name of the Job, and of its Secret, of the launch id.
func JobName(id string) string { return "fj-" + id }

// Plan makes the Job of a request that was decoded without a fault, with its Secret if it needs one. The traceparent may be
// empty. The error is an *api.Error: NOT_CONFIGURED without an image, POLICY_DENIED for root, BAD_REQUEST for a time-out beyond
// the settings' and PAYLOAD_TOO_LARGE for a batch that no Secret holds.
func Plan(request *api.FileRequest, facts Facts, settings Settings, traceparent string) (*launch.Plan, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	timeout, err := timeoutOf(request, settings)
	if err != nil {
		return nil, err
	}
	identity, err := identityOf(&request.Target, facts, settings)
	if err != nil {
		return nil, err
	}
	op := inBytes(request.Operation)
	data := &protocol.Request{Operation: op, SubPath: request.Target.SubPath, Claim: request.Target.Claim, Limits: settings.Limits}
	hash, err := hashOf(request, op)
	if err != nil {
		return nil, err
	}

	name := JobName(launch.ID(request.Target.Namespace, request.SubmissionID))
	b := builder{request: request, facts: facts, settings: settings, identity: identity, name: name}
	var support []launch.Support
	if value, fits := protocol.EncodeEnv(data); fits && !op.Secret() {
		b.env = value
	} else {
		text := protocol.EncodeFile(data)
		if len(text) > maxSecret {
			return nil, api.FieldErrorf(api.PayloadTooLarge, "operation", "the operation has %d bytes, more than the %d of a Secret: split it", len(text), maxSecret)
		}
		secret, err := object(b.secret(text))
		if err != nil {
			return nil, err
		}
		support = []launch.Support{{Object: secret}}
	}
	job, err := object(b.job(timeout))
	if err != nil {
		return nil, err
	}
	return launch.NewPlan(launch.Plan{
		Kind: launch.File, Namespace: request.Target.Namespace, SubmissionID: request.SubmissionID,
		Hash: hash, Traceparent: traceparent, Workload: job, Support: support,
	})
}

func timeoutOf(request *api.FileRequest, settings Settings) (time.Duration, error) {
	if seconds := request.TimeoutSeconds; seconds != nil {
		if most := int(settings.LongTimeout.Seconds()); *seconds < 1 || *seconds > most {
			return 0, api.FieldErrorf(api.BadRequest, "timeout_seconds", "timeout_seconds is %d; it must be from 1 to %d", *seconds, most)
		}
		return time.Duration(*seconds) * time.Second, nil
	}
	if request.Operation.Long() {
		return settings.LongTimeout, nil
	}
	return settings.Timeout, nil
}

// identityOf is who the operation runs as: as the request says, else as the pod that uses the claim, else as the settings
// say. A pod that runs as root is followed only where root is allowed.
func identityOf(target *api.FileTarget, facts Facts, settings Settings) (Identity, error) {
	if user := target.RunAsUser; user != nil && *user == 0 && !settings.Root {
		return Identity{}, api.FieldErrorf(api.PolicyDenied, "target.run_as_user", "run_as_user is 0, and this Flint runs no operation as root (FLINT_FILE_ROOT)")
	}
	taken := facts.As
	if taken.User != nil && *taken.User == 0 && !settings.Root {
		taken.User = nil
	}
	return Identity{
		User:    cmp.Or(target.RunAsUser, taken.User, &settings.User),
		Group:   cmp.Or(target.RunAsGroup, taken.Group, &settings.Group),
		FSGroup: cmp.Or(target.FSGroup, taken.FSGroup),
	}, nil
}

// inBytes is the operation with each text as the bytes that it is: in JSON a text may be six times as long, and bytes
// are a third longer.
func inBytes(op api.FileOperation) api.FileOperation {
	if op.Text != nil {
		content := []byte(*op.Text)
		op.Content, op.Text = &content, nil
	}
	if op.Operations != nil {
		inner := make([]api.FileOperation, len(op.Operations))
		for i, o := range op.Operations {
			inner[i] = inBytes(o)
		}
		op.Operations = inner
	}
	return op
}

// hashSpace keeps the hash apart from any other of the same bytes.
const hashSpace = "flint.dev/file/v1\n"

// hashOf is the hash of what the request asks for; how long its answer may wait is no part of that.
func hashOf(request *api.FileRequest, op api.FileOperation) (string, error) {
	canonical := *request
	canonical.Operation, canonical.WaitSeconds = op, nil
	text, err := json.Marshal(canonical)
	if err != nil {
		return "", fmt.Errorf("hash a file request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(hashSpace), text...))
	return hex.EncodeToString(sum[:]), nil
}

// builder makes the objects of one request.
type builder struct {
	request  *api.FileRequest
	facts    Facts
	settings Settings
	identity Identity
	name     string
	env      string // the request in base64, or empty where the Secret has it
}

func (b *builder) mutates() bool { return b.request.Operation.Mutates() }

// labels are those by which the Job and its pod are found.
func (b *builder) labels() map[string]string {
	return map[string]string{LabelClaim: string(b.facts.ClaimUID), LabelOp: string(b.request.Operation.Op)}
}

func (b *builder) job(timeout time.Duration) *batchv1.Job {
	annotations := map[string]string{AnnotationClaim: b.request.Target.Claim}
	if path := b.request.Target.SubPath; path != "" {
		annotations[AnnotationSubPath] = path
	}
	if b.facts.Live {
		annotations[AnnotationConsistency] = Live
	}
	// The pod has the labels that Flint finds it by, and not the one of what is to be told.
	podLabels := b.labels()
	podLabels[launch.LabelManagedBy] = launch.ManagedBy
	podLabels[launch.LabelKind] = string(launch.File)
	podLabels[launch.LabelID] = launch.ID(b.request.Target.Namespace, b.request.SubmissionID)
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: metav1.ObjectMeta{Name: b.name, Labels: b.labels(), Annotations: annotations},
		Spec: batchv1.JobSpec{
			BackoffLimit:          new(int32(0)),
			ActiveDeadlineSeconds: new(int64(timeout.Seconds())),
			PodReplacementPolicy:  new(batchv1.Failed), // never two at once
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels, Annotations: map[string]string{launch.AnnotationContainer: Container}},
				Spec:       b.pod(),
			},
		},
	}
}

func (b *builder) pod() corev1.PodSpec {
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            b.settings.ServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(graceSeconds)),
		SecurityContext:               b.podSecurity(),
		Containers:                    []corev1.Container{b.container()},
		Volumes: []corev1.Volume{{
			Name: "claim",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: b.request.Target.Claim, ReadOnly: !b.mutates(),
			}},
		}},
	}
	for _, name := range b.settings.PullSecrets {
		spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if b.env == "" {
		spec.Volumes = append(spec.Volumes, corev1.Volume{
			Name: "request",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
				SecretName: b.name, DefaultMode: new(int32(0o444)), // whoever the agent runs as
			}},
		})
	}
	if b.facts.Node != "" {
		// Not nodeName, which would pass the scheduler by: a full node would take the pod and fail it.
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{
					Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{b.facts.Node},
				}},
			}}},
		}}
		spec.Tolerations = b.facts.Tolerations
	}
	return spec
}

func (b *builder) isRoot() bool { return *b.identity.User == 0 }

func (b *builder) podSecurity() *corev1.PodSecurityContext {
	security := &corev1.PodSecurityContext{
		RunAsNonRoot:   new(!b.isRoot()),
		RunAsUser:      b.identity.User,
		RunAsGroup:     b.identity.Group,
		FSGroup:        b.identity.FSGroup,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions: b.facts.SELinux,
	}
	if security.FSGroup != nil {
		// By default each mount would change the group of every file (kubernetes/kubernetes#69699).
		security.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
	}
	return security
}

func (b *builder) container() corev1.Container {
	resources := corev1.ResourceList{corev1.ResourceCPU: b.settings.CPU, corev1.ResourceMemory: b.settings.Memory}
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if b.isRoot() { // those of Pod Security's baseline by which root reaches every owner's files, and keeps them that owner's
		capabilities.Add = []corev1.Capability{"DAC_OVERRIDE"}
		if b.mutates() {
			capabilities.Add = append(capabilities.Add, "CHOWN", "FOWNER")
		}
	}
	c := corev1.Container{
		Name:            Container,
		Image:           b.settings.Image,
		ImagePullPolicy: b.settings.PullPolicy,
		Env: []corev1.EnvVar{
			{Name: protocol.EnvRoot, Value: root},
			{Name: protocol.EnvNonce, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"}}},
		},
		Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources},
		SecurityContext: &corev1.SecurityContext{
			Privileged:               new(false),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             capabilities,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "claim", MountPath: root, ReadOnly: !b.mutates()}},
	}
	if b.env != "" {
		c.Env = append(c.Env, corev1.EnvVar{Name: protocol.EnvRequest, Value: b.env})
	} else {
		c.Env = append(c.Env, corev1.EnvVar{Name: protocol.EnvRequestFile, Value: requestFolder + "/" + requestFile})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "request", MountPath: requestFolder, ReadOnly: true})
	}
	return c
}

func (b *builder) secret(data []byte) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: b.name, Labels: b.labels()},
		Immutable:  new(true),
		Data:       map[string][]byte{requestFile: data},
	}
}

// object is the typed object as plans have it, without the fields that only the API server fills in.
func object(typed runtime.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil, fmt.Errorf("make the objects of a file job: %w", err)
	}
	o := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(o.Object, "status")
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "creationTimestamp")
	return o, nil
}
