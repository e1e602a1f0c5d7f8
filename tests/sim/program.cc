#include "tests/sim/program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "tests/sim/signatures.h"

namespace kolo::internal {
namespace {

constexpr int kMinOps = 50;
constexpr Nanos kShortLimit = 300us;
constexpr Nanos kLongLimit = 1h;

class Writer {
 public:
  Writer(const Topology& topology, Rng& rng) : rng_(rng), size_(topology.size()) {
    program_.topology = program_.all_sets = topology;
    program_.scripts.resize(static_cast<std::size_t>(size_));
    sets_ = topology.set_ids();
    rounds_ = 4 + rng_.below(rng_.chance(50) ? 4 : 14);
    names_ = rng_.pick(std::vector<int>{3, 5, 8, 8});
    program_.stalls = rng_.chance(15);
    if (rng_.chance(30)) changed_percent_ = mismatch_percent_ = limited_percent_ = 0;
    if (rng_.chance(20)) limited_percent_ = 30;
    for (const std::uint32_t set : sets_) choose_joins(set, 0, rounds_);
    choose_dynamic_sets();
    choose_options();
  }

  Program write() {
    for (int round = 0; round < rounds_; ++round) write_round(round);
    for (auto& script : program_.scripts) {
      script.push_back({.kind = Step::Kind::kWaitAll});
      script.push_back({.kind = Step::Kind::kWaitJoins});
    }
    const int last = add_op(numbered_barrier(), 0, rounds_);
    for (auto& script : program_.scripts) {
      script.push_back({.kind = Step::Kind::kSubmit, .op = last});
      script.push_back({.kind = Step::Kind::kWaitAll});
      script.push_back({.kind = Step::Kind::kSleep, .duration = delay(100us)});
      script.push_back({.kind = Step::Kind::kGoodbye});
    }
    return std::move(program_);
  }

 private:
  Nanos delay(Nanos most) {
    return Nanos(rng_.below(static_cast<std::uint64_t>(most.count()) + 1));
  }

  void choose_options() {
    for (int rank = 0; rank < size_; ++rank) {
      SequencerOptions options;
      options.cache_capacity = rng_.pick(std::vector<std::size_t>{0, 1, 2, 4, 4096, 4096});
      // Ranks differ on purpose: only what a sequencer has cut counts.
      options.fusion.threshold_bytes =
          rng_.pick(std::vector<std::uint64_t>{0, 64, 256, 4096, 64 << 20});
      options.fusion.tensor_bytes = rng_.pick(std::vector<std::uint64_t>{32, 128, 256 << 10});
      if (program_.stalls) {
        options.stall_warning = 2ms;
        options.stall_abort = 8ms;
      }
      program_.options.push_back(options);
    }
  }

  // Some sets have joins, of one or two epochs: a rank joins before the round that is chosen here,
  // among those after `first` and before `end`.
  void choose_joins(std::uint32_t set, int first, int end) {
    if (!rng_.chance(40)) return;
    const int epochs = rng_.chance(50) ? 1 : 2;
    for (int epoch = 0; epoch < epochs && first + 1 < end; ++epoch) {
      const int length = epoch + 1 == epochs ? end - first - 1 : (end - first) / 2;
      if (length == 0) return;
      auto& joins = epochs_[set].emplace_back();
      int last = first;
      for (const int rank : program_.all_sets.ranks_of_set(set)) {
        joins[rank] = first + 1 + rng_.below(length);
        last = std::max(last, joins[rank]);
      }
      first = last;
    }
  }

  [[nodiscard]] std::vector<int> absent_in(std::uint32_t set, int round) const {
    std::vector<int> absent;
    const auto epochs = epochs_.find(set);
    if (epochs == epochs_.end()) return absent;
    for (const auto& joins : epochs->second) {
      absent.clear();
      for (const auto& [rank, joined] : joins) {
        if (joined <= round) absent.push_back(rank);
      }
      if (absent.size() < joins.size()) return absent;
      absent.clear();  // all have joined: the next epoch has begun
    }
    return absent;
  }

  struct DynamicSet {
    std::uint32_t id = 0;
    int made_in = 0;  // round; its operations come later
    int ends_in = 0;
    int make_op = -1;
  };

