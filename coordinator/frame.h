// Frame: what one rank says to a linked rank at one moment, and its codec (Protobuf, lite).
//
// Reports go up (facts, toggles, joins, expiries), the ordered stream comes down (items), notices
// go everywhere. decode() accepts only well-formed frames: every number in range, bounded sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "coordinator/payload_book.h"
#include "coordinator/unit.h"

namespace kolo::internal {

struct Fact {
  UnitPtr unit;  // first sight; else null and the id speaks
  std::uint64_t id = 0;
  bool parity = false;
  std::vector<int> ranks;  // empty: the sender
};

struct Toggle {
  std::uint64_t id = 0;
  bool parity = false;
  bool operator==(const Toggle&) const = default;
};

struct Expiry {
  UnitKey key;
  int rank = 0;
  // Of a submission through a slot: SlotMark::word(). The word of its end may overtake this one,
  // and the next one of its name must not meet it.
  std::uint64_t mark = 0;
};

struct Joined {
  std::uint32_t process_set = 0;
  int rank = 0;
};

struct UnitOrder {
  std::uint64_t id = 0;  // 0: not cached
  UnitPtr unit;          // on the wire only when the id is new or 0
  bool first_sight = false;
  std::vector<int> absent;                 // joined ranks, which give the neutral element
  std::vector<std::string> payloads = {};  // of all ranks of the set, by rank; else empty
  std::optional<std::uint32_t> slot = {};  // first sight: where it is published from now on
  bool inlined = false;                    // ... with its bytes
  std::uint32_t new_set = 0;               // of a unit that creates a process set: its id
  OrderCounts counts = {};
};

struct Run {
  std::vector<UnitOrder> units;
  // Each cut is one fused operation: places among the run's tensors, counted over its units.
  std::vector<std::vector<std::uint32_t>> cuts;
};
struct Failure {
  UnitKey key;
  std::vector<int> ranks;  // whose submission fails
  Status status;
};
struct Evict {
  std::uint64_t id = 0;
  // Of a unit with a slot: whose submission under way counts, as if made in full. That of the
  // others does not; they make it again.
  std::vector<int> taken = {};
};
struct JoinDone {
  std::uint32_t process_set = 0;
  int last_rank = 0;
};
using Item = std::variant<Run, Failure, Evict, JoinDone>;

struct Notice {
  enum class Kind : std::int32_t { kAbort = 0, kLost = 1, kGoodbye = 2 };
  Kind kind = Kind::kAbort;
  int rank = 0;
  std::string text;
  // Goodbye: how many runs of each process set the rank has taken part in, and will finish; or, of
  // sets without it, has followed and passed on.
  // Lost: the process sets that end with the rank although they do not depend on it, as they were
  // about to be made or ended by the world, which is no more.
  std::map<std::uint32_t, std::uint64_t> through;
};

struct Frame {
  std::uint64_t generation = 0;
  std::vector<Fact> facts;
  std::vector<Payload> payloads;  // heard before the toggles
  std::vector<Toggle> toggles;
  std::vector<Joined> joined;
  std::vector<Expiry> expired;
  std::vector<Item> items;
  std::vector<Notice> notices;
  // How many the sender has followed, with everything above said before: of the host's sequencer,
  // and of the root's (of which a leader speaks for its host). 0 says nothing.
  std::uint64_t host_evictions = 0;
  std::uint64_t root_evictions = 0;

  [[nodiscard]] bool empty() const {
    return facts.empty() && payloads.empty() && toggles.empty() && joined.empty() &&
           expired.empty() && items.empty() && notices.empty();
  }
};

[[nodiscard]] std::string encode(const Frame& frame);
// INVALID_ARGUMENT for anything that encode() cannot have written.
[[nodiscard]] Result<Frame> decode(std::string_view bytes);

}  // namespace kolo::internal
