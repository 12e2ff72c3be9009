package runner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/api"
)

// Templates that exceed richParent, whose app's container sees some Secrets and claims, and is well confined; the
// proxy beside it is not. field is without "template.".
var exceeding = map[string]struct {
	template string
	field    string
	value    string // in the message
}{
	// The pod.
	"hostNetwork":                     {`{"spec": {"hostNetwork": true}}`, "spec.hostNetwork", "true"},
	"hostPID":                         {`{"spec": {"hostPID": true}}`, "spec.hostPID", "true"},
	"hostIPC":                         {`{"spec": {"hostIPC": true}}`, "spec.hostIPC", "true"},
	"hostUsers":                       {`{"spec": {"hostUsers": true}}`, "spec.hostUsers", "true"},
	"hostUsers taken away":            {`{"spec": {"hostUsers": null}}`, "spec.hostUsers", "taken away"},
	"shareProcessNamespace":           {`{"spec": {"shareProcessNamespace": true}}`, "spec.shareProcessNamespace", "true"},
	"other service account":           {`{"spec": {"serviceAccountName": "admin"}}`, "spec.serviceAccountName", `"admin"`},
	"other service account, old name": {`{"spec": {"serviceAccount": "admin"}}`, "spec.serviceAccount", `"admin"`},
	"the default service account":     {`{"spec": {"serviceAccountName": null}}`, "spec.serviceAccountName", "taken away"},
	"token":                           {`{"spec": {"automountServiceAccountToken": true}}`, "spec.automountServiceAccountToken", "true"},
	"token by default":                {`{"spec": {"automountServiceAccountToken": null}}`, "spec.automountServiceAccountToken", "taken away"},
	"nodeName":                        {`{"spec": {"nodeName": "node-1"}}`, "spec.nodeName", `"node-1"`},
	"ephemeral container":             {`{"spec": {"ephemeralContainers": [{"name": "debugger", "image": "registry.example/shop:1"}]}}`, "spec.ephemeralContainers", "a list of 1"},
	"restartPolicy":                   {`{"spec": {"restartPolicy": "Always"}}`, "spec.restartPolicy", `"Always"`},
	"runtimeClassName":                {`{"spec": {"runtimeClassName": "runc"}}`, "spec.runtimeClassName", `"runc"`},
	"runtimeClassName taken away":     {`{"spec": {"runtimeClassName": null}}`, "spec.runtimeClassName", "taken away"},
	"priorityClassName":               {`{"spec": {"priorityClassName": "system-cluster-critical"}}`, "spec.priorityClassName", `"system-cluster-critical"`},
	"priorityClassName taken away":    {`{"spec": {"priorityClassName": null}}`, "spec.priorityClassName", "taken away"},
	"priority":                        {`{"spec": {"priority": 1000}}`, "spec.priority", "1000"},
	"preemptionPolicy":                {`{"spec": {"preemptionPolicy": "PreemptLowerPriority"}}`, "spec.preemptionPolicy", `"PreemptLowerPriority"`},
	"schedulerName":                   {`{"spec": {"schedulerName": "mine"}}`, "spec.schedulerName", `"mine"`},
	"schedulingGates":                 {`{"spec": {"schedulingGates": [{"name": "x"}]}}`, "spec.schedulingGates", "a list of 1"},
	"resourceClaims":                  {`{"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}]}}`, "spec.resourceClaims", "a list of 1"},
	"container's resource claims":     {`{"spec": {"containers": [{"resources": {"claims": [{"name": "gpu"}]}}]}}`, "spec.containers[app].resources.claims", "a list of 1"},
	"hostname":                        {`{"spec": {"hostname": "shop", "subdomain": "shops"}}`, "spec.hostname", `"shop"`},
	"hostnameOverride":                {`{"spec": {"hostnameOverride": "shop"}}`, "spec.hostnameOverride", `"shop"`},
	"setHostnameAsFQDN":               {`{"spec": {"setHostnameAsFQDN": true}}`, "spec.setHostnameAsFQDN", "true"},
	"overhead":                        {`{"spec": {"overhead": {"cpu": "0"}}}`, "spec.overhead", "an object of 1"},
	"enableServiceLinks":              {`{"spec": {"enableServiceLinks": true}}`, "spec.enableServiceLinks", "true"},
	"terminationGracePeriodSeconds":   {`{"spec": {"terminationGracePeriodSeconds": 100000}}`, "spec.terminationGracePeriodSeconds", "100000"},
	"activeDeadlineSeconds":           {`{"spec": {"activeDeadlineSeconds": 100000}}`, "spec.activeDeadlineSeconds", "100000"},
	"os":                              {`{"spec": {"os": {"name": "windows"}}}`, "spec.os", "an object of 1"},
	"pull secret":                     {`{"spec": {"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]}}`, "spec.imagePullSecrets", `"other"`},
	"affinity to other namespaces":    {`{"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "namespaces": ["x"]}]}}}}`, "spec.affinity.podAntiAffinity.namespaces", "a list of 1"},
	"affinity to labelled namespaces": {`{"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "namespaceSelector": {"matchLabels": {"a": "b"}}}]}}}}`, "spec.affinity.podAffinity.namespaceSelector", "an object of 1"},
	"owner":                           {`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}}`, "metadata.ownerReferences", "a list of 1"},
	"finalizers":                      {`{"metadata": {"finalizers": ["example.com/x"]}}`, "metadata.finalizers", "a list of 1"},
	"name":                            {`{"metadata": {"name": "x"}}`, "metadata.name", `"x"`},
	"generateName":                    {`{"metadata": {"generateName": "x"}}`, "metadata.generateName", `"x"`},

	// Security contexts.
	"privileged":                            {`{"spec": {"containers": [{"securityContext": {"privileged": true}}]}}`, "spec.containers[app].securityContext.privileged", "true"},
	"allowPrivilegeEscalation":              {`{"spec": {"containers": [{"securityContext": {"allowPrivilegeEscalation": true}}]}}`, "spec.containers[app].securityContext.allowPrivilegeEscalation", "true"},
	"allowPrivilegeEscalation taken away":   {`{"spec": {"containers": [{"securityContext": {"allowPrivilegeEscalation": null}}]}}`, "spec.containers[app].securityContext.allowPrivilegeEscalation", "taken away"},
	"a capability":                          {`{"spec": {"containers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}}`, "spec.containers[app].securityContext.capabilities", "add SYS_ADMIN"},
	"all capabilities":                      {`{"spec": {"containers": [{"securityContext": {"capabilities": {"add": ["ALL"]}}}]}}`, "spec.containers[app].securityContext.capabilities", "add ALL"},
	"capabilities not dropped":              {`{"spec": {"containers": [{"securityContext": {"capabilities": {"drop": ["KILL"]}}}]}}`, "spec.containers[app].securityContext.capabilities", "not drop ALL"},
	"capabilities taken away":               {`{"spec": {"containers": [{"securityContext": {"capabilities": null}}]}}`, "spec.containers[app].securityContext.capabilities", "not drop ALL"},
	"root":                                  {`{"spec": {"containers": [{"securityContext": {"runAsUser": 0}}]}}`, "spec.containers[app].securityContext.runAsUser", "0"},
	"root of the pod":                       {`{"spec": {"securityContext": {"runAsUser": 0}}}`, "spec.securityContext.runAsUser", "0"},
	"another user":                          {`{"spec": {"securityContext": {"runAsUser": 1001}}}`, "spec.securityContext.runAsUser", "1001"},
	"the image's user":                      {`{"spec": {"securityContext": {"runAsUser": null}}}`, "spec.containers[app].securityContext.runAsUser", "taken away"},
	"root's group":                          {`{"spec": {"securityContext": {"runAsGroup": 0}}}`, "spec.securityContext.runAsGroup", "0"},
	"runAsNonRoot":                          {`{"spec": {"securityContext": {"runAsNonRoot": false}}}`, "spec.securityContext.runAsNonRoot", "false"},
	"writable root":                         {`{"spec": {"containers": [{"securityContext": {"readOnlyRootFilesystem": false}}]}}`, "spec.containers[app].securityContext.readOnlyRootFilesystem", "false"},
	"procMount":                             {`{"spec": {"containers": [{"securityContext": {"procMount": "Unmasked"}}]}}`, "spec.containers[app].securityContext.procMount", `"Unmasked"`},
	"seccomp unconfined":                    {`{"spec": {"containers": [{"securityContext": {"seccompProfile": {"type": "Unconfined"}}}]}}`, "spec.containers[app].securityContext.seccompProfile", `"Unconfined"`},
	"seccomp unconfined in the pod":         {`{"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}`, "spec.securityContext.seccompProfile", `"Unconfined"`},
	"seccomp of the node":                   {`{"spec": {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "all"}}}}`, "spec.securityContext.seccompProfile", `"Localhost"`},
	"seccomp taken away":                    {`{"spec": {"securityContext": {"seccompProfile": null}}}`, "spec.containers[app].securityContext.seccompProfile", `""`},
	"AppArmor unconfined":                   {`{"spec": {"containers": [{"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}]}}`, "spec.containers[app].securityContext.appArmorProfile", `"Unconfined"`},
	"AppArmor of the node":                  {`{"spec": {"containers": [{"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}}}]}}`, "spec.containers[app].securityContext.appArmorProfile", `"Localhost"`},
	"SELinux":                               {`{"spec": {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}}`, "spec.securityContext.seLinuxOptions", "an object"},
	"Windows host process":                  {`{"spec": {"securityContext": {"windowsOptions": {"hostProcess": true}}}}`, "spec.securityContext.windowsOptions", "an object"},
	"sysctl":                                {`{"spec": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}}`, "spec.securityContext.sysctls", `"kernel.msgmax"`},
	"sysctl's value":                        {`{"spec": {"securityContext": {"sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "1 9"}]}}}`, "spec.securityContext.sysctls", `"net.ipv4.ip_local_port_range"`},
	"fsGroup":                               {`{"spec": {"securityContext": {"fsGroup": 1}}}`, "spec.securityContext.fsGroup", "1"},
	"supplementalGroups":                    {`{"spec": {"securityContext": {"supplementalGroups": [0]}}}`, "spec.securityContext.supplementalGroups", "0"},
	"seLinuxChangePolicy":                   {`{"spec": {"securityContext": {"seLinuxChangePolicy": "Recursive"}}}`, "spec.securityContext.seLinuxChangePolicy", `"Recursive"`},
	"pod's security context taken away":     {`{"spec": {"securityContext": null}}`, "spec.containers[app].securityContext.runAsUser", "taken away"},
	"app's security context taken away":     {`{"spec": {"containers": [{"securityContext": null}]}}`, "spec.containers[app].securityContext.laterField", "taken away"},
	"another container, as the proxy may":   {`{"spec": {"containers": [{"name": "x", "image": "registry.example/shop:1", "securityContext": {"privileged": true}}]}}`, "spec.containers[x].securityContext.laterField", "taken away"},
	"the proxy's name and its privilege":    {`{"spec": {"containers": [{"name": "proxy", "image": "registry.example/shop:1", "securityContext": {"privileged": true}}]}}`, "spec.containers[proxy].securityContext.laterField", "taken away"},
	"another init container, not as secure": {`{"spec": {"initContainers": [{"name": "x", "image": "registry.example/shop:1"}]}}`, "spec.initContainers[x].securityContext.laterField", "taken away"},

	// Containers.
	"image of another repository":       {`{"spec": {"containers": [{"image": "registry.example/other:1"}]}}`, "spec.containers[app].image", "registry.example/other:1"},
	"image of another registry":         {`{"spec": {"containers": [{"image": "evil.example/shop:1"}]}}`, "spec.containers[app].image", "evil.example/shop:1"},
	"image of the proxy":                {`{"spec": {"containers": [{"image": "registry.example/mesh/proxy:2"}]}}`, "spec.containers[app].image", "mesh/proxy"},
	"image whose port is a name":        {`{"spec": {"containers": [{"image": "registry.example/shop:1/evil"}]}}`, "spec.containers[app].image", "shop:1/evil"},
	"init container of another image":   {`{"spec": {"initContainers": [{"name": "x", "image": "busybox"}]}}`, "spec.initContainers[x].image", "busybox"},
	"restartPolicy of the container":    {`{"spec": {"containers": [{"restartPolicy": "Always"}]}}`, "spec.containers[app].restartPolicy", `"Always"`},
	"restartPolicyRules":                {`{"spec": {"containers": [{"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}]}}`, "spec.containers[app].restartPolicyRules", "a list of 1"},
	"hostPort":                          {`{"spec": {"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}}`, "spec.containers[app].ports.hostPort", "80"},
	"hostIP":                            {`{"spec": {"containers": [{"ports": [{"containerPort": 80, "hostIP": "127.0.0.1"}]}]}}`, "spec.containers[app].ports.hostIP", "127.0.0.1"},
	"probe of another host":             {`{"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}]}}`, "spec.containers[app].livenessProbe.host", "169.254.169.254"},
	"readiness probe of another host":   {`{"spec": {"containers": [{"readinessProbe": {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}}]}}`, "spec.containers[app].readinessProbe.host", "10.0.0.1"},
	"startup probe of another host":     {`{"spec": {"containers": [{"startupProbe": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}]}}`, "spec.containers[app].startupProbe.host", "10.0.0.1"},
	"hook to another host":              {`{"spec": {"containers": [{"lifecycle": {"postStart": {"httpGet": {"port": 80, "host": "10.0.0.1"}}}}]}}`, "spec.containers[app].lifecycle.host", "10.0.0.1"},
	"terminationMessagePath":            {`{"spec": {"containers": [{"terminationMessagePath": "/data/x"}]}}`, "spec.containers[app].terminationMessagePath", "/data/x"},
	"volumeDevices":                     {`{"spec": {"containers": [{"volumeDevices": [{"name": "data", "devicePath": "/dev/x"}]}]}}`, "spec.containers[app].volumeDevices", "a list of 1"},
	"container without its restriction": {`{"spec": {"containers": [{"name": "x", "image": "registry.example/shop:1"}]}}`, "spec.containers[x].securityContext.laterField", "taken away"},

	// Secrets and ConfigMaps.
	"R18 Secret in env":                  {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "other", "key": "url"}}}]}]}}`, "spec.containers[app].env", `secretKeyRef "other"`},
	"R18 another key":                    {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "db", "key": "admin-url"}}}]}]}}`, "spec.containers[app].env", `secretKeyRef "db"`},
	"R18 the proxy's Secret":             {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "mesh-secret", "key": "id"}}}]}]}}`, "spec.containers[app].env", `"mesh-secret"`},
	"R18 a pull secret in env":           {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "pull", "key": ".dockerconfigjson"}}}]}]}}`, "spec.containers[app].env", `"pull"`},
	"R18 ConfigMap in env":               {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "other", "key": "mode"}}}]}]}}`, "spec.containers[app].env", `configMapKeyRef "other"`},
	"R18 a Secret by a ConfigMap's name": {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "modes", "key": "mode"}}}]}]}}`, "spec.containers[app].env", `"modes"`},
	"R18 file of a volume":               {`{"spec": {"containers": [{"env": [{"name": "X", "valueFrom": {"fileKeyRef": {"volumeName": "data", "path": "x", "key": "y"}}}]}]}}`, "spec.containers[app].env", "fileKeyRef"},
	"R18 Secret in envFrom":              {`{"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "other"}}]}]}}`, "spec.containers[app].envFrom", `secretRef "other"`},
	"R18 all of a Secret":                {`{"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "db"}}]}]}}`, "spec.containers[app].envFrom", `secretRef "db"`},
	"R18 ConfigMap in envFrom":           {`{"spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "modes"}}]}]}}`, "spec.containers[app].envFrom", `configMapRef "modes"`},
	"R18 Secret in another container":    {`{"spec": {"initContainers": [{"name": "x", "image": "registry.example/shop:1", "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "other", "key": "url"}}}]}]}}`, "spec.initContainers[x].env", `"other"`},
	"R18 Secret volume":                  {`{"spec": {"volumes": [{"name": "x", "secret": {"secretName": "other"}}]}}`, "spec.volumes[x].secret", `secret "other"`},
	"R18 more of a Secret volume":        {`{"spec": {"volumes": [{"name": "x", "secret": {"secretName": "certs"}}]}}`, "spec.volumes[x].secret", `"certs"`},
	"R18 another key of it":              {`{"spec": {"volumes": [{"name": "x", "secret": {"secretName": "certs", "items": [{"key": "tls.crt", "path": "a"}, {"key": "tls.key", "path": "b"}]}}]}}`, "spec.volumes[x].secret", `"certs"`},
	"R18 of which a part is mounted":     {`{"spec": {"volumes": [{"name": "x", "secret": {"secretName": "parts"}}], "containers": [{"volumeMounts": [{"name": "x", "mountPath": "/x"}]}]}}`, "spec.containers[app].volumeMounts", `"/x"`},
	"R18 ConfigMap volume":               {`{"spec": {"volumes": [{"name": "x", "configMap": {"name": "other"}}]}}`, "spec.volumes[x].configMap", `configMap "other"`},
	"R18 projected Secret":               {`{"spec": {"volumes": [{"name": "x", "projected": {"sources": [{"secret": {"name": "other"}}]}}]}}`, "spec.volumes[x].projected", "projected"},
	"R18 projected ConfigMap":            {`{"spec": {"volumes": [{"name": "x", "projected": {"sources": [{"configMap": {"name": "mixed-map"}}, {"configMap": {"name": "other"}}]}}]}}`, "spec.volumes[x].projected", "projected"},
	"R18 projected token":                {`{"spec": {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "api"}}]}}]}}`, "spec.volumes[x].projected", "projected"},
	"R18 projected certificate":          {`{"spec": {"volumes": [{"name": "x", "projected": {"sources": [{"podCertificate": {"signerName": "a/b", "keyType": "ED25519"}}]}}]}}`, "spec.volumes[x].projected", "projected"},
	"R18 nodePublishSecretRef":           {`{"spec": {"volumes": [{"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "other"}}}]}}`, "spec.volumes[x].csi", `csi "d"`},

	// Volumes.
	"hostPath":               {`{"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}}`, "spec.volumes[x].hostPath", `hostPath "/etc"`},
	"the proxy's hostPath":   {`{"spec": {"volumes": [{"name": "x", "hostPath": {"path": "/var"}}]}}`, "spec.volumes[x].hostPath", `hostPath "/var"`},
	"claim":                  {`{"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "other"}}]}}`, "spec.volumes[x].persistentVolumeClaim", `persistentVolumeClaim "other"`},
	"claim in another mode":  {`{"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "claim-a", "readOnly": false}}]}}`, "spec.volumes[x].persistentVolumeClaim", `"claim-a"`},
	"NFS":                    {`{"spec": {"volumes": [{"name": "x", "nfs": {"server": "s", "path": "/"}}]}}`, "spec.volumes[x].nfs", `nfs "/"`},
	"ephemeral claim":        {`{"spec": {"volumes": [{"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}}}]}}`, "spec.volumes[x].ephemeral", "ephemeral"},
	"image volume":           {`{"spec": {"volumes": [{"name": "x", "image": {"reference": "registry.example/shop:1"}}]}}`, "spec.volumes[x].image", "image"},
	"gitRepo":                {`{"spec": {"volumes": [{"name": "x", "gitRepo": {"repository": "r"}}]}}`, "spec.volumes[x].gitRepo", "gitRepo"},
	"inherited volume's new": {`{"spec": {"volumes": [{"name": "scratch", "hostPath": {"path": "/"}}]}}`, "spec.volumes[scratch].hostPath", `hostPath "/"`},
	"whole of a part":        {`{"spec": {"containers": [{"volumeMounts": [{"name": "data", "mountPath": "/all"}]}]}}`, "spec.containers[app].volumeMounts", `"/all"`},
	"another part":           {`{"spec": {"containers": [{"volumeMounts": [{"name": "data", "mountPath": "/all", "subPath": "other"}]}]}}`, "spec.containers[app].volumeMounts", `"/all"`},
	"another part in place":  {`{"spec": {"containers": [{"volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "other"}]}]}}`, "spec.containers[app].volumeMounts", `"/data"`},
	"part by an expression":  {`{"spec": {"containers": [{"volumeMounts": [{"name": "data", "mountPath": "/all", "subPathExpr": "shop"}]}]}}`, "spec.containers[app].volumeMounts", `"/all"`},
	"write where it reads":   {`{"spec": {"containers": [{"volumeMounts": [{"name": "data-ro", "mountPath": "/rw"}]}]}}`, "spec.containers[app].volumeMounts", `"/rw"`},
	"mount propagation":      {`{"spec": {"containers": [{"volumeMounts": [{"name": "scratch", "mountPath": "/x", "mountPropagation": "Bidirectional"}]}]}}`, "spec.containers[app].volumeMounts", `"/x"`},
	"mount of the proxy's":   {`{"spec": {"containers": [{"volumeMounts": [{"name": "host", "mountPath": "/x"}]}]}}`, "spec.containers[app].volumeMounts", `"/x"`},
	"other container's rw":   {`{"spec": {"initContainers": [{"name": "x", "image": "registry.example/shop:1", "volumeMounts": [{"name": "data-ro", "mountPath": "/rw"}]}]}}`, "spec.initContainers[x].volumeMounts", `"/rw"`},
}

