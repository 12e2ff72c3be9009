package conf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"flint.dev/flint/pkg/spark/conf"
)

func TestText(t *testing.T) {
	cases := map[string]struct {
		conf   conf.Conf
		want   string
		reason string
	}{
		"plain":                           {conf: conf.Conf{key: " a$b "}, want: " a$b "},
		"empty":                           {conf: conf.Conf{key: ""}, want: ""},
		"B46_substitution_typed":          {conf: conf.Conf{key: "<${spark.x}>", "spark.x": "img:9"}, want: "<img:9>"},
		"two":                             {conf: conf.Conf{key: "${spark.x}${spark.y}", "spark.x": "1", "spark.y": "2"}, want: "12"},
		"twice the same":                  {conf: conf.Conf{key: "${spark.x}${spark.x}", "spark.x": "${spark.y}", "spark.y": "1"}, want: "11"},
		"recursion":                       {conf: conf.Conf{key: "${spark.x}", "spark.x": "a${spark.y}c", "spark.y": "b"}, want: "abc"},
		"result not rescaned":             {conf: conf.Conf{key: "$${spark.x}", "spark.x": "{spark.x}"}, want: "${spark.x}"},
		"unset":                           {conf: conf.Conf{key: "${spark.nothing}"}, want: "${spark.nothing}"},
		"foreign key":                     {conf: conf.Conf{key: "${other}", "other": "1"}, want: "${other}"},
		"default":                         {conf: conf.Conf{key: "${spark.driver.memory}"}, want: "1g"},
		"default overridden":              {conf: conf.Conf{key: "${spark.driver.memory}", "spark.driver.memory": "2g"}, want: "2g"},
		"fallback":                        {conf: conf.Conf{key: "${spark.kubernetes.driver.container.image}", "spark.kubernetes.container.image": "i"}, want: "i"},
		"B47_substitution_env_not_leaked": {conf: conf.Conf{key: "${env:PATH}", "spark.PATH": "x"}, want: "${env:PATH}"},
		"system":                          {conf: conf.Conf{key: "${system:user.name}"}, want: "${system:user.name}"},
		"env of spark key":                {conf: conf.Conf{key: "${env:spark.x}", "spark.x": "1"}, want: "${env:spark.x}"},
		"empty name":                      {conf: conf.Conf{key: "${}"}, want: "${}"},
		"blank in name":                   {conf: conf.Conf{key: "${spark. x}", "spark. x": "1"}, want: "${spark. x}"},
		"vertical tab":                    {conf: conf.Conf{key: "${spark.\vx}", "spark.\vx": "1"}, want: "${spark.\vx}"},
		"open":                            {conf: conf.Conf{key: "${spark.x", "spark.x": "1"}, want: "${spark.x"},
		"colon in name":                   {conf: conf.Conf{key: "${spark.a:b}", "spark.a:b": "1"}, want: "1"},
		"itself":                          {conf: conf.Conf{key: "${" + key + "}"}, reason: "circular reference in " + key + ": ${" + key + "}"},
		"B48_substitution_cycle":          {conf: conf.Conf{key: "${spark.a}", "spark.a": "${spark.b}", "spark.b": "${spark.a}"}, reason: "circular reference in spark.b: ${spark.a}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, set, err := tc.conf.Text(key)
			checkReason(t, err, key, tc.reason)
			if got != tc.want || !set {
				t.Errorf("got %q, set %t, want %q", got, set, tc.want)
			}
		})
	}
	t.Run("absent", func(t *testing.T) {
		if got, set, err := (conf.Conf{}).Text(key); got != "" || set || err != nil {
			t.Errorf("got %q, %t, %v", got, set, err)
		}
	})
}

func TestTextKeepsTheConf(t *testing.T) {
	c := conf.Conf{key: "${spark.x}", "spark.x": "1"}
	if _, _, err := c.Text(key); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(conf.Conf{key: "${spark.x}", "spark.x": "1"}, c); diff != "" {
		t.Errorf("a typed read changed the conf (-want,+got):\n%s", diff)
	}
}

func TestTextIsBounded(t *testing.T) {
	for name, leaf := range map[string]string{"long": strings.Repeat("x", 100), "empty": ""} {
		t.Run(name, func(t *testing.T) {
			c := conf.Conf{key: "${spark.0}", "spark.40": leaf}
			for i := range 40 {
				next := fmt.Sprintf("${spark.%d}", i+1)
				c[fmt.Sprintf("spark.%d", i)] = next + next
			}
			_, _, err := c.Text(key)
			checkReason(t, err, key, "expand to more than 1048576 bytes")
		})
	}
}
