package embedded

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is the API server's own limit of a request.
const maxBody = 3 << 20

// call is one request to a resource, taken apart.
type call struct {
	res         *resource
	namespace   string // empty for all namespaces, and for what has none
	name        string // empty for the collection
	subresource string
	dryRun      bool
	metadata    bool // the client asked for metadata only
}

func (c call) key() key { return key{c.res.gvr, c.namespace, c.name} }

func (c *Cluster) handler() http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	}
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.0-embedded"})
	})
	mux.HandleFunc("GET /api", discoverVersions)
	mux.HandleFunc("GET /apis", discoverGroups)
	mux.HandleFunc("/api/{version}/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		c.serve(w, r, schema.GroupVersion{Version: r.PathValue("version")}, r.PathValue("rest"))
	})
	mux.HandleFunc("/apis/{group}/{version}/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		c.serve(w, r, schema.GroupVersion{Group: r.PathValue("group"), Version: r.PathValue("version")}, r.PathValue("rest"))
	})
	mux.HandleFunc("GET /api/{version}", func(w http.ResponseWriter, r *http.Request) {
		discoverResources(w, r, schema.GroupVersion{Version: r.PathValue("version")})
	})
	mux.HandleFunc("GET /apis/{group}/{version}", func(w http.ResponseWriter, r *http.Request) {
		discoverResources(w, r, schema.GroupVersion{Group: r.PathValue("group"), Version: r.PathValue("version")})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { writeError(w, lacks(r, http.StatusNotFound)) })
	return mux
}

// serve answers one call to a resource.
func (c *Cluster) serve(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, rest string) {
	request, ok := parsePath(gv, rest)
	if !ok {
		writeError(w, lacks(r, http.StatusNotFound))
		return
	}
	request.metadata = strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	query := r.URL.Query()
	for _, value := range query["dryRun"] {
		if value != metav1.DryRunAll {
			writeError(w, apierrors.NewBadRequest(fmt.Sprintf("invalid dryRun %q", value)))
			return
		}
		request.dryRun = true
	}
	var err error
	switch {
	case request.subresource == "log" && request.name != "" && r.Method == http.MethodGet:
		err = c.serveLog(w, r, request)
	case request.subresource != "" && request.subresource != "status":
		err = lacks(r, http.StatusNotFound)
	case request.name == "" && r.Method == http.MethodGet && query.Get("watch") == "":
		err = c.serveList(w, r, request)
	case request.name == "" && r.Method == http.MethodPost:
		err = c.serveCreate(w, r, request)
	case request.name != "" && r.Method == http.MethodGet:
		err = c.serveGet(w, request)
	case request.name != "" && r.Method == http.MethodPut:
		err = c.servePut(w, r, request)
	case request.name != "" && r.Method == http.MethodPatch:
		err = c.servePatch(w, r, request)
	case request.name != "" && r.Method == http.MethodDelete && request.subresource == "":
		err = c.serveDelete(w, r, request)
	default:
		err = lacks(r, http.StatusMethodNotAllowed)
	}
	if err != nil {
		writeError(w, err)
	}
}

// parsePath takes namespaces/NS/RESOURCE/NAME/SUB, RESOURCE/NAME/SUB and their beginnings apart.
func parsePath(gv schema.GroupVersion, rest string) (call, bool) {
	parts := strings.Split(rest, "/")
	if slices.Contains(parts, "") {
		return call{}, false
	}
	var request call
	// namespaces/NS/status is the Namespace's own.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" {
		request.namespace = parts[1]
		parts = parts[2:]
	}
	request.res = byResource[gv.WithResource(parts[0])]
	if request.res == nil || len(parts) > 3 || (request.namespace != "" && !request.res.namespaced) {
		return call{}, false
	}
	if len(parts) > 1 {
		request.name = parts[1]
	}
	if len(parts) > 2 {
		request.subresource = parts[2]
	}
	if request.name != "" && request.res.namespaced && request.namespace == "" {
		return call{}, false
	}
	return request, true
}

func (c *Cluster) serveCreate(w http.ResponseWriter, r *http.Request, request call) error {
	if request.res.namespaced && request.namespace == "" {
		return lacks(r, http.StatusMethodNotAllowed)
	}
	object, err := readObject(r)
	if err != nil {
		return err
	}
	stored, err := c.create(request.res, request.namespace, object, request.dryRun)
	if err != nil {
		return err
	}
	request.write(w, http.StatusCreated, stored)
	return nil
}

func (c *Cluster) serveGet(w http.ResponseWriter, request call) error {
	c.mu.Lock()
	object, err := c.load(request.key())
	c.mu.Unlock()
	if err != nil {
		return err
	}
	request.write(w, http.StatusOK, object)
	return nil
}

// position is where a list goes on. It is opaque to the client.
type position struct {
	Namespace string `json:"ns"`
	Name      string `json:"name"`
}

