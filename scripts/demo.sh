#!/bin/bash
# Four ranks train a digit classifier on this machine. Installs what is missing, builds, runs.
# Further arguments go to the trainer:  scripts/demo.sh --epochs 5
set -euo pipefail
. "$(dirname "$0")/lib.sh"

scripts/setup.sh build
configure release
say "building kolorun and the digits trainer"
cmake --build --preset release --target kolorun digits
say "kolorun -np 4 digits"
exec build/release/bin/kolorun -np 4 build/release/bin/digits "$@"
