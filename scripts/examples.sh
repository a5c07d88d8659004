#!/usr/bin/env bash
# Runs every example of the library: an example that fails is a test that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shopt -s nullglob
for file in crates/redrive/examples/*.rs; do
  name=$(basename "$file" .rs)
  echo "-- $name"
  cargo run -q -p redrive --all-features --example "$name"
done
