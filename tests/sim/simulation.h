// Simulation: one seed, one run: real negotiators on a virtual network and clock, with invariants.
//
// Ranks of a host share memory in most runs, where known units go through slots. A random program
// runs on them; every second seed has a fault on the way. A lost rank (sometimes two) takes process
// sets along, and the others go on to the end of the program; after that, or an abort, the
// survivors reform into the next generation and run another program. One thread.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/negotiator.h"
#include "tests/sim/executor.h"
#include "tests/sim/network.h"
#include "tests/sim/program.h"
#include "tests/sim/slots.h"

namespace kolo::internal {

struct RunReport {
  std::string invariant;  // empty: all held
  std::string text;
  std::size_t ops = 0;
  std::size_t frames = 0;
  std::size_t cuts = 0;
  std::size_t fused_cuts = 0;
  std::size_t payload_units = 0;
  std::size_t inline_units = 0;
  std::size_t log_units = 0;
  std::vector<std::string> trace;
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, bool trace);
  RunReport run();

 private:
  enum class Fault { kNone, kKill, kFreeze, kAbort, kLeave };
  struct Command {
    Ticket ticket = 0;  // 0: a refused unit
    UnitPtr unit;
    Nanos deadline = kNever;
    std::optional<std::string> payload = {};
  };
  // One rank, through the generations.
  struct Node {
    int rank = 0;
    std::uint64_t generation = 0;
    SlotBoard* board = nullptr;  // null: this host's ranks share nothing
    std::unique_ptr<SlotTable> slots;
    std::unique_ptr<Negotiator> negotiator;  // after the slots, which it uses
    std::vector<Command> commands;           // of the program, not taken yet
    std::size_t step = 0;                    // of the rank's script
    std::map<UnitKey, Ticket> open;
    std::set<std::uint32_t> joining;
    std::set<std::uint32_t> closed;  // some rank has left, or is lost
    std::set<std::uint32_t> made;    // by the program
    std::set<std::uint32_t> ended;   // destroyed
    std::map<std::uint32_t, std::size_t> joins_ended;
    Nanos tick_at = kNever;
    Nanos sleeps_until{0};
    bool program_due = false;  // a program event is on its way
    bool drain_due = false;
    bool look_due = false;
    bool dead = false;
    bool frozen = false;
    bool left_behind = false;  // lives on in a generation that the others have left
    std::vector<Event> inbox;  // of a frozen node
  };

  struct OpResult {
    int executed = 0;
    int failed = 0;
    StatusCode code = StatusCode::kOk;
    bool by_payloads = false;  // on some rank
  };
  // What belongs to one generation; a node that is left behind keeps using its own.
  struct Era {
    Program program;
    std::vector<std::vector<Submitted>> submitted;  // by rank
    std::vector<OpResult> results;                  // by op
    std::map<std::pair<std::uint32_t, std::size_t>, int> join_ends;
    std::unique_ptr<Executor> executor;
    std::vector<int> node_of;                         // by rank
    std::vector<std::unique_ptr<SlotBoards>> boards;  // by host; none: memory is not shared
    Nanos look_delay{0};                              // until a rank sees what another has written

    Node& node(std::vector<Node>& nodes, int rank) const {
      return nodes[static_cast<std::size_t>(node_of[static_cast<std::size_t>(rank)])];
    }
    // The rank that a node has in this generation; -1: none.
    [[nodiscard]] int rank_of(int node) const;
    std::vector<Submitted>& submissions(int rank) {
      return submitted[static_cast<std::size_t>(rank)];
    }
  };

  // What a window of a link would now hold: the latest of each.
  struct Published {
    void take_back(const Toggle& toggle, const std::vector<int>* ranks);
    std::map<std::uint64_t, bool> parities;
    std::map<std::pair<std::uint64_t, int>, Payload> payloads;  // by id and rank
  };

  Era& era_of(const Node& node) { return *eras_[static_cast<std::size_t>(node.generation) - 1]; }
  void start_generation(const Topology& topology, const std::vector<int>& nodes);
  void dispatch(const Event& event);
  void handle(const Event& event);
  void deliver(const Event& event);
  void deliver_stale(Node& node, int from, const std::string& bytes);
  void tick(Node& node);
  void reread(int from, int to);
  void strike(int index);
  void lose(Node& victim, Fault how);
  void end_links_of(const Node& victim);
  void thaw(Node& node);
  void consider_reform();
  void reform();

  void run_program(Node& node);
  bool run_step(Node& node, const Step& step);
  bool may_leave(Node& node);
  void submit(Node& node, const Step& step);
  void schedule_program(Node& node, Nanos delay);
  void settle(Node& node);  // drains the negotiator and does what it says
  void settle_soon(Node& node);
  void take_commands(Node& node);
  void negotiate(Node& node, Command command);
  [[nodiscard]] bool is_over(const Node& node);

  void share_memory(Era& era);
  void join_board(Era& era, Node& node);
  bool publish(Node& node, const Command& command);
  void look_soon(Node& node);
  void look_at_slots(Node& node);
  bool follow_log(Node& node);
  void take_ordered(Node& node, LogEntry entry);
  void end_published(Node& node, std::optional<std::uint32_t> process_set, const Status& status);
  void act(Node& node, Action& action);
  void execute(Node& node, Plan& plan);
  void change_set(Node& node, const PlannedUnit& planned);
  void send(Node& node, const SendFrame& frame);
  void check_frame(const Node& from, const Node& to, const std::string& bytes);
  void end_ticket(Node& node, Ticket ticket, const Status& status);
  void check_outcome(const Node& node, const Op& op, const Submitted& submitted,
                     const Status& status);
  void join_ended(Node& node, const JoinEnded& ended);

  void check_end();
  void check_node_end(const Node& node);
  [[nodiscard]] std::string progress_text();
  void set_closed(Node& node, const SetClosed& closed);
  [[nodiscard]] bool is_finished(const Node& node) const;
  [[nodiscard]] std::set<std::uint32_t> unfinished_sets() const;
  // No fault has struck what is done in this process set in the present generation.
  [[nodiscard]] bool is_calm(const Node& node, std::uint32_t process_set) const;
  [[nodiscard]] bool is_survivor(const Node& node) const { return !lost_.contains(index_of(node)); }
  [[nodiscard]] bool is_loss() const { return fault_ == Fault::kKill || fault_ == Fault::kFreeze; }
  [[nodiscard]] int index_of(const Node& node) const {
    return static_cast<int>(&node - nodes_.data());
  }
  [[nodiscard]] std::vector<int> linked_ranks(const Node& node);
  void add_note(const std::string& text);
  template <typename MakeText>
  void note(const MakeText& text) {
    if (tracing_) add_note(text());
  }

  std::uint64_t seed_;
  Rng rng_;
  Network network_;
  Fault fault_ = Fault::kNone;
  bool struck_ = false;
  bool reform_due_ = false;
  bool reformed_ = false;
  Nanos struck_at_{0};
  int victim_ = 0;
  std::set<int> lost_;                  // nodes
  std::set<std::uint32_t> unfinished_;  // sets that may end with the first of them
  std::uint64_t generation_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Era>> eras_;
  std::map<std::pair<int, int>, Published> published_;  // by link
  std::vector<std::string> old_frames_;                 // of an earlier generation
  bool tracing_;
  std::size_t step_ = 0;
  RunReport report_;
};

}  // namespace kolo::internal
