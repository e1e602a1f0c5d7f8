// Leader: gathers what the ranks of one host report about units that cross hosts, and speaks to
// the root once for all of them. Pure state; one user at a time.
//
//   * A unit goes to the root when all its ranks on this host have submitted it.
//   * When it waits for long, or its time limit passes, or one of its ranks joins, what is known so
//     far goes at once and the rest follows as it comes (the unit is *streaming*): so the root can
//     name who is missing, and a join never overtakes a submission.
//   * A unit that failed before all ranks of this host had submitted it streams for the late ones:
//     the root fails theirs too.
//   * What has been told is not told again: facts are levels, also until the root has ordered.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "coordinator/frame.h"
#include "coordinator/readiness.h"
#include "coordinator/toggle_book.h"
#include "coordinator/topology.h"

namespace kolo::internal {

class Leader {
 public:
  // `patience`: after that long an incomplete unit streams. kNever: never.
  Leader(const Topology& topology, int host, Nanos patience)
      : topology_(topology), host_(host), patience_(patience) {}

  void add(std::span<const int> ranks, const UnitPtr& unit, Nanos now);
  Status add_toggle(int rank, Toggle toggle, Nanos now);  // INTERNAL: unknown id
  Status add_payload(Payload payload);  // goes on at once; INTERNAL: does not fit its unit
  void add_joined(std::uint32_t process_set, int rank);
  void expire(const UnitKey& key, int rank);
  void tick(Nanos now);
  [[nodiscard]] Nanos next_deadline() const;

  // The set is over: what has been reported of it is dropped.
  void forget_set(std::uint32_t process_set);

  // All ranks of this host have followed that many evictions of the root.
  void acknowledge(std::uint64_t evictions) { toggles_.acknowledge(evictions); }

  // The root's ordered stream passes by on its way to the members.
  void observe(const Item& item);

  // What there is to tell the root since the last call.
  [[nodiscard]] Frame take_report() { return std::exchange(report_, {}); }

 private:
  void check_complete(const UnitKey& key);
  void add_one(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now);
  void forward(const PendingUnit& pending);
  void stream(const UnitKey& key);
  void tell(const Variant& variant);
  void forget(const Failure& failure);
  [[nodiscard]] std::vector<int> local_ranks(std::uint32_t process_set) const;
  [[nodiscard]] bool is_told(int rank, const UnitKey& key) const;

  const Topology& topology_;
  int host_;
  Nanos patience_;
  ReadinessTable table_;
  ToggleBook toggles_;
  std::set<UnitKey> streaming_;
  std::map<UnitKey, std::set<int>> told_;  // by whom, as told to the root and not yet ordered
  std::deque<UnitKey> streaming_order_;    // oldest first, for the bound
  std::map<std::uint32_t, std::set<int>> joined_;
  Frame report_;
};

}  // namespace kolo::internal
