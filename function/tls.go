package function

import (
	"context"
	"log/slog"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/tlsserver"
)

// maxHeaderTLS is the most bytes of a request's header on the second listener. Nothing stands in front of it, and func-go's
// megabyte for each of any number of connections, before anybody is asked who they are, is more than an instance has.
const maxHeaderTLS = 64 << 10

// listenTLS opens the second listener, if the settings want one: with func-go's own routes, limits and time-outs, but for headers.
func (f *Function) listenTLS(ctx context.Context, s *config.Settings, log *slog.Logger) (*tlsserver.Server, error) {
	if s.TLS.Address == "" {
		return nil, nil //nolint:nilnil // none is wanted
	}
	server := &fhttp.New(f).Server
	server.MaxHeaderBytes = maxHeaderTLS
	second, err := tlsserver.Start(ctx, tlsserver.Config{
		Address: s.TLS.Address, CertFile: s.TLS.CertFile, KeyFile: s.TLS.KeyFile, ClientCAFile: s.TLS.ClientCAFile,
		Server: server, Clock: f.options.clock, Log: log,
	})
	if err != nil {
		return nil, err
	}
	log.Info("listening with TLS", "address", second.Addr().String(), "client_certificates", s.TLS.ClientCAFile != "")
	if s.TLS.ClientCAFile != "" && !s.Tokens {
		log.Warn("client certificates are asked for with TLS only: on the plain listener nobody is asked who they are; " +
			"FLINT_AUTH=token, or LISTEN_ADDRESS on loopback, closes that door")
	}
	return second, nil
}

func stopTLS(ctx context.Context, second *tlsserver.Server) error {
	if second == nil {
		return nil
	}
	return second.Stop(ctx)
}
