package parity

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// object and list are JSON values.
type (
	object = map[string]any
	list   = []any
)

// Normalise gives the objects of one launch in a form in which two launches of the same submission are equal, and
// nothing else is. The objects are in the order of their creation, with the driver pod among them. They are not changed.
//
//   - What is drawn at random or taken from the clock becomes a token: application id, the ids in
//     names, the UUID of the local directory, the pod's uid, the submit time, the date in spark.properties. Each is found
//     where it belongs and replaced wherever it stands, so that a wrong id stays a difference.
//   - spark.properties becomes a map, beside its comment lines.
//   - Where absence and a value mean the same to the API server, the value is left out.
//   - Quantities are numbers.
//   - What Spark keeps in a hash table gets the order of its names, within one family of
//     configuration keys and no further: driverEnv, secretKeyRef, secrets, volumes, and the index in names of claims.
//   - A very long text is its SHA-256.
//
// It returns an error for objects that are no launch.
func Normalise(objects []object) ([]object, error) {
	n := normaliser{families: map[string]map[string]bool{}}
	for _, o := range objects {
		n.objects = append(n.objects, runtime.DeepCopyJSON(o))
	}
	for _, step := range []func() error{
		n.find, n.readProperties, n.findIDs, n.replaceIDs, n.owners, n.defaults, n.quantities, n.sortFamilies, n.shorten,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return n.objects, nil
}

// Tokens that stand for what differs from launch to launch.
const (
	tokenApp        = "<app-id>"
	tokenPrefix     = "<id>"
	tokenConfigMap  = "<config-map-id>"
	tokenService    = "<service-id>"
	tokenLocalDir   = "<uuid>"
	tokenUpload     = "<upload>"
	tokenUID        = "<uid>"
	tokenSubmitTime = "<submit-time>"
	tokenDate       = "<date>"
)

type normaliser struct {
	objects []object
	// pod and its driver container, and the ConfigMap with spark.properties.
	pod, container, configMap object
	properties                map[string]string
	// ids are pairs for a strings.Replacer.
	ids []string
	// families are the names in each family of configuration keys.
	families map[string]map[string]bool
}

const propertiesKey = "spark.properties"

func (n *normaliser) find() error {
	for _, o := range n.objects {
		switch o["kind"] {
		case "Pod":
			if n.pod != nil {
				return errors.New("there are two pods")
			}
			n.pod = o
		case "ConfigMap":
			if data, ok := o["data"].(object); ok && data[propertiesKey] != nil {
				n.configMap = o
			}
		}
	}
	if n.pod == nil || n.configMap == nil {
		return errors.New("there is no pod, or no ConfigMap with spark.properties")
	}
	containers, _ := at(n.pod, "spec", "containers").(list)
	if len(containers) == 0 {
		return errors.New("the pod has no container")
	}
	n.container, _ = containers[len(containers)-1].(object)
	return nil
}

// at is the value under the keys, or nil.
func at(o object, keys ...string) any {
	var value any = o
	for _, key := range keys {
		parent, ok := value.(object)
		if !ok {
			return nil
		}
		value = parent[key]
	}
	return value
}

func nameOf(o object) string {
	name, _ := at(o, "metadata", "name").(string)
	return name
}

var (
	// javaDate is Date.toString: "Mon Nov 30 01:23:09 UTC 2026".
	javaDate = regexp.MustCompile(`^#[A-Z][a-z]{2} [A-Z][a-z]{2} \d{2} \d{2}:\d{2}:\d{2} [A-Z]+[+:\d]* \d{4}$`)
	millis   = regexp.MustCompile(`^\d{13}$`)
)

func (n *normaliser) readProperties() error {
	data := n.configMap["data"].(object)
	text, ok := data[propertiesKey].(string)
	if !ok {
		return fmt.Errorf("%s is no text", propertiesKey)
	}
	p, err := parseProperties(text)
	if err != nil {
		return fmt.Errorf("%s: %w", propertiesKey, err)
	}
	n.properties = p.values
	values, comments := object{}, list{}
	for key, value := range p.values {
		if key == "spark.app.submitTime" && millis.MatchString(value) {
			value = tokenSubmitTime
		}
		values[key] = value
	}
	for i, comment := range p.comments {
		if i == 1 && javaDate.MatchString(comment) {
			comment = tokenDate
		}
		comments = append(comments, comment)
	}
	data[propertiesKey] = object{"comments": comments, "values": values}
	for family, prefix := range map[string]string{
		"env": "spark.kubernetes.driverEnv.", "secretKeyRef": "spark.kubernetes.driver.secretKeyRef.",
		"secrets": "spark.kubernetes.driver.secrets.", "volumes": volumesPrefix,
	} {
		n.families[family] = map[string]bool{}
		for key := range p.values {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				continue
			}
			switch family {
			case "secrets":
				name += "-volume"
			case "volumes":
				parts := strings.SplitN(name, ".", 3)
				if len(parts) < 3 {
					continue
				}
				name = parts[1]
			}
			n.families[family][name] = true
		}
	}
	return nil
}

