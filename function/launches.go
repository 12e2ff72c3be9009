package function

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"flint.dev/flint/pkg/access"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/launches"
)

// What a log has when it is not asked for otherwise, and at most.
const (
	defaultTailLines  = 1000
	maxTailLines      = 100_000
	defaultLimitBytes = 1 << 20
	maxLimitBytes     = 10 << 20
)

// tellLimit is how long a cancel, or a launch in the place of an abandoned one, waits for the completion event of what
// it took away; the poller goes on with it.
const tellLimit = 5 * time.Second

// launches answers what is asked about launches. The path is taken apart as it was sent: %2F is part of a name.
func (f *Function) launches(w http.ResponseWriter, r *http.Request) {
	rest := strings.TrimPrefix(r.URL.EscapedPath(), api.LaunchesPath)
	parts := strings.Split(rest, "/")[1:]
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil || text == "" {
			f.noLaunchPath(w)
			return
		}
		parts[i] = text
	}
	switch {
	case rest == "":
		f.reads(f.listLaunches)(w, r)
	case len(parts) == 2 && r.Method == http.MethodDelete:
		f.cancelLaunch(w, r, launches.Name{Namespace: parts[0], ID: parts[1]})
	case len(parts) == 2:
		get := func(w http.ResponseWriter, r *http.Request, run *running, query url.Values) error {
			return f.getLaunch(w, r, run, query, launches.Name{Namespace: parts[0], ID: parts[1]})
		}
		f.reads(get, http.MethodDelete)(w, r)
	case len(parts) == 3 && parts[2] == "log":
		log := func(w http.ResponseWriter, r *http.Request, run *running, query url.Values) error {
			return f.launchLog(w, r, run, query, launches.Name{Namespace: parts[0], ID: parts[1]})
		}
		f.reads(log)(w, r)
	default:
		f.noLaunchPath(w)
	}
}

func (f *Function) noLaunchPath(w http.ResponseWriter) {
	f.answerError(w, "", api.Errorf(api.NotFound, "no such path: launches are at %[1]s, one at %[1]s/NAMESPACE/ID, its log at %[1]s/NAMESPACE/ID/log", api.LaunchesPath))
}

// read answers a GET within a launch's time, unless there is an error.
type read func(w http.ResponseWriter, r *http.Request, run *running, query url.Values) error

// reads answers a GET by what reads, which takes no slot of a launch but a place of its own and leaves no line in the
// log, and every method but those that others answer by 405, or 200 to OPTIONS.
func (f *Function) reads(next read, others ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			allowed := append([]string{http.MethodGet}, others...)
			w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
			if r.Method == http.MethodOptions {
				w.WriteHeader(http.StatusOK)
				return
			}
			f.answerError(w, "", api.Errorf(api.MethodNotAllowed, "%s is not allowed here, only %s", r.Method, strings.Join(allowed, " and ")))
			return
		}
		run, err := f.work(r)
		if err != nil {
			f.answerError(w, "", toAPIError(err))
			return
		}
		release, err := f.take(run.reads)
		if err != nil {
			f.answerError(w, "", toAPIError(err))
			return
		}
		defer release()
		extendWrite(w, run.settings.LaunchTimeout)
		ctx, cancel := context.WithTimeout(r.Context(), run.settings.LaunchTimeout)
		defer cancel()
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			err = api.FieldErrorf(api.BadRequest, "query", "malformed query: %v", err)
		} else {
			err = next(w, r.WithContext(ctx), run, query)
		}
		if err == nil {
			return
		}
		e := toAPIError(err)
		if e.Code == api.InternalServerError { // its message says that the log has the cause
			e = f.logRefusal(run, "", "", f.options.clock.Now(), err)
		}
		f.answerError(w, "", e)
	}
}

func (f *Function) launchesOf(run *running) *launches.Launches {
	return &launches.Launches{Client: run.applier.Client, Clock: f.options.clock, May: run.mayTouch, Before: run.giveUpRunner}
}

