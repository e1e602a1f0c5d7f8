#!/bin/sh
# libkolo.so exports exactly the functions that kolo.h declares. Usage: symbols_test.sh LIB HEADER
set -eu
library=$1
header=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Names declared: the word before the first parenthesis of each KOLO_API declaration.
grep '^KOLO_API' "$header" | sed 's/(.*//; s/.*[ *]//' | sort > "$folder/declared"
nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
  sort > "$folder/exported"
# A header that is not understood must not pass as one that declares nothing.
test "$(wc -l < "$folder/declared")" -ge 25
diff "$folder/declared" "$folder/exported" || {
  echo "symbols_test: left: declared in kolo.h, right: exported by $library" >&2
  exit 1
}
