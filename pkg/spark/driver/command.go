package driver

import (
	"flint.dev/flint/pkg/spark/args"
)

// driverCommand is org.apache.spark.deploy.k8s.features.DriverCommandFeatureStep: the
// arguments of the image's entrypoint. They are appended to those of a template; the
// command is the image's.
type driverCommand struct{ *app }

func newDriverCommand(a *app) (step, error) { return &driverCommand{a}, nil }

func (s *driverCommand) configure(d *draft) error {
	if s.Language == args.Python {
		if err := s.pythons(d); err != nil {
			return err
		}
	}
	arguments := list{"driver"}
	if s.ProxyUser != "" {
		arguments = append(arguments, "--proxy-user", s.ProxyUser)
	}
	resource := s.Resource
	if resource == "" {
		resource = "spark-internal"
	}
	arguments = append(arguments,
		"--properties-file", confDirectory+"/"+propertiesFile,
		"--class", s.MainClass,
		resource)
	for _, argument := range s.AppArgs {
		arguments = append(arguments, argument)
	}
	push(d.container, "args", arguments...)
	d.properties["spark.kubernetes.resource.type"] = string(s.Language)
	return nil
}

// pythons appends the interpreters of the workers and of the driver, which is by default the workers'.
func (s *driverCommand) pythons(d *draft) error {
	worker, set, err := s.Conf.Text("spark.pyspark.python")
	if err != nil {
		return err
	}
	if set {
		d.env("PYSPARK_PYTHON", worker)
	}
	driver, own, err := s.Conf.Text("spark.pyspark.driver.python")
	if err != nil {
		return err
	}
	switch {
	case own:
		d.env("PYSPARK_DRIVER_PYTHON", driver)
	case set:
		d.env("PYSPARK_DRIVER_PYTHON", worker)
	}
	return nil
}