const volumesPrefix = "spark.kubernetes.driver.volumes."

var (
	appID       = regexp.MustCompile(`^spark-[0-9a-f]{32}$`)
	configMapID = regexp.MustCompile(`^spark-drv-([0-9a-f]{16})-conf-map$`)
	// prefixID is the end of the name prefix in a name that is made of it. Where an application's name leaves
	// nothing, the id is all of the prefix, and a digit in front of it has become an x.
	prefixID   = regexp.MustCompile(`(?:^|-)([0-9a-fx][0-9a-f]{15})-(?:driver|driver-svc|policy|driver-podspec-conf-map|kubernetes-credentials|driver-pvc-\d+)$`)
	fallbackID = regexp.MustCompile(`^spark-([0-9a-f]{16})-driver-svc$`)
	// uploadID is the folder of an upload, of which each has its own, and which only Spark makes.
	uploadID = regexp.MustCompile(`/spark-upload-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/`)
	localDir = regexp.MustCompile(`^/var/data/spark-([0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12})$`)
)

func (n *normaliser) findIDs() error {
	if id, _ := at(n.pod, "metadata", "labels", "spark-app-selector").(string); appID.MatchString(id) {
		n.ids = append(n.ids, id, tokenApp)
	}
	if m := configMapID.FindStringSubmatch(nameOf(n.configMap)); m != nil {
		n.ids = append(n.ids, m[1], tokenConfigMap)
	}
	var prefix, service string
	for _, o := range n.objects {
		m := prefixID.FindStringSubmatch(nameOf(o))
		switch {
		case m == nil:
		case o["kind"] == "Service":
			service = m[1]
		case prefix == "":
			prefix = m[1]
		}
	}
	fallback := false
	for _, o := range n.objects {
		if o["kind"] == "Service" && fallbackID.MatchString(nameOf(o)) && service != prefix {
			// An application named "spark" has the same shape of a name without a fallback.
			fallback = prefix != "" || at(n.pod, "metadata", "labels", "spark-app-name") != "spark"
		}
	}
	switch {
	case fallback:
		n.ids = append(n.ids, service, tokenService)
	case prefix == "":
		prefix = service
	}
	if prefix != "" {
		n.ids = append(n.ids, prefix, tokenPrefix)
	}
	env, _ := n.container["env"].(list)
	for _, e := range env {
		variable, _ := e.(object)
		if value, _ := variable["value"].(string); variable["name"] == "SPARK_LOCAL_DIRS" {
			if m := localDir.FindStringSubmatch(value); m != nil {
				n.ids = append(n.ids, m[1], tokenLocalDir)
			}
		}
	}
	return nil
}

