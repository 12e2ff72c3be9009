package driver

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
)

// basicDriver is org.apache.spark.deploy.k8s.features.BasicDriverFeatureStep: the pod's
// name, labels and scheduling, the container's image, ports, environment and resources.
type basicDriver struct {
	*app
	podName string
	image   string
	// requestCPU and limitCPU are quantities; limitCPU may be empty.
	requestCPU, limitCPU string
	// memory is what request and limit have, in MiB.
	memory int64
	// defaultFactor is written back for the executors.
	defaultFactor float64
	// escalation is securityContext.allowPrivilegeEscalation, on lines that have it.
	escalation bool
}

func newBasicDriver(a *app) (step, error) {
	s := &basicDriver{app: a}
	var err error
	if s.podName, err = driverPodName(a); err != nil {
		return nil, err
	}
	if s.image, err = driverImage(a); err != nil {
		return nil, err
	}
	if s.requestCPU, s.limitCPU, err = driverCPU(a); err != nil {
		return nil, err
	}
	if s.memory, s.defaultFactor, err = driverMemory(a); err != nil {
		return nil, err
	}
	if s.escalation, err = driverEscalation(a); err != nil {
		return nil, err
	}
	return s, nil
}

// driverPodName is spark.kubernetes.driver.pod.name, by default the prefix and "-driver".
func driverPodName(a *app) (string, error) {
	const key = "spark.kubernetes.driver.pod.name"
	name, set, err := a.Conf.Text(key)
	if err != nil {
		return "", err
	}
	if set {
		return name, checkObjectName(key, name)
	}
	if name = a.prefix + "-driver"; len(name) > maxName {
		return "", a.tooLong("Pod", name)
	}
	return name, nil
}

// driverImage is the driver's image, else the general one; {{SPARK_VERSION}} in it is replaced since 4.1.
func driverImage(a *app) (string, error) {
	for _, key := range []string{"spark.kubernetes.driver.container.image", "spark.kubernetes.container.image"} {
		image, set, err := a.Conf.Text(key)
		if err != nil {
			return "", err
		}
		if !set {
			continue
		}
		if a.features.ImageVersion {
			image = strings.ReplaceAll(image, "{{SPARK_VERSION}}", a.version.String())
		}
		if image == "" || strings.TrimSpace(image) != image {
			return "", conf.Refuse(key, image, "must be an image, without white space around it")
		}
		return image, nil
	}
	return "", conf.RefuseName("spark.kubernetes.container.image", "Must specify the driver container image")
}

// driverCPU is the container's request (spark.kubernetes.driver.request.cores, else
// spark.driver.cores, else 1) and its limit, which may be empty.
func driverCPU(a *app) (request, limit string, err error) {
	requestKey, limitKey := "spark.kubernetes.driver.request.cores", "spark.kubernetes.driver.limit.cores"
	cores, err := a.Conf.Int("spark.driver.cores", 1)
	if err != nil {
		return "", "", err
	}
	request, set, err := a.Conf.Text(requestKey)
	if err != nil {
		return "", "", err
	}
	if !set {
		requestKey, request = "spark.driver.cores", strconv.Itoa(cores)
	}
	requested, err := quantity(requestKey, request)
	if err != nil {
		return "", "", err
	}
	limit, set, err = a.Conf.Text(limitKey)
	if err != nil || !set {
		return request, "", err
	}
	allowed, err := quantity(limitKey, limit)
	if err != nil {
		return "", "", err
	}
	if requested.Cmp(allowed) > 0 {
		return "", "", conf.Refuse(limitKey, limit, "is less than the request of %s from %s", request, requestKey)
	}
	return request, limit, nil
}

