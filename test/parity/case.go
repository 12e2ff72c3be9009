// Package parity proves that Flint creates what spark-submit creates: it renders a table of
// submissions with Flint and compares each with what Spark itself made of it, for every Spark line.
//
// Spark's side are the goldens in testdata, one folder a Spark version and one file a case. Package oracle
// (test/oracle) writes them by running the real spark-submit; nothing here needs Java or a network.
//
// Both sides go through Normalise, which replaces what differs from launch to launch. Where Flint
// differs on purpose, the difference has a name, a reason and an exact shape (differences.go); it is counted apart.
package parity

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Case is one submission.
type Case struct {
	// Name is that of the golden's file.
	Name string `json:"-"`
	// Args is the argument vector of spark-submit.
	Args []string
	// Driver and Executor are the pod templates as JSON texts; empty if there is none. Spark gets them as files.
	Driver, Executor string
	// Env is what is set in the submitter's environment, as NAME=VALUE. There is none for Flint.
	Env []string `json:",omitempty"`
	// Refused is what Flint's refusal must name: an option, a key, or a field of the template. It is
	// empty for a submission that Flint accepts for every Spark line.
	Refused string `json:"-"`
	// Depends: some Spark lines accept what others refuse.
	Depends bool `json:"-"`
	// Differs is the name of the difference that the case shows, on some line at least; mostly empty.
	Differs string `json:"-"`
}

// Hash tells whether a golden was made from this case.
func (c *Case) Hash() string {
	text, err := json.Marshal(c)
	if err != nil { // texts always marshal
		panic(err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Cases are all cases, sorted by name. It returns an error if two have one name.
func Cases() ([]Case, error) {
	requests, err := operatorCases()
	if err != nil {
		return nil, err
	}
	all := slices.Concat(requests, tokenCases(), launcherCases(), submitCases(), dependencyCases(), nameCases(), containerCases(),
		memoryCases(), metadataCases(), templateCases(), volumeCases(), secretCases(), networkCases(), propertiesCases(),
		languageCases(), stepCases(), keyCases(), environmentCases(), cornerCases())
	slices.SortFunc(all, func(a, b Case) int { return strings.Compare(a.Name, b.Name) })
	for i := range all[1:] {
		if all[i].Name == all[i+1].Name {
			return nil, fmt.Errorf("two cases are named %q", all[i].Name)
		}
	}
	return all, nil
}

// Names in the cases that the oracle replaces by real ones, and replaces back in what it records: the
// addresses of the API server, which speaks TLS at one of them, a folder of its own, and that of the templates.
const (
	PlainServer = "127.0.0.1:6080"
	TLSServer   = "127.0.0.1:6443"
	Work        = "/folder-of-the-oracle"
	Templates   = Work + "/templates"
)

// User is the user who submits, on both sides.
const User = "svc"

const master = "k8s://http://" + PlainServer

// conf gives each "k=v" as --conf spark.k=v.
func conf(properties ...string) []string {
	var args []string
	for _, p := range properties {
		args = append(args, "--conf", "spark."+p)
	}
	return args
}

// kube gives each "k=v" as --conf spark.kubernetes.k=v.
func kube(properties ...string) []string {
	var args []string
	for _, p := range properties {
		args = append(args, "--conf", "spark.kubernetes."+p)
	}
	return args
}

// driver is kube with another "driver." in front.
func driver(properties ...string) []string {
	var args []string
	for _, p := range properties {
		args = append(args, "--conf", "spark.kubernetes.driver."+p)
	}
	return args
}

// start is what nearly every vector begins with.
func start() []string {
	return slices.Concat([]string{"--master", master, "--deploy-mode", "cluster"},
		kube("submission.waitAppCompletion=false", "container.image=img:1"))
}

// java is a vector for a Java application with more options.
func java(options ...[]string) []string {
	return slices.Concat(start(), []string{"--class", "C"}, slices.Concat(options...), []string{"local:///a.jar"})
}

// python and rLang are vectors for applications in Python and R, which need no class.
func python(options ...[]string) []string {
	return slices.Concat(start(), slices.Concat(options...), []string{"local:///app.py"})
}

func rLang(options ...[]string) []string {
	return slices.Concat(start(), slices.Concat(options...), []string{"local:///app.R"})
}

// o is a list of options.
func o(options ...string) []string { return options }

// accept is a case that both sides accept.
func accept(name string, args []string) Case { return Case{Name: name, Args: args} }

// refuse is a case that both sides refuse; Flint names what is wrong.
func refuse(name, names string, args []string) Case {
	return Case{Name: name, Args: args, Refused: names}
}

// depends is a case that both sides accept for some Spark lines, and refuse for the others.
func depends(name, names string, args []string) Case {
	return Case{Name: name, Args: args, Refused: names, Depends: true}
}

// differ is a case that shows a difference in an accepted submission.
func differ(difference, name string, args []string) Case {
	return Case{Name: name, Args: args, Differs: difference}
}

// differRefused is a case that Flint refuses and Spark does not.
func differRefused(difference, name, names string, args []string) Case {
	return Case{Name: name, Args: args, Refused: names, Differs: difference}
}

// in sets the environment of a case.
func (c Case) in(environment ...string) Case {
	c.Env = environment
	return c
}

// with adds templates to a case.
func (c Case) with(driver, executor string) Case {
	c.Driver, c.Executor = driver, executor
	return c
}
