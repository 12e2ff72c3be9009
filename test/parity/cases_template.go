package parity

import (
	"encoding/json"
	"fmt"
	"slices"

	"flint.dev/flint/test/operator"
)

// driverTemplate is a template with one Spark container with these fields, more of the spec, and metadata.
func driverTemplate(container, spec, metadata string) string {
	if container != "" {
		container = "," + container
	}
	if spec != "" {
		spec = "," + spec
	}
	if metadata != "" {
		metadata = `"metadata":{` + metadata + `},`
	}
	return fmt.Sprintf(`{%s"spec":{"containers":[{"name":"spark-kubernetes-driver"%s}]%s}}`, metadata, container, spec)
}

// containersNamed is a template with containers of these names.
func containersNamed(names ...string) string {
	var containers []map[string]string
	for _, name := range names {
		containers = append(containers, map[string]string{"name": name, "image": "image-of-" + name})
	}
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": containers}})
	if err != nil { // texts always marshal
		panic(err)
	}
	return string(text)
}

// templateCases are about pod templates.
func templateCases() []Case {
	template := func(name, text string, options ...[]string) Case {
		return accept("template-"+name, java(options...)).with(text, "")
	}
	refused := func(name, names, text string, options ...[]string) Case {
		return refuse("template-"+name, names, java(options...)).with(text, "")
	}
	named := driver("podTemplateContainerName=spark")
	return []Case{
		template("bare", driverTemplate("", "", "")),
		template("container-picked-by-name", containersNamed("a", "spark", "b"), named),
		template("container-default-name-in-the-middle", containersNamed("a", "spark-kubernetes-driver", "b")),
		template("container-name-matches-nothing", containersNamed("x", "y"), driver("podTemplateContainerName=zz")),
		template("container-name-twice", containersNamed("a", "spark", "spark"), named),
		differRefused("driver container", "template-container-unnamed", "spec.containers", java()).with(containersNamed("x", "y"), ""),
		differRefused("driver container", "template-no-containers", "spec.containers", java()).with(`{"spec":{}}`, ""),
		template("no-containers-with-key", `{"spec":{"hostNetwork":true}}`, named),
		template("empty-containers-with-key", `{"spec":{"containers":[]}}`, named),
		refused("no-spec", "spec", `{"metadata":{"name":"x"}}`),
		refused("spec-is-text", "spec", `{"spec":"x"}`),
		refused("containers-is-object", "spec.containers", `{"spec":{"containers":{}}}`),
		refused("container-is-text", "spec.containers", `{"spec":{"containers":["x"]}}`),
		refused("labels-is-list", "metadata.labels", driverTemplate("", "", `"labels":["a"]`)),
		refused("env-is-object", "spec.containers[0].env", driverTemplate(`"env":{"A":"1"}`, "", "")),
		refused("args-is-text", "spec.containers[0].args", driverTemplate(`"args":"x"`, "", "")),
		refused("volumes-is-text", "spec.volumes", driverTemplate("", `"volumes":"x"`, "")),
		template("args-and-command", driverTemplate(`"args":["x"],"command":["y","z"]`, "", "")),
		template("image-and-policies-replaced", driverTemplate(`"image":"t","imagePullPolicy":"Never"`, `"restartPolicy":"Always"`, "")),
		template("metadata", driverTemplate("", "", `"name":"mine","labels":{"team":"a","spark-role":"zzz"},"annotations":{"x":"y"},"finalizers":["f/g"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]`),
			driver("label.q=j", "annotation.x=conf-{{APP_ID}}")),
		template("namespace-other", driverTemplate("", "", `"namespace":"other"`), kube("namespace=jobs")),
		template("namespace-same", driverTemplate("", "", `"namespace":"jobs"`), kube("namespace=jobs")),
		template("generate-name-and-status", `{"apiVersion":"v1","kind":"Pod","metadata":{"generateName":"g-","uid":"u"},"spec":{"containers":[{"name":"spark-kubernetes-driver"}]},"status":{"phase":"Running"}}`),
		template("unknown-fields", `{"futureTop":{"a":[1,2.5,"x",true,null]},"metadata":{"futureMeta":"m"},"spec":{"futureSpec":{"b":1},"containers":[{"name":"spark-kubernetes-driver","futureContainer":[{"c":"d"}]}]}}`),
		template("env", driverTemplate(`"env":[{"name":"A","value":"1"},{"name":"SPARK_CONF_DIR","value":"/x"},{"name":"SPARK_USER","value":"t"},{"name":"S","valueFrom":{"secretKeyRef":{"name":"n","key":"k"}}},{"name":"E"}]`, "", ""),
			kube("driverEnv.A=2", "driverEnv.B=3")),
		template("env-from", driverTemplate(`"envFrom":[{"configMapRef":{"name":"c"}},{"secretRef":{"name":"s","optional":true},"prefix":"P_"}]`, "", "")),
		template("ports", driverTemplate(`"ports":[{"name":"metrics","containerPort":9090},{"containerPort":1,"protocol":"UDP","hostPort":2}]`, "", "")),
		differRefused("earlier refusal", "template-port-name-taken", "spec.containers[0].ports", java()).with(driverTemplate(`"ports":[{"name":"spark-ui","containerPort":1}]`, "", ""), ""),
		template("resources", driverTemplate(`"resources":{"limits":{"cpu":"2","memory":"9Gi","ephemeral-storage":"5Gi","nvidia.com/gpu":"1"},"requests":{"cpu":"100m","memory":"1Gi","ephemeral-storage":"1Gi"},"claims":[{"name":"c"}]}`, "", "")),
		template("resources-numbers", driverTemplate(`"resources":{"limits":{"cpu":2,"ephemeral-storage":1073741824}}`, "", "")),
		template("resources-limit-replaced", driverTemplate(`"resources":{"limits":{"cpu":"2"}}`, "", ""), driver("limit.cores=3")),
		differRefused("earlier refusal", "template-cpu-limit-below-request", "spec.containers[0].resources.limits.cpu", java(conf("driver.cores=4"))).with(driverTemplate(`"resources":{"limits":{"cpu":"2"}}`, "", ""), ""),
		template("resources-device", driverTemplate(`"resources":{"limits":{"nvidia.com/gpu":"1","x.io/y":"2"}}`, "", ""), conf("driver.resource.gpu.amount=3", "driver.resource.gpu.vendor=nvidia.com")),
		template("probes-and-lifecycle", driverTemplate(`"livenessProbe":{"httpGet":{"path":"/","port":"http"},"periodSeconds":5},"readinessProbe":{"tcpSocket":{"port":4040}},"startupProbe":{"exec":{"command":["true"]}},"lifecycle":{"preStop":{"exec":{"command":["sh","-c","sync"]}}},"workingDir":"/w","terminationMessagePath":"/t","stdin":true,"tty":true`, "", "")),
		template("container-security", driverTemplate(`"securityContext":{"runAsUser":185,"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"readOnlyRootFilesystem":true,"seccompProfile":{"type":"RuntimeDefault"}}`, "", "")),
		template("container-escalation", driverTemplate(`"securityContext":{"allowPrivilegeEscalation":true,"privileged":false}`, "", "")),
		refused("security-context-is-text", "spec.containers[0].securityContext", driverTemplate(`"securityContext":"x"`, "", "")),
		template("pod-security", driverTemplate("", `"securityContext":{"fsGroup":185,"supplementalGroups":[1,2],"sysctls":[{"name":"a","value":"b"}],"runAsNonRoot":true}`, "")),
		template("host-network", driverTemplate("", `"hostNetwork":true`, "")),
		template("host-network-dns-policy", driverTemplate("", `"hostNetwork":true,"dnsPolicy":"Default"`, "")),
		template("dns", driverTemplate("", `"dnsPolicy":"None","dnsConfig":{"nameservers":["1.1.1.1"],"options":[{"name":"ndots","value":"2"}]},"hostAliases":[{"ip":"1.2.3.4","hostnames":["a"]}],"hostname":"h","subdomain":"s"`, "")),
		template("scheduling", driverTemplate("", `"tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}],"priorityClassName":"p","priority":5,"preemptionPolicy":"Never","schedulerName":"t","nodeSelector":{"a":"t","b":"t"},"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"x":"y"}}}]`, ""),
			kube("node.selector.a=1"), driver("node.selector.c=2")),
		template("scheduler-replaced", driverTemplate("", `"schedulerName":"t"`, ""), kube("scheduler.name=s")),
		template("affinity", driverTemplate("", `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}]}},"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"t","labelSelector":{"matchLabels":{"a":"b"}}}}]}}`, "")),
		template("node-name", driverTemplate("", `"nodeName":"n1"`, "")),
		template("service-account-kept", driverTemplate("", `"serviceAccountName":"t","automountServiceAccountToken":false`, "")),
		template("service-account-replaced", driverTemplate("", `"serviceAccountName":"t","serviceAccount":"t"`, ""), kube("authenticate.driver.serviceAccountName=sa")),
		template("service-account-with-token", driverTemplate("", `"serviceAccountName":"t"`, ""), kube("authenticate.driver.serviceAccountName=sa", "authenticate.driver.oauthToken=x")),
		template("pull-secrets", driverTemplate("", `"imagePullSecrets":[{"name":"t"},{"name":"a"}]`, ""), kube("container.image.pullSecrets=a,b")),
		template("init-containers-and-sidecars", `{"spec":{"initContainers":[{"name":"init","image":"i","args":["x"]},{"name":"side","image":"s","restartPolicy":"Always"}],"containers":[{"name":"log","image":"l","volumeMounts":[{"name":"spark-local-dir-7","mountPath":"/q"}]},{"name":"spark-kubernetes-driver"}],"volumes":[{"name":"spark-local-dir-7","emptyDir":{}}]}}`),
		template("init-container-with-the-name", `{"spec":{"initContainers":[{"name":"spark","image":"i"}],"containers":[{"name":"x","image":"x"},{"name":"y","image":"y"}]}}`, named),
		template("volumes-of-each-kind", driverTemplate(`"volumeMounts":[{"name":"a","mountPath":"/a","readOnly":true},{"name":"b","mountPath":"/b","subPath":"s"},{"name":"c","mountPath":"/c","mountPropagation":"HostToContainer"}]`,
			`"volumes":[{"name":"a","configMap":{"name":"cm","defaultMode":420,"items":[{"key":"k","path":"p","mode":256}]}},{"name":"b","secret":{"secretName":"s","optional":true}},{"name":"c","csi":{"driver":"d","volumeAttributes":{"x":"y"}}},{"name":"d","projected":{"sources":[{"serviceAccountToken":{"path":"t","expirationSeconds":3600}},{"downwardAPI":{"items":[{"path":"l","fieldRef":{"fieldPath":"metadata.labels"}}]}}]}},{"name":"e","emptyDir":{"sizeLimit":"1Gi"}},{"name":"f","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}},{"name":"g","image":{"reference":"r","pullPolicy":"Always"}}]`, "")),
		template("volumes-and-conf-volumes", driverTemplate(`"volumeMounts":[{"name":"a","mountPath":"/a"}]`, `"volumes":[{"name":"a","emptyDir":{}}]`, ""), driver("volumes.emptyDir.e.mount.path=/e", "secrets.s=/s")),
		template("local-dir-mount", driverTemplate(`"volumeMounts":[{"name":"spark-local-dir-1","mountPath":"/l"}]`, `"volumes":[{"name":"spark-local-dir-1","hostPath":{"path":"/h"}}]`, "")),
		template("local-dir-mounts-two", driverTemplate(`"volumeMounts":[{"name":"spark-local-dir-2","mountPath":"/m"},{"name":"spark-local-dir-1","mountPath":"/l"}]`, `"volumes":[{"name":"spark-local-dir-1","emptyDir":{}},{"name":"spark-local-dir-2","emptyDir":{}}]`, "")),
		differRefused("earlier refusal", "template-local-dir-volume-without-mount", "spec.volumes", java()).with(driverTemplate("", `"volumes":[{"name":"spark-local-dir-1","emptyDir":{}}]`, ""), ""),
		differRefused("earlier refusal", "template-volume-name-taken", "spec.volumes", java()).with(driverTemplate("", `"volumes":[{"name":"spark-conf-volume-driver","emptyDir":{}}]`, ""), ""),
		differRefused("earlier refusal", "template-mount-path-taken", "spec.containers[0].volumeMounts", java()).with(driverTemplate(`"volumeMounts":[{"name":"v","mountPath":"/opt/spark/conf"}]`, `"volumes":[{"name":"v","emptyDir":{}}]`, ""), ""),
		template("termination-and-misc", driverTemplate("", `"terminationGracePeriodSeconds":5,"activeDeadlineSeconds":100,"enableServiceLinks":false,"shareProcessNamespace":true,"runtimeClassName":"r","overhead":{"cpu":"100m"},"readinessGates":[{"conditionType":"c"}],"os":{"name":"linux"},"setHostnameAsFQDN":true,"hostUsers":false,"resourceClaims":[{"name":"c","resourceClaimName":"n"}]`, "")),
		template("null-fields", driverTemplate(`"env":null,"ports":null,"resources":null,"volumeMounts":null,"args":null`, `"volumes":null,"nodeSelector":null,"imagePullSecrets":null,"tolerations":null`, `"labels":null,"annotations":null,"namespace":null`)),
		template("empty-fields", driverTemplate(`"env":[],"ports":[],"resources":{},"volumeMounts":[],"args":[],"securityContext":{}`, `"volumes":[],"nodeSelector":{},"tolerations":[],"securityContext":{},"affinity":{}`, `"labels":{},"annotations":{}`)),
		template("container-without-name-picked-first", `{"spec":{"containers":[{"image":"x"},{"name":"y","image":"y"}]}}`, named),
		template("hostile-texts", driverTemplate(`"env":[{"name":"Q","value":"'\"\\ $(A) ${B} \n\t#:=ü😀"}],"args":["a b","","--","ü"]`, "", `"annotations":{"n":"line1\nline2: x # y"}`)),
		template("kind-pod-template", `{"apiVersion":"v2","kind":"Pod","spec":{"containers":[{"name":"spark-kubernetes-driver"}]}}`),
		accept("template-python", python(driver("label.q=j"), conf("pyspark.python=/usr/bin/python3"))).with(`{"metadata":{"labels":{"team":"a"}},"spec":{"volumes":[{"name":"cache","emptyDir":{}}],"containers":[{"name":"log","image":"l"},{"name":"spark-kubernetes-driver","image":"m","env":[{"name":"A","value":"1"}],"resources":{"limits":{"cpu":"2"}},"args":["x"]}]}}`, ""),
		accept("executor-template", java()).with("", `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"spark-kubernetes-executor","env":[{"name":"X","value":"ü"}]}]}}`),
		accept("executor-template-laid-out", java()).with("", "{\n  \"spec\" : {\r\n\t\"future\": 1 }\n}"),
		accept("executor-template-wrong-types", java()).with("", `{"spec":"not a pod at all"}`),
		accept("executor-template-with-container-key", java(kube("executor.podTemplateContainerName=x"))).with("", `{"spec":{}}`),
		accept("templates-both", java(kube("hadoop.configMapName=hc"), driver("secrets.s=/s"))).with(driverTemplate("", "", ""), `{"spec":{}}`),
	}
}

// operatorCases are the requests of the spark-operator, for the oracle's API server.
func operatorCases() ([]Case, error) {
	requests, err := operator.Requests()
	if err != nil {
		return nil, err
	}
	var cases []Case
	for name, body := range requests {
		var r operator.Request
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, fmt.Errorf("request %s: %w", name, err)
		}
		i := slices.Index(r.SparkSubmitArgs, "--master")
		if i < 0 {
			return nil, fmt.Errorf("request %s has no master", name)
		}
		r.SparkSubmitArgs[i+1] = master
		cases = append(cases, accept("operator-"+name, r.SparkSubmitArgs).with(string(r.DriverPodTemplate), string(r.ExecutorPodTemplate)))
	}
	return cases, nil
}
