package runner

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// Plan understands a request whose submission id is there. The error is an *api.Error:
// PARENT_UID_MISMATCH or PARENT_TERMINATING for a parent that is no longer the one that is meant, CONTAINER_NOT_FOUND,
// TEMPLATE_INVALID, POLICY_DENIED with field and value where the runner would exceed its parent, CLAIM_UNUSABLE
// for a claim that is in use elsewhere, BAD_REQUEST (422) for env, labels or volumes that cannot be. The traceparent may be empty.
func Plan(request *api.RunnerRequest, facts Facts, settings Settings, traceparent string) (*Runner, error) {
	complete := request.Complete()
	parent, err := readParent(&complete, facts, settings)
	if err != nil {
		return nil, err
	}
	d := &draft{request: &complete, settings: settings, parent: parent}
	id := launch.ID(complete.Parent.Namespace, complete.SubmissionID)
	name := podName(parent.pod.Name, id)
	pod, err := d.build(id, name, facts)
	if err != nil {
		return nil, err
	}
	hash, err := contentHash(complete)
	if err != nil {
		return nil, err
	}
	plan, err := launch.NewPlan(launch.Plan{
		Kind:         launch.Runner,
		Namespace:    complete.Parent.Namespace,
		SubmissionID: complete.SubmissionID,
		Hash:         hash,
		Traceparent:  traceparent,
		Workload:     &unstructured.Unstructured{Object: pod},
		Support:      d.support(id, name),
	})
	if err != nil {
		return nil, fmt.Errorf("plan the runner: %w", err)
	}
	if err := unselected(plan.Workload.GetLabels(), facts.Selectors); err != nil {
		return nil, err
	}
	return &Runner{Plan: plan, Container: parent.app.Name, Terms: d.terms(), Warnings: d.warnings}, nil
}

// MarkName is the name of the mark of the launch's key, a Lease. It depends on the key alone: requests of one key for two
// parents have pods of two names, and meet here.
func MarkName(id string) string { return "flint-key-" + id }

// Keys are the ids of the keys that the runner's pod has used up: its launch's, and that of its flame_parent, if it is another.
func Keys(pod *corev1.Pod) []string {
	keys := []string{pod.Labels[launch.LabelID]}
	for _, c := range pod.Spec.Containers {
		if c.Name != pod.Annotations[launch.AnnotationContainer] {
			continue
		}
		for _, e := range c.Env {
			if boot := launch.ID(pod.Namespace, api.FlameKey(e.Value)); e.Name == flameParent && e.Value != "" && boot != keys[0] {
				keys = append(keys, boot)
			}
		}
	}
	return keys
}

// HasSecret tells whether the runner's pod has variables of a Secret that goes with it, and has its name.
func HasSecret(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		for _, e := range c.Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == pod.Name {
				return true
			}
		}
	}
	return false
}

// podName is the runner's, and that of its Secret: 53 characters at most.
func podName(parent, id string) string {
	return strings.TrimRight(parent[:min(len(parent), 40)], "-.") + "-r-" + id[:10]
}

// build makes the pod: inherited, template, comparison with the parent, and last what needs no comparison.
func (d *draft) build(id, name string, facts Facts) (object, error) {
	t, err := readTemplate(d.request.Template, d.parent.app.Name, d.request.Parent.Namespace)
	if err != nil {
		return nil, err
	}
	if err := d.inherit(); err != nil {
		return nil, err
	}
	pod, err := t.merge(d.base)
	if err != nil {
		return nil, err
	}
	env, err := d.env(t, id, name)
	if err != nil {
		return nil, err
	}
	p := &policy{parent: d.parent, base: d.base, allow: d.settings.Allow, sees: d.parent.seen()}
	if err := p.judge(pod, t, env); err != nil {
		return nil, err
	}
	app := named(objects(pod["spec"].(object)["containers"]), d.parent.app.Name)
	app["env"] = environ(env)
	if err := d.place(pod, facts.InUse); err != nil {
		return nil, err
	}
	pod["metadata"], err = d.metadata(t, name)
	return pod, err
}

