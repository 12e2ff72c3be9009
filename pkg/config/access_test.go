package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAccessDefaults(t *testing.T) {
	clearSettings(t)
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if s.Tokens || s.Audience != "flint" || s.ServiceAccounts != nil || s.TLS.Address != "" || s.TLS.ClientNames != nil {
		t.Errorf("settings = %+v", s)
	}
}

func TestAccessValues(t *testing.T) {
	clearSettings(t)
	for name, value := range map[string]string{
		"FLINT_AUTH": "token", "FLINT_AUDIENCE": "https://flint.example.com", "FLINT_SERVICE_ACCOUNTS": " spark, ,jobs.v1 ",
		"FLINT_TLS_ADDRESS": "[::]:8443", "FLINT_TLS_CERT": "/c", "FLINT_TLS_KEY": "/k", "FLINT_TLS_CLIENT_CA": "/a",
		"FLINT_TLS_CLIENT_NAMES": "gate.example.com, operator = system:serviceaccount:spark:operator ,https://example.com/?a=b=ann",
	} {
		t.Setenv(name, value)
	}
	s, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if !s.Tokens || s.Audience != "https://flint.example.com" {
		t.Errorf("settings = %+v", s)
	}
	if diff := cmp.Diff([]string{"spark", "jobs.v1"}, s.ServiceAccounts); diff != "" {
		t.Errorf("accounts (-want +got)\n%s", diff)
	}
	want := TLS{Address: "[::]:8443", CertFile: "/c", KeyFile: "/k", ClientCAFile: "/a", ClientNames: map[string]string{
		"gate.example.com": "", "operator": "system:serviceaccount:spark:operator", "https://example.com/?a=b": "ann",
	}}
	if diff := cmp.Diff(want, s.TLS); diff != "" {
		t.Errorf("TLS (-want +got)\n%s", diff)
	}
}

// What would be ignored in silence leaves a door open that was meant to be shut.
func TestAccessFaults(t *testing.T) {
	whole := map[string]string{"FLINT_TLS_ADDRESS": ":8443", "FLINT_TLS_CERT": "/c", "FLINT_TLS_KEY": "/k", "FLINT_TLS_CLIENT_CA": "/a"}
	for name, tc := range map[string]struct {
		set     map[string]string
		without []string // of whole; nil: none of whole is set
		says    string
	}{
		"a kind of identity that is none": {set: map[string]string{"FLINT_AUTH": "oidc"}, says: `FLINT_AUTH="oidc"`},
		"no kind of identity":             {set: map[string]string{"FLINT_AUTH": ""}, says: `FLINT_AUTH=""`},
		"a blank audience":                {set: map[string]string{"FLINT_AUDIENCE": " "}, says: `FLINT_AUDIENCE=" "`},
		"an account that is none":         {set: map[string]string{"FLINT_SERVICE_ACCOUNTS": "spark,Not_One"}, says: `FLINT_SERVICE_ACCOUNTS="Not_One"`},
		"no certificate":                  {without: []string{"FLINT_TLS_CERT"}, says: `FLINT_TLS_ADDRESS=":8443": needs FLINT_TLS_CERT`},
		"no key":                          {without: []string{"FLINT_TLS_KEY"}, says: `FLINT_TLS_CERT="/c": needs FLINT_TLS_KEY`},
		"no address":                      {without: []string{"FLINT_TLS_ADDRESS"}, says: `FLINT_TLS_CLIENT_CA="/a": needs FLINT_TLS_ADDRESS`},
		"names without authorities":       {without: []string{"FLINT_TLS_CLIENT_CA"}, set: map[string]string{"FLINT_TLS_CLIENT_NAMES": "a"}, says: `FLINT_TLS_CLIENT_NAMES="a": needs FLINT_TLS_CLIENT_CA`},
		"an address without a port":       {without: []string{}, set: map[string]string{"FLINT_TLS_ADDRESS": "8443"}, says: `FLINT_TLS_ADDRESS="8443": must be`},
		"names of nobody":                 {without: []string{}, set: map[string]string{"FLINT_TLS_CLIENT_NAMES": " , "}, says: "names nobody"},
		"a name without its user":         {without: []string{}, set: map[string]string{"FLINT_TLS_CLIENT_NAMES": "a,b="}, says: `FLINT_TLS_CLIENT_NAMES="b="`},
		"a user without a name":           {without: []string{}, set: map[string]string{"FLINT_TLS_CLIENT_NAMES": "=ann"}, says: `FLINT_TLS_CLIENT_NAMES="=ann"`},
		"one name for two users":          {without: []string{}, set: map[string]string{"FLINT_TLS_CLIENT_NAMES": "a=ann,a=bob"}, says: `FLINT_TLS_CLIENT_NAMES="a=bob"`},
	} {
		t.Run(name, func(t *testing.T) {
			clearSettings(t)
			if tc.without != nil {
				for name, value := range whole {
					if !strings.Contains(strings.Join(tc.without, ","), name) {
						t.Setenv(name, value)
					}
				}
			}
			for name, value := range tc.set {
				t.Setenv(name, value)
			}
			if s, err := Load(); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("settings %+v, error %v, want %q in it", s, err, tc.says)
			}
		})
	}
}
