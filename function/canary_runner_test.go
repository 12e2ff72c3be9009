package function_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/runner"
	"flint.dev/flint/pkg/startup"
	"flint.dev/flint/test/embedded"
)

// labelCanary is one that a label may have.
const labelCanary = "canary-7f3a-omega"

// runnerPlace is one where a request for a runner can carry a secret. CANARY stands for it.
type runnerPlace struct {
	// more is of the body, and header of the request.
	more   string
	header []string
	// stays is true where the pod has it, whose spec may be read by whoever may read pods: no more than that is promised for
	// what is not in secret_env. shown is true where a dry run has it too, since nothing says that it is secret.
	stays, shown bool
}

// body is a request with the secret in its place, of a shape of its own for each n.
func (p runnerPlace) body(key, wait string, n int) string {
	flame := base64.StdEncoding.EncodeToString([]byte("\x83" + labelCanary + key)) // which is a key too
	return fmt.Sprintf(`{"submission_id":%q,"parent":{"namespace":"default","name":"app"},"wait":%q,"shutdown_timeout_ms":%d%s}`,
		key, wait, 1000*n, strings.NewReplacer("CANARY", labelCanary, "FLAME", flame).Replace(p.more))
}

// cleanOf finds the secret in a text: as it is, and in base64.
func cleanOf(t *testing.T) func(what, text string) {
	encoded := base64.StdEncoding.EncodeToString([]byte(labelCanary))
	flame := base64.StdEncoding.EncodeToString([]byte("\x83" + labelCanary))[:20]
	return func(what, text string) {
		t.Helper()
		for _, form := range []string{strings.TrimPrefix(labelCanary, "canary-"), encoded, flame} {
			if strings.Contains(text, form) {
				t.Errorf("%s has it: %s", what, text)
				return
			}
		}
	}
}

func containerOf(fields string) string {
	return `,"template":{"spec":{"containers":[{"name":"app",` + fields + `}]}}`
}

func sidecarOf(kind, fields string) string {
	return `,"template":{"spec":{"` + kind + `":[{"name":"beside","image":"app:1",` + fields + `}]}}`
}

// runnerPlaces is to grow with each new way to hand over a secret.
var runnerPlaces = map[string]runnerPlace{
	"secret_env":                      {more: `,"secret_env":{"X":"CANARY"}`},
	"secret_env that others expand":   {more: `,"secret_env":{"X":"CANARY"},"template":{"spec":{"containers":[{"name":"app","args":["--x","$(X)"]}]}}`},
	"env":                             {more: `,"env":{"GREETING":"CANARY"}`, stays: true, shown: true},
	"env that says so":                {more: `,"env":{"DB_PASSWORD":"CANARY"}`, stays: true},
	"flame_parent":                    {more: `,"flame_parent":"FLAME"`, stays: true, shown: true},
	"env of the template":             {more: containerOf(`"env":[{"name":"DB_PASSWORD","value":"CANARY"}]`), stays: true},
	"env of a sidecar":                {more: sidecarOf("containers", `"env":[{"name":"DB_PASSWORD","value":"CANARY"}]`), stays: true},
	"env of an init container":        {more: sidecarOf("initContainers", `"env":[{"name":"DB_PASSWORD","value":"CANARY"}]`), stays: true},
	"an argument":                     {more: containerOf(`"args":["--password=CANARY"]`), stays: true},
	"the argument after an option":    {more: containerOf(`"args":["--password","CANARY"]`), stays: true},
	"an argument that says nothing":   {more: containerOf(`"args":["CANARY"]`), stays: true, shown: true},
	"the command":                     {more: containerOf(`"command":["run","--token=CANARY"]`), stays: true},
	"a probe's command":               {more: containerOf(`"livenessProbe":{"exec":{"command":["check","--password=CANARY"]}}`), stays: true},
	"a probe's header":                {more: containerOf(`"readinessProbe":{"httpGet":{"port":1,"httpHeaders":[{"name":"X-Token","value":"CANARY"}]}}`), stays: true},
	"a hook's command":                {more: containerOf(`"lifecycle":{"preStop":{"exec":{"command":["end","--password","CANARY"]}}}`), stays: true},
	"a label":                         {more: `,"labels":{"my-token":"CANARY"}`, stays: true},
	"an annotation":                   {more: `,"annotations":{"my-token":"CANARY"}`, stays: true},
	"a label of the template":         {more: `,"template":{"metadata":{"labels":{"my-token":"CANARY"}}}`, stays: true},
	"an annotation of the template":   {more: `,"template":{"metadata":{"annotations":{"my-token":"CANARY"}}}`, stays: true},
	"a node selector":                 {more: `,"template":{"spec":{"nodeSelector":{"my-token":"CANARY"}}}`, stays: true},
	"Authorization":                   {header: []string{"Authorization", "Bearer CANARY"}},
	"a cookie":                        {header: []string{"Cookie", "session=CANARY"}},
	"a header of its own":             {header: []string{"X-Api-Token", "CANARY"}},
	"a traceparent that is none":      {header: []string{"Traceparent", "CANARY"}},
	"a tracestate":                    {header: []string{"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Tracestate", "x=CANARY"}},
	"baggage":                         {header: []string{"Baggage", "token=CANARY"}},
	"a parameter of the content type": {header: []string{"Content-Type", "application/json; token=CANARY"}},
	"a host that is forwarded":        {header: []string{"Forwarded", "for=CANARY", "X-Forwarded-For", "CANARY"}},
}

