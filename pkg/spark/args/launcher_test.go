package args_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"flint.dev/flint/pkg/spark/args"
	"flint.dev/flint/pkg/spark/conf"
)

func TestLauncherAccepts(t *testing.T) {
	appArgs := java(nil)
	appArgs.AppArgs = []string{"--conf", "spark.x=1", "", "a b", "$(HOME)"}
	emptyKey := java(nil)
	emptyKey.Warnings = []string{"Ignoring non-Spark config property: "}
	testAccepted(t, map[string]accepted{
		"A01_eq_form_first_equals":        {base("--conf=spark.x=a=b"), java(conf.Conf{"spark.x": "a=b"})},
		"A02_short_conf_alias":            {base("-c", "spark.x=1"), java(conf.Conf{"spark.x": "1"})},
		"A05_option_value_like_option":    {base("--name", "--verbose"), java(conf.Conf{"spark.app.name": "--verbose"})},
		"A05_option_value_like_master":    {base("--name", "--master"), java(conf.Conf{"spark.app.name": "--master"})},
		"A08_switch_swallows_value":       {base("--supervise=false", "--verbose=no"), java(nil)},
		"A08_short_switch":                {base("-v"), java(nil)},
		"A14_conf_empty_key":              {base("--conf", "=v"), emptyKey},
		"A15_conf_empty_value":            {base("--conf", "spark.x="), java(conf.Conf{"spark.x": ""})},
		"A16_conf_last_wins":              {base("--conf", "spark.x=1", "--conf", "spark.x=2"), java(conf.Conf{"spark.x": "2"})},
		"A17_folded_order_1":              {base("--driver-memory", "2g", "-c", "spark.driver.memory=3g"), java(conf.Conf{"spark.driver.memory": "3g"})},
		"A18_folded_order_2":              {base("-c", "spark.driver.memory=3g", "--driver-memory", "2g"), java(conf.Conf{"spark.driver.memory": "2g"})},
		"A19_unfolded_beats_conf_1":       {base("--executor-memory", "2g", "-c", "spark.executor.memory=3g"), java(conf.Conf{"spark.executor.memory": "2g"})},
		"A19_unfolded_beats_conf_2":       {base("-c", "spark.executor.memory=3g", "--executor-memory", "2g"), java(conf.Conf{"spark.executor.memory": "2g"})},
		"A20_app_args_verbatim":           {append(base(), "--conf", "spark.x=1", "", "a b", "$(HOME)"), appArgs},
		"A24_value_with_newline_2_tokens": {base("--name", "a\nb"), java(conf.Conf{"spark.app.name": "a\nb"})},
		"A26_xmx_inside_token": {
			base("-c", "spark.driver.extraJavaOptions=-DnoXmxHere=1"),
			java(conf.Conf{"spark.driver.extraJavaOptions": "-DnoXmxHere=1"}),
		},
		"A28_xmx_in_executor_options": {
			base("-c", "spark.executor.extraJavaOptions=-Xmx1g"),
			java(conf.Conf{"spark.executor.extraJavaOptions": "-Xmx1g"}),
		},
		"A31_repeated_list_option": {
			base("--jars", "local:///x.jar", "--jars", "local:///y.jar"),
			java(conf.Conf{"spark.jars": "local:///y.jar,local:///a.jar"}),
		},
		"folded_options": {
			base("--driver-class-path", "/cp", "--driver-java-options", "-Da=b", "--driver-library-path", "/lib", "--driver-default-class-path", "/d"),
			java(conf.Conf{
				"spark.driver.extraClassPath": "/cp", "spark.driver.extraJavaOptions": "-Da=b",
				"spark.driver.extraLibraryPath": "/lib", "spark.driver.defaultExtraClassPath": "/d",
			}),
		},
		"conf_value_with_commas": {
			base("-c", "spark.kubernetes.driver.annotation.a=b=c,d"),
			java(conf.Conf{"spark.kubernetes.driver.annotation.a": "b=c,d"}),
		},
		"xmx_as_quoted_text": {
			base("--driver-java-options", `"-Da=x -Xmx2g" -Db='\'`),
			java(conf.Conf{"spark.driver.extraJavaOptions": `"-Da=x -Xmx2g" -Db='\'`}),
		},
		"no_break_space_does_not_split": {
			base("--driver-java-options", "-Da=x\u00a0-Xmx2g"),
			java(conf.Conf{"spark.driver.extraJavaOptions": "-Da=x\u00a0-Xmx2g"}),
		},
	})
}

