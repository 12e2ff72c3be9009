package parity

import (
	"fmt"
	"slices"
	"strings"
)

// nameCases are about what is made of the application's name.
func nameCases() []Case {
	var cases []Case
	for i, name := range []string{
		"Spark Pi", "3d render", "my_app.v2", "-lead", "__x__", "ÜberJob", "123", "9-1", "org.apache.spark.examples.SparkPi",
		"İstanbul", "a😀b", "trail--", " spaces ", "UPPER", "ΣΑΣ", "a\tb", "spark", "tab\u00a0nbsp", "a/b\\c", "é", "x'\"`$(id)", "=", ":", "#", "a=b:c#d!e",
	} {
		cases = append(cases, accept(fmt.Sprintf("name-%02d", i+1), java(o("--name", name))))
	}
	return append(cases,
		accept("name-empty", java(o("--name", ""))),
		accept("name-blanks", java(o("--name", "   "))),
		accept("name-ideographs", java(o("--name", "日本語"))),
		accept("name-35-characters", java(o("--name", long(35)))),
		accept("name-36-characters", java(o("--name", long(36)))),
		accept("name-62-and-tail", java(o("--name", long(62)+"-bcd"))),
		accept("name-63-characters", java(o("--name", long(63)))),
		accept("name-64-characters", java(o("--name", long(64)))),
		accept("name-229-characters", java(o("--name", long(228)), driver("pod.name=p"))),
		differRefused("earlier refusal", "name-300-characters", "spark.app.name", java(o("--name", long(300)))),
		accept("pod-name", java(driver("pod.name=my-pod"))),
		accept("pod-name-with-dots", java(driver("pod.name=my.pod.1"))),
		differRefused("earlier refusal", "pod-name-illegal", "spark.kubernetes.driver.pod.name", java(driver("pod.name=My_Pod"))),
		differRefused("earlier refusal", "pod-name-empty", "spark.kubernetes.driver.pod.name", java(driver("pod.name="))),
		accept("resource-name-prefix-ignored", java(driver("resourceNamePrefix=z"))),
		accept("namespace", java(kube("namespace=jobs"))),
		differRefused("earlier refusal", "namespace-illegal", "spark.kubernetes.namespace", java(kube("namespace=Jobs"))),
	)
}

