// Batch: independent units on this rank: submitted from one to three threads in an order of its
// own, waited for in one way or another, and checked.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "tests/multiproc/random/flight.h"

namespace kolo::programs {

// Persistent operations of a program, by id: prepared once, alive until its end.
using Persistent = std::map<int, std::unique_ptr<Flight>>;

class Batch {
 public:
  // `present`: by place, who has not joined; empty: everybody. `key`: of all values.
  Batch(Here& here, const std::vector<Unit>& units, std::uint64_t key, std::vector<bool> present,
        Persistent& persistent, Rng random);
  void run();

 private:
  struct Pending {
    const Unit* unit = nullptr;
    std::vector<Flight*> members;
    bool blocks = false;  // a group's end
    bool refused = false;
    bool done = false;
    kolo_status expected = KOLO_OK;
    kolo_status status = KOLO_INTERNAL;
    kolo_request group = KOLO_REQUEST_NULL;
  };
  using Order = std::vector<std::size_t>;  // indices of units

  void draw_orders();
  void shuffle(Order& order);
  [[nodiscard]] bool is_mine(std::size_t unit) const;
  [[nodiscard]] bool is_led(std::size_t unit) const;
  [[nodiscard]] bool leads(std::size_t unit) const;
  void make(std::size_t unit, bool may_block);
  Flight* make_flight(const Operation& operation, Finish finish);
  [[nodiscard]] Run run_of(const Operation& operation) const;
  Finish draw_finish(const Operation& operation, bool in_group, bool leads);
  void link();
  void submit(Pending& pending, Rng& random) const;
  void submit_group(Pending& pending, Rng& random) const;
  void finish(Pending& pending) const;
  void finish_together();
  void check();
  void compare_adasum() const;

  Here& here_;
  const std::vector<Unit>& units_;
  std::uint64_t key_;
  std::vector<bool> present_;
  Persistent& persistent_;
  Rng random_;
  std::vector<Order> orders_;     // by thread
  std::vector<Pending> pending_;  // by unit; without members: not of this rank
  std::vector<std::unique_ptr<Flight>> flights_;
};

}  // namespace kolo::programs
