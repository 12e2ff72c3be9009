package driver

import (
	"encoding/base64"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"flint.dev/flint/pkg/spark/conf"
)

// credentials is org.apache.spark.deploy.k8s.features.DriverKubernetesCredentialsFeatureStep:
// the identity that the driver has at the API server, a service account or a token.
type credentials struct {
	*app
	// serviceAccount is the name of the account; hasServiceAccount tells an empty one, the namespace's default, from none.
	serviceAccount    string
	hasServiceAccount bool
	// token is the text of the OAuth token; hasToken tells an empty one from none.
	token    string
	hasToken bool
}

const (
	driverAuthPrefix  = "spark.kubernetes.authenticate.driver."
	serviceAccountKey = driverAuthPrefix + "serviceAccountName"
)

func newCredentials(a *app) (step, error) {
	for _, name := range []string{"clientKeyFile", "clientCertFile", "caCertFile"} {
		key := driverAuthPrefix + name
		if value, set := a.Conf[key]; set {
			return nil, conf.Refuse(key, value, "names a file of the submitter, which cannot be read here; put it into a Secret, mount it with spark.kubernetes.driver.secrets.NAME and give the path as %smounted.%s", driverAuthPrefix, name)
		}
	}
	s := &credentials{app: a}
	var err error
	if s.serviceAccount, s.hasServiceAccount, err = a.Conf.Text(serviceAccountKey); err != nil {
		return nil, err
	}
	s.token, s.hasToken = a.Conf[driverAuthPrefix+"oauthToken"]
	return s, nil
}

func (s *credentials) configure(d *draft) error {
	for key := range d.properties {
		if strings.HasSuffix(key, "oauthToken") {
			d.properties[key] = "<present_but_redacted>"
		}
	}
	if !s.hasToken {
		if s.hasServiceAccount {
			if problems := validation.IsDNS1123Subdomain(s.serviceAccount); s.serviceAccount != "" && len(problems) > 0 {
				return judge(serviceAccountKey, s.serviceAccount, "is not the name of a service account", problems)
			}
			d.spec()["serviceAccount"] = s.serviceAccount
			d.spec()["serviceAccountName"] = s.serviceAccount
		}
		return nil
	}
	const (
		directory = "/mnt/secrets/spark-kubernetes-credentials"
		file      = "oauth-token"
	)
	name := s.prefix + "-kubernetes-credentials"
	d.create("v1", "Secret", object{"name": name}, object{
		"immutable": true,
		"data":      object{file: base64.StdEncoding.EncodeToString([]byte(s.token))},
	})
	setIfMissing(d.properties, driverAuthPrefix+"mounted.oauthTokenFile", directory+"/"+file)
	return d.mount(fromSpark,
		object{"name": "kubernetes-credentials", "secret": object{"secretName": name}},
		object{"mountPath": directory})
}