// listLaunches answers GET /api/v1/launches.
func (f *Function) listLaunches(w http.ResponseWriter, r *http.Request, run *running, query url.Values) error {
	q, err := launchQuery(run.policy, query)
	if err != nil {
		return err
	}
	if err := run.mayList(r.Context(), q); err != nil {
		return err
	}
	list, err := f.launchesOf(run).List(r.Context(), q)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, list)
	return nil
}

func launchQuery(policy access.Policy, query url.Values) (launches.Query, error) {
	p := parameters{values: query}
	p.known("namespace", "kind", "state", "parent", "limit", "continue")
	q := launches.Query{
		Namespace: p.one("namespace"),
		Kind:      p.kind(),
		State:     oneOf(&p, "state", api.StateHeld, api.StatePending, api.StateRunning, api.StateSucceeded, api.StateFailed),
		Parent:    p.one("parent"),
		Limit:     p.number("limit", launches.MaxPage, launches.MaxPage),
		Continue:  p.one("continue"),
	}
	if q.Parent != "" && q.Kind != launch.Runner && q.Kind != "" {
		p.fault("parent", "parent is %q; only runners have one, and kind is %s", q.Parent, q.Kind)
	}
	if q.Parent != "" {
		q.Kind = launch.Runner
	}
	if p.err != nil {
		return q, p.err
	}
	if only := policy.Namespaces; q.Namespace == "" && len(only) == 1 && only[0] != access.Everywhere {
		q.Namespace = only[0]
	}
	if q.Namespace == "" {
		return q, api.FieldErrorf(api.BadRequest, "namespace", "namespace is required, since this Flint launches into more than one")
	}
	return q, policy.Namespace(q.Namespace)
}

// getLaunch answers GET /api/v1/launches/{namespace}/{id}.
func (f *Function) getLaunch(w http.ResponseWriter, r *http.Request, run *running, query url.Values, name launches.Name) error {
	p := parameters{values: query}
	p.known("kind")
	name.Kind = p.kind()
	if err := errors.Join(p.err, run.policy.Namespace(name.Namespace)); err != nil {
		return err
	}
	found, err := f.launchesOf(run).Get(r.Context(), name)
	if err != nil {
		return err
	}
	answerJSON(w, http.StatusOK, found)
	return nil
}

// launchLog answers GET /api/v1/launches/{namespace}/{id}/log.
func (f *Function) launchLog(w http.ResponseWriter, r *http.Request, run *running, query url.Values, name launches.Name) error {
	p := parameters{values: query}
	p.known("kind", "tailLines", "limitBytes")
	name.Kind = p.kind()
	tailLines := p.number("tailLines", defaultTailLines, maxTailLines)
	limitBytes := p.number("limitBytes", defaultLimitBytes, maxLimitBytes)
	if err := errors.Join(p.err, run.policy.Namespace(name.Namespace)); err != nil {
		return err
	}
	text, err := f.launchesOf(run).Log(r.Context(), name, tailLines, limitBytes)
	if err != nil {
		return err
	}
	defer func() { _ = text.Close() }()
	// Until something has come, what goes wrong can still be said.
	buffered := bufio.NewReader(text)
	if _, err := buffered.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		e := overloaded("the log broke off before its first byte")
		e.Cause = err
		return e
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, buffered); err != nil {
		panic(http.ErrAbortHandler) // the caller sees that there should be more
	}
	return nil
}

