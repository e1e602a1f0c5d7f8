#include "ops/window/window_operations.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "ops/window/alltoall.h"
#include "ops/window/gather.h"
#include "ops/window/oneshot.h"
#include "ops/window/reduce_scatter.h"
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
      : lane(window, offset), arena(the_arena), of_root(static_cast<std::size_t>(window.size())) {}

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
  WindowReduceScatter reduce_scatter;
  WindowGather gather;
  WindowAlltoall alltoall;
  WindowBarrier barrier;
  Nothing nothing;
  std::vector<Block> of_root;  // what a broadcast gathers
};

WindowOperations::WindowOperations(Window& window, std::size_t offset, const Arena* arena)
    : members_(std::make_unique<Members>(window, offset, arena)) {}
WindowOperations::~WindowOperations() = default;

Operation& WindowOperations::start_allreduce(const ReductionOrder& order,
                                             std::span<const Piece> pieces,
                                             const Reduction& reduction) {
  std::size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.count * element_bytes(reduction.dtype);
  Members& m = *members_;
  if (bytes == 0) return m.nothing;
  if (bytes <= WindowLane::kOneshotBytes) return m.start(m.oneshot, order, pieces, reduction);
  WindowLane::Places places;
  if (pieces.size() == 1) {
    places = {.input = m.place(pieces[0].input, bytes), .output = m.place(pieces[0].output, bytes)};
  }
  return m.start(m.two_shot, order, pieces, reduction, places);
}

Operation& WindowOperations::start_reduce_scatter(const ReductionOrder& order, const Piece& piece,
                                                  std::span<const std::size_t> counts,
                                                  const Reduction& reduction) {
  const std::size_t bytes = piece.count * element_bytes(reduction.dtype);
  Members& m = *members_;
  if (bytes == 0) return m.nothing;
  if (bytes > WindowLane::kOneshotBytes) {
    return m.start(m.reduce_scatter, order, piece, counts, reduction, m.place(piece.input, bytes));
  }
  const auto own = counts.begin() + m.lane.rank();
  const Range block{.begin = std::accumulate(counts.begin(), own, std::size_t{0}), .count = *own};
  return m.start(m.oneshot, order, piece, reduction, block);
}

Operation& WindowOperations::start_allgather(const void* input, void* output,
                                             std::span<const Block> from) {
  Members& m = *members_;
  if (std::all_of(from.begin(), from.end(), [](const Block& b) { return b.bytes == 0; })) {
    return m.nothing;
  }
  const std::size_t own = from[static_cast<std::size_t>(m.lane.rank())].bytes;
  return m.start(m.gather, input, output, from, m.place(input, own));
}

Operation& WindowOperations::start_alltoall(const void* input, void* output,
                                            std::span<const Block> to,
                                            std::span<const Block> from) {
  Members& m = *members_;
  std::size_t end = 0;
  std::size_t largest = 0;  // that others read
  for (std::size_t r = 0; r < to.size(); ++r) {
    end = std::max(end, to[r].offset + to[r].bytes);
    if (r != static_cast<std::size_t>(m.lane.rank())) largest = std::max(largest, to[r].bytes);
  }
  std::optional<std::size_t> place;
  if (!WindowAlltoall::is_little(largest, m.lane.size())) place = m.place(input, end);
  return m.start(m.alltoall, input, output, to, from, place);
}

Operation& WindowOperations::start_broadcast(int root, const void* input, void* output,
                                             std::size_t bytes) {
  Members& m = *members_;
  if (bytes == 0) return m.nothing;
  std::optional<std::size_t> place;
  if (root == m.lane.rank()) place = m.place(input, bytes);
  m.of_root.assign(static_cast<std::size_t>(m.lane.size()), {});
  m.of_root[static_cast<std::size_t>(root)].bytes = bytes;
  return m.start(m.gather, input, output, std::span<const Block>(m.of_root), place);
}

Operation& WindowOperations::start_barrier() { return members_->start(members_->barrier); }

WindowLane& WindowOperations::lane() { return members_->lane; }
std::optional<std::size_t> WindowOperations::place(const void* memory, std::size_t bytes) const {
  return members_->place(memory, bytes);
}
const WindowLane::Counters& WindowOperations::counters() const { return members_->lane.counters(); }

}  // namespace kolo::internal
