#include "coordinator/set_orders.h"

#include <string>

namespace kolo::internal {
namespace {

Status bad_order(const std::string& what) {
  return {StatusCode::kInternal,
          "the ordered stream breaks the protocol: " + what + ". All ranks must run the same kolo"};
}

bool makes_set(const UnitOrder& order) {
  return order.unit != nullptr && !order.unit->group &&
         order.unit->tensors.front().kind == OpKind::kCreateSet;
}

}  // namespace

std::uint32_t ended_set(const Item& item) {
  const auto* run = std::get_if<Run>(&item);
  if (run == nullptr || run->units.size() != 1 || run->units.front().unit == nullptr) return 0;
  return ended_set(*run->units.front().unit);
}

Status learn_sets(const Item& item, Topology& topology) {
  const auto* run = std::get_if<Run>(&item);
  if (run == nullptr) return Status::ok();
  for (const UnitOrder& order : run->units) {
    if (makes_set(order) != (order.new_set != 0)) return bad_order("a process set without id");
    if (order.new_set != 0) {
      const auto& shape = order.unit->tensors.front().shape;
      if (order.new_set <= topology.newest_set() || shape.back() >= topology.size()) {
        return bad_order("a process set that cannot be new");
      }
      topology.add_process_set(order.new_set, {shape.begin(), shape.end()});
    }
    const std::uint32_t ended = order.unit == nullptr ? 0 : ended_set(*order.unit);
    if (ended != 0 && (run->units.size() != 1 || !topology.has_set(ended))) {
      return bad_order("the end of no process set");
    }
    if ((ended != 0 || order.new_set != 0) && order.id != 0) {
      return bad_order("a known unit about a process set");
    }
  }
  return Status::ok();
}

}  // namespace kolo::internal
