// Package tlsserver is a second listener of the function, with TLS, beside the plain one of func-go: for callers
// outside Knative, where no gateway ends TLS for them.
//
// It serves a given http.Server, so with the handler, limits and time-outs of the plain listener; HTTP/2 and 1.1; TLS
// 1.2 and newer. With authorities for clients, a client without a certificate of theirs gets no connection.
//
// Certificate, key and authorities are read anew when a handshake, or a request with a client's certificate, finds that
// they have changed, so that nothing has to watch them: a renamed file, a written one and the ..data link of a Kubernetes
// volume are all the same to it. A connection does not outlive what its client's certificate is good by.
package tlsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"k8s.io/utils/clock"
)

// Config is what a Server is made of.
type Config struct {
	// Address to listen on.
	Address string
	// CertFile and KeyFile are the paths of PEM files: the certificate with its intermediates, and its key.
	CertFile, KeyFile string
	// ClientCAFile is the path of the authorities of clients, as PEM. Empty: no certificate is asked for.
	ClientCAFile string
	// Server is served. Its TLSConfig and ErrorLog are set here, and its Handler is wrapped.
	Server *http.Server
	Clock  clock.PassiveClock
	Log    *slog.Logger
}

// Server serves until Stop.
type Server struct {
	http     *http.Server
	listener net.Listener
	served   chan struct{} // closed when nothing is accepted any more
}

// Start reads the files, listens, and serves. Its error names what is at fault.
func Start(ctx context.Context, c Config) (*Server, error) {
	files, err := newFiles(c)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("listen with TLS: %w", err)
	}
	s := &Server{http: c.Server, listener: listener, served: make(chan struct{})}
	s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return files.current(), nil
	}}
	if c.ClientCAFile != "" {
		s.http.Handler = files.verified(s.http.Handler)
	}
	s.http.ErrorLog = slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug) // a line for each handshake that fails
	go func() {
		defer close(s.served)
		if err := s.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			c.Log.Error("the listener with TLS has ended", "error", err.Error())
		}
	}()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Stop accepts nothing more, and waits until what is in flight has been answered, or ctx has ended: then it cuts the
// rest off. It may be called again, and at once.
func (s *Server) Stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the listener with TLS: %w", err), s.http.Close())
	}
	<-s.served
	return err
}
