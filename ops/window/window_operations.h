// WindowOperations: one reusable object of every collective over a window; a lane needs one, and
// each start_...() returns the operation that it has started. The counterpart of OperationSet for
// ranks that share memory.
//
// Ranks here are places in the window. At most one operation is in progress at a time, and all
// ranks start the same ones in the same order. After a cancel(), or an operation that failed, the
// lane serves nothing any more: operations started later fail at once (ABORTED).
// Threads: one at a time. Owns no staging but the kernels' scratch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "base/types.h"
#include "ops/operation.h"
#include "ops/reduction_order.h"
#include "ops/slices.h"
#include "ops/window/lane.h"
#include "transport/arena.h"

namespace kolo::internal {

class WindowOperations {
 public:
  // `offset` is what the window's carve(WindowLane::kBytes) has returned. Tensors in `arena` (may
  // be null) are read by the others where they lie. Window and arena outlive this.
  WindowOperations(Window& window, std::size_t offset, const Arena* arena);
  ~WindowOperations();

  // `order` of the window's ranks; it must outlive the operation. `pieces` is copied.
  Operation& start_allreduce(const ReductionOrder& order, std::span<const Piece> pieces,
                             const Reduction& reduction);
  // `piece`: the whole input, and as output this rank's block of counts[rank] elements, which may
  // be that block of the input.
  Operation& start_reduce_scatter(const ReductionOrder& order, const Piece& piece,
                                  std::span<const std::size_t> counts, const Reduction& reduction);
  // from[r]: how much comes from rank r, and where in the output it goes; the input may be this
  // rank's place there. Spans are copied.
  Operation& start_allgather(const void* input, void* output, std::span<const Block> from);
  // to[r]: what of the input goes to rank r; from[s]: where in the output it comes from rank s.
  Operation& start_alltoall(const void* input, void* output, std::span<const Block> to,
                            std::span<const Block> from);
  // input counts on the root only; output everywhere (at the root it may equal input).
  Operation& start_broadcast(int root, const void* input, void* output, std::size_t bytes);
  Operation& start_barrier();

  [[nodiscard]] WindowLane& lane();
  // Where in the segment a tensor of that many bytes lies, if it is worth telling.
  [[nodiscard]] std::optional<std::size_t> place(const void* memory, std::size_t bytes) const;
  // Bytes copied into and out of shared memory by this rank.
  [[nodiscard]] const WindowLane::Counters& counters() const;

 private:
  struct Members;
  std::unique_ptr<Members> members_;
};

}  // namespace kolo::internal
