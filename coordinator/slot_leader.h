// SlotLeader: the leader's side of the slots of its host: which unit has which slot, what all ranks
// have announced, and what goes into the log next. The host's sequencer owns the cache and decides
// what enters and leaves; see slot_board.h for the protocol. Pure; one user at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "coordinator/fusion_planner.h"
#include "coordinator/slot_board.h"
#include "coordinator/stall_detector.h"
#include "coordinator/topology.h"

namespace kolo::internal {

class SlotLeader {
 public:
  // `patience`: how long apart it looks for late ranks; kNever: it does not.
  SlotLeader(const Topology& topology, int host, SlotBoard& board, const FusionOptions& fusion,
             Nanos patience);

  // Gives a new cached unit a slot, for inline or ordered use; nothing when all are taken.
  std::optional<std::uint32_t> introduce(std::uint64_t id, const UnitPtr& unit, bool inlined);
  [[nodiscard]] bool has(std::uint64_t id) const { return slot_of_.contains(id); }
  [[nodiscard]] std::vector<std::uint64_t> ids_of_set(std::uint32_t process_set) const;
  [[nodiscard]] const UnitPtr& unit_of(std::uint64_t id) const {
    return entries_[slot_of_.at(id)].unit;
  }
  // Takes the unit's slot away. The ranks whose submission of the round under way counts: it does
  // not complete through the slot any more.
  std::vector<int> close(std::uint64_t id);
  // The word that it is closed stands in the log: the slot is free once all ranks have followed it.
  void closed_in_log(std::uint64_t id);
  // The set is closed: nothing of it is ordered any more, and nobody is late. Its slots are taken
  // away when the cache does without them.
  void forget_set(std::uint32_t process_set);
  // Whether this submission of `rank` is one of its round that is still open.
  [[nodiscard]] bool waits(std::uint64_t id, int rank, SlotMark mark) const;
  // Whether it has been used since this was last asked.
  bool used_since(std::uint64_t id);

  // Reads what the ranks have announced. True if there was anything.
  bool collect(Nanos now);
  // Appends what is ready to the log, cut into fused operations. True if anything was.
  bool order();

  // Units that some ranks have submitted and some have not.
  std::vector<LateUnit> late(Nanos now);
  [[nodiscard]] Nanos next_look() const { return slot_of_.empty() ? kNever : next_look_; }

 private:
  struct Entry {
    std::uint64_t id = 0;  // 0: free, or closed
    UnitPtr unit;
    std::vector<int> members;  // of the unit's set, as ranks of the board
    bool is_inline = false;
    FusionItem fusion;
    std::uint32_t round = 0;       // ordered units: the last one ordered
    std::size_t announced = 0;     // ... and how many have announced the next
    Nanos since{0};                // when the first of them did
    std::uint32_t late_round = 0;  // inline units: the round that was incomplete at the last look
    std::uint32_t used_round = 0;  // the last one when used_since() was asked
  };
  struct Closed {  // not free yet
    std::uint64_t id = 0;
    std::uint32_t slot = 0;
    std::optional<std::uint64_t> log_place;  // what all must have followed
  };

  struct Placed {
    std::uint32_t slot = 0;
    std::uint32_t cut = 0;
  };

  static std::uint32_t mark_id(std::uint64_t id) { return static_cast<std::uint32_t>(id); }
  std::optional<std::uint32_t> take_slot();
  [[nodiscard]] std::uint32_t open_round(std::uint32_t slot, const Entry& entry) const;
  std::uint32_t close_inline(std::uint32_t slot, const Entry& entry);
  [[nodiscard]] std::vector<int> at_round(std::uint32_t slot, const Entry& entry,
                                          std::uint32_t round) const;

  std::vector<int> rank_of_;  // of the job, by rank of the board
  const Topology& topology_;
  SlotBoard& board_;
  FusionPlanner planner_;
  Nanos patience_;
  Nanos next_look_{0};
  std::vector<Entry> entries_;  // by slot; grows to the slots in use
  std::vector<std::uint32_t> free_;
  std::deque<Closed> closed_;
  std::unordered_map<std::uint64_t, std::uint32_t> slot_of_;
  std::vector<std::uint32_t> ready_;  // slots, in the order in which they became ready
  std::vector<FusionItem> items_;     // scratch
  std::vector<std::uint32_t> places_;
  std::vector<Placed> sorted_;
};

}  // namespace kolo::internal
