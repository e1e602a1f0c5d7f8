#include "ops/reduction_order.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/check.h"
#include "ops/host_map.h"

namespace kolo::internal {
namespace {

using Step = ReductionOrder::Step;
using Kind = ReductionOrder::Step::Kind;

// Emits T over things [first, first + count); `emit_thing(i)` emits one of them.
template <typename EmitThing>
void emit_tree(std::size_t first, std::size_t count, const EmitThing& emit_thing,
               std::vector<Step>& steps) {
  if (count == 1) return emit_thing(first);
  const std::size_t left = std::bit_floor(count - 1);
  emit_tree(first, left, emit_thing, steps);
  emit_tree(first + left, count - left, emit_thing, steps);
  steps.push_back({.kind = Kind::kCombine});
}

bool is_push(Kind kind) {
  return kind == Kind::kLeaf || kind == Kind::kPair || kind == Kind::kQuad;
}

}  // namespace

ReductionOrder::ReductionOrder(std::span<const int> host_index)
    : size_(static_cast<int>(host_index.size())) {
  const HostMap map(host_index);
  emit_tree(
      0, static_cast<std::size_t>(map.hosts()),
      [&](std::size_t host) {
        const std::span<const int> ranks = map.ranks(static_cast<int>(host));
        const auto leaf = [&](std::size_t i) {
          plain_.push_back({.kind = Kind::kLeaf, .a = ranks[i]});
        };
        emit_tree(0, ranks.size(), leaf, plain_);
      },
      plain_);
  fuse();
}

ReductionOrder ReductionOrder::single_host(int size) {
  return ReductionOrder(std::vector<int>(static_cast<std::size_t>(size), 0));
}

void ReductionOrder::fuse() {
  // When the step before a combine is a push, that push is the combine's whole right operand; when
  // the one before that is a push too, it is the whole left operand.
  for (const Step& step : plain_) {
    const std::size_t n = fused_.size();
    if (step.kind == Kind::kLeaf) {
      fused_.push_back(step);
      continue;
    }
    const Step right = fused_[n - 1];
    const Step left = fused_[n - 2];
    if (left.kind == Kind::kLeaf && right.kind == Kind::kLeaf) {
      fused_.resize(n - 2);
      fused_.push_back({.kind = Kind::kPair, .a = left.a, .b = right.a});
    } else if (left.kind == Kind::kPair && right.kind == Kind::kPair) {
      fused_.resize(n - 2);
      fused_.push_back({.kind = Kind::kQuad, .a = left.a, .b = left.b, .c = right.a, .d = right.b});
    } else if (right.kind == Kind::kLeaf) {
      fused_.back() = {.kind = Kind::kCombineLeaf, .a = right.a};
    } else {
      fused_.push_back(step);
    }
  }
  int depth = 0;
  for (const Step& step : fused_) {
    if (is_push(step.kind)) ++depth;
    if (step.kind == Kind::kCombine) --depth;
    stack_depth_ = std::max(stack_depth_, depth);
  }
  KOLO_CHECK(depth == 1);
}

}  // namespace kolo::internal
