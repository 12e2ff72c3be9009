// Package kube is how Flint speaks to the API server: the set-up of the one REST
// client, seven verbs on unstructured objects, and the translation of what the API server
// refuses into api errors.
//
// The verbs never retry. Whoever called us retries, with the key that makes it
// harmless; a client that waits in here would only hold the caller past its deadline.
package kube

import (
	"context"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names one object.
type Ref struct {
	APIVersion, Kind, Namespace, Name string
}

// RefOf names the object, in the given namespace.
func RefOf(namespace string, object *unstructured.Unstructured) Ref {
	return Ref{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Namespace: namespace, Name: object.GetName()}
}

// String is the object as a message names it: "Pod jobs/pi-driver".
func (r Ref) String() string {
	switch {
	case r.Namespace == "":
		return r.Kind + " " + r.Name
	case r.Name == "":
		return r.Kind + " in " + r.Namespace
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// ListOptions say which objects are listed.
type ListOptions struct {
	// LabelSelector is as kubectl has it: "a=b,c". Empty means all.
	LabelSelector string
	// FieldSelector is as kubectl has it: "status.phase!=Failed". Empty means all.
	FieldSelector string
	// Limit is the most objects of one page. Zero means all of them.
	Limit int64
	// Continue is the last page's, and empty for the first.
	Continue string
	// MetadataOnly leaves spec and status out.
	MetadataOnly bool
}

// Page is one page of a list.
type Page struct {
	Items []*unstructured.Unstructured
	// Continue asks for the next page; empty on the last.
	Continue string
}

// Client is the API server. Every call needs a context with a deadline. Errors
// are as client-go gives them (apierrors tells them apart); Translate makes api errors of them.
type Client interface {
	// Create posts the object into the namespace. With dryRun the API server judges and stores
	// nothing. The answer holds at least the object's metadata; with dryRun, all of it.
	Create(ctx context.Context, namespace string, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error)
	// Get reads one object whole.
	Get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error)
	// List reads one page of the objects of ref's kind in ref's namespace, as they are now; of all namespaces
	// when it is empty. A page that is asked for too late fails (apierrors.IsResourceExpired): the list starts anew.
	List(ctx context.Context, ref Ref, options ListOptions) (*Page, error)
	// Patch sends a patch; the answer holds at least the object's metadata.
	Patch(ctx context.Context, ref Ref, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error)
	// Delete removes the object with background propagation, if it still has the uid. Not
	// found, and a uid that differs, are errors (apierrors.IsNotFound, IsConflict).
	Delete(ctx context.Context, ref Ref, uid types.UID) error
	// DeleteUnchanged is Delete, if the object also still has the resourceVersion: what was
	// decided upon is what is deleted. IsConflict otherwise.
	DeleteUnchanged(ctx context.Context, ref Ref, uid types.UID, resourceVersion string) error
	// Log opens the tail of what a container of the Pod wrote: of its last tailLines lines the first limitBytes
	// bytes, and never more. Whoever gets the log closes it; reading ends with the context.
	Log(ctx context.Context, ref Ref, container string, tailLines, limitBytes int64) (io.ReadCloser, error)
}
