# Every target works from a clean checkout with Go alone. Targets that run long say so.

GO       ?= go
FUZZTIME ?= 30s
KILLS    ?= 3

.PHONY: test race lint generate bench chaos-short nightly fuzz ci

test: ## everything but the long runs, under 3 minutes
	$(GO) test ./...

race: ## the same under the race detector, a quarter of an hour
	$(GO) test -race -timeout 20m ./node ./... # the longest first

lint: ## gofmt, vet and, where .ci/run has built it, golangci-lint
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	@for l in .ci/tools/golangci-lint-*; do if [ -x "$$l" ]; then "$$l" run ./...; fi; done

generate: ## the generated files, which are committed
	$(GO) generate ./...

bench: ## the Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

chaos-short: ## real processes, killed KILLS times
	OARLOCK_KILLS=$(KILLS) $(GO) test -count=1 -timeout 5m -run 'TestProcess' ./examples/...

nightly: ## hours: long randomized runs and many kills
	OARLOCK_NIGHTLY=1 OARLOCK_KILLS=50 $(GO) test -count=1 -timeout 6h ./...

fuzz: ## each fuzz target for FUZZTIME
	@set -e; for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
			echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p; \
		done; \
	done

ci: ## what a change must pass
	.ci/run
