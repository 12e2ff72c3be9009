package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// module is Flint's module path, to find its version among a program's dependencies.
const module = "flint.dev/flint"

// serviceAccountNamespace holds a pod's own namespace, wherever a service account token is mounted.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// LoadConfig reads how to reach the API server: from the kubeconfig, a path or a list of
// paths as in KUBECONFIG, or from the pod's service account when it is empty. Requests per second
// are limited to qps, with bursts of burst; the user agent is flint/<version>. It reads files, and
// asks nobody.
func LoadConfig(kubeconfig string, qps float32, burst int) (*rest.Config, error) {
	cfg, err := load(kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = qps, burst
	cfg.UserAgent = "flint/" + Version()
	// Warnings would go to klog, in a format and a stream that are not ours.
	cfg.WarningHandler = rest.NoWarnings{}
	return cfg, nil
}

func load(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("no API server: KUBECONFIG is empty, and this is not a pod with a service account")
		}
		if err != nil {
			return nil, fmt.Errorf("read the pod's service account: %w", err)
		}
		return cfg, nil
	}
	cfg, err := currentContext(kubeconfig).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read KUBECONFIG %s: %w", kubeconfig, err)
	}
	return cfg, nil
}

// currentContext is the kubeconfig's current context. One path must exist; of a list, some may be missing.
func currentContext(kubeconfig string) clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
	if list := filepath.SplitList(kubeconfig); len(list) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: list}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
}

// OwnNamespace is the namespace that Flint itself runs in: the one of the mounted
// service account, else that of the kubeconfig's current context, else "default".
func OwnNamespace(kubeconfig string) string {
	return ownNamespace(serviceAccountNamespace, kubeconfig)
}

func ownNamespace(mounted, kubeconfig string) string {
	if b, err := os.ReadFile(mounted); err == nil { //nolint:gosec // the one path above, or a test's
		if namespace := strings.TrimSpace(string(b)); namespace != "" {
			return namespace
		}
	}
	if kubeconfig != "" {
		if namespace, _, err := currentContext(kubeconfig).Namespace(); err == nil && namespace != "" {
			return namespace
		}
	}
	return "default"
}

// Version is Flint's version as the build recorded it, whether Flint is the main module
// or, in a function's image, a dependency of it; "devel" when it recorded none.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == module && m.Version != "" && m.Version != "(devel)" {
			return m.Version
		}
	}
	return "devel"
}
