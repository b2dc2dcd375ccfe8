# weir. `make` or `make help` lists what there is to do.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tools, pinned here and run by version, so that they enter no go.mod.
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
BENCHSTAT   := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
FOLDERS := schemas streams kvtier planner gpuexec services e2e
SOURCES := $(shell find $(FOLDERS) go.mod go.sum -name '*.go' -o -name '*.s' -o -name 'go.*' 2>/dev/null)
MAIN    := ./services/weir
# Extra flags for go test, as in `make test TESTFLAGS=-v`.
TESTFLAGS ?=
# What `make bench` and `make fuzz-short` look at.
BENCH    ?= .
BENCHPKG ?= ./...
FUZZTIME ?= 10s
# OTEL=1 with compose-up starts the collector and exports spans to it.
OTEL     ?=
# How long compose-test may take; it skips when making the images took all of it.
COMPOSE_TIME ?= 12m
COMPOSE  ?= $(shell if docker compose version >/dev/null 2>&1; then echo docker compose; else echo docker-compose; fi)
COMPOSE_RUN = $(COMPOSE) -p weir -f compose/compose.yml
COMPOSE_ENV = $(if $(OTEL),OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317)

help: ## lists the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  %-14s %s\n", $$1, $$2}'

##@ set up and build

setup: engine ## fetches modules and engine libraries, so that what follows needs no network
	$(GO) list -deps -test work >/dev/null

engine: .engine/.installed ## installs the llama.cpp libraries into .engine (without npm: weir runs on its Go engine)

.engine/.installed: gpuexec/llamacpp/npm/package.json gpuexec/llamacpp/npm/package-lock.json
	@if ! command -v npm >/dev/null; then \
		echo "make engine: npm was not found; weir will run on its Go engine (slower, no constrained sampling)"; \
	elif [ "$$(uname -sm)" != "Linux x86_64" ]; then \
		echo "make engine: no libraries are pinned for $$(uname -sm); weir will run on its Go engine, or on libraries that you point it at"; \
	else \
		mkdir -p .engine; \
		cp $^ .engine/; \
		npm ci --prefix .engine --ignore-scripts --no-audit --no-fund --loglevel=error; \
		touch $@; \
	fi

# go-nvml's headers mark much of it as deprecated. Only builds of it get the flag:
# another CGO_CFLAGS builds the standard library anew.
CGO_NVML = CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations"

build: bin/weir ## builds bin/weir (static, no cgo); NVML=1: with readings of NVIDIA devices, which need cgo

bin/weir: $(SOURCES)
	$(if $(NVML),$(CGO_NVML),CGO_ENABLED=0) $(GO) build $(if $(NVML),-tags nvml) -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $@ $(MAIN)

up: build engine ## sets up and runs a whole stack on this machine until Ctrl-C
	bin/weir up

demo: build engine ## sets up, runs a stack, asks two turns of one session, and stops
	@bash e2e/demo.sh

cross: ## builds for linux/amd64, linux/arm64 and darwin/arm64 without cgo
	@for p in linux/amd64 linux/arm64 darwin/arm64; do \
		out=bin/weir-$${p/\//-}; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $$out $(MAIN); \
		echo "$$out $$(stat -c %s $$out 2>/dev/null || stat -f %z $$out) bytes"; \
	done

clean: ## removes what was built; .engine stays
	rm -rf bin .weir .tools compose/build

##@ test

test: build engine ## vets and tests both modules; the long end-to-end runs are in `make e2e`
	$(GO) vet work
	$(GO) test -timeout 10m $(TESTFLAGS) ./...
	$(if $(shell command -v gcc),$(CGO_NVML) $(GO) test -tags nvml $(TESTFLAGS) ./gpuexec/nvml,@echo "no C compiler: the tests of NVIDIA readings are left out")
	WEIR_BIN=$(CURDIR)/bin/weir $(GO) test -count=1 -timeout 15m -short $(TESTFLAGS) ./e2e/...

short: ## tests without engine, network or long runs
	$(GO) test -short -timeout 5m $(TESTFLAGS) work

race: ## the short tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -timeout 20m $(TESTFLAGS) work

e2e: build engine ## all end-to-end runs: exactness, faults, poison, bad input, clients
	WEIR_BIN=$(CURDIR)/bin/weir $(GO) test -count=1 -timeout 90m $(TESTFLAGS) ./e2e/...

sim: ## runs the actors on the virtual clock
	$(GO) test -count=1 -timeout 10m $(TESTFLAGS) ./streams/simrun/...

fuzz-short: ## fuzzes each target for FUZZTIME (10s)
	@grep -rlE '^func Fuzz' --include='*_test.go' $(FOLDERS) | while read -r f; do \
		grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$f" | cut -d' ' -f2 | while read -r name; do \
			echo "fuzz $$(dirname "$$f") $$name"; \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$f")"; \
		done; \
	done

