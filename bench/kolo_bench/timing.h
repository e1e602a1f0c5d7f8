// The clock of the measurements, and what the library counts while it runs.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "bench/kolo_bench/library.h"
#include "bench/kolo_bench/report.h"

namespace kolo::bench {

class Stopwatch {
 public:
  [[nodiscard]] double us() const {
    return std::chrono::duration<double, std::micro>(Clock::now() - start_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// Adds up what is counted between start() and stop(), where that is wanted.
class CounterRecord {
 public:
  CounterRecord(Library& library, bool wanted) : library_(library), wanted_(wanted) {}

  void start() {
    if (wanted_) before_ = library_.counters();
  }
  void stop(int operations) {
    if (!wanted_) return;
    for (const auto& [name, total] : library_.counters()) {
      counted_.totals[name] += total - before_[name];
    }
    counted_.operations += operations;
  }
  [[nodiscard]] const Counted& counted() const { return counted_; }

 private:
  Library& library_;
  bool wanted_;
  std::map<std::string, double> before_;
  Counted counted_;
};

}  // namespace kolo::bench
