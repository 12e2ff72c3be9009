package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
)

// key names one stored object.
type key struct {
	gvr             schema.GroupVersionResource
	namespace, name string
}

// newTracker is client-go's object tracker, told to keep each of our kinds unstructured.
func newTracker() clienttesting.ObjectTracker {
	scheme := runtime.NewScheme()
	for _, res := range resources {
		scheme.AddKnownTypeWithName(res.gvk(), &unstructured.Unstructured{})
		list := res.gvk()
		list.Kind += "List"
		scheme.AddKnownTypeWithName(list, &unstructured.UnstructuredList{})
	}
	return clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
}

// load is a copy of one object. The caller holds mu, as for all below that say nothing else.
func (c *Cluster) load(k key) (*unstructured.Unstructured, error) {
	object, err := c.tracker.Get(k.gvr, k.namespace, k.name)
	if err != nil {
		return nil, err
	}
	return object.(*unstructured.Unstructured), nil
}

// all are copies of the objects of a resource in one namespace, or in all (""), by namespace and name.
func (c *Cluster) all(res *resource, namespace string) []*unstructured.Unstructured {
	list, err := c.tracker.List(res.gvr, res.gvk(), namespace)
	if err != nil {
		panic(fmt.Sprintf("embedded: list %s: %v", res.gvr, err)) // only for a kind that newTracker forgot
	}
	items := list.(*unstructured.UnstructuredList).Items
	objects := make([]*unstructured.Unstructured, len(items))
	for i := range items {
		objects[i] = &items[i]
	}
	slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// create judges and stores a new object as a POST does. It takes mu itself.
func (c *Cluster) create(res *resource, namespace string, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.createLocked(res, namespace, object, dryRun)
}

func (c *Cluster) createLocked(res *resource, namespace string, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	if object.GroupVersionKind() != res.gvk() {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s",
			object.GetKind(), object.GetAPIVersion(), res.kind))
	}
	if !res.namespaced {
		namespace = ""
	}
	if object.GetNamespace() != "" && object.GetNamespace() != namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	object.SetNamespace(namespace)
	if object.GetName() == "" && object.GetGenerateName() != "" {
		object.SetName(object.GetGenerateName() + utilrand.String(5))
	}
	if res.namespaced {
		if _, err := c.load(key{Namespaces, "", namespace}); err != nil {
			return nil, err
		}
	}
	if object.GetResourceVersion() != "" {
		// A plain error there, hence a 500 without a reason.
		return nil, failure(http.StatusInternalServerError, "", "resourceVersion should not be set on objects to be created")
	}
	if err := validate(res, object); err != nil {
		return nil, err
	}
	k := key{res.gvr, namespace, object.GetName()}
	if there, err := c.load(k); err == nil {
		exists := apierrors.NewAlreadyExists(res.gvr.GroupResource(), object.GetName())
		if there.GetDeletionTimestamp() != nil {
			exists.ErrStatus.Message = "object is being deleted: " + exists.ErrStatus.Message
		}
		return nil, exists
	}

	object.SetUID(uuid.NewUUID())
	object.SetCreationTimestamp(metav1.NewTime(c.clock.Now().UTC()))
	object.SetDeletionTimestamp(nil)
	object.SetDeletionGracePeriodSeconds(nil)
	if res.counted {
		object.SetGeneration(1)
	}
	initialStatus(res, object)
	if res.gvr == Jobs {
		labelJob(object)
	}
	if dryRun {
		return object, nil
	}
	c.touch(object)
	if err := c.tracker.Create(res.gvr, object, namespace); err != nil {
		return nil, err
	}
	c.uids[object.GetUID()] = k
	for _, owner := range object.GetOwnerReferences() {
		c.owned[owner.UID] = append(c.owned[owner.UID], k)
	}
	c.noteStranded(nil, object)
	c.notify(k)
	return object, nil
}

// validate refuses what no caller may rely on; the real API server has many more rules.
func validate(res *resource, object *unstructured.Unstructured) error {
	var errs field.ErrorList
	if object.GetName() == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "name or generateName is required"))
	} else {
		for _, message := range validation.NameIsDNSSubdomain(object.GetName(), false) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), object.GetName(), message))
		}
	}
	if res.gvr == Pods && gated(object) && stringAt(object, "spec", "nodeName") != "" {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(res.gvk().GroupKind(), object.GetName(), errs)
}

