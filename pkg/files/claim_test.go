package files_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/files"
	"flint.dev/flint/pkg/launch"
)

const (
	reading = `{"op":"read","path":"f"}`
	writing = `{"op":"write","path":"f","text":"hidden"}`
	making  = `{"op":"mkdir","path":"d"}`
)

// Each refusal comes before any Job, and before any Lease.
func TestS19_claims(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	cases := map[string]struct {
		claim     func(*corev1.PersistentVolumeClaim) // nil means that there is none
		settings  func(*files.Settings)
		operation string
		delete    bool
		code      api.Code // empty: it is launched
		status    int
	}{
		"claim_missing":     {code: api.ClaimNotFound, status: http.StatusNotFound},
		"claim_unbound":     {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, code: api.ClaimUnusable, status: http.StatusUnprocessableEntity},
		"claim_lost":        {claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, code: api.ClaimUnusable, status: http.StatusUnprocessableEntity},
		"claim_terminating": {claim: func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.org/stay"} }, delete: true, code: api.ClaimTerminating, status: http.StatusConflict},
		"claim_block_mode":  {claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, code: api.ClaimUnusable, status: http.StatusUnprocessableEntity},
		"unbound, where that may be": {
			claim:    func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending },
			settings: func(s *files.Settings) { s.Unbound = true },
		},
		"read-only, and it is to be changed": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
			},
			code: api.ClaimUnusable, status: http.StatusUnprocessableEntity,
		},
		"read-only, and it is read": {
			claim: func(c *corev1.PersistentVolumeClaim) {
				c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
			},
			operation: reading,
		},
		"without the label": {claim: func(*corev1.PersistentVolumeClaim) {}, settings: func(s *files.Settings) { s.ClaimLabel = "file-jobs=allowed" }, code: api.PolicyDenied, status: http.StatusForbidden},
		"with another value": {
			claim:    func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"file-jobs": "no"} },
			settings: func(s *files.Settings) { s.ClaimLabel = "file-jobs=allowed" }, code: api.PolicyDenied, status: http.StatusForbidden,
		},
		"with the label": {
			claim:    func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"file-jobs": "allowed"} },
			settings: func(s *files.Settings) { s.ClaimLabel = "file-jobs=allowed" },
		},
		"with the label of any value": {
			claim:    func(c *corev1.PersistentVolumeClaim) { c.Labels = map[string]string{"file-jobs": ""} },
			settings: func(s *files.Settings) { s.ClaimLabel = "file-jobs" },
		},
		"not configured": {claim: func(*corev1.PersistentVolumeClaim) {}, settings: func(s *files.Settings) { s.Job.Image = "" }, code: api.NotConfigured, status: http.StatusServiceUnavailable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			if c.settings != nil {
				c.settings(&g.Settings)
			}
			if c.claim != nil {
				g.claim(t, "data", c.claim)
			}
			if c.delete {
				if err := g.client.CoreV1().PersistentVolumeClaims(g.namespace).Delete(testContext(t), "data", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			operation := c.operation
			if operation == "" {
				operation = making
			}
			_, err := g.launch(t, "s", operation)
			if c.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := fault(t, err, c.code); e.Status() != c.status {
				t.Errorf("%d %v", e.Status(), e)
			}
			jobs, err := g.client.BatchV1().Jobs(g.namespace).List(testContext(t), metav1.ListOptions{})
			if err != nil || len(jobs.Items) > 0 {
				t.Errorf("%d jobs, %v", len(jobs.Items), err)
			}
			leases, err := g.client.CoordinationV1().Leases(g.namespace).List(testContext(t), metav1.ListOptions{})
			if err != nil || len(leases.Items) > 0 {
				t.Errorf("%d leases, %v", len(leases.Items), err)
			}
		})
	}
}

