package parity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// properties is the text of a spark.properties as java.util.Properties.load reads it.
type properties struct {
	// comments are the comment lines before the first property, with their sign.
	comments []string
	values   map[string]string
}

// parseProperties reads a text that Properties.store wrote. Unlike Java it refuses a key that comes twice.
func parseProperties(text string) (*properties, error) {
	p := &properties{values: map[string]string{}}
	for line := range logicalLines(text) {
		if line[0] == '#' || line[0] == '!' {
			if len(p.values) == 0 {
				p.comments = append(p.comments, line)
			}
			continue
		}
		rawKey, rawValue := splitProperty(line)
		key, err := unescape(rawKey)
		if err != nil {
			return nil, err
		}
		if _, twice := p.values[key]; twice {
			return nil, fmt.Errorf("property %q comes twice", key)
		}
		if p.values[key], err = unescape(rawValue); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// logicalLines gives the lines that are not blank, without the white space before
// them. A line that ends with an odd number of backslashes goes on in the next one.
func logicalLines(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		var logical string
		continued := false
		for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }) {
			line = strings.TrimLeft(line, " \t\f")
			comment := !continued && line != "" && (line[0] == '#' || line[0] == '!')
			body := strings.TrimRight(line, `\`)
			if !comment && (len(line)-len(body))%2 == 1 {
				logical, continued = logical+line[:len(line)-1], true
				continue
			}
			logical, continued = logical+line, false
			if logical != "" && !yield(logical) {
				return
			}
			logical = ""
		}
		if logical != "" {
			yield(logical)
		}
	}
}

// splitProperty splits at the first "=", ":" or white space that no backslash precedes.
func splitProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	return line[:end], rest
}

func unescape(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			b.WriteByte(text[i])
			continue
		}
		if i++; i == len(text) {
			break
		}
		switch text[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			var units []uint16
			for {
				if len(text) < i+5 {
					return "", errors.New(`malformed \uXXXX`)
				}
				unit, err := strconv.ParseUint(text[i+1:i+5], 16, 16)
				if err != nil {
					return "", fmt.Errorf(`malformed \uXXXX: %w`, err)
				}
				units = append(units, uint16(unit))
				i += 4
				// The other half of a surrogate pair.
				if !strings.HasPrefix(text[i+1:], `\u`) {
					break
				}
				i += 2
			}
			b.WriteString(string(utf16.Decode(units)))
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), nil
}
