package tlsserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// lookEvery is how long what was read is taken for what there is.
const lookEvery = time.Second

// files are the certificate, its key and the authorities of clients, as they were last read whole.
type files struct {
	cert, key, clientCA string
	clock               clock.PassiveClock
	log                 *slog.Logger

	mu     sync.Mutex
	looked time.Time
	texts  [][]byte
	config *tls.Config
	fault  string // of the last look; each is logged once
}

func newFiles(c Config) (*files, error) {
	f := &files{cert: c.CertFile, key: c.KeyFile, clientCA: c.ClientCAFile, clock: c.Clock, log: c.Log, looked: c.Clock.Now()}
	return f, f.look()
}

// current is the configuration of the moment. While the files are at fault, as between the writing of a
// certificate and that of its key, it is the last good one.
func (f *files) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if now.Sub(f.looked) < lookEvery {
		return f.config
	}
	f.looked = now
	fault := ""
	if err := f.look(); err != nil {
		if fault = err.Error(); fault != f.fault {
			f.log.Warn("the certificate cannot be read anew; the last one stays", "error", fault)
		}
	}
	f.fault = fault
	return f.config
}

// verified gives next each request with its client's certificate held against the authorities and the time of the
// moment: a connection may be older than both. Of one that is good no more, VerifiedChains are empty, and the
// connection ends with the answer.
func (f *files) verified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		state := *r.TLS
		options := x509.VerifyOptions{
			Roots: f.current().ClientCAs, Intermediates: x509.NewCertPool(), CurrentTime: f.clock.Now(),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		for _, certificate := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(certificate)
		}
		var err error
		if state.VerifiedChains, err = state.PeerCertificates[0].Verify(options); err != nil {
			w.Header().Set("Connection", "close")
		}
		r = r.WithContext(r.Context()) // a copy
		r.TLS = &state
		next.ServeHTTP(w, r)
	})
}

// whole tells whether every block of the PEM text can be read. Of a file that is being written, crypto/tls and crypto/x509
// would take what is there: a certificate without its intermediates, some of the authorities.
func whole(text []byte) bool {
	begun := bytes.Count(text, []byte("-----BEGIN "))
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		begun--
	}
	return begun == 0
}

// look reads the files, and makes the configuration anew if they have changed.
func (f *files) look() error {
	var texts [][]byte
	for _, path := range []string{f.cert, f.key, f.clientCA} {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path) //nolint:gosec // a path of the settings
		if err != nil {
			return fmt.Errorf("read the certificate: %w", err)
		}
		if !whole(text) {
			return fmt.Errorf("a block of PEM in %s is broken, or cut off", path)
		}
		texts = append(texts, text)
	}
	if slices.EqualFunc(texts, f.texts, bytes.Equal) {
		return nil
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return fmt.Errorf("certificate %s and key %s: %w", f.cert, f.key, err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if f.clientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(texts[2]) {
			return errors.New("no certificate in " + f.clientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		// A resumed session would outlive what its certificate was verified against.
		config.SessionTicketsDisabled = true
	}
	f.texts, f.config = texts, config
	f.log.Info("certificate read", "file", f.cert, "names", pair.Leaf.DNSNames, "not_after", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}
