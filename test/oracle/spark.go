package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"flint.dev/flint/pkg/spark/version"
)

// The distributions come from PyPI: pyspark has all of Spark's bin and jars in it.

var release = regexp.MustCompile(`\b(\d+\.\d+)\.(\d+)\b`)

// newest asks the registry for the newest release of each Spark line that Flint knows, oldest first.
func newest(ctx context.Context) ([]string, error) {
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

// distribution is the folder of a Spark version, with bin and jars. It is downloaded if it is not in the cache.
func distribution(ctx context.Context, v string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "flint", "spark-"+v)
	if _, err := os.Stat(home); err == nil {
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
	log.Printf("downloading pyspark %s, some 400 MB", v)
	// #nosec G204 -- the version is one that the registry named, or the caller
	pip := exec.CommandContext(ctx, "pip", "download", "--no-deps", "--no-binary", ":all:", "--dest", work, "pyspark=="+v)
	pip.Stdout, pip.Stderr = os.Stderr, os.Stderr
	if err := pip.Run(); err != nil {
		return "", fmt.Errorf("pip download pyspark==%s: %w", v, err)
	}
	archives, err := filepath.Glob(filepath.Join(work, "pyspark-*.tar.gz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("pip download pyspark==%s left %v", v, archives)
	}
	log.Printf("unpacking pyspark %s", v)
	unpacked := filepath.Join(work, "spark")
	if err := unpack(archives[0], unpacked); err != nil {
		return "", fmt.Errorf("unpack pyspark %s: %w", v, err)
	}
	return home, os.Rename(unpacked, home)
}

// unpack writes the files below deps/bin and deps/jars of the archive into the folder.
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
		_, rest, found := strings.Cut(header.Name, "/deps/")
		wanted := found && (strings.HasPrefix(rest, "bin/") || strings.HasPrefix(rest, "jars/")) && filepath.IsLocal(rest)
		if !wanted || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := extract(entries, filepath.Join(folder, rest), header.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
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

// scalaVersion is that of the distribution's jars, which bin/load-spark-env.sh works out too.
func scalaVersion(home string) (string, error) {
	jars, err := filepath.Glob(filepath.Join(home, "jars", "spark-core_*.jar"))
	if err != nil || len(jars) != 1 {
		return "", fmt.Errorf("%s has not one spark-core", home)
	}
	name := filepath.Base(jars[0])
	scala, _, _ := strings.Cut(strings.TrimPrefix(name, "spark-core_"), "-")
	return scala, nil
}

// environ is the environment of a submission: what bin/spark-submit needs, and nothing of ours.
func environ(home, scala, work string) []string {
	env := []string{
		"SPARK_HOME=" + home,
		"SPARK_SCALA_VERSION=" + scala,
		"SPARK_CONF_DIR=" + filepath.Join(work, "conf"),
		"HOME=" + work,
		"TZ=UTC",
		"LC_ALL=C.UTF-8",
	}
	for _, name := range []string{"PATH", "JAVA_HOME"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return slices.Clip(env)
}
