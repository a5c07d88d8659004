#!/usr/bin/env bash
# Asks a served binary everything its description allows, and much that it does not: no server error, and no answer that
# is not described. REDRIVE_SCHEMATHESIS_ROLES says as whom, one after the other: `local` is everybody on an open loopback
# server (the default), `nobody` has no token where one is needed, and every other word is the scope of a token.
# REDRIVE_SCHEMATHESIS_SECS says for how long each (default 120); its settings are in schemathesis.toml. The questions are
# the same each time, so that what fails fails again; REDRIVE_SCHEMATHESIS_SEED asks others, and `new` others each time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=${CARGO_TARGET_DIR:-target}
tools=$target/schemathesis
seed=${REDRIVE_SCHEMATHESIS_SEED:-1}
if [ "$seed" = new ]; then seed=$RANDOM$RANDOM; fi
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

folder=
server=
stop() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
  if [ -n "$folder" ]; then rm -rf "$folder"; fi
  folder='' server=''
}
trap stop EXIT

# Starts a server in a folder of its own, with what else is given, and finds out its URL.
start() {
  folder=$(mktemp -d)
  # With nothing of this environment: a server refuses variables of the form REDRIVE_… that it does not know.
  env -i "$redrive" serve --listen 127.0.0.1:0 --store "sqlite:$folder/jobs.db" --log-format json \
    --log warn,redrive=info "$@" 2>"$folder/log" &
  server=$!
  url=
  for _ in $(seq 100); do
    url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$folder/log" | head -n 1 || true)
    [ -n "$url" ] && break
    kill -0 "$server" || { cat "$folder/log" >&2; exit 1; }
    sleep 0.1
  done
}

for role in ${REDRIVE_SCHEMATHESIS_ROLES:-local}; do
  echo "as $role"
  options=()
  config=schemathesis.toml
  if [ "$role" = local ]; then
    start
  else
    secrets=$(mktemp -d)
    start --token-file "$secrets/admin"
    admin=$(cat "$secrets/admin")
    # The description is read by somebody who may; what is in it is asked as whoever it is about.
    if [ "$role" = nobody ]; then
      # Who has no token is not told which methods there are.
      options=(--exclude-checks unsupported_method)
    else
      token=$(env -i "$redrive" tokens create "$role" --scope "$role" --server "$url" --token-file "$secrets/admin")
      options=(-H "Authorization: Bearer $token")
    fi
    rm -rf "$secrets"
    curl -fsS "$url/openapi.json" -H "Authorization: Bearer $admin" -o "$folder/openapi.json"
    # Who may not is told so, however well they ask, and who asks too often to be let in, too.
    config=$folder/schemathesis.toml
    sed -e 's/^  "404",$/  "401", "403", "404", "429",/' -e 's/\["200", "400"/["200", "400", "401", "403"/' schemathesis.toml >"$config"
  fi
  description=$url/openapi.json
  if [ -f "$folder/openapi.json" ]; then description=$folder/openapi.json; fi
  # --config-file comes before the command. The description is the served one.
  if ! "$tools/bin/schemathesis" --config-file "$config" run "$description" --url "$url" "${options[@]}" \
    --seed "$seed" --max-time "${REDRIVE_SCHEMATHESIS_SECS:-120}"; then
    echo "hint: each failure above ends with a curl command that repeats it" >&2
    exit 1
  fi
  if grep -E '"level":"ERROR"|Panic' "$folder/log"; then
    echo "error: the server has logged errors meanwhile" >&2
    exit 1
  fi
  stop
done
