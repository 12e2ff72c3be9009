package function_test

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/certificates"
	"flint.dev/flint/test/embedded"
	"flint.dev/flint/test/operator"
)

// reviews plays the part of the API server that the embedded one lacks: a token is a user's name, and rights are
// "USER VERB RESOURCE", with a * for all of a user's. test/rbac holds the same ways in against the real authorizer.
type reviews struct {
	rights []string
	down   bool
	alias  string // the user's name, where it is not the token
	// extra are the uids of the pods that users' tokens are bound to.
	extra map[string]authenticationv1.ExtraValue

	mu    sync.Mutex
	asked []string
}

func (v *reviews) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/apis/auth") {
			next.ServeHTTP(w, r)
			return
		}
		if v.down {
			panic(http.ErrAbortHandler)
		}
		var answer any
		if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
			var review authenticationv1.TokenReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			if user := review.Spec.Token; slices.ContainsFunc(v.rights, func(right string) bool { return strings.HasPrefix(right, user+" ") }) {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: cmp.Or(v.alias, user)}}
				if uid := v.extra[user]; uid != nil {
					review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-uid": uid}
				}
			}
			answer = review
		} else {
			var review authorizationv1.SubjectAccessReview
			_ = json.NewDecoder(r.Body).Decode(&review)
			a := review.Spec.ResourceAttributes
			user := review.Spec.User
			if user == v.alias {
				user, _, _ = strings.Cut(v.rights[0], " ")
			}
			right := fmt.Sprintf("%s %s %s", user, a.Verb, a.Resource)
			if a.Subresource != "" {
				right += "/" + a.Subresource
			}
			v.mu.Lock()
			v.asked = append(v.asked, strings.TrimSpace(right+" "+a.Name))
			v.mu.Unlock()
			review.Status.Allowed = slices.Contains(v.rights, right) || slices.Contains(v.rights, user+" *")
			answer = review
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(answer)
	})
}

func withTokens(v *reviews) setup {
	return setup{settings: func(s *config.Settings) { s.Tokens, s.Audience = true, "flint" }, api: v.middleware}
}

// open are the calls of the description that need no identity. Whatever is described later needs one.
var open = []string{"get " + api.OpenAPIPath, "get " + api.MetricsPath, "get /health/readiness", "get /health/liveness"}

func TestEveryCallNeedsAnIdentity(t *testing.T) {
	v := &reviews{rights: []string{"ann *"}}
	i := serve(t, withTokens(v))
	checked := 0
	for path, item := range describe(t, api.OpenAPI).root["paths"].(object) {
		for method := range item.(object) {
			if !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
				continue
			}
			at := strings.NewReplacer("{namespace}", "default", "{id}", strings.Repeat("0", 32), "{", "", "}", "").Replace(path)
			t.Run(method+" "+path, func(t *testing.T) {
				for name, header := range map[string][]string{"none": nil, "bad": {"Authorization", "Bearer mallory"}, "basic": {"Authorization", "Basic YTpi"}} {
					if path == "/" { // an event
						header = append(header, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", api.SubmitEventType)
					}
					a := i.do(t, strings.ToUpper(method), at, "{}", append([]string{"Content-Type", "application/json"}, header...)...)
					if slices.Contains(open, method+" "+path) {
						if a.status == http.StatusUnauthorized {
							t.Errorf("%s token: HTTP 401", name)
						}
						continue
					}
					if method == "get" && a.status == http.StatusMethodNotAllowed {
						continue // a GET where only a POST is: the answer is the same to everybody
					}
					body := a.refusal(t)
					if a.status != http.StatusUnauthorized || body.ErrorCode != api.Unauthenticated || a.header.Get("WWW-Authenticate") != `Bearer realm="flint"` {
						t.Errorf("%s token: HTTP %d, %v: %s", name, a.status, a.header, a.body)
					}
				}
			})
			checked++
		}
	}
	if checked < 7 {
		t.Errorf("%d calls described", checked)
	}
	if a := i.do(t, http.MethodOptions, api.SubmitPath, ""); a.status != http.StatusOK {
		t.Errorf("OPTIONS: HTTP %d", a.status)
	}
	if got := i.api.Objects(pods, services, configMaps); len(got) != 0 {
		t.Errorf("%d objects were made", len(got))
	}
}