// refusals are answers of an API server that quotes what it was sent.
var quotingRefusals = []metav1.Status{
	{Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid},
	{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden},
	{Code: http.StatusBadRequest, Reason: metav1.StatusReasonBadRequest},
	{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError},
	{Code: http.StatusConflict, Reason: metav1.StatusReasonConflict},
}

// quoting answers POSTs of the resource so, while it is set.
type quoting struct {
	resource string
	status   metav1.Status
}

func quotingAPI(now *atomic.Pointer[quoting]) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := now.Load()
			if q == nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/"+q.resource) {
				next.ServeHTTP(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			status := q.status
			status.TypeMeta, status.Status = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, metav1.StatusFailure
			// What an API server quotes comes before what a webhook does, which may be long.
			var read struct {
				Metadata struct{ Labels, Annotations map[string]string }
				Spec     struct{ NodeSelector map[string]string }
				Data     map[string]string
			}
			_ = json.Unmarshal(body, &read)
			for key, value := range read.Data {
				decoded, _ := base64.StdEncoding.DecodeString(value)
				read.Data[key] = string(decoded)
			}
			status.Message = fmt.Sprintf("admission webhook denied %q: %v %s", q.resource, read, body)
			cause := metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "Invalid value: " + string(body) + ": no"}
			status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{cause}}
			for _, values := range []map[string]string{read.Metadata.Labels, read.Metadata.Annotations, read.Spec.NodeSelector, read.Data} {
				for key, value := range values {
					cause.Field, cause.Message = "field."+key, fmt.Sprintf("Invalid value: %q: no", value)
					status.Details.Causes = append(status.Details.Causes, cause)
				}
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Code))
			_ = json.NewEncoder(w).Encode(status)
		})
	}
}

