package filejob_test

import (
	stdcmp "cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/launch"
)

func settings() filejob.Settings {
	return filejob.Settings{
		Image: "registry.example/fileagent:1", PullPolicy: corev1.PullIfNotPresent, PullSecrets: []string{"pull"}, ServiceAccount: "files",
		CPU: resource.MustParse("500m"), Memory: resource.MustParse("256Mi"), User: 65532, Group: 65533,
		Timeout: 2 * time.Minute, LongTimeout: 2 * time.Hour, Limits: protocol.DefaultLimits(),
	}
}

// request decodes a request on the claim data of the namespace team.
func request(t *testing.T, operation string, more ...string) *api.FileRequest {
	t.Helper()
	target := `"namespace":"team","claim":"data"`
	if len(more) > 0 {
		target += "," + more[0]
	}
	r, err := api.DecodeFile([]byte(`{"submission_id":"s","target":{`+target+`},"operation":`+operation+`}`), "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func plan(t *testing.T, r *api.FileRequest, facts filejob.Facts, s filejob.Settings) (*launch.Plan, *batchv1.Job) {
	t.Helper()
	facts.ClaimUID = "6a2f5d4e-8f0e-4c5f-9a39-4f9a3bb1c7d1"
	p, err := filejob.Plan(r, facts, s, "")
	if err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(p.Workload.Object, job, true); err != nil {
		t.Fatal(err)
	}
	return p, job
}

// sent is the request that the agent gets: by the variable, or from the Secret.
func sent(t *testing.T, p *launch.Plan, job *batchv1.Job) *protocol.Request {
	t.Helper()
	env := map[string]string{protocol.EnvNonce: "n"}
	for _, e := range job.Spec.Template.Spec.Containers[0].Env {
		if e.ValueFrom == nil {
			env[e.Name] = e.Value
		}
	}
	got, err := protocol.DecodeEnv(func(name string) string { return env[name] }, func(string) ([]byte, error) {
		secret := &corev1.Secret{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Support[0].Object.Object, secret); err != nil {
			return nil, err
		}
		return secret.Data["request.json"], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got.Request
}

const (
	reading = `{"op":"read","path":"f"}`
	writing = `{"op":"write","path":"f","text":"hidden"}`
	copying = `{"op":"copy","path":"f","to":"g"}`
)

func TestS01_manifest_isolation(t *testing.T) {
	t.Parallel()
	for name, operation := range map[string]string{"a read": reading, "a change": copying, "with a Secret": writing} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(t, operation)
			p, job := plan(t, r, filejob.Facts{}, settings())
			spec := job.Spec.Template.Spec
			if *job.Spec.BackoffLimit != 0 || *job.Spec.PodReplacementPolicy != batchv1.Failed || job.Spec.TTLSecondsAfterFinished != nil || spec.RestartPolicy != corev1.RestartPolicyNever {
				t.Errorf("Job %+v", job.Spec)
			}
			if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks || spec.NodeName != "" || spec.HostNetwork || spec.HostPID || spec.HostIPC {
				t.Errorf("pod %+v", spec)
			}
			if diff := cmp.Diff(&corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65533)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}, spec.SecurityContext); diff != "" {
				t.Errorf("pod security (-want +got)\n%s", diff)
			}
			c := spec.Containers[0]
			if diff := cmp.Diff(&corev1.SecurityContext{
				Privileged: new(false), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}, c.SecurityContext); diff != "" {
				t.Errorf("container security (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.Resources.Requests, c.Resources.Limits); diff != "" || c.Resources.Limits.Cpu().String() != "500m" {
				t.Errorf("resources %v", c.Resources)
			}
			// One volume, or two with the Secret; a read can write neither.
			volumes := 1 + len(p.Support)
			claim := spec.Volumes[0].PersistentVolumeClaim
			if len(spec.Volumes) != volumes || len(c.VolumeMounts) != volumes || len(spec.Containers) != 1 || claim.ClaimName != "data" {
				t.Errorf("volumes %+v, mounts %+v", spec.Volumes, c.VolumeMounts)
			}
			if only := !r.Operation.Mutates(); claim.ReadOnly != only || c.VolumeMounts[0].ReadOnly != only {
				t.Errorf("read-only: volume %t, mount %t, want %t", claim.ReadOnly, c.VolumeMounts[0].ReadOnly, only)
			}
			if len(c.Command) != 0 || len(c.Args) != 0 {
				t.Errorf("command %v, args %v", c.Command, c.Args)
			}
		})
	}
}

