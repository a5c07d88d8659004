#!/usr/bin/env bash
# Format, lints and shape: what can be known without running the engine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo fmt --all --check
# --locked: a Cargo.lock that lags behind a Cargo.toml is a failure here.
cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
# The whole workspace, so that nothing is compiled a second time with other features.
# It reads files and nothing else: no server is started for it.
REDRIVE_TEST_POSTGRES=none scripts/nextest.sh --workspace --all-features --test tidy
