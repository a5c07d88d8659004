#!/usr/bin/env bash
# redrive bench from a release build. Without --store it measures on a file in a temporary folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case " $* " in
  *" --store "*) ;;
  *)
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    set -- --store "sqlite:$folder/bench.db" "$@"
    ;;
esac
cargo run --release --locked -q -p redrive-server --bin redrive -- bench "$@"
