// Package distribution fetches Spark. Its distributions come from PyPI: the source archive of pyspark has all of Spark's
// programs and jars, its Python code and the examples in Python.
package distribution

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"flint.dev/flint/pkg/spark/version"
)

// Parts of a distribution: folders in it.
const (
	Bin      = "bin"
	Jars     = "jars"
	Python   = "python"
	Examples = "examples"
)

var release = regexp.MustCompile(`\b(\d+\.\d+)\.(\d+)\b`)

// Newest asks the registry for the newest release of each Spark line that Flint knows, oldest first.
func Newest(ctx context.Context) ([]string, error) {
	// #nosec G204 -- a fixed command
	out, err := exec.CommandContext(ctx, "pip", "index", "versions", "pyspark").Output()
	if err != nil {
		return nil, fmt.Errorf("pip index versions pyspark: %w", explain(err))
	}
	return newestOf(out)
}

// newestOf reads what pip prints.
func newestOf(out []byte) ([]string, error) {
	_, list, found := bytes.Cut(out, []byte("Available versions:"))
	if !found {
		return nil, fmt.Errorf("pip index versions pyspark: no list in %.200q", out)
	}
	if end := bytes.IndexByte(list, '\n'); end >= 0 {
		list = list[:end]
	}
	var versions []string
	for _, line := range version.Lines() {
		// pip lists the newest first.
		for _, m := range release.FindAllSubmatch(list, -1) {
			if string(m[1]) == line {
				versions = append(versions, string(m[0]))
				break
			}
		}
	}
	return versions, nil
}

// explain adds what a command wrote to its standard error.
func explain(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("%w: %.500s", err, exit.Stderr)
	}
	return err
}

// Spark is the folder of a Spark version in the user's cache, with the parts. It is downloaded if one of them is not there;
// log says so. It needs pip.
func Spark(ctx context.Context, log io.Writer, v string, parts ...string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "flint", "spark-"+v)
	if has(home, parts) {
		return home, nil
	}
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(home), "download-spark-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	_, _ = fmt.Fprintf(log, "downloading pyspark %s, some 450 MB\n", v)
	// #nosec G204 -- the version is one that the registry named, or the caller
	pip := exec.CommandContext(ctx, "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", work, "pyspark=="+v)
	pip.Stdout, pip.Stderr = log, log
	if err := pip.Run(); err != nil {
		return "", fmt.Errorf("pip download pyspark==%s: %w", v, err)
	}
	archives, err := filepath.Glob(filepath.Join(work, "pyspark-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("pip download pyspark==%s left %v", v, archives)
	}
	_, _ = fmt.Fprintf(log, "unpacking pyspark %s\n", v)
	unpacked := filepath.Join(work, "spark")
	if err := unpack(archives[0], unpacked); err != nil {
		return "", fmt.Errorf("unpack pyspark %s: %w", v, err)
	}
	if !has(unpacked, parts) {
		return "", fmt.Errorf("pyspark %s has not all of %v", v, parts)
	}
	if err := os.RemoveAll(home); err != nil { // one without a part
		return "", err
	}
	return home, os.Rename(unpacked, home)
}

func has(home string, parts []string) bool {
	for _, part := range parts {
		if _, err := os.Stat(filepath.Join(home, part)); err != nil {
			return false
		}
	}
	return true
}

// unpack writes the files of all parts into the folder, where Spark's own distributions have them.
func unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	zipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	entries := tar.NewReader(zipped)
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := place(header.Name)
		if name == "" || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := extract(entries, filepath.Join(folder, name), header.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
}

// place is where a file of the archive belongs, and empty for one that is not wanted.
func place(name string) string {
	_, name, _ = strings.Cut(name, "/") // the folder of all: pyspark-VERSION
	if !filepath.IsLocal(name) {
		return ""
	}
	for _, part := range []struct{ in, to string }{
		{"deps/bin/", Bin}, {"deps/jars/", Jars}, {"lib/", Python + "/lib"}, {"deps/examples/", Examples + "/src/main/python"},
	} {
		if rest, found := strings.CutPrefix(path.Clean(name), part.in); found {
			return path.Join(part.to, rest)
		}
	}
	return ""
}

func extract(from io.Reader, name string, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, from); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}
