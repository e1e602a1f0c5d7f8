// HostMap: which ranks live on which host. Hosts are numbered in the order of their first ranks,
// and the ranks of a host in their order: a rank's number there is its place in the host's window.
//
// A plain immutable value after construction.
#pragma once

#include <span>
#include <vector>

namespace kolo::internal {

class HostMap {
 public:
  // `host_index[r]` says which host rank r is on; any numbers.
  explicit HostMap(std::span<const int> host_index);

  [[nodiscard]] int size() const { return static_cast<int>(host_.size()); }  // ranks
  [[nodiscard]] int hosts() const { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int host(int rank) const { return host_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int local(int rank) const { return local_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::span<const int> ranks(int host) const {
    return ranks_[static_cast<std::size_t>(host)];
  }
  [[nodiscard]] int local_size(int host) const { return static_cast<int>(ranks(host).size()); }
  [[nodiscard]] int max_local_size() const;
  // Work `index` is done on each host by this rank: in turn, however many there are.
  [[nodiscard]] int owner(int host, int index) const {
    return ranks(host)[static_cast<std::size_t>(index) % ranks(host).size()];
  }

 private:
  std::vector<std::vector<int>> ranks_;  // [host]
  std::vector<int> host_;                // [rank]
  std::vector<int> local_;               // [rank]
};

}  // namespace kolo::internal
