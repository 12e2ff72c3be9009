package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Reviewer asks the API server who a token is of, and who may do what. Like a Client it never
// retries, and needs a context with a deadline. It has a request limit of its own, so that a flood of
// tokens takes no turn from a launch.
type Reviewer struct{ client *client }

// NewReviewer makes the Reviewer of the API server that cfg names, as NewClient makes a Client.
func NewReviewer(cfg *rest.Config) (*Reviewer, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	return &Reviewer{c}, nil
}

// Token asks whose the token is, for the audience.
func (r *Reviewer) Token(ctx context.Context, token, audience string) (*authenticationv1.TokenReviewStatus, error) {
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}},
	}
	answer := &authenticationv1.TokenReview{}
	return &answer.Status, r.ask(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", review, answer)
}

// Access asks whether the subject of the spec has the right in it.
func (r *Reviewer) Access(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (*authorizationv1.SubjectAccessReviewStatus, error) {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec,
	}
	answer := &authorizationv1.SubjectAccessReview{}
	return &answer.Status, r.ask(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", review, answer)
}

// ask posts the review and reads the answer. The review stays as it is: it shares its slices with whoever asks.
func (r *Reviewer) ask(ctx context.Context, path string, review, answer any) error {
	body, err := json.Marshal(review)
	if err != nil { // strings always marshal
		panic(err)
	}
	raw, err := r.client.send(ctx, r.client.rest.Post().AbsPath(path).MaxRetries(0).Body(body).SetHeader("Content-Type", jsonType))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the API server's answer to a review: %w", err)
	}
	return nil
}

// ResourceOf is the group and the resource of a kind that a Client knows, as rights name them; "" and "" otherwise.
func ResourceOf(ref Ref) (group, resource string) {
	group, _, found := strings.Cut(ref.APIVersion, "/")
	if !found {
		group = ""
	}
	return group, resources[ref.APIVersion][ref.Kind]
}
