#!/usr/bin/env bash
# Sees to it that what the build needs is there: installs what it may, names what it may not.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

if ! have cargo; then
  echo "error: cargo is not installed" >&2
  echo "hint: install Rust with rustup; rust-toolchain.toml then picks the toolchain" >&2
  exit 1
fi

# The bundled SQLite is C.
if ! have cc && ! have gcc && ! have clang; then
  if [ "$(id -u)" = 0 ] && have apt-get; then
    echo "installing a C compiler with apt-get"
    apt-get update -qq && apt-get install -y -qq gcc libc6-dev
  else
    echo "error: there is no C compiler, and the bundled SQLite needs one" >&2
    echo "hint: install gcc or clang (Debian: apt-get install gcc libc6-dev)" >&2
    exit 1
  fi
fi

# The dashboard is built with npm. Where it is not wanted: cargo build --no-default-features.
if ! have npm && [ "$(id -u)" = 0 ] && have apt-get; then
  echo "installing Node.js with apt-get"
  apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm
fi
is_recent='const [major, minor] = process.versions.node.split("."); process.exit(major * 100 + +minor >= 2019 ? 0 : 1)'
if ! have npm || ! node -e "$is_recent"; then
  echo "error: the dashboard is built with Node.js 20.19 or later and npm, and they are not here" >&2
  echo "hint: install them, or build without the dashboard: cargo build --no-default-features -p redrive-server" >&2
  exit 1
fi

# To build and to serve, that is all.
if [ "${1:-}" = build ]; then exit 0; fi

# The tests run against a real PostgreSQL, through a real PgBouncer, and with processes whose clock is wrong.
packages=()
have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql-15)
have pgbouncer || [ -x /usr/sbin/pgbouncer ] || packages+=(pgbouncer)
have faketime || packages+=(faketime)
# The adapter for diesel links against PostgreSQL's own client library.
have pg_config || compgen -G '/usr/include/postgresql/libpq-fe.h' >/dev/null || packages+=(libpq-dev)
# The workers of the guides run in their own languages, and what asks the API everything is a Python program.
have php || packages+=(php-cli)
have node || packages+=(nodejs)
have npm || packages+=(npm)
have curl || packages+=(curl)
# The dashboard is looked at in a real browser.
have chromium || [ -n "${CHROMIUM:-}" ] || packages+=(chromium)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && have apt-get; then
    echo "installing ${packages[*]} with apt-get"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    if [ "${packages[0]}" = postgresql-15 ]; then
      # The tests start servers of their own: Debian need not make a first one and keep it running.
      apt-get install -y -qq postgresql-common
      sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
    fi
    apt-get install -y -qq "${packages[@]}"
  else
    echo "error: not installed, and the tests need it: ${packages[*]}" >&2
    echo "hint: apt-get install ${packages[*]} on Debian; elsewhere PostgreSQL 15 with its client library, PgBouncer, libfaketime, PHP, Node.js, Chromium and Python" >&2
    exit 1
  fi
fi

for part in fmt clippy; do
  if ! cargo "$part" --version >/dev/null 2>&1; then
    have rustup && rustup component add "${part/fmt/rustfmt}" && continue
    echo "error: cargo $part is not installed" >&2
    echo "hint: rustup component add ${part/fmt/rustfmt}" >&2
    exit 1
  fi
done

if ! have cargo-nextest; then
  echo "installing cargo-nextest, once"
  cargo install cargo-nextest --locked ||
    echo "note: cargo-nextest could not be installed; the tests run under cargo test, more slowly" >&2
fi
