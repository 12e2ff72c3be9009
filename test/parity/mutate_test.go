package parity

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
)

// mutation is one single change somewhere in a list of objects.
type mutation struct {
	// what names the place and the change.
	what    string
	objects []object
}

// mutations gives every single change of the objects: a text longer or empty, a number more, a truth turned, a
// field or an item removed, one added, an item doubled, and two neighbours swapped.
func mutations(objects []object) []mutation {
	root := asList(objects)
	var all []mutation
	// change makes a copy of everything with another value at the path; keep is false to remove it.
	change := func(path []any, what string, replace func(old any) any) {
		copied := runtime.DeepCopyJSONValue(root)
		copied = replaceAt(copied, path, replace)
		var mutated []object
		for _, o := range copied.(list) {
			if o, ok := o.(object); ok {
				mutated = append(mutated, o)
			}
		}
		all = append(all, mutation{fmt.Sprint(path, " ", what), mutated})
	}
	var walk func(path []any, value any)
	walk = func(path []any, value any) {
		path = slices.Clip(path)
		switch value := value.(type) {
		case string:
			change(path, "longer", func(any) any { return value + "x" })
			if value != "" {
				change(path, "empty", func(any) any { return "" })
			}
		case bool:
			change(path, "turned", func(any) any { return !value })
		case int64:
			change(path, "more", func(any) any { return value + 1 })
			change(path, "text", func(any) any { return strconv.FormatInt(value, 10) })
		case object:
			change(path, "field added", func(any) any {
				o := runtime.DeepCopyJSON(value)
				o["added"] = "x"
				return o
			})
			for _, key := range slices.Sorted(maps.Keys(value)) {
				change(path, "without "+key, func(any) any {
					o := runtime.DeepCopyJSON(value)
					delete(o, key)
					return o
				})
				walk(append(path, key), value[key])
			}
		case list:
			for i := range value {
				copied := func() list { return runtime.DeepCopyJSONValue(value).(list) }
				change(path, fmt.Sprintf("without %d", i), func(any) any { return slices.Delete(copied(), i, i+1) })
				change(path, fmt.Sprintf("%d doubled", i), func(any) any { return slices.Insert(copied(), i, copied()[i]) })
				if i > 0 && !reflect.DeepEqual(value[i-1], value[i]) {
					change(path, fmt.Sprintf("%d and %d swapped", i-1, i), func(any) any {
						l := copied()
						l[i-1], l[i] = l[i], l[i-1]
						return l
					})
				}
				walk(append(path, i), value[i])
			}
		}
	}
	walk(nil, root)
	return all
}

// replaceAt replaces what is at the path.
func replaceAt(value any, path []any, replace func(any) any) any {
	if len(path) == 0 {
		return replace(value)
	}
	switch step := path[0].(type) {
	case string:
		value.(object)[step] = replaceAt(value.(object)[step], path[1:], replace)
	case int:
		value.(list)[step] = replaceAt(value.(list)[step], path[1:], replace)
	}
	return value
}
