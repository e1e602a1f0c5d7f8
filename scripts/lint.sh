#!/bin/bash
# clang-tidy over the library's sources (a few minutes; not part of scripts/test.sh).
#   scripts/lint.sh [FILE.cc ...]
set -euo pipefail
. "$(dirname "$0")/lib.sh"

command -v clang-tidy > /dev/null || { echo "lint: apt-get install clang-tidy" >&2 && exit 1; }
configure dev
cmake --build --preset dev --target kolo_transport kolo_coordinator > /dev/null  # generated headers
files=("$@")
[ ${#files[@]} -gt 0 ] || mapfile -t files < <(
  git ls-files 'base/*.cc' 'transport/*.cc' 'ops/*.cc' 'coordinator/*.cc' 'core/*.cc' \
    'bindings_c/*.cc' 'launcher/*.cc')
printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(nproc)" -n 4 clang-tidy --quiet -p build/dev
