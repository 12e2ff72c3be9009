package access

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// Right is one right of a caller, as an authorizer is asked for it. Name is empty for create and list, and for all of them.
// RBAC does not look at the Version; a webhook may.
type Right struct{ Verb, Group, Version, Resource, Subresource, Namespace, Name string }

// String is the right as a message names it: "create jobs.batch", "get pods/log".
func (r Right) String() string {
	text := r.Verb + " " + r.Resource
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	return text
}

// RightOn is the right to the verb on the object, or on all of its kind where it has no name.
func RightOn(verb string, ref kube.Ref) Right {
	group, resource := kube.ResourceOf(ref)
	version := ref.APIVersion[strings.LastIndex(ref.APIVersion, "/")+1:]
	return Right{Verb: verb, Group: group, Version: version, Resource: resource, Namespace: ref.Namespace, Name: ref.Name}
}

// Allow refuses what the caller could not do by hand. It asks the API server's own authorizer, about all rights at
// once. Everything is allowed to a nil caller: nobody was asked who they are.
//
// The error is an *api.Error: FORBIDDEN, which names the rights that are missing, or as of Identify.
func (a *Access) Allow(ctx context.Context, caller *Caller, rights ...Right) error {
	missing, err := a.Missing(ctx, caller, rights...)
	if err != nil || len(missing) == 0 {
		return err
	}
	var texts []string
	for _, right := range missing {
		if text := right.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return api.Errorf(api.Forbidden, "%q may not %s in namespace %q", caller.Name, strings.Join(texts, ", "), missing[0].Namespace)
}

// Missing are those of the rights that the caller does not have.
func (a *Access) Missing(ctx context.Context, caller *Caller, rights ...Right) ([]Right, error) {
	if caller == nil {
		return nil, nil
	}
	type verdict struct {
		allowed bool
		err     error
	}
	verdicts := make([]chan verdict, len(rights))
	for i, right := range rights {
		verdicts[i] = make(chan verdict, 1)
		go func() {
			allowed, err := a.has(ctx, caller, right)
			verdicts[i] <- verdict{allowed, err}
		}()
	}
	var missing []Right
	for i, right := range rights {
		v := <-verdicts[i]
		if v.err != nil {
			return nil, v.err
		}
		if !v.allowed {
			missing = append(missing, right)
		}
	}
	return missing, nil
}

func (a *Access) has(ctx context.Context, caller *Caller, right Right) (bool, error) {
	question, err := json.Marshal([]any{caller, right})
	if err != nil { // texts always marshal
		panic(err)
	}
	sum := sha256.Sum256(question)
	found, err := a.rights.recall(ctx, string(sum[:]), func(ctx context.Context) (answer[bool], error) {
		spec := authorizationv1.SubjectAccessReviewSpec{
			User: caller.Name, UID: caller.UID, Groups: caller.Groups, Extra: map[string]authorizationv1.ExtraValue{},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: right.Namespace, Verb: right.Verb, Group: right.Group, Version: right.Version,
				Resource: right.Resource, Subresource: right.Subresource, Name: right.Name,
			},
		}
		for key, values := range caller.Extra {
			spec.Extra[key] = values
		}
		status, err := a.rightReviewer.Access(ctx, spec)
		if err != nil {
			return answer[bool]{}, err
		}
		if status.Allowed && !status.Denied {
			return answer[bool]{value: true, good: true, keep: keepGood}, nil
		}
		return answer[bool]{keep: keepBad}, nil
	})
	if err != nil {
		return false, unanswered(err, "what the caller may do", "create subjectaccessreviews.authorization.k8s.io")
	}
	return found.value, nil
}

func translate(err error) *api.Error {
	return kube.Translate(err, "review", kube.Ref{})
}

func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != "" {
		return string(reason)
	}
	return err.Error()
}
