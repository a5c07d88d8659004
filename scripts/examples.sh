#!/usr/bin/env bash
# Runs every example of the libraries: an example that fails is a test that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

shopt -s nullglob
for file in crates/*/examples/*.rs; do
  name=$(basename "$file" .rs)
  package=$(basename "$(dirname "$(dirname "$file")")")
  echo "-- $name"
  cargo run -q -p "$package" --all-features --example "$name"
done
