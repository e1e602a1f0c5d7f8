#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/multiproc/random/program.h"

namespace kolo::programs {
namespace {

constexpr std::size_t kManyBytes = std::size_t{3} << 20;

using NameKey = std::pair<int, std::string>;  // set and name

class Drawer {
 public:
  Drawer(std::uint64_t seed, int ranks, int operations, const Abilities& abilities)
      : random_(seed), operations_(operations), abilities_(abilities) {
    program_.seed = seed;
    SetRanks world;
    for (int rank = 0; rank < ranks; ++rank) world.ranks.push_back(rank);
    program_.sets.push_back(world);
    live_ = {0};
  }

  Program draw() {
    while (drawn_ < operations_) draw_phase();
    Phase last;  // every set ends with its program
    for (const int set : live_) {
      if (set != 0) last.units.push_back(single(destruction(set)));
    }
    if (!last.units.empty()) program_.phases.push_back(last);
    return std::move(program_);
  }

 private:
  void draw_phase() {
    Phase phase;
    used_.clear();
    fresh_sets_.clear();
    if (abilities_.join && random_.chance(20)) draw_epoch(phase.epoch);
    std::vector<int> sets = live_;
    std::erase(sets, phase.epoch.set);
    if (abilities_.sets && phase.epoch.set != 0) draw_set_changes(phase, sets);
    const int units = sets.empty() ? 0 : 1 + random_.below(8);
    for (int i = 0; i < units; ++i) {
      const int set = random_.pick(sets);
      phase.units.push_back(draw_unit(set));
      if (random_.chance(10)) chain(phase);
    }
    live_.insert(live_.end(), fresh_sets_.begin(), fresh_sets_.end());
    program_.phases.push_back(std::move(phase));
  }

  // New sets can be used from the next phase on; those that end, no more in this one.
  void draw_set_changes(Phase& phase, std::vector<int>& usable) {
    if (live_.size() < 5 && random_.chance(40)) {
      const int wanted = 1 + random_.below(2);
      for (int i = 0; i < wanted; ++i) phase.units.push_back(single(creation()));
    }
    if (usable.size() > 1 && random_.chance(15)) {
      const int set = random_.pick(usable);
      if (set == 0) return;
      phase.units.push_back(single(destruction(set)));
      std::erase(usable, set);
      std::erase(live_, set);
      std::erase_if(persistent_, [set](const Operation& known) { return known.set == set; });
    }
  }

  Operation creation() {
    SetRanks made;
    while (made.ranks.empty()) {
      for (const int rank : program_.sets[0].ranks) {
        if (random_.chance(65)) made.ranks.push_back(rank);
      }
    }
    Operation operation = begin(Kind::kCreate, 0);
    operation.root = static_cast<int>(program_.sets.size());
    if (random_.chance(50)) operation.name = "set " + std::to_string(operation.id);
    program_.sets.push_back(made);
    fresh_sets_.push_back(operation.root);
    return operation;
  }

  Operation destruction(int set) {
    Operation operation = begin(Kind::kDestroy, 0);
    operation.root = set;
    return operation;
  }

  static Unit single(Operation operation) {
    Unit unit;
    unit.members.push_back(std::move(operation));
    return unit;
  }

  Operation begin(Kind kind, int set) {
    Operation operation;
    operation.id = ++drawn_;
    operation.kind = kind;
    operation.set = set;
    return operation;
  }

  [[nodiscard]] std::size_t size_of(int set) const {
    return program_.sets[static_cast<std::size_t>(set)].ranks.size();
  }

  Unit draw_unit(int set) {
    Unit unit;
    if (random_.chance(20)) {
      unit = draw_group(set);
    } else if (random_.chance(12)) {
      unit = single(draw_persistent(set));
    } else {
      unit = single(draw_named(set));
      if (random_.chance(4) && size_of(set) > 1) spoil(unit.members.front());
    }
    return unit;
  }