func TestR17TemplateExceedsParent(t *testing.T) {
	for name, tc := range exceeding {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Plan(request(templated(t, tc.template), volumes("data", "data-ro", "scratch", "host")), factsOf(t, richParent), Settings{}, "")
			mustRefuse(t, err, api.PolicyDenied, 403, "template."+tc.field, tc.value)
		})
	}
}

// The parent's other containers are taken over as they are, or as what the app could be, and not as a mixture.
func TestR17CompanionsAreNotChanged(t *testing.T) {
	for name, tc := range map[string]struct{ template, field string }{
		"command of the proxy":          {`{"spec": {"containers": [{"name": "proxy", "command": ["sh"]}]}}`, "spec.containers[proxy].env"},
		"env of the proxy":              {`{"spec": {"containers": [{"name": "proxy", "env": [{"name": "LD_PRELOAD", "value": "x"}]}]}}`, "spec.containers[proxy].env"},
		"image of the proxy":            {`{"spec": {"containers": [{"name": "proxy", "image": "registry.example/shop:1"}]}}`, "spec.containers[proxy].env"},
		"args of the init container":    {`{"spec": {"initContainers": [{"name": "setup", "args": ["x"]}]}}`, "spec.initContainers[setup].image"},
		"the proxy among the init ones": {`{"spec": {"initContainers": [{"name": "proxy", "image": "registry.example/mesh/proxy:2"}]}}`, "spec.initContainers[proxy].image"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Plan(request(all, templated(t, tc.template), volumes("scratch", "host")), factsOf(t, richParent), Settings{}, "")
			mustRefuse(t, err, api.PolicyDenied, 403, "template."+tc.field)
		})
	}
}

