package launch_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/kube"
	"flint.dev/flint/pkg/launch"
)

type object = map[string]any

func named(apiVersion, kind, name string, more object) *unstructured.Unstructured {
	o := object{"apiVersion": apiVersion, "kind": kind, "metadata": object{"name": name}}
	for key, value := range more {
		o[key] = value
	}
	return &unstructured.Unstructured{Object: o}
}

// sparkDraft is what spark-submit creates for a driver with a template, on-demand claim and Hadoop's
// configuration, in its shape and order.
func sparkDraft(namespace string) launch.Plan {
	selector := object{"spark-role": "driver", "spark-app-selector": "spark-0011"}
	pod := named("v1", "Pod", "pi-driver", object{"spec": object{
		"restartPolicy":                "Never",
		"serviceAccountName":           "default",
		"automountServiceAccountToken": false,
		"containers": []any{object{
			"name":  "spark-kubernetes-driver",
			"image": "apache/spark:4.2.0",
			"args":  []any{"driver", "--class", "org.apache.spark.examples.SparkPi"},
			"volumeMounts": []any{
				object{"name": "spark-conf-volume-driver", "mountPath": "/opt/spark/conf"},
				object{"name": "hadoop-properties", "mountPath": "/opt/hadoop/conf"},
				object{"name": "data", "mountPath": "/data"},
			},
		}},
		"volumes": []any{
			object{"name": "spark-conf-volume-driver", "configMap": object{"name": "conf-map"}},
			object{"name": "hadoop-properties", "configMap": object{"name": "hadoop-config"}},
			object{"name": "data", "persistentVolumeClaim": object{"claimName": "pi-pvc-0"}},
		},
	}})
	pod.SetLabels(map[string]string{"spark-role": "driver", "spark-app-selector": "spark-0011", "team": "a"})
	return launch.Plan{
		Kind: launch.Spark, Namespace: namespace, SubmissionID: "sub-1", Hash: "h1",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Workload:    pod,
		Support: []launch.Support{
			{Object: named("v1", "Service", "pi-driver-svc", object{"spec": object{
				"clusterIP": "None", "selector": selector,
				"ports": []any{object{"name": "driver-rpc-port", "port": int64(7078), "targetPort": int64(7078)}},
			}})},
			{Object: named("networking.k8s.io/v1", "NetworkPolicy", "pi-policy", object{"spec": object{
				"podSelector": object{"matchLabels": selector}, "policyTypes": []any{"Ingress"},
			}})},
			{Object: named("v1", "PersistentVolumeClaim", "pi-pvc-0", object{"spec": object{
				"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "manual",
				"resources": object{"requests": object{"storage": "1Gi"}},
			}})},
			{Object: named("v1", "ConfigMap", "hadoop-config", object{"data": object{"core-site.xml": "<configuration/>"}})},
			{Object: named("v1", "ConfigMap", "conf-map", object{"immutable": true, "data": object{"spark.properties": "spark.app.id=spark-0011\n"}})},
		},
	}
}

// sparkCalls are the calls of a fresh launch of sparkDraft.
var sparkCalls = []call{
	"POST pods pi-driver",
	"POST services pi-driver-svc", "POST networkpolicies pi-policy", "POST persistentvolumeclaims pi-pvc-0",
	"POST configmaps hadoop-config", "POST configmaps conf-map",
	"PATCH pods pi-driver",
}

func jobDraft(namespace string) launch.Plan {
	return launch.Plan{
		Kind: launch.File, Namespace: namespace, SubmissionID: "sub-1", Hash: "h1",
		Workload: named("batch/v1", "Job", "copy", object{"spec": object{
			"backoffLimit": int64(0),
			"template": object{"spec": object{
				"restartPolicy":                "Never",
				"automountServiceAccountToken": false,
				"containers":                   []any{object{"name": "agent", "image": "fileagent", "volumeMounts": []any{object{"name": "request", "mountPath": "/request"}}}},
				"volumes":                      []any{object{"name": "request", "configMap": object{"name": "copy-request"}}},
			}},
		}}),
		Support: []launch.Support{
			{Object: named("v1", "ConfigMap", "copy-request", object{"data": object{"request.json": "{}"}})},
		},
	}
}

var jobCalls = []call{"POST jobs copy", "POST configmaps copy-request", "PATCH jobs copy"}

// runnerDraft is a runner: its key's mark, a Secret, and a quota that is counted once it exists.
func runnerDraft(namespace string) launch.Plan {
	return launch.Plan{
		Kind: launch.Runner, Namespace: namespace, SubmissionID: "sub-1", Hash: "h1",
		Workload: named("v1", "Pod", "app-r-1", object{"spec": object{
			"restartPolicy":                "Never",
			"automountServiceAccountToken": false,
			"containers": []any{object{"name": "runner", "image": "app", "env": []any{object{
				"name": "RELEASE_COOKIE", "valueFrom": object{"secretKeyRef": object{"name": "app-r-1", "key": "RELEASE_COOKIE"}},
			}}}},
		}}),
		Support: []launch.Support{
			{Object: named("coordination.k8s.io/v1", "Lease", "flint-key", object{"spec": object{}})},
			{Object: named("v1", "Secret", "app-r-1", object{"stringData": object{"RELEASE_COOKIE": "c00kie"}})},
		},
		Confirm: countPods,
	}
}

// countPods refuses a workload that is not alone.
func countPods(ctx context.Context, client kube.Client, workload *unstructured.Unstructured) *api.Error {
	of := kube.Ref{APIVersion: "v1", Kind: "Pod", Namespace: workload.GetNamespace()}
	page, err := client.List(ctx, of, kube.ListOptions{LabelSelector: launch.LabelKind + "=runner", MetadataOnly: true})
	if err != nil {
		return kube.Translate(err, "count", of)
	}
	if len(page.Items) > 1 {
		return api.Errorf(api.TooManyRunners, "%d runners", len(page.Items))
	}
	return nil
}

var runnerCalls = []call{"POST pods app-r-1", "POST leases flint-key", "POST secrets app-r-1", "LIST pods", "PATCH pods app-r-1"}

func newPlan(tb testing.TB, draft launch.Plan) *launch.Plan {
	tb.Helper()
	plan, err := launch.NewPlan(draft)
	if err != nil {
		tb.Fatal(err)
	}
	return plan
}
