# One target, one line of help. What needs more than two lines is a script in scripts/.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test check fmt schema docs dashboard e2e screenshots sim soak bench bench-peers ci

SEEDS ?= 500
SEED ?=
STORE ?=
DEMO ?=
JOBS ?=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build and serve dashboard and API on http://127.0.0.1:7373 with a SQLite file; DEMO=1 adds flaky destinations and a trickle of jobs
	@scripts/run.sh $(if $(DEMO),--demo)

test: ## Everything CI runs, after installing what is missing
	@scripts/test.sh

check: ## The quick part of `make test`: format, clippy, tidy
	@scripts/check.sh

fmt: ## Format all Rust code
	@cargo fmt --all

schema: ## Write the dumps of the schemas that the migrations make
	@REDRIVE_WRITE_SCHEMA=1 scripts/nextest.sh -p redrive --all-features --test schema

docs: ## Write what is made from the code: reference pages, the OpenAPI description, the table of permissions
	@REDRIVE_WRITE_DOCS=1 REDRIVE_WRITE_OPENAPI=1 REDRIVE_WRITE_PERMISSIONS=1 REDRIVE_TEST_POSTGRES=none \
		scripts/nextest.sh -p redrive-server --test config --test cli --test openapi --test permissions

dashboard: ## Types, lints and tests of the dashboard, without a browser
	@scripts/dashboard.sh

e2e: ## The dashboard in Chromium against a served binary
	@scripts/dashboard.sh e2e

screenshots: ## Take the pictures of docs/images anew
	@scripts/dashboard.sh screenshots

sim: ## Simulated worlds: SEEDS=500 of them, or SEED=7 to replay one
	@CARGO_PROFILE_TEST_OPT_LEVEL=2 REDRIVE_SIM_SEEDS=$(SEEDS) $(if $(SEED),REDRIVE_SIM_SEED=$(SEED)) REDRIVE_TEST_POSTGRES=none scripts/nextest.sh -p redrive --all-features --test sim

soak: ## The night's work: 100,000 worlds, every planted bug, 10,000 kills, 1,000,000 power cuts, PostgreSQL in ruins
	@scripts/soak.sh

bench: ## Measure against the hand-written limit: STORE=sqlite:PATH, JOBS=N
	@scripts/bench.sh $(if $(STORE),--store $(STORE)) $(if $(JOBS),--jobs $(JOBS))

bench-peers: ## Measure against other queues: embedded ones on SQLite, then those on PostgreSQL
	@cargo build --release --locked -p redrive-server
	@bench/peers/run
	@bench/peers/postgres/run

ci: test ## The same as `make test`; .ci/run calls that