  // Not where a time limit could hit the making of a set, whose id would then be another one.
  void choose_dynamic_sets() {
    if (program_.stalls) return;
    int round = 0;
    for (int i = rng_.below(4); i > 0; --i) {
      round += rng_.below(3);
      if (round + 2 >= rounds_) return;
      if (!absent_in(0, round).empty()) continue;
      DynamicSet set;
      set.id = program_.all_sets.newest_set() + 1;
      set.made_in = round;
      set.ends_in = round + 1 + rng_.below(rounds_ - round - 1);
      if (rng_.chance(25) || !absent_in(0, set.ends_in).empty()) set.ends_in = rounds_;
      program_.all_sets.add_process_set(set.id, some_ranks());
      choose_joins(set.id, set.made_in, std::min(set.ends_in + 1, rounds_));
      dynamic_.push_back(set);
      ++round;
    }
  }

  // Half of the time of one host, often without its leader.
  std::vector<int> some_ranks() {
    const Topology& topology = program_.topology;
    std::vector<int> ranks = topology.ranks_of_set(0);
    if (rng_.chance(50)) ranks = topology.ranks_of_host(topology.host_of(rng_.pick(ranks)));
    rng_.shuffle(ranks);
    ranks.resize(1 + rng_.below(ranks.size()));
    std::sort(ranks.begin(), ranks.end());
    return ranks;
  }

  [[nodiscard]] std::vector<std::uint32_t> sets_in(int round) const {
    std::vector<std::uint32_t> sets = sets_;
    for (const DynamicSet& set : dynamic_) {
      if (set.made_in < round && round <= set.ends_in) sets.insert(sets.end(), 2, set.id);
    }
    return sets;
  }

  Unit signature(const UnitKey& key) {
    return random_signature(key, program_.all_sets.ranks_of_set(key.process_set), rng_);
  }

  // The numbers that are each rank's own affair.
  void personalise(Op& op, std::size_t tensor) {
    const std::vector<int> ranks = submitters(op);
    std::vector<Unit> units;
    for (const int rank : ranks) units.push_back(*op.unit_of[static_cast<std::size_t>(rank)]);
    const std::size_t size = program_.all_sets.ranks_of_set(op.key.process_set).size();
    kolo::internal::personalise(units, tensor, size, rng_);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      op.unit_of[static_cast<std::size_t>(ranks[i])] =
          std::make_shared<const Unit>(std::move(units[i]));
    }
  }

  // Where each rank has its tensors: the pattern of a name changes with time.
  void place(Op& op, const Unit& unit) {
    const auto known = placements_.find(unit.key);
    int pattern = known == placements_.end() ? rng_.below(8) : known->second;
    if (known != placements_.end() && rng_.chance(changed_percent_)) pattern = rng_.below(8);
    placements_[unit.key] = pattern;
    if (pattern > 3) return;  // all in host memory
    const std::vector<int> ranks = submitters(op);
    for (const int rank : ranks) {
      UnitPtr& submitted = op.unit_of[static_cast<std::size_t>(rank)];
      auto placed = std::make_shared<Unit>(*submitted);
      for (TensorSpec& spec : placed->tensors) {
        if (spec.kind == OpKind::kBarrier || is_set_change(spec.kind)) continue;
        switch (pattern) {
          case 0: spec.device = 0; break;
          case 1: spec.device = rank % 3; break;
          case 2: spec.device = rank % 2 == 0 ? 1 : kHostMemory; break;
          default: spec.device = rank == ranks.front() ? kHostMemory : 0; break;
        }
      }
      submitted = std::move(placed);
    }
  }

  UnitKey next_number(std::uint32_t set) { return {set, "#" + std::to_string(numbers_[set]++)}; }

  Unit numbered_barrier() {
    TensorSpec spec;
    spec.kind = OpKind::kBarrier;
    return {
        .key = next_number(0), .group = false, .numbered = true, .tensors = {spec}, .invalid = {}};
  }

  Unit some_unit(std::uint32_t set) {
    if (rng_.chance(10)) {
      Unit unit = signature(next_number(set));
      unit.numbered = true;
      return unit;
    }
    const UnitKey key{set, "t" + std::to_string(rng_.below(names_))};
    auto known = signatures_.find(key);
    if (known == signatures_.end() ||
        rng_.chance(changed_percent_)) {  // seen again with another shape
      known = signatures_.insert_or_assign(key, signature(key)).first;
    }
    return known->second;
  }

