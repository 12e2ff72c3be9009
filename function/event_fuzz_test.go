package function_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flint.dev/flint/function"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/embedded"
)

// Whatever comes as an event: success has no body or is an event, a refusal has a short one that
// says why, and no answer is one that a Broker takes otherwise than it is meant.
func FuzzEvents(f *testing.F) {
	cluster, err := embedded.Start(embedded.Options{Idle: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(cluster.Close)
	chosen := settings(f)
	chosen.EventReply = true
	flint := function.New(function.WithSettings(chosen), function.WithCluster(cluster.Config()), function.WithLog(slog.New(slog.DiscardHandler)))
	if err := flint.Start(f.Context(), nil); err != nil {
		f.Fatal(err)
	}
	const structured = "application/cloudevents+json"
	f.Add("application/json", "1.0", "1", "/t", api.SubmitEventType, "", "reply", submission("s"))
	f.Add("application/json", "1.0", "1", "/t", api.SubmitEventType, "k", "", submission("s"))
	f.Add("application/json", "1.0", "1", "/t", pingType, "", "reply", "")
	f.Add("application/json", "0.3", "1", "/t", "dev.knative.apiserver.ref.update", "", "", `{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"p"}`)
	f.Add(structured, "", "", "", "", "", "reply", `{"specversion":"1.0","id":"s","source":"/t","type":"`+api.SubmitEventType+`","data":`+submission("t")+`}`)
	f.Add(structured, "", "", "", "", "", "", `{"specversion":"1.0","id":"s","source":"/t","type":"`+api.SubmitEventType+`","idempotencykey":1e9,"data_base64":"e30="}`)
	f.Add("application/cloudevents-batch+json", "", "", "", "", "", "", "[]")
	f.Fuzz(func(t *testing.T, media, version, id, source, kind, key, prefer, body string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		for name, value := range map[string]string{
			"Content-Type": media, "Ce-Specversion": version, "Ce-Id": id, "Ce-Source": source, "Ce-Type": kind, "Ce-Idempotencykey": key, "Prefer": prefer,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		// Without any mark of an event it is a plain request.
		event := strings.HasPrefix(strings.ToLower(media), "application/cloudevents") || version+id+source+kind+key != ""
		answer := httptest.NewRecorder()
		flint.Handle(answer, r)
		text := answer.Body.Bytes()
		got := brokerVerdict(answer.Code, answer.Result().Header, text)
		if answer.Code < 300 {
			if got != delivered {
				t.Errorf("HTTP %d is %s: %s", answer.Code, got, text)
			}
			return
		}
		var refusal api.ErrorBody
		if err := json.Unmarshal(text, &refusal); err != nil || refusal.Message == "" || refusal.Status != answer.Code {
			t.Errorf("HTTP %d, %v: %s", answer.Code, err, text)
		}
		if final := !(&api.Error{Code: refusal.ErrorCode}).Retryable(); event && (len(text) > 700 || final != (got == deadLettered)) {
			t.Errorf("HTTP %d with %s is %s, %d bytes", answer.Code, refusal.ErrorCode, got, len(text))
		}
	})
}
