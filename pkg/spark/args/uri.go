package args

import (
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"flint.dev/flint/pkg/spark/conf"
)

// URIs as java.net.URI reads them (JDK 17): RFC 2396 with Java's deviations,
// among them visible characters beyond ASCII and brackets in queries.

// uri is a parsed URI, still escaped.
type uri struct {
	// scheme is empty for a relative one.
	scheme string
	// specific is the scheme-specific part: all between "scheme:" and "#".
	specific string
	// fragment is the text behind "#"; hasFragment tells an empty one from none.
	fragment    string
	hasFragment bool
}

// Character sets of the grammar. Escapes (%XX) and visible characters beyond
// ASCII are allowed in all of them except in a scheme.
var (
	schemeChars   = charset("+-.")
	userInfoChars = charset("-_.!~*'();:&=+$,")
	regNameChars  = charset("-_.!~*'()$,;:@&=+")
	pathChars     = charset("-_.!~*'():@&=+$,;/")
	uricChars     = charset("-_.!~*'();/?:@&=+$,[]")
)

// charset holds ASCII letters, digits and the given punctuation.
func charset(punctuation string) (set [128]bool) {
	for c := range set {
		r := rune(c)
		set[c] = strings.ContainsRune(punctuation, r) || isLetter(r) || ('0' <= r && r <= '9')
	}
	return set
}

func isLetter(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }

// parseURI is java.net.URI's constructor of one text.
func parseURI(text string) (uri, error) {
	var u uri
	rest := text
	if i := strings.IndexAny(text, ":/?#"); i >= 0 && text[i] == ':' {
		u.scheme, rest = text[:i], text[i+1:]
		if !isScheme(u.scheme) {
			return uri{}, errors.New("illegal scheme name")
		}
	}
	u.specific, u.fragment, u.hasFragment = strings.Cut(rest, "#")
	if u.hasFragment && !allowed(u.fragment, &uricChars) {
		return uri{}, errors.New("illegal character in fragment")
	}
	if u.scheme != "" && !strings.HasPrefix(u.specific, "/") {
		if u.specific == "" || !allowed(u.specific, &uricChars) {
			return uri{}, errors.New("illegal or missing scheme-specific part")
		}
		return u, nil
	}
	return u, checkHierarchical(u.specific, u.hasFragment)
}

func isScheme(s string) bool {
	if s == "" || !isLetter(rune(s[0])) {
		return false
	}
	for i := range len(s) {
		if s[i] >= 128 || !schemeChars[s[i]] {
			return false
		}
	}
	return true
}

// checkHierarchical checks [//authority][path][?query].
func checkHierarchical(specific string, hasFragment bool) error {
	path, query, hasQuery := strings.Cut(specific, "?")
	if hasQuery && !allowed(query, &uricChars) {
		return errors.New("illegal character in query")
	}
	if afterSlashes, ok := strings.CutPrefix(path, "//"); ok {
		authority := afterSlashes
		if i := strings.IndexByte(afterSlashes, '/'); i >= 0 {
			authority = afterSlashes[:i]
		}
		path = afterSlashes[len(authority):]
		switch {
		// Java allows an empty authority in front of anything, but not at the end.
		case authority == "" && path == "" && !hasQuery && !hasFragment:
			return errors.New("expected authority")
		case authority != "" && !isAuthority(authority):
			return errors.New("illegal authority")
		}
	}
	if !allowed(path, &pathChars) {
		return errors.New("illegal character in path")
	}
	return nil
}

// ipv6Authority is what only a server-based authority can be: [user@][address%scope]:port.
var ipv6Authority = regexp.MustCompile(`^(?:([^@]*)@)?\[([0-9A-Fa-f:.]+)(?:%[0-9A-Za-z_.]+)?\](?::([0-9]*))?$`)

// isAuthority tells whether s is a registry-based name, which every host with
// or without a port also is, or a server with an IPv6 address.
func isAuthority(s string) bool {
	if allowed(s, &regNameChars) {
		return true
	}
	m := ipv6Authority.FindStringSubmatch(s)
	if m == nil || !allowed(m[1], &userInfoChars) {
		return false
	}
	if _, err := strconv.ParseInt("0"+m[3], 10, 32); err != nil {
		return false
	}
	address, err := netip.ParseAddr(m[2])
	return err == nil && address.Is6()
}

// allowed tells whether s consists of characters of the set, escapes, and visible characters beyond ASCII.
func allowed(s string, set *[128]bool) bool {
	for i, r := range s {
		switch {
		case r == '%':
			if !isEscape(s[i:]) {
				return false
			}
		case r >= 128:
			if isInvisible(r) {
				return false
			}
		case !set[r]:
			return false
		}
	}
	return true
}

