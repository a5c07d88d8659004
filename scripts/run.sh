#!/usr/bin/env bash
# Builds the binary and serves on loopback with a SQLite file. Arguments go to `redrive serve`, for example --demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

listen="${REDRIVE_LISTEN:-127.0.0.1:7373}"
scripts/setup.sh build
cargo build --release --locked -p redrive-server
cat <<TEXT

== redrive serve: http://$listen, jobs in redrive.db (Ctrl-C stops it)

  curl -s http://$listen/api/v1/jobs -H 'content-type: application/json' \\
    -d '{"kind":"http","payload":{"method":"GET","url":"https://example.com/"},"policy":"media"}'
  curl -s http://$listen/api/v1/retry/pending

TEXT
exec "${CARGO_TARGET_DIR:-target}/release/redrive" serve "$@"
