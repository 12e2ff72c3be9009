package args

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// The first phase, bin/spark-submit's own (org.apache.spark.launcher.SparkSubmitCommandBuilder).
// It refuses at once what the service has no use for.

// launcher collects one vector.
type launcher struct {
	// kept are the last values of the options that are written first.
	kept map[string]string
	// conf is what --conf and the folded options set, in one map: the last on the line wins.
	conf conf.Conf
	// passed are the other options as they came, with their values.
	passed []string
	// resource is nil until the primary resource has come.
	resource *string
}

// launch runs the first phase: it checks argv and writes the vector for the
// second phase, in which each key of --conf comes once and the folded options not at all.
func launch(argv []string, f version.Features) ([]string, error) {
	switch {
	case len(argv) == 0:
		return nil, conf.RefuseName("", "no arguments: usage is [options] <app jar | python file | R file> [app arguments]")
	case slices.Contains(otherModes, argv[0]):
		return nil, conf.RefuseName(argv[0], "starts a shell or an example, not an application: name the application's resource")
	}
	l := &launcher{kept: map[string]string{}, conf: conf.Conf{}}
	appArgs, err := tokenize(argv, f, l)
	if err != nil {
		return nil, err
	}
	if l.resource == nil {
		return nil, conf.RefuseName("", "Missing application resource.")
	}
	if err := l.checkJavaOptions(f); err != nil {
		return nil, err
	}
	return l.rewrite(appArgs), nil
}

// otherModes are the first tokens that make spark-submit another command.
var otherModes = []string{"pyspark-shell-main", "sparkr-shell-main", "run-example"}

// folded are the options that are another spelling of a key.
var folded = map[string]string{
	"--driver-class-path":         "spark.driver.extraClassPath",
	"--driver-default-class-path": "spark.driver.defaultExtraClassPath",
	"--driver-java-options":       "spark.driver.extraJavaOptions",
	"--driver-library-path":       "spark.driver.extraLibraryPath",
	"--driver-memory":             "spark.driver.memory",
}

// refusedOptions have no meaning for a service that submits one application
// and shares no disk with the submitter.
var refusedOptions = map[string]string{
	"--extra-properties-file": "names a file of the submitter, which cannot be read here: give its properties with --conf",
	"--help":                  "is not a submission",
	"--kill":                  "is not a submission: delete the application instead",
	"--load-spark-defaults":   "there is no spark-defaults.conf here: give its properties with --conf",
	"--properties-file":       "names a file of the submitter, which cannot be read here: give its properties with --conf",
	"--status":                "is not a submission: get the application instead",
	"--usage-error":           "is not a submission",
	"--version":               "is not a submission",
}

// refusedClasses are main classes that run at the submitter's terminal or are
// not to be run in a driver pod, with SparkSubmit's words.
var refusedClasses = map[string]string{
	"org.apache.spark.repl.Main":                               notForShells,
	"org.apache.spark.sql.application.ConnectRepl":             notForShells,
	"org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver": "Cluster deploy mode is not applicable to Spark SQL shell.",
	"org.apache.spark.sql.hive.thriftserver.HiveThriftServer2": "Cluster deploy mode is not applicable to Spark Thrift server.",
	"org.apache.spark.sql.connect.service.SparkConnectServer":  "Launching Spark Connect server in cluster deploy mode is supported only for YARN.",
}

const notForShells = "Cluster deploy mode is not applicable to Spark shells."

func (l *launcher) option(name, typed, value string) error {
	if reason, refused := refusedOptions[name]; refused {
		return conf.RefuseName(typed, "%s", reason)
	}
	if key, ok := folded[name]; ok {
		l.conf[key] = value
		return nil
	}
	switch name {
	case "--conf":
		return l.setConf(typed, value)
	case "--class":
		if reason, refused := refusedClasses[value]; refused {
			return conf.Refuse(typed, value, "%s", reason)
		}
		l.kept[name] = value
	case "--master", "--remote", "--deploy-mode":
		l.kept[name] = value
	case "--supervise", "--verbose":
		l.passed = append(l.passed, name)
	default:
		l.passed = append(l.passed, name, value)
	}
	return nil
}

