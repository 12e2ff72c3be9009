package events

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// identity is a server's certificate with the authority that signed it.
type identity struct {
	trust string // PEM
	pair  tls.Certificate
}

func newIdentity(t *testing.T) identity {
	t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	return identity{string(chain), pair}
}

// secure starts a sink over TLS, and gives what changes its certificate for new connections.
func secure(t *testing.T, first identity) (*recorder, *httptest.Server, *atomic.Pointer[tls.Certificate]) {
	t.Helper()
	r := &recorder{t: t}
	server := httptest.NewUnstartedServer(r)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&first.pair)
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return r, server, &shown
}

func TestCertificatesOfTheSink(t *testing.T) {
	first, second := newIdentity(t), newIdentity(t)
	r, server, shown := secure(t, first)
	send := func(config Config) error {
		config.SinkURL, config.Attempts = server.URL, 1
		sink := newSink(t, config)
		defer sink.Close()
		return sink.Send(t.Context(), completion(t))
	}
	if err := send(Config{}); failure(t, err).Status != 0 || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Send() to a sink of an unknown authority = %v", err)
	}
	if err := send(Config{CACerts: first.trust}); err != nil {
		t.Errorf("Send() with K_CA_CERTS = %v", err)
	}
	if err := send(Config{CACerts: second.trust}); failure(t, err).Final {
		t.Errorf("Send() with another authority = %v, want it worth another try", err)
	}
	folder := t.TempDir()
	write(t, folder, "one.pem", first.trust)
	write(t, folder, "two.pem", second.trust)
	for _, id := range []identity{first, second} {
		shown.Store(&id.pair)
		if err := send(Config{CACerts: first.trust, BundleDir: folder}); err != nil {
			t.Errorf("Send() with K_CA_CERTS and bundles = %v", err)
		}
	}
	if got := len(r.events()); got != 3 {
		t.Errorf("the sink got %d events, want 3", got)
	}
}

// The bundles are changed as kubelet changes a volume: a link to a folder is renamed over the last one.
func TestBundlesAreReadAgain(t *testing.T) {
	first, second := newIdentity(t), newIdentity(t)
	_, server, shown := secure(t, first)
	volume := t.TempDir()
	mount := func(version string, files map[string]string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(volume, version), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, content := range files {
			write(t, filepath.Join(volume, version), name, content)
			if err := os.Symlink(filepath.Join("..data", name), filepath.Join(volume, name)); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		temporary := filepath.Join(volume, "..data_tmp")
		if err := os.Symlink(version, temporary); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	sink := newSink(t, Config{SinkURL: server.URL, BundleDir: volume, Attempts: 1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	send := func() error { return sink.Send(t.Context(), completion(t)) }

	if err := send(); err == nil {
		t.Fatal("Send() before there is a bundle succeeded")
	}
	mount("..1", map[string]string{"ca.pem": first.trust, "notes.txt": "no certificate, and not looked at", "junk.pem": "no certificate"})
	for range 3 {
		if err := send(); err != nil {
			t.Fatalf("Send() with the first authority = %v", err)
		}
	}
	if warnings := strings.Count(log.String(), "trust bundle without a certificate"); warnings != 1 || !strings.Contains(log.String(), "junk.pem") {
		t.Errorf("%d warnings about junk.pem, want one:\n%s", warnings, log.String())
	}
	shown.Store(&second.pair)
	if err := send(); err != nil {
		t.Fatalf("Send() on the connection that is open = %v", err)
	}
	// Trust that was taken away ends the connection that came of it, too.
	mount("..2", map[string]string{"ca.pem": second.trust})
	if err := send(); err != nil {
		t.Fatalf("Send() with the second authority = %v", err)
	}
	mount("..3", map[string]string{"ca.pem": first.trust})
	if err := send(); err == nil {
		t.Fatal("Send() after the authority was taken away succeeded")
	}
}

// A connection ends when the trust that it was made in does, and when the Sink is closed.
func TestConnectionsEnd(t *testing.T) {
	id := newIdentity(t)
	server := httptest.NewUnstartedServer(&recorder{t: t})
	server.TLS = &tls.Config{Certificates: []tls.Certificate{id.pair}}
	closed := make(chan struct{}, 10)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.StartTLS()
	defer server.Close()
	folder := t.TempDir()
	sink := newSink(t, Config{SinkURL: server.URL, CACerts: id.trust, BundleDir: folder})
	send := func() {
		t.Helper()
		if err := sink.Send(t.Context(), completion(t)); err != nil {
			t.Fatal(err)
		}
	}
	awaitClosed := func(why string) {
		t.Helper()
		select {
		case <-closed:
		case <-time.After(10 * time.Second):
			t.Fatalf("the connection is still open after %s", why)
		}
	}
	send()
	write(t, folder, "more.pem", id.trust)
	send()
	awaitClosed("the bundles have changed")
	sink.Close()
	awaitClosed("Close")
}

func TestBundleThatCannotBeRead(t *testing.T) {
	id := newIdentity(t)
	_, server, _ := secure(t, id)
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "ca.pem"), 0o700); err != nil {
		t.Fatal(err)
	}
	sink := newSink(t, Config{SinkURL: server.URL, CACerts: id.trust, BundleDir: folder, Clock: newInstant(), Attempts: 2})
	if failed := failure(t, sink.Send(t.Context(), completion(t))); failed.Final || failed.Attempts != 2 {
		t.Errorf("Send() = %+v", failed)
	}
	file := filepath.Join(folder, "file")
	write(t, folder, "file", "")
	sink = newSink(t, Config{SinkURL: server.URL, CACerts: id.trust, BundleDir: file, Clock: newInstant(), Attempts: 1})
	if failed := failure(t, sink.Send(t.Context(), completion(t))); failed.Final {
		t.Errorf("Send() = %+v", failed)
	}
}

func write(t *testing.T, folder, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
