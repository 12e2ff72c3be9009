package args_test

import (
	"fmt"
	"testing"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
)

func TestSubmitAccepts(t *testing.T) {
	dropped := java(nil)
	dropped.Warnings = []string{
		"Ignoring non-Spark config property: Spark.y",
		"Ignoring non-Spark config property: hive.x",
		"Ignoring non-Spark config property: sparkz",
	}
	http := java(conf.Conf{"spark.master": "k8s://http://h"})
	http.Warnings = []string{"Kubernetes master URL uses HTTP instead of HTTPS."}
	proxy := java(nil)
	proxy.ProxyUser = "bob"
	noImage := func(changes conf.Conf) args.Arguments {
		a := java(changes)
		delete(a.Conf, "spark.kubernetes.container.image")
		return a
	}
	delete(http.Conf, "spark.kubernetes.container.image")
	named := func(name string, resource string) args.Arguments {
		a := python(conf.Conf{"spark.app.name": name})
		a.Resource = resource
		return a
	}
	withR := func(name, resource string) args.Arguments {
		a := named(name, resource)
		a.Language, a.MainClass = args.R, "org.apache.spark.deploy.RRunner"
		return a
	}
	testAccepted(t, map[string]accepted{
		"B02_master_adds_https": {on("k8s://10.0.0.1:6443", "cluster"), noImage(conf.Conf{"spark.master": "k8s://https://10.0.0.1:6443"})},
		"B02_master_empty_rest": {on("k8s://", "cluster"), noImage(conf.Conf{"spark.master": "k8s://https://"})},
		"B03_master_http_kept":  {on("k8s://http://h", "cluster"), http},
		"B04_master_case_kept":  {on("k8s://HTTPS://H/", "cluster"), noImage(conf.Conf{"spark.master": "k8s://HTTPS://H/"})},
		"B02_master_ipv6":       {on("k8s://https://[::1]:443", "cluster"), noImage(conf.Conf{"spark.master": "k8s://https://[::1]:443"})},
		"B09_deploy_from_conf": {
			on("k8s://h", "", "-c", "spark.submit.deployMode=cluster"),
			noImage(conf.Conf{"spark.master": "k8s://https://h"}),
		},
		"B09_master_from_conf": {
			on("", "cluster", "-c", "spark.master=k8s://h"),
			noImage(conf.Conf{"spark.master": "k8s://https://h"}),
		},
		"B12_driver_memory_plain_number": {base("--driver-memory", "512"), java(conf.Conf{"spark.driver.memory": "512"})},
		"B13_driver_memory_500k":         {base("--driver-memory", "500k"), java(conf.Conf{"spark.driver.memory": "500k"})},
		"B11_driver_memory_gib":          {base("--driver-memory", "1GiB"), java(conf.Conf{"spark.driver.memory": "1GiB"})},
		"excludes_without_packages":      {base("--packages", " ", "--exclude-packages", "g"), java(conf.Conf{"spark.jars.packages": " ", "spark.jars.excludes": "g"})},
		"B14_driver_memory_uppercase":    {base("--driver-memory", "2GB"), java(conf.Conf{"spark.driver.memory": "2GB"})},
		"B16_cores_plus_sign":            {base("--driver-cores", "+2"), java(conf.Conf{"spark.driver.cores": "+2"})},
		"B18_num_executors_zero_dyn": {
			base("--num-executors", "0", "-c", "spark.dynamicAllocation.enabled=TRUE"),
			java(conf.Conf{"spark.executor.instances": "0", "spark.dynamicAllocation.enabled": "TRUE"}),
		},
		"B22_name_default_class":      {base(), java(nil)},
		"B22_name_default_file":       {py(), python(nil)},
		"B22_name_conf":               {base("-c", "spark.app.name=n"), java(conf.Conf{"spark.app.name": "n"})},
		"B22_name_option_beats_conf":  {base("-c", "spark.app.name=n", "--name", ""), java(conf.Conf{"spark.app.name": ""})},
		"B22_name_keeps_escapes":      {with("https://h/d/x%20y.py"), named("x%20y.py", "https://h/d/x%20y.py")},
		"B22_name_keeps_query":        {with("https://h/d/x.py?y=1.py"), named("x.py?y=1.py", "https://h/d/x.py?y=1.py")},
		"B23_py_class_only_names":     {py("--class", "X"), python(conf.Conf{"spark.app.name": "X"})},
		"B26_r_upper":                 {r(), withR("app.R", "local:///app.R")},
		"B26_r_lower":                 {with("local:///app.r"), withR("app.r", "local:///app.r")},
		"B27_non_spark_keys_dropped":  {base("--conf", "hive.x=1", "--conf", "Spark.y=1", "-c", "sparkz=1"), dropped},
		"B28_driver_host_dropped":     {base("-c", "spark.driver.host=h"), java(nil)},
		"B29_bind_address_kept":       {base("-c", "spark.driver.bindAddress="), java(conf.Conf{"spark.driver.bindAddress": ""})},
		"B30_jars_appends_primary":    {base("--jars", "local:///x.jar"), java(conf.Conf{"spark.jars": "local:///x.jar,local:///a.jar"})},
		"B30_jars_of_conf":            {base("-c", "spark.jars=local:///x.jar"), java(conf.Conf{"spark.jars": "local:///x.jar,local:///a.jar"})},
		"B30_primary_is_not_decoded":  {with("--class", "C", "https://h/a%2Fb.jar"), args.Arguments{Conf: baseConf(conf.Conf{"spark.jars": "https://h/a%2Fb.jar"}), Language: args.Java, Resource: "https://h/a%2Fb.jar", MainClass: "C"}},
		"B31_jars_option_replaces":    {base("--jars", "local:///x.jar", "-c", "spark.jars=local:///y.jar"), java(conf.Conf{"spark.jars": "local:///x.jar,local:///a.jar"})},
		"B31_empty_option_replaces":   {base("--jars", "", "-c", "spark.jars=local:///y.jar"), java(nil)},
		"B31_replaced_file_is_no_dep": {base("--files", "s3a://b/f", "-c", "spark.files=/etc/x"), java(conf.Conf{"spark.files": "s3a://b/f"})},
		"B32_jars_conf_trimmed": {
			base("-c", "spark.jars=local:///x.jar, local:///y.jar"),
			java(conf.Conf{"spark.jars": "local:///x.jar,local:///y.jar,local:///a.jar"}),
		},
		"B34_py_primary_not_in_files": {py("--py-files", "local:///d.zip"), python(conf.Conf{"spark.submit.pyFiles": "local:///d.zip"})},
		"B34_py_empty_jars":           {py("--jars", ""), python(conf.Conf{"spark.jars": ""})},
		"B34_py_files_of_conf":        {py("-c", "spark.submit.pyFiles=s3a://b/x , local:///d.zip"), python(conf.Conf{"spark.submit.pyFiles": "s3a://b/x,local:///d.zip"})},
		"B35_pyfiles_always_present":  {base(), java(nil)},
		"B36_spark_internal": {
			with("--class", "C", "spark-internal"),
			args.Arguments{Conf: baseConf(conf.Conf{"spark.jars": ""}), Language: args.Java, MainClass: "C"},
		},
		"B36_spark_internal_with_jars": {
			with("--class", "C", "--jars", "local:///x.jar", "spark-internal"),
			args.Arguments{Conf: baseConf(conf.Conf{"spark.jars": "local:///x.jar"}), Language: args.Java, MainClass: "C"},
		},
		"B39_percent_decoding": {base("--files", "https://h/a%2Fb?x=%26"), java(conf.Conf{"spark.files": "https://h/a/b?x=&"})},
		"B40_archive_fragment": {base("--archives", "s3a://b/e.tgz#env"), java(conf.Conf{"spark.archives": "s3a://b/e.tgz#env"})},
		"B40_reference_in_fragment": {
			base("--jars", "s3a://b/e.jar#$%7Bspark.ui.port%7D"),
			java(conf.Conf{"spark.jars": "s3a://b/e.jar#4040,local:///a.jar"}),
		},
		"B41_packages_forwarded": {
			base("--packages", "g:a:1", "--repositories", "r", "--exclude-packages", "g:b"),
			java(conf.Conf{"spark.jars.packages": "g:a:1", "spark.jars.repositories": "r", "spark.jars.excludes": "g:b"}),
		},
		"B41_ivy_keys_kept": {
			base("-c", "spark.jars.ivy=/i", "-c", "spark.jars.ivySettings=/s.xml"),
			java(conf.Conf{"spark.jars.ivy": "/i", "spark.jars.ivySettings": "/s.xml"}),
		},
		"B42_queue_supervise_cores": {base("--queue", "q", "--supervise", "--total-executor-cores", "4"), java(nil)},
		"B42_cores_max_kept":        {base("-c", "spark.cores.max=4"), java(conf.Conf{"spark.cores.max": "4"})},
		"B44_yarn_spellings": {
			base("-c", "spark.yarn.keytab=local:///k", "-c", "spark.yarn.principal=p"),
			java(conf.Conf{
				"spark.yarn.keytab": "local:///k", "spark.yarn.principal": "p",
				"spark.kerberos.keytab": "local:///k", "spark.kerberos.principal": "p",
			}),
		},
		"B44_options": {
			base("--keytab", "local:///k", "--principal", "p", "-c", "spark.kerberos.principal=q"),
			java(conf.Conf{"spark.kerberos.keytab": "local:///k", "spark.kerberos.principal": "p"}),
		},
		"B45_submit_time_kept": {base("-c", "spark.app.submitTime=5"), java(conf.Conf{"spark.app.submitTime": "5"})},
		"B46_references_stay_raw": {
			base("-c", "spark.x=img:9", "-c", "spark.kubernetes.container.image=${spark.x}", "-c", "spark.kubernetes.driver.label.l=${spark.x}"),
			java(conf.Conf{"spark.x": "img:9", "spark.kubernetes.container.image": "${spark.x}", "spark.kubernetes.driver.label.l": "${spark.x}"}),
		},
		"B47_env_reference_stays_raw": {
			base("-c", "spark.kubernetes.container.image=${env:PATH}"),
			java(conf.Conf{"spark.kubernetes.container.image": "${env:PATH}"}),
		},
		"B51_master_rest_enabled": {base("-c", "spark.master.rest.enabled=False"), java(conf.Conf{"spark.master.rest.enabled": "False"})},
		"B53_exec_keys_not_validated": {
			base("-c", "spark.kubernetes.allocation.batch.size=-3"),
			java(conf.Conf{"spark.kubernetes.allocation.batch.size": "-3"}),
		},
		"D30_proxy_user": {base("--proxy-user", "bob"), proxy},
		"executor_options": {
			base("--executor-cores", "3", "--executor-memory", "1t", "--num-executors", "7"),
			java(conf.Conf{"spark.executor.cores": "3", "spark.executor.memory": "1t", "spark.executor.instances": "7"}),
		},
		"client_keys_kept": {
			base("-c", "spark.kubernetes.trust.certificates=true", "-c", "spark.kubernetes.submission.requestTimeout=5",
				"-c", "spark.kubernetes.submission.connectionTimeout=5", "-c", "spark.kubernetes.submission.waitAppCompletion=false",
				"-c", "spark.kubernetes.file.upload.path=s3a://b"),
			java(conf.Conf{
				"spark.kubernetes.trust.certificates": "true", "spark.kubernetes.submission.requestTimeout": "5",
				"spark.kubernetes.submission.connectionTimeout": "5", "spark.kubernetes.submission.waitAppCompletion": "false",
				"spark.kubernetes.file.upload.path": "s3a://b",
			}),
		},
	})
}

