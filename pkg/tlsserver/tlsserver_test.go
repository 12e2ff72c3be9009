package tlsserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"flint.dev/flint/pkg/tlsserver"
	"flint.dev/flint/test/certificates"
)

// served is a running server, its clock and its log.
type served struct {
	*tlsserver.Server
	url   string
	clock *clocktesting.FakePassiveClock
	log   *buffer
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// passes lets the server look at its files again.
func (s *served) passes() { s.clock.SetTime(s.clock.Now().Add(time.Minute)) }

func start(t *testing.T, pair certificates.Pair, clientCA string, handler http.HandlerFunc) *served {
	t.Helper()
	s := &served{clock: clocktesting.NewFakePassiveClock(time.Now()), log: &buffer{}}
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, "%s %d certificates", r.Proto, len(r.TLS.PeerCertificates))
		}
	}
	server, err := tlsserver.Start(t.Context(), tlsserver.Config{
		Address: "127.0.0.1:0", CertFile: pair.Cert, KeyFile: pair.Key, ClientCAFile: clientCA,
		Server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, Clock: s.clock, Log: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(within(t)); err != nil {
			t.Error(err)
		}
	})
	s.Server, s.url = server, "https://"+server.Addr().String()
	return s
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// client is the operator's.
func client(t *testing.T, authority string, own certificates.Pair) *http.Client {
	t.Helper()
	transport, err := certificates.Transport(authority, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(within(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestWhoGetsAConnection(t *testing.T) {
	t.Parallel()
	ours, theirs := certificates.NewAuthority(t), certificates.NewAuthority(t)
	good := ours.Issue(t, t.TempDir(), "flint", nil)
	cases := map[string]struct {
		server   certificates.Pair
		clientCA string
		trusts   string
		own      certificates.Pair
		answer   string
		err      string
	}{
		"server verification only": {good, "", ours.File, certificates.Pair{}, "HTTP/1.1 0 certificates", ""},
		"a certificate that nobody asks for": {good, "", ours.File, ours.Issue(t, t.TempDir(), "operator", nil),
			"HTTP/1.1 0 certificates", ""},
		"mutual":                   {good, ours.File, ours.File, ours.Issue(t, t.TempDir(), "operator", nil), "HTTP/1.1 1 certificates", ""},
		"the client wants another": {good, "", theirs.File, certificates.Pair{}, "", "unknown authority"},
		"the server's has expired": {ours.Issue(t, t.TempDir(), "flint", certificates.Expired), "", ours.File, certificates.Pair{}, "", "expired"},
		"no client certificate":    {good, ours.File, ours.File, certificates.Pair{}, "", "certificate required"},
		"a client of another CA":   {good, ours.File, ours.File, theirs.Issue(t, t.TempDir(), "operator", nil), "", "certificate"},
		"the client's has expired": {good, ours.File, ours.File, ours.Issue(t, t.TempDir(), "operator", certificates.Expired), "", "expired"},
		"the client's is a server's": {good, ours.File, ours.File, ours.Issue(t, t.TempDir(), "operator", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), "", "certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tc.server, tc.clientCA, nil)
			answer, err := get(t, client(t, tc.trusts, tc.own), s.url)
			if tc.err == "" && (err != nil || answer != tc.answer) {
				t.Errorf("answer %q, %v", answer, err)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("answer %q, error %v, want %q in it", answer, err, tc.err)
			}
		})
	}
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	s := start(t, ca.Issue(t, t.TempDir(), "flint", nil), "", nil)
	two := client(t, ca.File, certificates.Pair{})
	two.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	if answer, err := get(t, two, s.url); err != nil || answer != "HTTP/2.0 0 certificates" {
		t.Errorf("answer %q, %v", answer, err)
	}
	for version, taken := range map[uint16]bool{tls.VersionTLS13: true, tls.VersionTLS12: true, tls.VersionTLS11: false, tls.VersionTLS10: false} {
		old := client(t, ca.File, certificates.Pair{})
		config := old.Transport.(*http.Transport).TLSClientConfig
		config.MinVersion, config.MaxVersion = version, version
		answer, err := get(t, old, s.url)
		if taken && (err != nil || answer == "") || !taken && (err == nil || !strings.Contains(err.Error(), "protocol version")) {
			t.Errorf("%s: answer %q, %v", tls.VersionName(version), answer, err)
		}
	}
	// What speaks no TLS gets no answer of the function's.
	plain, err := get(t, &http.Client{}, "http://"+s.Addr().String())
	if err != nil || !strings.Contains(plain, "HTTP request to an HTTPS server") {
		t.Errorf("plain: %q, %v", plain, err)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	good, other := ca.Issue(t, t.TempDir(), "flint", nil), ca.Issue(t, t.TempDir(), "flint", nil)
	for name, tc := range map[string]struct {
		config tlsserver.Config
		says   string
	}{
		"no certificate":         {tlsserver.Config{Address: "127.0.0.1:0", CertFile: "/none", KeyFile: good.Key}, "/none"},
		"no key":                 {tlsserver.Config{Address: "127.0.0.1:0", CertFile: good.Cert, KeyFile: "/none"}, "/none"},
		"another's key":          {tlsserver.Config{Address: "127.0.0.1:0", CertFile: good.Cert, KeyFile: other.Key}, "does not match"},
		"authorities without":    {tlsserver.Config{Address: "127.0.0.1:0", CertFile: good.Cert, KeyFile: good.Key, ClientCAFile: good.Key}, "no certificate in"},
		"an address that is not": {tlsserver.Config{Address: "127.0.0.1:none", CertFile: good.Cert, KeyFile: good.Key}, "listen with TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.Server, tc.config.Clock, tc.config.Log = &http.Server{ReadHeaderTimeout: time.Second}, clocktesting.NewFakePassiveClock(time.Now()), slog.New(slog.DiscardHandler)
			if _, err := tlsserver.Start(t.Context(), tc.config); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %q in it", err, tc.says)
			}
		})
	}
}

// serial is the serial number of the certificate that a new connection gets.
func serial(t *testing.T, s *served) string {
	t.Helper()
	connection, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(within(t), "tcp", s.Addr().String()) // only the number is looked at
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestFilesAreReadAnew(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	folder := t.TempDir()
	pair := ca.Issue(t, folder, "flint", nil)
	s := start(t, pair, "", nil)
	first := serial(t, s)

	ca.Issue(t, folder, "flint", nil)
	if got := serial(t, s); got != first {
		t.Error("the files are read for each connection")
	}
	s.passes()
	second := serial(t, s)
	if second == first {
		t.Error("the certificate was replaced, and the old one is served")
	}

	// Half of it written, and then nothing at all: the last good one stays, and each fault is told once.
	half := ca.Issue(t, t.TempDir(), "flint", nil)
	for _, damage := range []func() error{
		func() error {
			text, err := os.ReadFile(half.Cert)
			return errors.Join(err, os.WriteFile(pair.Cert, text, 0o600))
		},
		func() error { return os.Remove(pair.Key) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.passes()
			if got := serial(t, s); got != second {
				t.Error("another certificate is served")
			}
		}
	}
	if got := s.log.String(); strings.Count(got, "cannot be read anew") != 2 || strings.Count(got, "does not match") != 1 || strings.Count(got, "no such file") != 1 {
		t.Errorf("2 faults, told so:\n%s", got)
	}
	ca.Issue(t, folder, "flint", nil)
	s.passes()
	if got := serial(t, s); got == second || got == first {
		t.Error("healed, and an old one is served")
	}
}

// A volume of Kubernetes: tls.crt is a link to ..data/tls.crt, and ..data a link that is renamed over.
func TestVolumeIsSwapped(t *testing.T) {
	t.Parallel()
	ours, theirs := certificates.NewAuthority(t), certificates.NewAuthority(t)
	volume := t.TempDir()
	publish := func(version string, clients *certificates.Authority) {
		t.Helper()
		folder := filepath.Join(volume, version)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		ours.Issue(t, folder, "flint", nil)
		text, err := os.ReadFile(clients.File)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "ca.crt"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(version, filepath.Join(volume, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", ours)
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, certificates.Pair{Cert: filepath.Join(volume, "tls.crt"), Key: filepath.Join(volume, "tls.key")}, filepath.Join(volume, "ca.crt"), nil)
	old, fresh := ours.Issue(t, t.TempDir(), "operator", nil), theirs.Issue(t, t.TempDir(), "operator", nil)
	oldClient := client(t, ours.File, old)
	if _, err := get(t, oldClient, s.url); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, client(t, ours.File, fresh), s.url); err == nil {
		t.Error("a client of an authority that is not there yet got in")
	}

	publish("..2", theirs)
	s.passes()
	if _, err := get(t, client(t, ours.File, fresh), s.url); err != nil {
		t.Errorf("a client of the new authority: %v", err)
	}
	oldClient.CloseIdleConnections()
	if _, err := get(t, oldClient, s.url); err == nil {
		t.Error("a client of the authority that was taken out got in")
	}
}

// verifiedAs tells by how many chains the request's certificate is good.
func verifiedAs(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "%s %d of %d", r.Proto, len(r.TLS.VerifiedChains), len(r.TLS.PeerCertificates))
}

// A connection does not outlive what its client's certificate is good by: its next request is one of nobody, and its last.
func TestOpenConnections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		happens func(t *testing.T, s *served, authorities string)
		want    string // of each protocol
	}{
		"nothing": {func(*testing.T, *served, string) {}, "1 of 1"},
		"another authority comes": {func(t *testing.T, _ *served, authorities string) {
			appendTo(t, authorities, certificates.NewAuthority(t).File)
		}, "1 of 1"},
		"the authority is replaced": {func(t *testing.T, _ *served, authorities string) {
			if err := os.Remove(authorities); err != nil {
				t.Fatal(err)
			}
			appendTo(t, authorities, certificates.NewAuthority(t).File)
		}, "0 of 1"},
		"the certificate expires": {func(_ *testing.T, s *served, _ string) { s.clock.SetTime(time.Now().Add(25 * time.Hour)) }, "0 of 1"},
		"the authority expires":   {func(_ *testing.T, s *served, _ string) { s.clock.SetTime(time.Now().Add(49 * time.Hour)) }, "0 of 1"},
	} {
		for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
			t.Run(name+", "+protocol, func(t *testing.T) {
				t.Parallel()
				ca := certificates.NewAuthority(t)
				authorities := filepath.Join(t.TempDir(), "ca.crt")
				appendTo(t, authorities, ca.File)
				s := start(t, ca.Issue(t, t.TempDir(), "flint", nil), authorities, verifiedAs)
				c := client(t, ca.File, ca.Issue(t, t.TempDir(), "operator", nil))
				c.Transport.(*http.Transport).ForceAttemptHTTP2 = protocol == "HTTP/2.0"
				dials := 0
				c.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					dials++
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}
				ask := func(want string) {
					t.Helper()
					if answer, err := get(t, c, s.url); err != nil || answer != protocol+" "+want || dials != 1 {
						t.Errorf("answer %q, want %q, %v, %d connections", answer, want, err, dials)
					}
				}
				ask("1 of 1")
				s.passes()
				tc.happens(t, s, authorities)
				ask(tc.want)
				if tc.want == "1 of 1" {
					ask(tc.want)
					return
				}
				_, _ = get(t, c, s.url)
				if dials < 2 {
					t.Error("the connection is kept")
				}
			})
		}
	}
}

