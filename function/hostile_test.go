package function_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	fhttp "knative.dev/func-go/http"

	"flint.dev/flint/pkg/api"
	"flint.dev/flint/pkg/config"
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
	chunked := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text) }
	length := func(text string) string { return "Content-Length: " + strconv.Itoa(len(text)) }
	outer, inner := submission("outer"), submission("smuggled")
	second := post(inner, length(inner))
	const chunks = "Transfer-Encoding: chunked"
	cases := map[string]struct {
		text string
		want int
	}{
		"both lengths, the number shorter":     {post(chunked(outer)+second, "Content-Length: 6", chunks), 200},
		"both lengths, the number longer":      {post(chunked(outer)+second, length(chunked(outer)+second), chunks), 200},
		"both lengths, in the other order":     {post(chunked(outer)+second, chunks, length(chunked(outer))), 200},
		"chunked, and more":                    {post(chunked(outer)+second, chunks), 200},
		"two lengths":                          {post(outer+second, "Content-Length: 5", "Content-Length: 6"), 400},
		"two lengths, one empty":               {post(outer+second, "Content-Length: ", length(outer)), 400},
		"a list of lengths":                    {post(outer+second, "Content-Length: 5, 5"), 400},
		"a length with a sign":                 {post(outer+second, "Content-Length: +5"), 400},
		"a negative length":                    {post(outer+second, "Content-Length: -5"), 400},
		"a length in hex":                      {post(outer+second, "Content-Length: 0x5"), 400},
		"a length beyond all":                  {post(outer+second, "Content-Length: 99999999999999999999"), 400},
		"a blank before the colon":             {post(outer+second, "Content-Length : 5"), 400},
		"a blank before the colon, chunked":    {post(chunked(outer)+second, "Transfer-Encoding : chunked"), 400},
		"an encoding that is none":             {post(chunked(outer)+second, "Transfer-Encoding: xchunked"), 501},
		"two encodings in one":                 {post(chunked(outer)+second, "Transfer-Encoding: identity, chunked"), 501},
		"two encodings":                        {post(chunked(outer)+second, chunks, "Transfer-Encoding: identity"), 501},
		"a vertical tab":                       {post(chunked(outer)+second, "Transfer-Encoding: \x0bchunked"), 400},
		"an encoding that is folded":           {post(chunked(outer)+second, "Transfer-Encoding:\r\n chunked", "Content-Length: 6"), 200},
		"a header in a folded one":             {post(outer, "X: a\r\n Content-Length: 3", length(outer)), 200},
		"a bare carriage return":               {post(outer, "X: a\rContent-Length: 3", length(outer)), 400},
		"bare line feeds":                      {strings.ReplaceAll(post("", length(outer)), "\r\n", "\n") + outer, 200},
		"bare line feeds in chunks":            {post(strings.ReplaceAll(chunked(outer), "\r\n", "\n")+second, chunks), 400},
		"a chunk beyond all":                   {post("fffffffffffffffff\r\n"+outer+second, chunks), 400},
		"a negative chunk":                     {post("-5\r\n"+outer+second, chunks), 400},
		"a length in the trailer":              {post(strings.Replace(chunked(outer), "\r\n0\r\n", "\r\n0\r\nContent-Length: 5\r\n", 1)+second, chunks), 200},
		"chunked in HTTP/1.0":                  {strings.Replace(post(chunked(outer)+second, chunks), "HTTP/1.1", "HTTP/1.0", 1), 400},
		"a body of a GET":                      {strings.Replace(post(second, length(second)), "POST", "GET", 1), 405},
		"a chunked body of a GET":              {strings.Replace(post(chunked("x")+second, chunks), "POST", "GET", 1), 405},
		"two hosts":                            {post(outer+second, "Host: y", length(outer)), 400},
		"no host":                              {strings.Replace(post(outer+second, length(outer)), "Host: x\r\n", "", 1), 400},
		"a null byte":                          {post(outer+second, "X: \x00", length(outer)), 400},
		"the preface of HTTP/2":                {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + second, 400},
		"no HTTP":                              {"\x16\x03\x01\x00\x00" + second, 400},
		"a version that is none":               {strings.Replace(post(outer+second, length(outer)), "HTTP/1.1", "HTTP/1.1x", 1), 400},
		"a request line with a blank too many": {strings.Replace(post(outer+second, length(outer)), "POST ", "POST  ", 1), 400},
	}
	if a := i.submit(t, outer); a.status != http.StatusCreated { // so that each outer one is a repeat
		t.Fatalf("HTTP %d: %s", a.status, a.body)
	}
	for name, tc := range cases {
		if got := statuses(t, address, tc.text); len(got) != 1 || got[0] != tc.want {
			t.Errorf("%s: answers %v, want one %d", name, got, tc.want)
		}
		if n := len(i.api.Objects(pods)); n != 1 {
			t.Fatalf("%s: %d pods: one was smuggled in", name, n)
		}
	}
	// Two that are two by every reading.
	if got := statuses(t, address, post(outer, length(outer))+post(outer, length(outer))); len(got) != 2 || got[0] != 200 || got[1] != 200 {
		t.Errorf("two on one connection: %v", got)
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
