package args

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"flint.dev/flint/pkg/spark/conf"
	"flint.dev/flint/pkg/spark/version"
)

// The second phase (org.apache.spark.deploy.SparkSubmitArguments and
// SparkSubmit.prepareSubmitEnvironment), for Kubernetes in cluster mode.
//
// What the first phase has made impossible is not repeated here: a missing
// resource, the folded options, the options that are refused there.

// The resources that spark-submit knows by name.
const sparkInternal = "spark-internal"

var shells = []string{"spark-shell", "pyspark-shell", "sparkr-shell", "connect-shell"}

// The main classes of the driver for Python and R.
const (
	pythonRunner = "org.apache.spark.deploy.PythonRunner"
	rRunner      = "org.apache.spark.deploy.RRunner"
)

// field is a value that an option or a key gives.
type field struct {
	// name is the option or the key that the value came from.
	name  string
	value string
	set   bool
}

// submission collects what the second vector says and turns it into Arguments.
type submission struct {
	features version.Features
	// options are the last values of the options other than --conf.
	options map[string]string
	// conf is sparkProperties first, the SparkConf in the end.
	conf     conf.Conf
	warnings []string

	resource string
	language Language

	master, deployMode, name field
	driverMemory             field
	executorMemory           field
	driverCores              field
	executorCores            field
	totalExecutorCores       field
	numExecutors             field
	principal                field
	proxyUser                field
	mainClass                field

	jars, files, archives, pyFiles uriList
}

// submit runs the second phase on the vector that launch wrote.
func submit(argv []string, f version.Features) (*Arguments, error) {
	s := &submission{features: f, options: map[string]string{}, conf: conf.Conf{}}
	appArgs, err := tokenize(argv, f, s)
	if err != nil {
		return nil, err
	}
	s.dropForeignKeys()
	s.fill()
	for _, step := range []func() error{
		s.validate,
		s.checkDeployment,
		s.checkResource,
		s.checkPackages,
		s.checkRPackages,
		s.globDependencies,
		s.assign,
		s.checkClient,
		s.checkUploads,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s.arguments(appArgs), nil
}

func (s *submission) option(name, typed, value string) error {
	switch name {
	case "--conf":
		key, text, _ := strings.Cut(value, "=")
		s.conf[key] = text
	case "--deploy-mode":
		if value != "client" && value != "cluster" {
			return conf.Refuse(typed, value, `--deploy-mode must be either "client" or "cluster"`)
		}
		s.options[name] = value
	default:
		s.options[name] = value
	}
	return nil
}

// unknown takes the primary resource and tells its language from the text as it
// was typed, by a case-sensitive ending.
func (s *submission) unknown(token string) error {
	s.resource = token
	switch {
	case strings.HasSuffix(token, ".py"):
		s.language = Python
	case strings.HasSuffix(token, ".R"), strings.HasSuffix(token, ".r"):
		s.language = R
	default:
		s.language = Java
	}
	return nil
}

// dropForeignKeys drops the keys that are not Spark's (ignoreNonSparkProperties).
func (s *submission) dropForeignKeys() {
	for _, key := range slices.Sorted(maps.Keys(s.conf)) {
		if !strings.HasPrefix(key, "spark.") {
			delete(s.conf, key)
			s.warnings = append(s.warnings, "Ignoring non-Spark config property: "+key)
		}
	}
}

// fill sets the fields from the options or else from the keys
// (loadEnvironmentArguments, without an environment).
func (s *submission) fill() {
	s.master = s.field("--master", "spark.master")
	s.deployMode = s.field("--deploy-mode", "spark.submit.deployMode")
	s.driverMemory = s.field("", "spark.driver.memory")
	s.executorMemory = s.field("--executor-memory", "spark.executor.memory")
	s.driverCores = s.field("--driver-cores", "spark.driver.cores")
	s.executorCores = s.field("--executor-cores", "spark.executor.cores")
	s.totalExecutorCores = s.field("--total-executor-cores", "spark.cores.max")
	s.numExecutors = s.field("--num-executors", "spark.executor.instances")
	s.principal = s.field("--principal", "spark.kerberos.principal", "spark.yarn.principal")
	s.proxyUser = s.field("--proxy-user")
	s.mainClass = s.field("--class")
	s.name = s.field("--name", "spark.app.name")
	if !s.name.set {
		s.name = s.defaultName()
	}
	s.jars = s.list("--jars", "spark.jars")
	s.files = s.list("--files", "spark.files")
	s.archives = s.list("--archives", "spark.archives")
	s.pyFiles = s.list("--py-files", "spark.submit.pyFiles")
}

// field takes the option's value or that of the first key that is set.
func (s *submission) field(option string, keys ...string) field {
	if value, set := s.options[option]; set {
		return field{option, value, true}
	}
	for _, key := range keys {
		if value, set := s.conf[key]; set {
			return field{key, value, true}
		}
	}
	return field{}
}

// list is a field with URIs. Those of an option are resolved before they are
// trimmed, those of a key after, so a blank behind a comma is harmless in a key only.
func (s *submission) list(option, key string) uriList {
	l := uriList{field: s.field(option, key)}
	if l.name == option {
		l.resolve()
	}
	return l
}

// defaultName is the main class or the last part of the primary resource, which
// may hold a query and escapes (java.io.File.getName). A Java application has a class.
func (s *submission) defaultName() field {
	if s.mainClass.set {
		return s.mainClass
	}
	return field{"primary resource", s.resource[strings.LastIndexByte(s.resource, '/')+1:], true}
}

// validate is SparkSubmitArguments.validateSubmitArguments, in its order.
func (s *submission) validate() error {
	if text, set := s.conf["spark.master.rest.enabled"]; set &&
		!strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
		return conf.Refuse("spark.master.rest.enabled", text, "should be boolean, true or false")
	}
	remote := s.field("--remote", "spark.remote")
	if remote.set && (s.master.set || s.deployMode.set) {
		return conf.RefuseName(remote.name, "Remote cannot be specified with master and/or deploy mode.")
	}
	numExecutors := s.numExecutors
	if strings.EqualFold(s.conf["spark.dynamicAllocation.enabled"], "true") {
		numExecutors.set = false
	}
	for _, check := range []struct {
		what     string
		positive func(string) bool
		field    field
	}{
		{"Driver memory", s.positiveBytes, s.driverMemory},
		{"Executor memory", s.positiveBytes, s.executorMemory},
		{"Driver cores", positiveInt, s.driverCores},
		{"Executor cores", positiveInt, s.executorCores},
		{"Total executor cores", positiveInt, s.totalExecutorCores},
		{"Number of executors", positiveInt, numExecutors},
	} {
		if check.field.set && !check.positive(check.field.value) {
			return conf.Refuse(check.field.name, check.field.value, "%s must be a positive number", check.what)
		}
	}
	switch {
	case s.proxyUser.set && s.principal.set:
		return conf.RefuseName("--proxy-user", "Only one of --proxy-user or --principal can be provided.")
	case s.proxyUser.set && s.proxyUser.value == "":
		return conf.Refuse("--proxy-user", "", "names no user")
	}
	return nil
}

