package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"flint.dev/flint/pkg/api"
)

// Caller is who sends a request, as the cluster knows them (authentication.k8s.io/v1 UserInfo).
type Caller struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// maxToken is the longest token that is asked about. The API server's own have less than 2 KiB.
const maxToken = 16 << 10

// Identify tells who sends the request. A nil Caller is one that nobody asks about: no tokens are wanted, and no
// certificate stands for a user. A token decides before a certificate, and one that is sent and not good is refused
// whatever else is.
//
// The error is an *api.Error: UNAUTHENTICATED; FORBIDDEN for a certificate without a name that is listed;
// SUBMITTER_OVERLOADED when the API server does not answer; INTERNAL_SERVER_ERROR when Flint itself may not ask it.
func (a *Access) Identify(ctx context.Context, r *http.Request) (*Caller, error) {
	caller, err := a.certified(r.TLS)
	if err != nil || !a.tokens {
		return caller, err
	}
	if caller != nil && len(r.Header.Values("Authorization")) == 0 {
		return caller, nil
	}
	token, err := bearer(r.Header)
	if err != nil {
		return nil, err
	}
	return a.tokenOf(ctx, token)
}

// bearer is the token of the one Authorization header (RFC 6750, 2.1).
func bearer(h http.Header) (string, error) {
	values := h.Values("Authorization")
	if len(values) == 0 {
		return "", api.Errorf(api.Unauthenticated, "no token: send one as Authorization: Bearer")
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" || strings.ContainsAny(token, " \t,") {
		return "", api.Errorf(api.Unauthenticated, "the header Authorization is not one Bearer token")
	}
	if len(token) > maxToken {
		return "", api.Errorf(api.Unauthenticated, "the token has more than %d bytes", maxToken)
	}
	return token, nil
}

// tokenOf asks whose the token is. What is remembered has a hash of it as its key, and never the token.
func (a *Access) tokenOf(ctx context.Context, token string) (*Caller, error) {
	sum := sha256.Sum256([]byte(token))
	found, err := a.callers.recall(ctx, string(sum[:]), func(ctx context.Context) (answer[*Caller], error) {
		status, err := a.tokenReviewer.Token(ctx, token, a.audience)
		if err != nil {
			return answer[*Caller]{}, err
		}
		got := answer[*Caller]{keep: keepBad}
		// An API server that knows nothing of audiences names none: then the token was for itself.
		if status.Authenticated && status.User.Username != "" && slices.Contains(status.Audiences, a.audience) {
			got = answer[*Caller]{value: callerOf(status.User), good: true, keep: keepGood}
		}
		if end, known := expiry(token); known {
			got.keep = min(got.keep, end.Sub(a.clock.Now()))
		}
		return got, nil
	})
	switch {
	case err != nil:
		return nil, unanswered(err, "who the caller is", "create tokenreviews.authentication.k8s.io")
	case !found.good:
		return nil, api.Errorf(api.Unauthenticated, "the token is not valid, or not for the audience %q", a.audience)
	}
	return found.value, nil
}

func callerOf(user authenticationv1.UserInfo) *Caller {
	c := &Caller{Name: user.Username, UID: user.UID, Groups: user.Groups, Extra: map[string][]string{}}
	for key, values := range user.Extra {
		c.Extra[key] = values
	}
	return c
}

// expiry is when a token ends that is a JWT with exp (RFC 7519, 4.1.4). Nothing else of the token is believed:
// the API server has judged it.
func expiry(token string) (time.Time, bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Exp *float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp == nil {
		return time.Time{}, false
	}
	const farAway = 1 << 40 // seconds; what is later does not fit a time.Duration either
	return time.Unix(int64(min(max(*claims.Exp, 0), farAway)), 0), true
}

// certified is the user that a verified client certificate stands for, or nil. One that is not verified is no good any
// more (tlsserver): else there would be no connection.
func (a *Access) certified(state *tls.ConnectionState) (*Caller, error) {
	switch {
	case state == nil || len(state.PeerCertificates) == 0:
		return nil, nil //nolint:nilnil // there is no caller to name, and nothing is wrong
	case len(state.VerifiedChains) == 0:
		return nil, api.Errorf(api.Unauthenticated, "the client certificate has expired, or its authority has been removed, since the connection was made")
	case len(a.names) == 0:
		return nil, nil //nolint:nilnil // as above
	}
	names := namesOf(state.PeerCertificates[0])
	for _, name := range names {
		if user, listed := a.names[name]; listed {
			return userOf(user), nil
		}
	}
	return nil, api.Errorf(api.Forbidden, "the client certificate is of %q, which FLINT_TLS_CLIENT_NAMES does not list", names)
}

// namesOf are the certificate's names: those that it stands for, or else its subject's common name. Another name that
// has the form of a URI is none: an authority may have judged only what is marked as one.
func namesOf(leaf *x509.Certificate) []string {
	var names []string
	for _, uri := range leaf.URIs {
		names = append(names, uri.String())
	}
	others := leaf.DNSNames
	if len(names)+len(others) == 0 {
		others = []string{leaf.Subject.CommonName}
	}
	for _, name := range others {
		if name != "" && !strings.Contains(name, "://") {
			names = append(names, name)
		}
	}
	return names
}

// userOf is a user with the groups that the API server would give them (k8s.io/apiserver/pkg/authentication/serviceaccount
// and group.AuthenticatedGroupAdder), or nil for none.
func userOf(name string) *Caller {
	if name == "" {
		return nil
	}
	c := &Caller{Name: name}
	if account, ok := strings.CutPrefix(name, "system:serviceaccount:"); ok {
		if namespace, _, ok := strings.Cut(account, ":"); ok {
			c.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	}
	c.Groups = append(c.Groups, "system:authenticated")
	return c
}

// unanswered is what the caller is told when the API server could not be asked. The cause says no more than the
// API server's reason: its message may quote what it was sent.
func unanswered(err error, what, right string) *api.Error {
	e := translate(err)
	if e.Code != api.SubmitterOverloaded {
		e = api.Errorf(api.InternalServerError, "%s cannot be found out: Flint's own account needs %s", what, right)
	} else {
		e.Message = what + " cannot be found out now: the API server does not answer; the same request may be repeated"
	}
	e.Cause = errors.New(reasonOf(err))
	return e
}
