package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPolicy(t *testing.T) {
	t.Parallel()
	public := Policy{}
	listed := Policy{Hosts: []string{"Files.example.org", "*.s3.example.com", "other.example.org:8443", "*.wild.example.org:444", "[2001:db8::1]:9000", "fd00::1"}}
	private := listed
	private.Private = true
	for url, want := range map[string]struct{ public, listed, private bool }{
		"https://example.org/x":             {public: true},
		"https://example.org:443/x?a=b":     {public: true},
		"https://example.org:8443/":         {},
		"http://example.org/":               {},
		"https://files.example.org/":        {true, true, true},
		"https://FILES.example.org./":       {true, true, true},
		"http://files.example.org/":         {private: true},
		"http://files.example.org:8080/":    {},
		"https://files.example.org:8443/":   {},
		"https://other.example.org:8443/":   {listed: true, private: true},
		"https://other.example.org/":        {public: true},
		"http://other.example.org:8443/":    {private: true},
		"https://b.s3.example.com/":         {true, true, true},
		"https://a.b.s3.example.com/":       {true, true, true},
		"https://s3.example.com/":           {public: true},
		"https://evils3.example.com/":       {public: true},
		"https://x.wild.example.org:444/":   {listed: true, private: true},
		"https://[2001:db8::1]:9000/":       {listed: true, private: true},
		"https://[fd00::1]/":                {true, true, true}, // the public one is refused when it is dialled
		"https://u:p@files.example.org/":    {},
		"https://u@files.example.org/":      {},
		"ftp://files.example.org/":          {},
		"file:///etc/passwd":                {},
		"//files.example.org/":              {},
		"files.example.org":                 {},
		"https:files.example.org":           {},
		"https://":                          {},
		"https://files.example.org\n/":      {},
		"https://files.example.org:443x/":   {},
		"https://files.example.org%2f.evil": {},
		"gopher://files.example.org:443/":   {},
	} {
		for name, c := range map[string]struct {
			policy Policy
			want   bool
		}{"public": {public, want.public}, "listed": {listed, want.listed}, "private": {private, want.private}} {
			_, err := c.policy.target(url)
			if (err == nil) != c.want {
				t.Errorf("%s, %q: %v, want allowed: %v", name, url, err, c.want)
			}
			var denied *PolicyError
			if err != nil && !errors.As(err, &denied) {
				t.Errorf("%s, %q: %T", name, url, err)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct{ public, private bool }{
		"8.8.8.8": {true, true}, "2606:4700::1111": {true, true}, "::ffff:8.8.8.8": {true, true}, "64:ff9b::808:808": {true, true},
		"10.1.2.3": {private: true}, "172.31.0.1": {private: true}, "172.32.0.1": {true, true}, "192.168.0.1": {private: true}, "100.64.0.1": {private: true},
		"127.0.0.1": {private: true}, "127.255.255.255": {private: true}, "::1": {private: true}, "169.254.169.254": {private: true},
		"::ffff:127.0.0.1": {private: true}, "::ffff:169.254.169.254": {private: true}, "fe80::1%eth0": {private: true}, "fd12::1": {private: true},
		"0.0.0.0": {}, "0.1.2.3": {}, "::": {}, "224.0.0.1": {}, "255.255.255.255": {}, "240.0.0.1": {}, "ff02::1": {}, "192.0.2.1": {}, "198.18.0.1": {},
		"2001:db8::1": {}, "2002:7f00:1::": {}, "2001::1": {}, "64:ff9b::7f00:1": {}, "64:ff9b::a9fe:a9fe": {}, "::127.0.0.1": {}, "fec0::1": {}, "4000::1": {},
	} {
		address := netip.MustParseAddr(text)
		if got := (&target{}).allows(address); got != want.public {
			t.Errorf("%s is allowed without private: %v", text, got)
		}
		if got := (&target{private: true}).allows(address); got != want.private {
			t.Errorf("%s is allowed with private: %v", text, got)
		}
	}
}

// client speaks to a server on loopback, without TLS.
func client(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	c, err := Network{Patience: 10 * time.Second}.Dial(Policy{Hosts: []string{host}, Private: true}, server.URL+"/x?secret", "token")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestGet(t *testing.T) {
	t.Parallel()
	content := []byte("0123456789")
	serving := func(header map[string]string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for key, value := range header {
				w.Header().Set(key, value)
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		}
	}
	answering := func(status int, header map[string]string, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for key, value := range header {
				w.Header().Set(key, value)
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	type get struct {
		from      int64
		resumable bool
		validator string
		body      string
	}
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		from      int64
		validator string
		want      *get // nil is a *Error
	}{
		"whole":                   {serving(map[string]string{"ETag": `"a"`}), 0, "", &get{0, true, `"a"`, "0123456789"}},
		"a part":                  {serving(map[string]string{"ETag": `"a"`}), 4, `"a"`, &get{4, true, `"a"`, "456789"}},
		"a part of another":       {serving(map[string]string{"ETag": `"b"`}), 4, `"a"`, &get{0, true, `"b"`, "0123456789"}},
		"weak names are none":     {serving(map[string]string{"ETag": `W/"a"`}), 4, "", &get{4, true, "", "456789"}},
		"no ranges":               {answering(200, nil, "0123456789"), 4, "", &get{0, false, "", "0123456789"}},
		"part of an unknown size": {answering(206, map[string]string{"Content-Range": "bytes 4-9/*"}, "456789"), 4, "", &get{4, true, "", "456789"}},
		"another part":            {answering(206, map[string]string{"Content-Range": "bytes 3-9/10"}, "3456789"), 4, "", nil},
		"a part of another size":  {answering(206, map[string]string{"Content-Range": "bytes 4-9/11"}, "456789"), 4, "", nil},
		"a part without a range":  {answering(206, nil, "456789"), 4, "", nil},
		"a range that is none":    {answering(206, map[string]string{"Content-Range": "bytes 4-1/10"}, ""), 4, "", nil},
		"no such part":            {serving(nil), 11, "", nil},
		"another size":            {answering(200, nil, "x"), 0, "", nil},
		"created":                 {answering(201, nil, "0123456789"), 0, "", nil},
		"redirect":                {answering(302, map[string]string{"Location": "/"}, ""), 0, "", nil},
		"not found":               {http.NotFound, 0, "", nil},
		"encoded":                 {answering(200, map[string]string{"Content-Encoding": "br"}, "0123456789"), 0, "", nil},
		"a header without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, 0, "", nil},
		"no HTTP": {func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "hello\r\n\r\n")
				_ = conn.Close()
			}
		}, 0, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := client(t, c.answer).Get(t.Context(), c.from, int64(len(content)), c.validator)
			if c.want == nil {
				var failed *Error
				if !errors.As(err, &failed) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "token") {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = source.Body.Close() }()
			body, err := io.ReadAll(source.Body)
			if got := (get{source.From, source.Resumable, source.Validator, string(body)}); err != nil || got != *c.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestPutContentFails(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("the disk: %w", io.ErrNoProgress)
	for name, content := range map[string]io.Reader{
		"breaks": io.MultiReader(strings.NewReader("1234"), failing{broken}),
		"short":  strings.NewReader("1234"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := make(chan bool, 1)
			c := client(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				whole <- err == nil
			})
			err := c.Put(t.Context(), 10, content)
			if want := map[string]error{"breaks": broken, "short": io.ErrUnexpectedEOF}[name]; !errors.Is(err, want) {
				t.Errorf("got %v", err)
			}
			if <-whole {
				t.Error("the other end took it for whole")
			}
		})
	}
}

func TestPutRefusedBeforeItBegins(t *testing.T) {
	t.Parallel()
	content := &tally{}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	err := c.Put(t.Context(), 1<<30, content)
	var failed *Error
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), "403") {
		t.Errorf("got %v", err)
	}
	if content.n != 0 {
		t.Errorf("%d bytes were sent", content.n)
	}
}

// tally gives bytes without end, and counts them.
type tally struct{ n int }

func (a *tally) Read(p []byte) (int, error) {
	a.n += len(p)
	return len(p), nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	host := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	c, err := Network{}.Dial(Policy{Hosts: []string{host}, Private: true}, server.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	var failed *Error
	if _, err := c.Get(t.Context(), 0, 1, ""); !errors.As(err, &failed) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
	if err := c.Put(t.Context(), 1, strings.NewReader("x")); !errors.As(err, &failed) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, 0, 1, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := c.Put(ctx, 1, strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
