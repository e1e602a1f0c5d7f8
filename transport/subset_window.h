// SubsetWindow: some of the ranks of another window, which see only each other: the members of a
// process set on this host. The segments are those of the other window, at the same offsets, and so
// are bells and sleep. What its operations use was reserved in the other window by all its ranks;
// nothing can be carved from this one.
//
// A view: the other window outlives it, and counts its wake-ups.
// Threads: as a window.
#pragma once

#include <span>
#include <vector>

#include "transport/window.h"

namespace kolo::internal {

class SubsetWindow final : public Window {
 public:
  // `members`: ranks of `whole`, this one among them; a rank's place here is its place among them.
  SubsetWindow(Window& whole, std::span<const int> members);

  Status commit(std::size_t offset, std::size_t bytes) override;
  [[nodiscard]] int bell() const override { return whole_.bell(); }
  // -1 too if another one than a member was lost first: ask the whole window about that.
  [[nodiscard]] int lost() const override;

 private:
  void wake(int peer) override;

  Window& whole_;
  std::vector<int> members_;
};

}  // namespace kolo::internal
