package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// secret stands in tokens and data. No error and no log line may have it.
const secret = "hunter2"

func TestMain(m *testing.M) {
	code := m.Run()
	if left := connections(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "connections are left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// connections are the goroutines of HTTP clients and of this package that do not end.
func connections() string {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	var left []string
	for range 500 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		left = nil
		for _, stack := range strings.Split(string(stacks), "\n\n") {
			if strings.Contains(stack, "persistConn") || strings.Contains(stack, "events.(*Sink)") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 {
			return ""
		}
		<-ticker.C
	}
	return strings.Join(left, "\n\n")
}

// instant is a clock whose timers have ended when they begin. It notes how long they would have been.
type instant struct {
	*clocktesting.FakeClock
	mu    sync.Mutex
	waits []time.Duration
}

func newInstant() *instant {
	return &instant{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))}
}

func (c *instant) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits = append(c.waits, d)
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// steady is a back-off without chance.
var steady = wait.Backoff{Duration: time.Second, Factor: 2, Cap: 3 * time.Second}

func completion(t testing.TB) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("6f2a.succeeded")
	e.SetType("dev.flint.spark.succeeded.v1")
	e.SetSource("/flint/default")
	e.SetSubject("jobs/pi-driver")
	e.SetTime(time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC))
	e.SetExtension("outcome", "succeeded")
	if err := e.SetData("application/json", map[string]string{"message": secret}); err != nil {
		t.Fatal(err)
	}
	return e
}

// recorder is a sink: it keeps what it gets and answers what it is told, the last answer for ever.
type recorder struct {
	t       testing.TB
	mu      sync.Mutex
	got     []event.Event
	headers []http.Header
	answers []http.HandlerFunc
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	e, err := cehttp.NewEventFromHTTPRequest(request)
	if err != nil {
		r.t.Errorf("the sink cannot read the event: %v", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.got = append(r.got, *e)
	r.headers = append(r.headers, request.Header)
	var answer http.HandlerFunc
	if n := len(r.answers); n > 0 {
		answer = r.answers[min(len(r.got), n)-1]
	}
	r.mu.Unlock()
	if answer == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	answer(w, request)
}

func (r *recorder) events() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *recorder) header(i int, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers[i].Get(name)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, "the sink says "+secret)
	}
}

func drop(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_ = conn.Close()
}

func newSink(t testing.TB, config Config) *Sink {
	t.Helper()
	var log bytes.Buffer
	if config.Log == nil {
		config.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		t.Cleanup(func() {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log gives a secret away:\n%s", log.String())
			}
		})
	}
	sink, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	return sink
}

// serve starts a sink that answers in turn.
func serve(t testing.TB, answers ...http.HandlerFunc) (*recorder, *httptest.Server) {
	t.Helper()
	r := &recorder{t: t, answers: answers}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return r, server
}

