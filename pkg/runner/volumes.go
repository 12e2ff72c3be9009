package runner

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
)

// whole stands for all keys of a Secret or a ConfigMap.
const whole = ""

// sight is what the app's container of the parent sees of Secrets and ConfigMaps: kind, name, key.
type sight map[[3]string]bool

// seen looks through the container's env and its mounts. A mount of a part of a volume shows what it does only as
// that mount, which can be inherited by its name.
func (p *parent) seen() sight {
	s := sight{}
	for _, e := range p.app.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			s[[3]string{"secret", r.Name, r.Key}] = true
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			s[[3]string{"configMap", r.Name, r.Key}] = true
		}
	}
	for _, e := range p.app.EnvFrom {
		if e.SecretRef != nil {
			s[[3]string{"secret", e.SecretRef.Name, whole}] = true
		}
		if e.ConfigMapRef != nil {
			s[[3]string{"configMap", e.ConfigMapRef.Name, whole}] = true
		}
	}
	for _, v := range p.pod.Spec.Volumes {
		if !slices.ContainsFunc(p.app.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == v.Name && m.SubPath == "" && m.SubPathExpr == "" }) {
			continue
		}
		if v.Secret != nil {
			s.add("secret", v.Secret.SecretName, v.Secret.Items)
		}
		if v.ConfigMap != nil {
			s.add("configMap", v.ConfigMap.Name, v.ConfigMap.Items)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				s.add("secret", source.Secret.Name, source.Secret.Items)
			}
			if source.ConfigMap != nil {
				s.add("configMap", source.ConfigMap.Name, source.ConfigMap.Items)
			}
		}
	}
	return s
}

func (s sight) add(kind, name string, items []corev1.KeyToPath) {
	if len(items) == 0 {
		s[[3]string{kind, name, whole}] = true
	}
	for _, item := range items {
		s[[3]string{kind, name, item.Key}] = true
	}
}

// visible tells whether the runner may see those keys of the Secret or the ConfigMap; no keys are all of them.
func (p *policy) visible(kind, name string, keys ...string) bool {
	if name == "" {
		return false
	}
	if p.sees[[3]string{kind, name, whole}] || p.allows(kind, name) {
		return true
	}
	for _, key := range keys {
		if key == "" || !p.sees[[3]string{kind, name, key}] {
			return false
		}
	}
	return len(keys) > 0
}

// env checks where the variables of a template come from; any value may be written out.
func (p *policy) env(at string, vars []object) error {
	for _, v := range vars {
		from, _ := v["valueFrom"].(object)
		for _, source := range fields(from, nil) {
			ref, _ := from[source].(object)
			ok := false
			switch source {
			case "fieldRef", "resourceFieldRef":
				ok = true
			case "secretKeyRef":
				ok = p.visible("secret", text(ref, "name"), text(ref, "key"))
			case "configMapKeyRef":
				ok = p.visible("configMap", text(ref, "name"), text(ref, "key"))
			}
			if !ok {
				return denied(at, "%s: %.100q comes from %s %q, which the parent's container does not see", at, text(v, "name"), source, text(ref, "name"))
			}
		}
	}
	return nil
}

func (p *policy) envFrom(at string, sources []object) error {
	for _, source := range sources {
		for _, field := range fields(source, nil) {
			ref, _ := source[field].(object)
			ok := field == "prefix" ||
				field == "secretRef" && p.visible("secret", text(ref, "name")) ||
				field == "configMapRef" && p.visible("configMap", text(ref, "name"))
			if !ok {
				return denied(at, "%s has the %s %q, which the parent's container does not see", at, field, text(ref, "name"))
			}
		}
	}
	return nil
}

func (p *policy) volumes(at string, volumes []object) error {
	for _, v := range volumes {
		base := named(objects(p.base["spec"].(object)["volumes"]), v["name"])
		companions := p.companionsMount(text(v, "name"))
		if same(v, base) || !companions && (p.free(v) || p.twin(v) != nil) {
			continue
		}
		at := at + "[" + text(v, "name") + "]"
		for _, source := range fields(without(v, "name"), nil) {
			if same(v[source], base[source]) {
				continue
			}
			if companions {
				return denied(at+"."+source, "%s is changed, and a container that is inherited mounts the volume", at)
			}
			o, _ := v[source].(object)
			which := ""
			for _, key := range []string{"path", "secretName", "name", "claimName", "driver", "server"} {
				if name := text(o, key); name != "" {
					which = name
					break
				}
			}
			return denied(at+"."+source, "%s is of %s %.200q, which the parent's container does not have", at, source, which)
		}
		return badTemplate("spec.volumes["+text(v, "name")+"]", "has no source")
	}
	return nil
}

