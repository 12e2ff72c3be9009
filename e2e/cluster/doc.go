// Package cluster is a whole Kubernetes on one Linux machine, with containers: etcd, kube-apiserver, controller
// manager, scheduler, kubelet, containerd and runc. Flint runs in it as it is deployed: its own account and rights,
// behind queue-proxy. The tests (build tag e2e) send it work over HTTP and by CloudEvent, and judge it by the
// completion events that arrive.
//
// Nothing of it shows on the machine. All processes live in one set of namespaces (process ids, mounts, network,
// host name), so that killing the first process ends every other one, and takes every mount, bridge and network
// namespace with it. What remains are one folder and one control group, whose names are fixed; Down removes both, however Up
// ended. The kubelet changes no setting of the kernel.
//
// No image or binary is downloaded. Kubernetes, Knative's queue-proxy, kustomize and the images are built from Go
// modules, once, into the user's cache; containerd, runc and the CNI plugins come from the system, and are installed
// with apt-get where they are missing. Missing says why a machine cannot do all this.
//
// Two more suites, each behind a build tag of its name, add what most tests do without: serving has Knative Serving scale the
// function to zero and back, spark has DNS and runs Spark itself.
//
// What it lacks otherwise: DNS, Services other than the API server's own (no kube-proxy), NetworkPolicies, a storage class, and a second node.
package cluster
