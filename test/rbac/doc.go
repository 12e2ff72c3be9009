// Package rbac applies the manifests of the folder config to a real API server: it
// accepts them, and Flint works with exactly their rights. Each verb of each rule is needed: without it,
// the work that the verb is there for is refused.
package rbac
