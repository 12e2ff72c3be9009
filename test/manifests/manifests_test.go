package manifests

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"knative.dev/serving/pkg/apis/autoscaling"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const root = "../../config"

// What is built, by its folder in config. The values are the kinds and names that come out.
var builds = map[string][]string{
	".":                               slices.Concat(baseObjects, watched("flint-jobs"), eventingObjects),
	"base":                            slices.Concat(baseObjects, watched("flint-jobs")),
	"eventing":                        eventingObjects,
	"eventing/watched":                {"Role flint-jobs/flint-source", "RoleBinding flint-jobs/flint-source"},
	"watched":                         watched("flint-jobs"),
	"overlays/dev":                    slices.Concat(baseObjects, watched("flint-jobs")),
	"overlays/spark-operator":         slices.Concat(baseObjects, watched("flint-jobs"), watched("default")),
	"overlays/spark-operator/default": watched("default"),
}

var baseObjects = []string{
	"Namespace /flint", "Namespace /flint-jobs", "ServiceAccount flint/flint", "ClusterRole /flint-reviews", "ClusterRoleBinding /flint-reviews",
	"Service flint/flint", "NetworkPolicy flint/flint",
}

var eventingObjects = []string{
	"Broker flint/default", "SinkBinding flint/flint", "Trigger flint/flint-submit", "Trigger flint/flint-changes", "PingSource flint/flint",
	"ServiceAccount flint/flint-source", "ApiServerSource flint/flint", "Role flint-jobs/flint-source", "RoleBinding flint-jobs/flint-source",
}

func watched(namespace string) []string {
	return []string{"Role " + namespace + "/flint", "RoleBinding " + namespace + "/flint"}
}

// withFunction are the builds that can be applied as they are, and so must agree in themselves.
var withFunction = []string{".", "base", "overlays/dev", "overlays/spark-operator"}

// object is one manifest as kustomize gives it.
type object struct {
	apiVersion, kind, namespace, name string
	yaml                              []byte
}

func (o object) String() string { return o.kind + " " + o.namespace + "/" + o.name }

func build(t *testing.T, folder string) []object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", folder, err)
	}
	var objects []object
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object{r.GetApiVersion(), r.GetKind(), r.GetNamespace(), r.GetName(), text})
	}
	return objects
}

// decode reads the object, and refuses fields that its kind does not have.
func decode[T any](t *testing.T, o object) *T {
	t.Helper()
	into := new(T)
	if err := yaml.UnmarshalStrict(o.yaml, into); err != nil {
		t.Fatalf("%s: %v\n%s", o, err, o.yaml)
	}
	return into
}

func all[T any](t *testing.T, objects []object, apiVersion, kind string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for _, o := range objects {
		if o.apiVersion == apiVersion && o.kind == kind {
			found[o.namespace+"/"+o.name] = decode[T](t, o)
		}
	}
	return found
}

func theService(t *testing.T, objects []object) *servingv1.Service {
	t.Helper()
	service := all[servingv1.Service](t, objects, "serving.knative.dev/v1", "Service")["flint/flint"]
	if service == nil {
		t.Fatal("no Knative Service flint/flint")
	}
	return service
}

func TestEveryBuildHasWhatItShould(t *testing.T) {
	for folder, want := range builds {
		t.Run(folder, func(t *testing.T) {
			var got []string
			for _, o := range build(t, filepath.Join(root, folder)) {
				got = append(got, o.String())
				switch o.apiVersion + " " + o.kind {
				case "v1 Namespace":
					decode[corev1.Namespace](t, o)
				case "v1 ServiceAccount":
					decode[corev1.ServiceAccount](t, o)
				case "rbac.authorization.k8s.io/v1 ClusterRole":
					decode[rbacv1.ClusterRole](t, o)
				case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
					decode[rbacv1.ClusterRoleBinding](t, o)
				case "rbac.authorization.k8s.io/v1 Role":
					decode[rbacv1.Role](t, o)
				case "rbac.authorization.k8s.io/v1 RoleBinding":
					decode[rbacv1.RoleBinding](t, o)
				case "networking.k8s.io/v1 NetworkPolicy":
					decode[networkingv1.NetworkPolicy](t, o)
				case "serving.knative.dev/v1 Service":
					decode[servingv1.Service](t, o)
				case "eventing.knative.dev/v1 Broker", "eventing.knative.dev/v1 Trigger",
					"sources.knative.dev/v1 SinkBinding", "sources.knative.dev/v1 PingSource", "sources.knative.dev/v1 ApiServerSource":
					// checked in eventing_test.go
				default:
					t.Errorf("%s of %s is not a kind that belongs here", o, o.apiVersion)
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(want))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("objects (-want +got)\n%s", diff)
			}
		})
	}
}