// containerCases are about the driver's container: image, ports, cpu, devices and environment.
func containerCases() []Case {
	noImage := slices.Concat(o("--master", master, "--deploy-mode", "cluster", "--class", "C"), kube("submission.waitAppCompletion=false"), o("local:///a.jar"))
	return []Case{
		accept("image-of-driver-wins", java(driver("container.image=drv:2"))),
		refuse("image-missing", "spark.kubernetes.container.image", noImage),
		refuse("image-missing-template-has-one", "spark.kubernetes.container.image", noImage).with(
			`{"spec":{"containers":[{"name":"spark-kubernetes-driver","image":"t"}]}}`, ""),
		accept("image-executor-only-beside", java(kube("executor.container.image=x"))),
		accept("image-spark-version", java(driver("container.image=r/spark:{{SPARK_VERSION}}-{{SPARK_VERSION}}"))),
		differRefused("earlier refusal", "image-empty", "spark.kubernetes.driver.container.image", java(driver("container.image="))),
		accept("pull-policy-always", java(kube("container.image.pullPolicy=Always"))),
		accept("pull-policy-never", java(kube("container.image.pullPolicy=Never"))),
		refuse("pull-policy-lower-case", "spark.kubernetes.container.image.pullPolicy", java(kube("container.image.pullPolicy=always"))),
		accept("pull-secrets", java(kube("container.image.pullSecrets=a, ,b"))),
		accept("ports-custom", java(conf("driver.port=1", "driver.blockManager.port=2", "ui.port=3", "connect.grpc.binding.port=4"))),
		accept("ports-block-manager-general", java(conf("blockManager.port=9000"))),
		accept("ports-block-manager-both", java(conf("blockManager.port=9000", "driver.blockManager.port=9001"))),
		refuse("port-ui-invalid", "spark.ui.port", java(conf("ui.port=x"))),
		refuse("port-driver-invalid", "spark.driver.port", java(conf("driver.port=x"))),
		refuse("port-driver-blank", "spark.driver.port", java(conf("driver.port= 7078"))),
		accept("port-ui-blank", java(conf("ui.port= 4041 "))),
		refuse("port-block-manager-invalid", "spark.driver.blockManager.port", java(conf("driver.blockManager.port=1.5"))),
		differRefused("earlier refusal", "port-ui-zero", "spark.ui.port", java(conf("ui.port=0"))),
		differRefused("earlier refusal", "port-driver-zero", "spark.driver.port", java(conf("driver.port=0"))),
		differRefused("earlier refusal", "port-block-manager-zero", "spark.driver.blockManager.port", java(conf("driver.blockManager.port=0"))),
		differRefused("earlier refusal", "port-too-large", "spark.driver.port", java(conf("driver.port=65536"))),
		differRefused("earlier refusal", "port-negative", "spark.driver.port", java(conf("driver.port=-1"))),
		differRefused("earlier refusal", "ports-equal", "spark.ui.port", java(conf("ui.port=7078"))),
		accept("cpu-request-text", java(driver("request.cores=500m", "limit.cores=2"))),
		accept("cpu-request-over-cores", java(driver("request.cores=0.1"), conf("driver.cores=4"))),
		accept("cpu-cores", java(conf("driver.cores=3"))),
		accept("cpu-limit-only", java(driver("limit.cores=1500m"))),
		accept("cpu-limit-odd-spelling", java(driver("request.cores=1e0", "limit.cores=2000m"))),
		differRefused("earlier refusal", "cpu-request-no-quantity", "spark.kubernetes.driver.request.cores", java(driver("request.cores=abc"))),
		differRefused("earlier refusal", "cpu-limit-no-quantity", "spark.kubernetes.driver.limit.cores", java(driver("limit.cores=1 core"))),
		differRefused("earlier refusal", "cpu-limit-below-request", "spark.kubernetes.driver.limit.cores", java(driver("limit.cores=500m"))),
		accept("device", java(conf("driver.resource.gpu.amount=2", "driver.resource.gpu.vendor=nvidia.com"))),
		accept("devices-two", java(conf("driver.resource.gpu.amount=1", "driver.resource.gpu.vendor=nvidia.com", "driver.resource.fpga.amount=3", "driver.resource.fpga.vendor=x.io", "driver.resource.fpga.discoveryScript=/s"))),
		accept("device-amount-zero", java(conf("driver.resource.gpu.amount=0"))),
		refuse("device-without-vendor", "spark.driver.resource.gpu.vendor", java(conf("driver.resource.gpu.amount=2"))),
		refuse("device-without-amount", "spark.driver.resource.gpu.amount", java(conf("driver.resource.gpu.vendor=n"))),
		refuse("device-amount-invalid", "spark.driver.resource.gpu.amount", java(conf("driver.resource.gpu.amount=two", "driver.resource.gpu.vendor=n"))),
		refuse("device-without-attribute", "spark.driver.resource.gpu", java(conf("driver.resource.gpu=2"))),
		accept("device-of-executor", java(conf("executor.resource.gpu.amount=2"))),
		differRefused("earlier refusal", "device-vendor-illegal", "spark.driver.resource.gpu.vendor", java(conf("driver.resource.gpu.amount=1", "driver.resource.gpu.vendor=a b"))),
		accept("env", java(kube("driverEnv.A=", "driverEnv.B=x=y", "driverEnv.C=$(A)", "driverEnv.lower.dot-dash_1=v"))),
		accept("env-hostile", java(kube("driverEnv.Q='\"`$\\", "driverEnv.N=a\nb", "driverEnv.U=ü😀", "driverEnv.S= lead and trail "))),
		accept("env-of-spark-user", java(kube("driverEnv.SPARK_USER=z"))),
		accept("env-of-application-id", java(kube("driverEnv.SPARK_APPLICATION_ID=z"))),
		accept("env-of-bind-address", java(kube("driverEnv.SPARK_DRIVER_BIND_ADDRESS=z"))),
		accept("env-of-conf-dir", java(kube("driverEnv.SPARK_CONF_DIR=/z"))),
		differRefused("earlier refusal", "env-name-empty", "spark.kubernetes.driverEnv.", java(kube("driverEnv.=v"))),
		accept("env-executor", java(conf("executorEnv.A=1"))),
		accept("escalation-general", java(kube("securityContext.allowPrivilegeEscalation=true"))),
		accept("escalation-driver", java(driver("securityContext.allowPrivilegeEscalation=true"))),
		accept("escalation-driver-over-general", java(kube("securityContext.allowPrivilegeEscalation=true"), driver("securityContext.allowPrivilegeEscalation= False "))),
		accept("escalation-executor", java(kube("executor.securityContext.allowPrivilegeEscalation=true"))),
		depends("escalation-general-invalid", "spark.kubernetes.securityContext.allowPrivilegeEscalation", java(kube("securityContext.allowPrivilegeEscalation=x"))),
		accept("escalation-general-invalid-unused", java(kube("securityContext.allowPrivilegeEscalation=x"), driver("securityContext.allowPrivilegeEscalation=true"))),
		depends("escalation-driver-invalid", "spark.kubernetes.driver.securityContext.allowPrivilegeEscalation", java(driver("securityContext.allowPrivilegeEscalation=x"))),
		accept("service-account", java(kube("authenticate.driver.serviceAccountName=sa"))),
		accept("service-account-executor", java(kube("authenticate.executor.serviceAccountName=sa"))),
		differRefused("earlier refusal", "service-account-illegal", "spark.kubernetes.authenticate.driver.serviceAccountName", java(kube("authenticate.driver.serviceAccountName=S A"))),
	}
}

