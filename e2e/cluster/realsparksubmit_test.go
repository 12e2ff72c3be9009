//go:build e2e && spark && linux

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/e2e/cluster/sparkimage"
	"flint.dev/flint/pkg/api"
	"flint.dev/flint/test/parity"
)

// likeSparkSubmit submits one application twice, by Flint and by Spark's own spark-submit in a pod, with the same arguments and
// the same templates: the API server must have been given the same objects, and both must run to their end.
func likeSparkSubmit(ctx context.Context, t *testing.T) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	a := templated
	a.conf = []string{
		"spark.kubernetes.driver.podTemplateContainerName=" + driverContainer,
		"spark.kubernetes.executor.podTemplateContainerName=" + executorContainer,
	}
	name := "twice-" + run
	request := a.request(name)
	// Both names are made of the application's name and something of their own.
	arguments := slices.DeleteFunc(a.args(name), func(arg string) bool { return strings.HasPrefix(arg, driverNameKey) })
	arguments = slices.Compact(arguments) // what is left of the pair is a second --conf
	request["spark_submit_args"] = arguments
	drivers := observe(ctx, t, "spark-role=driver,"+nameLabel+"="+name)

	began := time.Now()
	submitted, err := post[api.SubmitResponse](ctx, api.SubmitPath, request, http.StatusCreated, http.StatusOK)
	if err != nil {
		t.Fatal(err)
	}
	flints := created(ctx, t, drivers, func(p seenPod) bool { return string(p.UID) == submitted.DriverPodUID })
	t.Cleanup(func() { remove(t, flints.DeepCopy()) })
	byFlint := objectsOf(ctx, t, flints.Name)

	submitter := sparkSubmit(ctx, t, name, arguments, request)
	submitter.succeeded(ctx, t)
	sparks := created(ctx, t, drivers, func(p seenPod) bool { return string(p.UID) != submitted.DriverPodUID })
	t.Cleanup(func() { remove(t, sparks.DeepCopy()) })
	bySpark := objectsOf(ctx, t, sparks.Name)

	inline(bySpark)
	if diff := gocmp.Diff(bySpark, byFlint); diff != "" {
		t.Errorf("spark-submit's objects, then Flint's:\n%s", diff)
	}
	told, err := received.await(ctx, run+"-"+name)
	if err != nil {
		t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
	}
	end{api.ReasonCompleted, ptr.To[int32](0), ""}.check(t, "spark", told)
	isOver := func(p seenPod) bool { return p.Status.Phase == corev1.PodSucceeded }
	if _, err := drivers.await(ctx, 2, "over", isOver); err != nil {
		t.Errorf("%v\n%s", err, logOf(&sparks.Pod))
	}
	for _, driver := range []*corev1.Pod{&flints.Pod, &sparks.Pod} {
		if text := logOf(driver); !strings.Contains(text, "Pi is roughly 3.14") {
			t.Errorf("the log of %s: %s", driver.Name, text)
		}
	}
	t.Logf("SEEN %d objects each; the driver pod is there %.3fs after the request to Flint, and %.1fs after the start of spark-submit",
		len(byFlint), flints.at.Sub(began).Seconds(), sparks.at.Sub(submitter.started(ctx, t)).Seconds())
}

const driverNameKey = "spark.kubernetes.driver.pod.name="

func created(ctx context.Context, t *testing.T, drivers *observer, is func(seenPod) bool) seenPod {
	t.Helper()
	found, err := drivers.await(ctx, 1, "created", is)
	if err != nil {
		t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
	}
	return found[0]
}

// sparkSubmitPod is one in which spark-submit runs. The first line of its log is when it began, in nanoseconds.
type sparkSubmitPod struct{ *corev1.Pod }

func sparkSubmit(ctx context.Context, t *testing.T, name string, arguments []string, request map[string]any) sparkSubmitPod {
	t.Helper()
	templates := map[string]string{}
	for _, side := range []string{"driver", "executor"} {
		text, err := json.Marshal(request[side+"_pod_template"])
		if err != nil {
			t.Fatal(err)
		}
		templates[side] = string(text)
	}
	meta := metav1.ObjectMeta{Name: "spark-submit-" + run, Namespace: jobs}
	files, err := client.CoreV1().ConfigMaps(jobs).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: templates}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().ConfigMaps(jobs).Delete(context.Background(), files.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	const folder = "/templates"
	script := `date +%s%N; exec /opt/spark/bin/spark-submit "$@"`
	submit := slices.Concat([]string{"sh", "-c", script, "sh"}, []string{
		"--conf", "spark.kubernetes.driver.podTemplateFile=" + folder + "/driver",
		"--conf", "spark.kubernetes.executor.podTemplateFile=" + folder + "/executor",
	}, arguments)
	pod, err := client.CoreV1().Pods(jobs).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		ServiceAccountName: submitAccount, RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "submit", Image: sparkimage.Name(), Command: submit,
			VolumeMounts: []corev1.VolumeMount{{Name: "templates", MountPath: folder}},
			Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *quantity("500m"), corev1.ResourceMemory: *quantity("512Mi")}},
		}},
		Volumes: []corev1.Volume{{Name: "templates", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: files.Name}}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("spark-submit said:\n%s", sparkSubmitPod{pod}.log(context.Background(), t))
		}
		remove(t, pod)
	})
	return sparkSubmitPod{pod}
}

