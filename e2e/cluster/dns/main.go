// Command dns answers the names of Services and pods. It is CoreDNS with the few of its plugins that a Corefile here
// names, and a module of its own, so that nothing of it reaches the product's module graph.
//
//	dns -conf COREFILE
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	dnsserver.Directives = []string{"bind", "ready", "errors", "kubernetes"} // in the order in which they are asked
	coremain.Run()
}
