package runners_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
)

// service is Flint as it is served, on the ground's API server.
type service struct {
	*ground
	url   string
	token string
	log   lines
	// sunk is what its sink got: headers and bodies.
	sunk lines
}

// lines are texts that come from several goroutines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (g *ground) serve(change func(*config.Settings)) *service {
	g.Helper()
	s := &service{ground: g}
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(&s.sunk, "%s %s\n", r.Header.Get("Ce-Type"), body)
		w.WriteHeader(http.StatusAccepted)
	}))
	g.Cleanup(sink.Close)
	settings, err := config.Load()
	if err != nil {
		g.Fatal(err)
	}
	settings.Namespaces, settings.Sink, settings.PollInterval, settings.LogLevel = []string{g.namespace}, sink.URL, 50*time.Millisecond, slog.LevelDebug
	settings.Runner.Graces.ImagePull, settings.Runner.Graces.Config = 0, 0
	if change != nil {
		change(settings)
	}
	cluster := g.cp.Config()
	cluster.WarningHandler = rest.NoWarnings{}
	if g.front != nil {
		cluster.Wrap(func(next http.RoundTripper) http.RoundTripper {
			g.front.next = next
			return g.front
		})
	}
	f := function.New(function.WithSettings(settings), function.WithCluster(cluster), function.WithLog(slog.New(slog.NewJSONHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err := f.Start(g.context(), nil); err != nil {
		g.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(f.Handle))
	g.Cleanup(func() {
		server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := f.Stop(ctx); err != nil {
			g.Error(err)
		}
	})
	s.url = server.URL
	return s
}

// call gives the status and the body of an answer.
func (s *service) call(method, path string, body any, header ...string) (int, string, http.Header) {
	s.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.context(), method, s.url+path, bytes.NewReader(text))
	if err != nil {
		s.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(answer), response.Header
}

func (s *service) post(request *api.RunnerRequest, want int) api.Runner {
	s.Helper()
	status, body, header := s.call(http.MethodPost, api.RunnerPath, request)
	var answer api.Runner
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != want {
		s.Fatalf("HTTP %d, want %d: %s", status, want, body)
	}
	if location := header.Get("Location"); status < 300 && location != api.LaunchesPath+"/"+s.namespace+"/"+answer.ID {
		s.Errorf("Location %q", location)
	}
	return answer
}

func (s *service) refusal(method, path string, body any, status int, code api.Code) api.ErrorBody {
	s.Helper()
	got, text, _ := s.call(method, path, body)
	var refusal api.ErrorBody
	if err := json.Unmarshal([]byte(text), &refusal); err != nil || got != status || refusal.ErrorCode != code {
		s.Fatalf("HTTP %d, want %d %s: %s", got, status, code, text)
	}
	return refusal
}

func (s *service) launchPath(key, query string) string {
	return api.LaunchesPath + "/" + s.namespace + "/" + launch.ID(s.namespace, key) + query
}

// What the answer is by how far the runner came: 201, 200 for a repeat, 202 where nobody waits or not for longer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var slow atomic.Bool
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		if slow.Load() {
			return nil
		}
		return once(runs)(pod)
	})
	s := g.serve(func(c *config.Settings) { c.Runner.WaitLimit = 2 * time.Second })
	first := s.post(g.request("one"), http.StatusCreated)
	if first.State != api.RunnerRunning || first.DuplicateSubmission {
		t.Errorf("%+v", first)
	}
	if again := s.post(g.request("one"), http.StatusOK); again.UID != first.UID || !again.DuplicateSubmission {
		t.Errorf("%+v", again)
	}
	request := g.request("two")
	request.Wait = api.WaitNone
	if answer := s.post(request, http.StatusAccepted); answer.UID == "" || answer.State != api.RunnerPending {
		t.Errorf("%+v", answer)
	}
	slow.Store(true)
	if answer := s.post(g.request("three"), http.StatusAccepted); answer.State != api.RunnerScheduled || answer.Node != "node-1" { // the platform's limit comes before the boot's
		t.Errorf("%+v", answer)
	}
	s.refusal(http.MethodGet, api.RunnerPath, nil, http.StatusMethodNotAllowed, api.MethodNotAllowed)
	bad := g.request("four")
	bad.FlameParent = "no base64"
	s.refusal(http.MethodPost, api.RunnerPath, bad, http.StatusBadRequest, api.InvalidFlameParent)
	elsewhere := g.request("five")
	elsewhere.Parent.Namespace = "default"
	s.refusal(http.MethodPost, api.RunnerPath, elsewhere, http.StatusForbidden, api.Forbidden)
}

