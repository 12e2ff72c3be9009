package driver

// networkPolicy is org.apache.spark.deploy.k8s.features.NetworkPolicyFeatureStep
// (SPARK-55653): executors take connections from pods of their own application only.
// The pod is not changed.
type networkPolicy struct{ *app }

// newNetworkPolicy gives none before 4.2, which does not have this step.
func newNetworkPolicy(a *app) (step, error) {
	if !a.features.NetworkPolicy {
		return nil, nil
	}
	return &networkPolicy{a}, nil
}

func (s *networkPolicy) configure(d *draft) error {
	d.create("networking.k8s.io/v1", "NetworkPolicy",
		object{
			"name":      s.prefix + "-policy",
			"namespace": s.namespace,
			"labels":    object{"spark-app-selector": s.ids.App},
		},
		object{"spec": object{
			"podSelector": object{"matchLabels": object{"spark-role": "executor", "spark-app-selector": s.ids.App}},
			"ingress": list{object{"from": list{
				object{"podSelector": object{"matchLabels": object{"spark-app-selector": s.ids.App}}},
			}}},
		}})
	return nil
}
