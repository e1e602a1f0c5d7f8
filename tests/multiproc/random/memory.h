// Block: memory for one tensor, the test's own or kolo_alloc's, between guards that nobody may
// touch, at any alignment. Used by one thread at a time; freed in time before the shutdown.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "tests/sim/random.h"

namespace kolo::programs {

class Block {
 public:
  Block() = default;
  // Filled with a pattern. `random` says where.
  Block(kolo_context* context, std::size_t bytes, internal::Rng& random);
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::vector<std::byte> copy() const { return {data_, data_ + bytes_}; }
  [[nodiscard]] bool guards_hold() const;

 private:
  void release();

  kolo_context* context_ = nullptr;
  std::vector<std::byte> own_;
  void* allocated_ = nullptr;
  std::byte* whole_ = nullptr;
  std::size_t whole_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace kolo::programs
