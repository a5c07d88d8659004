#!/usr/bin/env bash
# Runs every example of the libraries: an example that fails is a test that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# As the tests are built, which builds these as well: after them there is nothing left to compile.
cargo build -q --locked --profile test --workspace --all-features --examples
shopt -s nullglob
for file in crates/*/examples/*.rs; do
  name=$(basename "$file" .rs)
  echo "-- $name"
  "${CARGO_TARGET_DIR:-target}/debug/examples/$name"
done