// refusedRunners are faults, each in a body of its own, by what is added to it or taken from it, and the answer.
var refusedRunners = map[string]struct {
	change func(body string) string
	status int
	code   api.Code
}{
	"a body that breaks off": {func(b string) string { return strings.TrimSuffix(b, "}") }, 400, api.BadRequest},
	"a field that is none":   {func(b string) string { return strings.TrimSuffix(b, "}") + `,"none":1}` }, 400, api.BadRequest},
	"a field twice":          {func(b string) string { return strings.TrimSuffix(b, "}") + `,"wait":"none"}` }, 400, api.BadRequest},
	"a piece that is none":   {func(b string) string { return strings.TrimSuffix(b, "}") + `,"inherit":["all"]}` }, 400, api.BadRequest},
	"a volume that is none":  {func(b string) string { return strings.TrimSuffix(b, "}") + `,"volumes":["data"]}` }, 422, api.BadRequest},
	"another namespace": {func(b string) string {
		return strings.Replace(b, `"namespace":"default"`, `"namespace":"kube-system"`, 1)
	}, 403, api.Forbidden},
	"no parent":        {func(b string) string { return strings.Replace(b, `"name":"app"`, `"name":"nobody"`, 1) }, 404, api.ParentNotFound},
	"another parent":   {func(b string) string { return strings.Replace(b, `"name":"app"`, `"name":"app","uid":"0"`, 1) }, 409, api.ParentUIDMismatch},
	"no container":     {func(b string) string { return strings.Replace(b, `"name":"app"`, `"name":"app","container":"none"`, 1) }, 422, api.ContainerNotFound},
	"a body too large": {func(b string) string { return strings.TrimSuffix(b, "}") + strings.Repeat(" ", 64<<10) + "}" }, 413, api.PayloadTooLarge},
}

