//go:build e2e && serving && linux

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"flint.dev/flint/test/operator"
)

// The function as Knative Serving runs it, at zero and on its way there and back. The scenarios follow one another, as there is one function.
func TestServing(t *testing.T) {
	needsCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 18*time.Minute)
	defer cancel()
	s := newServing(ctx, t)
	t.Cleanup(func() { s.remove(t) })
	began := time.Now()
	s.deploy(ctx, t, nil, nil)
	t.Logf("SEEN Knative Service ready %.1fs after it was applied", time.Since(began).Seconds())
	for _, scenario := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"1 to 0 to 1", oneZeroOne},
		{"a short driver ends in the retention", shortDriver},
		{"a burst at zero", burst},
		{"a burst of repeats at zero", burstOfRepeats},
		{"an event at zero", eventAtZero},
		{"the operator at zero", operatorAtZero},
		{"an end at zero, and a ping", endThenPing},
		{"an end at zero, and a change told by the API server source", endThenChange},
		{"pods are taken away while they launch", s.fewer},
		{"cold starts", s.coldStarts},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			limited, cancel := context.WithTimeout(ctx, 8*time.Minute)
			defer cancel()
			defer func() {
				if t.Failed() {
					now := context.WithoutCancel(limited)
					t.Logf("%s%s", Describe(now, client, servingNamespace), Describe(now, client, function))
				}
			}()
			scenario.run(limited, t)
		})
	}
}

// replicas is how many instances Serving has asked for, in all revisions.
func replicas(ctx context.Context) (int, error) {
	deployments, err := client.AppsV1().Deployments(function).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	all := 0
	for _, d := range deployments.Items {
		all += int(ptr.Deref(d.Spec.Replicas, 1))
	}
	return all, nil
}

