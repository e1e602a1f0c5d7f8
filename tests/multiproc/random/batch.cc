#include "tests/multiproc/random/batch.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace kolo::programs {
namespace {

// Units without a name keep their order: each set's, and the making of sets.
constexpr int kCreations = -1;
int line_of(const Unit& unit) {
  const Operation& first = unit.members.front();
  return first.kind == Kind::kCreate ? kCreations : first.set;
}

bool is_in_line(const Unit& unit) {
  return unit.numbered() && unit.members.front().kind != Kind::kDestroy;
}

std::uint64_t hash_of(const std::byte* bytes, std::size_t count) {
  std::uint64_t hash = count;
  for (std::size_t i = 0; i < count; ++i) hash = mix(hash ^ std::to_integer<unsigned>(bytes[i]));
  return hash;
}

}  // namespace

Batch::Batch(Here& here, const std::vector<Unit>& units, std::uint64_t key,
             std::vector<bool> present, Persistent& persistent, Rng random)
    : here_(here),
      units_(units),
      key_(key),
      present_(std::move(present)),
      persistent_(persistent),
      random_(random),
      pending_(units.size()) {
  draw_orders();
  for (const Order& order : orders_) {
    for (const std::size_t unit : order) make(unit, unit == order.back());
  }
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    if (is_mine(unit) && is_led(unit)) make(unit, false);
  }
  link();
}

bool Batch::is_mine(std::size_t unit) const {
  const auto set = static_cast<std::size_t>(units_[unit].members.front().set);
  return here_.program->sets[set].place_of(here_.rank) >= 0;
}

// Submitted in a callback of another unit, if that is this rank's too.
bool Batch::is_led(std::size_t unit) const {
  const int after = units_[unit].members.front().after;
  return after >= 0 && is_mine(static_cast<std::size_t>(after));
}

bool Batch::leads(std::size_t unit) const {
  for (std::size_t other = 0; other < units_.size(); ++other) {
    if (units_[other].members.front().after == static_cast<int>(unit) && is_mine(other))
      return true;
  }
  return false;
}

void Batch::draw_orders() {
  orders_.resize(1 + random_.below(std::uint64_t{3}));
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_mine(unit) || is_led(unit)) continue;
    const std::size_t thread = is_in_line(units_[unit])
                                   ? static_cast<std::size_t>(line_of(units_[unit]) + 1)
                                   : static_cast<std::size_t>(random_.next() >> 1);
    orders_[thread % orders_.size()].push_back(unit);
  }
  for (Order& order : orders_) shuffle(order);
}

void Batch::shuffle(Order& order) {
  const Order before = order;
  random_.shuffle(order);
  std::map<int, Order> places;  // by line
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (is_in_line(units_[order[i]])) places[line_of(units_[order[i]])].push_back(i);
  }
  for (const auto& [line, free] : places) {
    std::size_t next = 0;
    for (const std::size_t unit : before) {
      if (is_in_line(units_[unit]) && line_of(units_[unit]) == line) order[free[next++]] = unit;
    }
  }
}

Run Batch::run_of(const Operation& operation) const {
  Run run;
  run.operation = &operation;
  run.key = mix(key_ ^ static_cast<std::uint64_t>(operation.id));
  run.set = &here_.program->sets[static_cast<std::size_t>(operation.set)];
  for (const int rank : run.set->ranks) {
    run.hosts.push_back(here_.hosts[static_cast<std::size_t>(rank)]);
  }
  run.present = present_.empty() ? std::vector<bool>(run.size(), true) : present_;
  return run;
}

Finish Batch::draw_finish(const Operation& operation, bool in_group, bool leads) {
  constexpr Finish kWays[] = {Finish::kWait, Finish::kWait, Finish::kTest, Finish::kBoth,
                              Finish::kCallback};
  const bool needs_request = operation.persistent || operation.allocate;
  if (leads) return random_.chance(50) ? Finish::kBoth : Finish::kCallback;
  if (in_group && random_.chance(50)) return Finish::kGroup;
  const Finish way = kWays[random_.below(std::size(kWays))];
  return needs_request && way == Finish::kCallback ? Finish::kBoth : way;
}

Flight* Batch::make_flight(const Operation& operation, Finish finish) {
  const Run run = run_of(operation);
  if (operation.persistent) {
    std::unique_ptr<Flight>& kept = persistent_[operation.id];
    if (kept) {
      kept->renew(run.key);
    } else {
      kept = std::make_unique<Flight>(here_, run, finish, random_);
    }
    return kept.get();
  }
  flights_.push_back(std::make_unique<Flight>(here_, run, finish, random_));
  return flights_.back().get();
}

void Batch::make(std::size_t index, bool may_block) {
  const Unit& unit = units_[index];
  const Operation& first = unit.members.front();
  Pending& pending = pending_[index];
  pending.unit = &unit;
  const bool leader = leads(index);
  const bool blocks =
      may_block && !leader && !first.persistent && !first.allocate && random_.chance(40);
  pending.blocks = unit.group && blocks;
  // The group's end tells this rank; callbacks of its members do not come.
  const bool untold = unit.group && std::any_of(unit.members.begin(), unit.members.end(),
                                                [](const Operation& member) {
                                                  return member.wrong == Wrong::kRefused;
                                                });
  bool lacks_somebody = false;
  for (const Operation& member : unit.members) {
    Finish finish = draw_finish(member, unit.group, leader);
    if (untold) finish = Finish::kWait;
    if (blocks && !unit.group) finish = Finish::kBlock;
    pending.members.push_back(make_flight(member, finish));
    pending.refused |= member.wrong == Wrong::kRefused && is_wrong(member, here_.rank);
    lacks_somebody |= needs_everybody(run_of(member));
  }
  if (pending.refused || lacks_somebody) pending.expected = KOLO_INVALID_ARGUMENT;
  if (!pending.refused && unit.has_wrong()) pending.expected = KOLO_MISMATCH;
  for (Flight* member : pending.members) member->set_expected(pending.expected, pending.refused);
}

