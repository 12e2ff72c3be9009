// Command run compares Flint with what Spark did, for every case and every Spark version that has goldens, and
// exits with 1 if anything is different that no named difference explains. It needs neither Java nor a network.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"flint.dev/flint/test/parity"
)

func main() {
	goldens := flag.String("goldens", filepath.Join("test", "parity", "testdata"), "the folder of the goldens")
	table := flag.Bool("differences", false, "write the table of the known differences for docs/compat.md, and nothing else")
	flag.Parse()
	if *table {
		fmt.Print(parity.Table())
		return
	}
	report, err := parity.Run(os.DirFS(*goldens), os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(report.Problems) > 0 {
		os.Exit(1)
	}
}
