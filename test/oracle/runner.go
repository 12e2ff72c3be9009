package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"flint.dev/flint/test/distribution"
	"flint.dev/flint/test/parity"
)

//go:embed Oracle.java
var source []byte

// caseTimeout bounds one submission.
const caseTimeout = 60 * time.Second

// coreSite gives the remote file systems that the distribution has no client for to one without files.
const coreSite = `<configuration>
<property><name>fs.s3a.impl</name><value>Oracle$Remote</value></property>
<property><name>fs.gs.impl</name><value>Oracle$Remote</value></property>
<property><name>fs.hdfs.impl</name><value>Oracle$Remote</value></property>
</configuration>
`

// ivySettings resolves packages in a folder, which has org.example:thing:1.
const ivySettings = `<ivysettings>
<settings defaultResolver="files"/>
<resolvers><filesystem name="files" m2compatible="true">
<ivy pattern="${ivy.settings.dir}/repository/[module]-[revision].pom"/>
<artifact pattern="${ivy.settings.dir}/repository/[module]-[revision].[ext]"/>
</filesystem></resolvers>
</ivysettings>
`

const thing = `<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>thing</artifactId><version>1</version></project>
`

// logging has Spark say nothing but errors.
const logging = `rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
`

// runner submits cases with one Spark version.
type runner struct {
	version, home string
	// work is a folder of this runner: classes, an empty SPARK_CONF_DIR, templates.
	work string
	env  []string
	api  *recorder
	jvm  *jvm
}

// answer is one line of the JVM.
type answer struct {
	Exit  int    `json:"exit"`
	Error string `json:"error"`
}

// newRunner prepares a Spark version: it gets the distribution, compiles the driver and starts an API server.
func newRunner(ctx context.Context, v string) (*runner, error) {
	home, err := distribution.Spark(ctx, log.Writer(), v, distribution.Bin, distribution.Jars)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "flint-oracle-")
	if err != nil {
		return nil, err
	}
	r := &runner{version: v, home: home, work: work, api: newRecorder()}
	if err := r.prepare(ctx); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *runner) prepare(ctx context.Context) error {
	scala, err := scalaVersion(r.home)
	if err != nil {
		return err
	}
	r.env = append(environ(r.home, scala, r.work), "HADOOP_USER_NAME="+parity.User, "SPARK_DIST_CLASSPATH="+r.path("classes"))
	for name, text := range map[string]string{
		"Oracle.java": string(source), "log4j2.properties": logging, "classes/core-site.xml": coreSite, "templates/none": "",
		"ivysettings.xml": ivySettings, "repository/thing-1.pom": thing, "repository/thing-1.jar": "",
		"hadoop/core-site.xml": "<configuration/>\n", "app.conf": "spark.from.file=yes\n", "krb5.conf": "[libdefaults]\n", "uploads/none": "",
	} {
		if err := os.MkdirAll(filepath.Dir(r.path(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(r.path(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	// What is in SPARK_CONF_DIR would go to the driver.
	if err := os.Mkdir(r.path("conf"), 0o755); err != nil {
		return err
	}
	// #nosec G204 -- paths of our own
	javac := exec.CommandContext(ctx, "javac", "-cp", filepath.Join(r.home, "jars", "*"), "-d", r.path("classes"), r.path("Oracle.java"))
	if out, err := javac.CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w: %.2000s", err, out)
	}
	return nil
}

func (r *runner) path(name string) string { return filepath.Join(r.work, filepath.FromSlash(name)) }

func (r *runner) close() {
	if r.jvm != nil {
		r.jvm.stop()
	}
	r.api.close()
	_ = os.RemoveAll(r.work)
}

// run submits one case and gives the golden. It does so in the JVM, unless the case needs an environment of its own.
func (r *runner) run(ctx context.Context, c *parity.Case) (*parity.Golden, error) {
	if len(c.Env) > 0 {
		g, err := r.runProcess(ctx, c)
		if g != nil {
			g.Error = firstError(g.Exit, g.Error)
		}
		return g, err
	}
	return r.record(ctx, c, func(ctx context.Context, args []string) (answer, error) {
		if r.jvm == nil {
			var err error
			if r.jvm, err = startJVM(ctx, r); err != nil {
				return answer{}, err
			}
		}
		a, err := r.jvm.submit(ctx, args)
		if err != nil {
			r.jvm.stop()
			r.jvm = nil
		}
		return a, err
	})
}

// firstError is the line of the output that says why Spark refused, without the trace behind
// it and the JVM's own warnings before it; empty where Spark accepted.
func firstError(exit int, output string) string {
	if exit == 0 {
		return ""
	}
	first := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "Exception in thread") || strings.HasPrefix(line, "Error: ") {
			return line
		}
		if first == "" && line != "" && !strings.HasPrefix(line, "WARNING: ") {
			first = line
		}
	}
	return first
}

// runProcess submits one case with bin/spark-submit itself and gives the golden, whose error is the whole output.
func (r *runner) runProcess(ctx context.Context, c *parity.Case) (*parity.Golden, error) {
	return r.record(ctx, c, func(ctx context.Context, args []string) (answer, error) {
		// #nosec G204 -- the case's arguments for the program that they are made for
		submit := exec.CommandContext(ctx, filepath.Join(r.home, "bin", "spark-submit"), args...)
		submit.Env = append(slices.Clip(r.env), "SPARK_SUBMIT_OPTS=-Dlog4j2.configurationFile="+r.path("log4j2.properties"))
		for _, variable := range c.Env {
			submit.Env = append(submit.Env, r.real(variable))
		}
		submit.Dir = r.work
		out, err := submit.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return answer{}, err
		}
		return answer{Exit: submit.ProcessState.ExitCode(), Error: string(out)}, nil
	})
}

// record submits a case in one way or another and makes the golden of what the API server was sent.
func (r *runner) record(ctx context.Context, c *parity.Case, submit func(context.Context, []string) (answer, error)) (*parity.Golden, error) {
	ctx, cancel := context.WithTimeout(ctx, caseTimeout)
	defer cancel()
	args, err := r.arguments(c)
	if err != nil {
		return nil, err
	}
	a, err := submit(ctx, args)
	writes, fault := r.api.take()
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	created, err := objects(writes)
	if err != nil {
		return nil, err
	}
	for i := range created {
		created[i] = r.unreal(created[i]).(map[string]any)
	}
	g := &parity.Golden{Case: c.Hash(), Exit: a.Exit, Error: r.unreal(a.Error).(string)}
	if len(created) > 0 {
		if g.Objects, err = parity.Normalise(created); err != nil {
			return nil, fmt.Errorf("normalise: %w", err)
		}
	}
	return g, nil
}

// arguments are the case's, for our API server, with its templates in files.
func (r *runner) arguments(c *parity.Case) ([]string, error) {
	var args []string
	for _, t := range []struct{ role, text, container string }{
		{"driver", c.Driver, "spark-kubernetes-driver"}, {"executor", c.Executor, "spark-kubernetes-executor"},
	} {
		if t.text == "" {
			continue
		}
		file := r.path("templates/" + t.role + ".yaml")
		if err := os.WriteFile(file, []byte(t.text), 0o600); err != nil {
			return nil, err
		}
		key := "spark.kubernetes." + t.role + ".podTemplate"
		args = append(args, "--conf", key+"File="+file)
		if !slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, key+"ContainerName=") }) {
			args = append(args, "--conf", key+"ContainerName="+t.container)
		}
	}
	for _, a := range c.Args {
		args = append(args, r.real(a))
	}
	return args, nil
}

