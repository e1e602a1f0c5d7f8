// One call of a collective, a send or a receive, as it waits for its launch and runs in a stream.
// A plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fakegpu/faults.h"
#include "tests/fakegpu/nccl/meeting.h"
#include "tests/fakegpu/stream.h"

namespace fakegpu {

enum class OperationKind {
  kAllReduce,
  kReduce,
  kBroadcast,
  kReduceScatter,
  kAllGather,
  kSend,
  kRecv
};

// The factor of a PreMulSum; none for other reductions.
struct Factor {
  bool is_used = false;
  const void* on_device = nullptr;  // read while the collective runs
  std::byte bytes[8] = {};          // else this
};

struct Operation {
  OperationKind kind = OperationKind::kAllReduce;
  const char* function = "";
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  int dtype = 0;
  int op = 0;
  int root = 0;  // of sends and receives: the peer
  Factor factor{};
  StreamPointer stream{};
  Fault fault{};
  std::int64_t input_offset = -1;  // as OperationShape's
  std::int64_t output_offset = -1;

  bool is_between_two() const {
    return kind == OperationKind::kSend || kind == OperationKind::kRecv;
  }
  // PreMulSum has a number of its own on each rank, and counts as one operation.
  OperationShape shape() const {
    // What only some ranks use is not compared, nor where a block in place lies.
    const auto place = [](std::int64_t offset, bool all_use, bool is_block) -> std::int64_t {
      if (!all_use || offset < 0) return -1;
      return is_block ? 0 : offset;
    };
    return {
        static_cast<int>(kind),
        dtype,
        factor.is_used ? -1 : op,
        root,
        count,
        place(input_offset, kind != OperationKind::kBroadcast, kind == OperationKind::kAllGather),
        place(output_offset, kind != OperationKind::kReduce,
              kind == OperationKind::kReduceScatter)};
  }
};

}  // namespace fakegpu