// A file that no kustomization names is applied by nobody, and a kustomization that no test names is built by nobody.
func TestEveryFileIsListed(t *testing.T) {
	numbered := regexp.MustCompile(`^[1-9]\d\d-[a-z]+\.yaml$`)
	kustomizations := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "kustomization.yaml"))
		if os.IsNotExist(err) {
			return nil // a folder of folders: its files are refused below
		}
		if err != nil {
			return err
		}
		kustomizations++
		var k types.Kustomization
		if err := yaml.UnmarshalStrict(text, &k); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		folder, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if _, ok := builds[folder]; !ok && k.Kind != types.ComponentKind {
			t.Errorf("%s is not among the builds of this test", folder)
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		for _, e := range entries {
			switch name := e.Name(); {
			case e.IsDir() || filepath.Ext(name) != ".yaml" || name == "kustomization.yaml":
			case folder == "overlays/spark-operator" && name == "values.yaml": // Helm's
			case !numbered.MatchString(name):
				t.Errorf("%s/%s has no number", folder, name)
			case !slices.Contains(k.Resources, name):
				t.Errorf("%s/%s is not in its kustomization", folder, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := len(builds) + 3; kustomizations != want { // and the components
		t.Errorf("%d kustomizations, want %d", kustomizations, want)
	}
}

func TestImageIsSetByKustomize(t *testing.T) {
	if got := image(t, build(t, filepath.Join(root, "base"))); got != "flint" {
		t.Errorf("image of base = %q, want the placeholder", got)
	}
	if got := image(t, build(t, filepath.Join(root, "overlays/dev"))); got != "dev.local/flint:latest" {
		t.Errorf("image of dev = %q", got)
	}
}

// A kustomization of one's own, as config/README.md has it.
func TestOwnKustomization(t *testing.T) {
	config, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(folder, config)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "<!-- own kustomization -->\n```yaml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("config/README.md has no kustomization behind its marker")
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "path/to/flint/config", relative)), 0o600); err != nil {
		t.Fatal(err)
	}
	objects := build(t, folder)
	service := theService(t, objects)
	if got := image(t, objects); !strings.Contains(got, "@sha256:") {
		t.Errorf("image = %q, want a digest", got)
	}
	if diff := cmp.Diff([]string{"serve"}, service.Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("arguments (-want +got)\n%s", diff)
	}
	accept(t, service)
}

func image(t *testing.T, objects []object) string {
	return theService(t, objects).Spec.Template.Spec.Containers[0].Image
}

func environment(service *servingv1.Service) map[string]string {
	found := map[string]string{}
	for _, env := range service.Spec.Template.Spec.Containers[0].Env {
		found[env.Name] = env.Value
	}
	return found
}

// With eventing every end is told, and without, nothing waits for Flint.
func TestEveryEndIsToldWithEventing(t *testing.T) {
	for _, folder := range withFunction {
		want := ""
		if folder == "." {
			want = "true"
		}
		if got := environment(theService(t, build(t, filepath.Join(root, folder))))["FLINT_TELL_DELETED"]; got != want {
			t.Errorf("%s: FLINT_TELL_DELETED is %q, want %q", folder, got, want)
		}
	}
}

// The settings that are set are settings that Flint reads.
func TestSettingsAreKnown(t *testing.T) {
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range withFunction {
		for name := range environment(theService(t, build(t, filepath.Join(root, folder)))) {
			if !strings.Contains(string(page), "| `"+name+"` |") && name != "GOMEMLIMIT" {
				t.Errorf("%s sets %s, which docs/configuration.md does not have", folder, name)
			}
		}
	}
}