// real puts addresses and folders of this run in the place of the cases' names.
func (r *runner) real(text string) string {
	return strings.NewReplacer(
		parity.PlainServer, r.api.plain.Listener.Addr().String(),
		parity.TLSServer, r.api.tls.Listener.Addr().String(),
		parity.Work, r.work,
	).Replace(text)
}

// unreal puts the cases' names in the place of addresses and folders of this run.
func (r *runner) unreal(value any) any {
	plain, tls := r.api.plain.Listener.Addr().String(), r.api.tls.Listener.Addr().String()
	// In a text of properties colons are escaped.
	escape := func(address string) string { return strings.ReplaceAll(address, ":", `\:`) }
	replace := strings.NewReplacer(
		plain, parity.PlainServer, escape(plain), escape(parity.PlainServer),
		tls, parity.TLSServer, escape(tls), escape(parity.TLSServer),
		r.path("templates"), parity.Templates,
		r.work, parity.Work,
		r.home, "/opt/spark-of-the-oracle",
	).Replace
	var walk func(any) any
	walk = func(value any) any {
		switch value := value.(type) {
		case string:
			return replace(value)
		case []any:
			for i := range value {
				value[i] = walk(value[i])
			}
		case map[string]any:
			for key := range value {
				value[key] = walk(value[key])
			}
		}
		return value
	}
	return walk(value)
}

// jvm is a running Oracle.java.
type jvm struct {
	process *exec.Cmd
	in      io.WriteCloser
	answers *bufio.Scanner
	cancel  context.CancelFunc
}

// startJVM starts a JVM with the options that bin/spark-class would give it.
func startJVM(ctx context.Context, r *runner) (*jvm, error) {
	// A JVM outlives the case that it was started for.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	args := []string{
		"-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + r.path("log4j2.properties"),
		"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.net=ALL-UNNAMED", "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
		"-cp", r.path("classes") + string(os.PathListSeparator) + filepath.Join(r.home, "jars", "*"), "Oracle",
	}
	// #nosec G204 -- paths of our own
	process := exec.CommandContext(ctx, "java", args...)
	process.Env, process.Dir, process.Stderr = r.env, r.work, os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := process.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start java: %w", err)
	}
	answers := bufio.NewScanner(out)
	answers.Buffer(nil, 4<<20)
	return &jvm{process: process, in: in, answers: answers, cancel: cancel}, nil
}

// submit runs one submission. After an error the JVM is of no use any more.
func (j *jvm) submit(ctx context.Context, args []string) (answer, error) {
	// An expired context kills the JVM, which ends the scan.
	defer context.AfterFunc(ctx, j.cancel)()
	if args == nil {
		args = []string{}
	}
	line, err := json.Marshal(map[string]any{"args": args})
	if err != nil {
		return answer{}, err
	}
	if _, err := j.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("write to the JVM: %w", err)
	}
	if !j.answers.Scan() {
		return answer{}, errors.Join(ctx.Err(), j.answers.Err(), errors.New("the JVM gave no answer"))
	}
	var a answer
	if err := json.Unmarshal(j.answers.Bytes(), &a); err != nil {
		return answer{}, fmt.Errorf("answer %.200q: %w", j.answers.Text(), err)
	}
	return a, nil
}

// stop ends the JVM.
func (j *jvm) stop() {
	_ = j.in.Close()
	j.cancel()
	_ = j.process.Wait()
}
