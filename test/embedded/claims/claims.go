// Package claims makes the pods of file jobs real on an embedded cluster: the agent of package fileagent runs in
// this process, on a local folder that stands for the claim. The agent is Linux's: elsewhere such pods fail, and say so.
package claims

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/fileagent/protocol"
	"flint.dev/flint/pkg/filejob"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

// Claims are folders that stand for claims: Root/NAMESPACE/CLAIM.
type Claims struct {
	Root string
	// Around, if not nil, is called for each operation's pod, and runs the agent by calling run.
	Around func(ctx context.Context, pod *corev1.Pod, run func() int) int

	cluster atomic.Pointer[embedded.Cluster]
}

// Serve tells on which cluster the folders are: the one whose Options.Run is c.Run.
func (c *Claims) Serve(cluster *embedded.Cluster) { c.cluster.Store(cluster) }

// Add makes a claim that is bound, and its folder.
func (c *Claims) Add(ctx context.Context, namespace, name string, modes ...string) (folder string, err error) {
	folder = filepath.Join(c.Root, namespace, name)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", err
	}
	if len(modes) == 0 {
		modes = []string{string(corev1.ReadWriteOnce)}
	}
	var list []any
	for _, mode := range modes {
		list = append(list, mode)
	}
	cluster := c.cluster.Load()
	if _, err := cluster.Add(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"accessModes": list, "volumeName": "folder-" + name},
	}}); err != nil {
		return "", err
	}
	return folder, cluster.Until(ctx, func() bool {
		claim := cluster.Object(embedded.Claims, namespace, name)
		phase, _, _ := unstructured.NestedString(claim.Object, "status", "phase")
		return phase == string(corev1.ClaimBound)
	})
}

// Run is for embedded.Options.Run.
func (c *Claims) Run(ctx context.Context, pod *corev1.Pod, log io.Writer) (embedded.Exit, bool) {
	if pod.Labels[launch.LabelKind] != string(launch.File) {
		return embedded.Exit{}, false
	}
	exit := embedded.Exit{}
	run := func() int {
		code, message, err := c.agent(ctx, pod, log)
		if err != nil {
			_, _ = fmt.Fprintln(log, "fileagent:", err)
		}
		exit.Message = string(message)
		return code
	}
	if c.Around != nil {
		exit.Code = int32(c.Around(ctx, pod, run))
	} else {
		exit.Code = int32(run())
	}
	return exit, true
}

// agent runs the agent with what the pod has for it.
func (c *Claims) agent(ctx context.Context, pod *corev1.Pod, log io.Writer) (code int, message []byte, err error) {
	claim := ""
	for _, volume := range pod.Spec.Volumes {
		if source := volume.PersistentVolumeClaim; source != nil {
			claim = source.ClaimName
		}
	}
	given, err := protocol.DecodeEnv(func(name string) string { return variable(pod, name) }, func(name string) ([]byte, error) { return c.file(pod, name) })
	if err != nil {
		return invalid, nil, err
	}
	given.Root = filepath.Join(c.Root, pod.Namespace, claim)
	return runAgent(ctx, given, log)
}

// variable is what the kubelet would put into the agent's environment.
func variable(pod *corev1.Pod, name string) string {
	for _, container := range pod.Spec.Containers {
		for _, env := range container.Env {
			switch {
			case container.Name != filejob.Container || env.Name != name:
			case env.ValueFrom != nil && env.ValueFrom.FieldRef != nil && env.ValueFrom.FieldRef.FieldPath == "metadata.uid":
				return string(pod.UID)
			default:
				return env.Value
			}
		}
	}
	return ""
}

// file is what the kubelet would have put at the path from the pod's Secret.
func (c *Claims) file(pod *corev1.Pod, name string) ([]byte, error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.Secret == nil {
			continue
		}
		secret := c.cluster.Load().Object(embedded.Secrets, pod.Namespace, volume.Secret.SecretName)
		if secret == nil {
			return nil, os.ErrNotExist
		}
		text, found, err := unstructured.NestedString(secret.Object, "data", path.Base(name))
		if !found || err != nil {
			return nil, errors.Join(os.ErrNotExist, err)
		}
		return base64.StdEncoding.DecodeString(text)
	}
	return nil, os.ErrNotExist
}