// setConf handles --conf KEY=VALUE. The key may be empty.
func (l *launcher) setConf(typed, property string) error {
	key, value, found := strings.Cut(property, "=")
	switch {
	case found:
		l.conf[key] = value
		return nil
	case conf.Sensitive(property):
		return conf.RefuseName(typed, "Invalid argument to --conf: it has no \"=\" between key and value")
	}
	return conf.Refuse(typed, property, "Invalid argument to --conf: it has no \"=\" between key and value")
}

func (l *launcher) unknown(token string) error {
	if strings.HasPrefix(token, "-") {
		return conf.RefuseName(withoutSecret(token), "Unrecognized option")
	}
	l.resource = &token
	return nil
}

// withoutSecret cuts the value off a mistyped option such as -c=spark.x.password=y.
func withoutSecret(token string) string {
	option, _, found := strings.Cut(token, "=")
	if !found || !conf.Sensitive(token) {
		return token
	}
	return option + "=" + conf.Redacted
}

// checkJavaOptions refuses a heap size in the driver's java options, where
// spark.driver.memory has to be. The options' text stays out of the messages because it may hold passwords.
func (l *launcher) checkJavaOptions(f version.Features) error {
	for _, key := range []string{"spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"} {
		value := l.conf[key]
		if f.XmxAnywhere {
			if strings.Contains(value, "Xmx") {
				return conf.RefuseName(key, notXmx, "its text contains Xmx")
			}
			continue
		}
		options, closed := splitJavaOptions(value)
		if !closed {
			return conf.RefuseName(key, "Invalid option string: a quote or a backslash at its end is left open")
		}
		for _, option := range options {
			if size := heapSize.FindString(option); size != "" {
				return conf.RefuseName(key, notXmx, "was "+size)
			}
		}
	}
	return nil
}

// heapSize is the option at the beginning of a token, without whatever else the token holds.
var heapSize = regexp.MustCompile(`^-Xmx[0-9]*[a-zA-Z]?`)

const notXmx = "Not allowed to specify max heap(Xmx) memory settings through java options (%s)." +
	" Use the corresponding --driver-memory or spark.driver.memory configuration instead."

// splitJavaOptions splits at white space as a shell would: quotes group, a
// backslash takes the next character as it is, except in single quotes
// (CommandBuilderUtils.parseOptionString). closed is false if a quote or a backslash is left open.
func splitJavaOptions(text string) (options []string, closed bool) {
	var option strings.Builder
	var quote rune
	var within, escaped bool
	for _, r := range text {
		switch {
		case escaped:
			option.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			within, escaped = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			within, quote = true, r
		case quote == 0 && isWhitespace(r):
			if within {
				options = append(options, option.String())
			}
			option.Reset()
			within = false
		default:
			within = true
			option.WriteRune(r)
		}
	}
	if within {
		options = append(options, option.String())
	}
	return options, quote == 0 && !escaped
}

// isWhitespace is Java's Character.isWhitespace: no no-break spaces, but the four information separators.
func isWhitespace(r rune) bool {
	switch r {
	case '\u00A0', '\u2007', '\u202F', '\u0085':
		return false
	}
	return unicode.IsSpace(r) || ('\x1C' <= r && r <= '\x1F')
}

// rewrite writes the vector of the second phase.
func (l *launcher) rewrite(appArgs []string) []string {
	argv := make([]string, 0, 2*len(l.kept)+2*len(l.conf)+len(l.passed)+1+len(appArgs))
	argv = l.appendKept(argv, "--master", "--remote", "--deploy-mode")
	for _, key := range slices.Sorted(maps.Keys(l.conf)) {
		argv = append(argv, "--conf", key+"="+l.conf[key])
	}
	argv = l.appendKept(argv, "--class")
	argv = append(argv, l.passed...)
	argv = append(argv, *l.resource)
	return append(argv, appArgs...)
}

func (l *launcher) appendKept(argv []string, options ...string) []string {
	for _, option := range options {
		if value, given := l.kept[option]; given {
			argv = append(argv, option, value)
		}
	}
	return argv
}
