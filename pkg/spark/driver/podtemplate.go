package driver

import (
	"flint.dev/flint/pkg/spark/conf"
)

// podTemplateConfigMap is org.apache.spark.deploy.k8s.features.PodTemplateConfigMapStep:
// the executors' pod template goes to the driver in a ConfigMap, verbatim. Only the driver reads it.
type podTemplateConfigMap struct{ *app }

func newPodTemplateConfigMap(a *app) (step, error) { return &podTemplateConfigMap{a}, nil }

func (s *podTemplateConfigMap) configure(d *draft) error {
	if s.executorTemplate == nil {
		return nil
	}
	const (
		propertyKey = "spark.kubernetes.executor.podTemplateFile"
		dataKey     = "podspec-configmap-key"
		directory   = "/opt/spark/pod-template"
		file        = "pod-spec-template.yml"
	)
	if size := len(s.executorTemplate); size > maxConfigMap {
		return conf.RefuseName(propertyKey, "the executor pod template has %d bytes; a ConfigMap holds at most %d", size, maxConfigMap)
	}
	name := s.prefix + "-driver-podspec-conf-map"
	d.create("v1", "ConfigMap", object{"name": name}, object{
		"immutable": true,
		"data":      object{dataKey: string(s.executorTemplate)},
	})
	d.properties[propertyKey] = directory + "/" + file
	return d.mount(fromSpark,
		object{"name": "pod-template-volume", "configMap": object{
			"name": name, "items": list{object{"key": dataKey, "path": file}},
		}},
		object{"mountPath": directory})
}
