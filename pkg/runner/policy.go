package runner

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// policy compares a finished pod with its base and its parent. A field must be as the base has it, unless there
// is a rule for it below.
type policy struct {
	parent *parent
	base   object
	allow  []string
	sees   sight
}

// allowKinds are what an entry of Settings.Allow begins with.
var allowKinds = []string{"image", "secret", "configMap", "claim", "pullSecret", "priorityClass", "runtimeClass"}

// CheckAllow finds the first mistake in Settings.Allow.
func CheckAllow(allow []string) error {
	for _, entry := range allow {
		if kind, name, _ := strings.Cut(entry, ":"); name == "" || !slices.Contains(allowKinds, kind) {
			return fmt.Errorf("%q is not one of %s, a colon and a name", entry, strings.Join(allowKinds, ", "))
		}
	}
	return nil
}

// allows tells whether the operator lets runners have it.
func (p *policy) allows(kind, name string) bool {
	return slices.ContainsFunc(p.allow, func(entry string) bool {
		k, n, _ := strings.Cut(entry, ":")
		return k == kind && (n == name || kind == "image" && repository(n) == repository(name))
	})
}

// harmless are the fields of a pod's spec that give it nothing but a place and a way to be scheduled.
var harmless = []string{"nodeSelector", "tolerations", "topologySpreadConstraints", "hostAliases", "dnsPolicy", "dnsConfig", "readinessGates"}

// switches are fields of a pod's spec that give it nothing when they are false.
var switches = []string{"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "setHostnameAsFQDN", "hostUsers", "automountServiceAccountToken"}

// check is the whole comparison, but for labels and annotations.
func (p *policy) check(pod object) error {
	spec, baseSpec := pod["spec"].(object), p.base["spec"].(object)
	for _, field := range fields(spec, baseSpec) {
		value, base, at := spec[field], baseSpec[field], "template.spec."+field
		var err error
		switch {
		case same(value, base) || slices.Contains(harmless, field) || value == false && slices.Contains(switches, field):
		case field == "containers" || field == "initContainers": // below, those that are as they were too
		case field == "securityContext": // in secure
		case field == "affinity":
			err = p.affinity(at, value)
		case field == "resources":
			err = p.resources(at, value)
		case field == "volumes":
			err = p.volumes(at, objects(value))
		case field == "imagePullSecrets":
			err = p.pullSecrets(at, objects(value))
		case (field == "priorityClassName" || field == "runtimeClassName") && p.allows(strings.TrimSuffix(field, "Name"), text(spec, field)):
		default:
			err = exceeds(at, value)
		}
		if err != nil {
			return err
		}
	}
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[kind]) {
			base := named(objects(baseSpec[kind]), c["name"])
			if same(c, base) {
				continue
			}
			if kind != "containers" || c["name"] != p.parent.app.Name {
				base = nil // what another container has is not this one's to change
			}
			if err := p.container(fmt.Sprintf("template.spec.%s[%v]", kind, c["name"]), kind, c, base, objects(spec["volumes"])); err != nil {
				return err
			}
		}
	}
	return nil
}

// containerHarmless are the fields of a container that decide what runs in it, and how it is looked at.
var containerHarmless = []string{
	"name", "command", "args", "workingDir", "resizePolicy", "imagePullPolicy", "terminationMessagePolicy", "stdin", "stdinOnce", "tty",
}

// container checks one that the template made or changed: against the runner's own container, whatever the parent's others may.
func (p *policy) container(at, kind string, c, base object, volumes []object) error {
	for _, field := range fields(c, base) {
		value, at := c[field], at+"."+field
		var err error
		switch {
		case field == "securityContext": // in secure
		case same(value, base[field]) || slices.Contains(containerHarmless, field):
		case field == "image":
			image, _ := value.(string)
			if repository(image) != repository(p.parent.app.Image) && !p.allows("image", image) {
				err = denied(at, "%s is %s, of another repository than the parent's %s", at, show(at, image), p.parent.app.Image)
			}
		case field == "env":
			err = p.env(at, objects(value))
		case field == "envFrom":
			err = p.envFrom(at, objects(value))
		case field == "resources":
			err = p.resources(at, value)
		case field == "ports":
			for _, port := range objects(value) {
				for _, key := range []string{"hostPort", "hostIP"} {
					if v := port[key]; v != nil && v != int64(0) && v != "" && err == nil {
						err = exceeds(at+"."+key, v)
					}
				}
			}
		case field == "livenessProbe" || field == "readinessProbe" || field == "startupProbe" || field == "lifecycle":
			// The node's own address asks: nothing else may be behind it than the pod.
			if host := find(value, "host"); host != nil {
				err = exceeds(at+".host", host)
			}
		case field == "volumeMounts":
			err = p.mounts(at, objects(value), volumes)
		case field == "restartPolicy" && kind == "initContainers" && value == string(corev1.ContainerRestartPolicyAlways):
		default:
			err = exceeds(at, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *policy) resources(at string, value any) error {
	resources, _ := value.(object)
	for _, field := range fields(resources, nil) {
		if field != "limits" && field != "requests" {
			return exceeds(at+"."+field, resources[field])
		}
	}
	return nil
}

// affinity may not reach pods of other namespaces, which it could keep off nodes.
func (p *policy) affinity(at string, value any) error {
	affinity, _ := value.(object)
	for _, field := range fields(affinity, nil) {
		for _, key := range []string{"namespaces", "namespaceSelector"} {
			if found := find(affinity[field], key); found != nil && field != "nodeAffinity" {
				return exceeds(at+"."+field+"."+key, found)
			}
		}
	}
	return nil
}

func (p *policy) pullSecrets(at string, secrets []object) error {
	for _, s := range secrets {
		name := text(s, "name")
		theirs := slices.ContainsFunc(p.parent.pod.Spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name == name })
		if !theirs && !p.allows("pullSecret", name) {
			return denied(at, "%s has %q, which is none of the parent's", at, name)
		}
	}
	return nil
}

// fields are the names of the fields of both, sorted.
func fields(a, b object) []string {
	both := maps.Clone(a)
	if both == nil {
		both = object{}
	}
	maps.Copy(both, b)
	return slices.Sorted(maps.Keys(both))
}

// same tells whether two values mean the same: absent, null, and empty lists and objects are one.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || empty(a) && empty(b)
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case object:
		return len(value) == 0
	case list:
		return len(value) == 0
	}
	return false
}

// find is a value under the key, however deep, that is not empty.
func find(value any, key string) any {
	switch value := value.(type) {
	case object:
		if v := value[key]; !empty(v) && v != "" {
			return v
		}
		for _, k := range fields(value, nil) {
			if found := find(value[k], key); found != nil {
				return found
			}
		}
	case list:
		for _, item := range value {
			if found := find(item, key); found != nil {
				return found
			}
		}
	}
	return nil
}

func exceeds(at string, value any) error {
	if empty(value) {
		return denied(at, "%s is taken away, and a runner must have what its parent has there", at)
	}
	return denied(at, "%s is %s, which is more than the parent has, or not for a template to choose", at, show(at, value))
}
