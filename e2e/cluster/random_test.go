//go:build e2e && linux

package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// Two hundred drivers of all sorts, submitted by eight callers who try again, while two instances of the function are
// killed again and again: each has one pod and one end, each end is told, and nothing is left when the pods are gone.
// What Flint deletes after its event is not among them: whoever tries again after that starts it again.
func TestMixedLaunchesWhileTheFunctionIsKilled(t *testing.T) {
	needsCluster(t)
	const launches, callers = 200, 8
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sorts := []struct {
		name string
		driver
		want end
	}{
		{"succeeds", driver{does: []string{"exit=0"}}, end{api.ReasonCompleted, ptr.To[int32](0), ""}},
		{"fails", driver{does: []string{"exit=9"}}, end{api.ReasonError, ptr.To[int32](9), ""}},
		{"refused", driver{conf: []string{"spark.kubernetes.driver.node.selector.e2e=absent"}, shape: corev1.PodSpec{NodeName: NodeName}}, end{api.ReasonUnschedulable, nil, ""}},
		{"not-started", driver{shape: corev1.PodSpec{Containers: []corev1.Container{{Name: driverContainer, Command: []string{"/absent"}}}}}, end{api.ReasonError, ptr.To[int32](128), ""}},
	}
	scale(ctx, t, 2)
	t.Cleanup(func() { scale(context.Background(), t, 1) })
	began := time.Now()
	submission := func(n int) string { return fmt.Sprintf("%s-mixed-%03d-%s", run, n, sorts[n%len(sorts)].name) }

	killing, stopKilling := context.WithCancel(ctx)
	killed := make(chan int)
	go func() { killed <- kill(killing, t) }()

	numbers := make(chan int)
	uids := make([]string, launches)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			for n := range numbers {
				request := sorts[n%len(sorts)]
				// Every third is sent by two callers at once.
				var both sync.WaitGroup
				answers := make([]string, 1+(n%3)/2)
				for i := range answers {
					both.Go(func() {
						answer, err := post[api.SubmitResponse](ctx, api.SubmitPath, request.request(submission(n)), http.StatusCreated, http.StatusOK)
						if err != nil {
							t.Errorf("%s: %v", submission(n), err)
						}
						answers[i] = answer.DriverPodUID
					})
				}
				both.Wait()
				uids[n] = answers[0]
				if slices.ContainsFunc(answers, func(uid string) bool { return uid != uids[n] || uid == "" }) {
					t.Errorf("%s: pods %q", submission(n), answers)
				}
			}
		})
	}
	for n := range launches {
		numbers <- n
	}
	close(numbers)
	work.Wait()
	submitted := time.Since(began)
	stopKilling()
	deaths := <-killed
	if deaths < 5 {
		t.Errorf("the function was killed %d times only", deaths)
	}

	repeats := 0
	for n := range launches {
		got, err := received.await(ctx, submission(n))
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if got.UID != uids[n] {
			t.Errorf("%s: told of %s, launched %s", submission(n), got.UID, uids[n])
		}
		sorts[n%len(sorts)].want.check(t, "spark", got)
	}
	told := time.Since(began)
	for n := range launches {
		if events, _ := received.of(submission(n)); len(events) > 0 {
			repeats += oneEnd(t, submission(n))
		}
	}
	left(ctx, t, "mixed")
	t.Logf("SEEN %d launches, %d kills of the function; submitted in %.0fs, all told after %.0fs, %d events came twice, nothing left after %.0fs",
		launches, deaths, submitted.Seconds(), told.Seconds(), repeats, time.Since(began).Seconds())
}

