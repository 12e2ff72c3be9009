package driver

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The two complete worked examples of the specification, every object whole.

const ports42 = `[
	{"name": "driver-rpc-port", "containerPort": 7078, "protocol": "TCP"},
	{"name": "blockmanager", "containerPort": 7079, "protocol": "TCP"},
	{"name": "spark-ui", "containerPort": 4040, "protocol": "TCP"},
	{"name": "spark-connect", "containerPort": 15002, "protocol": "TCP"}]`

const bindAddress = `{"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}`

func service42(prefix, selector string) string {
	return `{"apiVersion": "v1", "kind": "Service",
		"metadata": {"name": "` + prefix + `-driver-svc", "labels": {"spark-app-selector": "` + testApp + `"}},
		"spec": {
			"clusterIP": "None", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"],
			"selector": ` + selector + `,
			"ports": [
				{"name": "driver-rpc-port", "port": 7078, "targetPort": 7078},
				{"name": "blockmanager", "port": 7079, "targetPort": 7079},
				{"name": "spark-ui", "port": 4040, "targetPort": 4040},
				{"name": "spark-connect", "port": 15002, "targetPort": 15002, "appProtocol": "grpc"}]}}`
}

func policy42(prefix, namespace string) string {
	return `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": {"name": "` + prefix + `-policy", "namespace": "` + namespace + `", "labels": {"spark-app-selector": "` + testApp + `"}},
		"spec": {
			"podSelector": {"matchLabels": {"spark-role": "executor", "spark-app-selector": "` + testApp + `"}},
			"ingress": [{"from": [{"podSelector": {"matchLabels": {"spark-app-selector": "` + testApp + `"}}}]}]}}`
}

func checkObjects(t *testing.T, o *Objects, pod string, resources ...string) {
	t.Helper()
	if diff := cmp.Diff(decode(t, pod), o.Pod.Object); diff != "" {
		t.Errorf("pod (-want,+got):\n%s", diff)
	}
	if len(o.Resources) != len(resources) {
		t.Fatalf("%d resources, want %d", len(o.Resources), len(resources))
	}
	for i, want := range resources {
		if diff := cmp.Diff(decode(t, want), o.Resources[i].Object); diff != "" {
			t.Errorf("resource %d (-want,+got):\n%s", i, diff)
		}
	}
}

// TestJavaExample is section 19.1, and so case D01.
func TestJavaExample(t *testing.T) {
	tc := testCase{argv: []string{
		"--master", "k8s://10.0.0.1:6443", "--deploy-mode", "cluster", "--name", "Spark Pi",
		"--class", "org.apache.spark.examples.SparkPi", "--driver-memory", "2g",
		"--conf", "spark.executor.instances=2", "--num-executors", "5",
		"--conf", "spark.kubernetes.namespace=jobs", "--conf", "spark.kubernetes.container.image=apache/spark:4.2.0",
		"--conf", "hive.x=1", "--conf", "spark.driver.host=h",
		"local:///opt/spark/examples/jars/spark-examples.jar", "1000", "--verbose",
	}}
	o, err := tc.build(t)
	if err != nil {
		t.Fatal(err)
	}
	labels := `{"spark-app-name": "spark-pi", "spark-app-selector": "` + testApp + `", "spark-role": "driver", "spark-version": "4.2.0"}`
	checkObjects(t, o, `{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": "spark-pi-a1b2c39d0f3a7c21-driver", "labels": `+labels+`},
		"spec": {
			"restartPolicy": "Never",
			"containers": [{
				"name": "spark-kubernetes-driver", "image": "apache/spark:4.2.0", "imagePullPolicy": "IfNotPresent",
				"args": ["driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "org.apache.spark.examples.SparkPi",
					"local:///opt/spark/examples/jars/spark-examples.jar", "1000", "--verbose"],
				"ports": `+ports42+`,
				"env": [
					{"name": "SPARK_USER", "value": "svc"},
					{"name": "SPARK_APPLICATION_ID", "value": "`+testApp+`"},
					`+bindAddress+`,
					{"name": "SPARK_LOCAL_DIRS", "value": "/var/data/spark-U"},
					{"name": "SPARK_CONF_DIR", "value": "/opt/spark/conf"}],
				"resources": {"requests": {"cpu": "1", "memory": "2432Mi"}, "limits": {"memory": "2432Mi"}},
				"volumeMounts": [
					{"name": "spark-local-dir-1", "mountPath": "/var/data/spark-U"},
					{"name": "spark-conf-volume-driver", "mountPath": "/opt/spark/conf"}]}],
			"volumes": [
				{"name": "spark-local-dir-1", "emptyDir": {}},
				{"name": "spark-conf-volume-driver", "configMap": {"name": "spark-drv-ffeedd9d0f3a7c22-conf-map",
					"items": [{"key": "spark.properties", "path": "spark.properties", "mode": 420}]}}]}}`,
		service42("spark-pi-a1b2c39d0f3a7c21", labels),
		policy42("spark-pi-a1b2c39d0f3a7c21", "jobs"),
		`{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": {"name": "spark-drv-ffeedd9d0f3a7c22-conf-map", "namespace": "jobs"},
			"immutable": true,
			"data": {"spark.kubernetes.namespace": "jobs", "spark.properties": "`+
			`#Java properties built from Kubernetes config map with name: spark-drv-ffeedd9d0f3a7c22-conf-map\n`+
			`#Mon Nov 30 01:23:09 UTC 2026\n`+
			`spark.app.id=`+testApp+`\n`+
			`spark.app.name=Spark Pi\n`+
			`spark.app.submitTime=1796001789045\n`+
			`spark.driver.blockManager.port=7079\n`+
			`spark.driver.host=spark-pi-a1b2c39d0f3a7c21-driver-svc.jobs.svc\n`+
			`spark.driver.memory=2g\n`+
			`spark.driver.port=7078\n`+
			`spark.executor.instances=5\n`+
			`spark.jars=local\\:///opt/spark/examples/jars/spark-examples.jar\n`+
			`spark.kubernetes.container.image=apache/spark\\:4.2.0\n`+
			`spark.kubernetes.driver.pod.name=spark-pi-a1b2c39d0f3a7c21-driver\n`+
			`spark.kubernetes.memoryOverheadFactor=0.1\n`+
			`spark.kubernetes.namespace=jobs\n`+
			`spark.kubernetes.resource.type=java\n`+
			`spark.kubernetes.submitInDriver=true\n`+
			`spark.master=k8s\\://https\\://10.0.0.1\\:6443\n`+
			`spark.submit.deployMode=cluster\n`+
			`spark.submit.pyFiles=\n`+
			`"}}`)
	if len(o.Warnings) > 0 || len(o.CallerNamed) > 0 {
		t.Errorf("warnings %q, caller-named %q, want none", o.Warnings, o.CallerNamed)
	}
}

