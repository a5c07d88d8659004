#!/usr/bin/env bash
# The dashboard: without a word its types, lints and component tests; with `e2e`, `e2e-postgres`,
# `screenshots` or `soak` that part of it, in Chromium against the binary that is built here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# npm writes this file last, so it tells whether the packages are those of the lock file.
if ! [ dashboard/node_modules/.package-lock.json -nt dashboard/package-lock.json ]; then
  (cd dashboard && npm install --no-save --ignore-scripts --no-audit --no-fund)
fi

case "${1:-check}" in
  check) cd dashboard && npm run --silent check && npm run --silent test ;;
  e2e)
    [ -n "${REDRIVE_BIN:-}" ] || cargo build -q --locked -p redrive-server -p redrive-examples --bins
    cd dashboard && npm run --silent e2e
    ;;
  e2e-postgres)
    cargo build -q --locked -p redrive-server -p redrive-examples --bins
    cargo build -q --locked -p redrive-testbed --no-default-features --bin cluster
    cd dashboard && exec "${CARGO_TARGET_DIR:-$PWD/../target}/debug/cluster" run npm run --silent e2e
    ;;
  screenshots | soak)
    cargo build -q --release --locked -p redrive-server --bin redrive
    export REDRIVE_BIN=${CARGO_TARGET_DIR:-$PWD/target}/release/redrive
    cd dashboard && npm run --silent "$1"
    ;;
  *)
    echo "error: there is no part $1 of the dashboard; write e2e, e2e-postgres, screenshots or soak" >&2
    exit 2
    ;;
esac