// scale sets how many instances there are, and waits until the first of them is ready.
func scale(ctx context.Context, t *testing.T, replicas int32) {
	t.Helper()
	deployments, err := client.AppsV1().Deployments("flint").List(ctx, metav1.ListOptions{})
	if err != nil || len(deployments.Items) != 1 {
		t.Fatalf("deployments of Flint: %d, %v", len(deployments.Items), err)
	}
	name := deployments.Items[0].Name
	now, err := client.AppsV1().Deployments("flint").GetScale(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Spec.Replicas = replicas
	if _, err := client.AppsV1().Deployments("flint").UpdateScale(ctx, name, now, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = until(ctx, "instances to be ready", func() (bool, error) {
		ready, err := instances(ctx)
		return len(ready) >= int(replicas), err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// kill ends an instance's process, and its pod with it every other time, until ctx ends, and counts.
func kill(ctx context.Context, t *testing.T) (deaths int) {
	for {
		ready, err := instances(ctx)
		if err == nil && len(ready) > 0 {
			victim := ready[rand.IntN(len(ready))]
			err := killContainer(ctx, &victim, "flint")
			if deaths++; err == nil && deaths%2 == 0 {
				err = client.CoreV1().Pods(victim.Namespace).Delete(ctx, victim.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)})
			}
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Error(err)
			}
		}
		select {
		case <-ctx.Done():
			return deaths
		case <-time.After(time.Duration(3000+rand.IntN(4000)) * time.Millisecond):
		}
	}
}

// killContainer kills a container's processes as the kernel does, without a word to the kubelet.
func killContainer(ctx context.Context, pod *corev1.Pod, name string) error {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name != name {
			continue
		}
		id := strings.TrimPrefix(status.ContainerID, "containerd://")
		output, err := shared.Enter(ctx, "ctr", "--address="+containerdSocket, "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", id).CombinedOutput()
		if err != nil && !strings.Contains(string(output), "not found") {
			return fmt.Errorf("kill container %s of %s: %w: %s", name, pod.Name, err, output)
		}
	}
	return nil
}

// left deletes the pods of this run's submissions with that part in their names, and waits until all that was
// created for them is gone too.
func left(ctx context.Context, t *testing.T, part string) {
	t.Helper()
	var ours []corev1.Pod
	err := until(ctx, "all to be marked as told", func() (bool, error) {
		pods, err := client.CoreV1().Pods(jobs).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=flint"})
		if err != nil {
			return false, err
		}
		ours = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
			return !strings.HasPrefix(pod.Annotations["flint.dev/submission-id"], run+"-"+part)
		})
		pending := 0
		for _, pod := range ours {
			if pod.Labels["flint.dev/completion"] != "sent" {
				pending++
			}
		}
		return pending == 0, fmt.Errorf("%d of %d are not", pending, len(ours))
	})
	if err != nil {
		t.Error(err)
	}
	ids := map[string]bool{}
	for i := range ours {
		ids[ours[i].Labels["flint.dev/id"]] = true
		remove(t, &ours[i])
	}
	err = until(ctx, "nothing to be left", func() (bool, error) {
		options := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=flint"}
		var kept []string
		note := func(kind string, meta metav1.ObjectMeta) {
			if ids[meta.Labels["flint.dev/id"]] {
				kept = append(kept, kind+" "+meta.Name)
			}
		}
		pods, err := client.CoreV1().Pods(jobs).List(ctx, options)
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			note("Pod", pods.Items[i].ObjectMeta)
		}
		services, err := client.CoreV1().Services(jobs).List(ctx, options)
		if err != nil {
			return false, err
		}
		for i := range services.Items {
			note("Service", services.Items[i].ObjectMeta)
		}
		configs, err := client.CoreV1().ConfigMaps(jobs).List(ctx, options)
		if err != nil {
			return false, err
		}
		for i := range configs.Items {
			note("ConfigMap", configs.Items[i].ObjectMeta)
		}
		policies, err := client.NetworkingV1().NetworkPolicies(jobs).List(ctx, options)
		if err != nil {
			return false, err
		}
		for i := range policies.Items {
			note("NetworkPolicy", policies.Items[i].ObjectMeta)
		}
		return len(kept) == 0, fmt.Errorf("%d objects: %.10q", len(kept), kept)
	})
	if err != nil {
		t.Error(err)
	}
}
