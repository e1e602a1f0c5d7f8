#!/bin/bash
# Every test of kolo, with all set-up. This is also what continuous integration runs.
#
#   scripts/test.sh            release build and all tests; then the unit, sim and conformance tests
#                              under asan+ubsan and tsan; then each fuzz target for a minute
#   scripts/test.sh --quick    the release build and its tests only
#   scripts/test.sh --long     the same stages with full repetition counts (KOLO_TEST_LONG=1), and
#                              10^7 executions of each fuzz target: hours
#
# Tests on GPUs are part of the release stage where the machine has one.
# KOLO_TEST_FUZZ_SECONDS: time for each fuzz target (default 60); KOLO_TEST_FUZZ_RUNS: executions.
# Results of every stage as JUnit: build/<preset>/junit-*.xml.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

quick=false
for argument in "$@"; do
  case "$argument" in
    --quick) quick=true ;;
    --long) export KOLO_TEST_LONG=1 KOLO_TEST_FUZZ_RUNS="${KOLO_TEST_FUZZ_RUNS:-10000000}" ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
  esac
done
export KOLO_TEST_FUZZ_SECONDS="${KOLO_TEST_FUZZ_SECONDS:-60}"

reports=()
failed=false

# tests PRESET PART CTEST-ARGUMENTS...: runs a part of a preset's tests and notes the report.
tests() {
  local preset="$1" report
  report="$root/build/$1/junit-$2.xml"
  shift 2
  rm -f "$report"
  reports+=("$report")
  stage "$preset: tests $(basename "$report" .xml | cut -d- -f2)" \
    ctest --preset "$preset" --output-junit "$report" "$@" || failed=true
}

# build PRESET: stops everything when it fails, since no later result would mean anything.
build() {
  stage "$1: configure" configure "$1"
  stage "$1: build" cmake --build --preset "$1"
}

# has_gpu: whether NVIDIA's driver shows a device.
has_gpu() {
  [ -e /dev/nvidia0 ] || nvidia-smi --list-gpus 2> /dev/null | grep -q '^GPU '
}

scripts/setup.sh build test

build release
# Timed and many-process tests run alone; the others share the cores.
alone='^(multiproc|multihost|chaos|bench)$'
tests release shared --label-exclude "$alone|^gpu\$" --parallel "$(nproc)"
tests release alone --label-regex "$alone"
skipped=()
if has_gpu; then
  tests release gpu --label-regex '^gpu$'
else
  say "gpu tests: skipped, no device"
  skipped+=(--skipped "gpu tests: no device")
fi

if ! $quick; then
  for preset in asan tsan; do
    build "$preset"
    tests "$preset" all --parallel "$(nproc)"
  done
  build fuzz
  tests fuzz all --parallel "$(nproc)"
  stage "fuzz: summary" python3 tests/fuzz/fuzz.py table build/fuzz/tests/fuzz/found || failed=true
fi

say "all stages after $SECONDS s"
python3 scripts/summary.py "${skipped[@]}" "${reports[@]}" || failed=true
! $failed
