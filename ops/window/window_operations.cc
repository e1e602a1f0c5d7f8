#include "ops/window/window_operations.h"

#include <new>

#include "ops/window/oneshot.h"
#include "ops/window/pull.h"
#include "ops/window/two_shot.h"

namespace kolo::internal {
namespace {

// Everybody's entering is all there is to it.
class WindowBarrier final : public WindowOperation {
 public:
  void start(WindowLane& lane) { begin(lane, 0); }

 private:
  WindowLane::Places enter() override { return {}; }
  bool step() override {
    if (!lane().all_entered()) return false;
    complete();
    return true;
  }
};

// An operation of no bytes: nobody need know of it.
class Nothing final : public Operation {
 public:
  Result<Progress> advance() override { return Progress::kDone; }
  void cancel() override {}
};

}  // namespace

struct WindowOperations::Members {
  Members(Window& window, std::size_t offset, const Arena* the_arena)
      : lane(window, offset), arena(the_arena) {}

  [[nodiscard]] std::optional<std::size_t> place(const void* memory, std::size_t bytes) const {
    if (arena == nullptr || bytes <= WindowLane::kOneshotBytes) return std::nullopt;
    return arena->offset_of(memory, bytes);
  }

  // Starts an operation; on a lane that was given up, or without memory, it fails as an operation.
  template <typename Started, typename... Arguments>
  Operation& start(Started& operation, const Arguments&... arguments) {
    if (lane.given_up()) {
      operation.fail(
          aborted("an operation before this one was given up, and its shared memory "
                  "with it"));
      return operation;
    }
    try {
      operation.start(lane, arguments...);
    } catch (const std::bad_alloc&) {
      lane.give_up();
      operation.fail(resource_error("no memory for the scratch of a collective; free some"));
    }
    return operation;
  }

  WindowLane lane;
  const Arena* arena;
  WindowOneshot oneshot;
  WindowTwoShot two_shot;
  WindowPull pull;
  WindowBarrier barrier;
  Nothing nothing;
};

WindowOperations::WindowOperations(Window& window, std::size_t offset, const Arena* arena)
    : members_(std::make_unique<Members>(window, offset, arena)) {}
WindowOperations::~WindowOperations() = default;

Operation& WindowOperations::start_allreduce(const ReductionOrder& order,
                                             std::span<const Piece> pieces, DataType dtype,
                                             ReduceOp op) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.count * element_bytes(dtype);
  Members& m = *members_;
  if (bytes == 0) return m.nothing;
  if (bytes <= WindowLane::kOneshotBytes) return m.start(m.oneshot, order, pieces, dtype, op);
  WindowLane::Places places;
  if (pieces.size() == 1) {
    places = {.input = m.place(pieces[0].input, bytes), .output = m.place(pieces[0].output, bytes)};
  }
  return m.start(m.two_shot, order, pieces, dtype, op, places);
}

Operation& WindowOperations::start_allgather(const void* input, void* output,
                                             std::size_t input_bytes, std::span<const int> places) {
  Members& m = *members_;
  if (input_bytes == 0) return m.nothing;
  return m.start(m.pull, std::optional<int>(), input, output, input_bytes,
                 m.place(input, input_bytes), places);
}

Operation& WindowOperations::start_broadcast(int root, const void* input, void* output,
                                             std::size_t bytes) {
  Members& m = *members_;
  if (bytes == 0) return m.nothing;
  std::optional<std::size_t> place;
  if (root == m.lane.rank()) place = m.place(input, bytes);
  return m.start(m.pull, std::optional<int>(root), input, output, bytes, place);
}

Operation& WindowOperations::start_barrier() { return members_->start(members_->barrier); }

WindowLane& WindowOperations::lane() { return members_->lane; }
std::optional<std::size_t> WindowOperations::place(const void* memory, std::size_t bytes) const {
  return members_->place(memory, bytes);
}
const WindowLane::Counters& WindowOperations::counters() const { return members_->lane.counters(); }

}  // namespace kolo::internal