func TestEventsNeedAnIdentity(t *testing.T) {
	i := serve(t, withTokens(&reviews{rights: []string{"ann *"}}))
	for _, kind := range []string{api.SubmitEventType, "dev.knative.sources.ping", "dev.knative.apiserver.resource.update", "none.of.ours"} {
		header := []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", kind, "Content-Type", "application/json"}
		a := i.do(t, http.MethodPost, "/", submission("one"), header...)
		if a.status != http.StatusUnauthorized || a.refusal(t).ErrorCode != api.Unauthenticated || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: HTTP %d: %s", kind, a.status, a.body)
		}
	}
	header := []string{"Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "/s", "Ce-Type", api.SubmitEventType, "Content-Type", "application/json", "Authorization", "Bearer ann"}
	if a := i.do(t, http.MethodPost, "/", submission("one"), header...); a.status != http.StatusAccepted || a.body != "" {
		t.Errorf("with a token: HTTP %d: %s", a.status, a.body)
	}
}

// A body is not asked for before its sender is known.
func TestIdentityComesBeforeTheBody(t *testing.T) {
	i := serve(t, withTokens(&reviews{rights: []string{"ann *"}}))
	connection, err := net.Dial("tcp", strings.TrimPrefix(i.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\nExpect: 100-continue\r\n\r\n", api.SubmitPath)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(connection) // the server closes it
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 401 ") {
		t.Errorf("%v: %s", err, text)
	}
}

// A proxy in front takes off the headers that a request names as hop by hop (RFC 9110, 7.6.1), its token too: then there is none.
func TestIdentityIsNotHopByHop(t *testing.T) {
	i := serve(t, withTokens(&reviews{rights: []string{"ann *"}}))
	target, err := url.Parse(i.url)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	defer front.Close()
	i.url = front.URL
	for name, tc := range map[string]struct {
		header []string
		want   int
	}{
		"kept":                      {[]string{"Authorization", "Bearer ann"}, http.StatusOK},
		"taken off":                 {[]string{"Authorization", "Bearer ann", "Connection", "Authorization"}, http.StatusUnauthorized},
		"put in another's place":    {[]string{"Authorization", "Bearer ann", "Connection", "X, authorization", "X", "Bearer ann"}, http.StatusUnauthorized},
		"a proxy's own credentials": {[]string{"Proxy-Authorization", "Bearer ann"}, http.StatusUnauthorized},
	} {
		if a := i.do(t, http.MethodGet, api.LaunchesPath, "", tc.header...); a.status != tc.want {
			t.Errorf("%s: HTTP %d, want %d: %s", name, a.status, tc.want, a.body)
		}
	}
}

func TestRightsToLaunch(t *testing.T) {
	all := []string{"create pods", "create services", "create configmaps", "create networkpolicies"}
	v := &reviews{}
	for user, rights := range map[string][]string{"all": all, "pods": all[:1], "all-but-pods": all[1:], "reader": {"get pods", "list pods"}} {
		for _, right := range rights {
			v.rights = append(v.rights, user+" "+right)
		}
	}
	i := serve(t, withTokens(v))
	as := func(user string) []string { return []string{"Authorization", "Bearer " + user} }
	for user, missing := range map[string]string{
		"pods":         `"pods" may not create services, create configmaps, create networkpolicies.networking.k8s.io in namespace "default"`,
		"all-but-pods": `"all-but-pods" may not create pods in namespace "default"`,
		"reader":       `may not create pods, `,
	} {
		for query, method := range map[string]func() answer{
			"": func() answer { return i.submit(t, submission("one"), as(user)...) },
			"?dryRun=All": func() answer {
				return i.do(t, http.MethodPost, api.SubmitPath+"?dryRun=All", submission("one"), append(as(user), "Content-Type", "application/json")...)
			},
		} {
			a := method()
			body := a.refusal(t)
			sorted := func(text string) []string {
				parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
				slices.Sort(parts)
				return parts
			}
			if a.status != http.StatusForbidden || body.ErrorCode != api.Forbidden || !strings.Contains(body.Message, missing) && !slices.Equal(sorted(body.Message), sorted(missing)) {
				t.Errorf("%s%s: HTTP %d: %s", user, query, a.status, a.body)
			}
		}
		// What asks nobody needs no right.
		if a := i.do(t, http.MethodPost, api.SubmitPath+"?dryRun=client", submission("one"), append(as(user), "Content-Type", "application/json")...); a.status != http.StatusOK {
			t.Errorf("%s, render: HTTP %d: %s", user, a.status, a.body)
		}
	}
	if got := i.api.Objects(pods, services, configMaps, policies); len(got) != 0 {
		t.Errorf("%d objects were made", len(got))
	}
	if a := i.submit(t, submission("one"), as("all")...); a.status != http.StatusCreated {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	if log := strings.Join(i.log.all(), "\n"); !strings.Contains(log, `"msg":"launch"`) || !strings.Contains(log, `"caller":"all"`) {
		t.Errorf("the log does not say who launched:\n%s", log)
	}
	if a := i.submit(t, submission("one", "--conf", "spark.kubernetes.authenticate.driver.oauthToken=t"), as("all")...); a.status != http.StatusForbidden || !strings.Contains(a.body, "create secrets in") {
		t.Errorf("a Secret comes with it: HTTP %d: %s", a.status, a.body)
	}
}

func TestRightsOnLaunches(t *testing.T) {
	v := &reviews{rights: []string{
		"ann *", "reader get pods", "lister list pods", "both list pods", "both list jobs", "logs get pods/log", "killer delete pods", "jobber get jobs", "nobody get nodes",
	}}
	i := serve(t, withTokens(v))
	created := i.submit(t, submission("one"), "Authorization", "Bearer ann").accepted(t)
	at := api.LaunchesPath + "/default/" + launch.ID("default", "one")
	none := api.LaunchesPath + "/default/" + launch.ID("default", "none")
	list := api.LaunchesPath + "?namespace=default"
	const forbidden, missing = http.StatusForbidden, http.StatusNotFound
	cases := []struct {
		user, method, path string
		want               int
		says               string
	}{
		{"reader", http.MethodGet, at, http.StatusOK, created.DriverPodName},
		{"lister", http.MethodGet, at, forbidden, "may not get pods"},
		{"jobber", http.MethodGet, at, forbidden, "may not get pods"},
		{"reader", http.MethodGet, none, missing, ""},
		{"jobber", http.MethodGet, none, forbidden, "may not get pods, list pods"},
		{"nobody", http.MethodGet, none, forbidden, "may not get pods"},
		{"reader", http.MethodGet, at + "/log", forbidden, "may not get pods/log"},
		{"logs", http.MethodGet, at + "/log", http.StatusServiceUnavailable, "no log yet"},
		{"logs", http.MethodGet, none + "/log", missing, ""},
		{"nobody", http.MethodGet, none + "/log", forbidden, "may not get pods/log"},
		{"reader", http.MethodGet, list, forbidden, "may not list pods, list jobs.batch"},
		{"lister", http.MethodGet, list, forbidden, "may not list jobs.batch"},
		{"lister", http.MethodGet, list + "&kind=spark", http.StatusOK, created.DriverPodName},
		{"lister", http.MethodGet, list + "&kind=runner", http.StatusOK, "items"},
		{"lister", http.MethodGet, list + "&kind=file", forbidden, "may not list jobs.batch"},
		{"both", http.MethodGet, list, http.StatusOK, created.DriverPodName},
		{"reader", http.MethodDelete, at, forbidden, "may not delete pods"},
		{"nobody", http.MethodDelete, none, forbidden, "may not delete pods"},
		{"killer", http.MethodGet, at, forbidden, "may not get pods"},
		{"killer", http.MethodDelete, none, missing, ""},
		{"killer", http.MethodDelete, at, http.StatusAccepted, created.DriverPodName},
	}
	for _, tc := range cases {
		a := i.do(t, tc.method, tc.path, "", "Authorization", "Bearer "+tc.user)
		if a.status != tc.want || !strings.Contains(a.body, tc.says) {
			t.Errorf("%s %s %s: HTTP %d, want %d: %s", tc.user, tc.method, tc.path, a.status, tc.want, a.body)
		}
		if a.status == forbidden && strings.Contains(a.body, created.DriverPodName) {
			t.Errorf("%s %s %s: who may not see it is told its name: %s", tc.user, tc.method, tc.path, a.body)
		}
	}
	// By the name of the workload, as a Role with resourceNames has it.
	for _, want := range []string{"reader get pods " + created.DriverPodName, "logs get pods/log " + created.DriverPodName, "killer delete pods " + created.DriverPodName} {
		if !slices.Contains(v.asked, want) {
			t.Errorf("never asked for %q:\n%s", want, strings.Join(v.asked, "\n"))
		}
	}
}

// A dry run shows nobody a claim that is there already and that they could not look at by hand.
func TestRightsOnReusedClaims(t *testing.T) {
	const claim = "there-already"
	v := &reviews{rights: []string{"reader get persistentvolumeclaims"}}
	for _, user := range []string{"creator", "reader"} {
		for _, kind := range []string{"pods", "services", "configmaps", "networkpolicies", "persistentvolumeclaims"} {
			v.rights = append(v.rights, user+" create "+kind)
		}
	}
	i := serve(t, withTokens(v))
	if _, err := i.api.Add(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{"name": claim, "namespace": "default", "annotations": map[string]any{"note": "of somebody else"}},
	}}); err != nil {
		t.Fatal(err)
	}
	const options = "--conf=spark.kubernetes.driver.volumes.persistentVolumeClaim.data."
	body := submission("one", options+"mount.path=/data", options+"options.claimName="+claim, options+"options.storageClass=fast", options+"options.sizeLimit=1Gi")
	for user, shown := range map[string]bool{"creator": false, "reader": true} {
		a := i.do(t, http.MethodPost, api.SubmitPath+"?dryRun=All", body, "Content-Type", "application/json", "Authorization", "Bearer "+user)
		if a.status != http.StatusOK || !strings.Contains(a.body, `"kind":"PersistentVolumeClaim"`) || strings.Contains(a.body, "of somebody else") != shown {
			t.Errorf("%s: HTTP %d, want it shown: %v: %s", user, a.status, shown, a.body)
		}
	}
}

