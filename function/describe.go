package function

import (
	"net/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/launch"
)

// looking is the kind of what is no launch, in the log: an event that asks for a look at what has ended.
const looking launch.Kind = "look"

// openAPI answers with the description of every call. It needs no Start.
func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(api.OpenAPI)
}

// metrics answers with what this instance has counted, until its end.
func (f *Function) metrics(w http.ResponseWriter, r *http.Request) {
	run := f.running.Load()
	if run == nil {
		f.answerError(w, "", overloaded("this instance is starting"))
		return
	}
	run.metrics.Handler().ServeHTTP(w, r)
}

// countRefusal counts what was asked to launch and was refused.
func (f *Function) countRefusal(kind launch.Kind, e *api.Error) {
	if run := f.running.Load(); run != nil && kind != looking {
		run.metrics.Refused(kind, e.Code)
	}
}