bench: ## runs benchmarks six times into bin/bench-new.txt; the run before becomes bench-old.txt
	@mkdir -p bin
	@if [ -f bin/bench-new.txt ]; then mv bin/bench-new.txt bin/bench-old.txt; fi
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 -timeout 30m $(BENCHPKG) | tee bin/bench-new.txt

bench-weir: build engine ## overhead, throughput and copies as ratios in one run, as JSON lines
	$(GO) run ./e2e/benchrun

bench-tier: ## the shared KV memory against memcpy, and its index, in one run, as JSON lines
	$(GO) run ./e2e/benchtier

bench-cmp: ## compares the last two benchmark runs
	$(GO) run $(BENCHSTAT) bin/bench-old.txt bin/bench-new.txt

show-turn: build engine ## prints the figures of one agent turn, one JSON line each (under 25 minutes)
	$(GO) build -o bin/show-turn ./e2e/showturn
	bin/show-turn

show-tier: build engine ## prints the figures of the KV tier and its retention order, one JSON line each (under 10 minutes)
	$(GO) build -o bin/show-tier ./e2e/showtier
	bin/show-tier

show-agents: build engine ## prints the figures of how agents talk to weir, one JSON line each (under 10 minutes)
	$(GO) build -o bin/show-agents ./e2e/showagents
	bin/show-agents

show-roles: build engine ## prints the figures of roles that follow the work, one JSON line each (under 35 minutes)
	$(GO) build -o bin/show-roles ./e2e/showroles
	bin/show-roles

# Flags of the search: -full for all splits and five seeds, -only NAME,… for some scenarios.
SEARCHFLAGS ?=
search: ## tunes the baselines of the registered scenarios into e2e/scenarios/settings.json; goes on where it stopped
	$(GO) build -o bin/search-baselines ./e2e/search
	bin/search-baselines $(SEARCHFLAGS)

##@ check and generate

check: vet staticcheck fmt-check rules ## vet, staticcheck, format and house rules

vet: ## go vet of both modules
	$(GO) vet work

staticcheck: ## staticcheck of both modules
	$(GO) run $(STATICCHECK) work

fmt-check: ## fails when a file is not formatted
	@out=$$($(GO) run $(GOFUMPT) -l $(FOLDERS)); \
	if [ -n "$$out" ]; then echo "not formatted, run \`make fmt\`:"; echo "$$out"; exit 1; fi

fmt: ## formats all Go files
	$(GO) run $(GOFUMPT) -l -w $(FOLDERS)

rules: ## the tests that keep import rules, purity and README in order
	$(GO) test -count=1 ./e2e/rules

lint: ## golangci-lint of both modules (builds it at the first run, which takes minutes)
	$(GO) run $(GOLANGCI) run $$($(GO) list -m -f '{{.Dir}}/...')

tidy: ## go mod tidy in both modules
	$(GO) mod tidy
	cd e2e && $(GO) mod tidy

schemas: ## generates schemas/jsonschema from the Go types
	$(GO) test -count=1 -run '^TestSchemasInStep$$' ./schemas -update

##@ containers

compose-up: build engine ## starts the stack of compose/ and waits until it answers; OTEL=1 adds the collector
	compose/images.sh image
	$(COMPOSE_ENV) $(COMPOSE_RUN) $(if $(OTEL),--profile otel) up -d
	bin/weir probe --wait 120s http://127.0.0.1:$${WEIR_HTTP_PORT:-8080}/readyz
	@echo "the gateway is http://127.0.0.1:$${WEIR_HTTP_PORT:-8080}/v1, NATS is nats://127.0.0.1:$${WEIR_NATS_PORT:-4222}"

compose-down: ## stops the stack of compose/ and removes its volumes
	$(COMPOSE_RUN) --profile otel down --volumes --remove-orphans

compose-local: build engine ## makes all images of the stack without pulling any (needs root and debootstrap)
	compose/images.sh local

compose-test: build engine ## runs the stack from local images: turns, spans and a killed executor; skips without a container engine
	WEIR_COMPOSE=short WEIR_BIN=$(CURDIR)/bin/weir $(GO) test -count=1 -timeout $(COMPOSE_TIME) $(TESTFLAGS) -v -run '^TestStack$$' ./e2e/compose

compose-long: build engine ## all about the stack: collector, scaling, and every service killed once
	WEIR_COMPOSE=long WEIR_BIN=$(CURDIR)/bin/weir $(GO) test -count=1 -timeout 60m $(TESTFLAGS) -v ./e2e/compose

.PHONY: help setup engine build up demo cross clean test short race e2e sim fuzz-short bench bench-weir bench-tier bench-cmp show-turn show-tier show-agents show-roles search \
	check vet staticcheck fmt-check fmt rules lint tidy schemas compose-up compose-down \
	compose-local compose-test compose-long
