# Three commands matter: `make demo`, `make demo-volume` and `make test`. The work is done by the scripts in scripts/.

.DEFAULT_GOAL := help
.PHONY: help demo demo-volume test test-long bench-peers

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: ## Count n-grams in a store, to see the system work; DEMO_ARGS="..." passes arguments
	@scripts/prepare build
	cargo run --release --locked --example ngrams -p upsweep -- $(DEMO_ARGS)

demo-volume: ## Destroy the files of a disk, and see them as they were ten seconds before
	@scripts/prepare build
	@scripts/prepare demo-volume
	@scripts/demo-volume

test: ## Format, lints, tests, documentation, a bounded simulation: under 20 minutes
	@scripts/test

test-long: ## All of test, then many simulations, experiments, fuzzing, kill trials and tools on volumes
	@scripts/test-long

bench-peers: ## Measure Upsweep beside its peers in DIR, about six hours, or with QUICK=1 in minutes
	@scripts/bench-peers $(or $(DIR),.) $(BENCH_ARGS)