// replaceIDs replaces the ids in all texts, keys among them.
func (n *normaliser) replaceIDs() error {
	r := strings.NewReplacer(n.ids...)
	replace := func(text string) string {
		return uploadID.ReplaceAllString(r.Replace(text), "/spark-upload-"+tokenUpload+"/")
	}
	for i := range n.objects {
		replaced := everywhere(n.objects[i], replace).(object)
		clear(n.objects[i])
		maps.Copy(n.objects[i], replaced)
	}
	// The parts were copied.
	n.container = nil
	n.pod, n.configMap = nil, nil
	return n.find()
}

// everywhere applies f to all texts of a JSON value.
func everywhere(value any, f func(string) string) any {
	switch value := value.(type) {
	case string:
		return f(value)
	case list:
		replaced := make(list, len(value))
		for i := range value {
			replaced[i] = everywhere(value[i], f)
		}
		return replaced
	case object:
		replaced := make(object, len(value))
		for key := range value {
			replaced[f(key)] = everywhere(value[key], f)
		}
		return replaced
	}
	return value
}

// owners replaces the uid of the pod in the references to it.
func (n *normaliser) owners() error {
	for _, o := range n.objects {
		references, _ := at(o, "metadata", "ownerReferences").(list)
		for _, r := range references {
			reference, _ := r.(object)
			if reference["kind"] == "Pod" && reference["name"] == nameOf(n.pod) && reference["uid"] != nil {
				reference["uid"] = tokenUID
			}
		}
	}
	return nil
}

// defaults drops what the API server reads like its absence: null and empty lists in a pod, empty maps of texts, and false
// or an empty text where that is the default.
func (n *normaliser) defaults() error {
	dropNothing(n.pod)
	for _, o := range n.objects {
		dropEmpty(at(o, "metadata"), "labels", "annotations", "ownerReferences")
	}
	spec := n.pod["spec"].(object)
	dropEmpty(spec, "nodeSelector")
	for _, key := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[key]) {
			dropEmpty(c["resources"], "limits", "requests")
			dropEmpty(c, "resources")
			for _, m := range objects(c["volumeMounts"]) {
				dropDefault(m, "readOnly", false)
				dropDefault(m, "subPath", "")
				dropDefault(m, "subPathExpr", "")
			}
		}
	}
	for _, v := range objects(spec["volumes"]) {
		dropDefault(v["hostPath"], "type", "")
		dropDefault(v["emptyDir"], "medium", "")
		dropDefault(v["persistentVolumeClaim"], "readOnly", false)
		dropDefault(v["nfs"], "readOnly", false)
	}
	return nil
}

// objects are the objects in a list.
func objects(value any) []object {
	var all []object
	items, _ := value.(list)
	for _, item := range items {
		if o, ok := item.(object); ok {
			all = append(all, o)
		}
	}
	return all
}

// dropNothing drops null and empty lists, and the point of whole numbers.
func dropNothing(value any) any {
	switch value := value.(type) {
	case float64:
		if whole := int64(value); float64(whole) == value {
			return whole
		}
	case list:
		for i := range value {
			value[i] = dropNothing(value[i])
		}
	case object:
		for key, field := range value {
			if items, ok := field.(list); field == nil || ok && len(items) == 0 {
				delete(value, key)
				continue
			}
			value[key] = dropNothing(field)
		}
	}
	return value
}

func dropEmpty(parent any, keys ...string) {
	o, _ := parent.(object)
	for _, key := range keys {
		switch value := o[key].(type) {
		case object:
			if len(value) == 0 {
				delete(o, key)
			}
		case list:
			if len(value) == 0 {
				delete(o, key)
			}
		}
	}
}

func dropDefault(parent any, key string, value any) {
	if o, ok := parent.(object); ok && o[key] == value {
		delete(o, key)
	}
}

