// SetRoads: the collectives of the process sets that a job makes, over the road that it has: parts
// of the same channels and windows.
//
// A set runs on one stream, and where hosts share memory on a lane of its own, which was reserved
// when the ranks met. The lanes of a set that has ended serve the next set of the same ranks; when
// there are no more, sets use the channels, with the same bits.
// Threads: the driver. The road and its channels outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/context_road.h"
#include "core/process_sets.h"
#include "ops/collectives.h"
#include "ops/host_map.h"
#include "transport/subset_window.h"

namespace kolo::internal {

class SetRoads {
 public:
  SetRoads(Road& road, const std::vector<std::vector<Channel*>>& channels, AlgorithmChoice choice);

  struct Opened {
    Collectives* collectives = nullptr;  // null: this rank is not in the set
    std::size_t stream = 0;              // whose channels they use
  };
  // Every rank of the job opens and closes the same sets in the same order. RESOURCE: no memory for
  // the set's lane.
  Result<Opened> open(const ProcessSet& set);
  void close(const ProcessSet& set);
  // The set comes to nothing: what it has posted on the channels is forgotten, and what still comes
  // of it goes by. Its last operation has been given up.
  void drop(std::uint32_t process_set);
  // Whose channel of that stream has broken with just this status; -1: none has.
  [[nodiscard]] int broken_peer(std::size_t stream, const Status& status) const;

 private:
  struct SetRoad {
    std::size_t stream = 0;
    std::uint32_t scope = 0;         // the first set's that has it
    std::vector<Channel*> channels;  // by place in the set
    std::unique_ptr<HostMap> map;
    std::unique_ptr<ReductionOrder> order;
    std::unique_ptr<SubsetWindow> window;
    std::unique_ptr<Collectives> collectives;  // null: this rank is not in it
  };

  Result<SetRoad> build(const ProcessSet& set);
  Status build_shared(const Communicator& communicator, const ProcessSet& set, std::size_t lane,
                      SetRoad& made);

  Road& road_;
  const std::vector<std::vector<Channel*>>& channels_;
  std::vector<int> host_of_;
  AlgorithmChoice choice_;
  std::size_t lanes_used_ = 0;
  std::size_t built_ = 0;  // each on the next stream
  std::map<std::uint32_t, SetRoad> open_;
  std::multimap<std::vector<int>, SetRoad> parked_;  // by ranks
  struct Place {
    std::size_t stream = 0;
    std::uint32_t scope = 0;
  };
  std::map<std::uint32_t, Place> places_;  // of every set that this rank has ever been in
};

}  // namespace kolo::internal
