package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

var (
	pod    = kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "jobs", Name: "pi"}
	secret = kube.Ref{APIVersion: "v1", Kind: "Secret", Namespace: "jobs", Name: "keytab"}
	conf   = kube.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "jobs", Name: "conf"}
	pods   = schema.GroupResource{Resource: "pods"}
)

func forbidden(text string) error { return apierrors.NewForbidden(pods, "pi", errors.New(text)) }

func invalid(ref kube.Ref, errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: ref.Kind}, ref.Name, errs)
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason, Message: message}}
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	const again = "; the same request may be repeated"
	spec := field.NewPath("spec")
	cases := map[string]struct {
		err  error
		ref  kube.Ref
		want api.Error
	}{
		"429": {apierrors.NewTooManyRequests("slow down", 7), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: 7 * time.Second, Message: "the API server is overloaded: create Pod jobs/pi: slow down" + again}},
		"429 without advice": {apierrors.NewTooManyRequestsError("slow down"), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is overloaded: create Pod jobs/pi: Too many requests: slow down" + again}},
		"429 by its reason": {status(0, metav1.StatusReasonTooManyRequests, "slow down"), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is overloaded: create Pod jobs/pi: slow down" + again}},
		"500": {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is unavailable: create Pod jobs/pi: Internal error occurred: etcdserver: leader changed" + again}},
		"500 by its reason": {status(0, metav1.StatusReasonServerTimeout, "not now"), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is unavailable: create Pod jobs/pi: not now" + again}},
		"503": {apierrors.NewServiceUnavailable("shutting down"), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is unavailable: create Pod jobs/pi: shutting down" + again}},
		"504": {apierrors.NewTimeoutError("request timed out", 3), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: 3 * time.Second, Message: "the API server is unavailable: create Pod jobs/pi: Timeout: request timed out" + again}},
		"502 of a proxy": {apierrors.NewGenericServerResponse(502, "POST", pods, "pi", "<html>bad gateway</html>", 0, true), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: `the API server is unavailable: create Pod jobs/pi: an error on the server ("<html>bad gateway</html>") has prevented the request from succeeding (post pods pi)` + again}},
		"connection refused": {&url.Error{Op: "Post", URL: "https://10.0.0.1/api?x=y", Err: errors.New("dial tcp: connection refused")}, pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "no answer from the API server to: create Pod jobs/pi (dial tcp: connection refused)" + again}},
		"answer cut": {fmt.Errorf("unexpected error when reading response body: %w", io.ErrUnexpectedEOF), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "no answer from the API server to: create Pod jobs/pi (unexpected error when reading response body: unexpected EOF)" + again}},
		"deadline": {&url.Error{Op: "Post", URL: "https://x", Err: context.DeadlineExceeded}, pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the time for this request was spent at: create Pod jobs/pi" + again}},
		"caller gone": {context.Canceled, pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the time for this request was spent at: create Pod jobs/pi" + again}},
		"401": {apierrors.NewUnauthorized("token expired"), pod,
			api.Error{Code: api.InternalServerError, Message: "the API server refuses Flint's own credentials: create Pod jobs/pi: token expired"}},
		"quota": {forbidden("exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3"), pod,
			api.Error{Code: api.QuotaExceeded, Message: `quota exceeded: create Pod jobs/pi: pods "pi" is forbidden: exceeded quota: team, requested: pods=1, used: pods=3, limited: pods=3`}},
		"quota not counted": {forbidden("status unknown for quota: team, resources: pods"), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: `quota not counted yet: create Pod jobs/pi: pods "pi" is forbidden: status unknown for quota: team, resources: pods` + again}},
		"quota that demands a limit": {forbidden("failed quota: team: must specify limits.cpu for: pi"), pod,
			api.Error{Code: api.Forbidden, Message: `forbidden: create Pod jobs/pi: pods "pi" is forbidden: failed quota: team: must specify limits.cpu for: pi`}},
		"no right": {forbidden(`User "flint" cannot create resource "pods" in API group "" in the namespace "jobs"`), pod,
			api.Error{Code: api.Forbidden, Message: `forbidden: create Pod jobs/pi: pods "pi" is forbidden: User "flint" cannot create resource "pods" in API group "" in the namespace "jobs"`}},
		"no namespace": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "jobs"), pod,
			api.Error{Code: api.NamespaceNotFound, Message: "namespace jobs does not exist: create Pod jobs/pi"}},
		"no such resource": {apierrors.NewGenericServerResponse(404, "POST", schema.GroupResource{}, "", "", 0, true), pod,
			api.Error{Code: api.NotFound, Message: "not found: create Pod jobs/pi: the server could not find the requested resource"}},
		"name taken": {apierrors.NewAlreadyExists(pods, "pi"), pod,
			api.Error{Code: api.DriverPodAlreadyExists, Message: "Pod jobs/pi exists already"}},
		"conflict": {apierrors.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "team", errors.New("modified")), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: `changed by another at the same time: create Pod jobs/pi: Operation cannot be fulfilled on resourcequotas "team": modified` + again}},
		"413": {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), conf,
			api.Error{Code: api.PayloadTooLarge, Message: "too large for the API server: create ConfigMap jobs/conf: Request entity too large: limit is 3145728"}},
		"405": {apierrors.NewMethodNotSupported(pods, "create"), pod,
			api.Error{Code: api.InternalServerError, Message: `the API server refused: create Pod jobs/pi: create is not supported on resources of kind "pods"`}},
		"nothing said": {status(418, "", ""), pod,
			api.Error{Code: api.InternalServerError, Message: "the API server refused: create Pod jobs/pi: 418"}},
		"400 of a pod": {apierrors.NewBadRequest("Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal string"), pod,
			api.Error{Code: api.InvalidPodTemplate, Message: `invalid: create Pod jobs/pi: Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string`}},
		"400 of a secret": {apierrors.NewBadRequest(`error in byte 10 of "hunter2"`), secret,
			api.Error{Code: api.BadRequest, Message: "invalid: create Secret jobs/keytab: BadRequest 400"}},
		"422": {invalid(pod, field.NotSupported(spec.Child("restartPolicy"), "Perhaps", []string{"Never"}), field.Required(spec.Child("containers").Index(0).Child("image"), "")), pod,
			api.Error{Code: api.InvalidPodTemplate, Field: "spec.restartPolicy", Message: `invalid: create Pod jobs/pi: spec.restartPolicy: Unsupported value: "Perhaps": supported values: "Never"; spec.containers[0].image: Required value`}},
		"422 of a number": {invalid(pod, field.Invalid(spec.Child("n"), int64(-1), "must be positive")), pod,
			api.Error{Code: api.InvalidPodTemplate, Field: "spec.n", Message: "invalid: create Pod jobs/pi: spec.n: Invalid value: -1: must be positive"}},
		"422 of a whole object": {invalid(pod, field.Invalid(spec.Child("containers").Index(0), map[string]any{"env": []string{"TOKEN: hunter2", "}"}}, "must be: good")), pod,
			api.Error{Code: api.InvalidPodTemplate, Field: "spec.containers[0]", Message: "invalid: create Pod jobs/pi: spec.containers[0]: Invalid value: must be: good"}},
		"422 of what is no JSON": {status422("spec", "Invalid value: {core.PodSpec hunter2}: must be good"), pod,
			api.Error{Code: api.InvalidPodTemplate, Field: "spec", Message: "invalid: create Pod jobs/pi: spec: Invalid value"}},
		"422 of a change, with the difference": {status422("spec", "Forbidden: pod updates may not change fields\n  core.PodSpec{ - TOKEN hunter2"), pod,
			api.Error{Code: api.InvalidPodTemplate, Field: "spec", Message: "invalid: create Pod jobs/pi: spec: Forbidden: pod updates may not change fields"}},
		"422 without field": {status422("", "wrong"), pod,
			api.Error{Code: api.InvalidPodTemplate, Message: "invalid: create Pod jobs/pi: wrong"}},
		"422 without cause": {status(422, metav1.StatusReasonInvalid, "wrong"), pod,
			api.Error{Code: api.InvalidPodTemplate, Message: "invalid: create Pod jobs/pi: wrong"}},
		"422 of a config map": {invalid(conf, field.Invalid(field.NewPath("data").Key("k"), `p="hunter2"`, "is bad")), conf,
			api.Error{Code: api.BadRequest, Field: "data[k]", Message: "invalid: create ConfigMap jobs/conf: data[k]: Invalid value: is bad"}},
		"422 of a secret": {invalid(secret, field.Invalid(field.NewPath("data").Key("k"), "hunter2", "hunter2 is bad")), secret,
			api.Error{Code: api.BadRequest, Field: "data[k]", Message: "invalid: create Secret jobs/keytab: data[k]: Invalid value"}},
		"422 of a secret, without cause": {status(422, metav1.StatusReasonInvalid, "hunter2"), secret,
			api.Error{Code: api.BadRequest, Message: "invalid: create Secret jobs/keytab: Invalid 422"}},
		"a name that cannot be": {&kube.RequestError{Ref: pod, Reason: "no"}, pod,
			api.Error{Code: api.BadRequest, Message: "cannot create Pod jobs/pi: no"}},
		"wrapped": {fmt.Errorf("two: %w", apierrors.NewServiceUnavailable("shutting\n down")), pod,
			api.Error{Code: api.SubmitterOverloaded, RetryAfter: time.Second, Message: "the API server is unavailable: create Pod jobs/pi: shutting down" + again}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := kube.Translate(c.err, "create", c.ref)
			if diff := cmp.Diff(&c.want, got, cmpopts.IgnoreFields(api.Error{}, "Cause")); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if !errors.Is(got, c.err) {
				t.Errorf("the cause is %v", got.Cause)
			}
		})
	}
	if kube.Translate(nil, "create", pod) != nil {
		t.Error("no error became one")
	}
	known := api.Errorf(api.NotFound, "x")
	if kube.Translate(fmt.Errorf("y: %w", known), "create", pod) != known {
		t.Error("an api error was translated")
	}
}

