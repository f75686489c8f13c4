# The doors for a person at a keyboard. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MDBOOK := target/tools/bin/mdbook
MDBOOK_VERSION := 0.5.4

.PHONY: help run test test-long bench build docs fix verify clean toolchain

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: toolchain ## build Egret, start it with the flights demo, and say where to look
	@if [ "$$(id -u)" = 0 ] && [ -z "$$(type -P mkfs.btrfs)" ] && [ -n "$$(type -P apt-get)" ]; then \
		tests/clients/prepare btrfs || echo "make run: btrfs-progs could not be installed: going on with the copy driver"; \
	fi
	cargo build --locked --profile quick-release -p egret
	@exec target/quick-release/egret demo

# Clippy compiles the crates of the workspace for the tests, instead of once more by itself. Tests wait
# for processes more than they compute, so twice as many run at a time as there are cores.
CHECKED := RUSTC_WORKSPACE_WRAPPER="$$(rustup which clippy-driver 2>/dev/null || type -P clippy-driver)" CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__

test: toolchain ## install what the tests need, then check and test everything
	@tests/clients/prepare
	cargo fmt --all --check
	@source target/test-clients/environment; export $(CHECKED); \
	export RUST_TEST_THREADS="$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))}"; \
	if cargo nextest --version >/dev/null 2>&1; then \
		cargo nextest run --workspace --all-targets --locked; \
	else \
		cargo test --workspace --all-targets --locked; \
	fi

test-long: ## the same with what takes hours: ten times the seeds and repetitions, 20 kills of each engine
	@EGRET_TEST_LONG=1 EGRET_CRASHES=20 $(MAKE) --no-print-directory test

bench: toolchain ## run every benchmark scenario at small size, results in target/bench
	cargo build --locked --profile quick-release -p egret -p egret-bench
	@mkdir -p target/bench
	target/quick-release/egret bench sql --private --file select-only.toml --duration 5s --out target/bench/select-only.json
	target/quick-release/egret bench sql --private --file tpcb-like.toml --rate 200 --duration 5s --out target/bench/tpcb-like.json
	target/quick-release/egret bench queue --private --seconds 5 --out target/bench/queue.json
	target/quick-release/egret bench log --seconds 3 --out target/bench/log.json
	target/quick-release/egret bench documents --private --seconds 5 --out target/bench/documents.json
	target/quick-release/egret bench branches --private --branches 5 --bursts 2 --out target/bench/branches.json
	target/quick-release/egret bench series --private --writers 4 --readers 2 --seconds 5 --preload 1000000 --out target/bench/series.json
	target/quick-release/egret bench views --private --rows 10000 --rates 0,1 --cycles 5 --seconds 5 --out target/bench/views.json
	target/quick-release/egret bench views --private --scenario tpch --scale 0.01 --cycles 2 --out target/bench/views-tpch.json

build: toolchain ## build the release programs, stripped, with their debug information beside them, in target/dist
	cargo build --locked --release -p egret -p egret-bench
	@mkdir -p target/dist
	@for program in egret egret-bench; do \
		objcopy --only-keep-debug target/release/$$program target/dist/$$program.debug; \
		objcopy --strip-all --add-gnu-debuglink=target/dist/$$program.debug target/release/$$program target/dist/$$program; \
	done

docs: toolchain ## build the guide as a book with search, target/book/index.html
	@if [ "$$($(MDBOOK) --version 2>/dev/null)" != "mdbook v$(MDBOOK_VERSION)" ]; then \
		cargo install mdbook --version $(MDBOOK_VERSION) --locked --no-default-features --features search --root target/tools; \
	fi
	$(MDBOOK) build

fix: toolchain ## format and apply what clippy can mend by itself (writes files)
	cargo fmt --all
	cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

verify: toolchain ## format, lints and house rules; writes no source file
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo test --locked -p egret-tidy

clean: ## remove everything that was built
	rm -rf target

toolchain:
	@type -P cargo >/dev/null || { echo "make: no Rust toolchain: install it from https://rustup.rs, then run make again"; exit 1; }
	@tests/clients/prepare compiler
