package driver

// hadoopConf is org.apache.spark.deploy.k8s.features.HadoopConfDriverFeatureStep: the
// ConfigMap spark.kubernetes.hadoop.configMapName becomes the driver's HADOOP_CONF_DIR.
// A HADOOP_CONF_DIR of the submitter does not exist here.
type hadoopConf struct {
	*app
	// configMap is empty if there is none.
	configMap string
}

func newHadoopConf(a *app) (step, error) {
	name, err := a.objectName("spark.kubernetes.hadoop.configMapName")
	return &hadoopConf{a, name}, err
}

func (s *hadoopConf) configure(d *draft) error {
	if s.configMap == "" {
		return nil
	}
	const directory = "/opt/hadoop/conf"
	d.env("HADOOP_CONF_DIR", directory)
	d.properties["spark.kubernetes.executor.hadoopConfigMapName"] = s.configMap
	return d.mount(fromSpark,
		object{"name": "hadoop-properties", "configMap": object{"name": s.configMap}},
		object{"mountPath": directory})
}