// positiveBytes is a check only: a plain number counts as bytes here, although it means MiB later.
func (s *submission) positiveBytes(text string) bool {
	bytes, err := conf.ParseBytes(text, conf.Byte, s.features.BinarySuffixes)
	return err == nil && bytes > 0
}

func positiveInt(text string) bool {
	n, err := conf.ParseInt(text)
	return err == nil && n > 0
}

// checkDeployment finds out the cluster manager and the deploy mode. Only
// Kubernetes and cluster are served.
func (s *submission) checkDeployment() error {
	master, err := s.kubernetesMaster()
	if err != nil {
		return err
	}
	switch {
	case !s.deployMode.set || s.deployMode.value == "client":
		return conf.RefuseName("--deploy-mode",
			"client mode would run the driver here: the driver runs in a pod of its own, give --deploy-mode cluster")
	case s.deployMode.value != "cluster":
		return conf.Refuse(s.deployMode.name, s.deployMode.value, "Deploy mode must be either client or cluster")
	case !s.master.set || strings.HasPrefix(s.master.value, "local"):
		return conf.RefuseName("--master",
			`Cluster deploy mode is not compatible with master "local": give --master k8s://https://HOST:PORT`)
	}
	s.master.value = master
	return nil
}

// kubernetesMaster is SparkSubmit's choice of the cluster manager and
// Utils.checkAndGetK8sMasterUrl: it adds https:// where no scheme is and keeps
// all else verbatim. It gives nothing for a local master.
func (s *submission) kubernetesMaster() (string, error) {
	master := s.master.value
	server, isKubernetes := strings.CutPrefix(master, "k8s://")
	switch {
	case !s.master.set:
		return "", nil
	case master == "yarn", strings.HasPrefix(master, "spark"):
		return "", conf.Refuse(s.master.name, master,
			"this cluster manager is not served: give --master k8s://https://HOST:PORT")
	case isKubernetes && !hasLineBreak(master):
	case strings.HasPrefix(master, "local"):
		return "", nil
	default:
		return "", conf.Refuse(s.master.name, master,
			"Master must either be yarn or start with spark, k8s, or local: give --master k8s://https://HOST:PORT")
	}
	if !strings.Contains(server, "://") {
		return "k8s://https://" + server, nil
	}
	u, err := parseURI(server)
	switch {
	case err != nil:
		return "", conf.Refuse(s.master.name, master, "not a URL behind k8s://: %s", err)
	case strings.EqualFold(u.scheme, "http"):
		s.warnings = append(s.warnings, "Kubernetes master URL uses HTTP instead of HTTPS.")
	case !strings.EqualFold(u.scheme, "https"):
		return "", conf.Refuse(s.master.name, master, "Invalid Kubernetes master scheme: %s found in URL: %s", u.scheme, conf.WithoutCredentials(server))
	}
	return master, nil
}

