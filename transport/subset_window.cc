#include "transport/subset_window.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {
namespace {

int place_among(std::span<const int> members, int rank) {
  const auto found = std::find(members.begin(), members.end(), rank);
  return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

std::vector<const std::byte*> segments_of(const Window& whole, std::span<const int> members) {
  std::vector<const std::byte*> segments;
  for (int member : members) {
    KOLO_CHECK(member >= 0 && member < whole.size());
    segments.push_back(whole.of(member));
  }
  return segments;
}

}  // namespace

SubsetWindow::SubsetWindow(Window& whole, std::span<const int> members)
    : Window(place_among(members, whole.rank()), whole.bytes(), whole.own(),
             segments_of(whole, members), whole.bytes()),
      whole_(whole),
      members_(members.begin(), members.end()) {
  KOLO_CHECK(rank() >= 0);
}

Status SubsetWindow::commit(std::size_t offset, std::size_t bytes) {
  return whole_.commit(offset, bytes);
}

int SubsetWindow::lost() const {
  const int lost = whole_.lost();
  return lost < 0 ? -1 : place_among(members_, lost);
}

void SubsetWindow::wake(int peer) { whole_.wake_up(members_[static_cast<std::size_t>(peer)]); }

}  // namespace kolo::internal
