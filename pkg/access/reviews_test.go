package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
)

// judge plays the API server's reviews, and counts them. apiserver_test.go holds it against the real one.
type judge struct {
	mu      sync.Mutex
	tokens  int
	rights  int
	last    authorizationv1.SubjectAccessReviewSpec
	whose   func(token string) authenticationv1.TokenReviewStatus
	allowed func(authorizationv1.SubjectAccessReviewSpec) bool
	refuse  int           // answer every review with this status
	hold    chan struct{} // answer when it is closed
	arrived chan struct{} // gets one for each review that waits for hold
}

func (j *judge) counted() (tokens, rights int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.tokens, j.rights
}

func (j *judge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if j.hold != nil {
		j.arrived <- struct{}{}
		<-j.hold
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(review any) {
		if j.refuse != 0 {
			w.WriteHeader(j.refuse)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"you sent %v","code":%d}`, j.last, j.refuse)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	}
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		j.tokens++
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status = j.whose(review.Spec.Token)
		answer(review)
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		j.rights++
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		j.last = review.Spec
		review.Status.Allowed = j.allowed(review.Spec)
		answer(review)
	default:
		http.NotFound(w, r)
	}
}

func goodTokens(prefix string) func(string) authenticationv1.TokenReviewStatus {
	return func(token string) authenticationv1.TokenReviewStatus {
		if !strings.HasPrefix(token, prefix) {
			return authenticationv1.TokenReviewStatus{Error: "bad token " + token}
		}
		return authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"flint"}, User: authenticationv1.UserInfo{
			Username: "system:serviceaccount:jobs:ci", UID: "u1", Groups: []string{"system:serviceaccounts"},
			Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"p"}},
		}}
	}
}

func newAccess(t *testing.T, j *judge, change func(*Config)) (*Access, *clocktesting.FakePassiveClock) {
	t.Helper()
	server := httptest.NewServer(j)
	t.Cleanup(server.Close)
	c := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	config := Config{Cluster: &rest.Config{Host: server.URL, QPS: -1}, Tokens: true, Audience: "flint", Clock: c}
	if change != nil {
		change(&config)
	}
	a, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func bearing(values ...string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": values}}
}

func code(err error) api.Code {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code
	}
	return ""
}

func TestNoTokensWanted(t *testing.T) {
	j := &judge{}
	a, _ := newAccess(t, j, func(c *Config) { c.Tokens = false })
	caller, err := a.Identify(within(t), bearing("Bearer anything", "twice"))
	if caller != nil || err != nil {
		t.Errorf("caller %+v, %v", caller, err)
	}
	if err := a.Allow(within(t), nil, Right{Verb: "create", Resource: "pods"}); err != nil {
		t.Error(err)
	}
	if tokens, rights := j.counted(); tokens+rights != 0 {
		t.Errorf("%d token reviews, %d access reviews", tokens, rights)
	}
}

func TestHeadersThatAreNoToken(t *testing.T) {
	j := &judge{whose: goodTokens("")}
	a, _ := newAccess(t, j, nil)
	for name, header := range map[string][]string{
		"none":            nil,
		"empty":           {""},
		"another scheme":  {"Basic Zm9vOmJhcg=="},
		"no token":        {"Bearer"},
		"an empty one":    {"Bearer   "},
		"two in one":      {"Bearer a b"},
		"two by comma":    {"Bearer a,b"},
		"two headers":     {"Bearer a", "Bearer b"},
		"longer than any": {"Bearer " + strings.Repeat("a", maxToken+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := a.Identify(within(t), bearing(header...)); code(err) != api.Unauthenticated {
				t.Errorf("error %v", err)
			}
		})
	}
	if tokens, _ := j.counted(); tokens != 0 {
		t.Errorf("%d were asked about", tokens)
	}
}

func TestTokenIsAskedAboutOnce(t *testing.T) {
	j := &judge{whose: goodTokens("good")}
	a, c := newAccess(t, j, nil)
	want := &Caller{
		Name: "system:serviceaccount:jobs:ci", UID: "u1", Groups: []string{"system:serviceaccounts"},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"p"}},
	}
	identify := func(header string, reviews int) {
		t.Helper()
		caller, err := a.Identify(within(t), bearing(header))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, caller); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if got, _ := j.counted(); got != reviews {
			t.Errorf("%d reviews, want %d", got, reviews)
		}
	}
	identify("Bearer good", 1)
	identify("bEARER  good", 1)
	c.SetTime(c.Now().Add(keepGood + time.Second))
	identify("Bearer good", 2)

	// No token is in what is remembered.
	for _, key := range a.callers.good.Keys() {
		if text, ok := key.(string); !ok || len(text) != 32 || strings.Contains(text, "good") {
			t.Errorf("remembered under %q", key)
		}
	}
}

func TestRefusedTokens(t *testing.T) {
	for name, status := range map[string]authenticationv1.TokenReviewStatus{
		"not valid":            {Error: "hunter2"},
		"no audience":          {Authenticated: true, User: authenticationv1.UserInfo{Username: "u"}},
		"another audience":     {Authenticated: true, Audiences: []string{"https://kubernetes.default.svc"}, User: authenticationv1.UserInfo{Username: "u"}},
		"a user without name":  {Authenticated: true, Audiences: []string{"flint"}},
		"not said to be valid": {Audiences: []string{"flint"}, User: authenticationv1.UserInfo{Username: "u"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{whose: func(string) authenticationv1.TokenReviewStatus { return status }}
			a, c := newAccess(t, j, nil)
			for range 3 {
				_, err := a.Identify(within(t), bearing("Bearer hunter2"))
				if code(err) != api.Unauthenticated || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), `"flint"`) {
					t.Errorf("error %v", err)
				}
			}
			if tokens, _ := j.counted(); tokens != 1 {
				t.Errorf("%d reviews", tokens)
			}
			c.SetTime(c.Now().Add(keepBad + time.Second))
			_, _ = a.Identify(within(t), bearing("Bearer hunter2"))
			if tokens, _ := j.counted(); tokens != 2 {
				t.Errorf("%d reviews once it was forgotten", tokens)
			}
		})
	}
}

// jwt is a token with these claims. Nobody here looks at its signature.
func jwt(claims string) string {
	return "good." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".sig"
}

func TestNothingOutlivesItsToken(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	for name, tc := range map[string]struct {
		token string
		keep  time.Duration // zero: never remembered
	}{
		"ends soon":             {jwt(fmt.Sprintf(`{"exp":%d}`, start.Add(10*time.Second).Unix())), 10 * time.Second},
		"a fraction":            {jwt(fmt.Sprintf(`{"exp":%d.5}`, start.Add(10*time.Second).Unix())), 10 * time.Second},
		"ends later":            {jwt(fmt.Sprintf(`{"exp":%d}`, start.Add(time.Hour).Unix())), keepGood},
		"never in our time":     {jwt(`{"exp":1e300}`), keepGood},
		"has ended, by us":      {jwt(fmt.Sprintf(`{"exp":%d}`, start.Add(-time.Second).Unix())), 0},
		"long ago":              {jwt(`{"exp":-1e300}`), 0},
		"no exp":                {jwt(`{}`), keepGood},
		"exp is text":           {jwt(`{"exp":"soon"}`), keepGood},
		"no JSON":               {jwt(`x`), keepGood},
		"no base64":             {"good.!.sig", keepGood},
		"not in three parts":    {"good", keepGood},
		"a number out of range": {jwt(`{"exp":1e999}`), keepGood},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{whose: goodTokens("good")}
			a, c := newAccess(t, j, nil)
			at := func(after time.Duration, reviews int) {
				t.Helper()
				c.SetTime(start.Add(after))
				if _, err := a.Identify(within(t), bearing("Bearer "+tc.token)); err != nil {
					t.Fatal(err)
				}
				if got, _ := j.counted(); got != reviews {
					t.Errorf("after %v: %d reviews, want %d", after, got, reviews)
				}
			}
			at(0, 1)
			if tc.keep == 0 {
				at(0, 2)
				return
			}
			at(tc.keep-time.Second, 1)
			at(tc.keep+time.Second, 2)
		})
	}
}

func TestFloodOfBadTokensForgetsNoGoodOne(t *testing.T) {
	j := &judge{whose: goodTokens("good")}
	a, _ := newAccess(t, j, nil)
	if _, err := a.Identify(within(t), bearing("Bearer good")); err != nil {
		t.Fatal(err)
	}
	const flood = rememberedCallers + 100
	for n := range flood {
		if _, err := a.Identify(within(t), bearing(fmt.Sprintf("Bearer bad%d", n))); code(err) != api.Unauthenticated {
			t.Fatal(err)
		}
	}
	if _, err := a.Identify(within(t), bearing("Bearer good")); err != nil {
		t.Fatal(err)
	}
	if tokens, _ := j.counted(); tokens != flood+1 {
		t.Errorf("%d reviews, want %d", tokens, flood+1)
	}
	if got := len(a.callers.bad.Keys()); got > rememberedCallers {
		t.Errorf("%d bad tokens are remembered", got)
	}
}

// Many who send one token at once cost one review, which goes on when who came first hangs up.
func TestReviewsOfOneTokenAreJoined(t *testing.T) {
	j := &judge{whose: goodTokens("good"), hold: make(chan struct{}), arrived: make(chan struct{}, 100)}
	a, _ := newAccess(t, j, nil)
	first, hangUp := context.WithCancel(within(t))
	gone := make(chan error, 1)
	go func() {
		_, err := a.Identify(first, bearing("Bearer good"))
		gone <- err
	}()
	<-j.arrived
	const others = 50
	results := make(chan error, others)
	for range others {
		go func() {
			_, err := a.Identify(within(t), bearing("Bearer good"))
			results <- err
		}()
	}
	hangUp()
	if err := <-gone; code(err) != api.SubmitterOverloaded {
		t.Errorf("who hung up: %v", err)
	}
	close(j.hold)
	for range others {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if tokens, _ := j.counted(); tokens != 1 {
		t.Errorf("%d reviews", tokens)
	}
}

// What is taken from a caller while the API server is slow to say that they have it is taken within keepGood all the same.
func TestTimeOfASlowAnswerCounts(t *testing.T) {
	j := &judge{whose: goodTokens("good"), hold: make(chan struct{}), arrived: make(chan struct{}, 2)}
	a, c := newAccess(t, j, nil)
	identified := make(chan error, 1)
	go func() {
		_, err := a.Identify(within(t), bearing("Bearer good"))
		identified <- err
	}()
	<-j.arrived
	c.SetTime(c.Now().Add(askLimit))
	close(j.hold)
	if err := <-identified; err != nil {
		t.Fatal(err)
	}
	c.SetTime(c.Now().Add(keepGood - askLimit + time.Second))
	if _, err := a.Identify(within(t), bearing("Bearer good")); err != nil {
		t.Fatal(err)
	}
	if tokens, _ := j.counted(); tokens != 2 {
		t.Errorf("%d reviews: the answer is remembered for %v after it was asked for", tokens, keepGood+time.Second)
	}
}

func TestUnanswered(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	for name, tc := range map[string]struct {
		refuse int
		host   string
		code   api.Code
		says   string
	}{
		"no API server":  {0, down.URL, api.SubmitterOverloaded, "does not answer"},
		"overloaded":     {http.StatusTooManyRequests, "", api.SubmitterOverloaded, "does not answer"},
		"broken":         {http.StatusInternalServerError, "", api.SubmitterOverloaded, "does not answer"},
		"not allowed to": {http.StatusForbidden, "", api.InternalServerError, "Flint's own account needs create "},
		"not served":     {http.StatusNotFound, "", api.InternalServerError, "Flint's own account needs create "},
	} {
		t.Run(name, func(t *testing.T) {
			j := &judge{refuse: tc.refuse, whose: goodTokens("hunter2"), allowed: func(authorizationv1.SubjectAccessReviewSpec) bool { return true }}
			a, _ := newAccess(t, j, func(c *Config) {
				if tc.host != "" {
					c.Cluster.Host = tc.host
				}
			})
			for range 2 { // an error is not remembered
				_, identified := a.Identify(within(t), bearing("Bearer hunter2"))
				allowed := a.Allow(within(t), &Caller{Name: "hunter2"}, Right{Verb: "create", Resource: "pods", Namespace: "n"})
				for what, err := range map[string]error{"identify": identified, "allow": allowed} {
					e, ok := errors.AsType[*api.Error](err)
					if !ok || e.Code != tc.code || !strings.Contains(e.Message, tc.says) || e.Cause == nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					if strings.Contains(e.Message+e.Cause.Error(), "hunter2") {
						t.Errorf("%s tells what was sent: %v, %v", what, err, e.Cause)
					}
					if (e.RetryAfter > 0) != (tc.code == api.SubmitterOverloaded) {
						t.Errorf("%s: retry after %v", what, e.RetryAfter)
					}
				}
			}
			if tokens, rights := j.counted(); tc.host == "" && (tokens != 2 || rights != 2) {
				t.Errorf("%d token reviews, %d access reviews", tokens, rights)
			}
		})
	}
}

func TestRights(t *testing.T) {
	j := &judge{allowed: func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.ResourceAttributes.Resource == "pods" }}
	a, c := newAccess(t, j, nil)
	caller := &Caller{Name: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v", "w"}}}
	pods := Right{Verb: "create", Resource: "pods", Namespace: "n"}
	log := RightOn("get", kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: "n", Name: "p"})
	log.Subresource = "log"
	jobs := Right{Verb: "create", Group: "batch", Resource: "jobs", Namespace: "n"}
	secrets := Right{Verb: "create", Resource: "secrets", Namespace: "n"}
	if err := a.Allow(within(t), caller, pods, log); err != nil {
		t.Error(err)
	}
	err := a.Allow(within(t), caller, pods, jobs, secrets)
	if code(err) != api.Forbidden || !strings.Contains(err.Error(), `"ann" may not create jobs.batch, create secrets in namespace "n"`) {
		t.Errorf("error %v", err)
	}
	if _, rights := j.counted(); rights != 4 {
		t.Errorf("%d reviews, want one of each right", rights)
	}
	c.SetTime(c.Now().Add(keepBad + time.Second))
	_ = a.Allow(within(t), caller, pods, jobs)
	if _, rights := j.counted(); rights != 5 {
		t.Errorf("%d reviews, want the refused one again", rights)
	}
	if err := a.Allow(within(t), &Caller{Name: "ann", Groups: []string{"ops"}}, log); err != nil {
		t.Error(err)
	}
	if _, rights := j.counted(); rights != 6 {
		t.Errorf("%d reviews: another set of groups is another caller", rights)
	}
	c.SetTime(c.Now().Add(keepGood))
	if err := a.Allow(within(t), caller, log); err != nil {
		t.Error(err)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "ann", UID: "7", Groups: []string{"dev"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v", "w"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "n", Verb: "get", Version: "v1", Resource: "pods", Subresource: "log", Name: "p"},
	}
	if diff := cmp.Diff(want, j.last); diff != "" {
		t.Errorf("asked (-want +got)\n%s", diff)
	}
}

func TestCertificates(t *testing.T) {
	uri := &url.URL{Scheme: "spiffe", Host: "cluster", Path: "/ns/jobs/sa/ci"}
	leaf := func(change func(*x509.Certificate)) *tls.ConnectionState {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "operator"}}
		change(c)
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	names := map[string]string{
		"operator": "system:serviceaccount:spark:operator", "gate.example.com": "", uri.String(): "ann", "b.example.com": "bob",
	}
	cases := map[string]struct {
		state  *tls.ConnectionState
		names  map[string]string
		tokens bool
		header []string
		want   *Caller
		code   api.Code
	}{
		"plain":                    {names: names},
		"without a certificate":    {names: names, state: &tls.ConnectionState{}},
		"no good any more":         {names: names, state: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "operator"}}}}, code: api.Unauthenticated},
		"any, no good any more":    {state: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Subject: pkix.Name{CommonName: "operator"}}}}, code: api.Unauthenticated},
		"any":                      {state: leaf(func(*x509.Certificate) {})},
		"by common name":           {names: names, state: leaf(func(*x509.Certificate) {}), want: &Caller{Name: "system:serviceaccount:spark:operator", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:spark", "system:authenticated"}}},
		"by URI":                   {names: names, state: leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }), want: &Caller{Name: "ann", Groups: []string{"system:authenticated"}}},
		"a URI before a name":      {names: names, state: leaf(func(c *x509.Certificate) { c.URIs, c.DNSNames = []*url.URL{uri}, []string{"b.example.com"} }), want: &Caller{Name: "ann", Groups: []string{"system:authenticated"}}},
		"without a user":           {names: names, state: leaf(func(c *x509.Certificate) { c.DNSNames = []string{"gate.example.com"} })},
		"not listed":               {names: names, state: leaf(func(c *x509.Certificate) { c.Subject.CommonName = "mallory" }), code: api.Forbidden},
		"no name":                  {names: names, state: leaf(func(c *x509.Certificate) { c.Subject.CommonName = "" }), code: api.Forbidden},
		"a URI as the common name": {names: names, state: leaf(func(c *x509.Certificate) { c.Subject.CommonName = uri.String() }), code: api.Forbidden},
		"a URI as a DNS name":      {names: names, state: leaf(func(c *x509.Certificate) { c.DNSNames = []string{uri.String()} }), code: api.Forbidden},
		"the common name beside others does not count": {names: names, state: leaf(func(c *x509.Certificate) { c.DNSNames = []string{"mallory.example.com"} }), code: api.Forbidden},
		"tokens are wanted, a user will do":            {names: names, tokens: true, state: leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }), want: &Caller{Name: "ann", Groups: []string{"system:authenticated"}}},
		"tokens are wanted, no user":                   {names: names, tokens: true, state: leaf(func(c *x509.Certificate) { c.DNSNames = []string{"gate.example.com"} }), code: api.Unauthenticated},
		"tokens are wanted, any certificate":           {tokens: true, state: leaf(func(*x509.Certificate) {}), code: api.Unauthenticated},
		"a bad token beside a user":                    {names: names, tokens: true, header: []string{"Bearer bad"}, state: leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }), code: api.Unauthenticated},
		"a token beside no listed name":                {names: names, tokens: true, header: []string{"Bearer good"}, state: leaf(func(c *x509.Certificate) { c.Subject.CommonName = "mallory" }), code: api.Forbidden},
		"a token decides": {names: names, tokens: true, header: []string{"Bearer good"}, state: leaf(func(c *x509.Certificate) { c.URIs = []*url.URL{uri} }), want: &Caller{
			Name: "system:serviceaccount:jobs:ci", UID: "u1", Groups: []string{"system:serviceaccounts"}, Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"p"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, _ := newAccess(t, &judge{whose: goodTokens("good")}, func(c *Config) { c.Tokens, c.Names = tc.tokens, tc.names })
			if tc.tokens && tc.state == nil {
				t.Fatal("no state")
			}
			r := bearing(tc.header...)
			r.TLS = tc.state
			got, err := a.Identify(within(t), r)
			if code(err) != tc.code || (err != nil) != (tc.code != "") {
				t.Errorf("error %v, want %q", err, tc.code)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