// TestCanaryOfRunners puts the secret into each place, and looks for it in whatever Flint says or writes elsewhere.
func TestCanaryOfRunners(t *testing.T) {
	for name, p := range runnerPlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, received := sink(t)
			var refuse atomic.Pointer[quoting]
			i := idleRunners(t, quotingAPI(&refuse), func(s *config.Settings) {
				s.Sink, s.EventReply, s.MaxBodyBytes, s.MaxEventBytes = url, true, 32<<10, 32<<10
				s.Runner.MaxPerParent = 30
			})
			clean := cleanOf(t)
			header := []string{"Content-Type", "application/json"}
			for _, h := range p.header {
				header = append(header, strings.ReplaceAll(h, "CANARY", labelCanary))
			}
			keys := 0
			body := func(key, wait string) string {
				keys++ // each of a shape of its own, so that no failure holds up another
				return p.body(key, wait, keys)
			}
			say := func(what, path, body string, want int, code api.Code) answer {
				t.Helper()
				a := i.do(t, http.MethodPost, path, body, header...)
				if a.status != want || code != "" && a.refusal(t).ErrorCode != code {
					t.Errorf("%s: HTTP %d, want %d %s: %s", what, a.status, want, code, a.body)
				}
				if !p.shown || !strings.Contains(path, "dryRun") || want >= 400 {
					clean(what, a.body+fmt.Sprint(a.header))
				}
				return a
			}

			for _, mode := range []string{"client", "All"} {
				say("a dry run, "+mode, api.RunnerPath+"?dryRun="+mode, body("one", "none"), http.StatusOK, "")
			}
			say("a query that is none", api.RunnerPath+"?token="+labelCanary, body("one", "none"), http.StatusBadRequest, api.BadRequest)
			one := body("one", "none")
			say("the answer", api.RunnerPath, one, http.StatusAccepted, "")
			say("the repeat", api.RunnerPath, one, http.StatusAccepted, "")
			say("a conflict", api.RunnerPath, strings.TrimSuffix(one, "}")+`,"on_boot_timeout":"keep"}`, http.StatusConflict, "")
			for what, fault := range refusedRunners {
				bad := fault.change(body("bad", "none"))
				say(what, api.RunnerPath, bad, fault.status, fault.code)
				event := i.do(t, http.MethodPost, "/", bad, append(binaryEvent("bad", api.RunnerEventType), p.header...)...)
				if event.status < 400 || event.status >= 500 {
					t.Errorf("%s, by event: HTTP %d: %s", what, event.status, event.body)
				}
				clean(what+", by event", event.body+fmt.Sprint(event.header))
			}
			if !strings.Contains(p.more, "template") {
				say("a policy", api.RunnerPath, strings.TrimSuffix(body("bad", "none"), "}")+`,"template":{"spec":{"hostNetwork":true}}}`, http.StatusForbidden, api.PolicyDenied)
			}
			reply := i.do(t, http.MethodPost, "/", body("two", "none"), append(binaryEvent("2", api.RunnerEventType, "Prefer", "reply"), p.header...)...)
			if reply.status != http.StatusOK || reply.header.Get("Ce-Type") != api.AcceptedEventType {
				t.Errorf("by event: HTTP %d: %s", reply.status, reply.body)
			}
			clean("the reply", reply.body+fmt.Sprint(reply.header))
			if !slices.Contains(p.header, "Authorization") {
				clean("an event's own", i.do(t, http.MethodPost, "/", one, append(binaryEvent("3", api.RunnerEventType, "Ce-Mytoken", labelCanary), p.header...)...).body)
			}

			// An API server, and whatever webhook it asks, quotes what it refuses.
			for _, resource := range []string{"pods", "secrets", "leases"} {
				if p.shown { // what does not say of itself that it is secret is told as the API server tells it
					break
				}
				for n, status := range quotingRefusals {
					refuse.Store(&quoting{resource, status})
					key := fmt.Sprintf("%s-%d", resource, n)
					for _, query := range []string{"", "?dryRun=All"} {
						a := i.do(t, http.MethodPost, api.RunnerPath+query, body(key, "none"), header...)
						if a.status < 400 && (resource != "secrets" || strings.Contains(p.more, "secret_env")) {
							t.Errorf("%s, %d: HTTP %d: %s", resource, status.Code, a.status, a.body)
						}
						clean(fmt.Sprintf("a refusal of %s by %d", resource, status.Code), a.body)
					}
					refuse.Store(nil)
					i.do(t, http.MethodDelete, launchPath(key)+"?kind=runner", "")
				}
			}

			// A node that cannot start it, or that it has ended on, quotes all of its pod, with the values of its Secret.
			for what, state := range failures {
				failing := body(what, "none")
				say(what, api.RunnerPath, failing, http.StatusAccepted, "")
				i.fail(t, what, state)
				a := i.do(t, http.MethodPost, api.RunnerPath, strings.Replace(failing, `"wait":"none"`, `"wait":"running"`, 1), header...)
				if a.status < 400 {
					t.Errorf("%s: HTTP %d: %s", what, a.status, a.body)
				}
				clean(what, a.body)
				i.tellAll(t, received, clean, launch.ID("default", what))
				clean("the launch of "+what, i.do(t, http.MethodGet, launchPath(what), "", header...).body)
				clean("a repeat of "+what, i.do(t, http.MethodPost, api.RunnerPath, failing, header...).body)
			}

			clean("the list", i.do(t, http.MethodGet, api.LaunchesPath, "", header...).body)
			clean("the list of a parent's", i.do(t, http.MethodGet, api.LaunchesPath+"?parent=app", "", header...).body)
			clean("the cancel", i.do(t, http.MethodDelete, launchPath("two")+"?kind=runner", "", header...).body)
			say("a key that was given up", api.RunnerPath, body("two", "none"), http.StatusGone, api.Gone)
			clean("the cancel of none", i.do(t, http.MethodDelete, launchPath("none")+"?kind=runner", "", header...).body)
			clean("a metric", i.do(t, http.MethodGet, api.MetricsPath, "", header...).body)
			clean("the log", strings.Join(i.log.all(), "\n"))
			i.cleanRunnerObjects(t, p, clean)
		})
	}
}

