#!/bin/bash
# Line coverage of kolo by its tests, by folder; and which functions of kolo.h they reach.
#
#   scripts/coverage.sh            builds build/coverage, runs the unit, sim and conformance tests,
#                                  the situations and small doses of random programs, and reports
#   scripts/coverage.sh --report   only reports what the runs so far have counted
#
# Fails if a test fails, if fewer than 90 % of the lines of bindings_c, coordinator or ops are
# reached (KOLO_COVERAGE_PERCENT), or if a function of kolo.h is not.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case "${1-}" in
  "" | --report) ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac

folder="$root/build/coverage"
failed=false

# Counters are shared by threads, and by the processes of a job.
flags="--coverage -fprofile-update=atomic -O1 -g1"

run_tests() {
  find "$folder" -name '*.gcda' -delete
  # Situations first: a process that is killed while it writes its counters spoils what had been
  # counted before.
  stage "coverage: situations and random programs" ctest --test-dir "$folder" \
    --output-on-failure \
    --tests-regex "^(multiproc_(cases|sets|random|requests)|multihost_random)" ||
    failed=true
  stage "coverage: unit, sim, conformance" ctest --test-dir "$folder" --output-on-failure \
    --label-regex '^(unit|sim|conformance)$' --exclude-regex '^install_test$' \
    --parallel "$(nproc)" || failed=true
}

if [ "${1-}" != --report ]; then
  scripts/setup.sh build test
  stage "coverage: configure" cmake -S "$root" -B "$folder" -G Ninja \
    -DCMAKE_BUILD_TYPE=None -DKOLO_BUILD_EXAMPLES=OFF -DKOLO_PLANT_FAULTS=OFF \
    -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_C_FLAGS="$flags"
  stage "coverage: build" cmake --build "$folder"
  run_tests
fi
python3 scripts/coverage.py --root "$root" --build "$folder" \
  --percent "${KOLO_COVERAGE_PERCENT:-90}" --hold bindings_c coordinator ops || failed=true
! $failed
