// The life of a negotiator that receives control frames from a peer as leader, as root and as
// member. Nothing may crash, hang or throw; what is wrong is a Status, after which the context
// is broken.
//
// Input: a byte that picks the rank; records of one choice byte, two length bytes and a frame. A
// choice may also put a frame's bytes through decode and encode, give it the right generation and
// shift its numbers, so that deep states are reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/negotiator.h"

namespace kolo::internal {
namespace {

constexpr int kRanks = 5;

Topology topology_of_test() {
  Topology topology({0, 0, 1, 1, 2});
  topology.add_process_set(1, {0, 1});
  topology.add_process_set(2, {1, 2, 3});
  topology.add_process_set(3, {2, 3});
  return topology;
}

UnitPtr unit_named(char letter, std::uint32_t set) {
  auto unit = std::make_shared<Unit>();
  unit->key = {set, std::string(1, letter)};
  TensorSpec spec;
  spec.name = unit->key.name;
  spec.count = 4;
  spec.shape = {4};
  unit->tensors = {spec};
  return unit;
}

// Units about process sets, and one with numbers of each rank's own.
UnitPtr unit_of_kind(OpKind kind, const std::string& name, std::vector<std::int64_t> shape) {
  auto unit = std::make_shared<Unit>(*unit_named('c', 0));
  TensorSpec& spec = unit->tensors.front();
  unit->key.name = spec.name = name;
  spec.kind = kind;
  spec.open = kind == OpKind::kAllgather;
  spec.shape = std::move(shape);
  return unit;
}

UnitPtr unit_on_device(std::int32_t device) {
  auto unit = std::make_shared<Unit>(*unit_named('g', 0));
  unit->tensors.front().device = device;
  return unit;
}

// What a rank submits over and over; made once, as most inputs are short.
struct Submissions {
  std::vector<UnitPtr> with_payload;
  std::vector<UnitPtr> without;
};

Submissions submissions_of(int rank) {
  Submissions made;
  const Topology topology = topology_of_test();
  for (const std::uint32_t set : topology.set_ids()) {
    if (!topology.in_set(set, rank)) continue;
    for (const char letter : {'a', 'b'}) made.with_payload.push_back(unit_named(letter, set));
  }
  made.without = {unit_of_kind(OpKind::kCreateSet, "#pset:a", {0, 1, 2}),
                  unit_of_kind(OpKind::kDestroySet, "#destroy:1", {1}),
                  unit_of_kind(OpKind::kAllgather, "c", {4}), unit_on_device(rank)};
  return made;
}

// The same frame as a peer could have made it, with ranks and ids in reach.
std::string adapt(Frame frame, int from, unsigned choice) {
  frame.generation = 1;
  for (Fact& fact : frame.facts) {
    for (int& rank : fact.ranks) rank %= kRanks;
    if ((choice & 8) != 0) fact.ranks = {from};
    if (fact.unit == nullptr) fact.id %= 16;
  }
  for (Payload& payload : frame.payloads) {
    payload.id %= 16;
    payload.rank = (choice & 8) != 0 ? from : payload.rank % kRanks;
  }
  for (Toggle& toggle : frame.toggles) toggle.id %= 16;
  for (Joined& joined : frame.joined) joined.rank = from;
  for (Expiry& expiry : frame.expired) expiry.rank = from;
  for (Notice& notice : frame.notices) notice.rank %= kRanks;
  for (Item& item : frame.items) {
    if (auto* run = std::get_if<Run>(&item)) {
      for (UnitOrder& order : run->units) {
        if (order.unit || order.id % 16 != 0) order.id %= 16;
      }
      if ((choice & 16) != 0) run->cuts.clear();
    }
    if (auto* evict = std::get_if<Evict>(&item)) evict->id %= 16;
  }
  return encode(frame);
}

bool ends_a_submission(const Action& action) {
  return std::holds_alternative<Execute>(action) || std::holds_alternative<Finish>(action);
}

void check_rank(int rank, std::string_view input) {
  static const Topology topology = topology_of_test();
  static const Submissions submissions[] = {submissions_of(0), submissions_of(1), submissions_of(2),
                                            submissions_of(3)};
  const Submissions& mine = submissions[rank];
  Negotiator negotiator(topology, rank, 1, {.cache_capacity = 2, .fusion = {}});
  Ticket ticket = 0;
  Nanos now{0};
  const auto submit_all = [&] {  // those that are under way are refused
    for (const UnitPtr& unit : mine.with_payload) {
      std::string payload(16, unit->key.name.front());
      static_cast<void>(negotiator.submit(++ticket, unit, now + 1ms, std::move(payload)).is_ok());
    }
    for (const UnitPtr& unit : mine.without) {
      static_cast<void>(negotiator.submit(++ticket, unit, kNever).is_ok());
    }
  };
  submit_all();
  static_cast<void>(negotiator.drain(now));
  while (input.size() >= 3) {
    const auto choice = static_cast<unsigned char>(input[0]);
    const std::size_t stated = std::size_t{static_cast<unsigned char>(input[1])} * 256 +
                               static_cast<unsigned char>(input[2]);
    const std::size_t size = std::min(stated, input.size() - 3);
    const std::string_view bytes = input.substr(3, size);
    input.remove_prefix(3 + size);
    const int from = (rank + 1 + choice % (kRanks - 1)) % kRanks;
    const Result<Frame> frame = decode(bytes);
    const bool adapted = frame.is_ok() && (choice & 128) == 0;
    const std::string sent = adapted ? adapt(*frame, from, choice) : std::string(bytes);
    now += 100us;
    if (const Status status = negotiator.receive(from, sent, now); !status) {
      negotiator.fail(status);
    }
    negotiator.tick(now);
    const std::vector<Action> actions = negotiator.drain(now);
    if (!negotiator.broken().is_ok()) return;
    if (std::ranges::any_of(actions, ends_a_submission)) submit_all();
  }
}

}  // namespace
}  // namespace kolo::internal

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  kolo::internal::check_rank(input[0] & 3, input.substr(1));
  return 0;
}
