package parity

import (
	"slices"
	"strings"
)

// cornerCases are texts at the edge of what each reader takes.
func cornerCases() []Case {
	key := "spark.kubernetes."
	return []Case{
		// URIs of dependencies.
		accept("uri-escapes", java(o("--files", "https://h/%41%2f?q=%3D%26%20%C3%BC#f%41"))),
		refuse("uri-escaped-blank-in-fragment", "--files", java(o("--files", "https://h/a#f%20g"))),
		refuse("uri-escaped-brackets", "--files", java(o("--files", "https://h/%41%5B%5d"))),
		accept("uri-escapes-malformed-utf8", java(o("--files", "https://h/%FF%20"))),
		refuse("uri-bad-escape", "--files", java(o("--files", "https://h/%zz"))),
		accept("uri-ipv6", java(o("--files", "https://[::1]:8443/x?[y]"))),
		accept("uri-user-and-port", java(o("--files", "https://u:p@h:1/x;y=z,hdfs://n:9000/a+b"))),
		differ("file systems", "uri-upper-case-scheme", java(o("--files", "HTTPS://H/X"))),
		differ("file systems", "uri-unknown-scheme", java(o("--files", "foo://h/x"))),
		differ("file systems", "uri-opaque", java(o("--files", "a:b"))),
		accept("uri-unknown-scheme-of-resource", slices.Concat(start(), o("--class", "C", "foo://h/x.jar"))),
		accept("uri-local-one-slash", java(o("--jars", "local:/opt/x.jar"))),
		accept("uri-local-opaque", java(o("--jars", "local:opt/x.jar"))),
		accept("uri-local-host", java(o("--jars", "local://h/opt/x.jar"))),
		accept("uri-local-query", java(o("--jars", "local:///opt/x.jar?v=1#y"))),
		accept("uri-hdfs-no-host", java(o("--files", "hdfs:///a/b#c"))),
		accept("uri-fragment-empty", java(o("--files", "https://h/x#"))),
		refuse("uri-two-fragments", "--files", java(o("--files", "https://h/x#a#b"))),
		accept("uri-unicode-space", java(o("--files", "https://h/a%C2%A0b"))),
		accept("uri-quotes", java(o("--files", "https://h/a'b(c)!*~$&"))),
		accept("uri-resource-upper-case", slices.Concat(start(), o("--class", "C", "LOCAL:///a.jar"))),
		accept("uri-resource-fragment", slices.Concat(start(), o("--class", "C", "local:///a.jar#x"))),
		accept("jars-only-commas", java(o("--jars", ",,"))),
		refuse("upload-path-set", "--files", java(o("--files", "/nowhere/x"), kube("file.upload.path=s3a://b/up"))),
		accept("py-files-empty", python(o("--py-files", ""))),
		accept("r-with-files", rLang(o("--files", "local:///x", "--py-files", "local:///z.py", "--archives", "local:///a.zip"))),
		refuse("r-with-jars", "--jars", rLang(o("--jars", "local:///y.jar"))),
		refuse("r-with-jars-conf", "spark.jars", rLang(conf("jars=https://h/y.jar"))),
		accept("r-with-blank-jars", rLang(o("--jars", ","))),

		// Numbers.
		accept("number-factor-infinite", java(kube("memoryOverheadFactor=Infinity"))),
		refuse("number-factor-nan", key+"memoryOverheadFactor", java(kube("memoryOverheadFactor=NaN"))),
		accept("number-factor-beyond", java(kube("memoryOverheadFactor=1e400"))),
		accept("number-factor-tiny", java(kube("memoryOverheadFactor=4.9e-324"))),
		accept("number-factor-digits", java(kube("memoryOverheadFactor=0.1000000000000000055511151231257827"))),
		accept("number-factor-two-to-53", java(kube("memoryOverheadFactor=9007199254740993"), conf("driver.memoryOverhead=1"))),
		refuse("number-memory-beyond", "spark.driver.memory", java(conf("driver.memory=9223372036854775808"))),
		refuse("number-memory-petabytes", "spark.driver.memory", java(conf("driver.memory=8192p"))),
		accept("number-memory-leading-zeros", java(conf("driver.memory=002g"))),
		refuse("number-memory-plus", "spark.driver.memory", java(conf("driver.memory=+1g"))),
		accept("number-memory-blanks", java(conf("driver.memory= 2g "))),
		accept("number-overhead-negative", java(conf("driver.memoryOverhead=-100"))),
		accept("number-cores-leading-zeros", java(conf("driver.cores=007"))),
		accept("number-device-negative", java(conf("driver.resource.gpu.amount=-1"))),
		refuse("number-port-hexadecimal", "spark.driver.port", java(conf("driver.port=0x10"))),
		accept("number-port-plus", java(conf("driver.port=+7000"))),
		refuse("number-port-reference", "spark.driver.port", java(conf("x=7000", "driver.port=${spark.x}"))),
		accept("number-ui-port-reference", java(conf("x=4044", "ui.port=${spark.x}"))),
		differRefused("digits", "number-cores-unicode-digits", "spark.driver.cores", java(conf("driver.cores=٣"))),
		accept("boolean-blank", java(kube("local.dirs.tmpfs= TRUE "))),

		// Empty texts.
		differRefused("earlier refusal", "empty-krb5-config-map", key+"kerberos.krb5.configMapName", java(kube("kerberos.krb5.configMapName="))),
		differRefused("earlier refusal", "empty-hadoop-config-map", key+"hadoop.configMapName", java(kube("hadoop.configMapName="))),
		differRefused("earlier refusal", "empty-token-secret", key+"kerberos.tokenSecret.name", java(kube("kerberos.tokenSecret.name=", "kerberos.tokenSecret.itemKey="))),
		accept("empty-scheduler", java(kube("scheduler.name="))),
		accept("empty-pyspark", python(conf("pyspark.python=", "pyspark.driver.python="))),
		accept("empty-pull-secrets", java(kube("container.image.pullSecrets="))),
		accept("empty-oauth-token", java(kube("authenticate.driver.oauthToken="))),
		accept("empty-app-name-conf", java(conf("app.name="))),
		accept("empty-excluded-steps", java(driver("pod.excludedFeatureSteps=", "pod.featureSteps="))),
		differRefused("earlier refusal", "empty-local-dir", "spark.local.dir", java(conf("local.dir=/a,,/b,"))),
		accept("empty-sub-path", java(driver("volumes.emptyDir.e.mount.path=/e", "volumes.emptyDir.e.mount.subPath=", "volumes.emptyDir.e.options.medium="))),
		accept("empty-host-path", java(driver("volumes.hostPath.h.mount.path=/e", "volumes.hostPath.h.options.path=", "volumes.hostPath.h.options.type="))),
		accept("empty-class", slices.Concat(start(), o("--class", "", "local:///a.jar"))),
		accept("empty-template-container-name", java(driver("podTemplateContainerName="))).with(containersNamed("x", "y"), ""),
		refuse("empty-namespace", key+"namespace", java(kube("namespace="))),
		accept("empty-service-account", java(kube("authenticate.driver.serviceAccountName="))),
		refuse("empty-cpu-request", key+"driver.request.cores", java(driver("request.cores="))),
		refuse("empty-cpu-limit", key+"driver.limit.cores", java(driver("limit.cores="))),
		differRefused("earlier refusal", "empty-secret-name", key+"driver.secrets.", java(driver("secrets.=/x"))),
		differRefused("earlier refusal", "empty-secret-path", key+"driver.secrets.s", java(driver("secrets.s="))),
		refuse("empty-size-limit", key+"driver.volumes.emptyDir.e.options.sizeLimit", java(driver("volumes.emptyDir.e.mount.path=/e", "volumes.emptyDir.e.options.sizeLimit="))),
		refuse("empty-pull-policy", key+"container.image.pullPolicy", java(kube("container.image.pullPolicy="))),
		refuse("empty-local-dirs-tmpfs", key+"local.dirs.tmpfs", java(kube("local.dirs.tmpfs="))),
		refuse("empty-deploy-mode", "--deploy-mode", java(o("--deploy-mode", ""))),
		refuse("empty-num-executors", "--num-executors", java(o("--num-executors", ""))),

		// Keys and options that name files of the submitter.
		differRefused("files of the submitter", "file-properties", "--properties-file", java(o("--properties-file", Work+"/app.conf"))),
		differRefused("files of the submitter", "file-extra-properties", "--extra-properties-file", java(o("--extra-properties-file", Work+"/app.conf"))),
		differRefused("files of the submitter", "file-krb5", key+"kerberos.krb5.path", java(kube("kerberos.krb5.path="+Work+"/krb5.conf"))),
		differRefused("files of the submitter", "file-credentials", key+"authenticate.driver.caCertFile", java(kube("authenticate.driver.caCertFile="+Work+"/krb5.conf"))),
		differRefused("files of the submitter", "file-upload", "--files", java(o("--files", Work+"/app.conf"), kube("file.upload.path=file://"+Work+"/uploads"))),
		refuse("file-driver-template", key+"driver.podTemplateFile", java(driver("podTemplateFile=/nowhere.yaml"))),
		refuse("file-executor-template", key+"executor.podTemplateFile", java(kube("executor.podTemplateFile=/nowhere.yaml"))),
		accept("file-container-names-only", java(driver("podTemplateContainerName=x"), kube("executor.podTemplateContainerName=y"))),
		refuse("file-keytab-conf", "spark.kerberos.keytab", java(conf("kerberos.keytab=/nowhere/k", "kerberos.principal=p"))),

		// The same thing said twice.
		accept("twice-deploy-mode", java(conf("submit.deployMode=client"))),
		accept("twice-template-and-conf-labels", java(driver("label.a=conf", "annotation.b=conf"))).with(driverTemplate("", "", `"labels":{"a":"t","c":"t"},"annotations":{"b":"t","d":"t"}`), ""),
		accept("twice-service-port", java(conf("driver.port=15003", "connect.grpc.binding.port=15004"))),
		accept("twice-env-secret", java(kube("driverEnv.E=1"), driver("secretKeyRef.E=n:k"))),
		differRefused("earlier refusal", "twice-secret-volume", key+"driver", java(driver("secrets.s=/a", "volumes.emptyDir.s-volume.mount.path=/b"))),
		differRefused("earlier refusal", "twice-secret-path", key+"driver", java(driver("secrets.s=/a", "volumes.emptyDir.e.mount.path=/a"))),
		differRefused("earlier refusal", "twice-volume-name", key+"driver.volumes", java(driver("volumes.emptyDir.e.mount.path=/a", "volumes.hostPath.e.mount.path=/b", "volumes.hostPath.e.options.path=/c"))),
		differRefused("earlier refusal", "twice-claim", key+"driver.volumes", java(driver(
			"volumes.persistentVolumeClaim.a.mount.path=/a", "volumes.persistentVolumeClaim.a.options.claimName=c", "volumes.persistentVolumeClaim.a.options.storageClass=s", "volumes.persistentVolumeClaim.a.options.sizeLimit=1Gi",
			"volumes.persistentVolumeClaim.b.mount.path=/b", "volumes.persistentVolumeClaim.b.options.claimName=c", "volumes.persistentVolumeClaim.b.options.storageClass=s", "volumes.persistentVolumeClaim.b.options.sizeLimit=2Gi"))),

		// More volumes of executors, which are parsed at submission.
		refuse("executor-volume-read-only", key+"executor.volumes.emptyDir.e.mount.readOnly", java(kube("executor.volumes.emptyDir.e.mount.path=/e", "executor.volumes.emptyDir.e.mount.readOnly=1"))),
		refuse("executor-volume-nfs-without-server", key+"executor.volumes.nfs.n.options.server", java(kube("executor.volumes.nfs.n.mount.path=/e", "executor.volumes.nfs.n.options.path=/p"))),
		refuse("executor-volume-host-path-without-path", key+"executor.volumes.hostPath.n.options.path", java(kube("executor.volumes.hostPath.n.mount.path=/e"))),
		depends("executor-volume-size-without-unit", key+"executor.volumes.emptyDir.e.options.sizeLimit", java(kube("executor.volumes.emptyDir.e.mount.path=/e", "executor.volumes.emptyDir.e.options.sizeLimit=5"))),
		accept("executor-volumes-all-types", java(kube("executor.volumes.emptyDir.e.mount.path=/e", "executor.volumes.hostPath.h.mount.path=/h", "executor.volumes.hostPath.h.options.path=/x", "executor.volumes.nfs.n.mount.path=/n", "executor.volumes.nfs.n.options.path=/x", "executor.volumes.nfs.n.options.server=s"))),
		accept("volume-keys-with-more-dots", java(driver("volumes.emptyDir.e.mount.path=/e", "volumes.emptyDir.e.mount.path.x=/f", "volumes.emptyDir.e.label.a.b/c=d"))),

		// Templates that are no pods.
		refuse("template-scheduling-gates-text", "spec.schedulingGates", java()).with(driverTemplate("", `"schedulingGates":"x"`, ""), ""),
		accept("template-scheduling-gates", java()).with(driverTemplate("", `"schedulingGates":[{"name":"example.com/quota"}]`, ""), ""),
		differRefused("driver container", "template-only-init-containers", "spec.containers", java()).with(`{"spec":{"initContainers":[{"name":"spark-kubernetes-driver"}]}}`, ""),
		accept("template-numbers-and-big-integers", java()).with(driverTemplate(`"future":[1.5,1e3,9007199254740993,-0,true]`, `"terminationGracePeriodSeconds":9007199254740993`, ""), ""),

		// The rest.
		differ("Volcano step", "volcano-twice", java(driver("pod.featureSteps="+steps+"VolcanoFeatureStep,"+steps+"VolcanoFeatureStep"))),
		accept("app-name-reference", java(conf("x=y", "app.name=${spark.x}"))),
		accept("class-with-dollar", java(o("--class", "a.b$C"))),
		differ("environment", "substitution-system-property", java(driver("container.image=i:${system:path.separator}"))),
		differRefused("earlier refusal", "executor-template-too-big", "executor pod template", java()).with("", `{"x":"`+strings.Repeat("0123456789", 110_000)+`"}`),
		accept("many-app-arguments", slices.Concat(java(), slices.Repeat(o("x", "--conf"), 100))),
		accept("label-with-many-entries", java(driver("label.a=1", "label.b=2", "label.c=3", "label.d=4", "label.e=5", "label.f=6", "label.g=7"))),
	}
}