  // Prepared once, or a start of one that is.
  Operation draw_persistent(int set) {
    for (const Operation& known : persistent_) {
      if (known.set == set && random_.chance(70) && take(set, known.name)) {
        ++drawn_;
        return known;
      }
    }
    Operation operation = draw_plain(set);
    operation.allocate = false;
    operation.persistent = true;
    operation.name = "persistent " + std::to_string(operation.id);
    take(set, operation.name);
    persistent_.push_back(operation);
    return operation;
  }

  bool take(int set, const std::string& name) { return used_.insert({set, name}).second; }

  // With a name that was used before, as it was then or otherwise; with a new one; with none.
  Operation draw_named(int set) {
    if (random_.chance(15)) return draw_plain(set);
    const std::string name = "n" + std::to_string(random_.below(8));
    if (random_.chance(20) || !take(set, name)) {
      Operation operation = draw_plain(set);
      operation.name = "fresh " + std::to_string(operation.id);
      return operation;
    }
    const auto known = known_.find({set, name});
    Operation operation;
    if (known != known_.end() && random_.chance(70)) {
      operation = known->second;
      operation.id = ++drawn_;
    } else {
      operation = draw_plain(set);
      operation.name = name;
    }
    known_[{set, name}] = operation;
    return operation;
  }

  Unit draw_group(int set) {
    Unit unit;
    unit.group = true;
    const std::string name = "G" + std::to_string(random_.below(3));
    const bool has_name = random_.chance(75) && take(set, name);
    const auto known = known_groups_.find({set, name});
    if (has_name && known != known_groups_.end() && random_.chance(60)) {
      unit = known->second;
      for (Operation& member : unit.members) member.id = ++drawn_;
    } else {
      if (has_name) unit.name = name;
      const bool named_members = random_.chance(80);
      const int members = 1 + random_.below(5);
      const bool alike = random_.chance(40);  // can be fused
      for (int i = 0; i < members; ++i) {
        Operation member = draw_member(set, alike);
        if (named_members) member.name = "m" + std::to_string(i);
        unit.members.push_back(member);
      }
      if (has_name) known_groups_[{set, name}] = unit;
    }
    if (random_.chance(4) && size_of(set) > 1) {
      spoil(unit.members[random_.below(unit.members.size())]);
    }
    return unit;
  }

  Operation draw_member(int set, bool alike) {
    Operation member = draw_plain(set);
    while (member.allocate || member.op == KOLO_ADASUM || member.kind == Kind::kBarrier ||
           (alike && member.kind != Kind::kAllreduce && member.kind != Kind::kBroadcast)) {
      member = draw_plain(set);
    }
    return member;
  }

  Operation draw_plain(int set) {
    const int dice = random_.below(100);
    Kind kind = Kind::kAllreduce;
    if (dice >= 45) kind = Kind::kBroadcast;
    if (dice >= 58) kind = Kind::kAllgather;
    if (dice >= 95) kind = Kind::kBarrier;
    if (dice >= 70 && dice < 95 && abilities_.all_collectives) {
      kind = dice < 83 ? Kind::kReduceScatter : Kind::kAlltoall;
    }
    return draw_kind(kind, set);
  }

  Operation draw_kind(Kind kind, int set) {
    Operation operation = begin(kind, set);
    if (kind == Kind::kBarrier) return operation;
    operation.dtype = draw_dtype(reduces(kind));
    if (reduces(kind)) draw_op(operation);
    if (kind == Kind::kBroadcast) {
      operation.root = random_.pick(program_.sets[static_cast<std::size_t>(set)].ranks);
    }
    const bool by_blocks = kind != Kind::kAllreduce && kind != Kind::kBroadcast;
    operation.count = draw_count(bytes_of(operation.dtype), by_blocks ? size_of(set) : 1);
    operation.matrix = random_.chance(20);
    if (by_blocks && abilities_.all_collectives) draw_counts(operation);
    return operation;
  }

