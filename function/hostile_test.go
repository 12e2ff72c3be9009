package function_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
	"flint.dev/flint/test/smuggling"
)

// listener serves the function by func-go's own server, with its limits and time-outs, on loopback.
func listener(t *testing.T, s setup) (i *instance, address string) {
	t.Helper()
	i = serve(t, s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	service := fhttp.New(i.f)
	served := make(chan error, 1)
	go func() { served <- service.Serve(l) }()
	t.Cleanup(func() {
		_ = service.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	i.url = "http://" + l.Addr().String()
	return i, l.Addr().String()
}

// patience is how long a test waits for what takes seconds, on a machine that has much else to do.
const patience = 2 * time.Minute

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	connection, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return connection
}

// statuses sends the text and gives the status of each answer, until the server closes the connection.
func statuses(t *testing.T, address, text string) (all []int) {
	t.Helper()
	connection := dial(t, address)
	go func() {
		_, _ = io.WriteString(connection, text)
		_ = connection.(*net.TCPConn).CloseWrite()
	}()
	answers := bufio.NewReader(connection)
	for {
		response, err := http.ReadResponse(answers, nil)
		if err != nil {
			return all
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		all = append(all, response.StatusCode)
		if response.Close {
			return all
		}
	}
}

func post(body string, headers ...string) string {
	return "POST " + api.SubmitPath + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n" + body
}

// Shapes by which a proxy in front and the server might disagree where a request ends. Whatever is behind the first
// one is never taken for a request, unless it is one by every reading.
func TestSmuggling(t *testing.T) {
	t.Parallel()
	i, address := listener(t, setup{})
	first := submission("first")
	if a := i.submit(t, first); a.status != http.StatusCreated {
		t.Fatalf("HTTP %d: %s", a.status, a.body)
	}
	launched := 1
	for n := range smuggling.Shapes(api.SubmitPath, "", "") {
		shape := smuggling.Shapes(api.SubmitPath, first, submission(fmt.Sprintf("second-%d", n)))[n]
		if got := statuses(t, address, shape.Text); !slices.Equal(got, shape.Listener) {
			t.Errorf("%s: answers %v, want %v", shape.Name, got, shape.Listener)
		}
		if slices.Contains(shape.Listener, http.StatusCreated) {
			launched++
			if strings.Contains(strings.ToLower(shape.Text), "transfer-encoding") {
				t.Errorf("%s: what is behind chunks is taken for a request, the table says", shape.Name)
			}
		}
		if n := len(i.api.Objects(pods)); n != launched {
			t.Errorf("%s: %d pods, want %d", shape.Name, n, launched)
			launched = n
		}
	}
}

func TestHostileJSON(t *testing.T) {
	t.Parallel()
	i, _ := listener(t, setup{})
	deep := func(open, close string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(close, n)
	}
	template := func(text string) string {
		return strings.Replace(submission("s"), `"submission_id"`, `"driver_pod_template":`+text+`,"submission_id"`, 1)
	}
	for name, tc := range map[string]struct {
		body string
		says string
	}{
		"lists in lists":              {deep("[", "]", 500_000), "JSON"},
		"objects in objects":          {deep(`{"a":`, "}", 500_000), "JSON"},
		"a template of lists":         {template(deep("[", "]", 500_000)), "JSON"},
		"a template of objects":       {template(deep(`{"a":`, "}", 500_000)), "JSON"},
		"lists that do not end":       {strings.Repeat("[", 4<<20-1), "JSON"},
		"a name twice":                {strings.Replace(submission("s"), `"submission_id"`, `"submission_id":"other","submission_id"`, 1), "submission_id"},
		"a name twice in a template":  {template(`{"spec":{},"spec":{"containers":[]}}`), "spec"},
		"a name twice deep in one":    {template(`{"spec":{"containers":[{"name":"a","name":"spark-kubernetes-driver"}]}}`), "name"},
		"two texts":                   {submission("s") + submission("t"), "JSON"},
		"a number of many digits":     {template(`{"spec":{"priority":` + strings.Repeat("9", 1<<20) + `}}`), ""},
		"no UTF-8":                    {strings.Replace(submission("s"), "Spark Pi", "Spark \xff\xfe", 1), ""},
		"a byte order mark":           {"\xef\xbb\xbf" + submission("s"), "JSON"},
		"UTF-16":                      {"\xff\xfe{\x00}\x00", "JSON"},
		"arguments beyond all number": {`{"submission_id":"s","spark_submit_args":[` + strings.Repeat(`"",`, 1<<20) + `""]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			a := i.submit(t, tc.body)
			body := a.refusal(t)
			if a.status != http.StatusBadRequest && a.status != http.StatusUnprocessableEntity || !strings.Contains(body.Message, tc.says) || len(a.body) > 16<<10 {
				t.Errorf("HTTP %d: %s", a.status, a.body)
			}
			if took := time.Since(began); took > patience {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestHostileHeaders(t *testing.T) {
	t.Parallel()
	i, address := listener(t, setup{})
	outer := submission("s")
	many := make([]string, 0, 10_000)
	for n := range 10_000 {
		many = append(many, fmt.Sprintf("X-%d: %s", n, strings.Repeat("a", 80)))
	}
	for name, tc := range map[string]struct {
		headers []string
		want    int
	}{
		"one of two megabytes": {[]string{"X: " + strings.Repeat("a", 2<<20)}, 431},
		"many, too long":       {append(many, many...), 431},
		"many":                 {many, 200}, // less than a megabyte together: the limit of func-go
		"many cookies":         {[]string{"Cookie: " + strings.Repeat("a=b; ", 100_000)}, 200},
		"a long token":         {[]string{"Authorization: Bearer " + strings.Repeat("a", 900_000)}, 200},
		"a long traceparent":   {[]string{"Traceparent: " + strings.Repeat("0", 900_000)}, 200},
	} {
		got := statuses(t, address, post(outer, append(tc.headers, "Content-Length: "+strconv.Itoa(len(outer)))...))
		if len(got) != 1 || got[0] != tc.want && (tc.want != 200 || got[0] != 201) {
			t.Errorf("%s: answers %v, want %d", name, got, tc.want)
		}
	}
	if log := strings.Join(i.log.all(), "\n"); len(log) > 64<<10 {
		t.Errorf("the log has %d bytes", len(log))
	}
}

// A body that grows for ever, by whatever it says of its length, ends at the limit.
func TestEndlessBody(t *testing.T) {
	t.Parallel()
	_, address := listener(t, setup{settings: func(s *config.Settings) { s.MaxBodyBytes = 64 << 10 }})
	for name, header := range map[string]string{"chunked": "Transfer-Encoding: chunked", "a length that lies": "Content-Length: 999999999999"} {
		connection := dial(t, address)
		if _, err := io.WriteString(connection, post("", header)); err != nil {
			t.Fatal(err)
		}
		sent := make(chan int64, 1)
		go func() {
			chunk := []byte("1000\r\n" + strings.Repeat(" ", 0x1000) + "\r\n")
			total := int64(0)
			for {
				n, err := connection.Write(chunk)
				total += int64(n)
				if err != nil {
					sent <- total
					return
				}
			}
		}()
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close {
			t.Errorf("%s: HTTP %d, closed %v", name, response.StatusCode, response.Close)
		}
		_ = connection.Close()
		if total := <-sent; total > 64<<20 {
			t.Errorf("%s: %d bytes were taken", name, total)
		}
	}
}

// A header that does not end holds its connection for two seconds, and nothing else.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	_, address := listener(t, setup{})
	for name, text := range map[string]string{"nothing": "", "half a line": "POST /api", "half a header": "POST / HTTP/1.1\r\nHost: x\r\nX: "} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connection := dial(t, address)
			if _, err := io.WriteString(connection, text); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, _ = io.Copy(io.Discard, connection)
			if took := time.Since(began); took > patience/2 {
				t.Errorf("it is let go after %v", took)
			}
		})
	}
}

// Who asks for much and reads none of it is let go in the time of a launch.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	_, address := listener(t, setup{settings: func(s *config.Settings) { s.LaunchTimeout = time.Second }})
	body := submission("s", "--conf", "spark.x="+strings.Repeat("\x01", 650_000)) // each becomes six bytes, more than once
	connection := dial(t, address)
	if err := connection.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	request := strings.Replace(post(body, "Content-Length: "+strconv.Itoa(len(body))), api.SubmitPath, api.SubmitPath+"?dryRun=client", 1)
	began := time.Now()
	if _, err := io.WriteString(connection, request); err != nil {
		t.Fatal(err)
	}
	// The server has let go once it takes nothing more: until then the kernel would keep what is written.
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(connection, "x"); err != nil {
			break
		}
		if time.Since(began) > patience/2 {
			t.Fatal("it is not let go")
		}
		<-tick.C
	}
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("let go after %v: the answer did not fill the connection, so nothing was shown", took)
	}
}

// Thousands who connect and say nothing keep nobody out, and are let go.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	i, address := listener(t, setup{})
	const idle = 2000
	var all []net.Conn
	for range idle {
		all = append(all, dial(t, address))
	}
	began := time.Now()
	if a := i.submit(t, submission("s")); a.status != http.StatusCreated {
		t.Errorf("HTTP %d: %s", a.status, a.body)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("a request took %v", took)
	}
	var open sync.WaitGroup
	for _, connection := range all {
		open.Go(func() {
			if _, err := connection.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a connection is kept: %v", err)
			}
		})
	}
	open.Wait()
}