// TestPythonExample is section 19.2, and so case E09.
func TestPythonExample(t *testing.T) {
	tc := testCase{
		argv: append(script("local:///opt/app.py", c(
			"K.driver.podTemplateContainerName=main", "K.container.image=i",
			"K.driver.label.q=j-{{APP_ID}}", "pyspark.python=/usr/bin/python3")...), "in", "out"),
		template: `{
			"metadata": {"labels": {"team": "a", "spark-role": "zzz"}},
			"spec": {
				"restartPolicy": "Always",
				"containers": [
					{"name": "log", "image": "l"},
					{"name": "main", "image": "m", "env": [{"name": "A", "value": "1"}], "resources": {"limits": {"cpu": 2}}, "args": ["x"]}],
				"volumes": [{"name": "cache", "emptyDir": {}}]}}`,
	}
	o, err := tc.build(t)
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "app-py-" + testPrefix
	presets := `"spark-app-name": "app-py", "spark-app-selector": "` + testApp + `", "spark-role": "driver", "spark-version": "4.2.0", "q": "j-` + testApp + `"`
	checkObjects(t, o, `{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {"name": "`+prefix+`-driver", "labels": {"team": "a", `+presets+`}},
		"spec": {
			"restartPolicy": "Never",
			"containers": [
				{"name": "log", "image": "l"},
				{"name": "main", "image": "i", "imagePullPolicy": "IfNotPresent",
				"args": ["x", "driver", "--properties-file", "/opt/spark/conf/spark.properties", "--class", "org.apache.spark.deploy.PythonRunner",
					"local:///opt/app.py", "in", "out"],
				"ports": `+ports42+`,
				"env": [
					{"name": "A", "value": "1"},
					{"name": "SPARK_USER", "value": "svc"},
					{"name": "SPARK_APPLICATION_ID", "value": "`+testApp+`"},
					`+bindAddress+`,
					{"name": "PYSPARK_PYTHON", "value": "/usr/bin/python3"},
					{"name": "PYSPARK_DRIVER_PYTHON", "value": "/usr/bin/python3"},
					{"name": "SPARK_LOCAL_DIRS", "value": "/var/data/spark-U"},
					{"name": "SPARK_CONF_DIR", "value": "/opt/spark/conf"}],
				"resources": {"requests": {"cpu": "1", "memory": "1433Mi"}, "limits": {"cpu": 2, "memory": "1433Mi"}},
				"volumeMounts": [
					{"name": "spark-local-dir-1", "mountPath": "/var/data/spark-U"},
					{"name": "spark-conf-volume-driver", "mountPath": "/opt/spark/conf"}]}],
			"volumes": [
				{"name": "cache", "emptyDir": {}},
				{"name": "spark-local-dir-1", "emptyDir": {}},
				{"name": "spark-conf-volume-driver", "configMap": {"name": "spark-drv-ffeedd9d0f3a7c22-conf-map",
					"items": [{"key": "spark.properties", "path": "spark.properties", "mode": 420}]}}]}}`,
		service42(prefix, `{`+presets+`}`),
		policy42(prefix, "default"),
		`{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": {"name": "spark-drv-ffeedd9d0f3a7c22-conf-map", "namespace": "default"},
			"immutable": true,
			"data": {"spark.kubernetes.namespace": "default", "spark.properties": "`+
			`#Java properties built from Kubernetes config map with name: spark-drv-ffeedd9d0f3a7c22-conf-map\n`+
			`#Mon Nov 30 01:23:09 UTC 2026\n`+
			`spark.app.id=`+testApp+`\n`+
			`spark.app.name=app.py\n`+
			`spark.app.submitTime=1796001789045\n`+
			`spark.driver.blockManager.port=7079\n`+
			`spark.driver.host=`+prefix+`-driver-svc.default.svc\n`+
			`spark.driver.port=7078\n`+
			`spark.kubernetes.container.image=i\n`+
			`spark.kubernetes.driver.label.q=j-{{APP_ID}}\n`+
			`spark.kubernetes.driver.pod.name=`+prefix+`-driver\n`+
			`spark.kubernetes.driver.podTemplateContainerName=main\n`+
			`spark.kubernetes.memoryOverheadFactor=0.4\n`+
			`spark.kubernetes.resource.type=python\n`+
			`spark.kubernetes.submitInDriver=true\n`+
			`spark.master=k8s\\://https\\://api\\:6443\n`+
			`spark.pyspark.python=/usr/bin/python3\n`+
			`spark.submit.deployMode=cluster\n`+
			`spark.submit.pyFiles=\n`+
			`"}}`)
}