  // The op as every present rank submits it, with the outcome that follows.
  int add_op(const Unit& unit, std::uint32_t set, int round) {
    Op op;
    op.key = unit.key;
    op.absent = absent_in(set, round);
    op.unit_of.resize(static_cast<std::size_t>(size_));
    op.limit_of.assign(static_cast<std::size_t>(size_), kNever);
    op.may_time_out = program_.stalls;
    op.inexact = rng_.chance(30);
    op.payload_percent = rng_.pick(std::vector<int>{0, 0, 30, 80, 100, 100});
    const auto shared = std::make_shared<const Unit>(unit);
    for (const int rank : program_.all_sets.ranks_of_set(set)) {
      if (is_absent(op, rank)) continue;
      op.unit_of[static_cast<std::size_t>(rank)] = shared;
    }
    for (std::size_t i = 0; i < unit.tensors.size(); ++i) {
      if (unit.tensors[i].is_personal()) personalise(op, i);
      if (!op.absent.empty() && needs_absent(unit.tensors[i], op)) {
        op.expected = StatusCode::kInvalidArgument;
      }
    }
    place(op, unit);
    program_.ops.push_back(std::move(op));
    return static_cast<int>(program_.ops.size()) - 1;
  }

  static bool needs_absent(const TensorSpec& spec, const Op& op) {
    switch (spec.kind) {
      case OpKind::kAllreduce:
      case OpKind::kReduceScatter: return spec.op == ReduceOp::kProd && spec.prescale != 1.0;
      case OpKind::kAllgather: return !spec.open;
      case OpKind::kBroadcast: return is_absent(op, spec.root);
      case OpKind::kBarrier: return false;
      case OpKind::kAlltoall:
      case OpKind::kCreateSet:
      case OpKind::kDestroySet: break;
    }
    return true;
  }

  static bool is_absent(const Op& op, int rank) {
    return std::find(op.absent.begin(), op.absent.end(), rank) != op.absent.end();
  }
  [[nodiscard]] std::vector<int> submitters(const Op& op) const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (op.unit_of[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    }
    return ranks;
  }

  void make_mismatch(Op& op) {
    std::vector<int> ranks = submitters(op);
    if (ranks.size() < 2) return;
    rng_.shuffle(ranks);
    const std::size_t others = 1 + rng_.below(ranks.size() - 1);
    Unit other = *op.unit_of[static_cast<std::size_t>(ranks[0])];
    if (!other.tensors[0].receive_counts.empty()) {  // of one rank alone: it expects too much
      ++other.tensors[0].receive_counts[0];
      ranks.erase(ranks.begin() + 1, ranks.end());
    } else if (rng_.chance(50)) {
      other.tensors[0].shape.push_back(1);
    } else {
      other.tensors[0].dtype = DataType::kFloat64;
    }
    const auto shared = std::make_shared<const Unit>(other);
    for (std::size_t i = 0; i < others && i < ranks.size(); ++i) {
      op.unit_of[static_cast<std::size_t>(ranks[i])] = shared;
    }
    op.expected = StatusCode::kMismatch;
  }

  // Some ranks refuse it themselves, and often call again at once, rightly.
  void make_refused(int index, int round) {
    Op& op = program_.ops[static_cast<std::size_t>(index)];
    std::vector<int> ranks = submitters(op);
    rng_.shuffle(ranks);
    const std::size_t refusing = 1 + rng_.below(ranks.size());
    for (std::size_t i = 0; i < refusing; ++i) {
      auto& unit = op.unit_of[static_cast<std::size_t>(ranks[i])];
      Unit refused = *unit;
      refused.invalid = "root -1 is not a rank";
      unit = std::make_shared<const Unit>(std::move(refused));
    }
    op.expected = StatusCode::kMismatch;
    if (round + 1 < end_of(op.key.process_set) && rng_.chance(60))
      retries_.insert({op.key, round + 1});
  }

