package embedded_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"flint.dev/flint/test/controlplane"
	"flint.dev/flint/test/embedded"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// step is one call of the script. In path and body, NS is the namespace, UID(name) and VERSION(name) are
// the uid and the resourceVersion of what was last seen under that name.
type step struct {
	name   string
	method string
	path   string
	body   string
	kind   string // content type of the body; empty means JSON
	accept string
	loose  bool // the words of the refusal, and its details, may differ
}

const (
	strategic = "application/strategic-merge-patch+json"
	merge     = "application/merge-patch+json"
	jsonPatch = "application/json-patch+json"

	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	otherUID     = "11111111-2222-3333-4444-555555555555"

	podsPath   = "/api/v1/namespaces/NS/pods"
	eventsPath = "/api/v1/namespaces/NS/events"
	mapsPath   = "/api/v1/namespaces/NS/configmaps"
	jobsPath   = "/apis/batch/v1/namespaces/NS/jobs"
)

func heldPod(name string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"` + name + `","labels":{"flint.dev/id":"` + name + `"}},
		"spec":{"containers":[{"name":"main","image":"main"}],"schedulingGates":[{"name":"flint.dev/support"}]}}`
}

func configMap(name, labels string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{` + labels + `}},"data":{"a":"1"}}`
}

// script is what Flint does to an API server, and what may go wrong with it.
var script = []step{
	{name: "create a held pod", method: "POST", path: podsPath, body: heldPod("pi")},
	{name: "create it again", method: "POST", path: podsPath, body: heldPod("pi")},
	{name: "create it again, dry", method: "POST", path: podsPath + "?dryRun=All", body: heldPod("pi")},
	{name: "create in a missing namespace", method: "POST", path: "/api/v1/namespaces/missing/pods", body: heldPod("pi")},
	{name: "create another, dry", method: "POST", path: podsPath + "?dryRun=All", body: heldPod("dry")},
	{name: "get what the dry run left", method: "GET", path: podsPath + "/dry"},
	{name: "create without a name", method: "POST", path: podsPath, body: heldPod("")},
	{name: "create with a bad name", method: "POST", path: mapsPath, body: configMap("Not_A_Name", "")},
	{
		name: "create a held pod on a node", method: "POST", path: podsPath,
		body: strings.Replace(heldPod("placed"), `"spec":{`, `"spec":{"nodeName":"node",`, 1),
	},
	{
		name: "create for another namespace", method: "POST", path: podsPath,
		body: strings.Replace(heldPod("pi"), `"metadata":{`, `"metadata":{"namespace":"elsewhere",`, 1),
	},
	{
		name: "create with a resourceVersion", method: "POST", path: mapsPath,
		body: strings.Replace(configMap("versioned", ""), `"metadata":{`, `"metadata":{"resourceVersion":"7",`, 1),
	},
	{name: "create another kind than the path", loose: true, method: "POST", path: podsPath, body: configMap("kind", "")},
	{name: "get", method: "GET", path: podsPath + "/pi"},
	{name: "get its metadata", method: "GET", path: podsPath + "/pi", accept: metadataOnly},
	{name: "get what is not there", method: "GET", path: podsPath + "/nobody"},
	{name: "get in a missing namespace", method: "GET", path: "/api/v1/namespaces/missing/pods/nobody"},
	{
		name: "create what the pod owns", method: "POST", path: mapsPath, accept: metadataOnly,
		body: strings.Replace(configMap("conf", ""), `"metadata":{`,
			`"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"pi","uid":"UID(pi)","controller":true}],`, 1),
	},
	{
		name: "release another incarnation", method: "PATCH", path: podsPath + "/pi", kind: strategic,
		body: `{"metadata":{"uid":"` + otherUID + `"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "release another version", method: "PATCH", path: podsPath + "/pi", kind: strategic,
		body: `{"metadata":{"resourceVersion":"1"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "release, dry", method: "PATCH", path: podsPath + "/pi?dryRun=All", kind: strategic,
		body: `{"metadata":{"uid":"UID(pi)"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "release", method: "PATCH", path: podsPath + "/pi", kind: strategic,
		body: `{"metadata":{"uid":"UID(pi)"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "release again", method: "PATCH", path: podsPath + "/pi", kind: strategic, accept: metadataOnly,
		body: `{"metadata":{"uid":"UID(pi)"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "release what is not there", method: "PATCH", path: podsPath + "/nobody", kind: strategic,
		body: `{"metadata":{"uid":"` + otherUID + `"},"spec":{"schedulingGates":[{"name":"flint.dev/support","$patch":"delete"}]}}`,
	},
	{
		name: "set a label", method: "PATCH", path: podsPath + "/pi", kind: merge,
		body: `{"metadata":{"resourceVersion":"VERSION(pi)","labels":{"flint.dev/completion":"sent"}}}`,
	},
	{
		name: "test and remove a label", method: "PATCH", path: podsPath + "/pi", kind: jsonPatch,
		body: `[{"op":"test","path":"/metadata/uid","value":"UID(pi)"},{"op":"remove","path":"/metadata/labels/flint.dev~1completion"}]`,
	},
	{name: "patch with no type", loose: true, method: "PATCH", path: podsPath + "/pi", body: `{}`},
	{
		name: "set the status", method: "PATCH", path: podsPath + "/pi/status", kind: merge,
		body: `{"metadata":{"labels":{"ignored":"no"}},"status":{"phase":"Running"}}`,
	},
	{
		name: "set the status on the wrong path", method: "PATCH", path: podsPath + "/pi", kind: merge,
		body: `{"status":{"phase":"Failed"}}`,
	},
	{
		name: "put another version", method: "PUT", path: mapsPath + "/conf",
		body: strings.Replace(configMap("conf", ""), `"metadata":{`, `"metadata":{"resourceVersion":"1",`, 1),
	},
	{
		name: "put another incarnation", loose: true, method: "PUT", path: mapsPath + "/conf",
		body: strings.Replace(configMap("conf", ""), `"metadata":{`, `"metadata":{"uid":"`+otherUID+`",`, 1),
	},
	{name: "put", method: "PUT", path: mapsPath + "/conf", body: configMap("conf", `"put":"yes"`)},
	{name: "put another name", method: "PUT", path: mapsPath + "/conf", body: configMap("fonc", "")},
	{
		name: "delete another incarnation", method: "DELETE", path: podsPath + "/pi",
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"` + otherUID + `"},"propagationPolicy":"Background"}`,
	},
	{
		name: "delete, dry", method: "DELETE", path: podsPath + "/pi",
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"UID(pi)"},"dryRun":["All"]}`,
	},
	{name: "delete, dry by the query", method: "DELETE", path: podsPath + "/pi?dryRun=All"},
	{
		name: "delete", method: "DELETE", path: podsPath + "/pi",
		body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"UID(pi)"},"propagationPolicy":"Background"}`,
	},
	{name: "delete again", method: "DELETE", path: podsPath + "/pi", body: `{"preconditions":{"uid":"UID(pi)"}}`},
	{name: "get after the delete", method: "GET", path: podsPath + "/pi"},

	{
		name: "create a pod with a finalizer", method: "POST", path: podsPath,
		body: strings.Replace(heldPod("final"), `"metadata":{`, `"metadata":{"finalizers":["flint.dev/test"],`, 1),
	},
	{name: "delete it", method: "DELETE", path: podsPath + "/final"},
	{name: "create over it", method: "POST", path: podsPath, body: heldPod("final")},
	{name: "get it", method: "GET", path: podsPath + "/final"},
	{name: "take its finalizer", method: "PATCH", path: podsPath + "/final", kind: merge, body: `{"metadata":{"finalizers":null}}`},
	{name: "get it after its end", method: "GET", path: podsPath + "/final"},

	{
		name: "create a pod on a node", method: "POST", path: podsPath,
		body: `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"placed"},"spec":{"nodeName":"node","containers":[{"name":"main","image":"main"}]}}`,
	},
	{name: "delete it gracefully", method: "DELETE", path: podsPath + "/placed"},
	{name: "get it while it ends", method: "GET", path: podsPath + "/placed"},
	{name: "delete it at once", method: "DELETE", path: podsPath + "/placed", body: `{"gracePeriodSeconds":0}`},
	{name: "get it after the end", method: "GET", path: podsPath + "/placed"},

	{
		name: "create a suspended Job", method: "POST", path: jobsPath,
		body: `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"copy"},"spec":{"suspend":true,
			"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"agent","image":"agent"}]}}}}`,
	},
	{
		name: "release the Job", method: "PATCH", path: jobsPath + "/copy", kind: strategic,
		body: `{"metadata":{"uid":"UID(copy)"},"spec":{"suspend":false}}`,
	},
	{name: "delete the Job", method: "DELETE", path: jobsPath + "/copy", body: `{"preconditions":{"uid":"UID(copy)"},"propagationPolicy":"Background"}`},

	{name: "create one of three", method: "POST", path: mapsPath, body: configMap("one", `"set":"three"`)},
	{name: "create two of three", method: "POST", path: mapsPath, body: configMap("two", `"set":"three"`)},
	{name: "create six of three", method: "POST", path: mapsPath, body: configMap("six", `"set":"three"`)},
	{name: "list by label", method: "GET", path: mapsPath + "?labelSelector=set%3Dthree"},
	{name: "list the first two", method: "GET", path: mapsPath + "?labelSelector=set%3Dthree&limit=2"},
	{name: "list the rest", method: "GET", path: mapsPath + "?labelSelector=set%3Dthree&limit=2&continue=CONTINUE"},
	{name: "list the first", method: "GET", path: mapsPath + "?limit=1", accept: metadataList},
	{name: "list by name", method: "GET", path: mapsPath + "?fieldSelector=metadata.name%3Dtwo"},
	{name: "list by a field that is none", loose: true, method: "GET", path: mapsPath + "?fieldSelector=data.k%3Dv"},
	{name: "list pods that have not ended", method: "GET", path: podsPath + "?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"},
	{name: "list pods of no node", method: "GET", path: podsPath + "?fieldSelector=spec.nodeName%3D"},
	{name: "list pods by what they are not selected by", method: "GET", path: podsPath + "?fieldSelector=spec.priority%3D1"},
	{name: "note an event", method: "POST", path: eventsPath, body: `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e1"},"involvedObject":{"kind":"Pod","namespace":"NS","name":"pi","uid":"` + otherUID + `"},"reason":"Failed","type":"Warning","firstTimestamp":"2026-03-01T10:00:00Z","lastTimestamp":"2026-03-01T10:00:00Z"}`},
	{name: "list the events of an object", method: "GET", path: eventsPath + "?fieldSelector=involvedObject.uid%3D" + otherUID},
	{name: "list the events of another", method: "GET", path: eventsPath + "?fieldSelector=involvedObject.uid%3Dnobody"},
	{name: "list nothing", method: "GET", path: mapsPath + "?labelSelector=set%3Dfour"},
	{name: "list in a missing namespace", method: "GET", path: "/api/v1/namespaces/missing/configmaps"},
	{name: "list with a bad selector", method: "GET", path: mapsPath + "?labelSelector=%3D%3D"},
	{name: "delete a ConfigMap", method: "DELETE", path: mapsPath + "/one"},
	{name: "delete with dryRun beside a body", method: "DELETE", path: mapsPath + "/two?dryRun=All", body: `{"preconditions":{"uid":"UID(two)"}}`},
	{name: "get what was deleted all the same", method: "GET", path: mapsPath + "/two"},
}

// answer is what of a response must be the same.
type answer struct {
	Code   int
	Status *metav1.Status `json:",omitempty"`
	Object map[string]any `json:",omitempty"`
}

// TestConformance sends the script to the embedded API and to a real one.
func TestConformance(t *testing.T) {
	cp := controlplane.Shared(t)
	namespace := cp.NewNamespace(t)
	cluster, _, ctx := start(t, embedded.Options{Idle: true, Namespaces: []string{namespace}})

	fake := &player{config: cluster.Config(), namespace: namespace}
	genuine := &player{config: cp.Config(), namespace: namespace}
	for _, step := range script {
		want, err := genuine.play(ctx, step)
		if err != nil {
			t.Fatalf("%s: the API server: %v", step.name, err)
		}
		got, err := fake.play(ctx, step)
		if err != nil {
			t.Fatalf("%s: the embedded API: %v", step.name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s %s (-API server,+embedded):\n%s", step.name, step.method, step.path, diff)
		}
	}
}

// player sends the script to one API and remembers what it needs for later steps.
type player struct {
	config    *rest.Config
	namespace string
	client    *http.Client
	seen      map[string]*unstructured.Unstructured
	next      string
}

var placeholder = regexp.MustCompile(`(UID|VERSION)\(([^)]+)\)`)

func (p *player) fill(text string) string {
	text = strings.NewReplacer("/NS/", "/"+p.namespace+"/", `"NS"`, `"`+p.namespace+`"`, "CONTINUE", p.next).Replace(text)
	return placeholder.ReplaceAllStringFunc(text, func(match string) string {
		parts := placeholder.FindStringSubmatch(match)
		object := p.seen[parts[2]]
		if parts[1] == "UID" {
			return string(object.GetUID())
		}
		return object.GetResourceVersion()
	})
}

func (p *player) play(ctx context.Context, step step) (answer, error) {
	if p.client == nil {
		client, err := rest.HTTPClientFor(p.config)
		if err != nil {
			return answer{}, err
		}
		p.client, p.seen = client, map[string]*unstructured.Unstructured{}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, step.method, p.config.Host+p.fill(step.path), strings.NewReader(p.fill(step.body)))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	if step.kind != "" {
		request.Header.Set("Content-Type", step.kind)
	}
	request.Header.Set("Accept", "application/json")
	if step.accept != "" {
		request.Header.Set("Accept", step.accept)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	content := map[string]any{}
	if err := json.Unmarshal(body, &content); err != nil {
		return answer{}, fmt.Errorf("%d %q: %w", response.StatusCode, body, err)
	}
	result := answer{Code: response.StatusCode}
	switch {
	case content["kind"] == "Status":
		result.Status = &metav1.Status{}
		if err := json.Unmarshal(p.generic(body), result.Status); err != nil {
			return answer{}, err
		}
		if step.loose {
			result.Status.Message, result.Status.Details = "", nil
		}
	case content["items"] != nil:
		list := &unstructured.UnstructuredList{}
		if err := list.UnmarshalJSON(body); err != nil {
			return answer{}, err
		}
		p.next = list.GetContinue()
		result.Object = map[string]any{
			"apiVersion": content["apiVersion"], "kind": content["kind"],
			"version": list.GetResourceVersion() != "", "more": list.GetContinue() != "", "remaining": list.GetRemainingItemCount(),
		}
		var items []any
		for i := range list.Items {
			items = append(items, relevant(&list.Items[i]))
		}
		result.Object["items"] = items
	default:
		object := &unstructured.Unstructured{Object: content}
		if object.GetResourceVersion() != "" {
			p.seen[object.GetName()] = object
		}
		var err error
		if body, err = json.Marshal(relevant(object)); err != nil {
			return answer{}, err
		}
		if err := json.Unmarshal(p.generic(body), &result.Object); err != nil {
			return answer{}, err
		}
	}
	return result, nil
}

// generic replaces what differs between two clusters.
func (p *player) generic(body []byte) []byte {
	for name, object := range p.seen {
		body = bytes.ReplaceAll(body, []byte(object.GetUID()), []byte("UID("+name+")"))
	}
	return body
}

// relevant is what two API servers must agree on in an object.
func relevant(object *unstructured.Unstructured) map[string]any {
	result := map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(),
		"name": object.GetName(), "namespace": object.GetNamespace(),
		"uid": object.GetUID() != "", "version": object.GetResourceVersion() != "",
		"created": object.GetCreationTimestamp() != metav1.Time{}, "deleted": object.GetDeletionTimestamp() != nil,
		"generation": object.GetGeneration(), "grace": object.GetDeletionGracePeriodSeconds(),
		"owners": len(object.GetOwnerReferences()), "finalizers": object.GetFinalizers(),
	}
	if labels := object.GetLabels(); len(labels) > 0 {
		result["labels"] = labels
	}
	for name, path := range map[string][]string{
		"gates": {"spec", "schedulingGates"}, "suspend": {"spec", "suspend"}, "phase": {"status", "phase"},
		"selector": {"spec", "selector"}, "template labels": {"spec", "template", "metadata", "labels"}, "data": {"data"},
	} {
		if value, found, _ := unstructured.NestedFieldCopy(object.Object, path...); found {
			result[name] = value
		}
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var reasons []any
	for _, condition := range conditions {
		reasons = append(reasons, condition.(map[string]any)["reason"])
	}
	result["reasons"] = reasons
	return result
}
