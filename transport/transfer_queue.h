// What every channel keeps of what was posted: transfers in order, and the scopes that are dropped.
// Values; a queue is linked through Transfer::next and owns nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "transport/channel.h"

namespace kolo::internal {

struct TransferQueue {
  Transfer* first = nullptr;
  Transfer* last = nullptr;

  [[nodiscard]] bool empty() const { return first == nullptr; }
  void push(Transfer& transfer) {
    transfer.next = nullptr;
    (last != nullptr ? last->next : first) = &transfer;
    last = &transfer;
  }
  void push_front(Transfer& transfer) {
    transfer.next = first;
    first = &transfer;
    if (last == nullptr) last = &transfer;
  }
  Transfer* pop() {
    Transfer* out = first;
    first = out->next;
    if (first == nullptr) last = nullptr;
    return out;
  }
  // Takes out the first that a message of this scope and tag is for; null if there is none.
  Transfer* take(std::uint32_t scope, std::uint64_t tag) {
    Transfer* before = nullptr;
    for (Transfer* at = first; at != nullptr; before = at, at = at->next) {
      if (at->tag != tag || at->scope != scope) continue;
      (before != nullptr ? before->next : first) = at->next;
      if (last == at) last = before;
      return at;
    }
    return nullptr;
  }
  // Forgets all of this scope.
  void drop(std::uint32_t scope) {
    TransferQueue kept;
    while (first != nullptr) {
      Transfer* transfer = pop();
      if (transfer->scope != scope) kept.push(*transfer);
    }
    *this = kept;
  }
};

class DroppedScopes {
 public:
  void add(std::uint32_t scope) {
    if (!contains(scope)) scopes_.push_back(scope);
  }
  [[nodiscard]] bool contains(std::uint32_t scope) const {
    return std::find(scopes_.begin(), scopes_.end(), scope) != scopes_.end();
  }

 private:
  std::vector<std::uint32_t> scopes_;
};

}  // namespace kolo::internal
