package manifests

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/tracker"
	"sigs.k8s.io/yaml"
)

// The kinds of Eventing, as far as the manifests use them: the module proxy does not serve
// Eventing. Reading is strict, so a field that is not here is not in a manifest either.
type (
	meta struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	broker struct {
		meta `json:",inline"`
	}
	sinkBinding struct {
		meta `json:",inline"`
		Spec struct {
			Subject tracker.Reference  `json:"subject"`
			Sink    duckv1.Destination `json:"sink"`
		} `json:"spec"`
	}
	trigger struct {
		meta `json:",inline"`
		Spec struct {
			Broker string `json:"broker"`
			Filter *struct {
				Attributes map[string]string `json:"attributes"`
			} `json:"filter"`
			Filters []struct {
				Prefix map[string]string `json:"prefix"`
			} `json:"filters"`
			Subscriber duckv1.Destination `json:"subscriber"`
			Delivery   *struct {
				Retry         int    `json:"retry"`
				BackoffPolicy string `json:"backoffPolicy"`
				BackoffDelay  string `json:"backoffDelay"`
			} `json:"delivery"`
		} `json:"spec"`
	}
	pingSource struct {
		meta `json:",inline"`
		Spec struct {
			Schedule string             `json:"schedule"`
			Sink     duckv1.Destination `json:"sink"`
		} `json:"spec"`
	}
	apiServerSource struct {
		meta `json:",inline"`
		Spec struct {
			ServiceAccountName string                `json:"serviceAccountName"`
			Mode               string                `json:"mode"`
			NamespaceSelector  *metav1.LabelSelector `json:"namespaceSelector"`
			Resources          []struct {
				APIVersion string                `json:"apiVersion"`
				Kind       string                `json:"kind"`
				Selector   *metav1.LabelSelector `json:"selector"`
			} `json:"resources"`
			Sink duckv1.Destination `json:"sink"`
		} `json:"spec"`
	}
)

const (
	eventingAPI = "eventing.knative.dev/v1"
	sourcesAPI  = "sources.knative.dev/v1"
)

// leadsTo checks the destination, by Knative's own rules, and that it is in the build.
func leadsTo(t *testing.T, objects []object, what string, d duckv1.Destination, apiVersion, kind string) {
	t.Helper()
	if err := d.Validate(context.Background()); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if d.Ref == nil || d.Ref.APIVersion != apiVersion || d.Ref.Kind != kind {
		t.Fatalf("%s leads to %+v, want a %s", what, d.Ref, kind)
	}
	exists(t, objects, what, d.Ref.APIVersion, d.Ref.Kind, d.Ref.Namespace, d.Ref.Name)
}

func exists(t *testing.T, objects []object, what, apiVersion, kind, namespace, name string) {
	t.Helper()
	if !slices.ContainsFunc(objects, func(o object) bool {
		return o.apiVersion == apiVersion && o.kind == kind && o.namespace == namespace && o.name == name
	}) {
		t.Errorf("%s names %s %s/%s, which is not there", what, kind, namespace, name)
	}
}

func sourceNamespaces(t *testing.T, objects []object) []string {
	t.Helper()
	source := all[apiServerSource](t, objects, sourcesAPI, "ApiServerSource")["flint/flint"]
	if source == nil || source.Spec.NamespaceSelector == nil || len(source.Spec.NamespaceSelector.MatchExpressions) != 1 {
		t.Fatal("no ApiServerSource that selects namespaces")
	}
	expression := source.Spec.NamespaceSelector.MatchExpressions[0]
	if expression.Key != corev1.LabelMetadataName || expression.Operator != metav1.LabelSelectorOpIn {
		t.Errorf("the ApiServerSource selects namespaces by %+v", expression)
	}
	return slices.Sorted(slices.Values(expression.Values))
}

func TestEventing(t *testing.T) {
	objects := build(t, root)
	const service = "serving.knative.dev/v1"

	for name := range all[broker](t, objects, eventingAPI, "Broker") {
		if name != "flint/default" {
			t.Errorf("Broker %s", name)
		}
	}
	for name, binding := range all[sinkBinding](t, objects, sourcesAPI, "SinkBinding") {
		leadsTo(t, objects, "SinkBinding "+name, binding.Spec.Sink, eventingAPI, "Broker")
		s := binding.Spec.Subject
		if err := s.Validate(context.Background()); err != nil {
			t.Errorf("SinkBinding %s: %v", name, err)
		}
		exists(t, objects, "SinkBinding "+name, s.APIVersion, s.Kind, s.Namespace, s.Name)
	}
	for name, ping := range all[pingSource](t, objects, sourcesAPI, "PingSource") {
		leadsTo(t, objects, "PingSource "+name, ping.Spec.Sink, service, "Service")
		// Any more often, and the function would never be at zero: window, retention and drain take three minutes.
		if ping.Spec.Schedule != "*/10 * * * *" {
			t.Errorf("PingSource %s: schedule %q", name, ping.Spec.Schedule)
		}
	}
	for name, source := range all[apiServerSource](t, objects, sourcesAPI, "ApiServerSource") {
		leadsTo(t, objects, "ApiServerSource "+name, source.Spec.Sink, eventingAPI, "Broker")
		exists(t, objects, "ApiServerSource "+name, "v1", "ServiceAccount", source.Namespace, source.Spec.ServiceAccountName)
		if source.Spec.ServiceAccountName == "flint" {
			t.Error("the source reads with the function's account, which may write")
		}
		if source.Spec.Mode != "Reference" {
			t.Errorf("mode = %q: the whole object has the environment of its containers", source.Spec.Mode)
		}
		var kinds []string
		for _, r := range source.Spec.Resources {
			kinds = append(kinds, r.APIVersion+" "+r.Kind)
			if r.Selector == nil || r.Selector.MatchLabels["flint.dev/completion"] != "pending" {
				t.Errorf("every %s wakes Flint", r.Kind)
			}
		}
		if diff := cmp.Diff([]string{"v1 Pod", "batch/v1 Job"}, kinds); diff != "" {
			t.Errorf("resources (-want +got)\n%s", diff)
		}
	}
}

