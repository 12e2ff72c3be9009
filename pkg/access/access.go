// Package access decides who may launch what, and where. Flint can create pods
// that its callers cannot: it must not be the way around anyone's rights.
//
// Policy is what holds for everybody: the namespaces, and the service accounts of pods. What a pod may be is the
// namespace's Pod Security level and not ours to write again.
//
// Access is what holds for one caller. It asks the API server who they are (TokenReview) and what they may do
// (SubjectAccessReview), so that Flint allows exactly what the cluster's own authorizer would allow the caller by hand,
// and it remembers the answers for a moment.
package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// Everywhere in a Policy's Namespaces allows every namespace.
const Everywhere = "*"

// Policy says where may be launched, and as what.
type Policy struct {
	// Namespaces that may be launched into.
	Namespaces []string
	// ServiceAccounts that a pod may run under; empty means any one of its namespace.
	ServiceAccounts []string
}

// Namespace refuses, with an *api.Error FORBIDDEN, a namespace that the policy does not list.
func (p Policy) Namespace(namespace string) error {
	if slices.Contains(p.Namespaces, namespace) || slices.Contains(p.Namespaces, Everywhere) {
		return nil
	}
	return api.Errorf(api.Forbidden, "namespace %q is not one that this Flint launches into (FLINT_NAMESPACES: %s)",
		namespace, strings.Join(p.Namespaces, ","))
}

// Account refuses, with an *api.Error FORBIDDEN, a Pod or Job whose pods would run under a service account that the
// policy does not list. A pod that names none runs under "default".
func (p Policy) Account(workload *unstructured.Unstructured) error {
	if len(p.ServiceAccounts) == 0 {
		return nil
	}
	path := []string{"spec"}
	if workload.GetKind() == "Job" {
		path = []string{"spec", "template", "spec"}
	}
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(workload.Object, append(slices.Clone(path), field)...)
		return value
	}
	// serviceAccount is the older name, which the API server still reads.
	account := cmp.Or(text("serviceAccountName"), text("serviceAccount"), "default")
	if slices.Contains(p.ServiceAccounts, account) {
		return nil
	}
	return api.Errorf(api.Forbidden, "service account %q is not one that this Flint launches under (FLINT_SERVICE_ACCOUNTS: %s)",
		account, strings.Join(p.ServiceAccounts, ","))
}

// How long answers are remembered, and how many of each: what is taken from a caller is taken within keepGood, and what
// is given within keepBad.
const (
	keepGood = 30 * time.Second
	keepBad  = 5 * time.Second

	rememberedCallers = 1024
	rememberedRights  = 4096
)

// Access identifies callers and knows their rights.
type Access struct {
	tokens   bool
	audience string
	names    map[string]string
	clock    clock.PassiveClock
	callers  *memory[*Caller]
	rights   *memory[bool]
	// Each kind of question has a request limit of its own: a flood of bad tokens takes no turn from who is known.
	tokenReviewer, rightReviewer *kube.Reviewer
}

// Config says how callers are identified.
type Config struct {
	// Cluster is the API server that is asked.
	Cluster *rest.Config
	// Tokens is true when each request must bring a token, for the Audience.
	Tokens   bool
	Audience string
	// Names are those that a client certificate may have, each with the user it stands for, or with none. Empty: any.
	Names map[string]string
	Clock clock.PassiveClock
}

// New makes an Access. It sends nothing.
func New(c Config) (*Access, error) {
	tokens, err := kube.NewReviewer(c.Cluster)
	if err != nil {
		return nil, fmt.Errorf("make the client for token reviews: %w", err)
	}
	rights, err := kube.NewReviewer(c.Cluster)
	if err != nil {
		return nil, fmt.Errorf("make the client for access reviews: %w", err)
	}
	return &Access{
		tokens: c.Tokens, audience: c.Audience, names: c.Names, clock: c.Clock, tokenReviewer: tokens, rightReviewer: rights,
		callers: newMemory[*Caller](rememberedCallers, c.Clock), rights: newMemory[bool](rememberedRights, c.Clock),
	}, nil
}
