package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/pkg/redact"
	"flint.dev/flint/pkg/spark"
	"flint.dev/flint/pkg/spark/version"
)

// render prints the objects of a submission as one List, workload first. A
// request that is refused gives the JSON error that a server would answer, on
// standard error, and exit code 1.
func render(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("render", flag.ContinueOnError)
	sparkVersion := flags.String("spark-version", "", "Spark release to follow when the request names none; default: FLINT_SPARK_VERSION")
	help := func(w io.Writer) {
		fmt.Fprint(w, "usage: flint render [--spark-version V] < request.json\n\n"+
			"Prints what the body of POST /api/v1/spark-submit on standard input would create, as one JSON List, without values that may be secret.\n\n")
		flags.SetOutput(w)
		flags.PrintDefaults()
	}
	if done, code := parse(flags, args, help, stdout, stderr); done {
		return code
	}
	settings, err := config.Load()
	if err != nil {
		fmt.Fprintln(stderr, "flint render:", err)
		return 1
	}
	defaults := spark.Defaults{Version: settings.SparkVersion, User: settings.SparkUser}
	if *sparkVersion != "" {
		if defaults.Version, err = version.Parse(*sparkVersion); err != nil {
			fmt.Fprintln(stderr, "flint render: --spark-version:", err)
			return 2
		}
	}
	body, err := io.ReadAll(io.LimitReader(stdin, settings.MaxBodyBytes+1))
	if err != nil {
		fmt.Fprintln(stderr, "flint render: read standard input:", err)
		return 1
	}
	list, submissionID, err := renderList(body, settings.MaxBodyBytes, defaults)
	if err != nil {
		var refused *api.Error
		if !errors.As(err, &refused) {
			fmt.Fprintln(stderr, "flint render:", err)
			return 1
		}
		_, _ = stderr.Write(refused.Body(refused.Status(), submissionID, time.Now()))
		return 1
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(list); err != nil {
		fmt.Fprintln(stderr, "flint render:", err)
		return 1
	}
	return 0
}

func renderList(body []byte, limit int64, defaults spark.Defaults) (list map[string]any, submissionID string, err error) {
	if int64(len(body)) > limit {
		return nil, "", api.Errorf(api.PayloadTooLarge, "the request has more than %d bytes", limit)
	}
	request, err := api.DecodeSubmit(body, "")
	if err != nil {
		return nil, request.SubmissionID, err
	}
	submission, err := spark.Plan(request, defaults, "", time.Now())
	if err != nil {
		return nil, request.SubmissionID, err
	}
	return launch.List(redact.Objects(launch.Render(submission.Plan), submission.Redaction)), request.SubmissionID, nil
}
