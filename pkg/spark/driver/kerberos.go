package driver

import (
	"strings"

	"flint.dev/flint/pkg/spark/conf"
)

// kerberosConf is org.apache.spark.deploy.k8s.features.KerberosConfDriverFeatureStep, as
// far as it needs no file and no login of the submitter: a krb5.conf in a ConfigMap, delegation
// tokens in a Secret, a keytab in the image.
type kerberosConf struct {
	*app
	// krb5 names the ConfigMap with krb5.conf; empty if there is none.
	krb5 string
	// tokenSecret and tokenKey name the Secret with delegation tokens and the key in it; empty if there is none.
	tokenSecret, tokenKey string
}

func newKerberosConf(a *app) (step, error) {
	const (
		prefix       = "spark.kubernetes.kerberos."
		pathKey      = prefix + "krb5.path"
		configMapKey = prefix + "krb5.configMapName"
		nameKey      = prefix + "tokenSecret.name"
		itemKey      = prefix + "tokenSecret.itemKey"
		keytabKey    = "spark.kerberos.keytab"
		principalKey = "spark.kerberos.principal"
	)
	if path, set := a.Conf[pathKey]; set {
		return nil, conf.Refuse(pathKey, path, "names a file of the submitter, which cannot be read here; put it into a ConfigMap under the key krb5.conf and name that with %s. Do not specify both.", configMapKey)
	}
	s := &kerberosConf{app: a}
	var err error
	if s.krb5, err = a.objectName(configMapKey); err != nil {
		return nil, err
	}
	keytab, hasKeytab, err := a.textOr(keytabKey, "spark.yarn.keytab")
	if err != nil {
		return nil, err
	}
	_, hasPrincipal, err := a.textOr(principalKey, "spark.yarn.principal")
	if err != nil {
		return nil, err
	}
	if err := paired(keytabKey, hasKeytab, principalKey, hasPrincipal); err != nil {
		return nil, err
	}
	if hasKeytab && !strings.HasPrefix(keytab, "local:") {
		return nil, conf.Refuse(keytabKey, keytab, "names a file of the submitter, which cannot be read here; mount it into the driver and give its path as a local: URI")
	}
	var hasName, hasItem bool
	if s.tokenSecret, hasName, err = a.Conf.Text(nameKey); err != nil {
		return nil, err
	}
	if s.tokenKey, hasItem, err = a.Conf.Text(itemKey); err != nil {
		return nil, err
	}
	if err := paired(nameKey, hasName, itemKey, hasItem); err != nil {
		return nil, err
	}
	if hasName && s.tokenSecret == "" {
		return nil, noName(nameKey)
	}
	return s, nil
}

// objectName is the text of a key that names an object, empty if the key is absent. The API server
// refuses an empty name.
func (a *app) objectName(key string) (string, error) {
	name, set, err := a.Conf.Text(key)
	if err == nil && set && name == "" {
		err = noName(key)
	}
	return name, err
}

func noName(key string) error { return conf.Refuse(key, "", "names no object") }

// textOr is the text of key, or of its older spelling.
func (a *app) textOr(key, older string) (string, bool, error) {
	if value, set, err := a.Conf.Text(key); set || err != nil {
		return value, set, err
	}
	return a.Conf.Text(older)
}

// paired refuses one of two keys without the other.
func paired(first string, hasFirst bool, second string, hasSecond bool) error {
	if hasFirst == hasSecond {
		return nil
	}
	if hasSecond {
		first, second = second, first
	}
	return conf.RefuseName(first, "must be specified together with %s", second)
}

func (s *kerberosConf) configure(d *draft) error {
	if s.krb5 != "" {
		err := d.mount(fromSpark,
			object{"name": "krb5-file", "configMap": object{"name": s.krb5}},
			object{"mountPath": "/etc/krb5.conf", "subPath": "krb5.conf"})
		if err != nil {
			return err
		}
	}
	if s.tokenSecret == "" {
		return nil
	}
	const directory = "/mnt/secrets/hadoop-credentials"
	d.env("HADOOP_TOKEN_FILE_LOCATION", directory+"/"+s.tokenKey)
	return d.mount(fromSpark,
		object{"name": "hadoop-secret", "secret": object{"secretName": s.tokenSecret}},
		object{"mountPath": directory})
}