// initialStatus is what the API server itself puts into the status of a new object.
func initialStatus(res *resource, object *unstructured.Unstructured) {
	switch res.gvr {
	case Pods:
		status := map[string]any{"phase": "Pending"}
		if gated(object) {
			status["conditions"] = []any{map[string]any{
				"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
				"message": "Scheduling is blocked due to non-empty scheduling gates",
			}}
		}
		object.Object["status"] = status
	case Jobs:
		object.Object["status"] = map[string]any{}
	case Claims:
		object.Object["status"] = map[string]any{"phase": "Pending"}
	case Namespaces:
		object.Object["status"] = map[string]any{"phase": "Active"}
	}
}

// labelJob gives a Job the selector, and its pods the labels, that the API server generates.
func labelJob(job *unstructured.Unstructured) {
	if manual, _, _ := unstructured.NestedBool(job.Object, "spec", "manualSelector"); manual {
		return
	}
	uid := string(job.GetUID())
	labels, _, _ := unstructured.NestedStringMap(job.Object, "spec", "template", "metadata", "labels")
	if labels == nil {
		labels = map[string]string{}
	}
	for _, name := range []string{"job-name", batchv1.JobNameLabel} {
		labels[name] = job.GetName()
	}
	for _, name := range []string{"controller-uid", batchv1.ControllerUidLabel} {
		labels[name] = uid
	}
	_ = unstructured.SetNestedStringMap(job.Object, labels, "spec", "template", "metadata", "labels")
	_ = unstructured.SetNestedStringMap(job.Object, map[string]string{batchv1.ControllerUidLabel: uid}, "spec", "selector", "matchLabels")
	if len(job.GetLabels()) == 0 {
		job.SetLabels(labels)
	}
}

// update stores what mutate makes of a copy of the object, as PUT and PATCH do, judged against
// the object as it is now. With status true the spec and the owners
// stay as they are, else the status.
// It takes mu itself, and mutate runs under it.
func (c *Cluster) update(res *resource, k key, status, dryRun bool, mutate func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.updateLocked(res, k, status, dryRun, mutate)
}

func (c *Cluster) updateLocked(res *resource, k key, status, dryRun bool, mutate func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	old, err := c.load(k)
	if err != nil {
		return nil, err
	}
	object, err := mutate(old.DeepCopy())
	if err != nil {
		return nil, err
	}
	if err := checkIdentity(res, k, old, object); err != nil {
		return nil, err
	}
	if status {
		replace(object, "spec", old.Object["spec"])
		object.SetOwnerReferences(old.GetOwnerReferences())
	} else if statusApart(res) {
		replace(object, "status", old.Object["status"])
	}
	object.SetNamespace(k.namespace)
	object.SetUID(old.GetUID())
	object.SetResourceVersion(old.GetResourceVersion())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetDeletionTimestamp(old.GetDeletionTimestamp())
	object.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	object.SetGeneration(old.GetGeneration())
	if res.gvr == Pods && !gated(object) {
		unstructured.RemoveNestedField(object.Object, "spec", "schedulingGates") // not an empty list
	}
	if err := validate(res, object); err != nil {
		return nil, err
	}
	if equality.Semantic.DeepEqual(old.Object, object.Object) {
		return object, nil // a write that changes nothing is not stored
	}
	if res.counted && !equality.Semantic.DeepEqual(old.Object["spec"], object.Object["spec"]) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	if dryRun {
		return object, nil
	}
	c.touch(object)
	if err := c.tracker.Update(res.gvr, object, k.namespace); err != nil {
		return nil, err
	}
	c.reown(k, old, object)
	c.noteStranded(old, object)
	c.notify(k)
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 && !dying(res, object) {
		c.forget(k, object) // the last finalizer went
	}
	return object, nil
}

// checkIdentity refuses a write that means another object or another version of it.
func checkIdentity(res *resource, k key, old, object *unstructured.Unstructured) error {
	if object.GetName() != k.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", object.GetName(), k.name))
	}
	if object.GetNamespace() != "" && object.GetNamespace() != k.namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace of the object (%s) does not match the namespace on the request (%s)", object.GetNamespace(), k.namespace))
	}
	group := res.gvr.GroupResource()
	if version := object.GetResourceVersion(); version != "" && version != old.GetResourceVersion() {
		return apierrors.NewConflict(group, k.name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	// Where a patch names a uid, the API server has no precondition but an immutable field.
	if uid := object.GetUID(); uid != "" && uid != old.GetUID() {
		return apierrors.NewInvalid(res.gvk().GroupKind(), k.name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), uid, validation.FieldImmutableErrorMsg),
		})
	}
	return nil
}

