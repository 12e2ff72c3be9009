// Package controlplane is a real Kubernetes control plane for tests: kube-apiserver and
// etcd as two processes on loopback. It has the API server's own rules, which no imitation
// has: admission, defaulting, validation, quota, RBAC, dry runs, preconditions, tokens.
//
// What it promises: fresh data for each Start, ports that were free, a client that is
// system:masters, both processes ended and their files removed by Stop. When the test binary
// dies without Stop, the kernel ends its processes (on Linux); only a folder in the temporary directory
// may be left. The programs come from the folder KUBEBUILDER_ASSETS, if it is set, and are built
// from source otherwise, once, into the user's cache: see Build.
//
// What it lacks: everything that is not the API. No controller runs, so no Job gets a pod, nothing is
// collected when its owner goes, a deleted namespace stays terminating, and a namespace gets no
// service account but from Namespace. No node runs, so a pod stays pending.
package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// attempts is how often Start tries new ports when something else took those it had found free.
const attempts = 3

// Options of Start. The zero value is good.
type Options struct {
	// Log gets what Start does and, during a build, how far it is. Nil means nothing.
	Log io.Writer
}

// ControlPlane is a running API server with its etcd. Start makes one, Stop ends it.
type ControlPlane struct {
	folder    string
	etcd      *process
	apiserver *process
	config    *rest.Config
	client    kubernetes.Interface
}

// Start brings a control plane up and returns when it is ready. The first Start on a machine builds it.
func Start(ctx context.Context, options Options) (*ControlPlane, error) {
	if options.Log == nil {
		options.Log = io.Discard
	}
	commands, err := Locate(ctx, options.Log)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		began := time.Now()
		cp, err := start(ctx, commands)
		if err == nil {
			logf(options.Log, "control plane ready on %s after %.1fs", cp.config.Host, time.Since(began).Seconds())
			return cp, nil
		}
		if ctx.Err() != nil || attempt == attempts || !errors.Is(err, errEnded) {
			return nil, err
		}
		logf(options.Log, "control plane did not start, trying other ports: %v", err)
	}
}

func start(ctx context.Context, commands Commands) (_ *ControlPlane, err error) {
	folder, err := os.MkdirTemp("", "flint-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the control plane: %w", err)
	}
	cp := &ControlPlane{folder: folder}
	defer func() {
		if err != nil {
			cp.Stop()
		}
	}()
	token, err := writeCredentials(folder)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	etcdURL := "http://" + ports[0]
	host, port, err := net.SplitHostPort(ports[1])
	if err != nil {
		return nil, err
	}
	// Both start at once: the API server waits for its etcd by itself.
	cp.etcd, err = run(commands.Etcd, filepath.Join(folder, "etcd.log"),
		"--data-dir="+filepath.Join(folder, "etcd"),
		"--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync",
		"--log-level=warn",
	)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	certificates := filepath.Join(folder, "certificates")
	cp.apiserver, err = run(commands.APIServer, filepath.Join(folder, "kube-apiserver.log"),
		"--etcd-servers="+etcdURL,
		"--bind-address="+host,
		"--secure-port="+port,
		"--advertise-address="+host,
		"--endpoint-reconciler-type=none", // loopback is no address for an endpoint
		"--cert-dir="+certificates,
		"--token-auth-file="+filepath.Join(folder, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+filepath.Join(folder, "service-account.key"),
		"--service-account-signing-key-file="+filepath.Join(folder, "service-account.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false",
	)
	if err != nil {
		return nil, fmt.Errorf("start kube-apiserver: %w", err)
	}
	if err := cp.awaitReady(ctx, "https://"+ports[1]); err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(certificates, "apiserver.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the API server's certificate: %w", err)
	}
	cp.config = &rest.Config{
		Host:            "https://" + ports[1],
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		QPS:             -1,
	}
	cp.client, err = kubernetes.NewForConfig(cp.config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the control plane: %w", err)
	}
	if err := cp.ServiceAccount(ctx, "default", "default"); err != nil {
		return nil, err
	}
	return cp, nil
}

// awaitReady asks the API server until it is ready, one of the two processes has ended, or ctx.
func (cp *ControlPlane) awaitReady(ctx context.Context, url string) error {
	// Only here nothing is verified: the certificate is being made.
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	defer client.CloseIdleConnections()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	last := "no answer yet"
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the control plane (%s): %w\n%s", last, ctx.Err(), cp.apiserver.tail())
		case <-cp.etcd.ended:
			return cp.etcd.endedEarly("etcd")
		case <-cp.apiserver.ended:
			return cp.apiserver.endedEarly("kube-apiserver")
		case <-ticker.C:
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			last = err.Error()
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		last = response.Status
	}
}

// Stop ends both processes, waits for their end and removes their files. Their data is not wanted
// any more, so they are killed. A second Stop does nothing.
func (cp *ControlPlane) Stop() {
	for _, process := range []*process{cp.apiserver, cp.etcd} {
		if process != nil {
			process.kill()
		}
	}
	_ = os.RemoveAll(cp.folder)
}

// Config is for a client that may do everything, without a rate limit of its own.
func (cp *ControlPlane) Config() *rest.Config { return rest.CopyConfig(cp.config) }

// ConfigFor is for a client that is another user, to whom RBAC applies. A service account is
// system:serviceaccount:NAMESPACE:NAME; its groups come by themselves when none are named.
func (cp *ControlPlane) ConfigFor(user string, groups ...string) *rest.Config {
	config := cp.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// Client is made from Config.
func (cp *ControlPlane) Client() kubernetes.Interface { return cp.client }

// Kubeconfig writes a kubeconfig file with the rights of Config.
func (cp *ControlPlane) Kubeconfig(path string) error {
	const name = "controlplane"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: cp.config.Host, CertificateAuthorityData: cp.config.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: cp.config.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of the control plane: %w", err)
	}
	return nil
}

// Namespace creates a namespace with its service account "default", without which the API server
// admits no pod and which no controller makes here.
func (cp *ControlPlane) Namespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := cp.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return cp.ServiceAccount(ctx, name, "default")
}

// ServiceAccount creates a service account.
func (cp *ControlPlane) ServiceAccount(ctx context.Context, namespace, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := cp.client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create service account %s/%s: %w", namespace, name, err)
	}
	return nil
}

// writeCredentials makes the administrator's token and the key that signs those of service accounts.
func writeCredentials(folder string) (token string, err error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token = hex.EncodeToString(random)
	line := token + `,admin,admin,"system:masters"` + "\n"
	if err := os.WriteFile(filepath.Join(folder, "tokens.csv"), []byte(line), 0o600); err != nil {
		return "", fmt.Errorf("write tokens: %w", err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(folder, "service-account.key"), block, 0o600); err != nil {
		return "", fmt.Errorf("write service account key: %w", err)
	}
	return token, nil
}

// freePorts finds addresses on loopback that nothing listens on at the moment.
func freePorts(n int) ([]string, error) {
	var addresses []string
	for range n {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = listener.Close() }() // after all are found, so that they differ
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses, nil
}

func logf(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
