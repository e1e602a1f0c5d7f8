#include "tests/sim/executor.h"

#include <algorithm>

#include "coordinator/placement.h"
#include "tests/sim/violation.h"

namespace kolo::internal {
namespace {

std::string cut_text(const std::vector<std::string>& members, const std::vector<int>& absent,
                     const std::vector<std::string>& payloads) {
  std::string text;
  for (const std::string& member : members) text += member + " ";
  if (!payloads.empty()) text += "with payloads ";
  for (const std::string& payload : payloads) {
    for (const char byte : payload) {
      for (const int shift : {4, 0}) text += "0123456789abcdef"[(byte >> shift) & 15];
    }
    text += " ";
  }
  return absent.empty() ? text : text + "without " + ranks_text(absent);
}

}  // namespace

Executor::Executor(const Program& program, std::vector<std::vector<Submitted>>& submitted, End end)
    : program_(program),
      submitted_(submitted),
      end_(std::move(end)),
      queues_(submitted.size()),
      next_(submitted.size()),
      stopped_(submitted.size()) {}

Submitted& Executor::submission(int rank, Ticket ticket) {
  return submitted_[static_cast<std::size_t>(rank)].at(static_cast<std::size_t>(ticket) - 1);
}

std::vector<int> Executor::hosts_of(std::uint32_t process_set) const {
  std::vector<int> hosts;
  for (const int rank : program_.all_sets.ranks_of_set(process_set)) {
    hosts.push_back(program_.all_sets.host_of(rank));
  }
  return hosts;
}

// The unit is ours, and what the program expects of the submission that it ends.
void Executor::check_unit(int rank, const PlannedUnit& planned) const {
  if (planned.run == 0 || planned.ticket == 0) return;
  const auto& mine = submitted_[static_cast<std::size_t>(rank)];
  const auto who = [&] { return "rank " + std::to_string(rank) + ", " + unit_text(*planned.unit); };
  require(planned.ticket <= mine.size(), "one_end", [&] { return who() + ": unknown ticket"; });
  const Submitted& submitted = mine[static_cast<std::size_t>(planned.ticket) - 1];
  require(!submitted.ended, "one_end", [&] { return who() + ": ordered after it has ended"; });
  const Op& op = program_.ops[static_cast<std::size_t>(submitted.op)];
  const auto& ranks = program_.all_sets.ranks_of_set(op.key.process_set);
  const auto place = std::ranges::lower_bound(ranks, rank) - ranks.begin();
  require(is_part_of(*submitted.unit, *planned.unit, static_cast<std::size_t>(place)), "same_plan",
          [&] { return who() + ": the plan's unit is not the one that was submitted"; });
  check_devices(planned, op);
  check_counts(planned, op);
  require(op.absent == planned.absent, "absent_ranks", [&] {
    return who() + " (operation " + std::to_string(submitted.op) + "): expected without [" +
           ranks_text(op.absent) + "], ordered without [" + ranks_text(planned.absent) + "]";
  });
}

// The plan knows where every rank has its tensors.
void Executor::check_devices(const PlannedUnit& planned, const Op& op) const {
  const auto& ranks = program_.all_sets.ranks_of_set(op.key.process_set);
  for (std::size_t i = 0; i < planned.unit->tensors.size(); ++i) {
    std::vector<std::int32_t> expected;
    for (const int rank : ranks) {
      const UnitPtr& unit = op.unit_of[static_cast<std::size_t>(rank)];
      expected.push_back(unit == nullptr ? kHostMemory : unit->tensors[i].device);
    }
    const bool on_host = std::ranges::all_of(expected, [](auto d) { return d == kHostMemory; });
    if (on_host) expected.clear();
    // A known unit that goes on without ranks that have joined says where theirs were.
    if (!planned.absent.empty() && !planned.unit->tensors[i].devices.empty()) continue;
    require(planned.unit->tensors[i].devices == expected, "right_devices", [&] {
      return unit_text(*planned.unit) + ": the order's devices are not those that were submitted";
    });
  }
}

// The order brings what every rank has said of its own numbers.
void Executor::check_counts(const PlannedUnit& planned, const Op& op) const {
  OrderCounts expected;
  const auto& ranks = program_.all_sets.ranks_of_set(op.key.process_set);
  for (std::size_t i = 0; i < planned.unit->tensors.size(); ++i) {
    const TensorSpec& spec = planned.unit->tensors[i];
    if (!spec.is_personal()) continue;
    auto& rows = expected.emplace_back();
    for (const int rank : ranks) {
      const UnitPtr& unit = op.unit_of[static_cast<std::size_t>(rank)];
      if (spec.open) {
        rows.push_back(unit == nullptr ? 0 : unit->tensors[i].count);
      } else if (unit != nullptr) {
        rows.insert(rows.end(), unit->tensors[i].counts.begin(), unit->tensors[i].counts.end());
      }
    }
  }
  require(planned.counts == expected, "right_counts", [&] {
    return unit_text(*planned.unit) + ": the order's counts are not those that were submitted";
  });
}

void Executor::execute(int rank, const Plan& plan) {
  std::vector<UnitInPlan> places;
  for (const PlannedUnit& planned : plan.units) {
    check_unit(rank, planned);
    for (std::size_t i = 0; i < planned.unit->tensors.size(); ++i) places.push_back({&planned, i});
  }
  for (const auto& members : plan.cuts) {
    Cut cut;
    for (const std::uint32_t place : members) {
      const UnitInPlan& tensor = places.at(place);
      cut.process_set = tensor.planned->unit->key.process_set;
      cut.run = tensor.planned->run;
      cut.absent = tensor.planned->absent;
      cut.parts.push_back({tensor.planned->ticket, tensor.planned->unit, tensor.tensor});
      if (!tensor.planned->payloads.empty()) cut.payloads = tensor.planned->payloads;
    }
    if (cut.run != 0) enqueue(rank, std::move(cut));
  }
  advance(rank);
}

void Executor::execute_slots(int rank, std::uint64_t run, std::vector<Part> parts) {
  Cut cut;
  cut.process_set = parts.front().unit->key.process_set;
  cut.run = run;
  for (const Part& part : parts) {
    check_unit(rank, {.ticket = part.ticket, .unit = part.unit, .absent = {}, .run = run});
    require(part.unit->key.process_set == cut.process_set, "same_plan",
            [] { return "the log fuses units of two process sets"; });
  }
  log_units_ += parts.size();
  cut.parts = std::move(parts);
  enqueue(rank, std::move(cut));
  advance(rank);
}

void Executor::complete_slot(int rank, Ticket ticket, const UnitPtr& unit,
                             const std::vector<std::string>& payloads) {
  check_unit(rank, {.ticket = ticket, .unit = unit, .absent = {}, .run = 1});
  Cut cut;
  cut.process_set = unit->key.process_set;
  cut.parts.push_back({ticket, unit, 0});
  cut.payloads = payloads;
  ++inline_units_;
  complete(rank, cut);
}

// Runs what can run now that the head of this rank's queue is new.
void Executor::advance(int rank) {
  std::vector<int> look = {rank};
  while (!look.empty()) {
    const int next = look.back();
    look.pop_back();
    if (queues_[static_cast<std::size_t>(next)].empty()) continue;
    const auto& ranks =
        program_.all_sets.ranks_of_set(queues_[static_cast<std::size_t>(next)].front().process_set);
    if (run_head(next)) look.insert(look.end(), ranks.begin(), ranks.end());
  }
}

void Executor::enqueue(int rank, Cut cut) {
  cut.number = next_[static_cast<std::size_t>(rank)][cut.process_set]++;
  std::vector<std::string> members;
  for (const Part& part : cut.parts) {
    members.push_back(part.unit->key.name + "/" + std::to_string(part.tensor));
  }
  std::string text = cut_text(members, cut.absent, cut.payloads);
  auto& plans = plans_[cut.process_set];
  if (cut.number == plans.size()) {
    plans.push_back(std::move(text));
  } else {
    require(plans[cut.number] == text, "same_plan", [&] {
      return "process set " + std::to_string(cut.process_set) + ", operation " +
             std::to_string(cut.number) + ": rank " + std::to_string(rank) + " runs [" + text +
             "], another rank [" + plans[cut.number] + "]";
    });
  }
  if (!cut.payloads.empty()) {
    ++payload_units_;
    return complete(rank, cut);
  }
  queues_[static_cast<std::size_t>(rank)].push_back(std::move(cut));
}

// Everyone's bytes are here: nothing to wait for.
void Executor::complete(int rank, const Cut& cut) {
  check_payloads(rank, cut);
  const Part& part = cut.parts.front();
  const TensorSpec& spec = part.unit->tensors.front();
  const auto& ranks = program_.all_sets.ranks_of_set(cut.process_set);
  const auto root = std::find(ranks.begin(), ranks.end(), spec.root) - ranks.begin();
  const std::vector<int> hosts = hosts_of(cut.process_set);
  check_result(part, rank,
               gathered_result(spec, cut.payloads, static_cast<std::size_t>(root), hosts), hosts);
  Submitted& mine = submission(rank, part.ticket);
  mine.by_payloads = true;
  mine.tensors_left = 0;
  end_(rank, part.ticket, Status::ok());
}

// They are what every rank of the set has sent along with its submission of *this* operation.
void Executor::check_payloads(int rank, const Cut& cut) {
  const auto check = [&](bool holds, const std::string& what) {
    require(holds, "right_payload", [&] {
      return "rank " + std::to_string(rank) + ", " + unit_text(*cut.parts.front().unit) +
             ": an order with payloads " + what;
    });
  };
  const auto& ranks = program_.all_sets.ranks_of_set(cut.process_set);
  check(cut.parts.size() == 1 && !cut.parts.front().unit->group, "of several tensors");
  check(cut.absent.empty() && cut.parts.front().ticket != 0, "without some rank");
  check(cut.payloads.size() == ranks.size(), "of some ranks only");
  const int index = submission(rank, cut.parts.front().ticket).op;
  const Op& op = program_.ops[static_cast<std::size_t>(index)];
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto& theirs = submitted_[static_cast<std::size_t>(ranks[i])];
    const auto sent = std::find_if(theirs.begin(), theirs.end(),
                                   [&](const Submitted& one) { return one.op == index; });
    const std::string of_rank = "of rank " + std::to_string(ranks[i]);
    check(sent != theirs.end() && sent->with_payload, of_rank + ", which sent none");
    check(cut.payloads[i] == payload_of(index, ranks[i], *sent->unit, op.inexact),
          of_rank + ", which sent another");
  }
}