func (p sparkSubmitPod) succeeded(ctx context.Context, t *testing.T) {
	t.Helper()
	var phase corev1.PodPhase
	err := until(ctx, "the end of spark-submit", func() (bool, error) {
		now, err := client.CoreV1().Pods(jobs).Get(ctx, p.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		phase = now.Status.Phase
		return phase == corev1.PodSucceeded || phase == corev1.PodFailed, fmt.Errorf("%s", phase)
	})
	if err != nil || phase != corev1.PodSucceeded {
		t.Fatalf("spark-submit: %s, %v", phase, err)
	}
}

func (p sparkSubmitPod) log(ctx context.Context, t *testing.T) string {
	t.Helper()
	text, err := client.CoreV1().Pods(jobs).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func (p sparkSubmitPod) started(ctx context.Context, t *testing.T) time.Time {
	t.Helper()
	line, _, _ := strings.Cut(p.log(ctx, t), "\n")
	since, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, since)
}

var tokenVolume = regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`)

// objectsOf is what a submission has created, as the API server has it but for what it has added, in the normal form in which
// two submissions of the same are equal. The last object to be created is the ConfigMap of the properties; Flint holds the pod
// back until then.
func objectsOf(ctx context.Context, t *testing.T, name string) []map[string]any {
	t.Helper()
	var driver *corev1.Pod
	var found []belonging
	err := until(ctx, "the objects of "+name, func() (bool, error) {
		var err error
		if driver, err = client.CoreV1().Pods(jobs).Get(ctx, name, metav1.GetOptions{}); err != nil || len(driver.Spec.SchedulingGates) > 0 {
			return false, err
		}
		found = slices.DeleteFunc(belongings(ctx, t, driver), func(o belonging) bool { return strings.HasPrefix(o.GetName(), "spark-exec-") })
		return slices.ContainsFunc(found, func(o belonging) bool { return strings.HasPrefix(o.GetName(), "spark-drv-") }), fmt.Errorf("%d", len(found))
	})
	if err != nil {
		t.Fatal(err)
	}
	var objects []map[string]any
	for _, o := range append(found, belonging{driver, "Pod"}) {
		text, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		if err := json.Unmarshal(tokenVolume.ReplaceAll(text, []byte("kube-api-access")), &object); err != nil {
			t.Fatal(err)
		}
		object["kind"] = o.kind
		delete(object, "status")
		if spec, ok := object["spec"].(map[string]any); ok {
			delete(spec, "nodeName")
		}
		metadata := object["metadata"].(map[string]any)
		for _, added := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
			delete(metadata, added)
		}
		if finalizers, _ := metadata["finalizers"].([]any); slices.Equal(finalizers, []any{"flint.dev/completion"}) {
			delete(metadata, "finalizers")
		}
		for _, field := range []string{"labels", "annotations"} {
			entries, _ := metadata[field].(map[string]any)
			for key := range entries {
				if strings.HasPrefix(key, "flint.dev/") || key == "app.kubernetes.io/managed-by" {
					delete(entries, key)
				}
			}
			if len(entries) == 0 {
				delete(metadata, field)
			}
		}
		objects = append(objects, object)
	}
	normal, err := parity.Normalise(objects)
	if err != nil {
		t.Fatal(err)
	}
	key := func(o map[string]any) string { return fmt.Sprint(o["kind"], o["metadata"].(map[string]any)["name"]) }
	slices.SortFunc(normal, func(a, b map[string]any) int { return cmp.Compare(key(a), key(b)) })
	return normal
}

// inline takes out of spark-submit's properties the name of the driver's template, which Flint has from the request.
func inline(objects []map[string]any) {
	for _, o := range objects {
		data, _ := o["data"].(map[string]any)
		properties, _ := data["spark.properties"].(map[string]any)
		values, _ := properties["values"].(map[string]any)
		delete(values, "spark.kubernetes.driver.podTemplateFile")
	}
}
