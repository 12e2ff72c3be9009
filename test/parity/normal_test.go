package parity

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// rich is a case in which everything that Normalise looks at is there.
func rich() *Case {
	c := accept("rich", java(
		kube("driverEnv.A=1", "driverEnv.B=2", "hadoop.configMapName=hc", "kerberos.krb5.configMapName=krb"),
		driver("secrets.s=/s", "secrets.t=/t", "secretKeyRef.E=n:k", "secretKeyRef.F=n:l", "label.l={{APP_ID}}", "request.cores=500m",
			"volumes.emptyDir.e.mount.path=/e", "volumes.emptyDir.e.options.sizeLimit=1Gi", "volumes.hostPath.h.mount.path=/h", "volumes.hostPath.h.options.path=/x",
			"volumes.persistentVolumeClaim.p.mount.path=/p", "volumes.persistentVolumeClaim.p.options.claimName=OnDemand",
			"volumes.persistentVolumeClaim.p.options.storageClass=c", "volumes.persistentVolumeClaim.p.options.sizeLimit=1Gi",
			"volumes.persistentVolumeClaim.q.mount.path=/q", "volumes.persistentVolumeClaim.q.options.claimName=OnDemand",
			"volumes.persistentVolumeClaim.q.options.storageClass=c", "volumes.persistentVolumeClaim.q.options.sizeLimit=1Gi"),
	)).with(driverTemplate(`"env":[{"name":"A","value":"t"},{"name":"B","value":"t"}],"volumeMounts":[{"name":"v","mountPath":"/v","readOnly":true}]`,
		`"volumes":[{"name":"v","emptyDir":{}}],"initContainers":[{"name":"i","resources":{"limits":{"cpu":"1"}}}]`, ""), `{"spec":{}}`)
	return &c
}

// ownClaims mounts two claims that the caller named, in the form of names that Spark makes.
func ownClaims() *Case {
	c := accept("own-claims", java(driver(
		"volumes.persistentVolumeClaim.p.mount.path=/p", "volumes.persistentVolumeClaim.p.options.claimName=x-driver-pvc-0",
		"volumes.persistentVolumeClaim.q.mount.path=/q", "volumes.persistentVolumeClaim.q.options.claimName=x-driver-pvc-1",
	)))
	return &c
}

// raw is what Flint makes of the case, with the owner references that Spark writes.
func raw(t testing.TB, c *Case) []object {
	t.Helper()
	outcome := render(c, "4.3.0")
	if outcome.objects == nil {
		t.Fatal(outcome.refusal, outcome.failure)
	}
	for _, o := range outcome.objects[1:] {
		o["metadata"].(object)["ownerReferences"] = list{object{
			"apiVersion": "v1", "kind": "Pod", "name": nameOf(outcome.objects[0]), "uid": "11111111-2222-4333-8444-555555555555", "controller": true,
		}}
	}
	return outcome.objects
}

func normal(t testing.TB, objects []object) []object {
	t.Helper()
	n, err := Normalise(objects)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each single change of what is created is seen, except those that do not matter.
func TestNormaliseKeepsDifferences(t *testing.T) {
	objects := raw(t, rich())
	want := normal(t, objects)
	harmless := regexp.MustCompile(strings.Join([]string{
		// The uid of the pod in the references to it.
		`ownerReferences 0 uid\] (longer|empty)$`,
		// The order in a family: driverEnv behind SPARK_APPLICATION_ID, secretKeyRef, secrets, volumes.
		`^\[0 spec containers 0 env\] (4 and 5|7 and 8) swapped$`,
		`^\[0 spec containers 0 volumeMounts\] (1 and 2|3 and 4|4 and 5|5 and 6) swapped$`,
		`^\[0 spec volumes\] (1 and 2|3 and 4|4 and 5|5 and 6) swapped$`,
		// Claims are sorted by their names, which say which is which.
		`^\[\] 3 and 4 swapped$`,
	}, "|"))
	changes := mutations(objects)
	for _, m := range changes {
		got, err := Normalise(m.objects)
		same := err == nil && reflect.DeepEqual(want, got)
		if same && !harmless.MatchString(m.what) {
			t.Errorf("not seen: %s", m.what)
		}
		if !same && harmless.MatchString(m.what) {
			t.Errorf("seen, and should not matter: %s", m.what)
		}
	}
	t.Logf("%d changes", len(changes))
}

// What differs from launch to launch, or is only written differently, does not matter.
func TestNormaliseDropsNoise(t *testing.T) {
	objects := raw(t, rich())
	want := normal(t, objects)
	replace := func(pairs ...string) func([]object) {
		return func(objects []object) {
			r := strings.NewReplacer(pairs...)
			for i := range objects {
				objects[i] = everywhere(objects[i], r.Replace).(object)
			}
		}
	}
	container := func(objects []object) object { return at(objects[0], "spec", "containers").(list)[0].(object) }
	volume := func(objects []object, name string) object {
		volumes := at(objects[0], "spec", "volumes").(list)
		i := slices.IndexFunc(volumes, func(v any) bool { return itemName(v) == name })
		return volumes[i].(object)
	}
	id := prefixID.FindStringSubmatch(nameOf(objects[0]))[1]
	configMap := configMapID.FindStringSubmatch(nameOf(objects[len(objects)-1]))[1]
	app := at(objects[0], "metadata", "labels", "spark-app-selector").(string)
	cases := map[string]func([]object){
		"application id": replace(app, "spark-0123456789abcdef0123456789abcdef"),
		"prefix id":      replace(id, "fedcba9876543210"),
		"config map id":  replace(configMap, "fedcba9876543210"),
		"submit time":    replace("1796010969000", "1796010969001"),
		"date":           replace("#Mon Nov 30 ", "#Tue Dec 01 "),
		"order of properties": func(objects []object) {
			data := objects[len(objects)-1]["data"].(object)
			lines := strings.Split(strings.TrimSuffix(data[propertiesKey].(string), "\n"), "\n")
			slices.Reverse(lines[2:])
			data[propertiesKey] = strings.Join(lines, "\n") + "\n"
		},
		"quantities": func(objects []object) {
			container(objects)["resources"].(object)["requests"].(object)["cpu"] = "0.5"
			volume(objects, "e")["emptyDir"].(object)["sizeLimit"] = "1024Mi"
		},
		"defaults": func(objects []object) {
			for _, m := range objectsOf(container(objects)["volumeMounts"]) {
				if m["readOnly"] == nil && m["subPath"] == nil {
					maps.Copy(m, object{"readOnly": false, "subPath": "", "subPathExpr": ""})
				}
			}
			volume(objects, "h")["hostPath"].(object)["type"] = ""
			volume(objects, "e")["emptyDir"].(object)["medium"] = ""
			volume(objects, "p")["persistentVolumeClaim"].(object)["readOnly"] = false
			objects[0]["spec"].(object)["tolerations"] = list{}
			objects[0]["spec"].(object)["affinity"] = nil
			objects[1]["metadata"].(object)["annotations"] = object{}
		},
		"indexes of claims": func(objects []object) {
			replace("-driver-pvc-2", "-driver-pvc-1", "-driver-pvc-3", "-driver-pvc-0")(objects)
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			changed := make([]object, len(objects))
			for i := range objects {
				changed[i] = runtime.DeepCopyJSON(objects[i])
			}
			change(changed)
			if cmp.Equal(objects, changed) {
				t.Fatal("the change changes nothing")
			}
			if diff := cmp.Diff(want, normal(t, changed)); diff != "" {
				t.Errorf("(-before,+after):\n%s", diff)
			}
		})
	}
}

