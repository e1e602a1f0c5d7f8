// What ranks put in, and what must come out. Values are small whole numbers in a period of odd
// length, so that every reduction is exact in every type and data in a wrong place shows.
// Pure functions; f16 and bf16 are converted here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/kolo_bench/words.h"

namespace kolo::bench {

// What is reduced, as far as the values depend on it. `tensor` tells apart the tensors of a set.
struct Content {
  Collective collective = Collective::kAllreduce;
  kolo_dtype dtype = KOLO_FLOAT32;
  kolo_op op = KOLO_SUM;
  int root = 0;
  int ranks = 1;
  std::size_t tensor = 0;
};

// The number that `rank` puts into element `i`.
std::int64_t input_value(const Content& content, int rank, std::size_t i);
// What comes of element `i` of the inputs; where every rank's data stay apart, of `source`'s.
double expected_value(const Content& content, int source, std::size_t i);

// Writes rank's inputs to memory[0 .. count).
void fill_input(const Content& content, int rank, void* memory, std::size_t count);
// How many elements of rank's output are wrong; `count` is what the collective was called with.
std::size_t count_wrong(const Content& content, int rank, const void* output, std::size_t count);

// One stored element; whole numbers below 256 are exact in every type.
void store_element(kolo_dtype dtype, double value, std::byte* at);
double load_element(kolo_dtype dtype, const std::byte* at);

}  // namespace kolo::bench
