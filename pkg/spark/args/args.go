// Package args turns spark-submit's argument vector into the configuration and
// the application that spark-submit would hand to its Kubernetes client in
// cluster mode.
//
// bin/spark-submit parses twice: first org.apache.spark.launcher.Main, which
// folds some options into --conf and checks the driver's java options, then
// org.apache.spark.deploy.SparkSubmit, which validates and computes the
// SparkConf. Both parsers are here, in launcher.go and submit.go, because their
// differences show: --driver-memory competes with --conf spark.driver.memory by
// position, --executor-memory always wins.
//
// The package is pure. The submitter's environment, defaults file, disk and
// network do not exist for it: what would need them is refused with a
// *conf.Error that says what to do instead.
package args

import (
	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// Language is what the primary resource is written in, as Spark tells it from the resource's name.
type Language string

// The languages, with the text of spark.kubernetes.resource.type.
const (
	Java   Language = "java"
	Python Language = "python"
	R      Language = "r"
)

// Arguments is what one argument vector means.
type Arguments struct {
	// Conf is the complete configuration after SparkSubmit's second phase, except
	// spark.app.submitTime, which is the clock's and not the caller's unless given.
	Conf conf.Conf
	// Language of the primary resource.
	Language Language
	// Resource is the primary resource as the driver's argument names it; empty
	// for spark-internal, which has none.
	Resource string
	// MainClass is --class for Java and Scala, Spark's own runner for Python and R.
	MainClass string
	// AppArgs are the application's arguments, verbatim.
	AppArgs []string
	// ProxyUser is --proxy-user, or empty.
	ProxyUser string
	// Warnings are the lines that spark-submit would log and go on, such as dropped keys.
	Warnings []string
}

// Parse reads argv, which is everything behind "spark-submit", by the rules of
// one Spark version. Its error is a *conf.Error.
func Parse(argv []string, v version.Version) (*Arguments, error) {
	features := v.Features()
	second, err := launch(argv, features)
	if err != nil {
		return nil, err
	}
	return submit(second, features)
}
