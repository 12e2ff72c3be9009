package completion_test

import (
	"testing"

	"flint.dev/flint/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }
