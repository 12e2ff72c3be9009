package driver

import "testing"

// An empty name of an object is refused here, since the API server would refuse the pod.
func TestEmptyNames(t *testing.T) {
	cases := map[string]testCase{}
	for _, key := range []string{"hadoop.configMapName", "kerberos.krb5.configMapName"} {
		cases[key] = testCase{argv: base(c("K." + key + "=")...), refused: "spark.kubernetes." + key}
	}
	cases["tokenSecret"] = testCase{
		argv:    base(c("K.kerberos.tokenSecret.name=", "K.kerberos.tokenSecret.itemKey=k")...),
		refused: "spark.kubernetes.kerberos.tokenSecret.name",
	}
	runCases(t, cases)
}

// What Spark's lines do differently, as the goldens of test/parity have it.
func TestLines(t *testing.T) {
	const escalation = "driver|securityContext|allowPrivilegeEscalation"
	connect := m{"name": "spark-connect", "port": int64(15002), "targetPort": int64(15002)}
	withProtocol := m{"name": "spark-connect", "port": int64(15002), "targetPort": int64(15002), "appProtocol": "grpc"}
	cases := map[string]testCase{
		"connect_without_protocol_4.1": {argv: base(), release: "4.1.4", want: w{"Service|spec|ports|3": connect}},
		"connect_with_protocol_4.2":    {argv: base(), release: "4.2.1", want: w{"Service|spec|ports|3": withProtocol}},

		"label_placeholder_4.0": {argv: base(c("K.driver.label.a=x-{{EXECUTOR_ID}}y")...), release: "4.0.5", want: w{"pod|metadata|labels|a": "x-y"}},
		"label_placeholder_3.5": {argv: base(c("K.driver.label.a=x-{{EXECUTOR_ID}}y")...), release: "3.5.9", refused: "spark.kubernetes.driver.label.a"},
		"annotation_placeholder_3.5": {
			argv: base(c("K.driver.annotation.a={{EXECUTOR_ID}}y")...), release: "3.5.9", want: w{"pod|metadata|annotations|a": "y"},
		},
		"volume_without_unit_3.5": {
			argv: base(c("K.driver.volumes.emptyDir.e.mount.path=/e", "K.driver.volumes.emptyDir.e.options.sizeLimit=512")...), release: "3.5.9",
			want: w{"volumes|0": `e={"emptyDir":{"sizeLimit":"512"}}`},
		},
		"volume_without_unit_4.0": {
			argv: base(c("K.driver.volumes.emptyDir.e.mount.path=/e", "K.driver.volumes.emptyDir.e.options.sizeLimit=512")...), release: "4.0.5",
			refused: "spark.kubernetes.driver.volumes.emptyDir.e.options.sizeLimit",
		},
		"config_map_cap_3.5": {argv: base(c("K.configMap.maxSize=2000000")...), release: "3.5.9", refused: "spark.kubernetes.configMap.maxSize"},

		"no_escalation_before_4.3": {argv: base(c("K.securityContext.allowPrivilegeEscalation=x")...), release: "4.2.1", want: w{"driver|securityContext": nil}},
		"escalation_default":       {argv: base(), release: "4.3.0", want: w{escalation: false}},
		"escalation_general":       {argv: base(c("K.securityContext.allowPrivilegeEscalation=true")...), release: "4.3.0", want: w{escalation: true}},
		"escalation_driver": {
			argv:    base(c("K.securityContext.allowPrivilegeEscalation=x", "K.driver.securityContext.allowPrivilegeEscalation= True ")...),
			release: "4.3.0", want: w{escalation: true},
		},
		"escalation_general_invalid": {
			argv:    base(c("K.securityContext.allowPrivilegeEscalation=x")...),
			release: "4.3.0", refused: "spark.kubernetes.securityContext.allowPrivilegeEscalation",
		},
		"escalation_over_template": {
			argv:     base(),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "securityContext": {"allowPrivilegeEscalation": true, "runAsUser": 1}}]}}`,
			release:  "4.3.0", want: w{"driver|securityContext": m{"allowPrivilegeEscalation": false, "runAsUser": int64(1)}},
		},

		"binary_suffix_4.2": {argv: base(c("driver.memory=2Gi", "driver.memoryOverhead=512mib")...), release: "4.2.0", want: w{"driver|resources|limits|memory": "2560Mi"}},
		"binary_suffix_4.1": {argv: base(c("driver.memoryOverhead=512mib")...), release: "4.1.4", refused: "spark.driver.memoryOverhead"},
	}
	runCases(t, cases)
}
