package events

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestOverrides(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want map[string]string
		err  string // in the error, empty for none
	}{
		"empty":            {text: ""},
		"blank":            {text: " \n"},
		"null":             {text: "null"},
		"no extensions":    {text: "{}"},
		"null extensions":  {text: `{"extensions":null}`},
		"none":             {text: `{"extensions":{}}`},
		"two":              {text: `{"extensions":{"cluster":"eu1","team9":""}}`, want: map[string]string{"cluster": "eu1", "team9": ""}},
		"unicode value":    {text: `{"extensions":{"city":"Zürich"}}`, want: map[string]string{"city": "Zürich"}},
		"later fields":     {text: `{"extensions":{"a":"b"},"subject":"x"}`, want: map[string]string{"a": "b"}},
		"not JSON":         {text: "{", err: "is not JSON"},
		"two documents":    {text: "{}{}", err: "is not JSON"},
		"a list":           {text: "[]", err: "is not JSON"},
		"a number":         {text: `{"extensions":{"a":1}}`, err: "is not JSON"},
		"upper case":       {text: `{"extensions":{"Team":"x"}}`, err: `extension "Team" is not a name`},
		"a dash":           {text: `{"extensions":{"my-team":"x"}}`, err: `extension "my-team" is not a name`},
		"empty name":       {text: `{"extensions":{"":"x"}}`, err: `extension "" is not a name`},
		"the id":           {text: `{"extensions":{"id":"x"}}`, err: `extension "id" is an attribute`},
		"the data":         {text: `{"extensions":{"data":"x"}}`, err: `extension "data" is an attribute`},
		"a line break":     {text: `{"extensions":{"a":"x\r\ny"}}`, err: `extension "a" has a value with control`},
		"all at once":      {text: `{"extensions":{"type":"x","b-":"y"}}`, err: "extension \"b-\" is not a name of lower-case letters and digits\nextension \"type\" is"},
		"case of the word": {text: `{"Extensions":{"a":"b"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseOverrides(tc.text)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("parseOverrides() = %v, want %q in the error", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("parseOverrides() = %v", err)
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("extensions (-want +got)\n%s", diff)
			}
		})
	}
}

// What New accepts, every event can carry: the event stays valid, and each extension reaches its header.
func FuzzOverrides(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{}", "{", `{"extensions":{"cluster":"eu1"}}`, `{"extensions":{"a":"\u0000"}}`, `{"extensions":{"A":"b"}}`,
		`{"extensions":{"id":"x"}}`, `{"extensions":{"a":"Zürich ","b":"\ud800"}}`, `{"extensions":{"a":"x","a":"y"}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		extensions, err := parseOverrides(text)
		if err != nil {
			return
		}
		e := completion(t)
		for name, value := range extensions {
			e.SetExtension(name, value)
		}
		if err := check(t.Context(), &e); err != nil {
			t.Fatalf("the event with %q is refused: %v", text, err)
		}
		request := &http.Request{Header: http.Header{}}
		if err := cehttp.WriteRequest(binding.WithForceBinary(t.Context()), binding.ToMessage(&e), request); err != nil {
			t.Fatal(err)
		}
		for name, value := range extensions {
			if got := request.Header.Get("ce-" + name); got != value {
				t.Errorf("header of %q = %q, want %q", name, got, value)
			}
		}
		again, err := json.Marshal(overrides{extensions})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseOverrides(string(again)); err != nil || !cmp.Equal(got, extensions, cmpopts.EquateEmpty()) {
			t.Errorf("parsed again = %v, %v, want %v", got, err, extensions)
		}
	})
}
