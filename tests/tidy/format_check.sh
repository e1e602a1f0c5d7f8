#!/bin/bash
# Fails when a C or C++ file differs from what scripts/format.sh would make of it.
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v clang-format > /dev/null; then
  echo "SKIPPED: clang-format is not installed (apt-get install clang-format)"
  exit 77
fi
files="$(git ls-files -co --exclude-standard '*.h' '*.hpp' '*.cc' '*.c' '*.cuh' '*.cu' \
  2> /dev/null || true)"
[ -n "$files" ] || files="$(find . -path ./build -prune -o -name '*.[hc]' -print \
  -o -name '*.cc' -print -o -name '*.hpp' -print -o -name '*.cuh' -print -o -name '*.cu' -print)"
wrong=()
for file in $files; do
  [ -f "$file" ] || continue  # deleted, not yet committed
  clang-format "$file" | cmp -s - "$file" || wrong+=("$file")
done
if [ ${#wrong[@]} -gt 0 ]; then
  printf 'not formatted: %s\n' "${wrong[@]}"
  echo "cure: scripts/format.sh"
  exit 1
fi
echo "format: every file is as clang-format has it"
