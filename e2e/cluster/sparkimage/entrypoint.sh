#!/bin/bash
# What Spark on Kubernetes asks of an image: the driver's pod and the executors' pods run the image's entrypoint with
# the arguments "driver ..." and "executor". The rest is in variables, whose names are in org.apache.spark.deploy.k8s.Constants.
set -eu
part=$1
shift
case $part in
driver)
  # The pod has Spark's properties as a file and the application in the arguments; this process is the driver itself.
  exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
    --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
    --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
  ;;
executor)
  # Options of the JVM are in SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on, one whole option in each.
  options=()
  for ((i = 0; ; i++)); do
    name=SPARK_JAVA_OPT_$i
    [[ -v $name ]] || break
    options+=("${!name}")
  done
  exec "$JAVA_HOME/bin/java" "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_CONF_DIR:$SPARK_HOME/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
  ;;
*)
  exec "$part" "$@"
  ;;
esac
