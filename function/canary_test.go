package function_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/spark/conf"
)

// canary is a value that nothing but the objects of a launch may have.
const canary = "canary-7f3a-Ωmega"

// place is one where a request can carry a secret.
type place struct {
	// arguments come before the resource of a submission, and applicationArguments behind it.
	arguments, applicationArguments []string
	// driver and executor are pod templates, as JSON. CANARY stands for it.
	driver, executor string
	// header is of the request.
	header []string
	// absent is true where the objects do not have it either.
	absent bool
}

const driverContainer = `"name":"spark-kubernetes-driver"`

// places is to grow with each new way to hand over a secret.
var places = map[string]place{
	"a conf":                        {arguments: []string{"--conf", "spark.my.password=" + canary}},
	"a conf of Hadoop's":            {arguments: []string{"--conf", "spark.hadoop.fs.s3a.secret.key=" + canary}},
	"an access key":                 {arguments: []string{"--conf", "spark.hadoop.fs.s3a.access.key=" + canary}},
	"a conf of its own pattern":     {arguments: []string{"--conf", "spark.redaction.regex=(?i)geheim", "--conf", "spark.mein.Geheimnis=" + canary}},
	"a pattern that Go cannot read": {arguments: []string{"--conf", "spark.redaction.regex=(?<!x)geheim", "--conf", "spark.mein.geheimnis=" + canary}},
	"a value that says so":          {arguments: []string{"--conf", "spark.driver.extraJavaOptions=-Dx.password=" + canary}},
	"a value, escaped":              {arguments: []string{"--conf", "spark.redaction.regex=pw:", "--conf", "spark.mein.x=pw:" + canary}},
	"the driver's token":            {arguments: []string{"--conf", "spark.kubernetes.authenticate.driver.oauthToken=" + canary}, absent: true}, // base64
	"the driver's env":              {arguments: []string{"--conf", "spark.kubernetes.driverEnv.DB_PASSWORD=" + canary}},
	"the executors' env":            {arguments: []string{"--conf", "spark.executorEnv.DB_PASSWORD=" + canary}},
	"an annotation":                 {arguments: []string{"--conf", "spark.kubernetes.driver.annotation.my-token=" + canary}},
	"an argument":                   {applicationArguments: []string{"--token=" + canary}},
	"the argument after an option":  {applicationArguments: []string{"--password", canary}},
	"env of a template":             {driver: `{"spec":{"containers":[{` + driverContainer + `,"env":[{"name":"DB_PASSWORD","value":"CANARY"}]}]}}`},
	"env of a sidecar":              {driver: `{"spec":{"containers":[{` + driverContainer + `},{"name":"s","image":"i","env":[{"name":"DB_PASSWORD","value":"CANARY"}]}]}}`},
	"env of an init container":      {driver: `{"spec":{"initContainers":[{"name":"s","image":"i","env":[{"name":"DB_PASSWORD","value":"CANARY"}]}],"containers":[{` + driverContainer + `}]}}`},
	"arguments of a sidecar":        {driver: `{"spec":{"containers":[{` + driverContainer + `},{"name":"s","image":"i","args":["--password","CANARY"]}]}}`},
	"a probe's command":             {driver: `{"spec":{"containers":[{` + driverContainer + `,"livenessProbe":{"exec":{"command":["check","--password=CANARY"]}}}]}}`},
	"a probe's header":              {driver: `{"spec":{"containers":[{` + driverContainer + `,"readinessProbe":{"httpGet":{"port":1,"httpHeaders":[{"name":"X-Token","value":"CANARY"}]}}}]}}`},
	"a hook's command":              {driver: `{"spec":{"containers":[{` + driverContainer + `,"lifecycle":{"preStop":{"exec":{"command":["end","--password","CANARY"]}}}}]}}`},
	"annotations of a template":     {driver: `{"metadata":{"annotations":{"my-token":"CANARY"}},"spec":{"containers":[{` + driverContainer + `}]}}`},
	"env of the executors":          {executor: `{"spec":{"containers":[{"name":"spark-kubernetes-executor","env":[{"name":"DB_PASSWORD","value":"CANARY"}]}]}}`},
	"Authorization":                 {header: []string{"Authorization", "Bearer " + canary}, absent: true},
	"Authorization, Basic":          {header: []string{"Authorization", "Basic " + canary}, absent: true},
	"a cookie":                      {header: []string{"Cookie", "session=" + canary}, absent: true},
	"a header of its own":           {header: []string{"X-Api-Token", canary}, absent: true},
}