// quantities writes quantities as numbers.
func (n *normaliser) quantities() error {
	spec := n.pod["spec"].(object)
	for _, key := range []string{"containers", "initContainers"} {
		for _, c := range objects(spec[key]) {
			for _, kind := range []string{"limits", "requests"} {
				quantify(at(c, "resources", kind))
			}
		}
	}
	for _, v := range objects(spec["volumes"]) {
		quantify(v["emptyDir"], "sizeLimit")
	}
	for _, o := range n.objects {
		if o["kind"] == "PersistentVolumeClaim" {
			quantify(at(o, "spec", "resources", "requests"))
		}
	}
	return nil
}

// quantify writes the quantities under the keys, by default under all, as numbers. What is no quantity stays.
func quantify(parent any, keys ...string) {
	o, _ := parent.(object)
	if keys == nil {
		keys = slices.Collect(maps.Keys(o))
	}
	for _, key := range keys {
		switch value := o[key].(type) {
		case string, int64, float64:
			q, err := resource.ParseQuantity(fmt.Sprint(value))
			if number, ok := new(big.Rat).SetString(q.AsDec().String()); ok && err == nil {
				o[key] = "number " + number.RatString()
			}
		}
	}
}

// sortFamilies sorts neighbours that come from one family of configuration keys.
func (n *normaliser) sortFamilies() error {
	spec := n.pod["spec"].(object)
	byName := func(a, b any) int { return strings.Compare(itemName(a), itemName(b)) }
	env, _ := n.container["env"].(list)
	// A template's variables and Spark's own have the same names at times: the family stands behind SPARK_APPLICATION_ID.
	start := slices.IndexFunc(env, func(e any) bool { return itemName(e) == "SPARK_APPLICATION_ID" }) + 1
	bind := start + max(0, slices.IndexFunc(env[start:], func(e any) bool {
		return itemName(e) == "SPARK_DRIVER_BIND_ADDRESS" && at(e.(object), "valueFrom", "fieldRef") != nil
	}))
	sortRuns(env[start:bind], n.in("env"), byName)
	sortRuns(env[bind:], func(item any) bool {
		return n.in("secretKeyRef")(item) && at(item.(object), "valueFrom", "secretKeyRef") != nil
	}, byName)
	for _, family := range []string{"secrets", "volumes"} {
		volumes, _ := spec["volumes"].(list)
		sortRuns(volumes, n.in(family), byName)
		mounts, _ := n.container["volumeMounts"].(list)
		sortRuns(mounts, n.in(family), byName)
	}
	if err := n.renumberClaims(); err != nil {
		return err
	}
	n.sortLocalDirs(env)
	return nil
}

func (n *normaliser) in(family string) func(any) bool {
	return func(item any) bool { return n.families[family][itemName(item)] }
}

func itemName(item any) string {
	o, _ := item.(object)
	name, _ := o["name"].(string)
	return name
}

// sortRuns sorts each run of neighbours that belong, and moves nothing else.
func sortRuns[T any](items []T, belongs func(T) bool, compare func(a, b T) int) {
	for start := 0; start < len(items); {
		end := start
		for end < len(items) && belongs(items[end]) {
			end++
		}
		slices.SortStableFunc(items[start:end], compare)
		start = max(end, start+1)
	}
}

var claimIndex = regexp.MustCompile(tokenPrefix + `-driver-pvc-(\d+)`)

