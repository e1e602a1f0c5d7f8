// What ranks bring to an operation, and what must come out: functions of the program alone, by
// plain loops in this process (the arithmetic of tests/conformance/reference.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/multiproc/random/program.h"

namespace kolo::programs {

using Bytes = std::vector<std::byte>;

// One run of an operation on its set. `present`: by place, who has not joined.
struct Run {
  const Operation* operation = nullptr;
  std::uint64_t key = 0;  // of its values
  const SetRanks* set = nullptr;
  std::vector<int> hosts;  // by place
  std::vector<bool> present;

  [[nodiscard]] std::size_t size() const { return set->ranks.size(); }
  [[nodiscard]] int participants() const;
};

// Elements of input and output at `place`; for the operation as it is submitted there.
std::size_t input_elements(const Operation& operation, std::size_t place, std::size_t size);
std::size_t output_elements(const Run& run, std::size_t place);
// Elements by place that `place` receives; all-gather and all-to-all.
std::vector<std::size_t> received(const Run& run, std::size_t place);
// Elements before this place's block: of the input in a reduce-scatter, of the output in an
// all-gather.
std::size_t offset_of(const Operation& operation, std::size_t place);

Bytes input_at(const Operation& operation, std::uint64_t key, std::size_t place,
               std::size_t elements);
Bytes output_at(const Run& run, std::size_t place);
// Why the operation cannot be done with those who are present: the right outcome is
// KOLO_INVALID_ARGUMENT then.
bool needs_everybody(const Run& run);

// "" if equal; else which element differs first, and how. NaNs are equal; Adasum has a tolerance.
std::string difference(const Operation& operation, const std::byte* got, const Bytes& want);
std::int64_t nonfinite_in(kolo_dtype dtype, const std::byte* values, std::size_t count);

}  // namespace kolo::programs
