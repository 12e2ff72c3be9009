//go:build linux

// Package sparkimage makes an image with Apache Spark in it, without a registry and without Docker: Spark is the
// distribution of PyPI, and Java, Python and what they need are Debian's packages, unpacked into a folder. The user, the
// paths and the entrypoint are those of Spark's own image, as far as a driver or an executor sees them.
package sparkimage

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"flint.dev/flint/test/distribution"
)

// VersionVariable may name another Spark version than the usual one.
const VersionVariable = "FLINT_E2E_SPARK_VERSION"

// Version of Spark: the newest that Flint knows.
func Version() string { return cmp.Or(os.Getenv(VersionVariable), "4.3.0") }

// Name of the image.
func Name() string { return "dev.local/spark:" + Version() }

// What an application finds in the image beside Spark's own examples in Python.
const (
	// PiJar has the class Pi, which estimates pi with as many tasks as its argument says.
	PiJar = "local:///opt/spark/examples/jars/pi.jar"
	// PiPython is Spark's own example.
	PiPython = "local:///opt/spark/examples/src/main/python/pi.py"
)

const (
	home = "opt/spark"
	user = "185" // that of Spark's own image
)

var (
	//go:embed entrypoint.sh
	entrypoint []byte
	//go:embed Pi.java
	pi []byte
)

// javas are the packages of Java that Spark runs with, the best first.
var javas = []string{"openjdk-21-jre-headless", "openjdk-17-jre-headless"}

// packages are what the image has beside Java and all that both depend on.
var packages = []string{"python3-minimal", "libpython3-stdlib", "bash", "coreutils", "dash", "grep", "libc-bin", "sed"}

// Missing is what this machine lacks to make the image, and is empty if it lacks nothing.
func Missing() []string {
	var missing []string
	for _, program := range []struct{ name, of string }{
		{"apt-get", "Debian, for the packages of Java and Python"},
		{"dpkg-deb", "Debian"},
		{"tar", "tar"},
		{"unshare", "util-linux"},
		{"pip", "Python (python3-pip), for the download of Spark"},
	} {
		if _, err := exec.LookPath(program.name); err != nil {
			missing = append(missing, program.name+" of "+program.of)
		}
	}
	return missing
}

// Archive is the path of the image's archive in the user's cache. It is made if it is not there, with tools, the program of that
// name beside this package; log says how far it is.
func Archive(ctx context.Context, log io.Writer, tools string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	java, err := choose(ctx, log)
	if err != nil {
		return "", err
	}
	system, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "", err
	}
	key := sha256.New()
	for _, part := range [][]byte{[]byte(java), []byte(strings.Join(packages, " ")), system, entrypoint, pi} {
		_, _ = fmt.Fprintf(key, "%d\n%s", len(part), part)
	}
	archive := filepath.Join(cache, "flint", fmt.Sprintf("spark-image-%s-%x", Version(), key.Sum(nil)[:8]), "spark.tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	spark, err := distribution.Spark(ctx, log, Version(), distribution.Bin, distribution.Jars, distribution.Python, distribution.Examples)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(archive), "work-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	m := &maker{log: log, work: work, root: filepath.Join(work, "root")}
	made, err := m.make(ctx, spark, java, tools)
	if err != nil {
		return "", fmt.Errorf("make the image of Spark: %w", err)
	}
	return archive, os.Rename(made, archive)
}

// choose is the first package of Java that this system has.
func choose(ctx context.Context, log io.Writer) (string, error) {
	for attempt := range 2 {
		for _, java := range javas {
			if exec.CommandContext(ctx, "apt-get", "download", "--print-uris", java).Run() == nil { // else it has none
				return java, nil
			}
		}
		if attempt == 0 {
			if err := update(ctx, log); err != nil {
				return "", err
			}
		}
	}
	return "", fmt.Errorf("this system has no package of %s", strings.Join(javas, ", "))
}

// update has apt-get learn which packages there are: a fresh machine knows none.
func update(ctx context.Context, log io.Writer) error {
	_, _ = fmt.Fprintln(log, "updating the list of packages with apt-get")
	return run(exec.CommandContext(ctx, "apt-get", "update"))
}

// run runs a command, and says what it said if it fails.
func run(command *exec.Cmd) error {
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command.Args, " "), err, output)
	}
	return nil
}

// maker makes one image in a folder of its own.
type maker struct {
	log        io.Writer
	work, root string
}

