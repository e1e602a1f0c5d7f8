// TensorQueue: what callers have handed in and the engine has not yet taken, and whether the
// context takes anything any more. Thread-safe. What it holds is bounded by the unit table.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/request_state.h"

namespace kolo::internal {

struct RefusedUnit {  // to be told to the other ranks
  UnitPtr unit;
};
struct JoinCommand {  // the request is complete when all ranks of its set have joined
  RequestPtr request;
};
struct AbortCommand {
  std::string reason;
};
struct GoodbyeCommand {
  Nanos patience{0};  // what was refused here is told first, if the others come to it in that time
};
using Command = std::variant<RequestPtr, RefusedUnit, JoinCommand, AbortCommand, GoodbyeCommand>;

class TensorQueue {
 public:
  // Both are always taken, closed or not.
  void submit(std::span<const RequestPtr> requests);
  void command(Command command);

  // From now on the context takes no submission. The first status stays.
  void close(const Status& status);
  [[nodiscard]] bool is_closed() const { return is_closed_.load(std::memory_order_seq_cst); }
  [[nodiscard]] Status closed() const;

  [[nodiscard]] bool empty() const { return pending_.load(std::memory_order_seq_cst) == 0; }
  [[nodiscard]] std::vector<Command> take();

 private:
  mutable std::mutex mutex_;
  std::vector<Command> queue_;
  Status closed_;
  std::atomic<bool> is_closed_{false};
  std::atomic<std::size_t> pending_{0};
};

}  // namespace kolo::internal