// What knative.md would have found out on a cluster: each of these was a trap for somebody.
func TestTraps(t *testing.T) {
	for _, folder := range withFunction {
		t.Run(folder, func(t *testing.T) {
			service := theService(t, build(t, filepath.Join(root, folder)))
			if got := service.Labels["networking.knative.dev/visibility"]; got != "cluster-local" {
				t.Errorf("visibility = %q", got)
			}
			for name := range service.Annotations {
				if strings.HasPrefix(name, autoscaling.GroupName) {
					t.Errorf("%s is on the Service: it belongs on the template", name)
				}
			}
			template := service.Spec.Template
			for name, want := range map[string]string{
				autoscaling.MinScaleAnnotationKey:            "0",
				autoscaling.MaxScaleAnnotationKey:            "3",
				autoscaling.ScaleToZeroPodRetentionPeriodKey: "2m",
				autoscaling.MetricAnnotationKey:              "concurrency",
				autoscaling.TargetAnnotationKey:              "50",
				autoscaling.WindowAnnotationKey:              "30s",
			} {
				if got := template.Annotations[name]; got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
			spec := template.Spec
			if spec.SecurityContext != nil {
				t.Error("the pod has a securityContext, which Serving refuses")
			}
			if spec.AutomountServiceAccountToken != nil {
				t.Error("automountServiceAccountToken is set: Serving refuses true, and false would take the token away")
			}
			if spec.ServiceAccountName != "flint" {
				t.Errorf("serviceAccountName = %q", spec.ServiceAccountName)
			}
			// 30 s of draining and 60 s for func-go's shutdown; 600 is Serving's own limit.
			if spec.TimeoutSeconds == nil || *spec.TimeoutSeconds < 90 || *spec.TimeoutSeconds > 600 {
				t.Errorf("timeoutSeconds = %v", spec.TimeoutSeconds)
			}
			if spec.ContainerConcurrency == nil || *spec.ContainerConcurrency != 0 {
				t.Errorf("containerConcurrency = %v", spec.ContainerConcurrency)
			}
			if len(spec.Containers) != 1 || len(spec.Volumes) != 0 {
				t.Fatalf("%d containers and %d volumes", len(spec.Containers), len(spec.Volumes))
			}
			checkContainer(t, &spec.Containers[0])
		})
	}
}

func checkContainer(t *testing.T, c *corev1.Container) {
	for _, env := range c.Env {
		if env.ValueFrom != nil {
			t.Errorf("%s has a valueFrom: Serving refuses a fieldRef, and there is no secret to give", env.Name)
		}
	}
	if i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "LISTEN_ADDRESS" }); i < 0 || c.Env[i].Value != "[::]:8080" {
		t.Error("LISTEN_ADDRESS is not [::]:8080: with PORT alone func-go listens on loopback")
	}
	if c.Lifecycle != nil {
		t.Error("the container has a lifecycle, which Serving refuses")
	}
	if len(c.Ports) != 1 || c.Ports[0].ContainerPort != 8080 || c.Ports[0].Name == "h2c" {
		t.Errorf("ports = %v, want 8080 alone, and no h2c", c.Ports)
	}
	for path, probe := range map[string]*corev1.Probe{"/health/readiness": c.ReadinessProbe, "/health/liveness": c.LivenessProbe} {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path {
			t.Errorf("no probe of %s", path)
		}
	}
	s := c.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Add) != 0 ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("securityContext = %+v, want what the restricted level asks and a read-only root", s)
	}
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if request, limit := c.Resources.Requests[resource], c.Resources.Limits[resource]; request.IsZero() || request.Cmp(limit) >= 0 {
			t.Errorf("%s has no request below its limit", resource)
		}
		if _, ok := c.Resources.Limits[resource]; !ok {
			t.Errorf("%s has no limit", resource)
		}
	}
}

// The policy is for the pods of this Service, and for no other port than the queue-proxy's.
func TestNetworkPolicy(t *testing.T) {
	policy := all[networkingv1.NetworkPolicy](t, build(t, filepath.Join(root, "base")), "networking.k8s.io/v1", "NetworkPolicy")["flint/flint"]
	if got := policy.Spec.PodSelector.MatchLabels["serving.knative.dev/service"]; got != "flint" {
		t.Errorf("podSelector = %v", policy.Spec.PodSelector)
	}
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Error("a rule is open to everyone or for every port")
		}
		for _, port := range rule.Ports {
			if port.Port.IntValue() == 8080 {
				t.Error("the function's own port is open past the queue-proxy")
			}
		}
	}
}
