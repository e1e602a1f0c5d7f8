#!/bin/bash
# kolo on the GPUs of this machine: its pack and unpack kernels beside the device's own copy; what a
# call costs beside a bare NCCL call; many small tensors; tensors packed or in a group of NCCL's
# calls, by size; two ranks, on two GPUs or on one.
#
#   bench/gpu.sh [--json FILE]     builds release, measures, and says what it could not run and why
#   bench/gpu.sh --fakes           every part with tiny sizes on the fakes of CUDA and NCCL: whether
#                                  the programs work; the figures mean nothing
#   --bin FOLDER                   programs that are built already, e.g. build/release/bin
#
# KOLO_BENCH_SECONDS: limit of each part (300). The exit code is 1 if a part failed, or, without
# --fakes, no part could be run.
set -euo pipefail
. "$(dirname "$0")/../scripts/lib.sh"

usage() {
  sed -n '2,13s/^# \{0,1\}//p' "$root/bench/gpu.sh" >&2
  exit 2
}

bin='' json='' fakes=false
while [ $# -gt 0 ]; do
  case "$1" in
    --fakes) fakes=true ;;
    --bin) bin="${2:?}" && shift ;;
    --json) json="${2:?}" && shift ;;
    *) usage ;;
  esac
  shift
done

if [ -z "$bin" ]; then
  bin=build/release/bin
  configure release
  targets=(gpu_kernels_bench gpu_allreduce_bench)
  if $fakes; then targets+=(kolo_fake_cudart kolo_fake_nccl); fi
  say "building the benchmarks"
  cmake --build --preset release --target "${targets[@]}"
fi
limit="${KOLO_BENCH_SECONDS:-300}"

commit="$(git -C "$root" describe --always --dirty 2> /dev/null || echo unknown)"
cpu="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
machine="${cpu:-unknown processor}, $(nproc) cores"
gpus=0
if $fakes; then
  folder="$(cd "$bin/../tests/fakegpu" && pwd)"
  export KOLO_CUDART_PATH="$folder/libcudart.so.13" KOLO_NCCL_PATH="$folder/libnccl.so.2"
  export FAKEGPU_CENSUS=1 FAKEGPU_DEVICES=2
  machine+="; fakes of CUDA and NCCL"
  gpus=2
elif command -v nvidia-smi > /dev/null; then
  names="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2> /dev/null || true)"
  gpus="$(grep -c . <<< "$names" || true)"
  machine+="; $gpus GPUs: $(sort -u <<< "$names" | paste -sd ';')"
  visible="${CUDA_VISIBLE_DEVICES:-}"
  if [ -n "$visible" ]; then gpus="$(tr ',' '\n' <<< "$visible" | grep -c .)"; fi
fi
first="${CUDA_VISIBLE_DEVICES:-0}"
export KOLO_NOTICE=0

common=(--commit "$commit" --machine "$machine")
if [ -n "$json" ]; then common+=(--json "$json"); fi
if $fakes; then common+=(--smoke); fi
done_parts=0 failed=false notes=()

log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# part TITLE COMMAND...: runs a part. Code 77 is a device or kernels that are not there.
part() {
  local title="$1" code=0 why
  shift
  say "$title"
  timeout --kill-after=10 "$limit" "$@" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
  why="$(grep -m 1 -E '^(no GPU|no kernels|error): ' "$log" || true)"
  case "$code" in
    0) done_parts=$((done_parts + 1)) ;;
    77) notes+=("$title: could not run: $why") ;;
    3) notes+=("$title: FAILED: wrong numbers, see above") && failed=true ;;
    124 | 137) notes+=("$title: FAILED: not done after $limit s") && failed=true ;;
    *) notes+=("$title: FAILED: code $code; $why") && failed=true ;;
  esac
  while read -r why; do
    notes+=("$title: could not run: ${why#\# NOT RUN: }")
  done < <(grep '^# NOT RUN: ' "$log" || true)
}

# try TITLE COMMAND...: the same for what a library may refuse, which is no failure.
try() {
  local before="$failed" at=${#notes[@]}
  failed=false
  part "$@"
  if $failed && ! $fakes && [[ "${notes[at]}" != *"wrong numbers"* ]]; then
    failed=false
    notes[at]="${notes[at]/FAILED/could not run}"
  fi
  if $before; then failed=true; fi
}

skip() { notes+=("$1: could not run: $2"); }

kernels="$bin/gpu_kernels_bench" sums="$bin/gpu_allreduce_bench"
# Two ranks; their devices are their local ranks, modulo how many there are.
pair=("$bin/kolorun" --label=none -np 2)
one_gpu=(env CUDA_VISIBLE_DEVICES="${first%%,*}")
if $fakes; then one_gpu=(env FAKEGPU_DEVICES=1); fi
loopback=(NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0)
# shellcheck disable=SC2016  # each rank's own shell reads its rank
as_hosts=(sh -c 'NCCL_HOSTID="rank$KOLO_RANK" exec "$@"' sh)

part "kernels" "$kernels" "${common[@]}"
part "one rank, calls" "$sums" --title "one rank" "${common[@]}"
part "one rank, small tensors" "$sums" --part tiny --title "one rank" "${common[@]}"
part "one rank, packed or grouped" "$sums" --part packing --title "one rank" "${common[@]}"

if [ "$gpus" -ge 2 ]; then
  part "two GPUs, calls" "${pair[@]}" "$sums" --title "two GPUs" "${common[@]}"
  part "two GPUs, small tensors" "${pair[@]}" "$sums" --part tiny --title "two GPUs" "${common[@]}"
  part "two GPUs, packed or grouped" "${pair[@]}" "$sums" --part packing --title "two GPUs" \
    "${common[@]}"
  if [ "$gpus" -gt 2 ]; then
    part "$gpus GPUs, calls" "$bin/kolorun" --label=none -np "$gpus" \
      "$sums" --title "$gpus GPUs" "${common[@]}"
  fi
else
  skip "two GPUs" "there are $gpus here, so no busbw between GPUs"
fi

if [ "$gpus" -ge 1 ]; then
  for kind in sweep tiny packing; do
    title="two ranks on one GPU as two hosts (NCCL_HOSTID), $kind"
    try "$title" "${one_gpu[@]}" "${loopback[@]}" "${pair[@]}" "${as_hosts[@]}" \
      "$sums" --part "$kind" --title "one GPU, NCCL_HOSTID" "${common[@]}"
    if [ "$kind" = packing ]; then continue; fi
    title="two ranks on one GPU staged, $kind"
    part "$title" "${one_gpu[@]}" KOLO_CUDA=staged "${pair[@]}" \
      "$sums" --part "$kind" --no-peer --title "one GPU, staged" "${common[@]}"
  done
  if $fakes; then
    skip "two ranks on one GPU by NCCL_MULTI_RANK_GPU_ENABLE" "the fake refuses it"
  else
    try "two ranks on one GPU by NCCL_MULTI_RANK_GPU_ENABLE (2.30)" "${one_gpu[@]}" \
      NCCL_MULTI_RANK_GPU_ENABLE=1 "${pair[@]}" \
      "$sums" --part tiny --title "one GPU, NCCL_MULTI_RANK_GPU_ENABLE" "${common[@]}"
  fi
else
  skip "two ranks on one GPU" "there is no GPU (nvidia-smi shows none)"
fi

say "$done_parts parts done"
for note in "${notes[@]}"; do echo "   $note"; done
if $fakes; then echo "   On the fakes: none of the figures means anything."; fi
! $failed && [ "$done_parts" -gt 0 ]