// By an event nobody waits, and its end comes as one.
func TestEventLaunchesRunner(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(ends(0, "Completed")))
	s := g.serve(nil)
	request := g.request("")
	request.FlameParent = ""
	status, body, _ := s.call(http.MethodPost, "/", request,
		"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/test", "Ce-Type", api.RunnerEventType, "Ce-Idempotencykey", "by-event")
	if status != http.StatusAccepted || body != "" {
		t.Fatalf("HTTP %d: %s", status, body)
	}
	g.until("its end is told", func() bool { return strings.Contains(s.sunk.String(), "dev.flint.runner.succeeded.v1") })
	if pods := g.runnerPods(); len(pods) != 1 || pods[0].Labels[launch.LabelID] != launch.ID(g.namespace, "by-event") {
		t.Errorf("%d pods", len(pods))
	}
}

func TestL20_delete_idempotent_and_foreign(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	s := g.serve(nil)
	s.post(g.request("one"), http.StatusCreated)
	if status, body, _ := s.call(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil); status != http.StatusAccepted {
		t.Fatalf("HTTP %d: %s", status, body)
	}
	g.gone()
	s.refusal(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil, http.StatusNotFound, api.NotFound)
	// G4: nothing of that key comes any more, nor of one whose DELETE came before its POST.
	s.refusal(http.MethodPost, api.RunnerPath, g.request("one"), http.StatusGone, api.Gone)
	if refusal := s.refusal(http.MethodDelete, s.launchPath("early", "?kind=runner"), nil, http.StatusNotFound, api.NotFound); !strings.Contains(refusal.Message, "its key is given up") {
		t.Error(refusal.Message)
	}
	if refusal := s.refusal(http.MethodPost, api.RunnerPath, g.request("early"), http.StatusGone, api.Gone); !strings.Contains(refusal.Message, "CANCELLED at") {
		t.Error(refusal.Message)
	}
	// Of another kind no key is given up; what is no id or no launch of Flint's is not there.
	s.refusal(http.MethodDelete, s.launchPath("other", ""), nil, http.StatusNotFound, api.NotFound)
	s.refusal(http.MethodDelete, api.LaunchesPath+"/"+g.namespace+"/nonsense?kind=runner", nil, http.StatusNotFound, api.NotFound)
	s.refusal(http.MethodDelete, api.LaunchesPath+"/default/"+launch.ID("default", "one")+"?kind=runner", nil, http.StatusForbidden, api.Forbidden)
	s.post(g.request("other"), http.StatusCreated)
	g.until("the end is told", func() bool { return strings.Contains(s.sunk.String(), "dev.flint.runner.failed.v1") })
	told := map[string]bool{} // more than once at times, and each time the same
	for line := range strings.Lines(s.sunk.String()) {
		told[line] = true
	}
	if len(told) != 1 {
		t.Errorf("told %v", told)
	}
}

