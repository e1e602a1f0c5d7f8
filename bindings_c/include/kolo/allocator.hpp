// kolo::Allocator; included by kolo.hpp. C++17 or later.
#ifndef KOLO_ALLOCATOR_HPP_
#define KOLO_ALLOCATOR_HPP_

#include <cstddef>
#include <new>

#include "kolo/kolo.h"

namespace kolo {

// Memory of kolo_alloc() for standard containers, which must not outlive the context:
//     std::vector<float, kolo::Allocator<float>> gradient(n, context.allocator<float>());
// Throws std::bad_alloc; kolo_last_error() says why.
template <typename T>
class Allocator {
 public:
  using value_type = T;

  explicit Allocator(kolo_context* context) noexcept : context_(context) {}
  template <typename U>
  Allocator(const Allocator<U>& other) noexcept : context_(other.context()) {}  // NOLINT: implicit

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    void* memory = nullptr;
    if (kolo_alloc(context_, count * sizeof(T), &memory) != KOLO_OK) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) noexcept { kolo_free(context_, memory); }
  kolo_context* context() const noexcept { return context_; }

  friend bool operator==(const Allocator& a, const Allocator& b) noexcept {
    return a.context_ == b.context_;
  }
  friend bool operator!=(const Allocator& a, const Allocator& b) noexcept { return !(a == b); }

 private:
  kolo_context* context_;
};

}  // namespace kolo

#endif  // KOLO_ALLOCATOR_HPP_