// request is a submission with the secret in its place, and with faults, which are further arguments.
func (p place) request(t *testing.T, id string, faults ...string) string {
	t.Helper()
	body := map[string]any{
		"submission_id": id,
		"spark_submit_args": append(append(append([]string{
			"--master", "k8s://https://10.0.0.1:6443", "--deploy-mode", "cluster", "--name", "Spark Pi", "--class", "org.apache.spark.examples.SparkPi",
			"--conf", "spark.kubernetes.container.image=apache/spark:4.2.0",
		}, p.arguments...), append(faults, "local:///opt/spark/examples/jars/spark-examples.jar")...), p.applicationArguments...),
	}
	for field, template := range map[string]string{"driver_pod_template": p.driver, "executor_pod_template": p.executor} {
		if template != "" {
			body[field] = json.RawMessage(strings.ReplaceAll(template, "CANARY", canary))
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestCanary puts a secret into each place, and looks for it in whatever Flint says: answers, dry runs, refusals,
// launches, events, metrics, and all of the log at its most talkative.
func TestCanary(t *testing.T) {
	for name, p := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, received := sink(t)
			i := serve(t, setup{settings: func(s *config.Settings) { s.Sink, s.EventReply = url, true }})
			clean := func(what, text string) {
				t.Helper()
				if strings.Contains(text, canary) || strings.Contains(text, strings.TrimPrefix(canary, "canary-")) {
					t.Errorf("%s has it: %s", what, text)
				}
			}
			json := append([]string{"Content-Type", "application/json"}, p.header...)
			say := func(what string, want int, method, path, body string, header ...string) answer {
				t.Helper()
				a := i.do(t, method, path, body, append(header, p.header...)...)
				if a.status != want {
					t.Errorf("%s: HTTP %d, want %d: %s", what, a.status, want, a.body)
				}
				clean(what, a.body+fmt.Sprint(a.header))
				return a
			}
			for _, mode := range []string{"client", "All"} {
				a := say("a dry run, "+mode, http.StatusOK, http.MethodPost, api.SubmitPath+"?dryRun="+mode, p.request(t, "one"), json...)
				if !p.absent && !strings.Contains(a.body, conf.Redacted) {
					t.Errorf("nothing is hidden in the dry run, %s", mode)
				}
			}
			created := say("the answer", http.StatusCreated, http.MethodPost, api.SubmitPath, p.request(t, "one"), json...).accepted(t)
			say("the repeat", http.StatusOK, http.MethodPost, api.SubmitPath, p.request(t, "one"), json...)
			say("a conflict", http.StatusConflict, http.MethodPost, api.SubmitPath, p.request(t, "one", "--driver-memory", "3g"), json...)
			say("another's name", http.StatusConflict, http.MethodPost, api.SubmitPath, p.request(t, "two", "--conf", "spark.kubernetes.driver.pod.name="+created.DriverPodName), json...)
			for what, faults := range map[string][]string{
				"an option that is none": {"--no-such-option"},
				"a value that is none":   {"--conf", "spark.driver.memory=x"},
				"a namespace":            {"--conf", "spark.kubernetes.namespace=elsewhere"},
				"a reference":            {"--conf", "spark.driver.memory=${spark.my.password}${spark.mein.Geheimnis}"},
				"a file of its own":      {"--jars", "/local/" + "x.jar"},
			} {
				a := i.do(t, http.MethodPost, api.SubmitPath, p.request(t, "bad", faults...), json...)
				if a.status < 400 || a.status >= 500 {
					t.Errorf("%s: HTTP %d: %s", what, a.status, a.body)
				}
				clean("the refusal of "+what, a.body)
			}
			say("a body that breaks off", http.StatusBadRequest, http.MethodPost, api.SubmitPath, strings.TrimSuffix(p.request(t, "one"), "}"), json...)
			say("a field that is none", http.StatusBadRequest, http.MethodPost, api.SubmitPath, strings.Replace(p.request(t, "one"), `"submission_id"`, `"submission"`, 1), json...)
			say("an event", http.StatusOK, http.MethodPost, "/", p.request(t, "three"), binaryEvent("1", api.SubmitEventType, "Prefer", "reply")...)
			say("an event that is refused", http.StatusBadRequest, http.MethodPost, "/", p.request(t, "four", "--no-such-option"), binaryEvent("1", api.SubmitEventType)...)

			stored, err := i.stored()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(stored, canary) == p.absent {
				t.Errorf("the objects of the launch have it: %v", !p.absent)
			}

			// Its end is told by a message that quotes what the container was started with.
			i.endQuoting(t, created.DriverPodName)
			say("a ping", http.StatusAccepted, http.MethodPost, "/", `{}`, binaryEvent("2", "dev.knative.sources.ping")...)
			event := next(t, received)
			clean("the completion event", event.String()+string(event.Data()))
			if !strings.Contains(string(event.Data()), "cannot start") {
				t.Errorf("the event is not about that end: %s", event.Data())
			}
			clean("the launch", i.do(t, http.MethodGet, launchPath("one"), "", p.header...).body)
			clean("the list", i.do(t, http.MethodGet, api.LaunchesPath, "", p.header...).body)
			say("the cancel", http.StatusAccepted, http.MethodDelete, launchPath("three"), "")
			clean("a metric", i.do(t, http.MethodGet, api.MetricsPath, "", p.header...).body)
			clean("the log", strings.Join(i.log.all(), "\n"))
		})
	}
}

