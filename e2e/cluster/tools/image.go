package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// nonroot is the user of distroless images, on which ko and func build.
const nonroot = "65532:65532"

// writeImage writes an archive with one image of one layer: the static program under its own name, which is the
// entrypoint, and an empty /tmp.
func writeImage(image, program, archive string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	entrypoint := path.Join("/", filepath.Base(program))
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, header := range []*tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: entrypoint[1:], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))},
	} {
		if err := w.WriteHeader(header); err != nil {
			return fmt.Errorf("write the layer: %w", err)
		}
	}
	if _, err := w.Write(content); err != nil {
		return fmt.Errorf("write the layer: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write the layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	})
	if err != nil {
		return fmt.Errorf("make the layer: %w", err)
	}
	built, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	built, err = mutate.ConfigFile(built, configure(built, entrypoint))
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	if err := tarball.WriteToFile(archive, tag, built); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

func configure(built v1.Image, entrypoint string) *v1.ConfigFile {
	config, err := built.ConfigFile()
	if err != nil {
		panic(err) // it is in memory
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, User: nonroot}
	return config
}