// companionsMount tells whether another container than the runner's own is inherited with a mount of the volume. What such a
// container reads or writes there is between it and the parent's app, and no request changes it.
func (p *policy) companionsMount(volume string) bool {
	spec := p.base["spec"].(object)
	return slices.ContainsFunc(slices.Concat(objects(spec["containers"]), objects(spec["initContainers"])), func(c object) bool {
		return c["name"] != p.parent.app.Name && named(objects(c["volumeMounts"]), volume) != nil
	})
}

// open tells whether the volume may be mounted at will.
func (p *policy) open(volume object) bool {
	return p.free(volume) && !p.companionsMount(text(volume, "name"))
}

// free tells whether the volume may be had: it is empty, or of the pod itself, or of what the runner may see.
func (p *policy) free(volume object) bool {
	sources := without(volume, "name")
	for source, value := range sources {
		o, _ := value.(object)
		if !p.freeSource(source, o) {
			return false
		}
	}
	return len(sources) > 0
}

func (p *policy) freeSource(source string, o object) bool {
	switch source {
	case "emptyDir", "downwardAPI":
		return true
	case "secret":
		return p.visible("secret", text(o, "secretName")+text(o, "name"), keysOf(o)...) // a projected one has a name
	case "configMap":
		return p.visible("configMap", text(o, "name"), keysOf(o)...)
	case "persistentVolumeClaim":
		return p.allows("claim", text(o, "claimName"))
	case "projected":
		for _, part := range objects(o["sources"]) {
			for kind, value := range part {
				ref, _ := value.(object)
				if kind == "projected" || kind == "emptyDir" || kind == "persistentVolumeClaim" || !p.freeSource(kind, ref) {
					return false
				}
			}
		}
		return true
	}
	return false
}

func keysOf(source object) []string {
	var keys []string
	for _, item := range objects(source["items"]) {
		keys = append(keys, text(item, "key"))
	}
	return keys
}

// twin is the volume of the parent that has the same source and that the app's container mounts, or nil.
func (p *policy) twin(volume object) object {
	source := without(volume, "name")
	for _, theirs := range objects(p.parent.spec()["volumes"]) {
		if same(source, without(theirs, "name")) && len(source) > 0 && p.mountOf(text(theirs, "name"), nil) {
			return theirs
		}
	}
	return nil
}

// mountOf tells whether the app's container mounts the parent's volume, and, if mount is not nil, in the same way: at any path,
// and for reading at least where the parent can but read.
func (p *policy) mountOf(volume string, mount object) bool {
	for _, theirs := range objects(p.parent.rawApp["volumeMounts"]) {
		if text(theirs, "name") != volume {
			continue
		}
		if mount == nil {
			return true
		}
		alike := same(without(mount, "name", "mountPath", "readOnly"), without(theirs, "name", "mountPath", "readOnly"))
		if alike && (theirs["readOnly"] != true || mount["readOnly"] == true) {
			return true
		}
	}
	return false
}