// memoryCases are about heap, overhead and the factor that is written back.
func memoryCases() []Case {
	memory := func(name string, options ...string) Case { return accept("memory-"+name, java(conf(options...))) }
	cases := []Case{
		memory("2g", "driver.memory=2g"),
		memory("5g", "driver.memory=5g"),
		memory("upper-case", "driver.memory=2G"),
		memory("two-letters", "driver.memory=2Gb"),
		memory("kibibytes", "driver.memory=500k"),
		memory("kibibytes-truncated", "driver.memory=1500k"),
		memory("bytes", "driver.memory=1073741824b"),
		depends("memory-binary-suffixes", "spark.driver.memory", java(conf("driver.memory=2Gi", "driver.memoryOverhead=512mib", "executor.memory=1048576kib"))),
		refuse("memory-binary-suffix-unknown", "spark.driver.memory", java(conf("driver.memory=1eib"))),
		memory("terabyte", "driver.memory=1t"),
		memory("overhead-bytes", "driver.memory=4g", "driver.memoryOverhead=100"),
		memory("overhead-unit", "driver.memory=4g", "driver.memoryOverhead=1g"),
		memory("overhead-one", "driver.memoryOverhead=1"),
		memory("overhead-zero", "driver.memoryOverhead=0"),
		memory("driver-factor", "driver.memory=8g", "driver.memoryOverheadFactor=0.25"),
		memory("minimum", "driver.minMemoryOverhead=100m"),
		memory("minimum-raised", "driver.minMemoryOverhead=1g"),
		memory("factor-precedence", "driver.memory=10g", "kubernetes.memoryOverheadFactor=0.2", "driver.memoryOverheadFactor=0.3"),
		memory("general-factor", "driver.memory=10g", "kubernetes.memoryOverheadFactor=0.2"),
		memory("factor-zero", "kubernetes.memoryOverheadFactor=0"),
		memory("factor-hex", "kubernetes.memoryOverheadFactor=0x1p-2"),
		memory("factor-suffix", "kubernetes.memoryOverheadFactor=0.5d"),
		memory("factor-large", "driver.memory=1g", "kubernetes.memoryOverheadFactor=1e7", "driver.memoryOverhead=1g"),
		memory("factor-third", "driver.memory=10g", "kubernetes.memoryOverheadFactor=0.3333333333333333"),
		memory("executor-untouched", "executor.memory=2g", "executor.memoryOverhead=1g", "executor.memoryOverheadFactor=0.5"),
		memory("off-heap", "memory.offHeap.enabled=true", "memory.offHeap.size=2g"),
		accept("memory-plain-number", java(o("--driver-memory", "512"))),
		accept("memory-option-kibibytes", java(o("--driver-memory", "500k"))),
		accept("memory-python", python(conf("driver.memory=2g"))),
		accept("memory-python-default", python()),
		accept("memory-python-factor", python(kube("memoryOverheadFactor=0.1"))),
		accept("memory-r", rLang(conf("driver.memory=3g"))),
		refuse("memory-factor-negative", "spark.kubernetes.memoryOverheadFactor", java(kube("memoryOverheadFactor=-1"))),
		refuse("memory-factor-word", "spark.kubernetes.memoryOverheadFactor", java(kube("memoryOverheadFactor=x"))),
		refuse("memory-driver-factor-zero", "spark.driver.memoryOverheadFactor", java(conf("driver.memoryOverheadFactor=0"))),
		refuse("memory-driver-factor-word", "spark.driver.memoryOverheadFactor", java(conf("driver.memoryOverheadFactor=ten"))),
		refuse("memory-overhead-fraction", "spark.driver.memoryOverhead", java(conf("driver.memoryOverhead=1.5g"))),
		depends("memory-overhead-gib", "spark.driver.memoryOverhead", java(conf("driver.memoryOverhead=1gib"))),
		depends("memory-minimum-word", "spark.driver.minMemoryOverhead", java(conf("driver.minMemoryOverhead=abc"))),
	}
	for name, factor := range map[string]string{"one": "1", "short": ".2", "small": "1e-4", "trailing": "0.10", "thousandth": "0.001", "blank": " 0.3 "} {
		cases = append(cases, accept("memory-factor-text-"+name, java(kube("memoryOverheadFactor="+factor))))
	}
	return cases
}

// metadataCases are about labels, annotations, node selectors and the scheduler.
func metadataCases() []Case {
	cases := []Case{
		// 3.5 keeps the placeholders, and then it is no label.
		differRefused("earlier refusal", "labels-substituted", "spark.kubernetes.driver.label.a", java(driver("label.a=x-{{APP_ID}}", "label.b={{EXECUTOR_ID}}", "label.c=plain"))),
		differRefused("earlier refusal", "labels-substituted-twice", "spark.kubernetes.driver.label.a", java(driver("label.a={{APP_ID}}{{EXECUTOR_ID}}"))),
		accept("label-key-with-dots", java(driver("label.a.b/c=v"))),
		accept("label-empty-value", java(driver("label.a="))),
		accept("label-63-characters", java(driver("label.a="+long(63)))),
		differRefused("earlier refusal", "label-64-characters", "spark.kubernetes.driver.label.a", java(driver("label.a="+long(64)))),
		differRefused("earlier refusal", "label-value-illegal", "spark.kubernetes.driver.label.a", java(driver("label.a=x y"))),
		differRefused("earlier refusal", "label-key-empty", "spark.kubernetes.driver.label.", java(driver("label.=x"))),
		differRefused("earlier refusal", "label-unresolved-placeholder", "spark.kubernetes.driver.label.a", java(driver("label.a={{OTHER}}"))),
		accept("annotations", java(driver("annotation.a={{APP_ID}}", "annotation.b.c/d=any text: \"x\" = y", "annotation.e="))),
		accept("annotation-hostile", java(driver("annotation.n=a\nb\tc", "annotation.u=ü😀", "annotation.q='\"\\"))),
		differRefused("earlier refusal", "annotation-key-illegal", "spark.kubernetes.driver.annotation.a b", java(driver("annotation.a b=x"))),
		accept("labels-of-executor", java(kube("executor.label.a=b", "executor.annotation.c=d", "executor.label.spark-role=x"))),
		accept("node-selectors", java(kube("node.selector.a=1", "node.selector.b/c=2"), driver("node.selector.a=3"))),
		accept("node-selectors-of-executor", java(kube("executor.node.selector.a=1"))),
		differRefused("earlier refusal", "node-selector-illegal", "spark.kubernetes.node.selector.a", java(kube("node.selector.a=x y"))),
		accept("scheduler-general", java(kube("scheduler.name=s"))),
		accept("scheduler-driver", java(kube("scheduler.name=s"), driver("scheduler.name=d"))),
		accept("scheduler-executor", java(kube("executor.scheduler.name=e"))),
	}
	for _, label := range []string{"spark-version", "spark-app-selector", "spark-app-name", "spark-role"} {
		cases = append(cases, refuse("label-reserved-"+label, "spark.kubernetes.driver.label."+label, java(driver("label."+label+"=x"))))
	}
	return cases
}

