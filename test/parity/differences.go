package parity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"flint.dev/flint/pkg/launch"
)

// Difference is one on purpose, or one that cannot be avoided. docs/compat.md has each under its name.
type Difference struct {
	Name   string
	Reason string
	kind   kind
	// adjust, of an adjusted difference, takes it, and nothing else, out of one side. It tells whether it was
	// there, and gives a problem where it should be there and is not, or is another.
	adjust func(*pair) (found bool, problem string)
}

// kind is the shape of a difference that shows in a case as a whole.
type kind int

const (
	// adjusted differences are in many cases, and leave both sides equal once they are taken out.
	adjusted kind = iota
	// flintRefuses what Spark accepts.
	flintRefuses
	// sparkRefuses what Flint accepts.
	sparkRefuses
	// objectsDiffer where both accept.
	objectsDiffer
)

// Differences are all known ones.
var Differences = []Difference{
	{Name: "bookkeeping", kind: adjusted, adjust: bookkeeping,
		Reason: "Flint labels every object with managed-by, kind and id, and the pod with the launch's state, key and content: a repeat must recognise its own"},
	{Name: "owner reference", kind: adjusted, adjust: owner,
		Reason: "the owner reference is added when an object is written, since it needs the pod's uid; what is compared here is a plan"},
	{Name: "inline", kind: adjusted, adjust: inlineTemplate,
		Reason: "templates come with the request; Spark leaves the name of the submitter's file in spark.properties"},
	{Name: "PodGroup", kind: adjusted, adjust: podGroup,
		Reason: "Volcano's PodGroup is made before the pod by Spark, and after it, held back, by Flint"},

	{Name: "earlier refusal", kind: flintRefuses,
		Reason: "the API server would refuse an object, or Spark fails after it has created some; Flint refuses before anything is created, and names the key"},
	{Name: "driver container", kind: flintRefuses,
		Reason: "an inline template must name its driver container: no sidecar is to become the driver by accident"},
	{Name: "digits", kind: flintRefuses, Reason: "Java takes the digits of every script for numbers; Flint takes 0 to 9"},
	{Name: "Connect shell", kind: flintRefuses, Reason: "3.5 does not know the class of Connect's shell for a shell; it would wait for a terminal in the driver pod"},
	{Name: "no submission", kind: flintRefuses, Reason: "the option prints something and submits nothing"},
	{Name: "files of the submitter", kind: flintRefuses, Reason: "there is no disk of a submitter to read the file from, or to look for files that match a pattern"},
	{Name: "own connection", kind: flintRefuses, Reason: "Flint submits with its own connection to its own cluster"},
	{Name: "basic step", kind: flintRefuses, Reason: "without the basic step there is no driver"},

	{Name: "packages", kind: sparkRefuses, Reason: "Spark resolves packages at submission too, and again in the driver; Flint leaves it to the driver"},
	{Name: "file systems", kind: sparkRefuses, Reason: "Spark refuses a scheme that the submitter has no file system for; Flint looks at no remote file and knows no schemes"},
	{Name: "Volcano step", kind: sparkRefuses, Reason: "the distributions on PyPI have Volcano's step since 4.2 only, others have it in every line"},

	{Name: "environment", kind: objectsDiffer, Reason: "a service has no submitter's environment, and its own must not reach a driver"},
	{Name: "environment, refused", kind: sparkRefuses, Reason: "the same, where Spark refuses what the environment says beside the arguments"},

	{Name: "existence", kind: objectsDiffer, Reason: "Flint looks at no remote file, so a glob stays; Spark replaces it by what it finds"},
	{Name: "references", kind: objectsDiffer, Reason: "a reference to the default of a key that has nothing to do with the submission stays as it is written"},
}

// Table is the differences as a table in Markdown.
func Table() string {
	sides := map[kind]string{
		adjusted: "the objects, in that alone", flintRefuses: "refused by Flint alone", sparkRefuses: "refused by Spark alone", objectsDiffer: "the objects",
	}
	var b strings.Builder
	b.WriteString("| name | differs | reason |\n|---|---|---|\n")
	for _, d := range Differences {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", d.Name, sides[d.kind], d.Reason)
	}
	return b.String()
}

// difference finds one by its name.
func difference(name string) (*Difference, error) {
	i := slices.IndexFunc(Differences, func(d Difference) bool { return d.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("no difference is named %q", name)
	}
	return &Differences[i], nil
}

// pair is both sides of a case: Spark's in normal form, Flint's as they were rendered.
type pair struct {
	c            *Case
	spark, flint []object
	plan         *launch.Plan
}

// bookkeeping removes Flint's labels and annotations, each of which must have its one right value.
func bookkeeping(p *pair) (bool, string) {
	for _, o := range p.flint {
		labels := map[string]string{launch.LabelManagedBy: launch.ManagedBy, launch.LabelKind: string(launch.Spark), launch.LabelID: p.plan.ID}
		annotations := map[string]string{}
		if o["kind"] == "Pod" {
			labels[launch.LabelCompletion] = launch.CompletionPending
			annotations[launch.AnnotationSubmissionID] = submissionID
			annotations[launch.AnnotationHash] = p.plan.Hash
		}
		for field, entries := range map[string]map[string]string{"labels": labels, "annotations": annotations} {
			present, _ := at(o, "metadata", field).(object)
			for key, value := range entries {
				if present[key] != value {
					return false, fmt.Sprintf("%s %s: %s %s is %v, not %q", o["kind"], nameOf(o), field, key, present[key], value)
				}
				delete(present, key)
			}
		}
	}
	return true, ""
}

// owner removes the one owner reference of everything but the pod.
func owner(p *pair) (bool, string) {
	i := slices.IndexFunc(p.spark, func(o object) bool { return o["kind"] == "Pod" })
	if i < 0 {
		return false, "there is no pod"
	}
	want := object{"apiVersion": "v1", "kind": "Pod", "name": nameOf(p.spark[i]), "uid": tokenUID, "controller": true}
	for _, o := range p.spark {
		if o["kind"] == "Pod" {
			continue
		}
		references, _ := at(o, "metadata", "ownerReferences").(list)
		if len(references) != 1 || !maps.EqualFunc(references[0].(object), want, func(a, b any) bool { return a == b }) {
			return false, fmt.Sprintf("%s %s has the owners %v", o["kind"], nameOf(o), references)
		}
		delete(o["metadata"].(object), "ownerReferences")
	}
	return true, ""
}

// inlineTemplate removes the names of the templates' files. That of the executor template is there only if the
// step that puts the template into a ConfigMap is excluded.
func inlineTemplate(p *pair) (bool, string) {
	const driverKey, executorKey = "spark.kubernetes.driver.podTemplateFile", "spark.kubernetes.executor.podTemplateFile"
	found := false
	for _, o := range p.spark {
		values, _ := at(o, "data", propertiesKey, "values").(object)
		for key, file := range map[string]string{driverKey: "/driver.yaml", executorKey: "/executor.yaml"} {
			if values[key] == Templates+file {
				delete(values, key)
				found = true
			}
		}
	}
	if p.c.Driver != "" && !found {
		return false, driverKey + " is not in spark.properties"
	}
	return found, ""
}

// podGroup moves a PodGroup in front of Spark's pod behind it.
func podGroup(p *pair) (bool, string) {
	if len(p.spark) < 2 || p.spark[0]["kind"] != "PodGroup" {
		return false, ""
	}
	p.spark[0], p.spark[1] = p.spark[1], p.spark[0]
	return true, ""
}
