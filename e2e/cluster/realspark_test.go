//go:build e2e && spark && linux

package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/e2e/cluster/sparkimage"
	"flint.dev/flint/pkg/api"
)

// application is a submission of Spark itself.
type application struct {
	class     string // none: it is in Python
	resource  string
	arguments []string
	executors int
	conf      []string // beside those that every application here has
	driver    corev1.PodTemplateSpec
	executor  corev1.PodTemplateSpec
}

const executorContainer = "spark-kubernetes-executor"

// args are in the manner and order of the spark-operator's. Requests of processor time are small, so that two
// applications fit on the node, and the JVMs are told not to spend more on compilers and collectors than they win by it,
// and not to have more threads on a larger machine.
func (a application) args(name string) []string {
	args := []string{"--master", "k8s://https://" + apiService + ":443", "--deploy-mode", "cluster"}
	if a.class != "" {
		args = append(args, "--class", a.class)
	}
	args = append(args, "--name", name)
	for _, conf := range append([]string{
		"spark.kubernetes.namespace=" + jobs,
		"spark.kubernetes.container.image=" + sparkimage.Name(),
		"spark.kubernetes.container.image.pullPolicy=IfNotPresent",
		"spark.kubernetes.submission.waitAppCompletion=false",
		"spark.kubernetes.driver.pod.name=" + name + "-driver",
		"spark.kubernetes.driver.label." + nameLabel + "=" + name,
		"spark.driver.cores=1",
		"spark.kubernetes.driver.request.cores=250m",
		"spark.driver.memory=512m",
		"spark.kubernetes.authenticate.driver.serviceAccountName=" + driverAccount,
		"spark.kubernetes.executor.label." + nameLabel + "=" + name,
		fmt.Sprintf("spark.executor.instances=%d", a.executors),
		"spark.executor.cores=1",
		"spark.kubernetes.executor.request.cores=250m",
		"spark.executor.memory=512m",
		"spark.driver.extraJavaOptions=" + quick,
		"spark.executor.extraJavaOptions=" + quick,
	}, a.conf...) {
		args = append(args, "--conf", conf)
	}
	return append(append(args, a.resource), a.arguments...)
}

const quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ActiveProcessorCount=2"

const nameLabel = "sparkoperator.k8s.io/app-name"

// request is what the operator would post, but for the version.
func (a application) request(name string) map[string]any {
	templates := map[string]*corev1.PodTemplateSpec{driverContainer: a.driver.DeepCopy(), executorContainer: a.executor.DeepCopy()}
	for name, template := range templates {
		if len(template.Spec.Containers) == 0 {
			template.Spec.Containers = []corev1.Container{{Name: name}}
		}
	}
	return map[string]any{
		"submission_id": run + "-" + name, "spark_version": sparkimage.Version(), "spark_submit_args": a.args(name),
		"driver_pod_template": templates[driverContainer], "executor_pod_template": templates[executorContainer],
	}
}

