package driver

import (
	"fmt"
	"strings"

	"flint.dev/flint/pkg/spark/conf"
)

// localDirs is org.apache.spark.deploy.k8s.features.LocalDirsFeatureStep: where the
// driver keeps temporary files. Mounts whose volume is named spark-local-dir-* serve; else
// each path of spark.local.dir, or one default path, gets an emptyDir.
//
// Spark 4 shuffles the paths of such mounts; here they keep the order of the mounts.
type localDirs struct{ *app }

func newLocalDirs(a *app) (step, error) { return &localDirs{a}, nil }

func (s *localDirs) configure(d *draft) error {
	const prefix = "spark-local-dir-"
	var paths []string
	mounts, _ := d.container["volumeMounts"].(list)
	for _, m := range mounts {
		mount := m.(object)
		if name, _ := mount["name"].(string); strings.HasPrefix(name, prefix) {
			path, _ := mount["mountPath"].(string)
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 {
		const key = "spark.local.dir"
		directories, set := s.Conf[key]
		from := origin(key)
		if !set {
			directories, from = "/var/data/spark-"+s.ids.LocalDir, fromSpark
		}
		inMemory, err := s.Conf.Bool("spark.kubernetes.local.dirs.tmpfs", false)
		if err != nil {
			return err
		}
		if paths = javaSplit(directories, ","); len(paths) > maxVolumes {
			return conf.RefuseName(key, "%d directories are asked for, more than the %d that Flint makes", len(paths), maxVolumes)
		}
		for i, path := range paths {
			emptyDir := object{}
			if inMemory {
				emptyDir["medium"] = "Memory"
			}
			volume := object{"name": fmt.Sprintf("%s%d", prefix, i+1), "emptyDir": emptyDir}
			if err := d.mount(from, volume, object{"mountPath": path}); err != nil {
				return err
			}
		}
	}
	d.env("SPARK_LOCAL_DIRS", strings.Join(paths, ","))
	return nil
}
