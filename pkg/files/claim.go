package files

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

// look is what was seen of a claim before a launch.
type look struct {
	claim *corev1.PersistentVolumeClaim
	facts filejob.Facts
}

// look looks at the claim, and at the pods that use it where it matters who they are and where they run.
func (f *Files) look(ctx context.Context, request *api.FileRequest) (*look, error) {
	if err := f.Settings.Job.Check(); err != nil {
		return nil, err
	}
	claim, err := f.claim(ctx, request.Target.Namespace, request.Target.Claim)
	if err != nil {
		return nil, err
	}
	mutates := request.Operation.Mutates()
	if err := f.usable(claim, mutates); err != nil {
		return nil, err
	}
	l := &look{claim: claim, facts: filejob.Facts{ClaimUID: claim.UID}}
	refuse := refuses(request)
	target := request.Target
	if shared(claim) && !refuse && target.RunAsUser != nil && target.RunAsGroup != nil && target.FSGroup != nil && mutates {
		return l, nil // neither where they run nor who they are would change anything
	}
	users, err := f.users(ctx, claim)
	if err != nil {
		return nil, err
	}
	return l, l.placeBeside(users, refuse)
}

// refuses tells whether a claim that a pod has mounted is refused.
func refuses(request *api.FileRequest) bool {
	if request.InUse == "" {
		return request.Operation.Mutates()
	}
	return request.InUse == api.InUseRefuse
}

// claim reads the claim.
func (f *Files) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	ref := kube.Ref{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name}
	object, err := f.Client.Get(ctx, ref)
	switch {
	case apierrors.IsNotFound(err):
		return nil, api.FieldErrorf(api.ClaimNotFound, "target.claim", "there is no claim %q in namespace %s", name, namespace)
	case err != nil:
		return nil, kube.Translate(err, "get", ref)
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, claim); err != nil {
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return claim, nil
}

// usable refuses a claim that no operation could work on, or that the settings do not let any work on.
func (f *Files) usable(claim *corev1.PersistentVolumeClaim, mutates bool) error {
	const field = "target.claim"
	if wanted := f.Settings.ClaimLabel; wanted != "" {
		key, value, exact := strings.Cut(wanted, "=")
		if got, labelled := claim.Labels[key]; !labelled || exact && got != value {
			return api.FieldErrorf(api.PolicyDenied, field, "claim %q has no label %s, without which this Flint does not touch it (FLINT_FILE_CLAIM_LABEL)", claim.Name, wanted)
		}
	}
	switch phase := claim.Status.Phase; {
	case claim.DeletionTimestamp != nil:
		return api.FieldErrorf(api.ClaimTerminating, field, "claim %q is being deleted", claim.Name)
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return api.FieldErrorf(api.ClaimUnusable, field, "claim %q is of a block device, which has no files", claim.Name)
	case phase == corev1.ClaimBound:
	case phase == corev1.ClaimPending && f.Settings.Unbound:
	case phase == corev1.ClaimPending:
		return api.FieldErrorf(api.ClaimUnusable, field, "claim %q is not bound to a volume; one that waits for its first consumer is not bound by an operation unless FLINT_FILE_UNBOUND is true", claim.Name)
	default:
		return api.FieldErrorf(api.ClaimUnusable, field, "claim %q is in the phase %q", claim.Name, phase)
	}
	if modes := modesOf(claim); mutates && len(modes) == 1 && modes[0] == corev1.ReadOnlyMany {
		return api.FieldErrorf(api.ClaimUnusable, field, "claim %q can only be read (ReadOnlyMany)", claim.Name)
	}
	return nil
}

// modesOf are the access modes that the volume has, or those that were asked for as long as there is none.
func modesOf(claim *corev1.PersistentVolumeClaim) []corev1.PersistentVolumeAccessMode {
	if len(claim.Status.AccessModes) > 0 {
		return claim.Status.AccessModes
	}
	return claim.Spec.AccessModes
}

// shared tells whether pods on several nodes may use the claim at once.
func shared(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(modesOf(claim), func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	})
}

func (l *look) exclusive() bool {
	return slices.Contains(modesOf(l.claim), corev1.ReadWriteOncePod)
}