// A pod's own token lets it have runners, and end them: its own, and nobody else's. Others need the rights by hand.
func TestL20_L21_parents_token(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	other := g.pod("another", nil)
	s := g.serve(func(c *config.Settings) { c.Tokens, c.Audience = true, "flint" })
	parents, others, nobodys := g.token(g.parent), g.token(other), g.token(nil)

	s.token = others
	if refusal := s.refusal(http.MethodPost, api.RunnerPath, g.request("one"), http.StatusForbidden, api.ParentForbidden); !strings.Contains(refusal.Message, "create pods") {
		t.Error(refusal.Message)
	}
	s.token = nobodys
	s.refusal(http.MethodPost, api.RunnerPath, g.request("one"), http.StatusForbidden, api.ParentForbidden)
	s.token = parents
	s.post(g.request("one"), http.StatusCreated)
	missing := g.request("two")
	missing.Parent.Name = "nobody"
	s.refusal(http.MethodPost, api.RunnerPath, missing, http.StatusForbidden, api.ParentForbidden)
	if status, body, _ := s.call(http.MethodGet, s.launchPath("one", ""), nil); status != http.StatusOK {
		t.Errorf("HTTP %d: %s", status, body)
	}
	// Nor is it told whether there is such a runner: another pod might have one of that id itself.
	s.token = nobodys
	s.refusal(http.MethodGet, s.launchPath("one", ""), nil, http.StatusForbidden, api.Forbidden)
	s.refusal(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil, http.StatusForbidden, api.Forbidden)
	s.token = others
	s.refusal(http.MethodGet, s.launchPath("one", ""), nil, http.StatusNotFound, api.NotFound)
	s.refusal(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil, http.StatusNotFound, api.NotFound)
	if pods := g.runnerPods(); len(pods) != 1 || pods[0].DeletionTimestamp != nil || len(g.leases()["tombstone"]) > 0 {
		t.Error("a stranger ended the runner, or gave its key up")
	}
	s.token = parents
	if status, body, _ := s.call(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil); status != http.StatusAccepted {
		t.Errorf("HTTP %d: %s", status, body)
	}
	g.gone()
	s.refusal(http.MethodDelete, s.launchPath("one", "?kind=runner"), nil, http.StatusNotFound, api.NotFound)
}

// The cookie is in the Secret, and nowhere else: not in logs, events, errors, answers, other objects.
func TestL25_secrets_masked_everywhere(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(func(pod *corev1.Pod) *corev1.PodStatus {
		switch pod.Labels[launch.LabelID] {
		case launch.ID(g.namespace, "fails"): // it says it itself
			return once(func(pod *corev1.Pod) *corev1.PodStatus {
				s := ends(1, "Error")(pod)
				s.ContainerStatuses[0].State.Terminated.Message = "cannot use cookie sEcr3t-c00kie"
				return s
			})(pod)
		case launch.ID(g.namespace, "never starts"):
			return once(waits("CreateContainerConfigError", "invalid value sEcr3t-c00kie"))(pod)
		}
		return once(runs)(pod)
	})
	s := g.serve(nil)
	var said lines
	say := func(method, path string, body any) {
		status, text, _ := s.call(method, path, body)
		_, _ = fmt.Fprintf(&said, "%s %s %d %s\n", method, path, status, text)
	}
	for i, key := range []string{"runs", "runs", "fails", "fails", "never starts", "never starts"} {
		request := g.request(key)
		request.ShutdownTimeoutMS = ptr.To(int64(i/2) * 10_000) // each of a shape of its own
		say(http.MethodPost, api.RunnerPath, request)
		say(http.MethodGet, s.launchPath(key, ""), nil)
	}
	for _, mode := range []string{"nonsense", "client", "All"} {
		say(http.MethodPost, api.RunnerPath+"?dryRun="+mode, g.request("bad"))
	}
	bad := g.request("bad")
	bad.SecretEnv["RELEASE COOKIE"] = "sEcr3t-c00kie"
	say(http.MethodPost, api.RunnerPath, bad)
	bad = g.request("bad")
	bad.Template = map[string]any{"spec": map[string]any{"hostNetwork": true}}
	say(http.MethodPost, api.RunnerPath, bad)
	other := g.request("runs")
	other.SecretEnv["RELEASE_COOKIE"] = "sEcr3t-c00kie-2"
	say(http.MethodPost, api.RunnerPath, other)
	say(http.MethodGet, api.LaunchesPath, nil)
	say(http.MethodDelete, s.launchPath("runs", ""), nil)
	g.until("all ends are told", func() bool { return strings.Count(s.sunk.String(), "dev.flint.runner.failed.v1") == 3 })
	var objects strings.Builder
	for _, pod := range g.runnerPods() {
		pod.Status = corev1.PodStatus{} // the kubelet's
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = objects.Write(text)
	}
	for what, text := range map[string]string{"answers": said.String(), "log": s.log.String(), "events": s.sunk.String(), "pods": objects.String()} {
		if text == "" || strings.Contains(text, "sEcr3t") || strings.Contains(text, "c0VjcjN0") {
			t.Errorf("%s: %s", what, text)
		}
	}
}

