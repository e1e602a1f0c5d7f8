// SlotUser: this rank's own submissions through the slots of its host, as the member needs to know
// them. Core implements it; called by whoever drives, in the order of the host's stream.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "coordinator/unit.h"

namespace kolo::internal {

using Ticket = std::uint64_t;  // names a local submission; 0: none

struct SlotSubmission {
  Ticket ticket = 0;
  UnitPtr unit;
  Nanos deadline = kNever;
};

class SlotUser {
 public:
  virtual ~SlotUser() = default;
  // The unit is known from now on: its next submission is round 1 of its slot.
  virtual void learned(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit) = 0;
  // It is not any more. What is under way through its slot and neither complete nor ordered becomes
  // the member's.
  virtual std::optional<SlotSubmission> forgotten(std::uint64_t id, const UnitKey& key) = 0;
  // Whether something under way through a slot of the process set came too late: the slot is closed
  // for it, and the eviction on its way, after which it is made again.
  [[nodiscard]] virtual bool awaits_eviction(std::uint32_t process_set) const = 0;
};

}  // namespace kolo::internal
