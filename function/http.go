package function

import (
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"flint.dev/flint/pkg/api"
)

// route finds what answers a request. An event is known by its encoding and not by its path.
func (f *Function) route(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && isEvent(r) {
		f.event(w, r)
		return
	}
	switch r.URL.Path {
	case api.SubmitPath:
		f.only(http.MethodPost, f.submit)(w, r)
	case api.RunnerPath:
		f.only(http.MethodPost, f.submitRunner)(w, r)
	case "/":
		f.only(http.MethodPost, f.notAnEvent)(w, r)
	case api.OpenAPIPath:
		f.only(http.MethodGet, openAPI)(w, r)
	case api.MetricsPath:
		f.only(http.MethodGet, f.metrics)(w, r)
	default:
		if r.URL.Path == api.FilePath || strings.HasPrefix(r.URL.Path, api.FilePath+"/") {
			f.fileJobPaths(w, r)
			return
		}
		if r.URL.Path == api.LaunchesPath || strings.HasPrefix(r.URL.Path, api.LaunchesPath+"/") {
			f.launches(w, r)
			return
		}
		f.answerError(w, "", api.Errorf(api.NotFound, "no such path: submissions go to POST %s, CloudEvents to POST /", api.SubmitPath))
	}
}

// only answers every other method: 405, or 200 to OPTIONS, both with Allow.
func (f *Function) only(method string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method {
			next(w, r)
			return
		}
		w.Header().Set("Allow", method+", OPTIONS")
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		f.answerError(w, "", api.Errorf(api.MethodNotAllowed, "%s is not allowed here, only %s", r.Method, method))
	}
}

// requireJSON refuses a body that does not say it is JSON.
func requireJSON(r *http.Request) error {
	text := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(text)
	if err != nil || media != "application/json" {
		return api.Errorf(api.UnsupportedMediaType, "Content-Type is %q, not application/json", text)
	}
	return nil
}

// dryRun reads the query, which has one parameter or none. Whatever else it holds
// is refused: a misspelt dry run would create a driver.
func dryRun(r *http.Request) (string, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "", api.Errorf(api.BadRequest, "malformed query: %v", err)
	}
	values, given := query["dryRun"]
	delete(query, "dryRun")
	for name := range query {
		return "", api.FieldErrorf(api.BadRequest, "query", "no parameter %q; known: dryRun", name)
	}
	switch {
	case !given:
		return dryRunNone, nil
	case len(values) == 1 && (values[0] == dryRunClient || values[0] == dryRunServer):
		return values[0], nil
	}
	return "", api.FieldErrorf(api.BadRequest, "dryRun", "dryRun is %q; it must be %s or %s, once", values, dryRunServer, dryRunClient)
}

// writeMargin is the time beyond a launch's own limit in which its answer must have left.
const writeMargin = 5 * time.Second

// extendWrite gives the answer the time of a launch from now on; func-go's 30 s
// began when the request's header did, before its body was read.
func extendWrite(w http.ResponseWriter, launch time.Duration) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	_ = control.SetWriteDeadline(time.Now().Add(launch + writeMargin))
}

func answerJSON(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("answer %T: %v", value, err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that has gone asks again
}

func (f *Function) answerError(w http.ResponseWriter, submissionID string, e *api.Error) {
	f.errorHeader(w, e)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status())
	_, _ = w.Write(e.Body(e.Status(), submissionID, f.options.clock.Now())) //nolint:gosec // G705: JSON, and said to be
}

func (f *Function) errorHeader(w http.ResponseWriter, e *api.Error) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Code == api.Unauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="flint"`)
	}
	if f.draining.Load() {
		w.Header().Set("Connection", "close")
	}
}
