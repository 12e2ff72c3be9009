// Package flint is what the func CLI sees: it scans only the folder of
// func.yaml for a constructor named New. Everything else is in package function.
package flint

import "flint.dev/flint/function"

// New is the function instance that func's scaffolding serves.
func New() *function.Function { return function.New() }
