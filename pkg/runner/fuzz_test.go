package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	"flint.dev/flint/pkg/api"
)

// FuzzTemplate gives any template to parents that may more or less, with any choice of what is inherited. Nothing panics, a
// refusal is one that can be answered, and no runner exceeds its parent, which is judged by code of its own.
func FuzzTemplate(f *testing.F) {
	for _, tc := range exceeding {
		f.Add([]byte(tc.template), uint16(0x3f), uint16(0x3f7)) // env to imagePull, and all volumes but by-label
		f.Add([]byte(tc.template), uint16(0xffff), uint16(0x80))
	}
	for _, text := range []string{
		`{}`, `{"spec": {"containers": [null]}}`, `{"spec": {"containers": [{"env": [{"name": "TENANT", "value": "$(A)"}, {"name": "A", "value": "$(TENANT)"}]}]}}`,
		`{"spec": {"containers": [{"env": [{"name": "TENANT", "value": "blue"}]}]}}`, `{"spec": {"containers": [{"name": "proxy", "command": ["x"]}]}}`, `{"spec": {"initContainers": [{"name": "setup", "args": ["x"]}]}}`,
		`{"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "claim-b"}}], "containers": [{"volumeMounts": [{"name": "x", "mountPath": "/x", "readOnly": true}]}]}}`,
		`{"spec": {"securityContext": {"runAsUser": 1000, "windowsOptions": {}, "seccompProfile": {"localhostProfile": "x"}}}}`,
	} {
		f.Add([]byte(text), uint16(0xffff), uint16(0x3f7))
	}
	parents := []Facts{factsOf(f, minimalParent), factsOf(f, richParent)} // Plan does not change them
	pieces := api.RunnerPieces()
	f.Fuzz(func(t *testing.T, body []byte, inherit, volumes uint16) {
		var template map[string]any
		if strict, err := kjson.UnmarshalStrict(body, &template, kjson.DisallowDuplicateFields); err != nil || len(strict) > 0 {
			return
		}
		for _, facts := range parents {
			r := request(func(r *api.RunnerRequest) {
				r.Template, r.Inherit = template, &[]string{}
				r.SecretEnv = map[string]string{"RELEASE_COOKIE": "c"}
			})
			for i, piece := range pieces {
				if inherit&(1<<i) != 0 {
					*r.Inherit = append(*r.Inherit, piece)
				}
			}
			for i, v := range objects(facts.Parent.Object["spec"].(object)["volumes"]) {
				if volumes&(1<<i) != 0 && !strings.HasPrefix(text(v, "name"), tokenVolume) {
					r.Volumes = append(r.Volumes, text(v, "name"))
				}
			}
			runner, err := Plan(r, facts, Settings{}, "")
			if err != nil {
				var refused *api.Error
				if !errors.As(err, &refused) || refused.Message == "" || refused.Status() >= 500 {
					t.Fatalf("error %v", err)
				}
				continue
			}
			if why := exceedsParent(t, runner.Plan.Workload, facts.Parent, r.Volumes); why != "" {
				t.Fatalf("inherit %v, volumes %v: %s", *r.Inherit, r.Volumes, why)
			}
		}
	})
}

func asPod(t *testing.T, o *unstructured.Unstructured) *corev1.Pod {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod); err != nil {
		t.Fatal(err)
	}
	return &pod
}