// A token that is wanted is no less secret for being good, or bad, or when nobody can be asked about it.
func TestCanaryToken(t *testing.T) {
	for name, v := range map[string]*reviews{
		"good": {rights: []string{canary + " *"}}, "bad": {}, "no rights": {rights: []string{canary + " get nodes"}}, "nobody to ask": {down: true},
	} {
		t.Run(name, func(t *testing.T) {
			v.alias = "ann"
			i := serve(t, withTokens(v))
			for _, call := range []struct{ method, path string }{
				{http.MethodPost, api.SubmitPath}, {http.MethodPost, api.SubmitPath + "?dryRun=client"}, {http.MethodGet, api.LaunchesPath}, {http.MethodGet, launchPath("one")},
				{http.MethodDelete, launchPath("two")}, {http.MethodGet, api.MetricsPath},
			} {
				a := i.do(t, call.method, call.path, submission("one"), "Content-Type", "application/json", "Authorization", "Bearer "+canary)
				if strings.Contains(a.body+fmt.Sprint(a.header), canary) {
					t.Errorf("%s %s: HTTP %d: %s", call.method, call.path, a.status, a.body)
				}
			}
			stored, err := i.stored()
			if log := strings.Join(i.log.all(), "\n"); err != nil || strings.Contains(stored+log, canary) {
				t.Errorf("%v, objects and log:\n%s\n%s", err, stored, log)
			}
		})
	}
}

