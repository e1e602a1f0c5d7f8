// Placement: in which memory each rank's buffers lie is its own affair, and a unit as agreed says
// it of all ranks: TensorSpec::devices. So everybody knows without a word which way a tensor goes,
// and a rank whose tensor has moved since has not submitted what is known: it negotiates anew.
//
// Pure functions. `place`: of a rank among those of the process set.
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "coordinator/readiness.h"
#include "coordinator/unit.h"

namespace kolo::internal {

// Whether `submitted` is the rank's part of `agreed`.
[[nodiscard]] bool is_part_of(const Unit& submitted, const Unit& agreed, std::size_t place);

// Whether its tensors lie where `agreed` says so of that rank.
[[nodiscard]] bool is_placed_in(const Unit& submitted, const Unit& agreed, std::size_t place);
// The submitted unit with the devices of the agreed one.
[[nodiscard]] UnitPtr placed_as(const UnitPtr& submitted, const Unit& agreed);

// The unit of a complete entry whose variants agree otherwise, with the devices of all `ranks` of
// its process set; an absent rank gives host memory.
[[nodiscard]] UnitPtr agreed_unit(const PendingUnit& pending, const std::vector<int>& ranks);

// MISMATCH where some ranks have a tensor on a device and others in host memory: naming both.
// Ranks that are absent have none anywhere.
[[nodiscard]] Status check_one_memory(const PendingUnit& pending, const Unit& agreed,
                                      const std::vector<int>& ranks);

// Whether agreed devices are for a process set of `size` ranks.
[[nodiscard]] bool devices_fit(const Unit& agreed, std::size_t size);

// Of an agreed unit's tensor.
[[nodiscard]] bool is_on_devices(const TensorSpec& agreed);           // of all ranks
[[nodiscard]] inline bool is_on_a_device(const TensorSpec& agreed) {  // of one at least
  return !agreed.devices.empty();
}
[[nodiscard]] bool is_on_a_device(const Unit& agreed);  // one of its tensors

}  // namespace kolo::internal