func asText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// exceedsParent is what the runner may and its parent's app may not, or nothing. It knows nothing of the code that it judges: it goes by
// Kubernetes' types, not by JSON, and by what is dangerous, not by what is allowed.
func exceedsParent(t *testing.T, planned, from *unstructured.Unstructured, taken []string) string {
	runner, parent := asPod(t, planned), asPod(t, from)
	ours, theirs := &runner.Spec, &parent.Spec
	app := theirs.Containers[slices.IndexFunc(theirs.Containers, func(c corev1.Container) bool { return c.Name == "app" })]
	token := slices.ContainsFunc(app.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, "kube-api-access") })
	switch {
	case ours.HostNetwork, ours.HostPID, ours.HostIPC, ptr.Deref(ours.ShareProcessNamespace, false):
		return "a namespace of the host"
	case ours.NodeName != "", ours.Hostname != "", ours.Subdomain != "", ours.HostnameOverride != nil, len(ours.EphemeralContainers) > 0, len(ours.ResourceClaims) > 0, len(ours.SchedulingGates) > 0:
		return "a place, a name, a claim or a gate"
	case ours.ServiceAccountName != theirs.ServiceAccountName || ours.DeprecatedServiceAccount != "":
		return "account " + ours.ServiceAccountName + ours.DeprecatedServiceAccount
	case !token && ptr.Deref(ours.AutomountServiceAccountToken, true):
		return "a token"
	case ours.RestartPolicy != corev1.RestartPolicyNever:
		return "another life"
	case ours.PriorityClassName != theirs.PriorityClassName || ours.Priority != nil || ours.PreemptionPolicy != nil:
		return "priority"
	case !ptr.Equal(ours.RuntimeClassName, theirs.RuntimeClassName) || ptr.Deref(ours.HostUsers, true) != ptr.Deref(theirs.HostUsers, true) || ours.Overhead != nil:
		return "isolation"
	}
	for _, s := range ours.ImagePullSecrets {
		if !slices.Contains(theirs.ImagePullSecrets, s) {
			return "pull secret " + s.Name
		}
	}
	if pod := ours.SecurityContext; pod != nil {
		their := ptr.Deref(theirs.SecurityContext, corev1.PodSecurityContext{})
		for _, s := range pod.Sysctls {
			if !slices.Contains(their.Sysctls, s) {
				return "sysctl " + s.Name
			}
		}
		for _, g := range pod.SupplementalGroups {
			if !slices.Contains(their.SupplementalGroups, g) {
				return fmt.Sprint("group ", g)
			}
		}
		if pod.FSGroup != nil && !ptr.Equal(pod.FSGroup, their.FSGroup) {
			return "fsGroup"
		}
	}

	// What the app sees of Secrets and ConfigMaps, as "kind name key".
	sees := map[string]bool{}
	see := func(kind, name string, items []corev1.KeyToPath) {
		if len(items) == 0 {
			sees[kind+" "+name+" *"] = true
		}
		for _, i := range items {
			sees[kind+" "+name+" "+i.Key] = true
		}
	}
	for _, e := range app.EnvFrom {
		if e.SecretRef != nil {
			see("secret", e.SecretRef.Name, nil)
		} else if e.ConfigMapRef != nil {
			see("config", e.ConfigMapRef.Name, nil)
		}
	}
	for _, e := range app.Env {
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			see("secret", e.ValueFrom.SecretKeyRef.Name, []corev1.KeyToPath{{Key: e.ValueFrom.SecretKeyRef.Key}})
		} else if e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			see("config", e.ValueFrom.ConfigMapKeyRef.Name, []corev1.KeyToPath{{Key: e.ValueFrom.ConfigMapKeyRef.Key}})
		}
	}
	mounted := map[string][]corev1.VolumeMount{} // of the app, by the volume's source
	for _, v := range theirs.Volumes {
		for _, m := range app.VolumeMounts {
			if m.Name != v.Name {
				continue
			}
			mounted[asText(v.VolumeSource)] = append(mounted[asText(v.VolumeSource)], m)
			if m.SubPath+m.SubPathExpr == "" {
				for _, p := range projections(v) {
					if p.Secret != nil {
						see("secret", p.Secret.Name, p.Secret.Items)
					} else if p.ConfigMap != nil {
						see("config", p.ConfigMap.Name, p.ConfigMap.Items)
					}
				}
			}
		}
	}
	visible := func(kind, name string, items []corev1.KeyToPath) bool {
		if sees[kind+" "+name+" *"] {
			return true
		}
		return len(items) > 0 && !slices.ContainsFunc(items, func(i corev1.KeyToPath) bool { return !sees[kind+" "+name+" "+i.Key] })
	}

	open := map[string]bool{} // volumes that may be mounted at will
	for _, v := range ours.Volumes {
		own := v.EmptyDir != nil || v.DownwardAPI != nil
		parts := projections(v)
		for i, p := range parts {
			fine := p.Secret != nil && visible("secret", p.Secret.Name, p.Secret.Items) || p.ConfigMap != nil && visible("config", p.ConfigMap.Name, p.ConfigMap.Items) || p.DownwardAPI != nil
			own = fine && (own || i == 0)
			if !fine {
				break
			}
		}
		own = own || v.Projected != nil && len(parts) == 0
		inherited := slices.ContainsFunc(theirs.Volumes, func(o corev1.Volume) bool { return asText(o) == asText(v) }) && slices.Contains(taken, v.Name)
		if !own && !inherited && mounted[asText(v.VolumeSource)] == nil {
			return "volume " + asText(v)
		}
		open[v.Name] = own
	}

	for kind, containers := range map[string][]corev1.Container{"containers": ours.Containers, "initContainers": ours.InitContainers} {
		theirContainers := theirs.Containers
		if kind == "initContainers" {
			theirContainers = theirs.InitContainers
		}
		for _, c := range containers {
			confined := &app
			if i := slices.IndexFunc(theirContainers, func(o corev1.Container) bool { return o.Name == c.Name }); i >= 0 && c.Name != "app" && asText(strip(c)) == asText(strip(theirContainers[i])) {
				confined = &theirContainers[i]
			} else if why := own(&c, &app, kind, open, mounted, ours.Volumes, visible, runner.Name); why != "" {
				return c.Name + ": " + why
			}
			if why := lessConfined(resolved(ours.SecurityContext, c.SecurityContext), resolved(theirs.SecurityContext, confined.SecurityContext)); why != "" {
				return c.Name + ": " + why
			}
		}
	}
	return ""
}