func TestL27_list_by_parent_paged(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	s := g.serve(nil)
	want := map[string]bool{}
	for i := range 5 {
		request := g.request(fmt.Sprintf("key-%d", i))
		request.Wait = api.WaitNone
		want[s.post(request, http.StatusAccepted).Name] = true
	}
	g.pod("another", nil)
	request := g.request("other")
	request.Parent.Name = "another"
	s.post(request, http.StatusCreated)
	for _, parent := range []string{g.parent.Name, string(g.parent.UID)} {
		found, pages, next := map[string]bool{}, 0, ""
		for {
			query := "?kind=runner&limit=2&parent=" + parent
			if next != "" {
				query += "&continue=" + next
			}
			status, body, _ := s.call(http.MethodGet, api.LaunchesPath+query, nil)
			var page api.LaunchList
			if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
				t.Fatalf("HTTP %d: %s", status, body)
			}
			for _, l := range page.Items {
				found[l.Name] = true
			}
			pages++
			if next = page.Continue; next == "" {
				break
			}
		}
		if len(found) != len(want) || pages < 3 {
			t.Errorf("%d runners of %s on %d pages", len(found), parent, pages)
		}
		for name := range want {
			if !found[name] {
				t.Errorf("%s is not among those of %s", name, parent)
			}
		}
	}
	s.refusal(http.MethodGet, api.LaunchesPath+"?kind=spark&parent=x", nil, http.StatusBadRequest, api.BadRequest)
}