func (c *Cluster) serveList(w http.ResponseWriter, r *http.Request, request call) error {
	query := r.URL.Query()
	selector, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	fieldSelector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := selects(request.res, fieldSelector); err != nil {
		return err
	}
	limit := 0
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid limit %q", text))
		}
	}
	var after *position
	if token := query.Get("continue"); token != "" {
		after = &position{}
		decoded, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			err = json.Unmarshal(decoded, after)
		}
		if err != nil {
			return apierrors.NewBadRequest("continue key is not valid: " + err.Error())
		}
	}

	c.mu.Lock()
	objects := c.all(request.res, request.namespace)
	version := strconv.FormatUint(c.version, 10)
	c.mu.Unlock()

	list := &unstructured.UnstructuredList{Object: map[string]any{}}
	list.SetGroupVersionKind(request.res.gvr.GroupVersion().WithKind(request.res.kind + "List"))
	list.SetResourceVersion(version)
	if request.metadata {
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
	}
	for i, object := range objects {
		at := position{object.GetNamespace(), object.GetName()}
		if after != nil && (at.Namespace < after.Namespace || at.Namespace == after.Namespace && at.Name <= after.Name) {
			continue
		}
		if !selector.Matches(labels.Set(object.GetLabels())) || !fieldSelector.Matches(selectable(object)) {
			continue
		}
		if limit > 0 && len(list.Items) == limit {
			last := list.Items[limit-1]
			token, err := json.Marshal(position{last.GetNamespace(), last.GetName()})
			if err != nil {
				return err
			}
			list.SetContinue(base64.RawURLEncoding.EncodeToString(token))
			if selector.Empty() && fieldSelector.Empty() {
				left := int64(len(objects) - i)
				list.SetRemainingItemCount(&left)
			}
			break
		}
		list.Items = append(list.Items, *request.shape(object))
	}
	writeJSON(w, http.StatusOK, list.UnstructuredContent())
	return nil
}

// selectable are the fields that a fieldSelector may name.
func selectable(object *unstructured.Unstructured) fields.Set {
	set := fields.Set{"metadata.name": object.GetName(), "metadata.namespace": object.GetNamespace()}
	for _, path := range selectablePaths[object.GetKind()] {
		set[path] = stringAt(object, strings.Split(path, ".")...)
	}
	return set
}

// selectablePaths are the fields beside name and namespace that a fieldSelector may name, as k8s.io/kubernetes/pkg/apis/core/v1/conversion.go
// has them, as far as they are texts and Flint asks for them.
var selectablePaths = map[string][]string{
	"Pod":   {"status.phase", "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName"},
	"Event": {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "involvedObject.namespace", "reason", "type"},
}

// selects refuses a selector that names a field which objects of the kind are not selected by: matched against nothing it
// would select nothing, in silence.
func selects(res *resource, selector fields.Selector) error {
	for _, requirement := range selector.Requirements() {
		if known := append([]string{"metadata.name", "metadata.namespace"}, selectablePaths[res.kind]...); !slices.Contains(known, requirement.Field) {
			return apierrors.NewBadRequest("field label not supported: " + requirement.Field)
		}
	}
	return nil
}

func (c *Cluster) servePut(w http.ResponseWriter, r *http.Request, request call) error {
	object, err := readObject(r)
	if err != nil {
		return err
	}
	stored, err := c.update(request.res, request.key(), request.subresource == "status", request.dryRun,
		func(old *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			if uid := object.GetUID(); uid != "" && uid != old.GetUID() {
				return nil, apierrors.NewConflict(request.res.gvr.GroupResource(), request.name,
					fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())) //nolint:staticcheck // the API server's words
			}
			return object, nil
		})
	if err != nil {
		return err
	}
	request.write(w, http.StatusOK, stored)
	return nil
}

func (c *Cluster) servePatch(w http.ResponseWriter, r *http.Request, request call) error {
	patch, err := readBody(r)
	if err != nil {
		return err
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return unsupportedMediaType(r)
	}
	apply := patchers[types.PatchType(kind)]
	if apply == nil || (types.PatchType(kind) == types.StrategicMergePatchType && request.res.example == nil) {
		return unsupportedMediaType(r)
	}
	stored, err := c.update(request.res, request.key(), request.subresource == "status", request.dryRun,
		func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			before, err := object.MarshalJSON()
			if err != nil {
				return nil, err
			}
			after, err := apply(before, patch, request.res)
			if err != nil {
				return nil, err
			}
			patched := &unstructured.Unstructured{}
			if err := patched.UnmarshalJSON(after); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			return patched, nil
		})
	if err != nil {
		return err
	}
	request.write(w, http.StatusOK, stored)
	return nil
}

// patchers are the patch types that the API takes.
var patchers = map[types.PatchType]func(document, patch []byte, res *resource) ([]byte, error){
	types.StrategicMergePatchType: func(document, patch []byte, res *resource) ([]byte, error) {
		after, err := strategicpatch.StrategicMergePatch(document, patch, res.example)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, nil
	},
	types.MergePatchType: func(document, patch []byte, _ *resource) ([]byte, error) {
		after, err := jsonpatch.MergePatch(document, patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return after, nil
	},
	types.JSONPatchType: func(document, patch []byte, _ *resource) ([]byte, error) {
		operations, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		after, err := operations.Apply(document)
		if err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
		}
		return after, nil
	},
}

