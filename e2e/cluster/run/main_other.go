//go:build !linux

// Command run makes and ends the cluster of package cluster, and runs its tests: on Linux.
package main

import "fmt"

func main() { fmt.Println("SKIPPED: all scenarios on a real node: containers need Linux") }