bool Executor::run_head(int rank) {
  const Cut& mine = queues_[static_cast<std::size_t>(rank)].front();
  const std::uint32_t set = mine.process_set;
  const auto& ranks = program_.all_sets.ranks_of_set(set);
  for (const int other : ranks) {
    const auto& queue = queues_[static_cast<std::size_t>(other)];
    if (stopped_[static_cast<std::size_t>(other)] || queue.empty()) return false;
    if (queue.front().process_set != set || queue.front().number != mine.number) return false;
  }
  std::vector<Cut> cuts;
  for (const int other : ranks) {
    auto& queue = queues_[static_cast<std::size_t>(other)];
    cuts.push_back(std::move(queue.front()));
    queue.pop_front();
  }
  run(set, cuts);
  return true;
}

// `cuts` by place in the process set: pack, reduce, unpack, compare.
void Executor::run(std::uint32_t process_set, const std::vector<Cut>& cuts) {
  const auto& ranks = program_.all_sets.ranks_of_set(process_set);
  const std::vector<int> hosts = hosts_of(process_set);
  ++executed_cuts_;
  if (cuts.front().parts.size() > 1) ++fused_cuts_;

  std::vector<Words> packed(cuts.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    for (const Part& part : cuts[i].parts) {
      if (part.ticket == 0) continue;
      const int op = submission(ranks[i], part.ticket).op;
      const TensorSpec& tensor = part.unit->tensors[part.tensor];
      Words words =
          input_of(op, ranks[i], part.tensor, tensor, input_count(tensor, i, ranks.size()),
                   program_.ops[static_cast<std::size_t>(op)].inexact);
      if (tensor.dtype == DataType::kFloat32) scale(words, tensor.prescale);
      packed[i].insert(packed[i].end(), words.begin(), words.end());
    }
  }
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const Words result = result_of(cuts, packed, i);
    std::size_t at = 0;
    for (const Part& part : cuts[i].parts) {
      const TensorSpec& tensor = part.unit->tensors[part.tensor];
      const bool fused = tensor.kind == OpKind::kAllreduce || tensor.kind == OpKind::kBroadcast;
      const std::size_t count = fused ? tensor.count : result.size();
      Words mine = TensorBlock{at, count}.of(result);
      at += count;
      if (part.ticket == 0) continue;
      if (tensor.dtype == DataType::kFloat32) scale(mine, tensor.postscale);
      check_result(part, ranks[i], mine, hosts);
      if (--submission(ranks[i], part.ticket).tensors_left == 0) {
        end_(ranks[i], part.ticket, Status::ok());
      }
    }
  }
}

