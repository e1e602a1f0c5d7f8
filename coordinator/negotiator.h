// Negotiator: one rank's part in the agreement on what runs when. Composes the roles that this
// rank has (member; leader of its host; root of the job) and routes between them and the links.
//
// Pure: events go in through the calls below, actions come out of drain(). No thread, lock, socket
// or clock; one user at a time. The same events give the same actions.
//
//   member --report--> leader --report--> root        facts, toggles, joins, expiries
//   member <--items--- leader <--items--- root        the ordered stream
//
// The leader merges the root's stream with its own host-only runs into the host's sequence.
//
// Process sets come and go with the stream: each role knows a set from the order that makes it
// until it has dealt with the one that ends it. What is reported of it later is dropped.
//
// A rank that is lost takes the process sets along that depend on it, everywhere and at once; the
// others live on. From then on nothing that it says or writes counts, and nothing waits for it. The
// news goes to every link, so that whoever holds a set to be closed has told its other ranks. That
// rank itself, if it lives, hears that it has been given up, and its context is broken.
//
// Where the ranks of the host share a slot board, that sequence is its log: known units stand in it
// by slot, and everything else as "an item that comes by frame". Then nothing is followed before
// the log says so: follow_log().
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "coordinator/leader.h"
#include "coordinator/member.h"
#include "coordinator/membership.h"
#include "coordinator/sequencer.h"
#include "coordinator/slot_board.h"
#include "coordinator/slot_leader.h"
#include "coordinator/topology.h"

namespace kolo::internal {

struct SendFrame {
  int rank = 0;
  std::string bytes;
  bool heartbeat = false;  // it says nothing but that this rank is alive
};
struct Execute {
  Plan plan;
};
struct Finish {  // a submission ends without having run
  Ticket ticket = 0;
  Status status;
};
struct Warn {
  std::string text;
};
struct JoinEnded {
  std::uint32_t process_set = 0;
  int last_rank = 0;
};
// `rank` leaves or is lost, and `process_set` ends with it: runs beyond `through` will not be
// complete.
struct SetClosed {
  int rank = 0;
  std::uint32_t process_set = 0;
  std::uint64_t through = 0;
  Status status;
};
// The context is broken: everything under way ends with this status.
struct Broken {
  Status status;
};
using Action = std::variant<SendFrame, Execute, Finish, Warn, JoinEnded, SetClosed, Broken>;

// Where the ranks of a host share memory: its board, and this rank's use of it. Both outlive the
// negotiator.
struct HostSlots {
  SlotBoard* board = nullptr;
  SlotUser* user = nullptr;
};

class Negotiator {
 public:
  Negotiator(Topology topology, int rank, std::uint64_t generation, const SequencerOptions& options,
             const HostSlots& slots = {});
  Negotiator(const Negotiator&) = delete;  // its roles refer to its topology
  Negotiator& operator=(const Negotiator&) = delete;

  // This rank's program. An error concerns the call and leaves no trace.
  // `payload`: see Member::submit.
  Status submit(Ticket ticket, UnitPtr unit, Nanos deadline,
                std::optional<std::string> payload = std::nullopt);
  // Tells the others of a submission that was refused here, so that theirs fails too.
  void refuse(UnitPtr unit);
  // Some of them do not know yet.
  [[nodiscard]] bool has_refused() const { return member_.has_refused(); }
  // False: it cannot, as submit() would say of an operation of that set; nothing follows.
  bool join(std::uint32_t process_set);
  void abort(const std::string& reason);
  void goodbye();

  // The links. An error breaks the context (the caller passes it to fail()).
  Status receive(int from, std::string_view bytes, Nanos now);
  void peer_lost(int rank, const std::string& how);  // "on host b is lost: ..."
  // No news from or of it is waited for, nor is any sent there: it is lost itself, or the leader
  // through which it speaks.
  [[nodiscard]] bool is_out_of_reach(int rank) const {
    return membership_.is_lost(rank) || membership_.is_lost(topology_.leader_of(rank));
  }
  // Of the loss that this rank has heard of first; null: of none.
  [[nodiscard]] const Membership::Loss* first_loss() const {
    return membership_.lost().empty() ? nullptr : &membership_.lost().front();
  }
  [[nodiscard]] bool is_lost(int rank) const { return membership_.is_lost(rank); }
  [[nodiscard]] bool has_left(int rank) const { return membership_.has_left(rank); }
  // This rank itself can go on no more: tells the others.
  void fail(const Status& cause);
  void tick(Nanos now);
  // Says to every linked rank that this one is alive.
  void beat();