// checkResource refuses the shells. Their main classes are refused by the first phase.
func (s *submission) checkResource() error {
	if slices.Contains(shells, s.resource) {
		return conf.RefuseName(s.resource, notForShells)
	}
	return nil
}

// checkPackages refuses coordinates that no repository can have. Spark resolves them at submission and again in
// the driver; here the driver alone does (MavenUtils.extractMavenCoordinates).
func (s *submission) checkPackages() error {
	packages := s.field("--packages", "spark.jars.packages")
	if conf.Trim(packages.value) == "" {
		return nil
	}
	check := func(f field, suffix, form string) error {
		for coordinate := range strings.SplitSeq(f.value, ",") {
			parts := strings.Split(strings.ReplaceAll(coordinate+suffix, "/", ":"), ":")
			for len(parts) > 0 && parts[len(parts)-1] == "" { // as Java's split
				parts = parts[:len(parts)-1]
			}
			if len(parts) != 3 || slices.ContainsFunc(parts, func(part string) bool { return conf.Trim(part) == "" }) {
				return conf.Refuse(f.name, coordinate, "Provided Maven Coordinates must be in the form '%s'.", form)
			}
		}
		return nil
	}
	if err := check(packages, "", "groupId:artifactId:version"); err != nil {
		return err
	}
	if excludes := s.field("--exclude-packages", "spark.jars.excludes"); conf.Trim(excludes.value) != "" {
		return check(excludes, ":*", "groupId:artifactId")
	}
	return nil
}

// checkRPackages refuses jars of an R application: Spark looks for R packages in them at submission, and can only
// open files (RPackageUtils.checkAndBuildRPackage).
func (s *submission) checkRPackages() error {
	if s.language != R || conf.Trim(s.jars.value) == "" {
		return nil
	}
	return conf.Refuse(s.jars.name, s.jars.value, "spark-submit cannot take jars for an R application in cluster mode"+
		" (\"URI scheme is not \"file\"\"): put them into the image and name them in spark.driver.extraClassPath and spark.executor.extraClassPath")
}

// dependencies are the lists in the order in which the driver's pod step looks at them.
func (s *submission) dependencies() []*uriList {
	return []*uriList{&s.jars, &s.files, &s.archives, &s.pyFiles}
}

func (s *submission) globDependencies() error {
	for _, l := range s.dependencies() {
		if !l.set {
			continue
		}
		if err := l.glob(); err != nil {
			return err
		}
	}
	return nil
}

// assign writes the fields back into the conf and finishes it (the rest of
// prepareSubmitEnvironment).
func (s *submission) assign() error {
	s.assignFields()
	if err := s.addPrimaryJar(); err != nil {
		return err
	}
	if s.language == Java && !s.mainClass.set {
		return conf.RefuseName("--class",
			"is missing. The main class cannot be read from the JAR here; please specify one with --class.")
	}
	// The driver's Service gives the host.
	delete(s.conf, "spark.driver.host")
	return s.resolveDependencies()
}

// assignFields is the table of OptionAssigners for Kubernetes and cluster mode.
// --queue, --supervise and --total-executor-cores have no row there.
func (s *submission) assignFields() {
	for _, row := range []struct {
		key   string
		field field
	}{
		{"spark.master", s.master},
		{"spark.submit.deployMode", s.deployMode},
		{"spark.app.name", s.name},
		{"spark.kerberos.principal", s.principal},
		{"spark.kerberos.keytab", s.field("--keytab", "spark.kerberos.keytab", "spark.yarn.keytab")},
		{"spark.submit.pyFiles", s.pyFiles.field},
		{"spark.jars.packages", s.field("--packages")},
		{"spark.jars.repositories", s.field("--repositories")},
		{"spark.jars.excludes", s.field("--exclude-packages")},
		{"spark.executor.instances", s.numExecutors},
		{"spark.executor.cores", s.executorCores},
		{"spark.executor.memory", s.executorMemory},
		{"spark.files", s.files.field},
		{"spark.archives", s.archives.field},
		{"spark.jars", s.jars.field},
		{"spark.driver.memory", s.driverMemory},
		{"spark.driver.cores", s.driverCores},
	} {
		if row.field.set {
			s.conf[row.key] = row.field.value
		}
	}
}