func TestS02_manifest_no_secret_in_argv_labels_annotations(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2"
	for name, operation := range map[string]string{
		"content": `{"op":"write","path":"f","content":"` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"}`,
		"text":    `{"op":"write","path":"f","text":"` + secret + `"}`,
		"source":  `{"op":"upload","path":"f","source":{"url":"https://example.org/` + secret + `","size":1,"sha256":"` + strings.Repeat("0", 64) + `","token":"` + secret + `"}}`,
		"sink":    `{"op":"download","path":"f","sink":{"url":"https://example.org/` + secret + `"}}`,
		"batch":   `{"op":"batch","operations":[{"op":"list"},{"op":"write","path":"f","text":"` + secret + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := plan(t, request(t, operation), filejob.Facts{}, settings())
			text, err := json.Marshal(p.Workload.Object)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), secret) || strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte(secret))) {
				t.Errorf("in the Job: %s", text)
			}
			if len(p.Support) != 1 || p.Support[0].Object.GetKind() != "Secret" || p.Support[0].Reuse {
				t.Errorf("support %+v", p.Support)
			}
			metadata, _ := json.Marshal(p.Support[0].Object.Object["metadata"])
			if immutable := p.Support[0].Object.Object["immutable"]; immutable != true || strings.Contains(string(metadata), secret) {
				t.Errorf("the Secret: immutable %v, %s", immutable, metadata)
			}
		})
	}
	t.Run("a path with dollar signs is data", func(t *testing.T) {
		t.Parallel()
		const path = "cost$$.txt/$(FLINT_FILE_NONCE)"
		p, job := plan(t, request(t, `{"op":"mkdir","path":"`+path+`"}`), filejob.Facts{}, settings())
		text, _ := json.Marshal(job.Spec)
		if got := sent(t, p, job).Operation.Path; got != path || strings.Contains(string(text), "$") {
			t.Errorf("sent %q in %s", got, text)
		}
	})
}

func TestS03_long_claim_and_owner_names(t *testing.T) {
	t.Parallel()
	r := request(t, reading)
	r.Target.Claim = strings.Repeat("a", 253)
	r.SubmissionID = strings.Repeat("s", 253)
	p, job := plan(t, r, filejob.Facts{}, settings())
	if len(validation.IsDNS1123Label(job.Name)) > 0 || job.Name != "fj-"+p.ID {
		t.Errorf("name %q", job.Name)
	}
	for _, labels := range []map[string]string{job.Labels, job.Spec.Template.Labels} {
		for key, value := range labels {
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("label %s=%s: %v", key, value, problems)
			}
		}
		if labels[launch.LabelID] != p.ID || labels[launch.LabelKind] != "file" || labels[filejob.LabelOp] != "read" || labels[filejob.LabelClaim] == "" {
			t.Errorf("labels %v", labels)
		}
	}
	// The poller lists what has this label: the Job, not its pod.
	if job.Labels[launch.LabelCompletion] == "" || job.Spec.Template.Labels[launch.LabelCompletion] != "" {
		t.Errorf("completion: Job %q, pod %q", job.Labels[launch.LabelCompletion], job.Spec.Template.Labels[launch.LabelCompletion])
	}
	if job.Annotations[filejob.AnnotationClaim] != r.Target.Claim {
		t.Errorf("annotations %v", job.Annotations)
	}
}