  void make_limited(Op& op, int round) {
    const std::vector<int> ranks = submitters(op);
    const bool is_short = rng_.chance(60);
    for (const int rank : ranks) {
      if (!rng_.chance(60)) continue;
      op.limit_of[static_cast<std::size_t>(rank)] = is_short ? kShortLimit : kLongLimit;
      op.may_time_out = op.may_time_out || is_short;
    }
    if (is_short && rng_.chance(60)) {
      late_.insert({{static_cast<int>(program_.ops.size()) - 1, round}, rng_.pick(ranks)});
    }
  }

  int ops_of_round(int round) const { return (kMinOps + rounds_ - 1) / rounds_ + (round % 3); }

  void write_round(int round) {
    std::set<UnitKey> used;
    std::vector<int> ops;
    const std::vector<std::uint32_t> sets = sets_in(round);
    for (const auto& [key, retry_round] : retries_) {
      if (retry_round != round || !used.insert(key).second) continue;
      ops.push_back(add_op(signature(key), key.process_set, round));
      program_.ops.back().may_abort = ends(key.process_set);
    }
    for (int attempt = 0; static_cast<int>(ops.size()) < ops_of_round(round); ++attempt) {
      const std::uint32_t set = rng_.pick(sets);
      if (rng_.chance(4)) {
        const UnitKey key{set, "bad" + std::to_string(program_.ops.size())};
        ops.push_back(add_op(signature(key), set, round));
        make_refused(ops.back(), round);
        continue;
      }
      Unit unit = some_unit(set);
      if (!used.insert(unit.key).second) continue;
      ops.push_back(add_op(unit, set, round));
      Op& op = program_.ops.back();
      if (rng_.chance(mismatch_percent_)) make_mismatch(op);
      if (rng_.chance(limited_percent_)) make_limited(op, round);
    }
    change_sets(round, ops);
    for (int rank = 0; rank < size_; ++rank) write_script(rank, round, ops);
  }

  [[nodiscard]] bool ends(std::uint32_t set) const {
    return std::any_of(dynamic_.begin(), dynamic_.end(), [&](const DynamicSet& one) {
      return one.id == set && one.ends_in < rounds_;
    });
  }
  [[nodiscard]] int end_of(std::uint32_t set) const {
    for (const DynamicSet& one : dynamic_) {
      if (one.id == set) return std::min(one.ends_in + 1, rounds_);
    }
    return rounds_;
  }

  int add_set_change(OpKind kind, const std::string& name, std::vector<std::int64_t> shape,
                     int round) {
    TensorSpec spec;
    spec.name = name;
    spec.kind = kind;
    spec.shape = std::move(shape);
    Unit unit;
    unit.key = {0, name};
    unit.numbered = true;
    unit.tensors.push_back(std::move(spec));
    return add_op(unit, 0, round);
  }

  void change_sets(int round, std::vector<int>& ops) {
    for (DynamicSet& set : dynamic_) {
      if (set.made_in == round) {
        const auto& ranks = program_.all_sets.ranks_of_set(set.id);
        set.make_op = add_set_change(OpKind::kCreateSet, "#pset:" + std::to_string(set.id),
                                     {ranks.begin(), ranks.end()}, round);
        program_.ops.back().new_set = set.id;
        ops.push_back(set.make_op);
      }
      if (set.ends_in != round) continue;
      for (int i = rng_.below(3); i > 0; --i) add_unfinished(set, round, ops);
      ops.push_back(add_set_change(OpKind::kDestroySet, "#destroy:" + std::to_string(set.id),
                                   {static_cast<std::int64_t>(set.id)}, round));
    }
    // What joined ranks cannot take part in fails at once; what ranks mean differently, too.
    const std::string name = "#pset:wrong" + std::to_string(round);
    if (program_.stalls || !rng_.chance(15)) return;
    ops.push_back(add_set_change(OpKind::kCreateSet, name, {0, 1}, round));
    if (program_.ops.back().expected != StatusCode::kOk) return;
    Unit other = *program_.ops.back().unit_of[0];
    other.tensors[0].shape = {0, 1, 2};
    program_.ops.back().unit_of[rng_.below(static_cast<std::size_t>(size_))] =
        std::make_shared<const Unit>(std::move(other));
    program_.ops.back().expected = StatusCode::kMismatch;
  }

