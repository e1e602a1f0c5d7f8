// Executor: runs the cuts of all simulated ranks of one generation, and checks their results.
//
// Each rank has a queue of cuts, in the order of its plans. A cut runs when it stands at the head
// of the queue on every rank of its process set, so an order that could deadlock real ranks stops
// here too. A unit that comes with everyone's payloads is complete at once, on each rank alone.
// One thread; owned by the simulation, told by it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/member.h"
#include "tests/sim/data.h"
#include "tests/sim/program.h"

namespace kolo::internal {

// A rank's submission: the ticket is its place in the rank's list, plus 1.
struct Submitted {
  int op = 0;
  UnitPtr unit;
  std::size_t tensors_left = 0;
  bool ended = false;
  bool with_payload = false;  // its bytes went along with the submission
  bool by_payloads = false;   // ended by everyone's payloads, without the others
};

class Executor {
 public:
  using End = std::function<void(int rank, Ticket ticket, const Status& status)>;
  struct Part {
    Ticket ticket = 0;
    UnitPtr unit;
    std::size_t tensor = 0;  // place in the unit
  };

  // `submitted[rank]` are the submissions of each rank, kept by the caller.
  Executor(const Program& program, std::vector<std::vector<Submitted>>& submitted, End end);

  void execute(int rank, const Plan& plan);
  // One fused operation, of known units that the host's log orders.
  void execute_slots(int rank, std::uint64_t run, std::vector<Part> parts);
  // A unit that is complete in its slots, with everyone's bytes: it has no place in the order.
  void complete_slot(int rank, Ticket ticket, const UnitPtr& unit,
                     const std::vector<std::string>& payloads);
  // Cuts of `process_set` in runs beyond `through` will not be run on `rank`.
  void cut_off(int rank, std::uint32_t process_set, std::uint64_t through, const Status& status);
  // None will.
  void cut_off_all(int rank, const Status& status);
  void stop(int rank) { stopped_[static_cast<std::size_t>(rank)] = true; }
  void resume(int rank) {
    stopped_[static_cast<std::size_t>(rank)] = false;
    advance(rank);
  }

  [[nodiscard]] bool is_idle(int rank) const {
    return queues_[static_cast<std::size_t>(rank)].empty();
  }
  [[nodiscard]] std::string head_text(int rank) const;
  [[nodiscard]] std::size_t executed_cuts() const { return executed_cuts_; }
  [[nodiscard]] std::size_t fused_cuts() const { return fused_cuts_; }
  // On all ranks.
  [[nodiscard]] std::size_t payload_units() const { return payload_units_; }
  [[nodiscard]] std::size_t inline_units() const { return inline_units_; }
  [[nodiscard]] std::size_t log_units() const { return log_units_; }

 private:
  struct Cut {
    std::uint32_t process_set = 0;
    std::uint64_t run = 0;
    std::size_t number = 0;  // among the cuts of the process set
    std::vector<int> absent;
    std::vector<Part> parts;
    std::vector<std::string> payloads;  // of all ranks of the set, else empty
  };
  struct UnitInPlan {
    const PlannedUnit* planned;
    std::size_t tensor;
  };

  void enqueue(int rank, Cut cut);
  void complete(int rank, const Cut& cut);
  void check_payloads(int rank, const Cut& cut);
  void check_unit(int rank, const PlannedUnit& planned) const;
  void check_devices(const PlannedUnit& planned, const Op& op) const;
  void check_counts(const PlannedUnit& planned, const Op& op) const;
  void advance(int rank);
  bool run_head(int rank);
  void run(std::uint32_t process_set, const std::vector<Cut>& cuts);
  [[nodiscard]] Words result_of(const std::vector<Cut>& cuts, const std::vector<Words>& packed,
                                std::size_t place) const;
  void check_result(const Part& part, int rank, const Words& result, const std::vector<int>& hosts);
  void drop(int rank, const Cut& cut, const Status& status);
  [[nodiscard]] std::vector<int> hosts_of(std::uint32_t process_set) const;
  Submitted& submission(int rank, Ticket ticket);

  const Program& program_;
  std::vector<std::vector<Submitted>>& submitted_;
  End end_;
  std::vector<std::deque<Cut>> queues_;                      // by rank
  std::vector<std::map<std::uint32_t, std::size_t>> next_;   // by rank: cuts seen per set
  std::map<std::uint32_t, std::vector<std::string>> plans_;  // the cuts of each set, as text
  std::vector<bool> stopped_;
  std::size_t executed_cuts_ = 0;
  std::size_t fused_cuts_ = 0;
  std::size_t payload_units_ = 0;
  std::size_t inline_units_ = 0;
  std::size_t log_units_ = 0;
};

}  // namespace kolo::internal
