// kolo::Ragged, an output that the library allocates; included by kolo.hpp. C++17 or later.
#ifndef KOLO_RAGGED_HPP_
#define KOLO_RAGGED_HPP_

#include <chrono>
#include <cstddef>
#include <utility>

#include "kolo/error.hpp"
#include "kolo/kolo.h"
#include "kolo/request.hpp"
#include "kolo/types.hpp"

namespace kolo {

// The output of Context::allgather_ragged() and alltoall_ragged(), where ranks give what they like.
// Complete after wait(), or when wait_for() or test() say so; until then it is empty. Its elements
// lie close together in rank order, are the library's, and go with this object, which the context
// must outlive. Of an input on a device they are on that device, and not for the host to read:
//     kolo::Ragged<int> all = context.allgather_ragged(mine);
//     for (int value : all) ...                       // everybody's
//     for (int value : all.block(2)) ...              // those of the set's third rank (C++20)
template <typename T>
class Ragged {
 public:
  Ragged() = default;
  // `request` was made with kolo_options.allocate, on a set of `blocks` ranks.
  Ragged(Request request, std::size_t blocks) : request_(std::move(request)), blocks_(blocks) {}

  // As those of Request; each throws the operation's error.
  void wait() {
    if (data_ == nullptr) request_.wait();
    fetch();
  }
  bool wait_for(std::chrono::milliseconds limit) {
    if (data_ == nullptr && !request_.wait_for(limit)) return false;
    fetch();
    return true;
  }
  bool test() {
    if (data_ == nullptr && !request_.test()) return false;
    fetch();
    return true;
  }

  T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  T* begin() const noexcept { return data_; }
  T* end() const noexcept { return data_ + size_; }
  // How many elements came from each rank of the set: [blocks()]. Null until complete.
  const std::size_t* counts() const noexcept { return counts_; }
  std::size_t blocks() const noexcept { return blocks_; }
#if defined(__cpp_lib_span)
  // What the set's rank at `place` gave.
  std::span<T> block(std::size_t place) const noexcept {
    std::size_t first = 0;
    for (std::size_t i = 0; i < place; ++i) first += counts_[i];
    return {data_ + first, counts_[place]};
  }
#endif

 private:
  void fetch() {
    if (data_ != nullptr) return;
    void* output = nullptr;
    check(kolo_request_output(request_.context(), request_.handle(), &output, &size_, &counts_));
    data_ = static_cast<T*>(output);
  }

  Request request_;
  std::size_t blocks_ = 0;
  T* data_ = nullptr;
  std::size_t size_ = 0;
  const std::size_t* counts_ = nullptr;
};

}  // namespace kolo

#endif  // KOLO_RAGGED_HPP_
