// The negotiator's part where the ranks of the host share a slot board: the host's log.
#include "coordinator/negotiator.h"

namespace kolo::internal {

void Negotiator::hold(const Item& item) {
  held_.push_back(item);
  ++items_held_;
}

void Negotiator::append_markers() {
  while (!markers_.empty() && board_->log_room() > 0) {
    board_->append({});
    if (markers_.front() != 0) slot_leader_->closed_in_log(markers_.front());
    markers_.pop_front();
  }
}

bool Negotiator::order_slots(Nanos now) {
  if (slot_leader_ == nullptr || !membership_.broken().is_ok()) return false;
  bool moved = slot_leader_->collect(now);
  append_markers();
  if (markers_.empty() && orders()) moved = slot_leader_->order() || moved;
  return board_->flush_log() || moved;
}

Negotiator::Step Negotiator::follow_log(LogEntry& entry) {
  if (board_ == nullptr || !membership_.broken().is_ok()) return Step::kNone;
  if (membership_.is_lost(leader_)) return Step::kNone;  // what its log shows does not count
  if (!leaving_.empty() && board_->followed_count() >= leaving_.front().log_entries &&
      items_followed_ >= leaving_.front().items) {
    rank_leaves(leaving_.front().notice);
    leaving_.pop_front();
    return Step::kItem;
  }
  const auto next = board_->next_entry();
  if (!next) return Step::kNone;
  if (next->id != 0) {
    board_->followed();
    entry = *next;
    return Step::kSlot;
  }
  if (held_.empty()) return Step::kNone;  // its frame is on the way
  const Status status = follow(held_.front());
  held_.pop_front();
  ++items_followed_;
  board_->followed();
  if (!status) fail(status);
  return Step::kItem;
}

}  // namespace kolo::internal
