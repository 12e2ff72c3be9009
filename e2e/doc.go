// Package e2e drives the built program, bin/flint, as a process in front of a
// real kube-apiserver: the operator's requests by a client in the operator's
// manner, signals, kills in the middle of a launch, and the command line. Its tests
// have the build tag e2e; `make e2e` builds what they need. Package cluster below
// it runs Flint as a pod on a real node.
package e2e