// users are the pods that have the claim mounted: that have a node, and have not ended. The API server cannot select pods by
// their claims, so that all such pods of the namespace are looked at, a page at a time.
func (f *Files) users(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: claim.Namespace}
	var users []corev1.Pod
	restarts := 0
	options := kube.ListOptions{FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", Limit: pageSize}
	for {
		page, err := f.Client.List(ctx, of, options)
		if apierrors.IsResourceExpired(err) && options.Continue != "" && restarts == 0 {
			restarts++
			options.Continue, users = "", nil
			continue
		}
		if err != nil {
			return nil, kube.Translate(err, "list", of)
		}
		pods, err := podsOf(page)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods {
			if volumeOf(&pod, claim.Name) != "" && !isDone(&pod) {
				users = append(users, pod)
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return users, nil
		}
	}
}

// volumeOf is the name of the pod's volume that is the claim, or empty.
func volumeOf(pod *corev1.Pod, claim string) string {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim,
			v.Ephemeral != nil && pod.Name+"-"+v.Name == claim: // the name that the controller gives it
			return v.Name
		}
	}
	return ""
}

func isFileJob(pod *corev1.Pod) bool { return pod.Labels[launch.LabelKind] == string(launch.File) }

// isDone tells a file job's pod whose agent has ended: it no longer does anything, and its phase follows in a moment.
func isDone(pod *corev1.Pod) bool { return isFileJob(pod) && filejob.PodEnded(pod) }

// placeBeside takes from the pods that use the claim where and as whom the operation must run. Other file jobs do not
// count as use: those that only read may run beside anything, and those that change have a turn. But a
// volume that one node has, it has, whoever uses it.
func (l *look) placeBeside(users []corev1.Pod, refuse bool) error {
	nodes := map[string][]string{} // the pods on them
	var first *corev1.Pod          // that runs, and is no file job's
	for i := range users {
		pod := &users[i]
		if l.exclusive() {
			return busy("claim %q is for one pod at a time (ReadWriteOncePod), and pod %s has it", l.claim.Name, pod.Name)
		}
		if !isFileJob(pod) {
			if refuse {
				return busy(`claim %q is in use by pod %s; in_use "allow" lets the operation run beside it`, l.claim.Name, pod.Name)
			}
			l.facts.Live = true
			if first == nil {
				first = pod
			}
		}
		if pod.Spec.NodeName != "" {
			nodes[pod.Spec.NodeName] = append(nodes[pod.Spec.NodeName], pod.Name)
		}
	}
	if first != nil {
		l.facts.As, l.facts.SELinux = identityOf(first, l.claim.Name)
	}
	if shared(l.claim) || len(nodes) == 0 {
		return nil
	}
	if len(nodes) > 1 {
		var all []string
		for node, pods := range nodes {
			all = append(all, fmt.Sprintf("%s (%s)", node, strings.Join(pods, ", ")))
		}
		slices.Sort(all)
		return busy("claim %q is for one node (ReadWriteOnce), and pods on several use it: %s", l.claim.Name, strings.Join(all, "; "))
	}
	for node := range nodes {
		l.facts.Node = node
	}
	for i := range users {
		if users[i].Spec.NodeName == l.facts.Node {
			l.facts.Tolerations = append(l.facts.Tolerations, users[i].Spec.Tolerations...)
			break
		}
	}
	return nil
}

// identityOf is who the pod runs as in the container that has the claim mounted: its own word counts before the pod's.
func identityOf(pod *corev1.Pod, claim string) (filejob.Identity, *corev1.SELinuxOptions) {
	var as filejob.Identity
	var linux *corev1.SELinuxOptions
	if c := pod.Spec.SecurityContext; c != nil {
		as = filejob.Identity{User: c.RunAsUser, Group: c.RunAsGroup, FSGroup: c.FSGroup}
		linux = c.SELinuxOptions
	}
	volume := volumeOf(pod, claim)
	for _, container := range pod.Spec.Containers {
		mounts := slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
		own := container.SecurityContext
		if !mounts || own == nil {
			continue
		}
		if own.RunAsUser != nil {
			as.User = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			as.Group = own.RunAsGroup
		}
		if own.SELinuxOptions != nil {
			linux = own.SELinuxOptions
		}
		break
	}
	return as, linux
}

// busy is retryable: it lasts as long as others use the claim.
func busy(format string, args ...any) *api.Error {
	e := api.FieldErrorf(api.VolumeBusy, "target.claim", format, args...)
	e.RetryAfter = busyRetry
	return e
}