// isEscape tells whether s starts with %XX.
func isEscape(s string) bool { return len(s) >= 3 && s[0] == '%' && isHex(s[1]) && isHex(s[2]) }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isInvisible is Java's isSpaceChar or isISOControl for a character beyond ASCII.
func isInvisible(r rune) bool { return r < 0xA0 || unicode.In(r, unicode.Z) }

// resolveURI gives the parts of a text that Utils.resolveURI leaves as it is,
// because it is a URI with a scheme. It is not ok for other texts, which Spark
// takes as the name of a file in the submitter's working directory, nor for a
// file: URI: the submitter's files do not exist here.
func resolveURI(text string) (u uri, ok bool) {
	u, err := parseURI(text)
	return u, err == nil && u.scheme != "" && !strings.EqualFold(u.scheme, "file")
}

// uriList is a comma-separated list of dependencies on its way through SparkSubmit.
type uriList struct {
	field
	// offending are the elements that name files of the submitter, as they were typed; seen holds them trimmed.
	offending []string
	seen      map[string]bool
}

// resolve is Utils.resolveURIs: blank elements are dropped, the others are not trimmed.
func (l *uriList) resolve() {
	var elements []string
	for element := range strings.SplitSeq(l.value, ",") {
		if conf.Trim(element) == "" {
			continue
		}
		l.check(element)
		elements = append(elements, element)
	}
	l.value = strings.Join(elements, ",")
}

// check notes an element that names a file of the submitter, once.
func (l *uriList) check(element string) {
	trimmed := conf.Trim(element)
	if _, ok := resolveURI(element); ok || l.seen[trimmed] {
		return
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[trimmed] = true
	l.offending = append(l.offending, element)
}

// glob is DependencyUtils.resolveGlobPaths without a file system: each element
// is trimmed and taken as the name of one file that exists. It is written again
// from its decoded form, which loses the escapes of legal characters.
func (l *uriList) glob() error {
	elements := conf.SplitList(l.value)
	for i, element := range elements {
		u, ok := resolveURI(element)
		if !ok {
			l.check(element)
			continue
		}
		rewritten, err := u.rewrite()
		if err != nil {
			return conf.Refuse(l.name, element, "not a URI any more after its escapes are decoded: %s", err)
		}
		elements[i] = rewritten
	}
	l.value = strings.Join(elements, ",")
	return nil
}

// rewrite is new URI(scheme, schemeSpecificPart, null) with the decoded
// fragment put behind it (DependencyUtils.splitOnFragment).
func (u uri) rewrite() (string, error) {
	rewritten := u.scheme + ":" + quoteSpecific(decode(u.specific))
	if _, err := parseURI(rewritten); err != nil {
		return "", err
	}
	if u.hasFragment {
		rewritten += "#" + decode(u.fragment)
	}
	return rewritten, nil
}

// decode is java.net.URI.decode: escapes become UTF-8 text, each malformed byte
// U+FFFD (Java may take several as one), and a "%" between brackets stays.
func decode(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	bracketed := false
	for i := 0; i < len(s); {
		if !bracketed && isEscape(s[i:]) {
			run := escapedBytes(s[i:])
			b.WriteString(string([]rune(string(run))))
			i += 3 * len(run)
			continue
		}
		switch s[i] {
		case '[':
			bracketed = true
		case ']':
			bracketed = false
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

// escapedBytes are the bytes of the escapes that s starts with.
func escapedBytes(s string) []byte {
	var run []byte
	for isEscape(s) {
		b, _ := strconv.ParseUint(s[1:3], 16, 8)
		run = append(run, byte(b))
		s = s[3:]
	}
	return run
}

// quoteSpecific escapes what a scheme-specific part must not hold. The address
// in front of it stays if it is an IPv6 one (URI.appendSchemeSpecificPart).
func quoteSpecific(s string) string {
	if strings.HasPrefix(s, "//[") {
		if end := strings.IndexByte(s, ']'); end >= 0 {
			return s[:end+1] + quote(s[end+1:])
		}
	}
	return quote(s)
}

// quote escapes the UTF-8 bytes of each character that is not legal in a URI, "%" among them.
func quote(s string) string {
	var b strings.Builder
	for _, r := range s {
		if (r < 128 && uricChars[r]) || (r >= 128 && !isInvisible(r)) {
			b.WriteRune(r)
			continue
		}
		for _, c := range []byte(string(r)) {
			const hex = "0123456789ABCDEF"
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}