func TestLauncherRefuses(t *testing.T) {
	testRefused(t, map[string]refused{
		"A03_short_conf_eq_form":        {argv: base("-c=spark.x=1"), name: "-c=spark.x=1", words: []string{"Unrecognized option"}},
		"A04_empty_eq_value":            {argv: base("--name="), name: "--name=", words: []string{"Unrecognized option"}},
		"A06_missing_value_at_end":      {argv: with("--name"), name: "--name", words: []string{"Missing argument for option '--name'."}},
		"A07_missing_value_alias_text":  {argv: with("-c"), name: "-c", words: []string{"Missing argument for option '-c'."}},
		"A09_unknown_option":            {argv: base("--foo", "bar"), name: "--foo", words: []string{"Unrecognized option"}},
		"A09_unknown_option_eq":         {argv: base("--foo=1"), name: "--foo", words: []string{"Unrecognized option"}},
		"A10_single_dash_unknown":       {argv: base("-x"), name: "-x", words: []string{"Unrecognized option"}},
		"A11_bare_double_dash":          {argv: base("--"), name: "--", words: []string{"Unrecognized option"}},
		"A11_double_dash_eq":            {argv: base("--=x"), name: "--=x", words: []string{"Unrecognized option"}},
		"A12_conf_without_eq":           {argv: base("--conf", "spark.x"), name: "--conf", words: []string{"Invalid argument to --conf", `"spark.x"`}},
		"A12_conf_without_eq_alias":     {argv: base("-c", "spark.x"), name: "-c", words: []string{"Invalid argument to --conf"}},
		"A13_conf_one_token":            {argv: base("--conf spark.a=b"), name: "--conf spark.a", words: []string{"Unrecognized option"}},
		"A21_resource_missing":          {argv: with("--class", "C"), words: []string{"Missing application resource."}},
		"A22_no_arguments":              {words: []string{"usage"}},
		"A23_newline_eq_form":           {argv: base("--name=a\nb"), name: "--name=a\nb", words: []string{"Unrecognized option"}},
		"A23_line_separator_eq_form":    {argv: base("--name=a\u2028b"), name: "--name=a\u2028b", words: []string{"Unrecognized option"}},
		"A25_xmx_in_driver_options":     {argv: base("--driver-java-options", "-Dx=1 -Xmx2g"), name: "spark.driver.extraJavaOptions", words: []string{"max heap", "-Xmx2g", "--driver-memory"}},
		"A25_xmx_in_quotes":             {argv: base("--driver-java-options", `-Dx=1 "-X"mx2g`), name: "spark.driver.extraJavaOptions", words: []string{"max heap"}},
		"A25_xmx_escaped":               {argv: base("--driver-java-options", "\t\\-Xmx2g"), name: "spark.driver.extraJavaOptions", words: []string{"max heap"}},
		"A25_separator_splits":          {argv: base("--driver-java-options", "a\x1c-Xmx2g"), name: "spark.driver.extraJavaOptions", words: []string{"max heap"}},
		"A26_xmx_inside_token_3.5":      {argv: base("-c", "spark.driver.extraJavaOptions=-DnoXmxHere=1"), version: "3.5.6", name: "spark.driver.extraJavaOptions", words: []string{"max heap"}},
		"A27_xmx_in_default_options":    {argv: base("-c", "spark.driver.defaultJavaOptions=-Xmx1g"), name: "spark.driver.defaultJavaOptions", words: []string{"max heap"}},
		"open_quote":                    {argv: base("--driver-java-options", `-Da="x`), name: "spark.driver.extraJavaOptions", words: []string{"Invalid option string"}},
		"open_backslash":                {argv: base("--driver-java-options", `-Da=x\`), name: "spark.driver.extraJavaOptions", words: []string{"Invalid option string"}},
		"A29_repl":                      {argv: base("--class", "org.apache.spark.repl.Main"), name: "--class", words: []string{"not applicable to Spark shells"}},
		"A29_connect_repl":              {argv: base("--class", "org.apache.spark.sql.application.ConnectRepl"), name: "--class", words: []string{"not applicable to Spark shells"}},
		"A29_sql":                       {argv: base("--class", "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver"), name: "--class", words: []string{"not applicable to Spark SQL shell"}},
		"A29_thrift":                    {argv: base("--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"), name: "--class", words: []string{"not applicable to Spark Thrift server"}},
		"A29_connect_server":            {argv: base("--class=org.apache.spark.sql.connect.service.SparkConnectServer"), name: "--class", words: []string{"only for YARN"}},
		"A30_kill":                      {argv: []string{"--kill", "ns:p"}, name: "--kill", words: []string{"not a submission"}},
		"A30_status":                    {argv: []string{"--status", "ns:p"}, name: "--status", words: []string{"not a submission"}},
		"A30_version":                   {argv: []string{"--version"}, name: "--version", words: []string{"not a submission"}},
		"A30_help":                      {argv: []string{"-h"}, name: "-h", words: []string{"not a submission"}},
		"A30_usage_error":               {argv: []string{"--usage-error"}, name: "--usage-error", words: []string{"not a submission"}},
		"A32_empty_string_resource":     {argv: with("--class", "C", ""), name: "primary resource", words: []string{`""`, "spark.kubernetes.file.upload.path"}},
		"B49_properties_file":           {argv: base("--properties-file", "f"), name: "--properties-file", words: []string{"--conf"}},
		"B49_extra_properties_file":     {argv: base("--extra-properties-file", "f"), name: "--extra-properties-file", words: []string{"--conf"}},
		"B49_load_spark_defaults":       {argv: base("--load-spark-defaults"), name: "--load-spark-defaults", words: []string{"--conf"}},
		"extra_properties_file_4.1":     {argv: base("--extra-properties-file", "f"), version: "4.1.0", name: "--extra-properties-file", words: []string{"Unrecognized option"}},
		"load_spark_defaults_3.5":       {argv: base("--load-spark-defaults"), version: "3.5.6", name: "--load-spark-defaults", words: []string{"Unrecognized option"}},
		"driver_default_class_path_3.5": {argv: base("--driver-default-class-path", "x"), version: "3.5.6", name: "--driver-default-class-path", words: []string{"Unrecognized option"}},
		"mode_pyspark":                  {argv: []string{"pyspark-shell-main"}, name: "pyspark-shell-main", words: []string{"shell"}},
		"mode_sparkr":                   {argv: []string{"sparkr-shell-main"}, name: "sparkr-shell-main", words: []string{"shell"}},
		"mode_run_example":              {argv: []string{"run-example", "SparkPi"}, name: "run-example", words: []string{"example"}},
	})
}

// TestMessagesHoldNoSecret mistypes options and java options that carry a password.
func TestMessagesHoldNoSecret(t *testing.T) {
	cases := map[string][]string{
		"conf_without_eq":   base("--conf", "spark.x.password:hunter2"),
		"short_eq_form":     base("-c=spark.x.password=hunter2"),
		"java_property":     base("-Dsecret=hunter2"),
		"java_options":      base("--driver-java-options", "-Dtoken=hunter2 -Xmx2g"),
		"java_options_open": base("--driver-java-options", `-Dtoken="hunter2`),
		"submission_token":  base("-c", "spark.kubernetes.authenticate.submission.oauthToken=hunter2"),
	}
	for name, argv := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := args.Parse(argv, mustVersion(t, "4.2.0"))
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("java_options_3.5", func(t *testing.T) {
		_, err := args.Parse(base("--driver-java-options", "-Dtoken=hunter2 -Xmx2g"), mustVersion(t, "3.5.6"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v", err)
		}
	})
}

func TestOldLauncherReadsTheSame(t *testing.T) {
	got, err := args.Parse(base("--driver-java-options", `-Da="x`), mustVersion(t, "3.5.6"))
	if err != nil {
		t.Fatal(err)
	}
	// 3.5 does not split the options, so an open quote does not matter.
	want := java(conf.Conf{"spark.driver.extraJavaOptions": `-Da="x`})
	if diff := cmp.Diff(&want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}
