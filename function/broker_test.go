package function_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/kube"
)

// verdict is what a Broker makes of an answer.
type verdict string

const (
	delivered    verdict = "delivered"
	retried      verdict = "retried"
	deadLettered verdict = "dead-lettered"
)

// brokerVerdict is the rule of Knative's Brokers and Channels (eventing's delivery spec, and
// pkg/kncloudevents SelectiveRetry). Status 0 is no answer. A 202 with an event is one that the
// specification does not know and some Brokers forward: it counts as a failure here.
func brokerVerdict(status int, header http.Header, body []byte) verdict {
	switch {
	case status == 0:
		return retried
	case status/100 == 2:
		if len(body) == 0 || status == http.StatusOK && carriesEvent(header) {
			return delivered
		}
		return retried
	case status == http.StatusNotFound, status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooManyRequests, status >= 500:
		return retried
	}
	return deadLettered
}

// carriesEvent tells an event, binary or structured, by the headers.
func carriesEvent(header http.Header) bool {
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return header.Get("Ce-Specversion") != "" || err == nil && media == "application/cloudevents+json"
}

func TestBrokerVerdict(t *testing.T) {
	binary := http.Header{"Ce-Specversion": {"1.0"}}
	structured := http.Header{"Content-Type": {"application/cloudevents+json; charset=utf-8"}}
	plain := http.Header{"Content-Type": {"application/json"}}
	for _, tc := range []struct {
		status int
		header http.Header
		body   string
		want   verdict
	}{
		{0, nil, "", retried},
		{200, plain, "", delivered},
		{202, nil, "", delivered},
		{204, nil, "", delivered},
		{200, binary, "{}", delivered},
		{200, structured, "{}", delivered},
		{200, plain, "{}", retried},
		{202, plain, "{}", retried},
		{202, binary, "{}", retried},
		{301, nil, "", deadLettered},
		{307, nil, "", deadLettered},
		{400, plain, "{}", deadLettered},
		{401, nil, "", deadLettered},
		{403, nil, "", deadLettered},
		{404, nil, "", retried},
		{405, nil, "", deadLettered},
		{408, nil, "", retried},
		{409, nil, "", retried},
		{410, nil, "", deadLettered},
		{413, nil, "", deadLettered},
		{415, nil, "", deadLettered},
		{422, plain, "{}", deadLettered},
		{429, nil, "", retried},
		{500, nil, "", retried},
		{502, nil, "", retried},
		{503, nil, "", retried},
		{504, nil, "", retried},
	} {
		if got := brokerVerdict(tc.status, tc.header, []byte(tc.body)); got != tc.want {
			t.Errorf("%d %v %q: %s, want %s", tc.status, tc.header, tc.body, got, tc.want)
		}
	}
}

// binaryEvent are the headers of an event in binary mode.
func binaryEvent(id, kind string, more ...string) []string {
	return append([]string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", "/broker", "Ce-Type", kind}, more...)
}

// refusing is an API server that answers the calls of the method so.
func refusing(method string, status metav1.Status) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != method {
				next.ServeHTTP(w, r)
				return
			}
			status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
		})
	}
}

