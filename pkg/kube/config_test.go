package kube

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig writes one whose API server nobody is.
func kubeconfig(t *testing.T, server, namespace string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "t"}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	c.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadConfig(t *testing.T) {
	one := kubeconfig(t, "https://192.0.2.1", "team")
	list := strings.Join([]string{filepath.Join(t.TempDir(), "missing"), one, kubeconfig(t, "https://192.0.2.2", "other")}, string(os.PathListSeparator))
	for name, path := range map[string]string{"one": one, "list": list} {
		cfg, err := LoadConfig(path, 200, 400)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Host != "https://192.0.2.1" || cfg.BearerToken != "t" || cfg.QPS != 200 || cfg.Burst != 400 {
			t.Errorf("%s: %v", name, cfg)
		}
		if !regexp.MustCompile(`^flint/\S+$`).MatchString(cfg.UserAgent) {
			t.Errorf("%s: user agent %q", name, cfg.UserAgent)
		}
		if cfg.WarningHandler == nil {
			t.Errorf("%s: warnings go to klog", name)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, says := range map[string]string{
		"":                            "KUBECONFIG is empty",
		filepath.Join(broken, "none"): "read KUBECONFIG",
		broken:                        "read KUBECONFIG",
	} {
		if cfg, err := LoadConfig(path, 1, 1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v", path, cfg, err)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := os.Stat(serviceAccountNamespace); os.IsNotExist(err) {
		if cfg, err := LoadConfig("", 1, 1); err == nil || !strings.Contains(err.Error(), "service account") {
			t.Errorf("a pod without token: %v, %v", cfg, err)
		}
	}
}

func TestOwnNamespace(t *testing.T) {
	t.Parallel()
	mounted := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(mounted, []byte("flint-system\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	blank := filepath.Join(t.TempDir(), "blank")
	if err := os.WriteFile(blank, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	team, none := kubeconfig(t, "https://192.0.2.1", "team"), kubeconfig(t, "https://192.0.2.1", "")
	cases := map[string]struct{ mounted, kubeconfig, want string }{
		"mounted":                   {mounted, "", "flint-system"},
		"mounted, and a kubeconfig": {mounted, team, "flint-system"},
		"mounted blank":             {blank, team, "team"},
		"a kubeconfig":              {"", team, "team"},
		"one without namespace":     {"", none, "default"},
		"one that is not there":     {"", "/nowhere/config", "default"},
		"nothing":                   {"", "", "default"},
	}
	for name, c := range cases {
		if got := ownNamespace(c.mounted, c.kubeconfig); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if OwnNamespace("") == "" {
		t.Error("no namespace")
	}
}
