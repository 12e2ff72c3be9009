package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"

	"flint.dev/flint/test/operator"
)

// The case list, sections C to H. The number of a case is its subtest's name.

type (
	m = map[string]any
	l = []any
	w = map[string]any
)

const (
	javaPrefix = "c-" + testPrefix
	hostSuffix = "-driver-svc.default.svc"
)

func digitIDs() *IDs {
	ids := testIDs
	ids.Prefix = "7" + testPrefix[1:]
	return &ids
}

func TestNameCases(t *testing.T) {
	runCases(t, map[string]testCase{
		"C02_svc_name_63": {
			argv: base("--name", strings.Repeat("a", 35)),
			want: w{
				"Service|metadata|name": strings.Repeat("a", 35) + "-" + testPrefix + "-driver-svc",
				"warnings":              l(nil),
			},
		},
		"C03_svc_name_64_fallback": {
			argv: base("--name", strings.Repeat("a", 36)),
			want: w{
				"Service|metadata|name":        "spark-0123459d0f3a7c23-driver-svc",
				"properties|spark.driver.host": "spark-0123459d0f3a7c23" + hostSuffix,
				"pod|metadata|name":            strings.Repeat("a", 36) + "-" + testPrefix + "-driver",
				"NetworkPolicy|metadata|name":  strings.Repeat("a", 36) + "-" + testPrefix + "-policy",
				"warnings|0": "the driver's Service is named spark-0123459d0f3a7c23-driver-svc: " + strings.Repeat("a", 36) + "-" + testPrefix +
					"-driver-svc, made of the application's name, is longer than 63 characters",
			},
		},
		"C04_pod_name_conf": {
			argv: base(c("K.driver.pod.name=my-pod")...),
			want: w{
				"pod|metadata|name":                           "my-pod",
				"properties|spark.kubernetes.driver.pod.name": "my-pod",
				"Service|metadata|name":                       javaPrefix + "-driver-svc",
			},
		},
		"C06_user_app_id_overwritten": {
			argv: base(c("app.id=x")...),
			want: w{
				"properties|spark.app.id":                testApp,
				"pod|metadata|labels|spark-app-selector": testApp,
			},
		},
		"C07_prefix_key_ignored": {
			argv: base(c("K.driver.resourceNamePrefix=z")...),
			want: w{
				"Service|metadata|name":                                 javaPrefix + "-driver-svc",
				"properties|spark.kubernetes.driver.resourceNamePrefix": "z",
			},
		},
		"C08_name_250_chars": {
			argv: base("--name", strings.Repeat("a", 250)), refused: "spark.app.name", reason: "274 characters, at most 253",
		},
		"C08_name_229_chars": {
			argv: base("--name", strings.Repeat("a", 229)),
			want: w{"pod|metadata|name": strings.Repeat("a", 229) + "-" + testPrefix + "-driver"},
		},
		"C08_name_230_chars": {
			argv: base("--name", strings.Repeat("a", 230)), refused: "spark.app.name", reason: "the Pod's name",
		},
		"C08_policy_name_with_pod_name": {
			argv: base(join([]string{"--name", strings.Repeat("a", 230)}, c("K.driver.pod.name=p"))...), refused: "spark.app.name", reason: "the NetworkPolicy's name",
		},
		"C08_pod_name_not_legal": {
			argv: base(c("K.driver.pod.name=My_Pod")...), refused: "spark.kubernetes.driver.pod.name", reason: `"My_Pod"`,
		},
		"C08_pod_name_253": {
			argv: base(c("K.driver.pod.name=" + strings.Repeat("p", 253))...),
			want: w{"pod|metadata|name": strings.Repeat("p", 253)},
		},
		"C08_pod_name_254": {
			argv: base(c("K.driver.pod.name=" + strings.Repeat("p", 254))...), refused: "spark.kubernetes.driver.pod.name", reason: "253",
		},
		"C10_supplementary_code_point": {
			argv: base("--name", "a😀b"), want: w{"pod|metadata|name": "a-b-" + testPrefix + "-driver"},
		},
		"C11_empty_name_digit_id": {
			argv: base("--name", ""), ids: digitIDs(),
			want: w{
				"pod|metadata|name":                  "x" + testPrefix[1:] + "-driver",
				"pod|metadata|labels|spark-app-name": "",
			},
		},
		"pod_name_substituted": {
			argv: base(c("x=y", "K.driver.pod.name=p-${spark.x}")...),
			want: w{
				"pod|metadata|name":                           "p-y",
				"properties|spark.kubernetes.driver.pod.name": "p-y",
			},
		},
	})
}

