#!/usr/bin/env bash
# Builds the release binary, runs the quickstart, then a short benchmark on a SQLite file that is removed again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo build --release --locked -p redrive-server
cargo build --release --locked -p redrive --example quickstart
printf '\n== the quickstart example (crates/redrive/examples/quickstart.rs)\n'
cargo run --release --locked -q -p redrive --example quickstart
printf '\n== redrive bench, a short run\n'
scripts/bench.sh --jobs 20000