func objectsOf(value any) []object { return objects(value) }

// A random id is replaced where it is right. One that is wrong in one place stays a difference.
func TestNormaliseSeesWrongIDs(t *testing.T) {
	cases := map[string]struct {
		c      *Case
		change func(objects []object)
	}{
		"host of another service": {rich(), func(objects []object) {
			data := objects[len(objects)-1]["data"].(object)
			data[propertiesKey] = regexp.MustCompile(`(spark.driver.host=c-)[0-9a-f]{16}`).ReplaceAllString(data[propertiesKey].(string), "${1}0000000000000000")
		}},
		"volume of another config map": {rich(), func(objects []object) {
			volumes := at(objects[0], "spec", "volumes").(list)
			volumes[len(volumes)-1].(object)["configMap"].(object)["name"] = "spark-drv-0000000000000000-conf-map"
		}},
		"two volumes with one claim": {rich(), func(objects []object) {
			for i := range objects[:1] {
				objects[i] = everywhere(objects[i], strings.NewReplacer("-driver-pvc-2", "-driver-pvc-3").Replace).(object)
			}
		}},
		"claims of the caller's own, swapped": {ownClaims(), func(objects []object) {
			volumes := at(objects[0], "spec", "volumes").(list)
			var sources []object
			for _, v := range volumes {
				if source, ok := v.(object)["persistentVolumeClaim"].(object); ok {
					sources = append(sources, source)
				}
			}
			sources[0]["claimName"], sources[1]["claimName"] = sources[1]["claimName"], sources[0]["claimName"]
		}},
		"a claim that is not made": {rich(), func(objects []object) {
			objects[0] = everywhere(objects[0], strings.NewReplacer("-driver-pvc-2", "-driver-pvc-9").Replace).(object)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := raw(t, tc.c)
			want := normal(t, objects)
			tc.change(objects)
			if reflect.DeepEqual(want, normal(t, objects)) {
				t.Error("not seen")
			}
		})
	}
}

// The paths in SPARK_LOCAL_DIRS are shuffled by Spark, with their mounts where those are Spark's own.
func TestNormaliseLocalDirs(t *testing.T) {
	conf := accept("conf", java(conf("local.dir=/b,/a")))
	mounts := accept("mounts", java(driver("volumes.emptyDir.spark-local-dir-1.mount.path=/b", "volumes.emptyDir.spark-local-dir-2.mount.path=/a")))
	for name, c := range map[string]*Case{"conf": &conf, "mounts": &mounts} {
		t.Run(name, func(t *testing.T) {
			objects := raw(t, c)
			want := normal(t, objects)
			swap := strings.NewReplacer("/b,/a", "/a,/b")
			container := at(objects[0], "spec", "containers").(list)[0].(object)
			container["env"] = everywhere(container["env"], swap.Replace)
			if name == "conf" {
				if reflect.DeepEqual(want, normal(t, objects)) {
					t.Error("other paths than those of the mounts are not seen")
				}
				container["volumeMounts"] = everywhere(container["volumeMounts"], strings.NewReplacer("/a", "/b", "/b", "/a").Replace)
			}
			if diff := cmp.Diff(want, normal(t, objects)); diff != "" {
				t.Errorf("(-before,+after):\n%s", diff)
			}
		})
	}
}

// What is no launch is refused.
func TestNormaliseFails(t *testing.T) {
	objects := raw(t, rich())
	cases := map[string][]object{
		"no objects":    nil,
		"no pod":        objects[1:],
		"two pods":      append([]object{objects[0]}, objects...),
		"no properties": objects[:1],
	}
	for name, objects := range cases {
		if _, err := Normalise(objects); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