  void draw_counts(Operation& operation) {
    const std::size_t size = size_of(operation.set);
    const std::size_t most = operation.count + 1;
    const auto draw = [&] { return random_.chance(25) ? 0 : random_.below(most); };
    const bool ragged = random_.chance(50);
    if (operation.kind != Kind::kReduceScatter) operation.allocate = random_.chance(30);
    if (operation.kind == Kind::kAlltoall) {
      if (!ragged) return;
      operation.blocks.assign(size, std::vector<std::size_t>(size));
      for (auto& from : operation.blocks) {
        for (std::size_t& block : from) block = draw();
      }
      operation.matrix = false;
    } else if (ragged || operation.allocate) {
      for (std::size_t place = 0; place < size; ++place) operation.counts.push_back(draw());
      if (!operation.allocate) operation.matrix = false;
    }
  }

  kolo_dtype draw_dtype(bool reduced) {
    constexpr kolo_dtype kAll[] = {KOLO_FLOAT32, KOLO_FLOAT16,     KOLO_BFLOAT16,   KOLO_FLOAT64,
                                   KOLO_INT32,   KOLO_INT64,       KOLO_INT8,       KOLO_UINT8,
                                   KOLO_UINT32,  KOLO_UINT64,      KOLO_INT16,      KOLO_UINT16,
                                   KOLO_BOOL,    KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2};
    if (random_.chance(40)) return KOLO_FLOAT32;
    return kAll[random_.below(reduced ? std::size(kAll) - 2 : std::size(kAll))];
  }

  void draw_op(Operation& operation) {
    constexpr kolo_op kOps[] = {KOLO_SUM, KOLO_PROD, KOLO_MAX, KOLO_MIN, KOLO_AVG};
    operation.op = random_.chance(40) ? KOLO_SUM : kOps[random_.below(std::size(kOps))];
    if (operation.dtype == KOLO_BOOL && operation.op == KOLO_AVG) operation.op = KOLO_MAX;
    if (operation.kind != Kind::kAllreduce || !is_float(operation.dtype)) return;
    if (abilities_.adasum && random_.chance(12)) operation.op = KOLO_ADASUM;
    if (operation.op != KOLO_ADASUM && random_.chance(25)) {
      constexpr double kScales[] = {1.0, 0.5, 0.3, 3.0};
      operation.prescale = kScales[random_.below(std::size(kScales))];
      operation.postscale = kScales[random_.below(std::size(kScales))];
    }
  }

