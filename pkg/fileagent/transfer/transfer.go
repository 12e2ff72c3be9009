package transfer

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Network is what lies between here and there. The zero value is the network as the system has it.
type Network struct {
	// Resolver resolves names; nil is the system's.
	Resolver *net.Resolver
	// Roots are the authorities whose certificates are trusted; nil means the system's.
	Roots *x509.CertPool
	// Patience is how long no byte may move, and how long an answer may take once the request was sent; 0 means a minute.
	Patience time.Duration
}

const (
	patience     = time.Minute
	dialTime     = 10 * time.Second
	expectTime   = 2 * time.Second
	maxAnswer    = 64 << 10 // of an answer's header
	bearerScheme = "Bearer "
)

// Error says that the other end, or the way to it, failed. It does not unwrap: an error of there, such as a full disk,
// must not be taken for one of here.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

func failed(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// errStalled ends a transfer in which nothing moves.
var errStalled = errors.New("no byte has moved for too long")

// Client speaks to one URL.
type Client struct {
	target    *target
	token     string
	patience  time.Duration
	transport *http.Transport
}

// Dial prepares transfers to or from the URL; it connects to nobody yet. A token goes with each request as "Authorization:
// Bearer". The error is a *PolicyError.
func (n Network) Dial(policy Policy, url, token string) (*Client, error) {
	t, err := policy.target(url)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(token, "\r\n\x00") {
		return nil, &PolicyError{"the token has characters that no header can hold"}
	}
	dialer := &net.Dialer{Timeout: dialTime, Resolver: n.Resolver, Control: func(_, address string, _ syscall.RawConn) error {
		where, err := netip.ParseAddrPort(address)
		if err != nil || !t.allows(where.Addr()) {
			return &PolicyError{"the host " + quoted(t.url.Hostname()) + " is at an address that the settings do not allow"}
		}
		return nil
	}}
	c := &Client{target: t, token: token, patience: cmp.Or(n.Patience, patience)}
	c.transport = &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: n.Roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTime,
		ResponseHeaderTimeout:  c.patience,
		ExpectContinueTimeout:  expectTime,
		MaxResponseHeaderBytes: maxAnswer,
		DisableKeepAlives:      true,
		DisableCompression:     true, // the length and the digest are of the bytes as they are
	}
	return c, nil
}

// Source is an answer to a GET.
type Source struct {
	// From is where the body begins: what was asked for, or 0 where the other end has another file by now or knows no ranges.
	From int64
	// Resumable tells whether the other end can go on from the middle; Validator is then what names this very file, or empty.
	Resumable bool
	Validator string
	// Body gives errors that are *Error, or the context's.
	Body io.ReadCloser
}

// Get asks for a file of size bytes, from an offset on. The validator, of an earlier Source, may be empty. An error is a *PolicyError, a
// *Error, or the context's.
func (c *Client) Get(ctx context.Context, from, size int64, validator string) (*Source, error) {
	watched, watch := c.watch(ctx)
	request, err := c.request(watched, http.MethodGet)
	if err != nil {
		watch.end()
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity")
	if from > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(from, 10)+"-")
		if validator != "" {
			request.Header.Set("If-Range", validator)
		}
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		watch.end()
		return nil, c.explain(ctx, watched, err)
	}
	source, err := answered(response, from, size)
	if err != nil {
		_ = response.Body.Close()
		watch.end()
		return nil, err
	}
	watch.start()
	source.Body = &body{client: c, parent: ctx, watched: watched, watch: watch, from: response.Body}
	return source, nil
}

// answered reads the head of an answer.
func answered(response *http.Response, from, size int64) (*Source, error) {
	s := &Source{Resumable: response.Header.Get("Accept-Ranges") == "bytes"}
	if tag := response.Header.Get("ETag"); strings.HasPrefix(tag, `"`) { // a weak one may name other bytes (RFC 9110, 13.1.5)
		s.Validator = tag
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, failed("the source sends the file encoded, as %.40q", encoding)
	}
	total := response.ContentLength
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusPartialContent:
		var last int64
		text := response.Header.Get("Content-Range")
		n, _ := fmt.Sscanf(text, "bytes %d-%d/%d", &s.From, &last, &total)
		if n < 2 || s.From != from || last < s.From {
			return nil, failed("the source sends another part than was asked for: %.80q", text)
		}
		if n < 3 {
			total = -1
		}
		s.Resumable = true
	default:
		return nil, unexpected("source", response.StatusCode)
	}
	if total >= 0 && total != size {
		return nil, failed("the source has %d bytes, not %d", total, size)
	}
	return s, nil
}