// What Flint takes reaches it, and what it sends does not come back.
func TestTriggers(t *testing.T) {
	objects := build(t, root)
	code, err := os.ReadFile("../../pkg/api/event.go")
	if err != nil {
		t.Fatal(err)
	}
	matches := func(eventType string) (names []string) {
		for name, trigger := range all[trigger](t, objects, eventingAPI, "Trigger") {
			if f := trigger.Spec.Filter; f != nil && f.Attributes["type"] == eventType {
				names = append(names, name)
			}
			for _, f := range trigger.Spec.Filters {
				if strings.HasPrefix(eventType, f.Prefix["type"]) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	for name, trigger := range all[trigger](t, objects, eventingAPI, "Trigger") {
		leadsTo(t, objects, "Trigger "+name, trigger.Spec.Subscriber, "serving.knative.dev/v1", "Service")
		exists(t, objects, "Trigger "+name, eventingAPI, "Broker", "flint", trigger.Spec.Broker)
		// Said here, since what a Broker does without it is for its class to say.
		if d := trigger.Spec.Delivery; d == nil || d.Retry < 3 || d.BackoffPolicy != "exponential" || d.BackoffDelay != "PT1S" {
			t.Errorf("Trigger %s: delivery %+v", name, d)
		}
		switch f, fs := trigger.Spec.Filter, trigger.Spec.Filters; {
		case f == nil && len(fs) == 0, f != nil && len(fs) > 0: // the second is ignored by Eventing
			t.Errorf("Trigger %s has not one filter", name)
		case f != nil:
			if !strings.Contains(string(code), `"`+f.Attributes["type"]+`"`) {
				t.Errorf("Trigger %s is for %q, which pkg/api does not know", name, f.Attributes["type"])
			}
		}
	}
	for eventType, want := range map[string][]string{
		"dev.flint.spark.submit.v1":        {"flint/flint-submit"},
		"dev.knative.apiserver.ref.update": {"flint/flint-changes"},
		"dev.knative.apiserver.ref.delete": {"flint/flint-changes"},
		"dev.flint.spark.succeeded.v1":     nil,
		"dev.flint.spark.failed.v1":        nil,
		"dev.flint.launch.accepted.v1":     nil,
		"dev.knative.sources.ping":         nil,
	} {
		if diff := cmp.Diff(want, matches(eventType)); diff != "" {
			t.Errorf("triggers for %s (-want +got)\n%s", eventType, diff)
		}
	}
}

// The values for the operator's chart lead to the Service of the overlay beside them.
func TestHelmValues(t *testing.T) {
	folder := filepath.Join(root, "overlays/spark-operator")
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Controller struct {
			FeatureGates []struct {
				Name    string `json:"name"`
				Enabled bool   `json:"enabled"`
			} `json:"featureGates"`
		} `json:"controller"`
		Submitter struct {
			ServiceURL string `json:"serviceUrl"`
		} `json:"submitter"`
		Spark struct {
			JobNamespaces []string `json:"jobNamespaces"`
		} `json:"spark"`
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	if gates := values.Controller.FeatureGates; len(gates) != 1 || gates[0].Name != "RestSubmitter" || !gates[0].Enabled {
		t.Errorf("feature gates = %+v", gates)
	}
	service := theService(t, build(t, folder))
	if want := "http://" + service.Name + "." + service.Namespace + ".svc.cluster.local:80/api/v1/spark-submit"; values.Submitter.ServiceURL != want {
		t.Errorf("serviceUrl = %q, want %q", values.Submitter.ServiceURL, want)
	}
	set := strings.Split(environment(service)["FLINT_NAMESPACES"], ",")
	if diff := cmp.Diff(set, values.Spark.JobNamespaces); diff != "" {
		t.Errorf("FLINT_NAMESPACES and spark.jobNamespaces (-setting +values)\n%s", diff)
	}
}
