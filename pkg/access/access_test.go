package access

import (
	"errors"
	"strings"
	"testing"

	"flint.dev/flint/pkg/api"
)

func TestNamespace(t *testing.T) {
	cases := map[string]struct {
		namespaces []string
		namespace  string
		allowed    bool
	}{
		"listed":           {[]string{"a", "b"}, "b", true},
		"not listed":       {[]string{"a", "b"}, "c", false},
		"a prefix":         {[]string{"jobs"}, "job", false},
		"everywhere":       {[]string{"*"}, "c", true},
		"none":             {nil, "default", false},
		"the star as name": {[]string{"a"}, "*", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Policy{Namespaces: tc.namespaces}.Namespace(tc.namespace)
			if tc.allowed {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != api.Forbidden || !strings.Contains(refused.Message, tc.namespace) {
				t.Errorf("error %v", err)
			}
		})
	}
}
