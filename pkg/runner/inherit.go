package runner

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
)

// graceBeyondShutdown is what the kubelet waits longer than the program takes: at the same moment they would race.
const graceBeyondShutdown = 5

// tokenVolume begins the name of the volume that the ServiceAccount admission adds, and will add to the runner if that is to have one.
const tokenVolume = "kube-api-access-"

// tokenMount is where that volume is mounted.
const tokenMount = "/var/run/secrets/kubernetes.io/serviceaccount" //nolint:gosec // a path, and no credential

// draft is a runner's pod in the making.
type draft struct {
	request  *api.RunnerRequest
	settings Settings
	parent   *parent
	// base is the pod without the template. It lacks the env of the runner's container, which is put together apart.
	base     object
	warnings []string
}

func (d *draft) inherits(piece string) bool { return slices.Contains(*d.request.Inherit, piece) }

func (d *draft) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

// inherit makes the base: what no request may choose, and what this one takes over.
func (d *draft) inherit() error {
	from := d.parent.spec()
	spec := object{
		"restartPolicy":                 string(corev1.RestartPolicyNever),
		"serviceAccountName":            d.parent.pod.Spec.ServiceAccountName,
		"automountServiceAccountToken":  d.inherits("serviceAccountToken") && d.parent.hasToken(),
		"enableServiceLinks":            false,
		"terminationGracePeriodSeconds": (*d.request.ShutdownTimeoutMS+999)/1000 + graceBeyondShutdown,
	}
	if d.parent.pod.Spec.ServiceAccountName == "" {
		spec["serviceAccountName"] = "default"
	}
	if lifetime, err := d.lifetime(); err != nil {
		return err
	} else if lifetime > 0 {
		spec["activeDeadlineSeconds"] = lifetime
	}
	// How the parent is kept apart from its node, and how much it matters beside others, is the runner's in any case. The number
	// of the priority and its preemption policy are of the class, and the API server refuses others.
	take(spec, from, "runtimeClassName", "priorityClassName", "os")
	if users := d.parent.pod.Spec.HostUsers; users != nil && !*users {
		spec["hostUsers"] = false
	}
	if d.inherits("scheduling") {
		take(spec, from, "nodeSelector", "affinity", "schedulerName")
		if tolerations := ownTolerations(from["tolerations"]); len(tolerations) > 0 {
			spec["tolerations"] = tolerations
		}
	}
	if d.inherits("securityContext") {
		take(spec, from, "securityContext")
	}
	if d.inherits("imagePull") {
		take(spec, from, "imagePullSecrets")
	}
	if d.inherits("resources") {
		take(spec, from, "resources")
	}
	if err := d.volumes(spec); err != nil {
		return err
	}
	containers := list{d.container()}
	if d.inherits("sidecars") {
		for _, c := range objects(from["containers"]) {
			if c["name"] != d.parent.app.Name {
				containers = append(containers, d.companion(c))
				d.warn("container %v is inherited: while it runs, the runner does not end", c["name"])
			}
		}
	}
	spec["containers"] = containers
	if d.inherits("initContainers") {
		var inits list
		for _, c := range objects(from["initContainers"]) {
			inits = append(inits, d.companion(c))
		}
		if inits != nil {
			spec["initContainers"] = inits
		}
	}
	d.base = object{"apiVersion": "v1", "kind": "Pod", "metadata": object{}, "spec": spec}
	return nil
}

// lifetime is the pod's activeDeadlineSeconds, or zero for none.
func (d *draft) lifetime() (int64, error) {
	limit := int64(d.settings.MaxLifetime.Seconds())
	wanted := d.request.MaxLifetimeSeconds
	if wanted == nil {
		return limit, nil
	}
	if limit > 0 && *wanted > limit {
		return 0, denied("max_lifetime_seconds", "max_lifetime_seconds is %d, and a runner may live for %d", *wanted, limit)
	}
	if *wanted*1000 < d.request.BootTimeoutMS {
		d.warn("max_lifetime_seconds is %d, and ends before boot_timeout_ms", *wanted)
	}
	return *wanted, nil
}

