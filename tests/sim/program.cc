#include "tests/sim/program.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

namespace kolo::internal {
namespace {

constexpr int kMinOps = 50;
constexpr Nanos kShortLimit = 300us;
constexpr Nanos kLongLimit = 1h;

class Writer {
 public:
  Writer(const Topology& topology, Rng& rng) : rng_(rng), size_(topology.size()) {
    program_.topology = topology;
    program_.scripts.resize(static_cast<std::size_t>(size_));
    sets_ = topology.set_ids();
    rounds_ = 4 + rng_.below(rng_.chance(50) ? 4 : 14);
    names_ = rng_.pick(std::vector<int>{3, 5, 8, 8});
    program_.stalls = rng_.chance(15);
    if (rng_.chance(30)) changed_percent_ = mismatch_percent_ = limited_percent_ = 0;
    if (rng_.chance(20)) limited_percent_ = 30;
    choose_joins();
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

  // Some sets have a join: rank r of the set joins before the round join_round_[set][r].
  void choose_joins() {
    for (const std::uint32_t set : sets_) {
      if (!rng_.chance(40)) continue;
      for (const int rank : program_.topology.ranks_of_set(set)) {
        join_round_[set][rank] = 1 + rng_.below(rounds_ - 1);
      }
    }
  }

  [[nodiscard]] std::vector<int> absent_in(std::uint32_t set, int round) const {
    std::vector<int> absent;
    const auto joins = join_round_.find(set);
    if (joins == join_round_.end()) return absent;
    for (const auto& [rank, joined] : joins->second) {
      if (joined <= round) absent.push_back(rank);
    }
    // All have joined: the next epoch has begun.
    if (absent.size() == joins->second.size()) absent.clear();
    return absent;
  }

  static TensorSpec tensor(std::string name, Rng& rng) {
    TensorSpec spec;
    spec.name = std::move(name);
    spec.dtype = rng.chance(70) ? DataType::kFloat32 : DataType::kInt32;
    spec.op = static_cast<ReduceOp>(rng.below(kReduceOpCount));
    spec.count = rng.below(std::uint64_t{rng.chance(50) ? 11U : 24U});
    spec.shape = {static_cast<std::int64_t>(spec.count)};
    if (spec.dtype == DataType::kFloat32 && rng.chance(20)) spec.prescale = 0.5;
    if (spec.dtype == DataType::kFloat32 && rng.chance(20)) spec.postscale = 4.0;
    return spec;
  }

  Unit signature(const UnitKey& key) {
    Unit unit;
    unit.key = key;
    const int dice = rng_.below(100);
    if (dice < 15) {
      unit.group = true;
      const int members = 1 + rng_.below(4);
      for (int i = 0; i < members; ++i) {
        unit.tensors.push_back(tensor("m" + std::to_string(i), rng_));
      }
      return unit;
    }
    TensorSpec spec = tensor(key.name, rng_);
    if (dice >= 75) {
      spec.kind = static_cast<OpKind>(1 + rng_.below(3));
      spec.op = ReduceOp::kSum;
      spec.prescale = spec.postscale = 1.0;
      if (spec.kind == OpKind::kBarrier) spec.count = 0;
      if (spec.kind == OpKind::kBroadcast) {
        spec.root = rng_.pick(program_.topology.ranks_of_set(key.process_set));
      }
    }
    unit.tensors = {spec};
    return unit;
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
    for (const int rank : program_.topology.ranks_of_set(set)) {
      if (is_absent(op, rank)) continue;
      op.unit_of[static_cast<std::size_t>(rank)] = shared;
    }
    for (const TensorSpec& spec : unit.tensors) {
      const bool needs_absent =
          !op.absent.empty() && (spec.kind == OpKind::kAllgather ||
                                 (spec.kind == OpKind::kBroadcast && is_absent(op, spec.root)));
      if (needs_absent) op.expected = StatusCode::kInvalidArgument;
    }
    program_.ops.push_back(std::move(op));
    return static_cast<int>(program_.ops.size()) - 1;
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
    if (rng_.chance(50)) {
      other.tensors[0].shape.push_back(1);
    } else {
      other.tensors[0].dtype = DataType::kFloat64;
    }
    const auto shared = std::make_shared<const Unit>(other);
    for (std::size_t i = 0; i < others; ++i)
      op.unit_of[static_cast<std::size_t>(ranks[i])] = shared;
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
    if (round + 1 < rounds_ && rng_.chance(60)) retries_.insert({op.key, round + 1});
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
    for (const auto& [key, retry_round] : retries_) {
      if (retry_round != round || !used.insert(key).second) continue;
      ops.push_back(add_op(signature(key), key.process_set, round));
    }
    for (int attempt = 0; static_cast<int>(ops.size()) < ops_of_round(round); ++attempt) {
      const std::uint32_t set = rng_.pick(sets_);
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
    for (int rank = 0; rank < size_; ++rank) write_script(rank, round, ops);
  }

  void write_script(int rank, int round, std::vector<int> ops) {
    auto& script = program_.scripts[static_cast<std::size_t>(rank)];
    for (const auto& [set, joins] : join_round_) {
      const auto joined = joins.find(rank);
      if (joined != joins.end() && joined->second == round) {
        script.push_back({.kind = Step::Kind::kJoin, .process_set = set});
      }
    }
    rng_.shuffle(ops);
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
  std::map<std::uint32_t, std::map<int, int>> join_round_;
  std::map<UnitKey, Unit> signatures_;
  std::map<std::uint32_t, int> numbers_;
  std::set<std::pair<UnitKey, int>> retries_;  // with the round
  std::map<std::pair<int, int>, int> late_;    // (op, round): the rank that is late
};

}  // namespace

Topology random_topology(Rng& rng) {
  const int size = 4 + rng.below(6);
  const int hosts = rng.chance(25) ? 1 : 1 + rng.below(3);
  const bool in_blocks = rng.chance(70);
  std::vector<int> host_of;
  for (int rank = 0; rank < size; ++rank) {
    host_of.push_back(in_blocks ? rank * hosts / size : rank % hosts);
  }
  Topology topology(host_of);
  std::vector<int> local = topology.ranks_of_host(rng.below(hosts));
  if (local.size() > 2 && rng.chance(50)) local.pop_back();
  topology.add_process_set(1, local);
  const int more = 1 + rng.below(3);
  for (int i = 0; i < more; ++i) {
    std::vector<int> ranks = topology.ranks_of_set(0);
    rng.shuffle(ranks);
    ranks.resize(static_cast<std::size_t>(2 + rng.below(size - 2)));
    std::sort(ranks.begin(), ranks.end());
    topology.add_process_set(static_cast<std::uint32_t>(2 + i), ranks);
  }
  return topology;
}

Topology without_ranks(const Topology& before, const std::vector<bool>& survives) {
  std::vector<int> new_rank(static_cast<std::size_t>(before.size()), -1);
  std::vector<int> host_of;
  std::map<int, int> new_host;
  for (int rank = 0; rank < before.size(); ++rank) {
    if (!survives[static_cast<std::size_t>(rank)]) continue;
    new_rank[static_cast<std::size_t>(rank)] = static_cast<int>(host_of.size());
    const int next = static_cast<int>(new_host.size());
    host_of.push_back(new_host.try_emplace(before.host_of(rank), next).first->second);
  }
  Topology after(host_of);
  for (const std::uint32_t set : before.set_ids()) {
    std::vector<int> ranks;
    for (const int rank : before.ranks_of_set(set)) {
      const int renumbered = new_rank[static_cast<std::size_t>(rank)];
      if (renumbered >= 0) ranks.push_back(renumbered);
    }
    if (set != 0 && !ranks.empty()) after.add_process_set(set, ranks);
  }
  return after;
}

Program random_program(const Topology& topology, Rng& rng) { return Writer(topology, rng).write(); }

}  // namespace kolo::internal
