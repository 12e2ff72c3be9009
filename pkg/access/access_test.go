package access

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

func TestAccount(t *testing.T) {
	pod := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "spec": spec}}
	}
	job := func(spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": "Job", "spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	}
	cases := map[string]struct {
		accounts []string
		workload *unstructured.Unstructured
		refused  string
	}{
		"any":                   {nil, pod(map[string]any{"serviceAccountName": "admin"}), ""},
		"listed":                {[]string{"spark", "other"}, pod(map[string]any{"serviceAccountName": "spark"}), ""},
		"not listed":            {[]string{"spark"}, pod(map[string]any{"serviceAccountName": "admin"}), "admin"},
		"none is default":       {[]string{"spark"}, pod(map[string]any{}), "default"},
		"default is listed":     {[]string{"default"}, pod(map[string]any{"serviceAccountName": ""}), ""},
		"by its older name":     {[]string{"spark"}, pod(map[string]any{"serviceAccount": "admin"}), "admin"},
		"the newer name counts": {[]string{"spark"}, pod(map[string]any{"serviceAccountName": "spark", "serviceAccount": "admin"}), ""},
		"no spec at all":        {[]string{"spark"}, &unstructured.Unstructured{Object: map[string]any{"kind": "Pod"}}, "default"},
		"a job's pods":          {[]string{"spark"}, job(map[string]any{"serviceAccountName": "admin"}), "admin"},
		"a job's pods, listed":  {[]string{"spark"}, job(map[string]any{"serviceAccountName": "spark"}), ""},
		"a job's own spec":      {[]string{"spark"}, &unstructured.Unstructured{Object: map[string]any{"kind": "Job", "spec": map[string]any{"serviceAccountName": "spark"}}}, "default"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := Policy{ServiceAccounts: tc.accounts}.Account(tc.workload)
			if tc.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Code != api.Forbidden || !strings.Contains(refused.Message, `"`+tc.refused+`"`) {
				t.Errorf("error %v", err)
			}
		})
	}
}
