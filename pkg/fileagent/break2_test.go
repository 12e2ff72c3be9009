package fileagent

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"flint.dev/flint/pkg/api"
)

func TestBrkStorm(t *testing.T) {
	outer := t.TempDir()
	root, outside := outer+"/root", outer+"/outside"
	put(t, outside+"/secret", "S3CRET-BYTES")
	put(t, outside+"/f", "S3CRET-BYTES")
	put(t, outside+"/sub/f", "S3CRET-BYTES")
	put(t, outside+"/a.zip", "S3CRET-BYTES")
	put(t, root+"/x", "")
	z := zipped(t, member{"f", "z"}, member{"sub/f", "z"}, member{"sub/new/g", "z"}, member{"secret", "z"})
	must(t, os.Symlink("../outside", root+"/l"))
	must(t, os.Symlink(outside, root+"/la"))
	want := tree(t, outside)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	reset := func() {
		put(t, root+"/d/a.zip", z)
		put(t, root+"/d/f", "inner")
		put(t, root+"/d/sub/f", "inner")
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		ex := func(a, b string) {
			_ = unix.Renameat2(unix.AT_FDCWD, root+a, unix.AT_FDCWD, root+b, unix.RENAME_EXCHANGE)
		}
		for ctx.Err() == nil {
			switch rand.Intn(4) {
			case 0:
				ex("/d", "/l")
				ex("/d", "/l")
			case 1:
				ex("/d/sub", "/la")
				ex("/d/sub", "/la")
			case 2:
				ex("/d/f", "/l")
				ex("/d/f", "/l")
			case 3:
				ex("/d", "/la")
				ex("/d", "/la")
			}
		}
	}()
	codes := map[string]int{}
	for ctx.Err() == nil {
		_ = os.MkdirAll(root+"/d/sub", 0o755)
		if fi, err := os.Lstat(root + "/d"); err == nil && fi.IsDir() {
			dir, err := os.OpenRoot(root)
			must(t, err)
			_ = dir.MkdirAll("d/sub", 0o755)
			_ = dir.WriteFile("d/a.zip", []byte(z), 0o644)
			_ = dir.WriteFile("d/f", []byte("inner"), 0o644)
			_ = dir.WriteFile("d/sub/f", []byte("inner"), 0o644)
			_ = dir.Close()
		}
		ops := []api.FileOperation{
			{Op: "read", Path: "d/f"}, {Op: "read", Path: "d/sub/f"}, {Op: "read", Path: "d/secret"}, {Op: "list", Path: "d"}, {Op: "stat", Path: "d/sub/f"},
			writeOp("d/f", "w"), writeOp("d/sub/n", "w"), {Op: "delete", Path: "d/sub", Recursive: true}, {Op: "delete", Path: "d/f"}, {Op: "delete", Path: "d", Recursive: true},
			{Op: "copy", Path: "d", To: "c"}, {Op: "copy", Path: "d/f", To: "c"}, {Op: "delete", Path: "c", Recursive: true}, {Op: "mkdir", Path: "d/sub/m"}, {Op: "rename", Path: "d/sub/f", To: "d/g"},
			{Op: "unzip", Path: "d/a.zip", Overwrite: true}, {Op: "checksum", Path: "d/f"}, {Op: "rename", Path: "c", To: "d/sub/c"},
		}
		op := ops[rand.Intn(len(ops))]
		got := do(t, root, op)
		codes[string(op.Op)+" "+string(got.Code)]++
		if got.Content != nil && strings.Contains(string(*got.Content), "S3CRET") {
			t.Fatalf("%+v", op)
		}
		if got.exit != 0 {
			t.Errorf("%+v: %s %s %s", op, got.Code, got.Message, got.stderr)
		}
		if got.Entries != nil {
			for _, e := range *got.Entries {
				if e.Name == "secret" && e.Size == 12 {
					t.Errorf("listed the outside")
				}
			}
		}
	}
	wg.Wait()
	_ = reset
	same(t, want, tree(t, outside))
	for name, text := range tree(t, root) {
		if strings.Contains(text, "S3CRET-BYTES") {
			t.Errorf("%s: %s", name, text)
		}
	}
	for k, v := range codes {
		fmt.Print(k, "=", v, "; ")
	}
	fmt.Println()
}

func TestBrkMode0(t *testing.T) {
	root := t.TempDir()
	must(t, os.Chmod(put(t, root+"/f", "private"), 0))
	do(t, root, api.FileOperation{Op: "copy", Path: "f", To: "g"}).want(t, "")
	s, err := os.Stat(root + "/g")
	must(t, err)
	t.Log(s.Mode())
	if s.Mode().Perm() != 0 {
		t.Error("opened up")
	}
}