// strip takes off what is not inherited of another container.
func strip(c corev1.Container) corev1.Container {
	c.VolumeMounts, c.VolumeDevices, c.Resources.Claims = nil, nil, nil
	c.Ports = slices.Clone(c.Ports)
	for i := range c.Ports {
		c.Ports[i].HostPort, c.Ports[i].HostIP = 0, ""
	}
	return c
}

// projections are the volume's parts, as those of a projected volume.
func projections(v corev1.Volume) []corev1.VolumeProjection {
	switch {
	case v.Secret != nil:
		return []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items}}}
	case v.ConfigMap != nil:
		return []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items}}}
	case v.Projected != nil:
		return v.Projected.Sources
	}
	return nil
}

// own is what a container that is the runner's own has and the app has not.
func own(c, app *corev1.Container, kind string, open map[string]bool, mounted map[string][]corev1.VolumeMount, volumes []corev1.Volume, visible func(string, string, []corev1.KeyToPath) bool, secret string) string {
	base := func(image string) string {
		image, _, _ = strings.Cut(image, "@")
		if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
			image = image[:i]
		}
		return image
	}
	if base(c.Image) != base(app.Image) {
		return "image " + c.Image
	}
	if c.RestartPolicy != nil && kind == "containers" || len(c.RestartPolicyRules) > 0 || len(c.Resources.Claims) > 0 {
		return "restarts or claims"
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 || p.HostIP != "" {
			return "port of the node"
		}
	}
	for _, pair := range [][2]any{{c.LivenessProbe, app.LivenessProbe}, {c.ReadinessProbe, app.ReadinessProbe}, {c.StartupProbe, app.StartupProbe}, {c.Lifecycle, app.Lifecycle}} {
		if asText(pair[0]) != asText(pair[1]) && strings.Contains(asText(pair[0]), `"host":"`) {
			return "probe " + asText(pair[0])
		}
	}
	for _, e := range c.EnvFrom {
		if e.SecretRef != nil && !visible("secret", e.SecretRef.Name, nil) || e.ConfigMapRef != nil && !visible("config", e.ConfigMapRef.Name, nil) {
			return "envFrom " + asText(e)
		}
	}
	for _, e := range c.Env {
		switch from := e.ValueFrom; {
		case from == nil:
		case from.SecretKeyRef != nil && from.SecretKeyRef.Name != secret && !visible("secret", from.SecretKeyRef.Name, []corev1.KeyToPath{{Key: from.SecretKeyRef.Key}}),
			from.ConfigMapKeyRef != nil && !visible("config", from.ConfigMapKeyRef.Name, []corev1.KeyToPath{{Key: from.ConfigMapKeyRef.Key}}),
			from.FileKeyRef != nil:
			return "env " + asText(e)
		}
	}
	if len(c.VolumeDevices) > 0 {
		return "device"
	}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return "mount of nothing"
		}
		if open[m.Name] && (m.MountPropagation == nil || *m.MountPropagation == corev1.MountPropagationNone) {
			continue
		}
		if !slices.ContainsFunc(mounted[asText(volumes[i].VolumeSource)], func(o corev1.VolumeMount) bool {
			return o.SubPath == m.SubPath && o.SubPathExpr == m.SubPathExpr && (m.ReadOnly || !o.ReadOnly) && ptr.Equal(o.MountPropagation, m.MountPropagation)
		}) {
			return "mount " + asText(m)
		}
		if strings.Contains(m.SubPathExpr, "$(PLACE)") && asText(variableOf(c.Env, "PLACE"))+asText(variableOf(c.Env, "TENANT")) != asText(variableOf(app.Env, "PLACE"))+asText(variableOf(app.Env, "TENANT")) || strings.Contains(m.SubPathExpr, "$(TIER)") {
			return "part of another " + asText(c.Env)
		}
	}
	return ""
}

