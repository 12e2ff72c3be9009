// Package smuggling has requests whose end, or whose headers, two HTTP implementations might read in two ways, as a proxy in front and
// the server behind it do (RFC 9112, 11.2). Each has a second request behind it, or in it. They are sent to Flint's own listener, and
// to queue-proxy's in front of it: one table says what each may make of them.
package smuggling

import (
	"fmt"
	"strconv"
	"strings"
)

// Shape is what is sent on one connection, byte for byte.
type Shape struct {
	Name string
	Text string
	// Listener are the statuses of the answers of Flint's own listener, in their order, until it closes the connection or waits for
	// more. The first request is a repeat, 200; 201 is a second one that was taken for a request, and launched.
	Listener []int
	// Queue are those of queue-proxy. It keeps a connection after a body in chunks, which Flint's listener closes: what is behind it
	// is a request there, with an answer of its own.
	Queue []int
}

// Request is a POST of the body with these headers, and no others than Host and Content-Type.
func Request(path, body string, headers ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n" + body
}

// Chunked is the text as a body in one chunk.
func Chunked(text string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(text), text) }

// Length is the header that says the text's length.
func Length(text string) string { return "Content-Length: " + strconv.Itoa(len(text)) }

const chunks = "Transfer-Encoding: chunked"

// Shapes are all shapes, of POSTs to the path with a first and a second body in JSON.
func Shapes(path, first, second string) []Shape {
	post := func(body string, headers ...string) string { return Request(path, body, headers...) }
	behind := post(second, Length(second))
	length := Length(first)
	instead := func(old, now, text string) string { return strings.Replace(text, old, now, 1) }
	return []Shape{
		{"both lengths, the number shorter", post(Chunked(first)+behind, "Content-Length: 6", chunks), []int{200}, []int{200, 201}},
		{"both lengths, the number longer", post(Chunked(first)+behind, Length(Chunked(first)+behind), chunks), []int{200}, []int{200, 201}},
		{"both lengths, in the other order", post(Chunked(first)+behind, chunks, Length(Chunked(first))), []int{200}, []int{200, 201}},
		{"chunked, and more", post(Chunked(first)+behind, chunks), []int{200}, []int{200, 201}},
		{"two lengths", post(first+behind, "Content-Length: 5", "Content-Length: 6"), []int{400}, []int{400}},
		{"two lengths, one empty", post(first+behind, "Content-Length: ", length), []int{400}, []int{400}},
		{"a list of lengths", post(first+behind, "Content-Length: 5, 5"), []int{400}, []int{400}},
		{"a length with a sign", post(first+behind, "Content-Length: +5"), []int{400}, []int{400}},
		{"a negative length", post(first+behind, "Content-Length: -5"), []int{400}, []int{400}},
		{"a length in hex", post(first+behind, "Content-Length: 0x5"), []int{400}, []int{400}},
		{"a length beyond all", post(first+behind, "Content-Length: 99999999999999999999"), []int{400}, []int{400}},
		{"a blank before the colon", post(first+behind, "Content-Length : 5"), []int{400}, []int{400}},
		{"a blank before the colon, chunked", post(Chunked(first)+behind, "Transfer-Encoding : chunked"), []int{400}, []int{400}},
		{"a tab before the colon, chunked", post(Chunked(first)+behind, "Transfer-Encoding\t: chunked", length), []int{400}, []int{400}},
		{"a tab behind the colon", post(Chunked(first)+behind, "Transfer-Encoding:\tchunked"), []int{200}, []int{200, 201}},
		{"an encoding that is none", post(Chunked(first)+behind, "Transfer-Encoding: xchunked"), []int{501}, []int{501}},
		{"an encoding in capitals", post(Chunked(first)+behind, "TRANSFER-ENCODING: CHUNKED"), []int{200}, []int{200, 201}},
		{"chunked, then another", post(Chunked(first)+behind, "Transfer-Encoding: chunked, identity"), []int{501}, []int{501}},
		{"two encodings in one", post(Chunked(first)+behind, "Transfer-Encoding: identity, chunked"), []int{501}, []int{501}},
		{"two encodings", post(Chunked(first)+behind, chunks, "Transfer-Encoding: identity"), []int{501}, []int{501}},
		{"chunked twice", post(Chunked(first)+behind, chunks, chunks), []int{501}, []int{501}},
		{"an encoding in quotes", post(Chunked(first)+behind, `Transfer-Encoding: "chunked"`, length), []int{501}, []int{501}},
		{"a vertical tab", post(Chunked(first)+behind, "Transfer-Encoding: \x0bchunked"), []int{400}, []int{400}},
		{"an encoding that is folded", post(Chunked(first)+behind, "Transfer-Encoding:\r\n chunked", "Content-Length: 6"), []int{200}, []int{200, 201}},
		{"a header in a folded one", post(first, "X: a\r\n Content-Length: 3", length), []int{200}, []int{200}},
		{"a bare carriage return", post(first, "X: a\rContent-Length: 3", length), []int{400}, []int{400}},
		{"bare line feeds", strings.ReplaceAll(post("", length), "\r\n", "\n") + first, []int{200}, []int{200}},
		{"bare line feeds in chunks", post(strings.ReplaceAll(Chunked(first), "\r\n", "\n")+behind, chunks), []int{400}, []int{502}},
		{"an extension of a chunk", post(instead("\r\n", ";a=b\r\n", Chunked(first))+behind, chunks), []int{200}, []int{200, 201}},
		{"an extension with a line feed", post(instead("\r\n", ";a\nb\r\n", Chunked(first))+behind, chunks), []int{400}, []int{502}},
		{"a blank behind a chunk's size", post(instead("\r\n", " \r\n", Chunked(first))+behind, chunks), []int{200}, []int{200, 201}},
		{"a blank before a chunk's size", post(" "+Chunked(first)+behind, chunks), []int{400}, []int{502}},
		{"a chunk in hex with its prefix", post("0x"+Chunked(first)+behind, chunks), []int{400}, []int{502}},
		{"a chunk beyond all", post("fffffffffffffffff\r\n"+first+behind, chunks), []int{400}, []int{502}},
		{"a chunk that overflows", post("10000000000000005\r\n"+first+behind, chunks), []int{400}, []int{502}},
		{"a negative chunk", post("-5\r\n"+first+behind, chunks), []int{400}, []int{502}},
		{"a chunk without its end", post(instead("\r\n0\r\n", "0\r\n", Chunked(first))+behind, chunks), []int{400}, []int{502}},
		{"a length in the trailer", post(instead("\r\n0\r\n", "\r\n0\r\nContent-Length: 5\r\n", Chunked(first))+behind, chunks), []int{200}, []int{200, 201}},
		{"identity and host in the trailer", post(instead("\r\n0\r\n", "\r\n0\r\nAuthorization: Bearer x\r\nHost: y\r\n", Chunked(first))+behind, chunks, "Trailer: Authorization, Host"), []int{200}, []int{200, 201}},
		{"a trailer that is announced", post(instead("\r\n0\r\n", "\r\n0\r\nCe-Type: x\r\n", Chunked(first))+behind, chunks, "Trailer: Ce-Type"), []int{200}, []int{200, 201}},
		{"chunked in HTTP/1.0", instead("HTTP/1.1", "HTTP/1.0", post(Chunked(first)+behind, chunks)), []int{400}, []int{400}},
		{"a body of a GET", instead("POST", "GET", post(behind, Length(behind))), []int{405}, []int{405}},
		{"a chunked body of a GET", instead("POST", "GET", post(Chunked("x")+behind, chunks)), []int{405}, []int{405, 201}},
		{"two hosts", post(first+behind, "Host: y", length), []int{400}, []int{400}},
		{"no host", instead("Host: x\r\n", "", post(first+behind, length)), []int{400}, []int{400}},
		{"a null byte", post(first+behind, "X: \x00", length), []int{400}, []int{400}},
		{"a null byte in a name", post(first+behind, "X\x00: x", length), []int{400}, []int{400}},
		{"hop by hop: the length", post(first, "Connection: Content-Length", length), []int{200}, []int{200}},
		{"hop by hop: the encoding", post(Chunked(first)+behind, "Connection: Transfer-Encoding, close", chunks), []int{200}, []int{200}},
		{"hop by hop: the content's type", post(first, "Connection: close, Content-Type", length), []int{200}, []int{415}},
		{"a target with a host", instead("POST ", "POST http://y", post(first, "Connection: close", length)), []int{200}, []int{200}},
		{"a target that is a host", instead("POST "+path, "POST y:80", post(first+behind, "Connection: close", length)), []int{307}, []int{400}},
		{"a target that is an asterisk", instead("POST "+path, "POST *", post(first, "Connection: close", length)), []int{400}, []int{400}},
		{"a tunnel", instead("POST "+path, "CONNECT y:80", post(first+behind, length)), []int{404, 201}, []int{404, 201}},
		{"an expectation, and more", post(first+behind, "Expect: 100-continue", "Connection: close", length), []int{100, 200}, []int{100, 200}},
		{"an expectation of nothing, and more", post(behind, "Expect: 100-continue", "Content-Length: 0"), []int{400, 201}, []int{400, 201}},
		{"an expectation that is none", post(first+behind, "Expect: 200-ok", length), []int{417}, []int{417}},
		{"an upgrade to HTTP/2", post(first, "Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", length), []int{200}, []int{101}},
		{"an upgrade to HTTP/2, and more", post(first+behind, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA", length), []int{200, 201}, []int{101}},
		{"an upgrade to a socket", post(first, "Connection: Upgrade, close", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", length), []int{200}, []int{200}},
		{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + behind, []int{400}, []int{}},
		{"no HTTP", "\x16\x03\x01\x00\x00" + behind, []int{400}, []int{400}},
		{"a version that is none", instead("HTTP/1.1", "HTTP/1.1x", post(first+behind, length)), []int{400}, []int{400}},
		{"a request line with a blank too many", instead("POST ", "POST  ", post(first+behind, length)), []int{400}, []int{400}},
		{"two, one after the other", post(first, length) + behind, []int{200, 201}, []int{200, 201}},
	}
}