// The boots that nobody waits for are given up by the poller's looks, which know of the Secret's values what they read of it.
func TestCanaryOfRunnersNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	url, received := sink(t)
	i := idleRunners(t, nil, func(s *config.Settings) { s.Sink = url })
	clean := cleanOf(t)
	var ids []string
	for name, p := range runnerPlaces {
		for what, state := range failures {
			if p.more == "" {
				continue
			}
			key := name + ", " + what
			a := i.do(t, http.MethodPost, api.RunnerPath, p.body(key, "none", len(ids)), "Content-Type", "application/json")
			if a.status != http.StatusAccepted {
				t.Fatalf("%s: HTTP %d: %s", key, a.status, a.body)
			}
			i.fail(t, key, state)
			ids = append(ids, launch.ID("default", key))
		}
	}
	i.tellAll(t, received, clean, ids...)
	clean("the list", i.do(t, http.MethodGet, api.LaunchesPath, "").body)
	clean("the log", strings.Join(i.log.all(), "\n"))
	for _, lease := range i.api.Objects(embedded.Leases) {
		clean("a Lease", fmt.Sprint(lease.Object))
	}
}

// tellAll has the poller look until the ends of all these launches were told.
func (i *instance) tellAll(t *testing.T, received chan cloudevents.Event, clean func(what, text string), ids ...string) {
	t.Helper()
	untold := map[any]bool{}
	for _, id := range ids {
		untold[id] = true
	}
	for patience := time.After(time.Minute); len(untold) > 0; {
		i.event(t, pingType, `{}`)
		for more := true; more; {
			select {
			case told := <-received:
				clean("an event", told.String()+string(told.Data()))
				delete(untold, told.Extensions()["launchid"])
			case <-time.After(50 * time.Millisecond):
				more = false
			case <-patience:
				t.Fatalf("no event of %v", untold)
			}
		}
	}
}