// volumeCases are about volumes of each type, claims and local directories.
func volumeCases() []Case {
	v := func(volume string, options ...string) []string {
		var args []string
		for _, option := range options {
			args = append(args, driver("volumes."+volume+"."+option)...)
		}
		return args
	}
	key := func(rest string) string { return "spark.kubernetes.driver.volumes." + rest }
	claim := "persistentVolumeClaim.data"
	cases := []Case{
		accept("volume-host-path", java(v("hostPath.h", "mount.path=/h", "options.path=/host"))),
		accept("volume-host-path-type", java(v("hostPath.h", "mount.path=/h", "mount.readOnly=true", "options.path=/host", "options.type=DirectoryOrCreate"))),
		refuse("volume-host-path-without-path", key("hostPath.h.options.path"), java(v("hostPath.h", "mount.path=/h"))),
		accept("volume-empty-dir", java(v("emptyDir.e", "mount.path=/e"))),
		accept("volume-empty-dir-memory", java(v("emptyDir.e", "mount.path=/e", "options.medium=Memory", "options.sizeLimit=1Gi"))),
		accept("volume-empty-dir-size", java(v("emptyDir.e", "mount.path=/e", "options.sizeLimit=2048"))),
		differRefused("earlier refusal", "volume-empty-dir-size-no-quantity", key("emptyDir.e.options.sizeLimit"), java(v("emptyDir.e", "mount.path=/e", "options.sizeLimit=big"))),
		accept("volume-nfs", java(v("nfs.n", "mount.path=/n", "options.path=/export", "options.server=srv"))),
		accept("volume-nfs-read-only", java(v("nfs.n", "mount.path=/n", "mount.readOnly=true", "options.path=/export", "options.server=srv"))),
		refuse("volume-nfs-without-server", key("nfs.n.options.server"), java(v("nfs.n", "mount.path=/n", "options.path=/export"))),
		refuse("volume-nfs-without-path", key("nfs.n.options.path"), java(v("nfs.n", "mount.path=/n", "options.server=s"))),
		accept("volume-claim", java(v(claim, "mount.path=/d", "options.claimName=c"))),
		accept("volume-claim-read-only", java(v(claim, "mount.path=/d", "mount.readOnly=TRUE", "options.claimName=c"))),
		refuse("volume-claim-without-name", key(claim+".options.claimName"), java(v(claim, "mount.path=/d"))),
		accept("volume-claim-on-demand", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi"))),
		accept("volume-claim-on-demand-no-size", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3"))),
		accept("volume-claim-on-demand-no-class", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.sizeLimit=10Gi"))),
		accept("volume-claim-on-demand-bare", java(v(claim, "mount.path=/d", "options.claimName=OnDemand"))),
		accept("volume-claim-named-created", java(v(claim, "mount.path=/d", "options.claimName=c", "options.storageClass=gp3", "options.sizeLimit=10Gi"))),
		accept("volume-claim-inside-text", java(v(claim, "mount.path=/d", "options.claimName=x-OnDemand-OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi"))),
		accept("volume-claims-two", java(v("persistentVolumeClaim.a", "mount.path=/a", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=1Gi"),
			v("persistentVolumeClaim.b", "mount.path=/b", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=2Gi"),
			v("emptyDir.c", "mount.path=/c"))),
		accept("volume-claim-labels", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi",
			"label.a=b", "label.spark-app-selector=z", "label.id=x", "annotation.c/d=e f"))),
		accept("volume-claim-legacy-mode", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi"), kube("legacy.useReadWriteOnceAccessMode=true"))),
		accept("volume-claim-legacy-mode-off", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi"), kube("legacy.useReadWriteOnceAccessMode=false"))),
		refuse("volume-claim-legacy-mode-invalid", "spark.kubernetes.legacy.useReadWriteOnceAccessMode", java(v(claim, "mount.path=/d", "options.claimName=OnDemand", "options.storageClass=gp3", "options.sizeLimit=10Gi"), kube("legacy.useReadWriteOnceAccessMode=x"))),
		depends("volume-size-without-unit", key(claim+".options.sizeLimit"), java(v(claim, "mount.path=/d", "options.claimName=c", "options.sizeLimit=512"))),
		depends("volume-empty-dir-size-without-unit", key("emptyDir.e.options.sizeLimit"), java(v("emptyDir.e", "mount.path=/e", "options.sizeLimit=1023"))),
		refuse("volume-without-mount-path", key("nfs.n.mount.path"), java(v("nfs.n", "options.path=/x"))),
		refuse("volume-unknown-type-without-mount-path", key("cephfs.n.mount.path"), java(v("cephfs.n", "options.path=/x"))),
		refuse("volume-unknown-type", key("configMap.n"), java(v("configMap.n", "mount.path=/x"))),
		refuse("volume-type-upper-case", key("HostPath.n"), java(v("HostPath.n", "mount.path=/x", "options.path=/y"))),
		refuse("volume-read-only-yes", key("emptyDir.e.mount.readOnly"), java(v("emptyDir.e", "mount.path=/e", "mount.readOnly=yes"))),
		refuse("volume-read-only-blank", key("emptyDir.e.mount.readOnly"), java(v("emptyDir.e", "mount.path=/e", "mount.readOnly= true"))),
		accept("volume-read-only-false", java(v("emptyDir.e", "mount.path=/e", "mount.readOnly=False"))),
		accept("volume-sub-path", java(v("emptyDir.e", "mount.path=/e", "mount.subPath=s"))),
		accept("volume-sub-path-expr", java(v("emptyDir.e", "mount.path=/e", "mount.subPathExpr=$(A)/s"))),
		depends("volume-sub-path-both", key("emptyDir.e.mount.subPathExpr"), java(v("emptyDir.e", "mount.path=/e", "mount.subPath=s", "mount.subPathExpr=t"))),
		refuse("volume-duplicate-mount-path", "/e", java(v("emptyDir.e", "mount.path=/e"), v("emptyDir.f", "mount.path=/e"))),
		accept("volume-short-keys-ignored", java(driver("volumes.hostPath=x", "volumes.=y"))),
		accept("volume-unknown-option", java(v("emptyDir.e", "mount.path=/e", "options.whatever=1"))),
		accept("volumes-all-types", java(v("emptyDir.e", "mount.path=/e"), v("hostPath.h", "mount.path=/h", "options.path=/x"), v("nfs.n", "mount.path=/n", "options.path=/x", "options.server=s"), v(claim, "mount.path=/d", "options.claimName=c"))),
		differRefused("earlier refusal", "volume-name-illegal", key("emptyDir.Big_Name.mount.path"), java(v("emptyDir.Big_Name", "mount.path=/e"))),
		differRefused("earlier refusal", "volume-mount-path-empty", key("emptyDir.e.mount.path"), java(v("emptyDir.e", "mount.path="))),
		differRefused("earlier refusal", "volume-mount-path-of-conf", key("emptyDir.e.mount.path"), java(v("emptyDir.e", "mount.path=/opt/spark/conf"))),
		refuse("executor-volume-without-mount-path", "spark.kubernetes.executor.volumes.nfs.n.mount.path", java(kube("executor.volumes.nfs.n.options.path=/x"))),
		refuse("executor-volume-unknown-type", "spark.kubernetes.executor.volumes.x.n", java(kube("executor.volumes.x.n.mount.path=/x"))),
		refuse("executor-volume-claim-without-name", "spark.kubernetes.executor.volumes.persistentVolumeClaim.n.options.claimName", java(kube("executor.volumes.persistentVolumeClaim.n.mount.path=/x"))),
		accept("executor-volumes-same-path", java(kube("executor.volumes.emptyDir.a.mount.path=/x", "executor.volumes.emptyDir.b.mount.path=/x"))),
		accept("executor-volume-claim", java(kube("executor.volumes.persistentVolumeClaim.d.mount.path=/x", "executor.volumes.persistentVolumeClaim.d.options.claimName=OnDemand", "executor.volumes.persistentVolumeClaim.d.options.storageClass=s", "executor.volumes.persistentVolumeClaim.d.options.sizeLimit=1Gi"))),
		accept("local-dir-conf", java(conf("local.dir=/a"))),
		accept("local-dir-conf-list", java(conf("local.dir=/a,/b,/c"))),
		accept("local-dir-conf-blank", java(conf("local.dir=/a, /b"))),
		accept("local-dir-tmpfs", java(kube("local.dirs.tmpfs=true"))),
		refuse("local-dir-tmpfs-invalid", "spark.kubernetes.local.dirs.tmpfs", java(kube("local.dirs.tmpfs=x"))),
		accept("local-dir-user-volume", java(v("emptyDir.spark-local-dir-x", "mount.path=/q"))),
		accept("local-dir-user-volumes", java(v("emptyDir.spark-local-dir-1", "mount.path=/q"), v("hostPath.spark-local-dir-2", "mount.path=/p", "options.path=/h"))),
		accept("local-dir-user-volume-over-conf", java(v("emptyDir.spark-local-dir-1", "mount.path=/q"), conf("local.dir=/ignored"))),
	}
	return cases
}

// secretCases are about Secrets, credentials, Kerberos and Hadoop.
func secretCases() []Case {
	auth := "spark.kubernetes.authenticate."
	cases := []Case{
		accept("secret-mounted", java(driver("secrets.s=/etc/s"))),
		accept("secrets-two", java(driver("secrets.s=/etc/s", "secrets.a=/etc/a"))),
		accept("secrets-of-executor", java(kube("executor.secrets.s=/etc/s", "executor.secretKeyRef.E=n:k"))),
		accept("secret-env", java(driver("secretKeyRef.E=n:k"))),
		accept("secret-envs-two", java(driver("secretKeyRef.Z=n:k", "secretKeyRef.A=m:l"))),
		accept("secret-env-trailing-colon", java(driver("secretKeyRef.E=n:k:"))),
		accept("credentials-token", java(kube("authenticate.driver.oauthToken=t", "authenticate.driver.serviceAccountName=sa"))),
		accept("credentials-token-mounted", java(kube("authenticate.driver.oauthToken=t", "authenticate.driver.mounted.oauthTokenFile=/m"))),
		accept("credentials-mounted-only", java(kube("authenticate.driver.mounted.oauthTokenFile=/m", "authenticate.driver.mounted.caCertFile=/c", "authenticate.driver.mounted.clientKeyFile=/k", "authenticate.driver.mounted.clientCertFile=/e", "authenticate.driver.serviceAccountName=sa"))),
		accept("credentials-suffix-redacted", java(conf("foo.oauthToken=x", "kubernetes.authenticate.oauthToken=y", "foo.oauthtoken=z"))),
		accept("credentials-client-mode", java(kube("authenticate.oauthTokenFile=/f", "authenticate.caCertFile=/c"))),
		refuse("credentials-submission-both", auth+"submission.oauthToken", java(kube("authenticate.submission.oauthToken=t", "authenticate.submission.oauthTokenFile=/f"))),
		differRefused("own connection", "credentials-submission", auth+"submission.oauthToken", java(kube("authenticate.submission.oauthToken=t"))),
		differRefused("own connection", "context", "spark.kubernetes.context", java(kube("context=c"))),
		accept("krb5-config-map", java(kube("kerberos.krb5.configMapName=krb"))),
		refuse("krb5-both", "spark.kubernetes.kerberos.krb5.path", java(kube("kerberos.krb5.configMapName=krb", "kerberos.krb5.path=/nowhere"))),
		refuse("krb5-path-missing", "spark.kubernetes.kerberos.krb5.path", java(kube("kerberos.krb5.path=/nowhere/krb5.conf"))),
		accept("token-secret", java(kube("kerberos.tokenSecret.name=ts", "kerberos.tokenSecret.itemKey=hadoop-tok"))),
		accept("krb5-and-token-secret", java(kube("kerberos.krb5.configMapName=krb", "kerberos.tokenSecret.name=ts", "kerberos.tokenSecret.itemKey=k"))),
		refuse("token-secret-without-key", "spark.kubernetes.kerberos.tokenSecret.name", java(kube("kerberos.tokenSecret.name=ts"))),
		refuse("token-secret-without-name", "spark.kubernetes.kerberos.tokenSecret.itemKey", java(kube("kerberos.tokenSecret.itemKey=k"))),
		refuse("keytab-without-principal", "spark.kerberos.keytab", java(conf("kerberos.keytab=local:///k"))),
		refuse("principal-without-keytab", "spark.kerberos.principal", java(conf("kerberos.principal=p"))),
		refuse("keytab-file-missing", "spark.kerberos.keytab", java(o("--keytab", "/nowhere/k", "--principal", "p"))),
		accept("keytab-local-uri", java(o("--keytab", "local:///k", "--principal", "p@R"))),
		accept("keytab-local-uri-with-token-secret", java(o("--keytab", "local:///k", "--principal", "p@R"), kube("kerberos.tokenSecret.name=ts", "kerberos.tokenSecret.itemKey=k"))),
		accept("keytab-yarn-spelling", java(conf("yarn.keytab=local:///k", "yarn.principal=p@R"))),
		accept("hadoop-config-map", java(kube("hadoop.configMapName=hc"))),
		accept("hadoop-everything", java(kube("hadoop.configMapName=hc", "kerberos.krb5.configMapName=krb", "kerberos.tokenSecret.name=ts", "kerberos.tokenSecret.itemKey=k"))),
	}
	for name, value := range map[string]string{"one-part": "n", "no-key": "n:", "three-parts": "a:b:c", "empty": ""} {
		cases = append(cases, refuse("secret-env-"+name, "spark.kubernetes.driver.secretKeyRef.E", java(driver("secretKeyRef.E="+value))))
	}
	for _, file := range []string{"clientKeyFile", "clientCertFile", "caCertFile"} {
		cases = append(cases, refuse("credentials-"+strings.ToLower(file), auth+"driver."+file, java(kube("authenticate.driver."+file+"=/nowhere"))))
	}
	return append(cases, accept("secret-env-no-name", java(driver("secretKeyRef.E=:k"))))
}

// networkCases are about the Service.
func networkCases() []Case {
	return []Case{
		accept("service-dual-stack", java(driver("service.ipFamilyPolicy=PreferDualStack", "service.ipFamilies=IPv6,IPv4"))),
		accept("service-require-dual-stack", java(driver("service.ipFamilyPolicy=RequireDualStack", "service.ipFamilies=IPv4,IPv6"))),
		accept("service-ipv6", java(driver("service.ipFamilies=IPv6"))),
		refuse("service-family-lower-case", "spark.kubernetes.driver.service.ipFamilies", java(driver("service.ipFamilies=ipv4"))),
		refuse("service-family-blank", "spark.kubernetes.driver.service.ipFamilies", java(driver("service.ipFamilies=IPv4, IPv6"))),
		refuse("service-family-policy-invalid", "spark.kubernetes.driver.service.ipFamilyPolicy", java(driver("service.ipFamilyPolicy=Dual"))),
		accept("service-labels", java(driver("service.label.a=b", "service.label.spark-app-selector=z", "service.annotation.c/d=e {{APP_ID}}"))),
		accept("service-selector-has-custom-labels", java(driver("label.team=a", "service.label.team=b"))),
		accept("service-publish-not-ready", java(driver("service.publishNotReadyAddresses=true"))),
		depends("service-publish-not-ready-invalid", "spark.kubernetes.driver.service.publishNotReadyAddresses", java(driver("service.publishNotReadyAddresses=x"))),
		accept("service-delete-on-termination", java(driver("service.deleteOnTermination=false"))),
		accept("service-extra-port", java(driver("service.port.metrics=9090"))),
		differRefused("earlier refusal", "service-label-illegal", "spark.kubernetes.driver.service.label.a", java(driver("service.label.a=x y"))),
	}
}

// propertiesCases are about spark.properties: escapes, substitution, size.
func propertiesCases() []Case {
	cases := []Case{
		accept("properties-hostile-values", java(conf("v1=a:b=c#d!e\\f", "v2= lead", "v3=trail ", "v4=a\tb\nc\rd\fe", "v5=ü😀\u2028", "v6='\"`$(x)", "v7=", "v8=\\", "v9=\\n", "v10=#x", "v11=a=b"))),
		accept("properties-hostile-keys", java(o("--conf", "spark.a b=1", "--conf", "spark.c:d=2", "--conf", "spark.e#f!=3", "--conf", "spark.ü=4", "--conf", "spark.\t=5", "--conf", "spark.g\\h=6", "--conf", "spark.=7"))),
		accept("properties-control-characters", java(conf("x=a\x01b\x7fc"))),
		accept("properties-300-characters", java(conf(long(300)+"="+long(300)))),
		accept("substitution-typed-only", java(conf("x=img:9", "kubernetes.driver.container.image=${spark.x}", "kubernetes.driver.annotation.l=${spark.x}"))),
		accept("substitution-unknown", java(driver("container.image=i${spark.nothing}"))),
		accept("substitution-nested", java(conf("a=${spark.b}", "b=img", "kubernetes.driver.container.image=${spark.a}:1"))),
		accept("substitution-default", java(conf("kubernetes.driver.container.image=i:${spark.driver.memory}-${spark.kubernetes.namespace}-${spark.ui.port}"))),
		accept("substitution-other-prefix", java(driver("container.image=i${hive.x}"))),
		refuse("substitution-cycle", "spark.kubernetes.namespace", java(conf("a=${spark.b}", "b=${spark.a}", "kubernetes.namespace=${spark.a}"))),
		differ("references", "substitution-other-default", java(driver("container.image=i:${spark.kubernetes.allocation.batch.size}"))),
		differRefused("files of the submitter", "substitution-jars", "spark.jars", java(conf("x=local:///y.jar", "jars=${spark.x}"))),
		accept("config-map-max-size", java(kube("configMap.maxSize=1000"))),
		refuse("config-map-max-size-invalid", "spark.kubernetes.configMap.maxSize", java(kube("configMap.maxSize=x"))),
		refuse("config-map-max-size-over-cap", "spark.kubernetes.configMap.maxSize", java(kube("configMap.maxSize=2000000"))),
		differRefused("earlier refusal", "properties-too-large", "spark.big", java(conf("big="+strings.Repeat("0123456789", 12000), "big2="+strings.Repeat("0123456789", 12000),
			"big3="+strings.Repeat("0123456789", 12000), "big4="+strings.Repeat("0123456789", 12000), "big5="+strings.Repeat("0123456789", 12000),
			"big6="+strings.Repeat("0123456789", 12000), "big7="+strings.Repeat("0123456789", 12000), "big8="+strings.Repeat("0123456789", 12000), "big9="+strings.Repeat("0123456789", 12000)))),
	}
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("many.k%03d=v%d", i, i))
	}
	return append(cases, accept("properties-many", java(conf(many...))))
}

// languageCases are about Python and R.
func languageCases() []Case {
	return []Case{
		accept("python-arguments", slices.Concat(python(), o("in", "out", "--x"))),
		accept("python-workers", python(conf("pyspark.python=/p"))),
		accept("python-driver", python(conf("pyspark.driver.python=/d"))),
		accept("python-both", python(conf("pyspark.python=/p", "pyspark.driver.python=/d"))),
		accept("python-conf-for-java", java(conf("pyspark.python=/p"))),
		accept("python-dependencies", python(o("--py-files", "local:///opt/deps.zip,s3a://b/more.zip", "--files", "https://h/a.conf#app.conf", "--jars", "local:///x.jar", "--repositories", "https://r1", "--exclude-packages", "g:bad"))),
		accept("r", slices.Concat(rLang(), o("x"))),
		accept("r-lower-case", slices.Concat(start(), o("local:///app.r"))),
		accept("r-with-class", rLang(o("--class", "X"))),
		accept("r-env", rLang(conf("pyspark.python=/p"))),
		accept("python-query-is-java", slices.Concat(start(), o("--class", "C", "https://h/app.py#x"))),
	}
}

const steps = "org.apache.spark.deploy.k8s.features."

// stepCases are about excluded and user feature steps.
func stepCases() []Case {
	exclude := func(names ...string) []string {
		return driver("pod.excludedFeatureSteps=" + strings.Join(names, ","))
	}
	cases := []Case{
		accept("exclude-unknown", java(exclude("NetworkPolicyFeatureStep", "x.Y"))),
		refuse("exclude-still-checks", "spark.driver.bindAddress", java(exclude(steps+"DriverServiceFeatureStep"), conf("driver.bindAddress=x"))),
		differRefused("basic step", "exclude-basic", "spark.kubernetes.driver.pod.excludedFeatureSteps", java(exclude(steps+"BasicDriverFeatureStep"))),
		accept("exclude-several", java(exclude(steps+"NetworkPolicyFeatureStep", " "+steps+"LocalDirsFeatureStep ", "", steps+"DriverServiceFeatureStep"))),
		refuse("user-step-unknown", "spark.kubernetes.driver.pod.featureSteps", java(driver("pod.featureSteps=x.Y"))),
		refuse("user-step-wrong-type", "spark.kubernetes.driver.pod.featureSteps", java(driver("pod.featureSteps=java.lang.Object"))),
		differ("Volcano step", "volcano", java(driver("pod.featureSteps="+steps+"VolcanoFeatureStep"), kube("scheduler.name=volcano"))),
		refuse("volcano-template-file", "spark.kubernetes.scheduler.volcano.podGroupTemplateFile", java(driver("pod.featureSteps="+steps+"VolcanoFeatureStep"), kube("scheduler.volcano.podGroupTemplateFile=/nowhere"))),
		accept("user-steps-of-executor", java(kube("executor.pod.featureSteps=x.Y", "executor.pod.excludedFeatureSteps=z"))),
	}
	for _, step := range []string{"DriverKubernetesCredentials", "DriverService", "NetworkPolicy", "MountSecrets", "EnvSecrets", "MountVolumes", "DriverCommand", "HadoopConfDriver", "KerberosConfDriver", "LocalDirs"} {
		cases = append(cases, accept("exclude-"+strings.ToLower(step), java(exclude(steps+step+"FeatureStep"),
			kube("authenticate.driver.serviceAccountName=sa", "hadoop.configMapName=hc", "kerberos.krb5.configMapName=krb"),
			driver("secrets.s=/s", "secretKeyRef.E=n:k", "volumes.emptyDir.e.mount.path=/e"))))
	}
	return append(cases, accept("exclude-podtemplateconfigmap", java(exclude(steps+"PodTemplateConfigMapStep"))).with("", `{"spec":{}}`))
}

// keyCases set keys that only the running driver, executors or the submission client read.
func keyCases() []Case {
	timeouts := func(key string) []Case {
		return []Case{
			accept("client-"+key, java(kube("submission."+key+"=5000"))),
			refuse("client-"+key+"-invalid", "spark.kubernetes.submission."+key, java(kube("submission."+key+"=5s"))),
		}
	}
	return slices.Concat(timeouts("requestTimeout"), timeouts("connectionTimeout"), []Case{
		refuse("client-trust-invalid", "spark.kubernetes.trust.certificates", java(kube("trust.certificates=x"))),
		differRefused("earlier refusal", "client-wait-invalid", "spark.kubernetes.submission.waitAppCompletion", java(kube("submission.waitAppCompletion=x"))),
		accept("client-report-interval", java(kube("report.interval=2s"))),
		accept("client-grace-period", java(kube("appKillPodDeletionGracePeriod=5s"))),
		accept("driver-keys-not-read", java(kube("allocation.batch.size=-3", "allocation.batch.delay=x", "executor.rollPolicy=?", "allocation.maximum=0", "executor.podNamePrefix=UPPER", "executor.request.cores=abc"))),
		accept("driver-runtime-keys", java(driver("master=https://m", "requestTimeout=1", "connectionTimeout=2", "ownPersistentVolumeClaim=x", "reusePersistentVolumeClaim=false", "waitToReusePersistentVolumeClaim=true", "annotateExitException=true"))),
		accept("executor-keys", java(kube("executor.container.image=x:1", "executor.limit.cores=2", "executor.request.cores=1", "executor.disableConfigMap=true", "executor.deleteOnTermination=false", "executor.podDeletionCost=1", "executor.useDriverPodIP=true", "executor.terminationGracePeriodSeconds=5s", "executor.missingPodDetectDelta=30s", "decommission.script=/d.sh", "jars.avoidDownloadSchemes=s3a"))),
		accept("event-log", java(conf("eventLog.enabled=true", "eventLog.dir=s3a://b/logs", "hadoop.fs.s3a.endpoint=http://m:9000", "sql.shuffle.partitions=10", "hadoop.fs.s3a.secret.key=hidden"))),
		accept("dynamic-allocation", java(conf("dynamicAllocation.enabled=true", "dynamicAllocation.shuffleTracking.enabled=true", "dynamicAllocation.minExecutors=0"))),
		accept("worked-example", slices.Concat(o("--master", master, "--deploy-mode", "cluster", "--name", "Spark Pi", "--class", "org.apache.spark.examples.SparkPi", "--driver-memory", "2g"),
			conf("executor.instances=2"), o("--num-executors", "5"), kube("namespace=jobs", "container.image=apache/spark:4.2.0", "submission.waitAppCompletion=false"), o("--conf", "hive.x=1"), conf("driver.host=h"),
			o("local:///opt/spark/examples/jars/spark-examples.jar", "1000", "--verbose"))),
	})
}

// environmentCases are about the submitter's environment.
func environmentCases() []Case {
	return []Case{
		accept("environment-less-than-options", java(o("--executor-memory", "2g", "--executor-cores", "2", "--driver-memory", "2g"))).in(
			"MASTER=k8s://other", "DEPLOY_MODE=client", "SPARK_EXECUTOR_MEMORY=1g", "SPARK_EXECUTOR_CORES=1", "SPARK_DRIVER_MEMORY=1g"),
		differ("environment", "environment-user", java()).in("SPARK_USER=other"),
		differ("environment", "environment-user-and-proxy", java(o("--proxy-user", "bob"))).in("SPARK_USER=other"),
		differ("environment", "environment-local-dirs", java()).in("SPARK_LOCAL_DIRS=/x"),
		differ("environment", "environment-python", python()).in("PYSPARK_PYTHON=/p", "PYSPARK_DRIVER_PYTHON=/d"),
		differ("environment", "environment-memory", java()).in("SPARK_DRIVER_MEMORY=3g", "SPARK_EXECUTOR_MEMORY=3g", "SPARK_EXECUTOR_CORES=3"),
		differ("environment", "environment-hadoop", java()).in("HADOOP_CONF_DIR=" + Work + "/hadoop"),
		differ("environment", "environment-substituted", java(driver("container.image=i:${env:TAG}"))).in("TAG=9"),
		differ("environment, refused", "environment-hadoop-twice", java(kube("hadoop.configMapName=hc"))).in("HADOOP_CONF_DIR=" + Work + "/hadoop"),
		differ("environment, refused", "environment-remote", java()).in("SPARK_REMOTE=sc://h"),
	}
}