// statusApart reports whether the status is a subresource, which a write of the object leaves alone.
func statusApart(res *resource) bool {
	switch res.gvr {
	case Pods, Jobs, Services, Claims, Namespaces:
		return true
	}
	return false
}

// remove deletes an object as DELETE does. gone is false when the object only got its deletion
// time and still waits for the node or a finalizer. It takes mu itself.
func (c *Cluster) remove(res *resource, k key, options *metav1.DeleteOptions) (object *unstructured.Unstructured, gone bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	object, err = c.load(k)
	if err != nil {
		return nil, false, err
	}
	// The API server names the kind where the resource belongs; so do we.
	named := schema.GroupResource{Group: res.gvr.Group, Resource: res.kind}
	if pre := options.Preconditions; pre != nil {
		if pre.UID != nil && *pre.UID != object.GetUID() {
			return nil, false, apierrors.NewConflict(named, k.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *pre.UID, object.GetUID()))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != object.GetResourceVersion() {
			return nil, false, apierrors.NewConflict(named, k.name, fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *pre.ResourceVersion, object.GetResourceVersion()))
		}
	}
	dryRun := slices.Contains(options.DryRun, metav1.DryRunAll)
	grace := gracePeriod(res, object, options)
	if grace == 0 && len(object.GetFinalizers()) == 0 {
		if !dryRun {
			c.forget(k, object)
		}
		if res.gvr == Pods && object.GetDeletionTimestamp() == nil {
			// What can end gracefully is answered with the time of its end.
			now := metav1.NewTime(c.clock.Now().UTC())
			object.SetDeletionTimestamp(&now)
		}
		return object, true, nil
	}
	if left := object.GetDeletionGracePeriodSeconds(); object.GetDeletionTimestamp() != nil && left != nil && grace < *left && !dryRun {
		shorten(object, grace)
		c.touch(object)
		if err := c.tracker.Update(res.gvr, object, k.namespace); err != nil {
			return nil, false, err
		}
		c.notify(k)
	}
	if object.GetDeletionTimestamp() == nil {
		ends := metav1.NewTime(c.clock.Now().UTC())
		ends.Time = ends.Add(time.Duration(grace) * time.Second)
		object.SetDeletionTimestamp(&ends)
		object.SetDeletionGracePeriodSeconds(&grace)
		if res.counted {
			object.SetGeneration(object.GetGeneration() + 1)
		}
		if !dryRun {
			c.touch(object)
			if err := c.tracker.Update(res.gvr, object, k.namespace); err != nil {
				return nil, false, err
			}
			c.notify(k)
		}
	}
	return object, false, nil
}

// shorten leaves a deleted object less time, counted from its deletion as the API server does
// (k8s.io/apiserver/pkg/registry/rest.BeforeDelete).
func shorten(object *unstructured.Unstructured, grace int64) {
	ends := metav1.NewTime(object.GetDeletionTimestamp().Add(time.Duration(grace-*object.GetDeletionGracePeriodSeconds()) * time.Second))
	object.SetDeletionTimestamp(&ends)
	object.SetDeletionGracePeriodSeconds(&grace)
}

// gracePeriod is the time that a deleted object keeps: none, except for a pod that the node has.
func gracePeriod(res *resource, object *unstructured.Unstructured, options *metav1.DeleteOptions) int64 {
	if res.gvr != Pods || stringAt(object, "spec", "nodeName") == "" || terminal(object) {
		return 0
	}
	if options.GracePeriodSeconds != nil {
		return *options.GracePeriodSeconds
	}
	if seconds, found, _ := unstructured.NestedInt64(object.Object, "spec", "terminationGracePeriodSeconds"); found {
		return seconds
	}
	return 30
}

// dying reports whether a deleted pod still waits for the node to end it.
func dying(res *resource, object *unstructured.Unstructured) bool {
	grace := object.GetDeletionGracePeriodSeconds()
	return res.gvr == Pods && grace != nil && *grace > 0
}

