package fileagent

import (
	"testing"
	"testing/fstest"
)

func TestHeapLimit(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const v2, v1 = "memory.max", "memory/memory.limit_in_bytes"
	for name, tc := range map[string]struct {
		cgroup fstest.MapFS
		env    string
		want   int64
	}{
		"v2":                {cgroup: fstest.MapFS{v2: file("268435456\n")}, want: 268435456 / 5 * 3},
		"v2 without limit":  {cgroup: fstest.MapFS{v2: file("max\n")}},
		"v1":                {cgroup: fstest.MapFS{v1: file("100000000\n")}, want: 60000000},
		"v1 without limit":  {cgroup: fstest.MapFS{v1: file("9223372036854771712\n")}},
		"v2 before v1":      {cgroup: fstest.MapFS{v2: file("100\n"), v1: file("200\n")}, want: 60},
		"max hides v1":      {cgroup: fstest.MapFS{v2: file("max\n"), v1: file("200\n")}},
		"junk":              {cgroup: fstest.MapFS{v2: file("lots\n")}},
		"empty":             {cgroup: fstest.MapFS{v2: file("")}},
		"negative":          {cgroup: fstest.MapFS{v2: file("-1\n")}},
		"no cgroup":         {cgroup: fstest.MapFS{}},
		"GOMEMLIMIT is set": {cgroup: fstest.MapFS{v2: file("268435456\n")}, env: "100MiB"},
	} {
		t.Run("F71_heap_limit_from_cgroup/"+name, func(t *testing.T) {
			got := HeapLimit(tc.cgroup, func(string) string { return tc.env })
			if got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}
