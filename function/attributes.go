package function

import (
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"flint.dev/flint/pkg/api"
)

// attributes are the header of an event in binary mode with the values of its attributes decoded, so that an event has
// the same key in either mode: double quotes and the backslashes between them first, then one round of
// percent-encoding (CloudEvents, HTTP Protocol Binding, 3.1.3.2). The SDK does neither. What is no encoding stays as
// it is, since many senders know nothing of it; bytes that are not UTF-8 are refused, as the binding says.
func attributes(header http.Header) (http.Header, error) {
	decoded := header.Clone()
	for name, values := range decoded {
		if !strings.HasPrefix(name, "Ce-") {
			continue
		}
		for i, value := range values {
			values[i] = unpercent(unquote(value))
			if !utf8.ValidString(values[i]) {
				return nil, api.FieldErrorf(api.BadRequest, strings.ToLower(name[len("Ce-"):]), "the header %s is not UTF-8 once it is decoded", name)
			}
		}
	}
	return decoded, nil
}

// unquote takes the double quotes away, and the backslashes between them. A quote that is not closed is none.
func unquote(value string) string {
	if !strings.Contains(value, `"`) {
		return value
	}
	var text strings.Builder
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && i+1 < len(value):
			i++
			text.WriteByte(value[i])
		default:
			text.WriteByte(c)
		}
	}
	if quoted {
		return value
	}
	return text.String()
}

// unpercent decodes each %xy, once.
func unpercent(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	var text strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '%' && i+2 < len(value) {
			if b, err := strconv.ParseUint(value[i+1:i+3], 16, 8); err == nil {
				text.WriteByte(byte(b))
				i += 2
				continue
			}
		}
		text.WriteByte(value[i])
	}
	return text.String()
}
