# Inkling's front door. `make run` serves, `make test` checks everything that CI checks.

SHELL := /bin/bash
PORT ?= 5432
HOST ?= 127.0.0.1
DATA ?= ./data

.PHONY: help run test nightly build deps test-deps lint unit doc models bench

help:
	@echo 'make run      build and serve ./data on $(HOST):$(PORT)'
	@echo 'make test     everything that CI runs'
	@echo 'make nightly  the crash loops at length (CRASHES=10000)'
	@echo 'make bench    throughput against PostgreSQL on this machine, in one run'
	@echo 'make lint     formatting, clippy'
	@echo 'make models   model checks of the concurrent kernels'
	@echo 'make doc      the internal documentation as HTML'

# libclang: pg_query (the SQL grammar) generates its bindings with it.
# psql and pgbench: the tests drive the server with them.
deps:
	@scripts/deps.sh build

test-deps:
	@scripts/deps.sh test

build: deps
	cargo build --release -p inkling

run: build
	@echo
	@echo '  psql -h $(HOST) -p $(PORT) -U postgres'
	@echo
	exec target/release/inkling serve -D $(DATA) -h $(HOST) -p $(PORT)

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

unit: deps
	cargo test --workspace

test: test-deps lint unit

# The seed of a chain that fails is printed; INKLING_CRASH_SEED=... runs that chain alone.
CRASHES ?= 10000
nightly: test-deps
	INKLING_CRASHES=$(CRASHES) INKLING_KILLS=25 INKLING_APPEND_ROUNDS=20 cargo test --release -p inkling \
	  --test crash_loop --test durability_loop --test durability_kill --test no_space \
	  --test prepared_loop --test prepared_kill --test list_append --test many \
	  --test failed_writes --test torn_pages --test pgbench

doc: deps
	cargo doc --workspace --no-deps --document-private-items

# Built apart: the synchronisation primitives are the model checker's.
models:
	RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR=target/shuttle \
	  cargo test -p inkling-storage --lib -- models shuttle model::

bench: test-deps build
	python3 scripts/bench.py
