// Buffer: memory for one tensor with canaries on both sides, in pages of its own, or kolo's; the
// former can be unmapped as soon as no call uses it. One thread.
#pragma once

#include <kolo/kolo.h>

#include <cstddef>
#include <cstdint>

namespace kolo::chaos {

class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer();

  // From now on in memory of kolo_alloc(), if that is to be had.
  void move_into(kolo_context* context);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_kolos() const { return pages_ == nullptr; }
  [[nodiscard]] bool canaries_live() const;
  void unmap();
  // What is seen of the whole of it, canaries included; 0 when unmapped.
  [[nodiscard]] std::uint64_t checksum() const;

 private:
  void place(std::byte* whole);

  std::size_t bytes_;
  std::size_t whole_bytes_;
  void* pages_ = nullptr;
  std::byte* whole_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace kolo::chaos
