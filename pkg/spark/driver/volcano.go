package driver

import (
	"flint.dev/flint/pkg/spark/conf"
)

const volcanoClass = stepPackage + "VolcanoFeatureStep"

// volcano is org.apache.spark.deploy.k8s.features.VolcanoFeatureStep: a PodGroup for
// the application, made before the pod. The scheduler's name is the caller's to set.
type volcano struct{ *app }

// newUserSteps reads spark.kubernetes.driver.pod.featureSteps. Classes of the caller
// cannot run here; Volcano's is Spark's own.
func newUserSteps(a *app) ([]step, error) {
	const (
		stepsKey = "spark.kubernetes.driver.pod.featureSteps"
		fileKey  = "spark.kubernetes.scheduler.volcano.podGroupTemplateFile"
	)
	classes, err := a.Conf.Strings(stepsKey)
	if err != nil {
		return nil, err
	}
	var steps []step
	for _, class := range classes {
		if class != volcanoClass {
			return nil, conf.Refuse(stepsKey, class, "Failed to initialize feature step: Java classes cannot run here, only %s is known; use a pod template instead", volcanoClass)
		}
		if file, set := a.Conf[fileKey]; set {
			return nil, conf.Refuse(fileKey, file, "names a file of the submitter, which cannot be read here; remove it, or make the PodGroup yourself and name it in a pod template's annotation scheduling.k8s.io/group-name")
		}
		steps = []step{&volcano{a}}
	}
	return steps, nil
}

func (s *volcano) configure(d *draft) error {
	name := s.ids.App + "-podgroup"
	d.preResources = append(d.preResources, newObject("scheduling.volcano.sh/v1beta1", "PodGroup",
		object{"name": name, "namespace": s.namespace},
		object{"spec": object{}}))
	child(d.metadata(), "annotations")["scheduling.k8s.io/group-name"] = name
	return nil
}
