#!/bin/bash
# kolo's all-reduce beside Gloo's ring and MPICH over TCP, on this machine: times and latencies for
# 2 and 4 ranks, and what idle ranks cost. Installs the peers, builds release, measures.
# Further arguments go to every table:  scripts/bench.sh --rounds 3 --json results.jsonl
set -euo pipefail
. "$(dirname "$0")/lib.sh"

scripts/setup.sh build bench
configure release
# Anew each time: it looks for the peers, which may have been installed just now.
log=build/bench.configure.log
cmake -S . -B build/release -DKOLO_BUILD_BENCH=ON > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
grep "bench:" "$log" || true
say "building the benchmark and its workers"
cmake --build --preset release --target allreduce_peers
for ranks in 2 4; do
  say "$ranks ranks"
  build/release/bin/allreduce_peers -n "$ranks" "$@"
  build/release/bin/allreduce_peers -n "$ranks" --latency "$@"
done
say "idle"
build/release/bin/allreduce_peers -n 4 --idle "$@"
