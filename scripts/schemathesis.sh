#!/usr/bin/env bash
# Asks a served binary everything its description allows, and much that it does not: no server error, and no answer that
# is not described. REDRIVE_SCHEMATHESIS_SECS says for how long (default 90); its settings are in schemathesis.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
tools=$target/schemathesis
if [ ! -x "$tools/bin/schemathesis" ]; then
  echo "installing schemathesis, once"
  rm -rf "$tools"
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q 'schemathesis>=4.32,<5'
fi
# A binary that is there already, such as the one the tests have just used, need not be built with other features.
redrive=${REDRIVE_BIN:-}
if [ -z "$redrive" ]; then
  cargo build -q --locked -p redrive-server --bin redrive
  redrive=$target/debug/redrive
fi

folder=$(mktemp -d)
server=
stop() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
  rm -rf "$folder"
}
trap stop EXIT
# With nothing of this environment: a server refuses variables of the form REDRIVE_… that it does not know.
env -i "$redrive" serve --listen 127.0.0.1:0 --store "sqlite:$folder/jobs.db" --log-format json --log warn,redrive=info \
  2>"$folder/log" &
server=$!

url=
for _ in $(seq 100); do
  url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$folder/log" | head -n 1 || true)
  [ -n "$url" ] && break
  kill -0 "$server" || { cat "$folder/log" >&2; exit 1; }
  sleep 0.1
done

# --config-file comes before the command. The description is the served one.
if ! "$tools/bin/schemathesis" --config-file schemathesis.toml run "$url/openapi.json" --url "$url" \
  --max-time "${REDRIVE_SCHEMATHESIS_SECS:-90}"; then
  echo "hint: each failure above ends with a curl command that repeats it" >&2
  exit 1
fi
if grep -E '"level":"ERROR"|Panic' "$folder/log"; then
  echo "error: the server has logged errors meanwhile" >&2
  exit 1
fi
