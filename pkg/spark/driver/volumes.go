package driver

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"flint.dev/flint/pkg/spark/conf"
)

// mountVolumes is org.apache.spark.deploy.k8s.features.MountVolumesFeatureStep: the
// volumes of spark.kubernetes.driver.volumes.TYPE.NAME.*, and the claims made for them.
type mountVolumes struct{ *app }

func newMountVolumes(a *app) (step, error) { return &mountVolumes{a}, nil }

const driverVolumesPrefix = "spark.kubernetes.driver.volumes."

// volumeSpec is one volume as conf describes it (KubernetesVolumeSpec).
type volumeSpec struct {
	kind, name string
	// prefix is its keys' beginning, with the dot: "spark.kubernetes.driver.volumes.nfs.data.".
	prefix string
	// key of the mount path, which stands for the volume in messages.
	key string
	// mount is its volumeMount, without the name.
	mount object
	// source is what the volume has beside its name: {"nfs": {...}}.
	source object
	// claim is set for a persistentVolumeClaim.
	claim *claimSpec
}

// claimSpec is what a persistentVolumeClaim has for a claim of its own.
type claimSpec struct {
	storageClass, sizeLimit string
	// make: both are given, so the claim is made.
	make                bool
	labels, annotations []conf.Property
}

// Bounds of our own on what one submission may ask for, far above what runs: each
// volume costs memory here, and each claim a call to the API server.
const (
	maxVolumes = 1000
	maxClaims  = 100
)

// onDemand is the text in a claimName that becomes a name made for this driver.
const onDemand = "OnDemand"

// volumes parses the volumes under the prefix, sorted by type and name
// (KubernetesVolumeUtils.parseVolumesWithPrefix). Keys that name no volume are ignored.
func (a *app) volumes(prefix string) ([]volumeSpec, error) {
	type id struct{ kind, name string }
	var ids []id
	for _, p := range a.Conf.WithPrefix(prefix) {
		if parts := javaSplit(p.Key, "."); len(parts) >= 2 {
			ids = append(ids, id{parts[0], parts[1]})
		}
	}
	slices.SortFunc(ids, func(x, y id) int {
		return cmp.Or(strings.Compare(x.kind, y.kind), strings.Compare(x.name, y.name))
	})
	if ids = slices.Compact(ids); len(ids) > maxVolumes {
		return nil, conf.RefuseName(prefix+"*", "%d volumes are asked for, more than the %d that Flint makes", len(ids), maxVolumes)
	}
	specs := make([]volumeSpec, len(ids))
	for i, id := range ids {
		spec, err := a.volume(prefix, id.kind, id.name)
		if err != nil {
			return nil, err
		}
		specs[i] = spec
	}
	return specs, nil
}

func (a *app) volume(prefix, kind, name string) (volumeSpec, error) {
	v := volumeSpec{kind: kind, name: name, prefix: prefix + kind + "." + name + "."}
	v.key = v.prefix + "mount.path"
	path, set := a.Conf[v.key]
	if !set {
		return v, conf.RefuseName(v.key, "key not found: %s.%s.mount.path", kind, name)
	}
	v.mount = object{"mountPath": path}
	readOnly := false
	if text, set := a.Conf[v.prefix+"mount.readOnly"]; set {
		var ok bool
		if readOnly, ok = parseBool(text); !ok {
			return v, conf.Refuse(v.prefix+"mount.readOnly", text, "must be true or false")
		}
	}
	if readOnly {
		v.mount["readOnly"] = true
	}
	for _, option := range []string{"subPath", "subPathExpr"} {
		text, set := a.Conf[v.prefix+"mount."+option]
		if !set || option == "subPathExpr" && !a.features.VolumeMetadata {
			continue
		}
		if _, both := a.Conf[v.prefix+"mount.subPath"]; both && option == "subPathExpr" {
			return v, conf.RefuseName(v.prefix+"mount.subPathExpr", "These config options are mutually exclusive: %smount.subPath, %smount.subPathExpr", v.prefix, v.prefix)
		}
		if text != "" {
			v.mount[option] = text
		}
	}
	err := a.source(&v, readOnly)
	return v, err
}

// parseBool is Scala's String.toBoolean.
func parseBool(text string) (value, ok bool) {
	return strings.EqualFold(text, "true"), strings.EqualFold(text, "true") || strings.EqualFold(text, "false")
}

// source reads what the type of the volume needs.
func (a *app) source(v *volumeSpec, readOnly bool) error {
	option := func(name string) string { return a.Conf[v.prefix+"options."+name] }
	source := object{}
	v.source = object{v.kind: source}
	switch v.kind {
	case "hostPath":
		source["path"] = option("path")
		if kind := option("type"); kind != "" && a.features.VolumeMetadata {
			source["type"] = kind
		}
		return a.require(v, "path")
	case "nfs":
		source["path"], source["server"] = option("path"), option("server")
		return a.require(v, "path", "server")
	case "emptyDir":
		if medium := option("medium"); medium != "" {
			source["medium"] = medium
		}
		size, set, err := a.sizeLimit(v)
		if set {
			source["sizeLimit"] = size
		}
		return err
	case "persistentVolumeClaim":
		source["claimName"] = option("claimName")
		if readOnly {
			source["readOnly"] = true
		}
		if err := a.require(v, "claimName"); err != nil {
			return err
		}
		size, sized, err := a.sizeLimit(v)
		if err != nil {
			return err
		}
		class, classed := a.Conf[v.prefix+"options.storageClass"]
		v.claim = &claimSpec{storageClass: class, sizeLimit: size, make: sized && classed}
		if a.features.VolumeMetadata {
			v.claim.labels = a.Conf.WithPrefix(v.prefix + "label.")
			v.claim.annotations = a.Conf.WithPrefix(v.prefix + "annotation.")
		}
		return nil
	default:
		return conf.RefuseName(v.key, "Kubernetes Volume type `%s` is not supported", v.kind)
	}
}

