#!/usr/bin/env bash
# The long form of the fault tests. The same tests run in `make test` with small counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What runs for hours is compiled for it.
export CARGO_PROFILE_TEST_OPT_LEVEL=${CARGO_PROFILE_TEST_OPT_LEVEL:-2}
export REDRIVE_SIM_SEEDS=${REDRIVE_SIM_SEEDS:-100000}
export REDRIVE_PLANTED=${REDRIVE_PLANTED:-all}
export REDRIVE_KILLS=${REDRIVE_KILLS:-10000}
export REDRIVE_CUTS=${REDRIVE_CUTS:-1000000}
# On PostgreSQL. A snapshot is held for ten minutes at full load.
export REDRIVE_SESSIONS_ENDED=${REDRIVE_SESSIONS_ENDED:-10000}
export REDRIVE_CONNECTIONS_CUT=${REDRIVE_CONNECTIONS_CUT:-10000}
export REDRIVE_POSTMASTER_KILLS=${REDRIVE_POSTMASTER_KILLS:-100}
export REDRIVE_FAILOVERS=${REDRIVE_FAILOVERS:-100}
export REDRIVE_POOLER_KILLS=${REDRIVE_POOLER_KILLS:-500}
export REDRIVE_GRAPH_KILLS=${REDRIVE_GRAPH_KILLS:-1000}
export REDRIVE_PINNED_SECS=${REDRIVE_PINNED_SECS:-600}
# On a served process with workers elsewhere.
export REDRIVE_SERVER_KILLS=${REDRIVE_SERVER_KILLS:-1000}
export REDRIVE_SCHEMATHESIS_ROLES=${REDRIVE_SCHEMATHESIS_ROLES:-local nobody read read:payload enqueue work work:default operate admin}
export REDRIVE_SCHEMATHESIS_SEED=${REDRIVE_SCHEMATHESIS_SEED:-new}
export REDRIVE_SCHEMATHESIS_SECS=${REDRIVE_SCHEMATHESIS_SECS:-600}
# Files of up to 50 MB from a server that cuts, refuses and stalls, with as many kills on the way.
export REDRIVE_TEST_GET_FILES=${REDRIVE_TEST_GET_FILES:-100}
export REDRIVE_TEST_GET_MB=${REDRIVE_TEST_GET_MB:-50}
export REDRIVE_TEST_GET_KILLS=${REDRIVE_TEST_GET_KILLS:-10}

scripts/nextest.sh -p redrive --all-features --test sim --test crash
scripts/nextest.sh -p redrive-faults --all-features
# One after the other: what is killed, measured or waited for here shares the machine with nothing else.
scripts/nextest.sh -p redrive --all-features --test postgres_faults -j 1
scripts/nextest.sh -p redrive-server --test workers -j 1
scripts/schemathesis.sh
# The dashboard on PostgreSQL with two servers; a list over a million jobs, and 500 events a second with the overview open.
scripts/dashboard.sh e2e-postgres
scripts/dashboard.sh soak
scripts/nextest.sh -p redrive-server --test s1_download -j 1
# Recoveries as large as docs/concepts/destinations.md has them.
REDRIVE_SIMULATE=full scripts/nextest.sh -p redrive-server --lib simulate -j 1
REDRIVE_DESTINATIONS=10000 scripts/nextest.sh -p redrive --all-features --test stores none_of_many -j 1
REDRIVE_OUTAGE=full scripts/nextest.sh -p redrive-server --test api outage fleet -j 1
