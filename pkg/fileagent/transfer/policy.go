// Package transfer moves one file over HTTP, to or from a URL that a caller gave, and so within a policy.
//
// The policy is held twice: the URL is judged by its text, and each address when it is dialled, after the name was
// resolved: a name that resolves to something else the second time gains nothing. There are no redirects, no proxies
// from the environment, no cookies and no retries, and no error repeats the URL: a presigned one is a secret.
package transfer

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Policy says where a transfer may reach.
type Policy struct {
	// Hosts are names, "*.example.org" for all names below example.org, or either with ":port" for another port than
	// that of the scheme. Empty means every host at a public address.
	Hosts []string
	// Private allows private, loopback and link-local addresses, and http, for those in Hosts.
	Private bool
}

// PolicyError says that the policy does not allow a transfer.
type PolicyError struct{ Reason string }

func (e *PolicyError) Error() string { return e.Reason }

// target is a URL that the policy allows.
type target struct {
	url *url.URL
	// private allows addresses that are not public.
	private bool
}

// target reads a URL, and tells whether the policy allows it, as far as its text tells. The error is a *PolicyError.
func (p Policy) target(text string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, &PolicyError{"the URL cannot be read"}
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	listed := slices.ContainsFunc(p.Hosts, func(pattern string) bool { return matches(pattern, host, u) })
	private := p.Private && listed
	switch {
	case u.Scheme != "https" && u.Scheme != "http", u.Opaque != "", host == "":
		return nil, &PolicyError{"the URL is not of the form https://host/path"}
	case u.User != nil:
		return nil, &PolicyError{"the URL has user information, which would be sent with it"}
	case len(p.Hosts) > 0 && !listed:
		return nil, &PolicyError{"the host " + quoted(u.Host) + " is not among those that the settings allow"}
	case u.Scheme == "http" && !private:
		return nil, &PolicyError{"http is not allowed for the host " + quoted(u.Host) + ", https is"}
	case !listed && port(u) != schemePort(u.Scheme):
		return nil, &PolicyError{"the port of " + quoted(u.Host) + " is not among those that the settings allow"}
	}
	return &target{url: u, private: private}, nil
}

// matches tells whether a pattern of Policy.Hosts allows the URL, whose host is given in lower case.
func matches(pattern, host string, u *url.URL) bool {
	pattern = strings.ToLower(pattern)
	wanted := schemePort(u.Scheme)
	if name, number, err := net.SplitHostPort(pattern); err == nil {
		pattern, wanted = name, number
	}
	pattern = strings.Trim(pattern, "[]") // of an IPv6 address without a port
	if wanted != port(u) {
		return false
	}
	if domain, wild := strings.CutPrefix(pattern, "*."); wild {
		return strings.HasSuffix(host, "."+domain) && !isAddress(host)
	}
	return pattern == host
}

func schemePort(scheme string) string {
	if scheme == "http" {
		return "80"
	}
	return "443"
}

func port(u *url.URL) string { return cmp.Or(u.Port(), schemePort(u.Scheme)) }

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// allows tells whether an address may be dialled.
func (t *target) allows(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if public(address) {
		return true
	}
	return t.private && (address.IsPrivate() || address.IsLoopback() || address.IsLinkLocalUnicast() || shared.Contains(address))
}

// public tells whether an address is one of the Internet.
func public(address netip.Addr) bool {
	if nat64.Contains(address) { // stands for the IPv4 address in its last four bytes
		bytes := address.As16()
		return public(netip.AddrFrom4([4]byte(bytes[12:])))
	}
	if address.Is6() && !global.Contains(address) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(address) })
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

//nolint:gochecknoglobals // constants that Go cannot spell as such
var (
	global = netip.MustParsePrefix("2000::/3")      // the part of IPv6 that IANA has given out
	nat64  = netip.MustParsePrefix("64:ff9b::/96")  // RFC 6052
	shared = netip.MustParsePrefix("100.64.0.0/10") // RFC 6598: providers' and some clusters' own
	// special are the IANA special-purpose registries of IPv4 and, within global, IPv6, and multicast:
	// https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
	special = prefixes(
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
		"192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
		"192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
		"2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
	)
)
