// How much a rank gives and gets in a collective of each kind. Pure.
#pragma once

#include "base/types.h"

namespace kolo::internal {

// Elements of one rank's tensor. `Number` is one that may not fit, or one that is known to.
template <typename Number>
struct Extents {
  Number input{};
  Number output{};
};

// `own`: what the rank is called with, or has in the ranks' counts. `sent` and `received`: its
// blocks for, and from, all ranks together.
template <typename Number>
[[nodiscard]] Extents<Number> extents_of(OpKind kind, Number own, Number sent, Number received) {
  switch (kind) {
    case OpKind::kAllreduce:
    case OpKind::kBroadcast: return {own, own};
    case OpKind::kReduceScatter: return {received, own};
    case OpKind::kAllgather: return {own, received};
    case OpKind::kAlltoall: return {sent, received};
    case OpKind::kBarrier:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  return {Number{0}, Number{0}};
}

}  // namespace kolo::internal
