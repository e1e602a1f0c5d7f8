#include "ops/fused_broadcast.h"

#include <algorithm>
#include <new>

#include "ops/collectives.h"

namespace kolo::internal {

void FusedBroadcast::start(Collectives& collectives, std::uint32_t sequence, int root,
                           std::span<const BroadcastPiece> pieces) {
  begin(collectives, sequence);
  root_ = root;
  stage_ = Stage::kPack;
  in_place_ = std::all_of(pieces.begin(), pieces.end(),
                          [](const BroadcastPiece& piece) { return piece.input == piece.output; });
  try {
    pieces_.clear();
    for (const BroadcastPiece& piece : pieces) {
      pieces_.push_back({.input = piece.input, .output = piece.output, .count = piece.bytes});
    }
    group_.start(pieces_, {DataType::kUint8, ReduceOp::kSum}, alone_, TensorGroup::Layout::kWhole);
  } catch (const std::bad_alloc&) {
    fail(
        resource_error("no memory to pack the tensors of a broadcast; free some, or lower the "
                       "fusion threshold"));
  }
}

void FusedBroadcast::step() {
  const bool root = collectives().rank() == root_;
  switch (stage_) {
    case Stage::kPack:
      if (root && !group_.pack_some()) return;
      stage_ = Stage::kUnpack;
      run(collectives().start_broadcast(
          sequence(), root_, BroadcastPiece{group_.input(0), group_.output(0), group_.elements()}));
      return;
    case Stage::kUnpack:
      if ((root && in_place_) || group_.unpack_some()) complete();
      return;
  }
}

}  // namespace kolo::internal
