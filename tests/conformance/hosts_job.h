// HostsJob: the ranks of several hosts, those of a host over windows in memory, and all over
// channels in memory.
#pragma once

#include <memory>
#include <vector>

#include "ops/collectives.h"
#include "tests/conformance/window_job.h"
#include "transport/inproc/inproc_channel.h"

namespace kolo::internal {

class HostsJob final : public CollectiveJob {
 public:
  HostsJob(const std::vector<int>& hosts, std::uint64_t seed, TensorsIn where,
           const InprocFaults& faults)
      : CollectiveJob(hosts, seed), map_(hosts), network_(size(), 1, faults), where_(where) {
    for (int h = 0; h < map_.hosts(); ++h) {
      hosts_.push_back(std::make_unique<WindowHost>(map_.local_size(h), where != TensorsIn::kHeap));
    }
    for (int r = 0; r < size(); ++r) {
      WindowHost& host = host_of(r);
      const auto local = static_cast<std::size_t>(map_.local(r));
      channels_.push_back(std::move(network_.channels(r)[0]));
      std::vector<Channel*>& row = rows_.emplace_back();
      for (int peer = 0; peer < size(); ++peer) {
        // Ranks of one host have no channel: they must do without.
        const bool here = map_.host(peer) == map_.host(r);
        row.push_back(here ? nullptr : channels_.back()[static_cast<std::size_t>(peer)].get());
      }
      collectives_.push_back(std::make_unique<HostsCollectives>(
          host.window(local), host.lane_offset(local), host.arena(local), map_,
          Communicator{.rank = r, .size = size(), .channels = row}));
    }
  }

  Collectives& collectives(std::size_t rank, Algorithm) override { return *collectives_[rank]; }

  std::byte* memory(std::size_t rank, std::size_t bytes) override {
    if (where_ == TensorsIn::kHeap || (where_ == TensorsIn::kEither && random()() % 2 == 0)) {
      return CollectiveJob::memory(rank, bytes);
    }
    const int r = static_cast<int>(rank);
    return host_of(r).allocate(static_cast<std::size_t>(map_.local(r)), bytes,
                               random()() % kAlignments);
  }
  void release() override {
    for (auto& host : hosts_) host->release();
    CollectiveJob::release();
  }

  [[nodiscard]] std::uint64_t bytes_sent_by(std::size_t rank) const {
    std::uint64_t total = 0;
    for (const Channel* channel : rows_[rank]) {
      if (channel != nullptr) total += channel->counters().bytes_sent;
    }
    return total;
  }
  [[nodiscard]] std::uint64_t bytes_sent() const {
    std::uint64_t total = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) total += bytes_sent_by(r);
    return total;
  }

 private:
  WindowHost& host_of(int rank) { return *hosts_[static_cast<std::size_t>(map_.host(rank))]; }

  HostMap map_;
  InprocNetwork network_;
  TensorsIn where_;
  std::vector<std::unique_ptr<WindowHost>> hosts_;
  std::vector<std::vector<Channel*>> rows_;
  std::vector<std::unique_ptr<HostsCollectives>> collectives_;
  std::vector<std::vector<std::unique_ptr<Channel>>> channels_;
};

// Whole, even, uneven and scattered hosts.
inline std::vector<std::vector<int>> layouts_of_hosts(int n) {
  switch (n) {
    case 2: return {{0, 1}};
    case 3: return {{0, 0, 1}, {0, 1, 1}};
    case 4: return {{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 0, 1, 1}};
    case 5: return {{0, 0, 0, 1, 1}, {4, 7, 4, 7, 7}};
    case 6: return {{0, 0, 0, 1, 2, 2}};
    case 8: return {{0, 0, 0, 0, 1, 1, 1, 2}};
    default: return {};
  }
}

inline CollectiveRoad over_hosts(std::string name, TensorsIn where, const InprocFaults& faults,
                                 bool threads) {
  return {.name = std::move(name),
          .make =
              [where, faults](const std::vector<int>& hosts, std::uint64_t seed) {
                return std::make_unique<HostsJob>(hosts, seed, where, faults);
              },
          .algorithms = {Algorithm::kDirect},
          .layouts = layouts_of_hosts,
          .sampled = threads,
          .threads = threads};
}

}  // namespace kolo::internal
