// Sequencer: orders what is ready everywhere. The root runs one for the units that cross hosts,
// each host's leader one for those that stay on its host.
//
// In go facts (who has submitted what); out comes the ordered stream: runs with their fusion cuts,
// failures, evictions from the cache, ends of joins. Pure state; one user at a time.
//
//   1. A fact by id counts only if its parity differs from the last ordered one (else it is stale).
//   2. A unit is ready when every rank of its process set has submitted it or has joined.
//   3. Ready units are checked for agreement: the first disagreement fails the unit on all ranks.
//   4. drain() plans all that became ready since the last drain, in the order it became ready; what
//      ends process sets comes last. A set ends with its slots closed, what is complete ordered,
//      its ids evicted, and all else of it forgotten: every rank gives that up where the order says
//      so.
//
// On a host whose ranks share a slot board, a cached unit gets a slot and is then ordered there,
// without facts. When a fact of it comes all the same (another signature, a refusal, a time limit)
// the slot is closed, and what was submitted through it counts as facts.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "coordinator/frame.h"
#include "coordinator/fusion_planner.h"
#include "coordinator/readiness.h"
#include "coordinator/response_cache.h"
#include "coordinator/slot_leader.h"
#include "coordinator/stall_detector.h"
#include "coordinator/toggle_book.h"
#include "coordinator/topology.h"

namespace kolo::internal {

struct SequencerOptions {
  std::size_t cache_capacity = 4096;
  FusionOptions fusion;
  Nanos stall_warning = 30s;
  Nanos stall_abort = kNever;
  bool inline_allreduce = true;  // small ones complete in their slots
  bool mixed_memory = true;      // one tensor may be on a device of some ranks only
};

class Sequencer {
 public:
  // `slots`: on the leader of a host with a board; outlives this.
  Sequencer(const Topology& topology, const SequencerOptions& options, bool host_only,
            SlotLeader* slots = nullptr)
      : topology_(topology),
        options_(options),
        cache_(options.cache_capacity, host_only),
        stalls_(options.stall_warning, options.stall_abort),
        slots_(slots) {}

  void add(std::span<const int> ranks, const UnitPtr& unit, Nanos now);
  // INTERNAL when the id is unknown: the peer breaks the protocol.
  Status add_toggle(std::span<const int> ranks, Toggle toggle, Nanos now);
  // The unit's ranks that live on `host` have all submitted it.
  Status add_host_toggle(int host, Toggle toggle, Nanos now);
  // Before the toggle that it belongs to. Stale ones and those of no live unit are dropped.
  // INTERNAL when it does not fit its unit.
  Status add_payload(Payload payload);
  // After everything that `rank` has submitted before it joined.
  void add_joined(std::uint32_t process_set, int rank, Nanos now);
  // The time limit of `rank`'s own submission has passed: fails it everywhere, unless ordered.
  // `mark`: of a submission through a slot; only that one is meant.
  void expire(const UnitKey& key, int rank, Nanos now, SlotMark mark = {});
  void tick(Nanos now);

  [[nodiscard]] std::vector<Item> drain(Nanos now);
  // The set is closed: what has been reported of it is dropped, and what still comes.
  void forget_set(std::uint32_t process_set);
  // Another sequencer ends the set here: what comes before that in the stream.
  [[nodiscard]] std::vector<Item> end_set(std::uint32_t process_set, Nanos now);
  // All ranks have followed that many of this sequencer's evictions.
  void acknowledge(std::uint64_t evictions) { toggles_.acknowledge(evictions); }
  [[nodiscard]] std::vector<std::string> take_warnings() { return std::exchange(warnings_, {}); }
  [[nodiscard]] Nanos next_deadline(Nanos now) const;

 private:
  bool take_owed(int rank, const UnitKey& key);
  void add_one(int rank, const UnitPtr& unit, std::uint64_t id, Nanos now);
  void check_complete(const UnitKey& key);
  [[nodiscard]] std::vector<int> expected_ranks(std::uint32_t process_set) const;
  void order(PendingUnit pending, Run& run, std::vector<Item>& before);
  Status place(UnitOrder& order, const PendingUnit& pending);
  void order_ready(std::vector<Item>& items, Nanos now);
  void end_joins(std::vector<Item>& items);
  void end_set(std::uint32_t process_set, std::vector<Item>& items, Nanos now);
  [[nodiscard]] std::uint32_t slot_id_of(const PendingUnit& pending, int rank) const;
  void fail_late(const UnitKey& key, const std::string& cause);
  [[nodiscard]] const ResponseCache::Cached* with_slot(const UnitKey& key) const;
  void close_slot(ResponseCache::Cached cached, std::vector<Item>& items, Nanos now);
  void introduce(UnitOrder& order);
  void evict(ResponseCache::Cached cached, const PendingUnit* pending, std::vector<Item>& items);
  void evict_over_capacity(std::vector<Item>& items, Nanos now);

  const Topology& topology_;
  SequencerOptions options_;
  ResponseCache cache_;
  ToggleBook toggles_;
  PayloadBook payloads_;
  StallDetector stalls_;
  SlotLeader* slots_;
  ReadinessTable table_;
  std::vector<UnitKey> ready_;  // in the table still
  std::vector<Item> failures_;
  std::vector<JoinDone> join_ends_;
  std::vector<UnitOrder> set_ends_;      // units that end process sets
  std::uint32_t newest_set_ = 0;         // ever ordered here
  std::optional<std::uint32_t> ending_;  // the set that is about to end: of it nothing is cached
  std::map<std::uint32_t, std::set<int>> joined_;
  // Ranks whose next submissions of a unit belong to ones that have failed already on the others.
  struct Owed {
    std::map<int, unsigned> ranks;  // how many submissions each
    Status status;
  };
  std::map<UnitKey, Owed> owed_;
  std::deque<UnitKey> owed_order_;  // oldest first, for the bound
  std::vector<std::string> warnings_;
};

}  // namespace kolo::internal
