// Package access decides who may launch what, and where. Flint can create pods
// that its callers cannot: it must not be the way around anyone's rights.
//
// For now it knows one rule, the list of namespaces. What a pod may be is the
// namespace's Pod Security level and not ours to write again.
package access

import (
	"slices"
	"strings"

	"flint.dev/flint/pkg/api"
)

// Everywhere in a Policy's Namespaces allows every namespace.
const Everywhere = "*"

// Policy says where may be launched.
type Policy struct {
	// Namespaces that may be launched into.
	Namespaces []string
}

// Namespace refuses, with an *api.Error FORBIDDEN, a namespace that the policy does not list.
func (p Policy) Namespace(namespace string) error {
	if slices.Contains(p.Namespaces, namespace) || slices.Contains(p.Namespaces, Everywhere) {
		return nil
	}
	return api.Errorf(api.Forbidden, "namespace %q is not one that this Flint launches into (FLINT_NAMESPACES: %s)",
		namespace, strings.Join(p.Namespaces, ","))
}
