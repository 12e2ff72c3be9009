package parity

import (
	"slices"
	"strings"
)

// tokenCases are about the tokenizer that both parsers share.
func tokenCases() []Case {
	cases := []Case{
		accept("token-conf-equals-form", java(o("--conf=spark.x=a=b"))),
		accept("token-conf-alias", java(o("-c", "spark.x=1"))),
		refuse("token-conf-alias-equals-form", "-c=spark.x=1", java(o("-c=spark.x=1"))),
		refuse("token-empty-inline-value", "--name=", java(o("--name="))),
		accept("token-value-looks-like-option", java(o("--name", "--verbose"))),
		refuse("token-missing-value", "--name", o("--master", master, "--deploy-mode", "cluster", "--name")),
		refuse("token-missing-value-alias", "-c", slices.Concat(start(), o("--class", "C", "-c"))),
		accept("token-switch-drops-value", java(o("--supervise=false", "--verbose=no"))),
		refuse("token-unknown-option", "--foo", java(o("--foo", "bar"))),
		refuse("token-unknown-option-inline", "--foo", java(o("--foo=1"))),
		refuse("token-single-dash", "-x", java(o("-x"))),
		refuse("token-double-dash", "--", java(o("--"))),
		refuse("token-conf-in-one-token", "--conf spark.a", java(o("--conf spark.a=b"))),
		refuse("token-memory-in-one-token", "--driver-memory 2g", java(o("--driver-memory 2g"))),
		accept("token-app-arguments-verbatim", slices.Concat(java(), o("--conf", "spark.x=1", "", "a b", "$(HOME)", "--verbose", "*", "'q'", `"d"`, "a\nb", "ü😀"))),
		refuse("token-inline-value-with-newline", "--name=a", java(o("--name=a\nb"))),
		accept("token-value-with-newline", java(o("--name", "a\nb"))),
		accept("token-verbose-alias", java(o("-v"))),
		accept("token-option-case-in-value", java(o("--name=A=B=C"))),
		refuse("token-option-in-upper-case", "--NAME", java(o("--NAME", "x"))),
		refuse("token-empty-resource", "primary resource", slices.Concat(start(), o("--class", "C", ""))),
		accept("token-dash-argument-after-resource", slices.Concat(java(), o("-x", "--", "--kill", "y"))),
	}
	// Every option with a value, in its form with "=".
	for option, value := range map[string]string{
		"--name": "n", "--queue": "q", "--driver-cores": "2", "--driver-memory": "2g", "--executor-cores": "2", "--executor-memory": "2g",
		"--num-executors": "2", "--total-executor-cores": "2", "--jars": "local:///x.jar", "--files": "local:///x", "--archives": "local:///x.zip",
		"--py-files": "local:///x.py", "--repositories": "https://r", "--exclude-packages": "g:a", "--proxy-user": "bob",
		"--driver-class-path": "/x", "--driver-library-path": "/x", "--driver-java-options": "-Dx=1", "--class": "D",
	} {
		cases = append(cases, accept("option-inline"+option[1:], java(o(option+"="+value))))
	}
	return cases
}

