// Work: what a rank of a trial computes: operations drawn from the plan's seed, with their inputs
// and right results (plain loops of this process, tests/multiproc/random/values.h), both prepared
// before the job begins. A step submits some of them at once, in an order of this rank's own, and
// compares every result bit by bit. One thread.
#pragma once

#include <kolo/kolo.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/chaos/buffer.h"
#include "tests/chaos/witness.h"
#include "tests/multiproc/random/values.h"

namespace kolo::chaos {

class Work {
 public:
  Work(const Plan& plan, int rank, Witness& witness);

  // Some of the buffers move into kolo's memory.
  void attach(kolo_context* context);

  // The same choice on all ranks for the same number. `ends`: this rank wants no further step; if
  // any does, none makes one. `hold_us`: how long this rank keeps its tensors back. False: it was
  // the last step, or something failed.
  bool step(std::uint64_t number, bool ends, std::int64_t hold_us);

  // After a failure: unmaps what it may, and remembers how the rest looks; later, whether it looks
  // the same.
  void abandon();
  void check_abandoned() const;

 private:
  static constexpr int kVariants = 2;
  struct Tensor {
    explicit Tensor(programs::Operation operation_, std::size_t input_bytes,
                    std::size_t output_bytes)
        : operation(std::move(operation_)), input(input_bytes), output(output_bytes) {}
    programs::Operation operation;
    bool in_place = false;
    bool in_kolos_memory = false;
    Buffer input;
    Buffer output;
    std::vector<programs::Bytes> inputs;   // by variant
    std::vector<programs::Bytes> results;  // by variant
    kolo_request request = KOLO_REQUEST_NULL;
    bool pending = false;
    bool complete = false;
    std::uint64_t seen[2] = {0, 0};
  };

  void draw_mixed();
  void add(programs::Operation operation, int variants);
  void fill(Tensor& tensor, std::size_t variant) const;
  bool submit(Tensor& tensor, bool blocks);
  kolo_status call(Tensor& tensor, kolo_request* request) const;
  void finish(const std::vector<Tensor*>& chosen, internal::Rng& random);
  void finish_by_tests(Tensor& tensor);
  void check(Tensor& tensor, std::size_t variant);

  const Plan plan_;
  const int rank_;
  Witness& witness_;
  kolo_context* context_ = nullptr;
  programs::SetRanks world_;
  std::vector<int> hosts_;
  std::deque<Tensor> tensors_;
  std::int64_t again_ = 0;
};

}  // namespace kolo::chaos
