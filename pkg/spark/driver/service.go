package driver

import (
	"fmt"
	"strconv"
	"strings"

	"flint.dev/flint/pkg/spark/conf"
)

// driverService is org.apache.spark.deploy.k8s.features.DriverServiceFeatureStep: the
// headless Service at which executors find the driver.
type driverService struct{ *app }

func newDriverService(a *app) (step, error) {
	for _, name := range []string{"bindAddress", "host"} {
		key := "spark.driver." + name
		if value, set := a.Conf[key]; set {
			return nil, conf.Refuse(key, value, "is not supported in Kubernetes mode, as the driver's bind address and host name are managed: the pod's IP address and the driver's Service")
		}
	}
	return &driverService{a}, nil
}

// driverPort is one port of the driver: in its container and in its Service.
type driverPort struct {
	name string
	// key is the conf that the number came from, or would come from.
	key    string
	number int64
}

// driverPorts reads the ports. Container and Service differ in the key of the block
// manager's port. spark-connect exists since 4.1.
func (a *app) driverPorts(blockManagerKey string) ([]driverPort, error) {
	rows := []struct {
		name, key string
		absent    int
		read      func(string, int) (int, error)
	}{
		{"driver-rpc-port", "spark.driver.port", 7078, a.Conf.RawInt},
		{"blockmanager", blockManagerKey, 7079, a.Conf.RawInt},
		{"spark-ui", "spark.ui.port", 4040, a.Conf.Int},
		{"spark-connect", "spark.connect.grpc.binding.port", 15002, a.Conf.RawInt},
	}
	if !a.features.ConnectPort {
		rows = rows[:3]
	}
	ports := make([]driverPort, len(rows))
	for i, row := range rows {
		number, err := row.read(row.key, row.absent)
		if err != nil {
			return nil, err
		}
		if err := checkPort(row.key, number); err != nil {
			return nil, err
		}
		ports[i] = driverPort{row.name, row.key, int64(number)}
	}
	return ports, nil
}

func (s *driverService) configure(d *draft) error {
	name, fallback := serviceName(s.prefix, s.ids.Service)
	if fallback {
		d.warnings = append(d.warnings, fmt.Sprintf(
			"the driver's Service is named %s: %s-driver-svc, made of the application's name, is longer than %d characters", name, s.prefix, maxService))
	}
	metadata, err := s.metadata(name)
	if err != nil {
		return err
	}
	spec, err := s.spec()
	if err != nil {
		return err
	}
	ports, err := s.driverPorts("spark.driver.blockManager.port")
	if err != nil {
		return err
	}
	if err := s.checkDistinct(ports); err != nil {
		return err
	}
	for _, p := range ports {
		port := object{"name": p.name, "port": p.number, "targetPort": p.number}
		if p.name == "spark-connect" && s.features.ConnectProtocol {
			port["appProtocol"] = "grpc"
		}
		push(spec, "ports", port)
	}
	d.create("v1", "Service", metadata, object{"spec": spec})
	d.properties["spark.driver.host"] = name + "." + s.namespace + ".svc"
	d.properties["spark.driver.port"] = strconv.FormatInt(ports[0].number, 10)
	d.properties["spark.driver.blockManager.port"] = strconv.FormatInt(ports[1].number, 10)
	return nil
}

// metadata of the Service. A label of the caller may replace Spark's; values are not substituted.
func (s *driverService) metadata(name string) (object, error) {
	const (
		labelPrefix      = "spark.kubernetes.driver.service.label."
		annotationPrefix = "spark.kubernetes.driver.service.annotation."
	)
	metadata := object{"name": name}
	labels := child(metadata, "labels")
	labels["spark-app-selector"] = s.ids.App
	for _, p := range s.Conf.WithPrefix(labelPrefix) {
		if err := checkLabel(labelPrefix+p.Key, p.Key, p.Value); err != nil {
			return nil, err
		}
		labels[p.Key] = p.Value
	}
	for _, p := range s.Conf.WithPrefix(annotationPrefix) {
		if err := checkAnnotation(annotationPrefix+p.Key, p.Key); err != nil {
			return nil, err
		}
		child(metadata, "annotations")[p.Key] = p.Value
	}
	return metadata, nil
}

// spec of the Service without its ports. The selector is the labels that conf gave the
// pod, not those of a template.
func (s *driverService) spec() (object, error) {
	policy, err := s.Conf.OneOf("spark.kubernetes.driver.service.ipFamilyPolicy", "SingleStack",
		"SingleStack", "PreferDualStack", "RequireDualStack")
	if err != nil {
		return nil, err
	}
	families, err := s.Conf.OneOf("spark.kubernetes.driver.service.ipFamilies", "IPv4",
		"IPv4", "IPv6", "IPv4,IPv6", "IPv6,IPv4")
	if err != nil {
		return nil, err
	}
	selector := object{}
	for name, value := range s.labels {
		selector[name] = value
	}
	spec := object{"clusterIP": "None", "ipFamilyPolicy": policy, "selector": selector}
	for _, family := range strings.Split(families, ",") {
		push(spec, "ipFamilies", family)
	}
	if s.features.PublishNotReady {
		publish, err := s.Conf.Bool("spark.kubernetes.driver.service.publishNotReadyAddresses", false)
		if err != nil {
			return nil, err
		}
		spec["publishNotReadyAddresses"] = publish
	}
	return spec, nil
}

// checkDistinct refuses two ports of one number, which the API server does not allow in a Service.
func (s *driverService) checkDistinct(ports []driverPort) error {
	for i, p := range ports {
		for _, q := range ports[:i] {
			if p.number != q.number {
				continue
			}
			if _, set := s.Conf[p.key]; !set {
				p, q = q, p
			}
			return conf.RefuseName(p.key, "the port %d is that of %s too; the API server refuses a Service with one number twice", p.number, q.key)
		}
	}
	return nil
}