// launcherCases are about the first parser: what it folds, checks and refuses.
func launcherCases() []Case {
	cases := []Case{
		refuse("launcher-no-arguments", "spark_submit_args", nil),
		refuse("launcher-no-resource", "resource", slices.Concat(start(), o("--class", "C"))),
		refuse("launcher-conf-without-equals", "--conf", java(o("--conf", "spark.x"))),
		accept("launcher-conf-empty-key", java(o("--conf", "=v"))),
		accept("launcher-conf-empty-value", java(o("--conf", "spark.x="))),
		accept("launcher-conf-last-wins", java(conf("x=1", "x=2"))),
		accept("launcher-memory-then-conf", java(o("--driver-memory", "2g"), conf("driver.memory=3g"))),
		accept("launcher-conf-then-memory", java(conf("driver.memory=3g"), o("--driver-memory", "2g"))),
		accept("launcher-executor-memory-then-conf", java(o("--executor-memory", "2g"), conf("executor.memory=3g"))),
		accept("launcher-conf-then-executor-memory", java(conf("executor.memory=3g"), o("--executor-memory", "2g"))),
		accept("launcher-folded-class-path", java(o("--driver-class-path", "/a:/b"), conf("driver.extraClassPath=/c"))),
		accept("launcher-folded-library-path", java(conf("driver.extraLibraryPath=/c"), o("--driver-library-path", "/a"))),
		accept("launcher-folded-java-options", java(o("--driver-java-options", "-Da=b -Dc=\"d e\""))),
		refuse("launcher-xmx-option", "spark.driver.extraJavaOptions", java(o("--driver-java-options", "-Dx=1 -Xmx2g"))),
		refuse("launcher-xmx-conf", "spark.driver.extraJavaOptions", java(conf("driver.extraJavaOptions=-Xmx2g"))),
		refuse("launcher-xmx-quoted", "spark.driver.extraJavaOptions", java(conf(`driver.extraJavaOptions="-Xmx2g"`))),
		refuse("launcher-xmx-default-options", "spark.driver.defaultJavaOptions", java(conf("driver.defaultJavaOptions=-Xmx1g"))),
		accept("launcher-xmx-executor", java(conf("executor.extraJavaOptions=-Xmx1g"))),
		accept("launcher-xms", java(conf("driver.extraJavaOptions=-Xms1g -Xss4m"))),
		depends("launcher-open-quote", "spark.driver.extraJavaOptions", java(conf(`driver.extraJavaOptions=-Dx="y`))),
		differRefused("no submission", "launcher-help", "--help", java(o("--help"))),
		differRefused("no submission", "launcher-help-alias", "-h", java(o("-h"))),
		differRefused("no submission", "launcher-version", "--version", java(o("--version"))),
		refuse("launcher-usage-error", "--usage-error", java(o("--usage-error"))),
		refuse("launcher-properties-file", "--properties-file", java(o("--properties-file", "/nowhere/app.conf"))),
		refuse("launcher-extra-properties-file", "--extra-properties-file", java(o("--extra-properties-file", "/nowhere/app.conf"))),
		differRefused("files of the submitter", "launcher-load-spark-defaults", "--load-spark-defaults", java(o("--load-spark-defaults"))),
		accept("launcher-repeated-class", java(o("--class", "D"))),
		accept("launcher-repeated-list", java(o("--jars", "local:///x.jar", "--jars", "local:///y.jar"))),
	}
	// The text Xmx anywhere is refused by 3.5 only; see the table in package version.
	cases = append(cases, depends("launcher-xmx-inside-token", "spark.driver.extraJavaOptions", java(conf("driver.extraJavaOptions=-DnoXmxHere=1"))))
	cases = append(cases, depends("launcher-default-class-path", "--driver-default-class-path", java(o("--driver-default-class-path", "/x"))))
	for name, class := range map[string]string{
		"shell": "org.apache.spark.repl.Main", "connect-shell": "org.apache.spark.sql.application.ConnectRepl",
		"sql": "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver", "thrift": "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2",
		"connect": "org.apache.spark.sql.connect.service.SparkConnectServer",
	} {
		c := refuse("launcher-class-"+name, class, slices.Concat(start(), o("--class", class, "spark-internal")))
		if name == "connect-shell" {
			c.Differs = "Connect shell" // in 3.5
		}
		cases = append(cases, c)
	}
	for _, resource := range []string{"spark-shell", "pyspark-shell", "sparkr-shell", "connect-shell"} {
		cases = append(cases, refuse("launcher-resource-"+resource, resource, slices.Concat(start(), o("--class", "C", resource))))
	}
	return cases
}

