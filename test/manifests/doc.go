// Package manifests checks the folder config: that kustomize builds each of its
// kustomizations, that Knative Serving itself accepts the function's Service, and
// that what the files say to each other agrees. It is a module of its own, so that
// neither Serving nor kustomize is in the product's module graph.
//
// What the API server says about the objects, and that Flint works with exactly these rights, is
// shown in test/rbac, which has a control plane.
package manifests