func status422(path, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "it is all hunter2",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: path, Message: message}}},
	}}
}

func TestRefString(t *testing.T) {
	t.Parallel()
	for want, ref := range map[string]kube.Ref{
		"Pod jobs/pi":    pod,
		"Pod in jobs":    {Kind: "Pod", Namespace: "jobs"},
		"TokenReview me": {Kind: "TokenReview", Name: "me"},
	} {
		if got := ref.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzTranslateInvalid: a refused Secret or ConfigMap never tells a value, and a message is never
// empty, not text, or long.
func FuzzTranslateInvalid(f *testing.F) {
	for _, value := range []string{"hunter2", `quote " and : colon`, "line\nbreak", "", "ü\xff", strings.Repeat("é", 3000), "{", "`"} {
		f.Add(value, "must be good")
	}
	f.Fuzz(func(t *testing.T, value, detail string) {
		const mark = "s3cr3t-"
		for _, ref := range []kube.Ref{secret, conf} {
			for _, bad := range []any{mark + value, map[string]any{"x": mark + value}, []string{mark + value}} {
				e := kube.Translate(invalid(ref, field.Invalid(field.NewPath("data"), bad, detail)), "create", ref)
				if strings.Contains(e.Message, mark) && !strings.Contains(detail, mark) {
					t.Errorf("%s tells a value: %s", ref, e.Message)
				}
			}
		}
		e := kube.Translate(invalid(pod, field.Invalid(field.NewPath("spec"), value, detail)), "create", pod)
		if !strings.HasPrefix(e.Message, "invalid: create Pod jobs/pi: ") || len(e.Message) > 2200 {
			t.Errorf("message of %d bytes: %s", len(e.Message), e.Message)
		}
		if utf8.ValidString(value) && utf8.ValidString(detail) && !utf8.ValidString(e.Message) {
			t.Errorf("not text: %q", e.Message)
		}
	})
}