// submitCases are about the second parser: fields, validation, master and deploy mode.
func submitCases() []Case {
	noMaster := func(options ...string) []string {
		return slices.Concat(kube("submission.waitAppCompletion=false", "container.image=img:1"), o("--class", "C"), options, o("local:///a.jar"))
	}
	cases := []Case{
		refuse("master-missing", "--master", noMaster("--deploy-mode", "cluster")),
		refuse("master-local", "--master", noMaster("--deploy-mode", "cluster", "--master", "local[2]")),
		refuse("master-yarn", "--master", noMaster("--deploy-mode", "cluster", "--master", "yarn")),
		refuse("master-upper-case", "--master", noMaster("--deploy-mode", "cluster", "--master", "K8S://h")),
		refuse("master-without-slashes", "--master", noMaster("--deploy-mode", "cluster", "--master", "k8s:h")),
		refuse("master-unknown", "--master", noMaster("--deploy-mode", "cluster", "--master", "foo")),
		refuse("master-bad-scheme", "--master", noMaster("--deploy-mode", "cluster", "--master", "k8s://ftp://h")),
		refuse("master-bad-url", "--master", noMaster("--deploy-mode", "cluster", "--master", "k8s://https://a b")),
		refuse("master-no-scheme-text", "--master", noMaster("--deploy-mode", "cluster", "--master", "k8s://://h")),
		accept("master-from-conf", noMaster("--deploy-mode", "cluster", "--conf", "spark.master="+master)),
		accept("master-option-over-conf", noMaster("--deploy-mode", "cluster", "--master", master, "--conf", "spark.master=k8s://http://other")),
		accept("master-adds-https", noMaster("--deploy-mode", "cluster", "--master", "k8s://"+TLSServer, "--conf", "spark.kubernetes.trust.certificates=true")),
		accept("master-https", noMaster("--deploy-mode", "cluster", "--master", "k8s://https://"+TLSServer, "--conf", "spark.kubernetes.trust.certificates=true")),
		accept("master-scheme-case-kept", noMaster("--deploy-mode", "cluster", "--master", "k8s://HTTP://"+PlainServer+"/")),
		accept("master-with-path-slash", noMaster("--deploy-mode", "cluster", "--master", master+"/")),
		accept("deploy-mode-from-conf", noMaster("--master", master, "--conf", "spark.submit.deployMode=cluster")),
		refuse("deploy-mode-upper-case", "--deploy-mode", noMaster("--master", master, "--deploy-mode", "Cluster")),
		refuse("deploy-mode-conf-invalid", "spark.submit.deployMode", noMaster("--master", master, "--conf", "spark.submit.deployMode=Cluster")),
		refuse("remote-with-master", "--remote", java(o("--remote", "sc://h"))),
		refuse("remote-from-conf", "spark.remote", java(conf("remote=sc://h"))),
		accept("cores-plus-sign", java(o("--driver-cores", "+2"))),
		refuse("executors-zero", "--num-executors", java(o("--num-executors", "0"))),
		accept("executors-zero-dynamic", java(o("--num-executors", "0"), conf("dynamicAllocation.enabled=TRUE"))),
		refuse("executors-zero-dynamic-off", "--num-executors", java(o("--num-executors", "0"), conf("dynamicAllocation.enabled=yes"))),
		refuse("executor-instances-conf", "spark.executor.instances", java(conf("executor.instances=abc"))),
		accept("executors-option-over-conf", java(o("--num-executors", "5"), conf("executor.instances=2"))),
		refuse("total-cores-invalid", "--total-executor-cores", java(o("--total-executor-cores", "x"))),
		refuse("cores-max-invalid", "spark.cores.max", java(conf("cores.max=0"))),
		accept("cores-max", java(conf("cores.max=3"))),
		accept("total-cores", java(o("--total-executor-cores", "4", "--supervise", "--queue", "q"))),
		refuse("proxy-user-and-principal", "--proxy-user", java(o("--proxy-user", "u", "--principal", "p"))),
		refuse("proxy-user-and-principal-conf", "--proxy-user", java(o("--proxy-user", "u"), conf("kerberos.principal=p"))),
		refuse("proxy-user-and-yarn-principal", "--proxy-user", java(o("--proxy-user", "u"), conf("yarn.principal=p"))),
		accept("proxy-user", java(o("--proxy-user", "bob"))),
		accept("proxy-user-python", python(o("--proxy-user", "bob"))),
		refuse("proxy-user-empty", "--proxy-user", java(o("--proxy-user", ""))),
		accept("name-from-class", java()),
		accept("name-from-conf", java(conf("app.name=From conf"))),
		accept("name-option-over-conf", java(o("--name", "Option"), conf("app.name=conf"))),
		accept("name-from-file", python()),
		accept("name-from-class-python", python(o("--class", "X"))),
		accept("name-from-class-with-slashes", slices.Concat(start(), o("--class", "https://h/x", "https://h/x.py?y=1"))),
		accept("name-from-file-escaped", slices.Concat(start(), o("local:///opt/a%20b.py"))),
		refuse("java-without-class", "--class", slices.Concat(start(), o("local:///a.jar"))),
		refuse("python-suffix-upper-case", "--class", slices.Concat(start(), o("local:///app.PY"))),
		refuse("python-zip-without-class", "--class", slices.Concat(start(), o("local:///app.zip"))),
		accept("non-spark-keys", java(o("--conf", "hive.x=1", "--conf", "Spark.y=1", "--conf", "sparkx=1", "--conf", "spark=1"))),
		accept("driver-host-dropped", java(conf("driver.host=h"))),
		refuse("bind-address", "spark.driver.bindAddress", java(conf("driver.bindAddress=0.0.0.0"))),
		refuse("bind-address-empty", "spark.driver.bindAddress", java(conf("driver.bindAddress="))),
		refuse("master-rest-enabled", "spark.master.rest.enabled", java(conf("master.rest.enabled=x"))),
		accept("master-rest-enabled-true", java(conf("master.rest.enabled=TRUE"))),
		accept("submit-time-kept", java(conf("app.submitTime=5"))),
		accept("app-id-overwritten", java(conf("app.id=mine"))),
		accept("yarn-queue", java(conf("yarn.queue=q"))),
		accept("driver-supervise", java(conf("driver.supervise=true"))),
	}
	for name, value := range map[string]string{"zero": "0", "negative": "-1g", "fraction": "1.5g", "gibb": "1gibb", "inner-space": "2 g", "empty": "", "word": "x"} {
		cases = append(cases,
			refuse("driver-memory-"+name, "spark.driver.memory", java(o("--driver-memory", value))),
			refuse("executor-memory-"+name, "--executor-memory", java(o("--executor-memory", value))))
	}
	for name, value := range map[string]string{"zero": "0", "fraction": "1.5", "space": " 2", "negative": "-1", "large": "2147483648"} {
		cases = append(cases,
			refuse("driver-cores-"+name, "--driver-cores", java(o("--driver-cores", value))),
			refuse("executor-cores-"+name, "--executor-cores", java(o("--executor-cores", value))))
	}
	cases = append(cases, depends("driver-memory-gib", "spark.driver.memory", java(o("--driver-memory", "1gib"))), depends("executor-memory-gib", "--executor-memory", java(o("--executor-memory", "1gib"))),
		refuse("executor-memory-conf-zero", "spark.executor.memory", java(conf("executor.memory=0"))),
		refuse("driver-cores-conf", "spark.driver.cores", java(conf("driver.cores=0"))),
		refuse("executor-cores-conf", "spark.executor.cores", java(conf("executor.cores=x"))))
	return cases
}

