// PayloadBook: the bytes of small cached units that came along with the word of their readiness.
//
// When every rank of a unit has sent its payload, the order carries them all and the unit completes
// where it is ordered: no data connection is used. Opaque bytes here; levels, as toggles are: a
// payload belongs to one parity of its rank and id, and the next toggle takes it back. Stale ones
// are dropped before they come here. Pure state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/placement.h"
#include "coordinator/unit.h"

namespace kolo::internal {

inline constexpr std::size_t kPayloadBytesMax = 40;  // of one rank

struct Payload {
  std::uint64_t id = 0;
  bool parity = false;
  int rank = 0;
  std::string bytes;
};

// Whether bytes of this unit may travel with the word that it is ready: a single tensor of which
// every rank gives `count` elements, or one of them does, and all that it takes to have the result.
[[nodiscard]] inline bool has_payloads(const Unit& unit) {
  if (unit.group) return false;
  const TensorSpec& spec = unit.tensors.front();
  switch (spec.kind) {
    case OpKind::kAllreduce: return spec.op != ReduceOp::kAdasum;
    case OpKind::kAllgather: return !spec.open && spec.counts.empty();
    case OpKind::kBroadcast:
    case OpKind::kBarrier: return true;
    case OpKind::kReduceScatter:  // each rank gives `count` elements for every rank
    case OpKind::kAlltoall:       // the same
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  return false;
}

// Whether that many bytes are what `rank` contributes to the unit; only the root of a broadcast has
// something to give.
[[nodiscard]] inline bool payload_fits(const Unit& unit, int rank, std::size_t bytes) {
  if (!has_payloads(unit)) return false;
  const TensorSpec& spec = unit.tensors.front();
  const bool contributes = spec.kind != OpKind::kBroadcast || spec.root == rank;
  return bytes == (contributes ? spec.count * element_bytes(spec.dtype) : 0);
}

// Whether they do: they are few, and the unit comes again.
[[nodiscard]] inline bool payload_may_travel(const Unit& unit) {
  if (!has_payloads(unit) || !unit.is_cacheable()) return false;
  const TensorSpec& spec = unit.tensors.front();
  if (spec.device != kHostMemory || is_on_a_device(spec)) return false;
  return spec.count <= kPayloadBytesMax / element_bytes(spec.dtype);
}

class PayloadBook {
 public:
  // For the round of the id that is not ordered yet; heard again it changes nothing.
  void add(Payload payload) { of_id_[payload.id][payload.rank] = std::move(payload.bytes); }
  void forget(std::uint64_t id) { of_id_.erase(id); }

  // A round ends: the payloads of `ranks`, in that order; nothing unless each has one. Either way
  // what is here of the id belonged to this round, and is forgotten.
  std::optional<std::vector<std::string>> take(std::uint64_t id, const std::vector<int>& ranks) {
    const auto found = of_id_.extract(id);
    if (found.empty()) return std::nullopt;
    std::vector<std::string> payloads;
    payloads.reserve(ranks.size());
    for (const int rank : ranks) {
      const auto entry = found.mapped().find(rank);
      if (entry == found.mapped().end()) return std::nullopt;
      payloads.push_back(std::move(entry->second));
    }
    return payloads;
  }

 private:
  std::unordered_map<std::uint64_t, std::map<int, std::string>> of_id_;
};

}  // namespace kolo::internal