// driverMemory is the container's memory in MiB, and the default overhead factor.
//
// The heap spark.driver.memory (1g) and beside it spark.driver.memoryOverhead, which is
// by default a factor of the heap, at least spark.driver.minMemoryOverhead (384m). The
// factor is spark.driver.memoryOverheadFactor, else the default factor:
// spark.kubernetes.memoryOverheadFactor, else 0.1, or 0.4 outside the JVM.
func driverMemory(a *app) (mib int64, defaultFactor float64, err error) {
	const (
		memoryKey   = "spark.driver.memory"
		overheadKey = "spark.driver.memoryOverhead"
		minimumKey  = "spark.driver.minMemoryOverhead"
		driverKey   = "spark.driver.memoryOverheadFactor"
		generalKey  = "spark.kubernetes.memoryOverheadFactor"
	)
	binary := a.features.BinarySuffixes
	heap, err := a.Conf.MiB(memoryKey, 1024, binary)
	if err != nil {
		return 0, 0, err
	}
	defaultFactor = 0.1
	if a.Language != args.Java {
		defaultFactor = 0.4
	}
	if defaultFactor, err = a.Conf.Double(generalKey, defaultFactor); err != nil {
		return 0, 0, err
	}
	if !(defaultFactor >= 0) {
		return 0, 0, conf.Refuse(generalKey, a.Conf[generalKey], "Ensure that memory overhead is non-negative")
	}
	factor, err := a.Conf.Double(driverKey, defaultFactor)
	if err != nil {
		return 0, 0, err
	}
	if _, set := a.Conf[driverKey]; set && !(factor > 0) {
		return 0, 0, conf.Refuse(driverKey, a.Conf[driverKey], "Ensure that memory overhead is a double greater than 0")
	}
	minimum := int64(384)
	if a.features.MinMemoryOverhead {
		if minimum, err = a.Conf.MiB(minimumKey, minimum, binary); err != nil {
			return 0, 0, err
		}
	}
	overhead, err := a.Conf.MiB(overheadKey, max(truncate(factor*float64(heap)), minimum), binary)
	if err != nil {
		return 0, 0, err
	}
	if mib = heap + overhead; mib < 0 {
		return 0, 0, conf.Refuse(memoryKey, a.Conf[memoryKey], "with the overhead of %d MiB (%s) the driver's memory is negative", overhead, overheadKey)
	}
	return mib, defaultFactor, nil
}

// truncate is Scala's Double.toInt: toward zero, saturating at 32 bits, 0 for no number.
func truncate(f float64) int64 {
	switch {
	case f != f:
		return 0
	case f >= math.MaxInt32:
		return math.MaxInt32
	case f <= math.MinInt32:
		return math.MinInt32
	}
	return int64(f)
}

// driverEscalation is whether the driver's processes may gain privileges: the driver's key, else the general one.
func driverEscalation(a *app) (bool, error) {
	if !a.features.PrivilegeEscalation {
		return false, nil
	}
	key := "spark.kubernetes.driver.securityContext.allowPrivilegeEscalation"
	if _, set := a.Conf[key]; !set {
		key = "spark.kubernetes.securityContext.allowPrivilegeEscalation"
	}
	return a.Conf.Bool(key, false)
}

// driverLabels are the pod's labels: the caller's, with {{APP_ID}} replaced in the
// values since 4.0, and Spark's own (KubernetesDriverConf.labels).
func driverLabels(a *app) (object, error) {
	const prefix = "spark.kubernetes.driver.label."
	presets := [][2]string{
		{"spark-version", a.version.String()},
		{"spark-app-selector", a.ids.App},
		{"spark-app-name", appNameLabel(a.appName)},
		{"spark-role", "driver"},
	}
	labels := object{}
	for _, preset := range presets {
		if _, set := a.Conf[prefix+preset[0]]; set {
			return nil, conf.RefuseName(prefix+preset[0], "Label with key %s is not allowed as it is reserved for Spark bookkeeping operations.", preset[0])
		}
		labels[preset[0]] = preset[1]
	}
	for _, p := range a.Conf.WithPrefix(prefix) {
		value := p.Value
		if a.features.LabelPlaceholders {
			value = a.withIDs(value)
		}
		if err := checkLabel(prefix+p.Key, p.Key, value); err != nil {
			return nil, err
		}
		labels[p.Key] = value
	}
	return labels, nil
}

