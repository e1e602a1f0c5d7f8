// SlotTable: the use that one rank of a test makes of the slots of its host, plainly: what core's
// unit table and engine do. And SlotBoards, one host's boards on plain memory.
//
// One thread. The names of what is under way are the caller's to keep apart.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/member.h"
#include "coordinator/slot_board.h"
#include "coordinator/slot_user.h"
#include "coordinator/topology.h"

namespace kolo::internal {

class SlotBoards {
 public:
  SlotBoards(std::uint32_t slots, int ranks);
  [[nodiscard]] SlotBoard& of(int rank) { return *boards_[static_cast<std::size_t>(rank)]; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<std::vector<Line>> memory_;  // by rank
  std::vector<std::unique_ptr<SlotBoard>> boards_;
};

class SlotTable final : public SlotUser {
 public:
  // All ranks have published: their bytes, by place in the process set.
  using Complete = std::function<void(Ticket, const UnitPtr&, const std::vector<std::string>&)>;
  // There is something new to look at for this rank of the job.
  using Ring = std::function<void(int rank)>;

  SlotTable(const Topology& topology, int rank, SlotBoard& board, Complete complete, Ring ring);

  // A submission through its slot. False: it is the negotiator's, as is what comes after it until
  // the unit is known anew.
  bool publish(Ticket ticket, const UnitPtr& unit, Nanos deadline, const std::string& payload);
  void refuse(const UnitKey& key);
  // Ends one inline unit that is complete. False: there is none.
  bool complete_one();
  // This rank's submission of a unit that the log orders; ticket 0: there is none.
  SlotSubmission ordered(const LogEntry& entry);
  // Whether the log can order something of this slot that concerns this rank.
  [[nodiscard]] bool knows(const LogEntry& entry) const { return find(entry) != nullptr; }

  std::vector<std::pair<UnitKey, SlotMark>> take_expired(Nanos now);
  [[nodiscard]] Nanos next_deadline() const;
  // What is published and will not end here any more, of one process set or of all.
  std::vector<Ticket> give_up(std::optional<std::uint32_t> process_set);

  void learned(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit) override;
  std::optional<SlotSubmission> forgotten(std::uint64_t id, const UnitKey& key) override;
  // What is published in a slot of the process set that the leader has closed already.
  [[nodiscard]] bool awaits_eviction(std::uint32_t process_set) const override;

 private:
  struct Entry {
    std::uint64_t id = 0;
    std::uint32_t slot = 0;
    std::uint32_t round = 0;
    bool inlined = false;
    bool leaving = false;
    bool published = false;
    bool expired = false;
    UnitPtr unit;
    SlotSubmission submission;

    [[nodiscard]] SlotMark mark() const { return {static_cast<std::uint32_t>(id), round}; }
  };

  const Entry* find(const LogEntry& entry) const;
  [[nodiscard]] std::vector<int> members(const Entry& entry) const;  // as ranks of the job
  bool complete(Entry& entry);

  const Topology& topology_;
  int rank_;
  SlotBoard& board_;
  Complete complete_;
  Ring ring_;
  std::vector<int> place_;  // on the board, by rank of the job
  std::map<UnitKey, Entry> entries_;
};

}  // namespace kolo::internal