// idleRunners is an instance with a parent, on a cluster whose node does nothing.
func idleRunners(t *testing.T, middleware func(http.Handler) http.Handler, change func(*config.Settings)) *instance {
	t.Helper()
	cluster, err := embedded.Start(embedded.Options{Idle: true, Middleware: middleware})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	if _, err := cluster.Add(&unstructured.Unstructured{Object: object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "app", "namespace": "default"},
		"spec": object{"containers": []any{object{"name": "app", "image": "app:1"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	return serve(t, setup{cluster: cluster, settings: func(s *config.Settings) {
		s.Runner = config.Runner{Waiters: 8, WaitLimit: 3 * time.Second, Graces: startup.Graces{ScaleUp: time.Minute}}
		change(s)
	}})
}

// failures are states of a pod that does not run, or no more. SPEC stands for all that is in its spec, and QUOTED for that and the
// values of its Secret, which a scheduler or a kubelet has not read before the containers' turn.
var failures = map[string]string{
	"a runtime that refuses":          `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[{"name":"app","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CreateContainerError","message":QUOTED}}}]}`,
	"a variable that is not there":    `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[{"name":"app","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"CreateContainerConfigError","message":QUOTED}}}]}`,
	"an image that does not come":     `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True"}],"containerStatuses":[{"name":"app","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ErrImagePull","message":QUOTED}}}]}`,
	"no node":                         `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":SPEC}]}`,
	"a node that refuses":             `{"phase":"Failed","reason":"NodeAffinity","message":SPEC}`,
	"a container that cannot start":   `{"phase":"Failed","containerStatuses":[{"name":"app","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":128,"reason":"StartError","message":QUOTED}}}]}`,
	"a program that quotes its words": `{"phase":"Failed","containerStatuses":[{"name":"app","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":1,"reason":"Error","message":QUOTED}}}]}`,
}

// fail gives the runner of the key the state.
func (i *instance) fail(t *testing.T, key, state string) {
	t.Helper()
	id := launch.ID("default", key)
	for _, pod := range i.api.Objects(pods) {
		if pod.GetLabels()[launch.LabelID] != id {
			continue
		}
		quoted := []string{"cannot start:"}
		var walk func(any)
		walk = func(value any) {
			switch value := value.(type) {
			case string:
				quoted = append(quoted, value)
			case map[string]any:
				for _, v := range value {
					walk(v)
				}
			case []any:
				for _, v := range value {
					walk(v)
				}
			}
		}
		spec := pod.Object["spec"].(map[string]any)
		for _, kind := range []string{"containers", "initContainers"} {
			walk(spec[kind])
		}
		asJSON := func() string {
			text, err := json.Marshal(strings.Join(quoted, " "))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		ofSpec := asJSON()
		for _, secret := range i.api.Objects(embedded.Secrets) {
			data, _, _ := unstructured.NestedStringMap(secret.Object, "data")
			if secret.GetName() != pod.GetName() {
				continue
			}
			for _, encoded := range data {
				value, _ := base64.StdEncoding.DecodeString(encoded)
				quoted = append(quoted, string(value))
			}
		}
		i.setStatus(t, pod.GetName(), strings.NewReplacer("QUOTED", asJSON(), "SPEC", ofSpec).Replace(state))
		return
	}
	t.Fatalf("no runner of the key %q", key)
}

// cleanRunnerObjects looks into all objects but Secrets: tombstones, marks and back-offs, and the pods' own bookkeeping. Of a pod's
// spec and its own labels and annotations it holds what the place says.
func (i *instance) cleanRunnerObjects(t *testing.T, p runnerPlace, clean func(what, text string)) {
	t.Helper()
	seen, leases := false, 0
	for _, object := range i.api.Objects() {
		switch object.GetKind() {
		case "Secret":
			continue
		case "Pod":
			delete(object.Object, "status") // the kubelet's
		case "Lease":
			leases++
		}
		ours := map[string]string{}
		for key, value := range object.GetAnnotations() {
			if strings.HasPrefix(key, api.ReservedPrefix) {
				ours[key] = value
			}
		}
		clean("the bookkeeping of "+object.GetKind(), fmt.Sprint(ours))
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if object.GetKind() != "Pod" || !p.stays {
			clean(object.GetKind(), string(text))
			continue
		}
		seen = seen || strings.Contains(string(text), labelCanary) || strings.Contains(p.more, "flame_parent")
	}
	if p.stays != seen || leases < 5 {
		t.Errorf("in a pod: %v, want %v; %d Leases", seen, p.stays, leases)
	}
}

// A value that is itself at fault is not what the refusal of a runner names; the field is.
func TestCanaryAtFaultOfRunners(t *testing.T) {
	i := idleRunners(t, nil, func(*config.Settings) {})
	bad := labelCanary + " Ω" // no label's value
	for name, tc := range map[string]struct {
		more, field string
		status      int
	}{
		"a label":                                 {`,"labels":{"team":"BAD"}`, "labels.team", 400},
		"a label of the template":                 {`,"template":{"metadata":{"labels":{"team":"BAD"}}}`, "template.metadata.labels.team", 422},
		"a label of the template, no text":        {`,"template":{"metadata":{"labels":{"team":{"a":"BAD"}}}}`, "template", 422},
		"labels of the template, no map":          {`,"template":{"metadata":{"labels":"BAD"}}`, "template", 422},
		"a label of an injector":                  {`,"labels":{"sidecar.istio.io/inject":"CANARY"}`, "labels.sidecar.istio.io/inject", 403},
		"an annotation of an injector":            {`,"annotations":{"vault.hashicorp.com/agent-inject-token":"BAD"}`, "annotations.vault.hashicorp.com/agent-inject-token", 403},
		"one in the template":                     {`,"template":{"metadata":{"annotations":{"vault.hashicorp.com/agent-inject-token":"BAD"}}}`, "annotations.vault.hashicorp.com/agent-inject-token", 403},
		"a reserved annotation":                   {`,"annotations":{"flint.dev/x":"BAD"}`, "annotations.flint.dev/x", 400},
		"labels, no map":                          {`,"labels":"BAD"`, "labels", 400},
		"an annotation, no text":                  {`,"annotations":{"a":["BAD"]}`, "annotations", 400},
		"a variable, no name":                     {`,"env":{"A B":"BAD"}`, "env.A B", 422},
		"a secret variable, no name":              {`,"secret_env":{"A B":"BAD"}`, "secret_env.A B", 422},
		"a secret variable, no text":              {`,"secret_env":{"A":{"x":"BAD"}}`, "secret_env", 400},
		"a secret variable with a NUL":            {`,"secret_env":{"A":"CANARY\u0000"}`, "secret_env.A", 422},
		"a variable twice":                        {`,"env":{"A":"BAD"},"secret_env":{"A":"BAD"}`, "secret_env.A", 422},
		"a variable of ours":                      {`,"env":{"POD_IP":"BAD"}`, "env.POD_IP", 422},
		"a cycle":                                 {`,"expand_env":true,"env":{"A":"$(B) BAD","B":"$(A) BAD"}`, "env", 422},
		"a flame_parent":                          {`,"flame_parent":"BAD"`, "flame_parent", 400},
		"env of the template, no list":            {containerOf(`"env":"BAD"`), "template", 422},
		"a value of the template's env, no text":  {containerOf(`"env":[{"name":"A","value":{"x":"BAD"}}]`), "template", 422},
		"a variable of the template, of ours":     {containerOf(`"env":[{"name":"POD_IP","value":"BAD"}]`), "template", 422},
		"an argument, no text":                    {containerOf(`"args":[{"x":"BAD"}]`), "template", 422},
		"a node selector, no text":                {`,"template":{"spec":{"nodeSelector":{"my-token":{"x":"BAD"}}}}`, "template", 422},
		"an image that says so":                   {containerOf(`"image":"registry.example/app?token=CANARY"`), "template.spec.containers[app].image", 403},
		"a host that says so":                     {`,"template":{"spec":{"hostname":"token-CANARY"}}`, "template.spec.hostname", 403},
		"a probe's host that says so":             {containerOf(`"readinessProbe":{"httpGet":{"port":1,"host":"token-CANARY"}}`), "template.spec.containers[app].readinessProbe.host", 403},
		"a name of the template that says so":     {`,"template":{"metadata":{"name":"token-CANARY"}}`, "template.metadata.name", 403},
		"a time of the template that is none":     {`,"template":{"metadata":{"creationTimestamp":"token-BAD"}}`, "template.metadata.creationTimestamp", 403},
		"a quantity of the template that is none": {containerOf(`"resources":{"limits":{"cpu":"BAD"}}`), "template", 422},
		"a template, no object":                   {`,"template":"BAD"`, "template", 400},
		"a parent, no object":                     {`,"parent":"BAD"`, "parent", 400},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(`{"submission_id":"x","parent":{"namespace":"default","name":"app"},"wait":"none"%s}`, strings.NewReplacer("CANARY", labelCanary, "BAD", bad).Replace(tc.more))
			for _, query := range []string{"?dryRun=client", "?dryRun=All", ""} {
				a := i.do(t, http.MethodPost, api.RunnerPath+query, text, "Content-Type", "application/json")
				if strings.Contains(a.body, labelCanary) {
					t.Errorf("HTTP %d: %s", a.status, a.body)
				}
				body := a.refusal(t)
				if a.status != tc.status || !strings.HasPrefix(body.Field+" "+body.Message, tc.field) && !strings.Contains(body.Message, tc.field) {
					t.Errorf("HTTP %d, want %d and %s: %s", a.status, tc.status, tc.field, a.body)
				}
			}
			a := i.do(t, http.MethodPost, "/", text, binaryEvent("1", api.RunnerEventType)...)
			if a.status < 400 || strings.Contains(a.body, labelCanary) {
				t.Errorf("by event: HTTP %d: %s", a.status, a.body)
			}
		})
	}
	if log := strings.Join(i.log.all(), "\n"); strings.Contains(log, labelCanary) {
		t.Errorf("the log has it:\n%s", log)
	}
	if runners := slices.DeleteFunc(i.api.Objects(pods), func(p *unstructured.Unstructured) bool { return p.GetLabels()[runner.LabelComponent] == "" }); len(runners) > 0 {
		t.Errorf("%d runners were made", len(runners))
	}
}
