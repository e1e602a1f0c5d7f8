// Who is where, and which ranks form a process set. Ranks and hosts are fixed for one membership
// generation; process sets come and go. A set that is closed is still there, but no operation of it
// comes to anything: a rank that it depends on is gone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"

namespace kolo::internal {

class Topology {
 public:
  Topology() = default;
  // host_of[r] is the host index of rank r. Process set 0, the world, is made here.
  explicit Topology(std::vector<int> host_of) : host_of_(std::move(host_of)) {
    std::vector<int> world(host_of_.size());
    for (std::size_t r = 0; r < world.size(); ++r) world[r] = static_cast<int>(r);
    sets_[0] = std::move(world);
  }

  // Every rank must add the same sets. `ranks` ascending. Ids are never used twice.
  void add_process_set(std::uint32_t id, std::vector<int> ranks) {
    newest_set_ = std::max(newest_set_, id);
    for (const int rank : lost_) {
      if (depends_on(ranks, rank)) closed_.insert(id);
    }
    sets_[id] = std::move(ranks);
  }
  // Closes the sets that depend on the rank, and those of them that are still to come.
  void lose(int rank) {
    if (std::find(lost_.begin(), lost_.end(), rank) == lost_.end()) lost_.push_back(rank);
    for (const auto& [id, ranks] : sets_) {
      if (depends_on(ranks, rank)) closed_.insert(id);
    }
  }
  void close_set(std::uint32_t id) { closed_.insert(id); }  // also before it is added
  [[nodiscard]] bool is_closed(std::uint32_t set) const { return closed_.contains(set); }
  void end_process_set(std::uint32_t id) { sets_.erase(id); }
  [[nodiscard]] std::uint32_t newest_set() const { return newest_set_; }
  // There was such a set.
  [[nodiscard]] bool has_ended(std::uint32_t set) const {
    return set <= newest_set_ && !sets_.contains(set);
  }
  // What is said of its operations comes too late.
  [[nodiscard]] bool is_over(std::uint32_t set) const { return has_ended(set) || is_closed(set); }

  [[nodiscard]] int size() const { return static_cast<int>(host_of_.size()); }
  [[nodiscard]] int host_of(int rank) const { return host_of_.at(static_cast<std::size_t>(rank)); }
  // A host's leader is its lowest rank; the root is rank 0.
  [[nodiscard]] int leader_of_host(int host) const {
    const auto it = std::find(host_of_.begin(), host_of_.end(), host);
    KOLO_CHECK(it != host_of_.end());
    return static_cast<int>(it - host_of_.begin());
  }
  [[nodiscard]] int leader_of(int rank) const { return leader_of_host(host_of(rank)); }
  [[nodiscard]] bool is_leader(int rank) const { return leader_of(rank) == rank; }
  static constexpr int kRoot = 0;

  [[nodiscard]] std::vector<int> ranks_of_host(int host) const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (host_of(r) == host) ranks.push_back(r);
    }
    return ranks;
  }
  [[nodiscard]] std::vector<int> leaders() const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (is_leader(r)) ranks.push_back(r);
    }
    return ranks;
  }

  // Whom `rank` speaks with: a member with its leader, a leader with its members and the root, the
  // root with all leaders.
  [[nodiscard]] std::vector<int> linked_ranks(int rank) const {
    std::vector<int> linked;
    for (int other = 0; other < size(); ++other) {
      const bool of_my_host = is_leader(rank) && leader_of(other) == rank;
      const bool between_leaders =
          is_leader(rank) && is_leader(other) && (rank == kRoot || other == kRoot);
      const bool my_leader = leader_of(rank) == other;
      if (other != rank && (of_my_host || between_leaders || my_leader)) linked.push_back(other);
    }
    return linked;
  }

  [[nodiscard]] std::vector<std::uint32_t> set_ids() const {
    std::vector<std::uint32_t> ids;
    for (const auto& [id, ranks] : sets_) ids.push_back(id);
    return ids;
  }
  [[nodiscard]] bool has_set(std::uint32_t set) const { return sets_.contains(set); }
  [[nodiscard]] const std::vector<int>& ranks_of_set(std::uint32_t set) const {
    return sets_.at(set);
  }
  [[nodiscard]] bool in_set(std::uint32_t set, int rank) const {
    const auto& ranks = sets_.at(set);
    return std::binary_search(ranks.begin(), ranks.end(), rank);
  }
  // The set's operations need `rank`: it is in the set, or orders or forwards for some of its
  // ranks.
  [[nodiscard]] bool depends_on(std::uint32_t set, int rank) const {
    return depends_on(sets_.at(set), rank);
  }
  [[nodiscard]] bool depends_on(const std::vector<int>& ranks, int rank) const {
    if (rank == kRoot && !is_host_only(ranks)) return true;
    return std::any_of(ranks.begin(), ranks.end(),
                       [&](int member) { return member == rank || leader_of(member) == rank; });
  }
  // All ranks of the set live on one host: its leader orders it, and it never waits for the wire.
  [[nodiscard]] bool is_host_only(std::uint32_t set) const { return is_host_only(sets_.at(set)); }
  [[nodiscard]] bool is_host_only(const std::vector<int>& ranks) const {
    return std::all_of(ranks.begin(), ranks.end(),
                       [&](int r) { return host_of(r) == host_of(ranks.front()); });
  }

 private:
  std::vector<int> host_of_;
  std::map<std::uint32_t, std::vector<int>> sets_;
  std::uint32_t newest_set_ = 0;  // ever added
  std::vector<int> lost_;
  std::set<std::uint32_t> closed_;
};

}  // namespace kolo::internal