// What a file job answered stands in its pods: whoever may look at jobs alone is not told.
func TestRightsOnResultsOfFiles(t *testing.T) {
	v := &reviews{rights: []string{"ann *", "jobber get jobs", "jobber list jobs", "both get jobs", "both list jobs", "both list pods"}}
	g := newFileGroundBehind(t, nil, v.middleware)
	g.put(t, "f", []byte("of the claim"))
	content := base64.StdEncoding.EncodeToString([]byte("of the claim"))
	i := g.serve(t, func(s *config.Settings) { s.Tokens, s.Audience = true, "flint" })
	read := i.do(t, http.MethodPost, api.FilePath, operationBody("one", `{"op":"read","path":"f"}`), "Content-Type", "application/json", "Authorization", "Bearer ann")
	if read.status != http.StatusOK || !strings.Contains(read.body, content) {
		t.Fatalf("HTTP %d: %s", read.status, read.body)
	}
	for user, want := range map[string]int{"jobber": http.StatusForbidden, "both": http.StatusOK} {
		for _, path := range []string{launchPath("one"), api.LaunchesPath + "?kind=file"} {
			a := i.do(t, http.MethodGet, path, "", "Authorization", "Bearer "+user)
			if a.status != want || strings.Contains(a.body, content) != (want == http.StatusOK) {
				t.Errorf("%s %s: HTTP %d, want %d: %s", user, path, a.status, want, a.body)
			}
		}
	}
}