// freeMount are the fields of a mount that a volume of the runner's own may have.
var freeMount = []string{"name", "mountPath", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr"}

// mounts checks that volumes are mounted as the parent's app has them.
func (p *policy) mounts(at string, mounts, volumes []object) error {
	for _, m := range mounts {
		volume := named(volumes, m["name"])
		if volume == nil {
			return badTemplate(at[len("template."):], "mounts %q, which is no volume of the runner", text(m, "name"))
		}
		ok := false
		if p.open(volume) {
			ok = len(without(m, freeMount...)) == 0
		} else if p.companionsMount(text(volume, "name")) { // of several with the same source it is this one
			ok = p.mountOf(text(volume, "name"), m)
		} else if twin := p.twin(volume); twin != nil {
			ok = p.mountOf(text(twin, "name"), m)
		}
		if !ok {
			return denied(at, "%s has volume %q at %.200q in another way than the parent's container has it", at, text(m, "name"), text(m, "mountPath"))
		}
	}
	return nil
}

// claimsOf are the names of the claims among the volumes.
func claimsOf(volumes []object) []string {
	var claims []string
	for _, v := range volumes {
		claim, _ := v["persistentVolumeClaim"].(object)
		if name := text(claim, "claimName"); name != "" {
			claims = append(claims, name)
		}
	}
	slices.Sort(claims)
	return slices.Compact(claims)
}

// Claims are the names of the PersistentVolumeClaims that the runner would mount, so that their use can be looked up.
// The request need not be good.
func Claims(request *api.RunnerRequest, parent *unstructured.Unstructured) []string {
	spec, _ := parent.Object["spec"].(object)
	var volumes []object
	for _, v := range objects(spec["volumes"]) {
		if slices.Contains(request.Volumes, text(v, "name")) {
			volumes = append(volumes, v)
		}
	}
	templateSpec, _ := request.Template["spec"].(object)
	return claimsOf(append(volumes, objects(templateSpec["volumes"])...))
}

// place heeds the claims that one node alone can use: the runner must run there, which is where the parent runs.
func (d *draft) place(pod object, inUse map[string]Use) error {
	spec := pod["spec"].(object)
	node := d.parent.pod.Spec.NodeName
	pin := false
	for _, claim := range claimsOf(objects(spec["volumes"])) {
		use, used := inUse[claim]
		switch {
		case use.OncePod:
			return api.FieldErrorf(api.ClaimUnusable, "volumes", "claim %s can be mounted by one pod at a time, and pod %s has it", claim, use.Pod)
		case !used || use.Node == "": // nobody has it mounted yet
		case use.Node != node:
			return api.FieldErrorf(api.ClaimUnusable, "volumes", "claim %s can be mounted on one node at a time, and pod %s has it on %s", claim, use.Pod, use.Node)
		default:
			pin = true
		}
	}
	if !pin {
		return nil
	}
	d.warn("the runner has a claim that only node %s can mount now, and must run there", node)
	affinity := child(spec, "affinity")
	required := child(child(affinity, "nodeAffinity"), "requiredDuringSchedulingIgnoredDuringExecution")
	here := object{"key": "metadata.name", "operator": "In", "values": list{node}}
	given := objects(required["nodeSelectorTerms"])
	var terms list
	for _, term := range given {
		if len(term) == 0 { // it matches no node
			continue
		}
		term = maps.Clone(term)
		fields, _ := term["matchFields"].(list)
		term["matchFields"] = append(slices.Clip(fields), here)
		terms = append(terms, term)
	}
	if len(given) == 0 {
		terms = list{object{"matchFields": list{here}}}
	}
	required["nodeSelectorTerms"] = terms
	return nil
}

// child is the object under key, made if it is not there.
func child(parent object, key string) object {
	c, ok := parent[key].(object)
	if !ok {
		c = object{}
		parent[key] = c
	}
	return c
}

// expressions checks that a mount whose path in the volume is made of variables leads where it leads the parent: the variables
// are those of the parent's container, and no request has changed them. env is that of the runner's own container.
func (p *policy) expressions(spec object, env []object) error {
	volumes, baseSpec := objects(spec["volumes"]), p.base["spec"].(object)
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[kind]) {
			vars := objects(c["env"])
			switch {
			case kind == "containers" && c["name"] == p.parent.app.Name:
				vars = env
			case same(c, named(objects(baseSpec[kind]), c["name"])):
				continue
			}
			for _, m := range objects(c["volumeMounts"]) {
				if volume := named(volumes, m["name"]); volume == nil || p.open(volume) {
					continue
				}
				for _, name := range references(text(m, "subPathExpr")) {
					if !alike(name, vars, objects(p.parent.rawApp["env"]), nil) {
						return denied("template.spec."+kind, "container %v mounts a part of volume %v that %s decides, which is not what it is in the parent's container",
							c["name"], m["name"], name)
					}
				}
			}
		}
	}
	return nil
}

// alike tells whether the variable has the same source in both lists, with all that it refers to. way are the names that led here.
func alike(name string, ours, theirs []object, way []string) bool {
	our, their := lastNamed(ours, name), lastNamed(theirs, name)
	if our == nil || their == nil || slices.Contains(way, name) {
		return false
	}
	from, _ := our["valueFrom"].(object)
	theirFrom, _ := their["valueFrom"].(object)
	if ref, ok := from["fieldRef"].(object); ok {
		theirRef, _ := theirFrom["fieldRef"].(object)
		path := text(ref, "fieldPath")
		chosen := strings.HasPrefix(path, "metadata.labels") || strings.HasPrefix(path, "metadata.annotations")
		return path == text(theirRef, "fieldPath") && !chosen
	}
	if !same(our["value"], their["value"]) || !same(from, theirFrom) || from["resourceFieldRef"] != nil {
		return false
	}
	return !slices.ContainsFunc(references(text(our, "value")), func(other string) bool {
		return !alike(other, ours, theirs, append(slices.Clip(way), name))
	})
}

// lastNamed is the last of the objects with that name, which is the one that counts in a list of variables, or nil.
func lastNamed(all []object, name string) object {
	for _, o := range slices.Backward(all) {
		if o["name"] == name {
			return o
		}
	}
	return nil
}