// make is the path of the archive.
func (m *maker) make(ctx context.Context, spark, java, tools string) (string, error) {
	_, _ = fmt.Fprintf(m.log, "making an image of Spark %s and %s\n", Version(), java)
	if err := m.system(ctx, java); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(m.root, filepath.Dir(home)), 0o755); err != nil {
		return "", err
	}
	// Both are in the cache: links cost nothing.
	if err := run(exec.CommandContext(ctx, "cp", "--archive", "--link", spark, filepath.Join(m.root, home))); err != nil {
		return "", err
	}
	javaHomes, err := filepath.Glob(filepath.Join(m.root, "usr/lib/jvm/java-[0-9][0-9]-openjdk-*"))
	if err != nil || len(javaHomes) != 1 {
		return "", fmt.Errorf("the package %s has the folders %v", java, javaHomes)
	}
	javaHome := strings.TrimPrefix(javaHomes[0], m.root)
	if err := m.application(ctx, javaHome); err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]any{
		"User": user, "Entrypoint": []string{"/opt/entrypoint.sh"}, "WorkingDir": "/" + home + "/work-dir",
		"Env": []string{"SPARK_HOME=/" + home, "JAVA_HOME=" + javaHome, "PATH=/usr/sbin:/usr/bin:/sbin:/bin:/" + home + "/bin", "LC_ALL=C.UTF-8"},
	})
	if err != nil {
		return "", err
	}
	archive := filepath.Join(m.work, "spark.tar")
	return archive, run(exec.CommandContext(ctx, tools, "folder", Name(), m.root, string(config), archive))
}

// system unpacks Java, Python, a shell and all that they depend on. No package's scripts run, so what those would have left
// is written here.
func (m *maker) system(ctx context.Context, java string) error {
	downloaded := filepath.Join(m.work, "packages")
	if err := os.MkdirAll(filepath.Join(downloaded, "partial"), 0o755); err != nil {
		return err
	}
	none := filepath.Join(m.work, "status") // as on a machine with no package at all
	if err := os.WriteFile(none, nil, 0o600); err != nil {
		return err
	}
	download := func() error {
		return run(exec.CommandContext(ctx, "apt-get", append([]string{"-o", "Dir::State::Status=" + none, "-o", "Dir::Cache::Archives=" + downloaded,
			"-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=root", "--yes", "--download-only", "install", java}, packages...)...))
	}
	if err := download(); err != nil {
		// What apt-get knows of may be old, and the packages replaced.
		if err := errors.Join(update(ctx, m.log), download()); err != nil {
			return err
		}
	}
	// All systems of today have these four links; some packages still bring folders of that name.
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(m.root, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+name, filepath.Join(m.root, name)); err != nil {
			return err
		}
	}
	archives, err := filepath.Glob(filepath.Join(downloaded, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if err := m.unpack(ctx, archive); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(archive), err)
		}
	}
	if err := os.Symlink("dash", filepath.Join(m.root, "usr/bin/sh")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return m.write(0o644, map[string]string{
		"etc/passwd":        "root:x:0:0::/root:/bin/bash\nspark:x:" + user + ":0::/" + home + "/work-dir:/bin/bash\n", // Hadoop wants its user to have a name
		"etc/group":         "root:x:0:\n",
		"etc/nsswitch.conf": "hosts: files dns\n",
	})
}

// unpack puts a package's files into the root, but for what only people read. Where it has a folder and the root a link to one,
// the link stays.
func (m *maker) unpack(ctx context.Context, archive string) error {
	from := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", archive)
	into := exec.CommandContext(ctx, "tar", "--extract", "--keep-directory-symlink", "--directory", m.root,
		"--exclude=./usr/share/doc/*", "--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*")
	files, err := from.StdoutPipe()
	if err != nil {
		return err
	}
	into.Stdin = files
	if err := from.Start(); err != nil {
		return err
	}
	return errors.Join(run(into), from.Wait())
}

// application compiles Pi with the image's own Java, and makes the folders and the entrypoint.
func (m *maker) application(ctx context.Context, javaHome string) error {
	for _, folder := range []string{"opt/build", home + "/examples/jars", home + "/work-dir"} {
		if err := os.MkdirAll(filepath.Join(m.root, folder), 0o755); err != nil {
			return err
		}
	}
	if err := m.write(0o755, map[string]string{"opt/entrypoint.sh": string(entrypoint), "opt/build/Pi.java": string(pi)}); err != nil {
		return err
	}
	jars, err := filepath.Glob(filepath.Join(m.root, home, "jars", "*.jar"))
	if err != nil {
		return err
	}
	classes := strings.ReplaceAll(strings.Join(jars, ":"), m.root, "")
	// A JRE of Debian has the modules of the tools, but not their commands; Java finds itself by /proc.
	for _, tool := range [][]string{
		{"jdk.compiler/com.sun.tools.javac.Main", "-cp", classes, "-d", "/opt/build/classes", "/opt/build/Pi.java"},
		{"jdk.jartool/sun.tools.jar.Main", "--create", "--file", strings.TrimPrefix(PiJar, "local://"), "-C", "/opt/build/classes", "."},
	} {
		arguments := append([]string{"--mount", "--pid", "--fork", "--kill-child", "--root=" + m.root, "--mount-proc", javaHome + "/bin/java", "--module"}, tool...)
		if err := run(exec.CommandContext(ctx, "unshare", arguments...)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(m.root, "opt/build")); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(m.root, home, "work-dir"), 0o777) // whoever runs it
}

func (m *maker) write(mode os.FileMode, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}