// forget drops an object and, as background propagation does, what is left without an owner.
func (c *Cluster) forget(k key, object *unstructured.Unstructured) {
	if err := c.tracker.Delete(k.gvr, k.namespace, k.name); err != nil {
		return
	}
	uid := object.GetUID()
	delete(c.uids, uid)
	delete(c.logs, uid)
	c.reown(k, object, nil)
	c.version++
	c.notify(k)
	children := c.owned[uid]
	delete(c.owned, uid)
	for _, child := range children {
		c.collect(child)
	}
	if k.gvr == Namespaces {
		for _, res := range resources {
			if res.namespaced {
				for _, inside := range c.all(res, k.name) {
					c.forget(key{res.gvr, k.name, inside.GetName()}, inside)
				}
			}
		}
	}
}

// collect deletes an object all of whose owners are gone.
func (c *Cluster) collect(k key) {
	object, err := c.load(k)
	if err != nil || len(object.GetOwnerReferences()) == 0 {
		return
	}
	for _, owner := range object.GetOwnerReferences() {
		_, alive := c.uids[owner.UID]
		// Of a kind that is not served here nobody can say that it is gone.
		known := byKind[schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)] != nil
		if alive || !known {
			return
		}
	}
	if len(object.GetFinalizers()) == 0 {
		c.forget(k, object)
		return
	}
	if object.GetDeletionTimestamp() == nil {
		now, none := metav1.NewTime(c.clock.Now().UTC()), int64(0)
		object.SetDeletionTimestamp(&now)
		object.SetDeletionGracePeriodSeconds(&none)
		c.touch(object)
		if err := c.tracker.Update(k.gvr, object, k.namespace); err == nil {
			c.notify(k)
		}
	}
}

// reown keeps the index of owners: old's references go, object's come. object may be nil.
func (c *Cluster) reown(k key, old, object *unstructured.Unstructured) {
	for _, owner := range old.GetOwnerReferences() {
		left := slices.DeleteFunc(c.owned[owner.UID], func(other key) bool { return other == k })
		if len(left) == 0 {
			delete(c.owned, owner.UID)
		} else {
			c.owned[owner.UID] = left
		}
	}
	if object == nil {
		return
	}
	for _, owner := range object.GetOwnerReferences() {
		c.owned[owner.UID] = append(c.owned[owner.UID], k)
	}
}

// touch gives an object the next resourceVersion.
func (c *Cluster) touch(object *unstructured.Unstructured) {
	c.version++
	object.SetResourceVersion(strconv.FormatUint(c.version, 10))
}

// notify tells the node, and whoever waits in Until, that an object changed.
func (c *Cluster) notify(k key) {
	close(c.changed)
	c.changed = make(chan struct{})
	if c.options.Idle || c.queue == nil {
		return
	}
	c.queue.Add(k)
	switch k.gvr {
	case ConfigMaps, Secrets, Claims:
		for pod := range c.waiting {
			if pod.namespace == k.namespace {
				c.queue.Add(pod)
			}
		}
	case Pods:
		// The Job looks at its pod.
		object, err := c.load(k)
		if err != nil {
			return
		}
		if owner := metav1.GetControllerOf(object); owner != nil {
			if job, found := c.uids[owner.UID]; found && job.gvr == Jobs {
				c.queue.Add(job)
			}
		}
	}
}

// children are the stored objects that name the uid as their owner.
func (c *Cluster) children(uid types.UID, gvr schema.GroupVersionResource) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for _, k := range c.owned[uid] {
		if k.gvr != gvr {
			continue
		}
		if object, err := c.load(k); err == nil {
			objects = append(objects, object)
		}
	}
	return objects
}

func gated(pod *unstructured.Unstructured) bool {
	gates, _, _ := unstructured.NestedSlice(pod.Object, "spec", "schedulingGates")
	return len(gates) > 0
}

func terminal(pod *unstructured.Unstructured) bool {
	phase := stringAt(pod, "status", "phase")
	return phase == "Succeeded" || phase == "Failed"
}

func stringAt(object *unstructured.Unstructured, fields ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, fields...)
	return value
}

func replace(object *unstructured.Unstructured, name string, value any) {
	if value == nil {
		delete(object.Object, name)
		return
	}
	object.Object[name] = runtime.DeepCopyJSONValue(value)
}
