package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// scalaVersion is that of the distribution's jars, which bin/load-spark-env.sh works out too.
func scalaVersion(home string) (string, error) {
	jars, err := filepath.Glob(filepath.Join(home, "jars", "spark-core_*.jar"))
	if err != nil || len(jars) != 1 {
		return "", fmt.Errorf("%s has not one spark-core", home)
	}
	name := filepath.Base(jars[0])
	scala, _, _ := strings.Cut(strings.TrimPrefix(name, "spark-core_"), "-")
	return scala, nil
}

// environ is the environment of a submission: what bin/spark-submit needs, and nothing of ours.
func environ(home, scala, work string) []string {
	env := []string{
		"SPARK_HOME=" + home,
		"SPARK_SCALA_VERSION=" + scala,
		"SPARK_CONF_DIR=" + filepath.Join(work, "conf"),
		"HOME=" + work,
		"TZ=UTC",
		"LC_ALL=C.UTF-8",
	}
	for _, name := range []string{"PATH", "JAVA_HOME"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return slices.Clip(env)
}