// TestWhatIsNotSeenIsNotThere: whoever may not look at a launch, or not end it, is answered as if there were none of that id,
// whatever its kind and whatever else they may. All sets of rights that are asked for are tried.
func TestWhatIsNotSeenIsNotThere(t *testing.T) {
	kinds := []launch.Kind{launch.Spark, launch.File, launch.Runner}
	all := []string{"get pods", "list pods", "get jobs", "delete pods", "delete jobs", "get pods/log"}
	v := &reviews{rights: []string{"nobody get nodes"}}
	users := map[string][]string{}
	for set := range 1 << len(all) {
		user := fmt.Sprintf("user-%d", set)
		v.rights = append(v.rights, user+" get nodes")
		for n, right := range all {
			if set>>n&1 == 1 {
				users[user] = append(users[user], right)
				v.rights = append(v.rights, user+" "+right)
			}
		}
	}
	const pod = "system:serviceaccount:default:other"
	v.rights = append(v.rights, pod+" get nodes")
	v.extra = map[string]authenticationv1.ExtraValue{pod: {"7e57a11e-0000-4000-8000-000000000000"}}
	users[pod] = nil
	i := serve(t, withTokens(v))
	for _, kind := range kinds {
		workload := object{"apiVersion": "v1", "kind": "Pod", "spec": object{"containers": []any{object{"name": "c", "image": "i"}}}}
		if kind == launch.File {
			workload = object{"apiVersion": "batch/v1", "kind": "Job", "spec": object{"template": object{"spec": object{"containers": []any{object{"name": "c", "image": "i"}}}}}}
		}
		workload["metadata"] = object{"name": string(kind), "namespace": "default", "labels": object{
			launch.LabelManagedBy: launch.ManagedBy, launch.LabelKind: string(kind), launch.LabelID: launch.ID("default", string(kind)), launch.LabelCompletion: launch.CompletionPending,
		}}
		if _, err := i.api.Add(&unstructured.Unstructured{Object: workload}); err != nil {
			t.Fatal(err)
		}
	}
	may := func(user, verb string, kind launch.Kind) bool {
		needs := map[string][]string{"get": {"get pods"}, "delete": {"delete pods"}, "log": {"get pods/log"}}[verb]
		if kind == launch.File && verb != "log" {
			needs = map[string][]string{"get": {"get jobs", "list pods"}, "delete": {"delete jobs"}}[verb]
		}
		return !slices.ContainsFunc(needs, func(right string) bool { return !slices.Contains(users[user], right) })
	}
	// told is the answer without what differs between any two.
	told := func(user, verb, name, query string) string {
		method, path := http.MethodGet, launchPath(name)
		switch verb {
		case "delete":
			method = http.MethodDelete
		case "log":
			path += "/log"
		}
		a := i.do(t, method, path+query, "", "Authorization", "Bearer "+user)
		body := a.refusal(t)
		return strings.ReplaceAll(fmt.Sprintf("%d %s %s %q", a.status, body.ErrorCode, body.Message, body.Details), launch.ID("default", name), "ID")
	}
	answers := map[string]int{}
	for user := range users {
		for _, verb := range []string{"get", "delete", "log"} {
			for _, query := range []string{"", "?kind=spark", "?kind=file", "?kind=runner"} {
				none := told(user, verb, "none-"+strings.ReplaceAll(user, ":", "-"), query)
				answers[none[:3]]++
				for _, kind := range kinds {
					if query == "" || query == "?kind="+string(kind) {
						if may(user, verb, kind) {
							continue
						}
					}
					if there := told(user, verb, string(kind), query); there != none {
						t.Errorf("%s (%v) %s %s%s:\n%s, and of none\n%s", user, users[user], verb, kind, query, there, none)
					}
				}
			}
		}
		// The paths of file jobs ask before they look.
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			reads := slices.Contains(users[user], "get jobs") && slices.Contains(users[user], "get pods/log")
			if method == http.MethodGet && reads || method == http.MethodDelete && may(user, "delete", launch.File) {
				continue
			}
			var got []string
			for _, name := range []string{"file", "spark", "none"} {
				a := i.do(t, method, api.FilePath+"/default/"+launch.ID("default", name), "", "Authorization", "Bearer "+user)
				got = append(got, fmt.Sprintf("%d %s", a.status, a.refusal(t).Message))
			}
			if got[0] != got[1] || got[1] != got[2] || !strings.HasPrefix(got[0], "403 ") {
				t.Errorf("%s (%v) %s: %q", user, users[user], method, got)
			}
		}
	}
	if answers["403"] < 100 || answers["404"] < 100 {
		t.Errorf("%v: the rights do not show what they should", answers)
	}
	if left := i.api.Objects(pods, embedded.Jobs); len(left) != len(kinds) {
		t.Errorf("%d launches are left", len(left))
	}
}