func variableOf(env []corev1.EnvVar, name string) *corev1.EnvVar {
	for i := range slices.Backward(env) {
		if env[i].Name == name {
			return &env[i]
		}
	}
	return nil
}

// resolved is a container's context with the pod's for what it leaves open.
func resolved(pod *corev1.PodSecurityContext, container *corev1.SecurityContext) corev1.SecurityContext {
	c := ptr.Deref(container.DeepCopy(), corev1.SecurityContext{})
	if pod == nil {
		return c
	}
	to, from := reflect.ValueOf(&c).Elem(), reflect.ValueOf(pod).Elem()
	for _, field := range []string{"RunAsUser", "RunAsGroup", "RunAsNonRoot", "SeccompProfile", "AppArmorProfile", "SELinuxOptions", "WindowsOptions"} {
		if to.FieldByName(field).IsNil() {
			to.FieldByName(field).Set(from.FieldByName(field))
		}
	}
	return c
}

func lessConfined(ours, theirs corev1.SecurityContext) string {
	is := func(b *bool) bool { return b != nil && *b }
	caps := func(c *corev1.Capabilities) corev1.Capabilities { return ptr.Deref(c, corev1.Capabilities{}) }
	switch {
	case is(ours.Privileged) && !is(theirs.Privileged):
		return "privileged"
	case theirs.AllowPrivilegeEscalation != nil && !*theirs.AllowPrivilegeEscalation && (ours.AllowPrivilegeEscalation == nil || *ours.AllowPrivilegeEscalation):
		return "escalation"
	case ours.RunAsUser != nil && *ours.RunAsUser == 0 && (theirs.RunAsUser == nil || *theirs.RunAsUser != 0):
		return "root"
	case theirs.RunAsUser != nil && *theirs.RunAsUser != 0 && !ptr.Equal(ours.RunAsUser, theirs.RunAsUser):
		return "another user"
	case is(theirs.RunAsNonRoot) && !is(ours.RunAsNonRoot):
		return "may be root"
	case is(theirs.ReadOnlyRootFilesystem) && !is(ours.ReadOnlyRootFilesystem):
		return "root file system"
	case ours.ProcMount != nil && *ours.ProcMount == corev1.UnmaskedProcMount && !ptr.Equal(ours.ProcMount, theirs.ProcMount):
		return "proc"
	case asText(ours.SELinuxOptions) != asText(theirs.SELinuxOptions) || asText(ours.WindowsOptions) != asText(theirs.WindowsOptions):
		return "SELinux or Windows"
	case theirs.SeccompProfile != nil && theirs.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined && asText(ours.SeccompProfile) != asText(theirs.SeccompProfile):
		return "seccomp"
	case ours.AppArmorProfile != nil && ours.AppArmorProfile.Type != corev1.AppArmorProfileTypeRuntimeDefault && asText(ours.AppArmorProfile) != asText(theirs.AppArmorProfile):
		return "AppArmor"
	}
	for _, c := range caps(ours.Capabilities).Add {
		if !is(theirs.Privileged) && !slices.Contains(caps(theirs.Capabilities).Add, c) && !slices.Contains(caps(theirs.Capabilities).Add, "ALL") {
			return "capability " + string(c)
		}
	}
	for _, c := range caps(theirs.Capabilities).Drop {
		if !slices.Contains(caps(ours.Capabilities).Drop, c) && !slices.Contains(caps(ours.Capabilities).Drop, "ALL") {
			return "capability not dropped " + string(c)
		}
	}
	return ""
}
