package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// writeFolder writes an archive with one image of one layer: what is in the folder, owned by root. The layer is not
// compressed: it is written once and read once, on the same machine.
func writeFolder(image, folder, configuration, archive string) error {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("name the image: %w", err)
	}
	var config v1.Config
	if err := json.Unmarshal([]byte(configuration), &config); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	files := archive + ".layer"
	defer func() { _ = os.Remove(files) }()
	if err := writeLayer(folder, files); err != nil {
		return fmt.Errorf("write the layer: %w", err)
	}
	layer, err := tarball.LayerFromFile(files, tarball.WithCompression(compression.None))
	if err != nil {
		return fmt.Errorf("make the layer: %w", err)
	}
	built, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	file, err := built.ConfigFile()
	if err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, config
	if built, err = mutate.ConfigFile(built, file); err != nil {
		return fmt.Errorf("make the image: %w", err)
	}
	if err := tarball.WriteToFile(archive, tag, built); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// writeLayer writes all files, folders and symbolic links of a folder, under their names in it.
func writeLayer(folder, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(file)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		return writeEntry(w, folder, path, entry)
	})
	return errors.Join(err, w.Close(), file.Close())
}

func writeEntry(w *tar.Writer, folder, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(folder, path); err != nil {
		return err
	}
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return errors.Join(err, content.Close())
}