func unexpected(who string, status int) error {
	text := fmt.Sprintf("the %s answers %d %s", who, status, http.StatusText(status))
	if status >= 300 && status < 400 {
		text += "; redirects are not followed"
	}
	return &Error{text}
}

// Put sends length bytes of content, which must have exactly so many. An error is a *PolicyError, a *Error, the context's, or
// content's own. Content is not read any more when Put returns.
//
// No content type is sent: a presigned URL may have been signed for none.
func (c *Client) Put(ctx context.Context, length int64, content io.Reader) error {
	watched, watch := c.watch(ctx)
	defer watch.end()
	request, err := c.request(watched, http.MethodPut)
	if err != nil {
		return err
	}
	sent := &outgoing{from: content, left: length, watch: watch, closed: make(chan struct{})}
	request.ContentLength, request.Body = length, sent
	if length == 0 {
		request.Body = http.NoBody // a body of 0 bytes would mean one of unknown length
		close(sent.closed)
	} else {
		request.Header.Set("Expect", "100-continue")
	}
	response, err := c.transport.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close() // unread: it may never end
	}
	watch.cancel(nil)
	<-sent.closed
	switch {
	case sent.failed != nil:
		return sent.failed
	case err != nil:
		return c.explain(ctx, watched, err)
	case response.StatusCode < 200 || response.StatusCode > 299:
		return unexpected("sink", response.StatusCode)
	case sent.left > 0:
		return failed("the sink answers %d before it has all", response.StatusCode)
	}
	return nil
}

func (c *Client) request(ctx context.Context, method string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.target.url.String(), nil)
	if err != nil {
		return nil, &PolicyError{"the URL cannot be read"}
	}
	request.Header.Set("User-Agent", "flint-fileagent")
	if c.token != "" {
		request.Header.Set("Authorization", bearerScheme+c.token)
	}
	return request, nil
}

// explain says what an error of the transport means, without the URL.
func (c *Client) explain(ctx, watched context.Context, err error) error {
	var denied *PolicyError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &denied):
		return denied
	case errors.Is(context.Cause(watched), errStalled):
		return failed("the transfer with %s stands still: nothing has moved for %v", quoted(c.target.url.Host), c.patience)
	}
	return failed("the transfer with %s failed: %s", quoted(c.target.url.Host), innermost(err))
}

// innermost is the text of the error within all others.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func quoted(host string) string { return strconv.Quote(host) }

// watch ends a transfer that stands still.
type watch struct {
	cancel   context.CancelCauseFunc
	patience time.Duration
	timer    *time.Timer
}

func (c *Client) watch(ctx context.Context) (context.Context, *watch) {
	watched, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, patience: c.patience}
	w.timer = time.AfterFunc(c.patience, func() { cancel(errStalled) })
	w.timer.Stop()
	return watched, w
}

func (w *watch) start() { w.timer.Reset(w.patience) }
func (w *watch) stop()  { w.timer.Stop() }

func (w *watch) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// body is what a Source reads from.
type body struct {
	client          *Client
	parent, watched context.Context
	watch           *watch
	from            io.ReadCloser
}

// Read reads.
func (b *body) Read(p []byte) (int, error) {
	b.watch.start()
	n, err := b.from.Read(p)
	b.watch.stop() // what the reader does with it is his own time
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.client.explain(b.parent, b.watched, err)
	}
	return n, err
}

// Close ends the connection.
func (b *body) Close() error {
	b.watch.end()
	return b.from.Close()
}

// outgoing is the body of a PUT. The transport reads it on a goroutine of its own, and closes it when it will read no more.
type outgoing struct {
	from   io.Reader
	left   int64
	failed error
	watch  *watch
	mutex  sync.Mutex // a Close waits for the Read that is under way
	ended  bool
	closed chan struct{}
}

// Read reads. Between two calls, and before the Close, the bytes are on their way: the watch looks at that time.
func (o *outgoing) Read(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if o.ended {
		return 0, http.ErrBodyReadAfterClose
	}
	o.watch.stop()
	n, err := o.from.Read(p)
	o.left -= int64(n)
	if errors.Is(err, io.EOF) && o.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		o.failed = err
		return n, err
	}
	o.watch.start()
	return n, err
}

// Close takes note that no more is read.
func (o *outgoing) Close() error {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if !o.ended {
		o.ended = true
		o.watch.stop()
		close(o.closed)
	}
	return nil
}
