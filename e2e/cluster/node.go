//go:build linux

package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const commandsFile = "commands.json"

// machine is the inside of a cluster while it starts, and its processes then.
type machine struct {
	folder string
	ended  chan error // one for each process that has ended
}

// node starts all parts, deploys Flint, says that it is ready, and returns when a part ends: none should.
func node(ctx context.Context, folder string) error {
	m := &machine{folder: folder, ended: make(chan error, 8)}
	if err := m.start(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(m.path(readyFile), nil, 0o600); err != nil {
		return err
	}
	return <-m.ended
}

func (m *machine) path(name string) string { return filepath.Join(m.folder, name) }

func (m *machine) start(ctx context.Context) error {
	text, err := os.ReadFile(m.path(commandsFile))
	if err != nil {
		return err
	}
	var programs commands
	if err := json.Unmarshal(text, &programs); err != nil {
		return err
	}
	if err := errors.Join(mounts(m.folder), network(ctx), makeControlGroups()); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	loaded := make(chan error, 1)
	if err := m.run("containerd", []string{"containerd"}, "--config="+m.path("containerd.toml")); err != nil {
		return err
	}
	go func() { loaded <- m.load(ctx) }()
	config, err := m.controlPlane(ctx, programs)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := <-loaded; err != nil {
		return err
	}
	if err := m.run("kubelet", programs.Kubelet,
		"--config="+m.path("kubelet.yaml"), "--kubeconfig="+m.path("kubeconfig"), "--root-dir=/var/lib/kubelet",
		"--hostname-override="+NodeName, "--node-ip="+Address); err != nil {
		return err
	}
	logf(os.Stderr, "waiting for the node")
	err = m.until(ctx, "the node to be ready", func() (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue, errors.New(condition.Message)
			}
		}
		return false, errors.New("it has said nothing yet")
	})
	if err != nil {
		return err
	}
	logf(os.Stderr, "deploying Flint")
	return m.deploy(ctx, config, client)
}

// run starts a part, with its output in a file of its name.
func (m *machine) run(name string, program []string, args ...string) error {
	output, err := os.Create(m.path(name + ".log"))
	if err != nil {
		return err
	}
	defer func() { _ = output.Close() }() // the child has its own
	command := exec.Command(program[0], append(program[1:len(program):len(program)], args...)...)
	command.Dir = m.folder
	command.Stdout, command.Stderr = output, output
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = command.Wait() // how it ended is in ProcessState
		m.ended <- fmt.Errorf("%s ended (%s), its last words:\n%s", name, command.ProcessState, tail(output.Name()))
	}()
	return nil
}

// until is the function of that name, and gives up when a part ends.
func (m *machine) until(ctx context.Context, what string, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	return until(ctx, what, func() (bool, error) {
		select {
		case err := <-m.ended:
			cancel()
			return false, err
		default:
			return ask()
		}
	})
}

// load waits for containerd, and gives it the images.
func (m *machine) load(ctx context.Context) error {
	ctr := func(args ...string) error {
		output, err := exec.CommandContext(ctx, "ctr", append([]string{"--address=" + containerdSocket, "--namespace=k8s.io"}, args...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ctr %s: %w\n%s", args, err, bytes.TrimSpace(output))
		}
		return nil
	}
	if err := m.until(ctx, "containerd", func() (bool, error) { err := ctr("version"); return err == nil, err }); err != nil {
		return err
	}
	archives, err := filepath.Glob(m.path("images/*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := ctr("images", "import", archive); err != nil {
			return err
		}
		if err := os.Remove(archive); err != nil {
			return err
		}
	}
	return nil
}

// controlPlane starts etcd, the API server and, when that is ready, the controllers and the scheduler. It leaves a kubeconfig.
func (m *machine) controlPlane(ctx context.Context, programs commands) (*rest.Config, error) {
	token, err := m.credentials()
	if err != nil {
		return nil, err
	}
	if err := m.run("etcd", programs.Etcd,
		"--data-dir="+m.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380"); err != nil {
		return nil, err
	}
	if err := m.run("kube-apiserver", programs.APIServer,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address="+Address,
		"--cert-dir="+m.path("certificates"),
		"--token-auth-file="+m.path("tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+m.path("accounts.key"), "--service-account-signing-key-file="+m.path("accounts.key"),
		"--service-cluster-ip-range="+apiService+"/16",
		"--authorization-mode=Node,RBAC",
		"--allow-privileged",
		"--kubelet-preferred-address-types=InternalIP",
		"--profiling=false"); err != nil {
		return nil, err
	}
	logf(os.Stderr, "waiting for the API server")
	url := "https://" + Address
	if err := m.untilServing(ctx, url); err != nil {
		return nil, err
	}
	authority := m.path("certificates/apiserver.crt")
	config, err := m.kubeconfig(url, authority, token)
	if err != nil {
		return nil, err
	}
	if err := m.run("kube-controller-manager", programs.Manager,
		"--kubeconfig="+m.path("kubeconfig"), "--leader-elect=false", "--profiling=false",
		"--service-account-private-key-file="+m.path("accounts.key"), "--root-ca-file="+authority); err != nil {
		return nil, err
	}
	return config, m.run("kube-scheduler", programs.Scheduler, "--kubeconfig="+m.path("kubeconfig"), "--leader-elect=false", "--profiling=false")
}

// credentials makes the administrator's token and the key that signs those of service accounts.
func (m *machine) credentials() (token string, err error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token = hex.EncodeToString(random)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return token, errors.Join(
		os.WriteFile(m.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600),
		os.WriteFile(m.path("accounts.key"), block, 0o600))
}

// untilServing asks for readiness. Only here nothing is verified: the certificate is being made.
func (m *machine) untilServing(ctx context.Context, url string) error {
	client := &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	defer client.CloseIdleConnections()
	return m.until(ctx, "the API server", func() (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, err
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, errors.New(response.Status)
	})
}

func (m *machine) kubeconfig(url, authority, token string) (*rest.Config, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[NodeName] = &clientcmdapi.Cluster{Server: url, CertificateAuthority: authority}
	config.AuthInfos[NodeName] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[NodeName] = &clientcmdapi.Context{Cluster: NodeName, AuthInfo: NodeName}
	config.CurrentContext = NodeName
	if err := clientcmd.WriteToFile(*config, m.path("kubeconfig")); err != nil {
		return nil, fmt.Errorf("write the kubeconfig: %w", err)
	}
	return clientcmd.BuildConfigFromFlags("", m.path("kubeconfig"))
}