// withIDs replaces the placeholders that Spark knows in values of labels and annotations
// (Utils.substituteAppNExecIds); a driver has no executor id.
func (a *app) withIDs(value string) string {
	return strings.NewReplacer("{{APP_ID}}", a.ids.App, "{{EXECUTOR_ID}}", "").Replace(value)
}

func (s *basicDriver) configure(d *draft) error {
	if err := s.configurePod(d); err != nil {
		return err
	}
	if err := s.configureContainer(d); err != nil {
		return err
	}
	d.properties["spark.kubernetes.driver.pod.name"] = s.podName
	d.properties["spark.app.id"] = s.ids.App
	d.properties["spark.kubernetes.submitInDriver"] = "true"
	d.properties["spark.kubernetes.memoryOverheadFactor"] = conf.FormatDouble(s.defaultFactor)
	return nil
}

func (s *basicDriver) configurePod(d *draft) error {
	d.metadata()["name"] = s.podName
	labels := child(d.metadata(), "labels")
	for name, value := range s.labels {
		labels[name] = value
	}
	const annotationPrefix = "spark.kubernetes.driver.annotation."
	for _, p := range s.Conf.WithPrefix(annotationPrefix) {
		if err := checkAnnotation(annotationPrefix+p.Key, p.Key); err != nil {
			return err
		}
		child(d.metadata(), "annotations")[p.Key] = s.withIDs(p.Value)
	}
	spec := d.spec()
	spec["restartPolicy"] = "Never"
	// The driver's own selectors win; what they replace is not judged.
	const ownSelector = "spark.kubernetes.driver.node.selector."
	for _, prefix := range []string{"spark.kubernetes.node.selector.", ownSelector} {
		for _, p := range s.Conf.WithPrefix(prefix) {
			if _, own := s.Conf[ownSelector+p.Key]; own && prefix != ownSelector {
				continue
			}
			if err := checkLabel(prefix+p.Key, p.Key, p.Value); err != nil {
				return err
			}
			child(spec, "nodeSelector")[p.Key] = p.Value
		}
	}
	pullSecrets, err := s.Conf.Strings("spark.kubernetes.container.image.pullSecrets")
	if err != nil {
		return err
	}
	for _, name := range pullSecrets {
		push(spec, "imagePullSecrets", object{"name": name})
	}
	for _, key := range []string{"spark.kubernetes.driver.scheduler.name", "spark.kubernetes.scheduler.name"} {
		name, set, err := s.Conf.Text(key)
		if err != nil {
			return err
		}
		if set {
			spec["schedulerName"] = name
			break
		}
	}
	return nil
}

func (s *basicDriver) configureContainer(d *draft) error {
	c := d.container
	if c["name"] == nil {
		c["name"] = DriverContainerName
	}
	c["image"] = s.image
	policy, err := s.Conf.OneOf("spark.kubernetes.container.image.pullPolicy", "IfNotPresent", "Always", "Never", "IfNotPresent")
	if err != nil {
		return err
	}
	c["imagePullPolicy"] = policy
	if s.features.PrivilegeEscalation {
		// The rest of a template's security context stays.
		child(c, "securityContext")["allowPrivilegeEscalation"] = s.escalation
	}
	if err := s.ports(d); err != nil {
		return err
	}
	if err := s.environment(d); err != nil {
		return err
	}
	return s.resources(d)
}

// ports appends the container's ports.
func (s *basicDriver) ports(d *draft) error {
	// Unlike the Service's, this one falls back to spark.blockManager.port.
	blockManagerKey := "spark.driver.blockManager.port"
	if _, set := s.Conf[blockManagerKey]; !set {
		blockManagerKey = "spark.blockManager.port"
	}
	ports, err := s.driverPorts(blockManagerKey)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if templateHasPort(d.container, p.name) {
			return &TemplateError{d.field + ".ports", fmt.Sprintf("the port name %q is Spark's; the API server refuses two", p.name)}
		}
		push(d.container, "ports", object{"name": p.name, "containerPort": p.number, "protocol": "TCP"})
	}
	return nil
}