// What a confined parent refuses, one that says nothing may still allow: only what is more than that is refused.
func TestR17MinimalParent(t *testing.T) {
	for name, tc := range map[string]struct{ context, field string }{
		"privileged":                  {`{"privileged": true}`, "privileged"},
		"a capability":                {`{"capabilities": {"add": ["NET_ADMIN"]}}`, "capabilities"},
		"root":                        {`{"runAsUser": 0}`, "runAsUser"},
		"root's group":                {`{"runAsGroup": 0}`, "runAsGroup"},
		"seccomp of the node":         {`{"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}`, "seccompProfile"},
		"AppArmor unconfined":         {`{"appArmorProfile": {"type": "Unconfined"}}`, "appArmorProfile"},
		"procMount":                   {`{"procMount": "Unmasked"}`, "procMount"},
		"SELinux":                     {`{"seLinuxOptions": {"level": "s0"}}`, "seLinuxOptions"},
		"tightened user":              {`{"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true}`, ""},
		"tightened seccomp":           {`{"seccompProfile": {"type": "RuntimeDefault"}}`, ""},
		"seccomp as without":          {`{"seccompProfile": {"type": "Unconfined"}}`, ""},
		"AppArmor as without":         {`{"appArmorProfile": {"type": "RuntimeDefault"}}`, ""},
		"dropped capabilities":        {`{"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}`, ""},
		"what is the default":         {`{"privileged": false, "allowPrivilegeEscalation": true, "procMount": "Default"}`, ""},
		"escalation and no privilege": {`{"allowPrivilegeEscalation": true, "runAsNonRoot": false, "readOnlyRootFilesystem": false}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Plan(request(templated(t, fmt.Sprintf(`{"spec": {"containers": [{"securityContext": %s}]}}`, tc.context))), factsOf(t, minimalParent), Settings{}, "")
			if tc.field != "" {
				mustRefuse(t, err, api.PolicyDenied, 403, "template.spec.containers[app].securityContext."+tc.field)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// Of a parent that may much, a runner may as much and no more.
func TestParentWithRights(t *testing.T) {
	with := func(context string) func(object) {
		return func(o object) {
			objects(o["spec"].(object)["containers"])[0]["securityContext"] = fromJSON(t, context)
		}
	}
	for name, tc := range map[string]struct{ parent, runner, field string }{
		"privileged":                    {`{"privileged": true}`, `{"privileged": true, "capabilities": {"add": ["SYS_ADMIN"]}}`, ""},
		"all capabilities":              {`{"capabilities": {"add": ["ALL"]}}`, `{"capabilities": {"add": ["SYS_ADMIN"]}}`, ""},
		"root may be anybody":           {`{"runAsUser": 0, "runAsGroup": 0}`, `{"runAsUser": 1000, "runAsGroup": 1000}`, ""},
		"root in its place":             {`{"runAsUser": 0}`, `{"runAsUser": 0}`, ""},
		"unmasked":                      {`{"procMount": "Unmasked"}`, `{"procMount": "Unmasked"}`, ""},
		"unconfined, and so confined":   {`{"seccompProfile": {"type": "Unconfined"}, "appArmorProfile": {"type": "Unconfined"}}`, `{"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"}}`, ""},
		"the node's profile":            {`{"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}`, `{"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}`, ""},
		"another of the node's":         {`{"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}}`, `{"seccompProfile": {"type": "Localhost", "localhostProfile": "b"}}`, "seccompProfile"},
		"not the node's":                {`{"appArmorProfile": {"type": "Localhost", "localhostProfile": "a"}}`, `{"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": null}}`, "appArmorProfile"},
		"one capability is not another": {`{"capabilities": {"add": ["NET_ADMIN"]}}`, `{"capabilities": {"add": ["NET_ADMIN", "SYS_PTRACE"]}}`, "capabilities"},
		"a drop of one":                 {`{"capabilities": {"drop": ["KILL"]}}`, `{"capabilities": {"drop": ["ALL"]}}`, ""},
		"strict groups are the pod's":   {`{"runAsGroup": 5}`, `{"runAsGroup": 6}`, "runAsGroup"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Plan(request(templated(t, fmt.Sprintf(`{"spec": {"containers": [{"securityContext": %s}]}}`, tc.runner))), factsOf(t, minimalParent, with(tc.parent)), Settings{}, "")
			if tc.field != "" {
				mustRefuse(t, err, api.PolicyDenied, 403, "template.spec.containers[app].securityContext."+tc.field)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("supplementalGroupsPolicy", func(t *testing.T) {
		strict := func(o object) { o["spec"].(object)["securityContext"] = object{"supplementalGroupsPolicy": "Strict"} }
		_, err := Plan(request(templated(t, `{"spec": {"securityContext": {"supplementalGroupsPolicy": "Merge"}}}`)), factsOf(t, minimalParent, strict), Settings{}, "")
		mustRefuse(t, err, api.PolicyDenied, 403, "template.spec.securityContext.supplementalGroupsPolicy", `"Merge"`)
	})
}

// A restriction that is not inherited is lost, and with it what the parent may not do.
func TestSecurityContextNotInherited(t *testing.T) {
	_, err := Plan(request(inheriting("env")), factsOf(t, richParent), Settings{}, "")
	mustRefuse(t, err, api.PolicyDenied, 403, "inherit", "securityContext", "laterField")
	if _, err := Plan(request(inheriting("env")), factsOf(t, minimalParent), Settings{}, ""); err != nil {
		t.Errorf("a parent without restrictions: %v", err)
	}
	tight := `{"spec": {"containers": [{"securityContext": {"runAsNonRoot": true}}]}}`
	lax := func(o object) { o["spec"].(object)["securityContext"] = object{"runAsNonRoot": true} }
	_, err = Plan(request(inheriting("env"), templated(t, tight)), factsOf(t, minimalParent, lax), Settings{}, "")
	mustRefuse(t, err, api.PolicyDenied, 403, "inherit", "runAsNonRoot")
}

// What a template may: the field is as it says, or as it asks for.
func TestTemplateAllowed(t *testing.T) {
	const secure = `"securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}}`
	app := func(p *corev1.Pod) corev1.Container {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == "app" })
		return p.Spec.Containers[i]
	}
	cases := map[string]struct {
		template string
		allow    []string
		parent   string // richParent if empty
		holds    func(*corev1.Pod) bool
	}{
		"nothing":              {template: `{}`, holds: func(p *corev1.Pod) bool { return len(p.Spec.Containers) == 1 }},
		"its kind":             {template: `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": null}, "spec": {"containers": [{"name": "app"}]}}`, holds: func(p *corev1.Pod) bool { return len(p.Spec.Containers) == 1 }},
		"command":              {template: `{"spec": {"containers": [{"command": ["x"], "args": ["y"], "workingDir": "/w", "tty": true, "stdin": true, "stdinOnce": true}]}}`, holds: func(p *corev1.Pod) bool { return app(p).Command[0] == "x" && app(p).TTY }},
		"another tag":          {template: `{"spec": {"containers": [{"image": "registry.example/shop:2"}]}}`, holds: func(p *corev1.Pod) bool { return app(p).Image == "registry.example/shop:2" }},
		"a digest":             {template: `{"spec": {"containers": [{"image": "registry.example/shop@sha256:00"}]}}`, holds: func(p *corev1.Pod) bool { return strings.HasSuffix(app(p).Image, "@sha256:00") }},
		"image by the admin":   {template: `{"spec": {"containers": [{"image": "registry.example/gpu:9"}]}}`, allow: []string{"image:registry.example/gpu"}, holds: func(p *corev1.Pod) bool { return app(p).Image == "registry.example/gpu:9" }},
		"more resources":       {template: `{"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}]}}`, holds: func(p *corev1.Pod) bool { return len(app(p).Resources.Limits) == 2 }},
		"pod's resources":      {template: `{"spec": {"resources": {"limits": {"cpu": "3"}}}}`, holds: func(p *corev1.Pod) bool { return p.Spec.Resources.Limits.Cpu().String() == "3" }},
		"node and tolerations": {template: `{"spec": {"nodeSelector": {"pool": "gpu"}, "tolerations": [{"operator": "Exists"}]}}`, holds: func(p *corev1.Pod) bool { return p.Spec.NodeSelector["pool"] == "gpu" && len(p.Spec.Tolerations) == 1 }},
		"affinity": {template: `{"spec": {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "h"}}]}}}}`, holds: func(p *corev1.Pod) bool {
			return p.Spec.Affinity.PodAntiAffinity != nil && p.Spec.Affinity.NodeAffinity != nil
		}},
		"spread":               {template: `{"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "h", "whenUnsatisfiable": "DoNotSchedule"}]}}`, holds: func(p *corev1.Pod) bool { return len(p.Spec.TopologySpreadConstraints) == 1 }},
		"DNS":                  {template: `{"spec": {"dnsPolicy": "Default", "dnsConfig": {"searches": ["x"]}, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}]}}`, holds: func(p *corev1.Pod) bool { return p.Spec.DNSPolicy == "Default" && len(p.Spec.HostAliases) == 1 }},
		"readiness gates":      {template: `{"spec": {"readinessGates": [{"conditionType": "x.example/y"}]}}`, holds: func(p *corev1.Pod) bool { return len(p.Spec.ReadinessGates) == 1 }},
		"same service account": {template: `{"spec": {"serviceAccountName": "shop"}}`, holds: func(p *corev1.Pod) bool { return p.Spec.ServiceAccountName == "shop" }},
		"ports":                {template: `{"spec": {"containers": [{"ports": [{"containerPort": 9, "hostPort": 0, "hostIP": ""}]}]}}`, holds: func(p *corev1.Pod) bool { return app(p).Ports[0].ContainerPort == 9 }},
		"probes of the pod":    {template: `{"spec": {"containers": [{"readinessProbe": {"httpGet": {"port": 9, "host": ""}}, "lifecycle": {"preStop": {"exec": {"command": ["host"]}}}}]}}`, holds: func(p *corev1.Pod) bool { return app(p).ReadinessProbe != nil && app(p).Lifecycle != nil }},
		"a null takes away": {template: `{"spec": {"nodeSelector": null, "imagePullSecrets": null, "containers": [{"imagePullPolicy": null, "resources": null}]}}`, holds: func(p *corev1.Pod) bool {
			return p.Spec.NodeSelector == nil && p.Spec.ImagePullSecrets == nil && app(p).ImagePullPolicy == ""
		}},
		"env of all sorts":      {template: `{"spec": {"containers": [{"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}, {"name": "D", "valueFrom": {"secretKeyRef": {"name": "db", "key": "url"}}}, {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "modes", "key": "mode"}}}, {"name": "F", "valueFrom": {"secretKeyRef": {"name": "all-of-it", "key": "any"}}}, {"name": "G", "valueFrom": {"secretKeyRef": {"name": "certs", "key": "tls.crt"}}}]}]}}`, holds: func(p *corev1.Pod) bool { return len(app(p).Env) == 15 }},
		"envFrom of the parent": {template: `{"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "all-of-it"}, "prefix": "P_"}, {"configMapRef": {"name": "settings"}}, {"configMapRef": {"name": "mixed-map"}}]}]}}`, holds: func(p *corev1.Pod) bool { return len(app(p).EnvFrom) == 3 }},
		"volumes of its own": {
			template: `{"spec": {"volumes": [{"name": "e", "emptyDir": {"medium": "Memory"}}, {"name": "d", "downwardAPI": {}}, {"name": "s", "secret": {"secretName": "all-of-it"}}, {"name": "c", "secret": {"secretName": "certs", "items": [{"key": "tls.crt", "path": "x"}]}}, {"name": "m", "projected": {"sources": [{"configMap": {"name": "mixed-map"}}, {"downwardAPI": {}}]}}],
				"containers": [{"volumeMounts": [{"name": "e", "mountPath": "/e", "subPath": "a"}, {"name": "d", "mountPath": "/d"}, {"name": "s", "mountPath": "/s", "readOnly": true}, {"name": "c", "mountPath": "/c", "subPathExpr": "$(POD_NAME)"}, {"name": "m", "mountPath": "/m"}]}]}}`,
			holds: func(p *corev1.Pod) bool { return len(p.Spec.Volumes) == 8 && len(app(p).VolumeMounts) == 8 },
		},
		"parent's volumes again": {
			template: `{"spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "claim-b"}}], "containers": [{"volumeMounts": [{"name": "x", "mountPath": "/x", "readOnly": true}, {"name": "data", "mountPath": "/again", "subPath": "shop", "readOnly": true}]}]}}`,
			holds:    func(p *corev1.Pod) bool { return len(p.Spec.Volumes) == 4 },
		},
		"token where the parent has it": {template: `{"spec": {"volumes": [{"name": "x", "projected": {"sources": [{"configMap": {"name": "mixed-map"}}, {"serviceAccountToken": {"path": "vault", "audience": "vault"}}]}}]}}`, holds: func(p *corev1.Pod) bool { return len(p.Spec.Volumes) == 4 }},
		"secrets by the admin": {
			allow:    []string{"secret:other", "configMap:other", "claim:other", "pullSecret:other", "priorityClass:high", "runtimeClass:kata"},
			template: `{"spec": {"imagePullSecrets": [{"name": "other"}], "priorityClassName": "high", "runtimeClassName": "kata", "volumes": [{"name": "s", "secret": {"secretName": "other"}}, {"name": "c", "configMap": {"name": "other"}}, {"name": "p", "persistentVolumeClaim": {"claimName": "other"}}], "containers": [{"envFrom": [{"secretRef": {"name": "other"}}], "volumeMounts": [{"name": "p", "mountPath": "/p", "subPath": "any"}]}]}}`,
			holds: func(p *corev1.Pod) bool {
				return p.Spec.PriorityClassName == "high" && *p.Spec.RuntimeClassName == "kata" && len(p.Spec.ImagePullSecrets) == 2
			},
		},
		"another container": {
			parent:   minimalParent,
			template: `{"spec": {"containers": [{"name": "x", "image": "registry.example/shop:1", ` + secure + `}], "initContainers": [{"name": "y", "image": "registry.example/shop:1", "restartPolicy": "Always"}]}}`,
			holds:    func(p *corev1.Pod) bool { return len(p.Spec.Containers) == 2 && len(p.Spec.InitContainers) == 1 },
		},
		"tighter": {template: `{"spec": {"securityContext": {"supplementalGroupsPolicy": "Strict", "fsGroup": null, "supplementalGroups": null, "sysctls": null, "fsGroupChangePolicy": "OnRootMismatch"}, "containers": [{"securityContext": {"capabilities": {"add": null}, "privileged": false, "procMount": "Default", "seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"}}}]}}`, holds: func(p *corev1.Pod) bool {
			return p.Spec.SecurityContext.FSGroup == nil && len(app(p).SecurityContext.Capabilities.Add) == 0
		}},
		"switched off":        {template: `{"spec": {"hostNetwork": false, "hostPID": false, "hostIPC": false, "shareProcessNamespace": false, "setHostnameAsFQDN": false, "hostUsers": false}}`, holds: func(p *corev1.Pod) bool { return !*p.Spec.HostUsers }},
		"labels and notes":    {template: `{"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "namespace": "ns"}}`, holds: func(p *corev1.Pod) bool { return p.Labels["a"] == "b" && p.Annotations["c"] == "d" }},
		"unchanged and named": {template: `{"spec": {"securityContext": {"runAsUser": 1000, "runAsNonRoot": true}, "hostUsers": false, "restartPolicy": "Never", "automountServiceAccountToken": false}}`, holds: func(p *corev1.Pod) bool { return *p.Spec.SecurityContext.RunAsUser == 1000 }},
		"hidden, not exceeded": {template: `{"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "namespaces", "operator": "Exists"}]}}]}}}}`, holds: func(p *corev1.Pod) bool {
			return len(p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 1
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent, taken := richParent, volumes("data", "data-ro", "scratch")
			if tc.parent != "" {
				parent, taken = tc.parent, volumes()
			}
			_, pod := mustPlan(t, request(templated(t, tc.template), taken), factsOf(t, parent), Settings{Allow: tc.allow})
			if !tc.holds(pod) {
				t.Errorf("spec %+v", pod.Spec)
			}
		})
	}
}

func TestR19TemplateGarbage(t *testing.T) {
	cases := map[string]struct{ template, field, message string }{
		"containers empty":        {`{"spec": {"containers": []}}`, "spec.containers", "empty"},
		"containers null":         {`{"spec": {"containers": null}}`, "spec", "no container app"},
		"spec null":               {`{"spec": null}`, "spec", "no container app"},
		"containers is text":      {`{"spec": {"containers": "x"}}`, "", "containers"},
		"a null container":        {`{"spec": {"containers": [null]}}`, "spec.containers[0]", "null"},
		"a container is text":     {`{"spec": {"containers": ["x"]}}`, "", "string"},
		"spec is a list":          {`{"spec": []}`, "", "spec"},
		"metadata is a number":    {`{"metadata": 7}`, "", "metadata"},
		"labels are numbers":      {`{"metadata": {"labels": {"a": 1}}}`, "", "labels"},
		"unknown field":           {`{"spec": {"hostNetworks": true}}`, "", `unknown field "spec.hostNetworks"`},
		"unknown container field": {`{"spec": {"containers": [{"imago": "x"}]}}`, "", `unknown field "spec.containers[0].imago"`},
		"unknown at the top":      {`{"speck": {}}`, "", `unknown field "speck"`},
		"another case":            {`{"spec": {"HostNetwork": true}}`, "", "HostNetwork"},
		"status":                  {`{"status": {"phase": "Running"}}`, "status", "not of a template"},
		"another kind":            {`{"kind": "Job", "apiVersion": "batch/v1"}`, "kind", "Job"},
		"a directive":             {`{"spec": {"$patch": "replace"}}`, "spec.$patch", "directive"},
		"a directive in a list":   {`{"spec": {"volumes": [{"$patch": "replace"}]}}`, "spec.volumes[0].$patch", "directive"},
		"a directive in a map":    {`{"spec": {"nodeSelector": {"$patch": "delete"}}}`, "spec.nodeSelector.$patch", "directive"},
		"an order":                {`{"spec": {"$setElementOrder/containers": [{"name": "x"}]}}`, "spec.$setElementOrder/containers", "directive"},
		"retained keys":           {`{"spec": {"volumes": [{"name": "x", "$retainKeys": ["name"]}]}}`, "spec.volumes[0].$retainKeys", "directive"},
		"two without a name":      {`{"spec": {"containers": [{"command": ["x"]}, {"command": ["y"]}]}}`, "spec.containers[1]", `"app"`},
		"init container the same": {`{"spec": {"initContainers": [{"name": "app", "image": "x"}], "containers": [{"name": "app"}]}}`, "spec.containers[1]", `"app"`},
		"init without a name":     {`{"spec": {"initContainers": [{"image": "x"}]}}`, "spec.containers[0]", "no name"},
		"no image":                {`{"spec": {"containers": [{"name": "x"}]}}`, "spec.containers[x].image", "not there"},
		"no image any more":       {`{"spec": {"containers": [{"image": null}]}}`, "spec.containers[app].image", "not there"},
		"a volume twice":          {`{"spec": {"volumes": [{"name": "x", "emptyDir": {}}, {"name": "x", "emptyDir": {}}]}}`, "spec.volumes[1]", `"x"`},
		"a volume without source": {`{"spec": {"volumes": [{"name": "x"}]}}`, "spec.volumes[x]", "no source"},
		"mount of nothing":        {`{"spec": {"containers": [{"volumeMounts": [{"name": "x", "mountPath": "/x"}]}]}}`, "spec.containers[app].volumeMounts", `"x"`},
		"mounts without a path":   {`{"spec": {"containers": [{"volumeMounts": [{"name": "x"}]}]}}`, "spec.containers[app].volumeMounts[0]", "no mountPath"},
		"env twice":               {`{"spec": {"containers": [{"env": [{"name": "A"}, {"name": "A"}]}]}}`, "spec.containers[app].env[1]", `"A"`},
		"env without a name":      {`{"spec": {"containers": [{"env": [{"value": "x"}]}]}}`, "spec.containers[app].env[0]", "no name"},
		"a quantity":              {`{"spec": {"containers": [{"resources": {"limits": {"cpu": "many"}}}]}}`, "", "quantit"},
		"a port":                  {`{"spec": {"containers": [{"ports": [{"containerPort": 1.5}]}]}}`, "", "containerPort"},
		"ports without theirs":    {`{"spec": {"containers": [{"ports": [{"name": "x"}]}]}}`, "", "containerPort"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Plan(request(all, templated(t, tc.template)), factsOf(t, minimalParent, func(o object) {
				objects(o["spec"].(object)["containers"])[0]["ports"] = list{object{"containerPort": int64(1)}}
			}), Settings{}, "")
			mustRefuse(t, err, api.TemplateInvalid, 422, strings.TrimSuffix("template."+tc.field, "."), tc.message)
		})
	}
	t.Run("a time", func(t *testing.T) {
		_, err := Plan(request(templated(t, `{"metadata": {"creationTimestamp": "yesterday"}}`)), factsOf(t, minimalParent), Settings{}, "")
		mustRefuse(t, err, api.PolicyDenied, 403, "template.metadata.creationTimestamp", "yesterday")
	})
	t.Run("integers of Go", func(t *testing.T) {
		r := request(func(r *api.RunnerRequest) {
			r.Template = object{"spec": object{"containers": list{object{"ports": list{object{"containerPort": 80}}}}}}
		})
		if _, pod := mustPlan(t, r, factsOf(t, minimalParent), Settings{}); pod.Spec.Containers[0].Ports[0].ContainerPort != 80 {
			t.Error("lost")
		}
	})
	t.Run("no JSON", func(t *testing.T) {
		_, err := Plan(request(func(r *api.RunnerRequest) { r.Template = object{"spec": func() {}} }), factsOf(t, minimalParent), Settings{}, "")
		mustRefuse(t, err, api.TemplateInvalid, 422, "template", "not JSON")
	})
}

// A part of a volume that variables name is the parent's part: those variables cannot be changed.
func TestMountsByExpression(t *testing.T) {
	variable := func(name, value string) func(*api.RunnerRequest) {
		return func(r *api.RunnerRequest) { r.Env = map[string]string{name: value} }
	}
	cases := map[string]struct {
		changes []func(*api.RunnerRequest)
		ok      bool
	}{
		"with the parent's env":     {[]func(*api.RunnerRequest){all, volumes("tenant")}, true},
		"without":                   {[]func(*api.RunnerRequest){volumes("tenant")}, false},
		"variable changed":          {[]func(*api.RunnerRequest){all, volumes("tenant"), variable("PLACE", "blue")}, false},
		"variable of it changed":    {[]func(*api.RunnerRequest){all, volumes("tenant"), variable("TENANT", "blue")}, false},
		"changed by a template":     {[]func(*api.RunnerRequest){all, volumes("tenant"), templated(t, `{"spec": {"containers": [{"env": [{"name": "TENANT", "value": "blue"}]}]}}`)}, false},
		"by a label":                {[]func(*api.RunnerRequest){all, volumes("by-label")}, false},
		"by the pod's name":         {[]func(*api.RunnerRequest){volumes("by-name")}, true},
		"another variable":          {[]func(*api.RunnerRequest){all, volumes("tenant"), variable("OTHER", "blue")}, true},
		"another container, as is":  {[]func(*api.RunnerRequest){all, volumes("tenant"), templated(t, another+`"env": [{"name": "PLACE", "value": "$(TENANT)/x"}, {"name": "TENANT", "value": "red"}]}]}}`)}, true},
		"another container, as not": {[]func(*api.RunnerRequest){all, volumes("tenant"), templated(t, another+`"env": [{"name": "PLACE", "value": "$(TENANT)/x"}, {"name": "TENANT", "value": "blue"}]}]}}`)}, false},
		"a circle":                  {[]func(*api.RunnerRequest){all, volumes("tenant"), templated(t, another+`"env": [{"name": "PLACE", "value": "$(PLACE)"}]}]}}`)}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := factsOf(t, richParent, func(o object) { // so that another container may be as the app's
				for _, c := range objects(o["spec"].(object)["containers"]) {
					delete(c, "securityContext")
				}
			})
			_, err := Plan(request(tc.changes...), facts, Settings{}, "")
			if tc.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			field := "template.spec.containers"
			if strings.HasPrefix(name, "another") || name == "a circle" {
				field = "template.spec.initContainers"
			}
			mustRefuse(t, err, api.PolicyDenied, 403, field, "decides")
		})
	}
}

const another = `{"spec": {"initContainers": [{"name": "x", "image": "registry.example/shop:1", "volumeMounts": [{"name": "tenant", "mountPath": "/t", "subPathExpr": "$(PLACE)"}], `
