package runner

import (
	"errors"
	"reflect"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"flint.dev/flint/pkg/api"
)

// Every field that this Kubernetes version has for a pod, alone in a template, with a value: but for those that are named
// here, all are refused. A newer version's fields are too, until somebody has thought about them.
func TestEveryField(t *testing.T) {
	pod := func(field string, value any) object { return object{"spec": object{field: value}} }
	container := func(field string, value any) object {
		return object{"spec": object{"containers": list{object{field: value}}}}
	}
	inContainer := func(key string) func(string, any) object {
		return func(field string, value any) object {
			return container(key, object{field: value})
		}
	}
	volume := func(source string, value any) object {
		return object{"spec": object{"volumes": list{object{"name": "x", source: value}}}}
	}
	mount := func(field string, value any) object {
		return object{"spec": object{
			"volumes":    list{object{"name": "x", "emptyDir": object{}}},
			"containers": list{object{"volumeMounts": list{object{"name": "x", "mountPath": "/x", field: value}}}},
		}}
	}
	variable := func(source string, value any) object {
		return container("env", list{object{"name": "X", "valueFrom": object{source: value}}})
	}
	fromSource := func(field string, value any) object { return container("envFrom", list{object{field: value}}) }
	port := func(field string, value any) object {
		return container("ports", list{object{"containerPort": int64(1), field: value}})
	}
	for name, tc := range map[string]struct {
		of       any
		template func(string, any) object
		allowed  []string
	}{
		"pod": {corev1.PodSpec{}, pod, []string{
			"dnsConfig", "dnsPolicy", "hostAliases", "nodeSelector", "readinessGates", "tolerations", "topologySpreadConstraints",
		}},
		"container": {corev1.Container{}, container, []string{
			"args", "command", "imagePullPolicy", "resizePolicy", "stdin", "stdinOnce", "terminationMessagePolicy", "tty", "workingDir",
		}},
		"pod's security context":       {corev1.PodSecurityContext{}, func(f string, v any) object { return pod("securityContext", object{f: v}) }, []string{"fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "supplementalGroupsPolicy"}},
		"container's security context": {corev1.SecurityContext{}, inContainer("securityContext"), []string{"allowPrivilegeEscalation", "readOnlyRootFilesystem", "runAsGroup", "runAsNonRoot", "runAsUser"}},
		"capabilities": {corev1.Capabilities{}, func(f string, v any) object {
			return container("securityContext", object{"capabilities": object{f: v}})
		}, []string{"drop"}},
		"resources": {corev1.ResourceRequirements{}, inContainer("resources"), []string{"limits", "requests"}},
		"volume":    {corev1.VolumeSource{}, volume, []string{"downwardAPI", "emptyDir"}},
		"projected volume": {corev1.VolumeProjection{}, func(f string, v any) object {
			return volume("projected", object{"sources": list{object{f: v}}})
		}, []string{"downwardAPI"}},
		"mount":    {corev1.VolumeMount{}, mount, []string{"mountPath", "name", "readOnly", "recursiveReadOnly", "subPath", "subPathExpr"}},
		"variable": {corev1.EnvVarSource{}, variable, []string{"fieldRef", "resourceFieldRef"}},
		"envFrom":  {corev1.EnvFromSource{}, fromSource, []string{"prefix"}},
		"port":     {corev1.ContainerPort{}, port, []string{"containerPort", "name", "protocol"}},
		"affinity": {corev1.Affinity{}, func(f string, v any) object { return pod("affinity", object{f: v}) }, []string{"nodeAffinity"}},
		"probe":    {corev1.Probe{}, inContainer("livenessProbe"), []string{"exec", "failureThreshold", "grpc", "initialDelaySeconds", "periodSeconds", "successThreshold", "terminationGracePeriodSeconds", "timeoutSeconds"}},
		"metadata": {metav1.ObjectMeta{}, func(f string, v any) object { return object{"metadata": object{f: v}} }, []string{"annotations", "labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filled := reflect.New(reflect.TypeOf(tc.of)).Elem()
			fill(filled, 8)
			values, err := runtime.DefaultUnstructuredConverter.ToUnstructured(filled.Addr().Interface())
			if err != nil {
				t.Fatal(err)
			}
			if len(values) < 2 {
				t.Fatalf("only %v of %T is filled", values, tc.of)
			}
			var allowed []string
			for _, field := range fields(values, nil) {
				_, err := Plan(request(func(r *api.RunnerRequest) { r.Template = tc.template(field, values[field]) }), factsOf(t, minimalParent), Settings{}, "")
				var refused *api.Error
				switch {
				case err == nil:
					allowed = append(allowed, field)
				case !errors.As(err, &refused) || refused.Code != api.PolicyDenied && refused.Code != api.TemplateInvalid:
					t.Errorf("%s: %v", field, err)
				}
			}
			if diff := gocmp.Diff(tc.allowed, allowed); diff != "" {
				t.Errorf("(-want +accepted)\n%s", diff)
			}
		})
	}
}

// fill gives every field a value, down to a depth.
func fill(v reflect.Value, depth int) {
	if depth == 0 {
		return
	}
	switch value := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*value = resource.MustParse("1")
		return
	case *intstr.IntOrString:
		*value = intstr.FromInt32(1)
		return
	case *metav1.Time:
		*value = metav1.Unix(1, 0)
		return
	case *metav1.FieldsV1:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth-1)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	default:
		panic("no value for a " + v.Kind().String())
	}
}