// How an application of Spark runs and ends, and what is told of it.
func TestSpark(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	serveDNS(ctx, t)
	account(ctx, t, driverAccount, driverRules)
	account(ctx, t, submitAccount, submitRules)
	// More at once do not fit on two processors.
	slots := make(chan struct{}, 2)
	t.Run("applications", func(t *testing.T) {
		for _, tc := range []struct {
			name  string
			event bool // submitted as a CloudEvent
			application
			during func(context.Context, *testing.T, *corev1.Pod, *observer) // when the driver was submitted
			want   end
			log    string // has this in it
			runs   int    // at least so many executors
			after  func(*testing.T, *corev1.Pod, []seenPod)
		}{
			{name: "java", application: application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"50"}, executors: 2},
				during: haveOwners, want: end{api.ReasonCompleted, ptr.To[int32](0), ""}, log: "Pi is roughly 3.14", runs: 2},
			{name: "java-by-event", event: true, application: application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"20"}, executors: 1},
				want: end{api.ReasonCompleted, ptr.To[int32](0), ""}, log: "Pi is roughly 3.14", runs: 1},
			{name: "python", application: application{resource: sparkimage.PiPython, arguments: []string{"4"}, executors: 1},
				want: end{api.ReasonCompleted, ptr.To[int32](0), ""}, log: "Pi is roughly 3.1", runs: 1},
			{name: "templates", application: templated, want: end{api.ReasonCompleted, ptr.To[int32](0), ""}, log: "Pi is roughly 3.14", runs: 1,
				after: haveTemplates},
			{name: "throws", application: application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"many"}, executors: 1},
				want: end{api.ReasonError, ptr.To[int32](1), ""}, log: `java.lang.NumberFormatException: For input string: "many"`},
			{name: "no-class", application: application{class: "org.example.Absent", resource: sparkimage.PiJar, executors: 1},
				want: end{api.ReasonError, ptr.To[int32](101), ""}, log: "Failed to load class org.example.Absent"},
			{name: "dynamic-allocation", application: application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"2000"}, executors: 1, conf: []string{
				"spark.dynamicAllocation.enabled=true", "spark.dynamicAllocation.initialExecutors=1", "spark.dynamicAllocation.minExecutors=1",
				"spark.dynamicAllocation.maxExecutors=2", "spark.dynamicAllocation.shuffleTracking.enabled=true",
			}},
				want: end{api.ReasonCompleted, ptr.To[int32](0), ""}, log: "Pi is roughly 3.14", runs: 2},
			{name: "cancelled", application: application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"100000"}, executors: 2},
				during: func(ctx context.Context, t *testing.T, driver *corev1.Pod, executors *observer) {
					t.Helper()
					if _, err := executors.await(ctx, 2, "running", func(p seenPod) bool { return p.ran }); err != nil {
						t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
					}
					got, err := call(ctx, http.MethodDelete, api.LaunchesPath+"/"+jobs+"/"+driver.Labels["flint.dev/id"], nil, nil)
					if err != nil || got.status != http.StatusAccepted {
						t.Errorf("cancel: HTTP %d %s, %v", got.status, got.body, err)
					}
				},
				want: end{api.ReasonDeleted, nil, ""}, runs: 2},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
				defer cancel()
				name := tc.name + "-" + run
				executors := observe(ctx, t, "spark-role=executor,"+nameLabel+"="+name)
				request := tc.request(name)
				submission := request["submission_id"].(string)
				began := time.Now()
				if tc.event {
					postEvent(ctx, t, "dev.flint.spark.submit.v1", request)
				} else if _, err := post[api.SubmitResponse](ctx, api.SubmitPath, request, http.StatusCreated, http.StatusOK); err != nil {
					t.Fatal(err)
				}
				driver := podOf(ctx, t, submission)
				t.Cleanup(func() { remove(t, driver) })
				if tc.during != nil {
					tc.during(ctx, t, driver, executors)
				}
				got, err := received.await(ctx, submission)
				if err != nil {
					t.Fatalf("%v\n%s\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs), logOf(driver))
				}
				if got.UID != string(driver.UID) || got.Name != driver.Name {
					t.Errorf("told of %s %s, want %s %s", got.Name, got.UID, driver.Name, driver.UID)
				}
				tc.want.check(t, "spark", got)
				if tc.log != "" {
					logHas(tc.log)(ctx, t, driver)
				}
				for _, executor := range executors.all() {
					if owner := metav1.GetControllerOf(&executor); owner == nil || owner.UID != driver.UID {
						t.Errorf("executor %s has the owners %v, want driver %s", executor.Name, executor.OwnerReferences, driver.UID)
					}
				}
				seen, err := executors.await(ctx, tc.runs, "running", func(p seenPod) bool { return p.ran })
				if err != nil {
					t.Error(err)
				}
				if tc.after != nil {
					tc.after(t, driver, seen)
				}
				// Spark deletes executors when the driver ends; where it cannot, they go with the driver.
				if _, err := executors.await(ctx, len(executors.all()), "gone", func(p seenPod) bool { return p.gone }); err != nil {
					t.Error(err)
				}
				remove(t, driver)
				nothingOf(ctx, t, driver)
				if repeats := oneEnd(t, submission); repeats > 0 {
					t.Errorf("told %d times", repeats+1)
				}
				t.Logf("SEEN %s, exit code %s, %q, %d executors, after %.1fs", got.Reason, show(got.ExitCode), got.Message, len(executors.all()), got.at.Sub(began).Seconds())
			})
		}
	})
	t.Run("spark-submit", func(t *testing.T) { likeSparkSubmit(ctx, t) })
}

