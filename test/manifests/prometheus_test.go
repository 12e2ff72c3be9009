package manifests

import (
	"os"
	"path/filepath"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// With the component, and only with it, a Prometheus reaches the port that the function listens on, and nobody else does.
func TestPrometheusComponent(t *testing.T) {
	config, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(folder, config)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources:\n- " + relative + "/base\ncomponents:\n- " + relative + "/components/prometheus\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := build(t, folder)
	port := theService(t, objects).Spec.Template.Spec.Containers[0].Ports[0].ContainerPort
	allowing := func(objects []object) (rules []networkingv1.NetworkPolicyIngressRule) {
		for _, policy := range all[networkingv1.NetworkPolicy](t, objects, "networking.k8s.io/v1", "NetworkPolicy") {
			if policy.Spec.PodSelector.MatchLabels["serving.knative.dev/service"] != "flint" {
				t.Errorf("policy %s is not for the pods of Flint", policy.Name)
			}
			for _, rule := range policy.Spec.Ingress {
				for _, p := range rule.Ports {
					if p.Port.IntVal == port {
						rules = append(rules, rule)
					}
				}
			}
		}
		return rules
	}
	if rules := allowing(build(t, filepath.Join(root, "base"))); len(rules) > 0 {
		t.Errorf("without the component %+v", rules)
	}
	rules := allowing(objects)
	if len(rules) != 1 || len(rules[0].From) != 1 || len(rules[0].Ports) != 1 {
		t.Fatalf("rules %+v", rules)
	}
	from := rules[0].From[0]
	if from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "monitoring" || from.PodSelector.MatchLabels["app.kubernetes.io/name"] != "prometheus" {
		t.Errorf("from %+v", from)
	}
}