// TestRightsToGiveUpKeys: a DELETE of a runner that is not there marks its key, for whoever may delete pods, and no other.
func TestRightsToGiveUpKeys(t *testing.T) {
	v := &reviews{rights: []string{"deleter delete pods", "deleter delete jobs", "jobber delete jobs"}}
	i := serve(t, withTokens(v))
	for user, want := range map[string]int{"jobber": http.StatusForbidden, "deleter": http.StatusNotFound} {
		a := i.do(t, http.MethodDelete, launchPath(user)+"?kind=runner", "", "Authorization", "Bearer "+user)
		if a.status != want || strings.Contains(a.body, "given up") != (user == "deleter") {
			t.Errorf("%s: HTTP %d: %s", user, a.status, a.body)
		}
	}
	if marks := i.api.Objects(embedded.Leases); len(marks) != 1 {
		t.Errorf("%d marks, want the deleter's", len(marks))
	}
}

func TestReviewsThatAreNotAnswered(t *testing.T) {
	v := &reviews{rights: []string{"ann *"}, down: true}
	i := serve(t, withTokens(v))
	a := i.submit(t, submission("one"), "Authorization", "Bearer ann")
	if a.status != http.StatusServiceUnavailable || a.refusal(t).ErrorCode != api.SubmitterOverloaded || a.header.Get("Retry-After") == "" {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
}

func TestServiceAccounts(t *testing.T) {
	i := serve(t, setup{settings: func(s *config.Settings) { s.ServiceAccounts = []string{"spark"} }})
	const key = "--conf=spark.kubernetes.authenticate.driver.serviceAccountName="
	for name, tc := range map[string]struct {
		body string
		want int
	}{
		"listed":     {submission("one", key+"spark"), http.StatusCreated},
		"not listed": {submission("two", key+"admin"), http.StatusForbidden},
		"none":       {submission("three"), http.StatusForbidden},
		"of a template": {strings.Replace(submission("four"), `"submission_id"`, `"driver_pod_template":{"spec":{"serviceAccount":"admin","containers":[{"name":"spark-kubernetes-driver"}]}},"submission_id"`, 1),
			http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			for _, query := range []string{"?dryRun=client", "?dryRun=All", ""} {
				a := i.do(t, http.MethodPost, api.SubmitPath+query, tc.body, "Content-Type", "application/json")
				want := tc.want
				if want == http.StatusCreated && query != "" {
					want = http.StatusOK
				}
				if a.status != want || want == http.StatusForbidden && !strings.Contains(a.body, "FLINT_SERVICE_ACCOUNTS: spark") {
					t.Errorf("%s: HTTP %d: %s", query, a.status, a.body)
				}
			}
		})
	}
}

