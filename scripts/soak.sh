#!/usr/bin/env bash
# The long form of the fault tests. The same tests run in `make test` with small counts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export REDRIVE_SIM_SEEDS=${REDRIVE_SIM_SEEDS:-100000}
export REDRIVE_PLANTED=${REDRIVE_PLANTED:-all}
export REDRIVE_KILLS=${REDRIVE_KILLS:-10000}
export REDRIVE_CUTS=${REDRIVE_CUTS:-1000000}

scripts/nextest.sh -p redrive --all-features --test sim --test crash
scripts/nextest.sh -p redrive-faults --all-features