// dependencyCases are about jars, files, archives, py-files, packages and the primary resource.
func dependencyCases() []Case {
	cases := []Case{
		accept("jars-primary-last", java(o("--jars", "local:///x.jar"))),
		accept("jars-option-replaces-conf", java(o("--jars", "local:///x.jar"), conf("jars=local:///y.jar"))),
		accept("jars-conf-trimmed", java(conf("jars=local:///x.jar, local:///y.jar , ,"))),
		refuse("jars-option-not-trimmed", "--jars", java(o("--jars", "local:///x.jar, local:///y.jar"))),
		accept("jars-empty-option", java(o("--jars", ""))),
		accept("jars-duplicate", java(o("--jars", "local:///a.jar,local:///a.jar"))),
		accept("python-jars", python(o("--jars", "local:///x.jar"))),
		accept("python-py-files", python(o("--py-files", "local:///d.zip,https://h/e.egg"))),
		accept("python-py-files-conf", python(conf("submit.pyFiles=local:///d.zip, local:///e.zip"))),
		accept("java-py-files", java(o("--py-files", "local:///d.zip"))),
		accept("spark-internal", slices.Concat(start(), o("--class", "C", "spark-internal", "a", "b"))),
		accept("spark-internal-with-jars", slices.Concat(start(), o("--class", "C", "--jars", "local:///x.jar", "spark-internal"))),
		refuse("files-local", "--files", java(o("--files", "/etc/nothing-here"))),
		refuse("files-local-conf", "spark.files", java(conf("files=file:///nothing-here"))),
		refuse("archives-local", "--archives", java(o("--archives", "/nothing/here.zip#x"))),
		refuse("py-files-local", "--py-files", python(o("--py-files", "nothing-here.py"))),
		refuse("jars-local", "--jars", java(o("--jars", "/nothing/here.jar"))),
		refuse("resource-local-path", "primary resource", slices.Concat(start(), o("--class", "C", "/nothing/a.jar"))),
		refuse("resource-file-uri", "primary resource", slices.Concat(start(), o("--class", "C", "file:///nothing/a.jar"))),
		refuse("resource-python-local", "primary resource", slices.Concat(start(), o("/nothing/app.py"))),
		refuse("resource-with-braces", "primary resource", slices.Concat(start(), o("s3a://b/{{APP_ID}}/x.py"))),
		refuse("resource-with-blank", "primary resource", slices.Concat(start(), o("--class", "C", "local:///opt/a b.jar"))),
		accept("files-percent-decoded", java(o("--files", "https://h/a%2Fb?x=%26"))),
		accept("files-percent-kept", java(o("--files", "https://h/a%20b%23c%25d"))),
		accept("files-fragment", java(o("--files", "https://h/a.conf#app.conf"))),
		accept("files-several", java(o("--files", "https://h/a,local:///b,s3a://c/d,ftp://h/e"))),
		accept("files-unicode", java(o("--files", "https://h/ü.txt"))),
		accept("archives-fragment", java(o("--archives", "s3a://b/e.tgz#env"))),
		accept("archives-conf", java(conf("archives=https://h/e.tgz#env, local:///f.zip"))),
		differ("existence", "jars-glob", java(o("--jars", "s3a://b/a_*.jar"))),
		accept("resource-s3a", slices.Concat(start(), o("--class", "C", "s3a://b/a.jar"))),
		accept("resource-https", slices.Concat(start(), o("--class", "C", "https://h/a.jar"))),
		accept("resource-hdfs-python", slices.Concat(start(), o("hdfs://n/app.py", "in", "out"))),
		accept("resource-gs-python", slices.Concat(start(), o("gs://b/app.py"))),
		accept("resource-percent", slices.Concat(start(), o("--class", "C", "https://h/a%2Fb.jar"))),
		accept("repositories-and-excludes", java(o("--repositories", "https://r1,https://r2", "--exclude-packages", "g:bad"))),
		accept("repositories-conf", java(conf("jars.repositories=https://r", "jars.excludes=g:b", "jars.ivy=/tmp/ivy"))),
		accept("packages", java(o("--packages", "org.example:thing:1", "--repositories", "https://r", "--exclude-packages", "g:b"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		accept("packages-conf", python(conf("jars.packages=org.example:thing:1", "jars.ivySettings="+Work+"/ivysettings.xml"))),
		differ("packages", "packages-unresolvable", java(o("--packages", "org.example:nothing:1"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		refuse("packages-blank-part", "--packages", java(o("--packages", "org.example: :1"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		refuse("packages-excludes-malformed", "--exclude-packages", java(o("--packages", "org.example:thing:1", "--exclude-packages", "g"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		accept("packages-slash", java(conf("jars.packages=org.example/thing/1", "jars.ivySettings="+Work+"/ivysettings.xml"))),
		refuse("packages-trailing-comma", "--packages", java(o("--packages", "org.example:thing:1,,x"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		refuse("packages-malformed", "--packages", java(o("--packages", "org.example"), conf("jars.ivySettings="+Work+"/ivysettings.xml"))),
		accept("packages-blank", java(o("--packages", " "))),
		accept("upload-path-without-files", java(kube("file.upload.path=s3a://b/up"))),
	}
	return cases
}

// long is n times the letter a.
func long(n int) string { return strings.Repeat("a", n) }
