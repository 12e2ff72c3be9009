package tlsserver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
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

// current is the configuration for one connection. While the files are at fault, as between the writing of a
// certificate and that of its key, it is the last good one.
func (f *files) current(*tls.ClientHelloInfo) (*tls.Config, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Now()
	if now.Sub(f.looked) < lookEvery {
		return f.config, nil
	}
	f.looked = now
	fault := ""
	if err := f.look(); err != nil {
		if fault = err.Error(); fault != f.fault {
			f.log.Warn("the certificate cannot be read anew; the last one stays", "error", fault)
		}
	}
	f.fault = fault
	return f.config, nil
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
