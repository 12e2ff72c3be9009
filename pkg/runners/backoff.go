package runners

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

const (
	// annotationBackoff holds the back-off of a Lease.
	annotationBackoff = "flint.dev/backoff"
	// annotationTries is on the pod that tries a shape whose turn it took: the Lease that it took it from.
	annotationTries = "flint.dev/tries"
	// annotationShape is on every runner: the Lease that its failure is noted in.
	annotationShape = "flint.dev/shape"

	firstDelay, lastDelay = 30 * time.Second, 5 * time.Minute
	// quiet is how long after its end a back-off is remembered: the next failure within it waits longer.
	quiet = 10 * time.Minute
	// turnMargin is what a try has beside its boot time, before the turn is free again.
	turnMargin = 10 * time.Second
	// giveBackLimit is short, since somebody waits for an answer, maybe since an API server that is away.
	giveBackLimit = time.Second
)

// backoff is what is known of a shape whose boots fail.
type backoff struct {
	Failures int      `json:"failures"`
	Code     api.Code `json:"code"` // of the last failure
	// Changed is when it was last written, Until when the next launch may try.
	Changed time.Time `json:"changed"`
	Until   time.Time `json:"until"`
	// Tries is the id of the launch that has the turn.
	Tries string `json:"tries,omitempty"`
}

// delay is how long a shape is left alone after so many failures: 30 s, 1 min, 2 min, 4 min, then 5 min.
func delay(failures int) time.Duration {
	d := firstDelay
	for ; failures > 1 && d < lastDelay; failures-- {
		d *= 2
	}
	return min(d, lastDelay)
}

// shapeOf is the name of the Lease for all that boots as this pod does: its spec but for the variables, which differ from
// key to key.
func shapeOf(pod *unstructured.Unstructured) string {
	spec, _ := pod.Object["spec"].(map[string]any)
	spec = maps.Clone(spec)
	for _, list := range []string{"containers", "initContainers"} {
		containers, _ := spec[list].([]any)
		containers = slices.Clone(containers)
		for i := range containers {
			c, _ := containers[i].(map[string]any)
			c = maps.Clone(c)
			delete(c, "env")
			containers[i] = c
		}
		spec[list] = containers
	}
	text, err := json.Marshal(spec)
	if err != nil { // it came from JSON
		panic(err)
	}
	sum := sha256.Sum256(text)
	return "flint-backoff-" + hex.EncodeToString(sum[:])[:20]
}

// turn refuses a launch whose shape is left alone, with BACKOFF and how long still. When the time is over, one launch gets the
// turn: tries is true then, and for a repeat of it. A runner that is there already needs no turn.
func (r *Runners) turn(ctx context.Context, l *Launched) (tries bool, err error) {
	annotate(l.Plan.Workload, annotationShape, l.shape)
	ref := leaseRef(l.Plan.Namespace, l.shape)
	for range maxAttempts {
		lease, err := r.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, kube.Translate(err, "get", ref)
		}
		b, now := backoffOf(lease, r.now()), r.now()
		switch {
		case b.Failures == 0:
			return false, nil
		case b.Tries == l.Plan.ID:
			annotate(l.Plan.Workload, annotationTries, l.shape)
			return true, nil
		case now.Before(b.Until):
			return false, r.unlessThere(ctx, l, b.refusal(now))
		}
		b.Tries, b.Changed, b.Until = l.Plan.ID, now, now.Add(l.Runner.Terms.BootTimeout+turnMargin)
		err = r.write(ctx, lease, b)
		if err == nil {
			annotate(l.Plan.Workload, annotationTries, l.shape)
			return true, nil
		}
		if !isLost(err) {
			return false, kube.Translate(err, "take the turn of", ref)
		}
	}
	e := api.Errorf(api.Backoff, "others try the same at this moment; the same request may be repeated")
	e.RetryAfter = time.Second
	return false, e
}

func (b backoff) refusal(now time.Time) *api.Error {
	wait := max(b.Until.Sub(now), time.Second)
	e := api.Errorf(api.Backoff, "runners of this shape failed to boot %d times in a row, the last with %s: the next may try in %s", b.Failures, b.Code, wait.Round(time.Second))
	if b.Tries != "" {
		e = api.Errorf(api.Backoff, "runners of this shape failed to boot %d times in a row, the last with %s: another one tries now, for %s at most", b.Failures, b.Code, wait.Round(time.Second))
	}
	e.RetryAfter = wait
	return e
}

