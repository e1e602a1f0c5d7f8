// CallCase: one call, with the values that go in and the check of what comes out. Used by one
// thread; the memory is the caller's and outlives it.
#pragma once

#include <cstddef>

#include "bench/kolo_bench/data.h"
#include "bench/kolo_bench/library.h"
#include "bench/kolo_bench/report.h"

namespace kolo::bench {

class CallCase {
 public:
  // `input` null: in place, in `output`, which holds the larger of the two. `tensor` tells the
  // tensors of a set apart.
  CallCase(const Subject& subject, const Library& library, std::byte* input, std::byte* output,
           std::size_t tensor = 0, const std::string& name = "");

  [[nodiscard]] const Call& call() const { return call_; }
  // Writes this rank's inputs.
  void fill();
  // Fills, and clears an output that lies elsewhere.
  void fill_and_clear();
  // Damages the result, for a test of the check.
  void spoil();
  [[nodiscard]] std::size_t wrong() const;  // elements, on this rank

 private:
  [[nodiscard]] std::size_t output_bytes() const;

  Content content_;
  int rank_;
  std::byte* input_;  // where this rank's inputs lie
  std::byte* output_;
  bool in_place_;
  Call call_;
};

// Repeats the prepared call on fresh values as often as the options want; the number of wrong
// elements on all ranks.
std::size_t check_calls(const Options& options, Library& library, CallCase& what);

}  // namespace kolo::bench
