package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netcfg "knative.dev/networking/pkg/config"
	"knative.dev/pkg/apis"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/system"
	apiconfig "knative.dev/serving/pkg/apis/config"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	autoscaling "knative.dev/serving/pkg/autoscaler/config"
	"knative.dev/serving/pkg/deployment"
	"knative.dev/serving/pkg/observability"
	configuration "knative.dev/serving/pkg/reconciler/configuration/resources"
	"knative.dev/serving/pkg/reconciler/revision/config"
	revision "knative.dev/serving/pkg/reconciler/revision/resources"
	service "knative.dev/serving/pkg/reconciler/service/resources"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// writeManifests builds the kustomization, and replaces each Knative Service by the Deployment that Serving's own
// controller would make of it, queue-proxy included.
func writeManifests(w io.Writer, folder, queueImage string) error {
	objects, err := kustomize(folder)
	if err != nil {
		return err
	}
	for _, object := range objects {
		text, err := object.AsYAML()
		if err != nil {
			return fmt.Errorf("write %s: %w", object.CurId(), err)
		}
		if isService(object) {
			if text, err = serve(text, queueImage); err != nil {
				return fmt.Errorf("serve %s: %w", object.CurId(), err)
			}
		}
		if _, err := fmt.Fprintf(w, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

// writeService writes the one Knative Service of the kustomization as Serving's webhook would let it in.
func writeService(w io.Writer, folder string) error {
	objects, err := kustomize(folder)
	if err != nil {
		return err
	}
	ctx := apis.WithinCreate(apiconfig.ToContext(context.Background(), apiDefaults()))
	for _, object := range objects {
		if !isService(object) {
			continue
		}
		text, err := object.AsYAML()
		if err != nil {
			return fmt.Errorf("write %s: %w", object.CurId(), err)
		}
		admitted, err := admit(ctx, text)
		if err != nil {
			return fmt.Errorf("admit %s: %w", object.CurId(), err)
		}
		if text, err = yaml.Marshal(admitted); err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return fmt.Errorf("%s has no Knative Service", folder)
}

func kustomize(folder string) ([]*resource.Resource, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", folder, err)
	}
	return built.Resources(), nil
}

func isService(object *resource.Resource) bool {
	return object.GetApiVersion() == "serving.knative.dev/v1" && object.GetKind() == "Service"
}

// admit is what Serving's webhook does with a Service: its defaults, and its judgement.
func admit(ctx context.Context, text []byte) (*servingv1.Service, error) {
	var declared servingv1.Service
	if err := yaml.UnmarshalStrict(text, &declared); err != nil {
		return nil, err
	}
	declared.SetDefaults(ctx)
	if err := declared.Validate(ctx); err != nil {
		return nil, err
	}
	return &declared, nil
}

// serve goes the way of Serving's controllers: Service, Configuration, Revision, Deployment, each with the defaults and
// the judgement of its webhook.
func serve(text []byte, queueImage string) ([]byte, error) {
	settings, err := defaults(queueImage)
	if err != nil {
		return nil, err
	}
	if err := os.Setenv(system.NamespaceEnvKey, "knative-serving"); err != nil { // Serving reads where it runs
		return nil, err
	}
	ctx := apis.WithinCreate(apiconfig.ToContext(context.Background(), settings.Config))
	declared, err := admit(ctx, text)
	if err != nil {
		return nil, err
	}
	configured := service.MakeConfiguration(declared)
	configured.Generation = 1
	made := configuration.MakeRevision(ctx, configured, time.Now())
	made.SetDefaults(ctx)
	made.UID = "e2e" // the Deployment selects its pods by it
	deployed, err := revision.MakeDeployment(made, settings)
	if err != nil {
		return nil, err
	}
	deployed.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	deployed.OwnerReferences = nil // there is no Revision, and the collector would take the Deployment with it
	return yaml.Marshal(deployed)
}

// defaults are Serving's settings with nothing said but the image of queue-proxy.
func defaults(queueImage string) (*config.Config, error) {
	deploying, err := deployment.NewConfigFromMap(map[string]string{deployment.QueueSidecarImageKey: queueImage})
	if err != nil {
		return nil, fmt.Errorf("settings of Serving: %w", err)
	}
	logs, err := logging.NewConfigFromConfigMap(&corev1.ConfigMap{})
	if err != nil {
		return nil, fmt.Errorf("settings of Serving: %w", err)
	}
	network, err := netcfg.NewConfigFromMap(nil)
	if err != nil {
		return nil, fmt.Errorf("settings of Serving: %w", err)
	}
	return &config.Config{Config: apiDefaults(), Deployment: deploying, Logging: logs, Network: network, Observability: observability.DefaultConfig()}, nil
}

// apiDefaults are the settings that its webhook goes by, with nothing said.
func apiDefaults() *apiconfig.Config {
	store := apiconfig.NewStore(logging.FromContext(context.Background()))
	for _, name := range []string{apiconfig.DefaultsConfigName, apiconfig.FeaturesConfigName, autoscaling.ConfigName} {
		store.OnConfigChanged(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return store.Load()
}
