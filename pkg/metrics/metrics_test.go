package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/completion"
)

// What others write (labels and annotations of workloads, statuses of a sink) makes no label of its own.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	m := New()
	for _, reason := range append(api.Reasons(), "canary") {
		m.Completed(completion.Subject{Kind: "canary"}, completion.Outcome{Outcome: "canary", Reason: reason})
	}
	for status := range 1000 {
		m.Attempted(status, 0)
	}
	m.Refused("canary", api.BadRequest)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	text := answer.Body.String()
	for _, want := range []string{
		`flint_completions_total{kind="other",outcome="other",reason="other"} 1`,
		`flint_completions_total{kind="other",outcome="other",reason="OOMKilled"} 1`,
		`flint_delivery_attempts_total{code="none"} 1`,
		`flint_delivery_attempts_total{code="other"} `,
		`flint_launches_total{code="BAD_REQUEST",kind="other"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(text, "canary") || strings.Count(text, "flint_delivery_attempts_total{") > 70 {
		t.Errorf("%d codes of delivery, or text of another's", strings.Count(text, "flint_delivery_attempts_total{"))
	}
}
