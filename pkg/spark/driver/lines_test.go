package driver

import "testing"

// What Spark's lines do differently, as the goldens of test/parity have it.
func TestLines(t *testing.T) {
	const escalation = "driver|securityContext|allowPrivilegeEscalation"
	connect := m{"name": "spark-connect", "port": int64(15002), "targetPort": int64(15002)}
	withProtocol := m{"name": "spark-connect", "port": int64(15002), "targetPort": int64(15002), "appProtocol": "grpc"}
	cases := map[string]testCase{
		"connect_without_protocol_4.1": {argv: base(), release: "4.1.4", want: w{"Service|spec|ports|3": connect}},
		"connect_with_protocol_4.2":    {argv: base(), release: "4.2.1", want: w{"Service|spec|ports|3": withProtocol}},

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
