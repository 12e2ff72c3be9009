package driver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"flint.dev/flint/pkg/spark/conf"
)

const (
	confDirectory  = "/opt/spark/conf"
	propertiesFile = "spark.properties"
	// maxConfigMap is what the API server allows for the values of one ConfigMap, in bytes.
	maxConfigMap = 1 << 20
	// javaDate is the layout of Java's Date.toString.
	javaDate = "Mon Jan 02 15:04:05 MST 2006"
)

// propertiesConfigMap makes the ConfigMap with spark.properties and mounts it as the driver's
// SPARK_CONF_DIR (KubernetesClientUtils.buildConfigMap, KubernetesClientApplication). Files of a
// submitter's SPARK_CONF_DIR do not exist here.
//
// Spark counts those files against spark.kubernetes.configMap.maxSize, but never the
// properties; here the real size is counted against the API server's limit.
func propertiesConfigMap(a *app, d *draft) (*unstructured.Unstructured, error) {
	const sizeKey = "spark.kubernetes.configMap.maxSize"
	size, err := a.Conf.Int64(sizeKey, maxConfigMap)
	if err != nil {
		return nil, err
	}
	if size > maxConfigMap {
		return nil, conf.Refuse(sizeKey, a.Conf[sizeKey], "Must have at most %d bytes", maxConfigMap)
	}
	name := "spark-drv-" + a.ids.ConfigMap + "-conf-map"
	text := d.properties.Properties(
		"Java properties built from Kubernetes config map with name: "+name,
		a.submitTime.UTC().Format(javaDate))
	if total := len(text) + len(a.namespace); total > maxConfigMap {
		return nil, tooLarge(d.properties, total)
	}
	d.env("SPARK_CONF_DIR", confDirectory)
	err = d.mount(fromSpark,
		object{"name": "spark-conf-volume-driver", "configMap": object{
			"name":  name,
			"items": list{object{"key": propertiesFile, "path": propertiesFile, "mode": int64(0o644)}},
		}},
		object{"mountPath": confDirectory})
	if err != nil {
		return nil, err
	}
	return newObject("v1", "ConfigMap",
		object{"name": name, "namespace": a.namespace},
		object{
			"immutable": true,
			"data":      object{propertiesFile: text, "spark.kubernetes.namespace": a.namespace},
		}), nil
}

// tooLarge refuses the largest property and names the three largest.
func tooLarge(properties conf.Conf, total int) error {
	keys := slices.SortedFunc(maps.Keys(properties), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(properties[b]), len(properties[a])), strings.Compare(a, b))
	})
	largest := make([]string, 0, 3)
	for _, key := range keys[:min(3, len(keys))] {
		largest = append(largest, fmt.Sprintf("%s (%d bytes)", key, len(properties[key])))
	}
	return conf.RefuseName(keys[0], "the driver's configuration has %d bytes as %s, a ConfigMap holds at most %d; the largest values are those of %s",
		total, propertiesFile, maxConfigMap, strings.Join(largest, ", "))
}