// addPrimaryJar makes the primary resource the last jar. For Java spark.jars is
// always set, for Python and R only if the user gave jars.
func (s *submission) addPrimaryJar() error {
	if s.language != Java {
		return nil
	}
	jars, err := s.conf.Strings("spark.jars")
	if err != nil {
		return err
	}
	if s.resource != sparkInternal {
		jars = append(jars, s.resource)
	}
	s.jars.value, s.jars.set = strings.Join(jars, ","), true
	if s.jars.name == "" {
		s.jars.name = "spark.jars"
	}
	return nil
}

// resolveDependencies resolves the lists once more, now that globs, fragments
// and references may have changed them. spark.submit.pyFiles is always set.
func (s *submission) resolveDependencies() error {
	pyFiles, err := s.conf.Strings("spark.submit.pyFiles")
	if err != nil {
		return err
	}
	s.pyFiles.value, s.pyFiles.set = strings.Join(pyFiles, ","), true
	for i, key := range []string{"spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles"} {
		if l := s.dependencies()[i]; l.set {
			l.resolve()
			s.conf[key] = l.value
		}
	}
	return nil
}

// checkClient refuses the keys that choose another cluster or credentials of
// the submission client, which is the service's own. They name files and
// contexts of the submitter, and would travel to the driver in spark.properties.
//
// spark.kubernetes.trust.certificates and the submission timeouts are accepted:
// the former also concerns the driver, the latter do no harm. As in Spark their
// text must be readable.
func (s *submission) checkClient() error {
	const own = "the service submits with its own connection to the cluster: leave it out"
	if _, set := s.conf["spark.kubernetes.context"]; set {
		return conf.RefuseName("spark.kubernetes.context", own)
	}
	const family = "spark.kubernetes.authenticate.submission."
	if keys := s.conf.WithPrefix(family); len(keys) > 0 {
		return conf.RefuseName(family+keys[0].Key, own)
	}
	for _, key := range []string{"spark.kubernetes.submission.requestTimeout", "spark.kubernetes.submission.connectionTimeout"} {
		if _, err := s.conf.Int(key, 0); err != nil {
			return err
		}
	}
	for _, key := range []string{"spark.kubernetes.trust.certificates", "spark.kubernetes.submission.waitAppCompletion"} {
		if _, err := s.conf.Bool(key, false); err != nil {
			return err
		}
	}
	return nil
}

// maxItems is how many dependencies a refusal names.
const maxItems = 10

// checkUploads refuses dependencies that spark-submit would upload, all of them
// at once (KubernetesUtils.uploadAndTransformFileUris).
func (s *submission) checkUploads() error {
	primary := uriList{field: field{name: "primary resource"}}
	if s.resource != sparkInternal {
		primary.check(s.resource)
	}
	var first string
	var items []string
	more, seen := 0, map[string]bool{}
	for _, l := range append([]*uriList{&primary}, s.dependencies()...) {
		references := slices.ContainsFunc(l.offending, func(item string) bool { return strings.Contains(item, "${") })
		for _, item := range l.offending {
			if first == "" {
				first = l.name
			}
			if references && !strings.Contains(item, "${") {
				continue // what a reference stands for may be secret; the reference is named
			}
			switch { // a primary JAR is in spark.jars as well
			case seen[item]:
			case len(items) == maxItems:
				more++
			default:
				items = append(items, describe(item))
			}
			seen[item] = true
		}
	}
	if items == nil {
		return nil
	}
	if more > 0 {
		items = append(items, fmt.Sprintf("and %d more", more))
	}
	return conf.RefuseName(first, "%s would be a file of the submitter, which spark-submit uploads"+
		" (\"Please specify spark.kubernetes.file.upload.path property.\"); there is no upload here, with or without that property:"+
		" use local:// for a file in the image, or a remote URI such as https:// or s3a://", strings.Join(items, ", "))
}

// likeURI is what begins as a URI does.
var likeURI = regexp.MustCompile(`^\s*[a-zA-Z][a-zA-Z0-9+.-]*:/`)

// describe names an element that is taken for a file, and says why one is that was meant as a URI.
func describe(item string) string {
	text := fmt.Sprintf("%q", conf.WithoutCredentials(item))
	if likeURI.MatchString(item) {
		if _, err := parseURI(item); err != nil {
			text += " (not a URI: " + err.Error() + ")"
		}
	}
	return text
}

// arguments are the child arguments of the Kubernetes client.
func (s *submission) arguments(appArgs []string) *Arguments {
	a := &Arguments{
		Conf:      s.conf,
		Language:  s.language,
		Resource:  s.resource,
		AppArgs:   appArgs,
		ProxyUser: s.proxyUser.value,
		Warnings:  s.warnings,
	}
	if a.Resource == sparkInternal {
		a.Resource = ""
	}
	switch s.language {
	case Java:
		a.MainClass = s.mainClass.value
	case Python:
		a.MainClass = pythonRunner
	case R:
		a.MainClass = rRunner
	}
	return a
}