func TestS20_placement(t *testing.T) {
	modes := func(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = modes }
	}
	phase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase = phase }
	}
	type use struct {
		claim, node string
		change      func(*corev1.Pod)
	}
	cases := map[string]struct {
		claim     func(*corev1.PersistentVolumeClaim)
		users     []use
		operation string
		more      []string
		busy      string // in the message; empty: it is launched
		node      string
		live      bool
	}{
		"rwo_not_in_use":            {operation: making},
		"rwo_in_use_pins_node":      {users: []use{{"data", "n1", nil}, {"data", "n1", nil}}, operation: reading, node: "n1", live: true},
		"rwo_in_use_and_a_change":   {users: []use{{"data", "n1", nil}}, operation: making, busy: "in use by pod user-"},
		"rwo_in_use_change_allowed": {users: []use{{"data", "n1", nil}}, operation: making, more: []string{`"in_use":"allow"`}, node: "n1", live: true},
		"rwo_in_use_read_refused":   {users: []use{{"data", "n1", nil}}, operation: reading, more: []string{`"in_use":"refuse"`}, busy: "in use by pod user-"},
		"rwo_two_nodes":             {users: []use{{"data", "n1", nil}, {"data", "n2", nil}}, operation: reading, busy: "n1 (user-"},
		"rwo_its_user_has_ended":    {users: []use{{"data", "n1", phase(corev1.PodSucceeded)}, {"data", "n2", phase(corev1.PodFailed)}}, operation: making},
		"rwo_another_claim_in_use":  {users: []use{{"other", "n1", nil}}, operation: making},
		"rwo_its_user_has_no_node":  {users: []use{{"data", "", nil}}, operation: reading},
		"rwop_busy":                 {claim: modes(corev1.ReadWriteOncePod), users: []use{{"data", "n1", nil}}, operation: reading, busy: "ReadWriteOncePod"},
		"rwx_any_node":              {claim: modes(corev1.ReadWriteMany), users: []use{{"data", "n1", nil}, {"data", "n2", nil}}, operation: reading, live: true},
		"rwx_in_use_and_a_change":   {claim: modes(corev1.ReadWriteMany), users: []use{{"data", "n1", nil}}, operation: making, busy: "in use"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newReal(t)
			g.claim(t, "data", c.claim)
			for _, u := range c.users {
				g.user(t, u.claim, u.node, u.change)
			}
			l, err := g.launch(t, "s", c.operation, c.more...)
			if c.busy != "" {
				e := fault(t, err, api.VolumeBusy)
				if e.Status() != http.StatusConflict || !e.Retryable() || e.RetryAfter == 0 || !strings.Contains(e.Message, c.busy) {
					t.Errorf("%d %+v", e.Status(), e)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			job := g.job(t, l.Plan.ID)
			spec := job.Spec.Template.Spec
			if node := filejob.NodeOf(&spec); node != c.node || spec.NodeName != "" || (l.Job.Consistency == filejob.Live) != c.live {
				t.Errorf("node %q, consistency %q", node, l.Job.Consistency)
			}
		})
	}
}

// A file job's own pod is no use that is refused, but it has the volume where it runs.
func TestFileJobsBesideEachOther(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	first := g.mustLaunch(t, "r1", reading)
	pod := template(first)
	pod.Spec.NodeName = "n1"
	if _, err := g.client.CoreV1().Pods(g.namespace).Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for id, operation := range map[string]string{"r2": reading, "w1": making} {
		l, err := g.launch(t, id, operation)
		if err != nil {
			t.Fatal(err)
		}
		job := g.job(t, l.Plan.ID)
		if node := filejob.NodeOf(&job.Spec.Template.Spec); node != "n1" || l.Job.Consistency != "" {
			t.Errorf("%s: node %q, consistency %q", id, node, l.Job.Consistency)
		}
	}
}

// The operation runs as the container does that has the claim mounted.
func TestIdentityIsTakenOver(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	options := &corev1.SELinuxOptions{Level: "s0:c1,c2"}
	g.user(t, "data", "n1", func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1001)), FSGroup: new(int64(1002)), SELinuxOptions: options}
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(2000))}
		p.Spec.Containers = append([]corev1.Container{{Name: "other", Image: "other", SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(3000))}}}, p.Spec.Containers...)
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	})
	spec := g.mustLaunch(t, "s", reading).Spec.Template.Spec
	security := spec.SecurityContext
	if *security.RunAsUser != 2000 || *security.RunAsGroup != 1001 || *security.FSGroup != 1002 {
		t.Errorf("security %+v", security)
	}
	if diff := cmp.Diff(options, security.SELinuxOptions); diff != "" {
		t.Errorf("SELinux (-want +got)\n%s", diff)
	}
	if len(spec.Tolerations) == 0 || spec.Tolerations[0].Key != "dedicated" {
		t.Errorf("tolerations %+v", spec.Tolerations)
	}
}

// With Pod Security restricted, what the Job makes is admitted, whatever the operation; as root it is not.
func TestRestricted(t *testing.T) {
	g := newReal(t)
	namespace, err := g.client.CoreV1().Namespaces().Get(testContext(t), g.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if _, err := g.client.CoreV1().Namespaces().Update(testContext(t), namespace, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.claim(t, "data", nil)
	g.Settings.Job.Root = true
	create := func(id, operation string) error {
		pod := template(g.mustLaunch(t, id, operation))
		_, err := g.client.CoreV1().Pods(g.namespace).Create(testContext(t), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for id, operation := range map[string]string{"r": reading, "d": `{"op":"download","path":"f","sink":{"url":"https://example.org"}}`, "w": writing} {
		if err := create(id, operation); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
	}
	root := g.request(t, "root", reading)
	root.Target.RunAsUser = new(int64)
	l, err := g.Launch(testContext(t), root, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.client.CoreV1().Pods(g.namespace).Create(testContext(t), template(g.job(t, l.Plan.ID)), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("as root: %v", err)
	}
}

// The API server judges every field of what is launched: none is unknown to it.
func TestDryRunOnTheAPIServer(t *testing.T) {
	g := newReal(t)
	g.claim(t, "data", nil)
	g.user(t, "data", "n1", nil)
	plan, err := g.Plan(testContext(t), g.request(t, "s", writing, `"in_use":"allow"`), "")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := (&launch.Applier{Client: g.Client}).DryRun(testContext(t), plan)
	if err != nil || len(objects) != 2 {
		t.Fatalf("%d objects, %v", len(objects), err)
	}
}