func failure(t *testing.T, err error) *Error {
	t.Helper()
	var failed *Error
	if !errors.As(err, &failed) {
		t.Fatalf("Send() = %v, want an *Error", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the error gives a secret away: %v", err)
	}
	return failed
}

func TestEventArrivesWhole(t *testing.T) {
	r, server := serve(t)
	sink := newSink(t, Config{SinkURL: server.URL + "/default/broker?x=1", Overrides: `{"extensions":{"cluster":"eu1","outcome":"mine"}}`})
	sent := completion(t)
	before := sent.String()
	if err := sink.Send(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	want := completion(t)
	want.SetExtension("cluster", "eu1")
	want.SetExtension("outcome", "mine")
	if diff := cmp.Diff(want.String(), r.events()[0].String()); diff != "" {
		t.Errorf("event (-want +got)\n%s", diff)
	}
	for name, want := range map[string]string{"Ce-Id": "6f2a.succeeded", "Ce-Specversion": "1.0", "Content-Type": "application/json", "Authorization": "", "Accept-Encoding": ""} {
		if got := r.header(0, name); got != want {
			t.Errorf("%s = %q, want %q: binary mode", name, got, want)
		}
	}
	if sent.String() != before {
		t.Error("the caller's event was changed")
	}
}

// Knative's rule: what its own senders repeat, and what they do not.
func TestEveryStatus(t *testing.T) {
	repeated := []int{404, 408, 409, 429} // and 5xx
	for code := 200; code < 600; code++ {
		if http.StatusText(code) == "" && code != 599 && code != 299 && code != 499 {
			continue
		}
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			r, server := serve(t, status(code))
			clock := newInstant()
			var attempts []int
			sink := newSink(t, Config{SinkURL: server.URL, Clock: clock, Attempts: 4, Backoff: steady,
				Attempted: func(status int, _ time.Duration) { attempts = append(attempts, status) }})
			err := sink.Send(t.Context(), completion(t))
			tries := 1
			switch {
			case code < 300:
				if err != nil {
					t.Fatalf("Send() = %v", err)
				}
			case code >= 500 || slices.Contains(repeated, code):
				tries = 4
				if failed := failure(t, err); failed.Final || failed.Status != code || failed.Attempts != 4 || !strings.Contains(err.Error(), strconv.Itoa(code)) {
					t.Errorf("Send() = %+v", failed)
				}
				if diff := cmp.Diff([]time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, clock.waits); diff != "" {
					t.Errorf("waits (-want +got)\n%s", diff)
				}
			default:
				if failed := failure(t, err); !failed.Final || failed.Status != code || failed.Attempts != 1 {
					t.Errorf("Send() = %+v", failed)
				}
			}
			if got := r.events(); len(got) != tries {
				t.Errorf("the sink got %d events, want %d", len(got), tries)
			}
			if len(attempts) != tries || attempts[0] != code {
				t.Errorf("told of attempts %v", attempts)
			}
		})
	}
}

func TestRepeatsHaveTheSameID(t *testing.T) {
	r, server := serve(t, status(503), drop, status(429), status(202))
	clock := newInstant()
	sink := newSink(t, Config{SinkURL: server.URL, Clock: clock})
	if err := sink.Send(t.Context(), completion(t)); err != nil {
		t.Fatal(err)
	}
	got := r.events()
	if len(got) != 4 {
		t.Fatalf("the sink got %d events, want 4", len(got))
	}
	for _, e := range got {
		if diff := cmp.Diff(got[0].String(), e.String()); diff != "" {
			t.Errorf("a repeat differs (-first +repeat)\n%s", diff)
		}
	}
	least := 200 * time.Millisecond
	for i, wait := range clock.waits {
		if wait < least || wait > least*3/2 {
			t.Errorf("wait %d = %v, want %v and up to half of it", i, wait, least)
		}
		least *= 2
	}
}

func TestRetryAfter(t *testing.T) {
	now := newInstant().Now()
	for name, tc := range map[string]struct {
		header string
		want   time.Duration
		asked  time.Duration
	}{
		"seconds":              {"7", 7 * time.Second, 7 * time.Second},
		"less than our own":    {"0", time.Second, 0},
		"a date":               {now.Add(9 * time.Second).Format(http.TimeFormat), 9 * time.Second, 9 * time.Second},
		"a date that is past":  {now.Add(-time.Hour).Format(http.TimeFormat), time.Second, 0},
		"longer than we wait":  {"86400", 30 * time.Second, 24 * time.Hour},
		"beyond any number":    {"99999999999999999999", time.Second, 0},
		"negative":             {"-5", time.Second, 0},
		"neither of the forms": {"soon", time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", tc.header)
				w.WriteHeader(http.StatusTooManyRequests)
			}
			_, server := serve(t, answer, answer)
			clock := newInstant()
			sink := newSink(t, Config{SinkURL: server.URL, Clock: clock, Backoff: steady, Attempts: 2})
			failed := failure(t, sink.Send(t.Context(), completion(t)))
			if diff := cmp.Diff([]time.Duration{tc.want}, clock.waits); diff != "" {
				t.Errorf("waits (-want +got)\n%s", diff)
			}
			// The first answer's date is nearer when the second is read.
			if failed.RetryAfter != tc.asked && failed.RetryAfter != tc.asked-tc.want {
				t.Errorf("RetryAfter = %v, want %v", failed.RetryAfter, tc.asked)
			}
		})
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	var visited atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Add(1) }))
	defer other.Close()
	for _, location := range []string{other.URL, "://no-url", ""} {
		r, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", location)
			w.WriteHeader(http.StatusTemporaryRedirect)
		})
		sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant()})
		failed := failure(t, sink.Send(t.Context(), completion(t)))
		if !failed.Final || failed.Status != http.StatusTemporaryRedirect || len(r.events()) != 1 {
			t.Errorf("Send() = %+v after %d requests", failed, len(r.events()))
		}
	}
	if visited.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

