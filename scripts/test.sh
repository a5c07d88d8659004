#!/usr/bin/env bash
# Everything that must hold before a change lands, the quick things first. CI runs this and nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Everything is compiled once from nothing: what would make a second time quicker makes the first one slower.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

step() { printf '\n== %s\n' "$1"; }

step "set-up"
scripts/setup.sh
step "dashboard"
scripts/dashboard.sh
step "format, clippy, tidy"
scripts/check.sh
step "tests"
scripts/nextest.sh --workspace --all-features
# The binary that the tests have just used, for what comes now.
target=${CARGO_TARGET_DIR:-target}
export REDRIVE_BIN=$(cd "$target" && pwd)/debug/redrive
step "dashboard in a browser"
scripts/dashboard.sh e2e
step "everything that could be asked of the API"
scripts/schemathesis.sh
unset REDRIVE_BIN
step "doctests"
cargo test --doc --workspace --all-features
step "examples"
scripts/examples.sh
step "dependencies"
if cargo deny --version >/dev/null 2>&1; then
  cargo deny --all-features check bans licenses sources
else
  echo "note: cargo-deny is not installed; bans, licences and sources were not checked (cargo install cargo-deny --locked)"
fi
step "all is well"