func TestRequestOfTheAgent(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 200) + "/"
	cases := map[string]struct {
		operation string
		secret    bool
	}{
		"short":                    {copying, false},
		"text goes as bytes":       {`{"op":"write","path":"f","text":"a\u0001b"}`, true},
		"longer than a variable":   {`{"op":"batch","operations":[` + strings.Repeat(`{"op":"mkdir","path":"`+strings.Repeat(long, 10)+`"},`, 49) + `{"op":"list"}]}`, true},
		"text within a batch":      {`{"op":"batch","operations":[{"op":"write","path":"f","text":""}]}`, true},
		"the largest content":      {`{"op":"write","path":"f","content":"` + base64.StdEncoding.EncodeToString(make([]byte, api.MaxInline)) + `"}`, true},
		"the worst text to escape": {`{"op":"write","path":"f","text":"` + strings.Repeat(`\u0001`, api.MaxInline) + `"}`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(t, c.operation, `"sub_path":"below"`)
			p, job := plan(t, r, filejob.Facts{}, settings())
			if (len(p.Support) == 1) != c.secret {
				t.Errorf("%d support objects", len(p.Support))
			}
			got := sent(t, p, job)
			if got.SubPath != "below" || got.Claim != "data" || !cmp.Equal(got.Limits, protocol.DefaultLimits()) || got.Operation.Op != r.Operation.Op || got.Operation.Text != nil {
				t.Errorf("sent %+v", got)
			}
			if r.Operation.Text != nil && string(*got.Operation.Content) != *r.Operation.Text {
				t.Error("other content was sent")
			}
			for _, e := range job.Spec.Template.Spec.Containers[0].Env { // F35: MAX_ARG_STRLEN
				if len(e.Name)+len(e.Value)+2 > 131_071 {
					t.Errorf("%s has %d bytes", e.Name, len(e.Value))
				}
			}
		})
	}
}

func TestPlacementAndIdentity(t *testing.T) {
	t.Parallel()
	id := func(n int64) *int64 { return &n }
	toleration := []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	cases := map[string]struct {
		target   string
		facts    filejob.Facts
		settings func(*filejob.Settings)
		user     int64
		group    int64
		fsGroup  *int64
	}{
		"as the settings say":                        {user: 65532, group: 65533},
		"as the pod that uses it":                    {facts: filejob.Facts{As: filejob.Identity{User: id(1000), Group: id(1001), FSGroup: id(1002)}}, user: 1000, group: 1001, fsGroup: id(1002)},
		"as the request says":                        {target: `"run_as_user":7,"run_as_group":8,"fs_group":9`, facts: filejob.Facts{As: filejob.Identity{User: id(1000)}}, user: 7, group: 8, fsGroup: id(9)},
		"not as a pod that is root":                  {facts: filejob.Facts{As: filejob.Identity{User: id(0), Group: id(0)}}, user: 65532, group: 0},
		"as a pod that is root, where it may":        {facts: filejob.Facts{As: filejob.Identity{User: id(0)}}, settings: func(s *filejob.Settings) { s.Root = true }, user: 0, group: 65533},
		"on the node that has it, as tolerated":      {facts: filejob.Facts{Node: "n1", Tolerations: toleration}, user: 65532, group: 65533},
		"with the SELinux options that are in use":   {facts: filejob.Facts{SELinux: &corev1.SELinuxOptions{Level: "s0:c1,c2"}}, user: 65532, group: 65533},
		"live, where a pod may be changing the data": {facts: filejob.Facts{Live: true}, user: 65532, group: 65533},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings()
			if c.settings != nil {
				c.settings(&s)
			}
			_, job := plan(t, request(t, copying, stdcmp.Or(c.target, `"sub_path":""`)), c.facts, s)
			spec := job.Spec.Template.Spec
			security := spec.SecurityContext
			if *security.RunAsUser != c.user || *security.RunAsGroup != c.group || !cmp.Equal(security.FSGroup, c.fsGroup) || *security.RunAsNonRoot != (c.user != 0) {
				t.Errorf("security %+v", security)
			}
			if (security.FSGroupChangePolicy != nil) != (c.fsGroup != nil) || c.fsGroup != nil && *security.FSGroupChangePolicy != corev1.FSGroupChangeOnRootMismatch {
				t.Errorf("fsGroupChangePolicy %v", security.FSGroupChangePolicy)
			}
			if diff := cmp.Diff(c.facts.SELinux, security.SELinuxOptions); diff != "" {
				t.Errorf("SELinux (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(c.facts.Tolerations, spec.Tolerations); diff != "" || filejob.NodeOf(&spec) != c.facts.Node {
				t.Errorf("node %q, tolerations (-want +got)\n%s", filejob.NodeOf(&spec), diff)
			}
			added := spec.Containers[0].SecurityContext.Capabilities.Add
			if (c.user == 0) != (len(added) > 0) {
				t.Errorf("capabilities %v", added)
			}
			if (job.Annotations[filejob.AnnotationConsistency] == filejob.Live) != c.facts.Live {
				t.Errorf("annotations %v", job.Annotations)
			}
		})
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		operation string
		asked     *int
		want      int64
	}{
		"short":    {reading, nil, 120},
		"long":     {copying, nil, 7200},
		"as asked": {copying, new(9), 9},
	}
	for name, c := range cases {
		r := request(t, c.operation)
		r.TimeoutSeconds = c.asked
		if _, job := plan(t, r, filejob.Facts{}, settings()); *job.Spec.ActiveDeadlineSeconds != c.want {
			t.Errorf("%s: %d s, want %d", name, *job.Spec.ActiveDeadlineSeconds, c.want)
		}
	}
}

