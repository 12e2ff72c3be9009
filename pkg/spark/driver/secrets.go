package driver

import (
	"strings"

	"flint.dev/flint/pkg/spark/conf"
)

// mountSecrets is org.apache.spark.deploy.k8s.features.MountSecretsFeatureStep:
// spark.kubernetes.driver.secrets.NAME=PATH mounts a Secret as the volume NAME-volume.
type mountSecrets struct{ *app }

func newMountSecrets(a *app) (step, error) { return &mountSecrets{a}, nil }

func (s *mountSecrets) configure(d *draft) error {
	const prefix = "spark.kubernetes.driver.secrets."
	for _, p := range s.Conf.WithPrefix(prefix) {
		key, volume := prefix+p.Key, p.Key+"-volume"
		if err := checkVolumeName(key, volume); err != nil {
			return err
		}
		err := d.mount(origin(key),
			object{"name": volume, "secret": object{"secretName": p.Key}},
			object{"mountPath": p.Value})
		if err != nil {
			return err
		}
	}
	return nil
}

// envSecrets is org.apache.spark.deploy.k8s.features.EnvSecretsFeatureStep:
// spark.kubernetes.driver.secretKeyRef.ENV=NAME:KEY takes an environment variable from a Secret.
type envSecrets struct{ *app }

func newEnvSecrets(a *app) (step, error) { return &envSecrets{a}, nil }

func (s *envSecrets) configure(d *draft) error {
	const prefix = "spark.kubernetes.driver.secretKeyRef."
	for _, p := range s.Conf.WithPrefix(prefix) {
		key := prefix + p.Key
		if err := checkEnvName(key, p.Key); err != nil {
			return err
		}
		parts := javaSplit(p.Value, ":")
		if len(parts) != 2 {
			return conf.Refuse(key, p.Value, "SecretKeyRef must be in the form name:key.")
		}
		push(d.container, "env", object{
			"name":      p.Key,
			"valueFrom": object{"secretKeyRef": object{"name": parts[0], "key": parts[1]}},
		})
	}
	return nil
}

// javaSplit is Java's String.split: empty parts at the end are dropped, but the text
// without a separator is always one part.
func javaSplit(text, separator string) []string {
	parts := strings.Split(text, separator)
	if len(parts) == 1 {
		return parts
	}
	for len(parts) > 0 && parts[len(parts)-1] == "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}
