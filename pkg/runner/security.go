package runner

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// Fields of security contexts that the rules below know. Any other must be the parent's own.
var (
	knownOfPod = []string{
		"seLinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile", // by container
		"supplementalGroups", "supplementalGroupsPolicy", "fsGroup", "fsGroupChangePolicy", "sysctls",
	}
	knownOfContainer = []string{
		"seLinuxOptions", "windowsOptions", "runAsUser", "runAsGroup", "runAsNonRoot", "seccompProfile", "appArmorProfile",
		"capabilities", "privileged", "readOnlyRootFilesystem", "allowPrivilegeEscalation", "procMount",
	}
)

// breach is a field of a security context that gives more than the parent's.
type breach struct {
	field string // in the pod, once secure has found it
	value any
}

// secure compares what the containers of the pod may do with what those of the parent may: one that is the parent's as it is with
// itself, any other with the app's. It is nil where none may do more.
func (p *policy) secure(pod object) (*breach, error) {
	var read corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod, &read); err != nil {
		return nil, badTemplate("", "cannot be read once merged: %v", err)
	}
	spec, baseSpec := pod["spec"].(object), p.base["spec"].(object)
	rawPod, _ := spec["securityContext"].(object)
	theirRawPod, _ := p.parent.spec()["securityContext"].(object)
	ours := ptr.Deref(read.Spec.SecurityContext, corev1.PodSecurityContext{})
	theirs := ptr.Deref(p.parent.pod.Spec.SecurityContext, corev1.PodSecurityContext{})
	found := unknown(rawPod, theirRawPod, knownOfPod)
	if found == nil {
		found = podBreach(&ours, &theirs)
	}
	if found != nil {
		return &breach{"spec.securityContext." + found.field, found.value}, nil
	}
	for _, kind := range []string{"containers", "initContainers"} {
		containers := read.Spec.Containers
		if kind == "initContainers" {
			containers = read.Spec.InitContainers
		}
		raws, theirRaws := objects(spec[kind]), objects(p.parent.spec()[kind])
		for i, c := range containers {
			theirRaw := p.parent.rawApp
			if c.Name != p.parent.app.Name && same(raws[i], named(objects(baseSpec[kind]), c.Name)) {
				theirRaw = named(theirRaws, c.Name)
			}
			raw, _ := raws[i]["securityContext"].(object)
			theirRawContext, _ := theirRaw["securityContext"].(object)
			var their corev1.Container
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(theirRaw, &their); err != nil {
				return nil, fmt.Errorf("read the parent's container: %w", err)
			}
			found := unknown(raw, theirRawContext, knownOfContainer)
			if found == nil {
				found = containerBreach(effective(&ours, c.SecurityContext), effective(&theirs, their.SecurityContext))
			}
			if found == nil {
				continue
			}
			at := fmt.Sprintf("spec.%s[%s].securityContext.%s", kind, c.Name, found.field)
			if _, here := raw[found.field]; !here && rawPod[found.field] != nil {
				at = "spec.securityContext." + found.field
			}
			return &breach{at, found.value}, nil
		}
	}
	return nil, nil
}

// unknown is the first field that the rules do not know and that is not the parent's.
func unknown(ours, theirs object, known []string) *breach {
	for _, field := range fields(ours, theirs) {
		if !slices.Contains(known, field) && !same(ours[field], theirs[field]) {
			return &breach{field, ours[field]}
		}
	}
	return nil
}