// untilZero waits until Serving asks for no instance.
func untilZero(ctx context.Context, t *testing.T) {
	t.Helper()
	err := until(ctx, "the function to be scaled to zero", func() (bool, error) {
		n, err := replicas(ctx)
		return err == nil && n == 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// atZero waits until Serving asks for no instance, spares the half minute for which the last one drains, and waits until
// nothing of one runs and nobody knows of one.
func atZero(ctx context.Context, t *testing.T) {
	t.Helper()
	untilZero(ctx, t)
	last, err := client.CoreV1().Pods(function).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	noPods(ctx, t, function, "", true)
	err = until(ctx, "the last instance to end", func() (bool, error) { // it is deleted before its node has ended it
		for _, pod := range last.Items {
			if began, err := processes(&pod); err != nil || len(began) > 0 {
				return false, errors.Join(err, fmt.Errorf("%s has %v", pod.Name, began))
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = until(ctx, "endpoints to go", func() (bool, error) {
		slices, err := client.DiscoveryV1().EndpointSlices(function).List(ctx, metav1.ListOptions{LabelSelector: "networking.internal.knative.dev/serviceType=Private"})
		if err != nil {
			return false, err
		}
		for _, slice := range slices.Items {
			if len(slice.Endpoints) > 0 {
				return false, fmt.Errorf("%s has some", slice.Name)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	nothingRuns(ctx, t)
}

func nothingRuns(ctx context.Context, t *testing.T) {
	t.Helper()
	pods, err := client.CoreV1().Pods(function).List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Fatalf("at zero there are %d pods of the function, %v", len(pods.Items), err)
	}
}

// submit posts a driver, once.
func submit(ctx context.Context, submission string, d driver) (answer, api.SubmitResponse, error) {
	var into api.SubmitResponse
	body, err := json.Marshal(d.request(submission))
	if err != nil {
		return answer{}, into, err
	}
	got, err := ask(ctx, http.MethodPost, api.SubmitPath, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(body))
	if err != nil {
		return got, into, err
	}
	if got.status != http.StatusCreated && got.status != http.StatusOK {
		return got, into, fmt.Errorf("%s: HTTP %d: %s", submission, got.status, got.body)
	}
	return got, into, json.Unmarshal(got.body, &into)
}

// submitNew is submit, of what must be new.
func submitNew(ctx context.Context, t *testing.T, submission string, d driver) {
	t.Helper()
	if got, _, err := submit(ctx, submission, d); err != nil || got.status != http.StatusCreated {
		t.Fatalf("HTTP %d, %v", got.status, err)
	}
}

// toldOnce waits for the end of a submission.
func toldOnce(ctx context.Context, t *testing.T, submission string, want end) completion {
	t.Helper()
	got, err := received.await(ctx, submission)
	if err != nil {
		t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
	}
	want.check(t, "spark", got)
	oneEnd(t, submission)
	return got
}

// toldWithPings is toldOnce, and sends pings at zero, as a PingSource does: where the machine is slow, a driver ends after
// the retention is over.
func toldWithPings(ctx context.Context, t *testing.T, submission string, want end) {
	t.Helper()
	for {
		limited, cancel := context.WithTimeout(ctx, 15*time.Second)
		_, err := received.await(limited, submission)
		cancel()
		if err == nil || ctx.Err() != nil {
			toldOnce(ctx, t, submission, want)
			return
		}
		if n, err := replicas(ctx); err != nil {
			t.Fatal(err)
		} else if n == 0 {
			t.Logf("SEEN %s was not told before the function was at zero", submission)
			ping(ctx, t)
		}
	}
}

var completed = end{api.ReasonCompleted, ptr.To[int32](0), ""}

func oneZeroOne(ctx context.Context, t *testing.T) {
	submitNew(ctx, t, run+"-at-one", driver{does: []string{"exit=0"}})
	last := time.Now()
	toldWithPings(ctx, t, run+"-at-one", completed)
	untilZero(ctx, t)
	zero := time.Since(last)
	noPods(ctx, t, function, "", false)
	t.Logf("SEEN scaled to zero %.1fs after the last request, nothing runs after %.1fs", zero.Seconds(), time.Since(last).Seconds())
	if zero < retention {
		t.Error("it stayed for less than the retention")
	}
	began := time.Now()
	submitNew(ctx, t, run+"-from-zero", driver{does: []string{"exit=0"}})
	t.Logf("SEEN a submission at zero: 201 after %.2fs", time.Since(began).Seconds())
	toldWithPings(ctx, t, run+"-from-zero", completed)
}

// A driver that ends after the window and before the retention is over is told by the instance that launched it, which
// no request has kept.
func shortDriver(ctx context.Context, t *testing.T) {
	began := time.Now()
	submitNew(ctx, t, run+"-short", driver{does: []string{"sleep=" + (window + 2*time.Second).String()}})
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	got := toldOnce(limited, t, run+"-short", completed)
	n, err := replicas(ctx)
	if err != nil || n != 1 {
		t.Errorf("%d instances, %v, when it was told", n, err)
	}
	t.Logf("SEEN told %.1fs after the submission, while one instance was up", got.at.Sub(began).Seconds())
	untilZero(ctx, t)
	t.Logf("SEEN scaled to zero %.1fs after the submission", time.Since(began).Seconds())
}

func burst(ctx context.Context, t *testing.T) { many(ctx, t, "burst", 30, 1) }

func burstOfRepeats(ctx context.Context, t *testing.T) { many(ctx, t, "repeat", 3, 10) }

// many sends that many submissions, each that many times, at once.
func many(ctx context.Context, t *testing.T, name string, submissions, times int) {
	atZero(ctx, t)
	submission := func(n int) string { return fmt.Sprintf("%s-%s-%02d", run, name, n) }
	var (
		work sync.WaitGroup
		mu   sync.Mutex
		news = map[int]int{}             // answers 201 of each
		uids = map[int]map[string]bool{} // of the pods that the answers of each name
		took []time.Duration
	)
	began := time.Now()
	for n := range submissions {
		uids[n] = map[string]bool{}
		for range times {
			work.Go(func() {
				got, response, err := submit(ctx, submission(n), driver{does: []string{"exit=0"}})
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
				if err != nil {
					t.Error(err)
					return
				}
				uids[n][response.DriverPodUID] = true
				if got.status == http.StatusCreated {
					news[n]++
				}
			})
		}
	}
	work.Wait()
	slices.Sort(took)
	pods := map[string]int{} // of each submission
	list, err := client.CoreV1().Pods(jobs).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=flint"})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		pods[pod.Annotations["flint.dev/submission-id"]]++
	}
	events := 0
	for n := range submissions {
		if news[n] != 1 || len(uids[n]) != 1 || pods[submission(n)] != 1 {
			t.Errorf("%s: %d answers 201, %d uids, %d pods", submission(n), news[n], len(uids[n]), pods[submission(n)])
		}
		toldWithPings(ctx, t, submission(n), completed)
		told, _ := received.of(submission(n))
		events += len(told)
	}
	t.Logf("SEEN %d requests at zero answered after %.2fs to %.2fs, %d pods, %d events, all told after %.1fs",
		submissions*times, took[0].Seconds(), took[len(took)-1].Seconds(), submissions, events, time.Since(began).Seconds())
}

// deliver posts an event as a Broker's filter or a source does: 202 and no body is delivered.
func deliver(ctx context.Context, t *testing.T, kind, source string, more http.Header, data any) {
	t.Helper()
	body, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{
		"Content-Type": {"application/json"}, "Prefer": {"reply"}, "Kn-Namespace": {function},
		"Ce-Specversion": {"1.0"}, "Ce-Id": {run + t.Name()}, "Ce-Source": {source}, "Ce-Type": {kind},
	}
	for name, values := range more {
		header[name] = values
	}
	began := time.Now()
	got, err := ask(ctx, http.MethodPost, "/", header, bytes.NewReader(body))
	if err != nil || got.status != http.StatusAccepted || len(got.body) > 0 {
		t.Fatalf("event %s: HTTP %d, %q, %v", kind, got.status, got.body, err)
	}
	t.Logf("SEEN %s: 202 after %.2fs", kind, time.Since(began).Seconds())
}

func eventAtZero(ctx context.Context, t *testing.T) {
	atZero(ctx, t)
	deliver(ctx, t, api.SubmitEventType, "/e2e", nil, driver{does: []string{"exit=0"}}.request(run+"-event"))
	toldWithPings(ctx, t, run+"-event", completed)
}

// The operator looks whether the service is there, with a GET, and then posts what it has.
func operatorAtZero(ctx context.Context, t *testing.T) {
	atZero(ctx, t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "spark-operator-spark"}}
	if _, err := client.CoreV1().ServiceAccounts(jobs).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	requests, err := operator.Requests()
	if err != nil {
		t.Fatal(err)
	}
	submission := run + "-operator"
	body, err := operator.With(requests["spark-pi"], submission, jobs, submission)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := ask(ctx, http.MethodGet, api.SubmitPath, nil, nil)
	if err != nil || got.status != http.StatusMethodNotAllowed {
		t.Fatalf("GET: HTTP %d, %v", got.status, err)
	}
	looked := time.Since(began)
	got, err = ask(ctx, http.MethodPost, api.SubmitPath, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(body))
	if err != nil || got.status != http.StatusCreated {
		t.Fatalf("POST: HTTP %d, %s, %v", got.status, got.body, err)
	}
	t.Logf("SEEN GET at zero: 405 after %.2fs, POST: 201 after %.2fs", looked.Seconds(), time.Since(began).Seconds())
	toldWithPings(ctx, t, submission, end{api.ReasonImagePull, nil, "apache/spark"}) // no registry is reached from here
}

// endAtZero has a driver end while the function is at zero, and says that nobody was told.
func endAtZero(ctx context.Context, t *testing.T, submission string) *corev1.Pod {
	t.Helper()
	submitNew(ctx, t, submission, driver{does: []string{"sleep=10m"}})
	pod := podOf(ctx, t, submission)
	running(ctx, t, pod)
	atZero(ctx, t)
	pod, err := client.CoreV1().Pods(jobs).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := killContainer(ctx, pod, driverContainer); err != nil {
		t.Fatal(err)
	}
	err = until(ctx, "the driver's end", func() (bool, error) {
		pod, err = client.CoreV1().Pods(jobs).Get(ctx, pod.Name, metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodFailed, err
	})
	if err != nil {
		t.Fatal(err)
	}
	nothingRuns(ctx, t)
	if events, _ := received.of(submission); len(events) > 0 {
		t.Fatalf("told at zero: %+v", events)
	}
	return pod
}

func told(ctx context.Context, t *testing.T, submission string, woken time.Time) {
	t.Helper()
	got := toldOnce(ctx, t, submission, end{api.ReasonError, ptr.To[int32](137), ""})
	t.Logf("SEEN told %.2fs after the event that woke the function", got.at.Sub(woken).Seconds())
}

// ping is what the PingSource of config/eventing sends.
func ping(ctx context.Context, t *testing.T) {
	t.Helper()
	deliver(ctx, t, "dev.knative.sources.ping", "/apis/v1/namespaces/flint/pingsources/flint", nil, map[string]string{})
}

func endThenPing(ctx context.Context, t *testing.T) {
	endAtZero(ctx, t, run+"-ping")
	woken := time.Now()
	ping(ctx, t)
	told(ctx, t, run+"-ping", woken)
}

// The change of the pod as the ApiServerSource of config/eventing tells it, through its Broker.
func endThenChange(ctx context.Context, t *testing.T) {
	pod := endAtZero(ctx, t, run+"-change")
	woken := time.Now()
	deliver(ctx, t, "dev.knative.apiserver.ref.update", "https://10.96.0.1:443",
		http.Header{
			"Ce-Subject": {"/apis/v1/namespaces/" + jobs + "/pods/" + pod.Name}, "Ce-Kind": {"Pod"}, "Ce-Name": {pod.Name}, "Ce-Namespace": {jobs}, "Ce-Apiversion": {"v1"},
		},
		corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, Namespace: jobs})
	told(ctx, t, run+"-change", woken)
}

// held is a body whose second half comes when it is released.
func held(body []byte, release <-chan struct{}) io.Reader {
	reader, writer := io.Pipe()
	go func() {
		_, err := writer.Write(body[:len(body)/2])
		<-release
		if err == nil {
			_, err = writer.Write(body[len(body)/2:])
		}
		_ = writer.CloseWithError(err)
	}()
	return reader
}

// Serving takes pods away that have launches in flight: forty requests bring three instances up, nine launches whose
// bodies are slow go on when these have ended, and are too few for three. They end after the pods are told to go.
func (s *serving) fewer(ctx context.Context, t *testing.T) {
	const crowd, launches = 40, 9
	revision := s.deploy(ctx, t, map[string]string{"target": "20"}, map[string]string{"FLINT_BODY_TIMEOUT": "25s"})
	var work sync.WaitGroup
	defer work.Wait()
	staying, leave := context.WithCancel(ctx) // the crowd
	defer leave()
	waiting, begin := context.WithCancel(ctx) // the second halves of the launches
	defer begin()
	send := func(path, submission string, release <-chan struct{}, want int) {
		body, err := json.Marshal(driver{does: []string{"exit=0"}}.request(submission))
		if err != nil {
			t.Error(err)
			return
		}
		got, err := ask(ctx, http.MethodPost, path, http.Header{"Content-Type": {"application/json"}}, held(body, release))
		if err != nil || got.status != want {
			t.Errorf("%s: HTTP %d, %s, %v", submission, got.status, got.body, err)
		}
	}
	began := time.Now()
	for n := range crowd {
		work.Go(func() {
			for staying.Err() == nil {
				while, cancel := context.WithTimeout(staying, 5*time.Second)
				send(api.SubmitPath+"?dryRun=client", fmt.Sprintf("%s-crowd-%d", run, n), while.Done(), http.StatusOK)
				cancel()
			}
		})
	}
	err := until(ctx, "three instances", func() (bool, error) {
		ready, err := instances(ctx)
		ready = slices.DeleteFunc(ready, func(pod corev1.Pod) bool { return !strings.HasPrefix(pod.Name, revision) })
		return len(ready) == 3, errors.Join(err, fmt.Errorf("%d are ready", len(ready)))
	})
	if err != nil {
		t.Fatal(err)
	}
	up := time.Since(began)
	submission := func(n int) string { return fmt.Sprintf("%s-fewer-%d", run, n) }
	sent := time.Now()
	for n := range launches {
		work.Go(func() { send(api.SubmitPath, submission(n), waiting.Done(), http.StatusCreated) })
	}
	leave()
	var leaving []corev1.Pod
	limited, cancel := context.WithTimeout(ctx, 22*time.Second) // then Flint gives the bodies up
	defer cancel()
	err = until(limited, "two pods to be told to go", func() (bool, error) {
		pods, err := client.CoreV1().Pods(function).List(ctx, metav1.ListOptions{LabelSelector: "serving.knative.dev/revision=" + revision})
		if err != nil {
			return false, err
		}
		leaving = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp == nil })
		return len(leaving) == 2, fmt.Errorf("%d are", len(leaving))
	})
	if err != nil {
		t.Fatal(err)
	}
	told := time.Since(sent)
	begin()
	work.Wait()
	lines := 0
	for _, pod := range leaving {
		log, err := client.CoreV1().Pods(function).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "flint"}).DoRaw(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range launches {
			if bytes.Contains(log, []byte(`"`+submission(n)+`"`)) {
				lines++
			}
		}
	}
	if lines == 0 {
		t.Error("none of the launches was in flight where a pod was taken away")
	}
	for n := range launches {
		toldWithPings(ctx, t, submission(n), completed)
	}
	t.Logf("SEEN three instances after %.1fs; two told to go %.1fs after %d launches began, %d of them there; all answered 201 and told", up.Seconds(), told.Seconds(), launches, lines)
}
