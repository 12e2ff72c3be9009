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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/version"
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

// DeriveIDs gives the ids of the submission id in the namespace: the same pair gives
// the same ids, on every instance, for ever.
func DeriveIDs(namespace, submissionID string) IDs { panic("todo") }

// Objects is what Spark would create.
type Objects struct {
	// Pod is the driver pod, without an owner of ours.
	Pod *unstructured.Unstructured
	// Resources are the others, in Spark's order of creation, the spark.properties
	// ConfigMap last. None has an ownerReference.
	Resources []*unstructured.Unstructured
	// Warnings are what Spark would log and go on.
	Warnings []string
}

// TemplateError says that a pod template cannot be used.
type TemplateError struct {
	// Field is the path in the template: "spec.containers".
	Field string
	// Reason says what is wrong with it.
	Reason string
}

func (e *TemplateError) Error() string { return "driver pod template: " + e.Field + ": " + e.Reason }

// DriverContainerName is the container of an inline template that becomes the
// driver, unless spark.kubernetes.driver.podTemplateContainerName names another.
const DriverContainerName = "spark-kubernetes-driver"

// ExecutorContainerName likewise for executors.
const ExecutorContainerName = "spark-kubernetes-executor"

// Namespace is where the objects go: spark.kubernetes.namespace, by default "default".
func Namespace(a *args.Arguments) (string, error) { panic("todo") }

// Build makes the objects. Its error is a *conf.Error where a conf is at
// fault, a *TemplateError where the driver template is.
func Build(r Request) (*Objects, error) { panic("todo") }