func appendTo(t *testing.T, path, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(before, text...), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A ticket would let in a client whose authority has been removed, or who has none.
func TestNoSessionIsResumed(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	own := ca.Issue(t, t.TempDir(), "operator", nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			t.Parallel()
			s := start(t, ca.Issue(t, t.TempDir(), "flint", nil), ca.File, nil)
			c := client(t, ca.File, own)
			config := c.Transport.(*http.Transport).TLSClientConfig
			config.MinVersion, config.MaxVersion, config.ClientSessionCache = version, version, tls.NewLRUClientSessionCache(8)
			for range 3 {
				request, err := http.NewRequestWithContext(within(t), http.MethodGet, s.url, nil)
				if err != nil {
					t.Fatal(err)
				}
				response, err := c.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if response.TLS.DidResume {
					t.Error("a session was resumed")
				}
				c.CloseIdleConnections()
			}
		})
	}
}

// Files that are being written are not taken for what there is of them.
func TestHalfWrittenFiles(t *testing.T) {
	t.Parallel()
	ours, theirs := certificates.NewAuthority(t), certificates.NewAuthority(t)
	folder := t.TempDir()
	authorities := filepath.Join(folder, "ca.crt")
	appendTo(t, authorities, ours.File)
	appendTo(t, authorities, theirs.File)
	pair := ours.Issue(t, folder, "flint", nil)
	appendTo(t, pair.Cert, ours.File)
	s := start(t, pair, authorities, nil)
	for _, path := range []string{pair.Cert, authorities} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, damaged := range [][]byte{text[:len(text)-40], bytes.Replace(text, []byte("-----END"), []byte("----"), 1), text[:len(text)*3/4]} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			s.passes()
			for name, ca := range map[string]*certificates.Authority{"ours": ours, "theirs": theirs} {
				if _, err := get(t, client(t, ours.File, ca.Issue(t, t.TempDir(), "operator", nil)), s.url); err != nil {
					t.Errorf("%s, while %s is written: %v", name, filepath.Base(path), err)
				}
			}
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "broken, or cut off") {
		t.Errorf("the log does not say so:\n%s", log)
	}
}

