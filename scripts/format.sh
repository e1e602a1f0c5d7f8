#!/bin/bash
# Formats every C and C++ file of the tree in place.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
git ls-files -z '*.h' '*.hpp' '*.cc' '*.c' '*.cuh' '*.cu' | xargs -0 clang-format -i