  std::size_t draw_count(std::size_t width, std::size_t blocks) {
    const auto near = [&](std::size_t bytes) {
      const std::size_t at = bytes / width / blocks;
      return at + random_.below(std::uint64_t{3}) - (at > 0 ? 1 : 0);
    };
    const int dice = random_.below(100);
    if (dice < 8) return 0;
    if (dice < 22) return 1;
    if (dice < 42) return 2 + random_.below(std::uint64_t{11});
    if (dice < 58) return near(40);
    if (dice < 78) return random_.below(std::uint64_t{300});
    if (dice < 83) return near(4096);
    if (dice < 88) return near(32768);
    if (dice < 92) return near(65536);
    if (dice < 99 || large_) return random_.below(std::uint64_t{100'000} / width / blocks);
    large_ = true;  // one a program
    return random_.below(kManyBytes / width / blocks);
  }

  // A proper part of the ranks does something else.
  void spoil(Operation& operation) {
    std::vector<Wrong> ways;
    const bool equal = operation.counts.empty() && operation.blocks.empty();
    if (operation.kind == Kind::kBarrier || !equal || operation.allocate) return;
    ways = {Wrong::kCount, Wrong::kShape, Wrong::kRefused};
    const bool plain =
        operation.op != KOLO_ADASUM && operation.prescale == 1.0 && operation.postscale == 1.0;
    if (plain) ways.push_back(Wrong::kDtype);
    if (reduces(operation.kind)) ways.push_back(Wrong::kOp);
    if (operation.kind == Kind::kBroadcast) ways.push_back(Wrong::kRoot);
    const bool whole = operation.kind == Kind::kAllreduce || operation.kind == Kind::kBroadcast;
    const bool moved_only =
        operation.dtype == KOLO_FLOAT8_E4M3 || operation.dtype == KOLO_FLOAT8_E5M2;
    if (whole && !moved_only) ways.push_back(Wrong::kKind);
    if (operation.kind == Kind::kAllreduce && is_float(operation.dtype) &&
        operation.op != KOLO_ADASUM) {
      ways.push_back(Wrong::kScale);
    }
    operation.wrong = random_.pick(ways);
    std::vector<int> ranks = program_.sets[static_cast<std::size_t>(operation.set)].ranks;
    if (operation.wrong == Wrong::kRoot) std::erase(ranks, operation.root);
    random_.shuffle(ranks);
    const std::size_t most = size_of(operation.set) - 1;
    ranks.resize(1 + random_.below(most));
    std::sort(ranks.begin(), ranks.end());
    operation.wrong_ranks = ranks;
  }

  // The last unit becomes the follower of an earlier one, where that may be.
  void chain(Phase& phase) {
    const auto last = static_cast<int>(phase.units.size()) - 1;
    Unit& follower = phase.units.back();
    if (follower.group || follower.numbered() || follower.members[0].persistent || last == 0)
      return;
    const int first = random_.below(last);
    const Unit& leader = phase.units[static_cast<std::size_t>(first)];
    const Operation& operation = leader.members.front();
    if (leader.group || operation.persistent || operation.allocate || leader.has_wrong() ||
        operation.kind == Kind::kCreate || operation.kind == Kind::kDestroy ||
        operation.after >= 0) {
      return;
    }
    follower.members[0].after = first;
  }

  void draw_epoch(Epoch& epoch) {
    epoch.set = random_.pick(live_);
    const std::size_t steps = 1 + random_.below(std::uint64_t{4});
    const bool again = random_.chance(60);  // the same operations in every step
    for (std::size_t step = 0; step < steps; ++step) {
      std::vector<Unit> units;
      if (step > 0 && again) {
        units = epoch.steps.front();
        for (Unit& unit : units) {
          for (Operation& member : unit.members) member.id = ++drawn_;
        }
      } else {
        const int wanted = 1 + random_.below(3);
        for (int i = 0; i < wanted; ++i) units.push_back(draw_step_unit(epoch.set, i));
      }
      epoch.steps.push_back(std::move(units));
    }
    const bool uneven = random_.chance(85);
    for (std::size_t place = 0; place < size_of(epoch.set); ++place) {
      epoch.steps_of.push_back(uneven ? random_.below(steps + 1) : steps);
    }
    epoch.check = "last rank";
  }

  Unit draw_step_unit(int set, int number) {
    const std::string name = "step " + std::to_string(number);
    if (random_.chance(75)) {
      Operation operation = draw_plain(set);
      if (random_.chance(80)) operation.name = name;  // numbers begin anew after a join
      return single(operation);
    }
    Unit unit;
    unit.group = true;
    unit.name = name + " group";
    const int members = 1 + random_.below(3);
    for (int i = 0; i < members; ++i) {
      Operation member = draw_kind(Kind::kAllreduce, set);
      if (member.op == KOLO_ADASUM) member.op = KOLO_SUM;
      member.name = "m" + std::to_string(i);
      unit.members.push_back(member);
    }
    return unit;
  }

  Rng random_;
  int operations_;
  Abilities abilities_;
  Program program_;
  int drawn_ = 0;
  bool large_ = false;
  std::vector<int> live_;        // sets
  std::vector<int> fresh_sets_;  // from the next phase on
  std::set<NameKey> used_;       // in this phase
  std::map<NameKey, Operation> known_;
  std::map<NameKey, Unit> known_groups_;
  std::vector<Operation> persistent_;
};

}  // namespace

Program draw_program(std::uint64_t seed, int ranks, int operations, const Abilities& abilities) {
  return Drawer(seed, ranks, operations, abilities).draw();
}

}  // namespace kolo::programs
