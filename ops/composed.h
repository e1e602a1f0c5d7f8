// ComposedOperation: an operation made of collectives of one road, one after the other, and of this
// rank's own work between them. All ranks start the same ones in the same order.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

#include "ops/operation.h"

namespace kolo::internal {

class Collectives;

class ComposedOperation : public Operation {
 public:
  Result<Progress> advance() final;
  void cancel() final;

 protected:
  // First thing in a start(): forgets the last run.
  void begin(Collectives& collectives, std::uint32_t sequence);
  // A start that could not get its memory.
  void fail(Status status);

  // This rank's own work, about 100 us of it at most. Calls run() with a collective, which is over
  // before the next call of step(), or complete(); or idle(), if it waits for something else.
  virtual void step() = 0;
  void run(Operation& collective) { running_ = &collective; }
  void complete() { done_ = true; }
  void idle() { idle_ = true; }

  [[nodiscard]] Collectives& collectives() const { return *collectives_; }
  [[nodiscard]] std::uint32_t sequence() const { return sequence_; }

 private:
  Collectives* collectives_ = nullptr;
  Operation* running_ = nullptr;
  std::uint32_t sequence_ = 0;
  Status failure_;
  bool done_ = true;
  bool idle_ = false;  // what step() last said
};

}  // namespace kolo::internal
