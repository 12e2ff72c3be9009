package function_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/pkg/launch"
	"flint.dev/flint/test/embedded"
)

// filePlaces are where an operation can carry a secret. Nothing of theirs is looked up elsewhere: the transfers fail.
var filePlaces = map[string]string{
	"text":                   `{"op":"write","path":"a","text":"CANARY"}`,
	"content":                `{"op":"write","path":"a","content":"BASE64"}`,
	"a source's token":       `{"op":"upload","path":"a","source":{"url":"https://host.invalid/f","size":1,"sha256":"DIGEST","token":"CANARY"}}`,
	"a source's URL":         `{"op":"upload","path":"a","source":{"url":"https://host.invalid/f?signature=CANARY","size":1,"sha256":"DIGEST"}}`,
	"a source's path":        `{"op":"upload","path":"a","source":{"url":"https://host.invalid/CANARY","size":1,"sha256":"DIGEST"}}`,
	"a private source":       `{"op":"upload","path":"a","source":{"url":"https://127.0.0.1/f?signature=CANARY","size":1,"sha256":"DIGEST"}}`,
	"a sink's token":         `{"op":"download","path":"there","sink":{"url":"https://host.invalid/f","token":"CANARY"}}`,
	"a sink's URL":           `{"op":"download","path":"there","sink":{"url":"https://host.invalid/f?signature=CANARY"}}`,
	"an operation of many":   `{"op":"batch","operations":[{"op":"mkdir","path":"d"},{"op":"write","path":"d/a","text":"CANARY"},{"op":"read","path":"none"}]}`,
	"a URL that is none":     `{"op":"upload","path":"a","source":{"url":"https://u:CANARY@host.invalid:port/","size":1,"sha256":"DIGEST"}}`,
	"a digest that is wrong": `{"op":"write","path":"a","text":"CANARY","sha256":"DIGEST"}`,
	"a field that is none":   `{"op":"write","path":"a","text":"CANARY","kontent":1}`,
	"a text too many":        `{"op":"write","path":"a","text":"CANARY","content":"BASE64"}`,
}

// TestCanaryOfFiles submits the secret in each of them, and looks for it in every answer, log line, event and metric, and in
// every object but the Secret.
func TestCanaryOfFiles(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString([]byte(canary))
	for name, operation := range filePlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newFileGround(t, nil)
			g.put(t, "there", []byte("something"))
			url, received := sink(t)
			i := g.serve(t, func(s *config.Settings) { s.Sink = url })
			clean := func(what, text string) {
				t.Helper()
				if strings.Contains(text, canary) || strings.Contains(text, encoded) {
					t.Errorf("%s has it: %s", what, text)
				}
			}
			operation := strings.NewReplacer("CANARY", canary, "BASE64", encoded, "DIGEST", strings.Repeat("0", 64)).Replace(operation)
			body := operationBody("one", operation, `"wait_seconds":20`)
			for _, mode := range []string{"client", "All"} {
				clean("a dry run", string(i.file(t, http.MethodPost, api.FilePath+"?dryRun="+mode, body).body))
			}
			answer := i.file(t, http.MethodPost, api.FilePath, body)
			clean("the answer", string(answer.body))
			clean("the repeat", string(i.file(t, http.MethodPost, api.FilePath, body).body))
			clean("a conflict", string(i.operate(t, "one", strings.Replace(operation, `"path":"a"`, `"path":"b"`, 1)).body))
			clean("a broken body", string(i.file(t, http.MethodPost, api.FilePath, strings.TrimSuffix(body, "}")).body))
			clean("an event", i.do(t, http.MethodPost, "/", operationBody("two", operation), binaryEvent("1", api.FileEventType)...).body)
			id := launch.ID("default", "one")
			for what, path := range map[string]string{
				"the job": api.FilePath + "/default/" + id, "the jobs": api.FilePath + "?namespace=default&claim=data", "the launch": launchPath("one"),
				"the launches": api.LaunchesPath, "the log of the pod": launchPath("one") + "/log", "the metrics": api.MetricsPath,
			} {
				clean(what, i.do(t, http.MethodGet, path, "").body)
			}
			if len(g.cluster.Objects(embedded.Jobs)) > 0 { // it was not refused at the door
				i.event(t, pingType, "")
				clean("the completion event", string(next(t, received).Data()))
			}
			clean("the cancel", i.do(t, http.MethodDelete, launchPath("one"), "").body)
			for _, object := range g.cluster.Objects() {
				if object.GetKind() == "Secret" {
					continue
				}
				text, err := object.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				clean(object.GetKind(), string(text))
			}
			clean("the log", strings.Join(i.log.all(), "\n"))
		})
	}
}