// judge is the whole policy on a pod and the env that its runner's container is to have.
func (p *policy) judge(pod object, t *template, env []object) error {
	spec, ok := pod["spec"].(object)
	app := named(objects(spec["containers"]), p.parent.app.Name)
	if !ok || app == nil {
		return badTemplate("spec", "leaves no container %s", p.parent.app.Name)
	}
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[kind]) {
			if text(c, "image") == "" {
				return badTemplate(fmt.Sprintf("spec.%s[%s].image", kind, text(c, "name")), "is not there")
			}
		}
	}
	switch found, err := p.secure(p.base); {
	case err != nil:
		return err
	case found != nil:
		return denied("inherit", "inherit has no securityContext, and without it the parent's %s would not hold for the runner", found.field)
	}
	if err := p.check(pod); err != nil {
		return err
	}
	switch found, err := p.secure(pod); {
	case err != nil:
		return err
	case found != nil:
		return exceeds("template."+found.field, found.value)
	}
	if err := p.env("template.spec.containers["+p.parent.app.Name+"].env", t.env); err != nil {
		return err
	}
	return p.expressions(spec, env)
}

// metadata is the pod's.
func (d *draft) metadata(t *template, name string) (object, error) {
	labels, err := d.labels(t)
	if err != nil {
		return nil, err
	}
	annotations, err := d.annotations(t)
	if err != nil {
		return nil, err
	}
	annotations[launch.AnnotationContainer] = d.parent.app.Name
	annotations[AnnotationParent] = d.parent.pod.Name
	annotations[AnnotationBootTimeout] = strconv.FormatInt(d.request.BootTimeoutMS, 10)
	annotations[AnnotationOnBootTimeout] = d.request.OnBootTimeout
	annotations[AnnotationTTL] = strconv.FormatInt(*d.request.TTLSecondsAfterFinished, 10)
	metadata := object{"name": name, "namespace": d.request.Parent.Namespace, "labels": texts(labels), "annotations": texts(annotations)}
	switch d.request.Owner {
	case api.OwnerParent:
		// As the controller, so that no other adopts the pod. It is not in the way of the parent's own deletion.
		metadata["ownerReferences"] = list{object{
			"apiVersion": "v1", "kind": "Pod", "name": d.parent.pod.Name, "uid": string(d.parent.pod.UID), "controller": true, "blockOwnerDeletion": false,
		}}
	case api.OwnerController:
		// Not as the controller: it would count the runner among its own, and let go of it since its selector does not match.
		owner := metav1.GetControllerOf(&d.parent.pod)
		if owner == nil {
			return nil, unprocessable("owner", "owner is controller, and pod %s has none", d.parent.pod.Name)
		}
		metadata["ownerReferences"] = list{object{
			"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID), "blockOwnerDeletion": false,
		}}
	}
	return metadata, nil
}

func texts(m map[string]string) object {
	o := make(object, len(m))
	for key, value := range m {
		o[key] = value
	}
	return o
}

// mark is a Lease that holds a key for the pod of that name.
func mark(id, name string) launch.Support {
	return launch.Support{Object: &unstructured.Unstructured{Object: object{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": object{"name": MarkName(id)},
		"spec":     object{"holderIdentity": name},
	}}}
}

// support is what the pod waits for: the key's mark, which holds the key when the pod is gone, and the Secret. A
// flame_parent is a key as well, whatever submission id it comes with: a second pod with it would connect to the same
// parent, and never be told to stop.
func (d *draft) support(id, name string) []launch.Support {
	support := []launch.Support{mark(id, name)}
	if d.request.FlameParent != "" {
		if boot := launch.ID(d.request.Parent.Namespace, api.FlameKey(d.request.FlameParent)); boot != id {
			support = append(support, mark(boot, name))
		}
	}
	if len(d.request.SecretEnv) == 0 {
		return support
	}
	data := object{}
	for key, value := range d.request.SecretEnv {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return append(support, launch.Support{Object: &unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Secret",
		"metadata":  object{"name": name},
		"immutable": true, "type": "Opaque", "data": data,
	}}})
}

func (d *draft) terms() Terms {
	return Terms{
		ParentName: d.parent.pod.Name, ParentUID: string(d.parent.pod.UID),
		Owner:       d.request.Owner,
		BootTimeout: time.Duration(d.request.BootTimeoutMS) * time.Millisecond, OnBootTimeout: d.request.OnBootTimeout,
		TTL: time.Duration(*d.request.TTLSecondsAfterFinished) * time.Second,
	}
}

// contentHash is the same for requests that ask for the same runner, however long they wait for it. Of the secret
// variables it knows the names alone: whoever may read the pod could else try out values.
func contentHash(request api.RunnerRequest) (string, error) {
	request.Wait = ""
	names := make(map[string]string, len(request.SecretEnv))
	for name := range request.SecretEnv {
		names[name] = ""
	}
	request.SecretEnv = names
	canonical, err := json.Marshal(request)
	if err != nil {
		return "", fmt.Errorf("hash the request: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
