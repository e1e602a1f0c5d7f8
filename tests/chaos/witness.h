// Witness: notes on the board what becomes of a rank's calls: the first that fails, and what is
// wrong in the rank's own eyes. Then it may rest for a moment, so that this rank's checks do not
// take the cores from those who are still to be told. One thread.
#pragma once

#include <kolo/kolo.h>

#include <string>

#include "tests/chaos/board.h"

namespace kolo::chaos {

class Witness {
 public:
  Witness(Cell& cell, std::int64_t calm_ms) : cell_(cell), calm_ms_(calm_ms) {}

  // Makes a call, and notes it if it is the first that fails.
  template <typename Call>
  kolo_status watch(Call&& call) {
    const std::int64_t entered = monotonic_ns();
    const kolo_status status = call();
    if (status != KOLO_OK) note(status, entered, monotonic_ns());
    return status;
  }
  // The first complaint counts.
  void complain(const std::string& what) {
    if (cell_.complaint.get().empty()) cell_.complaint.set(what);
  }
  [[nodiscard]] bool has_failed() const { return cell_.status != KOLO_OK; }
  [[nodiscard]] Cell& cell() const { return cell_; }

 private:
  void note(kolo_status status, std::int64_t entered, std::int64_t now) {
    if (has_failed()) return;
    cell_.entered = entered;
    cell_.failed = now;
    cell_.failed_in = cell_.phase;
    cell_.error.set(kolo_last_error());
    cell_.status = status;
    if (calm_ms_ > 0) sleep_us(calm_ms_ * 1000);
  }

  Cell& cell_;
  const std::int64_t calm_ms_;
};

}  // namespace kolo::chaos
