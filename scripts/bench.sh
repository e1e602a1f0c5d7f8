#!/bin/bash
# kolo beside others on this machine. Installs the peers, builds release, measures:
#   - kolo-bench: kolo over its best road beside MPICH's default, sizes and gradients, 2 ranks
#   - allreduce_peers: kolo, Gloo's ring and MPICH over loopback TCP, 2 and 4 ranks; and what idle
#     ranks cost
# Further arguments go to every table:  scripts/bench.sh --rounds 3 --json results.jsonl
set -euo pipefail
. "$(dirname "$0")/lib.sh"

scripts/setup.sh build bench
configure release
# Anew each time: it looks for the peers, which may have been installed just now.
log=build/bench.configure.log
cmake -S . -B build/release -DKOLO_BUILD_BENCH=ON > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
grep "bench:" "$log" || true
say "building the benchmarks"
cmake --build --preset release --target bench_programs
bin=build/release/bin
if [ -x "$bin/kolo-bench-peer-mpich" ]; then
  say "kolo-bench, 2 ranks"
  "$bin/kolo-bench" --peer mpich -np 2 allreduce -b 8 -e 64M -f 8 "$@"
  "$bin/kolo-bench" --peer mpich -np 2 allreduce --latency -b 8 -e 4K -f 8 "$@"
  for set in resnet50 tiny; do
    "$bin/kolo-bench" --peer mpich -np 2 --gradients "$set" "$@"
  done
else
  "$bin/kolorun" -np 2 "$bin/kolo-bench" allreduce -b 8 -e 64M -f 8
fi
for ranks in 2 4; do
  say "allreduce_peers, $ranks ranks"
  "$bin/allreduce_peers" -n "$ranks" "$@"
  "$bin/allreduce_peers" -n "$ranks" --latency "$@"
done
say "idle"
"$bin/allreduce_peers" -n 4 --idle "$@"
