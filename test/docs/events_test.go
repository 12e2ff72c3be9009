package docs

import (
	"encoding/json"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/events"
)

// docs/events.md has each type, each reason, and each field of what Flint sends.
func TestEvents(t *testing.T) {
	text := page(t, "docs/events.md")
	want := []string{"`" + api.SubmitEventType + "`", "`" + api.AcceptedEventType + "`", "`dev.flint.{spark,file,runner}.{succeeded,failed}.v1`", events.BundleDir, events.TokenFile}
	for _, reason := range api.Reasons() {
		want = append(want, "| `"+string(reason)+"` |")
	}
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(api.CompletionSchema, &schema); err != nil || len(schema.Properties) < 10 {
		t.Fatalf("%d fields, %v", len(schema.Properties), err)
	}
	for field := range schema.Properties {
		want = append(want, "`"+field+"`")
	}
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("docs/events.md lacks %s", part)
		}
	}
}

// docs/api.md has each metric.
func TestMetrics(t *testing.T) {
	text := page(t, "docs/api.md")
	source := page(t, "pkg/metrics/metrics.go")
	found := 0
	for part := range strings.SplitSeq(source, `"`) {
		if strings.HasPrefix(part, "flint_") {
			found++
			if !strings.Contains(text, "| `"+part+"` |") {
				t.Errorf("docs/api.md lacks %s", part)
			}
		}
	}
	if found < 8 {
		t.Errorf("%d metrics found in the code", found)
	}
}