// Every way of an event through Flint, judged as a Broker judges it: what can never work is
// dead-lettered, what may work later is sent again, what was done is done.
func TestEveryEventPathAsABrokerSeesIt(t *testing.T) {
	post := func(body string, header ...string) func(*testing.T, *instance) answer {
		return func(t *testing.T, i *instance) answer { return i.do(t, http.MethodPost, "/", body, header...) }
	}
	submit := func(body string, more ...string) func(*testing.T, *instance) answer {
		return post(body, binaryEvent("1", api.SubmitEventType, more...)...)
	}
	structured := func(data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"s","source":"/broker","type":%q,"datacontenttype":"application/json","data":%s}`, api.SubmitEventType, data)
	}
	template := func(id, text string) string {
		return strings.TrimSuffix(submission(id), "}") + `,"driver_pod_template":` + text + `}`
	}
	twice := func(second string) func(*testing.T, *instance) answer {
		return func(t *testing.T, i *instance) answer {
			if a := submit(submission("s"))(t, i); a.status != http.StatusAccepted {
				t.Fatalf("first: HTTP %d: %s", a.status, a.body)
			}
			return submit(second)(t, i)
		}
	}
	change := func(data string) func(*testing.T, *instance) answer {
		return post(data, binaryEvent("1", "dev.knative.apiserver.ref.update")...)
	}
	status := func(code int32, reason metav1.StatusReason, message string) metav1.Status {
		return metav1.Status{Code: code, Reason: reason, Message: message}
	}
	down := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	}
	gone := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}
	everywhere := func(s *config.Settings) { s.Namespaces = []string{"*"} }
	reply := func(s *config.Settings) { s.EventReply = true }
	const driver = `{"spec":{"containers":[{"name":"spark-kubernetes-driver"}]}}`
	longID := strings.Repeat(`"`, 253)

	cases := []struct {
		name  string
		setup setup
		send  func(*testing.T, *instance) answer
		want  verdict
		code  int
	}{
		// Done.
		{"binary", setup{}, submit(submission("s")), delivered, 202},
		{"structured", setup{}, post(structured(submission("s")), "Content-Type", "application/cloudevents+json"), delivered, 202},
		{"on another path", setup{}, func(t *testing.T, i *instance) answer {
			return i.do(t, http.MethodPost, api.SubmitPath, submission("s"), binaryEvent("1", api.SubmitEventType)...)
		}, delivered, 202},
		{"a duplicate", setup{}, twice(submission("s")), delivered, 202},
		{"a reply is preferred, and off", setup{}, submit(submission("s"), "Prefer", "reply"), delivered, 202},
		{"a reply is on, and not preferred", setup{settings: reply}, submit(submission("s")), delivered, 202},
		{"a reply", setup{settings: reply}, submit(submission("s"), "Prefer", "reply"), delivered, 200},
		{"a ping", setup{}, post("", binaryEvent("1", pingType)...), delivered, 202},
		{"a ping for which a reply is on", setup{settings: reply}, post("", binaryEvent("1", pingType, "Prefer", "reply")...), delivered, 202},
		{"a change of a workload", setup{}, change(`{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"p"}`), delivered, 202},
		{"a change of another kind", setup{}, change(`{"kind":"Service","apiVersion":"v1","namespace":"default","name":"p"}`), delivered, 202},
		{"a change in another namespace", setup{}, change(`{"kind":"Pod","apiVersion":"v1","namespace":"other","name":"p"}`), delivered, 202},

		// Never.
		{"the key's content is another", setup{}, twice(submission("s", "--driver-memory", "2g")), deadLettered, 422},
		{"malformed data", setup{}, submit("{"), deadLettered, 400},
		{"no data", setup{}, submit(""), deadLettered, 400},
		{"malformed, structured", setup{}, post("{", "Content-Type", "application/cloudevents+json"), deadLettered, 400},
		{"no version", setup{}, post("{}", "Content-Type", "application/json", "Ce-Id", "1"), deadLettered, 400},
		{"no id", setup{}, post(submission("s"), binaryEvent("", api.SubmitEventType)...), deadLettered, 400},
		{"a time that is none", setup{}, submit(submission("s"), "Ce-Time", "now"), deadLettered, 400},
		{"an empty idempotency key", setup{}, post(`{"specversion":"1.0","id":"1","source":"/b","idempotencykey":"","type":"`+api.SubmitEventType+`","data":{}}`, "Content-Type", "application/cloudevents+json"), deadLettered, 400},
		{"a query", setup{}, func(t *testing.T, i *instance) answer {
			return i.do(t, http.MethodPost, "/?dryRun=All", submission("s"), binaryEvent("1", api.SubmitEventType)...)
		}, deadLettered, 400},
		{"bad arguments", setup{}, submit(submission("s", "--foo")), deadLettered, 400},
		{"bad arguments, at length", setup{}, submit(submission(longID, "--"+strings.Repeat("<\u2028", 3000))), deadLettered, 400},
		{"an unknown type", setup{}, post(submission("s"), binaryEvent("1", "com.example.other")...), deadLettered, 415},
		{"an unknown type, at length", setup{}, post(submission("s"), binaryEvent("1", strings.Repeat("x", 3000))...), deadLettered, 415},
		{"its own event about an end", setup{}, post("{}", binaryEvent("1", "dev.flint.spark.failed.v1")...), deadLettered, 415},
		{"its own reply", setup{}, post("{}", binaryEvent("1", api.AcceptedEventType)...), deadLettered, 415},
		{"a batch", setup{}, post("[]", "Content-Type", "application/cloudevents-batch+json"), deadLettered, 415},
		{"data that is not JSON", setup{}, submit(submission("s"), "Content-Type", "application/xml"), deadLettered, 415},
		{"compressed", setup{}, submit(submission("s"), "Content-Encoding", "gzip"), deadLettered, 415},
		{"too large", setup{}, submit(strings.Repeat("x", 1<<20+1)), deadLettered, 413},
		{"too large for the API server", setup{api: refusing(http.MethodPost, status(413, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728"))}, submit(submission("s")), deadLettered, 413},
		{"a namespace that is not served", setup{}, submit(submission("s", "--conf", "spark.kubernetes.namespace=kube-system")), deadLettered, 403},
		{"no right in the namespace", setup{api: refusing(http.MethodPost, status(403, metav1.StatusReasonForbidden, `pods is forbidden: User "flint" cannot create resource`))}, submit(submission("s")), deadLettered, 403},
		{"the quota is used up", setup{api: refusing(http.MethodPost, status(403, metav1.StatusReasonForbidden, `pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`))}, submit(submission("s")), deadLettered, 403},
		{"a namespace that is not there", setup{settings: everywhere}, submit(submission("s", "--conf", "spark.kubernetes.namespace=nowhere")), deadLettered, 422},
		{"a template without the driver", setup{}, submit(template("s", `{"spec":{"containers":[{"name":"x"}]}}`)), deadLettered, 422},
		{"a template of another kind, at length", setup{}, submit(template(longID, `{"spec":{"containers":[{"name":"spark-kubernetes-driver"}]},"kind":"`+strings.Repeat("k", 3000)+`"}`)), deadLettered, 422},
		{"a pod that the API server refuses", setup{api: refusing(http.MethodPost, metav1.Status{
			Code: 422, Reason: metav1.StatusReasonInvalid, Message: strings.Repeat("long ", 1000),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: strings.Repeat(`spec["x"].`, 100), Message: "Required value"}}},
		})}, submit(template(longID, driver)), deadLettered, 422},
		{"a change without a name", setup{}, change(`{"kind":"Pod","apiVersion":"v1","namespace":"default"}`), deadLettered, 400},
		{"a change that is no object", setup{}, change(`[]`), deadLettered, 400},

		// Later.
		{"starting", setup{stopped: true}, submit(submission("s")), retried, 503},
		{"a ping while it starts", setup{stopped: true}, post("", binaryEvent("1", pingType)...), retried, 503},
		{"stopping", setup{}, func(t *testing.T, i *instance) answer {
			if err := i.f.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			return submit(submission("s"))(t, i)
		}, retried, 503},
		{"the API server is busy", setup{api: refusing(http.MethodPost, status(429, metav1.StatusReasonTooManyRequests, "too many"))}, submit(submission("s")), retried, 503},
		{"the API server is in trouble", setup{api: refusing(http.MethodPost, status(500, metav1.StatusReasonInternalError, "etcd"))}, submit(submission("s")), retried, 503},
		{"the API server does not know us", setup{api: refusing(http.MethodPost, status(401, metav1.StatusReasonUnauthorized, "Unauthorized"))}, submit(submission("s")), retried, 500},
		{"the API server is down", setup{api: down}, submit(submission("s")), retried, 503},
		{"the API server is gone", setup{api: gone}, submit(submission("s")), retried, 503},
		{"the quota is not counted yet", setup{api: refusing(http.MethodPost, status(403, metav1.StatusReasonForbidden, "status unknown for quota: q, resources: pods"))}, submit(submission("s")), retried, 503},
		{"a ping while the API server is down", setup{api: down}, post("", binaryEvent("1", pingType)...), retried, 503},
		{"a change while the API server is down", setup{api: down}, change(`{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"p"}`), retried, 503},
		{"no memory for the body", setup{settings: func(s *config.Settings) { s.BodyMemory = 100 }}, submit(submission("s")), retried, 503},
		{"the body does not come", setup{settings: func(s *config.Settings) { s.BodyTimeout = 50 * time.Millisecond }}, silent, retried, 503},
		{"as much in flight as there may be", setup{}, whileFull(submit(submission("second"))), retried, 503},
		{"a ping while all slots are taken", setup{}, whileFull(post("", binaryEvent("1", pingType)...)), retried, 503},
		{"the API server hangs", setup{}, hanging(submit(submission("s"))), retried, 503},
		{"a panic", setup{transport: func(http.RoundTripper) http.RoundTripper { return panics{} }}, submit(submission("s")), retried, 500},
		{"a predecessor is being deleted", setup{}, func(t *testing.T, i *instance) answer {
			body := template("s", `{"metadata":{"finalizers":["x/y"]},"spec":{"containers":[{"name":"spark-kubernetes-driver"}]}}`)
			if a := submit(body)(t, i); a.status != http.StatusAccepted {
				t.Fatalf("first: HTTP %d: %s", a.status, a.body)
			}
			remove(t, i)
			return submit(body)(t, i)
		}, retried, 503},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			a := tc.send(t, serve(t, tc.setup))
			if got := brokerVerdict(a.status, a.header, []byte(a.body)); got != tc.want || a.status != tc.code {
				t.Errorf("%s with HTTP %d, want %s with %d: %.300s", got, a.status, tc.want, tc.code, a.body)
			}
			switch tc.want {
			case delivered:
				if a.status != http.StatusOK && a.body != "" {
					t.Errorf("a body with %d: %s", a.status, a.body)
				}
			case retried:
				if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
				fallthrough
			default:
				if body := a.refusal(t); len(a.body) > 700 || body.Status != a.status {
					t.Errorf("%d bytes: %s", len(a.body), a.body)
				}
				if carriesEvent(a.header) || a.header.Get("Content-Type") != "application/json" {
					t.Errorf("headers %v", a.header)
				}
			}
		})
	}
}

