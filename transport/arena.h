// Arena: memory for callers' tensors inside this rank's segment of a window, which the other ranks
// of the host read in place: such tensors are reduced without packing.
//
// Threads: any. Never gives memory back to the system while it lives; freed blocks are used again.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "base/status.h"
#include "transport/window.h"

namespace kolo::internal {

class Arena {
 public:
  // Everything of this rank's segment that has not been carved.
  explicit Arena(Window& window);
  ~Arena();

  // At least `bytes` bytes (0 counts as 1), aligned to a page of 4096; contents undefined.
  // RESOURCE: names the bytes asked for and what there is.
  Result<void*> allocate(std::size_t bytes);
  // INVALID_ARGUMENT for what allocate() has not given, or has been freed.
  Status free(void* memory);
  // Where [memory, memory + bytes) lies in the segment, if it lies within blocks given out.
  [[nodiscard]] std::optional<std::size_t> offset_of(const void* memory, std::size_t bytes) const;

 private:
  struct Blocks;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace kolo::internal
