#!/usr/bin/env bash
# cargo nextest run, or cargo test where nextest is not installed. The arguments are those both understand.
# All tests share one throw-away PostgreSQL, unless REDRIVE_TEST_POSTGRES already names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${REDRIVE_TEST_POSTGRES:-}" ]; then
  # Runs this script again with the variable set, and stops the server whatever becomes of it.
  cargo build -q --locked -p redrive-testbed --no-default-features --bin cluster
  exec "${CARGO_TARGET_DIR:-target}/debug/cluster" run scripts/nextest.sh "$@"
fi
# Half as many again as there are processors: many tests wait for a time or for a disk.
export NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$(($(nproc) * 3 / 2))}
if cargo nextest --version >/dev/null 2>&1; then
  exec cargo nextest run "$@"
fi
echo "note: cargo-nextest is not installed; using cargo test (to install it: cargo install cargo-nextest --locked)" >&2
# Doctests have their own step in scripts/test.sh. A chosen test target excludes the others by itself.
case " $* " in
  *" --test "*) exec cargo test "$@" ;;
  *) exec cargo test --lib --bins --tests "$@" ;;
esac
