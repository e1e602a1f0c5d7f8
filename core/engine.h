// Engine: the control body of a context. Takes what callers have queued, speaks with the other
// ranks through the negotiator, and hands ordered operations to the executor.
//
// Where the ranks of the host share memory, known units go through slots: callers publish them
// (core/unit_table.h), and the engine completes them, orders them on the leader, and follows the
// host's log.
//
// A rank that has ended is lost with the process sets that depend on it. What shows that may be a
// consequence of another loss, or of kolo_abort() somewhere, whose news is still on its way: then
// it is only suspected for a moment.
//
// tick() never blocks. Threads: the driver only, but for complete_inline().
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "coordinator/liveness.h"
#include "coordinator/negotiator.h"
#include "core/completions.h"
#include "core/executor.h"
#include "core/process_sets.h"
#include "core/set_roads.h"
#include "core/tensor_queue.h"
#include "core/unit_table.h"
#include "transport/control_link.h"
#include "transport/window.h"

namespace kolo::internal {

class Engine final : private SlotUser {
 public:
  struct Parts {  // all outlive the engine
    TensorQueue& queue;
    UnitTable& units;
    Completions& completions;
    Executor& executor;
    ControlLink& link;
    Logger& logger;
    ProcessSets& sets;
    SetRoads& roads;
    RequestPool& requests;
    Window* window = nullptr;    // of this host's ranks; null: they share nothing
    SlotBoard* board = nullptr;  // in the window
    Witness* witness = nullptr;  // of this host's ranks; the window, or null
    // Others have brought this context to harm: the rank that was lost, or -1; why. May be null.
    std::function<void(int, const std::string&)> on_harm = {};
  };

  struct Options {
    SequencerOptions sequencer;
    Nanos peer_timeout = 5s;
    std::vector<std::string> host_names;  // by rank, for people
  };

  Engine(const Topology& topology, int rank, std::uint64_t generation, const Options& options,
         const Parts& parts, Nanos now);

  void set_trace(Trace* trace) { trace_ = trace; }

  // One pass over everything that is there now; over the control link only if `link_may_have_news`.
  // True if anything moved.
  bool tick(Nanos now, bool link_may_have_news);
  // A request that was published in its slot: ends it if all ranks have published. Any thread.
  bool complete_inline(const RequestPtr& request);
  // An error of the executor: the context ends with it, and the other ranks are told.
  void fail(const Status& cause, Nanos now);
  // Ends everything here with `cause`, and nothing else.
  void break_with(const Status& cause);
  // The same for what a farewell has not brought to its end, and for what is still in the queue;
  // tick() must not be called any more. False: there was nothing.
  bool cut_off(const Status& cause, Nanos now);

  // Control frames that this rank has sent, heartbeats apart. Any thread.
  [[nodiscard]] std::uint64_t frames_sent() const {
    return frames_sent_.load(std::memory_order_relaxed);
  }

  // When tick() has something to do without any event, at the latest.
  [[nodiscard]] Nanos next_deadline(Nanos now) {
    return std::min({next_due(now), liveness_.next_deadline(), parts_.units.next_deadline(),
                     next_verdict(), leave_by_});
  }
  [[nodiscard]] const Status& broken() const { return negotiator_.broken(); }
  // Some rank (perhaps this one) has said goodbye, or is lost.
  [[nodiscard]] bool leaving() const { return leaving_; }
  // Nothing is to be waited for from that rank.
  [[nodiscard]] bool is_out_of_reach(int rank) const { return negotiator_.is_out_of_reach(rank); }
  [[nodiscard]] bool said_goodbye() const { return said_goodbye_; }
  // That rank has taken leave, and nothing here needs it, or ever will: other operations may be
  // under way.
  [[nodiscard]] bool is_done_with(int rank) const {
    return left_ranks_.contains(rank) && left_sets_.empty();
  }
  // Others' operations need this rank, although none of its own are under way.
  [[nodiscard]] bool serves_others() const { return !joins_.empty(); }

