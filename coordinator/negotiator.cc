#include "coordinator/negotiator.h"

#include <algorithm>

#include "base/check.h"
#include "coordinator/set_orders.h"

namespace kolo::internal {
namespace {

// Leaders report late units to the root before the root itself would warn of them.
Nanos leader_patience(const SequencerOptions& options) {
  const Nanos limit = std::min(options.stall_warning, options.stall_abort);
  return limit == kNever ? kNever : limit / 4;
}

// How often the leader of a host looks for late ranks in the slots.
Nanos look_interval(const SequencerOptions& options) {
  const Nanos patience = leader_patience(options);
  return patience == kNever ? kNever : patience / 2;
}

template <typename T>
void append(std::vector<T>&& from, std::vector<T>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

void append_report(Frame&& report, Frame& out) {
  append(std::move(report.facts), out.facts);
  append(std::move(report.payloads), out.payloads);
  append(std::move(report.toggles), out.toggles);
  append(std::move(report.joined), out.joined);
  append(std::move(report.expired), out.expired);
}

Status bad_frame(int from, const char* what) {
  return {StatusCode::kInternal, "control frame from rank " + std::to_string(from) +
                                     " breaks the protocol: " + what +
                                     ". All ranks must run the same kolo"};
}

// Whether the root can have ordered this: ids and process sets of one host are its leader's.
bool crosses_hosts(const Item& item, const Topology& topology) {
  const auto set_crosses = [&](std::uint32_t set) {
    return topology.has_set(set) && !topology.is_host_only(set);
  };
  if (const auto* run = std::get_if<Run>(&item)) {
    return std::all_of(run->units.begin(), run->units.end(), [&](const UnitOrder& order) {
      return (order.id == 0 || !ResponseCache::is_host_id(order.id)) &&
             (!order.unit || set_crosses(order.unit->key.process_set));
    });
  }
  if (const auto* evict = std::get_if<Evict>(&item)) return !ResponseCache::is_host_id(evict->id);
  if (const auto* failure = std::get_if<Failure>(&item)) {
    return set_crosses(failure->key.process_set);
  }
  return set_crosses(std::get<JoinDone>(item).process_set);
}

}  // namespace

Negotiator::Negotiator(Topology topology, int rank, std::uint64_t generation,
                       const SequencerOptions& options, const HostSlots& slots)
    : topology_(std::move(topology)),
      followed_(topology_),
      rank_(rank),
      leader_(topology_.leader_of(rank)),
      host_ranks_(topology_.ranks_of_host(topology_.host_of(rank))),
      leaders_(topology_.leaders()),
      membership_(generation),
      member_(followed_, rank, slots.user),
      board_(slots.board) {
  if (leader_ == rank_) {
    leader_role_ =
        std::make_unique<Leader>(topology_, topology_.host_of(rank_), leader_patience(options));
    if (board_ != nullptr) {
      slot_leader_ = std::make_unique<SlotLeader>(topology_, topology_.host_of(rank_), *board_,
                                                  options.fusion, look_interval(options));
    }
    host_sequencer_ = std::make_unique<Sequencer>(topology_, options, true, slot_leader_.get());
  }
  if (rank_ == Topology::kRoot) {
    root_sequencer_ = std::make_unique<Sequencer>(topology_, options, false);
  }
}

// The context is whole, the process set is this rank's, and all its ranks are there.
Status Negotiator::check_open(std::uint32_t process_set, const std::string& what) const {
  KOLO_RETURN_IF_ERROR(membership_.broken());
  const std::string set = "process set " + std::to_string(process_set);
  if (!followed_.has_set(process_set)) {
    return invalid_argument(what + ": there is no " + set +
                            (followed_.has_ended(process_set) ? " any more" : "") +
                            ". Submit between kolo_pset_create and kolo_pset_destroy");
  }
  if (!followed_.in_set(process_set, rank_)) {
    return invalid_argument(what + ": rank " + std::to_string(rank_) + " is not in " + set +
                            ". Submit on its ranks only");
  }
  if (const auto why = why_closed_.find(process_set); why != why_closed_.end()) return why->second;
  for (const int rank : membership_.left()) {
    if (followed_.depends_on(process_set, rank)) {
      return aborted(what + ": rank " + std::to_string(rank) +
                     " has shut its context down. Submit before any rank calls kolo_shutdown");
    }
  }
  return Status::ok();
}

Status Negotiator::submit(Ticket ticket, UnitPtr unit, Nanos deadline,
                          std::optional<std::string> payload) {
  if (Status status = check_open(unit->key.process_set, unit_text(*unit)); !status) {
    if (!membership_.lost().empty()) spoil({ended_set(*unit)});  // it is done with the set
    return status;
  }
  return member_.submit(ticket, std::move(unit), deadline, std::move(payload));
}

void Negotiator::refuse(UnitPtr unit) {
  if (!check_open(unit->key.process_set, unit_text(*unit))) return;
  // A duplicate means that the name is taken by a live submission: nothing to tell.
  static_cast<void>(member_.submit(0, std::move(unit), kNever).is_ok());
}

bool Negotiator::join(std::uint32_t process_set) {
  if (!check_open(process_set, "join")) return false;
  member_.join(process_set);
  return true;
}

// Whether a peer that knows the protocol can have sent this. A member speaks of itself, the leader
// of another host to the root of the ranks of its host, and orders come from above.
Status Negotiator::check_frame(int from, const Frame& frame) const {
  const auto bad = [from](const char* what) { return bad_frame(from, what); };
  const bool reports = !frame.facts.empty() || !frame.payloads.empty() || !frame.toggles.empty() ||
                       !frame.joined.empty() || !frame.expired.empty();
  const bool from_member = leader_ == rank_ && topology_.leader_of(from) == rank_;
  const bool from_leader = rank_ == Topology::kRoot && topology_.is_leader(from);
  if (reports && !from_member && !from_leader) return bad("a report to the wrong rank");
  const bool from_above =
      from != rank_ && (from == leader_ || (leader_ == rank_ && from == Topology::kRoot));
  if (!frame.items.empty() && !from_above) return bad("an order from the wrong rank");

  const auto speaks_of = [&](int rank) {
    if (from_member) return rank == from;
    return rank < topology_.size() && topology_.host_of(rank) == topology_.host_of(from);
  };
  const auto known = [&](std::uint32_t set, int rank) {
    if (topology_.has_ended(set)) return true;  // it comes too late, and is dropped
    return speaks_of(rank) && topology_.has_set(set) && topology_.in_set(set, rank) &&
           (from_member || !topology_.is_host_only(set));
  };
  for (const Fact& fact : frame.facts) {
    if (!from_member && fact.ranks.empty()) return bad("a fact of no rank");
    if (from_member && !fact.unit) return bad("a fact without unit");
    for (const int rank : fact.ranks) {
      const bool fits = fact.unit ? known(fact.unit->key.process_set, rank) : speaks_of(rank);
      if (!fits) return bad("a rank outside of the process set");
    }
    if (fact.ranks.empty() && !known(fact.unit->key.process_set, from)) {
      return bad("a rank outside of the process set");
    }
  }
  for (const Payload& payload : frame.payloads) {
    if (!speaks_of(payload.rank)) return bad("a payload of another rank");
  }
  for (const Joined& joined : frame.joined) {
    if (!known(joined.process_set, joined.rank)) return bad("a join outside of the process set");
  }
  for (const Expiry& expiry : frame.expired) {
    if (!known(expiry.key.process_set, expiry.rank)) return bad("an unknown process set");
  }
  for (const Notice& notice : frame.notices) {
    if (notice.rank >= topology_.size()) return bad("a rank outside of the job");
  }
  return Status::ok();
}

Status Negotiator::receive(int from, std::string_view bytes, Nanos now) {
  if (membership_.is_lost(from)) return Status::ok();  // it comes too late
  Result<Frame> frame = decode(bytes);
  if (!frame) return frame.status();
  if (!membership_.accepts(frame->generation)) return Status::ok();
  KOLO_RETURN_IF_ERROR(check_frame(from, *frame));
  if (topology_.leader_of(from) == rank_ && leader_ == rank_) {
    KOLO_RETURN_IF_ERROR(take_member_report(from, *frame, now));
  } else if (root_sequencer_) {
    KOLO_RETURN_IF_ERROR(take_host_report(from, *frame, now));
  }
  hear_evictions(from, *frame);
  for (const Item& item : frame->items) {
    if (!membership_.broken().is_ok()) break;
    if (leader_ != rank_ && board_ != nullptr) {
      hold(item);
    } else if (leader_ != rank_) {
      KOLO_RETURN_IF_ERROR(follow(item));
    } else if (crosses_hosts(item, topology_)) {
      KOLO_RETURN_IF_ERROR(merge(item, true, now));
    } else {
      return bad_frame(from, "an order of the root about one host");
    }
  }
  for (const Notice& notice : frame->notices) hear(notice, from);
  return Status::ok();
}

void Negotiator::hear_evictions(int from, const Frame& frame) {
  if (topology_.leader_of(from) == rank_ && leader_ == rank_) {
    auto& followed = followed_by_member_[from];
    followed[0] = std::max(followed[0], frame.root_evictions);
    followed[1] = std::max(followed[1], frame.host_evictions);
  } else if (root_sequencer_) {
    std::uint64_t& followed = followed_by_leader_[from];
    followed = std::max(followed, frame.root_evictions);
  }
}

// Leader: what every rank of this host has followed.
std::uint64_t Negotiator::followed_by_host(bool of_host) const {
  std::uint64_t least = member_.evictions(of_host);
  for (const int rank : host_ranks_) {
    if (rank == rank_ || membership_.is_gone(rank)) continue;
    const auto heard = followed_by_member_.find(rank);
    least =
        std::min(least, heard == followed_by_member_.end() ? 0 : heard->second[of_host ? 1 : 0]);
  }
  return least;
}

void Negotiator::acknowledge() {
  if (!leader_role_) return;
  host_sequencer_->acknowledge(followed_by_host(true));
  std::uint64_t of_root = followed_by_host(false);
  leader_role_->acknowledge(of_root);
  if (!root_sequencer_) return;
  for (const int leader : leaders_) {
    if (leader == rank_ || membership_.is_gone(leader)) continue;
    const auto heard = followed_by_leader_.find(leader);
    of_root = std::min(of_root, heard == followed_by_leader_.end() ? 0 : heard->second);
  }
  root_sequencer_->acknowledge(of_root);
}

// A rank of this host: host-only units to our own sequencer, the others towards the root.
Status Negotiator::take_member_report(int from, const Frame& report, Nanos now) {
  const int self[] = {from};
  for (const Payload& payload : report.payloads) {
    if (ResponseCache::is_host_id(payload.id)) {
      KOLO_RETURN_IF_ERROR(host_sequencer_->add_payload(payload));
    } else {
      KOLO_RETURN_IF_ERROR(leader_role_->add_payload(payload));
    }
  }
  for (const Fact& fact : report.facts) {
    if (topology_.is_over(fact.unit->key.process_set)) continue;
    if (topology_.is_host_only(fact.unit->key.process_set)) {
      host_sequencer_->add(self, fact.unit, now);
    } else {
      leader_role_->add(self, fact.unit, now);
    }
  }
  for (const Toggle& toggle : report.toggles) {
    if (ResponseCache::is_host_id(toggle.id)) {
      KOLO_RETURN_IF_ERROR(host_sequencer_->add_toggle(self, toggle, now));
    } else {
      KOLO_RETURN_IF_ERROR(leader_role_->add_toggle(from, toggle, now));
    }
  }
  for (const Joined& joined : report.joined) {
    if (topology_.is_over(joined.process_set)) continue;
    if (topology_.is_host_only(joined.process_set)) {
      host_sequencer_->add_joined(joined.process_set, from, now);
    } else {
      leader_role_->add_joined(joined.process_set, from);
    }
  }
  for (const Expiry& expiry : report.expired) {
    if (topology_.is_over(expiry.key.process_set)) continue;
    if (topology_.is_host_only(expiry.key.process_set)) {
      host_sequencer_->expire(expiry.key, from, now, SlotMark::of(expiry.mark));
    } else {
      leader_role_->expire(expiry.key, from);
    }
  }
  return Status::ok();
}

// A host's leader, on the root.
Status Negotiator::take_host_report(int from, const Frame& report, Nanos now) {
  const int host = topology_.host_of(from);
  for (const Payload& payload : report.payloads) {
    KOLO_RETURN_IF_ERROR(root_sequencer_->add_payload(payload));
  }
  for (const Fact& fact : report.facts) {
    if (fact.unit) {
      if (topology_.is_over(fact.unit->key.process_set)) continue;
      root_sequencer_->add(fact.ranks, fact.unit, now);
    } else {
      KOLO_RETURN_IF_ERROR(root_sequencer_->add_toggle(fact.ranks, {fact.id, fact.parity}, now));
    }
  }
  for (const Toggle& toggle : report.toggles) {
    KOLO_RETURN_IF_ERROR(root_sequencer_->add_host_toggle(host, toggle, now));
  }
  for (const Joined& joined : report.joined) {
    if (topology_.is_over(joined.process_set)) continue;
    root_sequencer_->add_joined(joined.process_set, joined.rank, now);
  }
  for (const Expiry& expiry : report.expired) {
    if (topology_.is_over(expiry.key.process_set)) continue;
    root_sequencer_->expire(expiry.key, expiry.rank, now);
  }
  return Status::ok();
}

// The host's sequence, as every rank of the host sees it.
Status Negotiator::follow(const Item& item) {
  KOLO_RETURN_IF_ERROR(learn_sets(item, followed_));
  if (const std::uint32_t ended = ended_set(item); ended != 0) {
    KOLO_RETURN_IF_ERROR(end_set(ended));
  }
  std::optional<Plan> plan;
  std::vector<Finished> finished;
  KOLO_RETURN_IF_ERROR(member_.apply(item, plan, finished));
  if (plan) actions_.emplace_back(Execute{*std::move(plan)});
  for (Finished& one : finished) {
    actions_.emplace_back(Finish{one.ticket, std::move(one.status)});
  }
  if (const auto* run = std::get_if<Run>(&item); run != nullptr && !membership_.lost().empty()) {
    // Made by the world after this rank has given its own call up: others may have heard of the set
    // before they heard of the loss, and must not wait for this rank there.
    std::vector<std::uint32_t> made;
    for (const UnitOrder& order : run->units) made.push_back(order.new_set);
    close_made(made);
    spoil(made);
  }
  const auto* done = std::get_if<JoinDone>(&item);
  if (done != nullptr && followed_.in_set(done->process_set, rank_)) {
    actions_.emplace_back(JoinEnded{done->process_set, done->last_rank});
  }
  return Status::ok();
}

// A step of the root's or of our own sequencer: to the members of this host, and to ourselves.
Status Negotiator::merge(const Item& item, bool from_root, Nanos now) {
  KOLO_RETURN_IF_ERROR(learn_sets(item, topology_));
  const std::uint32_t ended = ended_set(item);
  if (ended != 0 && from_root) {
    for (const Item& before : host_sequencer_->end_set(ended, now)) {
      KOLO_RETURN_IF_ERROR(merge(before, false, now));
    }
  }
  if (board_ == nullptr) {
    KOLO_RETURN_IF_ERROR(follow(item));
  } else {
    const auto* evict = std::get_if<Evict>(&item);
    markers_.push_back(evict == nullptr ? 0 : evict->id);
    hold(item);
  }
  if (from_root) leader_role_->observe(item);
  for (const int rank : host_ranks_) {
    if (rank != rank_) frame_to(rank).items.push_back(item);
  }
  if (ended != 0) topology_.end_process_set(ended);
  return Status::ok();
}

// To every linked rank but the one it came from.
void Negotiator::spread(const Notice& notice, int except) {
  for (const int rank : topology_.linked_ranks(rank_)) {
    if (rank != except) frame_to(rank).notices.push_back(notice);
  }
}

void Negotiator::tick(Nanos now) {
  if (!membership_.broken().is_ok()) return;  // nothing waits any more
  member_.tick(now);
  if (leader_role_) leader_role_->tick(now);
  if (host_sequencer_) host_sequencer_->tick(now);
  if (root_sequencer_) root_sequencer_->tick(now);
}

Nanos Negotiator::next_deadline(Nanos now) const {
  if (!membership_.broken().is_ok()) return kNever;
  Nanos next = member_.next_deadline();
  if (leader_role_) next = std::min(next, leader_role_->next_deadline());
  if (host_sequencer_) next = std::min(next, host_sequencer_->next_deadline(now));
  if (root_sequencer_) next = std::min(next, root_sequencer_->next_deadline(now));
  return next;
}

// Moves what the roles have to say one step further. False when all is quiet.
bool Negotiator::route_once(Nanos now) {
  bool moved = false;
  if (Frame report = member_.take_report(); !report.empty()) {
    moved = true;
    if (leader_ == rank_) {
      KOLO_CHECK(take_member_report(rank_, report, now).is_ok());
    } else {
      append_report(std::move(report), frame_to(leader_));
    }
  }
  if (leader_role_) {
    if (Frame report = leader_role_->take_report(); !report.empty()) {
      moved = true;
      if (rank_ == Topology::kRoot) {
        KOLO_CHECK(take_host_report(rank_, report, now).is_ok());
      } else {
        append_report(std::move(report), frame_to(Topology::kRoot));
      }
    }
  }
  if (root_sequencer_) {
    for (const Item& item : root_sequencer_->drain(now)) {
      moved = true;
      if (!orders()) continue;
      for (const int rank : leaders_) {
        if (rank != rank_) frame_to(rank).items.push_back(item);
      }
      KOLO_CHECK(merge(item, true, now).is_ok());
    }
  }
  if (host_sequencer_) {
    for (const Item& item : host_sequencer_->drain(now)) {
      moved = true;
      if (orders()) KOLO_CHECK(merge(item, false, now).is_ok());
    }
  }
  return moved;
}

std::vector<Action> Negotiator::drain(Nanos now) {
  while (route_once(now)) {
  }
  acknowledge();
  for (Sequencer* sequencer : {host_sequencer_.get(), root_sequencer_.get()}) {
    if (sequencer == nullptr) continue;
    for (std::string& text : sequencer->take_warnings()) {
      actions_.emplace_back(Warn{std::move(text)});
    }
  }
  flush_frames();
  return std::exchange(actions_, {});
}

void Negotiator::beat() {
  for (const int rank : topology_.linked_ranks(rank_)) {
    if (membership_.is_lost(rank)) continue;
    Frame frame;
    frame.generation = membership_.generation();
    actions_.emplace_back(SendFrame{rank, encode(frame), true});
  }
}

Frame& Negotiator::frame_to(int rank) { return outgoing_[rank]; }

void Negotiator::flush_frames() {
  for (auto& [rank, frame] : outgoing_) {
    if (membership_.is_lost(rank)) {  // only that it is given up, once
      std::vector<Notice> notices = std::exchange(frame, {}).notices;
      std::erase_if(notices, [lost = rank](const Notice& notice) { return notice.rank != lost; });
      frame.notices = std::move(notices);
    }
    if (frame.empty()) continue;
    frame.generation = membership_.generation();
    if (rank == leader_) {
      frame.host_evictions = member_.evictions(true);
      frame.root_evictions = member_.evictions(false);
    } else if (leader_role_ && rank == Topology::kRoot) {
      frame.root_evictions = followed_by_host(false);
    }
    actions_.emplace_back(SendFrame{rank, encode(frame)});
    frame = {};
  }
}

}  // namespace kolo::internal
