package parity

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// diffLines tells where two JSON values differ, a line a place.
func diffLines(spark, flint any) []string {
	var lines []string
	var walk func(path string, spark, flint any)
	walk = func(path string, spark, flint any) {
		if reflect.DeepEqual(spark, flint) {
			return
		}
		s, sparkObject := spark.(object)
		f, flintObject := flint.(object)
		if sparkObject && flintObject {
			keys := maps.Clone(s)
			maps.Copy(keys, f)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				_, inSpark := s[key]
				_, inFlint := f[key]
				if inSpark != inFlint && s[key] == nil && f[key] == nil {
					lines = append(lines, path+"."+key+": null on one side, absent on the other")
				}
				walk(path+"."+key, s[key], f[key])
			}
			return
		}
		sl, sparkList := spark.(list)
		fl, flintList := flint.(list)
		if sparkList && flintList && len(sl) == len(fl) {
			for i := range sl {
				walk(fmt.Sprintf("%s[%d]", path, i), sl[i], fl[i])
			}
			return
		}
		lines = append(lines, fmt.Sprintf("%s: Spark %s, Flint %s", path, short(spark), short(flint)))
	}
	walk("", spark, flint)
	return lines
}

// short is a value as JSON, in 300 bytes at most.
func short(value any) string {
	if value == nil {
		return "nothing"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	const limit = 300
	if len(text) > limit {
		return string(text[:limit]) + "..."
	}
	return string(text)
}

// asList makes a JSON value of a list of objects.
func asList(objects []object) list {
	l := make(list, len(objects))
	for i, o := range objects {
		l[i] = o
	}
	return l
}