// What the rank at `place` has when the operation is over, its tensors one behind the other.
Words Executor::result_of(const std::vector<Cut>& cuts, const std::vector<Words>& packed,
                          std::size_t place) const {
  const auto present = std::find_if(cuts.begin(), cuts.end(),
                                    [](const Cut& cut) { return cut.parts.front().ticket != 0; });
  require(present != cuts.end(), "absent_ranks", [] { return "a cut that nobody submitted"; });
  const auto spec_of = [](const Cut& cut) -> const TensorSpec& {
    return cut.parts.front().unit->tensors[cut.parts.front().tensor];
  };
  const TensorSpec& spec = spec_of(*present);
  const std::uint32_t set = present->process_set;
  const auto& ranks = program_.all_sets.ranks_of_set(set);
  Words result;
  switch (spec.kind) {
    case OpKind::kAllreduce: return fused_allreduce(spec, packed, hosts_of(set));
    case OpKind::kReduceScatter:
      return block_of(spec, place).of(fused_allreduce(spec, packed, hosts_of(set)));
    case OpKind::kAllgather:
      for (const Words& words : packed) result.insert(result.end(), words.begin(), words.end());
      break;
    case OpKind::kBroadcast:
      return packed[static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), spec.root) -
                                             ranks.begin())];
    case OpKind::kAlltoall:
      for (std::size_t sender = 0; sender < cuts.size(); ++sender) {
        const Words block = block_of(spec_of(cuts[sender]), place).of(packed[sender]);
        result.insert(result.end(), block.begin(), block.end());
      }
      break;
    case OpKind::kBarrier:
    case OpKind::kCreateSet:
    case OpKind::kDestroySet: break;
  }
  return result;
}