// The certificate is replaced again and again under load, and no request is lost.
func TestReplacedUnderLoad(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	folder := t.TempDir()
	s := start(t, ca.Issue(t, folder, "flint", nil), ca.File, nil)
	own := ca.Issue(t, t.TempDir(), "operator", nil)
	const workers, replacements = 6, 20
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var work sync.WaitGroup
	seen := make([]map[string]bool, workers)
	requests := make([]int, workers)
	round := make(chan struct{}, workers) // one for each request on a new connection
	for n := range workers {
		c := client(t, ca.File, own)
		c.Transport.(*http.Transport).DisableKeepAlives = n%2 == 0
		seen[n] = map[string]bool{}
		work.Go(func() {
			for ctx.Err() == nil {
				request, err := http.NewRequestWithContext(within(t), http.MethodPost, s.url, strings.NewReader("x"))
				if err != nil {
					t.Error(err)
					return
				}
				response, err := c.Do(request)
				if err != nil {
					t.Errorf("a request was lost: %v", err)
					return
				}
				_, err = io.Copy(io.Discard, response.Body)
				if err = errors.Join(err, response.Body.Close()); err != nil {
					t.Error(err)
					return
				}
				requests[n]++
				seen[n][response.TLS.PeerCertificates[0].SerialNumber.String()] = true
				if n%2 == 0 {
					select {
					case round <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for range replacements {
		ca.Issue(t, folder, "flint", nil) // over the old one: a reader may meet the new certificate with the old key
		s.passes()
		for range workers {
			select {
			case <-round:
			case <-within(t).Done():
				t.Fatal("no requests any more")
			}
		}
	}
	stop()
	work.Wait()
	certificatesSeen := map[string]bool{}
	for _, of := range seen {
		for number := range of {
			certificatesSeen[number] = true
		}
	}
	if len(certificatesSeen) < replacements/2 || slices.Min(requests) == 0 {
		t.Errorf("%d certificates seen, requests of each worker: %v", len(certificatesSeen), requests)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	arrived, release := make(chan struct{}), make(chan struct{})
	s := start(t, ca.Issue(t, t.TempDir(), "flint", nil), "", func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "done")
	})
	type outcome struct {
		answer string
		err    error
	}
	inFlight := make(chan outcome, 1)
	go func() {
		answer, err := get(t, client(t, ca.File, certificates.Pair{}), s.url)
		inFlight <- outcome{answer, err}
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(within(t)) }()
	refused := within(t)
	for { // until nothing new is accepted
		connection, err := (&net.Dialer{}).DialContext(refused, "tcp", s.Addr().String())
		if err != nil {
			break
		}
		_ = connection.Close()
	}
	if refused.Err() != nil {
		t.Fatal("new connections are still taken")
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	close(release)
	if got := <-inFlight; got.err != nil || got.answer != "done" {
		t.Errorf("in flight: %+v", got)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	ca := certificates.NewAuthority(t)
	arrived := make(chan struct{})
	s := start(t, ca.Issue(t, t.TempDir(), "flint", nil), "", func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	lost := make(chan error, 1)
	go func() {
		_, err := get(t, client(t, ca.File, certificates.Pair{}), s.url)
		lost <- err
	}()
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if err := <-lost; err == nil {
		t.Error("a request that does not end was answered")
	}
}
