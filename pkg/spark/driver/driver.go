// Package driver builds the objects that spark-submit creates for one
// application in cluster mode: the driver Pod and the resources beside it.
//
// It mirrors org.apache.spark.deploy.k8s.submit.KubernetesDriverBuilder: a pod
// template is the base, a fixed list of feature steps changes it in order, and
// the ConfigMap with spark.properties comes last. One file holds one step and
// names the Spark class that it follows.
//
// The package is pure: ids, the user and the time come in with the Request, the
// same Request gives the same Objects. Objects are unstructured maps, because a
// template may carry fields that are newer than our client library and because
// quantities must reach the API server as they were written.
package driver

import (
	"errors"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/version"

	"flint.dev/flint/pkg/spark/conf"
)

// Request is all that a driver is built from.
type Request struct {
	Arguments *args.Arguments
	Version   version.Version
	// IDs are the names' variable parts.
	IDs IDs
	// User is the value of SPARK_USER unless a proxy user is named.
	User string
	// SubmitTime becomes spark.app.submitTime unless the conf has one.
	SubmitTime time.Time
	// DriverTemplate is a PodTemplateSpec or Pod as decoded JSON (integers as
	// int64), or nil. It is not changed.
	DriverTemplate map[string]any
	// ExecutorTemplate is the text that executors' pods are made from, or nil. It is
	// stored as it is; only the driver reads it.
	ExecutorTemplate []byte
}

// IDs are what Spark draws at random for a submission; Flint derives them from the submission's key.
type IDs struct {
	// App is the application id: "spark-" and 32 hexadecimal digits.
	App string
	// Prefix is the 16 hexadecimal digits at the end of the resource name prefix.
	Prefix string
	// ConfigMap is the 16 digits in spark-drv-<id>-conf-map. They depend on the
	// submission's key alone, so that two submissions of one key always meet there.
	ConfigMap string
	// Service is the 16 digits in spark-<id>-driver-svc, used when the prefix is too long for a Service.
	Service string
	// LocalDir is the UUID in the default local directory /var/data/spark-<uuid>.
	LocalDir string
}

// Objects is what Spark would create.
type Objects struct {
	// Pod is the driver pod, without an owner of ours.
	Pod *unstructured.Unstructured
	// Resources are the others, in Spark's order of creation: a PodGroup of Volcano, which
	// Spark makes before the pod, first, the spark.properties ConfigMap last. None has an
	// ownerReference.
	Resources []*unstructured.Unstructured
	// CallerNamed are the names of the PersistentVolumeClaims among Resources that the
	// caller chose: their claimName has no OnDemand in it. A claim of that name may exist
	// already. Spark would patch it and make the driver its owner, so that it dies with
	// the driver; whoever creates the Resources should take such a claim as it is.
	CallerNamed []string
	// Warnings are what Spark would log and go on.
	Warnings []string
}

// Build makes the objects. Its error is a *conf.Error where a conf is at
// fault, a *TemplateError where the driver template is. Nothing of the Request
// is changed, and the Objects share nothing with it.
func Build(r Request) (*Objects, error) {
	objects, err := build(r)
	if refused := (*conf.Error)(nil); errors.As(err, &refused) {
		return nil, refused.AsWritten(r.Arguments.Conf)
	}
	return objects, err
}

func build(r Request) (*Objects, error) {
	a, err := newApp(r)
	if err != nil {
		return nil, err
	}
	// Executors' volumes are read for their errors only, before the driver's (KubernetesConf.createDriverConf).
	if _, err := a.volumes("spark.kubernetes.executor.volumes."); err != nil {
		return nil, err
	}
	d, err := newDraft(r.DriverTemplate, r.Arguments.Conf)
	if err != nil {
		return nil, err
	}
	d.properties = maps.Clone(a.Conf)
	steps, err := newSteps(a)
	if err != nil {
		return nil, err
	}
	for _, s := range steps {
		if err := s.configure(d); err != nil {
			return nil, err
		}
	}
	return assemble(a, d)
}
