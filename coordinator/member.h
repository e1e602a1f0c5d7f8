// Member: one rank's own side of the negotiation. It publishes what its program submits and
// follows the ordered stream of its host, where runs of closed process sets pass it by. Pure state;
// one user at a time.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/frame.h"
#include "coordinator/slot_board.h"
#include "coordinator/slot_user.h"
#include "coordinator/topology.h"

namespace kolo::internal {

// A unit of a plan as this rank sees it.
struct PlannedUnit {
  Ticket ticket = 0;  // 0: this rank has joined, and gives the neutral element
  UnitPtr unit;
  std::vector<int> absent;
  std::vector<std::string> payloads = {};  // of all ranks of the set: nothing else moves
  std::uint64_t run = 0;      // number of this run among those of the process set; 0: not for us
  std::uint32_t new_set = 0;  // the id of the process set that the unit creates
  OrderCounts counts = {};
};

// What to execute, in order: each cut is one fused operation.
struct Plan {
  std::vector<PlannedUnit> units;
  std::vector<std::vector<std::uint32_t>> cuts;  // places over the tensors of `units`; never empty
};

struct Finished {
  Ticket ticket = 0;
  Status status;
};

class Member {
 public:
  // `slots`: where this host has a slot board; outlives this.
  Member(const Topology& topology, int rank, SlotUser* slots = nullptr)
      : topology_(topology), rank_(rank), slots_(slots) {}

  // DUPLICATE_NAME while an earlier submission of the same name is under way.
  // A unit with `invalid` set is only told to the others; its ticket must be 0.
  // `payload`: all that this rank has to contribute, at most kPayloadBytesMax, if it may travel
  // with the word of its readiness.
  Status submit(Ticket ticket, UnitPtr unit, Nanos deadline,
                std::optional<std::string> payload = std::nullopt);
  // Everything submitted so far goes out before the word that this rank has joined.
  void join(std::uint32_t process_set);
  void tick(Nanos now);  // publishes deadlines that have passed
  // The time limit of a submission through a slot has passed.
  void expire(const UnitKey& key, SlotMark mark) {
    report_.expired.push_back({key, rank_, mark.word()});
  }
  [[nodiscard]] Nanos next_deadline() const;

  // One step of the host's ordered stream; sets `plan` if it is a run that concerns this rank.
  // INTERNAL for a step that no sequencer can have sent; the state is then of no further use.
  Status apply(const Item& item, std::optional<Plan>& plan, std::vector<Finished>& finished);

  // All submissions not yet ordered, in sets for which `concerned`; they are forgotten.
  std::vector<Finished> give_up(const std::function<bool(std::uint32_t set)>& concerned,
                                const std::function<Status(const Unit&)>& why);
  // The ordered stream has come to the end of the set: what is given up. INTERNAL when units of it
  // are still known by number.
  Result<std::vector<Finished>> end_set(std::uint32_t process_set);

  // What there is to publish since the last call: facts, toggles, joins, expiries.
  [[nodiscard]] Frame take_report() { return std::exchange(report_, {}); }
  [[nodiscard]] const std::map<std::uint32_t, std::uint64_t>& runs() const { return runs_; }
  // The others have not all come to what was refused here.
  [[nodiscard]] bool has_refused() const {
    return std::ranges::any_of(pending_, [](const auto& one) { return one.second.ticket == 0; });
  }
  // Evictions followed so far, of the host's sequencer or of the root's.
  [[nodiscard]] std::uint64_t evictions(bool of_host) const { return evictions_[of_host ? 1 : 0]; }
  // One more run of the set, which the host's log orders: its number, or 0 if it is not for us.
  std::uint64_t count_run(std::uint32_t process_set);
  void forget_runs(std::uint32_t process_set) { runs_.erase(process_set); }

 private:
  // Waits behind refused submissions of its name; only the last may be other than refused.
  struct Waiting {
    Ticket ticket = 0;
    UnitPtr unit;
    Nanos deadline = kNever;
  };
  struct Pending {
    Ticket ticket = 0;
    UnitPtr unit;
    std::optional<std::string> payload;
    Nanos deadline = kNever;
    bool expired = false;    // has been published as expired
    std::uint64_t mark = 0;  // of a submission that the leader has taken from its slot
    std::deque<Waiting> behind;
  };
  struct Known {
    UnitPtr unit;
    bool ordered_parity = false;
    bool has_slot = false;
  };

  [[nodiscard]] bool is_known(const Unit& submitted, const Unit& agreed) const;
  void publish(Pending& pending);
  void finish_pending(const UnitKey& key);
  Status apply_run(const Run& run, std::optional<Plan>& result);
  [[nodiscard]] Status check_devices(const UnitOrder& order) const;
  Status apply_order(const UnitOrder& order, PlannedUnit& planned);
  Status learn(const UnitOrder& order, UnitPtr& unit);
  void apply_failure(const Failure& failure, std::vector<Finished>& finished);
  Status apply_evict(const Evict& evict);
  [[nodiscard]] bool is_behind(std::uint32_t process_set) const;
  [[nodiscard]] bool awaits_eviction(std::uint32_t process_set) const;
  void go_on_with(std::uint32_t process_set);

  const Topology& topology_;
  int rank_;
  SlotUser* slots_;
  std::map<UnitKey, Pending> pending_;
  std::unordered_map<std::uint64_t, Known> by_id_;
  std::map<UnitKey, std::uint64_t> id_of_;
  std::map<std::uint32_t, std::uint64_t> runs_;
  std::uint64_t evictions_[2] = {0, 0};  // of the root's ids, and of the host's
  std::uint64_t newest_id_[2] = {0, 0};  // of the root's ids, and of the host's
  // Joins, and calls that end a set, wait until what this rank has said of the set before is out.
  std::set<std::uint32_t> joining_;
  std::map<std::uint32_t, UnitKey> ending_;
  Frame report_;
};

}  // namespace kolo::internal
