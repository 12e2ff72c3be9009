package function

import (
	"context"
	"log/slog"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/tlsserver"
)

// listenTLS opens the second listener, if the settings want one: with func-go's own routes, limits and time-outs.
func (f *Function) listenTLS(ctx context.Context, s *config.Settings, log *slog.Logger) (*tlsserver.Server, error) {
	if s.TLS.Address == "" {
		return nil, nil //nolint:nilnil // none is wanted
	}
	second, err := tlsserver.Start(ctx, tlsserver.Config{
		Address: s.TLS.Address, CertFile: s.TLS.CertFile, KeyFile: s.TLS.KeyFile, ClientCAFile: s.TLS.ClientCAFile,
		Server: &fhttp.New(f).Server, Clock: f.options.clock, Log: log,
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
