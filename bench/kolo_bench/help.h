// The text of kolo-bench --help.
#pragma once

#include <string_view>

namespace kolo::bench {

inline constexpr std::string_view kHelp =
    R"(kolo-bench: how long kolo's collectives take, with nccl-tests' options and columns.

  kolorun -np 2 kolo-bench allreduce -b 8 -e 64M -f 2 -n 20 -d float32 -o sum
  kolorun -np 2 kolo-bench allreduce --latency -b 8 -e 4K
  kolorun -np 2 kolo-bench --gradients resnet50
  kolo-bench --peer mpich -np 2 allreduce -b 8 -e 64M -f 8

Collectives: allreduce (default), reduce_scatter, allgather, alltoall, broadcast, barrier.

Sizes, in bytes of the larger of a rank's input and output; K, M and G are powers of 1024
  -b, --minbytes SIZE       smallest (8)
  -e, --maxbytes SIZE       largest (64M; with --latency 64K)
  -f, --stepfactor N        from one size to the next (2)
  -i, --stepbytes SIZE      instead of a factor
What is done
  -d, --datatype TYPE       int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 (half)
                            float32 (float) float64 (double) bfloat16 float8_e4m3 float8_e5m2 bool,
                            short as f32, or all (float32)
  -o, --op OP               sum prod max min avg, or all (sum)
  -r, --root RANK           of a broadcast (0)
How it is measured
  -n, --iters N             timed calls of a size (20; --latency 2000; --gradients 10)
  -w, --warmup_iters N      calls before them (5; 100; 3)
  -c, --check N             calls after them whose results are compared with a reference; #wrong is
                            the number of wrong elements on all ranks (1; 0: no check)
      --refill              inputs are written anew before each call, which is then timed alone,
                            after a barrier; else calls are back to back on the same memory
      --memory malloc|kolo  ordinary memory, or kolo_alloc's (malloc)
Other measurements
      --latency             each blocking call, in place (alltoall: apart), is timed alone:
                            percentiles
      --gradients SET       training steps: all-reduce of all tensors of resnet50, bert, tiny or a
                            file of lines "COUNT" or "NAME COUNT", in place, submitted by name
                            without waiting, then waited for
      --shuffle 0|1         1: each rank submits in a random order of its own, another one in each
                            step (default); 0: in the order of a backward pass
      --persistent          operations are prepared once; a step is one kolo_start
      --seed N              of the random orders (a new one each time; it is printed)
Output
      --json FILE           also append one JSON object for each row
      --counters            what kolo counts (copied bytes, wake-ups, ...) per operation, on rank 0
Beside MPICH (not under kolorun: this starts the jobs, kolo and MPICH in turn)
      --peer mpich          same sizes, same measurement; medians of the rounds, and kolo/peer
      -np, --ranks N        of each job (2)
      --rounds N            jobs of each side (5)
      --mpich-tcp           MPICH over loopback TCP instead of its default, shared memory
  -h, --help                this text

Times. Ranks meet in a barrier, then each takes the mean of its N calls; the slowest rank counts.
--latency: each rank's percentile, the worst rank counts. --gradients: after a barrier, the slowest
rank's time for each step; median and 90th percentile of the steps. Both sides of --peer are
measured so, by the same code, and the figure of a size is the median of the rounds. MPICH's step is
a loop of blocking MPI_Allreduce calls in one agreed order, and its memory is always malloc's; after
a reduce_scatter in place it copies its result to where the others leave it.
algbw is size/time in GB/s (10^9); busbw is algbw times 2(n-1)/n for allreduce, (n-1)/n for
reduce_scatter, allgather and alltoall, and 1 for broadcast. In place, a reduction of floats may
reach infinity after many calls; that takes no other time. An alltoall is not done in place.

Exit code: 0; 1 if a result was wrong or something failed; 2 for wrong arguments.
)";

}  // namespace kolo::bench
