// The sequencer's part in what concerns a process set as a whole: the end of a join, its own end.
#include "coordinator/sequencer.h"

namespace kolo::internal {

// What was cached while some ranks had joined has no slot: it is forgotten, and gets one when it
// comes again.
void Sequencer::end_joins(std::vector<Item>& items) {
  for (const JoinDone& done : std::exchange(join_ends_, {})) {
    items.emplace_back(done);
    if (slots_ == nullptr) continue;
    for (const ResponseCache::Cached& cached : cache_.of_set(done.process_set)) {
      if (slots_->has(cached.id) || cached.unit->tensors.empty()) continue;
      evict(cached, table_.find(cached.unit->key), items);
    }
  }
}

std::vector<Item> Sequencer::end_set(std::uint32_t process_set, Nanos now) {
  std::vector<Item> items = drain(now);
  end_set(process_set, items, now);
  return items;
}

//   1. The slots of the set are closed: what all its ranks have submitted there is complete.
//   2. What is complete is ordered, and cached no more.
//   3. Its ids are evicted.
//   4. What some ranks have not submitted is forgotten: where the order says that the set has
//      ended, every rank gives its part of that up.
void Sequencer::end_set(std::uint32_t process_set, std::vector<Item>& items, Nanos now) {
  if (slots_ != nullptr) {
    for (const std::uint64_t id : slots_->ids_of_set(process_set)) {
      close_slot(*cache_.find(slots_->unit_of(id)->key), items, now);
    }
  }
  ending_ = process_set;
  order_ready(items, now);
  ending_.reset();
  for (const ResponseCache::Cached& cached : cache_.of_set(process_set)) {
    evict(cached, nullptr, items);
  }
  forget_set(process_set);
}

// Its ids stay cached until they are the ones least recently used: nobody asks for them.
void Sequencer::forget_set(std::uint32_t process_set) {
  const auto is_of_set = [&](const UnitKey& key) { return key.process_set == process_set; };
  table_.forget_set(process_set);
  std::erase_if(ready_, is_of_set);
  std::erase_if(owed_, [&](const auto& owed) { return is_of_set(owed.first); });
  std::erase_if(join_ends_, [&](const JoinDone& done) { return done.process_set == process_set; });
  joined_.erase(process_set);
  if (slots_ != nullptr) slots_->forget_set(process_set);
}

}  // namespace kolo::internal