// cancelLaunch answers DELETE /api/v1/launches/{namespace}/{id}. It goes on when the caller hangs up: what has been
// deleted is to be told of.
func (f *Function) cancelLaunch(w http.ResponseWriter, r *http.Request, name launches.Name) {
	started := f.options.clock.Now()
	run, err := f.work(r)
	if err != nil {
		f.answerError(w, "", toAPIError(err))
		return
	}
	extendWrite(w, run.settings.LaunchTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), run.settings.LaunchTimeout)
	defer cancel()
	cancelled, err := f.cancel(ctx, run, r.URL.RawQuery, name)
	if err != nil {
		f.answerError(w, "", f.logRefusal(run, "", "", started, err))
		return
	}
	l := cancelled.Launch
	attrs := []any{
		"kind", l.Kind, "submission_id", l.SubmissionID, "namespace", l.Namespace, "name", l.Name,
		"uid", l.UID, "state", string(l.State), "duration_ms", f.options.clock.Since(started).Milliseconds(),
	}
	run.log.Info("cancel", append(attrs, callerAttrs(r.Context())...)...)
	l.Result = nil // it is of pods, which whoever may delete a Job may not see
	answerJSON(w, http.StatusAccepted, l)
}

func (f *Function) cancel(ctx context.Context, run *running, rawQuery string, name launches.Name) (*launches.Cancelled, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, api.FieldErrorf(api.BadRequest, "query", "malformed query: %v", err)
	}
	p := parameters{values: query}
	if name.Kind == "" {
		p.known("kind")
		name.Kind = p.kind()
	} else { // the path has said it
		p.known()
	}
	if err := errors.Join(p.err, run.policy.Namespace(name.Namespace)); err != nil {
		return nil, err
	}
	release, err := f.acquire(run)
	if err != nil {
		return nil, err
	}
	defer release()
	defer run.completions.poller.Wake() // also after an error: a cancel that was begun may be undone
	cancelled, err := f.launchesOf(run).Cancel(ctx, name)
	if err != nil {
		cancelled, err = f.giveUpKey(ctx, run, name, err)
	}
	if err != nil {
		return nil, err
	}
	// What goes at once is told at once, and is gone with that. What has time to end in is told when it has ended. A
	// sink that is slow or down is the poller's to wait for.
	ctx, stop := context.WithTimeout(ctx, tellLimit)
	defer stop()
	if _, err := run.completions.poller.One(ctx, cancelled.Ref, cancelled.Last); err != nil {
		run.log.Warn("the end of a cancelled launch could not be looked at", "namespace", cancelled.Ref.Namespace, "name", cancelled.Ref.Name, "error", err.Error())
	}
	return cancelled, nil
}

// parameters are those of a query. The first fault stays.
type parameters struct {
	values url.Values
	err    error
}

func (p *parameters) fault(field, format string, args ...any) {
	if p.err == nil {
		p.err = api.FieldErrorf(api.BadRequest, field, format, args...)
	}
}

// known refuses every other parameter: a misspelt filter would filter nothing.
func (p *parameters) known(names ...string) {
	for name := range p.values {
		if !slices.Contains(names, name) {
			p.fault("query", "no parameter %q; known: %s", name, strings.Join(names, ", "))
		}
	}
}

// one is the value of a parameter, or empty where there is none.
func (p *parameters) one(name string) string {
	values, given := p.values[name]
	if given && (len(values) != 1 || values[0] == "") {
		p.fault(name, "%s is %q; it must have one value, once", name, values)
		return ""
	}
	return p.values.Get(name)
}

func (p *parameters) kind() launch.Kind { return oneOf(p, "kind", launches.Kinds()...) }

// oneOf is the parameter's value, one of these, or empty.
func oneOf[T ~string](p *parameters, name string, values ...T) T {
	value := T(p.one(name))
	if value != "" && !slices.Contains(values, value) {
		p.fault(name, "%s is %q; it must be one of %v", name, value, values)
	}
	return value
}

// number is a number from 1 to the highest.
func (p *parameters) number(name string, standard, highest int64) int64 {
	text := p.one(name)
	if text == "" {
		return standard
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > highest {
		p.fault(name, "%s is %q; it must be a number from 1 to %d", name, text, highest)
	}
	return n
}