// effective is the container's context with what it has from the pod's.
func effective(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) corev1.SecurityContext {
	c := ptr.Deref(container, corev1.SecurityContext{})
	c.RunAsUser = or(c.RunAsUser, pod.RunAsUser)
	c.RunAsGroup = or(c.RunAsGroup, pod.RunAsGroup)
	c.RunAsNonRoot = or(c.RunAsNonRoot, pod.RunAsNonRoot)
	c.SeccompProfile = or(c.SeccompProfile, pod.SeccompProfile)
	c.AppArmorProfile = or(c.AppArmorProfile, pod.AppArmorProfile)
	c.SELinuxOptions = or(c.SELinuxOptions, pod.SELinuxOptions)
	c.WindowsOptions = or(c.WindowsOptions, pod.WindowsOptions)
	return c
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func podBreach(ours, theirs *corev1.PodSecurityContext) *breach {
	for _, group := range ours.SupplementalGroups {
		if !slices.Contains(theirs.SupplementalGroups, group) {
			return &breach{"supplementalGroups", group}
		}
	}
	for _, sysctl := range ours.Sysctls {
		if !slices.Contains(theirs.Sysctls, sysctl) {
			return &breach{"sysctls", sysctl.Name}
		}
	}
	strict := ptr.To(corev1.SupplementalGroupsPolicyStrict)
	switch {
	case ours.FSGroup != nil && !ptr.Equal(ours.FSGroup, theirs.FSGroup):
		return &breach{"fsGroup", *ours.FSGroup}
	case ptr.Equal(theirs.SupplementalGroupsPolicy, strict) && !ptr.Equal(ours.SupplementalGroupsPolicy, strict):
		return &breach{"supplementalGroupsPolicy", value(ours.SupplementalGroupsPolicy)}
	}
	return nil
}

func containerBreach(ours, theirs corev1.SecurityContext) *breach {
	yes, no := ptr.To(true), ptr.To(false)
	root := theirs.RunAsUser != nil && *theirs.RunAsUser == 0
	switch {
	case ptr.Equal(ours.Privileged, yes) && !ptr.Equal(theirs.Privileged, yes):
		return &breach{"privileged", true}
	case ptr.Equal(theirs.AllowPrivilegeEscalation, no) && !ptr.Equal(ours.AllowPrivilegeEscalation, no):
		return &breach{"allowPrivilegeEscalation", value(ours.AllowPrivilegeEscalation)}
	case !root && !within(ours.RunAsUser, theirs.RunAsUser):
		return &breach{"runAsUser", value(ours.RunAsUser)}
	case !within(ours.RunAsGroup, theirs.RunAsGroup):
		return &breach{"runAsGroup", value(ours.RunAsGroup)}
	case ptr.Equal(theirs.RunAsNonRoot, yes) && !ptr.Equal(ours.RunAsNonRoot, yes):
		return &breach{"runAsNonRoot", value(ours.RunAsNonRoot)}
	case ptr.Equal(theirs.ReadOnlyRootFilesystem, yes) && !ptr.Equal(ours.ReadOnlyRootFilesystem, yes):
		return &breach{"readOnlyRootFilesystem", value(ours.ReadOnlyRootFilesystem)}
	case ours.ProcMount != nil && *ours.ProcMount != corev1.DefaultProcMount && !ptr.Equal(ours.ProcMount, theirs.ProcMount):
		return &breach{"procMount", *ours.ProcMount}
	case !reflect.DeepEqual(ours.SELinuxOptions, theirs.SELinuxOptions):
		return &breach{"seLinuxOptions", shown(ours.SELinuxOptions)}
	case !reflect.DeepEqual(ours.WindowsOptions, theirs.WindowsOptions):
		return &breach{"windowsOptions", shown(ours.WindowsOptions)}
	case !asSecure(seccomp(ours.SeccompProfile), seccomp(theirs.SeccompProfile), string(corev1.SeccompProfileTypeUnconfined)):
		return &breach{"seccompProfile", seccomp(ours.SeccompProfile).kind}
	// Without a profile a container has the runtime's, where the node has AppArmor.
	case !asSecure(appArmor(ours.AppArmorProfile), appArmor(theirs.AppArmorProfile), string(corev1.AppArmorProfileTypeRuntimeDefault)):
		return &breach{"appArmorProfile", appArmor(ours.AppArmorProfile).kind}
	}
	return capabilitiesBreach(ours, theirs)
}

// within tells whether the id is one that the parent could have: the parent's, or where that is the image's, any but root's.
func within(ours, theirs *int64) bool {
	return ptr.Equal(ours, theirs) || theirs == nil && *ours != 0 || theirs != nil && *theirs == 0 && ours != nil
}

func capabilitiesBreach(ours, theirs corev1.SecurityContext) *breach {
	const all corev1.Capability = "ALL"
	our, their := ptr.Deref(ours.Capabilities, corev1.Capabilities{}), ptr.Deref(theirs.Capabilities, corev1.Capabilities{})
	for _, c := range our.Add {
		if !slices.Contains(their.Add, c) && !slices.Contains(their.Add, all) && !ptr.Deref(theirs.Privileged, false) {
			return &breach{"capabilities", "add " + c}
		}
	}
	for _, c := range their.Drop {
		if !slices.Contains(our.Drop, c) && !slices.Contains(our.Drop, all) {
			return &breach{"capabilities", "not drop " + c}
		}
	}
	return nil
}

// profile is a seccomp or an AppArmor profile.
type profile struct{ kind, localhost string }

func seccomp(p *corev1.SeccompProfile) profile {
	if p == nil {
		return profile{}
	}
	return profile{string(p.Type), ptr.Deref(p.LocalhostProfile, "")}
}

func appArmor(p *corev1.AppArmorProfile) profile {
	if p == nil {
		return profile{}
	}
	return profile{string(p.Type), ptr.Deref(p.LocalhostProfile, "")}
}

// asSecure tells whether our profile confines as theirs does. Of a profile of the node's own nobody knows how much it does, so
// that only itself is as good; absent means absent.
func asSecure(ours, theirs profile, absent string) bool {
	if ours == theirs {
		return true
	}
	const unconfined, runtimeDefault = "Unconfined", "RuntimeDefault"
	rank := func(p profile) int {
		if p.kind == "" {
			p.kind = absent
		}
		return slices.Index([]string{unconfined, runtimeDefault}, p.kind)
	}
	return rank(ours) >= 0 && rank(theirs) >= 0 && rank(ours) >= rank(theirs)
}

// value is what the pointer points to, or nil.
func value[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// shown is an object that is there, for a message, or nil.
func shown[T any](p *T) any {
	if p == nil {
		return nil
	}
	return object{"set": true}
}