// Against the program: every present rank's data of *this rank's* operation.
void Executor::check_result(const Part& part, int rank, const Words& result,
                            const std::vector<int>& hosts) {
  const int index = submission(rank, part.ticket).op;
  const Op& op = program_.ops[static_cast<std::size_t>(index)];
  const TensorSpec& spec = part.unit->tensors[part.tensor];
  std::vector<Words> inputs;
  Words expected;
  const auto& ranks = program_.all_sets.ranks_of_set(op.key.process_set);
  const auto mine =
      static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    inputs.emplace_back();
    const UnitPtr& unit = op.unit_of[static_cast<std::size_t>(ranks[place])];
    if (unit == nullptr) continue;
    const TensorSpec& theirs = unit->tensors[part.tensor];
    inputs.back() = input_of(index, ranks[place], part.tensor, theirs,
                             input_count(theirs, place, ranks.size()), op.inexact);
    Words given;
    if (spec.kind == OpKind::kAllgather) given = inputs.back();
    if (spec.kind == OpKind::kBroadcast && ranks[place] == spec.root) given = inputs.back();
    if (spec.kind == OpKind::kAlltoall) given = block_of(theirs, mine).of(inputs.back());
    expected.insert(expected.end(), given.begin(), given.end());
  }
  if (spec.kind == OpKind::kAllreduce) expected = reference_allreduce(spec, inputs, hosts);
  if (spec.kind == OpKind::kReduceScatter) {
    expected = block_of(spec, mine).of(reference_allreduce(spec, inputs, hosts));
  }
  require(result == expected, "right_result", [&] {
    return "rank " + std::to_string(rank) + ", operation " + std::to_string(index) + ", " +
           unit_text(*part.unit) + ": the result is not that of the inputs";
  });
}

void Executor::drop(int rank, const Cut& cut, const Status& status) {
  for (const Part& part : cut.parts) {
    if (part.ticket != 0 && !submission(rank, part.ticket).ended) end_(rank, part.ticket, status);
  }
}

void Executor::cut_off(int rank, std::uint32_t process_set, std::uint64_t through,
                       const Status& status) {
  auto& queue = queues_[static_cast<std::size_t>(rank)];
  std::deque<Cut> kept;
  for (Cut& cut : queue) {
    if (cut.process_set == process_set && cut.run > through) {
      drop(rank, cut, status);
    } else {
      kept.push_back(std::move(cut));
    }
  }
  queue = std::move(kept);
  advance(rank);
}

void Executor::cut_off_all(int rank, const Status& status) {
  for (const Cut& cut : std::exchange(queues_[static_cast<std::size_t>(rank)], {})) {
    drop(rank, cut, status);
  }
}

std::string Executor::head_text(int rank) const {
  const auto& queue = queues_[static_cast<std::size_t>(rank)];
  if (queue.empty()) return "nothing";
  const Cut& cut = queue.front();
  return "operation " + std::to_string(cut.number) + " of process set " +
         std::to_string(cut.process_set) + " [" + plans_.at(cut.process_set)[cut.number] + "]";
}

}  // namespace kolo::internal