void Batch::link() {
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!is_mine(unit) || !is_led(unit)) continue;
    const auto after = static_cast<std::size_t>(units_[unit].members.front().after);
    pending_[after].members.front()->add_follower(pending_[unit].members.front());
  }
}

void Batch::submit(Pending& pending, Rng& random) const {
  if (pending.unit->group) return submit_group(pending, random);
  pending.members.front()->submit();
}

void Batch::submit_group(Pending& pending, Rng& random) const {
  const std::string& name = pending.unit->name;
  expect(here_, kolo_group_begin(here_.context, name.empty() ? nullptr : name.c_str()), KOLO_OK,
         "kolo_group_begin");
  std::vector<Flight*> order = pending.members;
  if (!pending.unit->members.front().name.empty()) random.shuffle(order);
  for (Flight* member : order) member->submit();
  pending.status = kolo_group_end(here_.context, pending.blocks ? nullptr : &pending.group);
  if (pending.refused || !pending.blocks) {
    expect(here_, pending.status, pending.refused ? KOLO_INVALID_ARGUMENT : KOLO_OK,
           "kolo_group_end of group '" + name + "' with " + order.front()->text());
  }
}

void Batch::finish(Pending& pending) const {
  if (std::exchange(pending.done, true)) return;
  if (pending.unit->group) {
    if (!pending.blocks && !pending.refused) {
      pending.status = kolo_wait(here_.context, &pending.group, kLimitMs);
    }
    expect(here_, pending.status, pending.expected,
           "group '" + pending.unit->name + "' with " + pending.members.front()->text());
  }
  for (Flight* member : pending.members) {
    if (member->how() == Finish::kGroup) member->set_finished(pending.status);
    member->finish();
  }
}

// One kolo_wait_all for what can be waited for so.
void Batch::finish_together() {
  std::vector<Flight*> flights;
  std::vector<kolo_request> requests;
  for (const Pending& pending : pending_) {
    if (pending.members.empty() || pending.unit->group) continue;
    Flight* flight = pending.members.front();
    if (!flight->waits_plainly() || flight->request() == KOLO_REQUEST_NULL) continue;
    flights.push_back(flight);
    requests.push_back(flight->request());
  }
  if (flights.empty()) return;
  expect(
      here_, kolo_wait_all(here_.context, requests.data(), requests.size(), kLimitMs), KOLO_OK,
      "kolo_wait_all of " + std::to_string(requests.size()) + ", first " + flights.front()->text());
  for (std::size_t i = 0; i < flights.size(); ++i) {
    if (requests[i] != KOLO_REQUEST_NULL) fail(here_, "kolo_wait_all left a request");
    flights[i]->request() = KOLO_REQUEST_NULL;
    flights[i]->set_finished(KOLO_OK);
  }
}

void Batch::run() {
  std::vector<std::thread> threads;
  for (const Order& order : orders_) {
    Rng random(random_.next());
    const bool finishes = random_.chance(40);
    threads.emplace_back([this, order = Order(order), random, finishes]() mutable {
      for (const std::size_t unit : order) submit(pending_[unit], random);
      if (!finishes) return;
      random.shuffle(order);
      for (const std::size_t unit : order) finish(pending_[unit]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A request of a follower is not there before its callback has run.
  if (random_.chance(40) && std::none_of(units_.begin(), units_.end(), [](const Unit& unit) {
        return unit.members.front().after >= 0;
      })) {
    finish_together();
  }
  Order rest(units_.size());
  for (std::size_t unit = 0; unit < rest.size(); ++unit) rest[unit] = unit;
  random_.shuffle(rest);
  for (const std::size_t unit : rest) {
    if (!pending_[unit].members.empty()) finish(pending_[unit]);
  }
  check();
}

void Batch::check() {
  for (const Pending& pending : pending_) {
    for (Flight* member : pending.members) member->check();
  }
  if (present_.empty()) compare_adasum();
}

// Its bits have no reference, but must be the same on all ranks. All ranks come here in the order
// of the program.
void Batch::compare_adasum() const {
  for (const Pending& pending : pending_) {
    if (pending.members.empty() || pending.unit->group || pending.expected != KOLO_OK) continue;
    const Flight& flight = *pending.members.front();
    if (flight.operation().op != KOLO_ADASUM) continue;
    const auto set = static_cast<std::size_t>(flight.operation().set);
    std::vector<std::uint64_t> all(here_.program->sets[set].ranks.size());
    const std::uint64_t mine =
        hash_of(flight.output(), flight.operation().count * bytes_of(flight.operation().dtype));
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = "hash of an Adasum";
    options.pset = here_.psets[set];
    expect(here_,
           kolo_allgather(here_.context, &mine, all.data(), 1, KOLO_UINT64, &options, nullptr),
           KOLO_OK, options.name);
    if (std::count(all.begin(), all.end(), mine) != static_cast<std::ptrdiff_t>(all.size())) {
      fail(here_, flight.text() + ": the ranks have different bits");
    }
  }
}

}  // namespace kolo::programs
