#!/bin/bash
# Two ranks on one GPU: what kolo and NCCL make of it. Tries, with numbers that are checked:
#   staged                       through host memory: must work
#   NCCL_HOSTID                  each rank says that it is another host: NCCL's sockets (2.18 on)
#   NCCL_MULTI_RANK_GPU_ENABLE   NCCL's own way (2.30 on)
# NCCL may refuse the latter two: that is printed, and no failure. Wrong numbers and a try that does
# not end are.
#
#   tests/gpu/two_ranks_one_gpu.sh FOLDER   with kolorun and gpu_allreduce_bench: build/release/bin
#
# Exit code 77, with the reason, where there is no device.
set -euo pipefail

bin="${1:?the folder of kolorun and gpu_allreduce_bench}"
first="${CUDA_VISIBLE_DEVICES:-0}"
export CUDA_VISIBLE_DEVICES="${first%%,*}" FAKEGPU_DEVICES=1 KOLO_NOTICE=0
limit="${KOLO_TEST_SECONDS:-120}"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
failed=false

# run COMMAND...: its output into the log; its exit code into `code`.
run() {
  code=0
  timeout --kill-after=10 "$limit" "$@" > "$log" 2>&1 || code=$?
}

# judge TRY: what its log and its exit code say.
judge() {
  case "$code" in
    0)
      echo "$1: works"
      sed -n "s/^# \(kolo's road\|NOT RUN\)/   \1/p" "$log"
      return 0
      ;;
    3) echo "$1: FAILED: wrong numbers" ;;
    124 | 137) echo "$1: FAILED: not done after $limit s" ;;
    *)
      echo "$1: refused (code $code)"
      sed 's/^/   /' "$log" | grep -i "error\|NOT RUN\|kolorun" | head -n 5 || true
      return 1
      ;;
  esac
  sed 's/^/   /' "$log"
  failed=true
}

ranks=("$bin/kolorun" --label=none -np 2)
sums=("$bin/gpu_allreduce_bench" --smoke)

run env KOLO_CUDA=staged "${ranks[@]}" "${sums[@]}" --no-peer
if [ "$code" = 77 ]; then
  echo "SKIPPED: $(grep -h -m 1 -o "no GPU.*" "$log" || echo "no GPU")"
  exit 77
fi
judge "staged" || failed=true

loopback=(NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0)
# shellcheck disable=SC2016  # each rank's own shell reads its rank
run env "${loopback[@]}" "${ranks[@]}" sh -c 'NCCL_HOSTID="rank$KOLO_RANK" exec "$@"' sh \
  "${sums[@]}"
judge "NCCL_HOSTID" || true

run env NCCL_MULTI_RANK_GPU_ENABLE=1 "${ranks[@]}" "${sums[@]}"
judge "NCCL_MULTI_RANK_GPU_ENABLE" || true
! $failed