func TestL29_dry_run_rejection_creates_nothing(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	s := g.serve(nil)
	for _, mode := range []string{"client", "All"} {
		status, body, _ := s.call(http.MethodPost, api.RunnerPath+"?dryRun="+mode, g.request("one"))
		var list struct{ Items []struct{ Kind string } }
		if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK || len(list.Items) != 3 {
			t.Errorf("%s: HTTP %d: %s", mode, status, body)
		}
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}
	quota, err := g.cp.Client().CoreV1().ResourceQuotas(g.namespace).Create(g.context(), quota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: quota.Spec.Hard}
	if _, err := g.cp.Client().CoreV1().ResourceQuotas(g.namespace).UpdateStatus(g.context(), quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.until("the quota holds", func() bool {
		status, _, _ := s.call(http.MethodPost, api.RunnerPath+"?dryRun=All", g.request("one"))
		return status == http.StatusForbidden
	})
	s.refusal(http.MethodPost, api.RunnerPath, g.request("one"), http.StatusForbidden, api.QuotaExceeded)
	if len(g.runnerPods()) > 0 || g.secrets() > 0 || len(g.leases()) > 0 {
		t.Errorf("%d pods, %d Secrets, leases %v", len(g.runnerPods()), g.secrets(), g.leases())
	}
}

// G4 for a parent that has no rights: its DELETE of a key that has no launch yet stops its own launch that is on its way, and
// nobody else's.
func TestG4ParentGivesUpItsOwnKeys(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.node(once(runs))
	other := g.pod("another", nil)
	s := g.serve(func(c *config.Settings) { c.Tokens, c.Audience = true, "flint" })
	parents, others, nobodys := g.token(g.parent), g.token(other), g.token(nil)
	givesUp := func(key string) {
		t.Helper()
		if refusal := s.refusal(http.MethodDelete, s.launchPath(key, "?kind=runner"), nil, http.StatusNotFound, api.NotFound); !strings.Contains(refusal.Message, "its key is given up") {
			t.Error(refusal.Message)
		}
	}
	ofOther := func(key string) *api.RunnerRequest {
		request := g.request(key)
		request.Parent.Name, request.Parent.UID = other.Name, ""
		return request
	}

	s.token = nobodys
	s.refusal(http.MethodDelete, s.launchPath("early", "?kind=runner"), nil, http.StatusForbidden, api.Forbidden)
	s.token = parents
	givesUp("early")
	givesUp("early") // again
	s.refusal(http.MethodPost, api.RunnerPath, g.request("early"), http.StatusGone, api.Gone)
	g.gone()
	s.token = others
	s.post(ofOther("early"), http.StatusCreated)

	// Of a runner of another parent a DELETE is told nothing, and it gives up nothing.
	s.token = parents
	if refusal := s.refusal(http.MethodDelete, s.launchPath("early", "?kind=runner"), nil, http.StatusNotFound, api.NotFound); strings.Contains(refusal.Message, "given up") {
		t.Error(refusal.Message)
	}
	s.token = others
	if status, body, _ := s.call(http.MethodPost, api.RunnerPath, ofOther("early")); status != http.StatusOK {
		t.Errorf("HTTP %d: %s", status, body)
	}

	// The launch is on its way: its pod is being created, or created and to be released.
	for n, at := range []string{"POST pods", "PATCH pods"} {
		key := fmt.Sprintf("late-%d", n)
		s.token = parents
		var once atomic.Bool
		g.wire.disturb(func(name string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
			if name == at && !once.Swap(true) {
				status, body, _ := s.call(http.MethodDelete, s.launchPath(key, "?kind=runner"), nil)
				if want := []int{http.StatusNotFound, http.StatusAccepted}[n]; status != want {
					t.Errorf("%s: HTTP %d, want %d: %s", at, status, want, body)
				}
			}
			return send()
		})
		if _, _, err := g.boot(g.request(key)); err == nil {
			t.Errorf("%s: the launch came to a runner, after its DELETE", at)
		}
		g.wire.disturb(nil)
	}
	g.until("nothing but the other's", func() bool { pods := g.runnerPods(); return len(pods) == 1 && pods[0].DeletionTimestamp == nil })

	// A flame_parent is a key as well.
	boot := base64.StdEncoding.EncodeToString([]byte("\x83boot"))
	givesUp(api.FlameKey(boot))
	request := g.request("of-a-boot")
	request.FlameParent = boot
	s.refusal(http.MethodPost, api.RunnerPath, request, http.StatusGone, api.Gone)

	// What needs no right has a bound.
	for n := range 150 {
		status, body, header := s.call(http.MethodDelete, s.launchPath(fmt.Sprintf("many-%d", n), "?kind=runner"), nil)
		if status == http.StatusServiceUnavailable {
			if n < 90 || header.Get("Retry-After") == "" {
				t.Errorf("after %d: %s", n, body)
			}
			break
		}
		if status != http.StatusNotFound || n > 110 {
			t.Fatalf("after %d: HTTP %d: %s", n, status, body)
		}
	}
	s.token = others
	givesUp("of-the-other")
}

// token is one of the namespace's account, bound to the pod unless it is nil.
func (g *ground) token(pod *corev1.Pod) string {
	g.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"flint"}}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	answer, err := g.cp.Client().CoreV1().ServiceAccounts(g.namespace).CreateToken(g.context(), "default", request, metav1.CreateOptions{})
	if err != nil {
		g.Fatal(err)
	}
	return answer.Status.Token
}
