#include "coordinator/placement.h"

#include <algorithm>
#include <memory>

namespace kolo::internal {
namespace {

// What a peer says may be of another size.
std::int32_t device_at(const TensorSpec& spec, std::size_t place) {
  if (spec.devices.empty()) return spec.device;
  return place < spec.devices.size() ? spec.devices[place] : kHostMemory;
}

bool is_placeless(const Unit& unit) {
  return std::all_of(unit.tensors.begin(), unit.tensors.end(), [](const TensorSpec& spec) {
    return spec.device == kHostMemory && spec.devices.empty();
  });
}

Unit without_places(const Unit& unit) {
  Unit bare = unit;
  for (TensorSpec& spec : bare.tensors) {
    spec.device = kHostMemory;
    spec.devices.clear();
  }
  return bare;
}

// What tensor `i` has at each place of the process set.
std::vector<std::int32_t> devices_of(const PendingUnit& pending, std::size_t i,
                                     const std::vector<int>& ranks) {
  std::vector<std::int32_t> devices(ranks.size(), kHostMemory);
  for (const Variant& variant : pending.variants) {
    for (const int rank : variant.ranks) {
      const auto place = static_cast<std::size_t>(
          std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
      devices[place] = device_at(variant.unit->tensors[i], place);
    }
  }
  return devices;
}

bool all_in_host_memory(const std::vector<std::int32_t>& devices) {
  return std::all_of(devices.begin(), devices.end(),
                     [](std::int32_t device) { return device == kHostMemory; });
}

}  // namespace

bool is_part_of(const Unit& submitted, const Unit& agreed, std::size_t place) {
  if (is_placeless(submitted) && is_placeless(agreed)) return submitted == agreed;
  return is_placed_in(submitted, agreed, place) &&
         without_places(submitted) == without_places(agreed);
}

bool is_placed_in(const Unit& submitted, const Unit& agreed, std::size_t place) {
  if (submitted.tensors.size() != agreed.tensors.size()) return false;
  for (std::size_t i = 0; i < agreed.tensors.size(); ++i) {
    if (device_at(submitted.tensors[i], place) != device_at(agreed.tensors[i], place)) return false;
  }
  return true;
}

UnitPtr placed_as(const UnitPtr& submitted, const Unit& agreed) {
  if (is_placeless(agreed)) return submitted;
  auto placed = std::make_shared<Unit>(without_places(*submitted));
  for (std::size_t i = 0; i < agreed.tensors.size(); ++i) {
    placed->tensors[i].devices = agreed.tensors[i].devices;
  }
  return placed;
}

UnitPtr agreed_unit(const PendingUnit& pending, const std::vector<int>& ranks) {
  const UnitPtr& first = pending.variants.front().unit;
  const bool placeless =
      std::all_of(pending.variants.begin(), pending.variants.end(),
                  [](const Variant& variant) { return is_placeless(*variant.unit); });
  if (placeless) return first;
  auto agreed = std::make_shared<Unit>(without_places(*first));
  for (std::size_t i = 0; i < agreed->tensors.size(); ++i) {
    std::vector<std::int32_t> devices = devices_of(pending, i, ranks);
    if (!all_in_host_memory(devices)) agreed->tensors[i].devices = std::move(devices);
  }
  return agreed;
}

Status check_one_memory(const PendingUnit& pending, const Unit& agreed,
                        const std::vector<int>& ranks) {
  for (const TensorSpec& spec : agreed.tensors) {
    if (spec.devices.empty()) continue;
    std::vector<int> host;
    std::vector<int> device;
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      if (!pending.has(ranks[place])) continue;
      (spec.devices[place] == kHostMemory ? host : device).push_back(ranks[place]);
    }
    if (host.empty()) continue;
    return {
        StatusCode::kMismatch,
        unit_text(agreed) + (agreed.group ? ", member '" + spec.name + "'" : std::string()) +
            ": memory differs: of a device on " + ranks_text(device) + "; of the host on " +
            ranks_text(host) +
            ". Submit the same on every rank, or allow it by KOLO_MIXED_MEMORY=staged; no buffer "
            "was changed"};
  }
  return Status::ok();
}

bool devices_fit(const Unit& agreed, std::size_t size) {
  return std::all_of(agreed.tensors.begin(), agreed.tensors.end(), [&](const TensorSpec& spec) {
    return spec.device == kHostMemory && (spec.devices.empty() || spec.devices.size() == size);
  });
}

bool is_on_a_device(const Unit& agreed) {
  return std::any_of(agreed.tensors.begin(), agreed.tensors.end(),
                     [](const TensorSpec& spec) { return is_on_a_device(spec); });
}

bool is_on_devices(const TensorSpec& agreed) {
  return !agreed.devices.empty() &&
         std::none_of(agreed.devices.begin(), agreed.devices.end(),
                      [](std::int32_t device) { return device == kHostMemory; });
}

}  // namespace kolo::internal