// What a request asks for has one hash, and how long its answer may wait is no part of it.
func TestHash(t *testing.T) {
	t.Parallel()
	hash := func(change func(*api.FileRequest)) string {
		r := request(t, writing)
		change(r)
		p, _ := plan(t, r, filejob.Facts{Node: "n"}, settings())
		return p.Hash
	}
	first := hash(func(*api.FileRequest) {})
	content := []byte("hidden")
	for name, change := range map[string]func(*api.FileRequest){
		"another wait":        func(r *api.FileRequest) { r.WaitSeconds = new(3) },
		"the text as content": func(r *api.FileRequest) { r.Operation.Text, r.Operation.Content = nil, &content },
	} {
		if hash(change) != first {
			t.Errorf("%s: another hash", name)
		}
	}
	for name, change := range map[string]func(*api.FileRequest){
		"another text":     func(r *api.FileRequest) { r.Operation.Text = new("other") },
		"another path":     func(r *api.FileRequest) { r.Operation.Path = "g" },
		"another claim":    func(r *api.FileRequest) { r.Target.Claim = "other" },
		"another time-out": func(r *api.FileRequest) { r.TimeoutSeconds = new(3) },
		"another key":      func(r *api.FileRequest) { r.SubmissionID = "other" },
	} {
		if hash(change) == first {
			t.Errorf("%s: the same hash", name)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		request  *api.FileRequest
		settings func(*filejob.Settings)
		code     api.Code
		field    string
	}{
		"no image":             {request: request(t, reading), settings: func(s *filejob.Settings) { s.Image = "" }, code: api.NotConfigured},
		"root":                 {request: request(t, reading, `"run_as_user":0`), code: api.PolicyDenied, field: "target.run_as_user"},
		"too long":             {request: withTimeout(request(t, reading), 7201), code: api.BadRequest, field: "timeout_seconds"},
		"larger than a Secret": {request: bulky(t), code: api.PayloadTooLarge, field: "operation"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := settings()
			if c.settings != nil {
				c.settings(&s)
			}
			_, err := filejob.Plan(c.request, filejob.Facts{}, s, "")
			var e *api.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || e.Message == "" {
				t.Errorf("%v, want %s about %q", err, c.code, c.field)
			}
		})
	}
}

func withTimeout(r *api.FileRequest, seconds int) *api.FileRequest {
	r.TimeoutSeconds = &seconds
	return r
}

// bulky has as much to write as it may, and the longest URLs and tokens beside.
func bulky(t *testing.T) *api.FileRequest {
	operations := []string{`{"op":"write","path":"f","content":"` + base64.StdEncoding.EncodeToString(make([]byte, api.MaxInline)) + `"}`}
	for n := range api.MaxBatch - 1 {
		operations = append(operations, fmt.Sprintf(`{"op":"download","path":"f%d","sink":{"url":"https://example.org/%s","token":"%s"}}`, n, strings.Repeat("u", 8000), strings.Repeat("t", 8000)))
	}
	return request(t, `{"op":"batch","operations":[`+strings.Join(operations, ",")+`]}`)
}
