//go:build e2e && linux

package cluster

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"flint.dev/flint/pkg/api"
)

// newClaim makes a claim whose files are in the folder of that name below Claims, and gives the folder's path as this
// process sees it.
func newClaim(ctx context.Context, t *testing.T, name, folder string, mode corev1.PersistentVolumeAccessMode) string {
	t.Helper()
	onNode := filepath.Join(shared.Claims(), folder)
	here := shared.Root() + onNode
	if err := os.MkdirAll(here, 0o777); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(here, 0o777) // past the umask; the read-only one has it already
	name = run + "-" + name
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: *quantity("1Mi")}, AccessModes: []corev1.PersistentVolumeAccessMode{mode},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "manual",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: onNode}},
		ClaimRef:               &corev1.ObjectReference{Namespace: jobs, Name: name},
	}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: volume.Spec.AccessModes, StorageClassName: &volume.Spec.StorageClassName, VolumeName: name,
		Resources: corev1.VolumeResourceRequirements{Requests: volume.Spec.Capacity},
	}}
	if _, err := client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().PersistentVolumeClaims(jobs).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := until(ctx, "claim "+name, func() (bool, error) {
		now, err := client.CoreV1().PersistentVolumeClaims(jobs).Get(ctx, name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.ClaimBound, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return here
}

var operations struct {
	sync.Mutex
	n int
}

// operate does one operation on the claim of that name, and waits for its result. The code is empty where it succeeded.
func operate(ctx context.Context, t *testing.T, claim string, op api.FileOperation, changes ...func(*api.FileRequest)) (api.FileJob, api.Code) {
	t.Helper()
	operations.Lock()
	operations.n++
	request := api.FileRequest{
		SubmissionID: fmt.Sprintf("%s-file-%03d", run, operations.n),
		Target:       api.FileTarget{Namespace: jobs, Claim: run + "-" + claim}, Operation: op, WaitSeconds: ptr.To(60),
	}
	operations.Unlock()
	for _, change := range changes {
		change(&request)
	}
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := call(ctx, http.MethodPost, api.FilePath, http.Header{"Content-Type": {"application/json"}}, body)
	if err != nil {
		t.Fatalf("%v\n%s", err, Describe(context.WithoutCancel(ctx), client, jobs))
	}
	var job api.FileJob
	if got.status == http.StatusOK {
		if err := json.Unmarshal(got.body, &job); err != nil {
			t.Fatal(err)
		}
		got.body = nil // it may be long
	}
	t.Logf("SEEN %s: HTTP %d after %.1fs: %.600s", op.Op, got.status, time.Since(began).Seconds(), got.body)
	return job, got.code()
}

// Each operation on a real claim, one after the other, judged by what is on the volume.
func TestFileOperations(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	folder := newClaim(ctx, t, "data", "data", corev1.ReadWriteOnce)
	elsewhere := serveFiles(t)
	holds := func(name, content string) func(*testing.T, api.FileJob) {
		return func(t *testing.T, _ api.FileJob) {
			t.Helper()
			got, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil || string(got) != content {
				t.Errorf("%s has %.100q, %v; want %.100q", name, got, err, content)
			}
		}
	}
	absent := func(name string) func(*testing.T, api.FileJob) {
		return func(t *testing.T, _ api.FileJob) {
			t.Helper()
			if _, err := os.Lstat(filepath.Join(folder, name)); !os.IsNotExist(err) {
				t.Errorf("%s is there: %v", name, err)
			}
		}
	}
	text := func(s string) *string { return &s }
	zipped, tarred := archives(t)
	for _, tc := range []struct {
		name  string
		op    api.FileOperation
		want  api.Code
		check func(*testing.T, api.FileJob)
	}{
		{"list nothing", api.FileOperation{Op: api.OpList}, "", func(t *testing.T, job api.FileJob) {
			if job.Result.Entries == nil || len(*job.Result.Entries) != 0 {
				t.Errorf("entries %v", job.Result.Entries)
			}
		}},
		{"write", api.FileOperation{Op: api.OpWrite, Path: "a.txt", Text: text("first\n")}, "", holds("a.txt", "first\n")},
		{"write what is there", api.FileOperation{Op: api.OpWrite, Path: "a.txt", Text: text("second\n"), CreateOnly: true}, api.FileExists, holds("a.txt", "first\n")},
		{"stat", api.FileOperation{Op: api.OpStat, Path: "a.txt"}, "", func(t *testing.T, job api.FileJob) {
			if e := job.Result.Entry; e == nil || e.Size != 6 || e.UID != 65532 {
				t.Errorf("entry %+v", e)
			}
		}},
		{"read", api.FileOperation{Op: api.OpRead, Path: "a.txt"}, "", func(t *testing.T, job api.FileJob) {
			if job.Result.Content == nil || string(*job.Result.Content) != "first\n" {
				t.Errorf("content %v", job.Result.Content)
			}
		}},
		{"read what is not there", api.FileOperation{Op: api.OpRead, Path: "absent"}, api.NotFound, nil},
		{"read outside", api.FileOperation{Op: api.OpRead, Path: "../../etc/passwd"}, api.BadPath, nil},
		{"checksum", api.FileOperation{Op: api.OpChecksum, Path: "a.txt"}, "", func(t *testing.T, job api.FileJob) {
			if want := digest([]byte("first\n")); job.Result.SHA256 != want {
				t.Errorf("digest %s, want %s", job.Result.SHA256, want)
			}
		}},
		{"mkdir", api.FileOperation{Op: api.OpMkdir, Path: "d"}, "", nil},
		{"rename", api.FileOperation{Op: api.OpRename, Path: "a.txt", To: "d/b.txt"}, "", holds("d/b.txt", "first\n")},
		{"copy a tree", api.FileOperation{Op: api.OpCopy, Path: "d", To: "e"}, "", holds("e/b.txt", "first\n")},
		{"delete a folder that is not empty", api.FileOperation{Op: api.OpDelete, Path: "d"}, api.NotEmpty, holds("d/b.txt", "first\n")},
		{"delete a tree", api.FileOperation{Op: api.OpDelete, Path: "d", Recursive: true}, "", absent("d")},
		{"upload", api.FileOperation{Op: api.OpUpload, Path: "in.zip", Source: elsewhere.source("in.zip", zipped)}, "", holds("in.zip", string(zipped))},
		{"unzip", api.FileOperation{Op: api.OpUnzip, Path: "in.zip"}, "", holds("zipped/file", "from the zip")},
		{"upload another", api.FileOperation{Op: api.OpUpload, Path: "in.tar", Source: elsewhere.source("in.tar", tarred)}, "", holds("in.tar", string(tarred))},
		{"untar", api.FileOperation{Op: api.OpUntar, Path: "in.tar"}, "", holds("tarred/file", "from the tar")},
		{"upload what does not match", api.FileOperation{Op: api.OpUpload, Path: "bad", Source: &api.FileSource{
			URL: elsewhere.url("in.zip"), Size: int64(len(zipped)), SHA256: digest([]byte("other"))}}, api.BadDigest, absent("bad")},
		{"download", api.FileOperation{Op: api.OpDownload, Path: "e/b.txt", Sink: &api.FileSink{URL: elsewhere.url("out.txt")}}, "", func(t *testing.T, _ api.FileJob) {
			if got := elsewhere.file("out.txt"); string(got) != "first\n" {
				t.Errorf("sent %q", got)
			}
		}},
		{"batch", api.FileOperation{Op: api.OpBatch, Operations: []api.FileOperation{
			{Op: api.OpMkdir, Path: "f"}, {Op: api.OpWrite, Path: "f/c", Text: text("c")}, {Op: api.OpRead, Path: "absent"}}}, api.BatchFailed, holds("f/c", "c")},
		{"list", api.FileOperation{Op: api.OpList}, "", func(t *testing.T, job api.FileJob) {
			var names []string
			for _, entry := range *job.Result.Entries {
				names = append(names, entry.Name)
			}
			if want := []string{"e", "f", "in.tar", "in.zip", "tarred", "zipped"}; !slices.Equal(names, want) {
				t.Errorf("names %q, want %q", names, want)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			job, code := operate(ctx, t, "data", tc.op)
			if code != tc.want {
				t.Fatalf("code %q, want %q", code, tc.want)
			}
			if tc.check != nil {
				tc.check(t, job)
			}
		})
	}
	told := run + "-file-event"
	postEvent(ctx, t, api.FileEventType, api.FileRequest{
		SubmissionID: told, Target: api.FileTarget{Namespace: jobs, Claim: run + "-data"}, Operation: api.FileOperation{Op: api.OpRead, Path: "e/b.txt"},
	})
	got, err := received.await(ctx, told)
	if err != nil {
		t.Fatal(err)
	}
	end{api.ReasonCompleted, nil, ""}.check(t, "file", got)
	var result api.FileResult
	if err := json.Unmarshal(got.Result, &result); err != nil || result.Content == nil || string(*result.Content) != "first\n" {
		t.Errorf("result of the event: %s, %v", got.Result, err)
	}
}

// Volumes that refuse.
func TestFileVolumes(t *testing.T) {
	needsCluster(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel) // when the subtests have ended
	half := bytes.Repeat([]byte("0123456789abcdef"), 600<<10/16)
	t.Run("full", func(t *testing.T) {
		t.Parallel()
		folder := newClaim(ctx, t, "small", "small", corev1.ReadWriteOnce)
		t.Cleanup(func() { _ = os.Remove(filepath.Join(folder, "one")) })
		if _, code := operate(ctx, t, "small", api.FileOperation{Op: api.OpWrite, Path: "one", Content: &half}); code != "" {
			t.Errorf("code %s", code)
		}
		if _, code := operate(ctx, t, "small", api.FileOperation{Op: api.OpWrite, Path: "two", Content: &half}); code != api.VolumeFull {
			t.Errorf("code %s, want %s", code, api.VolumeFull)
		}
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 1 {
			t.Errorf("on the volume: %v, %v", entries, err)
		}
		// Its result is one line of 800 KiB, which the runtime writes in many pieces.
		job, code := operate(ctx, t, "small", api.FileOperation{Op: api.OpRead, Path: "one"})
		if code != "" || job.Result.Content == nil || !bytes.Equal(*job.Result.Content, half) {
			t.Errorf("a long line: code %s", code)
		}
	})
	t.Run("mounted read-only on its node", func(t *testing.T) {
		t.Parallel()
		newClaim(ctx, t, "readonly", "readonly", corev1.ReadWriteOnce)
		if _, code := operate(ctx, t, "readonly", api.FileOperation{Op: api.OpWrite, Path: "file", Content: &half}); code != api.PermissionDenied {
			t.Errorf("write: code %s, want %s", code, api.PermissionDenied)
		}
		if _, code := operate(ctx, t, "readonly", api.FileOperation{Op: api.OpList}); code != "" {
			t.Errorf("list: code %s", code)
		}
	})
	t.Run("a claim that may only be read", func(t *testing.T) {
		t.Parallel()
		folder := newClaim(ctx, t, "many", "many", corev1.ReadOnlyMany)
		if err := os.WriteFile(filepath.Join(folder, "file"), []byte("here"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, code := operate(ctx, t, "many", api.FileOperation{Op: api.OpMkdir, Path: "d"}); code != api.ClaimUnusable {
			t.Errorf("mkdir: code %s, want %s", code, api.ClaimUnusable)
		}
		if job, code := operate(ctx, t, "many", api.FileOperation{Op: api.OpRead, Path: "file"}); code != "" || string(*job.Result.Content) != "here" {
			t.Errorf("read: code %s", code)
		}
	})
	t.Run("no such claim", func(t *testing.T) {
		t.Parallel()
		if _, code := operate(ctx, t, "absent", api.FileOperation{Op: api.OpList}); code != api.ClaimNotFound {
			t.Errorf("code %s, want %s", code, api.ClaimNotFound)
		}
	})
	t.Run("two pods on one claim", func(t *testing.T) {
		t.Parallel()
		folder := newClaim(ctx, t, "shared", "shared", corev1.ReadWriteOnce)
		user := int64(4711)
		pod, err := client.CoreV1().Pods(jobs).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: run + "-user"}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "user", Image: WorkloadImage, Args: []string{"sleep=10m"}, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				SecurityContext: &corev1.SecurityContext{RunAsUser: &user}}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: run + "-shared"}}}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, pod) })
		running(ctx, t, pod)
		write := api.FileOperation{Op: api.OpWrite, Path: "file", Text: ptr.To("beside")}
		if _, code := operate(ctx, t, "shared", write); code != api.VolumeBusy {
			t.Errorf("write: code %s, want %s", code, api.VolumeBusy)
		}
		if _, code := operate(ctx, t, "shared", write, func(r *api.FileRequest) { r.InUse = api.InUseAllow }); code != "" {
			t.Errorf("write beside it: code %s", code)
		}
		job, code := operate(ctx, t, "shared", api.FileOperation{Op: api.OpStat, Path: "file"})
		if code != "" || job.Consistency != "live" || job.Result.Entry.UID != user {
			t.Errorf("stat: code %s, %+v", code, job)
		}
		if got, err := os.ReadFile(filepath.Join(folder, "file")); err != nil || string(got) != "beside" {
			t.Errorf("on the volume: %q, %v", got, err)
		}
	})
	t.Run("longer than it may", func(t *testing.T) {
		t.Parallel()
		folder := newClaim(ctx, t, "slow", "slow", corev1.ReadWriteOnce)
		stalled := &api.FileSource{URL: "http://" + stallAddress, Size: 1 << 20, SHA256: digest(nil)}
		serve(t, stallAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.FormatInt(stalled.Size, 10))
			_, _ = w.Write([]byte("the beginning"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		_, code := operate(ctx, t, "slow", api.FileOperation{Op: api.OpUpload, Path: "file", Source: stalled},
			func(r *api.FileRequest) { r.TimeoutSeconds = ptr.To(4) })
		if code != api.Deadline {
			t.Errorf("code %s, want %s", code, api.Deadline)
		}
		if _, err := os.Stat(filepath.Join(folder, "file")); !os.IsNotExist(err) {
			t.Errorf("the file has landed: %v", err)
		}
	})
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// archives are a zip and a tar with one file each.
func archives(t *testing.T) (zipped, tarred []byte) {
	t.Helper()
	var z, tr bytes.Buffer
	zw := zip.NewWriter(&z)
	w, err := zw.Create("zipped/file")
	if err == nil {
		_, err = io.WriteString(w, "from the zip")
	}
	if err != nil || zw.Close() != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(&tr)
	const content = "from the tar"
	err = tw.WriteHeader(&tar.Header{Name: "tarred/file", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))})
	if err == nil {
		_, err = io.WriteString(tw, content)
	}
	if err != nil || tw.Close() != nil {
		t.Fatal(err)
	}
	return z.Bytes(), tr.Bytes()
}

// store is a server of files outside the cluster, at one of the two addresses that deploy/kustomization.yaml lets agents
// speak to. At the other one is one that stalls.
type store struct {
	mu    sync.Mutex
	files map[string][]byte
}

const (
	storeAddress = Address + ":8091"
	stallAddress = Address + ":8092"
)

func serveFiles(t *testing.T) *store {
	t.Helper()
	s := &store{files: map[string][]byte{}}
	serve(t, storeAddress, s)
	return s
}

func serve(t *testing.T, address string, handler http.Handler) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func (s *store) url(name string) string { return "http://" + storeAddress + "/" + name }

func (s *store) file(name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[name]
}

func (s *store) source(name string, content []byte) *api.FileSource {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = content
	return &api.FileSource{URL: s.url(name), Size: int64(len(content)), SHA256: digest(content)}
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if r.Method == http.MethodPut {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.files[name] = content
		w.WriteHeader(http.StatusCreated)
		return
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(s.file(name)))
}