// B50 is the vector of many confs.
func TestManyConfs(t *testing.T) {
	var more []string
	want := conf.Conf{}
	for i := range 2000 {
		key, value := fmt.Sprintf("spark.x%d", i), fmt.Sprintf("%0150d", i)
		more = append(more, "--conf", key+"="+value)
		want[key] = value
	}
	testAccepted(t, map[string]accepted{"B50_many_confs": {base(more...), java(want)}})
}

func TestSubmitRefuses(t *testing.T) {
	testRefused(t, map[string]refused{
		"B01_master_missing":         {argv: on("", "cluster"), name: "--master", words: []string{`not compatible with master "local"`}},
		"B01_master_local":           {argv: on("local[2]", "cluster"), name: "--master", words: []string{`not compatible with master "local"`}},
		"B05_master_bad_scheme":      {argv: on("k8s://ftp://h", "cluster"), name: "--master", words: []string{"Invalid Kubernetes master scheme: ftp found in URL: ftp://h"}},
		"B05_master_no_url":          {argv: on("k8s://https://a b", "cluster"), name: "--master", words: []string{"not a URL"}},
		"B06_yarn":                   {argv: on("yarn", "cluster"), name: "--master", words: []string{`"yarn"`, "not served", "k8s://"}},
		"B06_spark":                  {argv: on("spark://h:1", "cluster"), name: "--master", words: []string{`"spark://h:1"`, "not served"}},
		"B06_K8S":                    {argv: on("K8S://h", "cluster"), name: "--master", words: []string{"Master must either be yarn or start with spark, k8s, or local"}},
		"B06_k8s_colon":              {argv: on("k8s:h", "cluster"), name: "--master", words: []string{"Master must either be"}},
		"B06_foo":                    {argv: on("foo", "cluster"), name: "--master", words: []string{"Master must either be"}},
		"B06_empty":                  {argv: on("", "cluster", "-c", "spark.master="), name: "spark.master", words: []string{"Master must either be"}},
		"B06_line_break":             {argv: on("k8s://h\n", "cluster"), name: "--master", words: []string{"Master must either be"}},
		"B06_conf":                   {argv: on("", "cluster", "-c", "spark.master=yarn"), name: "spark.master", words: []string{"not served"}},
		"B07_deploy_client":          {argv: on("k8s://h", "client"), name: "--deploy-mode", words: []string{"client mode", "cluster"}},
		"B07_deploy_absent":          {argv: on("k8s://h", ""), name: "--deploy-mode", words: []string{"client mode"}},
		"B08_deploy_invalid":         {argv: on("k8s://h", "Cluster"), name: "--deploy-mode", words: []string{`must be either "client" or "cluster"`}},
		"B08_deploy_invalid_conf":    {argv: on("k8s://h", "", "-c", "spark.submit.deployMode=Cluster"), name: "spark.submit.deployMode", words: []string{"must be either client or cluster"}},
		"B10_remote_with_master":     {argv: on("k8s://h", "", "--remote", "sc://h"), name: "--remote", words: []string{"Remote cannot be specified with master"}},
		"B10_remote_with_mode":       {argv: on("", "cluster", "-c", "spark.remote=sc://h"), name: "spark.remote", words: []string{"Remote cannot be specified"}},
		"B11_driver_memory_zero":     {argv: base("--driver-memory", "0"), name: "spark.driver.memory", words: []string{"Driver memory must be a positive number"}},
		"B11_driver_memory_negative": {argv: base("--driver-memory", "-1g"), name: "spark.driver.memory", words: []string{"Driver memory must be"}},
		"B11_driver_memory_fraction": {argv: base("--driver-memory", "1.5g"), name: "spark.driver.memory", words: []string{"Driver memory must be"}},
		"r_with_jars":                {argv: append(base("--jars", "local:///x.jar")[:len(base())+1], "local:///a.R"), name: "--jars", words: []string{"R application"}},
		"packages_form":              {argv: base("--packages", "g:a:1,g:a"), name: "--packages", words: []string{"groupId:artifactId:version"}},
		"packages_blank_part":        {argv: base("-c", "spark.jars.packages=g: :1"), name: "spark.jars.packages", words: []string{"groupId:artifactId:version"}},
		"packages_trailing_colon":    {argv: base("--packages", "g:a:"), name: "--packages", words: []string{"groupId:artifactId:version"}},
		"excludes_form":              {argv: base("--packages", "g/a/1", "--exclude-packages", "g:b,g"), name: "--exclude-packages", words: []string{"groupId:artifactId'"}},
		"B11_driver_memory_gib_4.1":  {argv: base("--driver-memory", "1gib"), version: "4.1.0", name: "spark.driver.memory", words: []string{"Driver memory must be"}},
		"B11_driver_memory_blank":    {argv: base("--driver-memory", "2 g"), name: "spark.driver.memory", words: []string{"Driver memory must be"}},
		"B11_executor_memory":        {argv: base("--executor-memory", "0k"), name: "--executor-memory", words: []string{"Executor memory must be a positive number"}},
		"B11_executor_memory_conf":   {argv: base("-c", "spark.executor.memory=x"), name: "spark.executor.memory", words: []string{"Executor memory must be"}},
		"B15_cores_zero":             {argv: base("--driver-cores", "0"), name: "--driver-cores", words: []string{"Driver cores must be a positive number"}},
		"B15_cores_fraction":         {argv: base("--driver-cores", "1.5"), name: "--driver-cores", words: []string{"Driver cores must be"}},
		"B15_cores_blank":            {argv: base("--driver-cores", " 2"), name: "--driver-cores", words: []string{"Driver cores must be"}},
		"B15_executor_cores":         {argv: base("--executor-cores", "0"), name: "--executor-cores", words: []string{"Executor cores must be a positive number"}},
		"B17_num_executors_zero":     {argv: base("--num-executors", "0"), name: "--num-executors", words: []string{"Number of executors must be a positive number"}},
		"B17_dyn_not_true":           {argv: base("--num-executors", "0", "-c", "spark.dynamicAllocation.enabled=yes"), name: "--num-executors", words: []string{"Number of executors"}},
		"B19_executor_instances":     {argv: base("-c", "spark.executor.instances=abc"), name: "spark.executor.instances", words: []string{`"abc"`, "Number of executors must be"}},
		"B20_proxy_and_principal":    {argv: base("--proxy-user", "u", "--principal", "p"), name: "--proxy-user", words: []string{"Only one of --proxy-user or --principal"}},
		"B21_principal_from_conf":    {argv: base("--proxy-user", "u", "-c", "spark.kerberos.principal=p"), name: "--proxy-user", words: []string{"Only one of"}},
		"B21_principal_from_yarn":    {argv: base("--proxy-user", "u", "-c", "spark.yarn.principal=p"), name: "--proxy-user", words: []string{"Only one of"}},
		"proxy_user_empty":           {argv: base("--proxy-user", ""), name: "--proxy-user", words: []string{"no user"}},
		"B24_py_suffix_case":         {argv: with("local:///app.PY"), name: "--class", words: []string{"please specify one with --class"}},
		"B24_py_with_fragment":       {argv: with("local:///app.py#x"), name: "--class", words: []string{"--class"}},
		"B25_java_without_class":     {argv: with("local:///a.jar"), name: "--class", words: []string{"please specify one with --class"}},
		"B25_internal_without_class": {argv: with("spark-internal"), name: "--class", words: []string{"--class"}},
		"B33_jars_not_trimmed":       {argv: base("--jars", "local:///x.jar, local:///y.jar"), name: "--jars", words: []string{`" local:///y.jar"`, "spark.kubernetes.file.upload.path"}},
		"B37_local_file":             {argv: base("--files", "/etc/x,s3a://b/y"), name: "--files", words: []string{`"/etc/x" would`, "local://", "upload.path"}},
		"B37_local_archive":          {argv: base("-c", "spark.archives=e.tgz#env"), name: "spark.archives", words: []string{`"e.tgz#env"`}},
		"B37_local_py_file":          {argv: py("--py-files", "d.zip"), name: "--py-files", words: []string{`"d.zip"`}},
		"B37_local_jar_of_conf":      {argv: base("-c", "spark.jars=x.jar"), name: "spark.jars", words: []string{`"x.jar" would`}},
		"B37_local_primary":          {argv: with("--class", "C", "/a.jar"), name: "primary resource", words: []string{`"/a.jar" would`}},
		"B37_local_primary_py":       {argv: with("app.py"), name: "primary resource", words: []string{`"app.py"`}},
		"B37_file_primary":           {argv: with("--class", "C", "file:///a.jar"), name: "primary resource", words: []string{`"file:///a.jar"`}},
		"B37_all_named":              {argv: with("--class", "C", "--jars", "x.jar", "--files", "f", "/a.jar"), name: "primary resource", words: []string{`"/a.jar", "x.jar", "f" would`}},
		"B37_comma_in_primary":       {argv: with("--class", "C", "local:///a,b.jar"), name: "spark.jars", words: []string{`"b.jar" would`}},
		"B37_with_upload_path":       {argv: base("--files", "/etc/x", "-c", "spark.kubernetes.file.upload.path=s3a://b"), name: "--files", words: []string{"there is no upload here"}},
		"B38_brace_in_uri":           {argv: with("gs://b/{{APP_ID}}/x.py"), name: "primary resource", words: []string{"{{APP_ID}}"}},
		"B38_reference_in_list":      {argv: base("-c", "spark.jars=${spark.x}", "-c", "spark.x=local:///x.jar"), name: "spark.jars", words: []string{"${spark.x}"}},
		"B39_illegal_when_decoded":   {argv: base("--files", "s3a://b/a%5Bb"), name: "--files", words: []string{"not a URI any more"}},
		"B40_circular_in_fragment":   {argv: base("--jars", "s3a://b/e.jar#$%7Bspark.jars%7D"), name: "spark.jars", words: []string{"circular reference"}},
		"B40_circular_in_py_files":   {argv: py("--py-files", "s3a://b/e#$%7Bspark.submit.pyFiles%7D"), name: "spark.submit.pyFiles", words: []string{"circular reference"}},
		"B43_total_cores_invalid":    {argv: base("--total-executor-cores", "x"), name: "--total-executor-cores", words: []string{"Total executor cores must be a positive number"}},
		"B43_cores_max_invalid":      {argv: base("-c", "spark.cores.max=0"), name: "spark.cores.max", words: []string{"Total executor cores"}},
		"B51_master_rest_enabled":    {argv: base("-c", "spark.master.rest.enabled=x"), name: "spark.master.rest.enabled", words: []string{"true or false"}},
		"shell_resource":             {argv: with("pyspark-shell"), name: "pyspark-shell", words: []string{"not applicable to Spark shells"}},
		"client_context":             {argv: base("-c", "spark.kubernetes.context=c"), name: "spark.kubernetes.context", words: []string{"own connection"}},
		"client_credentials":         {argv: base("-c", "spark.kubernetes.authenticate.submission.caCertFile=/x"), name: "spark.kubernetes.authenticate.submission.caCertFile", words: []string{"own connection"}},
		"client_request_timeout":     {argv: base("-c", "spark.kubernetes.submission.requestTimeout=x"), name: "spark.kubernetes.submission.requestTimeout", words: []string{"int"}},
		"client_connection_timeout":  {argv: base("-c", "spark.kubernetes.submission.connectionTimeout=10s"), name: "spark.kubernetes.submission.connectionTimeout", words: []string{"int"}},
		"client_trust":               {argv: base("-c", "spark.kubernetes.trust.certificates=1"), name: "spark.kubernetes.trust.certificates", words: []string{"boolean"}},
		"client_wait":                {argv: base("-c", "spark.kubernetes.submission.waitAppCompletion=no"), name: "spark.kubernetes.submission.waitAppCompletion", words: []string{"boolean"}},
	})
}