// freeAddress is one on loopback that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = at.Close() }()
	return at.Addr().String()
}

// A header that is too long is refused, by either protocol, and one that is long is not.
func TestHeadersWithTLS(t *testing.T) {
	ca := certificates.NewAuthority(t)
	pair, address := ca.Issue(t, t.TempDir(), "flint", nil), freeAddress(t)
	i := serve(t, setup{settings: func(s *config.Settings) {
		s.TLS = config.TLS{Address: address, CertFile: pair.Cert, KeyFile: pair.Key}
	}})
	t.Cleanup(func() { _ = i.f.Stop(context.WithoutCancel(t.Context())) })
	for protocol, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		for length, want := range map[int]int{32 << 10: http.StatusOK, 100 << 10: http.StatusRequestHeaderFieldsTooLarge} {
			transport, err := certificates.Transport(ca.File, certificates.Pair{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(transport.CloseIdleConnections)
			transport.ForceAttemptHTTP2 = two
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+api.OpenAPIPath, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("X-Long", strings.Repeat("a", length))
			response, err := transport.RoundTrip(request)
			if two && want != http.StatusOK && err != nil { // net/http looks at what the server takes, and does not send it
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != want || response.Proto != protocol {
				t.Errorf("%s, %d bytes: %s %d, want %d", protocol, length, response.Proto, response.StatusCode, want)
			}
		}
	}
}

// The second listener, as Start opens it under func-go and under the func CLI's scaffold alike.
func TestListenerWithTLS(t *testing.T) {
	ca := certificates.NewAuthority(t)
	pair := ca.Issue(t, t.TempDir(), "flint", nil)
	v := &reviews{rights: []string{"system:serviceaccount:spark:operator *", "poor get pods"}}
	address := freeAddress(t)
	i := serve(t, setup{api: v.middleware, settings: func(s *config.Settings) {
		s.TLS = config.TLS{Address: address, CertFile: pair.Cert, KeyFile: pair.Key, ClientCAFile: ca.File, ClientNames: map[string]string{
			"operator": "system:serviceaccount:spark:operator", "spiffe://cluster/poor": "poor", "gate": "",
		}}
	}})
	own := func(name string, uri string) *operator.Client {
		transport, err := certificates.Transport(ca.File, ca.Issue(t, t.TempDir(), name, func(c *x509.Certificate) {
			if u, err := url.Parse(uri); uri != "" && err == nil {
				c.URIs = []*url.URL{u}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(transport.CloseIdleConnections)
		return &operator.Client{URL: "https://" + address + api.SubmitPath, Tries: 3, Backoff: 50 * time.Millisecond, Timeout: time.Minute, HTTP: transport}
	}
	if status, err := own("operator", "").WaitForConnection(t.Context(), 10*time.Millisecond); err != nil || status != http.StatusMethodNotAllowed {
		t.Errorf("HTTP %d, %v", status, err)
	}
	for name, tc := range map[string]struct {
		client *operator.Client
		want   int
		code   api.Code
	}{
		"a user with rights":     {own("operator", ""), http.StatusCreated, ""},
		"a user without":         {own("x", "spiffe://cluster/poor"), 0, api.Forbidden},
		"a name without a user":  {own("gate", ""), http.StatusCreated, ""},
		"a name that is not one": {own("mallory", ""), 0, api.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			_, status, err := tc.client.Submit(t.Context(), []byte(submission(name)))
			var refused *operator.SubmitError
			if tc.code != "" {
				if refused = asSubmitError(err); refused == nil || refused.Body.ErrorCode != tc.code {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || status != tc.want {
				t.Errorf("HTTP %d, %v", status, err)
			}
		})
	}
	// func-go's health paths are there too.
	client := &http.Client{Transport: own("operator", "").HTTP}
	response, err := client.Get("https://" + address + "/health/readiness")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("readiness: HTTP %d", response.StatusCode)
	}
	if err := i.f.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if connection, err := net.Dial("tcp", address); err == nil {
		_ = connection.Close()
		t.Error("it listens after Stop")
	}
}

// Whoever's authority is taken out is out, on a connection that is open too, and is told so as anybody without an identity.
func TestRemovedAuthority(t *testing.T) {
	ours, theirs := certificates.NewAuthority(t), certificates.NewAuthority(t)
	pair := ours.Issue(t, t.TempDir(), "flint", nil)
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	trust := func(ca *certificates.Authority) {
		text, err := os.ReadFile(ca.File)
		if err = errors.Join(err, os.WriteFile(authorities, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	trust(ours)
	address := freeAddress(t)
	i := serve(t, setup{settings: func(s *config.Settings) {
		s.TLS = config.TLS{Address: address, CertFile: pair.Cert, KeyFile: pair.Key, ClientCAFile: authorities}
	}})
	t.Cleanup(func() { _ = i.f.Stop(context.WithoutCancel(t.Context())) })
	transport, err := certificates.Transport(ours.File, ours.Issue(t, t.TempDir(), "operator", nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	i.url = "https://" + address
	list := func() (answer, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.url+api.LaunchesPath, nil)
		if err != nil {
			return answer{}, err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return answer{}, err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return answer{response.StatusCode, response.Header, string(body)}, err
	}
	if a, err := list(); err != nil || a.status != http.StatusOK {
		t.Fatalf("HTTP %d, %v: %s", a.status, err, a.body)
	}
	trust(theirs)
	var last answer
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		a, err := list()
		last = a
		return a.status != http.StatusOK, err
	}); err != nil {
		t.Fatal(err)
	}
	if last.status != http.StatusUnauthorized || last.refusal(t).ErrorCode != api.Unauthenticated || last.header.Get("WWW-Authenticate") == "" {
		t.Errorf("HTTP %d, %v: %s", last.status, last.header, last.body)
	}
	if a, err := list(); err == nil {
		t.Errorf("it was let in again: HTTP %d", a.status)
	}
}

func TestListenerWithTLSAtFault(t *testing.T) {
	i := serve(t, setup{stopped: true, settings: func(s *config.Settings) {
		s.TLS = config.TLS{Address: "127.0.0.1:0", CertFile: "/none", KeyFile: "/none"}
	}})
	if err := i.f.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "/none") {
		t.Errorf("error %v", err)
	}
	if ready, _ := i.f.Ready(t.Context()); ready {
		t.Error("ready without its listener")
	}
}

func asSubmitError(err error) *operator.SubmitError {
	refused, _ := err.(*operator.SubmitError) //nolint:errorlint // the client gives it as it is
	return refused
}