// templated has of each sort of thing that a template can have, on both sides.
var templated = application{class: "Pi", resource: sparkimage.PiJar, arguments: []string{"20"}, executors: 1,
	driver: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"e2e": "driver"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first", Image: WorkloadImage, Args: []string{"write=/scratch/file:1"},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
			Containers: []corev1.Container{{Name: driverContainer, Env: []corev1.EnvVar{{Name: "E2E", Value: "driver"}},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	},
	executor: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"e2e": "executor"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "sidecar", Image: WorkloadImage, Args: []string{"sleep=10m"}},
				{Name: executorContainer, Env: []corev1.EnvVar{{Name: "E2E", Value: "executor"}},
					VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}},
			},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	},
}

// haveTemplates checks that both sides have what the templates of templated have.
func haveTemplates(t *testing.T, driver *corev1.Pod, executors []seenPod) {
	t.Helper()
	check := func(pod *corev1.Pod, role, container, other string, others []corev1.Container) {
		if pod.Labels["e2e"] != role {
			t.Errorf("%s %s has the labels %v", role, pod.Name, pod.Labels)
		}
		if len(others) == 0 || others[0].Name != other {
			t.Errorf("%s %s has no container %s", role, pod.Name, other)
		}
		for _, c := range pod.Spec.Containers {
			if c.Name != container {
				continue
			}
			env, mounts := fmt.Sprint(c.Env), fmt.Sprint(c.VolumeMounts)
			if !strings.Contains(env, "{E2E "+role) || !strings.Contains(mounts, "/scratch") {
				t.Errorf("%s %s has the variables %s and the mounts %s", role, pod.Name, env, mounts)
			}
			return
		}
		t.Errorf("%s %s has no container %s", role, pod.Name, container)
	}
	check(driver, "driver", driverContainer, "first", driver.Spec.InitContainers)
	for _, executor := range executors {
		check(&executor.Pod, "executor", executorContainer, "sidecar", executor.Spec.Containers)
	}
}

// haveOwners checks that the objects that each driver has go with it.
func haveOwners(ctx context.Context, t *testing.T, driver *corev1.Pod, _ *observer) {
	t.Helper()
	found := belongings(ctx, t, driver)
	for _, kind := range []string{"Service", "ConfigMap"} {
		if !slices.ContainsFunc(found, func(o belonging) bool { return o.kind == kind }) {
			t.Errorf("the driver owns no %s: %v", kind, found)
		}
	}
}

// nothingOf waits until nothing that a driver owned is left.
func nothingOf(ctx context.Context, t *testing.T, driver *corev1.Pod) {
	t.Helper()
	isDeleted(ctx, t, driver)
	var left []string
	err := until(ctx, "the driver's objects to go", func() (bool, error) {
		left = nil
		for _, o := range belongings(ctx, t, driver) {
			left = append(left, o.kind+" "+o.GetName())
		}
		return len(left) == 0, fmt.Errorf("%v", left)
	})
	if err != nil {
		t.Error(err)
	}
}

// belonging is an object that a driver owns.
type belonging struct {
	metav1.Object
	kind string
}

// belongings are all objects that a driver owns but its executors: Services, ConfigMaps, NetworkPolicies.
func belongings(ctx context.Context, t *testing.T, driver *corev1.Pod) []belonging {
	t.Helper()
	var all []belonging
	services, err := client.CoreV1().Services(jobs).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		all = append(all, belonging{&services.Items[i], "Service"})
	}
	maps, err := client.CoreV1().ConfigMaps(jobs).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range maps.Items {
		all = append(all, belonging{&maps.Items[i], "ConfigMap"})
	}
	policies, err := client.NetworkingV1().NetworkPolicies(jobs).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range policies.Items {
		all = append(all, belonging{&policies.Items[i], "NetworkPolicy"})
	}
	var owned []belonging
	for _, o := range all {
		for _, owner := range o.GetOwnerReferences() {
			if owner.UID == driver.UID {
				owned = append(owned, o)
			}
		}
	}
	return owned
}

// logOf is the end of a driver's log, for people.
func logOf(driver *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	text, err := client.CoreV1().Pods(jobs).GetLogs(driver.Name, &corev1.PodLogOptions{Container: driverContainer, TailLines: ptr.To[int64](60)}).DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
