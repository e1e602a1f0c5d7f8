// The ranks, hosts and first process sets of a simulated job.
#include <algorithm>
#include <map>
#include <vector>

#include "tests/sim/program.h"

namespace kolo::internal {

Topology random_topology(Rng& rng) {
  const int size = 4 + rng.below(6);
  const int hosts = rng.chance(25) ? 1 : 1 + rng.below(3);
  const bool in_blocks = rng.chance(70);
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) {
    host_of.push_back(in_blocks ? rank * hosts / size : rank % hosts);
  }
  Topology topology(host_of);
  std::vector<int> local = topology.ranks_of_host(rng.below(hosts));
  if (local.size() > 2 && rng.chance(50)) local.pop_back();
  topology.add_process_set(1, local);
  const int more = 1 + rng.below(3);
  for (int i = 0; i < more; ++i) {
    std::vector<int> ranks = topology.ranks_of_set(0);
    rng.shuffle(ranks);
    ranks.resize(static_cast<std::size_t>(2 + rng.below(size - 2)));
    std::sort(ranks.begin(), ranks.end());
    topology.add_process_set(static_cast<std::uint32_t>(2 + i), ranks);
  }
  return topology;
}

Topology without_ranks(const Topology& before, const std::vector<bool>& survives) {
  std::vector<int> new_rank(static_cast<std::size_t>(before.size()), -1);
  std::vector<int> host_of;
  std::map<int, int> new_host;
  for (int rank = 0; rank < before.size(); ++rank) {
    if (!survives[static_cast<std::size_t>(rank)]) continue;
    new_rank[static_cast<std::size_t>(rank)] = static_cast<int>(host_of.size());
    const int next = static_cast<int>(new_host.size());
    host_of.push_back(new_host.try_emplace(before.host_of(rank), next).first->second);
  }
  Topology after(host_of);
  for (const std::uint32_t set : before.set_ids()) {
    std::vector<int> ranks;
    for (const int rank : before.ranks_of_set(set)) {
      const int renumbered = new_rank[static_cast<std::size_t>(rank)];
      if (renumbered >= 0) ranks.push_back(renumbered);
    }
    if (set != 0 && !ranks.empty()) after.add_process_set(set, ranks);
  }
  return after;
}

}  // namespace kolo::internal
