package runner

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// repository is the image's name without tag and digest, in the one form that the registries' short names have
// (github.com/distribution/reference, ParseNormalizedNamed).
func repository(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		name = name[:colon]
	}
	host, rest, found := strings.Cut(name, "/")
	if !found || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, rest = "docker.io", name
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	if host == "docker.io" && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	return host + "/" + rest
}

// digest is a repository with the digest of an image in it, as a node names what it pulled.
var digest = regexp.MustCompile(`^(?:[a-z-]+://)?([^@]+)@(sha256:[0-9a-f]{64})$`)

// pinned is the image of the container by the digest that the pod's node pulled. It fails where the node does not tell it, or tells
// the digest of another repository: one that was loaded onto the node ("import-2024-01-01@sha256:…") cannot be pulled.
func pinned(pod *corev1.Pod, container *corev1.Container) (string, bool) {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != container.Name {
			continue
		}
		id := digest.FindStringSubmatch(status.ImageID)
		if id != nil && repository(id[1]) == repository(container.Image) {
			return id[1] + "@" + id[2], true
		}
	}
	return "", false
}
