package runners

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"flint.dev/flint/pkg/completion"
	"flint.dev/flint/pkg/redact"
)

const (
	// maxTail is how many bytes of a log an error has; tailLines and tailRead are what is read for it.
	maxTail   = 2 << 10
	tailLines = 100
	tailRead  = 64 << 10
	tailLimit = time.Second
)

// tail is the end of what the runner wrote, without the secrets; empty where it cannot be read in a moment.
func (r *Runners) tail(ctx context.Context, pod *corev1.Pod, secrets []string) string {
	ctx, cancel := context.WithTimeout(ctx, tailLimit)
	defer cancel()
	text, err := r.Client.Log(ctx, podRef(pod.Namespace, pod.Name), completion.Container(pod), tailLines, tailRead)
	if err != nil {
		return ""
	}
	defer func() { _ = text.Close() }()
	read, err := io.ReadAll(text)
	if err != nil {
		return ""
	}
	if len(read) >= tailRead { // cut off, maybe amid a secret
		read = read[:bytes.LastIndexByte(read, '\n')+1]
	}
	return lastOf(redact.Text(strings.ToValidUTF8(string(read), "\uFFFD"), secrets))
}

// lastOf is the last maxTail bytes of the text, from a beginning of a line if there is one.
func lastOf(text string) string {
	text = strings.TrimSpace(text)
	if len(text) <= maxTail {
		return text
	}
	text = text[len(text)-maxTail:]
	if _, rest, found := strings.Cut(text, "\n"); found && rest != "" {
		return rest
	}
	return strings.ToValidUTF8(text, "")
}