  // Some ranks never submit it: it ends with the set.
  void add_unfinished(const DynamicSet& set, int round, std::vector<int>& ops) {
    const UnitKey key{set.id, "unfinished" + std::to_string(program_.ops.size())};
    const int index = add_op(signature(key), set.id, round);
    Op& op = program_.ops.back();
    const std::vector<int> ranks = submitters(op);
    if (ranks.size() < 2) {
      program_.ops.pop_back();
      return;
    }
    op.unit_of[static_cast<std::size_t>(rng_.pick(ranks))] = nullptr;
    for (const int rank : ranks) {
      if (rng_.chance(30)) op.unit_of[static_cast<std::size_t>(rank)] = nullptr;
    }
    op.expected = StatusCode::kAborted;
    ops.push_back(index);
  }

  // What ends a process set comes after all else that this rank submits to it.
  void put_ends_last(std::vector<int>& ops) {
    for (const DynamicSet& set : dynamic_) {
      const auto is_end = [&](int op) {
        return program_.ops[static_cast<std::size_t>(op)].key.name ==
               "#destroy:" + std::to_string(set.id);
      };
      const auto is_of_set = [&](int op) {
        return program_.ops[static_cast<std::size_t>(op)].key.process_set == set.id;
      };
      const auto end = std::find_if(ops.begin(), ops.end(), is_end);
      const auto last = std::find_if(ops.rbegin(), ops.rend(), is_of_set);
      if (end == ops.end() || last == ops.rend() || last.base() <= end) continue;
      std::rotate(end, end + 1, last.base());
    }
  }

  void write_script(int rank, int round, std::vector<int> ops) {
    auto& script = program_.scripts[static_cast<std::size_t>(rank)];
    for (const DynamicSet& set : dynamic_) {
      if (set.made_in + 1 == round) {
        script.push_back({.kind = Step::Kind::kWaitOp, .op = set.make_op});
      }
    }
    for (const auto& [set, epochs] : epochs_) {
      for (const auto& joins : epochs) {
        const auto joined = joins.find(rank);
        if (joined != joins.end() && joined->second == round) {
          script.push_back({.kind = Step::Kind::kJoin, .process_set = set});
        }
      }
    }
    rng_.shuffle(ops);
    put_ends_last(ops);
    for (const int index : ops) {
      const UnitPtr& unit =
          program_.ops[static_cast<std::size_t>(index)].unit_of[static_cast<std::size_t>(rank)];
      if (!unit) continue;
      const auto late = late_.find({index, round});
      if (late != late_.end() && late->second == rank) {
        script.push_back({.kind = Step::Kind::kSleep, .duration = 2 * kShortLimit});
      } else if (rng_.chance(20)) {
        script.push_back({.kind = Step::Kind::kSleep, .duration = delay(40us)});
      } else if (program_.stalls && rng_.chance(3)) {
        script.push_back({.kind = Step::Kind::kSleep, .duration = delay(20ms)});
      }
      const auto kind = unit->invalid.empty() ? Step::Kind::kSubmit : Step::Kind::kRefuse;
      script.push_back({.kind = kind, .op = index});
    }
    if (rng_.chance(25)) script.push_back({.kind = Step::Kind::kWaitAll});
  }

  Rng& rng_;
  int size_;
  int rounds_ = 0;
  int names_ = 0;  // per process set, so that they come again
  int changed_percent_ = 8;
  int mismatch_percent_ = 6;
  int limited_percent_ = 7;
  Program program_;
  std::vector<std::uint32_t> sets_;
  std::vector<DynamicSet> dynamic_;
  // By process set, in order: the round in which each rank joins.
  std::map<std::uint32_t, std::vector<std::map<int, int>>> epochs_;
  std::map<UnitKey, Unit> signatures_;
  std::map<UnitKey, int> placements_;
  std::map<std::uint32_t, int> numbers_;
  std::set<std::pair<UnitKey, int>> retries_;  // with the round
  std::map<std::pair<int, int>, int> late_;    // (op, round): the rank that is late
};

}  // namespace

Program random_program(const Topology& topology, Rng& rng) { return Writer(topology, rng).write(); }

}  // namespace kolo::internal