 private:
  bool take_commands(Nanos now);
  bool take_events(Nanos now);
  bool act(Nanos now);
  void keep_time(Nanos now);
  void watch_liveness(Nanos now);
  void lose(int rank, const std::string& how);
  bool watch_for_deaths(Nanos now);
  void find_ended(int rank, const std::string& how, Nanos now);
  void suspect(int rank, const std::string& how, Nanos now);
  void judge(Nanos now);
  void judge_stuck(Nanos now);
  [[nodiscard]] Nanos next_verdict() const;
  [[nodiscard]] int place_on_host(int rank) const;
  [[nodiscard]] bool has_died(int rank) const;
  [[nodiscard]] int harm_of(int rank) const;
  [[nodiscard]] bool has_done_its_part(int rank) const;
  void show_harm();
  void close_set(const SetClosed& closed);
  void drop_left_sets();
  bool take_leave(Nanos now);
  // Once its time has come, the negotiator may name a later one: what it said first counts.
  Nanos next_due(Nanos now) { return due_ = std::min(due_, negotiator_.next_deadline(now)); }
  void submit(RequestPtr request, Nanos now);
  void join(RequestPtr request);
  void end_join(std::uint32_t process_set, const Status& status, int last_rank);
  void execute(Plan plan, Nanos now);
  RequestPtr begin_planned(const PlannedUnit& planned, Nanos now);
  bool allocate_output(const RequestPtr& request);
  RequestPtr stand_in(const PlannedUnit& planned);
  void change_sets(const PlannedUnit& planned, std::int32_t* number);
  void finish(Ticket ticket, const Status& status);

  // Slots.
  bool run_slots(Nanos now);
  void wake_laggards();
  void take_ordered(const LogEntry& entry);
  void enqueue_group(const RequestPtr& group, std::uint64_t run);
  void end_published(std::optional<std::uint32_t> process_set, const Status& status);
  void learned(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit) override;
  std::optional<SlotSubmission> forgotten(std::uint64_t id, const UnitKey& key) override;
  [[nodiscard]] bool awaits_eviction(std::uint32_t process_set) const override {
    return parts_.units.awaits_eviction(process_set);
  }

  Topology topology_;
  int rank_;
  Negotiator negotiator_;
  std::vector<std::string> host_names_;
  Liveness liveness_;
  Parts parts_;
  Trace* trace_ = nullptr;
  std::unordered_map<Ticket, RequestPtr> negotiating_;
  std::map<std::uint32_t, RequestPtr> joins_;  // by process set
  struct Suspicion {
    int rank = 0;
    std::string how;
    Nanos until{0};
  };
  std::vector<Suspicion> suspicions_;
  Nanos next_look_{0};
  Nanos next_listen_{0};
  int ticks_ = 0;
  Nanos due_ = kNever;  // the earliest time that the negotiator has asked for since its last tick
  std::set<int> left_ranks_;              // they have taken leave, and their sets are closed here
  std::vector<std::uint32_t> left_sets_;  // closed, but operations of theirs still run
  Nanos leave_by_ = kNever;               // this rank wants to take leave, by then at the latest
  bool leaving_ = false;
  bool said_goodbye_ = false;
  bool harm_shown_ = false;
  bool broken_here_ = false;  // by this rank's own failure, or its kolo_abort()
  std::atomic<std::uint64_t> frames_sent_{0};
  UnitTable::Use gather_;                              // how an inline unit gets its result
  std::vector<int> board_ranks_;                       // of the job, by place on this host
  std::map<std::uint32_t, std::vector<int>> members_;  // of process sets, as ranks of the board
  FusionPlanner group_planner_;
  std::vector<FusionItem> group_items_;  // scratch
  OrderedOperation* cut_ = nullptr;      // being put together from the log
  std::uint64_t cut_run_ = 0;
};

}  // namespace kolo::internal
