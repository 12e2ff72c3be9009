package distribution

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestNewestOf(t *testing.T) {
	out := "pyspark (4.3.0)\nAvailable versions: 4.3.0, 4.2.1, 4.2.0, 4.1.14, 4.1.2, 4.0.5, 4.0.0.dev1, 3.5.9, 3.5.8, 3.4.4\n  INSTALLED: 3.5.1\n"
	got, err := newestOf([]byte(out))
	if want := []string{"3.5.9", "4.0.5", "4.1.14", "4.2.1", "4.3.0"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if got, err := newestOf([]byte("ERROR: no such package")); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}

func TestUnpack(t *testing.T) {
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	entries := tar.NewWriter(zipped)
	for name, mode := range map[string]int64{
		"pyspark-1/deps/bin/spark-submit": 0o755, "pyspark-1/deps/jars/a.jar": 0o644,
		"pyspark-1/deps/data/x": 0o644, "pyspark-1/lib/b.zip": 0o644, "pyspark-1/deps/examples/pi.py": 0o644,
		"pyspark-1/setup.py": 0o644, "pyspark-1/deps/bin/../../../evil": 0o644,
	} {
		if err := entries.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: 1, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := entries.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := entries.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "archive")
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unpack(file, filepath.Join(folder, "out", "spark")); err != nil {
		t.Fatal(err)
	}
	var found []string
	out := filepath.Join(folder, "out")
	err := filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, strings.TrimPrefix(path, out+"/spark/"))
		}
		return err
	})
	if want := []string{"bin/spark-submit", "examples/src/main/python/pi.py", "jars/a.jar", "python/lib/b.zip"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("got %v, %v, want %v", found, err, want)
	}
	if info, err := os.Stat(filepath.Join(folder, "out", "spark", "bin", "spark-submit")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("spark-submit cannot be run: %v, %v", info, err)
	}
}
