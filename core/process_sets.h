// ProcessSets: which ranks form which set, as this rank's calls may use them. Set 0 is the world.
//
// A set is known from the order that makes it (by the driver) until its end; its record stays for
// as long as the context lives, so that operations may point to it. Threads: any, but for add()
// and retire(): the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "ops/reduction_order.h"

namespace kolo::internal {

struct ProcessSet {
  std::uint32_t id = 0;
  std::vector<int> ranks;            // of the job, ascending
  int place = -1;                    // of this rank among them; -1: it is not one of them
  ReductionOrder order;              // of its ranks
  std::atomic<bool> closing{false};  // this rank has called for its end
  std::atomic<bool> joined{false};   // this rank has, and not all have
  // A rank that it depends on has left the job or is lost; `left_status` is written before that is
  // told, and stays.
  std::atomic<bool> left{false};
  Status left_status;
  // Of the next operation without a name. Ranks that have joined miss some, so the end of a join,
  // when nothing is under way anywhere, begins anew.
  std::atomic<std::uint64_t> next_number{0};

  ProcessSet(std::uint32_t the_id, std::vector<int> the_ranks, int rank,
             const std::vector<int>& host_of);
  [[nodiscard]] int size() const { return static_cast<int>(ranks.size()); }
  // Of a rank of the job; -1: none.
  [[nodiscard]] int place_of(int rank) const;
};

// "process set 3 (ranks 0, 2)", "the world".
[[nodiscard]] std::string set_text(const ProcessSet& set);

class ProcessSets {
 public:
  // host_of[r]: the host of rank r.
  ProcessSets(std::vector<int> host_of, int rank);

  [[nodiscard]] ProcessSet& world() { return *world_; }
  [[nodiscard]] const ProcessSet& world() const { return *world_; }
  // INVALID_ARGUMENT: there is no such set, or it has ended.
  Result<ProcessSet*> find(std::int32_t id) const;
  // ... that this rank may submit to: it is in the set, has not joined, and has not ended the set;
  // ABORTED, PEER_LOST: a rank that the set depends on has left the job, or is lost.
  Result<ProcessSet*> usable(std::int32_t id) const;
  [[nodiscard]] static Status check_usable(const ProcessSet& set);

  ProcessSet& add(std::uint32_t id, std::vector<int> ranks);
  // Also of a set that has ended.
  void leave(std::uint32_t id, const Status& status);
  void retire(std::uint32_t id);

 private:
  std::vector<int> host_of_;
  int rank_;
  std::unique_ptr<ProcessSet> world_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint32_t, std::unique_ptr<ProcessSet>> sets_;
  std::vector<std::unique_ptr<ProcessSet>> ended_;
};

}  // namespace kolo::internal