// renumberClaims gives the volumes' claims the index that they have when the volumes are sorted by type and name,
// in the pod and in the claims' names, and sorts the claims. Spark's index follows the order of a hash table. An
// index that is used by two volumes, or is not below the number of volumes, stays.
func (n *normaliser) renumberClaims() error {
	type volume struct{ kind, name string }
	var volumes []volume
	for key := range n.properties {
		if rest, ok := strings.CutPrefix(key, volumesPrefix); ok {
			if parts := strings.SplitN(rest, ".", 3); len(parts) == 3 {
				volumes = append(volumes, volume{parts[0], parts[1]})
			}
		}
	}
	slices.SortFunc(volumes, func(a, b volume) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.name, b.name))
	})
	volumes = slices.Compact(volumes)
	renumbered := map[string]string{}
	for _, v := range objects(at(n.pod, "spec", "volumes")) {
		claim, _ := at(v, "persistentVolumeClaim", "claimName").(string)
		m := claimIndex.FindStringSubmatch(claim)
		if m == nil {
			continue
		}
		index, err := strconv.Atoi(m[1])
		if err != nil {
			return fmt.Errorf("claim %q: %w", claim, err)
		}
		rank := slices.Index(volumes, volume{"persistentVolumeClaim", itemName(v)})
		if _, twice := renumbered[m[1]]; twice || rank < 0 || index >= len(volumes) {
			return nil
		}
		renumbered[m[1]] = strconv.Itoa(rank)
	}
	rename := func(text string) string {
		return claimIndex.ReplaceAllStringFunc(text, func(found string) string {
			old := claimIndex.FindStringSubmatch(found)[1]
			if rank, ok := renumbered[old]; ok {
				return strings.TrimSuffix(found, old) + rank
			}
			return found
		})
	}
	for _, v := range objects(at(n.pod, "spec", "volumes")) {
		if claim, ok := v["persistentVolumeClaim"].(object); ok {
			claim["claimName"] = everywhere(claim["claimName"], rename)
		}
	}
	isClaim := func(o object) bool { return o["kind"] == "PersistentVolumeClaim" }
	for _, o := range n.objects {
		if metadata, ok := o["metadata"].(object); ok && isClaim(o) {
			metadata["name"] = everywhere(metadata["name"], rename)
		}
	}
	sortRuns(n.objects, isClaim, func(a, b object) int { return strings.Compare(nameOf(a), nameOf(b)) })
	return nil
}

// sortLocalDirs undoes what Spark shuffles: the paths in SPARK_LOCAL_DIRS. Where Spark makes the volumes,
// the mount of spark-local-dir-1 gets the first of the shuffled paths, and so on.
func (n *normaliser) sortLocalDirs(env list) {
	i := slices.IndexFunc(env, func(e any) bool { return itemName(e) == "SPARK_LOCAL_DIRS" })
	if i < 0 {
		return
	}
	var mounts []object
	var paths []string
	for _, m := range objects(n.container["volumeMounts"]) {
		if path, ok := m["mountPath"].(string); ok && strings.HasPrefix(itemName(m), "spark-local-dir-") {
			mounts, paths = append(mounts, m), append(paths, path)
		}
	}
	variable := env[i].(object)
	if variable["value"] != strings.Join(paths, ",") && !n.callersLocalDirs(mounts) {
		return
	}
	value, _ := variable["value"].(string)
	shuffled := strings.Split(value, ",")
	slices.Sort(shuffled)
	if sorted := slices.Sorted(slices.Values(paths)); !slices.Equal(shuffled, sorted) {
		return
	}
	variable["value"] = strings.Join(shuffled, ",")
	if !n.callersLocalDirs(mounts) {
		for j, m := range mounts {
			m["mountPath"] = shuffled[j]
		}
	}
}

// callersLocalDirs tells whether the mounts are the caller's: those that Spark makes are of spark.local.dir, numbered from 1.
func (n *normaliser) callersLocalDirs(mounts []object) bool {
	if _, set := n.properties["spark.local.dir"]; !set {
		return true
	}
	for i, m := range mounts {
		if itemName(m) != fmt.Sprintf("spark-local-dir-%d", i+1) || n.families["volumes"][itemName(m)] {
			return true
		}
	}
	return false
}

// shorten replaces texts that make a golden unreadable by their hash.
func (n *normaliser) shorten() error {
	const limit = 10_000
	for i := range n.objects {
		n.objects[i] = everywhere(n.objects[i], func(text string) string {
			if len(text) <= limit {
				return text
			}
			return fmt.Sprintf("%d bytes, SHA-256 %x", len(text), sha256.Sum256([]byte(text)))
		}).(object)
	}
	return nil
}