// container is the runner's own container, without env.
func (d *draft) container() object {
	from := d.parent.rawApp
	c := object{"name": d.parent.app.Name, "image": d.parent.app.Image}
	if d.settings.PinDigest {
		if image, ok := pinned(&d.parent.pod, &d.parent.app); ok {
			c["image"] = image
		} else {
			d.warn("the parent's node names no digest of image %s in its repository: the tag may have moved", d.parent.app.Image)
		}
	}
	for piece, fields := range map[string][]string{
		"envFrom":         {"envFrom"},
		"resources":       {"resources"},
		"securityContext": {"securityContext"},
		"imagePull":       {"imagePullPolicy"},
		"command":         {"command", "args", "workingDir"},
		"probes":          {"livenessProbe", "readinessProbe", "startupProbe"},
		"ports":           {"ports"},
		"lifecycle":       {"lifecycle"},
	} {
		if d.inherits(piece) {
			take(c, from, fields...)
		}
	}
	take(c, from, "volumeMounts", "volumeDevices")
	d.fit(c)
	return c
}

// companion is another container of the parent, as it is but for what cannot be.
func (d *draft) companion(from object) object {
	c := runtime.DeepCopyJSON(from)
	for _, mount := range objects(c["volumeMounts"]) {
		if volume := text(mount, "name"); !slices.Contains(d.request.Volumes, volume) && !strings.HasPrefix(volume, tokenVolume) {
			d.warn("container %v loses its mount of volume %s, which volumes does not name", c["name"], volume)
		}
	}
	d.fit(c)
	return c
}

// fit takes away what a second pod cannot have: mounts of volumes that are not taken over, ports of the node, claims of devices.
func (d *draft) fit(c object) {
	for _, key := range []string{"volumeMounts", "volumeDevices"} {
		var kept list
		for _, mount := range objects(c[key]) {
			if slices.Contains(d.request.Volumes, text(mount, "name")) {
				kept = append(kept, mount)
			}
		}
		if delete(c, key); kept != nil {
			c[key] = kept
		}
	}
	for _, port := range objects(c["ports"]) {
		if _, bound := port["hostPort"]; bound {
			d.warn("port %v of container %v is not taken at the node, where the parent has it", port["containerPort"], c["name"])
		}
		delete(port, "hostPort")
		delete(port, "hostIP")
	}
	if resources, ok := c["resources"].(object); ok && resources["claims"] != nil {
		delete(resources, "claims")
		d.warn("the resource claims of container %v are not inherited", c["name"])
	}
}

// volumes takes over the volumes that the request names.
func (d *draft) volumes(spec object) error {
	var taken list
	for i, name := range d.request.Volumes {
		field := fmt.Sprintf("volumes[%d]", i)
		volume := named(objects(d.parent.spec()["volumes"]), name)
		switch {
		case volume == nil:
			return unprocessable(field, "pod %s has no volume %q", d.parent.pod.Name, name)
		case strings.HasPrefix(name, tokenVolume):
			return unprocessable(field, "volume %q belongs to pod %s; inherit serviceAccountToken instead", name, d.parent.pod.Name)
		case slices.Contains(d.request.Volumes[:i], name):
			return unprocessable(field, "volumes names %q twice", name)
		}
		taken = append(taken, runtime.DeepCopyJSON(volume))
	}
	if taken != nil {
		spec["volumes"] = taken
	}
	return nil
}

// hasToken tells whether the app's container has the token of its service account at the usual place. Another volume there hides it.
func (p *parent) hasToken() bool {
	isToken := func(source corev1.VolumeProjection) bool {
		return source.ServiceAccountToken != nil && source.ServiceAccountToken.Audience == ""
	}
	return slices.ContainsFunc(p.app.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.MountPath == tokenMount && slices.ContainsFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == m.Name && v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, isToken)
		})
	})
}

// ownTolerations are those that the DefaultTolerationSeconds admission did not add, and will not add again.
func ownTolerations(value any) list {
	var own list
	for _, t := range objects(value) {
		key := text(t, "key")
		if (key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable) && t["tolerationSeconds"] == int64(300) {
			continue
		}
		own = append(own, runtime.DeepCopyJSONValue(t))
	}
	return own
}
