package events

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	maxIdle        = 32
	idleLimit      = 30 * time.Second // before a sink's own limit, which a request should not meet
	maxHeaderBytes = 64 << 10
)

// newTransport makes the connections to the target. Its error is about the certificates in the configuration.
func newTransport(config *Config, target *url.URL) (transport, error) {
	plain := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: config.Timeout, KeepAlive: idleLimit}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleLimit,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true, // the answer's body is dropped
	}
	if config.CACerts != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(config.CACerts)) {
		return nil, errors.New("has no certificate in PEM")
	}
	if target == nil || target.Scheme != "https" {
		return plain, nil
	}
	return &trusting{fixed: config.CACerts, folder: config.BundleDir, log: config.Log, transport: plain}, nil
}

// trusting is a transport that trusts the system's certificates, those given, and those in the folder's
// files *.pem. When these files have changed, the next request has a new transport, and
// connections that were made in another trust end, as in client-go/transport/ca_rotation.go; but
// the files are read for each request, since events are few and a renewed certificate must not cost one.
type trusting struct {
	fixed  string
	folder string
	log    *slog.Logger

	mu        sync.Mutex
	loaded    bool
	digest    [sha256.Size]byte // of the files that the transport trusts
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) {
	transport, err := t.current()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as the interface asks; it is memory
		}
		return nil, err
	}
	return transport.RoundTrip(r)
}

// CloseIdleConnections ends the connections that no request uses.
func (t *trusting) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.transport.CloseIdleConnections()
}

// current is the transport that trusts what the folder has now.
func (t *trusting) current() (*http.Transport, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bundles, err := readBundles(t.folder)
	if err != nil {
		return nil, fmt.Errorf("read the trust bundles: %w", err)
	}
	digest := digestOf(bundles)
	if t.loaded && digest == t.digest {
		return t.transport, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificates: %w", err)
	}
	pool.AppendCertsFromPEM([]byte(t.fixed)) // New has checked it
	for _, b := range bundles {
		if !pool.AppendCertsFromPEM(b.content) {
			t.log.Warn("trust bundle without a certificate", "file", b.path)
		}
	}
	next := t.transport.Clone()
	next.TLSClientConfig.RootCAs = pool
	t.transport.CloseIdleConnections()
	t.transport, t.digest, t.loaded = next, digest, true
	return next, nil
}

type bundle struct {
	path    string
	content []byte
}

// readBundles reads the folder's certificates. A folder that is not there has none, and a file that goes while it is read is gone.
func readBundles(folder string) ([]bundle, error) {
	if folder == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []bundle
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".pem" {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		content, err := os.ReadFile(path) //nolint:gosec // G304: a file in the folder that the operator of Flint names
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, bundle{path, content})
	}
	return found, nil
}

func digestOf(bundles []bundle) (digest [sha256.Size]byte) {
	hash := sha256.New()
	for _, b := range bundles {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(b.content))) // a hash never fails to write
		hash.Write(b.content)
	}
	hash.Sum(digest[:0])
	return digest
}