func TestBasicCases(t *testing.T) {
	memory := func(argv []string, want string) testCase {
		return testCase{argv: argv, want: w{
			"driver|resources|requests|memory": want,
			"driver|resources|limits|memory":   want,
		}}
	}
	factor := func(text, want string) testCase {
		return testCase{argv: base(c("K.memoryOverheadFactor=" + text)...), want: w{"properties|spark.kubernetes.memoryOverheadFactor": want}}
	}
	cases := map[string]testCase{
		"D02_image_driver_over_general": {
			argv: base(c("K.driver.container.image=d:1")...), want: w{"driver|image": "d:1"},
		},
		"D03_image_missing": {
			argv:     []string{"--master", "k8s://h", "--deploy-mode", "cluster", "--class", "C", "local:///a.jar"},
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "image": "t:1"}]}}`,
			refused:  "spark.kubernetes.container.image", reason: "Must specify the driver container image",
		},
		"D03_image_empty": {
			argv: base(c("K.container.image=")...), refused: "spark.kubernetes.container.image", reason: "must be an image",
		},
		"D03_image_with_blank": {
			argv: base(c("K.driver.container.image= i")...), refused: "spark.kubernetes.driver.container.image",
		},
		"D04_image_spark_version": {
			argv: base(c("K.container.image=img:{{SPARK_VERSION}}-{{SPARK_VERSION}}")...), release: "4.1.3",
			want: w{
				"driver|image": "img:4.1.3-4.1.3",
				"properties|spark.kubernetes.container.image": "img:{{SPARK_VERSION}}-{{SPARK_VERSION}}",
			},
		},
		"D04_image_spark_version_40": {
			argv: base(c("K.container.image=img:{{SPARK_VERSION}}")...), release: "4.0.4", want: w{"driver|image": "img:{{SPARK_VERSION}}"},
		},
		"D05_pull_policy_invalid": {
			argv: base(c("K.container.image.pullPolicy=always")...), refused: "spark.kubernetes.container.image.pullPolicy", reason: `"always"`,
		},
		"D05_pull_policy_always": {
			argv: base(c("K.container.image.pullPolicy=Always")...), want: w{"driver|imagePullPolicy": "Always"},
		},
		"D05_pull_policy_never": {
			argv: base(c("K.container.image.pullPolicy=Never")...), want: w{"driver|imagePullPolicy": "Never"},
		},
		"D06_pull_secrets_trim": {
			argv:     base(c("K.container.image.pullSecrets=a, ,b")...),
			template: `{"spec": {"imagePullSecrets": [{"name": "t"}], "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|imagePullSecrets": l{m{"name": "t"}, m{"name": "a"}, m{"name": "b"}}},
		},
		"D07_ports_custom": {
			argv: base(c("driver.port=1", "driver.blockManager.port=2", "ui.port=3", "connect.grpc.binding.port=4")...),
			want: w{
				"driver|ports": l{
					m{"name": "driver-rpc-port", "containerPort": int64(1), "protocol": "TCP"},
					m{"name": "blockmanager", "containerPort": int64(2), "protocol": "TCP"},
					m{"name": "spark-ui", "containerPort": int64(3), "protocol": "TCP"},
					m{"name": "spark-connect", "containerPort": int64(4), "protocol": "TCP"},
				},
				"Service|spec|ports": l{
					m{"name": "driver-rpc-port", "port": int64(1), "targetPort": int64(1)},
					m{"name": "blockmanager", "port": int64(2), "targetPort": int64(2)},
					m{"name": "spark-ui", "port": int64(3), "targetPort": int64(3)},
					m{"name": "spark-connect", "port": int64(4), "targetPort": int64(4), "appProtocol": "grpc"},
				},
				"properties|spark.driver.port":              "1",
				"properties|spark.driver.blockManager.port": "2",
				"properties|spark.ui.port":                  "3",
			},
		},
		"D08_blockmanager_mismatch": {
			argv: base(c("blockManager.port=9000")...),
			want: w{
				"driver|ports|1|containerPort":              int64(9000),
				"Service|spec|ports|1|port":                 int64(7079),
				"properties|spark.driver.blockManager.port": "7079",
				"properties|spark.blockManager.port":        "9000",
			},
		},
		"D09_port_zero": {
			argv: base(c("ui.port=0")...), refused: "spark.ui.port", reason: "must be a port between 1 and 65535, but is 0",
		},
		"D09_port_zero_block_manager": {
			argv: base(c("blockManager.port=0")...), refused: "spark.blockManager.port",
		},
		"D09_port_65536": {argv: base(c("driver.port=65536")...), refused: "spark.driver.port", reason: "65536"},
		"D09_port_65535": {argv: base(c("driver.port=65535")...), want: w{"properties|spark.driver.port": "65535"}},
		"B52_ui_port_no_number": {
			argv: base(c("ui.port=x")...), refused: "spark.ui.port",
		},
		"B52_driver_port_no_number": {
			argv: base(c("driver.port=x")...), refused: "spark.driver.port",
		},
		"D10_three_ports_old": {
			argv: base(c("connect.grpc.binding.port=0")...), release: "4.0.4",
			want: w{
				"driver|ports|2|name":       "spark-ui",
				"driver|ports|3":            nil,
				"Service|spec|ports|2|name": "spark-ui",
				"Service|spec|ports|3":      nil,
			},
		},
		"D11_cpu_request_text": {
			argv: base(c("K.driver.request.cores=500m", "K.driver.limit.cores=2")...),
			want: w{
				"driver|resources|requests|cpu": "500m",
				"driver|resources|limits|cpu":   "2",
			},
		},
		"D12_cpu_default": {
			argv: base(),
			want: w{
				"driver|resources": m{
					"requests": m{"cpu": "1", "memory": "1408Mi"},
					"limits":   m{"memory": "1408Mi"},
				},
			},
		},
		"D12_cpu_cores":           {argv: base("--driver-cores", "3"), want: w{"driver|resources|requests|cpu": "3"}},
		"D13_cpu_request_garbage": {argv: base(c("K.driver.request.cores=abc")...), refused: "spark.kubernetes.driver.request.cores", reason: `"abc": must be a Kubernetes quantity`},
		"D13_cpu_limit_garbage":   {argv: base(c("K.driver.limit.cores=1,5")...), refused: "spark.kubernetes.driver.limit.cores", reason: `"1,5": must be a Kubernetes quantity`},
		"D13_cpu_request_empty":   {argv: base(c("K.driver.request.cores=")...), refused: "spark.kubernetes.driver.request.cores"},
		"D13_cpu_negative":        {argv: base(c("K.driver.request.cores=-1")...), refused: "spark.kubernetes.driver.request.cores", reason: "negative"},
		"D13_request_above_limit": {
			argv:    base(c("K.driver.request.cores=1500m", "K.driver.limit.cores=1")...),
			refused: "spark.kubernetes.driver.limit.cores", reason: `"1": is less than the request of 1500m from spark.kubernetes.driver.request.cores`,
		},
		"D13_default_request_above_limit": {
			argv:    base(c("K.driver.limit.cores=500m")...),
			refused: "spark.kubernetes.driver.limit.cores", reason: "request of 1 from spark.driver.cores",
		},
		"D13_request_equals_limit": {
			argv: base(c("K.driver.request.cores=1000m", "K.driver.limit.cores=1")...), want: w{"driver|resources|limits|cpu": "1"},
		},
		"D13_request_above_template_limit": {
			argv:     base("--driver-cores", "2"),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": "1500m"}}}]}}`,
			field:    "spec.containers[0].resources.limits.cpu", reason: "1500m is less than the driver's request of 2",
		},
		"D13_request_above_template_limit_number": {
			argv:     base("--driver-cores", "2"),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": 1}}}]}}`,
			field:    "spec.containers[0].resources.limits.cpu",
		},
		"D13_conf_limit_over_template_limit": {
			argv:     base(join([]string{"--driver-cores", "2"}, c("K.driver.limit.cores=2"))...),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": "1"}}}]}}`,
			want:     w{"driver|resources|limits|cpu": "2"},
		},
		"D13_template_limit_no_quantity": {
			argv:     base(),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "resources": {"limits": {"cpu": "many"}}}]}}`,
			want:     w{"driver|resources|limits|cpu": "many"},
		},

		// The rows of section 6.4.
		"D14_java_default":         memory(base(), "1408Mi"),
		"D14_python_default":       memory(py(), "1433Mi"),
		"D14_java_2g":              memory(base("--driver-memory", "2g"), "2432Mi"),
		"D14_java_5g":              memory(base("--driver-memory", "5g"), "5632Mi"),
		"D14_python_2g":            memory(py("--driver-memory", "2g"), "2867Mi"),
		"D14_python_factor":        memory(py(c("K.memoryOverheadFactor=0.1")...), "1408Mi"),
		"D14_overhead_100":         memory(base(c("driver.memory=4g", "driver.memoryOverhead=100")...), "4196Mi"),
		"D14_overhead_1g":          memory(base(c("driver.memory=4g", "driver.memoryOverhead=1g")...), "5120Mi"),
		"D14_driver_factor":        memory(base(c("driver.memory=8g", "driver.memoryOverheadFactor=0.25")...), "10240Mi"),
		"D14_minimum":              memory(base(c("driver.minMemoryOverhead=100m")...), "1126Mi"),
		"D14_no_unit":              memory(base("--driver-memory", "512"), "896Mi"),
		"D14_500k":                 memory(base("--driver-memory", "500k"), "384Mi"),
		"D14_infinite_factor":      memory(base(c("driver.memoryOverheadFactor=Infinity")...), "2147484671Mi"),
		"D14_minimum_not_in_35":    {argv: base(c("driver.minMemoryOverhead=100m")...), release: "3.5.7", want: w{"driver|resources|limits|memory": "1408Mi"}},
		"D14_minimum_not_read_35":  {argv: base(c("driver.minMemoryOverhead=x")...), release: "3.5.7", want: w{"driver|resources|limits|memory": "1408Mi"}},
		"D14_minimum_no_number":    {argv: base(c("driver.minMemoryOverhead=x")...), refused: "spark.driver.minMemoryOverhead"},
		"D14_overhead_negative":    {argv: base(c("driver.memoryOverhead=-2000")...), refused: "spark.driver.memory", reason: "-2000 MiB (spark.driver.memoryOverhead)"},
		"D14_overhead_no_number":   {argv: base(c("driver.memoryOverhead=x")...), refused: "spark.driver.memoryOverhead"},
		"D15_factor_precedence":    memory(base(c("K.memoryOverheadFactor=0.2", "driver.memoryOverheadFactor=0.3", "driver.memory=10g")...), "13312Mi"),
		"D15_factor_property":      {argv: base(c("K.memoryOverheadFactor=0.2", "driver.memoryOverheadFactor=0.3")...), want: w{"properties|spark.kubernetes.memoryOverheadFactor": "0.2"}},
		"D16_factor_1":             factor("1", "1.0"),
		"D16_factor_.2":            factor(".2", "0.2"),
		"D16_factor_1e-4":          factor("1e-4", "1.0E-4"),
		"D16_factor_0.10":          factor("0.10", "0.1"),
		"D16_factor_0":             factor("0", "0.0"),
		"D17_factor_negative":      {argv: base(c("K.memoryOverheadFactor=-1")...), refused: "spark.kubernetes.memoryOverheadFactor", reason: "non-negative"},
		"D17_factor_nan":           {argv: base(c("K.memoryOverheadFactor=NaN")...), refused: "spark.kubernetes.memoryOverheadFactor"},
		"D17_factor_no_number":     {argv: base(c("K.memoryOverheadFactor=x")...), refused: "spark.kubernetes.memoryOverheadFactor"},
		"D17_driver_factor_zero":   {argv: base(c("driver.memoryOverheadFactor=0")...), refused: "spark.driver.memoryOverheadFactor", reason: "greater than 0"},
		"D17_driver_factor_x":      {argv: base(c("driver.memoryOverheadFactor=x")...), refused: "spark.driver.memoryOverheadFactor"},
		"D17_general_factor_zero":  memory(base(c("K.memoryOverheadFactor=0")...), "1408Mi"),
		"D18_overhead_small":       memory(base(c("driver.memoryOverhead=1")...), "1025Mi"),
		"D18_memory_zero_overhead": memory(base(c("driver.memory=1k", "driver.memoryOverhead=0")...), "0Mi"),

		"D19_gpu": {
			argv: base(c("driver.resource.gpu.amount=2", "driver.resource.gpu.vendor=nvidia.com", "driver.resource.gpu.discoveryScript=/s")...),
			want: w{
				"driver|resources|limits":   m{"memory": "1408Mi", "nvidia.com/gpu": "2"},
				"driver|resources|requests": m{"cpu": "1", "memory": "1408Mi"},
			},
		},
		"D20_gpu_no_vendor":     {argv: base(c("driver.resource.gpu.amount=2")...), refused: "spark.driver.resource.gpu.vendor", reason: "Resource: gpu was requested, but vendor was not specified."},
		"D20_gpu_no_amount":     {argv: base(c("driver.resource.gpu.vendor=v")...), refused: "spark.driver.resource.gpu.amount", reason: "You must specify an amount for gpu"},
		"D20_gpu_amount_zero":   {argv: base(c("driver.resource.gpu.amount=0")...), want: w{"driver|resources|limits": m{"memory": "1408Mi"}}},
		"D20_gpu_amount_below":  {argv: base(c("driver.resource.gpu.amount=-1")...), want: w{"driver|resources|limits": m{"memory": "1408Mi"}}},
		"D20_gpu_amount_text":   {argv: base(c("driver.resource.gpu.amount=two")...), refused: "spark.driver.resource.gpu.amount"},
		"D20_resource_no_dot":   {argv: base(c("driver.resource.gpu=2")...), refused: "spark.driver.resource.gpu", reason: "You must specify an amount config for resource: gpu config: spark.driver.resource.gpu"},
		"D20_vendor_not_a_name": {argv: base(c("driver.resource.gpu.amount=2", "driver.resource.gpu.vendor=a b")...), refused: "spark.driver.resource.gpu.vendor", reason: `"a b/gpu" is not the name of a resource`},

		"D21_custom_labels_subst": {
			argv: base(c("K.driver.label.l=x-{{APP_ID}}-{{EXECUTOR_ID}}z")...),
			want: w{
				"pod|metadata|labels|l":                      "x-" + testApp + "-z",
				"Service|spec|selector|l":                    "x-" + testApp + "-z",
				"properties|spark.kubernetes.driver.label.l": "x-{{APP_ID}}-{{EXECUTOR_ID}}z",
				"Service|metadata|labels":                    m{"spark-app-selector": testApp},
			},
		},
		"D22_reserved_label": {
			argv: base(c("K.driver.label.spark-role=x")...), refused: "spark.kubernetes.driver.label.spark-role",
			reason: "Label with key spark-role is not allowed as it is reserved for Spark bookkeeping operations.",
		},
		"D22_reserved_label_first": {
			argv: base(c("K.driver.label.spark-role=x", "K.driver.label.spark-app-name=x", "K.driver.label.spark-app-selector=x", "K.driver.label.spark-version=x")...), refused: "spark.kubernetes.driver.label.spark-version",
		},
		"D22_reserved_label_second": {
			argv: base(c("K.driver.label.spark-role=x", "K.driver.label.spark-app-name=x", "K.driver.label.spark-app-selector=x")...), refused: "spark.kubernetes.driver.label.spark-app-selector",
		},
		"D22_reserved_label_third": {
			argv: base(c("K.driver.label.spark-role=x", "K.driver.label.spark-app-name=x")...), refused: "spark.kubernetes.driver.label.spark-app-name",
		},
		"D22_label_key_not_legal":   {argv: base(c("K.driver.label.a b=x")...), refused: "spark.kubernetes.driver.label.a b", reason: `"a b" is not a label key`},
		"D22_label_key_empty":       {argv: base(c("K.driver.label.=x")...), refused: "spark.kubernetes.driver.label."},
		"D22_label_value_not_legal": {argv: base(c("K.driver.label.a=x y")...), refused: "spark.kubernetes.driver.label.a", reason: `"x y": is not a label value`},
		"D22_label_value_63":        {argv: base(c("K.driver.label.a=" + strings.Repeat("x", 63))...), want: w{"pod|metadata|labels|a": strings.Repeat("x", 63)}},
		"D22_label_value_64":        {argv: base(c("K.driver.label.a=" + strings.Repeat("x", 64))...), refused: "spark.kubernetes.driver.label.a", reason: "63"},
		"D23_label_key_with_dots_slash": {
			argv: base(c("K.driver.label.a.b/c=v")...), want: w{"pod|metadata|labels|a.b/c": "v"},
		},
		"D24_annotations_subst": {
			argv:     base(c("K.driver.annotation.A.b/c=x,y=z {{APP_ID}}{{EXECUTOR_ID}}", "K.driver.annotation.t=c")...),
			template: `{"metadata": {"annotations": {"t": "t", "u": "u"}}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|metadata|annotations": m{"A.b/c": "x,y=z " + testApp, "t": "c", "u": "u"}},
		},
		"D24_annotation_key_not_legal": {argv: base(c("K.driver.annotation.a/b/c=x")...), refused: "spark.kubernetes.driver.annotation.a/b/c", reason: "annotation key"},
		"D25_node_selectors": {
			argv:     base(c("K.node.selector.a=general", "K.driver.node.selector.a=driver", "K.node.selector.b/c.d=general", "K.executor.node.selector.x=no")...),
			template: `{"spec": {"nodeSelector": {"a": "t", "b/c.d": "t", "e": "t"}, "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|nodeSelector": m{"a": "driver", "b/c.d": "general", "e": "t"}},
		},
		"D25_node_selector_replaced": {
			argv: base(c("K.node.selector.a=b c", "K.driver.node.selector.a=d")...), want: w{"pod|spec|nodeSelector": m{"a": "d"}},
		},
		"D25_node_selector_not_legal": {argv: base(c("K.driver.node.selector.a=b c")...), refused: "spark.kubernetes.driver.node.selector.a"},
		"D26_scheduler_names": {
			argv: base(c("K.scheduler.name=g", "K.driver.scheduler.name=d")...), want: w{"pod|spec|schedulerName": "d"},
		},
		"D26_scheduler_general": {
			argv:     base(c("K.scheduler.name=g")...),
			template: `{"spec": {"schedulerName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|schedulerName": "g"},
		},
		"D26_scheduler_none": {
			argv:     base(),
			template: `{"spec": {"schedulerName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|schedulerName": "t"},
		},
		"D27_driver_env": {
			argv: base(c("K.driverEnv.B=x=y", "K.driverEnv.A=", "K.driverEnv.C=${spark.app.name} $(A)")...),
			want: w{"env": l{
				"SPARK_USER=svc", "SPARK_APPLICATION_ID=" + testApp, "A=", "B=x=y", "C=${spark.app.name} $(A)",
				`SPARK_DRIVER_BIND_ADDRESS={"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}`,
				"SPARK_LOCAL_DIRS=/var/data/spark-U", "SPARK_CONF_DIR=/opt/spark/conf",
			}},
		},
		"D28_driver_env_dup_preset": {
			argv: base(c("K.driverEnv.SPARK_USER=z")...),
			want: w{"env|0": "SPARK_USER=svc", "env|2": "SPARK_USER=z"},
		},
		"D28_driver_env_not_ascii": {argv: base(c("K.driverEnv.Ü=z")...), refused: "spark.kubernetes.driverEnv.Ü", reason: "environment variable"},
		"D28_driver_env_no_name":   {argv: base(c("K.driverEnv.=z")...), refused: "spark.kubernetes.driverEnv."},
		"D29_service_account": {
			argv:     base(c("K.authenticate.driver.serviceAccountName=sa")...),
			template: `{"spec": {"serviceAccountName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|serviceAccount": "sa", "pod|spec|serviceAccountName": "sa"},
		},
		"D29_service_account_empty": {
			argv:     base(c("K.authenticate.driver.serviceAccountName=")...),
			template: `{"spec": {"serviceAccountName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want:     w{"pod|spec|serviceAccount": "", "pod|spec|serviceAccountName": ""},
		},
		"D29_service_account_without_effect": {
			argv: base(c("K.authenticate.driver.serviceAccountName=a_b", "K.authenticate.driver.oauthToken=t")...), want: w{"pod|spec|serviceAccountName": nil},
		},
		"D29_service_account_not_legal": {argv: base(c("K.authenticate.driver.serviceAccountName=a_b")...), refused: "spark.kubernetes.authenticate.driver.serviceAccountName"},
		"D30_proxy_user_args": {
			argv: base("--proxy-user", "bob"),
			want: w{
				"driver|args": l{"driver", "--proxy-user", "bob", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "C", "local:///a.jar"},
				"env|0":       "SPARK_USER=bob",
			},
		},
		"spark_version_label": {argv: base(), release: "4.1.7", want: w{"pod|metadata|labels|spark-version": "4.1.7"}},
	}
	for i, release := range []string{"3.5.7", "4.0.4", "4.1.3", "4.2.0", "4.3.0"} {
		three := testCase{argv: base(), release: release, want: w{"driver|ports|2|containerPort": int64(4040)}}
		if i >= 2 {
			three.want["driver|ports|3|name"], three.want["Service|spec|ports|3|name"] = "spark-connect", "spark-connect"
		} else {
			three.want["driver|ports|3"], three.want["Service|spec|ports|3"] = nil, nil
		}
		cases["ports_"+release] = three
	}
	runCases(t, cases)
}

