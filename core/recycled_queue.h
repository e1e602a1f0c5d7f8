// RecycledQueue: first in, first out, with elements that keep their memory for the next use: once
// warm it allocates nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kolo::internal {

template <typename T>
class RecycledQueue {
 public:
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] T& front() { return ring_[begin_]; }
  // The n-th from the front.
  [[nodiscard]] const T& operator[](std::size_t n) const {
    return ring_[(begin_ + n) % ring_.size()];
  }
  // A new last element, as an earlier one has left it.
  T& push() {
    if (count_ == ring_.size()) grow();
    return ring_[(begin_ + count_++) % ring_.size()];
  }
  void pop() {
    KOLO_CHECK(count_ > 0);
    begin_ = (begin_ + 1) % ring_.size();
    --count_;
  }

 private:
  void grow() {
    std::vector<T> larger(ring_.size() * 2 + 8);
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = std::move(ring_[(begin_ + i) % ring_.size()]);
    }
    ring_ = std::move(larger);
    begin_ = 0;
  }

  std::vector<T> ring_;
  std::size_t begin_ = 0;
  std::size_t count_ = 0;
};

}  // namespace kolo::internal