func (c *Cluster) serveDelete(w http.ResponseWriter, r *http.Request, request call) error {
	options, err := readDeleteOptions(r)
	if err != nil {
		return err
	}
	object, gone, err := c.remove(request.res, request.key(), options)
	if err != nil {
		return err
	}
	if request.res.echoed || !gone {
		request.write(w, http.StatusOK, object)
		return nil
	}
	writeJSON(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: request.name, Group: request.res.gvr.Group, Kind: request.res.gvr.Resource, UID: object.GetUID(),
		},
	})
	return nil
}

// serveLog answers what the containers of a pod wrote: whole, or the end that tailLines and limitBytes leave.
func (c *Cluster) serveLog(w http.ResponseWriter, r *http.Request, request call) error {
	if request.res.gvr != Pods {
		return lacks(r, http.StatusNotFound)
	}
	query := r.URL.Query()
	if query.Get("follow") == "true" {
		return apierrors.NewBadRequest("the embedded API lacks follow")
	}
	c.mu.Lock()
	pod, err := c.load(request.key())
	var text []byte
	if err == nil {
		text = slices.Clone(c.logs[pod.GetUID()])
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if stringAt(pod, "spec", "nodeName") == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", request.name))
	}
	if lines, err := strconv.Atoi(query.Get("tailLines")); err == nil {
		all := strings.SplitAfter(string(text), "\n")
		if n := len(all); n > 0 && all[n-1] == "" {
			all = all[:n-1]
		}
		text = []byte(strings.Join(all[max(0, len(all)-lines):], ""))
	}
	if limit, err := strconv.Atoi(query.Get("limitBytes")); err == nil && limit < len(text) {
		text = text[:limit]
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(text)
	return nil
}

// write answers with an object, or with its metadata if that is what the client asked for.
func (c call) write(w http.ResponseWriter, code int, object *unstructured.Unstructured) {
	writeJSON(w, code, c.shape(object).Object)
}

func (c call) shape(object *unstructured.Unstructured) *unstructured.Unstructured {
	if !c.metadata {
		return object
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": metav1.SchemeGroupVersion.String(), "metadata": object.Object["metadata"],
	}}
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
		}
		return nil, apierrors.NewBadRequest("read the body: " + err.Error())
	}
	return body, nil
}

// readObject reads what a POST or PUT sends: JSON, or the protobuf that typed clients prefer.
func readObject(r *http.Request) (*unstructured.Unstructured, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case err != nil || kind == runtime.ContentTypeJSON:
		if err := object.UnmarshalJSON(body); err != nil {
			return nil, apierrors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
	case kind == runtime.ContentTypeProtobuf:
		typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
		if object.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return nil, apierrors.NewBadRequest("the object provided is unrecognized: " + err.Error())
		}
		object.SetGroupVersionKind(*gvk)
	default:
		return nil, unsupportedMediaType(r)
	}
	return object, nil
}

// readDeleteOptions reads the options of a DELETE from its body or, as the API server does, only when
// there is no body, from the query.
func readDeleteOptions(r *http.Request) (*metav1.DeleteOptions, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	options := &metav1.DeleteOptions{}
	if len(body) > 0 {
		decoder := scheme.Codecs.UniversalDeserializer()
		if _, _, err := decoder.Decode(body, &schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, options); err != nil {
			return nil, apierrors.NewBadRequest("the body is not DeleteOptions: " + err.Error())
		}
	} else {
		query := r.URL.Query()
		options.DryRun = query["dryRun"]
		if policy := metav1.DeletionPropagation(query.Get("propagationPolicy")); policy != "" {
			options.PropagationPolicy = &policy
		}
		if text := query.Get("gracePeriodSeconds"); text != "" {
			seconds, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid gracePeriodSeconds %q", text))
			}
			options.GracePeriodSeconds = &seconds
		}
	}
	if options.PropagationPolicy != nil && *options.PropagationPolicy == metav1.DeletePropagationOrphan {
		return nil, apierrors.NewBadRequest("the embedded API lacks the propagation policy Orphan")
	}
	return options, nil
}

// lacks is the answer to what a real API server may know and this one does not.
func lacks(r *http.Request, code int32) error {
	reason := metav1.StatusReasonNotFound
	if code == http.StatusMethodNotAllowed {
		reason = metav1.StatusReasonMethodNotAllowed
	}
	return failure(code, reason, fmt.Sprintf("the embedded API lacks %s %s", r.Method, r.URL.RequestURI()))
}

func unsupportedMediaType(r *http.Request) error {
	return failure(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
		fmt.Sprintf("the embedded API does not take %q for %s %s", r.Header.Get("Content-Type"), r.Method, r.URL.Path))
}

func failure(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// writeError answers with the Status of an error.
func writeError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeJSON(w, int(status.Code), &status)
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n'))
}