// require refuses a volume without one of the options.
func (a *app) require(v *volumeSpec, options ...string) error {
	for _, name := range options {
		key := v.prefix + "options." + name
		if _, set := a.Conf[key]; !set {
			return conf.RefuseName(key, "%s.%s.options.%s is required for %s", v.kind, v.name, name, v.kind)
		}
	}
	return nil
}

// sizeLimit reads options.sizeLimit. A bare number below 1024 is bytes, and surely lacks its unit (since 4.0).
func (a *app) sizeLimit(v *volumeSpec) (size string, set bool, err error) {
	key := v.prefix + "options.sizeLimit"
	if size, set = a.Conf[key]; !set {
		return "", false, nil
	}
	if a.features.VolumeUnits && strings.Trim(size, "0123456789") == "" {
		if n, err := strconv.ParseUint(size, 10, 64); size == "" || err == nil && n < 1024 {
			return "", true, conf.Refuse(key, size, "Volume size `%s` is smaller than 1KiB. Missing units?", size)
		}
	}
	return size, true, nil
}

func (s *mountVolumes) configure(d *draft) error {
	specs, err := s.volumes(driverVolumesPrefix)
	if err != nil {
		return err
	}
	paths := map[any]string{}
	for _, v := range specs {
		path := v.mount["mountPath"]
		if other, taken := paths[path]; taken {
			return conf.RefuseName(v.key, "Found duplicated mountPath: '%s', it is that of %s too", path, other)
		}
		paths[path] = v.key
	}
	for i, v := range specs {
		if err := s.add(d, v, i); err != nil {
			return err
		}
	}
	return nil
}

// add mounts one volume, the index-th of all. For a persistentVolumeClaim it names and makes the claim.
func (s *mountVolumes) add(d *draft, v volumeSpec, index int) error {
	if err := checkVolumeName(v.key, v.name); err != nil {
		return err
	}
	switch v.kind {
	case "emptyDir":
		if size, ok := v.source["emptyDir"].(object)["sizeLimit"].(string); ok {
			if _, err := quantity(v.prefix+"options.sizeLimit", size); err != nil {
				return err
			}
		}
	case "persistentVolumeClaim":
		source := v.source[v.kind].(object)
		given := source["claimName"].(string)
		name := strings.ReplaceAll(given, onDemand, fmt.Sprintf("%s-driver-pvc-%d", s.prefix, index))
		source["claimName"] = name
		if v.claim.make {
			if err := s.claim(d, v, name, name == given); err != nil {
				return err
			}
		}
	}
	volume := object{"name": v.name}
	for kind, source := range v.source {
		volume[kind] = source
	}
	return d.mount(origin(v.key), volume, v.mount)
}

// claim makes the PersistentVolumeClaim of a volume. Two volumes may share one claim if they agree on it.
func (s *mountVolumes) claim(d *draft, v volumeSpec, name string, callerNamed bool) error {
	nameKey, sizeKey := v.prefix+"options.claimName", v.prefix+"options.sizeLimit"
	if err := checkObjectName(nameKey, name); err != nil {
		return err
	}
	size, err := quantity(sizeKey, v.claim.sizeLimit)
	if err != nil {
		return err
	}
	if size.IsZero() {
		return conf.Refuse(sizeKey, v.claim.sizeLimit, "must be greater than zero")
	}
	metadata := object{"name": name}
	labels := child(metadata, "labels")
	for _, p := range v.claim.labels {
		if p.Key == "spark-app-selector" { // replaced below
			continue
		}
		if err := checkLabel(v.prefix+"label."+p.Key, p.Key, p.Value); err != nil {
			return err
		}
		labels[p.Key] = p.Value
	}
	labels["spark-app-selector"] = s.ids.App
	for _, p := range v.claim.annotations {
		if err := checkAnnotation(v.prefix+"annotation."+p.Key, p.Key); err != nil {
			return err
		}
		child(metadata, "annotations")[p.Key] = p.Value
	}
	mode, err := s.accessMode()
	if err != nil {
		return err
	}
	claim := newObject("v1", "PersistentVolumeClaim", metadata, object{"spec": object{
		"storageClassName": v.claim.storageClass,
		"accessModes":      list{mode},
		"resources":        object{"requests": object{"storage": v.claim.sizeLimit}},
	}})
	for _, r := range d.resources {
		if r.GetKind() == claim.GetKind() && r.GetName() == name {
			if !reflect.DeepEqual(r, claim) {
				return conf.Refuse(nameKey, name, "another volume asks for this claim with other options")
			}
			return nil
		}
	}
	if d.claims++; d.claims > maxClaims {
		return conf.RefuseName(nameKey, "more than %d claims are to be made for one driver", maxClaims)
	}
	d.resources = append(d.resources, claim)
	if callerNamed {
		d.callerNamed = append(d.callerNamed, name)
		d.warnings = append(d.warnings, fmt.Sprintf(
			"%s is %q: storage class and size are given, so the claim is made if there is none; leave them out for a claim that exists, or write %s for one that goes with the driver", nameKey, name, onDemand))
	}
	return nil
}

// accessMode is ReadWriteOncePod, or ReadWriteOnce where
// spark.kubernetes.legacy.useReadWriteOnceAccessMode says so, which was its default before 4.0.
func (s *mountVolumes) accessMode() (string, error) {
	legacy, err := s.Conf.Bool("spark.kubernetes.legacy.useReadWriteOnceAccessMode", !s.features.ReadWriteOncePod)
	if legacy {
		return "ReadWriteOnce", err
	}
	return "ReadWriteOncePod", err
}
