package function

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// The cases of the binding for HTTP, and what senders do that do not know it.
func TestAttributes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ sent, want string }{
		"plain":                     {"/mycontext", "/mycontext"},
		"the binding's example":     {"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"},
		"lower case":                {"%e2%82%ac", "€"},
		"encoded without need":      {"%61bc", "abc"},
		"one round":                 {"100%2525", "100%25"},
		"quoted":                    {`"a \"b\" \\ c"`, `a "b" \ c`},
		"quoted and encoded":        {`"a%20%22b%22"`, `a "b"`},
		"quotes amid":               {`a" b "c`, "a b c"},
		"a quote that is open":      {`5" disk`, `5" disk`},
		"a backslash":               {`a\b`, `a\b`},
		"percent, not encoded":      {"100% done", "100% done"},
		"percent at the end":        {"100%", "100%"},
		"percent and one digit":     {"50%2", "50%2"},
		"not hexadecimal":           {"%zz%+1", "%zz%+1"},
		"an underscore is no digit": {"%1_", "%1_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sent := http.Header{"Ce-Id": {tc.sent}, "Content-Type": {tc.sent}}
			got, err := attributes(sent)
			if err != nil || got.Get("Ce-Id") != tc.want || got.Get("Content-Type") != tc.sent || sent.Get("Ce-Id") != tc.sent {
				t.Errorf("%q, want %q, of %q: %v", got, tc.want, sent, err)
			}
		})
	}
	for _, sent := range []string{"%C0%A0", "%FF", "caf\xe9", "%E2%82"} {
		_, err := attributes(http.Header{"Ce-Idempotencykey": {sent}})
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.BadRequest || e.Field != "idempotencykey" {
			t.Errorf("%q: %v", sent, err)
		}
	}
}

// What a look failed with is final if it will not go away, and only where it is of one object.
func TestUnseen(t *testing.T) {
	t.Parallel()
	pod := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "jobs", Name: "pi"}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pi", errors.New("no"))
	for name, tc := range map[string]struct {
		err  error
		of   kube.Ref
		code api.Code
	}{
		"forbidden":               {forbidden, pod, api.Forbidden},
		"no request":              {&kube.RequestError{Ref: pod, Reason: "a name is missing"}, pod, api.BadRequest},
		"forbidden, of all":       {forbidden, kube.Ref{}, api.SubmitterOverloaded},
		"overloaded":              {apierrors.NewTooManyRequests("slow down", 7), pod, api.SubmitterOverloaded},
		"Flint's own credentials": {apierrors.NewUnauthorized("expired"), pod, api.SubmitterOverloaded},
		"no time":                 {context.DeadlineExceeded, pod, api.SubmitterOverloaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := unseen(errors.Join(fmt.Errorf("look at it: %w", tc.err)), tc.of)
			e, ok := errors.AsType[*api.Error](err)
			if !ok || e.Code != tc.code || (e.RetryAfter > 0) != (tc.code == api.SubmitterOverloaded) {
				t.Errorf("%v", err)
			}
		})
	}
}
