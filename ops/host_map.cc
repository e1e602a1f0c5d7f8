#include "ops/host_map.h"

#include <algorithm>

#include "base/check.h"

namespace kolo::internal {

HostMap::HostMap(std::span<const int> host_index) {
  KOLO_CHECK(!host_index.empty());
  std::vector<int> seen;  // host indices, in the order of their first ranks
  for (std::size_t rank = 0; rank < host_index.size(); ++rank) {
    const auto place = std::find(seen.begin(), seen.end(), host_index[rank]);
    const auto host = static_cast<std::size_t>(place - seen.begin());
    if (place == seen.end()) {
      seen.push_back(host_index[rank]);
      ranks_.emplace_back();
    }
    host_.push_back(static_cast<int>(host));
    local_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(static_cast<int>(rank));
  }
}

int HostMap::max_local_size() const {
  std::size_t most = 0;
  for (const auto& ranks : ranks_) most = std::max(most, ranks.size());
  return static_cast<int>(most);
}

}  // namespace kolo::internal
