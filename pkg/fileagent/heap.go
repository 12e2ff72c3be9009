package fileagent

import (
	"io/fs"
	"strconv"
	"strings"
)

// cgroupLimits are where a container sees its memory limit below /sys/fs/cgroup: version 2, then 1.
var cgroupLimits = []string{"memory.max", "memory/memory.limit_in_bytes"}

// HeapLimit is the soft limit for Go's heap: three fifths of the container's memory limit, since the page cache of the files counts
// towards that too. cgroup is /sys/fs/cgroup. There is none, 0, where GOMEMLIMIT says one, where the container has no limit, and
// where it cannot be read.
func HeapLimit(cgroup fs.FS, getenv func(string) string) int64 {
	if getenv("GOMEMLIMIT") != "" {
		return 0
	}
	for _, name := range cgroupLimits {
		text, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		// Version 1 says "no limit" as a number near the greatest.
		limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil || limit <= 0 || limit >= 1<<60 {
			return 0
		}
		return limit / 5 * 3
	}
	return 0
}
