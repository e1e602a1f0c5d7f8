// ResultCounter: what callers want to know of a result beside its values (kolo_result): how many
// ranks' data it holds, and how many of its numbers are not finite.
//
// Threads: one at a time. Works in bounded steps, since outputs may be large.
#pragma once

#include <cstdint>
#include <vector>

#include "core/request_state.h"
#include "ops/nonfinite.h"

namespace kolo::internal {

class ResultCounter {
 public:
  // The output of that tensor of the request is whole. Small ones are counted at once, and those on
  // devices have been counted. Nothing to do if nobody asked.
  void add(const RequestState& request, std::size_t index);
  [[nodiscard]] bool done() const { return outputs_.empty(); }
  void advance();  // a bounded part of the counting

 private:
  struct Output {
    DataType dtype = DataType::kFloat32;
    const std::byte* memory = nullptr;
    std::size_t count = 0;
    std::int64_t* nonfinite = nullptr;
  };
  std::vector<Output> outputs_;  // not counted yet
};

}  // namespace kolo::internal