// A sink that takes the request and never answers costs one attempt's time, each time.
func TestSinkThatHangs(t *testing.T) {
	release := make(chan struct{})
	_, server := serve(t, func(_ http.ResponseWriter, request *http.Request) {
		select {
		case <-release:
		case <-request.Context().Done():
		}
	})
	defer close(release)
	var attempts []int
	sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant(), Timeout: 50 * time.Millisecond, Attempts: 2,
		Attempted: func(status int, _ time.Duration) { attempts = append(attempts, status) }})
	err := sink.Send(t.Context(), completion(t))
	if failed := failure(t, err); failed.Final || failed.Status != 0 || failed.Attempts != 2 || !strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("Send() = %v", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Send() = %v, which reads as the end of the caller's own time", err)
	}
	if diff := cmp.Diff([]int{0, 0}, attempts); diff != "" {
		t.Errorf("attempts (-want +got)\n%s", diff)
	}
}

func TestContextEndsAnAttempt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, server := serve(t, func(_ http.ResponseWriter, request *http.Request) {
		cancel()
		<-request.Context().Done()
	})
	sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant()})
	err := sink.Send(ctx, completion(t))
	if failed := failure(t, err); failed.Final || failed.Attempts != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("Send() = %v", err)
	}
}

// ending is a clock whose timers never end, and whose first one cancels the caller's time.
type ending struct {
	clock.RealClock
	cancel context.CancelFunc
	fake   *clocktesting.FakeClock
}

func (c *ending) NewTimer(d time.Duration) clock.Timer {
	c.cancel()
	return c.fake.NewTimer(d)
}

func TestContextEndsAWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	clock := &ending{cancel: cancel, fake: clocktesting.NewFakeClock(time.Now())}
	r, server := serve(t, status(503))
	sink := newSink(t, Config{SinkURL: server.URL, Clock: clock})
	err := sink.Send(ctx, completion(t))
	if failed := failure(t, err); failed.Status != 503 || failed.Attempts != 1 || !errors.Is(err, context.Canceled) {
		t.Errorf("Send() = %v", err)
	}
	if clock.fake.HasWaiters() {
		t.Error("the timer is still running")
	}
	if err := sink.Send(ctx, completion(t)); !errors.Is(err, context.Canceled) || failure(t, err).Attempts != 0 {
		t.Errorf("Send() of a context that has ended = %v", err)
	}
	if len(r.events()) != 1 {
		t.Errorf("the sink got %d events, want 1", len(r.events()))
	}
}

func TestSinkThatIsNotThere(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	sink := newSink(t, Config{SinkURL: "http://user:" + secret + "@" + address + "/?key=" + secret, Clock: newInstant(), Attempts: 3})
	if failed := failure(t, sink.Send(t.Context(), completion(t))); failed.Final || failed.Status != 0 || failed.Attempts != 3 {
		t.Errorf("Send() = %+v", failed)
	}
}

