# Each target does its own set-up. `make help` lists them.
GO      ?= go
FUZZ    ?= 60s
# The race detector needs a C compiler; go env tells whether there is one.
RACE    := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
SHELL   := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test e2e e2e-serving e2e-spark e2e-up e2e-down e2e-cluster lint bench fuzz build generate control-plane manifests oracle parity

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## serve Flint on an embedded cluster (or that of KUBECONFIG)
	@echo "building Flint; the first time this takes a minute or two, and names each package as it is compiled"
	@$(GO) build -v -o bin/flint-embedded ./test/embedded/run
	@exec bin/flint-embedded

build: ## build bin/flint and bin/fileagent
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/flint ./cmd/flint
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o bin/fileagent ./cmd/fileagent

control-plane: ## build kube-apiserver and etcd for the tests, once
	@$(GO) run ./test/controlplane/build

test: control-plane ## all tests, race detector on, shuffled
	@$(if $(RACE),,echo "no C compiler (cc): the race detector is OFF";)
	@echo "building and running the tests; each package prints its line when it has ended"
	@$(GO) test $(RACE) -shuffle=on -timeout 20m ./...
	@cd test/controlplane/binary && $(GO) test -count=1 ./expansion

parity: ## compare Flint with what Spark itself did, for each case and Spark line
	@$(GO) run ./test/parity/run

oracle: ## write the goldens of test/parity anew, with Spark itself (needs Java 17 and pip)
	@$(GO) run ./test/oracle

manifests: ## the folder config: kustomize builds it, Knative Serving's own validation judges it
	@echo "building kustomize and Knative Serving's validation from their modules; the first time this takes a minute or two"
	@cd test/manifests && $(GO) test -count=1 ./...

e2e: control-plane build e2e-cluster ## the built program as a process, and as a pod on a real node (Linux, root)
	@$(GO) test -tags e2e -count=1 -timeout 20m ./e2e
	@bin/e2e-cluster test

e2e-serving: control-plane e2e-cluster ## Knative Serving takes the function to zero and back, on a real node
	@bin/e2e-cluster serving

e2e-spark: control-plane e2e-cluster ## Spark itself, submitted through the function, on a real node
	@bin/e2e-cluster spark

e2e-up: control-plane e2e-cluster ## a whole cluster on this machine, with Flint in it, that stays
	@bin/e2e-cluster up

e2e-down: e2e-cluster ## end that cluster, and remove what is left of it
	@bin/e2e-cluster down

e2e-cluster:
	@$(GO) build -o bin/e2e-cluster ./e2e/cluster/run

lint: ## golangci-lint and govulncheck, built once from their modules
	@echo "golangci-lint and govulncheck are built from their modules; the first time this takes a few minutes"
	@cd tools && $(GO) build -o ../bin/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint golang.org/x/vuln/cmd/govulncheck
	@bin/golangci-lint run ./...
	@bin/govulncheck ./... 2>bin/govulncheck.err || { code=$$?; cat bin/govulncheck.err >&2; \
	  grep -q '^govulncheck: fetching vulnerabilities' bin/govulncheck.err || exit $$code; \
	  echo "NOT CHECKED for known vulnerabilities: the database, https://vuln.go.dev or that of GOVULNDB, cannot be reached" >&2; }

bench: control-plane build ## figures of docs/performance.md, in one run against one API server
	@$(GO) run ./test/bench

fuzz: ## every fuzz target for FUZZ (60s)
	@$(GO) list ./... | while read -r package; do \
	  $(GO) test -list '^Fuzz' "$$package" | { grep '^Fuzz' || true; } | while read -r target; do \
	    echo "fuzzing $$package $$target for $(FUZZ)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) -fuzzminimizetime 5s "$$package"; \
	  done; \
	done

generate: ## write the pages that are made from code
	@$(GO) test ./pkg/config -run '^TestPage$$' -update