// unlessThere is the refusal, if the launch's own pod is not there.
func (r *Runners) unlessThere(ctx context.Context, l *Launched, refusal *api.Error) error {
	ref := podRef(l.Plan.Namespace, l.Plan.Workload.GetName())
	pod, err := r.Client.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return refusal
	case err != nil:
		return kube.Translate(err, "get", ref)
	case pod.GetLabels()[launch.LabelID] != l.Plan.ID:
		return refusal
	}
	return nil
}

// giveTurnBack lets another try: this launch came to nothing, and that says nothing of the shape.
func (r *Runners) giveTurnBack(ctx context.Context, l *Launched) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackLimit)
	defer cancel()
	lease, err := r.Client.Get(ctx, leaseRef(l.Plan.Namespace, l.shape))
	if err != nil {
		return // the turn ends by itself
	}
	if b := backoffOf(lease, r.now()); b.Tries == l.Plan.ID {
		b.Tries, b.Until = "", r.now()
		_ = r.write(ctx, lease, b)
	}
}

// failed notes that the boot of a runner failed. began is when its launch began, or its pod's creation: what began before the last
// failure was noted is of the same step, and counts with it.
func (r *Runners) failed(ctx context.Context, namespace, shape, id string, began time.Time, why api.Code) error {
	if shape == "" {
		return nil
	}
	ref := leaseRef(namespace, shape)
	var err error
	for range maxAttempts {
		now := r.now().UTC()
		var lease *unstructured.Unstructured
		lease, err = r.Client.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			b := backoff{Failures: 1, Code: why, Changed: now, Until: now.Add(delay(1))}
			if _, err = r.Client.Create(ctx, namespace, b.lease(shape), false); apierrors.IsAlreadyExists(err) {
				continue
			}
			break
		}
		if err != nil {
			break
		}
		b := backoffOf(lease, now)
		if b.Failures > 0 && b.Tries != id && !began.After(b.Changed) {
			return nil
		}
		b = backoff{Failures: b.Failures + 1, Code: why, Changed: now, Until: now.Add(delay(b.Failures + 1))}
		if err = r.write(ctx, lease, b); !isLost(err) {
			break
		}
	}
	return asError(kube.Translate(err, "note a failed boot in", ref))
}

// booted forgets the failures of a shape, if this launch was the one to try it.
func (r *Runners) booted(ctx context.Context, namespace, shape, id string) error {
	ref := leaseRef(namespace, shape)
	lease, err := r.Client.Get(ctx, ref)
	if err == nil && backoffOf(lease, r.now()).Tries == id {
		err = r.Client.DeleteUnchanged(ctx, ref, lease.GetUID(), lease.GetResourceVersion())
	}
	if err == nil || isLost(err) {
		return nil
	}
	return kube.Translate(err, "forget", ref)
}

// backoffOf is what the Lease says: nothing once it has expired, or where nobody can read it.
func backoffOf(lease *unstructured.Unstructured, now time.Time) backoff {
	var b backoff
	if expired(lease, now) || json.Unmarshal([]byte(cmp.Or(lease.GetAnnotations()[annotationBackoff], "{}")), &b) != nil {
		return backoff{}
	}
	return b
}

func (b backoff) annotations() map[string]any {
	text, err := json.Marshal(b)
	if err != nil { // texts, numbers and times of our clock always marshal
		panic(err)
	}
	return map[string]any{annotationBackoff: string(text), AnnotationExpires: b.Until.Add(quiet).UTC().Format(time.RFC3339)}
}

func (b backoff) lease(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": leaseVersion, "kind": leaseKind,
		"metadata": map[string]any{
			"name":        name,
			"labels":      map[string]any{launch.LabelManagedBy: launch.ManagedBy, launch.LabelKind: string(launch.Runner), LabelLease: leaseBackoff},
			"annotations": b.annotations(),
		},
		"spec": map[string]any{},
	}}
}

// write changes the Lease, if it is as it was read.
func (r *Runners) write(ctx context.Context, lease *unstructured.Unstructured, b backoff) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": lease.GetUID(), "resourceVersion": lease.GetResourceVersion(), "annotations": b.annotations(),
	}})
	if err != nil {
		panic(err)
	}
	_, err = r.Client.Patch(ctx, kube.RefOf(lease.GetNamespace(), lease), types.MergePatchType, patch)
	return err
}

// annotate puts an annotation of ours on the plan's workload.
func annotate(workload *unstructured.Unstructured, key, value string) {
	annotations := maps.Clone(workload.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	workload.SetAnnotations(annotations)
}
