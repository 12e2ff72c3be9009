package args

import (
	"strings"

	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// The tokenizer that both phases share (org.apache.spark.launcher.SparkSubmitOptionParser).

// valueOptions take the next token, or the text behind "=", as their value.
// The alias -c stands beside its option's name.
var valueOptions = map[string]string{
	"--archives":                  "--archives",
	"--class":                     "--class",
	"--conf":                      "--conf",
	"-c":                          "--conf",
	"--deploy-mode":               "--deploy-mode",
	"--driver-class-path":         "--driver-class-path",
	"--driver-cores":              "--driver-cores",
	"--driver-default-class-path": "--driver-default-class-path",
	"--driver-java-options":       "--driver-java-options",
	"--driver-library-path":       "--driver-library-path",
	"--driver-memory":             "--driver-memory",
	"--exclude-packages":          "--exclude-packages",
	"--executor-cores":            "--executor-cores",
	"--executor-memory":           "--executor-memory",
	"--extra-properties-file":     "--extra-properties-file",
	"--files":                     "--files",
	"--jars":                      "--jars",
	"--keytab":                    "--keytab",
	"--kill":                      "--kill",
	"--master":                    "--master",
	"--name":                      "--name",
	"--num-executors":             "--num-executors",
	"--packages":                  "--packages",
	"--principal":                 "--principal",
	"--properties-file":           "--properties-file",
	"--proxy-user":                "--proxy-user",
	"--py-files":                  "--py-files",
	"--queue":                     "--queue",
	"--remote":                    "--remote",
	"--repositories":              "--repositories",
	"--status":                    "--status",
	"--total-executor-cores":      "--total-executor-cores",
}

// switches take no value; one given behind "=" is dropped.
var switches = map[string]string{
	"--help":                "--help",
	"-h":                    "--help",
	"--load-spark-defaults": "--load-spark-defaults",
	"--supervise":           "--supervise",
	"--usage-error":         "--usage-error",
	"--verbose":             "--verbose",
	"-v":                    "--verbose",
	"--version":             "--version",
}

// exists tells whether the version has the option; most options are in every version.
func exists(option string, f version.Features) bool {
	switch option {
	case "--driver-default-class-path":
		return f.DriverDefaultClassPath
	case "--extra-properties-file":
		return f.ExtraPropertiesFile
	case "--load-spark-defaults":
		return f.LoadSparkDefaults
	}
	return true
}

// handler is one phase's side of the tokenizer.
type handler interface {
	// option is called for each known option; typed is its spelling on the line,
	// value is empty for a switch.
	option(name, typed, value string) error
	// unknown is called for the first token that is no option; it names the
	// primary resource unless it starts with "-".
	unknown(token string) error
}

// tokenize walks argv up to and including the first unknown token and returns
// the tokens behind it, which are the application's.
func tokenize(argv []string, f version.Features, h handler) (appArgs []string, err error) {
	for i := 0; i < len(argv); i++ {
		typed, value, inline := splitInline(argv[i])
		if name, known := valueOptions[typed]; known && exists(name, f) {
			if !inline {
				if i++; i == len(argv) {
					return nil, conf.RefuseName(typed, "Missing argument for option '%s'.", typed)
				}
				value = argv[i]
			}
			if err := h.option(name, typed, value); err != nil {
				return nil, err
			}
			continue
		}
		if name, known := switches[typed]; known && exists(name, f) {
			if err := h.option(name, typed, ""); err != nil {
				return nil, err
			}
			continue
		}
		return argv[i+1:], h.unknown(typed)
	}
	return nil, nil
}

// splitInline splits --option=value as the pattern (--[^=]+)=(.+) does: two
// dashes, at the first "=", a value that is not empty and has no line break.
func splitInline(token string) (option, value string, inline bool) {
	option, value, found := strings.Cut(token, "=")
	if !found || !strings.HasPrefix(option, "--") || option == "--" || value == "" || hasLineBreak(value) {
		return token, "", false
	}
	return option, value, true
}

// hasLineBreak tells whether s holds one of the characters that a dot in a Java pattern does not match.
func hasLineBreak(s string) bool { return strings.ContainsAny(s, "\n\r\u0085\u2028\u2029") }
