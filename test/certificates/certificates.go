// Package certificates makes authorities and certificates for tests, as PEM files, and the HTTP transport that the
// operator's REST submitter builds of such files.
package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates. Its own is in File, as PEM.
type Authority struct {
	File        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// Pair is the paths of a certificate and its key, as PEM.
type Pair struct{ Cert, Key string }

// NewAuthority makes one, with a key of its own.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.crt"), certificate: certificate, key: key}
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate of the common name, for servers on loopback and for clients, good for a day, and writes it
// into the folder as tls.crt and tls.key, over what is there. change may be nil.
func (a *Authority) Issue(t testing.TB, folder, name string, change func(*x509.Certificate)) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pair := Pair{Cert: filepath.Join(folder, "tls.crt"), Key: filepath.Join(folder, "tls.key")}
	write(t, pair.Cert, "CERTIFICATE", der)
	write(t, pair.Key, "PRIVATE KEY", private)
	return pair
}

// Expired is a change for Issue.
func Expired(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func write(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Transport is what the operator builds of its settings for TLS: the authority of the server, and a certificate of its
// own unless the pair is empty. With a tls.Config of its own it speaks HTTP/1.1 only.
func Transport(authority string, own Pair) (*http.Transport, error) {
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no certificate in %s", authority)
	}
	if own != (Pair{}) {
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Transport{MaxIdleConns: 10, MaxIdleConnsPerHost: 10, IdleConnTimeout: 90 * time.Second, TLSClientConfig: config}, nil
}
