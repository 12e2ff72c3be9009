//go:build linux

package cluster

import "fmt"

// containerdConfig is for containerd 1.6 and newer. Without restrict_oom_score_adj every pod fails where root lacks
// CAP_SYS_RESOURCE, as it does in many virtual machines.
func containerdConfig(runc, plugins, folder string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = %q
`, containerdSocket, pauseImage, plugins, folder+"/cni", runc)
}

const containerdSocket = "/run/containerd/containerd.sock"

// cniConfig: one bridge for all pods, which has the node's address.
const cniConfig = `{
  "cniVersion": "0.4.0",
  "name": "flint",
  "plugins": [{
    "type": "bridge", "bridge": "` + bridge + `", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + subnet + `", "rangeStart": "` + firstPod + `", "gateway": "` + Address + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
`

const bridge = "flint0"

// kubeletConfig has the kubelet evict late, collect no images, and turn logs over soon enough to be seen. Pods ask the
// node for names, where tests that need it run a server.
func kubeletConfig(folder string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
containerRuntimeEndpoint: unix://%s
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
resolvConf: %q
clusterDNS: [%s]
clusterDomain: cluster.local
maxPods: 300
serializeImagePulls: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
evictionPressureTransitionPeriod: 5s
containerLogMaxSize: 2Mi
containerLogMaxFiles: 3
containerLogMonitorInterval: 3s
nodeStatusUpdateFrequency: 5s
volumeStatsAggPeriod: 10s
podPidsLimit: 1000
`, name(), containerdSocket, folder+"/resolv.conf", Address)
}