// An acknowledgement is one, whatever follows it.
func TestBodyOfTheAnswerIsBounded(t *testing.T) {
	chunk := bytes.Repeat([]byte("x"), 32<<10)
	for name, body := range map[string]func(w http.ResponseWriter, r *http.Request){
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		},
		"cut": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"hangs": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				body(w, r)
			})
			limit := time.Minute
			if name == "hangs" {
				limit = 2 * time.Second // this one is waited for
			}
			sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant(), Timeout: limit})
			began := time.Now()
			if err := sink.Send(t.Context(), completion(t)); err != nil {
				t.Errorf("Send() = %v", err)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("Send() took %v", took)
			}
			if len(r.events()) != 1 {
				t.Errorf("the sink got %d events, want 1", len(r.events()))
			}
		})
	}
}

func TestConnectionIsReused(t *testing.T) {
	r := &recorder{t: t, answers: []http.HandlerFunc{status(200)}}
	server := httptest.NewUnstartedServer(r)
	var opened atomic.Int32
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	sink := newSink(t, Config{SinkURL: server.URL})
	for range 20 {
		if err := sink.Send(t.Context(), completion(t)); err != nil {
			t.Fatal(err)
		}
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections for 20 events one after another, want 1", opened.Load())
	}
}

func TestManyAtOnce(t *testing.T) {
	var n atomic.Int32
	r, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%3 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant(), Attempts: 20, Log: slog.New(slog.DiscardHandler)})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			e := completion(t)
			e.SetID(strconv.Itoa(i))
			if err := sink.Send(t.Context(), e); err != nil {
				t.Errorf("Send(%d) = %v", i, err)
			}
		})
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, e := range r.events() {
		ids[e.ID()] = true
	}
	if len(ids) != 100 {
		t.Errorf("the sink got %d different events, want 100", len(ids))
	}
}

func TestTokenIsReadForEachRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(w http.ResponseWriter, _ *http.Request) {
		write(secret + "-2\n")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r, server := serve(t, status(200), rotate, status(200), status(401))
	sink := newSink(t, Config{SinkURL: server.URL, TokenFile: path, Clock: newInstant(), Attempts: 2})
	if err := sink.Send(t.Context(), completion(t)); err != nil {
		t.Fatalf("Send() without a token file = %v", err)
	}
	write(secret + "-1")
	if err := sink.Send(t.Context(), completion(t)); err != nil {
		t.Fatalf("Send() with a token that is renewed = %v", err)
	}
	for i, want := range []string{"", "Bearer " + secret + "-1", "Bearer " + secret + "-2"} {
		if got := r.header(i, "Authorization"); got != want {
			t.Errorf("Authorization of request %d = %q, want %q", i, got, want)
		}
	}
	if failed := failure(t, sink.Send(t.Context(), completion(t))); !failed.Final || failed.Status != 401 {
		t.Errorf("Send() with a token that is refused = %+v", failed)
	}
	// A file without a token in it is being written: nothing is sent without one.
	for _, text := range []string{" \n", secret + "\n" + secret} {
		write(text)
		failed := failure(t, sink.Send(t.Context(), completion(t)))
		if failed.Final || failed.Attempts != 2 || !strings.Contains(failed.Error(), path) {
			t.Errorf("Send() with the token file %q = %v", text, failed)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if failed := failure(t, sink.Send(t.Context(), completion(t))); failed.Final {
		t.Errorf("Send() with an unreadable token file = %v", failed)
	}
	if len(r.events()) != 4 {
		t.Errorf("the sink got %d events, want 4", len(r.events()))
	}
}

func TestWithoutASinkAnEventIsALogLine(t *testing.T) {
	var log bytes.Buffer
	sink := newSink(t, Config{Log: slog.New(slog.NewJSONHandler(&log, nil)), Overrides: `{"extensions":{"cluster":"eu1"}}`})
	if err := sink.Send(t.Context(), completion(t)); err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal(log.Bytes(), &line); err != nil {
		t.Fatalf("not one line of JSON: %v\n%s", err, log.String())
	}
	delete(line, "time")
	want := map[string]any{"level": "INFO", "msg": "event without a sink", "type": "dev.flint.spark.succeeded.v1", "id": "6f2a.succeeded", "subject": "jobs/pi-driver", "outcome": "succeeded"}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("log line (-want +got)\n%s", diff)
	}
}

func TestEventThatNobodyCanTake(t *testing.T) {
	r, server := serve(t)
	for name, change := range map[string]func(*event.Event){
		"no attributes":   func(e *event.Event) { e.Context = nil },
		"no id":           func(e *event.Event) { e.Context.(*event.EventContextV1).ID = "" },
		"bad extension":   func(e *event.Event) { e.SetExtension("not-a-name", "x") },
		"a line break":    func(e *event.Event) { e.SetSubject("a\r\nAuthorization: " + secret) },
		"in an extension": func(e *event.Event) { e.SetExtension("launchid", "a\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, url := range []string{server.URL, ""} {
				e := completion(t)
				change(&e)
				sink := newSink(t, Config{SinkURL: url, Clock: newInstant()})
				if failed := failure(t, sink.Send(t.Context(), e)); !failed.Final || failed.Attempts != 0 {
					t.Errorf("Send() = %+v", failed)
				}
			}
		})
	}
	if len(r.events()) != 0 {
		t.Error("the sink got an event")
	}
}