const pingType = "dev.knative.sources.ping"

// panics is a transport that panics.
type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("broken") }

// silent promises a body and sends none.
func silent(t *testing.T, i *instance) answer {
	t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	var head strings.Builder
	head.WriteString("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n")
	for header := binaryEvent("1", api.SubmitEventType); len(header) > 0; header = header[2:] {
		head.WriteString(header[0] + ": " + header[1] + "\r\n")
	}
	if _, err := io.WriteString(connection, head.String()+"\r\n{"); err != nil {
		t.Fatal(err)
	}
	return readAnswer(t, connection)
}

func readAnswer(t *testing.T, connection net.Conn) answer {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// whileFull sends to an instance whose only slot is taken.
func whileFull(send func(*testing.T, *instance) answer) func(*testing.T, *instance) answer {
	return func(t *testing.T, _ *instance) answer {
		t.Helper()
		b := newBlock()
		i := serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.MaxInFlight = 1 }})
		first := make(chan answer, 1)
		go func() { first <- i.submit(t, submission("first")) }()
		<-b.arrived
		a := send(t, i)
		b.active.Store(false)
		close(b.release)
		<-first
		return a
	}
}

// hanging sends to an instance whose API server does not answer in time.
func hanging(send func(*testing.T, *instance) answer) func(*testing.T, *instance) answer {
	return func(t *testing.T, _ *instance) answer {
		t.Helper()
		b := newBlock()
		return send(t, serve(t, setup{api: b.wrap, settings: func(s *config.Settings) { s.LaunchTimeout = 50 * time.Millisecond }}))
	}
}

// remove deletes the only driver. One with a finalizer stays, and is being deleted.
func remove(t *testing.T, i *instance) {
	t.Helper()
	client, err := kube.NewClient(i.api.Config())
	if err != nil {
		t.Fatal(err)
	}
	driver := i.api.Objects(pods)[0]
	if err := client.Delete(t.Context(), kube.RefOf(driver.GetNamespace(), driver), driver.GetUID()); err != nil {
		t.Fatal(err)
	}
}
