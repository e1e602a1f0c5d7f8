#include "ops/allgather.h"

#include <algorithm>
#include <cstring>

namespace kolo::internal {

void Allgather::start(const Communicator& communicator, const void* input, void* output,
                      std::size_t bytes) {
  begin(communicator);
  const auto ranks = static_cast<std::size_t>(size());
  sends_.assign(ranks, Transfer{.done = true});
  receives_.assign(ranks, Transfer{.done = true});
  input_ = static_cast<const std::byte*>(input);
  own_output_ = static_cast<std::byte*>(output) + static_cast<std::size_t>(rank()) * bytes;
  bytes_ = bytes;
  copied_bytes_ = input_ == own_output_ ? bytes : 0;
  for (std::size_t i = 1; i < ranks; ++i) {
    // Each rank begins with another peer, so that nobody is met by all at once.
    const int to = (rank() + static_cast<int>(i)) % size();
    const int from = (rank() + size() - static_cast<int>(i)) % size();
    post_receive(from, receives_[static_cast<std::size_t>(from)], 0, 0,
                 static_cast<std::byte*>(output) + static_cast<std::size_t>(from) * bytes, bytes);
    post_send(to, sends_[static_cast<std::size_t>(to)], 0, 0, input_, bytes);
  }
}

bool Allgather::step() {
  const std::size_t copy = std::min(bytes_ - copied_bytes_, kCopyStepBytes);
  if (copy > 0) std::memcpy(own_output_ + copied_bytes_, input_ + copied_bytes_, copy);
  copied_bytes_ += copy;
  const auto done = [](const Transfer& transfer) { return transfer.done; };
  if (copied_bytes_ == bytes_ && std::all_of(sends_.begin(), sends_.end(), done) &&
      std::all_of(receives_.begin(), receives_.end(), done)) {
    complete();
  }
  return copy > 0;
}

}  // namespace kolo::internal