func TestEventWithoutData(t *testing.T) {
	r, server := serve(t)
	e := event.New()
	e.SetID("1")
	e.SetType("t")
	e.SetSource("/s")
	if err := newSink(t, Config{SinkURL: server.URL}).Send(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if got := r.events()[0]; len(got.Data()) != 0 || got.ID() != "1" {
		t.Errorf("event = %s", got)
	}
}

func TestNewNamesWhatIsAtFault(t *testing.T) {
	for name, tc := range map[string]struct {
		config Config
		want   []string
	}{
		"scheme":     {Config{SinkURL: "kafka://x"}, []string{"K_SINK"}},
		"no host":    {Config{SinkURL: "http:///default"}, []string{"K_SINK"}},
		"no URL":     {Config{SinkURL: "http://a:" + secret + "@[::1"}, []string{"K_SINK"}},
		"relative":   {Config{SinkURL: "/default/broker"}, []string{"K_SINK"}},
		"no PEM":     {Config{SinkURL: "https://x", CACerts: secret}, []string{"K_CA_CERTS"}},
		"no JSON":    {Config{Overrides: "{"}, []string{"K_CE_OVERRIDES"}},
		"everything": {Config{SinkURL: "x", CACerts: "x", Overrides: "x"}, []string{"K_SINK", "K_CA_CERTS", "K_CE_OVERRIDES"}},
	} {
		t.Run(name, func(t *testing.T) {
			sink, err := New(tc.config)
			if err == nil {
				sink.Close()
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("New() = %v, want it to name %s", err, want)
				}
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("New() = %v, which gives a secret away", err)
			}
		})
	}
}

func TestAnswerHeaderIsBounded(t *testing.T) {
	_, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
	})
	sink := newSink(t, Config{SinkURL: server.URL, Clock: newInstant(), Attempts: 1})
	if failed := failure(t, sink.Send(t.Context(), completion(t))); failed.Status != 0 {
		t.Errorf("Send() = %v", failed)
	}
}

// The trace context is an extension and, for what knows nothing of CloudEvents, a header. A broken one is no header.
func TestTraceparent(t *testing.T) {
	const context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, tc := range map[string]struct{ extension, header string }{
		"none":   {"", ""},
		"whole":  {context, context},
		"broken": {"00-0af7651916cd43dd8448eb211c80319c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{t: t}
			server := httptest.NewServer(r)
			defer server.Close()
			s, err := New(Config{SinkURL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			e := completion(t)
			if tc.extension != "" {
				e.SetExtension("traceparent", tc.extension)
			}
			if err := s.Send(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if got := r.headers[0]; got.Get("Traceparent") != tc.header || got.Get("Ce-Traceparent") != tc.extension {
				t.Errorf("Traceparent %q, extension %q", got.Get("Traceparent"), got.Get("Ce-Traceparent"))
			}
		})
	}
}
