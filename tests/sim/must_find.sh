#!/bin/sh
# Runs a simulator whose coordinator has a planted fault: it must stop with exit code 1 and name one
# of the given invariants within 10,000 seeds.
# usage: must_find.sh PATH-OF-SIMULATOR 'INVARIANT|INVARIANT...'
output=$("$1" --seeds 1..10000)
code=$?
found=$(printf '%s\n' "$output" | grep -E "^invariant ($2) violated at seed [0-9]+:")
if [ "$code" -ne 1 ] || [ -z "$found" ]; then
  printf '%s\n' "$output" | tail -n 20
  echo "the planted fault was not found as expected: exit code $code, wanted one of $2" >&2
  exit 1
fi
printf '%s\n' "$found"