const one = `{"spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`

func containers(names ...string) string {
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf(`{"name": %q, "workingDir": "/%[1]s"}`, name))
	}
	return `{"spec": {"containers": [` + strings.Join(all, ",") + `]}}`
}

func TestTemplateCases(t *testing.T) {
	named := func(name string) []string { return base(c("K.driver.podTemplateContainerName=" + name)...) }
	spark := func(fields string) string {
		return `{"spec": {"containers": [{"name": "spark-kubernetes-driver", ` + fields + `}]}}`
	}
	wrong := func(template, field, reason string) testCase {
		return testCase{argv: base(), template: template, field: field, reason: reason}
	}
	runCases(t, map[string]testCase{
		"E01_template_pick_named": {
			argv: named("spark"), template: containers("a", "spark", "b"),
			want: w{
				"pod|spec|containers|0": m{"name": "a", "workingDir": "/a"},
				"pod|spec|containers|1": m{"name": "b", "workingDir": "/b"},
				"driver|name":           "spark", "driver|workingDir": "/spark", "driver|image": "img:1",
				"warnings": l(nil),
				"properties|spark.kubernetes.driver.podTemplateContainerName": "spark",
			},
		},
		"E01_template_pick_default": {
			argv: base(), template: containers("a", "spark-kubernetes-driver", "b"),
			want: w{
				"pod|spec|containers|1|name": "b", "driver|workingDir": "/spark-kubernetes-driver",
				"properties|spark.kubernetes.driver.podTemplateContainerName":   "spark-kubernetes-driver",
				"properties|spark.kubernetes.executor.podTemplateContainerName": nil,
			},
		},
		// An inline template never falls back to the first container by itself.
		"E02_template_pick_first": wrong(containers("x", "y"), "spec.containers", `no container is named "spark-kubernetes-driver"`),
		"E03_template_name_missing": {
			argv: named("zz"), template: containers("x", "y"),
			want: w{
				"pod|spec|containers|0|name": "y", "pod|spec|containers|2": nil, "driver|name": "x",
				"warnings": l{`spark.kubernetes.driver.podTemplateContainerName is "zz", which is the name of 0 containers of the driver pod template; the first container becomes the driver`},
			},
		},
		"E04_template_name_twice": {
			argv: named("spark"), template: containers("a", "spark", "spark"),
			want: w{"driver|name": "a", "pod|spec|containers|0|name": "spark", "pod|spec|containers|1|name": "spark"},
		},
		"E04_default_name_twice": wrong(containers("spark-kubernetes-driver", "spark-kubernetes-driver"), "spec.containers", "2 containers"),
		"E05_template_no_containers": {
			argv: named("x"), template: `{"spec": {}}`,
			want: w{"pod|spec|containers|0|name": "spark-kubernetes-driver", "pod|spec|containers|1": nil, "warnings": l(nil)},
		},
		"E05_template_null_containers": {
			argv: named("x"), template: `{"spec": {"containers": null, "volumes": null, "nodeSelector": null}, "metadata": null, "kind": null}`,
			want: w{"driver|name": "spark-kubernetes-driver", "pod|kind": "Pod"},
		},
		"E05_template_no_containers_no_name": wrong(`{"spec": {}}`, "spec.containers", "no container is named"),
		"E06_template_no_spec":               wrong(`{"metadata": {"name": "x"}}`, "spec", "is missing"),
		"E06_template_null_spec":             wrong(`{"spec": null}`, "spec", "is missing"),
		"E07_template_empty":                 wrong(`{}`, "spec", "is missing"),
		"E07_spec_is_list":                   wrong(`{"spec": []}`, "spec", "must be an object"),
		"E07_metadata_is_text":               wrong(`{"metadata": "x", "spec": {}}`, "metadata", "must be an object"),
		"E07_gates_are_text":                 wrong(`{"spec": {"schedulingGates": "x"}}`, "spec.schedulingGates", "must be a list"),
		"E08_kind_deployment":                wrong(`{"kind": "Deployment", "apiVersion": "apps/v1", "spec": {}}`, "kind", "Deployment"),
		"E07_kind_is_number":                 wrong(`{"kind": 1, "spec": {}}`, "kind", "must be a string"),
		"E07_namespace_is_number":            wrong(`{"metadata": {"namespace": 1}, "spec": {}}`, "metadata.namespace", "must be a string"),
		"E07_labels_is_list":                 wrong(`{"metadata": {"labels": []}, "spec": {}}`, "metadata.labels", "must be an object"),
		"E07_nulls_that_the_api_server_takes": {
			argv: base(), template: `{"metadata": {"labels": {"a": null}}, "spec": {"imagePullSecrets": [null], "containers": [{"name": "spark-kubernetes-driver", "args": [null]}]}}`,
			want: w{"pod|metadata|labels|a": "", "pod|spec|imagePullSecrets": l{nil}, "driver|args|0": nil, "driver|args|1": "driver"},
		},
		"E07_label_is_bool":            wrong(`{"metadata": {"labels": {"a.b/c": true}}, "spec": {}}`, `metadata.labels["a.b/c"]`, "must be a string"),
		"E07_annotations_is_text":      wrong(`{"metadata": {"annotations": "x"}, "spec": {}}`, "metadata.annotations", "must be an object"),
		"E07_node_selector_is_list":    wrong(`{"spec": {"nodeSelector": ["x"]}}`, "spec.nodeSelector", "must be an object"),
		"E07_pull_secrets_is_object":   wrong(`{"spec": {"imagePullSecrets": {}}}`, "spec.imagePullSecrets", "must be a list"),
		"E07_volumes_is_object":        wrong(`{"spec": {"volumes": {}}}`, "spec.volumes", "must be a list"),
		"E07_volume_is_text":           wrong(`{"spec": {"volumes": [{}, "x"]}}`, "spec.volumes[1]", "must be an object"),
		"E07_containers_is_object":     wrong(`{"spec": {"containers": {}}}`, "spec.containers", "must be a list"),
		"E07_container_is_null":        wrong(`{"spec": {"containers": [null]}}`, "spec.containers[0]", "must be an object"),
		"E07_container_name_is_number": wrong(`{"spec": {"containers": [{}, {"name": 1}]}}`, "spec.containers[1].name", "must be a string"),
		"E07_args_is_text":             wrong(spark(`"args": "x"`), "spec.containers[0].args", "must be a list"),
		"E07_arg_is_number":            wrong(spark(`"args": ["x", 1]`), "spec.containers[0].args[1]", "must be a string"),
		"E07_env_is_object":            wrong(spark(`"env": {}`), "spec.containers[0].env", "must be a list"),
		"E07_env_item_is_text":         wrong(spark(`"env": ["A=1"]`), "spec.containers[0].env[0]", "must be an object"),
		"E07_ports_is_object":          wrong(spark(`"ports": {}`), "spec.containers[0].ports", "must be a list"),
		"E07_mounts_is_object":         wrong(spark(`"volumeMounts": {}`), "spec.containers[0].volumeMounts", "must be a list"),
		"E07_mount_name_is_number":     wrong(spark(`"volumeMounts": [{"name": 1}]`), "spec.containers[0].volumeMounts[0].name", "must be a string"),
		"E07_mount_path_is_number":     wrong(spark(`"volumeMounts": [{"mountPath": 1}]`), "spec.containers[0].volumeMounts[0].mountPath", "must be a string"),
		"E07_resources_is_list":        wrong(spark(`"resources": []`), "spec.containers[0].resources", "must be an object"),
		"E07_limits_is_list":           wrong(spark(`"resources": {"limits": []}`), "spec.containers[0].resources.limits", "must be an object"),
		"E07_requests_is_list":         wrong(spark(`"resources": {"requests": []}`), "spec.containers[0].resources.requests", "must be an object"),
		"E07_second_container": {
			argv: base(), template: `{"spec": {"containers": [{"name": "a"}, {"name": "spark-kubernetes-driver", "env": 1}]}}`,
			field: "spec.containers[1].env",
		},
		"E07_container_name_cycle": {
			argv: base(c("K.driver.podTemplateContainerName=${spark.x}", "x=${spark.x}")...), template: one,
			refused: "spark.kubernetes.driver.podTemplateContainerName",
		},
		"E10_template_namespace_other": {
			argv: base(c("K.namespace=jobs")...), template: `{"metadata": {"namespace": "other"}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{"pod|metadata|namespace": "jobs"},
		},
		"E10_template_namespace_absent": {argv: base(), template: one, want: w{"pod|metadata|namespace": nil}},
		"E11_template_args_command": {
			argv: base(), template: spark(`"args": ["x"], "command": ["y"]`),
			want: w{
				"driver|args":    l{"x", "driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "C", "local:///a.jar"},
				"driver|command": l{"y"},
			},
		},
		"E12_template_unknown_field": {
			argv: base(), template: `{"spec": {"futureField": 1, "containers": [{"name": "spark-kubernetes-driver", "future": {"a": null}}]}}`,
			want: w{"pod|spec|futureField": int64(1), "driver|future": m{"a": nil}},
		},
		"E14_template_env_conflict": {
			argv: base(), template: spark(`"env": [{"name": "SPARK_CONF_DIR", "value": "/mine"}], "envFrom": [{"configMapRef": {"name": "e"}}]`),
			want: w{
				"env|0": "SPARK_CONF_DIR=/mine", "env|1": "SPARK_USER=svc", "env|5": "SPARK_CONF_DIR=/opt/spark/conf",
				"driver|envFrom": l{m{"configMapRef": m{"name": "e"}}},
			},
		},
		"E15_template_port_name_conflict": wrong(spark(`"ports": [{"name": "spark-ui", "containerPort": 1}]`), "spec.containers[0].ports", `"spark-ui"`),
		"E15_template_port_kept": {
			argv: base(), template: spark(`"ports": [{"name": "mine", "containerPort": 1}]`),
			want: w{"driver|ports|0|name": "mine", "driver|ports|1|name": "driver-rpc-port"},
		},
		"E16_template_init_and_sidecar": {
			argv: base(), template: `{"spec": {"initContainers": [{"name": "i", "restartPolicy": "Always"}], "containers": [{"name": "spark-kubernetes-driver"}, {"name": "s"}]}}`,
			want: w{"pod|spec|initContainers": l{m{"name": "i", "restartPolicy": "Always"}}, "pod|spec|containers|0": m{"name": "s"}},
		},
		"E17_template_sa_kept": {
			argv: base(), template: `{"spec": {"serviceAccountName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{"pod|spec|serviceAccountName": "t", "pod|spec|serviceAccount": nil},
		},
		"E18_template_reserved_label": {
			argv: base(), template: `{"metadata": {"labels": {"spark-role": "x"}}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{"pod|metadata|labels|spark-role": "driver"},
		},
		"E19_template_labels_not_in_selector": {
			argv: base(), template: `{"metadata": {"labels": {"team": "x"}}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{"pod|metadata|labels|team": "x", "Service|spec|selector|team": nil, "Service|spec|selector|spark-role": "driver"},
		},
		"E20_template_secrets_everything": {
			argv: base(),
			template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "securityContext": {"runAsUser": 1}, "livenessProbe": {"tcpSocket": {"port": 1}}}],
				"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "p", "hostNetwork": true,
				"hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}], "dnsConfig": {"options": [{"name": "ndots", "value": "1"}]}, "enableServiceLinks": false}}`,
			want: w{
				"pod|spec|tolerations": l{m{"operator": "Exists"}}, "pod|spec|affinity": m{"nodeAffinity": m{}}, "pod|spec|priorityClassName": "p", "pod|spec|hostNetwork": true,
				"pod|spec|hostAliases": l{m{"ip": "1.2.3.4", "hostnames": l{"h"}}}, "pod|spec|dnsConfig": m{"options": l{m{"name": "ndots", "value": "1"}}},
				"pod|spec|enableServiceLinks": false, "pod|spec|dnsPolicy": nil,
				"driver|securityContext": m{"runAsUser": int64(1)}, "driver|livenessProbe": m{"tcpSocket": m{"port": int64(1)}},
			},
		},
		"E21_exec_template_verbatim": {
			argv: base(), executor: "# x\r\n{ not: [yaml\n\tü",
			want: w{
				"podspec": m{
					"apiVersion": "v1", "kind": "ConfigMap", "metadata": m{"name": javaPrefix + "-driver-podspec-conf-map"},
					"immutable": true, "data": m{"podspec-configmap-key": "# x\r\n{ not: [yaml\n\tü"},
				},
				"kinds":     l{"Service", "NetworkPolicy", "ConfigMap", "ConfigMap"},
				"volumes|0": `pod-template-volume={"configMap":{"items":[{"key":"podspec-configmap-key","path":"pod-spec-template.yml"}],"name":"` + javaPrefix + `-driver-podspec-conf-map"}}`,
				"mounts|0":  `pod-template-volume={"mountPath":"/opt/spark/pod-template"}`,
				"properties|spark.kubernetes.executor.podTemplateFile":          "/opt/spark/pod-template/pod-spec-template.yml",
				"properties|spark.kubernetes.executor.podTemplateContainerName": "spark-kubernetes-executor",
				"properties|spark.kubernetes.driver.podTemplateContainerName":   nil,
			},
		},
		"E21_exec_container_name_kept": {
			argv: base(c("K.executor.podTemplateContainerName=mine")...), executor: "{}",
			want: w{"properties|spark.kubernetes.executor.podTemplateContainerName": "mine"},
		},
		"E22_exec_template_too_big": {argv: base(), executor: strings.Repeat("x", 1<<20+1), refused: "spark.kubernetes.executor.podTemplateFile", reason: "1048577 bytes"},
		"E22_exec_template_largest": {argv: base(), executor: strings.Repeat("x", 1<<20), want: w{"podspec|immutable": true}},
		"E22_exec_name_too_long": {
			argv: base("--name", strings.Repeat("a", 229)), executor: "x", refused: "spark.app.name", reason: "the ConfigMap's name",
		},
		"E24_template_generate_name_status": {
			argv: base(), template: `{"metadata": {"generateName": "g-", "uid": "u", "name": "n", "creationTimestamp": null, "finalizers": ["f/f"],
				"ownerReferences": [{"kind": "SparkApplication", "uid": "1"}]}, "status": {"phase": "Running"}, "spec": {"containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{
				"pod|metadata|name": javaPrefix + "-driver", "pod|metadata|generateName": "g-", "pod|status|phase": "Running",
				"pod|metadata|finalizers": l{"f/f"}, "pod|metadata|ownerReferences": l{m{"kind": "SparkApplication", "uid": "1"}},
			},
		},
		"template_resources_kept": {
			argv: base(), template: spark(`"resources": {"limits": {"memory": "1Gi", "cpu": "4", "x/y": "1"}, "requests": {"cpu": "3", "ephemeral-storage": "1Gi"}, "claims": []}, "imagePullPolicy": "Always", "image": "t"`),
			want: w{
				"driver|resources": m{
					"limits":   m{"memory": "1408Mi", "cpu": "4", "x/y": "1"},
					"requests": m{"cpu": "1", "memory": "1408Mi", "ephemeral-storage": "1Gi"}, "claims": l{},
				},
				"driver|imagePullPolicy": "IfNotPresent", "driver|image": "img:1",
			},
		},
		"no_template_no_container_name": {argv: base(), want: w{"properties|spark.kubernetes.driver.podTemplateContainerName": nil, "pod|kind": "Pod"}},
		"driver_template_file":          {argv: base(c("K.driver.podTemplateFile=/t.yaml")...), refused: "spark.kubernetes.driver.podTemplateFile", reason: "send the pod template in the request"},
		"executor_template_file":        {argv: base(c("K.executor.podTemplateFile=/t.yaml")...), refused: "spark.kubernetes.executor.podTemplateFile", reason: "send the pod template in the request"},
	})
	t.Run("E21_exec_template_empty", func(t *testing.T) {
		req, err := request(t, "4.2.0", base())
		if err != nil {
			t.Fatal(err)
		}
		req.ExecutorTemplate = []byte{}
		o, err := Build(req)
		if err != nil {
			t.Fatal(err)
		}
		if got := at(view(t, o), "podspec|data"); !cmp.Equal(got, m{"podspec-configmap-key": ""}) {
			t.Errorf("data = %v", got)
		}
	})
}

func TestVolumeCases(t *testing.T) {
	pvc := func(options ...string) []string {
		return base(volume("persistentVolumeClaim.v", append([]string{"mount.path=/p"}, options...)...)...)
	}
	claim := "volumes|0"
	claimObject := func(name string, mode string) m {
		return m{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim",
			"metadata": m{"name": name, "labels": m{"spark-app-selector": testApp}},
			"spec": m{
				"storageClassName": "fast", "accessModes": l{mode},
				"resources": m{"requests": m{"storage": "10Gi"}},
			},
		}
	}
	onDemandPVC := pvc("options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi")
	const key = "spark.kubernetes.driver.volumes."
	runCases(t, map[string]testCase{
		"F01_hostpath": {
			argv: base(volume("hostPath.h", "mount.path=/h", "mount.readOnly=TRUE", "options.path=/host", "options.type=DirectoryOrCreate", "options.other=x")...),
			want: w{"volumes|0": `h={"hostPath":{"path":"/host","type":"DirectoryOrCreate"}}`, "mounts|0": `h={"mountPath":"/h","readOnly":true}`},
		},
		"F01_hostpath_35": {
			argv: base(volume("hostPath.h", "mount.path=/h", "mount.readOnly=false", "mount.subPathExpr=x", "options.path=/host", "options.type=Directory")...), release: "3.5.7",
			want: w{"volumes|0": `h={"hostPath":{"path":"/host"}}`, "mounts|0": `h={"mountPath":"/h"}`},
		},
		"F02_hostpath_no_path": {argv: base(volume("hostPath.h", "mount.path=/h")...), refused: key + "hostPath.h.options.path", reason: "hostPath.h.options.path is required for hostPath"},
		"F03_emptydir_memory": {
			argv: base(volume("emptyDir.e", "mount.path=/e", "mount.subPath=s", "options.medium=Memory", "options.sizeLimit=1Gi")...),
			want: w{"volumes|0": `e={"emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}}`, "mounts|0": `e={"mountPath":"/e","subPath":"s"}`},
		},
		"F03_emptydir_plain": {
			argv: base(volume("emptyDir.e", "mount.path=/e", "mount.subPathExpr=$(X)")...),
			want: w{"volumes|0": `e={"emptyDir":{}}`, "mounts|0": `e={"mountPath":"/e","subPathExpr":"$(X)"}`},
		},
		"F03_emptydir_size_no_quantity": {argv: base(volume("emptyDir.e", "mount.path=/e", "options.sizeLimit=1gib")...), refused: key + "emptyDir.e.options.sizeLimit", reason: "quantity"},
		"F04_nfs": {
			argv: base(volume("nfs.n", "mount.path=/n", "mount.readOnly=true", "options.path=/x", "options.server=s")...),
			want: w{"volumes|0": `n={"nfs":{"path":"/x","server":"s"}}`, "mounts|0": `n={"mountPath":"/n","readOnly":true}`},
		},
		"F04_nfs_no_server": {argv: base(volume("nfs.n", "mount.path=/n", "options.path=/x")...), refused: key + "nfs.n.options.server", reason: "is required for nfs"},
		"F04_nfs_no_path":   {argv: base(volume("nfs.n", "mount.path=/n", "options.server=s")...), refused: key + "nfs.n.options.path"},
		"F05_pvc_existing": {
			argv: pvc("options.claimName=c", "mount.readOnly=true"),
			want: w{claim: `v={"persistentVolumeClaim":{"claimName":"c","readOnly":true}}`, "PersistentVolumeClaim": nil, "callerNamed": l(nil)},
		},
		"F05_pvc_no_claim": {argv: pvc(), refused: key + "persistentVolumeClaim.v.options.claimName", reason: "is required for persistentVolumeClaim"},
		"F06_pvc_ondemand_single": {
			argv: onDemandPVC,
			want: w{
				claim:                   `v={"persistentVolumeClaim":{"claimName":"` + javaPrefix + `-driver-pvc-0"}}`,
				"PersistentVolumeClaim": claimObject(javaPrefix+"-driver-pvc-0", "ReadWriteOncePod"),
				"kinds":                 l{"Service", "NetworkPolicy", "PersistentVolumeClaim", "ConfigMap"},
				"callerNamed":           l(nil), "warnings": l(nil),
			},
		},
		"F06_pvc_ondemand_35": {argv: onDemandPVC, release: "3.5.7", want: w{"PersistentVolumeClaim": claimObject(javaPrefix+"-driver-pvc-0", "ReadWriteOnce")}},
		"F06_pvc_ondemand_40": {argv: onDemandPVC, release: "4.0.0", want: w{"PersistentVolumeClaim": claimObject(javaPrefix+"-driver-pvc-0", "ReadWriteOncePod")}},
		"F06_pvc_ondemand_41": {argv: onDemandPVC, release: "4.1.0", want: w{"PersistentVolumeClaim": claimObject(javaPrefix+"-driver-pvc-0", "ReadWriteOncePod")}},
		"F06_pvc_ondemand_43": {argv: onDemandPVC, release: "4.3.0", want: w{"PersistentVolumeClaim": claimObject(javaPrefix+"-driver-pvc-0", "ReadWriteOncePod")}},
		"F07_pvc_ondemand_no_size": {
			argv: pvc("options.claimName=OnDemand", "options.storageClass=fast"),
			want: w{claim: `v={"persistentVolumeClaim":{"claimName":"` + javaPrefix + `-driver-pvc-0"}}`, "PersistentVolumeClaim": nil},
		},
		"F07_pvc_ondemand_no_class": {argv: pvc("options.claimName=OnDemand", "options.sizeLimit=1Gi"), want: w{"PersistentVolumeClaim": nil}},
		"F08_pvc_literal_with_class_and_size": {
			argv: pvc("options.claimName=c", "options.storageClass=fast", "options.sizeLimit=10Gi"),
			want: w{
				"PersistentVolumeClaim": claimObject("c", "ReadWriteOncePod"),
				"callerNamed":           l{"c"},
				"warnings": l{key + `persistentVolumeClaim.v.options.claimName is "c": storage class and size are given, so the claim is made if there is none; ` +
					`leave them out for a claim that exists, or write OnDemand for one that goes with the driver`},
			},
		},
		"F08_pvc_shared": {
			argv: base(join(
				volume("persistentVolumeClaim.a", "mount.path=/a", "options.claimName=c", "options.storageClass=fast", "options.sizeLimit=10Gi"),
				volume("persistentVolumeClaim.b", "mount.path=/b", "options.claimName=c", "options.storageClass=fast", "options.sizeLimit=10Gi"))...),
			want: w{"kinds": l{"Service", "NetworkPolicy", "PersistentVolumeClaim", "ConfigMap"}, "callerNamed": l{"c"}},
		},
		"F08_pvc_shared_differs": {
			argv: base(join(
				volume("persistentVolumeClaim.a", "mount.path=/a", "options.claimName=c", "options.storageClass=fast", "options.sizeLimit=10Gi"),
				volume("persistentVolumeClaim.b", "mount.path=/b", "options.claimName=c", "options.storageClass=fast", "options.sizeLimit=20Gi"))...),
			refused: key + "persistentVolumeClaim.b.options.claimName", reason: "another volume asks for this claim",
		},
		"F09_pvc_inside_text": {
			argv: pvc("options.claimName=x-OnDemand-OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi"),
			want: w{"PersistentVolumeClaim|metadata|name": "x-" + javaPrefix + "-driver-pvc-0-" + javaPrefix + "-driver-pvc-0", "callerNamed": l(nil)},
		},
		"F10_pvc_two": {
			argv: base(join(
				volume("persistentVolumeClaim.b", "mount.path=/b", "options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi"),
				volume("persistentVolumeClaim.a", "mount.path=/a", "options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi"),
				volume("emptyDir.z", "mount.path=/z"))...),
			want: w{
				"volumes|0": `z={"emptyDir":{}}`,
				"volumes|1": `a={"persistentVolumeClaim":{"claimName":"` + javaPrefix + `-driver-pvc-1"}}`,
				"volumes|2": `b={"persistentVolumeClaim":{"claimName":"` + javaPrefix + `-driver-pvc-2"}}`,
				"mounts|2":  `b={"mountPath":"/b"}`,
				"PersistentVolumeClaim/" + javaPrefix + "-driver-pvc-1": claimObject(javaPrefix+"-driver-pvc-1", "ReadWriteOncePod"),
				"PersistentVolumeClaim/" + javaPrefix + "-driver-pvc-2": claimObject(javaPrefix+"-driver-pvc-2", "ReadWriteOncePod"),
				"PersistentVolumeClaim/" + javaPrefix + "-driver-pvc-0": nil,
			},
		},
		"F11_pvc_labels": {
			argv: pvc("options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi", "label.a=1", "label.spark-app-selector=x", "annotation.n.o/t=e {{APP_ID}}"),
			want: w{
				"PersistentVolumeClaim|metadata|labels":      m{"a": "1", "spark-app-selector": testApp},
				"PersistentVolumeClaim|metadata|annotations": m{"n.o/t": "e {{APP_ID}}"},
			},
		},
		"F11_pvc_labels_35": {
			argv: pvc("options.claimName=OnDemand", "options.storageClass=fast", "options.sizeLimit=10Gi", "label.a=1", "annotation.b=2"), release: "3.5.7",
			want: w{"PersistentVolumeClaim|metadata|labels": m{"spark-app-selector": testApp}, "PersistentVolumeClaim|metadata|annotations": nil},
		},
		"F11_pvc_label_replaced": {
			argv: pvc("options.claimName=OnDemand", "options.storageClass=f", "options.sizeLimit=1Gi", "label.spark-app-selector=b c"),
			want: w{"PersistentVolumeClaim|metadata|labels": m{"spark-app-selector": testApp}},
		},
		"F11_pvc_label_not_legal":      {argv: pvc("options.claimName=OnDemand", "options.storageClass=f", "options.sizeLimit=1Gi", "label.a=b c"), refused: key + "persistentVolumeClaim.v.label.a"},
		"F11_pvc_annotation_not_legal": {argv: pvc("options.claimName=OnDemand", "options.storageClass=f", "options.sizeLimit=1Gi", "annotation.a b=c"), refused: key + "persistentVolumeClaim.v.annotation.a b"},
		"F12_pvc_legacy_mode":          {argv: append(c("K.legacy.useReadWriteOnceAccessMode=true"), onDemandPVC...), want: w{"PersistentVolumeClaim|spec|accessModes": l{"ReadWriteOnce"}}},
		"F12_pvc_legacy_mode_35":       {argv: append(c("K.legacy.useReadWriteOnceAccessMode=false"), onDemandPVC...), release: "3.5.7", want: w{"PersistentVolumeClaim|spec|accessModes": l{"ReadWriteOncePod"}}},
		"F12_pvc_legacy_mode_invalid":  {argv: append(c("K.legacy.useReadWriteOnceAccessMode=x"), onDemandPVC...), refused: "spark.kubernetes.legacy.useReadWriteOnceAccessMode"},
		"F13_size_without_unit":        {argv: pvc("options.claimName=c", "options.sizeLimit=512"), refused: key + "persistentVolumeClaim.v.options.sizeLimit", reason: "Volume size `512` is smaller than 1KiB. Missing units?"},
		"F13_size_1023":                {argv: base(volume("emptyDir.e", "mount.path=/e", "options.sizeLimit=1023")...), refused: key + "emptyDir.e.options.sizeLimit", reason: "Missing units?"},
		"F13_size_1024":                {argv: base(volume("emptyDir.e", "mount.path=/e", "options.sizeLimit=1024")...), want: w{"volumes|0": `e={"emptyDir":{"sizeLimit":"1024"}}`}},
		"F13_size_empty":               {argv: base(volume("emptyDir.e", "mount.path=/e", "options.sizeLimit=")...), refused: key + "emptyDir.e.options.sizeLimit"},
		"F13_pvc_size_garbage":         {argv: pvc("options.claimName=c", "options.storageClass=f", "options.sizeLimit=big"), refused: key + "persistentVolumeClaim.v.options.sizeLimit", reason: "quantity"},
		"F13_pvc_size_zero":            {argv: pvc("options.claimName=c", "options.storageClass=f", "options.sizeLimit=0Gi"), refused: key + "persistentVolumeClaim.v.options.sizeLimit", reason: "greater than zero"},
		"F13_pvc_claim_not_legal":      {argv: pvc("options.claimName=C_c", "options.storageClass=f", "options.sizeLimit=1Gi"), refused: key + "persistentVolumeClaim.v.options.claimName"},
		"F14_mount_path_missing":       {argv: base(volume("what.v", "options.path=/x")...), refused: key + "what.v.mount.path", reason: "key not found: what.v.mount.path"},
		"F14_mount_path_empty":         {argv: base(volume("emptyDir.v", "mount.path=")...), refused: key + "emptyDir.v.mount.path", reason: "must not be empty"},
		"F15_type_unknown":             {argv: base(volume("configMap.v", "mount.path=/x")...), refused: key + "configMap.v.mount.path", reason: "Kubernetes Volume type `configMap` is not supported"},
		"F16_readonly_not_bool":        {argv: base(volume("emptyDir.v", "mount.path=/x", "mount.readOnly=yes")...), refused: key + "emptyDir.v.mount.readOnly", reason: `"yes"`},
		"F16_readonly_not_trimmed":     {argv: base(volume("emptyDir.v", "mount.path=/x", "mount.readOnly= true")...), refused: key + "emptyDir.v.mount.readOnly"},
		"F17_subpath_both":             {argv: base(volume("emptyDir.v", "mount.path=/x", "mount.subPath=a", "mount.subPathExpr=b")...), refused: key + "emptyDir.v.mount.subPathExpr", reason: "mutually exclusive"},
		"F17_subpath_both_35":          {argv: base(volume("emptyDir.v", "mount.path=/x", "mount.subPath=a", "mount.subPathExpr=b")...), release: "3.5.7", want: w{"mounts|0": `v={"mountPath":"/x","subPath":"a"}`}},
		"F18_duplicate_mount_path": {
			argv:    base(join(volume("emptyDir.v", "mount.path=/x"), volume("nfs.n", "mount.path=/x", "options.path=/", "options.server=s"))...),
			refused: key + "nfs.n.mount.path", reason: "Found duplicated mountPath: '/x', it is that of " + key + "emptyDir.v.mount.path",
		},
		"F18_mount_path_of_template": {
			argv: base(volume("emptyDir.v", "mount.path=/x")...), template: `{"spec": {"containers": [{"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "t", "mountPath": "/x"}]}]}}`,
			field: "spec.containers[0].volumeMounts", reason: `mount path "/x" is also made by ` + key + "emptyDir.v.mount.path",
		},
		"F18_mount_path_of_spark": {
			argv: base(volume("emptyDir.v", "mount.path=/opt/spark/conf")...), refused: key + "emptyDir.v.mount.path", reason: `mount path "/opt/spark/conf" is also made by Spark`,
		},
		"F18_same_volume_name": {
			argv:    base(join(volume("emptyDir.v", "mount.path=/x"), volume("hostPath.v", "mount.path=/y", "options.path=/"))...),
			refused: key + "hostPath.v.mount.path", reason: `volume "v" is also made by ` + key + "emptyDir.v.mount.path",
		},
		"F18_volume_name_of_secret": {
			argv:    base(join(volume("emptyDir.s-volume", "mount.path=/x"), c("K.driver.secrets.s=/y"))...),
			refused: key + "emptyDir.s-volume.mount.path", reason: "spark.kubernetes.driver.secrets.s",
		},
		"F18_volume_name_64":        {argv: base(volume("emptyDir."+strings.Repeat("v", 64), "mount.path=/x")...), refused: key + "emptyDir." + strings.Repeat("v", 64) + ".mount.path", reason: "is not a volume name"},
		"F18_volume_name_63":        {argv: base(volume("emptyDir."+strings.Repeat("v", 63), "mount.path=/x")...), want: w{"mounts|0": strings.Repeat("v", 63) + `={"mountPath":"/x"}`}},
		"F19_executor_volume":       {argv: base(c("K.executor.volumes.emptyDir.v.options.medium=Memory", "driver.bindAddress=x")...), refused: "spark.kubernetes.executor.volumes.emptyDir.v.mount.path", reason: "key not found"},
		"F20_executor_same_path_ok": {argv: base(c("K.executor.volumes.emptyDir.a.mount.path=/x", "K.executor.volumes.emptyDir.b.mount.path=/x")...), want: w{"volumes|1": "spark-conf-volume-driver=" + confVolume}},
		"F21_short_key_ignored":     {argv: base(c("K.driver.volumes.hostPath=x", "K.driver.volumes.nfs.=y")...), want: w{"volumes|1": "spark-conf-volume-driver=" + confVolume}},

		"F22_secrets_mount": {
			argv: base(c("K.driver.secrets.s=/etc/s", "K.driver.secrets.a=/etc/a")...),
			want: w{
				"volumes|0": `a-volume={"secret":{"secretName":"a"}}`, "volumes|1": `s-volume={"secret":{"secretName":"s"}}`,
				"mounts|0": `a-volume={"mountPath":"/etc/a"}`, "mounts|1": `s-volume={"mountPath":"/etc/s"}`,
			},
		},
		"F22_secrets_same_path":     {argv: base(c("K.driver.secrets.s=/etc/s", "K.driver.secrets.a=/etc/s")...), refused: "spark.kubernetes.driver.secrets.s", reason: "spark.kubernetes.driver.secrets.a"},
		"F22_secrets_no_path":       {argv: base(c("K.driver.secrets.s=")...), refused: "spark.kubernetes.driver.secrets.s", reason: "must not be empty"},
		"F22_secrets_name_too_long": {argv: base(c("K.driver.secrets." + strings.Repeat("s", 57) + "=/s")...), refused: "spark.kubernetes.driver.secrets." + strings.Repeat("s", 57), reason: "volume name"},
		"F23_secret_key_ref_forms": {
			argv: base(c("K.driver.secretKeyRef.A=n:k", "K.driver.secretKeyRef.B=n:k:", "K.driver.secretKeyRef.C=:k")...),
			want: w{
				"env|3": `A={"valueFrom":{"secretKeyRef":{"key":"k","name":"n"}}}`,
				"env|4": `B={"valueFrom":{"secretKeyRef":{"key":"k","name":"n"}}}`,
				"env|5": `C={"valueFrom":{"secretKeyRef":{"key":"k","name":""}}}`,
				"env|2": `SPARK_DRIVER_BIND_ADDRESS={"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}`,
			},
		},
		"F23_secret_key_ref_n":     {argv: base(c("K.driver.secretKeyRef.A=n")...), refused: "spark.kubernetes.driver.secretKeyRef.A", reason: `"n": SecretKeyRef must be in the form name:key.`},
		"F23_secret_key_ref_n:":    {argv: base(c("K.driver.secretKeyRef.A=n:")...), refused: "spark.kubernetes.driver.secretKeyRef.A"},
		"F23_secret_key_ref_a:b:c": {argv: base(c("K.driver.secretKeyRef.A=a:b:c")...), refused: "spark.kubernetes.driver.secretKeyRef.A"},
		"F23_secret_key_ref_empty": {argv: base(c("K.driver.secretKeyRef.A=")...), refused: "spark.kubernetes.driver.secretKeyRef.A"},
		"F23_secret_key_ref_colon": {argv: base(c("K.driver.secretKeyRef.A=::")...), refused: "spark.kubernetes.driver.secretKeyRef.A"},
		"F23_secret_key_ref_env":   {argv: base(c("K.driver.secretKeyRef.=n:k")...), refused: "spark.kubernetes.driver.secretKeyRef.", reason: "environment variable"},
		"F24_local_dir_default": {
			argv: base(),
			want: w{"volumes|0": `spark-local-dir-1={"emptyDir":{}}`, "mounts|0": `spark-local-dir-1={"mountPath":"/var/data/spark-U"}`, "env|3": "SPARK_LOCAL_DIRS=/var/data/spark-U"},
		},
		"F25_local_dir_conf_list": {
			argv: base(c("local.dir=/a, /b,")...),
			want: w{
				"volumes|0": `spark-local-dir-1={"emptyDir":{}}`, "volumes|1": `spark-local-dir-2={"emptyDir":{}}`,
				"mounts|0": `spark-local-dir-1={"mountPath":"/a"}`, "mounts|1": `spark-local-dir-2={"mountPath":" /b"}`, "env|3": "SPARK_LOCAL_DIRS=/a, /b",
			},
		},
		"F25_local_dir_empty":   {argv: base(c("local.dir=")...), refused: "spark.local.dir", reason: "must not be empty"},
		"F25_local_dir_twice":   {argv: base(c("local.dir=/a,/a")...), refused: "spark.local.dir", reason: `mount path "/a"`},
		"F26_local_dir_tmpfs":   {argv: base(c("K.local.dirs.tmpfs=true")...), want: w{"volumes|0": `spark-local-dir-1={"emptyDir":{"medium":"Memory"}}`}},
		"F26_local_dir_tmpfs_x": {argv: base(c("K.local.dirs.tmpfs=x")...), refused: "spark.kubernetes.local.dirs.tmpfs"},
		"F27_local_dir_user_volume": {
			argv: base(join(volume("emptyDir.spark-local-dir-x", "mount.path=/q"), volume("emptyDir.spark-local-dir-a", "mount.path=/z"), c("local.dir=/no"))...),
			want: w{"volumes|2": "spark-conf-volume-driver=" + confVolume, "env|3": "SPARK_LOCAL_DIRS=/z,/q"},
		},
		"F28_local_dir_template_mount": {
			argv: base(), template: `{"spec": {"volumes": [{"name": "spark-local-dir-1", "emptyDir": {}}], "containers": [{"name": "spark-kubernetes-driver", "volumeMounts": [{"name": "x", "mountPath": "/x"}, {"name": "spark-local-dir-1", "mountPath": "/t"}]}]}}`,
			want: w{"volumes|1": "spark-conf-volume-driver=" + confVolume, "env|3": "SPARK_LOCAL_DIRS=/t"},
		},
		"F29_local_dir_template_volume_no_mount": {
			argv: base(), template: `{"spec": {"volumes": [{"name": "spark-local-dir-1", "emptyDir": {}}], "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			field: "spec.volumes", reason: `volume "spark-local-dir-1" is also made by Spark`,
		},
		"F30_credentials_secret": {
			argv:     base(c("K.authenticate.driver.oauthToken=t\u00fc", "K.authenticate.driver.serviceAccountName=sa")...),
			template: `{"spec": {"serviceAccountName": "t", "containers": [{"name": "spark-kubernetes-driver"}]}}`,
			want: w{
				"Secret": m{
					"apiVersion": "v1", "kind": "Secret", "metadata": m{"name": javaPrefix + "-kubernetes-credentials"},
					"immutable": true, "data": m{"oauth-token": "dMO8"},
				},
				"kinds":     l{"Secret", "Service", "NetworkPolicy", "ConfigMap"},
				"volumes|0": `kubernetes-credentials={"secret":{"secretName":"` + javaPrefix + `-kubernetes-credentials"}}`,
				"mounts|0":  `kubernetes-credentials={"mountPath":"/mnt/secrets/spark-kubernetes-credentials"}`,
				"properties|spark.kubernetes.authenticate.driver.oauthToken":             "<present_but_redacted>",
				"properties|spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": "/mnt/secrets/spark-kubernetes-credentials/oauth-token",
				"properties|spark.kubernetes.authenticate.driver.mounted.caCertFile":     nil,
				"pod|spec|serviceAccountName":                                            "t", "pod|spec|serviceAccount": nil,
			},
		},
		"F30_credentials_mounted": {
			argv: base(c("K.authenticate.driver.oauthToken=t", "K.authenticate.driver.mounted.oauthTokenFile=/mine", "K.authenticate.driver.mounted.caCertFile=/ca")...),
			want: w{
				"properties|spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": "/mine",
				"properties|spark.kubernetes.authenticate.driver.mounted.caCertFile":     "/ca",
			},
		},
		"F30_mounted_alone": {
			argv: base(c("K.authenticate.driver.mounted.caCertFile=/ca", "K.authenticate.driver.serviceAccountName=sa")...),
			want: w{"Secret": nil, "pod|spec|serviceAccountName": "sa", "properties|spark.kubernetes.authenticate.driver.mounted.oauthTokenFile": nil},
		},
		"F30_client_key":  {argv: base(c("K.authenticate.driver.clientKeyFile=/k")...), refused: "spark.kubernetes.authenticate.driver.clientKeyFile", reason: "spark.kubernetes.authenticate.driver.mounted.clientKeyFile"},
		"F30_client_cert": {argv: base(c("K.authenticate.driver.clientCertFile=/k")...), refused: "spark.kubernetes.authenticate.driver.clientCertFile"},
		"F30_ca_cert":     {argv: base(c("K.authenticate.driver.caCertFile=/k")...), refused: "spark.kubernetes.authenticate.driver.caCertFile"},
		"F31_oauth_redaction_suffix": {
			argv: base(c("foo.oauthToken=x", "foo.oauthTokenFile=y", "foo.password=z")...),
			want: w{"properties|spark.foo.oauthToken": "<present_but_redacted>", "properties|spark.foo.oauthTokenFile": "y", "properties|spark.foo.password": "z", "Secret": nil},
		},
		"F32_krb5_cm": {
			argv: base(c("K.kerberos.krb5.configMapName=k")...),
			want: w{"volumes|0": `krb5-file={"configMap":{"name":"k"}}`, "mounts|0": `krb5-file={"mountPath":"/etc/krb5.conf","subPath":"krb5.conf"}`},
		},
		"F32_krb5_cm_path_taken": {
			argv: base(join(volume("emptyDir.v", "mount.path=/etc/krb5.conf"), c("K.kerberos.krb5.configMapName=k"))...), refused: key + "emptyDir.v.mount.path", reason: "also made by Spark",
		},
		"F32_krb5_path": {argv: base(c("K.kerberos.krb5.path=/etc/krb5.conf")...), refused: "spark.kubernetes.kerberos.krb5.path", reason: "spark.kubernetes.kerberos.krb5.configMapName"},
		"F33_token_secret_pair": {
			argv: base(c("K.kerberos.tokenSecret.name=s", "K.kerberos.tokenSecret.itemKey=i")...),
			want: w{
				"volumes|0": `hadoop-secret={"secret":{"secretName":"s"}}`, "mounts|0": `hadoop-secret={"mountPath":"/mnt/secrets/hadoop-credentials"}`,
				"env|3": "HADOOP_TOKEN_FILE_LOCATION=/mnt/secrets/hadoop-credentials/i",
			},
		},
		"F33_token_secret_name_only": {argv: base(c("K.kerberos.tokenSecret.name=s")...), refused: "spark.kubernetes.kerberos.tokenSecret.name", reason: "together with spark.kubernetes.kerberos.tokenSecret.itemKey"},
		"F33_token_secret_item_only": {argv: base(c("K.kerberos.tokenSecret.itemKey=i")...), refused: "spark.kubernetes.kerberos.tokenSecret.itemKey", reason: "together with spark.kubernetes.kerberos.tokenSecret.name"},
		"F34_keytab_no_principal":    {argv: base("--keytab", "local:///k"), refused: "spark.kerberos.keytab", reason: "together with spark.kerberos.principal"},
		"F34_principal_no_keytab":    {argv: base("--principal", "p"), refused: "spark.kerberos.principal", reason: "together with spark.kerberos.keytab"},
		"F35_keytab_local_uri": {
			argv: base(join([]string{"--keytab", "local:///k", "--principal", "p"}, c("K.kerberos.tokenSecret.name=s", "K.kerberos.tokenSecret.itemKey=i"))...),
			want: w{"properties|spark.kerberos.keytab": "local:///k", "Secret": nil, "volumes|0": `hadoop-secret={"secret":{"secretName":"s"}}`},
		},
		"F36_hadoop_cm": {
			argv: base(c("x=h", "K.hadoop.configMapName=${spark.x}")...),
			want: w{
				"volumes|0": `hadoop-properties={"configMap":{"name":"h"}}`, "mounts|0": `hadoop-properties={"mountPath":"/opt/hadoop/conf"}`,
				"env|3": "HADOOP_CONF_DIR=/opt/hadoop/conf", "properties|spark.kubernetes.executor.hadoopConfigMapName": "h",
			},
		},
	})
}

const confVolume = `{"configMap":{"items":[{"key":"spark.properties","mode":420,"path":"spark.properties"}],"name":"spark-drv-ffeedd9d0f3a7c22-conf-map"}}`

func TestObjectCases(t *testing.T) {
	exclude := func(classes ...string) []string {
		return c("K.driver.pod.excludedFeatureSteps=" + strings.Join(classes, ", "))
	}
	const pkg = "org.apache.spark.deploy.k8s.features."
	labels := m{"spark-app-name": "c", "spark-app-selector": testApp, "spark-role": "driver", "spark-version": "4.2.0"}
	cases := map[string]testCase{
		"G01_service_golden": {
			argv: base(),
			want: w{"Service": m{
				"apiVersion": "v1", "kind": "Service",
				"metadata": m{"name": javaPrefix + "-driver-svc", "labels": m{"spark-app-selector": testApp}},
				"spec": m{
					"clusterIP": "None", "ipFamilyPolicy": "SingleStack", "ipFamilies": l{"IPv4"}, "selector": labels,
					"ports": l{
						m{"name": "driver-rpc-port", "port": int64(7078), "targetPort": int64(7078)},
						m{"name": "blockmanager", "port": int64(7079), "targetPort": int64(7079)},
						m{"name": "spark-ui", "port": int64(4040), "targetPort": int64(4040)},
						m{"name": "spark-connect", "port": int64(15002), "targetPort": int64(15002), "appProtocol": "grpc"},
					},
				},
			}},
		},
		"G02_service_dual_stack": {
			argv: base(c("K.driver.service.ipFamilyPolicy=PreferDualStack", "K.driver.service.ipFamilies=IPv6,IPv4")...),
			want: w{"Service|spec|ipFamilyPolicy": "PreferDualStack", "Service|spec|ipFamilies": l{"IPv6", "IPv4"}},
		},
		"G02_service_require_dual_stack": {
			argv: base(c("K.driver.service.ipFamilyPolicy=RequireDualStack", "K.driver.service.ipFamilies=IPv4,IPv6")...),
			want: w{"Service|spec|ipFamilyPolicy": "RequireDualStack", "Service|spec|ipFamilies": l{"IPv4", "IPv6"}},
		},
		"G02_service_ipv6":               {argv: base(c("K.driver.service.ipFamilies=IPv6")...), want: w{"Service|spec|ipFamilies": l{"IPv6"}}},
		"G03_service_family_case":        {argv: base(c("K.driver.service.ipFamilies=ipv4")...), refused: "spark.kubernetes.driver.service.ipFamilies"},
		"G03_service_family_blank":       {argv: base(c("K.driver.service.ipFamilies=IPv4, IPv6")...), refused: "spark.kubernetes.driver.service.ipFamilies"},
		"G03_service_policy":             {argv: base(c("K.driver.service.ipFamilyPolicy=DualStack")...), refused: "spark.kubernetes.driver.service.ipFamilyPolicy"},
		"G04_service_labels_override":    {argv: base(c("K.driver.service.label.spark-app-selector=z", "K.driver.service.label.a=b", "K.driver.service.annotation.n=${spark.x} {{APP_ID}}")...), want: w{"Service|metadata|labels": m{"spark-app-selector": "z", "a": "b"}, "Service|metadata|annotations": m{"n": "${spark.x} {{APP_ID}}"}, "Service|spec|selector": labels}},
		"G04_service_label_not_legal":    {argv: base(c("K.driver.service.label.a={{APP_ID}}")...), refused: "spark.kubernetes.driver.service.label.a"},
		"G04_service_annotation":         {argv: base(c("K.driver.service.annotation.a b=x")...), refused: "spark.kubernetes.driver.service.annotation.a b"},
		"G05_service_publish_not_ready":  {argv: base(), release: "4.3.0", want: w{"Service|spec|publishNotReadyAddresses": false}},
		"G05_service_publish_true":       {argv: base(c("K.driver.service.publishNotReadyAddresses=true")...), release: "4.3.0", want: w{"Service|spec|publishNotReadyAddresses": true}},
		"G05_service_publish_invalid":    {argv: base(c("K.driver.service.publishNotReadyAddresses=x")...), release: "4.3.0", refused: "spark.kubernetes.driver.service.publishNotReadyAddresses"},
		"G05_service_publish_not_in_42":  {argv: base(c("K.driver.service.publishNotReadyAddresses=x")...), want: w{"Service|spec|publishNotReadyAddresses": nil}},
		"G05_same_port_twice":            {argv: base(c("ui.port=7079")...), refused: "spark.ui.port", reason: "the port 7079 is that of spark.driver.blockManager.port too"},
		"G05_same_port_as_a_later_one":   {argv: base(c("driver.port=15002")...), refused: "spark.driver.port", reason: "spark.connect.grpc.binding.port"},
		"G05_same_port_in_container":     {argv: base(c("blockManager.port=4040")...), want: w{"driver|ports|1|containerPort": int64(4040), "Service|spec|ports|1|port": int64(7079)}},
		"G07_network_policy_excluded":    {argv: base(exclude("x", pkg+"NetworkPolicyFeatureStep")...), want: w{"NetworkPolicy": nil, "kinds": l{"Service", "ConfigMap"}}},
		"G08_excluded_unknown_name":      {argv: base(exclude("NetworkPolicyFeatureStep")...), want: w{"kinds": l{"Service", "NetworkPolicy", "ConfigMap"}}},
		"G09_excluded_step_still_checks": {argv: base(join(exclude(pkg+"DriverServiceFeatureStep"), c("driver.bindAddress="))...), refused: "spark.driver.bindAddress", reason: "is not supported in Kubernetes mode"},
		"G10_excluded_service":           {argv: base(exclude(pkg + "DriverServiceFeatureStep")...), want: w{"Service": nil, "properties|spark.driver.host": nil, "properties|spark.driver.port": nil}},
		"G11_excluded_basic":             {argv: base(exclude(pkg + "BasicDriverFeatureStep")...), refused: "spark.kubernetes.driver.pod.excludedFeatureSteps"},
		"G11_excluded_others": {
			argv: base(join(exclude(pkg+"DriverKubernetesCredentialsFeatureStep", pkg+"MountSecretsFeatureStep", pkg+"EnvSecretsFeatureStep", pkg+"MountVolumesFeatureStep",
				pkg+"DriverCommandFeatureStep", pkg+"HadoopConfDriverFeatureStep", pkg+"KerberosConfDriverFeatureStep", pkg+"PodTemplateConfigMapStep", pkg+"LocalDirsFeatureStep", pkg+"VolcanoFeatureStep"),
				c("K.authenticate.driver.oauthToken=t", "K.driver.secrets.s=/s", "K.driver.secretKeyRef.A=n:k", "K.driver.volumes.emptyDir.e.mount.path=/e", "K.hadoop.configMapName=h",
					"K.kerberos.krb5.configMapName=k", "K.driver.pod.featureSteps="+pkg+"VolcanoFeatureStep"))...),
			executor: "x",
			want: w{
				"kinds": l{"Service", "NetworkPolicy", "ConfigMap"}, "volumes": l{"spark-conf-volume-driver=" + confVolume},
				"mounts": l{`spark-conf-volume-driver={"mountPath":"/opt/spark/conf"}`}, "driver|args": nil, "env|3": "SPARK_CONF_DIR=/opt/spark/conf",
				"properties|spark.kubernetes.resource.type": nil,
			},
		},
		"G12_custom_feature_step": {argv: base(c("K.driver.pod.featureSteps=com.x.Step")...), refused: "spark.kubernetes.driver.pod.featureSteps", reason: `"com.x.Step": Failed to initialize feature step`},
		"G13_volcano_step": {
			argv: base(c("K.driver.pod.featureSteps="+pkg+"VolcanoFeatureStep", "K.scheduler.name=volcano", "K.namespace=jobs")...),
			want: w{
				"PodGroup": m{
					"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
					"metadata": m{"name": testApp + "-podgroup", "namespace": "jobs"}, "spec": m{},
				},
				"kinds":                    l{"PodGroup", "Service", "NetworkPolicy", "ConfigMap"},
				"pod|metadata|annotations": m{"scheduling.k8s.io/group-name": testApp + "-podgroup"},
				"pod|spec|schedulerName":   "volcano",
			},
		},
		"G13_volcano_pod_group_file": {
			argv:    base(c("K.driver.pod.featureSteps="+pkg+"VolcanoFeatureStep", "K.scheduler.volcano.podGroupTemplateFile=/f")...),
			refused: "spark.kubernetes.scheduler.volcano.podGroupTemplateFile", reason: "file of the submitter",
		},
		"G13_volcano_file_without_step": {
			argv: base(c("K.scheduler.volcano.podGroupTemplateFile=/f")...), want: w{"PodGroup": nil},
		},
		"G14_cm_shape": {
			argv: base(),
			want: w{
				"confmap|metadata":  m{"name": "spark-drv-ffeedd9d0f3a7c22-conf-map", "namespace": "default"},
				"confmap|immutable": true, "confmap|data|spark.kubernetes.namespace": "default",
				"volumes|1": "spark-conf-volume-driver=" + confVolume,
			},
		},
		"G15_props_escaping": {
			argv: base(c("a= x: = # ! \\ \t\n\rü😀 ", "b:c=d", "e f=g", "h#!=i", "empty=")...),
			want: w{
				"properties|spark.a": " x: = # ! \\ \t\n\rü😀 ", "properties|spark.b:c": "d", "properties|spark.e f": "g", "properties|spark.h#!": "i", "properties|spark.empty": "",
			},
		},
		"G17_raw_values":             {argv: base(c("x=img:9", "K.container.image=${spark.x}", "K.driver.label.l=v", "K.allocation.batch.size=-3", "executor.memory=3g")...), want: w{"driver|image": "img:9", "properties|spark.kubernetes.container.image": "${spark.x}", "properties|spark.kubernetes.allocation.batch.size": "-3", "properties|spark.executor.memory": "3g"}},
		"G18_cm_max_size_over_cap":   {argv: base(c("K.configMap.maxSize=2000000")...), refused: "spark.kubernetes.configMap.maxSize", reason: "Must have at most 1048576 bytes"},
		"G18_cm_max_size_at_cap":     {argv: base(c("K.configMap.maxSize=1048576")...), want: w{"properties|spark.kubernetes.configMap.maxSize": "1048576"}},
		"G18_cm_max_size_no_number":  {argv: base(c("K.configMap.maxSize=x")...), refused: "spark.kubernetes.configMap.maxSize"},
		"G19_namespace_conf":         {argv: base(c("K.namespace=jobs")...), want: w{"confmap|metadata|namespace": "jobs", "confmap|data|spark.kubernetes.namespace": "jobs", "NetworkPolicy|metadata|namespace": "jobs", "properties|spark.driver.host": javaPrefix + "-driver-svc.jobs.svc", "pod|metadata|namespace": nil, "Service|metadata|namespace": nil}},
		"G19_namespace_not_legal":    {argv: base(c("K.namespace=Jobs/x")...), refused: "spark.kubernetes.namespace"},
		"G20_memory_factor_python":   {argv: py(), want: w{"properties|spark.kubernetes.memoryOverheadFactor": "0.4"}},
		"B45_submit_time_kept":       {argv: base(c("app.submitTime=5")...), want: w{"properties|spark.app.submitTime": "5"}},
		"B45_submit_time":            {argv: base(), want: w{"properties|spark.app.submitTime": "1796001789045"}},
		"B50_confs_too_large":        {argv: base(c("a="+strings.Repeat("a", 500000), "b="+strings.Repeat("b", 600000), "c=small")...), refused: "spark.b", reason: "are those of spark.b (600000 bytes), spark.a (500000 bytes), spark.driver.host (41 bytes)"},
		"excluded_steps_cycle":       {argv: base(c("K.driver.pod.excludedFeatureSteps=${spark.x}", "x=${spark.x}")...), refused: "spark.kubernetes.driver.pod.excludedFeatureSteps"},
		"excluded_steps_not_read_40": {argv: base(c("K.driver.pod.excludedFeatureSteps=" + pkg + "BasicDriverFeatureStep," + pkg + "LocalDirsFeatureStep")...), release: "4.0.4", want: w{"env|3": "SPARK_LOCAL_DIRS=/var/data/spark-U"}},
		"excluded_steps_read_41":     {argv: base(exclude(pkg + "LocalDirsFeatureStep")...), release: "4.1.0", want: w{"env|3": "SPARK_CONF_DIR=/opt/spark/conf"}},
	}
	for release, kinds := range map[string]l{
		"3.5.7": {"Service", "ConfigMap"},
		"4.0.4": {"Service", "ConfigMap"},
		"4.1.3": {"Service", "ConfigMap"},
		"4.2.0": {"Service", "NetworkPolicy", "ConfigMap"},
		"4.3.0": {"Service", "NetworkPolicy", "ConfigMap"},
	} {
		cases["G06_network_policy_"+release] = testCase{argv: base(), release: release, want: w{"kinds": kinds}}
	}
	// Every key that is read with substitution names itself when the references go in a circle.
	for _, key := range []string{
		"K.driver.container.image", "K.container.image.pullPolicy", "K.container.image.pullSecrets", "K.driver.request.cores", "K.driver.limit.cores",
		"driver.memoryOverhead", "ui.port", "K.driver.service.ipFamilyPolicy", "K.driver.service.ipFamilies", "K.local.dirs.tmpfs", "K.driver.pod.featureSteps",
		"K.hadoop.configMapName", "K.kerberos.krb5.configMapName", "K.kerberos.tokenSecret.name", "K.kerberos.tokenSecret.itemKey", "K.authenticate.driver.serviceAccountName",
		"K.configMap.maxSize", "K.driver.pod.name", "K.driver.scheduler.name", "K.scheduler.name",
	} {
		name := "spark." + key
		if rest, ok := strings.CutPrefix(key, "K."); ok {
			name = "spark.kubernetes." + rest
		}
		cases["B48_cycle_"+key] = testCase{argv: base(c(key+"=${spark.x}", "x=${spark.x}")...), refused: name, reason: "circular reference"}
	}
	for _, key := range []string{"pyspark.python", "pyspark.driver.python"} {
		cases["B48_cycle_"+key] = testCase{argv: py(c(key+"=${spark.x}", "x=${spark.x}")...), refused: "spark." + key, reason: "circular reference"}
	}
	runCases(t, cases)
	t.Run("B50_largest_config_map", func(t *testing.T) {
		// As many bytes as the API server allows, and one more.
		size := func(n int) (*Objects, error) {
			tc := testCase{argv: base(c("fill=" + strings.Repeat("x", n))...)}
			return tc.build(t)
		}
		o, err := size(1)
		if err != nil {
			t.Fatal(err)
		}
		used := len("default") + len(at(view(t, o), "confmap|data|spark.properties").(string))
		if _, err := size(1 + 1<<20 - used); err != nil {
			t.Errorf("1048576 bytes: %v", err)
		}
		if _, err := size(2 + 1<<20 - used); err == nil || !strings.Contains(err.Error(), "has 1048577 bytes") {
			t.Errorf("1048577 bytes: %v", err)
		}
	})
}

func TestCommandCases(t *testing.T) {
	command := func(class, resource string, more ...any) l {
		return append(l{"driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", class, resource}, more...)
	}
	runCases(t, map[string]testCase{
		"H01_py_golden": {
			argv: append(py(), "--conf", "", "a b", "$(HOME)"),
			want: w{
				"driver|args": command("org.apache.spark.deploy.PythonRunner", "local:///app.py", "--conf", "", "a b", "$(HOME)"),
				"properties|spark.kubernetes.resource.type": "python",
			},
		},
		"H02_py_env_none": {
			argv: py(),
			want: w{"env|3": "SPARK_LOCAL_DIRS=/var/data/spark-U"},
		},
		"H03_py_env_python_only": {
			argv: py(c("pyspark.python=/p")...),
			want: w{"env|3": "PYSPARK_PYTHON=/p", "env|4": "PYSPARK_DRIVER_PYTHON=/p", "env|5": "SPARK_LOCAL_DIRS=/var/data/spark-U"},
		},
		"H04_py_env_driver_only": {
			argv: py(c("pyspark.driver.python=/d")...),
			want: w{"env|3": "PYSPARK_DRIVER_PYTHON=/d", "env|4": "SPARK_LOCAL_DIRS=/var/data/spark-U"},
		},
		"H04_py_env_both": {
			argv: py(c("pyspark.driver.python=/d", "pyspark.python=/p")...),
			want: w{"env|3": "PYSPARK_PYTHON=/p", "env|4": "PYSPARK_DRIVER_PYTHON=/d"},
		},
		"H05_java_with_pyfiles": {
			argv: base(join([]string{"--py-files", "local:///d.zip"}, c("pyspark.python=/p"))...),
			want: w{
				"properties|spark.kubernetes.resource.type": "java", "properties|spark.kubernetes.memoryOverheadFactor": "0.1",
				"env|3": "SPARK_LOCAL_DIRS=/var/data/spark-U",
			},
		},
		"H06_r_golden": {
			argv: r(),
			want: w{
				"driver|args": command("org.apache.spark.deploy.RRunner", "local:///app.R"), "properties|spark.kubernetes.resource.type": "r",
				"properties|spark.kubernetes.memoryOverheadFactor": "0.4", "driver|resources|limits|memory": "1433Mi",
			},
		},
		"H07_remote_py_resource": {
			argv: script("s3a://b/app.py"),
			want: w{"driver|args": command("org.apache.spark.deploy.PythonRunner", "s3a://b/app.py")},
		},
		"B36_spark_internal": {
			argv: script("spark-internal", "--class", "C"),
			want: w{"driver|args": command("C", "spark-internal"), "properties|spark.jars": ""},
		},
	})
}

// TestFinalOrder is section 18.5: every family at once, and the order of all that is in lists.
func TestFinalOrder(t *testing.T) {
	runCases(t, map[string]testCase{"all": {
		argv: py(join(
			volume("nfs.n", "mount.path=/n", "options.path=/", "options.server=s"),
			volume("persistentVolumeClaim.p", "mount.path=/p", "options.claimName=OnDemand", "options.storageClass=f", "options.sizeLimit=1Gi"),
			c("K.authenticate.driver.oauthToken=t", "K.driver.secrets.s=/s", "K.driver.secretKeyRef.REF=n:k", "K.driverEnv.ENV=1", "pyspark.python=/py",
				"K.hadoop.configMapName=h", "K.kerberos.krb5.configMapName=k", "K.kerberos.tokenSecret.name=ts", "K.kerberos.tokenSecret.itemKey=i",
				"K.driver.pod.featureSteps=org.apache.spark.deploy.k8s.features.VolcanoFeatureStep", "local.dir=/l1,/l2"))...),
		template: `{"spec": {"volumes": [{"name": "tv", "emptyDir": {}}], "containers": [{"name": "spark-kubernetes-driver",
			"env": [{"name": "T", "value": "1"}], "volumeMounts": [{"name": "tv", "mountPath": "/tv"}]}]}}`,
		executor: "x",
		want: w{
			"env": l{
				"T=1", "SPARK_USER=svc", "SPARK_APPLICATION_ID=" + testApp, "ENV=1",
				`SPARK_DRIVER_BIND_ADDRESS={"valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}`,
				`REF={"valueFrom":{"secretKeyRef":{"key":"k","name":"n"}}}`,
				"PYSPARK_PYTHON=/py", "PYSPARK_DRIVER_PYTHON=/py", "HADOOP_CONF_DIR=/opt/hadoop/conf",
				"HADOOP_TOKEN_FILE_LOCATION=/mnt/secrets/hadoop-credentials/i", "SPARK_LOCAL_DIRS=/l1,/l2", "SPARK_CONF_DIR=/opt/spark/conf",
			},
			"mounts": l{
				`tv={"mountPath":"/tv"}`, `kubernetes-credentials={"mountPath":"/mnt/secrets/spark-kubernetes-credentials"}`, `s-volume={"mountPath":"/s"}`,
				`n={"mountPath":"/n"}`, `p={"mountPath":"/p"}`, `hadoop-properties={"mountPath":"/opt/hadoop/conf"}`,
				`krb5-file={"mountPath":"/etc/krb5.conf","subPath":"krb5.conf"}`, `hadoop-secret={"mountPath":"/mnt/secrets/hadoop-credentials"}`,
				`pod-template-volume={"mountPath":"/opt/spark/pod-template"}`, `spark-local-dir-1={"mountPath":"/l1"}`, `spark-local-dir-2={"mountPath":"/l2"}`,
				`spark-conf-volume-driver={"mountPath":"/opt/spark/conf"}`,
			},
			"kinds": l{"PodGroup", "Secret", "Service", "NetworkPolicy", "PersistentVolumeClaim", "ConfigMap", "ConfigMap"},
		},
	}})
}

type operatorRequest struct {
	SubmissionID string         `json:"submission_id"`
	Argv         []string       `json:"spark_submit_args"`
	Driver       map[string]any `json:"driver_pod_template"`
	Executor     map[string]any `json:"executor_pod_template"`
}

func operatorRequests(t testing.TB) map[string]operatorRequest {
	t.Helper()
	bodies, err := operator.Requests()
	if err != nil || len(bodies) != 6 {
		t.Fatalf("%d operator requests, %v", len(bodies), err)
	}
	all := map[string]operatorRequest{}
	for name, text := range bodies {
		var o operatorRequest
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		all[name] = o
	}
	return all
}

// TestOperatorRequests builds what the Kubeflow spark-operator posts.
func TestOperatorRequests(t *testing.T) {
	for name, o := range operatorRequests(t) {
		for _, release := range []string{"3.5.7", "4.0.4", "4.1.3", "4.2.0", "4.3.0"} {
			t.Run(name+"_"+release, func(t *testing.T) {
				req, err := request(t, release, o.Argv)
				if err != nil {
					t.Fatal(err)
				}
				req.IDs = DeriveIDs("default", o.SubmissionID)
				req.DriverTemplate = o.Driver
				if req.ExecutorTemplate, err = json.Marshal(o.Executor); err != nil {
					t.Fatal(err)
				}
				built, err := Build(req)
				if err != nil {
					t.Fatal(err)
				}
				if got := built.Pod.GetName(); got != name+"-driver" {
					t.Errorf("pod name %q", got)
				}
				v := view(t, built)
				owners := built.Pod.GetOwnerReferences()
				if len(owners) != 1 || owners[0].Kind != "SparkApplication" || owners[0].Name != name {
					t.Errorf("owners %v", owners)
				}
				if got := at(v, "pod|spec|containers|1"); got != nil {
					t.Errorf("second container %v", got)
				}
				for key, want := range map[string]string{
					"spark.kubernetes.driver.podTemplateContainerName":   DriverContainerName,
					"spark.kubernetes.executor.podTemplateContainerName": ExecutorContainerName,
				} {
					if got := at(v, "properties|"+key); got != want {
						t.Errorf("%s = %v", key, got)
					}
				}
				if len(built.Warnings) > 0 {
					t.Errorf("warnings %q", built.Warnings)
				}
			})
		}
	}
}