// templateHasPort tells whether the container has a port of that name.
func templateHasPort(container object, name string) bool {
	ports, _ := container["ports"].(list)
	return slices.ContainsFunc(ports, func(p any) bool { return p.(object)["name"] == name })
}

// environment appends the user, the application id and the caller's variables.
func (s *basicDriver) environment(d *draft) error {
	user := s.user
	if s.ProxyUser != "" {
		user = s.ProxyUser
	}
	d.env("SPARK_USER", user)
	d.env("SPARK_APPLICATION_ID", s.ids.App)
	const prefix = "spark.kubernetes.driverEnv."
	for _, p := range s.Conf.WithPrefix(prefix) {
		if err := checkEnvName(prefix+p.Key, p.Key); err != nil {
			return err
		}
		d.env(p.Key, p.Value)
	}
	push(d.container, "env", object{
		"name":      "SPARK_DRIVER_BIND_ADDRESS",
		"valueFrom": object{"fieldRef": object{"apiVersion": "v1", "fieldPath": "status.podIP"}},
	})
	return nil
}

// resources sets cpu, memory and devices; other entries of the template stay.
func (s *basicDriver) resources(d *draft) error {
	devices, err := s.devices()
	if err != nil {
		return err
	}
	memory := strconv.FormatInt(s.memory, 10) + "Mi"
	resources := child(d.container, "resources")
	requests, limits := child(resources, "requests"), child(resources, "limits")
	requests["cpu"], requests["memory"] = s.requestCPU, memory
	limits["memory"] = memory
	if s.limitCPU != "" {
		limits["cpu"] = s.limitCPU
	} else if err := s.templateLimit(d, limits["cpu"]); err != nil {
		return err
	}
	for name, amount := range devices {
		limits[name] = amount
	}
	return nil
}

// templateLimit refuses a cpu limit of the template that is less than the request: the
// API server would. Text and numbers are quantities; no limit, and what is no quantity,
// is left to the API server.
func (s *basicDriver) templateLimit(d *draft, limit any) error {
	text := fmt.Sprint(limit)
	allowed, malformed := resource.ParseQuantity(text)
	requested, err := quantity("spark.kubernetes.driver.request.cores", s.requestCPU)
	if malformed == nil && err == nil && requested.Cmp(allowed) > 0 {
		return &TemplateError{d.field + ".resources.limits.cpu", fmt.Sprintf(
			"%s is less than the driver's request of %s cores (spark.kubernetes.driver.request.cores or spark.driver.cores)", text, s.requestCPU)}
	}
	return err
}

// devices are the container's limits vendor/name = amount, from
// spark.driver.resource.NAME.amount and .vendor (ResourceUtils.parseAllResourceRequests,
// KubernetesUtils.buildResourcesQuantities). Without an amount above 0 there is none.
func (s *basicDriver) devices() (map[string]string, error) {
	const prefix = "spark.driver.resource."
	limits := map[string]string{}
	for _, p := range s.Conf.WithPrefix(prefix) {
		name, _, dotted := strings.Cut(p.Key, ".")
		if !dotted {
			return nil, conf.RefuseName(prefix+p.Key, "You must specify an amount config for resource: %s config: %s%s", name, prefix, name)
		}
		amountKey, vendorKey := prefix+name+".amount", prefix+name+".vendor"
		if _, set := s.Conf[amountKey]; !set {
			return nil, conf.RefuseName(amountKey, "You must specify an amount for %s", name)
		}
		amount, err := s.Conf.RawInt(amountKey, 0)
		if err != nil {
			return nil, err
		}
		if amount <= 0 {
			continue
		}
		vendor, set := s.Conf[vendorKey]
		if !set {
			return nil, conf.RefuseName(vendorKey, "Resource: %s was requested, but vendor was not specified.", name)
		}
		device := vendor + "/" + name
		if err := judge(vendorKey, vendor, "\""+device+"\" is not the name of a resource", content.IsLabelKey(device)); err != nil {
			return nil, err
		}
		limits[device] = strconv.Itoa(amount)
	}
	return limits, nil
}
