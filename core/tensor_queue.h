// TensorQueue: what callers have handed in and the engine has not yet taken; and the names of all
// operations under way on this rank, so that a duplicate is answered at once. Bounded; thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/request_state.h"

namespace kolo::internal {

struct RefusedUnit {  // to be told to the other ranks
  UnitPtr unit;
};
struct AbortCommand {
  std::string reason;
};
struct GoodbyeCommand {};
using Command = std::variant<RequestPtr, RefusedUnit, AbortCommand, GoodbyeCommand>;

class TensorQueue {
 public:
  static constexpr std::size_t kMaxUnderWay = std::size_t{1} << 20;

  // All or none. DUPLICATE_NAME names the operation under way; RESOURCE at the bound; the closing
  // status after close(). Marks the requests as running.
  Status submit(std::span<const RequestPtr> requests);
  void command(Command command);  // always taken, closed or not

  // From now on submit() answers with `status`. The first status stays.
  void close(const Status& status);
  // The request has ended, with its status in place: its name is free, and it counts as done.
  void ended(RequestState& request);

  [[nodiscard]] bool empty() const { return pending_.load(std::memory_order_seq_cst) == 0; }
  [[nodiscard]] std::vector<Command> take();
  [[nodiscard]] Status closed() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Command> queue_;
  std::set<UnitKey> under_way_;
  Status closed_;
  std::atomic<std::size_t> pending_{0};
};

}  // namespace kolo::internal
