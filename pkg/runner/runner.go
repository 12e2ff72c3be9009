// Package runner turns a request and the pod that it comes from, its parent, into the plan of a runner's launch: a pod of the parent's
// shape that runs once, and ends. It is pure.
//
// The pod starts empty. It gets what the request inherits from the parent, then the request's template (a strategic merge,
// as kubectl patch does it), then what no request may choose. The result is compared with the parent: whoever asks for a
// runner may not be allowed to create pods, and so it never exceeds its parent, in nothing. That comparison is by
// allow-list: a field that is neither inherited nor known to be harmless is refused, fields of later Kubernetes
// versions with it.
//
// FLAME for Elixir is the client that this was made for; any program that is told by a variable where its parent is
// works the same way.
package runner

import (
	"cmp"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// Labels and annotations of a runner's pod, beside those of package launch and launch.AnnotationContainer.
const (
	LabelComponent = "app.kubernetes.io/component" // Component
	LabelParentUID = "flint.dev/parent-uid"
	LabelOwner     = "flint.dev/owner" // api.OwnerParent, OwnerController or OwnerNone

	AnnotationParent        = "flint.dev/parent"          // the parent's name
	AnnotationBootTimeout   = "flint.dev/boot-timeout-ms" // counted from the pod's creation
	AnnotationOnBootTimeout = "flint.dev/on-boot-timeout" // api.OnTimeoutDelete or OnTimeoutKeep
	AnnotationTTL           = "flint.dev/ttl-seconds"     // counted from the pod's end

	Component = "runner"
)

// Facts are what the cluster says about the request.
type Facts struct {
	// Parent is the parent pod, as the API server has it. Fields that this build does not know are inherited like others.
	Parent *unstructured.Unstructured
	// Selectors are those of the namespace that the runner's labels must not match; none if nobody looked.
	Selectors []Selector
	// InUse are the claims that only one node, or one pod, can use at a time, and that a pod uses, by name. Claims tells
	// which ones matter.
	InUse map[string]Use
}

// Selector is how a Service, a PodDisruptionBudget or a controller selects its pods. An empty one, which
// means all or none, is not looked at.
type Selector struct {
	Kind, Name string
	Labels     metav1.LabelSelector
}

// Use is who uses a claim.
type Use struct {
	Pod, Node string
	// OncePod is true of a claim with the access mode ReadWriteOncePod.
	OncePod bool
}

// Settings are the operator's.
type Settings struct {
	// AllowNested lets a runner be a parent.
	AllowNested bool
	// MaxLifetime bounds max_lifetime_seconds, and stands in for it; zero is no bound.
	MaxLifetime time.Duration
	// PinDigest makes the runner run the very image that its parent runs, even if the tag has moved, where the node
	// tells the image's digest in the same repository.
	PinDigest bool
	// Allow is what runners may have that their parents do not, each as "kind:name" with a kind of image (a repository),
	// secret, configMap, claim, pullSecret, priorityClass or runtimeClass. CheckAllow finds mistakes.
	Allow []string
}

// Runner is a request that was understood.
type Runner struct {
	Plan *launch.Plan
	// Container is the name of the container that the runner is for.
	Container string
	Terms     Terms
	// Warnings are what was left out, or looks like a mistake, without values of env.
	Warnings []string
}

// Terms are what a runner's pod says about its life.
type Terms struct {
	ParentName, ParentUID string
	Owner                 string // api.OwnerParent, OwnerController or OwnerNone
	BootTimeout           time.Duration
	OnBootTimeout         string // api.OnTimeoutDelete or OnTimeoutKeep
	TTL                   time.Duration
}

// TermsOf reads the terms of a runner's pod. What is not there, or cannot be read, is the default of a request.
func TermsOf(pod *corev1.Pod) Terms {
	standard := api.RunnerRequest{}.Complete()
	number := func(annotation string, unit time.Duration, otherwise int64) time.Duration {
		n, err := strconv.ParseInt(pod.Annotations[annotation], 10, 32)
		if err != nil || n < 0 {
			n = otherwise
		}
		return time.Duration(n) * unit
	}
	return Terms{
		ParentName: pod.Annotations[AnnotationParent], ParentUID: pod.Labels[LabelParentUID],
		Owner:         cmp.Or(pod.Labels[LabelOwner], standard.Owner),
		BootTimeout:   number(AnnotationBootTimeout, time.Millisecond, standard.BootTimeoutMS),
		OnBootTimeout: cmp.Or(pod.Annotations[AnnotationOnBootTimeout], standard.OnBootTimeout),
		TTL:           number(AnnotationTTL, time.Second, *standard.TTLSecondsAfterFinished),
	}
}

// BootDeadline is when the runner's container must run.
func (t Terms) BootDeadline(pod *corev1.Pod) time.Time {
	return pod.CreationTimestamp.Add(t.BootTimeout)
}
