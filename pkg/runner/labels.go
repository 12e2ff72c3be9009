package runner

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// controllers are the labels that controllers put on their pods, or the prefixes of such: with one of them a pod looks like theirs.
var controllers = []string{
	"pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid", "job-name",
	"statefulset.kubernetes.io/", "apps.kubernetes.io/", "batch.kubernetes.io/", "serving.knative.dev/", "leaderworkerset.sigs.k8s.io/", "jobset.sigs.k8s.io/",
}

// labels are those of the template and of the request, which goes first, and ours. Values are in no refusal, of labels as of
// annotations: they may be secret.
func (d *draft) labels(t *template) (map[string]string, error) {
	all, err := chosen("labels", t.labels, d.request.Labels)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if key == launch.LabelManagedBy || key == LabelComponent {
			return nil, unprocessable("labels."+key, "labels has %s, which Flint sets itself", key)
		}
		if theirs, ok := d.parent.pod.Labels[key]; isOf(key, injectors) && (!ok || theirs != all[key]) {
			return nil, denied("labels."+key, "label %s may give a pod more than its parent has, which does not have it with that value", key)
		}
		if wrong := validation.IsValidLabelValue(all[key]); len(wrong) > 0 {
			return nil, badTemplate("metadata.labels."+key, "is no value of a label: %s", strings.Join(wrong, "; "))
		}
		if slices.ContainsFunc(controllers, func(c string) bool { return key == c || strings.HasSuffix(c, "/") && strings.HasPrefix(key, c) }) {
			delete(all, key)
			d.warn("label %s is left out: a controller could take the runner for a pod of its own", key)
		}
	}
	all[LabelComponent] = Component
	all[LabelParentUID] = string(d.parent.pod.UID)
	all[LabelOwner] = d.request.Owner
	return all, nil
}

// unselected refuses labels that a controller or a Service would take for those of its own pods: a controller adopts
// a pod that has no other, and deletes the surplus; a Service sends it requests.
func unselected(all map[string]string, selectors []Selector) error {
	for _, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(&s.Labels)
		if err != nil || selector.Empty() {
			continue // it selects nothing, or everything whatever the labels are
		}
		if selector.Matches(labels.Set(all)) {
			return unprocessable("labels", "the runner's labels match the selector of %s %s (%s)", s.Kind, s.Name, selector)
		}
	}
	return nil
}

// Annotations by which node, network and admission give a pod more than its spec says, or less: prefixes of keys, and
// suffixes of their domains.
var (
	powerfulPrefixes = []string{"io.kubernetes.", "io.katacontainers.", "io.containerd.", "com.github.containers", "cni.", "run.oci.", "org.systemd."}
	powerfulDomains  = []string{"kubernetes.io", "k8s.io", "cncf.io", "projectcalico.org", "cilium.io", "openshift.io", "crio.io", "cri-o.io"}
	// By keys of injectors a webhook or an agent adds containers, volumes or an identity to a pod: annotations and labels.
	injectors = []string{"istio.io", "linkerd.io", "hashicorp.com", "dapr.io", "amazonaws.com", "azure.workload.identity", "aadpodidbinding"}
	// harmlessAnnotations are under such domains.
	harmlessAnnotations = []string{safeToEvict, "kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"}
)

// isOf tells whether the key is under one of the domains, or under one of theirs.
func isOf(key string, domains []string) bool {
	domain, _, _ := strings.Cut(strings.ToLower(key), "/")
	return slices.ContainsFunc(domains, func(d string) bool { return domain == d || strings.HasSuffix(domain, "."+d) })
}

// safeToEvict keeps the cluster autoscaler from ending a runner to save a node.
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// annotations are those of the template and of the request, which goes first.
func (d *draft) annotations(t *template) (map[string]string, error) {
	all, err := chosen("annotations", t.annotations, d.request.Annotations)
	if err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		powerful := slices.ContainsFunc(powerfulPrefixes, func(p string) bool { return strings.HasPrefix(strings.ToLower(key), p) }) ||
			isOf(key, powerfulDomains) || isOf(key, injectors)
		if theirs, ok := d.parent.pod.Annotations[key]; ok && theirs == all[key] || slices.Contains(harmlessAnnotations, key) {
			continue
		}
		if powerful {
			return nil, denied("annotations."+key, "annotation %s may give a pod more than its parent has, which does not have it with that value", key)
		}
	}
	if _, set := all[safeToEvict]; !set {
		all[safeToEvict] = "false"
	}
	return all, nil
}

// chosen are the labels or annotations of the template and, over them, the request's.
func chosen(what string, fromTemplate, fromRequest map[string]string) (map[string]string, error) {
	for _, key := range slices.Sorted(maps.Keys(fromTemplate)) {
		field := "metadata." + what + "." + key
		if wrong := validation.IsQualifiedName(strings.ToLower(key)); len(wrong) > 0 {
			return nil, badTemplate(field, "has no good key: %s", strings.Join(wrong, "; "))
		}
		if strings.HasPrefix(key, api.ReservedPrefix) {
			return nil, badTemplate(field, "is reserved for Flint's bookkeeping")
		}
	}
	all := map[string]string{}
	maps.Copy(all, fromTemplate)
	maps.Copy(all, fromRequest)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(key, api.ReservedPrefix) {
			return nil, unprocessable(what+"."+key, "%s: keys under %s are reserved for Flint's bookkeeping", what, api.ReservedPrefix)
		}
	}
	return all, nil
}