// A secret that is itself at fault is not what the refusal names.
func TestCanaryAtFault(t *testing.T) {
	i := serve(t, setup{})
	for name, p := range map[string]place{
		"a key that says so":            {arguments: []string{"--conf", "spark.my.password=x", "--conf", "spark.driver.memory.token=" + canary, "--no-such-option"}},
		"a key of its own pattern":      {arguments: []string{"--conf", "spark.redaction.regex=memory", "--conf", "spark.driver.memory=" + canary}},
		"its own pattern comes last":    {arguments: []string{"--conf", "spark.driver.memory=" + canary, "--conf=spark.redaction.regex=memory"}},
		"a pattern that Go cannot read": {arguments: []string{"--conf", "spark.redaction.regex=(?<!x)memory", "--conf", "spark.driver.memory=" + canary}},
		"a value that says so":          {arguments: []string{"--conf", "spark.driver.memory=password=" + canary}},
		"a value of its own pattern":    {arguments: []string{"--conf", "spark.redaction.regex=canary", "--conf", "spark.driver.memory=" + canary}},
		"an option that says so":        {arguments: []string{"--password=" + canary}},
		"an option of its own pattern":  {arguments: []string{"-c", "spark.redaction.regex=geheim", "--geheim=" + canary}},
		"a conf without a sign":         {arguments: []string{"--conf=spark.my.password:" + canary}},
		"a conf in the short form":      {arguments: []string{"-c=spark.my.password=" + canary}},
		"a template's value, no text":   {driver: `{"spec":{"containers":[{` + driverContainer + `,"env":[{"name":"DB_PASSWORD","value":{"x":"CANARY"}}]}]}}`},
		"a template's env, no list":     {driver: `{"spec":{"containers":[{` + driverContainer + `,"env":"CANARY"}]}}`},
		"a template's annotations":      {driver: `{"metadata":{"annotations":"CANARY"},"spec":{"containers":[{` + driverContainer + `}]}}`},
		"a template that is a text":     {driver: `"CANARY"`},
	} {
		t.Run(name, func(t *testing.T) {
			for _, query := range []string{"?dryRun=client", ""} {
				a := i.do(t, http.MethodPost, api.SubmitPath+query, p.request(t, "one"), "Content-Type", "application/json")
				if strings.Contains(a.body, canary) {
					t.Errorf("HTTP %d: %s", a.status, a.body)
				}
				if a.status < 400 && p.driver == "" {
					t.Errorf("HTTP %d: it is not at fault", a.status)
				}
			}
		})
	}
	if log := strings.Join(i.log.all(), "\n"); strings.Contains(log, canary) {
		t.Errorf("the log has it:\n%s", log)
	}
}

// What the API server quotes of a pod that it refuses stays with it.
func TestCanaryOfARefusal(t *testing.T) {
	i := serve(t, setup{api: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				next.ServeHTTP(w, r)
				return
			}
			body, _ := io.ReadAll(r.Body)
			var pod struct{ Spec json.RawMessage }
			_ = json.Unmarshal(body, &pod)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
				Message: "Pod is invalid: spec: Invalid value: " + string(pod.Spec) + ": no",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "spec", Message: "Invalid value: " + string(pod.Spec) + ": no"}}},
			})
		})
	}})
	a := i.submit(t, place{arguments: []string{"--conf", "spark.kubernetes.driverEnv.DB_PASSWORD=" + canary}}.request(t, "one"))
	if a.status != http.StatusUnprocessableEntity || strings.Contains(a.body, canary) || strings.Contains(strings.Join(i.log.all(), "\n"), canary) {
		t.Errorf("HTTP %d: %s\n%s", a.status, a.body, strings.Join(i.log.all(), "\n"))
	}
}

// stored is all that the API has, as text.
func (i *instance) stored() (string, error) {
	var all strings.Builder
	for _, object := range i.api.Objects(pods, services, configMaps, policies) {
		text, err := json.Marshal(object)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// endQuoting ends the pod as a runtime does that cannot start a container: its message has the environment and the arguments.
func (i *instance) endQuoting(t *testing.T, name string) {
	t.Helper()
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(i.api.Object(pods, "default", name).Object, &pod); err != nil {
		t.Fatal(err)
	}
	quoted := []string{"cannot start"}
	for _, c := range append(pod.Spec.Containers, pod.Spec.InitContainers...) {
		for _, e := range c.Env {
			quoted = append(quoted, e.Name+"="+e.Value)
		}
		quoted = append(append(quoted, c.Command...), c.Args...)
	}
	message, err := json.Marshal(strings.Join(quoted, " "))
	if err != nil {
		t.Fatal(err)
	}
	i.setStatus(t, name, fmt.Sprintf(`{"phase":"Failed","containerStatuses":[{"name":"spark-kubernetes-driver","image":"i","imageID":"","ready":false,"restartCount":0,
		"state":{"terminated":{"exitCode":128,"reason":"StartError","message":%s}}}]}`, message))
}