  // The time limit of a submission through a slot has passed.
  void expire_slot(const UnitKey& key, SlotMark mark) { member_.expire(key, mark); }

  // Orders what has been announced on the board. True if anything moved.
  bool order_slots(Nanos now);
  // One step of the host's log.
  enum class Step {
    kNone,  // nothing more now
    kItem,  // an item was followed: its actions are to be drained before the next step
    kSlot,  // `entry` is ordered here
  };
  Step follow_log(LogEntry& entry);
  // Of ordered slots: the number of their fused operation among the runs of the process set; 0: not
  // for this rank.
  std::uint64_t count_run(std::uint32_t process_set) { return member_.count_run(process_set); }

  // What follows from all that: to be called after any of the above, until it returns nothing.
  [[nodiscard]] std::vector<Action> drain(Nanos now);
  // When tick() has something to do, at the latest.
  [[nodiscard]] Nanos next_deadline(Nanos now) const;
  [[nodiscard]] const Status& broken() const { return membership_.broken(); }

 private:
  Status check_open(std::uint32_t process_set, const std::string& what) const;
  Status check_frame(int from, const Frame& frame) const;
  Status take_member_report(int from, const Frame& report, Nanos now);
  Status take_host_report(int from, const Frame& report, Nanos now);
  Status follow(const Item& item);
  Status merge(const Item& item, bool from_root, Nanos now);
  Status end_set(std::uint32_t process_set);
  void hear(const Notice& notice, int from);
  void give_up(const std::function<bool(std::uint32_t)>& concerned, const Status& cause);
  void spread(const Notice& notice, int except);
  void ignore_on_board(int rank);
  void rank_leaves(const Notice& notice);
  void hear_loss(const Notice& notice, int from);
  void close_sets(const Notice& notice, bool rank_is_news, const Status& cause);
  void close_made(const std::vector<std::uint32_t>& sets);
  void spoil(const std::vector<std::uint32_t>& sets);
  void close(int rank, std::uint32_t process_set, std::uint64_t through, const Status& cause);
  bool route_once(Nanos now);
  // After its farewell a sequencer orders nothing more, so that all who follow it stop alike.
  [[nodiscard]] bool orders() const {
    return membership_.broken().is_ok() && !membership_.has_left(rank_);
  }
  void flush_frames();
  Frame& frame_to(int rank);
  void hear_evictions(int from, const Frame& frame);
  [[nodiscard]] std::uint64_t followed_by_host(bool of_host) const;
  void acknowledge();
  void hold(const Item& item);
  void append_markers();

  Topology topology_;  // as far as the order has passed here; a member's stays as it was
  Topology followed_;  // as far as this rank has followed
  int rank_;
  int leader_;
  std::vector<int> host_ranks_;  // of this rank's host
  std::vector<int> leaders_;
  Membership membership_;
  Member member_;
  SlotBoard* board_;
  std::unique_ptr<SlotLeader> slot_leader_;    // on the leader of a host with a board
  std::unique_ptr<Leader> leader_role_;        // on the leader of a host
  std::unique_ptr<Sequencer> host_sequencer_;  // on the leader of a host
  std::unique_ptr<Sequencer> root_sequencer_;  // on the root
  std::map<int, Frame> outgoing_;              // by linked rank
  std::vector<Action> actions_;
  // Leader: the evictions that each of its members has followed, of the root's and of its own ids;
  // root: those of its own that each other host has.
  std::map<int, std::array<std::uint64_t, 2>> followed_by_member_;
  std::map<int, std::uint64_t> followed_by_leader_;
  // The farewell of another rank, and what is to be followed first: that rank has taken part in it,
  // but frames and log come by different ways.
  struct Leaving {
    Notice notice;
    std::uint64_t log_entries = 0;
    std::uint64_t items = 0;
  };
  std::deque<Leaving> leaving_;
  // The process sets that ended last, whose operations may still run: some, for who leaves.
  std::deque<std::pair<std::uint32_t, std::vector<int>>> ended_;
  std::map<std::uint32_t, Status> why_closed_;  // by process set: the first cause
  std::set<std::uint32_t> spoilt_;              // sets that end although no rank of theirs is gone
  std::uint64_t items_held_ = 0;                // ever
  std::uint64_t items_followed_ = 0;            // of them
  std::deque<Item> held_;                       // by frame; followed when the log says so
  std::deque<std::uint64_t>
      markers_;  // leader: items that the log has no room for; evicted id or 0
};

}  // namespace kolo::internal
